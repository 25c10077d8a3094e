//! Packets that a sound peer would not send: ignored, refused, or the end of the QP, but never accepted.

use std::time::Duration;

use connectx_model::link::{Cable, Link};
use connectx_model::roce::codes::{Nak, Syndrome as Aeth};
use connectx_model::roce::env::*;
use connectx_model::roce::opcode::Operation;
use connectx_model::roce::packet::{Extended, Packet, Reth, reseal};

use crate::mock::*;

/// Forgeries by what they are.
type Forgeries<const N: usize> = [(&'static str, fn(&mut [u8])); N];

/// Changes every request on its way, with the ICRC made right again.
struct Forge<F>(Cable, F);

impl<F: FnMut(&mut [u8]) + Send> Link for Forge<F> {
    fn send(&mut self, from: usize, frame: &[u8], now: Duration) {
        let mut frame = frame.to_vec();
        if from == 0 {
            (self.1)(&mut frame);
            // IPv4 header checksum.
            frame[24..26].fill(0);
            let sum: u32 = frame[14..34]
                .chunks(2)
                .map(|p| u32::from(u16::from_be_bytes([p[0], p[1]])))
                .sum();
            let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
            assert!(reseal(&mut frame));
        }
        self.0.send(from, &frame, now);
    }

    fn receive(&mut self, to: usize, now: Duration, frame: &mut Vec<u8>) -> bool {
        self.0.receive(to, now, frame)
    }

    fn next_arrival(&self) -> Option<Duration> {
        self.0.next_arrival()
    }
}

#[test]
fn what_does_not_belong_is_dropped_silently() {
    const BTH: usize = 42;
    let forgeries: Forgeries<8> = [
        ("source address", |f| f[29] = 99),
        ("destination address", |f| f[33] = 99),
        ("service", |f| f[BTH] |= 0x20),
        ("pkey", |f| f[BTH + 3] = 1),
        ("pkey of two limited members", |f| f[BTH + 2] = 0x7f),
        ("qpn", |f| f[BTH + 7] = 0x99),
        ("version", |f| f[BTH + 1] |= 1),
        ("opcode", |f| f[BTH] = 0x1f),
    ];
    for (what, forge) in forgeries {
        let limited = what.starts_with("pkey of");
        let mut world = World::with(Box::new(Forge(Cable::new(), forge)), |side| QpConfig {
            pkey: if limited { 0x7fff } else { 0xffff },
            ..config(QpKind::Rc, side, 256)
        });
        world.posts(0, remote(SendOp::Write, vec![memory(0, 100)], 0));
        world.settle();
        assert_eq!(
            world.results(0),
            [Err(Syndrome::TransportRetryExceeded)],
            "{what}"
        );
        let env = &world.sides[1].env;
        assert_eq!(env.count_of(Counter::PacketsSent), 0, "{what}");
        assert_eq!(
            env.count_of(Counter::PacketsDropped) + env.parse_errors,
            8,
            "{what}"
        );
        assert_eq!(env.error, None, "{what}");
    }
    // One full member is enough.
    let forge: fn(&mut [u8]) = |f| f[BTH + 2] = 0x7f;
    let mut world = World::with(Box::new(Forge(Cable::new(), forge)), |side| {
        config(QpKind::Rc, side, 256)
    });
    world.posts(0, remote(SendOp::Write, vec![memory(0, 100)], 0));
    world.settle();
    assert_eq!(world.results(0), [Ok(())]);
}

#[test]
fn requests_that_contradict_the_message_are_invalid() {
    const BTH: usize = 42;
    let forgeries: Forgeries<5> = [
        ("MIDDLE without FIRST", |f| {
            f[BTH] = Operation::SendMiddle as u8
        }),
        ("LAST without FIRST", |f| f[BTH] = Operation::SendLast as u8),
        ("FIRST shorter than the MTU", |f| {
            f[BTH] = Operation::SendFirst as u8
        }),
        ("pad bytes missing", |f| f[BTH + 1] |= 0x30),
        ("MIDDLE of another operation", |f| {
            f[BTH] = Operation::WriteMiddle as u8
        }),
    ];
    for (what, forge) in forgeries {
        let mut world = World::with(Box::new(Forge(Cable::new(), forge)), |side| {
            config(QpKind::Rc, side, 256)
        });
        world.sides[1].env.post_recv(0, 100);
        world.posts(0, send(SendOp::Send, vec![memory(0, 100)]));
        world.settle();
        if what == "pad bytes missing" {
            // A shorter message, nothing wrong with it.
            assert_eq!(world.results(0), [Ok(())]);
            assert_eq!(world.sides[1].env.received[0].byte_len, 97);
            continue;
        }
        assert_eq!(
            world.results(0),
            [Err(Syndrome::RemoteInvalidRequest)],
            "{what}"
        );
        assert_eq!(
            world.sides[1].env.events,
            [QpEvent::InvalidRequest],
            "{what}"
        );
    }
}

#[test]
fn writes_whose_lengths_disagree_are_invalid() {
    let write = |psn: u32, operation, len: u32, payload: &[u8]| {
        let reth = Reth {
            addr: BASE,
            rkey: RKEY,
            len,
        };
        let extended = Extended {
            reth,
            ..Extended::default()
        };
        packet(0, operation, 0x12_3456 + psn, extended, payload)
    };
    use Operation::{ReadRequest, WriteFirst, WriteLast, WriteMiddle, WriteOnly};
    let full = [7; 256];
    let cases: [&[Vec<u8>]; 7] = [
        &[write(0, WriteOnly, 10, &[7; 9])],
        &[write(0, WriteOnly, 10, &[7; 11])],
        &[
            write(0, WriteFirst, 300, &full),
            write(1, WriteLast, 0, &[7; 45]),
        ],
        &[
            write(0, WriteFirst, 300, &full),
            write(1, WriteLast, 0, &[7; 43]),
        ],
        &[
            write(0, WriteFirst, 600, &full),
            write(1, WriteMiddle, 0, &full),
            write(2, WriteMiddle, 0, &full),
        ],
        // Another request in the middle of a message.
        &[
            write(0, WriteFirst, 600, &full),
            write(1, ReadRequest, 10, &[]),
        ],
        &[
            write(0, WriteFirst, 600, &full),
            write(1, WriteFirst, 600, &full),
        ],
    ];
    for (i, case) in cases.into_iter().enumerate() {
        let mut world = World::new(QpKind::Rc, 256);
        case.iter().for_each(|frame| world.deliver(1, frame));
        let answers = world.intercept(1, 100);
        let last = Packet::parse(answers.last().unwrap()).unwrap().repr;
        assert_eq!(
            last.extended.aeth.syndrome,
            Aeth::Nak(Nak::InvalidRequest),
            "case {i}"
        );
        assert_eq!(world.sides[1].env.error, Some(ErrorScope::Qp));
        let (memory, before) = (&world.sides[1].env.memory, Mock::new(1).memory);
        assert!(memory[600..] == before[600..], "case {i}");
    }
}

#[test]
fn answers_that_make_no_sense_end_the_requester() {
    use Operation::{AtomicAcknowledge, ReadResponseFirst, ReadResponseMiddle, ReadResponseOnly};
    let answers: [(Operation, usize); 6] = [
        (ReadResponseFirst, 256),
        (ReadResponseOnly, 99),
        (ReadResponseOnly, 101),
        (ReadResponseMiddle, 100),
        (ReadResponseOnly, 0),
        (AtomicAcknowledge, 0),
    ];
    for (operation, len) in answers {
        let mut world = World::new(QpKind::Rc, 256);
        let before = world.sides[0].env.memory.clone();
        world.posts(0, remote(SendOp::Read, vec![memory(0, 100)], 0));
        world.intercept(0, 100);
        let answer = packet(1, operation, 0x12_3456, Extended::default(), &vec![9; len]);
        world.deliver(0, &answer);
        assert_eq!(
            world.results(0),
            [Err(Syndrome::BadResponse)],
            "{operation:?} {len}"
        );
        assert!(world.sides[0].env.memory == before);
    }
}

#[test]
fn nothing_is_received_before_rtr() {
    for state in [QpState::Reset, QpState::Init, QpState::Err] {
        let mut world = World::new(QpKind::Rc, 256);
        let early = QpConfig {
            state,
            ..config(QpKind::Rc, 1, 256)
        };
        let side = &mut world.sides[1];
        side.qp.configure(early, &mut side.env, Duration::ZERO);
        world.posts(0, remote(SendOp::Write, vec![memory(0, 100)], 0));
        world.settle();
        assert_eq!(world.results(0), [Err(Syndrome::TransportRetryExceeded)]);
        let env = &world.sides[1].env;
        assert_eq!(env.count_of(Counter::PacketsDropped), 8, "{state:?}");
        assert_eq!(env.count_of(Counter::PacketsSent), 0);
        assert!(env.memory == Mock::new(1).memory);
    }
}

#[test]
fn responses_out_of_nowhere_are_dropped() {
    // Acknowledgements for what was never sent, by a peer that is far ahead.
    let mut world = World::new(QpKind::Rc, 256);
    world.posts(1, remote(SendOp::Write, vec![memory(0, 100)], 0));
    world.settle();
    let forge: fn(&mut [u8]) = |f| f[42 + 11] += 5;
    let mut world = World::with(Box::new(Forge(Cable::new(), forge)), |side| {
        config(QpKind::Rc, side, 256)
    });
    world.posts(1, remote(SendOp::Write, vec![memory(0, 100)], 0));
    world.settle();
    assert_eq!(world.results(1), [Err(Syndrome::TransportRetryExceeded)]);
    assert!(world.sides[1].env.count_of(Counter::PacketsDropped) > 0);
}

#[test]
fn congestion_is_counted_and_ignored() {
    let forge: fn(&mut [u8]) = |f| f[15] |= 3;
    let mut world = World::with(Box::new(Forge(Cable::new(), forge)), |side| {
        config(QpKind::Rc, side, 256)
    });
    world.posts(0, remote(SendOp::Write, vec![memory(0, 1000)], 0));
    world.settle();
    assert_eq!(world.results(0), [Ok(())]);
    assert_eq!(world.sides[1].env.count_of(Counter::EcnMarked), 4);
}
