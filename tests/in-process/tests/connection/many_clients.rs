//! Many connections at once, and listeners that have had enough of them.

use crate::support::*;
use bareverbs_cm::mad::Attribute;
use bareverbs_cm::rdma::{
    ACCEPT_PRIVATE_DATA_MAX, CONNECT_PRIVATE_DATA_MAX, CmId, ConnParam, EventType, IdState,
    REJECT_PRIVATE_DATA_MAX, SendFlags,
};
use bareverbs_core::WcStatus;
use connectx_model::link::fault::{Action, Rates};

/// A connection of the listening side: its id, what its client calls itself, and what it receives into.
struct Guest<'d> {
    id: CmId,
    number: usize,
    memory: bareverbs_core::Buffer<'d, bareverbs_in_process::ModelPlatform>,
}

/// Answers every request that is there with a QP and a receive.
fn accept_all<'d>(nodes: &mut Nodes<'_, '_, 'd>, server: usize, guests: &mut Vec<Guest<'d>>) {
    while let Some(request) = nodes.take(server, EventType::ConnectRequest) {
        let cm = &mut nodes.cms[server];
        let id = request.id;
        cm.create_qp(id, None, &mut init()).expect("a QP");
        let memory = cm.reg_msgs(id, 16).expect("memory");
        cm.post_recv(id, 1, memory.slice(..16).unwrap())
            .expect("posted");
        let card = request.private_data().first_chunk().expect("a number");
        let param = ConnParam {
            private_data: card,
            ..ConnParam::default()
        };
        cm.accept(id, Some(&param)).expect("accepted");
        guests.push(Guest {
            id,
            number: u32::from_be_bytes(*card) as usize,
            memory,
        });
    }
}

/// `count` clients connect at the same time, each sends a message, and then all disconnect at the same time: the
/// connecting side, the listening side, or both.
fn many_clients(count: u32, gsi_depth: u32, rates: Rates, what: &str) {
    let size = Size {
        connections: count as usize,
        gsi_depth,
    };
    let world = world(1);
    let ((), after) = with_nodes(&world, 1, size, |nodes| {
        let listener = nodes.listener(1, count);
        let mut clients = Vec::new();
        for _ in 0..count {
            let id = nodes.resolved(0).expect("a way");
            nodes.cms[0].create_qp(id, None, &mut init()).expect("a QP");
            clients.push(id);
        }
        world.with_wire(|wire| wire.set_rates(rates));
        let start = world.now();
        for (number, id) in clients.iter().enumerate() {
            let param = ConnParam {
                private_data: &(number as u32).to_be_bytes(),
                ..ConnParam::default()
            };
            nodes.cms[0].connect(*id, Some(&param)).expect("asked");
        }
        let mut memory = Vec::new();
        let mut up = [0; 2];
        nodes
            .until("all to be connected", TIMEOUT, |nodes| {
                accept_all(nodes, 1, &mut memory);
                for (node, up) in up.iter_mut().enumerate() {
                    while let Some(event) = nodes.take(node, EventType::Established) {
                        *up += 1;
                        if node == 0 {
                            // The answer is that to its own request.
                            let number = clients.iter().position(|id| *id == event.id);
                            let number = number.expect("one of them") as u32;
                            assert_eq!(event.private_data()[..4], number.to_be_bytes(), "{what}");
                        }
                    }
                }
                nodes.first_error().map_or(Ok(()), Err)?;
                Ok((up == [count; 2]).then_some(()))
            })
            .unwrap_or_else(|failure| panic!("{what}: {failure}, {up:?} are up"));
        println!("{what}: {count} connected after {:?}", world.now() - start);

        for (number, id) in clients.iter().enumerate() {
            let text = format!("number {number:9}");
            nodes.cms[0]
                .post_send_inline(*id, 7, text.as_bytes(), SendFlags::SIGNALED)
                .expect("posted");
        }
        let mut left: Vec<_> = memory.iter().collect();
        nodes
            .until("all messages", TIMEOUT, |nodes| {
                left.retain(|guest| {
                    let endpoint = nodes.cms[1].endpoint(guest.id).expect("a QP");
                    let cq = endpoint.recv_cq.expect("a CQ");
                    let Some(completion) = cq.poll().expect("a good CQ") else {
                        return true;
                    };
                    assert_eq!(completion.status(), WcStatus::Success, "{what}");
                    let mut text = [0; 16];
                    guest.memory.copy_out(0, &mut text).expect("inside");
                    let expected = format!("number {:9}", guest.number);
                    assert_eq!(text, expected.as_bytes(), "{what}");
                    false
                });
                Ok(left.is_empty().then_some(()))
            })
            .unwrap_or_else(|failure| panic!("{what}: {failure}"));
        let mut numbers: Vec<_> = memory.iter().map(|guest| guest.number).collect();
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..count as usize), "{what}");

        let start = world.now();
        for guest in &memory {
            if guest.number % 3 != 0 {
                nodes.cms[0]
                    .disconnect(clients[guest.number])
                    .expect("hung up");
            }
            if guest.number % 3 != 1 {
                nodes.cms[1].disconnect(guest.id).expect("hung up");
            }
        }
        let mut over = [0; 2];
        let mut rested = [0; 2];
        nodes
            .until("all to be disconnected", TIMEOUT, |nodes| {
                for node in 0..2 {
                    while let Some(event) = nodes.take(node, EventType::Disconnected) {
                        assert_eq!(event.status, 0, "{what}");
                        over[node] += 1;
                        // Again is no error, and sends nothing.
                        nodes.cms[node].disconnect(event.id).expect("hung up");
                        nodes.cms[node].destroy_qp(event.id).expect("destroyed");
                    }
                    while nodes.take(node, EventType::TimewaitExit).is_some() {
                        rested[node] += 1;
                    }
                }
                Ok((rested == [count; 2]).then_some(()))
            })
            .unwrap_or_else(|failure| panic!("{what}: {failure}, {over:?} are over"));
        assert_eq!(over, [count; 2], "{what}");
        println!("{what}: all gone after {:?}", world.now() - start);
        memory.clear();
        finish(nodes, None, 1, listener, what);
    });
    assert_orderly(&world, &after, what);
}

