//! Alternate paths on InfiniBand: in REQ and REP, and by LAP and APR.

use std::time::Duration;

use crate::common::peer::*;
use crate::common::*;
use bareverbs_cm::engine::*;
use bareverbs_cm::mad::*;

const SECOND: Duration = Duration::from_secs(1);

fn lid(nth: u16) -> AlternatePath {
    AlternatePath {
        local_lid: 0x100 + nth,
        remote_lid: 0x200 + nth,
        local_gid: [0x11; 16],
        remote_gid: [0x22; 16],
        flow_label: 0xa_bcde,
        rate: 7,
        traffic_class: 0x5a,
        hop_limit: 3,
        service_level: 9,
        subnet_local: true,
        ack_timeout: 18,
    }
}

/// The same path seen from its other end.
fn seen(path: AlternatePath) -> AlternatePath {
    AlternatePath {
        local_lid: path.remote_lid,
        remote_lid: path.local_lid,
        local_gid: path.remote_gid,
        remote_gid: path.local_gid,
        ..path
    }
}

fn world(seed: u64) -> (World, ConnectionId, ConnectionId) {
    let mut world = World::new(seed, 4);
    for node in 0..2 {
        let config = *world.nodes[node].config();
        world.nodes[node] = engine_with(config, 4, 2);
    }
    world.nodes[1].listen(SERVICE, 4, false, 0).unwrap();
    let id = world.connect();
    world.run(10 * MS);
    let peer = world.peer_id().unwrap();
    assert!(world.established(0, id) && world.established(1, peer));
    (world, id, peer)
}

/// The last message that a node said, taken off the wire.
fn said(engine: &mut Engine<'_>, now: Duration) -> [u8; MAD_LEN] {
    let mut mad = [0xa5; MAD_LEN];
    engine.poll_transmit(now, &mut mad).expect("a message");
    mad
}

/// LAP and APR byte for byte, after the IBTA's tables 114 and 115.
#[test]
fn messages_as_the_tables_say() {
    let (mut world, id, peer) = world(1);
    let now = world.now;
    world.nodes[0]
        .load_alternate(now, id, &lid(1), b"here")
        .unwrap();
    assert_eq!(world.nodes[0].lap_state(id), Ok(LapState::Sent));
    let mad = said(&mut world.nodes[0], now);
    let (ours, theirs) = (id.comm_id().to_be_bytes(), peer.comm_id().to_be_bytes());
    let mut wanted = [0; MAD_LEN];
    wanted[..4].copy_from_slice(&[1, 7, 2, 3]);
    // The transaction is this end's own and a new one.
    wanted[8..16].copy_from_slice(&[1, 0, 0, 2, ours[3], ours[2], ours[1], ours[0]]);
    wanted[16..18].copy_from_slice(&[0, 0x19]);
    wanted[24..28].copy_from_slice(&ours);
    wanted[28..32].copy_from_slice(&theirs);
    wanted[36..40].copy_from_slice(&[0, 0, 0x22, 20 << 3]);
    wanted[44..48].copy_from_slice(&[0x01, 0x01, 0x02, 0x01]);
    wanted[48..64].fill(0x11);
    wanted[64..80].fill(0x22);
    wanted[80..84].copy_from_slice(&[0xab, 0xcd, 0xe0, 0x5a]);
    wanted[84..88].copy_from_slice(&[3, 7, 0x98, 18 << 3]);
    wanted[88..92].copy_from_slice(b"here");
    assert_eq!(mad, wanted);

    world.nodes[1].handle_mad(now, &path(1), &mad).unwrap();
    let event = world.nodes[1].poll_event().unwrap();
    let EventKind::AlternatePath {
        path: there,
        private_data,
    } = event.kind
    else {
        panic!("{event:?}")
    };
    assert_eq!(*there, seen(lid(1)));
    assert_eq!(
        (&private_data[..4], private_data.len()),
        (&b"here"[..], 168)
    );
    world.nodes[1]
        .answer_alternate(now, peer, AprStatus::INVALID_LID, &[0x02, 0x09], b"no")
        .unwrap();
    let mad = said(&mut world.nodes[1], now);
    wanted[16..18].copy_from_slice(&[0, 0x1a]);
    wanted[24..28].copy_from_slice(&theirs);
    wanted[28..32].copy_from_slice(&ours);
    wanted[32..].fill(0);
    wanted[32..34].copy_from_slice(&[2, 7]);
    wanted[36..38].copy_from_slice(&[2, 9]);
    wanted[108..110].copy_from_slice(b"no");
    assert_eq!(mad, wanted);
    world.nodes[0].handle_mad(now, &path(0), &mad).unwrap();
    let event = world.nodes[0].poll_event().unwrap();
    let EventKind::AlternateResponse {
        status,
        info,
        private_data,
    } = event.kind
    else {
        panic!("{event:?}")
    };
    assert_eq!((status, info), (Some(AprStatus::INVALID_LID), &[2, 9][..]));
    assert_eq!((&private_data[..2], private_data.len()), (&b"no"[..], 148));
    assert_eq!(world.nodes[0].alternate_path(id), Ok(None));
    world.release_all(&[id]);
}

