//! From work queue entries to frames.

use crate::common::queues::data_segment;
use crate::lab::*;
use bareverbs_firmware_cmds::vport::{AddVxlanUdpDportIn, DeleteVxlanUdpDportIn};
use connectx_model::{Config, Syndrome};

#[test]
fn a_frame_goes_out_as_it_is_and_is_padded() {
    let mut lab = Lab::new();
    let frame = udp_frame(OTHER, OWN, (1, 2), &[7; 100]);
    assert_eq!(lab.send(0, &frame), std::slice::from_ref(&frame));
    let done = lab.sent().unwrap();
    assert_eq!((done.opcode(), done.counter()), (SENT, 0));
    assert_eq!(done.word(0x38), u32::from(SEND) << 24 | lab.sq.number);
    assert_eq!(done.word(0x20), 0x11);

    let short = udp_frame(OTHER, OWN, (1, 2), b"x");
    let out = lab.send(0, &short);
    assert_eq!(out[0].len(), 60);
    assert_eq!(out[0][..short.len()], short);
    assert!(out[0][short.len()..].iter().all(|&byte| byte == 0));
    assert_eq!(lab.sent().unwrap().counter(), 1);
}

#[test]
fn checksums_are_filled_in_only_when_asked_for() {
    let mut lab = Lab::new();
    let frame = udp_frame(OTHER, OWN, (1, 2), &[7; 33]);
    let good = good_udp_frame(OTHER, OWN, (1, 2), &[7; 33]);
    assert_eq!(lab.send(NETWORK | TRANSPORT, &frame)[0][..75], good);
    assert_eq!(lab.send(0, &frame)[0][..75], frame);
    let network = &lab.send(NETWORK, &frame)[0];
    assert_eq!(network[24..26], good[24..26]);
    assert_eq!(network[40..42], [0, 0]);
}

/// Checksums of a frame in VXLAN, to ports that Linux's driver adds and removes (`mlx5_vxlan_add_port`).
#[test]
fn inner_checksums_are_filled_in_behind_ports_of_vxlan() {
    const INNER_NETWORK: u8 = 1 << 4;
    const INNER_TRANSPORT: u8 = 1 << 5;
    let mut lab = Lab::new();
    let header = [8, 0, 0, 0, 0, 0, 42, 0];
    let tunnel = |port: u16, inner: &[u8]| {
        let payload = [&header[..], inner].concat();
        udp_frame(OTHER, OWN, (1, port), &payload)
    };
    let inner = udp_frame(OTHER, OWN, (1, 2), &[7; 33]);
    let good = good_udp_frame(OTHER, OWN, (1, 2), &[7; 33]);
    let flags = NETWORK | INNER_NETWORK | INNER_TRANSPORT;
    let send = |lab: &mut Lab, port| lab.send(flags, &tunnel(port, &inner))[0][50..].to_vec();
    assert_eq!(send(&mut lab, 4789), good);
    let outer = &lab.send(0, &tunnel(4789, &inner))[0];
    assert_eq!(outer[50..], inner);

    let add = |lab: &mut Lab, port| {
        let mut add = AddVxlanUdpDportIn::new();
        add.set_vxlan_udp_port(port);
        lab.node.command(&add).map(drop)
    };
    let delete = |lab: &mut Lab, port| {
        let mut delete = DeleteVxlanUdpDportIn::new();
        delete.set_vxlan_udp_port(port);
        lab.node.command(&delete).map(drop)
    };
    assert_eq!(send(&mut lab, 8472), inner);
    assert_eq!(add(&mut lab, 8472), Ok(()));
    assert_eq!(send(&mut lab, 8472), good);
    assert_eq!(add(&mut lab, 4789), Ok(()), "it is there already");
    let most = u16::from(Config::new(1).ethernet.max_vxlan_udp_ports());
    for port in 2..most {
        assert_eq!(add(&mut lab, port), Ok(()));
    }
    assert_eq!(add(&mut lab, 99), Err(refused(Syndrome::VxlanFull)));
    assert_eq!(delete(&mut lab, 8472), Ok(()));
    assert_eq!(delete(&mut lab, 8472), Err(refused(Syndrome::VxlanUnknown)));
    assert_eq!(send(&mut lab, 8472), inner);

    let mut config = Config::new(1);
    config
        .ethernet
        .set_tunnel_stateless_vxlan(false)
        .set_tunnel_stateless_gre(false)
        .set_max_vxlan_udp_ports(0);
    let mut lab = Lab::with(config);
    assert_eq!(
        add(&mut lab, 8472),
        Err(refused(Syndrome::VxlanUnsupported))
    );
    assert!(lab.send(flags, &tunnel(4789, &inner)).is_empty());
    assert_ne!(lab.sent().unwrap().opcode(), SENT);
}