#[test]
fn a_hundred_and_fifty_at_once() {
    many_clients(150, 512, Rates::default(), "many clients");
}

/// QP1 has eight buffers for a burst of sixty requests: most of them are lost, and come again.
#[test]
fn many_clients_and_a_small_receive_queue() {
    many_clients(60, 8, Rates::default(), "a small receive queue");
}

#[test]
fn many_clients_on_a_bad_cable() {
    let rates = Rates {
        loss: 50,
        duplicate: 50,
        reorder: 50,
        max_delay: MS,
        ..Rates::default()
    };
    many_clients(60, 128, rates, "a bad cable");
}

fn asking(nodes: &mut Nodes<'_, '_, '_>, client: usize) -> CmId {
    let id = nodes.resolved(client).expect("a way");
    let cm = &mut nodes.cms[client];
    cm.create_qp(id, None, &mut init()).expect("a QP");
    cm.connect(id, None).expect("asked");
    id
}

#[test]
fn a_full_backlog() {
    let what = "backlog";
    let size = Size {
        connections: 12,
        gsi_depth: 64,
    };
    let world = world(1);
    let ((), after) = with_nodes(&world, 1, size, |nodes| {
        let listener = nodes.listener(1, 4);
        let clients: Vec<_> = (0..10)
            .map(|_| {
                let id = nodes.resolved(0).expect("a way");
                nodes.cms[0].create_qp(id, None, &mut init()).expect("a QP");
                id
            })
            .collect();
        for id in &clients {
            nodes.cms[0].connect(*id, None).expect("asked");
        }
        // The managers work, but the server's application does not fetch the requests.
        let mut refused = Vec::new();
        for _ in 0..10 {
            for cm in &mut nodes.cms {
                cm.poll(cm.now()).expect("polled");
            }
            world.advance(MS);
            let channel = nodes.channels[0];
            while let Some(event) = nodes.cms[0].try_get_cm_event(channel).expect("a channel") {
                assert_eq!(
                    (event.event, event.status),
                    (EventType::Rejected, 3),
                    "{what}"
                );
                refused.push(event.id);
            }
        }
        assert_eq!(refused, clients[4..], "{what}");
        let mut memory = Vec::new();
        let mut up = Vec::new();
        nodes
            .until("the others", SECOND, |nodes| {
                accept_all(nodes, 1, &mut memory);
                up.extend(nodes.take(0, EventType::Established).map(|event| event.id));
                nodes.first_error().map_or(Ok(()), Err)?;
                Ok((up.len() == 4).then_some(()))
            })
            .expect("connected");
        assert_eq!(up, clients[..4], "{what}");
        for id in refused {
            nodes.cms[0].destroy_id(id).expect("destroyed");
        }
        memory.clear();
        finish(nodes, Some(0), 1, listener, what);
    });
    assert_orderly(&world, &after, what);
}

