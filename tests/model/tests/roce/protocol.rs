//! The rules of the wire, packet by packet: what is asked, what is answered, what is ignored.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use connectx_model::link::fault::{Action, Faulty, Rates};
use connectx_model::link::trace::Tracer;
use connectx_model::link::{Cable, Link};
use connectx_model::roce::codes::{Nak, Syndrome as Aeth};
use connectx_model::roce::env::*;
use connectx_model::roce::opcode::{Opcode, Operation, Service};
use connectx_model::roce::packet::{Extended, Packet, Repr, Reth};

use crate::mock::*;

type Log = Arc<Mutex<Vec<(usize, Repr)>>>;

/// A link that keeps what was sent.
fn logged(link: impl Link + 'static) -> (Box<dyn Link>, Log) {
    let log = Log::default();
    let keep = log.clone();
    let link = Tracer::new(link, move |_, from, frame: &[u8]| {
        let packet = Packet::parse(frame).unwrap();
        keep.lock().unwrap().push((from, packet.repr));
    });
    (Box::new(link), log)
}

fn operations(log: &Log, side: usize) -> Vec<Operation> {
    let log = log.lock().unwrap();
    log.iter()
        .filter(|(from, _)| *from == side)
        .map(|(_, repr)| repr.bth.opcode.operation)
        .collect()
}

fn operation_of(frame: &[u8]) -> Option<Operation> {
    Packet::parse(frame)
        .ok()
        .map(|p| p.repr.bth.opcode.operation)
}

#[test]
fn a_write_looks_as_specified() {
    let (link, log) = logged(Cable::new());
    let mut world = World::with(link, |side| config(QpKind::Rc, side, 1024));
    world.sides[1].env.post_recv(0, 0);
    let mut work = remote(SendOp::WriteImm(5), vec![memory(0, 2500)], 8);
    work.solicited = true;
    world.posts(0, work);
    world.settle();
    let log = log.lock().unwrap();
    let from = |side| log.iter().filter(move |l| l.0 == side).collect::<Vec<_>>();
    let (requests, answers) = (from(0), from(1));
    let psn = 0x12_3456;
    for (i, (op, solicited, ack)) in [
        (Operation::WriteFirst, false, false),
        (Operation::WriteMiddle, false, false),
        (Operation::WriteLastImm, true, true),
    ]
    .into_iter()
    .enumerate()
    {
        let bth = &requests[i].1.bth;
        assert_eq!(bth.opcode, Opcode::new(Service::Rc, op));
        assert_eq!((bth.solicited, bth.ack_request), (solicited, ack));
        assert_eq!(bth.psn.get(), psn + i as u32);
        assert_eq!(bth.destination_qpn, 0x51);
        assert_eq!(bth.pkey, 0xffff);
    }
    let reth = requests[0].1.extended.reth;
    assert_eq!((reth.addr, reth.rkey, reth.len), (BASE + 8, RKEY, 2500));
    assert_eq!(requests[2].1.extended.imm, 5);
    assert_eq!((requests.len(), answers.len()), (3, 1));
    let ack = &answers[0].1;
    assert_eq!(ack.bth.psn.get(), psn + 2);
    assert_eq!(ack.bth.destination_qpn, 0x50);
    assert_eq!(
        (ack.extended.aeth.syndrome, ack.extended.aeth.msn),
        (Aeth::Ack(31), 1)
    );
}

#[test]
fn a_lost_packet_gets_one_nak_and_goes_back() {
    let (link, log) = logged({
        let mut link = Faulty::new(Cable::new(), 1, Rates::default());
        link.rule(3, 1, Action::Drop, |from, _| from == 0);
        link
    });
    let mut world = World::with(link, |side| config(QpKind::Rc, side, 256));
    world.posts(0, remote(SendOp::Write, vec![memory(0, 2560)], 0x1000));
    world.settle();
    assert_eq!(world.results(0), [Ok(())]);
    assert_eq!(operations(&log, 1), [Operation::Acknowledge; 2]);
    let log = log.lock().unwrap();
    let nak = log.iter().find(|(from, _)| *from == 1).unwrap().1;
    assert_eq!(nak.extended.aeth.syndrome, Aeth::Nak(Nak::Sequence));
    assert_eq!(nak.bth.psn.get(), 0x12_3456 + 3);
    // Ten packets, and seven of them again.
    assert_eq!(log.iter().filter(|(from, _)| *from == 0).count(), 17);
    assert_eq!(world.sides[0].env.count_of(Counter::Retransmissions), 7);
    assert_eq!(world.sides[0].env.count_of(Counter::PacketSeqErr), 1);
    assert_eq!(world.sides[0].env.count_of(Counter::LocalAckTimeoutErr), 0);
    assert_eq!(world.sides[1].env.count_of(Counter::OutOfSequence), 6);
}

