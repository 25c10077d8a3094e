//! Every message in every state: lost, doubled, late, or from another time; and everything that either application may do
//! meanwhile. What has to come out is always the same: connected and agreed, or one typed end in the advertised time; one
//! TimewaitExit per Disconnected; nothing left.
//!
//! `BAREVERBS_SEEDS=n` takes n times as many seeds, `BAREVERBS_SEED=n` begins with another one.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::common::*;
use bareverbs_cm::engine::*;
use bareverbs_cm::mad::*;

const SECOND: Duration = Duration::from_secs(1);
/// Sixteen times what an MRA may ask for, and the way.
const ADVERTISED: Duration = Duration::from_secs(16 * 72);

fn infiniband(seed: u64, connections: usize) -> World {
    let mut world = World::new(seed, 1);
    for node in 0..2 {
        let mut config = *world.nodes[node].config();
        config.auto_drep = !seed.is_multiple_of(5);
        world.nodes[node] = engine_with(config, connections, 2);
    }
    world.nodes[1].listen(SERVICE, u32::MAX, false, 0).unwrap();
    world
}

/// Place of an event in the order of a connection's events.
fn rank(seen: &Seen) -> u8 {
    match seen {
        Seen::Request(_) => 0,
        Seen::Reply(_) => 1,
        Seen::Established => 2,
        Seen::AlternatePath(_) | Seen::AlternateResponse(_) => 3,
        Seen::Rejected(..) | Seen::Unreachable(_) => 4,
        Seen::Disconnected(_) => 5,
        Seen::TimewaitExit => 6,
    }
}

/// The events of one connection, as its application got them, are consistent.
fn check_history(history: &[(Duration, Seen)], released: Option<Duration>, context: &str) {
    let ranks: Vec<_> = history.iter().map(|(_, seen)| rank(seen)).collect();
    assert!(ranks.is_sorted(), "{context}: {history:?}");
    for once in [0, 1, 2, 4, 5, 6] {
        let count = ranks.iter().filter(|rank| **rank == once).count();
        assert!(count <= 1, "{context}: {history:?}");
    }
    let has = |rank| ranks.contains(&rank);
    assert!(!(has(4) && (has(5) || has(6))), "{context}: {history:?}");
    assert!(has(5) || !has(6), "{context}: {history:?}");
    match released {
        None => assert_eq!(has(5), has(6), "{context}: {history:?}"),
        Some(at) => assert!(
            history.iter().all(|(when, _)| *when <= at),
            "{context}: {history:?} after the release at {at:?}"
        ),
    }
}

/// An application's action at some time.
#[derive(Debug, Clone, Copy)]
enum Action {
    Accept,
    Reject,
    Mra,
    Disconnect,
    Release,
    Load,
    AnswerLoad,
    Notify,
}

fn act(world: &mut World, node: usize, id: ConnectionId, action: Action, qpn: u32) {
    let now = world.now;
    let engine = &mut world.nodes[node];
    let lid = AlternatePath {
        local_lid: 1,
        ..AlternatePath::default()
    };
    // Whether it makes sense just now is the engine's to say.
    let _ = match action {
        Action::Accept => engine.reply(now, id, &ReplyParams::new(qpn)),
        Action::Reject => engine.reject(now, id, RejectReason(28), b"i", b"p"),
        Action::Mra => engine.mra(id, 16),
        Action::Disconnect => engine.disconnect(now, id, b"d"),
        Action::Release => engine.release(now, id),
        Action::Load => engine.load_alternate(now, id, &lid, b""),
        Action::AnswerLoad => engine.answer_alternate(now, id, AprStatus::SUCCESS, &[], &[]),
        Action::Notify => engine.notify_established(id).map(|_| ()),
    };
}

