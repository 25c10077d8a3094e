//! Single bits that matter: flags of work requests, fields of completions, what a reset leaves, which queue receives
//! which packet.

use crate::common::queues::*;
use crate::common::{Failure, Node, page_list};
use bareverbs_firmware_cmds::domain::DeallocPdIn;
use bareverbs_firmware_cmds::mad::AttachToMcgIn;
use bareverbs_firmware_cmds::mkey::CreateMkeyIn;
use bareverbs_firmware_cmds::qp::{DestroyQpIn, Qpc, QueryQpIn, Rts2rtsQpIn};
use bareverbs_firmware_cmds::roce::SetRoceAddressIn;
use bareverbs_firmware_cmds::srq::CreateRmpIn;
use bareverbs_firmware_cmds::vport::ModifyNicVportContextIn;
use connectx_model::Syndrome;
use zerocopy::IntoBytes;

const SEND: u8 = 0x0a;
const READ: u8 = 0x10;
const UMR: u8 = 0x25;
const FENCE: u8 = 0x80;
const GSI_QKEY: u32 = 0x8001_0000;
const QKEY: u32 = 0x1111_1111;

fn refused(syndrome: Syndrome) -> Failure {
    Failure::Status(syndrome.status() as u8, syndrome.code())
}

fn query(node: &mut Node, qp: &Qp) -> Qpc {
    let mut query = QueryQpIn::new();
    query.set_qpn(qp.number);
    *node.command(&query).unwrap().qpc()
}

/// A datagram QP in RTS.
fn datagram_qp(node: &mut Node, pd: u32, st: u8, change: impl FnOnce(&mut Qpc)) -> (Qp, Cq) {
    let cq = node.create_cq(6, 1);
    let plan = QpPlan {
        st,
        pd,
        send_cq: cq.number,
        receive_cq: cq.number,
        srq: None,
        user_index: 5,
    };
    let qp = node.try_create_qp(plan, change).unwrap();
    let mut modify = bareverbs_firmware_cmds::qp::Rst2initQpIn::new();
    modify.set_qpn(qp.number);
    let qkey = if st == QP1 { GSI_QKEY } else { QKEY };
    modify.qpc_mut().set_st(st).set_pm_state(3).set_q_key(qkey);
    modify
        .qpc_mut()
        .primary_address_path_mut()
        .set_vhca_port_num(1);
    node.command(&modify).unwrap();
    node.make_rtr(&qp, 0, 0, None);
    node.make_rts(&qp, 1);
    (qp, cq)
}

/// Sends one datagram to `qpn` of the other node.
fn datagram(
    pair: &mut Pair,
    from: &mut Qp,
    qpn: u32,
    qkey: u32,
    change: impl FnOnce(&mut Vec<u8>),
) {
    let mac = pair.b.model.config().mac;
    let mut av = address_vector(qpn, qkey, &gid(2), 0, mac);
    change(&mut av);
    let segments = [av, inline_segment(b"hello")].concat();
    pair.a.post_send(from, SEND, 0, 0, &segments);
    pair.a.ring_send(from);
    pair.run();
}

#[test]
fn a_fence_keeps_a_send_behind_the_read_before_it() {
    for (flags, frames) in [(0, 2), (FENCE, 1)] {
        let mut pair = Pair::new();
        let [(mut qp, _), _] = pair.connect(RC);
        let local = pair.a.host.alloc(4096, 4096);
        let key = pair.a.register(pair.pd[0], local, 0, 64, ALL);
        let read = [remote_segment(0, 0x1234), data_segment((key, 0, 8))].concat();
        pair.a.post_send(&mut qp, READ, 0, 0, &read);
        pair.a
            .post_send(&mut qp, SEND, flags, 0, &inline_segment(b"after"));
        pair.a.ring_send(&qp);
        pair.a.advance();
        assert_eq!(pair.a.host.frames.len(), frames, "flags {flags:#x}");
    }
}