#[test]
fn every_gap_gets_its_nak() {
    let mut link = Faulty::new(Cable::new(), 1, Rates::default());
    for lost in [3, 9] {
        link.rule(lost, 1, Action::Drop, |from, _| from == 0);
    }
    let mut world = World::with(Box::new(link), |side| config(QpKind::Rc, side, 256));
    world.posts(0, remote(SendOp::Write, vec![memory(0, 2000)], 0x1000));
    world.settle();
    assert_eq!(world.results(0), [Ok(())]);
    assert_eq!(world.sides[0].env.count_of(Counter::PacketSeqErr), 2);
    assert_eq!(world.sides[0].env.count_of(Counter::LocalAckTimeoutErr), 0);
}

#[test]
fn the_window_is_finite() {
    let mut link = Faulty::new(Cable::new(), 1, Rates::default());
    link.rule(0, u32::MAX, Action::Drop, |_, _| true);
    let mut world = World::with(Box::new(link), |side| config(QpKind::Rc, side, 256));
    world.posts(0, remote(SendOp::Write, vec![memory(0, MEMORY as u32)], 0));
    world.settle_until(Duration::from_micros(1));
    assert_eq!(world.sides[0].env.count_of(Counter::PacketsSent), 1024);
}

/// An answer that comes after going back spares what it answers.
#[test]
fn late_acknowledgements_shorten_the_repetition() {
    let mut world = World::new(QpKind::Rc, 256);
    world.posts(0, remote(SendOp::Write, vec![memory(0, 2560)], 0x1000));
    assert_eq!(world.intercept(0, 100).len(), 10);
    world.now = world.sides[0].qp.next_deadline().unwrap();
    let (side, now) = (&mut world.sides[0], world.now);
    side.qp.on_timer(&mut side.env, now);
    assert_eq!(world.intercept(0, 2).len(), 2);
    let ack = packet(
        1,
        Operation::Acknowledge,
        0x12_3456 + 4,
        Extended::default(),
        &[],
    );
    world.deliver(0, &ack);
    let next = world.intercept(0, 100);
    let psn = |frame: &Vec<u8>| Packet::parse(frame).unwrap().repr.bth.psn.get();
    assert_eq!(
        next.iter().map(psn).collect::<Vec<_>>(),
        (0x12_345b..0x12_3460).collect::<Vec<_>>()
    );
}

/// A duplicate that finds a receive WQE ends the waiting, and what was dropped meanwhile goes out at once.
#[test]
fn readiness_shown_by_a_duplicate() {
    let mut world = World::with(Box::new(Cable::new()), |side| QpConfig {
        min_rnr_timer: 0,
        ..config(QpKind::Rc, side, 256)
    });
    for _ in 0..3 {
        world.posts(0, send(SendOp::Send, vec![memory(0, 100)]));
    }
    let frames = world.intercept(0, 100);
    frames.iter().for_each(|frame| world.deliver(1, frame));
    let naks = world.intercept(1, 100);
    assert_eq!(naks.len(), 1);
    world.deliver(0, &naks[0]);
    assert_eq!(
        world.sides[0].qp.next_deadline(),
        Some(Duration::from_micros(655_360))
    );
    for _ in 0..3 {
        world.sides[1].env.post_recv(0, 100);
    }
    world.deliver(1, &frames[0]);
    world.settle();
    assert_eq!(world.results(0), [Ok(()); 3]);
    assert!(world.now < Duration::from_millis(1));
}

