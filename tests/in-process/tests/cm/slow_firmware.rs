//! Cards whose firmware takes its time: calls and polls wait for no command, messages are answered meanwhile, answers come
//! late, out of order or as refusals, and ids and cards go with commands under way. What the application sees is what
//! librdmacm's would.

use std::time::Duration;

use bareverbs_cm::mad::Attribute;
use bareverbs_cm::rdma::*;
use bareverbs_core::Mtu;
use bareverbs_core::firmware_cmds::opcode::Opcode;
use connectx_model::fault::{CommandFault, CommandRule};
use connectx_model::syndrome::Status;

use crate::pair::{MS, Pair, SECOND, objects, qp};
use crate::support::Random;

const US: Duration = Duration::from_micros(1);
const COMMAND: Duration = Duration::from_micros(300);

fn slow() -> Pair {
    Pair::on_cards(Mtu::B4096, |card| connectx_model::Config {
        command_time: COMMAND,
        ..card
    })
}

/// The next commands with this opcode are refused by the firmware of a node.
pub(crate) fn refuse(pair: &Pair, node: usize, opcode: Opcode) {
    let fault = CommandFault::Fail {
        status: Status::InternalError,
        syndrome: 0xabc,
    };
    pair.world.with_model(node, |model| {
        let rules = &mut model.faults_mut().commands;
        rules.push(CommandRule::next(opcode.number(), fault));
    });
}

/// Does something that has to return at once.
#[track_caller]
fn at_once<T>(pair: &mut Pair, work: impl FnOnce(&mut Pair) -> T) -> T {
    let then = pair.world.now();
    let result = work(pair);
    assert_eq!(pair.world.now(), then, "it has waited");
    result
}

/// The messages that a node has sent since the last call.
fn sent(pair: &mut Pair, node: usize) -> Vec<(Duration, Attribute)> {
    std::iter::from_fn(|| pair.cms[node].next_trace())
        .filter(|entry| entry.sent)
        .map(|entry| {
            assert!(!entry.repeated, "{entry:?}");
            (entry.time, entry.message)
        })
        .collect()
}

/// Lets both ends go on for this long; no poll waits.
fn pass(pair: &mut Pair, time: Duration) {
    let end = pair.world.now() + time;
    while pair.world.now() < end {
        at_once(pair, Pair::poll);
        pair.world.advance(10 * US);
    }
}

/// Twenty connections at once, from creating their QPs on, on cards with three places for commands and with all: no call and
/// no poll waits, REP goes after the passive side's QP is in RTS, and nothing is sent twice.
#[test]
fn nothing_waits_for_the_firmware() {
    for slots in [2, 5] {
        let mut pair = Pair::on_cards(Mtu::B4096, |card| connectx_model::Config {
            command_time: COMMAND,
            log_cmdq_size: slots,
            ..card
        });
        pair.listener_of(PortSpace::Tcp, 32);
        let clients: Vec<_> = (0..12).map(|_| pair.resolved(PortSpace::Tcp)).collect();
        let held = [objects(&pair, 0), objects(&pair, 1)];
        for node in 0..2 {
            sent(&mut pair, node);
        }
        let start = pair.world.now();
        at_once(&mut pair, |pair| {
            for &id in &clients {
                let mut init = qp();
                pair.cms[0].start_qp(id, None, &mut init).unwrap();
                assert!(init.cap.max_send_wr >= 8);
                assert_eq!(pair.cms[0].try_finish_qp(id).unwrap(), None);
                pair.cms[0].connect(id, None).unwrap();
            }
        });
        let mut established = [0, 0];
        let mut servers = Vec::new();
        while established != [12, 12] {
            pass(&mut pair, 10 * US);
            assert!(pair.world.now() - start < SECOND, "{established:?}");
            for (node, established) in established.iter_mut().enumerate() {
                while let Some(event) = pair.cms[node]
                    .try_get_cm_event(pair.channels[node])
                    .unwrap()
                {
                    if event.event == EventType::ConnectRequest {
                        servers.push(event.id);
                        at_once(&mut pair, |pair| {
                            pair.cms[1].start_qp(event.id, None, &mut qp()).unwrap();
                            let param = ConnParam {
                                private_data: b"welcome",
                                ..ConnParam::default()
                            };
                            pair.cms[1].accept(event.id, Some(&param)).unwrap();
                            let again = pair.cms[1].accept(event.id, None);
                            assert!(matches!(again, Err(RdmaError::WrongState { .. })));
                        });
                        continue;
                    }
                    assert_eq!((event.event, event.status), (EventType::Established, 0));
                    if node == 0 {
                        assert!(event.private_data().starts_with(b"welcome"));
                    }
                    *established += 1;
                }
            }
        }
        let active = sent(&mut pair, 0);
        let first = |messages: &[(Duration, Attribute)], what| {
            let found = messages.iter().find(|(_, message)| *message == what);
            found.expect("it was sent").0
        };
        // CQ, QP and INIT; then at the other end the same, RTR and RTS; then RTR and RTS.
        let (req, rtu) = (
            first(&active, Attribute::Req),
            first(&active, Attribute::Rtu),
        );
        let passive = sent(&mut pair, 1);
        let rep = first(&passive, Attribute::Rep);
        assert!(req - start >= 3 * COMMAND);
        assert!(rep - req >= 5 * COMMAND);
        assert!(rtu - rep >= 2 * COMMAND);
        if slots == 5 {
            let waited = rtu - start;
            assert!(waited < 11 * COMMAND, "{waited:?}");
        }
        let port = pair.cms[0].route(clients[3]).unwrap().local.unwrap().port();
        let theirs = servers.iter().find(|id| {
            let peer = pair.cms[1].route(**id).unwrap().peer.unwrap();
            peer.port() == port
        });
        let theirs = *theirs.expect("its other end");
        pair.say((0, clients[3]), (1, theirs), b"over a slow card");
        for (&ours, &theirs) in clients.iter().zip(&servers) {
            at_once(&mut pair, |pair| pair.cms[0].disconnect(ours).unwrap());
            at_once(&mut pair, |pair| pair.cms[1].disconnect(theirs).unwrap());
        }
        pass(&mut pair, 20 * COMMAND);
        for (ours, theirs) in clients.into_iter().zip(servers) {
            at_once(&mut pair, |pair| pair.cms[0].destroy_id(ours).unwrap());
            at_once(&mut pair, |pair| pair.cms[1].destroy_id(theirs).unwrap());
        }
        // Each side has four commands for each, and a place for two at least.
        pass(&mut pair, 30 * COMMAND);
        assert_eq!([objects(&pair, 0), objects(&pair, 1)], held);
    }
}

