//! The handshake over a pipe that loses, duplicates and reorders.

use std::time::Duration;

use crate::common::*;
use bareverbs_cm::engine::*;
use bareverbs_cm::mad::Attribute;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn handshake_takes_one_and_one_and_a_half_round_trips() {
    let mut world = World::new(1, 4);
    let id = world.connect();
    assert!(world.run_until(SECOND, |world| world.established(0, id)));
    assert_eq!(world.now, 2 * MS);
    let peer = world.peer_id().unwrap();
    assert!(world.run_until(SECOND, |world| world.established(1, peer)));
    assert_eq!(world.now, 3 * MS);

    let Seen::Request(data) = &world.events(1)[0] else {
        panic!("{:?}", world.events(1))
    };
    assert_eq!((&data[..5], data.len()), (&b"hello"[..], 92));

    // Both ends agree about the QPs.
    let ours = world.nodes[0].qp_params(id).unwrap();
    let theirs = world.nodes[1].qp_params(peer).unwrap();
    assert_eq!((ours.dest_qpn, theirs.dest_qpn), (0x22, 0x11));
    assert_eq!((ours.rq_psn, ours.sq_psn), (theirs.sq_psn, theirs.rq_psn));
    assert_ne!(ours.rq_psn, ours.sq_psn);

    world.nodes[0].disconnect(world.now, id, b"").unwrap();
    world.run(world.now + 100 * SECOND);
    let ending = |cause| [Seen::Disconnected(cause), Seen::TimewaitExit];
    assert_eq!(world.events(0)[1..], ending(DisconnectCause::Answered));
    assert_eq!(world.events(1)[2..], ending(DisconnectCause::Requested));
    let kinds: Vec<_> = world
        .log
        .iter()
        .map(|(_, node, what, _)| (*node, what.name()))
        .collect();
    assert_eq!(
        kinds,
        [(0, "REQ"), (1, "REP"), (0, "RTU"), (0, "DREQ"), (1, "DREP")]
    );
    assert_eq!(
        world.nodes[0].stats().duplicates + world.nodes[1].stats().duplicates,
        0
    );
    world.release_all(&[id]);
}

/// Each message of the handshake lost once; with the early repetitions and without.
#[test]
fn each_message_lost_once() {
    for early in [None, Some(256 * MS)] {
        for (loser, lost) in [
            (0, Attribute::Req),
            (1, Attribute::Rep),
            (0, Attribute::Rtu),
            (0, Attribute::Dreq),
            (1, Attribute::Drep),
            (1, Attribute::Dreq),
            (0, Attribute::Drep),
        ] {
            let context = format!("{lost} of node {loser} lost, early {early:?}");
            let mut config = Config::new(7, 0xb);
            config.timers.early = early;
            let mut world = World::with(Config::new(8, 0xa), config, 4);
            let mut left = 1;
            world.judge = Box::new(move |from, what| {
                if from == loser && what == lost && left > 0 {
                    left -= 1;
                    Delivery::Drop
                } else {
                    Delivery::Deliver
                }
            });
            let mut params = params();
            params.timers.early = early;
            let id = world.nodes[0].connect(world.now, &params).unwrap();
            let up = world.run_until(20 * SECOND, |world| {
                world.established(0, id)
                    && world
                        .peer_id()
                        .is_some_and(|peer| world.established(1, peer))
            });
            assert!(up, "{context}");
            let limit = if early.is_some() {
                300 * MS
            } else {
                5 * SECOND
            };
            assert!(world.now < limit, "{context}: took {:?}", world.now);

            // The side that says DREQ first.
            let peer = world.peer_id().unwrap();
            if (loser, lost) == (1, Attribute::Dreq) || (loser, lost) == (0, Attribute::Drep) {
                world.nodes[1].disconnect(world.now, peer, b"").unwrap();
            } else {
                world.nodes[0].disconnect(world.now, id, b"").unwrap();
            }
            world.run(world.now + 200 * SECOND);
            for node in 0..2 {
                let ends: Vec<_> = world.events(node).into_iter().rev().take(2).collect();
                assert_eq!(ends[0], Seen::TimewaitExit, "{context}");
                let Seen::Disconnected(cause) = &ends[1] else {
                    panic!("{context}: {ends:?}")
                };
                assert_ne!(*cause, DisconnectCause::TimedOut, "{context}");
            }
            world.release_all(&[id]);
        }
    }
}

