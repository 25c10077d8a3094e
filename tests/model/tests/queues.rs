//! Queues: arming, overrun, resize, isolation of doorbells, shared receive queues, asynchronous events, life times.

mod common;

use bareverbs_firmware_cmds::cq::{CreateCqIn, DestroyCqIn, ModifyCqIn, QueryCqIn};
use bareverbs_firmware_cmds::domain::DeallocPdIn;
use bareverbs_firmware_cmds::eq::DestroyEqIn;
use bareverbs_firmware_cmds::mkey::{CreateMkeyIn, QueryMkeyIn};
use bareverbs_firmware_cmds::qp::{DestroyQpIn, QueryQpIn, Rts2rtsQpIn};
use bareverbs_firmware_cmds::srq::{
    ArmXrcSrqIn, CreateRmpIn, DestroyRmpIn, ModifyRmpIn, QueryRmpIn,
};
use bareverbs_firmware_cmds::uar::{AllocUarIn, DeallocUarIn};
use common::queues::*;
use common::{Failure, Node, page_list};
use connectx_model::{Config, Syndrome};
use zerocopy::IntoBytes;

const SEND: u8 = 0x0a;
const WRITE: u8 = 0x08;

const COMP: u8 = 0x00;
const COMM_EST: u8 = 0x02;
const CQ_ERROR: u8 = 0x04;
const WQ_CATAS: u8 = 0x05;
const WQ_ACCESS: u8 = 0x11;
const SRQ_LAST_WQE: u8 = 0x13;
const SRQ_LIMIT: u8 = 0x14;

fn refused(syndrome: Syndrome) -> Failure {
    Failure::Status(syndrome.status() as u8, syndrome.code())
}

fn events(node: &mut Node, at: usize) -> Vec<(u8, u32)> {
    std::iter::from_fn(|| {
        let (kind, _, data) = node.next_event(at)?;
        Some((
            kind,
            u32::from_be_bytes(data[24..].try_into().unwrap()) & 0xff_ffff,
        ))
    })
    .collect()
}

/// An RC pair with memory at the receiver.
fn connected() -> (Pair, (Qp, Cq), (Qp, Cq), u32) {
    let mut pair = Pair::new();
    let [a, b] = pair.connect(RC);
    let memory = pair.b.host.alloc(4096, 4096);
    let key = pair.b.register(pair.pd[1], memory, 0, 4096, ALL);
    (pair, a, b, key)
}

fn send(pair: &mut Pair, from: &mut Qp, to: &mut Qp, key: u32, flags: u8) {
    pair.b.post_receive(to, &[(key, 0, 64)]);
    pair.a
        .post_send(from, SEND, flags, 0, &inline_segment(&[1; 20]));
    pair.a.ring_send(from);
    pair.run();
}

#[test]
fn a_queue_tells_once_for_every_arming() {
    let (mut pair, (mut qp_a, _), (mut qp_b, mut cq), key) = connected();
    send(&mut pair, &mut qp_a, &mut qp_b, key, 0);
    assert_eq!(events(&mut pair.b, 1), []);
    // What lies behind the consumer index when the queue is armed counts at once.
    pair.b.arm(&mut cq, false);
    assert_eq!(events(&mut pair.b, 1), [(COMP, cq.number)]);
    assert_eq!(pair.b.host.interrupts, [1]);
    cq.arm_number += 1;
    assert!(pair.b.poll(&mut cq).is_some());
    pair.b.arm_eq(1);
    pair.b.arm(&mut cq, false);
    assert_eq!(events(&mut pair.b, 1), []);
    send(&mut pair, &mut qp_a, &mut qp_b, key, 0);
    send(&mut pair, &mut qp_a, &mut qp_b, key, 0);
    assert_eq!(events(&mut pair.b, 1), [(COMP, cq.number)]);
    assert_eq!(pair.b.host.interrupts, [1, 1]);
    assert_eq!(pair.b.poll_all(&mut cq).len(), 2);
    // A record that says something else than the doorbell makes the arm stale.
    cq.arm_number += 1;
    pair.b.arm(&mut cq, false);
    send(&mut pair, &mut qp_a, &mut qp_b, key, 0);
    assert_eq!(events(&mut pair.b, 1).len(), 1);
    pair.b.poll_all(&mut cq);
    let uar = u64::from(pair.b.uar) * 4096;
    let value = 3u64 << 60 | u64::from(cq.consumer) << 32 | u64::from(cq.number);
    pair.b.write64(uar + 0x20, value);
    send(&mut pair, &mut qp_a, &mut qp_b, key, 0);
    assert_eq!(events(&mut pair.b, 1), []);
}

