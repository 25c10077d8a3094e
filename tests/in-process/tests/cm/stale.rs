//! A host that comes back after its process was killed: its QPs have the numbers that they had, and the other end
//! still has connections with them (REJ 10).

use std::collections::BTreeSet;

use crate::keep::keep;
use crate::pair::*;
use bareverbs_cm::mad::Attribute;
use bareverbs_cm::rdma::{self, *};
use bareverbs_core::{Buffer, Cqs, Device, PageChunks, Qps, Srqs, WcStatus};
use bareverbs_in_process::{Builder, ModelPlatform, World};
use connectx_model::Config as Card;

/// The same as `pair::device`, with room for some hundred connections.
fn device(world: &World, node: usize) -> &'static Device<'static, ModelPlatform> {
    let resources = keep(bareverbs_core::Resources::<
        Qps<512>,
        Cqs<1024>,
        Srqs<2>,
        PageChunks<4096>,
    >::new());
    let addresses = ["fe80::1".parse().unwrap(), ip(node)];
    let config = bareverbs_core::Config::DEFAULT;
    keep(world.open(node, config, resources.storage(), &addresses))
}

fn manager(devices: [&'static Device<'static, ModelPlatform>; 2], node: usize, seed: u64) -> Cm {
    let neighbours = vec![(ip(1 - node), devices[1 - node].mac().unwrap())];
    let storage = keep(rdma::Resources::<Ids<ModelPlatform, 256>, Channels<1>>::new());
    let config = rdma::Config {
        trace: true,
        gsi_depth: 512,
        ..rdma::Config::new(seed)
    };
    let table = StaticNeighbours(keep(neighbours));
    RdmaCm::new(devices[node], table, config, storage.storage()).expect("QP1")
}

fn pair() -> Pair {
    let builder = Builder::new().function(Card::new(1)).function(Card::new(2));
    let world = builder.stepped();
    let devices = [device(&world, 0), device(&world, 1)];
    let mut cms = [0, 1].map(|node| manager(devices, node, node as u64 + 1));
    let channels = [0, 1].map(|node| cms[node].create_event_channel().unwrap());
    Pair {
        world,
        cms,
        channels,
    }
}

/// Kills a node and starts it again: nothing is left of it but what the other one remembers.
fn restart(pair: &mut Pair, node: usize, seed: u64) {
    let mut devices = [0, 1].map(|node| pair.cms[node].device());
    devices[node] = device(&pair.world, node);
    let cm = manager(devices, node, seed);
    // The device was reset under the old one, whose DREQs would go to the new one.
    std::mem::forget(std::mem::replace(&mut pair.cms[node], cm));
    pair.channels[node] = pair.cms[node].create_event_channel().unwrap();
}

fn qpn(pair: &mut Pair, id: CmId) -> u32 {
    pair.cms[0].endpoint(id).unwrap().qp.qpn().number()
}

/// A client's connection with the receive that it posted before it connects, whose number is the id's place.
struct Waiting {
    id: CmId,
    buffer: Buffer<'static, ModelPlatform>,
}

/// Ids of node 0 that have a receive posted and have begun to connect.
fn connecting(pair: &mut Pair, connections: usize) -> Vec<Waiting> {
    let waiting = Vec::from_iter((0..connections).map(|place| {
        let id = pair.client();
        let buffer = pair.cms[0].reg_msgs(id, 64).unwrap();
        let cm = &mut pair.cms[0];
        cm.post_recv(id, place as u64, buffer.slice(..64).unwrap())
            .unwrap();
        Waiting { id, buffer }
    }));
    for (place, client) in waiting.iter().enumerate() {
        let number = place.to_le_bytes();
        let param = ConnParam {
            private_data: &number,
            ..ConnParam::default()
        };
        pair.cms[0].connect(client.id, Some(&param)).unwrap();
    }
    waiting
}

/// Serves until every client is connected, and nothing else has happened to one: their ids at node 1. `ended` counts the
/// old connections that node 1 hears to be over.
fn served(pair: &mut Pair, clients: &[Waiting], ended: &mut usize) -> Vec<CmId> {
    let mut theirs = vec![None; clients.len()];
    let (mut established, end) = ([0, 0], pair.world.now() + 10 * SECOND);
    while established != [clients.len(); 2] {
        assert!(pair.world.now() < end, "{established:?} are connected");
        pair.poll();
        while let Some(event) = pair.cms[0].try_get_cm_event(pair.channels[0]).unwrap() {
            assert_eq!(event.event, EventType::Established, "{event:?}");
            established[0] += 1;
        }
        while let Some(event) = pair.cms[1].try_get_cm_event(pair.channels[1]).unwrap() {
            match event.event {
                EventType::ConnectRequest => {
                    let mut number = [0; 8];
                    number.copy_from_slice(&event.private_data()[..8]);
                    theirs[usize::from_le_bytes(number)] = Some(event.id);
                    pair.cms[1].create_qp(event.id, None, &mut qp()).unwrap();
                    pair.cms[1].accept(event.id, None).unwrap();
                }
                EventType::Established => established[1] += 1,
                EventType::Disconnected => {
                    *ended += 1;
                    pair.cms[1].destroy_id(event.id).unwrap();
                }
                _ => panic!("{event:?}"),
            }
        }
        pair.world.advance(MS / 2);
    }
    Vec::from_iter(theirs.into_iter().flatten())
}