/// A refusal that gets lost: the requester asks again, and is refused again.
#[test]
fn lost_refusal_is_repeated() {
    let mut world = World::new(3, 4);
    let mut left = 1;
    world.judge = Box::new(move |_, what| {
        if what == Attribute::Rej && left > 0 {
            left -= 1;
            return Delivery::Drop;
        }
        Delivery::Deliver
    });
    let id = world.nodes[0]
        .connect(
            world.now,
            &ConnectParams {
                service_id: 99,
                ..params()
            },
        )
        .unwrap();
    world.run(10 * SECOND);
    assert_eq!(world.events(0), [Seen::Rejected(8, vec![])]);
    assert_eq!(
        (world.sent(0, Attribute::Req), world.sent(1, Attribute::Rej)),
        (2, 2)
    );
    world.release_all(&[id]);
}

/// 10 % loss, duplication and reordering each: a connection or a typed failure within the advertised time, one
/// TimewaitExit per Disconnected, nothing left behind.
#[test]
fn random_loss_duplication_and_reordering() {
    let mut connected = 0;
    for seed in 0..400 {
        let mut world = World::new(seed, 32);
        let mut random = Random(seed);
        let mut rng = Random(seed ^ 0xdead);
        world.judge = Box::new(move |_, _| match rng.below(100) {
            0..10 => Delivery::Drop,
            10..20 => Delivery::Twice,
            20..30 => Delivery::Late(Duration::from_micros(rng.below(900_000))),
            _ => Delivery::Deliver,
        });
        world.accept_after = Some(Duration::from_millis(random.below(600)));
        let mut ids = Vec::new();
        for qpn in 0..8 {
            let mut params = ConnectParams {
                local_qpn: 0x100 + qpn,
                ..params()
            };
            if random.percent(50) {
                params.timers.early = None;
            }
            ids.push(world.nodes[0].connect(world.now, &params).unwrap());
        }
        // 16 tries of 2 * 268 ms + 4295 ms each.
        let advertised = Duration::from_secs(16 * 5);
        let settled = |world: &World, id: ConnectionId| {
            world.established(0, id)
                || world.seen[0].iter().any(|(_, seen, what)| {
                    *seen == id && matches!(what, Seen::Rejected(..) | Seen::Unreachable(_))
                })
        };
        assert!(
            world.run_until(advertised, |world| ids.iter().all(|id| settled(world, *id))),
            "seed {seed}: {:?}",
            ids.iter()
                .map(|id| world.nodes[0].state(*id))
                .collect::<Vec<_>>()
        );
        world.run(world.now + 10 * SECOND);
        for id in &ids {
            if !world.established(0, *id) {
                continue;
            }
            connected += 1;
            // The QP that the peer of this connection got.
            let ours = world.nodes[0].qp_params(*id).unwrap();
            let peer = world.seen[1]
                .iter()
                .map(|(_, peer, _)| *peer)
                .find(|peer| {
                    world.established(1, *peer)
                        && world.nodes[1]
                            .qp_params(*peer)
                            .is_ok_and(|theirs| theirs.sq_psn == ours.rq_psn)
                })
                .unwrap_or_else(|| panic!("seed {seed}: no peer of {id:?} is established"));
            assert_eq!(
                world.nodes[1].qp_params(peer).unwrap().rq_psn,
                ours.sq_psn,
                "seed {seed}"
            );
            let (node, id) = if random.percent(50) {
                (0, *id)
            } else {
                (1, peer)
            };
            world.nodes[node].disconnect(world.now, id, b"").unwrap();
            if random.percent(20) {
                // Both at once.
                let _ = world.nodes[1].disconnect(world.now, peer, b"");
            }
        }
        world.run(world.now + 300 * SECOND);
        for node in 0..2 {
            let count = |wanted: fn(&Seen) -> bool| {
                world
                    .events(node)
                    .iter()
                    .filter(|seen| wanted(seen))
                    .count()
            };
            let over = count(|seen| matches!(seen, Seen::Disconnected(_)));
            let exits = count(|seen| matches!(seen, Seen::TimewaitExit));
            assert_eq!(over, exits, "seed {seed}, node {node}");
        }
        world.release_all(&ids);
    }
    assert!(
        connected > 3100,
        "only {connected} of 3200 connections came about"
    );
}

