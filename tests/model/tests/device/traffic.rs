//! Traffic between two cards: what a work request does to memory and completion queues on either side.

use crate::common::queues::*;
use bareverbs_firmware_cmds::mkey::DestroyMkeyIn;
use bareverbs_firmware_cmds::qp::{DestroyQpIn, QueryQpIn};

const SEND_INVALIDATE: u8 = 0x01;
const WRITE: u8 = 0x08;
const WRITE_IMM: u8 = 0x09;
const SEND: u8 = 0x0a;
const SEND_IMM: u8 = 0x0b;
const READ: u8 = 0x10;
const COMPARE_SWAP: u8 = 0x11;
const FETCH_ADD: u8 = 0x12;

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len)
        .map(|n| (n as u8).wrapping_mul(31) ^ seed)
        .collect()
}

#[test]
fn reads_writes_and_sends_move_every_byte() {
    let mut pair = Pair::new();
    let [(mut qp_a, mut cq_a), (mut qp_b, mut cq_b)] = pair.connect(RC);
    let len = 9000;
    // Virtual addresses that are nothing like the host's.
    let memory_a = pair.a.host.alloc(16384, 4096) + 100;
    let memory_b = pair.b.host.alloc(16384, 4096) + 100;
    let virt = 0x1234_5678_0000 + 100;
    let key_a = pair.a.register(pair.pd[0], memory_a, virt, len, ALL);
    let key_b = pair.b.register(pair.pd[1], memory_b, virt, len, ALL);
    let len = len as u32;

    pair.a.host.put(memory_a, &pattern(len as usize, 1));
    let mut segments = remote_segment(virt, key_b);
    segments.extend(data_segment((key_a, virt, len)));
    pair.a.post_send(&mut qp_a, WRITE, SIGNALED, 0, &segments);
    pair.a.ring_send(&qp_a);
    pair.run();
    let done = pair.a.poll(&mut cq_a).unwrap();
    assert_eq!((done.opcode, done.qpn, done.counter), (0, qp_a.number, 0));
    assert_eq!((done.wqe_opcode, done.user_index), (WRITE, 0x11));
    assert_eq!(
        pair.b.host.bytes(memory_b, len as usize),
        pattern(len as usize, 1)
    );
    assert_eq!(pair.b.poll(&mut cq_b), None);

    pair.b.host.put(memory_b, &pattern(len as usize, 2));
    let index = pair.a.post_send(&mut qp_a, READ, SIGNALED, 0, &segments);
    pair.a.ring_send(&qp_a);
    pair.run();
    let done = pair.a.poll(&mut cq_a).unwrap();
    assert_eq!(
        (done.opcode, done.counter, done.byte_count),
        (0, index, len)
    );
    assert_eq!(
        pair.a.host.bytes(memory_a, len as usize),
        pattern(len as usize, 2)
    );

    let posted = pair
        .b
        .post_receive(&mut qp_b, &[(key_b, virt, 100), (key_b, virt + 200, 500)]);
    pair.a.host.put(memory_a, &pattern(300, 3));
    let mut segments = data_segment((key_a, virt, 50));
    segments.extend(data_segment((key_a, virt + 50, 250)));
    pair.a.post_send(
        &mut qp_a,
        SEND_IMM,
        SIGNALED | SOLICITED,
        0xdead_beef,
        &segments,
    );
    pair.a.ring_send(&qp_a);
    pair.run();
    let sent = pair.a.poll(&mut cq_a).unwrap();
    let got = pair.b.poll(&mut cq_b).unwrap();
    assert_eq!((sent.opcode, sent.wqe_opcode), (0, SEND_IMM));
    assert_eq!(
        (got.opcode, got.immediate, got.byte_count),
        (3, 0xdead_beef, 300)
    );
    assert_eq!(
        (got.counter, got.qpn, got.user_index),
        (posted, qp_b.number, 0x22)
    );
    assert!(got.solicited);
    let expected = pattern(300, 3);
    assert_eq!(pair.b.host.bytes(memory_b, 100), &expected[..100]);
    assert_eq!(pair.b.host.bytes(memory_b + 200, 200), &expected[100..]);

    // Inline data in a WQE of several blocks, unsignaled, then a write with immediate that completes.
    let text = pattern(150, 4);
    pair.a.post_send(
        &mut qp_a,
        WRITE,
        0,
        0,
        &[remote_segment(virt, key_b), inline_segment(&text)].concat(),
    );
    pair.b.post_receive(&mut qp_b, &[]);
    pair.a.post_send(
        &mut qp_a,
        WRITE_IMM,
        SIGNALED,
        7,
        &remote_segment(virt, key_b),
    );
    pair.a.ring_send(&qp_a);
    pair.run();
    assert_eq!(pair.a.poll_all(&mut cq_a).len(), 1);
    let got = pair.b.poll(&mut cq_b).unwrap();
    assert_eq!((got.opcode, got.immediate, got.byte_count), (1, 7, 0));
    assert_eq!(pair.b.host.bytes(memory_b, 150), text);
    assert_eq!(pair.a.host.faults, []);
    assert_eq!(pair.b.host.faults, []);
}