/// A message to every client arrives in the receive that was posted before it connected.
fn talk(pair: &mut Pair, clients: &[Waiting], theirs: &[CmId]) {
    for (place, (client, &server)) in clients.iter().zip(theirs).enumerate() {
        let text = format!("for number {place:3}");
        pair.cms[1]
            .post_send_inline(server, 1, text.as_bytes(), SendFlags::SIGNALED)
            .unwrap();
        let end = pair.world.now() + SECOND;
        let received = pair.cms[0].get_recv_comp_until(client.id, end).unwrap();
        assert_eq!(
            (received.wr_id, received.status),
            (place as u64, WcStatus::Success)
        );
        let mut bytes = vec![0; text.len()];
        client.buffer.copy_out(0, &mut bytes).unwrap();
        assert_eq!(bytes, text.as_bytes());
    }
}

/// REQs that node 0 sent.
fn requests(pair: &mut Pair) -> usize {
    let cm = &mut pair.cms[0];
    std::iter::from_fn(|| cm.next_trace())
        .filter(|entry| entry.sent && entry.message == Attribute::Req)
        .count()
}

/// Runs a test with room on the stack for what is kept of two hundred connections, which tests build there.
#[track_caller]
fn with_room(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(64 << 20);
    thread.spawn(test).unwrap().join().unwrap();
}

/// All connections come back at the first attempt, in the usual order of calls (a receive is posted, and then `connect`
/// called), with the QPs that they had. The application sees nothing of the refusals.
#[track_caller]
fn come_back(connections: usize) {
    let mut pair = pair();
    pair.listener_of(PortSpace::Tcp, 256);
    let mut ended = 0;
    let clients = connecting(&mut pair, connections);
    served(&mut pair, &clients, &mut ended);
    let numbers = |pair: &mut Pair, clients: &[Waiting]| {
        BTreeSet::from_iter(clients.iter().map(|client| qpn(pair, client.id)))
    };
    let before = numbers(&mut pair, &clients);
    assert_eq!((before.len(), ended), (connections, 0));

    restart(&mut pair, 0, 99);
    // The memory that the killed process had registered is gone with it.
    std::mem::forget(clients);
    let clients = connecting(&mut pair, connections);
    assert_eq!(numbers(&mut pair, &clients), before);
    let began = pair.world.now();
    let theirs = served(&mut pair, &clients, &mut ended);
    let took = pair.world.now() - began;
    assert!(took < SECOND, "{took:?}");
    assert_eq!(ended, connections);
    assert_eq!(numbers(&mut pair, &clients), before);
    talk(&mut pair, &clients, &theirs);
    // Nothing else follows, such as the end of a timewait that the application has nothing to do with.
    let more = pair.event_within(0, 5 * SECOND);
    assert!(more.is_none(), "{more:?}");
}

#[test]
fn one_connection_comes_back() {
    with_room(|| come_back(1));
}

#[test]
fn five_connections_come_back() {
    with_room(|| come_back(5));
}

#[test]
fn two_hundred_connections_come_back() {
    with_room(|| come_back(200));
}

/// The server is restarted, and its clients live: the numbers of its QPs are stale at the clients (REJ 10 to its REP).
#[test]
fn clients_get_through_to_a_server_that_was_restarted() {
    with_room(restarted_server);
}

fn restarted_server() {
    let mut pair = pair();
    pair.listener();
    let mut ended = 0;
    let old = connecting(&mut pair, 6);
    served(&mut pair, &old, &mut ended);
    restart(&mut pair, 1, 99);
    pair.listener();
    let began = pair.world.now();
    let new = connecting(&mut pair, 1);
    let mut events = [vec![], vec![]];
    let end = pair.world.now() + 10 * SECOND;
    while !(0..2).all(|node| events[node].contains(&EventType::Established)) {
        assert!(pair.world.now() < end, "{events:?}");
        pair.poll();
        for (node, events) in events.iter_mut().enumerate() {
            let channel = pair.channels[node];
            while let Some(event) = pair.cms[node].try_get_cm_event(channel).unwrap() {
                events.push(event.event);
                match event.event {
                    EventType::ConnectRequest => {
                        pair.cms[1].create_qp(event.id, None, &mut qp()).unwrap();
                        pair.cms[1].accept(event.id, None).unwrap();
                    }
                    EventType::Disconnected | EventType::TimewaitExit => {
                        assert!(old.iter().any(|old| old.id == event.id))
                    }
                    EventType::Rejected => {
                        assert_eq!((node, event.status), (1, 10));
                        pair.cms[1].destroy_id(event.id).unwrap();
                    }
                    kind => assert_eq!(kind, EventType::Established, "{event:?}"),
                }
            }
        }
        pair.world.advance(MS / 2);
    }
    let took = pair.world.now() - began;
    assert!(took < SECOND, "{took:?}");
    let of = |node: usize, kind| events[node].iter().filter(|it| **it == kind).count();
    assert_eq!(of(0, EventType::Disconnected), 6, "{events:?}");
    assert_eq!(of(1, EventType::Rejected), 6, "{events:?}");
    drop(new);
}