#[test]
fn a_scatter_list_ends_at_its_terminator() {
    const LOCAL_LENGTH: u8 = 1;
    const REMOTE_INVALID_REQUEST: u8 = 0x12;
    let mut pair = Pair::new();
    let [(mut qp_a, mut cq_a), (mut qp_b, mut cq_b)] = pair.connect(RC);
    let memory = pair.b.host.alloc(4096, 4096);
    let key = pair.b.register(pair.pd[1], memory, 0, 4096, ALL);
    pair.b.post_receive(&mut qp_b, &[(key, 0, 32)]);
    pair.a
        .post_send(&mut qp_a, SEND, 0, 0, &inline_segment(&[1; 33]));
    pair.a.ring_send(&qp_a);
    pair.run();
    assert_eq!(pair.b.poll(&mut cq_b).unwrap().syndrome, LOCAL_LENGTH);
    assert_eq!(
        pair.a.poll(&mut cq_a).unwrap().syndrome,
        REMOTE_INVALID_REQUEST
    );
}

#[test]
fn a_length_of_zero_means_two_gigabytes() {
    const LOCAL_LENGTH: u8 = 1;
    let mut pair = Pair::new();
    let [(mut qp, mut cq), _] = pair.connect(RC);
    let memory = pair.a.host.alloc(4096, 4096);
    let key = pair.a.register(pair.pd[0], memory, 0, 4096, ALL);
    pair.a
        .post_send(&mut qp, SEND, 0, 0, &data_segment((key, 0, 0)));
    pair.a.ring_send(&qp);
    pair.run();
    assert_eq!(pair.a.poll(&mut cq).unwrap().syndrome, LOCAL_LENGTH);
}

#[test]
fn malformed_work_requests_fail_and_the_rest_is_flushed() {
    const LOCAL_QP_OPERATION: u8 = 2;
    // What is damaged: index, QP number, size, opcode.
    for (at, with) in [(2, 1), (6, 1), (7, 0x3f), (3, 0x0e ^ SEND)] {
        let mut pair = Pair::new();
        let [(mut qp, mut cq), _] = pair.connect(RC);
        let first = pair
            .a
            .post_send(&mut qp, SEND, 0, 0, &inline_segment(b"bad"));
        let second = pair
            .a
            .post_send(&mut qp, SEND, 0, 0, &inline_segment(b"good"));
        let sq = qp.ring + (RQ_STRIDE << qp.log_rq);
        pair.a.host.bytes(sq + at, 1)[0] ^= with;
        pair.a.ring_send(&qp);
        pair.run();
        let done = pair.a.poll_all(&mut cq);
        let reported: Vec<_> = done.iter().map(|cqe| (cqe.counter, cqe.syndrome)).collect();
        if at == 7 {
            // With a wrong size, the start of the next WQE is undefined.
            assert_eq!(reported[0], (first, LOCAL_QP_OPERATION));
        } else {
            assert_eq!(
                reported,
                [(first, LOCAL_QP_OPERATION), (second, 5)],
                "byte {at}"
            );
        }
    }
}