#[test]
fn a_lost_last_packet_waits_for_the_timer() {
    let mut link = Faulty::new(Cable::new(), 1, Rates::default());
    link.rule(9, 1, Action::Drop, |from, _| from == 0);
    let mut world = World::with(Box::new(link), |side| config(QpKind::Rc, side, 256));
    world.posts(0, remote(SendOp::Write, vec![memory(0, 2560)], 0x1000));
    world.settle();
    assert_eq!(world.results(0), [Ok(())]);
    // 4.096 µs · 2^8, from the last progress.
    assert!(world.now >= Duration::from_nanos(4096 << 8));
    assert_eq!(world.sides[0].env.count_of(Counter::LocalAckTimeoutErr), 1);
    let (here, there) = (&world.sides[0].env, &world.sides[1].env);
    assert!(here.memory[..2560] == there.memory[0x1000..0x1000 + 2560]);
}

#[test]
fn a_lost_acknowledgement_is_repeated_for_the_duplicate() {
    let mut link = Faulty::new(Cable::new(), 1, Rates::default());
    link.rule(0, 1, Action::Drop, |from, _| from == 1);
    let mut world = World::with(Box::new(link), |side| config(QpKind::Rc, side, 256));
    world.sides[1].env.post_recv(0, 100);
    world.sides[1].env.post_recv(0, 100);
    world.posts(0, send(SendOp::Send, vec![memory(0, 100)]));
    world.settle();
    assert_eq!(world.results(0), [Ok(())]);
    assert_eq!(world.sides[1].env.received.len(), 1, "executed once");
    assert_eq!(world.sides[1].env.count_of(Counter::DuplicateRequest), 1);
}

#[test]
fn a_broken_read_is_asked_for_again_from_there() {
    let (link, log) = logged({
        let mut link = Faulty::new(Cable::new(), 1, Rates::default());
        link.rule(4, 1, Action::Drop, |from, _| from == 1);
        link
    });
    let mut world = World::with(link, |side| config(QpKind::Rc, side, 256));
    world.posts(0, remote(SendOp::Read, vec![memory(0, 2500)], 0x1000));
    world.settle();
    assert_eq!(world.results(0), [Ok(())]);
    let log = log.lock().unwrap();
    let requests: Vec<_> = log.iter().filter(|(from, _)| *from == 0).collect();
    assert_eq!(requests.len(), 2);
    let (bth, reth) = (requests[1].1.bth, requests[1].1.extended.reth);
    assert_eq!(bth.psn.get(), 0x12_3456 + 4);
    assert_eq!((reth.addr, reth.len), (BASE + 0x1000 + 1024, 2500 - 1024));
    assert_eq!(world.sides[0].env.count_of(Counter::ImpliedNakSeqErr), 1);
    assert_eq!(world.sides[1].env.count_of(Counter::DuplicateRequest), 1);
    let (here, there) = (&world.sides[0].env, &world.sides[1].env);
    assert!(here.memory[..2500] == there.memory[0x1000..0x1000 + 2500]);
}

#[test]
fn duplicated_read_requests_are_answered_once_while_underway() {
    let (link, log) = logged({
        let mut link = Faulty::new(Cable::new(), 1, Rates::default());
        link.rule(0, u32::MAX, Action::Duplicate, |from, _| from == 0);
        link
    });
    let mut world = World::with(link, |side| config(QpKind::Rc, side, 256));
    world.posts(0, remote(SendOp::Read, vec![memory(0, 2500)], 0x1000));
    world.settle();
    assert_eq!(world.results(0), [Ok(())]);
    assert_eq!(operations(&log, 1).len(), 10);
    // The message counts as done with its last packet.
    let log = log.lock().unwrap();
    let msn = |wanted| {
        let found = log.iter().find(|l| l.1.bth.opcode.operation == wanted);
        found.unwrap().1.extended.aeth.msn
    };
    assert_eq!(msn(Operation::ReadResponseFirst), 0);
    assert_eq!(msn(Operation::ReadResponseLast), 1);
}