#[test]
fn atomics_change_memory_and_return_what_was_there() {
    let mut pair = Pair::new();
    let [(mut qp, mut cq), _] = pair.connect(RC);
    let memory_a = pair.a.host.alloc(4096, 4096);
    let memory_b = pair.b.host.alloc(4096, 4096);
    let key_a = pair.a.register(pair.pd[0], memory_a, 0, 64, ALL);
    let key_b = pair.b.register(pair.pd[1], memory_b, 0x8000, 64, ALL);
    // Without SET_HCA_CAP of the endianness mode both ends of an atomic lie in memory as big-endian numbers.
    pair.b.host.put64(memory_b + 8, 40);
    let atomic = |first: u64, second: u64| {
        let mut segments = remote_segment(0x8008, key_b);
        segments.extend(first.to_be_bytes());
        segments.extend(second.to_be_bytes());
        segments.extend(data_segment((key_a, 0, 8)));
        segments
    };
    for (opcode, first, second, before, after) in [
        (FETCH_ADD, 2, 0, 40, 42),
        (COMPARE_SWAP, 7, 41, 42, 42),
        (COMPARE_SWAP, 7, 42, 42, 7),
    ] {
        pair.a
            .post_send(&mut qp, opcode, SIGNALED, 0, &atomic(first, second));
        pair.a.ring_send(&qp);
        pair.run();
        let done = pair.a.poll(&mut cq).unwrap();
        assert_eq!((done.opcode, done.byte_count), (0, 8));
        let read = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().unwrap());
        assert_eq!(read(pair.a.host.bytes(memory_a, 8)), before);
        assert_eq!(read(pair.b.host.bytes(memory_b + 8, 8)), after);
    }
}

#[test]
fn a_queue_wraps_and_the_counter_does_too() {
    let mut pair = Pair::new();
    let [(mut qp_a, mut cq_a), (mut qp_b, mut cq_b)] = pair.connect(RC);
    let memory = pair.b.host.alloc(4096, 4096);
    let key = pair.b.register(pair.pd[1], memory, 0, 4096, ALL);
    // 140 bytes of inline data make WQEs of three blocks in a ring of 64: they cross its end.
    let rounds = 22_000u32;
    for round in 0..rounds {
        let mut text = round.to_be_bytes().to_vec();
        text.resize(140, round as u8);
        pair.b.post_receive(&mut qp_b, &[(key, 0, 256)]);
        let index = pair
            .a
            .post_send(&mut qp_a, SEND, SIGNALED, 0, &inline_segment(&text));
        pair.a.ring_send(&qp_a);
        pair.run();
        let sent = pair.a.poll(&mut cq_a).unwrap();
        let got = pair.b.poll(&mut cq_b).unwrap();
        assert_eq!((sent.opcode, sent.counter), (0, index), "round {round}");
        assert_eq!(
            (got.opcode, got.counter),
            (2, round as u16),
            "round {round}"
        );
        assert_eq!(pair.b.host.bytes(memory, 140), text, "round {round}");
    }
    assert!(rounds * 3 > 0x1_0000);
}