#[test]
fn a_connection_can_be_made_again_after_a_reset() {
    let mut pair = Pair::new();
    let [(mut qp_a, mut cq_a), (mut qp_b, mut cq_b)] = pair.connect(RC);
    let before = query(&mut pair.a, &qp_a);
    assert_eq!((before.rnr_retry(), before.retry_count()), (7, 7));
    assert_eq!((before.next_rcv_psn(), before.next_send_psn()), (200, 100));
    assert_eq!(before.primary_address_path().ack_timeout(), 14);
    assert_eq!(before.primary_address_path().vhca_port_num(), 1);
    assert!(before.rre() && before.rwe() && before.rae());
    let memory = pair.b.host.alloc(4096, 4096);
    let key = pair.b.register(pair.pd[1], memory, 0, 4096, ALL);
    let macs = [pair.a.model.config().mac, pair.b.model.config().mac];
    for round in 0..3 {
        for n in 0..3 {
            let index = pair.b.post_receive(&mut qp_b, &[(key, 0, 64)]);
            assert_eq!(index, n);
            pair.a
                .post_send(&mut qp_a, SEND, SIGNALED, 0, &inline_segment(&[round; 9]));
            pair.a.ring_send(&qp_a);
            pair.run();
            assert_eq!(
                pair.a.poll(&mut cq_a).map(|cqe| (cqe.opcode, cqe.counter)),
                Some((0, n))
            );
            assert_eq!(
                pair.b.poll(&mut cq_b).map(|cqe| (cqe.opcode, cqe.counter)),
                Some((2, n))
            );
        }
        // A message in flight and a receive posted: both are dropped.
        pair.a
            .post_send(&mut qp_a, SEND, SIGNALED, 0, &inline_segment(b"lost"));
        pair.a.ring_send(&qp_a);
        pair.a.advance();
        pair.a.host.frames.clear();
        pair.a.make_reset(&mut qp_a);
        pair.b.make_reset(&mut qp_b);
        assert_eq!(query(&mut pair.a, &qp_a).state(), 0);
        assert_eq!(
            pair.a.model.next_deadline(),
            None,
            "a timer survives the reset"
        );
        for (node, qp) in [(&mut pair.a, &qp_a), (&mut pair.b, &qp_b)] {
            node.make_init(qp);
        }
        pair.a
            .make_rtr(&qp_a, qp_b.number, 7, Some((gid(2), macs[1])));
        pair.b
            .make_rtr(&qp_b, qp_a.number, 8, Some((gid(1), macs[0])));
        pair.a.make_rts(&qp_a, 8);
        pair.b.make_rts(&qp_b, 7);
    }
}

#[test]
fn what_was_posted_before_a_reset_is_not_sent_after_it() {
    let mut pair = Pair::new();
    let [(mut qp_a, mut cq_a), (mut qp_b, _)] = pair.connect(RC);
    let memory = pair.b.host.alloc(4096, 4096);
    let key = pair.b.register(pair.pd[1], memory, 0, 4096, ALL);
    let macs = [pair.a.model.config().mac, pair.b.model.config().mac];
    for round in 0..3 {
        // Four at a doorbell, which the card may read together, and from the queue's start again after the reset.
        for n in 0..4 {
            pair.b.post_receive(&mut qp_b, &[(key, n, 1)]);
            let data = inline_segment(&[4 * round + n as u8]);
            pair.a.post_send(&mut qp_a, SEND, SIGNALED, 0, &data);
        }
        pair.a.ring_send(&qp_a);
        pair.run();
        assert_eq!(pair.a.poll_all(&mut cq_a).len(), 4);
        assert_eq!(
            pair.b.host.bytes(memory, 4),
            [0, 1, 2, 3].map(|n| 4 * round + n)
        );
        pair.a.make_reset(&mut qp_a);
        pair.b.make_reset(&mut qp_b);
        pair.a.make_init(&qp_a);
        pair.b.make_init(&qp_b);
        pair.a
            .make_rtr(&qp_a, qp_b.number, 7, Some((gid(2), macs[1])));
        pair.b
            .make_rtr(&qp_b, qp_a.number, 8, Some((gid(1), macs[0])));
        pair.a.make_rts(&qp_a, 8);
        pair.b.make_rts(&qp_b, 7);
    }
}

#[test]
fn a_bound_pd_stays_while_a_shared_queue_exists() {
    let mut pair = Pair::new();
    let pd = pair.a.alloc_pd();
    let ring = pair.a.host.alloc(4096, 4096);
    let record = pair.a.host.alloc(8, 8);
    let mut create = CreateRmpIn::new();
    create.ctx_mut().set_state(1);
    create
        .ctx_mut()
        .wq_mut()
        .set_pd(pd)
        .set_log_wq_stride(5)
        .set_log_wq_sz(3)
        .set_dbr_addr(record);
    pair.a
        .command_with(&create, &page_list(ring, 256), 0)
        .unwrap();
    let mut dealloc = DeallocPdIn::new();
    dealloc.set_pd(pd);
    assert_eq!(
        pair.a.command(&dealloc).err(),
        Some(refused(Syndrome::PdBusy))
    );
}