#[test]
fn solicited_arming_waits_for_who_asks_or_fails() {
    let (mut pair, (mut qp_a, _), (mut qp_b, mut cq), key) = connected();
    pair.b.arm(&mut cq, true);
    send(&mut pair, &mut qp_a, &mut qp_b, key, 0);
    assert_eq!(events(&mut pair.b, 1), []);
    send(&mut pair, &mut qp_a, &mut qp_b, key, SOLICITED);
    assert_eq!(events(&mut pair.b, 1), [(COMP, cq.number)]);
    pair.b.poll_all(&mut cq);
    pair.b.arm(&mut cq, true);
    pair.b.post_receive(&mut qp_b, &[(key, 0, 64)]);
    pair.b.make_error(&qp_b);
    pair.run();
    assert_eq!(events(&mut pair.b, 1), [(COMP, cq.number)]);
    // A failure that is there already counts when the queue is armed.
    pair.b.poll_all(&mut cq);
    pair.b.post_receive(&mut qp_b, &[(key, 0, 64)]);
    pair.b.sleep(std::time::Duration::from_millis(1));
    assert_eq!(events(&mut pair.b, 1), []);
    pair.b.arm(&mut cq, true);
    assert_eq!(events(&mut pair.b, 1), [(COMP, cq.number)]);
}

#[test]
fn doorbells_of_two_halves_work_and_those_of_others_do_not() {
    let (mut pair, (mut qp_a, mut cq_a), (mut qp_b, _), key) = connected();
    let other = pair.a.command(&AllocUarIn::new()).unwrap().uar();
    pair.b.post_receive(&mut qp_b, &[(key, 0, 64)]);
    pair.a
        .post_send(&mut qp_a, SEND, SIGNALED, 0, &inline_segment(&[1]));
    pair.a.host.put32(qp_a.record + 4, u32::from(qp_a.sq));
    // Neither queue listens to a UAR that is not its own, be it a completion or an event queue.
    let elsewhere = u64::from(other) * 4096;
    pair.a.host.put32(cq_a.record + 4, 0);
    pair.a.write64(elsewhere + 0x20, u64::from(cq_a.number));
    let events_at = pair.a.events[1].number;
    pair.a.write32(elsewhere + 0x40, events_at << 24);
    let bad = pair.a.model.stats().bad_doorbells;
    assert_eq!(bad, 2);
    pair.a
        .write64(u64::from(other) * 4096 + 0x800, u64::from(qp_a.number) << 8);
    pair.run();
    assert_eq!(pair.a.poll(&mut cq_a), None);
    assert_eq!(pair.a.model.stats().bad_doorbells, bad + 1);
    let uar = u64::from(pair.a.uar) * 4096;
    pair.a.write32(uar + 0x900, 0);
    pair.a.write32(uar + 0x904, qp_a.number << 8);
    pair.run();
    assert_eq!(pair.a.poll(&mut cq_a).map(|cqe| cqe.opcode), Some(0));
    // The completion queue's doorbell in two halves as well.
    let cqn = cq_a.number;
    pair.a.host.put32(cq_a.record + 4, cq_a.consumer);
    pair.a.write32(uar + 0x20, cq_a.consumer);
    pair.a.write32(uar + 0x24, cqn);
    pair.b.post_receive(&mut qp_b, &[(key, 0, 64)]);
    pair.a
        .post_send(&mut qp_a, SEND, SIGNALED, 0, &inline_segment(&[1]));
    pair.a.ring_send(&qp_a);
    pair.run();
    assert_eq!(events(&mut pair.a, 1), [(COMP, cqn)]);
}

