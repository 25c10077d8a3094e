//! Random damage on the link, many seeds: everything arrives, once, in order, or a correct error is reported.

use std::time::Duration;

use connectx_model::link::Cable;
use connectx_model::link::fault::{Faulty, Rates};
use connectx_model::link::rng::Rng;
use connectx_model::roce::env::*;

use crate::mock::*;

const US: Duration = Duration::from_micros(1);

/// A condition on memory that must hold when everything is done.
enum Expect {
    /// `len` bytes at `to` on the peer are those of `from` here.
    There { from: usize, to: usize, len: usize },
    /// `len` bytes at `to` here are those of `from` on the peer.
    Here { from: usize, to: usize, len: usize },
    /// The counter's value before this add.
    Count { to: usize, old: u64 },
}

/// Where the atomics' counter is, on both sides.
const COUNTER: usize = MEMORY - 64;

/// Posts random operations from both sides, whose targets never overlap.
fn random_work(world: &mut World, rng: &mut Rng, mtu: usize, count: usize) -> [Vec<Expect>; 2] {
    let mut expected = [Vec::new(), Vec::new()];
    // Lower half: sources. Upper half: targets, a quarter for each side's writes into the peer and reads into itself.
    let mut into_peer = [MEMORY / 2; 2];
    let mut into_self = [MEMORY / 4 * 3; 2];
    let mut adds = [0; 2];
    for side in 0..2 {
        world.sides[side].env.memory[COUNTER..COUNTER + 8].fill(0);
    }
    for _ in 0..count {
        for side in 0..2 {
            let len = match rng.below(6) {
                0 => rng.below(4) as usize,
                1 => mtu - 1 + rng.below(3) as usize,
                2 => mtu * (1 + rng.below(4) as usize),
                _ => rng.below(6 * mtu as u32) as usize,
            };
            let from = rng.below((MEMORY / 2 - 6 * mtu) as u32) as usize;
            let (to_peer, to_self) = (into_peer[side], into_self[side]);
            let data = vec![
                memory(from, (len / 2) as u32),
                memory(from + len / 2, (len - len / 2) as u32),
            ];
            let peer = &mut world.sides[1 - side].env;
            let mut expect_there = true;
            let mut work = match rng.below(7) {
                0 => {
                    peer.post_recv(to_peer, len as u32);
                    send(SendOp::Send, data)
                }
                1 => {
                    peer.post_recv(to_peer, len as u32 + 1);
                    send(SendOp::SendImm(len as u32), data)
                }
                2 => {
                    peer.post_recv(0, 0);
                    remote(SendOp::WriteImm(len as u32), data, to_peer)
                }
                3 => remote(SendOp::Write, data, to_peer),
                4 | 5 => {
                    expect_there = false;
                    into_self[side] += len;
                    expected[side].push(Expect::Here {
                        from,
                        to: to_self,
                        len,
                    });
                    remote(SendOp::Read, vec![memory(to_self, len as u32)], from)
                }
                _ => {
                    expect_there = false;
                    into_self[side] += 8;
                    expected[side].push(Expect::Count {
                        to: to_self,
                        old: adds[side],
                    });
                    adds[side] += 1;
                    let op = SendOp::Atomic(AtomicOp::FetchAdd { add: 1 });
                    remote(op, vec![memory(to_self, 8)], COUNTER)
                }
            };
            if expect_there {
                into_peer[side] += len + 1;
                expected[side].push(Expect::There {
                    from,
                    to: to_peer,
                    len,
                });
            }
            assert!(into_peer[side] < MEMORY / 4 * 3 && into_self[side] < COUNTER);
            work.fence = rng.below(8) == 0;
            world.posts(side, work);
        }
    }
    expected
}