#[test]
fn headers_may_come_inline_and_tags_are_inserted() {
    let mut lab = Lab::new();
    let frame = udp_frame(OTHER, OWN, (1, 2), &[7; 100]);
    // 18 bytes inline end in the middle of a unit, 2 fit the segment itself, 34 reach over the basic block.
    for inline in [2, 18, 34, 90] {
        let piece = lab.piece(0, &frame[inline..]);
        let mut segments = ethernet_segment(0, 0, &frame[..inline], None);
        segments.extend(data_segment(piece));
        lab.post(SEND, 8, &segments);
        lab.ring();
        assert_eq!(lab.node.host.frames.pop().unwrap(), frame, "{inline}");
    }
    // All of it inline: no data segment at all.
    let segments = ethernet_segment(0, 0, &frame, None);
    lab.post(SEND, 8, &segments);
    lab.ring();
    assert_eq!(lab.node.host.frames.pop().unwrap(), frame);

    let piece = lab.piece(0, &frame);
    let mut segments = ethernet_segment(NETWORK | TRANSPORT, 0, &[], Some(0x6005));
    segments.extend(data_segment(piece));
    lab.post(SEND, 8, &segments);
    lab.ring();
    let out = lab.node.host.frames.pop().unwrap();
    assert_eq!(out[12..16], [0x81, 0x00, 0x60, 0x05]);
    let good = good_udp_frame(OTHER, OWN, (1, 2), &[7; 100]);
    assert_eq!([&out[..12], &out[16..]].concat(), good);
}

#[test]
fn data_is_gathered_from_many_pieces_and_the_queue_wraps() {
    let mut lab = Lab::new();
    let frame = udp_frame(OTHER, OWN, (1, 2), &(0..200).collect::<Vec<u8>>());
    for round in 0..40u16 {
        let before = lab.sq.posted;
        let mut segments = ethernet_segment(0, 0, &[], None);
        for (nth, part) in frame.chunks(50).enumerate() {
            let piece = lab.piece(nth as u64 * 0x1fff, part);
            segments.extend(data_segment(piece));
        }
        lab.post(SEND, 8, &segments);
        lab.ring();
        assert_eq!(lab.node.host.frames, std::slice::from_ref(&frame));
        lab.node.host.frames.clear();
        assert_eq!(lab.sent().unwrap().counter(), before, "{round}");
    }
}

#[test]
fn completions_come_when_asked_for_and_nops_complete_too() {
    let mut lab = Lab::new();
    let first = lab.post(NOP, 0, &[]);
    let second = lab.post(NOP, 8, &[]);
    lab.ring();
    let done = lab.sent().unwrap();
    assert_eq!((first, second), (0, 1));
    assert_eq!((done.opcode(), done.counter()), (SENT, 1));
    assert!(lab.sent().is_none());
    assert!(lab.node.host.frames.is_empty());
    // With an event: Linux's driver asks for it to have its interrupt.
    lab.post(NOP, 12, &[]);
    lab.ring();
    assert_eq!(lab.sent().unwrap().counter(), 2);
}

