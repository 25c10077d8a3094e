//! When a completion queue reports an entry, and what becomes of entries when it is full, resized or long.

use bareverbs_firmware_cmds::cq::{CreateCqIn, ModifyCqIn, QueryCqIn};
use bareverbs_firmware_cmds::qp::QueryQpIn;
use connectx_model::Syndrome;

use crate::common::page_list;
use crate::common::queues::*;
use crate::{COMP, CQ_ERROR, WQ_CATAS, connected, events, refused, send};

#[test]
fn a_queue_reports_once_for_every_arming() {
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
fn an_entry_is_reported_once() {
    let (mut pair, (mut qp_a, _), (mut qp_b, mut cq), key) = connected();
    pair.b.arm(&mut cq, false);
    send(&mut pair, &mut qp_a, &mut qp_b, key, 0);
    assert_eq!(events(&mut pair.b, 1), [(COMP, cq.number)]);
    // perftest's latency programs arm when they get the event, and poll the entry only then: one poll for each event.
    cq.arm_number += 1;
    pair.b.arm(&mut cq, false);
    assert_eq!(events(&mut pair.b, 1), []);
    assert!(pair.b.poll(&mut cq).is_some());
    assert_eq!(events(&mut pair.b, 1), []);
    send(&mut pair, &mut qp_a, &mut qp_b, key, 0);
    assert_eq!(events(&mut pair.b, 1), [(COMP, cq.number)]);
    // What came behind it, before the queue was armed, was not reported.
    send(&mut pair, &mut qp_a, &mut qp_b, key, 0);
    assert_eq!(events(&mut pair.b, 1), []);
    cq.arm_number += 1;
    pair.b.arm(&mut cq, false);
    assert_eq!(events(&mut pair.b, 1), [(COMP, cq.number)]);
    assert_eq!(pair.b.poll_all(&mut cq).len(), 2);
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
    let reported = events(&mut pair.a, 0);
    assert!(reported.contains(&(WQ_CATAS, qp.number)), "{reported:?}");
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