#[test]
fn the_management_qp_has_one_number_on_the_wire() {
    let mut pair = Pair::new();
    let (mut from, _) = datagram_qp(&mut pair.a, pair.pd[0], QP1, |_| {});
    let (mut gsi, mut cq) = datagram_qp(&mut pair.b, pair.pd[1], QP1, |_| {});
    let memory = pair.b.host.alloc(4096, 4096);
    let key = pair.b.register(pair.pd[1], memory, 0, 4096, LOCAL_WRITE);
    for (qpn, arrives) in [(gsi.number, false), (1, true)] {
        pair.b.post_receive(&mut gsi, &[(key, 0, 512)]);
        datagram(&mut pair, &mut from, qpn, GSI_QKEY, |_| {});
        assert_eq!(pair.b.poll(&mut cq).is_some(), arrives, "{qpn:#x}");
    }
}

#[test]
fn a_datagram_qp_may_send_under_another_number() {
    let mut pair = Pair::new();
    let cq = pair.a.create_cq(6, 1);
    let plan = QpPlan {
        st: UD,
        pd: pair.pd[0],
        send_cq: cq.number,
        receive_cq: cq.number,
        srq: None,
        user_index: 5,
    };
    let mut from = pair.a.create_qp(plan);
    let mut modify = bareverbs_firmware_cmds::qp::Rst2initQpIn::new();
    modify.set_qpn(from.number);
    modify
        .qpc_mut()
        .set_st(UD)
        .set_pm_state(3)
        .set_q_key(QKEY)
        .set_deth_sqpn(1);
    modify
        .qpc_mut()
        .primary_address_path_mut()
        .set_vhca_port_num(1);
    pair.a.command(&modify).unwrap();
    pair.a.make_rtr(&from, 0, 0, None);
    pair.a.make_rts(&from, 1);
    let (mut to, mut cq_to) = datagram_qp(&mut pair.b, pair.pd[1], UD, |_| {});
    let memory = pair.b.host.alloc(4096, 4096);
    let key = pair.b.register(pair.pd[1], memory, 0, 4096, LOCAL_WRITE);
    pair.b.post_receive(&mut to, &[(key, 0, 512)]);
    datagram(&mut pair, &mut from, to.number, QKEY, |_| {});
    let got = pair.b.poll(&mut cq_to).unwrap();
    assert_eq!(got.flags_rqpn & 0xff_ffff, 1);
}

#[test]
fn vlans_are_kept_apart_and_shown() {
    let mut pair = Pair::new();
    let (mut from, _) = datagram_qp(&mut pair.a, pair.pd[0], UD, |_| {});
    let (mut to, mut cq) = datagram_qp(&mut pair.b, pair.pd[1], UD, |_| {});
    let memory = pair.b.host.alloc(4096, 4096);
    let key = pair.b.register(pair.pd[1], memory, 0, 4096, LOCAL_WRITE);
    // The receiver has its address without a VLAN and in VLAN 20; the sender has one of each, and VLAN 30.
    let in_vlan = |node: &mut Node, index: u16, vlan: u16, unit: u8| {
        let mut set = SetRoceAddressIn::new();
        set.set_roce_address_index(index);
        let entry = set.roce_address_mut();
        entry.source_l3_address_mut().copy_from_slice(&gid(unit));
        entry
            .set_roce_version(2)
            .set_vlan_valid(true)
            .set_vlan_id(vlan);
        node.command(&set).unwrap();
    };
    in_vlan(&mut pair.a, 1, 20, 1);
    in_vlan(&mut pair.a, 2, 30, 1);
    in_vlan(&mut pair.b, 1, 20, 2);
    const PRIORITY: u8 = 5;
    for (index, tag) in [
        (0u32, None),
        (1, Some(u16::from(PRIORITY) << 13 | 20)),
        (2, None),
    ] {
        pair.b.post_receive(&mut to, &[(key, 0, 512)]);
        datagram(&mut pair, &mut from, to.number, QKEY, |av| {
            av[0x0c] = PRIORITY << 1;
            av[0x1c..0x20].copy_from_slice(&(1u32 << 30 | index << 20).to_be_bytes());
        });
        let at = cq.ring + u64::from(cq.consumer) * 64;
        let got = pair.b.poll(&mut cq);
        assert_eq!(got.is_some(), index != 2, "address {index}");
        if got.is_none() {
            continue;
        }
        let entry = pair.b.host.bytes(at, 64);
        let shown = (entry[0x1d] & 1 != 0).then(|| u16::from_be_bytes([entry[0x1e], entry[0x1f]]));
        assert_eq!(shown, tag);
    }
}