#[test]
fn a_queue_that_overruns_fails_and_takes_its_qps_along() {
    let mut pair = Pair::new();
    let small = pair.a.create_cq(2, 1);
    let plan = QpPlan {
        st: RC,
        pd: pair.pd[0],
        send_cq: small.number,
        receive_cq: small.number,
        srq: None,
        user_index: 1,
    };
    let mut qp = pair.a.create_qp(plan);
    let mac = pair.a.model.config().mac;
    pair.a.make_init(&qp);
    pair.a.make_rtr(&qp, qp.number, 5, Some((gid(1), mac)));
    pair.a.make_rts(&qp, 5);
    for _ in 0..5 {
        // NOPs complete without a peer.
        pair.a.post_send(&mut qp, 0, SIGNALED, 0, &[]);
    }
    pair.a.ring_send(&qp);
    pair.run();
    let told = events(&mut pair.a, 0);
    assert!(told.contains(&(WQ_CATAS, qp.number)), "{told:?}");
    let mut query = QueryCqIn::new();
    query.set_cqn(small.number);
    assert_eq!(pair.a.command(&query).unwrap().cq_context().status(), 9);
    let mut query = QueryQpIn::new();
    query.set_qpn(qp.number);
    assert_eq!(pair.a.command(&query).unwrap().qpc().state(), 6);
    assert_eq!(pair.a.model.stats().cq_overruns, 1);
}

#[test]
fn the_event_of_an_overrun_names_the_queue() {
    let mut pair = Pair::new();
    let small = pair.a.create_cq(0, 1);
    let plan = QpPlan {
        st: RC,
        pd: pair.pd[0],
        send_cq: small.number,
        receive_cq: small.number,
        srq: None,
        user_index: 1,
    };
    let mut qp = pair.a.create_qp(plan);
    for _ in 0..2 {
        pair.a.post_receive(&mut qp, &[]);
    }
    pair.a.make_error(&qp);
    pair.run();
    let (kind, _, data) = pair.a.next_event(0).unwrap();
    assert_eq!(kind, CQ_ERROR);
    assert_eq!(
        u32::from_be_bytes(data[..4].try_into().unwrap()),
        small.number
    );
    assert_eq!(data[11], 1);
}

#[test]
fn ignored_overruns_overwrite() {
    let mut pair = Pair::new();
    let ring = pair.a.host.alloc(4096, 4096);
    let record = pair.a.host.alloc(8, 64);
    let mut create = CreateCqIn::new();
    create
        .cq_context_mut()
        .set_log_cq_size(1)
        .set_oi(true)
        .set_uar_page(pair.a.uar)
        .set_c_eqn_or_apu_element(pair.a.events[1].number)
        .set_dbr_addr(record);
    let (output, _) = pair
        .a
        .command_with(&create, &page_list(ring, 128), 0)
        .unwrap();
    let plan = QpPlan {
        st: RC,
        pd: pair.pd[0],
        send_cq: output.cqn(),
        receive_cq: output.cqn(),
        srq: None,
        user_index: 1,
    };
    let mut qp = pair.a.create_qp(plan);
    for _ in 0..7 {
        pair.a.post_receive(&mut qp, &[]);
    }
    pair.a.make_error(&qp);
    pair.run();
    let counter = |entry: &[u8]| u16::from_be_bytes([entry[0x3c], entry[0x3d]]);
    assert_eq!(counter(pair.a.host.bytes(ring, 64)), 6);
    assert_eq!(counter(pair.a.host.bytes(ring + 64, 64)), 5);
    assert_eq!(pair.a.model.stats().cq_overruns, 0);
}