#[test]
fn every_status_arrives_and_only_success_loads() {
    for from in 0..2 {
        let (mut world, id, peer) = world(2);
        let (sender, receiver) = if from == 0 { (id, peer) } else { (peer, id) };
        let mut loaded = None;
        for status in 0..=13 {
            let nth = u16::from(status);
            let now = world.now;
            let path = lid(nth);
            world.nodes[from]
                .load_alternate(now, sender, &path, b"")
                .unwrap();
            assert_eq!(
                world.nodes[from].load_alternate(now, sender, &path, b""),
                Err(CmError::AlternatePathBusy {
                    state: LapState::Sent
                })
            );
            world.run(now + 5 * MS);
            assert_eq!(
                world.events(1 - from).last(),
                Some(&Seen::AlternatePath(seen(path)))
            );
            world.nodes[1 - from]
                .answer_alternate(world.now, receiver, AprStatus(status), &[], &[])
                .unwrap();
            world.run(world.now + 5 * MS);
            assert_eq!(
                world.events(from).last(),
                Some(&Seen::AlternateResponse(Some(status)))
            );
            if status == 0 {
                loaded = Some(path);
            }
            assert_eq!(world.nodes[from].alternate_path(sender), Ok(loaded));
            assert_eq!(
                world.nodes[1 - from].alternate_path(receiver),
                Ok(loaded.map(seen))
            );
            assert_eq!(
                world.nodes[1 - from].answer_alternate(now, receiver, AprStatus(0), &[], &[]),
                Err(CmError::NoAlternatePathAsked)
            );
        }
        assert_eq!(world.sent(from, Attribute::Lap), 14);
        assert!(world.established(0, id) && world.established(1, peer));
        world.release_all(&[id]);
    }
}

/// A lost LAP is repeated, a lost APR is given again, and neither reaches the application twice.
#[test]
fn lost_messages() {
    for lost in [Attribute::Lap, Attribute::Apr] {
        let (mut world, id, peer) = world(3);
        let mut left = 1;
        world.judge = Box::new(move |_, what| {
            if what == lost && left > 0 {
                left -= 1;
                Delivery::Drop
            } else {
                Delivery::Deliver
            }
        });
        world.nodes[0]
            .load_alternate(world.now, id, &lid(1), b"")
            .unwrap();
        let asked = world.run_until(world.now + SECOND, |world| {
            world.events(1).contains(&Seen::AlternatePath(seen(lid(1))))
        });
        assert!(asked, "{lost}");
        world.nodes[1]
            .answer_alternate(world.now, peer, AprStatus::SUCCESS, &[], &[])
            .unwrap();
        world.run(world.now + 10 * SECOND);
        let count = |node: usize, what: &Seen| {
            world
                .events(node)
                .iter()
                .filter(|seen| *seen == what)
                .count()
        };
        assert_eq!(count(0, &Seen::AlternateResponse(Some(0))), 1, "{lost}");
        assert_eq!(count(1, &Seen::AlternatePath(seen(lid(1)))), 1, "{lost}");
        assert_eq!(world.sent(0, Attribute::Lap), 2, "{lost}");
        world.release_all(&[id]);
    }
}

