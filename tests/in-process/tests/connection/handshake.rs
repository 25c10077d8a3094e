//! Each message of the handshake lost.

use std::time::Duration;

use crate::support::*;
use bareverbs_cm::engine::Timers;
use bareverbs_cm::mad::Attribute;
use bareverbs_cm::rdma::{CmId, ConnParam, EventType, errno};
use connectx_model::link::fault::Action;

/// The first repetition of an unanswered message comes after this.
const EARLY: Duration = Duration::from_millis(256);
/// When the first repetition may come: the manager moves it by up to a quarter.
const EARLIEST: std::ops::Range<Duration> = Duration::from_millis(192)..Duration::from_millis(320);
/// Times that a message is sent with these timers, and how long the other end has each time.
const TRIES: u32 = 6;
const INTERVAL: Duration = Duration::from_nanos(4096 << 18);
const TIMERS: Timers = Timers {
    remote_response: 18,
    local_response: 18,
    max_retries: 5,
    early: Some(EARLY),
};

#[test]
fn nothing_lost() {
    for (client, closer) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let what = format!("client {client}, closer {closer}");
        let world = world(1);
        let (outcome, after) = with_nodes(&world, 1, Size::default(), |nodes| {
            let outcome = converse(nodes, client, closer, 7, &what);
            for cm in &nodes.cms {
                assert_eq!(
                    (cm.stats().repeated, cm.stats().duplicates),
                    (0, 0),
                    "{what}"
                );
            }
            outcome
        });
        outcome.unwrap_or_else(|failure| panic!("{what}: {failure}"));
        assert_orderly(&world, &after, &what);
    }
}

#[test]
fn each_message_lost_once_in_each_direction() {
    use Attribute::{Drep, Dreq, Rep, Req, Rtu};
    for lost in [Req, Rep, Rtu, Dreq, Drep] {
        for (client, closer) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let what = format!("{lost} lost, client {client}, closer {closer}");
            let world = world(1);
            let (outcome, after) = with_nodes(&world, 1, Size::default(), |nodes| {
                world.with_wire(|wire| {
                    wire.rule(0, 1, Action::Drop, move |_, frame| carries(frame, lost))
                });
                let start = world.now();
                let outcome = converse_in_time(nodes, client, closer, &what);
                assert_eq!(world.with_wire(|wire| wire.report().dropped), 1, "{what}");
                let took = world.now() - start;
                let repeated: u64 = nodes.cms.iter().map(|cm| cm.stats().repeated).sum();
                // A DREQ of the active side says as well as an RTU that it was connected.
                let replaced = lost == Rtu && closer == client;
                assert_eq!(
                    repeated == 0,
                    replaced,
                    "{what}: {repeated} repetitions in {took:?}"
                );
                outcome
            });
            outcome.unwrap_or_else(|failure| panic!("{what}: {failure}"));
            assert_orderly(&world, &after, &what);
        }
    }
}

/// A conversation in which one repetition is enough for each phase.
fn converse_in_time(
    nodes: &mut Nodes<'_, '_, '_>,
    client: usize,
    closer: usize,
    what: &str,
) -> Result<(), Failure> {
    let listener = nodes.listener(1 - client, 4);
    let world = nodes.world;
    let start = world.now();
    let ends = nodes.connect(client)?;
    let set_up = world.now() - start;
    assert!(
        set_up < EARLIEST.end + 50 * MS,
        "{what}: connected after {set_up:?}"
    );
    nodes.exchange(&ends, 3)?;
    let start = world.now();
    nodes.disconnect(ends, closer)?;
    let over = world.now() - start;
    assert!(
        over < 2 * EARLIEST.end + 50 * MS,
        "{what}: over after {over:?}"
    );
    finish(nodes, None, 1 - client, listener, what);
    Ok(())
}

fn lose(world: &bareverbs_in_process::World, times: u32, lost: Attribute) {
    world.with_wire(|wire| wire.rule(0, times, Action::Drop, move |_, frame| carries(frame, lost)));
}

/// A client with a QP that has asked for a connection.
fn asking(nodes: &mut Nodes<'_, '_, '_>, client: usize) -> CmId {
    let id = nodes.resolved(client).expect("a way");
    let cm = &mut nodes.cms[client];
    cm.create_qp(id, None, &mut init()).expect("a QP");
    cm.connect(id, None).expect("asked");
    id
}