#[test]
fn a_repetition_of_something_else_is_not_answered() {
    let mut world = World::new(QpKind::Rc, 256);
    let read = |addr: u64, rkey: u32, len: u32| {
        let reth = Reth { addr, rkey, len };
        let extended = Extended {
            reth,
            ..Extended::default()
        };
        packet(0, Operation::ReadRequest, 0x12_3456, extended, &[])
    };
    world.deliver(1, &read(BASE, RKEY, 600));
    assert_eq!(world.intercept(1, 100).len(), 3);
    for (addr, rkey, len) in [
        (BASE + 1, RKEY, 600),
        (BASE, RKEY + 1, 600),
        (BASE, RKEY, 601),
    ] {
        world.deliver(1, &read(addr, rkey, len));
        assert_eq!(world.intercept(1, 100).len(), 0);
    }
    world.deliver(1, &read(BASE, RKEY, 300));
    assert_eq!(world.intercept(1, 100).len(), 2);
}

#[test]
fn receiver_not_ready_is_waited_for() {
    let (link, log) = logged(Cable::new());
    let mut world = World::with(link, |side| QpConfig {
        rnr_retry: 3,
        min_rnr_timer: 14,
        ..config(QpKind::Rc, side, 256)
    });
    world.posts(0, send(SendOp::Send, vec![memory(0, 1000)]));
    let rnr = Duration::from_micros(1280);
    world.settle_until(rnr / 2);
    assert_eq!(world.results(0), []);
    world.settle_until(rnr * 2);
    assert_eq!(world.sides[1].env.count_of(Counter::RnrNakSent), 2);
    world.sides[1].env.post_recv(0, 1000);
    world.settle();
    assert_eq!(world.results(0), [Ok(())]);
    assert_eq!(world.sides[1].env.count_of(Counter::RnrNakSent), 2);
    assert!(world.now >= 2 * rnr && world.now < 3 * rnr);
    let log = log.lock().unwrap();
    let first = log.iter().find(|(from, _)| *from == 1).unwrap().1;
    assert_eq!(first.extended.aeth.syndrome, Aeth::Rnr(14));
    assert_eq!(first.bth.psn.get(), 0x12_3456);
}

#[test]
fn rnr_in_the_last_packet_of_a_write_with_immediate() {
    let mut world = World::new(QpKind::Rc, 256);
    world.posts(
        0,
        remote(SendOp::WriteImm(1), vec![memory(0, 1000)], 0x1000),
    );
    world.settle_until(Duration::from_micros(5));
    assert_eq!(world.results(0), []);
    world.sides[1].env.post_recv(0, 0);
    world.settle();
    assert_eq!(world.results(0), [Ok(())]);
    // Only the last packet was sent again.
    assert_eq!(
        world.sides[0].env.count_of(Counter::Retransmissions),
        world.sides[1].env.count_of(Counter::RnrNakSent)
    );
}

#[test]
fn credits_hold_sends_back() {
    let world_with = |credits: bool| {
        let mut world = World::with(Box::new(Cable::new()), |side| QpConfig {
            advertise_credits: true,
            ..config(QpKind::Rc, side, 256)
        });
        world.sides[1].env.credits = credits;
        world.sides[1].env.post_recv(0, 64);
        world.posts(0, send(SendOp::Send, vec![memory(0, 64)]));
        world.settle();
        // Now the requester has no credits: no receive WQE is left.
        for _ in 0..10 {
            world.posts(0, send(SendOp::Send, vec![memory(0, 64)]));
        }
        world.settle_until(world.now + Duration::from_micros(1));
        world
    };
    // One message asks; without credits all ten are sent and dropped.
    let world = world_with(true);
    assert_eq!(world.sides[1].env.count_of(Counter::PacketsReceived), 2);
    let world = world_with(false);
    assert_eq!(world.sides[1].env.count_of(Counter::PacketsReceived), 11);
    let mut world = world_with(true);
    for _ in 0..10 {
        world.sides[1].env.post_recv(0, 64);
    }
    world.settle();
    assert_eq!(world.results(0), [Ok(()); 11]);
}