#[test]
fn a_large_send_becomes_many_packets() {
    let mut lab = Lab::new();
    let data: Vec<u8> = (0..3000).map(|at| at as u8).collect();
    let headers = udp_frame(OTHER, OWN, (1, 2), &[]);
    let piece = lab.piece(0, &data);
    let mut segments = ethernet_segment(NETWORK | TRANSPORT, 1400, &headers, None);
    segments.extend(data_segment(piece));
    lab.post(LSO, 8, &segments);
    lab.ring();
    let frames = std::mem::take(&mut lab.node.host.frames);
    let lengths: Vec<usize> = frames.iter().map(|frame| frame.len() - 42).collect();
    assert_eq!(lengths, [1400, 1400, 200]);
    for (nth, (frame, part)) in frames.iter().zip(data.chunks(1400)).enumerate() {
        let mut good = good_udp_frame(OTHER, OWN, (1, 2), part);
        good[19] = 1 + nth as u8;
        good[24..26].fill(0);
        let header = !sum(&good[14..34]);
        good[24..26].copy_from_slice(&header.to_be_bytes());
        assert_eq!(*frame, good);
    }
    assert_eq!(lab.sent().unwrap().word(0x38) >> 24, u32::from(LSO));
}

#[test]
fn what_the_port_cannot_carry_is_dropped() {
    let mut lab = Lab::new();
    let dropped = lab.node.model.stats().frames_dropped;
    let space = usize::from(lab.node.model.config().mtu) - 28;
    let fits = udp_frame(OTHER, OWN, (1, 2), &vec![1; space]);
    assert_eq!(lab.send(0, &fits).len(), 1);
    // Four bytes more are allowed for a tag.
    let long = udp_frame(OTHER, OWN, (1, 2), &vec![1; space + 5]);
    assert_eq!(lab.send(0, &long).len(), 0);
    assert_eq!(lab.send(0, &long[..13]).len(), 0);
    assert_eq!(lab.node.model.stats().frames_dropped, dropped + 2);
    for counter in 0..3 {
        assert_eq!((lab.sent().unwrap().counter()), counter);
    }
    lab.node.model.set_link(&mut lab.node.host, false);
    assert_eq!(lab.send(0, &fits).len(), 0);
    assert_eq!(lab.sent().unwrap().opcode(), SENT);
}

/// The one failed, what follows is flushed, and so is what comes later, until the queue was reset.
fn fails(segments: &[u8], opcode: u8, syndrome: u8) {
    let mut lab = Lab::new();
    let bad = lab.post(opcode, 0, segments);
    let next = lab.post(NOP, 0, &[]);
    lab.ring();
    let failed = lab.sent().unwrap();
    assert_eq!(
        (failed.opcode(), failed.syndrome()),
        (SEND_FAILED, syndrome)
    );
    assert_eq!(failed.counter(), bad);
    assert_eq!(failed.word(0x38) & 0xff_ffff, lab.sq.number);
    let flushed = lab.sent().unwrap();
    assert_eq!(
        (flushed.opcode(), flushed.syndrome()),
        (SEND_FAILED, FLUSHED)
    );
    assert_eq!(flushed.counter(), next);
    let later = lab.post(NOP, 0, &[]);
    lab.ring();
    assert_eq!(lab.sent().unwrap().counter(), later);
    assert_eq!(lab.sq_context().state(), ERR);
    assert!(lab.node.host.frames.is_empty());

    lab.move_sq(ERR, RST).unwrap();
    lab.sq.posted = 0;
    lab.move_sq(RST, RDY).unwrap();
    let frame = udp_frame(OTHER, OWN, (1, 2), &[7; 100]);
    assert_eq!(lab.send(0, &frame), [frame]);
    assert_eq!(lab.sent().unwrap().opcode(), SENT);
}