#[test]
fn a_port_without_roce_receives_nothing() {
    let mut pair = Pair::new();
    let (mut from, _) = datagram_qp(&mut pair.a, pair.pd[0], UD, |_| {});
    let (mut to, mut cq) = datagram_qp(&mut pair.b, pair.pd[1], UD, |_| {});
    let memory = pair.b.host.alloc(4096, 4096);
    let key = pair.b.register(pair.pd[1], memory, 0, 4096, LOCAL_WRITE);
    for on in [false, true] {
        let mut modify = ModifyNicVportContextIn::new();
        modify.field_select_mut().set_roce_en(true);
        modify.nic_vport_context_mut().set_roce_en(on);
        pair.b.command(&modify).unwrap();
        pair.b.post_receive(&mut to, &[(key, 0, 512)]);
        datagram(&mut pair, &mut from, to.number, QKEY, |_| {});
        assert_eq!(pair.b.poll(&mut cq).is_some(), on);
    }
}

#[test]
fn a_qp_that_blocks_its_own_multicast_does_not_receive_it() {
    for blocked in [true, false] {
        let mut pair = Pair::new();
        let (mut qp, mut cq) = datagram_qp(&mut pair.a, pair.pd[0], UD, |qpc| {
            qpc.set_block_lb_mc(blocked);
        });
        let memory = pair.a.host.alloc(4096, 4096);
        let key = pair.a.register(pair.pd[0], memory, 0, 4096, LOCAL_WRITE);
        let mut group = gid(0);
        group[12..].copy_from_slice(&[239, 9, 9, 9]);
        let mut attach = AttachToMcgIn::new();
        attach.set_qpn(qp.number);
        attach.multicast_gid_mut().copy_from_slice(&group);
        pair.a.command(&attach).unwrap();
        pair.a.post_receive(&mut qp, &[(key, 0, 512)]);
        let av = address_vector(0xff_ffff, QKEY, &group, 0, [1, 0, 0x5e, 9, 9, 9]);
        pair.a
            .post_send(&mut qp, SEND, 0, 0, &[av, inline_segment(b"me?")].concat());
        pair.a.ring_send(&qp);
        pair.run();
        assert_eq!(pair.a.poll(&mut cq).is_none(), blocked);
    }
}