#[test]
fn duplicated_atomics_are_executed_once() {
    for duplicate_requests in [true, false] {
        let mut link = Faulty::new(Cable::new(), 1, Rates::default());
        let side = usize::from(!duplicate_requests);
        link.rule(0, u32::MAX, Action::Duplicate, move |from, _| from == side);
        let mut world = World::with(Box::new(link), |side| config(QpKind::Rc, side, 256));
        world.sides[1].env.memory[0..8].fill(0);
        for i in 0..50 {
            let op = SendOp::Atomic(AtomicOp::FetchAdd { add: 1 });
            world.posts(0, remote(op, vec![memory(i * 8, 8)], 0));
        }
        world.settle();
        assert_eq!(world.results(0), [Ok(()); 50]);
        assert_eq!(world.sides[1].env.atomics_executed, 50);
        for i in 0..50 {
            let got = &world.sides[0].env.memory[i * 8..i * 8 + 8];
            assert_eq!(got, (i as u64).to_le_bytes());
        }
    }
}

#[test]
fn a_lost_atomic_answer_is_replayed_from_memory() {
    let mut link = Faulty::new(Cable::new(), 1, Rates::default());
    link.rule(0, 1, Action::Drop, |from, _| from == 1);
    let mut world = World::with(Box::new(link), |side| config(QpKind::Rc, side, 256));
    world.sides[1].env.memory[0..8].copy_from_slice(&5u64.to_le_bytes());
    let op = SendOp::Atomic(AtomicOp::FetchAdd { add: 1 });
    world.posts(0, remote(op, vec![memory(0, 8)], 0));
    world.settle();
    assert_eq!(world.sides[0].env.memory[0..8], 5u64.to_le_bytes());
    assert_eq!(world.sides[1].env.memory[0..8], 6u64.to_le_bytes());
}

#[test]
fn outstanding_reads_stay_within_the_limit() {
    let (link, log) = logged(Cable::new());
    let mut world = World::with(link, |side| QpConfig {
        max_rd_atomic: 2,
        max_dest_rd_atomic: 2,
        ..config(QpKind::Rc, side, 256)
    });
    for _ in 0..9 {
        world.posts(0, remote(SendOp::Read, vec![memory(0, 1000)], 0x1000));
    }
    world.settle();
    assert_eq!(world.results(0), [Ok(()); 9]);
    let mut outstanding = 0;
    for (_, repr) in log.lock().unwrap().iter() {
        match repr.bth.opcode.operation {
            Operation::ReadRequest => outstanding += 1,
            op if op.ends() => outstanding -= 1,
            _ => {}
        }
        assert!((0..=2).contains(&outstanding));
    }
}

#[test]
fn at_most_half_of_the_psn_space_is_in_use() {
    let mut link = Faulty::new(Cable::new(), 1, Rates::default());
    link.rule(0, u32::MAX, Action::Drop, |_, _| true);
    let mut world = World::with(Box::new(link), |side| config(QpKind::Rc, side, 256));
    // Four million packets of response each: no more than two requests may be out.
    for _ in 0..4 {
        world.posts(0, remote(SendOp::Read, vec![memory(0, 1 << 30)], 0));
    }
    world.settle_until(Duration::from_micros(1));
    assert_eq!(world.sides[0].env.count_of(Counter::PacketsSent), 2);
}

#[test]
fn too_many_reads_are_an_invalid_request() {
    let mut world = World::with(Box::new(Cable::new()), |side| QpConfig {
        max_rd_atomic: 4,
        max_dest_rd_atomic: 2,
        ..config(QpKind::Rc, side, 256)
    });
    for _ in 0..4 {
        world.posts(0, remote(SendOp::Read, vec![memory(0, 1000)], 0x1000));
    }
    world.settle();
    use Syndrome::*;
    assert_eq!(
        world.results(0),
        [
            Ok(()),
            Ok(()),
            Err(RemoteInvalidRequest),
            Err(WorkRequestFlushed)
        ]
    );
}