#[test]
fn a_resized_queue_goes_on_behind_a_marker() {
    let (mut pair, (mut qp_a, _), (mut qp_b, mut cq), key) = connected();
    for _ in 0..3 {
        send(&mut pair, &mut qp_a, &mut qp_b, key, 0);
    }
    let ring = pair.b.host.alloc(8192, 4096);
    for entry in pair.b.host.bytes(ring, 8192).chunks_exact_mut(64) {
        entry[63] = 0xf0;
    }
    let mut resize = ModifyCqIn::new();
    resize.set_op_mod(1).set_cqn(cq.number);
    resize.set_modify_field_select_resize_field_select(7);
    resize.cq_context_mut().set_log_cq_size(1);
    let list = page_list(ring, 8192);
    assert_eq!(
        pair.b.command_with(&resize, &list, 0).err(),
        Some(refused(Syndrome::CqResizeOutstanding))
    );
    // Three entries and the marker fill four places; four entries do not fit.
    send(&mut pair, &mut qp_a, &mut qp_b, key, 0);
    resize.cq_context_mut().set_log_cq_size(2);
    assert_eq!(
        pair.b.command_with(&resize, &list, 0).err(),
        Some(refused(Syndrome::CqResizeOutstanding))
    );
    resize.cq_context_mut().set_log_cq_size(7);
    assert_eq!(
        pair.b.command_with(&resize, &list[..8], 0).err(),
        Some(refused(Syndrome::CqResizePages))
    );
    pair.b.command_with(&resize, &list, 0).unwrap();
    send(&mut pair, &mut qp_a, &mut qp_b, key, 0);
    let old: Vec<_> = pair
        .b
        .poll_all(&mut cq)
        .iter()
        .map(|cqe| cqe.opcode)
        .collect();
    assert_eq!(old, [2, 2, 2, 2, 5]);
    // The sixth is in the new queue, at its own index there.
    cq.ring = ring;
    cq.log_size = 7;
    let next = pair.b.poll(&mut cq).unwrap();
    assert_eq!((next.opcode, next.counter), (2, 4));
    // Moderation is stored, unknown fields are refused.
    let mut modify = ModifyCqIn::new();
    modify.set_cqn(cq.number);
    modify.set_modify_field_select_resize_field_select(3);
    modify
        .cq_context_mut()
        .set_cq_period(17)
        .set_cq_max_count(9);
    pair.b.command_with(&modify, &[], 0).unwrap();
    let mut query = QueryCqIn::new();
    query.set_cqn(cq.number);
    let (shown, pages) = pair.b.command_with(&query, &[], 16).unwrap();
    assert_eq!(shown.cq_context().cq_period(), 17);
    assert_eq!(shown.cq_context().log_cq_size(), 7);
    assert_eq!(shown.cq_context().producer_counter(), 6);
    assert_eq!(pages, list);
    modify.set_modify_field_select_resize_field_select(1 << 9);
    assert_eq!(
        pair.b.command_with(&modify, &[], 0).err(),
        Some(refused(Syndrome::CqModifyFields))
    );
}

#[test]
fn long_entries_have_the_completion_in_their_second_half() {
    let mut pair = Pair::new();
    let ring = pair.a.host.alloc(4096, 4096);
    let record = pair.a.host.alloc(8, 64);
    let mut create = CreateCqIn::new();
    create
        .cq_context_mut()
        .set_log_cq_size(2)
        .set_cqe_sz(1)
        .set_uar_page(pair.a.uar)
        .set_c_eqn_or_apu_element(pair.a.events[1].number)
        .set_dbr_addr(record);
    let (output, _) = pair
        .a
        .command_with(&create, &page_list(ring, 512), 0)
        .unwrap();
    let plan = QpPlan {
        st: RC,
        pd: pair.pd[0],
        send_cq: output.cqn(),
        receive_cq: output.cqn(),
        srq: None,
        user_index: 1,
    };
    let mut qp = pair.a.create_qp(plan);
    for _ in 0..2 {
        pair.a.post_receive(&mut qp, &[]);
    }
    pair.a.make_error(&qp);
    pair.run();
    assert_eq!(pair.a.host.bytes(ring, 64), [0; 64]);
    assert_eq!(pair.a.host.bytes(ring + 64 + 63, 1), [0xe0]);
    assert_eq!(pair.a.host.bytes(ring + 128 + 64 + 0x3c, 2), [0, 1]);
}

/// A shared receive queue of linked WQEs of 64 bytes.
fn create_rmp(node: &mut Node, pd: u32) -> (u32, u64, u64) {
    let ring = node.host.alloc(4096, 4096);
    let record = node.host.alloc(8, 64);
    for index in 0..16u16 {
        let next = (index + 1) % 16;
        node.host
            .put(ring + u64::from(index) * 64 + 2, &next.to_be_bytes());
    }
    let mut create = CreateRmpIn::new();
    let context = create.ctx_mut();
    context.set_state(1);
    context
        .wq_mut()
        .set_pd(pd)
        .set_log_wq_stride(6)
        .set_log_wq_sz(4)
        .set_dbr_addr(record);
    let (output, _) = node
        .command_with(&create, &page_list(ring, 1024), 0)
        .unwrap();
    (output.rmpn(), ring, record)
}