/// A server that has ended the old connections, and gets no answer to its DREQs since nothing is there: each of its
/// connections was seen to fail before the client is back.
#[test]
fn connections_that_the_server_gave_up_are_no_obstacle() {
    with_room(given_up);
}

fn given_up() {
    let mut pair = pair();
    pair.listener_of(PortSpace::Tcp, 64);
    let mut ended = 0;
    let clients = connecting(&mut pair, 5);
    let old = served(&mut pair, &clients, &mut ended);
    pair.world.set_link(0, false);
    for id in old {
        pair.cms[1].destroy_id(id).unwrap();
    }
    // The DREQs are repeated without an answer, and are still repeated when the client is back.
    for _ in 0..20 {
        pair.cms[1].poll(pair.cms[1].now()).unwrap();
        pair.world.advance(MS * 100);
    }
    pair.world.set_link(0, true);
    restart(&mut pair, 0, 99);
    std::mem::forget(clients);
    let clients = connecting(&mut pair, 5);
    let theirs = served(&mut pair, &clients, &mut ended);
    talk(&mut pair, &clients, &theirs);
    assert_eq!(ended, 0);
}

/// An attempt that waits to be repeated is called off, by `disconnect` or with its id.
#[test]
fn an_attempt_that_rests_can_be_called_off() {
    with_room(called_off);
}

fn called_off() {
    for destroyed in [false, true] {
        let mut pair = pair();
        pair.listener_of(PortSpace::Tcp, 8);
        let mut ended = 0;
        let clients = connecting(&mut pair, 1);
        served(&mut pair, &clients, &mut ended);
        restart(&mut pair, 0, 99);
        std::mem::forget(clients);
        let ours = connecting(&mut pair, 1).remove(0).id;
        pair.expect(1, EventType::Disconnected);
        if destroyed {
            pair.cms[0].destroy_id(ours).unwrap();
        } else {
            pair.cms[0].disconnect(ours).unwrap();
        }
        assert_eq!(
            pair.event_within(1, 5 * SECOND).map(|it| it.event),
            Some(EventType::TimewaitExit)
        );
        assert_eq!(requests(&mut pair), 1);
        assert_eq!(pair.cms[0].connections_in_use(), usize::from(!destroyed));
    }
}

/// A manager that is dropped notifies its peers: they need not wait, and none of its QPs is found stale later.
#[test]
fn a_manager_that_ends_disconnects() {
    // Connected: a DREQ. With a QP that was just destroyed, so that its DREQ waits in QP1 still, as well.
    for destroyed in [false, true] {
        let mut pair = Pair::new();
        pair.listener();
        let (ours, theirs) = pair.connected();
        if destroyed {
            pair.cms[0].destroy_id(ours).unwrap();
        }
        let Pair {
            world,
            cms: [first, mut second],
            channels,
        } = pair;
        drop(first);
        let event = next(&world, &mut second, channels[1]);
        assert_eq!((event.event, event.id), (EventType::Disconnected, theirs));
    }
    // Asked, and not answered yet: a REJ with reason "timeout".
    let mut pair = Pair::new();
    pair.listener();
    let ours = pair.client();
    pair.cms[0].connect(ours, None).unwrap();
    let theirs = pair.expect(1, EventType::ConnectRequest).id;
    let Pair {
        world,
        cms: [first, mut second],
        channels,
    } = pair;
    drop(first);
    let event = next(&world, &mut second, channels[1]);
    assert_eq!((event.event, event.id), (EventType::Rejected, theirs));
    assert_eq!(event.status, 4);
}

/// The next event of a manager that is alone, within a tenth of a second.
fn next(world: &World, cm: &mut Cm, channel: ChannelId) -> CmEvent {
    for _ in 0..1000 {
        cm.poll(cm.now()).unwrap();
        if let Some(event) = cm.try_get_cm_event(channel).unwrap() {
            return event;
        }
        world.advance(MS / 10);
    }
    panic!("no message came");
}