#[test]
fn old_entries_name_the_shared_queue() {
    // User index all-ones asks for version 0.
    for (user_index, expected, basic) in [(0xff_ffff, None, false), (0x77, Some(0x77), true)] {
        let mut pair = Pair::new();
        let pd = pair.pd[0];
        let ring = pair.a.host.alloc(4096, 4096);
        let record = pair.a.host.alloc(8, 8);
        let mut create = CreateRmpIn::new();
        create.ctx_mut().set_state(1);
        create.ctx_mut().set_basic_cyclic_rcv_wqe(basic);
        create
            .ctx_mut()
            .wq_mut()
            .set_wq_type(1)
            .set_pd(pd)
            .set_log_wq_stride(6)
            .set_log_wq_sz(3)
            .set_dbr_addr(record);
        let (output, _) = pair
            .a
            .command_with(&create, &page_list(ring, 512), 0)
            .unwrap();
        let srq = output.rmpn();
        let mut cq = pair.a.create_cq(4, 1);
        let plan = QpPlan {
            st: RC,
            pd,
            send_cq: cq.number,
            receive_cq: cq.number,
            srq: Some(srq),
            user_index,
        };
        let mut qp = pair.a.create_qp(plan);
        let mac = pair.a.model.config().mac;
        pair.a.make_init(&qp);
        pair.a.make_rtr(&qp, qp.number, 5, Some((gid(1), mac)));
        pair.a.make_rts(&qp, 5);
        // A cyclic queue does not follow the links in its WQEs, which all lead to the first: the second WQE is at the second place.
        let memory = pair.a.host.alloc(4096, 4096);
        let key = pair.a.register(pd, memory, 0, 4096, ALL);
        for index in 0..2 {
            let segment = data_segment((key, index * 64, 64));
            let front = if basic { 0 } else { 16 };
            let wqe = [&[0; 16][..front], &segment, &data_segment((0x100, 0, 0))].concat();
            pair.a.host.put(ring + index * 64, &wqe);
            pair.a
                .post_send(&mut qp, SEND, 0, 0, &inline_segment(&[index as u8 + 1; 4]));
        }
        pair.a.host.put32(record, 2);
        pair.a.ring_send(&qp);
        pair.run();
        let got = pair.a.poll_all(&mut cq);
        let reported: Vec<_> = got
            .iter()
            .map(|cqe| (cqe.counter, cqe.user_index))
            .collect();
        let name = expected.unwrap_or(srq);
        assert_eq!(reported, [(0, name), (1, name)]);
        assert_eq!(pair.a.host.bytes(memory + 64, 4), [2; 4]);
    }
}

#[test]
fn only_keys_made_for_it_can_be_changed_by_work_requests() {
    const BIND: u8 = 0x06;
    for (enabled, own, syndrome) in [(true, true, 0), (false, true, BIND), (true, false, BIND)] {
        let mut pair = Pair::new();
        let [(mut qp, mut cq), _] = pair.connect(RC);
        let pd = if own { pair.pd[0] } else { pair.a.alloc_pd() };
        let mut create = CreateMkeyIn::new();
        create
            .memory_key_mkey_entry_mut()
            .set_free(true)
            .set_umr_en(enabled)
            .set_access_mode_1_0(1)
            .set_qpn(0xff_ffff)
            .set_pd(pd)
            .set_translations_octword_size(8)
            .set_log_page_size(12);
        let key = pair.a.command(&create).unwrap().mkey_index() << 8;
        let mut segments = vec![0u8; 48];
        segments[8..16].copy_from_slice(&(1u64 << 29).to_be_bytes());
        segments.extend(bareverbs_firmware_cmds::mkey::Mkc::ZERO.as_bytes());
        pair.a.post_send(&mut qp, UMR, SIGNALED, key, &segments);
        pair.a.ring_send(&qp);
        pair.run();
        assert_eq!(pair.a.poll(&mut cq).unwrap().syndrome, syndrome);
    }
}

#[test]
fn a_q_key_changes_with_its_bit_only() {
    let mut pair = Pair::new();
    let (qp, _) = datagram_qp(&mut pair.a, pair.pd[0], UD, |_| {});
    for (mask, expected) in [(0, QKEY), (1 << 5, 0x2222_2222)] {
        let mut modify = Rts2rtsQpIn::new();
        modify.set_qpn(qp.number).set_opt_param_mask(mask);
        modify
            .qpc_mut()
            .set_st(UD)
            .set_pm_state(3)
            .set_q_key(0x2222_2222);
        pair.a.command(&modify).unwrap();
        assert_eq!(query(&mut pair.a, &qp).q_key(), expected);
    }
}

#[test]
fn a_destroyed_qp_takes_its_timers_along() {
    let mut pair = Pair::new();
    let [(mut qp, _), _] = pair.connect(RC);
    pair.a
        .post_send(&mut qp, SEND, 0, 0, &inline_segment(b"unanswered"));
    pair.a.ring_send(&qp);
    pair.a.advance();
    assert!(pair.a.model.next_deadline().is_some());
    let mut destroy = DestroyQpIn::new();
    destroy.set_qpn(qp.number);
    pair.a.command(&destroy).unwrap();
    assert_eq!(pair.a.model.next_deadline(), None);
}
