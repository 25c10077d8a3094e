//! Every operation at every interesting size on a link without faults.

use connectx_model::roce::env::*;

use crate::mock::*;

const SOURCE: usize = 0;
const TARGET: usize = 1 << 19;

fn sizes(mtu: usize) -> Vec<usize> {
    vec![
        0,
        1,
        3,
        4,
        mtu - 1,
        mtu,
        mtu + 1,
        2 * mtu,
        5 * mtu + 7,
        40 * mtu,
    ]
}

/// A message as three pieces, one of them empty.
fn pieces(offset: usize, len: usize) -> Vec<Segment> {
    let cut = len / 3;
    vec![
        memory(offset, cut as u32),
        memory(offset + cut, 0),
        memory(offset + cut, (len - cut) as u32),
    ]
}

fn expect_copied(world: &World, from: usize, to: usize, len: usize, before: &[u8]) {
    let source = &world.sides[from].env.memory[SOURCE..SOURCE + len];
    let target = &world.sides[to].env.memory[TARGET..];
    assert!(target[..len] == *source, "data differ");
    assert!(
        target[len..] == before[TARGET + len..],
        "written behind the message"
    );
}

#[test]
fn sends_and_writes_of_every_size() {
    for kind in [QpKind::Rc, QpKind::Uc] {
        for mtu in [256, 1024, 4096] {
            for len in sizes(mtu) {
                for op in [
                    SendOp::Send,
                    SendOp::SendImm(0xdead_beef),
                    SendOp::Write,
                    SendOp::WriteImm(7),
                ] {
                    let mut world = World::new(kind, mtu);
                    let before = world.sides[1].env.memory.clone();
                    let is_write = matches!(op, SendOp::Write | SendOp::WriteImm(_));
                    let recv_len = if is_write { 0 } else { len as u32 };
                    world.sides[1].env.post_recv(TARGET, recv_len);
                    let mut work = remote(op, pieces(SOURCE, len), TARGET);
                    work.solicited = true;
                    world.posts(0, work);
                    world.settle();
                    assert_eq!(world.results(0), [Ok(())], "{kind:?} {op:?} {len}");
                    assert_eq!(world.sides[0].env.sent[0].byte_len as usize, len);
                    expect_copied(&world, 0, 1, len, &before);
                    let expected = match op {
                        SendOp::Send => Some(RecvOp::Send),
                        SendOp::SendImm(imm) => Some(RecvOp::SendImm(imm)),
                        SendOp::WriteImm(imm) => Some(RecvOp::WriteImm(imm)),
                        _ => None,
                    };
                    let received = &world.sides[1].env.received;
                    assert_eq!(received.first().map(|c| c.op), expected);
                    if let Some(completion) = received.first() {
                        assert_eq!(completion.result, Ok(()));
                        assert_eq!(completion.byte_len as usize, len);
                        assert!(completion.solicited);
                    }
                    assert_eq!(world.sides[0].env.count_of(Counter::Retransmissions), 0);
                }
            }
        }
    }
}

#[test]
fn reads_of_every_size() {
    for mtu in [256, 4096] {
        for len in sizes(mtu) {
            let mut world = World::new(QpKind::Rc, mtu);
            let before = world.sides[0].env.memory.clone();
            world.posts(0, remote(SendOp::Read, pieces(TARGET, len), SOURCE));
            world.settle();
            assert_eq!(world.results(0), [Ok(())]);
            assert_eq!(world.sides[0].env.sent[0].byte_len as usize, len);
            expect_copied(&world, 1, 0, len, &before);
            assert_eq!(world.sides[1].env.count_of(Counter::ReadRequests), 1);
        }
    }
}

#[test]
fn inline_data_are_sent() {
    let mut world = World::new(QpKind::Rc, 256);
    world.sides[1].env.post_recv(TARGET, 100);
    let mut work = send(
        SendOp::Send,
        vec![
            Segment::Inline { start: 0, len: 3 },
            memory(SOURCE, 2),
            Segment::Inline { start: 3, len: 2 },
        ],
    );
    work.inline_data = vec![1, 2, 3, 4, 5];
    world.posts(0, work);
    world.settle();
    let source = &world.sides[0].env.memory;
    let expected = [1, 2, 3, source[0], source[1], 4, 5];
    assert_eq!(world.sides[1].env.memory[TARGET..TARGET + 7], expected);
}

#[test]
fn atomics() {
    for big_endian in [false, true] {
        let link = Box::new(connectx_model::link::Cable::new());
        let mut world = World::with(link, |side| QpConfig {
            atomics_big_endian: big_endian,
            ..config(QpKind::Rc, side, 1024)
        });
        let bytes = |v: u64| {
            if big_endian {
                v.to_be_bytes()
            } else {
                v.to_le_bytes()
            }
        };
        world.sides[1].env.memory[64..72].copy_from_slice(&bytes(u64::MAX - 1));
        let ops = [
            AtomicOp::FetchAdd { add: 3 },
            AtomicOp::CompareSwap {
                compare: 2,
                swap: 9,
            },
            AtomicOp::CompareSwap {
                compare: 1,
                swap: 7,
            },
            AtomicOp::FetchAdd { add: 0 },
        ];
        for (i, op) in ops.into_iter().enumerate() {
            world.posts(0, remote(SendOp::Atomic(op), vec![memory(i * 8, 8)], 64));
        }
        world.settle();
        assert_eq!(world.results(0), [Ok(()); 4]);
        for (i, old) in [u64::MAX - 1, 1, 1, 7].into_iter().enumerate() {
            assert_eq!(world.sides[0].env.memory[i * 8..i * 8 + 8], bytes(old));
        }
        assert_eq!(world.sides[1].env.memory[64..72], bytes(7));
        assert!(world.sides[0].env.sent.iter().all(|c| c.byte_len == 8));
    }
}