/// No answer: a typed end within the advertised time, and a connection that goes on.
#[test]
fn unanswered_lap_leaves_the_connection_alone() {
    let (mut world, id, peer) = world(4);
    world.nodes[0]
        .load_alternate(world.now, id, &lid(1), b"")
        .unwrap();
    let start = world.now;
    let done = |world: &World| world.events(0).contains(&Seen::AlternateResponse(None));
    // The application does not answer, and the engine is configured not to send MRA.
    world.nodes[1].set_auto_mra(peer, None).unwrap();
    assert!(world.run_until(start + 100 * SECOND, done));
    let took = (world.now - start).as_millis();
    assert!((77_000..78_000).contains(&took), "{took} ms");
    assert!(world.sent(0, Attribute::Lap) >= 16);
    assert_eq!(world.sent(1, Attribute::Mra), 0);
    assert!(world.established(0, id) && world.established(1, peer));
    // A late answer is not taken for one to the next LAP.
    world.nodes[1]
        .answer_alternate(world.now, peer, AprStatus::SUCCESS, &[], &[])
        .unwrap();
    world.run(world.now + 10 * MS);
    assert_eq!(world.nodes[0].alternate_path(id), Ok(None));
    world.nodes[0].disconnect(world.now, id, b"").unwrap();
    world.run(world.now + 10 * SECOND);
    assert_eq!(world.events(0).last(), Some(&Seen::TimewaitExit));
    world.release_all(&[id]);
}

/// The application has not answered: an MRA for the second LAP, and no third one before the time that it asks for.
#[test]
fn mra_for_a_lap() {
    let (mut world, id, peer) = world(5);
    world.nodes[0]
        .load_alternate(world.now, id, &lid(1), b"")
        .unwrap();
    assert_eq!(
        world.nodes[1].mra(peer, 24),
        Err(CmError::NoAlternatePathAsked)
    );
    world.run(world.now + 60 * SECOND);
    assert_eq!(
        (world.sent(0, Attribute::Lap), world.sent(1, Attribute::Mra)),
        (2, 1)
    );
    assert_eq!(world.nodes[0].lap_state(id), Ok(LapState::MraReceived));
    assert_eq!(world.nodes[1].lap_state(peer), Ok(LapState::MraSent));
    world.nodes[1]
        .answer_alternate(world.now, peer, AprStatus::SUCCESS, &[], &[])
        .unwrap();
    world.run(world.now + SECOND);
    assert_eq!(
        world.events(0).last(),
        Some(&Seen::AlternateResponse(Some(0)))
    );
    // At once, when the application says so.
    world.nodes[1]
        .load_alternate(world.now, peer, &lid(2), b"")
        .unwrap();
    world.run(world.now + 5 * MS);
    world.nodes[0].mra(id, 20).unwrap();
    world.run(world.now + 5 * MS);
    assert_eq!(world.nodes[1].lap_state(peer), Ok(LapState::MraReceived));
    world.nodes[0]
        .answer_alternate(world.now, id, AprStatus::REJECTED, &[], &[])
        .unwrap();
    world.run(world.now + 5 * MS);
    assert_eq!(
        world.events(1).last(),
        Some(&Seen::AlternateResponse(Some(3)))
    );
    world.release_all(&[id]);
}

#[test]
fn both_ends_ask_at_once() {
    let (mut world, id, peer) = world(6);
    world.nodes[0]
        .load_alternate(world.now, id, &lid(1), b"")
        .unwrap();
    world.nodes[1]
        .load_alternate(world.now, peer, &lid(2), b"")
        .unwrap();
    world.run_until(world.now + SECOND, |world| {
        world.events(1).contains(&Seen::AlternatePath(seen(lid(1))))
    });
    assert!(world.events(1).contains(&Seen::AlternateResponse(Some(3))));
    world.nodes[1]
        .answer_alternate(world.now, peer, AprStatus::SUCCESS, &[], &[])
        .unwrap();
    world.run(world.now + SECOND);
    assert_eq!(world.nodes[0].alternate_path(id), Ok(Some(lid(1))));
    assert_eq!(world.nodes[1].alternate_path(peer), Ok(Some(seen(lid(1)))));
    world.release_all(&[id]);
}

