//! Errors that end a QP, and their report to both sides.

use std::time::Duration;

use connectx_model::link::Cable;
use connectx_model::link::fault::{Action, Faulty, Rates};
use connectx_model::roce::env::Syndrome::{
    LocalLength, LocalProtection, LocalQpOperation, RemoteInvalidRequest, RemoteOperation,
    RnrRetryExceeded, TransportRetryExceeded, WorkRequestFlushed,
};
use connectx_model::roce::env::*;

use crate::mock::*;

/// A failing operation between two good ones, and one more behind.
fn around(work: SendWork) -> World {
    around_with(work, |side| config(QpKind::Rc, side, 256))
}

fn around_with(work: SendWork, config: impl Fn(usize) -> QpConfig) -> World {
    let mut world = World::with(Box::new(Cable::new()), config);
    world.sides[1].env.post_recv(0, 2000);
    world.sides[1].env.post_recv(0, 2000);
    world.posts(0, send(SendOp::Send, vec![memory(0, 1000)]));
    world.posts(0, work);
    world.posts(0, send(SendOp::Send, vec![memory(0, 1000)]));
    world.settle();
    world
}

/// The first works, the second fails so, and the rest is flushed or never handed out.
fn expect_failure(world: &World, syndrome: Syndrome) {
    let results = world.results(0);
    assert_eq!(results[..2], [Ok(()), Err(syndrome)]);
    assert!(results[2..].iter().all(|r| *r == Err(WorkRequestFlushed)));
    for side in &world.sides[..1] {
        assert_eq!(side.env.error, Some(ErrorScope::Qp));
        assert_eq!(side.qp.config().state, QpState::Err);
        assert!(side.env.out_sends.is_empty() && side.env.out_recvs.is_empty());
    }
}

fn expect_remote_failure(world: &World, syndrome: Syndrome, event: QpEvent) {
    expect_failure(world, syndrome);
    assert_eq!(world.sides[1].env.error, Some(ErrorScope::Qp));
    assert_eq!(world.sides[1].env.events, [event]);
    assert!(world.sides[1].env.out_recvs.is_empty());
}

#[test]
fn rkey_violations() {
    let target = 0x1000;
    let ops = [
        SendOp::Write,
        SendOp::WriteImm(1),
        SendOp::Read,
        SendOp::Atomic(AtomicOp::FetchAdd { add: 1 }),
        SendOp::Atomic(AtomicOp::CompareSwap {
            compare: 0,
            swap: 1,
        }),
    ];
    for op in ops {
        let len = if matches!(op, SendOp::Atomic(_)) {
            8
        } else {
            1000
        };
        let good = remote(op, vec![memory(0x4000, len)], target);
        let bad = [
            (
                "key",
                SendWork {
                    rkey: 0x999,
                    ..good.clone()
                },
            ),
            (
                "rights",
                SendWork {
                    rkey: RKEY_NO_RIGHTS,
                    ..good.clone()
                },
            ),
            (
                "below",
                SendWork {
                    remote_addr: BASE - 8,
                    ..good.clone()
                },
            ),
            (
                "beyond",
                SendWork {
                    remote_addr: BASE + MEMORY as u64 - u64::from(len) + 8,
                    ..good.clone()
                },
            ),
            (
                "wrap",
                SendWork {
                    remote_addr: u64::MAX - 7,
                    ..good.clone()
                },
            ),
        ];
        for (what, work) in bad {
            let before = Mock::new(1).memory;
            let world = around(work);
            expect_remote_failure(&world, Syndrome::RemoteAccess, QpEvent::AccessViolation);
            let memory = &world.sides[1].env.memory;
            assert!(memory[2000..] == before[2000..], "{op:?} {what} wrote");
            assert_eq!(
                world.sides[1].env.count_of(Counter::RespRemoteAccessErrors),
                1
            );
            assert_eq!(
                world.sides[0].env.count_of(Counter::ReqRemoteAccessErrors),
                1
            );
        }
    }
}

#[test]
fn operations_that_the_qp_does_not_let_in() {
    for op in [
        SendOp::Write,
        SendOp::Read,
        SendOp::Atomic(AtomicOp::FetchAdd { add: 1 }),
    ] {
        let work = remote(op, vec![memory(0x4000, 8)], 0x1000);
        let world = around_with(work, |side| QpConfig {
            access: RemoteAccess::default(),
            ..config(QpKind::Rc, side, 256)
        });
        expect_remote_failure(&world, RemoteInvalidRequest, QpEvent::InvalidRequest);
    }
}

#[test]
fn misaligned_atomics_are_invalid() {
    let op = SendOp::Atomic(AtomicOp::FetchAdd { add: 1 });
    let world = around(remote(op, vec![memory(0x4000, 8)], 0x1004));
    expect_remote_failure(&world, RemoteInvalidRequest, QpEvent::InvalidRequest);
    assert_eq!(world.sides[1].env.atomics_executed, 0);
}

#[test]
fn empty_operations_need_no_key() {
    for op in [SendOp::Write, SendOp::Read] {
        let mut work = remote(op, vec![], 0);
        work.rkey = 0x999;
        let world = around(work);
        assert_eq!(world.results(0), [Ok(()); 3]);
    }
}

