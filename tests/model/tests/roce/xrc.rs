//! Extended reliable connections: an initiator, a target without queues, and shared receive queues named in every request.

use connectx_model::link::Cable;
use connectx_model::link::fault::{Faulty, Rates};
use connectx_model::link::rng::Rng;
use connectx_model::roce::codes::{Nak, Syndrome as Aeth};
use connectx_model::roce::env::Syndrome::{
    LocalAccess, RemoteAccess, RemoteInvalidRequest, RnrRetryExceeded, WorkRequestFlushed,
};
use connectx_model::roce::env::*;
use connectx_model::roce::opcode::{Operation, Service};
use connectx_model::roce::packet::{Extended, Packet, Reth, reseal};

use crate::mock::*;

/// The queues of the target's domain, and one that is in another.
const QUEUES: [u32; 2] = [0x31, 0x17_0032];
const FOREIGN: u32 = 0x33;
const TARGET: usize = MEMORY / 2;

fn xrc_config(side: usize) -> QpConfig {
    let kind = [QpKind::XrcInitiator, QpKind::XrcTarget][side];
    config(kind, side, 256)
}

fn connected() -> World {
    with(Box::new(Cable::new()), xrc_config)
}

fn with(link: Box<dyn connectx_model::link::Link>, config: impl Fn(usize) -> QpConfig) -> World {
    let mut world = World::with(link, config);
    for number in QUEUES {
        world.sides[1].env.xrc_queues.entry(number).or_default();
    }
    world
}

fn to(srqn: u32, work: SendWork) -> SendWork {
    SendWork {
        xrc_srqn: srqn,
        ..work
    }
}

/// Every frame that a side sends until the other has answered all.
fn frames(world: &mut World, from: usize) -> Vec<Vec<u8>> {
    world.intercept(from, 64)
}

#[test]
fn every_operation_works_and_every_request_names_the_queue() {
    for (op, len) in [
        (SendOp::Send, 0),
        (SendOp::Send, 1000),
        (SendOp::SendImm(7), 256),
        (SendOp::Write, 700),
        (SendOp::WriteImm(9), 700),
        (SendOp::Read, 700),
        (SendOp::Atomic(AtomicOp::FetchAdd { add: 1 }), 8),
        (SendOp::SendInv(RKEY_NO_RIGHTS), 300),
    ] {
        let mut world = connected();
        let srqn = QUEUES[1];
        let index = world.sides[1].env.post_xrc_recv(srqn, TARGET, 1000);
        // What lies in the other queue is not touched.
        world.sides[1].env.post_xrc_recv(QUEUES[0], 0, 1000);
        let remote_at = if op == SendOp::Read { 0 } else { TARGET };
        world.posts(0, to(srqn, remote(op, vec![memory(8, len)], remote_at)));
        let requests = frames(&mut world, 0);
        for frame in &requests {
            let packet = Packet::parse(frame).unwrap();
            let bth = &packet.repr.bth;
            assert_eq!(bth.opcode.service, Service::Xrc);
            assert_eq!(bth.destination_qpn, 0x51);
            assert_eq!(packet.repr.extended.xrc_srqn, srqn);
            world.deliver(1, frame);
        }
        let answers = frames(&mut world, 1);
        for frame in &answers {
            let bth = Packet::parse(frame).unwrap().repr.bth;
            assert_eq!(bth.opcode.service, Service::Xrc);
            assert!(bth.opcode.operation.is_response());
            world.deliver(0, frame);
        }
        world.settle();
        assert_eq!(world.results(0), [Ok(())], "{op:?}");
        let target = &world.sides[1].env;
        let takes = matches!(
            op,
            SendOp::Send | SendOp::SendImm(_) | SendOp::SendInv(_) | SendOp::WriteImm(_)
        );
        assert_eq!(target.received.len(), usize::from(takes), "{op:?}");
        for completion in &target.received {
            assert_eq!(completion.domain, Domain::Xrc(srqn));
            assert_eq!((completion.index, completion.result), (index, Ok(())));
            assert_eq!(completion.byte_len, len);
        }
        assert_eq!(target.xrc_queues[&srqn].len(), usize::from(!takes));
        assert_eq!(target.xrc_queues[&QUEUES[0]].len(), 1);
        // The peer's accesses are those of the queue's protection domain.
        assert!(target.domains.iter().all(|d| *d == Domain::Xrc(srqn)));
        let len = len as usize;
        match op {
            SendOp::Read => {
                assert!(world.sides[0].env.memory[8..8 + len] == world.sides[1].env.memory[..len])
            }
            SendOp::Atomic(_) => assert_eq!(target.atomics_executed, 1),
            _ => assert!(
                world.sides[0].env.memory[8..8 + len] == target.memory[TARGET..TARGET + len]
            ),
        }
    }
}