#[test]
fn a_shared_queue_follows_its_links_and_tells_its_limit() {
    let mut pair = Pair::new();
    let pd = pair.pd[1];
    let (srq, ring, record) = create_rmp(&mut pair.b, pd);
    let memory = pair.b.host.alloc(4096, 4096);
    let key = pair.b.register(pd, memory, 0, 4096, ALL);
    let mut cq = pair.b.create_cq(6, 1);
    let plan = QpPlan {
        st: RC,
        pd,
        send_cq: cq.number,
        receive_cq: cq.number,
        srq: Some(srq),
        user_index: 0x33,
    };
    let qp_b = pair.b.create_qp(plan);
    pair.b.make_init(&qp_b);
    let mut cq_a = pair.a.create_cq(6, 1);
    let mut qp_a = pair.a.create_qp(QpPlan {
        pd: pair.pd[0],
        send_cq: cq_a.number,
        receive_cq: cq_a.number,
        srq: None,
        ..plan
    });
    pair.a.make_init(&qp_a);
    let macs = [pair.a.model.config().mac, pair.b.model.config().mac];
    pair.a
        .make_rtr(&qp_a, qp_b.number, 9, Some((gid(2), macs[1])));
    pair.b
        .make_rtr(&qp_b, qp_a.number, 8, Some((gid(1), macs[0])));
    pair.a.make_rts(&qp_a, 8);

    // The list goes 0 → 5 → 2.
    for (index, next) in [(0u16, 5u16), (5, 2), (2, 7)] {
        let at = ring + u64::from(index) * 64;
        pair.b.host.put(at + 2, &next.to_be_bytes());
        pair.b
            .host
            .put(at + 16, &data_segment((key, u64::from(index) * 100, 64)));
        pair.b.host.put(at + 32, &data_segment((0x100, 0, 0)));
    }
    pair.b.host.put32(record, 3);
    let mut modify = ModifyRmpIn::new();
    modify.set_rmp_state(1).set_rmpn(srq);
    modify.bitmask_mut().set_lwm(true);
    modify.ctx_mut().set_state(1);
    modify.ctx_mut().wq_mut().set_lwm(2);
    pair.b.command(&modify).unwrap();
    assert_eq!(events(&mut pair.b, 0), []);
    let mut one = |pair: &mut Pair, round: u8| {
        pair.a
            .post_send(&mut qp_a, SEND, SIGNALED, 0, &inline_segment(&[round; 10]));
        pair.a.ring_send(&qp_a);
        pair.run();
    };
    one(&mut pair, 1);
    // The QP was not in RTS when the first packet came. Two are left, which is not below the limit.
    assert_eq!(events(&mut pair.b, 0), [(COMM_EST, qp_b.number)]);
    // What was posted since counts: again two are left.
    pair.b.host.put32(record, 4);
    one(&mut pair, 2);
    assert_eq!(events(&mut pair.b, 0), []);
    one(&mut pair, 3);
    assert_eq!(events(&mut pair.b, 0), [(SRQ_LIMIT, srq)]);
    let got: Vec<_> = pair
        .b
        .poll_all(&mut cq)
        .iter()
        .map(|cqe| (cqe.counter, cqe.user_index))
        .collect();
    assert_eq!(got, [(0, 0x33), (5, 0x33), (2, 0x33)]);
    assert_eq!(pair.b.host.bytes(memory + 500, 10), [2; 10]);
    // It is told once.
    assert_eq!(events(&mut pair.b, 0), []);
    let mut query = QueryRmpIn::new();
    query.set_rmpn(srq);
    assert_eq!(pair.b.command(&query).unwrap().rmp_context().wq().lwm(), 0);

    let mut destroy = DestroyRmpIn::new();
    destroy.set_rmpn(srq);
    assert_eq!(
        pair.b.command(&destroy).err(),
        Some(refused(Syndrome::SrqBusy))
    );
    let mut arm = ArmXrcSrqIn::new();
    arm.set_xrc_srqn(srq);
    assert_eq!(pair.b.command(&arm).err(), Some(refused(Syndrome::SrqKind)));
    pair.b.make_error(&qp_b);
    pair.run();
    assert_eq!(events(&mut pair.b, 0), [(SRQ_LAST_WQE, qp_b.number)]);
    assert!(pair.a.poll(&mut cq_a).is_some());
}

#[test]
fn violations_are_told_to_the_responder_too() {
    let (mut pair, (mut qp_a, _), (qp_b, _), key) = connected();
    let segments = [remote_segment(0, key ^ 1), inline_segment(&[1])].concat();
    pair.a.post_send(&mut qp_a, WRITE, SIGNALED, 0, &segments);
    pair.a.ring_send(&qp_a);
    pair.run();
    assert_eq!(events(&mut pair.b, 0), [(WQ_ACCESS, qp_b.number)]);
}