#[test]
fn keys_are_checked_in_every_respect() {
    // (what is wrong, syndrome at the requester)
    #[derive(Debug, Clone, Copy)]
    enum Wrong {
        Variant,
        Index,
        Domain,
        Beyond,
        Right,
        Destroyed,
        LocalVariant,
        LocalBeyond,
    }
    const REMOTE_ACCESS: u8 = 0x13;
    const LOCAL_PROTECTION: u8 = 0x04;
    for (wrong, syndrome) in [
        (Wrong::Variant, REMOTE_ACCESS),
        (Wrong::Index, REMOTE_ACCESS),
        (Wrong::Domain, REMOTE_ACCESS),
        (Wrong::Beyond, REMOTE_ACCESS),
        (Wrong::Right, REMOTE_ACCESS),
        (Wrong::Destroyed, REMOTE_ACCESS),
        (Wrong::LocalVariant, LOCAL_PROTECTION),
        (Wrong::LocalBeyond, LOCAL_PROTECTION),
    ] {
        let mut pair = Pair::new();
        let [(mut qp, mut cq), _] = pair.connect(RC);
        let memory_a = pair.a.host.alloc(4096, 4096);
        let memory_b = pair.b.host.alloc(4096, 4096);
        let mut pd_b = pair.pd[1];
        if matches!(wrong, Wrong::Domain) {
            pd_b = pair.b.alloc_pd();
        }
        let access = if matches!(wrong, Wrong::Right) {
            LOCAL_WRITE | REMOTE_READ
        } else {
            ALL
        };
        let mut key_a = pair.a.register(pair.pd[0], memory_a, 0, 1024, LOCAL_WRITE);
        let mut key_b = pair.b.register(pd_b, memory_b, 0, 1024, access);
        let (mut local, mut remote) = (0, 0);
        match wrong {
            Wrong::Variant => key_b ^= 1,
            Wrong::Index => key_b += 0x5_0000,
            Wrong::Beyond => remote = 1020,
            Wrong::LocalVariant => key_a ^= 1,
            Wrong::LocalBeyond => local = 1020,
            Wrong::Destroyed => {
                let mut destroy = DestroyMkeyIn::new();
                destroy.set_mkey_index(key_b >> 8);
                pair.b.command(&destroy).unwrap();
            }
            Wrong::Domain | Wrong::Right => {}
        }
        pair.b.host.put(memory_b, &[0x77; 2048]);
        let segments = [
            remote_segment(remote, key_b),
            data_segment((key_a, local, 16)),
        ]
        .concat();
        pair.a.post_send(&mut qp, WRITE, SIGNALED, 0, &segments);
        pair.a.post_send(&mut qp, WRITE, 0, 0, &segments);
        pair.a.ring_send(&qp);
        pair.run();
        let done = pair.a.poll_all(&mut cq);
        assert_eq!(done.len(), 2, "{wrong:?}");
        assert_eq!(
            (done[0].opcode, done[0].syndrome),
            (0xd, syndrome),
            "{wrong:?}"
        );
        assert_eq!((done[1].opcode, done[1].syndrome), (0xd, 5), "{wrong:?}");
        assert_eq!(pair.b.host.bytes(memory_b, 2048), [0x77; 2048], "{wrong:?}");
        let mut query = QueryQpIn::new();
        query.set_qpn(qp.number);
        let (state, _) = pair.a.command_with(&query, &[], 0).unwrap();
        assert_eq!(state.qpc().state(), 6, "{wrong:?}");
    }
}

#[test]
fn error_flushes_what_was_posted_and_what_comes_later() {
    let mut pair = Pair::new();
    let [_, (mut qp, mut cq)] = pair.connect(RC);
    let key = 0;
    for _ in 0..3 {
        pair.b.post_receive(&mut qp, &[(key, 0, 64)]);
    }
    pair.b.make_error(&qp);
    pair.run();
    let flushed = pair.b.poll_all(&mut cq);
    assert_eq!(flushed.len(), 3);
    assert!(
        flushed
            .iter()
            .all(|cqe| (cqe.opcode, cqe.syndrome) == (0xe, 5))
    );
    assert_eq!(
        flushed.iter().map(|cqe| cqe.counter).collect::<Vec<_>>(),
        [0, 1, 2]
    );
    pair.b.post_receive(&mut qp, &[(key, 0, 64)]);
    pair.b
        .post_send(&mut qp, SEND, 0, 0, &inline_segment(&[1, 2, 3]));
    pair.b.ring_send(&qp);
    // Nothing rings for a receive: the device has to look by itself.
    pair.b.sleep(std::time::Duration::from_millis(1));
    pair.run();
    let mut flushed = pair.b.poll_all(&mut cq);
    flushed.sort_by_key(|cqe| cqe.opcode);
    assert_eq!(flushed.len(), 2);
    assert_eq!(
        (flushed[0].opcode, flushed[0].syndrome, flushed[0].counter),
        (0xd, 5, 0)
    );
    assert_eq!(
        (flushed[1].opcode, flushed[1].syndrome, flushed[1].counter),
        (0xe, 5, 3)
    );
    // Reset drops everything silently, and the QP starts over.
    pair.b.post_receive(&mut qp, &[(key, 0, 64)]);
    pair.b.make_reset(&mut qp);
    pair.b.sleep(std::time::Duration::from_millis(1));
    assert_eq!(pair.b.poll(&mut cq), None);
}