#[test]
fn one_connection_serves_all_queues_of_the_domain() {
    let mut world = connected();
    let mut expected = Vec::new();
    for n in 0..20 {
        let srqn = QUEUES[n % 3 % 2];
        let at = TARGET + n * 1024;
        let index = world.sides[1].env.post_xrc_recv(srqn, at, 1024);
        expected.push((Domain::Xrc(srqn), index));
        world.posts(0, to(srqn, send(SendOp::Send, vec![memory(n, 600)])));
    }
    world.settle();
    assert!(world.results(0).iter().all(Result::is_ok));
    let target = &world.sides[1].env;
    let received: Vec<_> = target
        .received
        .iter()
        .map(|c| (c.domain, c.index))
        .collect();
    assert_eq!(received, expected);
    for n in 0..20 {
        let at = TARGET + n * 1024;
        assert!(target.memory[at..at + 600] == world.sides[0].env.memory[n..n + 600]);
    }
}

#[test]
fn a_queue_of_another_domain_is_refused_for_every_operation() {
    for op in [
        SendOp::Send,
        SendOp::Write,
        SendOp::WriteImm(1),
        SendOp::Read,
        SendOp::Atomic(AtomicOp::FetchAdd { add: 1 }),
    ] {
        let mut world = connected();
        let before = world.sides[1].env.memory.clone();
        world.sides[1].env.post_xrc_recv(QUEUES[0], 0, 2000);
        world.posts(0, to(FOREIGN, remote(op, vec![memory(0, 8)], TARGET)));
        world.settle();
        assert_eq!(world.results(0), [Err(RemoteAccess)], "{op:?}");
        let target = &world.sides[1].env;
        assert_eq!(target.error, Some(ErrorScope::Qp));
        assert_eq!(target.events, [QpEvent::AccessViolation]);
        assert_eq!(target.count_of(Counter::RespRemoteAccessErrors), 1);
        // No receive WQE is consumed.
        assert!(target.received.is_empty());
        assert_eq!(target.xrc_queues[&QUEUES[0]].len(), 1);
        assert!(target.memory == before);
    }
}

#[test]
fn a_message_stays_in_its_queue() {
    let mut world = connected();
    let index = world.sides[1].env.post_xrc_recv(QUEUES[0], 0, 2000);
    world.sides[1].env.post_xrc_recv(QUEUES[1], 0, 2000);
    world.posts(0, to(QUEUES[0], send(SendOp::Send, vec![memory(0, 600)])));
    let requests = frames(&mut world, 0);
    assert_eq!(requests.len(), 3);
    world.deliver(1, &requests[0]);
    // The second packet is for the other queue, though that is a good one as well.
    let mut changed = requests[1].clone();
    let xrceth = 14 + 20 + 8 + 12;
    changed[xrceth..xrceth + 4].copy_from_slice(&QUEUES[1].to_be_bytes());
    assert!(reseal(&mut changed));
    world.deliver(1, &changed);
    let answers = frames(&mut world, 1);
    let last = Packet::parse(answers.last().unwrap()).unwrap();
    assert_eq!(
        last.repr.extended.aeth.syndrome,
        Aeth::Nak(Nak::InvalidRequest)
    );
    let target = &world.sides[1].env;
    assert_eq!(target.received.len(), 1);
    let completion = &target.received[0];
    assert_eq!(completion.domain, Domain::Xrc(QUEUES[0]));
    assert_eq!(
        (completion.index, completion.result),
        (index, Err(RemoteInvalidRequest))
    );
    assert_eq!(target.xrc_queues[&QUEUES[1]].len(), 1);
}