fn verify(world: &World, expected: &[Vec<Expect>; 2], seed: u64) {
    for (side, expected) in expected.iter().enumerate() {
        let (here, there) = (&world.sides[side].env, &world.sides[1 - side].env);
        let results = world.results(side);
        assert!(
            results.len() == expected.len() && results.iter().all(Result::is_ok),
            "seed {seed:#x}: {results:?}"
        );
        let adds = expected
            .iter()
            .filter(|e| matches!(e, Expect::Count { .. }))
            .count();
        assert_eq!(
            there.memory[COUNTER..COUNTER + 8],
            (adds as u64).to_le_bytes(),
            "seed {seed:#x}"
        );
        for expect in expected {
            let right = match *expect {
                Expect::There { from, to, len } => {
                    here.memory[from..from + len] == there.memory[to..to + len]
                }
                Expect::Here { from, to, len } => {
                    there.memory[from..from + len] == here.memory[to..to + len]
                }
                Expect::Count { to, old } => here.memory[to..to + 8] == old.to_le_bytes(),
            };
            assert!(right, "seed {seed:#x}: data differ");
        }
        // Every receive WQE was used, in order, without error.
        assert!(here.recvs.is_empty() && here.out_recvs.is_empty());
        for (i, completion) in here.received.iter().enumerate() {
            assert_eq!(
                (usize::from(completion.index), completion.result),
                (i, Ok(())),
                "seed {seed:#x}"
            );
        }
        assert_eq!(here.error, None);
    }
}

fn storm(seed: u64, rates: Rates, mtu: usize, count: usize) -> World {
    let link = Faulty::new(Cable::new(), seed, rates);
    let mut rng = Rng::new(!seed);
    let mut world = World::with(Box::new(link), |side| QpConfig {
        // The wrap is crossed in the middle.
        send_psn: [0xff_ffe0, 0xff_fff9][side],
        recv_psn: [0xff_fff9, 0xff_ffe0][side],
        ..config(QpKind::Rc, side, mtu)
    });
    world.budget = [1, 3, 16, 200][(seed % 4) as usize];
    let credits = seed.is_multiple_of(3);
    world.sides.iter_mut().for_each(|s| s.env.credits = credits);
    if credits {
        for i in 0..2 {
            let with = QpConfig {
                advertise_credits: true,
                ..*world.sides[i].qp.config()
            };
            let side = &mut world.sides[i];
            side.qp.configure(with, &mut side.env, Duration::ZERO);
        }
    }
    let expected = random_work(&mut world, &mut rng, mtu, count);
    world.settle();
    verify(&world, &expected, seed);
    world
}

#[test]
fn clean_link() {
    for seed in 0..30 {
        let world = storm(seed, Rates::default(), 256, 60);
        for side in &world.sides {
            assert_eq!(
                side.env.count_of(Counter::Retransmissions),
                0,
                "seed {seed}"
            );
        }
    }
}

#[test]
fn loss() {
    for seed in 0..300 {
        storm(
            0x1000 + seed,
            Rates {
                loss: 100,
                ..Rates::default()
            },
            256,
            40,
        );
    }
}

#[test]
fn duplication() {
    for seed in 0..200 {
        storm(
            0x2000 + seed,
            Rates {
                duplicate: 300,
                ..Rates::default()
            },
            256,
            40,
        );
    }
}

#[test]
fn reordering_and_delay() {
    for seed in 0..200 {
        let rates = Rates {
            reorder: 100,
            delay: 50,
            max_delay: 100 * US,
            ..Rates::default()
        };
        storm(0x3000 + seed, rates, 256, 40);
    }
}

#[test]
fn corruption() {
    let mut refused = 0;
    for seed in 0..200 {
        let world = storm(
            0x4000 + seed,
            Rates {
                corrupt: 100,
                ..Rates::default()
            },
            1024,
            30,
        );
        refused += world.sides.iter().map(|s| s.env.parse_errors).sum::<u64>();
    }
    assert!(refused > 1000, "{refused}");
}

#[test]
fn everything_at_once() {
    let mut timeouts = 0;
    for seed in 0..300 {
        let world = storm(0x5000 + seed, Rates::all(50, 300 * US), 256, 30);
        timeouts += world.sides[0].env.count_of(Counter::LocalAckTimeoutErr);
    }
    assert!(timeouts > 100, "{timeouts}");
}