/// Each command of an accept or of its answer is refused late: the side gets `ConnectError` with the errno, and
/// keeps the error itself; the other one a refusal.
#[test]
fn a_refusal_of_the_firmware_is_an_event() {
    for node in 0..2 {
        for opcode in [Opcode::Init2rtrQp, Opcode::Rtr2rtsQp] {
            let what = format!("{opcode} of node {node}");
            let mut pair = slow();
            pair.listener();
            let held = [objects(&pair, 0), objects(&pair, 1)];
            let ours = pair.client();
            pair.cms[0].connect(ours, None).unwrap();
            let theirs = pair.expect(1, EventType::ConnectRequest).id;
            pair.cms[1].create_qp(theirs, None, &mut qp()).unwrap();
            refuse(&pair, node, opcode);
            at_once(&mut pair, |pair| pair.cms[1].accept(theirs, None).unwrap());
            let failed = pair.expect(node, EventType::ConnectError);
            assert_eq!(failed.status, -errno::EIO, "{what}");
            let error = pair.cms[node].last_error(failed.id).unwrap();
            assert!(
                matches!(error, Some(RdmaError::ModifyQp(_))),
                "{what}: {error:?}"
            );
            let other = pair.expect(1 - node, EventType::Rejected);
            assert_eq!(other.status, 28, "{what}");
            for (node, id) in [ours, theirs].into_iter().enumerate() {
                pair.cms[node].destroy_id(id).unwrap();
            }
            pass(&mut pair, 10 * MS);
            assert_eq!([objects(&pair, 0), objects(&pair, 1)], held, "{what}");
        }
    }
}

/// An end disconnects while its QP is on its way to RTS: REP or RTU does not come, and both ends hear that it is over.
#[test]
fn disconnected_before_the_message() {
    for node in 0..2 {
        let mut pair = slow();
        pair.listener();
        let held = [objects(&pair, 0), objects(&pair, 1)];
        let ours = pair.client();
        pair.cms[0].connect(ours, None).unwrap();
        let theirs = pair.expect(1, EventType::ConnectRequest).id;
        pair.cms[1].create_qp(theirs, None, &mut qp()).unwrap();
        pair.cms[1].accept(theirs, None).unwrap();
        let ids = [ours, theirs];
        if node == 0 {
            let is_rep = |entry: TraceEntry| !entry.sent && entry.message == Attribute::Rep;
            while !std::iter::from_fn(|| pair.cms[0].next_trace()).any(is_rep) {
                pass(&mut pair, COMMAND / 3);
            }
        }
        at_once(&mut pair, |pair| {
            pair.cms[node].disconnect(ids[node]).unwrap()
        });
        let failed = pair.expect(node, EventType::ConnectError);
        assert_eq!((failed.id, failed.status), (ids[node], -errno::EINVAL));
        assert_eq!(pair.expect(1 - node, EventType::Rejected).status, 28);
        for (node, id) in ids.into_iter().enumerate() {
            pair.cms[node].destroy_id(id).unwrap();
        }
        pass(&mut pair, 10 * MS);
        assert_eq!([objects(&pair, 0), objects(&pair, 1)], held, "{node}");
    }
}