#[test]
fn random_histories() {
    let mut connected = 0;
    let mut all = 0;
    for seed in seeds(2500) {
        let mut random = Random(seed);
        let mut rng = Random(!seed);
        let mut world = infiniband(seed, 8);
        let (loss, twice, late) = (random.below(40), random.below(40), random.below(60));
        // Some seeds lose one kind of message most of the time.
        let often_lost = random.percent(30).then(|| random.below(12));
        world.judge = Box::new(move |_, what| {
            let preferred = often_lost.is_some_and(|kind| what as u64 == 0x10 + kind);
            if rng.percent(if preferred { 80 } else { loss }) {
                Delivery::Drop
            } else if rng.percent(twice) {
                Delivery::Twice
            } else if rng.percent(late) {
                let scale = [3, 300, 6000][rng.below(3) as usize];
                Delivery::Late(Duration::from_micros(rng.below(scale * 1000)))
            } else {
                Delivery::Deliver
            }
        });
        world.accept_after = random
            .percent(70)
            .then(|| Duration::from_millis(random.below(1500)));
        let mut ids = vec![];
        let mut released: [BTreeMap<u32, Duration>; 2] = Default::default();
        for qpn in 0..2 {
            let mut params = ConnectParams {
                local_qpn: 0x100 + qpn,
                ..params()
            };
            if random.percent(40) {
                params.timers.early = None;
            }
            params.timers.max_retries = [2, 15][random.below(2) as usize];
            ids.push(world.nodes[0].connect(world.now, &params).unwrap());
        }
        let mut qpn = 0x900;
        for _ in 0..random.below(10) {
            let scale = [3, 400, 5000][random.below(3) as usize];
            let at = world.now + Duration::from_micros(random.below(scale * 1000));
            world.run(at);
            let node = random.below(2) as usize;
            let known = if node == 0 {
                ids.clone()
            } else {
                let mut known: Vec<_> = world.seen[1].iter().map(|(_, id, _)| *id).collect();
                known.dedup();
                known
            };
            let Some(&id) = known.get(random.below(known.len().max(1) as u64) as usize) else {
                continue;
            };
            let action = match random.below(20) {
                0..5 => Action::Accept,
                5 => Action::Reject,
                6..8 => Action::Mra,
                8..11 => Action::Disconnect,
                11 => Action::Release,
                12..15 => Action::Load,
                15..19 => Action::AnswerLoad,
                _ => Action::Notify,
            };
            qpn += 1;
            act(&mut world, node, id, action, qpn);
            if matches!(action, Action::Release) {
                let at = world.now;
                released[node].entry(id.comm_id()).or_insert(at);
            }
        }
        // Requests that were not answered so far are answered now: requests without any answer are another test's.
        world.run(world.now + 2 * SECOND);
        let waiting: Vec<_> = world.seen[1].iter().map(|(_, id, _)| *id).collect();
        for id in waiting {
            qpn += 1;
            act(&mut world, 1, id, Action::Accept, qpn);
            act(&mut world, 1, id, Action::AnswerLoad, qpn);
        }
        let settled = |world: &World| {
            ids.iter().all(|id| {
                !matches!(
                    world.nodes[0].state(*id),
                    Ok(State::ReqSent
                        | State::MraReqReceived
                        | State::RepReceived
                        | State::MraRepSent)
                )
            })
        };
        let limit = world.now + ADVERTISED;
        assert!(
            world.run_until(limit, settled),
            "seed {seed}: {:?}",
            ids.iter()
                .map(|id| world.nodes[0].state(*id))
                .collect::<Vec<_>>()
        );
        world.run(world.now + 8 * SECOND);
        for id in &ids {
            all += 1;
            if !world.established(0, *id) {
                continue;
            }
            connected += 1;
            // The peer, if it is still there, has the same numbers.
            let ours = world.nodes[0].qp_params(*id).unwrap();
            for (_, peer, _) in &world.seen[1] {
                if let Ok(theirs) = world.nodes[1].qp_params(*peer)
                    && world.established(1, *peer)
                    && theirs.dest_qpn == 0x100 + ids.iter().position(|i| i == id).unwrap() as u32
                {
                    assert_eq!(
                        (ours.rq_psn, ours.sq_psn),
                        (theirs.sq_psn, theirs.rq_psn),
                        "seed {seed}"
                    );
                }
            }
            act(&mut world, 0, *id, Action::Disconnect, 0);
        }
        world.run(world.now + ADVERTISED);
        // The passive ends whose other end is gone: theirs to end too, and to answer where they are asked to.
        for (_, peer, _) in world.seen[1].clone() {
            act(&mut world, 1, peer, Action::Disconnect, 0);
        }
        for id in &ids {
            act(&mut world, 0, *id, Action::Disconnect, 0);
        }
        world.run(world.now + ADVERTISED);
        for (node, released) in released.iter().enumerate() {
            let mut histories = BTreeMap::<u32, Vec<_>>::new();
            for (at, id, seen) in &world.seen[node] {
                histories
                    .entry(id.comm_id())
                    .or_default()
                    .push((*at, seen.clone()));
            }
            for (id, history) in histories {
                let context = format!("seed {seed}, node {node}");
                check_history(&history, released.get(&id).copied(), &context);
            }
        }
        world.release_all(&ids);
    }
    // Most of what was not released or refused on purpose gets through.
    assert!(connected * 2 > all, "{connected} of {all} connected");
}

/// A whole connection, step by step; each step ends with silence.
const STEPS: usize = 8;