#[test]
fn an_empty_queue_is_waited_for_and_the_others_with_it() {
    let mut world = connected();
    world.sides[1].env.post_xrc_recv(QUEUES[1], TARGET, 64);
    world.posts(0, to(QUEUES[0], send(SendOp::Send, vec![memory(0, 64)])));
    world.posts(0, to(QUEUES[1], send(SendOp::Send, vec![memory(64, 64)])));
    let limit = world.now + std::time::Duration::from_millis(50);
    world.settle_until(limit);
    // An ordered connection: nothing overtakes.
    assert!(world.sides[1].env.received.is_empty());
    assert!(world.sides[1].env.count_of(Counter::RnrNakSent) > 1);
    world.sides[1].env.post_xrc_recv(QUEUES[0], TARGET + 64, 64);
    world.settle();
    assert_eq!(world.results(0), [Ok(()), Ok(())]);
    let domains: Vec<_> = world.sides[1]
        .env
        .received
        .iter()
        .map(|c| c.domain)
        .collect();
    assert_eq!(domains, QUEUES.map(Domain::Xrc));
}

#[test]
fn rnr_retries_end() {
    let mut world = with(Box::new(Cable::new()), |side| QpConfig {
        rnr_retry: 2,
        ..xrc_config(side)
    });
    world.posts(0, to(QUEUES[0], send(SendOp::Send, vec![memory(0, 64)])));
    world.posts(0, to(QUEUES[0], send(SendOp::Send, vec![memory(0, 64)])));
    world.settle();
    assert_eq!(
        world.results(0),
        [Err(RnrRetryExceeded), Err(WorkRequestFlushed)]
    );
    assert_eq!(world.sides[1].env.count_of(Counter::RnrNakSent), 3);
}

#[test]
fn keys_are_checked_for_the_queue() {
    let mut world = connected();
    let mut work = remote(SendOp::Write, vec![memory(0, 64)], TARGET);
    work.rkey = RKEY_NO_RIGHTS;
    world.posts(0, to(QUEUES[0], work));
    world.settle();
    assert_eq!(world.results(0), [Err(RemoteAccess)]);
    assert_eq!(world.sides[1].env.domains, [Domain::Xrc(QUEUES[0])]);
}

#[test]
fn a_target_in_error_gives_back_what_it_holds() {
    let mut world = connected();
    let index = world.sides[1].env.post_xrc_recv(QUEUES[0], 0, 2000);
    world.posts(0, to(QUEUES[0], send(SendOp::Send, vec![memory(0, 600)])));
    let requests = frames(&mut world, 0);
    world.deliver(1, &requests[0]);
    let failed = QpConfig {
        state: QpState::Err,
        ..*world.sides[1].qp.config()
    };
    let now = world.now;
    let Side { qp, env } = &mut world.sides[1];
    qp.configure(failed, env, now);
    let completion = &env.received[0];
    assert_eq!(completion.domain, Domain::Xrc(QUEUES[0]));
    assert_eq!(
        (completion.index, completion.result),
        (index, Err(WorkRequestFlushed))
    );
    // A read that fails because the memory is gone is reported to the initiator.
    let mut world = connected();
    let read = remote(SendOp::Read, vec![memory(0, 600)], 0);
    world.posts(0, to(QUEUES[0], read));
    let requests = frames(&mut world, 0);
    world.deliver(1, &requests[0]);
    world.sides[1].env.keys.remove(&RKEY);
    world.settle();
    assert_eq!(world.results(0), [Err(RemoteAccess)]);
    let Side { env, .. } = &world.sides[1];
    assert_eq!(env.events, [QpEvent::AccessViolation]);
    assert!(env.received.iter().all(|c| c.result == Err(LocalAccess)));
}

#[test]
fn either_end_ignores_what_is_for_the_other() {
    let mut world = connected();
    world.sides[1].env.post_xrc_recv(QUEUES[0], TARGET, 64);
    world.posts(0, to(QUEUES[0], send(SendOp::Send, vec![memory(0, 64)])));
    let request = frames(&mut world, 0).remove(0);
    let xrc = |from, operation, psn| {
        let extended = Extended {
            xrc_srqn: QUEUES[0],
            ..Extended::default()
        };
        packet_of(Service::Xrc, from, operation, psn, extended, &[])
    };
    world.deliver(0, &xrc(1, Operation::SendOnly, 0xff_fff0));
    assert_eq!(world.sides[0].env.count_of(Counter::PacketsDropped), 1);
    assert!(frames(&mut world, 0).is_empty());
    world.deliver(1, &xrc(0, Operation::Acknowledge, 0x12_3456));
    assert_eq!(world.sides[1].env.count_of(Counter::PacketsDropped), 1);
    // An RC request is none of its either.
    let plain = packet(0, Operation::SendOnly, 0x12_3456, Default::default(), &[]);
    world.deliver(1, &plain);
    assert_eq!(world.sides[1].env.count_of(Counter::PacketsDropped), 2);

    world.deliver(1, &request);
    world.settle();
    assert_eq!(world.results(0), [Ok(())]);
}

