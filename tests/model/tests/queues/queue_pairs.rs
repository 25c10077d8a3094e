//! The QP: the packets it accepts, the attributes a transition takes, and the results of its requests.

use bareverbs_firmware_cmds::mkey::{CreateMkeyIn, QueryMkeyIn};
use bareverbs_firmware_cmds::qp::{Init2rtrQpIn, QueryQpIn, Rts2rtsQpIn};
use bareverbs_firmware_cmds::uar::AllocUarIn;
use connectx_model::{Config, Syndrome};
use zerocopy::IntoBytes;

use crate::common::Node;
use crate::common::queues::*;
use crate::{COMP, SEND, WQ_ACCESS, WRITE, connected, events, refused};

#[test]
fn doorbells_of_two_halves_work_and_those_of_others_do_not() {
    let (mut pair, (mut qp_a, mut cq_a), (mut qp_b, _), key) = connected();
    let other = pair.a.command(&AllocUarIn::new()).unwrap().uar();
    pair.b.post_receive(&mut qp_b, &[(key, 0, 64)]);
    pair.a
        .post_send(&mut qp_a, SEND, SIGNALED, 0, &inline_segment(&[1]));
    pair.a.host.put32(qp_a.record + 4, u32::from(qp_a.sq));
    // Neither queue listens to a UAR that is not its own, neither a completion nor an event queue.
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
fn violations_are_reported_to_the_responder_too() {
    let (mut pair, (mut qp_a, _), (qp_b, _), key) = connected();
    let segments = [remote_segment(0, key ^ 1), inline_segment(&[1])].concat();
    pair.a.post_send(&mut qp_a, WRITE, SIGNALED, 0, &segments);
    pair.a.ring_send(&qp_a);
    pair.run();
    assert_eq!(events(&mut pair.b, 0), [(WQ_ACCESS, qp_b.number)]);
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
fn a_static_rate_that_the_device_does_not_have_is_refused() {
    // It has no other than 3, which is 100 Gb/s.
    let mut configs = [1, 2].map(Config::new);
    for config in &mut configs {
        config.general.set_stat_rate_support(1 << 3);
    }
    let mut pair = Pair::of(configs);
    let pd = pair.a.alloc_pd();
    let cq = pair.a.create_cq(6, 1);
    for (rate, answer) in [
        (0, Ok(())),
        (3, Ok(())),
        (4, Err(refused(Syndrome::QpStaticRate))),
        (15, Err(refused(Syndrome::QpStaticRate))),
    ] {
        let plan = QpPlan {
            st: RC,
            pd,
            send_cq: cq.number,
            receive_cq: cq.number,
            srq: None,
            user_index: 0x11,
        };
        let qp = pair.a.create_qp(plan);
        pair.a.make_init(&qp);
        let mut modify = Init2rtrQpIn::new();
        modify.set_qpn(qp.number);
        let qpc = modify.qpc_mut();
        qpc.set_st(RC)
            .set_pm_state(3)
            .set_mtu(3)
            .set_log_msg_max(30)
            .set_remote_qpn(7);
        qpc.primary_address_path_mut()
            .set_stat_rate(rate)
            .set_hop_limit(64);
        assert_eq!(pair.a.command(&modify).map(drop), answer, "{rate}");
    }
}
