//! Two cards on a cable, and RDMA beside Ethernet.

use crate::common::queues::{Pair, RC};
use crate::common::{Node, exchange};
use crate::lab::*;
use connectx_model::Config;

#[test]
fn frames_cross_the_cable() {
    let mut a = Lab::new();
    let mut b = Lab::with(Config::new(2));
    b.fill(16);
    for size in [1, 18, 19, 100, 1000, 1400] {
        let data: Vec<u8> = (0..size).map(|at| at as u8).collect();
        let frame = udp_frame(OTHER, OWN, (1, 2), &data);
        let piece = a.piece(0, &frame);
        let mut segments = ethernet_segment(NETWORK | TRANSPORT, 0, &[], None);
        segments.extend(crate::common::queues::data_segment(piece));
        let nth = b.rq.posted - 16;
        a.post(SEND, 8, &segments);
        a.ring();
        exchange(&mut a.node, &mut b.node);
        assert_eq!(a.sent().unwrap().opcode(), SENT);
        let done = b.received().unwrap();
        assert_eq!(done.0[0x1c], 0b111, "{size}");
        assert_eq!(done.length(), frame.len().max(60) as u32);
        let at = b.buffer(nth);
        let good = good_udp_frame(OTHER, OWN, (1, 2), &data);
        assert_eq!(b.node.host.bytes(at, good.len()), good);
        b.fill(1);
    }
}

/// RoCE for a known address goes to queue pairs, the rest to flow tables, and packets that a queue pair sends to its
/// own port do not reach the network driver.
#[test]
fn rdma_packets_are_not_ethernet_s() {
    let mut pair = Pair::new();
    let [(mut qa, mut ca), (mut qb, mut cb)] = pair.connect(RC);
    let counters = |node: &mut Node| {
        let query = bareverbs_firmware_cmds::vport::QueryVportCounterIn::new();
        let out = node.command(&query).unwrap();
        let packets = out.received_eth_unicast().packets();
        (packets, out.received_ib_unicast().packets())
    };
    let memory = pair.b.host.alloc(4096, 4096);
    let key = pair.b.register(pair.pd[1], memory, memory, 4096, 1);
    pair.b.post_receive(&mut qb, &[(key, memory, 4096)]);
    pair.a.post_send(
        &mut qa,
        SEND,
        8,
        0,
        &crate::common::queues::inline_segment(b"hello"),
    );
    pair.a.ring_send(&qa);
    pair.run();
    assert_eq!(pair.a.poll_all(&mut ca).len(), 1);
    assert_eq!(pair.b.poll_all(&mut cb).len(), 1);
    let (ethernet, rdma) = counters(&mut pair.b);
    assert_eq!(ethernet, 0);
    assert!(rdma > 0);
}

/// The port of RoCE is RDMA's as soon as RoCE is on, and an ordinary one before.
#[test]
fn broken_rdma_packets_reach_no_queue() {
    let mut lab = Lab::new();
    lab.fill(2);
    let frame = good_udp_frame(OWN, OTHER, (0xc000, 4791), &[9; 100]);
    lab.receive(&frame);
    assert!(lab.received().is_some());
    lab.node.address(1);
    let dropped = lab.node.model.stats().frames_dropped;
    lab.receive(&frame);
    assert!(lab.received().is_none());
    assert_eq!(lab.node.model.stats().frames_dropped, dropped + 1);
    lab.receive(&good_udp_frame(OWN, OTHER, (0xc000, 4792), &[9; 100]));
    assert!(lab.received().is_some());
}