#[test]
fn what_is_in_use_cannot_be_destroyed() {
    let mut pair = Pair::new();
    let [(qp, cq), _] = pair.connect(RC);
    let node = &mut pair.a;
    let mut cq_in = DestroyCqIn::new();
    cq_in.set_cqn(cq.number);
    let mut pd_in = DeallocPdIn::new();
    pd_in.set_pd(pair.pd[0]);
    let mut uar_in = DeallocUarIn::new();
    uar_in.set_uar(node.uar);
    let mut eq_in = DestroyEqIn::new();
    eq_in.set_eq_number(node.events[1].number as u8);
    let mut qp_in = DestroyQpIn::new();
    qp_in.set_qpn(qp.number);
    assert_eq!(node.command(&cq_in).err(), Some(refused(Syndrome::CqBusy)));
    assert_eq!(node.command(&pd_in).err(), Some(refused(Syndrome::PdBusy)));
    assert_eq!(
        node.command(&uar_in).err(),
        Some(refused(Syndrome::UarBusy))
    );
    assert_eq!(node.command(&eq_in).err(), Some(refused(Syndrome::EqBusy)));
    node.command(&qp_in).unwrap();
    assert_eq!(
        node.command(&qp_in).err(),
        Some(refused(Syndrome::QpUnknown))
    );
    node.command(&cq_in).unwrap();
    assert_eq!(
        node.command(&cq_in).err(),
        Some(refused(Syndrome::CqUnknown))
    );
    node.command(&pd_in).unwrap();
    for at in [0, 1] {
        eq_in.set_eq_number(node.events[at].number as u8);
        node.command(&eq_in).unwrap();
    }
    node.command(&uar_in).unwrap();
    assert_eq!(node.model.objects(), connectx_model::Objects::default());
    node.shut_down();
    assert_eq!(node.model.leaks(), []);
}

#[test]
fn transitions_take_what_their_bits_say() {
    let mut pair = Pair::new();
    let [(qp, _), _] = pair.connect(RC);
    let query = |node: &mut Node| {
        let mut query = QueryQpIn::new();
        query.set_qpn(qp.number);
        *node.command(&query).unwrap().qpc()
    };
    let before = query(&mut pair.a);
    assert_eq!((before.state(), before.next_send_psn()), (3, 100));
    assert!(before.rre() && before.rwe() && before.rae());
    assert_eq!(before.remote_qpn(), qp.number);
    let mut modify = Rts2rtsQpIn::new();
    modify.set_qpn(qp.number);
    // Everything else in the context is zero and must not be taken over; of the two bits only one attribute changes.
    modify
        .qpc_mut()
        .set_st(RC)
        .set_pm_state(3)
        .set_min_rnr_nak(9)
        .set_retry_count(3);
    modify.set_opt_param_mask(1 << 6 | 1 << 2);
    pair.a.command(&modify).unwrap();
    let after = query(&mut pair.a);
    assert_eq!(after.min_rnr_nak(), 9);
    assert_eq!(after.retry_count(), 7);
    assert!(after.rre() && !after.rae());
    modify.set_opt_param_mask(1 << 30);
    assert_eq!(
        pair.a.command(&modify).err(),
        Some(refused(Syndrome::QpOptMask))
    );
    // A second step into RTR from RTS is none.
    let mac = pair.b.model.config().mac;
    assert_eq!(
        pair.a.try_make_rtr(&qp, 7, 1, Some((gid(2), mac))),
        Err(refused(Syndrome::QpTransition))
    );
}

