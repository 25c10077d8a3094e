//! Ids in all their modes: synchronous and not, with a QP of their own or of the application, on one channel or another.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::keep::keep;
use crate::pair::*;
use bareverbs_cm::rdma::{self, *};
use bareverbs_core::mr::Access;
use bareverbs_core::qp::QpState;
use bareverbs_core::{Mtu, Pd, WcStatus};
use bareverbs_in_process::{Builder, ModelPlatform};
use connectx_model::Config as Card;

/// rdma_client and rdma_server: synchronous endpoints on two threads, with and without interrupts.
#[test]
fn synchronous_endpoints() {
    for vectors in [0, 4] {
        let world = Builder::new()
            .function(Card::new(1))
            .function(Card::new(2))
            .interrupts(vectors)
            .threaded();
        let devices = [device(&world, 0), device(&world, 1)];
        let listening = std::sync::Barrier::new(2);
        let pd: &Pd<'_, _> = keep(devices[1].alloc_pd().unwrap());
        std::thread::scope(|scope| {
            let server = scope.spawn(|| {
                let mut cm = manager(&devices, 1, Mtu::B4096);
                let hints = AddrInfo::hints(true);
                let info = getaddrinfo(None, Some("7471"), Some(&hints)).unwrap();
                let listener = cm.create_ep(&info, Some(pd), Some(&mut qp())).unwrap();
                cm.listen(listener, 0).unwrap();
                listening.wait();
                let id = cm.get_request(listener).unwrap();
                // The request is the new id's event, and the id has the QP that was asked for, in the PD that was given.
                let request = cm.event(id).unwrap().unwrap();
                assert_eq!(
                    (request.event, request.listen_id),
                    (EventType::ConnectRequest, Some(listener))
                );
                assert_eq!(&request.private_data()[..4], b"ping");
                assert_eq!(cm.pd(id).unwrap().pdn(), pd.pdn());
                assert!(cm.is_synchronous(id).unwrap());
                let buffer = cm.reg_msgs(id, 64).unwrap();
                cm.post_recv(id, 1, buffer.slice(..64).unwrap()).unwrap();
                cm.accept(id, None).unwrap();
                assert_eq!(cm.event(id).unwrap().unwrap().event, EventType::Established);
                let got = cm.get_recv_comp(id).unwrap();
                assert_eq!((got.status, got.byte_len), (WcStatus::Success, 5));
                let mut bytes = [0; 5];
                buffer.copy_out(0, &mut bytes).unwrap();
                cm.post_send_inline(id, 2, &bytes, SendFlags::SIGNALED)
                    .unwrap();
                assert_eq!(cm.get_send_comp(id).unwrap().status, WcStatus::Success);
                cm.disconnect(id).unwrap();
                cm.destroy_ep(id).unwrap();
                cm.destroy_ep(listener).unwrap();
                assert_eq!(cm.ids_in_use(), 0);
            });
            let mut cm = manager(&devices, 0, Mtu::B4096);
            listening.wait();
            let info = getaddrinfo(Some("10.0.0.2"), Some("7471"), None).unwrap();
            let mut init = qp();
            let id = cm.create_ep(&info, None, Some(&mut init)).unwrap();
            assert!(init.cap.max_recv_wr >= 8);
            let buffer = cm.reg_msgs(id, 64).unwrap();
            cm.post_recv(id, 1, buffer.slice(..64).unwrap()).unwrap();
            cm.connect(
                id,
                Some(&ConnParam {
                    private_data: b"ping",
                    ..ConnParam::default()
                }),
            )
            .unwrap();
            assert_eq!(cm.event(id).unwrap().unwrap().event, EventType::Established);
            cm.post_send_inline(id, 2, b"hello", SendFlags::SIGNALED)
                .unwrap();
            assert_eq!(cm.get_send_comp(id).unwrap().status, WcStatus::Success);
            assert_eq!(cm.get_recv_comp(id).unwrap().byte_len, 5);
            cm.disconnect(id).unwrap();
            // Again is no error: it is disconnected.
            cm.disconnect(id).unwrap();
            cm.destroy_ep(id).unwrap();
            // The peer is gone.
            let until = cm.now() + 200 * MS;
            while cm.now() < until {
                cm.poll(cm.now()).unwrap();
            }
            let id = cm.create_ep(&info, None, Some(&mut qp())).unwrap();
            server.join().unwrap();
            drop(cm);
            let _ = id;
        });
    }
}