/// A refusal of the firmware on a synchronous id: the error is the call's.
#[test]
fn a_refusal_is_the_error_of_a_synchronous_call() {
    for opcode in [Opcode::Init2rtrQp, Opcode::Rtr2rtsQp] {
        let mut pair = slow();
        pair.listener();
        let ours = pair.client();
        pair.cms[0].connect(ours, None).unwrap();
        let theirs = pair.expect(1, EventType::ConnectRequest).id;
        pair.cms[1].migrate_id(theirs, None).unwrap();
        pair.cms[1].create_qp(theirs, None, &mut qp()).unwrap();
        refuse(&pair, 1, opcode);
        let error = pair.cms[1].accept(theirs, None).unwrap_err();
        assert!(matches!(error, RdmaError::ModifyQp(_)), "{error:?}");
        pair.expect(0, EventType::Rejected);
    }
}

/// A QP that cannot be made: `connect` and `accept` that were called before end in `ConnectError`, and the id can have
/// another one.
#[test]
fn a_qp_that_cannot_be_made() {
    for opcode in [Opcode::CreateCq, Opcode::CreateQp, Opcode::Rst2initQp] {
        for node in 0..2 {
            let what = format!("{opcode} of node {node}");
            let mut pair = slow();
            pair.listener();
            let ours = pair.resolved(PortSpace::Tcp);
            let held = [objects(&pair, 0), objects(&pair, 1)];
            if node == 0 {
                refuse(&pair, 0, opcode);
            }
            pair.cms[0].start_qp(ours, None, &mut qp()).unwrap();
            let again = pair.cms[0].start_qp(ours, None, &mut qp());
            assert!(matches!(again, Err(RdmaError::QpExists)));
            pair.cms[0].connect(ours, None).unwrap();
            let failed = if node == 0 {
                pair.expect(0, EventType::ConnectError)
            } else {
                let theirs = pair.expect(1, EventType::ConnectRequest).id;
                refuse(&pair, 1, opcode);
                pair.cms[1].start_qp(theirs, None, &mut qp()).unwrap();
                pair.cms[1].accept(theirs, None).unwrap();
                let failed = pair.expect(1, EventType::ConnectError);
                pair.expect(0, EventType::Rejected);
                pair.cms[0].destroy_qp(ours).unwrap();
                failed
            };
            assert_eq!(failed.status, -errno::EIO, "{what}");
            let error = pair.cms[node].try_finish_qp(failed.id).unwrap_err();
            assert_eq!(pair.cms[node].last_error(failed.id).unwrap(), Some(error));
            pass(&mut pair, 10 * MS);
            assert_eq!([objects(&pair, 0), objects(&pair, 1)], held, "{what}");
            pair.cms[node]
                .create_qp(failed.id, None, &mut qp())
                .unwrap();
            assert_eq!(pair.cms[node].try_finish_qp(failed.id).unwrap(), Some(()));
            pair.cms[node].destroy_id(failed.id).unwrap();
            assert_eq!(
                pair.cms[node].try_finish_qp(failed.id),
                Err(RdmaError::NoSuchId)
            );
        }
    }
}

