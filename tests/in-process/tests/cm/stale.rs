//! A host that comes back after its process was killed: its QPs have the numbers that they had, and the other end
//! still has connections with them (REJ 10).

use crate::keep::keep;
use crate::pair::*;
use bareverbs_cm::mad::Attribute;
use bareverbs_cm::rdma::{self, *};
use bareverbs_core::{Cq, CqInit, WcStatus};
use bareverbs_in_process::{ModelPlatform, World};

/// Connects node 0 `connections` times, and restarts it: nothing of it is left, except at node 1. The number of the
/// next QP of node 0 is the first of the returned ones.
fn restarted(stale_retries: u8, connections: usize) -> (Pair, CmId, Vec<u32>) {
    let mut pair = Pair::new();
    let listener = pair.listener();
    let mut numbers = vec![];
    for _ in 0..connections {
        let (ours, _) = pair.connected();
        numbers.push(qpn(&mut pair, ours));
    }
    let device = device(&pair.world, 0);
    let neighbours = vec![(ip(1), pair.cms[1].device().mac().unwrap())];
    let storage = keep(rdma::Resources::<Ids<ModelPlatform, 8>, Channels<1>>::new());
    let config = rdma::Config {
        trace: true,
        gsi_depth: 64,
        stale_retries,
        ..rdma::Config::new(99)
    };
    let table = StaticNeighbours(keep(neighbours));
    let cm = RdmaCm::new(device, table, config, storage.storage()).expect("QP1");
    // The device was reset under the old one, whose DREQ would go to the new one.
    std::mem::forget(std::mem::replace(&mut pair.cms[0], cm));
    pair.channels[0] = pair.cms[0].create_event_channel().unwrap();
    (pair, listener, numbers)
}

fn qpn(pair: &mut Pair, id: CmId) -> u32 {
    pair.cms[0].endpoint(id).unwrap().qp.qpn().number()
}

/// REQs that node 0 sent.
fn requests(pair: &mut Pair) -> usize {
    let cm = &mut pair.cms[0];
    std::iter::from_fn(|| cm.next_trace())
        .filter(|entry| entry.sent && entry.message == Attribute::Req)
        .count()
}

/// The next request at node 1, past the ends of its old connections, which it destroys.
fn request(pair: &mut Pair) -> CmEvent {
    loop {
        let event = pair.event(1);
        match event.event {
            EventType::ConnectRequest => return event,
            EventType::Disconnected => pair.cms[1].destroy_id(event.id).unwrap(),
            _ => panic!("{event:?}"),
        }
    }
}

fn accept(pair: &mut Pair, theirs: CmId) {
    pair.cms[1].create_qp(theirs, None, &mut qp()).unwrap();
    pair.cms[1].accept(theirs, None).unwrap();
    for node in 0..2 {
        loop {
            let event = pair.event(node);
            match event.event {
                EventType::Established => break,
                EventType::Disconnected if node == 1 => {
                    pair.cms[1].destroy_id(event.id).unwrap();
                }
                _ => panic!("{event:?}"),
            }
        }
    }
}

/// Ends everything and looks for what is left. The old connections ended by themselves.
fn clean(mut pair: Pair, ours: CmId, theirs: CmId, listener: CmId) {
    pair.say((0, ours), (1, theirs), b"the right QP at last");
    pair.cms[0].destroy_id(ours).unwrap();
    pair.expect(1, EventType::Disconnected);
    pair.cms[1].destroy_id(theirs).unwrap();
    pair.cms[1].destroy_id(listener).unwrap();
    pair.event_within(0, 2 * SECOND);
    for cm in &pair.cms {
        assert_eq!((cm.ids_in_use(), cm.connections_in_use()), (0, 0));
    }
}

/// Nothing is posted, and CQs and receive queue are the manager's: the application sees nothing but a connection.
#[test]
fn another_qp_unseen() {
    for stale in 1..=4 {
        let (mut pair, listener, numbers) = restarted(4, stale);
        let ours = pair.client();
        assert_eq!(qpn(&mut pair, ours), numbers[0]);
        let cap = pair.cms[0].endpoint(ours).unwrap().qp.cap();
        let param = ConnParam {
            private_data: b"as before",
            ..ConnParam::default()
        };
        pair.cms[0].connect(ours, Some(&param)).unwrap();
        let event = request(&mut pair);
        let fresh = qpn(&mut pair, ours);
        assert!(!numbers.contains(&fresh));
        assert_eq!(event.conn.qp_num, fresh);
        assert_eq!(&event.private_data()[..10], b"as before\0");
        accept(&mut pair, event.id);
        assert_eq!(requests(&mut pair), stale + 1);
        let endpoint = pair.cms[0].endpoint(ours).unwrap();
        assert_eq!(endpoint.qp.cap(), cap);
        assert!(endpoint.send_cq.is_some() && endpoint.recv_cq.is_some());
        clean(pair, ours, event.id, listener);
    }
}