/// A synchronous call turns a refusal into its error.
#[test]
fn synchronous_refusal_is_econnrefused() {
    let world = Builder::new()
        .function(Card::new(1))
        .function(Card::new(2))
        .threaded();
    let devices = [device(&world, 0), device(&world, 1)];
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let mut cm = manager(&devices, 1, Mtu::B4096);
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                cm.poll(cm.now()).unwrap();
            }
        });
        let mut cm = manager(&devices, 0, Mtu::B4096);
        let info = getaddrinfo(Some("10.0.0.2"), Some("1"), None).unwrap();
        let id = cm.create_ep(&info, None, Some(&mut qp())).unwrap();
        let error = cm.connect(id, None);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let error = error.unwrap_err();
        assert_eq!(error.errno(), errno::ECONNREFUSED, "{error}");
        assert_eq!(cm.event(id).unwrap().unwrap().status, 8);
        // And it does so to each unanswered one.
        cm.destroy_ep(id).unwrap();
        server.join().unwrap();
    });
}

/// The QP is the application's: `init_qp_attr`, `ConnectResponse`, `establish`.
#[test]
fn external_qp() {
    let mut pair = Pair::new();
    pair.listener();
    let id = pair.resolved(PortSpace::Tcp);
    // Without a QP and without its number nothing can be connected.
    assert_eq!(pair.cms[0].connect(id, None), Err(RdmaError::NoQp));

    let device = pair.cms[0].device();
    let pd = device.alloc_pd().unwrap();
    let cq = device.create_cq(bareverbs_core::CqInit::new(16)).unwrap();
    let mut init = bareverbs_core::QpInitAttr {
        send_cq: &cq,
        recv_cq: &cq,
        srq: None,
        cap: cap(),
        sq_sig_all: false,
    };
    let mut own = pd.create_qp::<bareverbs_core::Rc>(&mut init).unwrap();
    let (attr, mask) = pair.cms[0].init_qp_attr(id, QpState::Init).unwrap();
    own.modify(&attr, mask).unwrap();
    let param = ConnParam {
        qp_num: own.qpn().number(),
        ..ConnParam::default()
    };
    pair.cms[0].connect(id, Some(&param)).unwrap();
    assert!(pair.cms[0].init_qp_attr(id, QpState::Rtr).is_err());

    let theirs = pair.expect(1, EventType::ConnectRequest);
    assert_eq!(theirs.conn.qp_num, own.qpn().number());
    pair.cms[1].create_qp(theirs.id, None, &mut qp()).unwrap();
    // READs are granted as far as the request asks for them, and then as far as the answer lets either end have some.
    let reads = |pair: &Pair, node: usize, id| {
        let (attr, _) = pair.cms[node].init_qp_attr(id, QpState::Init).unwrap();
        attr.qp_access_flags.contains(Access::REMOTE_READ)
    };
    assert!(reads(&pair, 0, id) && reads(&pair, 1, theirs.id));
    let none = ConnParam {
        responder_resources: 0,
        initiator_depth: 0,
        ..ConnParam::default()
    };
    pair.cms[1].accept(theirs.id, Some(&none)).unwrap();
    let response = pair.expect(0, EventType::ConnectResponse);
    assert!(response.conn.qp_num != 0);
    assert!(!reads(&pair, 0, id));
    assert!(!reads(&pair, 1, theirs.id));
    let (attr, _) = pair.cms[1].init_qp_attr(theirs.id, QpState::Rtr).unwrap();
    assert_eq!(attr.max_dest_rd_atomic, 0);
    let (attr, _) = pair.cms[1].init_qp_attr(theirs.id, QpState::Rts).unwrap();
    assert_eq!(attr.max_rd_atomic, 0);
    for state in [QpState::Rtr, QpState::Rts] {
        let (attr, mask) = pair.cms[0].init_qp_attr(id, state).unwrap();
        own.modify(&attr, mask).unwrap();
    }
    pair.cms[0].establish(id).unwrap();
    pair.expect(1, EventType::Established);
    assert_eq!(
        pair.cms[1].notify(theirs.id),
        Err(RdmaError::AlreadyConnected)
    );
    assert_eq!(RdmaError::AlreadyConnected.errno(), errno::EISCONN);
    pair.cms[0].disconnect(id).unwrap();
    pair.expect(1, EventType::Disconnected);
}

