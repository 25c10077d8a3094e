//! UD and GSI.

use connectx_model::link::Cable;
use connectx_model::roce::env::*;
use connectx_model::roce::transport::{GSI_QKEY, GSI_QPN, MULTICAST_QPN};

use crate::mock::*;

const QKEY: u32 = 0x1111_1111;

#[test]
fn every_size_with_the_header_in_front() {
    for len in [0, 1, 2, 3, 4, 255, 256, 1023, 1024] {
        for op in [SendOp::Send, SendOp::SendImm(77)] {
            let mut world = World::new(QpKind::Ud, 1024);
            world.sides[1].env.post_recv(0x8000, 40 + 1024);
            let mut work = datagram(0, op, vec![memory(0, len)], 0x51, QKEY);
            work.solicited = true;
            world.posts(0, work);
            world.settle();
            assert_eq!(world.results(0), [Ok(())]);
            let env = &world.sides[1].env;
            let done = env.received[0];
            assert_eq!(done.result, Ok(()));
            assert_eq!(done.byte_len, 40 + len);
            assert!(done.solicited);
            let source = DatagramSource {
                qpn: 0x50,
                grh: GrhKind::Ipv4,
                pkey: 0xffff,
                vlan: None,
            };
            assert_eq!(done.source, Some(source));
            match op {
                SendOp::SendImm(imm) => assert_eq!(done.op, RecvOp::SendImm(imm)),
                _ => assert_eq!(done.op, RecvOp::Send),
            }
            let at = &env.memory[0x8000..];
            assert_eq!(at[..20], [0; 20]);
            assert_eq!(at[20], 0x45);
            assert_eq!(at[32..36], [10, 0, 0, 1]);
            assert_eq!(at[36..40], [10, 0, 0, 2]);
            let len = len as usize;
            assert!(at[40..40 + len] == world.sides[0].env.memory[..len]);
        }
    }
}

#[test]
fn longer_than_the_mtu_is_a_local_error() {
    let mut world = World::new(QpKind::Ud, 1024);
    world.posts(
        0,
        datagram(0, SendOp::Send, vec![memory(0, 1025)], 0x51, QKEY),
    );
    world.posts(0, datagram(0, SendOp::Send, vec![memory(0, 1)], 0x51, QKEY));
    world.settle();
    assert_eq!(world.results(0), [Err(Syndrome::LocalLength)]);
    assert_eq!(world.sides[0].env.error, Some(ErrorScope::SendQueue));
    assert_eq!(world.sides[1].env.count_of(Counter::PacketsReceived), 0);
    // Receives go on in SQE.
    world.sides[0].env.post_recv(0, 100);
    world.posts(1, datagram(1, SendOp::Send, vec![memory(0, 1)], 0x50, QKEY));
    world.settle();
    assert_eq!(world.sides[0].env.received[0].result, Ok(()));
}

#[test]
fn wrong_operations_and_missing_addresses() {
    for work in [
        remote(SendOp::Write, vec![memory(0, 1)], 0),
        remote(SendOp::Read, vec![memory(0, 1)], 0),
        send(SendOp::Send, vec![memory(0, 1)]),
    ] {
        let mut world = World::new(QpKind::Ud, 1024);
        world.posts(0, work);
        world.settle();
        assert_eq!(world.results(0), [Err(Syndrome::LocalQpOperation)]);
    }
}

#[test]
fn qkeys_decide() {
    let mut world = World::new(QpKind::Ud, 1024);
    world.sides[1].env.post_recv(0, 100);
    world.posts(
        0,
        datagram(0, SendOp::Send, vec![memory(0, 1)], 0x51, QKEY + 1),
    );
    world.settle();
    assert_eq!(world.sides[1].env.received.len(), 0);
    assert_eq!(world.sides[1].env.count_of(Counter::QkeyViolations), 1);
    // The top bit says "my own".
    world.posts(
        0,
        datagram(0, SendOp::Send, vec![memory(0, 1)], 0x51, 0x8000_0005),
    );
    world.settle();
    assert_eq!(world.sides[1].env.received.len(), 1);
}

#[test]
fn without_a_buffer_the_datagram_is_gone() {
    let mut world = World::new(QpKind::Ud, 1024);
    world.posts(
        0,
        datagram(0, SendOp::SendImm(1), vec![memory(0, 1)], 0x51, QKEY),
    );
    world.settle();
    world.sides[1].env.post_recv(0, 100);
    world.posts(
        0,
        datagram(0, SendOp::SendImm(2), vec![memory(0, 1)], 0x51, QKEY),
    );
    world.settle();
    let ops: Vec<_> = world.sides[1].env.received.iter().map(|c| c.op).collect();
    assert_eq!(ops, [RecvOp::SendImm(2)]);
    assert_eq!(world.sides[1].env.count_of(Counter::OutOfBuffer), 1);
}

#[test]
fn buffer_without_space_for_the_header() {
    let mut world = World::new(QpKind::Ud, 1024);
    world.sides[1].env.post_recv(0, 49);
    world.posts(
        0,
        datagram(0, SendOp::Send, vec![memory(0, 10)], 0x51, QKEY),
    );
    world.settle();
    let done = world.sides[1].env.received[0];
    assert_eq!(done.result, Err(Syndrome::LocalLength));
    assert_eq!(world.sides[1].env.error, Some(ErrorScope::Qp));
}

#[test]
fn longer_than_the_receivers_mtu_is_dropped() {
    let mut world = World::with(Box::new(Cable::new()), |side| {
        config(QpKind::Ud, side, [2048, 1024][side])
    });
    world.sides[1].env.post_recv(0, 4096);
    for len in [1025, 1024] {
        world.posts(
            0,
            datagram(0, SendOp::Send, vec![memory(0, len)], 0x51, QKEY),
        );
    }
    world.settle();
    let lens: Vec<_> = world.sides[1]
        .env
        .received
        .iter()
        .map(|c| c.byte_len)
        .collect();
    assert_eq!(lens, [1064]);
    assert_eq!(world.sides[1].env.count_of(Counter::PacketsDropped), 1);
}

#[test]
fn multicast_goes_to_the_qps_that_the_device_selects() {
    let mut world = World::new(QpKind::Ud, 1024);
    world.sides[1].env.post_recv(0, 100);
    world.posts(
        0,
        datagram(0, SendOp::Send, vec![memory(0, 10)], MULTICAST_QPN, QKEY),
    );
    world.settle();
    assert_eq!(world.sides[1].env.received.len(), 1);
}

#[test]
fn management_datagrams() {
    let mut world = World::with(Box::new(Cable::new()), |side| {
        config(QpKind::Gsi, side, 1024)
    });
    world.sides[1].env.post_recv(0, 296);
    let work = datagram(0, SendOp::Send, vec![memory(0, 256)], GSI_QPN, GSI_QKEY);
    world.posts(0, work);
    // Neither the hardware's number nor another key reaches it.
    world.posts(
        0,
        datagram(0, SendOp::Send, vec![memory(0, 256)], 0x51, GSI_QKEY),
    );
    world.posts(
        0,
        datagram(0, SendOp::Send, vec![memory(0, 256)], GSI_QPN, 5),
    );
    world.settle();
    assert_eq!(world.results(0), [Ok(()); 3]);
    let env = &world.sides[1].env;
    assert_eq!(env.received.len(), 1);
    assert_eq!(env.received[0].source.unwrap().qpn, GSI_QPN);
    assert_eq!(env.count_of(Counter::PacketsDropped), 1);
    assert_eq!(env.count_of(Counter::QkeyViolations), 1);
}