#[test]
fn message_longer_than_the_receive_buffer() {
    for len in [2001, 5000] {
        let world = around(send(SendOp::Send, vec![memory(0, len)]));
        expect_failure(&world, RemoteInvalidRequest);
        let env = &world.sides[1].env;
        let results: Vec<_> = env.received.iter().map(|c| c.result).collect();
        assert_eq!(results, [Ok(()), Err(LocalLength)]);
        assert_eq!(env.count_of(Counter::RespLocalLengthError), 1);
        assert_eq!(env.error, Some(ErrorScope::Qp));
    }
}

#[test]
fn receive_buffer_without_key() {
    let mut world = World::new(QpKind::Rc, 256);
    world.sides[1].env.recvs.push_back(RecvWork {
        index: 9,
        segments: vec![Segment::Memory {
            lkey: 0x999,
            addr: BASE,
            len: 100,
        }],
    });
    world.posts(0, send(SendOp::Send, vec![memory(0, 100)]));
    world.settle();
    assert_eq!(world.results(0), [Err(RemoteOperation)]);
    assert_eq!(world.sides[1].env.received[0].result, Err(LocalProtection));
}

#[test]
fn local_errors_wait_for_their_turn() {
    let bad = Segment::Memory {
        lkey: 0x999,
        addr: BASE,
        len: 10,
    };
    // In the last packet, in the only one, and of a READ's target.
    for work in [
        send(SendOp::Send, vec![memory(0, 1000), bad]),
        send(SendOp::Send, vec![bad]),
        remote(SendOp::Write, vec![memory(0, 1000), bad], 0x1000),
        remote(SendOp::Read, vec![memory(0, 1000), bad], 0x1000),
        remote(
            SendOp::Atomic(AtomicOp::FetchAdd { add: 1 }),
            vec![bad],
            0x1000,
        ),
    ] {
        let world = around(work);
        expect_failure(&world, LocalProtection);
        assert_eq!(world.sides[1].env.error, None, "the peer gets no error");
    }
    let long = SendWork::default();
    let long = SendWork {
        op: SendOp::Send,
        segments: vec![memory(0, 1 << 30), memory(0, 1)],
        ..long
    };
    expect_failure(&around(long), LocalLength);
}

#[test]
fn malformed_wqes_end_the_queue() {
    let mut world = World::new(QpKind::Rc, 256);
    world.posts(0, remote(SendOp::Write, vec![memory(0, 1000)], 0));
    world.sides[0].env.sends.push_back(Err(LocalQpOperation));
    world.settle();
    assert_eq!(world.results(0), [Ok(()), Err(LocalQpOperation)]);
    // READ where the QP has no depth for it; SEND_INV and READ on UC.
    let world = around_with(remote(SendOp::Read, vec![memory(0, 8)], 0), |side| {
        QpConfig {
            max_rd_atomic: 0,
            ..config(QpKind::Rc, side, 256)
        }
    });
    expect_failure(&world, LocalQpOperation);
    for op in [SendOp::Read, SendOp::SendInv(1)] {
        let world = around_with(remote(op, vec![memory(0, 8)], 0), |side| {
            config(QpKind::Uc, side, 256)
        });
        assert_eq!(world.results(0)[1], Err(LocalQpOperation));
        assert_eq!(world.sides[0].env.error, Some(ErrorScope::SendQueue));
        assert_eq!(world.sides[0].qp.config().state, QpState::Sqe);
    }
}

#[test]
fn a_dead_peer_exhausts_the_retries() {
    for retry_count in [0, 1, 7] {
        let mut link = Faulty::new(Cable::new(), 1, Rates::default());
        link.rule(0, u32::MAX, Action::Drop, |from, _| from == 0);
        let mut world = World::with(Box::new(link), |side| QpConfig {
            retry_count,
            ..config(QpKind::Rc, side, 256)
        });
        for _ in 0..3 {
            world.posts(0, remote(SendOp::Write, vec![memory(0, 10)], 0));
        }
        world.settle();
        assert_eq!(
            world.results(0),
            [
                Err(TransportRetryExceeded),
                Err(WorkRequestFlushed),
                Err(WorkRequestFlushed)
            ]
        );
        let timeouts = u64::from(retry_count) + 1;
        assert_eq!(
            world.sides[0].env.count_of(Counter::LocalAckTimeoutErr),
            timeouts
        );
        assert_eq!(
            world.sides[0].env.count_of(Counter::PacketsSent),
            3 * timeouts
        );
        let timeout = Duration::from_nanos(4096 << 8) * timeouts as u32;
        assert!(world.now >= timeout && world.now < timeout + Duration::from_micros(10));
    }
}

#[test]
fn no_timeout_means_for_ever() {
    let mut link = Faulty::new(Cable::new(), 1, Rates::default());
    link.rule(0, 1, Action::Drop, |from, _| from == 0);
    let mut world = World::with(Box::new(link), |side| QpConfig {
        ack_timeout: 0,
        ..config(QpKind::Rc, side, 256)
    });
    world.posts(0, remote(SendOp::Write, vec![memory(0, 10)], 0));
    world.settle();
    assert_eq!(world.results(0), []);
    assert_eq!(world.sides[0].qp.next_deadline(), None);
}