/// As many retries as configured, and then the application gets librdmacm's event.
#[test]
fn not_for_ever() {
    for retries in [0, 1, 2] {
        let (mut pair, ..) = restarted(retries, 3);
        let ours = pair.client();
        pair.cms[0].connect(ours, None).unwrap();
        let event = pair.expect(0, EventType::Rejected);
        assert_eq!(event.status, 10);
        assert_eq!(requests(&mut pair), usize::from(retries) + 1);
        pair.cms[0].destroy_id(ours).unwrap();
        assert_eq!(pair.cms[0].ids_in_use(), 0);
    }
}

/// Receives are posted, as most programs do before they connect: the application gets an event, and has one call for
/// it.
#[test]
fn another_qp_on_request() {
    let (mut pair, listener, numbers) = restarted(4, 1);
    let ours = pair.client();
    let buffer = pair.cms[0].reg_msgs(ours, 64).unwrap();
    pair.cms[0].post_recv(ours, 7, &buffer, 0, 64).unwrap();
    let too_early = pair.cms[0].renew_qp(ours, &mut qp());
    assert!(matches!(too_early, Err(RdmaError::WrongState { .. })));
    pair.cms[0].connect(ours, None).unwrap();
    let too_early = pair.cms[0].renew_qp(ours, &mut qp());
    assert!(matches!(too_early, Err(RdmaError::WrongState { .. })));
    let event = pair.expect(0, EventType::Rejected);
    assert_eq!((event.status, requests(&mut pair)), (10, 1));
    assert_eq!(qpn(&mut pair, ours), numbers[0]);
    // What was posted came back.
    let flushed = failed(pair.cms[0].try_get_recv_comp(ours));
    assert_eq!((flushed.wr_id, flushed.status), (7, WcStatus::WrFlushErr));
    assert_eq!(flushed.qp_num.number(), numbers[0]);
    // Once.
    assert_eq!(pair.cms[0].try_get_recv_comp(ours), Ok(None));

    // Too much to ask: all is as it was, and may be asked again.
    let mut oversized = qp();
    oversized.cap.max_send_wr = u32::MAX;
    pair.cms[0].renew_qp(ours, &mut oversized).unwrap_err();
    assert_eq!(qpn(&mut pair, ours), numbers[0]);

    pair.cms[0].renew_qp(ours, &mut qp()).unwrap();
    assert_eq!(pair.cms[0].state(ours), Ok(IdState::RouteResolved));
    assert_ne!(qpn(&mut pair, ours), numbers[0]);
    pair.cms[0].post_recv(ours, 8, &buffer, 0, 64).unwrap();
    pair.cms[0].connect(ours, None).unwrap();
    let theirs = request(&mut pair).id;
    accept(&mut pair, theirs);
    let too_late = pair.cms[0].renew_qp(ours, &mut qp());
    assert!(matches!(too_late, Err(RdmaError::WrongState { .. })));
    // The memory is of the same PD.
    pair.cms[1]
        .post_send_inline(theirs, 1, b"for number 8", SendFlags::SIGNALED)
        .unwrap();
    let end = pair.world.now() + SECOND;
    let received = pair.cms[0].get_recv_comp_until(ours, end).unwrap();
    assert_eq!((received.wr_id, received.status), (8, WcStatus::Success));
    let sent = pair.cms[1].try_get_send_comp(theirs).unwrap();
    assert_eq!(sent.map(|sent| sent.wr_id), Some(1));
    clean(pair, ours, theirs, listener);
}

/// CQs of the application's: it may identify its QPs by their numbers, so it gets the event.
#[test]
fn not_with_the_applications_queues() {
    let (mut pair, _, numbers) = restarted(4, 1);
    let ours = pair.cms[0]
        .create_id(Some(pair.channels[0]), 5, PortSpace::Tcp)
        .unwrap();
    pair.cms[0]
        .resolve_addr(ours, None, address(1, PORT), SECOND)
        .unwrap();
    pair.expect(0, EventType::AddrResolved);
    pair.cms[0].resolve_route(ours, SECOND).unwrap();
    pair.expect(0, EventType::RouteResolved);
    let device = pair.cms[0].device();
    let cq: &'static Cq<'_, _> = keep(device.create_cq(CqInit::new(32)).unwrap());
    let shared = || QpInit {
        send_cq: Some(cq),
        recv_cq: Some(cq),
        ..qp()
    };
    pair.cms[0].create_qp(ours, None, &mut shared()).unwrap();
    assert_eq!(qpn(&mut pair, ours), numbers[0]);
    pair.cms[0].connect(ours, None).unwrap();
    assert_eq!(pair.expect(0, EventType::Rejected).status, 10);
    assert_eq!(qpn(&mut pair, ours), numbers[0]);
    pair.cms[0].renew_qp(ours, &mut shared()).unwrap();
    pair.cms[0].connect(ours, None).unwrap();
    let theirs = request(&mut pair).id;
    accept(&mut pair, theirs);
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