#[test]
fn nothing_of_a_qp_comes_after_it_was_destroyed() {
    let mut pair = Pair::new();
    let [(mut qp_a, mut cq_a), (mut qp_b, mut cq_b)] = pair.connect(RC);
    let memory = pair.b.host.alloc(4096, 4096);
    let key = pair.b.register(pair.pd[1], memory, 0, 4096, ALL);
    pair.b.post_receive(&mut qp_b, &[(key, 0, 64)]);
    pair.a
        .post_send(&mut qp_a, SEND, SIGNALED, 0, &inline_segment(&[9; 60]));
    pair.a.ring_send(&qp_a);
    pair.a.advance();
    let frames = std::mem::take(&mut pair.a.host.frames);
    assert_eq!(frames.len(), 1);
    let mut destroy = DestroyQpIn::new();
    destroy.set_qpn(qp_b.number);
    pair.b.command(&destroy).unwrap();
    destroy.set_qpn(qp_a.number);
    pair.a.command(&destroy).unwrap();
    for frame in frames {
        pair.b.model.receive(&mut pair.b.host, &frame);
    }
    pair.a.sleep(std::time::Duration::from_secs(30));
    pair.b.sleep(std::time::Duration::from_secs(30));
    pair.run();
    assert_eq!(pair.a.poll(&mut cq_a), None);
    assert_eq!(pair.b.poll(&mut cq_b), None);
    assert_eq!(pair.b.host.bytes(memory, 64), [0; 64]);
    assert_eq!(pair.b.host.frames, Vec::<Vec<u8>>::new());
}

#[test]
fn datagrams_carry_their_sender() {
    let mut pair = Pair::new();
    let mut ends = Vec::new();
    for (node, pd) in [(&mut pair.a, pair.pd[0]), (&mut pair.b, pair.pd[1])] {
        for st in [UD, QP1] {
            let cq = node.create_cq(6, 1);
            let qp = node.create_qp(QpPlan {
                st,
                pd,
                send_cq: cq.number,
                receive_cq: cq.number,
                srq: None,
                user_index: 5,
            });
            let mut modify = bareverbs_firmware_cmds::qp::Rst2initQpIn::new();
            modify.set_qpn(qp.number);
            let qkey = if st == QP1 { 0x8001_0000 } else { 0x1111_1111 };
            modify.qpc_mut().set_st(st).set_pm_state(3).set_q_key(qkey);
            modify
                .qpc_mut()
                .primary_address_path_mut()
                .set_vhca_port_num(1);
            node.command(&modify).unwrap();
            node.make_rtr(&qp, 0, 0, None);
            node.make_rts(&qp, 55);
            ends.push((qp, cq));
        }
    }
    let [
        (mut ud_a, mut cq_ud_a),
        (mut gsi_a, _),
        (mut ud_b, mut cq_ud_b),
        (mut gsi_b, mut cq_gsi_b),
    ] = <[(Qp, Cq); 4]>::try_from(ends).ok().unwrap();
    let memory = pair.b.host.alloc(4096, 4096);
    let key = pair.b.register(pair.pd[1], memory, 0, 4096, LOCAL_WRITE);
    let mac = pair.b.model.config().mac;

    pair.b.post_receive(&mut gsi_b, &[(key, 0, 296)]);
    let mad = pattern(256, 9);
    let av = address_vector(1, 0x8001_0000, &gid(2), 0, mac);
    pair.a.post_send(
        &mut gsi_a,
        SEND,
        SIGNALED,
        0,
        &[av, inline_segment(&mad)].concat(),
    );
    pair.a.ring_send(&gsi_a);
    pair.run();
    let got = pair.b.poll(&mut cq_gsi_b).unwrap();
    assert_eq!(
        (got.opcode, got.byte_count, got.qpn),
        (2, 296, gsi_b.number)
    );
    // Header present, IPv4, from QP1; the P_Key where other packets have the immediate.
    assert_eq!(got.flags_rqpn, 1 << 28 | 2 << 24 | 1);
    assert_eq!(got.immediate, 0xffff);
    assert_eq!(pair.b.host.bytes(memory + 40, 256), mad);
    let header = pair.b.host.bytes(memory + 20, 20).to_vec();
    assert_eq!(
        (header[0], &header[12..16], &header[16..]),
        (0x45, &[10, 0, 0, 1][..], &[10, 0, 0, 2][..])
    );

    // The wrong Q_Key never arrives.
    for (qkey, arrives) in [(0x2222_2222, false), (0x1111_1111, true)] {
        pair.b.post_receive(&mut ud_b, &[(key, 1024, 512)]);
        let av = address_vector(ud_b.number, qkey, &gid(2), 0, mac);
        pair.a.post_send(
            &mut ud_a,
            SEND_IMM,
            SIGNALED,
            77,
            &[av, inline_segment(&mad)].concat(),
        );
        pair.a.ring_send(&ud_a);
        pair.run();
        assert_eq!(pair.a.poll(&mut cq_ud_a).map(|cqe| cqe.opcode), Some(0));
        let got = pair.b.poll(&mut cq_ud_b);
        assert_eq!(got.is_some(), arrives);
        if let Some(got) = got {
            assert_eq!((got.opcode, got.immediate, got.byte_count), (3, 77, 296));
            assert_eq!(got.flags_rqpn & 0xff_ffff, ud_a.number);
        }
    }
}