#[test]
fn rnr_retries_end_unless_infinite() {
    for rnr_retry in [0, 1, 6] {
        let mut world = World::with(Box::new(Cable::new()), |side| QpConfig {
            rnr_retry,
            ..config(QpKind::Rc, side, 256)
        });
        world.posts(0, send(SendOp::Send, vec![memory(0, 1000)]));
        world.settle();
        assert_eq!(world.results(0), [Err(RnrRetryExceeded)]);
        let naks = u64::from(rnr_retry) + 1;
        assert_eq!(world.sides[1].env.count_of(Counter::RnrNakSent), naks);
        assert_eq!(world.sides[1].env.error, None);
    }
    let mut world = World::new(QpKind::Rc, 256);
    world.posts(0, send(SendOp::Send, vec![memory(0, 1000)]));
    world.settle_until(Duration::from_millis(5));
    assert!(world.sides[1].env.count_of(Counter::RnrNakSent) > 100);
    world.sides[1].env.post_recv(0, 1000);
    world.settle();
    assert_eq!(world.results(0), [Ok(())]);
}

#[test]
fn progress_renews_the_retries() {
    // Every message's first attempt is lost: more losses than retries, but never two in a row.
    let mut link = Faulty::new(Cable::new(), 1, Rates::default());
    let mut seen = std::collections::HashSet::new();
    link.rule(0, u32::MAX, Action::Drop, move |from, frame| {
        from == 0 && seen.insert(frame[50..54].to_vec())
    });
    let mut world = World::with(Box::new(link), |side| QpConfig {
        retry_count: 1,
        ..config(QpKind::Rc, side, 256)
    });
    for _ in 0..20 {
        world.posts(0, remote(SendOp::Write, vec![memory(0, 10)], 0));
        world.settle();
    }
    assert_eq!(world.results(0), [Ok(()); 20]);
}

#[test]
fn memory_that_vanishes_during_a_read() {
    let mut world = World::new(QpKind::Rc, 256);
    world.budget = 4;
    world.posts(0, remote(SendOp::Read, vec![memory(0, 100_000)], 0));
    // One round of each: the responder has begun to answer.
    let limit = world.now;
    world.sides[1].env.keys.insert(
        RKEY,
        Key {
            local: true,
            read: true,
            write: true,
            atomic: true,
        },
    );
    world.settle_until(limit);
    assert_eq!(world.results(0), [Ok(())]);
    // A second one whose key goes away between request and answer.
    let mut link = Faulty::new(Cable::new(), 1, Rates::default());
    link.rule(3, 1, Action::Drop, |from, _| from == 1);
    let mut world = World::with(Box::new(link), |side| QpConfig {
        retry_count: 7,
        ..config(QpKind::Rc, side, 256)
    });
    world.posts(0, remote(SendOp::Read, vec![memory(0, 1000)], 0));
    world.settle_until(Duration::ZERO);
    world.sides[1].env.keys.remove(&RKEY);
    world.settle();
    assert_eq!(world.results(0), [Err(Syndrome::RemoteAccess)]);
    assert_eq!(world.sides[1].env.error, Some(ErrorScope::Qp));
}

#[test]
fn moved_to_error_by_the_owner_flushes_what_is_held() {
    let mut link = Faulty::new(Cable::new(), 1, Rates::default());
    // The last packet of the second message is lost, so that both sides hold a WQE.
    link.rule(3, u32::MAX, Action::Drop, |from, _| from == 0);
    let mut world = World::with(Box::new(link), |side| config(QpKind::Rc, side, 256));
    world.sides[1].env.post_recv(0, 2000);
    world.posts(0, send(SendOp::Send, vec![memory(0, 1000)]));
    world.posts(0, remote(SendOp::Write, vec![memory(0, 1000)], 0));
    world.settle_until(Duration::from_micros(1));
    for i in 0..2 {
        let err = QpConfig {
            state: QpState::Err,
            ..config(QpKind::Rc, i, 256)
        };
        let (side, now) = (&mut world.sides[i], world.now);
        side.qp.configure(err, &mut side.env, now);
        assert_eq!(side.qp.next_deadline(), None);
    }
    assert_eq!(world.results(0), [Err(WorkRequestFlushed); 2]);
    assert_eq!(
        world.sides[1].env.received[0].result,
        Err(WorkRequestFlushed)
    );
    // Reset and again from the start: nothing is left over.
    for i in 0..2 {
        for state in [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts] {
            let next = QpConfig {
                state,
                ..config(QpKind::Rc, i, 256)
            };
            let (side, now) = (&mut world.sides[i], world.now);
            side.qp.configure(next, &mut side.env, now);
        }
    }
    world.link = Box::new(Cable::new());
    world.posts(0, remote(SendOp::Write, vec![memory(0, 1000)], 0x2000));
    world.settle();
    assert_eq!(world.results(0)[2..], [Ok(())]);
}