#[test]
fn what_cannot_be_created_is_refused_with_a_reason() {
    let mut pair = Pair::new();
    let cq = pair.a.create_cq(4, 1);
    let plan = QpPlan {
        st: RC,
        pd: pair.pd[0],
        send_cq: cq.number,
        receive_cq: cq.number,
        srq: None,
        user_index: 1,
    };
    type Change = fn(&mut bareverbs_firmware_cmds::qp::Qpc);
    let cases: [(Change, Syndrome); 10] = [
        (
            |qpc| {
                qpc.set_pd(0xfff);
            },
            Syndrome::QpPd,
        ),
        (
            |qpc| {
                qpc.set_cqn_snd(1);
            },
            Syndrome::QpSendCq,
        ),
        (
            |qpc| {
                qpc.set_cqn_rcv(1);
            },
            Syndrome::QpReceiveCq,
        ),
        (
            |qpc| {
                qpc.set_uar_page(1);
            },
            Syndrome::QpUar,
        ),
        (
            |qpc| {
                qpc.set_st(5);
            },
            Syndrome::QpType,
        ),
        (
            |qpc| {
                qpc.set_rq_type(1).set_srqn_rmpn_xrqn(77);
            },
            Syndrome::QpSrq,
        ),
        (
            |qpc| {
                qpc.set_dbr_addr(0x10);
            },
            Syndrome::QpRecord,
        ),
        (
            |qpc| {
                qpc.set_log_sq_size(9);
            },
            Syndrome::QpPages,
        ),
        (
            |qpc| {
                qpc.set_pm_state(0);
            },
            Syndrome::QpMigration,
        ),
        (
            |qpc| {
                qpc.set_state(1);
            },
            Syndrome::QpStateGiven,
        ),
    ];
    for (change, syndrome) in cases {
        assert_eq!(
            pair.a.try_create_qp(plan, change).err(),
            Some(refused(syndrome)),
            "{syndrome:?}"
        );
    }
    assert_eq!(pair.a.model.objects().qps, 0);
    let gsi = pair.a.create_qp(QpPlan { st: QP1, ..plan });
    assert!(gsi.number > 1);
    assert_eq!(
        pair.a
            .try_create_qp(QpPlan { st: QP1, ..plan }, |_| {})
            .err(),
        Some(refused(Syndrome::QpGsiTaken))
    );
}

#[test]
fn a_umr_registers_and_a_second_one_takes_away() {
    let mut pair = Pair::new();
    let [(mut qp, mut cq), _] = pair.connect(RC);
    let mut create = CreateMkeyIn::new();
    create
        .memory_key_mkey_entry_mut()
        .set_free(true)
        .set_umr_en(true)
        .set_access_mode_1_0(1)
        .set_qpn(0xff_ffff)
        .set_mkey_7_0(0x21)
        .set_pd(pair.pd[0])
        .set_translations_octword_size(8)
        .set_log_page_size(12);
    let index = pair.a.command(&create).unwrap().mkey_index();
    let key = index << 8 | 0x21;
    let memory = pair.a.host.alloc(8192, 4096);
    pair.a.host.put(memory, b"registered from the send queue");
    let umr = |flags: u8, octowords: u16, mask: u64, free: bool, list: &[u64]| {
        let mut segments = vec![0u8; 48];
        segments[0] = 0x80 | flags;
        segments[4..6].copy_from_slice(&octowords.to_be_bytes());
        segments[8..16].copy_from_slice(&mask.to_be_bytes());
        let mut context = bareverbs_firmware_cmds::mkey::Mkc::ZERO;
        context
            .set_free(free)
            .set_lr(true)
            .set_lw(true)
            .set_start_addr(0x4000)
            .set_len(8192)
            .set_mkey_7_0(0x22)
            .set_log_page_size(12);
        segments.extend(context.as_bytes());
        segments.extend(list.iter().flat_map(|page| page.to_be_bytes()));
        segments.resize(segments.len().next_multiple_of(64) - 16, 0);
        segments
    };
    // Length, page size, start, key, local rights, free; the list inline.
    let fields = 1 | 1 << 1 | 1 << 6 | 1 << 13 | 1 << 17 | 1 << 18 | 1 << 29;
    let register = umr(
        0x20,
        4,
        fields,
        false,
        &[memory, memory + 4096, 0, 0, 0, 0, 0, 0],
    );
    pair.a.post_send(&mut qp, 0x25, SIGNALED, key, &register);
    pair.a.ring_send(&qp);
    pair.run();
    let done = pair.a.poll(&mut cq).unwrap();
    assert_eq!((done.opcode, done.wqe_opcode), (0, 0x25));
    let key = index << 8 | 0x22;
    let remote = pair.b.host.alloc(4096, 4096);
    let remote_key = pair.b.register(pair.pd[1], remote, 0, 4096, ALL);
    let write = [
        remote_segment(0, remote_key),
        data_segment((key, 0x4000, 30)),
    ]
    .concat();
    pair.a.post_send(&mut qp, WRITE, SIGNALED, 0, &write);
    pair.a.ring_send(&qp);
    pair.run();
    assert_eq!(pair.a.poll(&mut cq).map(|cqe| cqe.opcode), Some(0));
    assert_eq!(
        pair.b.host.bytes(remote, 30),
        b"registered from the send queue"
    );
    let mut query = QueryMkeyIn::new();
    query.set_mkey_index(index);
    assert!(
        !pair
            .a
            .command(&query)
            .unwrap()
            .memory_key_mkey_entry()
            .free()
    );

    pair.a
        .post_send(&mut qp, 0x25, SIGNALED, key, &umr(0, 0, 1 << 29, true, &[]));
    pair.a.post_send(&mut qp, WRITE, SIGNALED, 0, &write);
    pair.a.ring_send(&qp);
    pair.run();
    let done = pair.a.poll_all(&mut cq);
    assert_eq!(
        (done[0].opcode, done[1].opcode, done[1].syndrome),
        (0, 0xd, 4)
    );
    assert!(
        pair.a
            .command(&query)
            .unwrap()
            .memory_key_mkey_entry()
            .free()
    );
}