#[test]
fn send_with_invalidate_ends_the_key() {
    let mut world = World::new(QpKind::Rc, 1024);
    world.sides[1].env.post_recv(TARGET, 5000);
    world.posts(0, send(SendOp::SendInv(RKEY), pieces(SOURCE, 5000)));
    world.posts(0, remote(SendOp::Read, pieces(TARGET, 8), SOURCE));
    world.settle();
    assert_eq!(
        world.results(0),
        [Ok(()), Err(Syndrome::RemoteAccess)],
        "the second finds the key gone"
    );
    assert_eq!(world.sides[1].env.received[0].op, RecvOp::SendInv(RKEY));
}

#[test]
fn both_directions_at_once() {
    for budget in [1, 2, 16, 1000] {
        let mut world = World::new(QpKind::Rc, 1024);
        world.budget = budget;
        for side in 0..2 {
            for i in 0..20 {
                world.sides[side]
                    .env
                    .post_recv(0x80000 + i * 0x2000, 0x2000);
                world.posts(side, send(SendOp::Send, vec![memory(i * 0x2000, 0x2000)]));
                world.posts(
                    side,
                    remote(SendOp::Read, vec![memory(0xc0000, 0x3000)], i * 0x1000),
                );
            }
        }
        world.settle();
        for side in 0..2 {
            assert_eq!(world.results(side), [Ok(()); 40]);
            assert_eq!(world.sides[side].env.received.len(), 20);
            let (here, there) = (&world.sides[side].env, &world.sides[1 - side].env);
            assert!(here.memory[..0x28000] == there.memory[0x80000..0xa8000]);
            assert_eq!(here.count_of(Counter::Retransmissions), 0);
        }
    }
}

#[test]
fn local_work_keeps_its_place() {
    for kind in [QpKind::Rc, QpKind::Uc, QpKind::Ud] {
        let mut world = World::new(kind, 1024);
        if kind.connected() {
            world.posts(0, remote(SendOp::Write, pieces(SOURCE, 3000), TARGET));
        }
        let local = world.posts(0, SendWork::default());
        if kind.connected() {
            world.posts(0, remote(SendOp::Write, pieces(SOURCE, 3000), TARGET));
        }
        world.settle();
        assert_eq!(world.sides[0].env.local, 1);
        assert!(world.sides[0].env.sent.iter().any(|c| c.index == local));
        assert!(world.results(0).iter().all(Result::is_ok));
    }
}

#[test]
fn fence_waits_for_reads() {
    let mut world = World::new(QpKind::Rc, 1024);
    // The READ fetches what the fenced SEND then sends on.
    let len = 8 * 1024;
    world.sides[1].env.post_recv(TARGET, len as u32);
    world.posts(
        0,
        remote(SendOp::Read, vec![memory(SOURCE, len as u32)], SOURCE),
    );
    let mut work = send(SendOp::Send, vec![memory(SOURCE, len as u32)]);
    work.fence = true;
    world.posts(0, work);
    world.settle();
    let memory = &world.sides[1].env.memory;
    assert!(memory[SOURCE..SOURCE + len] == memory[TARGET..TARGET + len]);
    assert_eq!(world.results(0), [Ok(()), Ok(())]);
}

#[test]
fn long_transfer_over_the_end_of_the_psn_space() {
    // Side 1 begins at 0xfffff0; every kind of packet crosses the wrap in some run.
    for shift in 0..24 {
        let link = Box::new(connectx_model::link::Cable::new());
        let mut world = World::with(link, |side| QpConfig {
            send_psn: 0xff_fff0 + [0, shift][side],
            recv_psn: 0xff_fff0 + [shift, 0][side],
            ..config(QpKind::Rc, side, 256)
        });
        world.sides[0].env.post_recv(TARGET, 1024);
        world.posts(1, remote(SendOp::Read, vec![memory(SOURCE, 2000)], SOURCE));
        world.posts(1, send(SendOp::Send, vec![memory(SOURCE, 1024)]));
        world.posts(
            1,
            remote(
                SendOp::Atomic(AtomicOp::FetchAdd { add: 1 }),
                vec![memory(SOURCE + 4096, 8)],
                TARGET,
            ),
        );
        world.posts(1, remote(SendOp::Write, vec![memory(SOURCE, 2000)], TARGET));
        world.settle();
        assert_eq!(world.results(1), [Ok(()); 4], "shift {shift}");
        assert_eq!(
            world.sides[1].qp.next_send_psn(),
            (0xff_fff0 + shift + 21) & 0xff_ffff
        );
        assert_eq!(
            world.sides[0].qp.next_recv_psn(),
            world.sides[1].qp.next_send_psn()
        );
        assert_eq!(world.sides[0].qp.msn(), 4);
    }
}

#[test]
fn acknowledgements_are_coalesced() {
    let mut world = World::new(QpKind::Rc, 1024);
    for _ in 0..100 {
        world.posts(0, remote(SendOp::Write, vec![memory(SOURCE, 64)], TARGET));
    }
    world.settle();
    assert_eq!(world.results(0), [Ok(()); 100]);
    // All requests were there before the responder ran.
    assert_eq!(world.sides[1].env.count_of(Counter::PacketsSent), 1);
}