#[test]
fn a_card_reaches_itself() {
    let mut pair = Pair::new();
    let node = &mut pair.a;
    let make = |node: &mut crate::common::Node| {
        let cq = node.create_cq(6, 1);
        let qp = node.create_qp(QpPlan {
            st: RC,
            pd: pair.pd[0],
            send_cq: cq.number,
            receive_cq: cq.number,
            srq: None,
            user_index: 1,
        });
        node.make_init(&qp);
        (qp, cq)
    };
    let (mut one, mut cq_one) = make(node);
    let (mut two, mut cq_two) = make(node);
    let mac = node.model.config().mac;
    node.make_rtr(&one, two.number, 2, Some((gid(1), mac)));
    node.make_rtr(&two, one.number, 1, Some((gid(1), mac)));
    node.make_rts(&one, 1);
    node.make_rts(&two, 2);
    let memory = node.host.alloc(4096, 4096);
    let key = node.register(pair.pd[0], memory, 0, 4096, ALL);
    node.post_receive(&mut two, &[(key, 0, 64)]);
    node.post_send(&mut one, SEND, SIGNALED, 0, &inline_segment(b"to myself"));
    node.ring_send(&one);
    pair.run();
    assert_eq!(pair.a.poll(&mut cq_one).map(|cqe| cqe.opcode), Some(0));
    assert_eq!(pair.a.poll(&mut cq_two).map(|cqe| cqe.byte_count), Some(9));
    assert_eq!(pair.a.host.bytes(memory, 9), b"to myself");
    assert_eq!(pair.a.model.stats().frames_sent, 0);
}

#[test]
fn send_with_invalidate_takes_the_key_away() {
    use bareverbs_firmware_cmds::mkey::CreateMkeyIn;
    let mut pair = Pair::new();
    let [(mut qp_a, mut cq_a), (mut qp_b, mut cq_b)] = pair.connect(RC);
    let memory = pair.b.host.alloc(4096, 4096);
    let mut create = CreateMkeyIn::new();
    create.set_translations_octword_actual_size(1);
    create
        .memory_key_mkey_entry_mut()
        .set_access_mode_1_0(1)
        .set_rw(true)
        .set_lw(true)
        .set_en_rinval(true)
        .set_qpn(0xff_ffff)
        .set_mkey_7_0(3)
        .set_pd(pair.pd[1])
        .set_len(4096)
        .set_translations_octword_size(1)
        .set_log_page_size(12);
    let mut list = memory.to_be_bytes().to_vec();
    list.resize(16, 0);
    let (output, _) = pair.b.command_with(&create, &list, 0).unwrap();
    let key = output.mkey_index() << 8 | 3;
    pair.b.post_receive(&mut qp_b, &[]);
    pair.a
        .post_send(&mut qp_a, SEND_INVALIDATE, SIGNALED, key, &[]);
    pair.a.ring_send(&qp_a);
    pair.run();
    assert_eq!(pair.a.poll(&mut cq_a).map(|cqe| cqe.opcode), Some(0));
    let got = pair.b.poll(&mut cq_b).unwrap();
    assert_eq!((got.opcode, got.immediate), (4, key));
    let segments = [remote_segment(0, key), inline_segment(&[1])].concat();
    pair.a.post_send(&mut qp_a, WRITE, SIGNALED, 0, &segments);
    pair.a.ring_send(&qp_a);
    pair.run();
    assert_eq!(
        pair.a.poll(&mut cq_a).map(|cqe| (cqe.opcode, cqe.syndrome)),
        Some((0xd, 0x13))
    );
}