#[test]
fn level_zero_has_its_own_shared_queues() {
    use bareverbs_firmware_cmds::srq::{ArmRqIn, CreateSrqIn, DestroySrqIn, QuerySrqIn};
    let mut node = Node::new(Config {
        supported_issi: 0b01,
        ..Config::new(1)
    });
    node.initialize();
    let pd = node.alloc_pd();
    let ring = node.host.alloc(4096, 4096);
    let record = node.host.alloc(8, 64);
    let mut create = CreateSrqIn::new();
    create
        .srq_context_entry_mut()
        .set_log_srq_size(4)
        .set_log_rq_stride(2)
        .set_pd(pd)
        .set_dbr_addr(record);
    let list = page_list(ring, 1024);
    let (output, _) = node.command_with(&create, &list, 0).unwrap();
    let mut arm = ArmRqIn::new();
    arm.set_op_mod(1).set_srq_number(output.srqn()).set_lwm(17);
    assert_eq!(node.command(&arm).err(), Some(refused(Syndrome::SrqLimit)));
    arm.set_lwm(3);
    node.host.put32(record, 10);
    node.command(&arm).unwrap();
    let mut query = QuerySrqIn::new();
    query.set_srqn(output.srqn());
    let shown = node.command(&query).unwrap();
    assert_eq!(shown.srq_context_entry().lwm(), 3);
    assert_eq!(shown.srq_context_entry().wqe_cnt(), 10);
    let mut destroy = DestroySrqIn::new();
    destroy.set_srqn(output.srqn());
    node.command(&destroy).unwrap();
    let mut rmp = CreateRmpIn::new();
    rmp.ctx_mut().set_state(1);
    assert_eq!(
        node.command_with(&rmp, &list, 0).err(),
        Some(refused(Syndrome::SrqLevel))
    );
}

#[test]
fn moderation_holds_events_back_until_enough_or_late() {
    use std::time::Duration;
    let (mut pair, (mut qp_a, _), (mut qp_b, mut cq), key) = connected();
    let mut modify = ModifyCqIn::new();
    modify.set_cqn(cq.number);
    modify.set_modify_field_select_resize_field_select(3);
    modify
        .cq_context_mut()
        .set_cq_period(50)
        .set_cq_max_count(3);
    pair.b.command_with(&modify, &[], 0).unwrap();
    pair.b.arm(&mut cq, false);
    for _ in 0..2 {
        send(&mut pair, &mut qp_a, &mut qp_b, key, 0);
    }
    assert_eq!(events(&mut pair.b, 1), []);
    send(&mut pair, &mut qp_a, &mut qp_b, key, 0);
    assert_eq!(events(&mut pair.b, 1), [(COMP, cq.number)]);
    pair.b.poll_all(&mut cq);
    cq.arm_number += 1;
    pair.b.arm(&mut cq, false);
    send(&mut pair, &mut qp_a, &mut qp_b, key, 0);
    pair.b.sleep(Duration::from_micros(49));
    assert_eq!(events(&mut pair.b, 1), []);
    pair.b.sleep(Duration::from_micros(1));
    assert_eq!(events(&mut pair.b, 1), [(COMP, cq.number)]);
    pair.b.sleep(Duration::from_micros(500));
    assert_eq!(events(&mut pair.b, 1), []);
}