/// A peer that never answers: 16 tries at the negotiated pace, then a typed end.
#[test]
fn silent_peer() {
    let mut world = World::new(5, 4);
    world.judge = Box::new(|_, _| Delivery::Drop);
    let id = world.nodes[0]
        .connect(
            world.now,
            &ConnectParams {
                packet_life_time: 18,
                timers: Timers {
                    early: None,
                    ..Timers::default()
                },
                ..params()
            },
        )
        .unwrap();
    world.run(200 * SECOND);
    assert_eq!(world.events(0), [Seen::Unreachable(Attribute::Req)]);
    let times: Vec<_> = world.log.iter().map(|(at, ..)| at.as_millis()).collect();
    // 2 * 4.096 us * 2^18 + 4.096 us * 2^20.
    let interval = 6442.0;
    assert_eq!(times.len(), 16);
    for (nth, at) in times.iter().enumerate() {
        let wanted = nth as f64 * interval;
        assert!(
            (*at as f64 - wanted).abs() < 25.0,
            "try {nth} at {at} ms, not {wanted}"
        );
    }
    assert_eq!(world.nodes[0].state(id), Ok(State::Idle));
    world.release_all(&[id]);
}

/// Early repetitions do not stretch the series, and end within the first interval.
#[test]
fn early_repetitions_back_off_inside_the_first_interval() {
    for jitter in [0, 25] {
        let config = Config {
            jitter,
            ..Config::new(10, 0xa)
        };
        let mut world = World::with(config, Config::new(11, 0xb), 4);
        world.judge = Box::new(|_, _| Delivery::Drop);
        let timers = Timers {
            max_retries: 2,
            ..Timers::default()
        };
        let id = world.nodes[0]
            .connect(world.now, &ConnectParams { timers, ..params() })
            .unwrap();
        world.run(100 * SECOND);
        let times: Vec<_> = world
            .log
            .iter()
            .map(|(at, ..)| at.as_millis() as u64 / 10)
            .collect();
        // Interval: 2 * 268 ms + 4295 ms.
        let exact = [0, 25, 76, 179, 383, 483, 966];
        if jitter == 0 {
            assert_eq!(times, exact);
        } else {
            assert!((7..=8).contains(&times.len()), "{times:?}");
            for (time, exact) in times.iter().zip(exact).take(4) {
                assert!(
                    time.abs_diff(exact) <= exact / 4 + 1,
                    "{times:?} with {jitter} %"
                );
            }
        }
        let (at, _, what) = &world.seen[0][0];
        assert_eq!(
            (at.as_millis() / 100, what),
            (144, &Seen::Unreachable(Attribute::Req))
        );
        world.release_all(&[id]);
    }
}