/// The engine's own answers, without a connection or without a free slot.
#[test]
fn refusals_of_a_lap() {
    let status = |bench: &mut Bench| match bench.said() {
        Message::Apr(apr) => AprStatus(apr.status),
        other => panic!("{other:?}"),
    };
    let lap = |id: ConnectionId, qpn: u32| {
        Message::Lap(Lap {
            local_comm_id: 9,
            remote_comm_id: id.comm_id(),
            remote_qpn: qpn,
            alternate_local_lid: 7,
            ..Lap::ZERO
        })
    };
    let mut bench = server();
    let id = bench.established(9, 0x55);
    bench.deliver(lap(ConnectionId::clone(&id), 0x301)).unwrap();
    assert_eq!(status(&mut bench), AprStatus::INVALID_QPN);
    // RoCE.
    bench.deliver(lap(id, 0x300)).unwrap();
    assert_eq!(status(&mut bench), AprStatus::UNSUPPORTED);
    bench.engine.release(NOW, id).unwrap();
    while bench.say_at(NOW).is_some() {}
    bench
        .deliver(Message::Drep(Drep {
            local_comm_id: 9,
            remote_comm_id: id.comm_id(),
            ..Drep::ZERO
        }))
        .unwrap();
    bench.deliver(lap(id, 0x300)).unwrap();
    assert_eq!(status(&mut bench), AprStatus::INVALID_COMM_ID);
    // One slot, two connections.
    let mut bench = Bench {
        engine: engine_with(Config::new(1, 0xb), 4, 1),
        mad: [0; MAD_LEN],
    };
    bench.engine.listen(SERVICE, 4, false, 77).unwrap();
    let first = bench.established(8, 0x54);
    let id = bench.established(9, 0x55);
    assert_eq!(
        bench
            .engine
            .load_alternate(NOW, first, &AlternatePath::default(), b""),
        Err(CmError::AlternatePathWithoutLid)
    );
    bench
        .engine
        .load_alternate(NOW, first, &lid(1), b"")
        .unwrap();
    bench.said();
    assert_eq!(
        bench.engine.load_alternate(NOW, id, &lid(1), b""),
        Err(CmError::NoAlternateSlots { capacity: 1 })
    );
    bench.deliver(lap(id, 0x300)).unwrap();
    assert_eq!(status(&mut bench), AprStatus::REJECTED);
    // The end of one frees the slot for the other.
    bench.deliver(dreq(first, 8, 0x300)).unwrap();
    assert!(matches!(bench.said(), Message::Drep(_)));
    bench.engine.load_alternate(NOW, id, &lid(1), b"").unwrap();
}

/// A second path from the start: in REQ, accepted or not in REP.
#[test]
fn path_in_the_request() {
    for failover in [
        Failover::Accepted,
        Failover::NotSupported,
        Failover::Rejected,
    ] {
        let config = Config::new(1, 0xa);
        let mut client = engine_with(config, 4, 1);
        let mut bench = Bench {
            engine: engine_with(Config::new(2, 0xb), 4, 1),
            mad: [0; MAD_LEN],
        };
        bench.engine.listen(SERVICE, 4, false, 77).unwrap();
        let alternate = Some(lid(5));
        let offer = ConnectParams {
            alternate,
            ..params()
        };
        let id = client.connect(NOW, &offer).unwrap();
        assert_eq!(
            client.connect(NOW, &offer),
            Err(CmError::NoAlternateSlots { capacity: 1 })
        );
        assert_eq!(client.in_use(), 1);
        let mad = said(&mut client, NOW);
        assert_eq!(mad[24 + 96..24 + 100], [0x01, 0x05, 0x02, 0x05]);
        assert_eq!(mad[24 + 100..24 + 116], [0x11; 16]);
        assert_eq!(mad[24 + 116..24 + 132], [0x22; 16]);
        assert_eq!(
            mad[24 + 132..24 + 140],
            [0xab, 0xcd, 0xe0, 7, 0x5a, 3, 0x98, 18 << 3]
        );
        bench.engine.handle_mad(NOW, &path(1), &mad).unwrap();
        let peer = bench.engine.poll_event().unwrap().connection;
        assert_eq!(bench.engine.alternate_path(peer), Ok(Some(seen(lid(5)))));
        let reply = ReplyParams {
            failover,
            ..ReplyParams::new(3)
        };
        bench.engine.reply(NOW, peer, &reply).unwrap();
        let mad = said(&mut bench.engine, NOW);
        assert_eq!(mad[24 + 26] >> 1 & 3, failover as u8);
        client.handle_mad(NOW, &path(0), &mad).unwrap();
        let accepted = failover == Failover::Accepted;
        assert_eq!(client.alternate_path(id), Ok(accepted.then_some(lid(5))));
        assert_eq!(
            bench.engine.alternate_path(peer),
            Ok(accepted.then_some(seen(lid(5))))
        );
        // There is no slot for a second one: it is established without its path, and its peer gets the refusal.
        let mut other = req(77, 78);
        other.alternate_local_lid = 9;
        bench.deliver(Message::Req(other)).unwrap();
        let second = bench.engine.poll_event().unwrap().connection;
        bench
            .engine
            .reply(NOW, second, &ReplyParams::new(4))
            .unwrap();
        let Message::Rep(rep) = bench.said() else {
            panic!()
        };
        assert_eq!(rep.failover_accepted, Failover::Rejected as u8);
        assert_eq!(bench.engine.alternate_path(second), Ok(None));
    }
}