fn step(world: &mut World, nth: usize, ids: &mut Vec<ConnectionId>) {
    let id = ids.first().copied();
    let peer = world.peer_id();
    match (nth, id, peer) {
        (0, ..) => ids.push(world.connect()),
        // Comes again, so that there is an MRA.
        (1, ..) => world.run(world.now + 300 * MS),
        (2, _, Some(peer)) => act(world, 1, peer, Action::Accept, 0x77),
        // What came back was noted and not confirmed; now it is.
        (3, Some(id), _) => {
            world.run(world.now + 300 * MS);
            let _ = world.nodes[0].ready(id, b"rtu");
        }
        (4, Some(id), _) => act(world, 0, id, Action::Load, 0),
        (5, _, Some(peer)) => act(world, 1, peer, Action::AnswerLoad, 0),
        (6, Some(id), _) => act(world, 0, id, Action::Disconnect, 0),
        (7, ..) => world.run(world.now + 10 * SECOND),
        _ => {}
    }
    world.run(world.now + 5 * MS);
}

/// All messages of a connection, with their addressees.
fn record(seed: u64) -> Vec<(usize, [u8; MAD_LEN])> {
    let mut world = infiniband(seed, 4);
    world.accept_after = None;
    world.confirm = false;
    let mut ids = vec![];
    for nth in 0..STEPS {
        step(&mut world, nth, &mut ids);
    }
    let mut all = world.received;
    all.dedup();
    all
}

/// Each message of a connection, and a refusal of each, is received again, or too early, after each step of the same
/// connection: since the identifiers are drawn from the seed, they are those of the connection that it is received in.
#[test]
fn every_message_after_every_step() {
    let (mut histories, mut ended_early) = (0, 0);
    for seed in [1, 2, 5] {
        let mut messages = record(seed);
        let kinds: std::collections::BTreeSet<_> = messages
            .iter()
            .map(|(_, mad)| Mad::new(mad).unwrap().attribute() as u16)
            .collect();
        // REQ, MRA, REP, RTU, DREQ, DREP, LAP, APR.
        assert_eq!(kinds.len(), 8, "seed {seed}: {kinds:?}");
        // The refusals that either end might say.
        let rep = messages.iter().find_map(|(to, mad)| {
            let mad = Mad::new(mad).ok()?;
            Rep::parse(&mad)
                .ok()
                .map(|rep| (*to, rep.local_comm_id, rep.remote_comm_id))
        });
        let (to_client, theirs, ours) = rep.expect("a REP");
        for (to, local, remote) in [(to_client, theirs, ours), (1 - to_client, ours, theirs)] {
            for message in 0..3 {
                for reason in [10, 28] {
                    let mut mad = [0; MAD_LEN];
                    Rej {
                        local_comm_id: local,
                        remote_comm_id: remote,
                        message,
                        reason,
                        ..Rej::ZERO
                    }
                    .emit(9, &mut mad)
                    .unwrap();
                    messages.push((to, mad));
                }
            }
        }
        for after in 0..STEPS {
            for (which, (to, mad)) in messages.iter().enumerate() {
                for times in [1, 3] {
                    let context =
                        format!("seed {seed}, message {which} {times} times after step {after}");
                    let mut world = infiniband(seed, 4);
                    world.accept_after = None;
                    world.confirm = false;
                    let mut ids = vec![];
                    for nth in 0..STEPS {
                        step(&mut world, nth, &mut ids);
                        if nth == after {
                            for _ in 0..times {
                                let now = world.now;
                                let _ = world.nodes[*to].handle_mad(now, &path(*to), mad);
                                world.run(now + 5 * MS);
                            }
                        }
                    }
                    histories += 1;
                    // The application does what is left to do, and everything has an end.
                    world.run(world.now + ADVERTISED);
                    for (_, peer, _) in world.seen[1].clone() {
                        act(&mut world, 1, peer, Action::Disconnect, 0);
                    }
                    world.run(world.now + ADVERTISED);
                    for node in 0..2 {
                        let mut by_name = BTreeMap::<u32, Vec<_>>::new();
                        for (at, id, seen) in &world.seen[node] {
                            by_name
                                .entry(id.comm_id())
                                .or_default()
                                .push((*at, seen.clone()));
                        }
                        for history in by_name.values() {
                            check_history(history, None, &context);
                        }
                    }
                    let whole = world.events(0).contains(&Seen::TimewaitExit);
                    ended_early += u32::from(!whole);
                    let is_rej = Mad::new(mad).unwrap().attribute() == Attribute::Rej;
                    // A repetition never ends a connection; only a refusal, or an end that came too early, may.
                    let is_end = matches!(
                        Mad::new(mad).unwrap().attribute(),
                        Attribute::Dreq | Attribute::Drep
                    );
                    assert!(
                        whole || is_rej || is_end,
                        "{context}: {:?}",
                        world.events(0)
                    );
                    world.release_all(&ids);
                }
            }
        }
    }
    println!("{histories} connections, {ended_early} of them ended before they were connected");
    assert!(ended_early > 0 && ended_early * 4 < histories);
}