/// Random work to random queues over a link that loses, repeats and delays: everything arrives once and in its place.
fn storm(seed: u64, rates: Rates) -> World {
    let link = Faulty::new(Cable::new(), seed, rates);
    let mut rng = Rng::new(!seed);
    let mut world = with(Box::new(link), |side| QpConfig {
        send_psn: [0xff_ffe0, 0xff_fff9][side],
        recv_psn: [0xff_fff9, 0xff_ffe0][side],
        ..xrc_config(side)
    });
    let mut expected = Vec::new();
    let mut receives = Vec::new();
    for n in 0..60 {
        let srqn = QUEUES[rng.below(2) as usize];
        let len = rng.below(1500);
        let (from, at) = (rng.below(1 << 16) as usize, n * 2048);
        let data = vec![memory(from, len)];
        let work = match rng.below(4) {
            0 => {
                let index = world.sides[1].env.post_xrc_recv(srqn, TARGET + at, len);
                receives.push((Domain::Xrc(srqn), index));
                expected.push((0, from, TARGET + at, len));
                send(SendOp::Send, data)
            }
            1 => {
                let index = world.sides[1].env.post_xrc_recv(srqn, 0, 0);
                receives.push((Domain::Xrc(srqn), index));
                expected.push((0, from, TARGET + at, len));
                remote(SendOp::WriteImm(len), data, TARGET + at)
            }
            2 => {
                expected.push((0, from, TARGET + at, len));
                remote(SendOp::Write, data, TARGET + at)
            }
            _ => {
                expected.push((1, from, TARGET + at, len));
                remote(SendOp::Read, vec![memory(TARGET + at, len)], from)
            }
        };
        world.posts(0, to(srqn, work));
    }
    world.settle();
    let results = world.results(0);
    assert!(
        results.len() == 60 && results.iter().all(Result::is_ok),
        "seed {seed:#x}: {results:?}"
    );
    let received: Vec<_> = world.sides[1]
        .env
        .received
        .iter()
        .map(|c| (c.domain, c.index))
        .collect();
    assert_eq!(received, receives, "seed {seed:#x}");
    for (source, from, at, len) in expected {
        let len = len as usize;
        let from = &world.sides[source].env.memory[from..from + len];
        let at = &world.sides[1 - source].env.memory[at..at + len];
        assert!(from == at, "seed {seed:#x}: data differ");
    }
    world
}

#[test]
fn storms() {
    let mut again = 0;
    for seed in 0..24 {
        let rates = Rates {
            loss: 50,
            duplicate: 50,
            reorder: 50,
            delay: 50,
            corrupt: 20,
            max_delay: std::time::Duration::from_micros(300),
            ..Rates::default()
        };
        let world = storm(seed, rates);
        again += world.sides[0].env.count_of(Counter::Retransmissions);
    }
    assert!(again > 100, "{again} packets sent again");
}

#[test]
fn a_repeated_read_is_answered_from_the_same_queue() {
    let mut world = connected();
    world.posts(
        0,
        to(
            QUEUES[1],
            remote(SendOp::Read, vec![memory(TARGET, 600)], 0),
        ),
    );
    let request = frames(&mut world, 0).remove(0);
    world.deliver(1, &request);
    let lost = frames(&mut world, 1);
    assert_eq!(lost.len(), 3);
    world.settle();
    assert_eq!(world.results(0), [Ok(())]);
    let target = &world.sides[1].env;
    assert_eq!(target.count_of(Counter::DuplicateRequest), 1);
    assert!(target.domains.iter().all(|d| *d == Domain::Xrc(QUEUES[1])));
    let reth = Packet::parse(&request).unwrap().repr.extended.reth;
    assert_eq!(
        reth,
        Reth {
            addr: BASE,
            rkey: RKEY,
            len: 600
        }
    );
}