/// Sixty clients that start at the same moment and deliver nothing: with jitter hardly two of them repeat in the same
/// millisecond, and the same seed gives the same times.
#[test]
fn clients_do_not_stay_in_step() {
    let times = |seed: u64, jitter: u8| {
        let mut nth = Vec::new();
        for client in 0..60 {
            let config = Config {
                jitter,
                ..Config::new(seed * 1000 + client, 0xa)
            };
            let mut engine = engine(config, 1);
            engine.connect(Duration::ZERO, &params()).unwrap();
            let mut mad = [0; bareverbs_cm::mad::MAD_LEN];
            let mut sent = Vec::new();
            while let Some(at) = engine.next_deadline() {
                while engine.poll_transmit(at, &mut mad).is_some() {
                    sent.push(at.as_millis());
                }
                if sent.len() > 12 {
                    break;
                }
            }
            nth.push(sent);
        }
        nth
    };
    let together = |all: &[Vec<u128>], nth: usize| {
        let mut at: Vec<_> = all.iter().map(|sent| sent[nth]).collect();
        at.sort_unstable();
        at.chunk_by(|a, b| a == b)
            .map(<[u128]>::len)
            .max()
            .unwrap_or(0)
    };
    assert_eq!(together(&times(1, 0), 3), 60);
    for seed in 0..20 {
        let all = times(seed, 25);
        assert_eq!(all, times(seed, 25), "seed {seed}");
        // The first entry is the first repetition or the request itself, depending on what was due first.
        for nth in [1, 2, 3, 8, 11] {
            let most = together(&all, nth);
            assert!(most <= 12, "seed {seed}, repetition {nth}: {most} at once");
        }
    }
}

/// Many at once: nothing is repeated, nothing is taken for a duplicate, nothing stays.
#[test]
fn hundred_thousand_connections() {
    const COUNT: usize = 100_000;
    let mut world = World::new(11, COUNT);
    world.log.reserve(COUNT * 5);
    let mut ids = Vec::with_capacity(COUNT);
    for qpn in 0..COUNT as u32 {
        let params = ConnectParams {
            local_qpn: qpn,
            user: qpn.into(),
            ..params()
        };
        ids.push(world.nodes[0].connect(world.now, &params).unwrap());
    }
    assert_eq!(
        world.nodes[0].connect(world.now, &params()),
        Err(CmError::NoConnectionSlots { capacity: COUNT })
    );
    // QP numbers of the passive side have to differ too.
    world.accept_after = None;
    world.run_until(5 * MS, |world| world.seen[1].len() == COUNT);
    for (qpn, (_, id, _)) in world.seen[1].clone().into_iter().enumerate() {
        world.nodes[1]
            .reply(world.now, id, &ReplyParams::new(qpn as u32))
            .unwrap();
    }
    world.run(world.now + 5 * MS);
    assert!(ids.iter().all(|id| world.established(0, *id)));
    // Both ends of each mean each other, and stay connected without any message.
    let peers: Vec<_> = world.seen[1]
        .iter()
        .map(|(_, id, _)| *id)
        .take(COUNT)
        .collect();
    for (qpn, (ours, theirs)) in (0..).zip(ids.iter().zip(&peers)) {
        assert!(world.established(1, *theirs));
        let ours = world.nodes[0].qp_params(*ours).unwrap();
        let theirs = world.nodes[1].qp_params(*theirs).unwrap();
        assert_eq!((ours.dest_qpn, theirs.dest_qpn), (qpn, qpn));
        assert_eq!((ours.rq_psn, ours.sq_psn), (theirs.sq_psn, theirs.rq_psn));
    }
    let said = world.log.len();
    world.run(world.now + 24 * 3600 * SECOND);
    assert_eq!(world.log.len(), said);
    assert!(
        world
            .nodes
            .iter()
            .all(|node| node.next_deadline().is_none())
    );
    for id in &ids {
        world.nodes[0].disconnect(world.now, *id, b"").unwrap();
    }
    world.run(world.now + 60 * SECOND);
    for node in 0..2 {
        let stats = world.nodes[node].stats();
        assert_eq!(
            (stats.repeated, stats.duplicates, stats.ignored),
            (0, 0, 0),
            "{stats:?}"
        );
        assert_eq!(
            world
                .events(node)
                .iter()
                .filter(|seen| **seen == Seen::TimewaitExit)
                .count(),
            COUNT
        );
    }
    world.release_all(&ids);
}

#[test]
fn a_connection_takes_at_most_512_bytes() {
    println!("{} bytes per connection", size_of::<Slot>());
    assert!(size_of::<Slot>() <= 512, "{}", size_of::<Slot>());
}