/// Requests without a place are repeated until they have one, if the manager does not refuse them.
#[test]
fn a_full_backlog_that_says_nothing() {
    let what = "silent backlog";
    let size = Size {
        connections: 12,
        gsi_depth: 64,
    };
    let world = world(1);
    let ((), after) = with_nodes(&world, 1, size, |nodes| {
        nodes.cms[1].engine_config_mut().reject_overflow = false;
        let listener = nodes.listener(1, 4);
        let clients: Vec<_> = (0..10).map(|_| asking(nodes, 0)).collect();
        // The managers work, but the server's application does not fetch the requests.
        for _ in 0..100 {
            for cm in &mut nodes.cms {
                cm.poll(cm.now()).expect("polled");
            }
            world.advance(10 * MS);
            let channel = nodes.channels[0];
            let event = nodes.cms[0].try_get_cm_event(channel).expect("a channel");
            assert!(event.is_none(), "{what}");
        }
        let mut memory = Vec::new();
        let mut up = Vec::new();
        nodes
            .until("all of them", 10 * SECOND, |nodes| {
                accept_all(nodes, 1, &mut memory);
                up.extend(nodes.take(0, EventType::Established).map(|event| event.id));
                nodes.first_error().map_or(Ok(()), Err)?;
                Ok((up.len() == clients.len()).then_some(()))
            })
            .expect("connected");
        memory.clear();
        finish(nodes, Some(0), 1, listener, what);
    });
    assert_orderly(&world, &after, what);
}

/// The server has no id left: the rest is rejected, and gets the reason; destroyed ids can be used again.
#[test]
fn more_clients_than_the_server_has_ids() {
    let what = "no ids";
    let size = Size {
        connections: 6,
        gsi_depth: 64,
    };
    let world = world(1);
    let ((), after) = with_nodes(&world, 1, size, |nodes| {
        let listener = nodes.listener(1, 64);
        // Two of the server's ids are taken.
        let taken = [0, 1].map(|_| nodes.resolved(1).expect("a way"));
        let clients: Vec<_> = (0..6).map(|_| asking(nodes, 0)).collect();
        let mut refused = Vec::new();
        nodes
            .until("refusals", SECOND, |nodes| {
                while let Some(event) = nodes.take(0, EventType::Rejected) {
                    assert_eq!(event.status, 3, "no resources");
                    refused.push(event.id);
                }
                Ok((refused.len() == 2).then_some(()))
            })
            .expect("refusals");
        assert_eq!(refused, clients[4..]);
        for id in refused {
            nodes.cms[0].destroy_id(id).expect("destroyed");
        }
        for id in taken {
            nodes.cms[1].destroy_id(id).expect("destroyed");
        }
        asking(nodes, 0);
        asking(nodes, 0);
        let mut memory = Vec::new();
        let mut up = 0;
        nodes
            .until("the others", SECOND, |nodes| {
                accept_all(nodes, 1, &mut memory);
                up += usize::from(nodes.take(0, EventType::Established).is_some());
                nodes.first_error().map_or(Ok(()), Err)?;
                Ok((up == 6).then_some(()))
            })
            .expect("free ids again");
        memory.clear();
        finish(nodes, Some(0), 1, listener, what);
    });
    assert_orderly(&world, &after, what);
}