/// Loss, duplication and delay of LAP, MRA and APR, from either end, with a disconnection at some time: every LAP comes to
/// one end or goes with its connection, both ends agree, nothing stays.
#[test]
fn lossy_pipe() {
    let mut answered = 0;
    let mut counted = 0;
    for seed in seeds(500) {
        let (mut world, id, peer) = world(seed);
        let mut random = Random(seed);
        let mut rng = Random(seed ^ 0xbeef);
        let loss = random.below(40);
        world.judge = Box::new(move |_, _| {
            if rng.percent(loss) {
                Delivery::Drop
            } else if rng.percent(20) {
                Delivery::Twice
            } else if rng.percent(30) {
                Delivery::Late(Duration::from_micros(rng.below(700_000)))
            } else {
                Delivery::Deliver
            }
        });
        for round in 0..4u16 {
            let from = random.below(2) as usize;
            let names = [id, peer];
            let known = world.seen[1 - from].len();
            let begin = world.seen[from].len();
            world.nodes[from]
                .load_alternate(world.now, names[from], &lid(round), b"")
                .unwrap();
            counted += 1;
            let thought = Duration::from_millis(random.below(2000));
            let start = world.now;
            let mut received = None;
            // Sixteen times the pace that an MRA sets: 69 s, and the way.
            let limit = start + 16 * 72 * SECOND;
            let responded = |world: &World| {
                world.seen[from][begin..]
                    .iter()
                    .any(|(_, _, seen)| matches!(seen, Seen::AlternateResponse(_)))
            };
            world.run_until(limit, |world| {
                world.seen[1 - from].len() > known || responded(world)
            });
            if world.seen[1 - from].len() > known {
                received = Some(world.now + thought);
            }
            if let Some(at) = received {
                world.run_until(at, responded);
                let status = AprStatus(if random.percent(50) { 0 } else { 3 });
                let _ = world.nodes[1 - from].answer_alternate(
                    world.now,
                    names[1 - from],
                    status,
                    &[],
                    &[],
                );
            }
            assert!(
                world.run_until(limit, responded),
                "seed {seed}, round {round}: no end"
            );
            let all: Vec<_> = world.seen[from][begin..].to_vec();
            assert_eq!(all.len(), 1, "seed {seed}: {all:?}");
            assert_eq!(
                world.seen[1 - from].len(),
                known + usize::from(received.is_some()),
                "seed {seed}, round {round}: {:?}",
                &world.seen[1 - from][known..]
            );
            if let Seen::AlternateResponse(Some(status)) = all[0].2 {
                answered += 1;
                if status == 0 {
                    let ours = world.nodes[from].alternate_path(names[from]).unwrap();
                    let theirs = world.nodes[1 - from]
                        .alternate_path(names[1 - from])
                        .unwrap();
                    assert_eq!(ours, Some(lid(round)), "seed {seed}");
                    assert_eq!(theirs, ours.map(seen), "seed {seed}");
                }
            } else {
                // The answer may still be on its way, or the peer may not have answered yet.
                break;
            }
        }
        if random.percent(50) {
            let _ = world.nodes[0].load_alternate(world.now, id, &lid(9), b"");
            world.run(world.now + Duration::from_millis(random.below(400)));
        }
        world.nodes[1].disconnect(world.now, peer, b"").unwrap();
        world.run(world.now + 300 * SECOND);
        for node in 0..2 {
            let count = |wanted: fn(&Seen) -> bool| {
                world
                    .events(node)
                    .iter()
                    .filter(|seen| wanted(seen))
                    .count()
            };
            assert_eq!(
                count(|seen| matches!(seen, Seen::Disconnected(_))),
                1,
                "seed {seed}"
            );
            assert_eq!(count(|seen| *seen == Seen::TimewaitExit), 1, "seed {seed}");
        }
        world.release_all(&[id]);
    }
    assert!(answered * 100 >= counted * 95, "{answered} of {counted}");
}