#[test]
fn what_cannot_be_executed_stops_the_queue() {
    let key = Lab::new().key;
    let memory = Lab::new().memory;
    let plain = |piece| [ethernet_segment(0, 0, &[], None), data_segment(piece)].concat();
    fails(&plain((key ^ 1, memory, 100)), SEND, PROTECTION);
    fails(&plain((key, memory + MEMORY, 100)), SEND, PROTECTION);
    // Zero is 2 GiB.
    fails(&plain((key, memory, 0)), SEND, LENGTH);
    fails(&plain((key, memory, 20_000)), SEND, LENGTH);
    // Not Ethernet's.
    fails(&[0; 32], 0x08, OPERATION);
    fails(&[], SEND, OPERATION);
    // Inline headers that go on behind the WQE.
    let mut long = ethernet_segment(0, 0, &[1; 18], None);
    long[12..14].copy_from_slice(&200u16.to_be_bytes());
    fails(&long, SEND, OPERATION);
    // Large sends without a segment size, headers or data.
    let headers = udp_frame(OTHER, OWN, (1, 2), &[]);
    let data = data_segment((key, memory, 500));
    let large = |mss, headers: &[u8], data: &[u8]| {
        [&ethernet_segment(0, mss, headers, None), data].concat()
    };
    fails(&large(0, &headers, &data), LSO, LENGTH);
    fails(&large(100, &headers, &[]), LSO, LENGTH);
    fails(&large(100, &[], &data), LSO, OPERATION);
    fails(&large(100, &headers[..20], &data), LSO, OPERATION);
}

#[test]
fn a_wqe_of_another_queue_or_index_stops_the_queue() {
    for (number, index) in [(1, 0), (0, 1)] {
        let mut lab = Lab::new();
        let own = lab.sq.number;
        lab.sq.posted = index;
        lab.post_as(NOP, 8, own + number, &[]);
        if index == 1 {
            // The WQE says that it is the second one, and lies in the first block.
            let wqe = lab.node.host.bytes(lab.sq.ring + 64, 64).to_vec();
            lab.node.host.put(lab.sq.ring, &wqe);
            lab.sq.posted = 1;
        }
        lab.ring();
        let failed = lab.sent().unwrap();
        assert_eq!(
            (failed.opcode(), failed.syndrome()),
            (SEND_FAILED, OPERATION)
        );
    }
}

#[test]
fn doorbells_of_no_queue_or_through_another_page_are_ignored() {
    let mut lab = Lab::new();
    lab.post(NOP, 8, &[]);
    lab.node.host.put32(lab.sq.record + 4, 1);
    let other = lab
        .node
        .command(&bareverbs_firmware_cmds::uar::AllocUarIn::new())
        .unwrap()
        .uar();
    let bad = lab.node.model.stats().bad_doorbells;
    lab.node.write64(
        u64::from(other) * 4096 + 0x800,
        u64::from(lab.sq.number) << 8,
    );
    let uar = u64::from(lab.node.uar) * 4096;
    lab.node
        .write64(uar + 0x800, u64::from(lab.sq.number + 1) << 8);
    lab.node.advance();
    assert!(lab.sent().is_none());
    assert_eq!(lab.node.model.stats().bad_doorbells, bad + 2);
    lab.ring();
    assert!(lab.sent().is_some());
}

#[test]
fn a_counter_beyond_the_queue_stops_it() {
    let mut lab = Lab::new();
    lab.post(NOP, 8, &[]);
    lab.sq.posted = 17;
    lab.ring();
    let failed = lab.sent().unwrap();
    assert_eq!(
        (failed.opcode(), failed.syndrome()),
        (SEND_FAILED, OPERATION)
    );
    assert!(lab.sent().is_none());
}

#[test]
fn nothing_is_sent_before_the_queue_is_ready() {
    let mut lab = Lab::new();
    lab.move_sq(RDY, RST).unwrap();
    lab.post(NOP, 8, &[]);
    lab.ring();
    assert!(lab.sent().is_none());
    lab.move_sq(RST, RDY).unwrap();
    lab.node.advance();
    assert_eq!(lab.sent().unwrap().counter(), 0);
}

#[test]
fn a_queue_without_flushing_keeps_what_it_has() {
    let mut lab = Lab::new();
    lab.sq = lab
        .try_sq(|context| {
            context.set_flush_in_error_en(false);
        })
        .unwrap();
    lab.move_sq(RST, RDY).unwrap();
    lab.post(0x08, 0, &[0; 32]);
    lab.post(NOP, 8, &[]);
    lab.ring();
    assert_eq!(lab.sent().unwrap().syndrome(), OPERATION);
    assert!(lab.sent().is_none());
}