/// The listener is destroyed while requests wait for an answer: those that were fetched go on, the others cause no late
/// event.
#[test]
fn a_listener_that_goes_while_requests_wait() {
    let what = "gone";
    let world = world(1);
    let ((), after) = with_nodes(&world, 1, Size::default(), |nodes| {
        let listener = nodes.listener(1, 8);
        let first = asking(nodes, 0);
        let request = nodes
            .expect(1, EventType::ConnectRequest, SECOND)
            .expect(what);
        nodes.cms[1].destroy_id(listener).expect("destroyed");
        let second = asking(nodes, 0);
        let event = nodes
            .until("a refusal", SECOND, |nodes| {
                Ok(nodes.take(0, EventType::Rejected))
            })
            .expect(what);
        assert_eq!((event.id, event.status), (second, 8));
        let cm = &mut nodes.cms[1];
        cm.create_qp(request.id, None, &mut init()).expect("a QP");
        cm.accept(request.id, None).expect("accepted");
        nodes.cms[0].destroy_id(second).expect("destroyed");
        let event = nodes
            .until("a connection", SECOND, |nodes| {
                Ok(nodes.take(0, EventType::Established))
            })
            .expect(what);
        assert_eq!(event.id, first);
        nodes.wind_down(Some(0), what);
    });
    assert_orderly(&world, &after, what);
}

/// The request's id is destroyed without an answer, or its device's manager goes: the peer is notified.
#[test]
fn a_request_that_is_dropped() {
    for accepted in [false, true] {
        let what = format!("accepted {accepted}");
        let world = world(1);
        let ((), after) = with_nodes(&world, 1, Size::default(), |nodes| {
            let listener = nodes.listener(1, 8);
            // RTU never arrives, so that the server stays in the middle of the handshake.
            world.with_wire(|wire| {
                wire.rule(0, u32::MAX, Action::Drop, |_, frame| {
                    carries(frame, Attribute::Rtu)
                });
            });
            let id = asking(nodes, 0);
            let request = nodes
                .expect(1, EventType::ConnectRequest, SECOND)
                .expect(&what);
            if accepted {
                let cm = &mut nodes.cms[1];
                cm.create_qp(request.id, None, &mut init()).expect("a QP");
                cm.accept(request.id, None).expect("accepted");
                nodes
                    .expect(0, EventType::Established, SECOND)
                    .expect("a REP");
            }
            nodes.cms[1].destroy_id(request.id).expect("destroyed");
            let wanted = if accepted {
                EventType::Disconnected
            } else {
                EventType::Rejected
            };
            let event = nodes
                .until("the end", SECOND, |nodes| Ok(nodes.take(0, wanted)))
                .unwrap_or_else(|failure| panic!("{what}: {failure}"));
            assert_eq!(event.id, id, "{what}");
            finish(nodes, Some(1), 1, listener, &what);
        });
        assert_orderly(&world, &after, &what);
    }
}

/// The asking side withdraws before it was answered.
#[test]
fn a_client_that_goes_before_it_is_answered() {
    let what = "withdrawn";
    let world = world(1);
    let ((), after) = with_nodes(&world, 1, Size::default(), |nodes| {
        let listener = nodes.listener(1, 8);
        let id = asking(nodes, 0);
        let request = nodes
            .expect(1, EventType::ConnectRequest, SECOND)
            .expect(what);
        nodes.cms[0].destroy_id(id).expect("destroyed");
        let event = nodes
            .until("the withdrawal", SECOND, |nodes| {
                Ok(nodes.take(1, EventType::Rejected))
            })
            .expect(what);
        // REJ 4: timeout, the way of saying so before the other end's ID is known.
        assert_eq!((event.id, event.status), (request.id, 4));
        let cm = &mut nodes.cms[1];
        cm.create_qp(request.id, None, &mut init()).expect("a QP");
        cm.accept(request.id, None)
            .expect_err("there is nothing to accept any more");
        finish(nodes, Some(0), 1, listener, what);
    });
    assert_orderly(&world, &after, what);
}