#[test]
fn a_refusal_lost_once_is_repeated() {
    for client in [0, 1] {
        for listening in [true, false] {
            let what = format!("client {client}, listening {listening}");
            let world = world(1);
            let ((), after) = with_nodes(&world, 1, Size::default(), |nodes| {
                let listener = nodes.listener(1 - client, 4);
                if !listening {
                    nodes.cms[1 - client]
                        .destroy_id(listener)
                        .expect("destroyed");
                }
                lose(&world, 1, Attribute::Rej);
                let start = world.now();
                let id = asking(nodes, client);
                let event = nodes
                    .until("a refusal", SECOND, |nodes| {
                        // To the server a repeated request is a new one: the first is over and done with.
                        while let Some(request) = nodes.take(1 - client, EventType::ConnectRequest)
                        {
                            nodes.cms[1 - client]
                                .reject(request.id, b"not you")
                                .expect("refused");
                        }
                        Ok(nodes.take(client, EventType::Rejected))
                    })
                    .unwrap_or_else(|failure| panic!("{what}: {failure}"));
                assert_eq!(event.id, id, "{what}");
                let took = world.now() - start;
                assert!(
                    took < EARLIEST.end + 50 * MS,
                    "{what}: refused after {took:?}"
                );
                assert!(took > EARLIEST.start, "{what}: the REJ was not lost");
                assert_eq!(nodes.cms[client].stats().repeated, 1, "{what}");
                if listening {
                    assert_eq!(event.status, 28, "{what}");
                    assert_eq!(&event.private_data()[..8], b"not you\0", "{what}");
                    finish(nodes, Some(1 - client), 1 - client, listener, &what);
                } else {
                    assert_eq!(event.status, 8, "{what}");
                    nodes.wind_down(Some(client), &what);
                }
            });
            assert_orderly(&world, &after, &what);
        }
    }
}

/// The asking side gives up on a REP that came: its REJ is lost, and the REP comes again.
#[test]
fn a_lost_refusal_of_a_reply_is_repeated() {
    for client in [0, 1] {
        let what = format!("client {client}");
        let server = 1 - client;
        let world = world(1);
        let ((), after) = with_nodes(&world, 1, Size::default(), |nodes| {
            let listener = nodes.listener(server, 4);
            // Without a QP the REP waits for the application.
            let id = nodes.resolved(client).expect("a way");
            let param = ConnParam {
                qp_num: 0x77,
                ..ConnParam::default()
            };
            nodes.cms[client].connect(id, Some(&param)).expect("asked");
            let end = nodes.accept_bare(server).expect("accepted");
            nodes
                .expect(client, EventType::ConnectResponse, SECOND)
                .expect("a REP");
            lose(&world, 1, Attribute::Rej);
            nodes.cms[client].destroy_id(id).expect("destroyed");
            let event = nodes
                .until("a refusal", SECOND, |nodes| {
                    Ok(nodes.take(server, EventType::Rejected))
                })
                .unwrap_or_else(|failure| panic!("{what}: {failure}"));
            assert_eq!(event.id, end, "{what}");
            assert_eq!(world.with_wire(|wire| wire.report().dropped), 1, "{what}");
            nodes.open[client].clear();
            finish(nodes, Some(server), server, listener, &what);
        });
        assert_orderly(&world, &after, &what);
    }
}

/// A message that never arrives: the side that waits for the answer gives up, neither earlier nor later than its
/// timers.
#[test]
fn a_message_that_is_always_lost() {
    use Attribute::{Drep, Dreq, Rep, Req};
    for lost in [Req, Rep, Drep, Dreq] {
        for client in [0, 1] {
            let what = format!("{lost} always lost, client {client}");
            let server = 1 - client;
            let world = world(1);
            let ((), after) = with_nodes(&world, 1, Size::default(), |nodes| {
                lose(&world, u32::MAX, lost);
                nodes.timers = Some(TIMERS);
                let start = world.now();
                let listener = nodes.listener(server, 4);
                let first = match nodes.connect(client) {
                    Ok(ends) => {
                        assert!([Drep, Dreq].contains(&lost), "{what}");
                        nodes.exchange(&ends, 5).expect(&what);
                        nodes.cms[client]
                            .disconnect(ends[client].id)
                            .expect("asked");
                        let event = nodes
                            .until("the end", TIMEOUT, |nodes| {
                                Ok(nodes.take(client, EventType::Disconnected))
                            })
                            .expect(&what);
                        assert_eq!(event.status, -errno::ETIMEDOUT, "{what}");
                        // The peer is notified or not; no keep-alive detects it.
                        let notified = nodes.take(server, EventType::Disconnected).is_some();
                        assert_eq!(notified, lost == Drep, "{what}");
                        Some(client)
                    }
                    Err(failure) => {
                        assert!([Req, Rep].contains(&lost), "{what}: {failure}");
                        let Failure::Event { event, status, .. } = failure else {
                            panic!("{what}: {failure}");
                        };
                        assert_eq!(
                            (event, status),
                            (EventType::Unreachable, -errno::ETIMEDOUT),
                            "{what}"
                        );
                        failure.node()
                    }
                };
                let took = world.now() - start;
                // On top of what was negotiated comes the time that a message travels.
                assert!(
                    took >= (TRIES - 1) * INTERVAL,
                    "{what}: gave up after {took:?}"
                );
                assert!(
                    took < 2 * TRIES * INTERVAL,
                    "{what}: gave up after {took:?}"
                );
                let tries = world.with_wire(|wire| wire.report().dropped);
                assert!(tries >= u64::from(TRIES), "{what}: {tries} tries");
                finish(nodes, first, server, listener, &what);
            });
            assert_orderly(&world, &after, &what);
        }
    }
}