#[test]
fn first_packet_in_rtr_establishes() {
    let mut world = World::with(Box::new(Cable::new()), |side| config(QpKind::Rc, side, 256));
    let rtr = QpConfig {
        state: QpState::Rtr,
        ..config(QpKind::Rc, 1, 256)
    };
    let side = &mut world.sides[1];
    side.qp.configure(rtr, &mut side.env, Duration::ZERO);
    side.env.post_recv(0, 100);
    side.env.post_recv(0, 100);
    world.posts(0, send(SendOp::Send, vec![memory(0, 100)]));
    world.posts(0, send(SendOp::Send, vec![memory(0, 100)]));
    world.settle();
    assert_eq!(world.results(0), [Ok(()); 2]);
    assert_eq!(
        world.sides[1].env.events,
        [QpEvent::CommunicationEstablished]
    );
}

#[test]
fn drained_queue_is_reported_once() {
    let mut world = World::new(QpKind::Rc, 256);
    world.posts(0, remote(SendOp::Write, vec![memory(0, 1000)], 0));
    world.settle();
    let sqd = QpConfig {
        state: QpState::Sqd,
        ..config(QpKind::Rc, 0, 256)
    };
    let side = &mut world.sides[0];
    side.qp.configure(sqd, &mut side.env, Duration::ZERO);
    world.posts(0, remote(SendOp::Write, vec![memory(0, 1000)], 0));
    world.settle();
    assert_eq!(world.results(0).len(), 1, "nothing new begins in SQD");
    assert_eq!(world.sides[0].env.events, [QpEvent::SendQueueDrained]);
    let rts = QpConfig {
        state: QpState::Rts,
        ..sqd
    };
    let (side, now) = (&mut world.sides[0], world.now);
    side.qp.configure(rts, &mut side.env, now);
    world.settle();
    assert_eq!(world.results(0), [Ok(()); 2]);
}

#[test]
fn uc_drops_messages_with_a_hole() {
    for lost in 0..4 {
        let mut link = Faulty::new(Cable::new(), 1, Rates::default());
        link.rule(4 + lost, 1, Action::Drop, |from, _| from == 0);
        let mut world = World::with(Box::new(link), |side| config(QpKind::Uc, side, 256));
        for i in 0..3 {
            world.sides[1].env.post_recv(0x1000 * (i + 1), 1000);
            world.posts(0, send(SendOp::SendImm(i as u32), vec![memory(0, 1000)]));
        }
        world.settle();
        assert_eq!(world.results(0), [Ok(()); 3], "UC does not detect it");
        let env = &world.sides[1].env;
        let got: Vec<_> = env.received.iter().map(|c| (c.index, c.op)).collect();
        // The receive WQE of the lost message serves the next one.
        assert_eq!(
            got,
            [(0, RecvOp::SendImm(0)), (1, RecvOp::SendImm(2))],
            "{lost}"
        );
        assert!(env.memory[0x2000..0x2000 + 1000] == world.sides[0].env.memory[..1000]);
    }
}

#[test]
fn uc_ignores_what_it_may_not_do() {
    let mut world = World::with(Box::new(Cable::new()), |side| QpConfig {
        access: RemoteAccess::default(),
        ..config(QpKind::Uc, side, 256)
    });
    let before = world.sides[1].env.memory.clone();
    world.posts(0, remote(SendOp::Write, vec![memory(64, 1000)], 0));
    world.settle();
    assert_eq!(world.results(0), [Ok(())]);
    assert!(world.sides[1].env.memory == before);
    assert_eq!(world.sides[1].env.error, None);
    // No receive WQE: nothing happens either.
    world.posts(0, send(SendOp::Send, vec![memory(64, 1000)]));
    world.settle();
    assert_eq!(world.sides[1].env.count_of(Counter::OutOfBuffer), 1);
    assert_eq!(world.sides[1].env.error, None);
}

#[test]
fn frames_are_recognised_on_the_wire() {
    let mut link = Faulty::new(Cable::new(), 1, Rates::default());
    link.rule(0, 1, Action::Drop, |_, frame| {
        operation_of(frame) == Some(Operation::ReadRequest)
    });
    let mut world = World::with(Box::new(link), |side| config(QpKind::Rc, side, 256));
    world.posts(0, remote(SendOp::Read, vec![memory(0, 10)], 0));
    world.settle();
    assert_eq!(world.results(0), [Ok(())]);
    assert_eq!(world.sides[0].env.count_of(Counter::LocalAckTimeoutErr), 1);
}