/// A migration to the channel where the id is leaves the requests that wait there in their order.
#[test]
fn migration_to_the_same_channel() {
    let mut pair = Pair::new();
    let listener = pair.listener();
    for _ in 0..2 {
        let ours = pair.client();
        pair.cms[0].connect(ours, None).unwrap();
    }
    for _ in 0..1000 {
        pair.poll();
        pair.world.advance(MS / 100);
    }
    let here = pair.channels[1];
    pair.cms[1].migrate_id(listener, Some(here)).unwrap();
    let first = pair.expect(1, EventType::ConnectRequest).id;
    let second = pair.expect(1, EventType::ConnectRequest).id;
    assert_ne!(first, second);
}

#[test]
fn migration_moves_events() {
    let mut pair = Pair::new();
    let listener = pair.listener();
    let ours = pair.client();
    pair.cms[0].connect(ours, None).unwrap();
    for _ in 0..1000 {
        pair.poll();
        pair.world.advance(MS / 100);
    }
    // The request waits on the listener's channel; it follows the listener.
    let other = pair.cms[1].create_event_channel().unwrap();
    let waits = |pair: &Pair, channel| pair.cms[1].has_cm_event(channel).unwrap();
    assert!(waits(&pair, pair.channels[1]) && !waits(&pair, other));
    pair.cms[1].migrate_id(listener, Some(other)).unwrap();
    assert!(!waits(&pair, pair.channels[1]) && waits(&pair, other));
    assert!(
        pair.cms[1]
            .try_get_cm_event(pair.channels[1])
            .unwrap()
            .is_none()
    );
    pair.cms[1].destroy_event_channel(pair.channels[1]).unwrap();
    assert!(pair.cms[1].destroy_event_channel(other).is_err());
    pair.channels[1] = other;
    let theirs = pair.expect(1, EventType::ConnectRequest).id;
    assert!(!pair.cms[1].has_cm_event(other).unwrap());
    // To synchronous and back.
    pair.cms[1].migrate_id(theirs, None).unwrap();
    assert!(pair.cms[1].is_synchronous(theirs).unwrap());
    assert_eq!(
        pair.cms[1].migrate_id(theirs, None),
        Err(RdmaError::WrongMode { call: "migrate_id" })
    );
    pair.cms[1].migrate_id(theirs, Some(other)).unwrap();
    pair.cms[1].create_qp(theirs, None, &mut qp()).unwrap();
    pair.cms[1].accept(theirs, None).unwrap();
    pair.expect(1, EventType::Established);
    pair.expect(0, EventType::Established);
    // The application's own events.
    pair.cms[1].write_cm_event(theirs, 3, 4).unwrap();
    let own = pair.expect(1, EventType::User);
    assert_eq!((own.id, own.status, own.arg), (theirs, 3, 4));
    // A listener that goes takes its unread requests along.
    let second = pair.client();
    pair.cms[0].connect(second, None).unwrap();
    for _ in 0..1000 {
        pair.poll();
        pair.world.advance(MS / 100);
    }
    let in_use = pair.cms[1].ids_in_use();
    pair.cms[1].destroy_id(listener).unwrap();
    assert_eq!(pair.cms[1].ids_in_use(), in_use - 2);
    while pair.event(0).event != EventType::Rejected {}
    let third = pair.client();
    pair.cms[0].connect(third, None).unwrap();
    assert_eq!(pair.expect(0, EventType::Rejected).status, 8);
}