/// Both nodes ask each other at the same time.
#[test]
fn both_at_once() {
    let what = "crossing";
    let world = world(1);
    let ((), after) = with_nodes(&world, 1, Size::default(), |nodes| {
        let listeners = [0, 1].map(|node| nodes.listener(node, 8));
        asking(nodes, 0);
        asking(nodes, 1);
        let mut memory = [Vec::new(), Vec::new()];
        let mut up = [0; 2];
        nodes
            .until("four ends", SECOND, |nodes| {
                for node in 0..2 {
                    accept_all(nodes, node, &mut memory[node]);
                    while nodes.take(node, EventType::Established).is_some() {
                        up[node] += 1;
                    }
                }
                nodes.first_error().map_or(Ok(()), Err)?;
                Ok((up == [2; 2]).then_some(()))
            })
            .expect("two connections");
        drop(memory);
        nodes.cms[0].destroy_id(listeners[0]).expect("destroyed");
        finish(nodes, Some(0), 1, listeners[1], what);
    });
    assert_orderly(&world, &after, what);
}

/// Private data of every message, as long as it can be, and the states that go with it.
#[test]
fn private_data_goes_round() {
    let what = "private data";
    let bytes: Vec<u8> = (1..=255).collect();
    let world = world(1);
    let ((), after) = with_nodes(&world, 1, Size::default(), |nodes| {
        let listener = nodes.listener(1, 8);
        for refuse in [true, false] {
            let id = nodes.resolved(0).expect("a way");
            let cm = &mut nodes.cms[0];
            cm.create_qp(id, None, &mut init()).expect("a QP");
            let mut param = ConnParam {
                private_data: &bytes[..CONNECT_PRIVATE_DATA_MAX + 1],
                ..ConnParam::default()
            };
            cm.connect(id, Some(&param)).expect_err("too long");
            assert_eq!(cm.state(id), Ok(IdState::RouteResolved));
            param.private_data = &bytes[..CONNECT_PRIVATE_DATA_MAX];
            cm.connect(id, Some(&param)).expect("asked");
            let request = nodes
                .expect(1, EventType::ConnectRequest, SECOND)
                .expect(what);
            assert_eq!(request.private_data(), &bytes[..CONNECT_PRIVATE_DATA_MAX]);
            let cm = &mut nodes.cms[1];
            if refuse {
                cm.reject(request.id, &bytes[..REJECT_PRIVATE_DATA_MAX + 1])
                    .expect_err("too long");
                cm.reject(request.id, &bytes[..REJECT_PRIVATE_DATA_MAX])
                    .expect("refused");
                let event = nodes
                    .until("a refusal", SECOND, |nodes| {
                        Ok(nodes.take(0, EventType::Rejected))
                    })
                    .expect(what);
                assert_eq!(event.private_data(), &bytes[..REJECT_PRIVATE_DATA_MAX]);
            } else {
                cm.create_qp(request.id, None, &mut init()).expect("a QP");
                param.private_data = &bytes[..ACCEPT_PRIVATE_DATA_MAX + 1];
                cm.accept(request.id, Some(&param)).expect_err("too long");
                param.private_data = &bytes[..ACCEPT_PRIVATE_DATA_MAX];
                cm.accept(request.id, Some(&param)).expect("accepted");
                let event = nodes.expect(0, EventType::Established, SECOND).expect(what);
                assert_eq!(event.private_data(), &bytes[..ACCEPT_PRIVATE_DATA_MAX]);
            }
        }
        finish(nodes, Some(1), 1, listener, what);
    });
    assert_orderly(&world, &after, what);
}

/// Slots, QPs, CQs and keys come back: many more connections than there are slots, one after the other.
#[test]
fn one_after_the_other() {
    let what = "again and again";
    let size = Size {
        connections: 2,
        gsi_depth: 16,
    };
    let world = world(1);
    let ((), after) = with_nodes(&world, 1, size, |nodes| {
        let listener = nodes.listener(1, 2);
        let objects = [0, 1].map(|node| world.with_model(node, |model| model.objects()));
        let memory = [0, 1].map(|node| world.accounting(node));
        for round in 0..60usize {
            let ends = nodes.connect(0).expect(what);
            nodes.exchange(&ends, round as u64).expect(what);
            nodes.disconnect(ends, round & 1).expect(what);
            nodes.events.clear();
            for node in 0..2 {
                let now = world.with_model(node, |model| model.objects());
                assert_eq!(now, objects[node], "{what}, round {round}");
                assert_eq!(
                    world.accounting(node),
                    memory[node],
                    "{what}, round {round}"
                );
            }
        }
        finish(nodes, None, 1, listener, what);
    });
    assert_orderly(&world, &after, what);
}