/// Ids go at any moment of their set-up, with commands under way: the other end sees an event or goes on, and nothing is
/// left.
#[test]
fn ids_go_with_commands_under_way() {
    let empty = slow();
    let empty = [objects(&empty, 0), objects(&empty, 1)];
    for node in 0..2 {
        for moment in 0..36 {
            let what = format!("node {node}, after {moment} thirds of a command");
            let mut pair = slow();
            let listener = pair.listener();
            let ours = pair.resolved(PortSpace::Tcp);
            pair.cms[0].start_qp(ours, None, &mut qp()).unwrap();
            pair.cms[0].connect(ours, None).unwrap();
            let mut ids = [Some(ours), None];
            let mut seen = Vec::new();
            for _ in 0..moment {
                pass(&mut pair, COMMAND / 3);
                while let Some(event) = pair.cms[1].try_get_cm_event(pair.channels[1]).unwrap() {
                    if event.event == EventType::ConnectRequest {
                        ids[1] = Some(event.id);
                        pair.cms[1].start_qp(event.id, None, &mut qp()).unwrap();
                        pair.cms[1].accept(event.id, None).unwrap();
                    }
                }
            }
            let Some(id) = ids[node].take() else {
                continue;
            };
            if moment % 2 == 0 {
                // Disconnected first: what is under way is called off, or ended.
                let _ = pair.cms[node].disconnect(id);
            }
            pair.cms[node].destroy_id(id).unwrap();
            let end = pair.world.now() + 20 * MS;
            while pair.world.now() < end {
                pass(&mut pair, MS);
                while let Some(event) = pair.cms[1 - node]
                    .try_get_cm_event(pair.channels[1 - node])
                    .unwrap()
                {
                    if event.event == EventType::ConnectRequest {
                        ids[1] = Some(event.id);
                    }
                    seen.push(event.event);
                }
            }
            // What the other end had to answer, or had, is over.
            let over = [
                EventType::Rejected,
                EventType::Disconnected,
                EventType::Unreachable,
                EventType::ConnectError,
            ];
            if ids[1 - node].is_some() {
                assert!(
                    seen.iter().any(|event| over.contains(event)),
                    "{what}: {seen:?}"
                );
            }
            if let Some(id) = ids[1 - node] {
                pair.cms[1 - node].destroy_id(id).unwrap();
            }
            pair.cms[1].destroy_id(listener).unwrap();
            pass(&mut pair, 10 * MS);
            for cm in &pair.cms {
                assert_eq!(cm.ids_in_use(), 0, "{what}");
            }
            assert_eq!([objects(&pair, 0), objects(&pair, 1)], empty, "{what}");
        }
    }
}

/// A synchronous listener with QPs for its connections: asking for one does not wait, and a listener that goes takes the one
/// under way with it.
#[test]
fn requests_of_a_synchronous_listener() {
    for goes in [false, true] {
        let mut pair = slow();
        let held = objects(&pair, 1);
        let any = AddrInfo::listen(([0, 0, 0, 0], crate::pair::PORT));
        let listener = pair.cms[1].create_ep(&any, None, Some(&mut qp())).unwrap();
        pair.cms[1].listen(listener, 4).unwrap();
        let ours = pair.client();
        pair.cms[0].connect(ours, None).unwrap();
        pass(&mut pair, 50 * US);
        let first = at_once(&mut pair, |pair| pair.cms[1].try_get_request(listener));
        assert_eq!(first.unwrap(), None, "its QP is being created");
        if goes {
            pair.cms[1].destroy_ep(listener).unwrap();
            pair.expect(0, EventType::Rejected);
            assert_eq!(pair.cms[1].ids_in_use(), 0);
            // The CQs go after they have come.
            pass(&mut pair, 6 * COMMAND);
            assert_eq!(objects(&pair, 1), held);
            continue;
        }
        pass(&mut pair, 4 * COMMAND);
        let theirs = pair.cms[1].try_get_request(listener).unwrap().unwrap();
        assert_eq!(
            pair.cms[1].event(theirs).unwrap().unwrap().event,
            EventType::ConnectRequest
        );
        pair.cms[1]
            .migrate_id(theirs, Some(pair.channels[1]))
            .unwrap();
        pair.cms[1].accept(theirs, None).unwrap();
        pair.expect(0, EventType::Established);
        pair.expect(1, EventType::Established);
        // The next request fails: its error is the call's, and the other end is refused.
        let other = pair.client();
        refuse(&pair, 1, Opcode::CreateQp);
        pair.cms[0].connect(other, None).unwrap();
        let error = pair.cms[1].get_request(listener).unwrap_err();
        assert!(matches!(error, RdmaError::CreateQp(_)), "{error:?}");
        pair.expect(0, EventType::Rejected);
    }
}