/// UC and UD over a bad link: what arrives is whole and in no other order than sent.
#[test]
fn unreliable_services_lose_and_never_mix() {
    for seed in 0..200u64 {
        let rates = Rates {
            loss: 50,
            duplicate: 50,
            corrupt: 50,
            ..Rates::default()
        };
        let link = Faulty::new(Cable::new(), seed, rates);
        let mut world = World::with(Box::new(link), |side| config(QpKind::Uc, side, 256));
        for i in 0..40u32 {
            world.sides[1]
                .env
                .post_recv(MEMORY / 2 + 0x1000 * i as usize, 1000);
            world.posts(
                0,
                send(SendOp::SendImm(i), vec![memory(0x100 * i as usize, 1000)]),
            );
        }
        // Duplicates need buffers, too.
        for _ in 0..100 {
            world.sides[1].env.post_recv(MEMORY / 2 + 0x28000, 1000);
        }
        world.settle();
        assert_eq!(world.results(0), [Ok(()); 40]);
        let (here, there) = (&world.sides[0].env, &world.sides[1].env);
        for (slot, done) in there.received.iter().enumerate().take(40) {
            let RecvOp::SendImm(i) = done.op else {
                panic!("seed {seed}: {done:?}");
            };
            let (from, to) = (0x100 * i as usize, MEMORY / 2 + 0x1000 * slot);
            assert!(
                here.memory[from..from + 1000] == there.memory[to..to + 1000],
                "seed {seed}"
            );
        }
        assert!(there.received.len() < 45, "seed {seed}");
        assert_eq!(there.error, None);
    }
}

/// Packets that are well formed but random: nothing panics, and nothing is written where no key allows it.
#[test]
fn random_packets() {
    use connectx_model::link::Link;
    use connectx_model::roce::codes::Syndrome as Aeth;
    use connectx_model::roce::headers::Headers;
    use connectx_model::roce::opcode::Opcode;
    use connectx_model::roce::packet::*;
    use connectx_model::roce::psn::Psn;

    let opcodes: Vec<_> = (0..=255).filter_map(Opcode::from_byte).collect();
    for seed in 0..600u64 {
        let mut rng = Rng::new(seed);
        let kind = [QpKind::Rc, QpKind::Rc, QpKind::Uc, QpKind::Ud][(seed % 4) as usize];
        let mut world = World::new(kind, 256);
        for i in 0..8 {
            world.sides[1].env.post_recv(0, 300 + i);
            let work = match kind {
                QpKind::Ud => datagram(1, SendOp::Send, vec![memory(0, 100)], 0x50, 0x1111_1111),
                QpKind::Rc if i % 2 == 0 => remote(SendOp::Read, vec![memory(0, 1000)], 0),
                _ => remote(SendOp::Write, vec![memory(0, 1000)], 0),
            };
            world.posts(1, work);
        }
        let mut frame = vec![0; MAX_FRAME];
        for _ in 0..200 {
            let opcode = opcodes[rng.below(opcodes.len() as u32) as usize];
            let near = 0x12_3456u32.wrapping_add(rng.below(12)).wrapping_sub(4);
            let far = 0xff_fff0 + rng.below(12);
            let len = match opcode.operation.has_payload() {
                true => [0, 1, 255, 256, 257][rng.below(5) as usize],
                false => 0,
            };
            let repr = Repr {
                headers: Headers::new(path_of(0)),
                bth: Bth {
                    opcode,
                    solicited: rng.chance(500),
                    migration: true,
                    pkey: 0xffff,
                    fecn: false,
                    becn: false,
                    destination_qpn: 0x51,
                    ack_request: rng.chance(500),
                    psn: Psn::new(if rng.chance(500) { near } else { far }),
                },
                extended: Extended {
                    reth: Reth {
                        addr: BASE + u64::from(rng.below(2000)),
                        rkey: [RKEY, RKEY, 0x999][rng.below(3) as usize],
                        len: [0, 1, 256, 512, 600, u32::MAX][rng.below(6) as usize],
                    },
                    aeth: random_aeth(&mut rng),
                    deth: Deth {
                        qkey: 0x1111_1111,
                        source_qpn: 1,
                    },
                    atomic: AtomicEth {
                        addr: BASE,
                        rkey: RKEY,
                        swap_or_add: 1,
                        compare: 1,
                    },
                    ..Extended::default()
                },
            };
            let total = repr.emit(&mut frame, len, |out| {
                out.fill(0xcc);
                Ok::<_, ()>(())
            });
            world.link.send(0, &frame[..total.unwrap()], world.now);
            if rng.chance(200) {
                world.settle_until(world.now + US);
            }
        }
        world.settle_until(world.now + 100 * 1000 * US);
        let before = Mock::new(1).memory;
        assert!(
            world.sides[1].env.memory[8192..] == before[8192..],
            "seed {seed}"
        );

        fn random_aeth(rng: &mut Rng) -> connectx_model::roce::packet::Aeth {
            let syndrome = loop {
                if let Some(s) = Aeth::from_byte(rng.next_u32() as u8) {
                    break s;
                }
            };
            connectx_model::roce::packet::Aeth {
                syndrome,
                msn: rng.below(16),
            }
        }
    }
}