/// A resolver that has to ask: the id waits, and gives up in time.
#[test]
fn address_resolution_takes_its_time() {
    struct Slow {
        known_from: Duration,
        mac: [u8; 6],
    }
    impl Subnet for Slow {}

    impl Neighbours for Slow {
        fn resolve(&mut self, now: Duration, _source: IpAddr, _destination: IpAddr) -> Resolution {
            if now >= self.known_from {
                Resolution::Found(Neighbour::new(self.mac))
            } else {
                Resolution::Pending
            }
        }
    }
    let world = Builder::new()
        .function(Card::new(1))
        .function(Card::new(2))
        .stepped();
    let device = device(&world, 0);
    let storage = keep(rdma::Resources::<Ids<ModelPlatform, 4>, Channels<1>>::new());
    let resolver = Slow {
        known_from: world.now() + 100 * MS,
        mac: [2; 6],
    };
    let mut cm = RdmaCm::new(device, resolver, rdma::Config::new(1), storage.storage()).unwrap();
    let id = cm.create_id(None, 0, PortSpace::Tcp).unwrap();
    let destination = address(1, PORT);
    let start = world.now();
    let error = cm.resolve_addr(id, None, destination, 20 * MS).unwrap_err();
    assert_eq!(error.errno(), errno::ETIMEDOUT);
    assert!(
        world.now() - start >= 20 * MS && world.now() - start < 60 * MS,
        "{:?}",
        world.now() - start
    );
    let event = cm.event(id).unwrap().unwrap();
    assert_eq!(
        (event.event, event.status),
        (EventType::AddrError, -errno::ETIMEDOUT)
    );
    assert_eq!(cm.state(id).unwrap(), IdState::AddrBound);
    cm.resolve_addr(id, None, destination, SECOND).unwrap();
    assert_eq!(cm.state(id).unwrap(), IdState::AddrResolved);
    assert!(world.now() - start >= 100 * MS);
}

#[test]
fn calls_in_the_wrong_state_are_einval() {
    let mut pair = Pair::new();
    let id = pair.cms[0]
        .create_id(Some(pair.channels[0]), 0, PortSpace::Tcp)
        .unwrap();
    let cm = &mut pair.cms[0];
    let einval =
        |result: Result<(), RdmaError>| assert_eq!(result.unwrap_err().errno(), errno::EINVAL);
    einval(cm.connect(id, None));
    einval(cm.accept(id, None));
    einval(cm.reject(id, b""));
    einval(cm.disconnect(id));
    einval(cm.establish(id));
    einval(cm.notify(id));
    einval(cm.resolve_route(id, SECOND));
    einval(cm.create_qp(id, None, &mut qp()));
    assert_eq!(
        cm.get_request(id),
        Err(RdmaError::WrongMode {
            call: "get_request"
        })
    );

    // Addresses and ports.
    // `rdma_find_ndev_for_src_ip_rcu` of Linux's core/addr.c.
    let elsewhere = SocketAddr::new(IpAddr::from([192, 0, 2, 1]), 5);
    assert_eq!(
        cm.bind_addr(id, elsewhere).unwrap_err().errno(),
        errno::EADDRNOTAVAIL
    );
    cm.bind_addr(id, address(0, 5)).unwrap();
    einval(cm.bind_addr(id, address(0, 6)));
    let second = cm.create_id(None, 0, PortSpace::Tcp).unwrap();
    assert_eq!(
        cm.bind_addr(second, address(0, 5)).unwrap_err().errno(),
        errno::EADDRINUSE
    );
    let wildcard = SocketAddr::new(IpAddr::from([0, 0, 0, 0]), 5);
    assert_eq!(
        cm.bind_addr(second, wildcard).unwrap_err().errno(),
        errno::EADDRNOTAVAIL
    );
    cm.bind_addr(second, address(0, 0)).unwrap();
    assert!(cm.get_src_port(second).unwrap() >= 32768);
    // A QP can be had as soon as the id is bound, and only one.
    cm.create_qp(second, None, &mut qp()).unwrap();
    assert_eq!(
        cm.create_qp(second, None, &mut qp()),
        Err(RdmaError::QpExists)
    );
    // Without a peer.
    let nowhere = SocketAddr::new(IpAddr::from([10, 0, 0, 99]), 1);
    assert_eq!(
        cm.resolve_addr(second, None, nowhere, SECOND),
        Err(RdmaError::NetUnreachable(nowhere.ip()))
    );
    // The id stepped back, and the call may be repeated.
    cm.resolve_addr(second, None, address(1, PORT), SECOND)
        .unwrap();
    cm.resolve_route(second, SECOND).unwrap();
    let long = [0; 57];
    assert_eq!(
        cm.connect(
            second,
            Some(&ConnParam {
                private_data: &long,
                ..ConnParam::default()
            })
        ),
        Err(RdmaError::PrivateDataTooLong { len: 57, max: 56 })
    );
    einval(cm.connect(
        second,
        Some(&ConnParam {
            initiator_depth: 200,
            ..ConnParam::default()
        }),
    ));
}