/// The card leaves with commands of connections under way: one event for each id, no call hangs, and all goes.
#[test]
fn the_card_leaves() {
    for moment in 0..12 {
        let mut pair = slow();
        pair.listener();
        let ours = pair.resolved(PortSpace::Tcp);
        pair.cms[0].start_qp(ours, None, &mut qp()).unwrap();
        pair.cms[0].connect(ours, None).unwrap();
        for _ in 0..moment {
            pass(&mut pair, COMMAND);
            while let Some(event) = pair.cms[1].try_get_cm_event(pair.channels[1]).unwrap() {
                if event.event == EventType::ConnectRequest {
                    pair.cms[1].start_qp(event.id, None, &mut qp()).unwrap();
                    pair.cms[1].accept(event.id, None).unwrap();
                }
            }
        }
        let node = moment % 2;
        pair.world.with_model(node, connectx_model::Model::vanish);
        let end = pair.world.now() + 60 * SECOND;
        while pair.cms[node].poll(pair.cms[node].now()).is_ok() {
            assert!(pair.world.now() < end, "the error was not detected");
            pair.world.advance(10 * MS);
        }
        let ids = pair.cms[node].ids_in_use();
        let mut removed = 0;
        while let Some(event) = pair.cms[node]
            .try_get_cm_event(pair.channels[node])
            .unwrap()
        {
            removed += usize::from(event.event == EventType::DeviceRemoval);
            let _ = pair.cms[node].destroy_id(event.id);
        }
        assert_eq!(removed, ids, "moment {moment}");
        assert_eq!(pair.cms[node].ids_in_use(), 0, "moment {moment}");
    }
}

/// Many connections, whose commands are answered in drawn orders, and refused now and then: each call has one outcome at
/// each end, and nothing is left.
#[test]
fn any_order_of_answers() {
    let mut outcomes = [0, 0];
    for seed in 0..40 {
        println!("seed {seed}");
        let mut random = Random(seed);
        let mut pair = slow();
        let listener = pair.listener_of(PortSpace::Tcp, 32);
        let held = [objects(&pair, 0), objects(&pair, 1)];
        for node in 0..2 {
            pair.world.with_model(node, |model| {
                let rules = &mut model.faults_mut().commands;
                for nth in 0..80 {
                    let late = CommandFault::Delay(US * random.below(2000) as u32);
                    let failed = CommandFault::Fail {
                        status: Status::InternalError,
                        syndrome: 0xabc,
                    };
                    let opcodes = [
                        Opcode::CreateCq,
                        Opcode::CreateQp,
                        Opcode::Rst2initQp,
                        Opcode::Init2rtrQp,
                        Opcode::Rtr2rtsQp,
                    ];
                    let opcode = opcodes[random.below(5)];
                    rules.push(match random.below(24) {
                        0 => CommandRule {
                            skip: random.below(8) as u32,
                            ..CommandRule::next(opcode.number(), failed)
                        },
                        _ => CommandRule::nth(nth, late),
                    });
                }
            });
        }
        let mut waiting = [Vec::new(), Vec::new()];
        let mut ids = [Vec::new(), Vec::new()];
        for _ in 0..8 {
            let id = pair.resolved(PortSpace::Tcp);
            ids[0].push(id);
            if pair.cms[0].start_qp(id, None, &mut qp()).is_ok()
                && pair.cms[0].connect(id, None).is_ok()
            {
                waiting[0].push(id);
            }
        }
        let end = pair.world.now() + 20 * SECOND;
        while pair.world.now() < end && waiting.iter().any(|ids| !ids.is_empty()) {
            pass(&mut pair, 100 * US);
            for node in 0..2 {
                while let Some(event) = pair.cms[node]
                    .try_get_cm_event(pair.channels[node])
                    .unwrap()
                {
                    let id = event.id;
                    match event.event {
                        EventType::ConnectRequest => {
                            ids[1].push(id);
                            if pair.cms[1].start_qp(id, None, &mut qp()).is_ok()
                                && pair.cms[1].accept(id, None).is_ok()
                            {
                                waiting[1].push(id);
                            } else {
                                let _ = pair.cms[1].reject(id, b"");
                            }
                        }
                        EventType::Established
                        | EventType::Rejected
                        | EventType::ConnectError
                        | EventType::Unreachable => {
                            let at = waiting[node].iter().position(|other| *other == id);
                            let at = at.unwrap_or_else(|| panic!("not asked for: {event:?}"));
                            waiting[node].swap_remove(at);
                            outcomes[usize::from(event.event == EventType::Established)] += 1;
                        }
                        EventType::Disconnected | EventType::TimewaitExit => {}
                        _ => panic!("{event:?}"),
                    }
                }
            }
        }
        assert!(waiting.iter().all(Vec::is_empty), "no outcome: {waiting:?}");
        for (node, ids) in ids.iter_mut().enumerate() {
            let cm = &mut pair.cms[node];
            for id in ids.drain(..) {
                cm.destroy_id(id).unwrap();
            }
            let stats = cm.stats();
            assert_eq!(stats.repeated, 0, "node {node}");
        }
        pair.cms[1].destroy_id(listener).unwrap();
        pass(&mut pair, 10 * MS);
        assert_eq!([objects(&pair, 0), objects(&pair, 1)], held);
    }
    assert!(outcomes.iter().all(|&count| count > 50), "{outcomes:?}");
}
