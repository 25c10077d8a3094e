//! The RDMA CM over driver and model: connections between two functions on one cable, asynchronous ids in virtual time and
//! synchronous ones on threads.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bareverbs_cm::mad::Attribute;
use bareverbs_cm::rdma::{self, *};
use bareverbs_core::qp::{QpCap, QpState};
use bareverbs_core::{Device, Gid, GidEntry, RoceVersion, WcStatus};
use bareverbs_in_process::{Builder, ModelPlatform, World};
use connectx_model::Config as Card;
use connectx_model::link::fault::Action;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const PORT: u16 = 7174;

type Cm = RdmaCm<'static, 'static, ModelPlatform, StaticNeighbours<'static>>;

fn ip(node: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, node as u8 + 1])
}

fn address(node: usize, port: u16) -> SocketAddr {
    SocketAddr::new(ip(node), port)
}

/// A device of the world, with its addresses in the GID table. Leaked: the managers of these tests live as long as them.
fn device(world: &World, node: usize) -> &'static Device<'static, ModelPlatform> {
    let resources = Box::leak(Box::new(bareverbs_core::Resources::<32, 64, 2, 256>::new()));
    let device = Device::open(
        world.platform(node),
        bareverbs_core::Config::DEFAULT,
        resources.storage(),
    );
    let device: &'static _ = Box::leak(Box::new(device.expect("bring-up")));
    let mac = device.mac().expect("MAC");
    for gid in [
        Gid::from_ipv6("fe80::1".parse().unwrap()),
        Gid(mapped(ip(node))),
    ] {
        let index = device.free_gid_index().expect("a free entry");
        device
            .set_gid(
                index,
                GidEntry {
                    gid,
                    version: RoceVersion::V2,
                    vlan: None,
                    mac,
                },
            )
            .expect("GID");
    }
    device
}

fn mapped(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

fn manager(devices: &[&'static Device<'static, ModelPlatform>], node: usize) -> Cm {
    let neighbours: Vec<_> = devices
        .iter()
        .enumerate()
        .map(|(node, device)| (ip(node), device.mac().unwrap()))
        .collect();
    let storage = Box::leak(Box::new(rdma::Resources::<ModelPlatform, 32, 4>::new()));
    let config = rdma::Config {
        trace: true,
        gsi_depth: 64,
        ..rdma::Config::new(node as u64 + 1)
    };
    RdmaCm::new(
        devices[node],
        StaticNeighbours(neighbours.leak()),
        config,
        storage.storage(),
    )
    .expect("QP1")
}

fn cap() -> QpCap {
    QpCap {
        max_send_wr: 8,
        max_recv_wr: 8,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline_data: 16,
    }
}

fn qp() -> QpInit<'static, 'static, ModelPlatform> {
    QpInit {
        cap: cap(),
        ..QpInit::default()
    }
}

/// Two managers on one thread: waiting for one drives the other.
struct Pair {
    world: World,
    cms: [Cm; 2],
    channels: [ChannelId; 2],
}

impl Pair {
    fn new() -> Self {
        let world = Builder::new()
            .function(Card::new(1))
            .function(Card::new(2))
            .stepped();
        let devices = [device(&world, 0), device(&world, 1)];
        let mut cms = [manager(&devices, 0), manager(&devices, 1)];
        let channels = [0, 1].map(|node| cms[node].create_event_channel().unwrap());
        Self {
            world,
            cms,
            channels,
        }
    }

    fn poll(&mut self) {
        for cm in &mut self.cms {
            cm.poll(cm.now()).unwrap();
        }
        self.world.step();
    }

    fn event_within(&mut self, node: usize, limit: Duration) -> Option<CmEvent> {
        let end = self.world.now() + limit;
        loop {
            if let Some(event) = self.cms[node]
                .try_get_cm_event(self.channels[node])
                .unwrap()
            {
                return Some(event);
            }
            if self.world.now() >= end {
                return None;
            }
            self.poll();
            self.world.advance(MS / 10);
        }
    }

    #[track_caller]
    fn event(&mut self, node: usize) -> CmEvent {
        self.event_within(node, 10 * SECOND).expect("no event")
    }

    #[track_caller]
    fn expect(&mut self, node: usize, kind: EventType) -> CmEvent {
        let event = self.event(node);
        assert_eq!(event.event, kind, "{event:?}");
        event
    }

    fn listener(&mut self) -> CmId {
        let id = self.cms[1]
            .create_id(Some(self.channels[1]), 77, PortSpace::Tcp)
            .unwrap();
        self.cms[1]
            .bind_addr(id, SocketAddr::new(IpAddr::from([0, 0, 0, 0]), PORT))
            .unwrap();
        self.cms[1].listen(id, 8).unwrap();
        id
    }

    /// An id of node 0 that is ready to connect, with a QP.
    fn client(&mut self) -> CmId {
        let id = self.cms[0]
            .create_id(Some(self.channels[0]), 5, PortSpace::Tcp)
            .unwrap();
        self.cms[0]
            .resolve_addr(id, None, address(1, PORT), SECOND)
            .unwrap();
        self.expect(0, EventType::AddrResolved);
        self.cms[0].resolve_route(id, SECOND).unwrap();
        self.expect(0, EventType::RouteResolved);
        self.cms[0].create_qp(id, None, &mut qp()).unwrap();
        id
    }

    fn connected(&mut self) -> (CmId, CmId) {
        let ours = self.client();
        self.cms[0].connect(ours, None).unwrap();
        let theirs = self.expect(1, EventType::ConnectRequest).id;
        self.cms[1].create_qp(theirs, None, &mut qp()).unwrap();
        self.cms[1].accept(theirs, None).unwrap();
        self.expect(0, EventType::Established);
        self.expect(1, EventType::Established);
        (ours, theirs)
    }

    /// A message from `from` to the other node, byte for byte.
    fn say(&mut self, from: (usize, CmId), to: (usize, CmId), text: &[u8]) {
        let source = self.cms[from.0].reg_msgs(from.1, text.len()).unwrap();
        let sink = self.cms[to.0].reg_msgs(to.1, text.len()).unwrap();
        source.copy_in(0, text).unwrap();
        self.cms[to.0]
            .post_recv(to.1, 21, &sink, 0, text.len())
            .unwrap();
        self.cms[from.0]
            .post_send(from.1, 22, &source, 0, text.len(), SendFlags::SIGNALED)
            .unwrap();
        let end = self.world.now() + SECOND;
        let sent = self.cms[from.0].get_send_comp_until(from.1, end).unwrap();
        assert_eq!((sent.wr_id, sent.status), (22, WcStatus::Success));
        let got = self.cms[to.0].get_recv_comp_until(to.1, end).unwrap();
        assert_eq!(
            (got.wr_id, got.status, got.byte_len as usize),
            (21, WcStatus::Success, text.len())
        );
        let mut bytes = vec![0; text.len()];
        sink.copy_out(0, &mut bytes).unwrap();
        assert_eq!(bytes, text);
    }
}

#[test]
fn connect_talk_disconnect() {
    let mut pair = Pair::new();
    let listener = pair.listener();
    let ours = pair.client();
    let data = ConnParam {
        private_data: b"hello",
        ..ConnParam::default()
    };
    pair.cms[0].connect(ours, Some(&data)).unwrap();

    let request = pair.expect(1, EventType::ConnectRequest);
    assert_eq!(
        (request.listen_id, request.context, request.status),
        (Some(listener), 77, 0)
    );
    assert_eq!(&request.private_data()[..6], b"hello\0");
    assert_eq!(request.private_data().len(), CONNECT_PRIVATE_DATA_MAX);
    assert_eq!(
        (request.conn.retry_count, request.conn.rnr_retry_count),
        (7, 7)
    );
    assert!(request.conn.responder_resources > 0 && request.conn.initiator_depth > 0);
    let theirs = request.id;
    assert_eq!(
        pair.cms[1].get_local_addr(theirs).unwrap(),
        Some(address(1, PORT))
    );
    assert_eq!(
        pair.cms[1].get_peer_addr(theirs).unwrap(),
        pair.cms[0].get_local_addr(ours).unwrap()
    );
    assert_eq!(pair.cms[0].get_dst_port(ours).unwrap(), PORT);

    let mut init = qp();
    pair.cms[1].create_qp(theirs, None, &mut init).unwrap();
    assert!(
        init.cap.max_send_wr >= 8 && init.cap.max_inline_data >= 16,
        "{:?}",
        init.cap
    );
    let welcome = ConnParam {
        private_data: b"welcome",
        ..ConnParam::default()
    };
    pair.cms[1].accept(theirs, Some(&welcome)).unwrap();
    let established = pair.expect(0, EventType::Established);
    assert_eq!(&established.private_data()[..7], b"welcome");
    assert_eq!(established.private_data().len(), ACCEPT_PRIVATE_DATA_MAX);
    pair.expect(1, EventType::Established);

    pair.say((0, ours), (1, theirs), b"a message of the active side");
    pair.say((1, theirs), (0, ours), b"and one of the passive side");

    pair.cms[0].disconnect(ours).unwrap();
    assert_eq!(pair.expect(1, EventType::Disconnected).status, 0);
    assert_eq!(pair.expect(0, EventType::Disconnected).status, 0);
    pair.cms[1].disconnect(theirs).unwrap();
    pair.expect(0, EventType::TimewaitExit);
    pair.expect(1, EventType::TimewaitExit);
    assert_eq!(pair.event_within(0, SECOND).map(|event| event.event), None);

    let trace: Vec<_> = std::iter::from_fn(|| pair.cms[0].next_trace())
        .map(|entry| (entry.sent, entry.message.name()))
        .collect();
    assert_eq!(
        trace,
        [
            (true, "REQ"),
            (false, "REP"),
            (true, "RTU"),
            (true, "DREQ"),
            (false, "DREP")
        ]
    );
    for cm in &pair.cms {
        assert_eq!(
            (
                cm.stats().repeated,
                cm.stats().duplicates,
                cm.stats().ignored
            ),
            (0, 0, 0)
        );
    }
    pair.cms[0].destroy_id(ours).unwrap();
    pair.cms[1].destroy_id(theirs).unwrap();
    pair.cms[1].destroy_id(listener).unwrap();
    assert_eq!(
        pair.cms
            .each_ref()
            .map(|cm| (cm.ids_in_use(), cm.connections_in_use())),
        [(0, 0); 2]
    );
    assert_eq!(pair.cms[0].state(ours), Err(RdmaError::NoSuchId));
}

#[test]
fn rdma_read_and_write() {
    let mut pair = Pair::new();
    pair.listener();
    let (ours, theirs) = pair.connected();
    let text: Vec<u8> = (0..5000u32).map(|n| (n * 7) as u8).collect();
    let far = pair.cms[1].reg_read(theirs, text.len()).unwrap();
    far.copy_in(0, &text).unwrap();
    let near = pair.cms[0].reg_write(ours, text.len()).unwrap();
    pair.cms[0]
        .post_read(
            ours,
            1,
            &near,
            0,
            text.len(),
            SendFlags::SIGNALED,
            far.addr(),
            far.rkey(),
        )
        .unwrap();
    let end = pair.world.now() + SECOND;
    assert_eq!(
        pair.cms[0].get_send_comp_until(ours, end).unwrap().status,
        WcStatus::Success
    );
    let mut bytes = vec![0; text.len()];
    near.copy_out(0, &mut bytes).unwrap();
    assert_eq!(bytes, text);

    let target = pair.cms[1].reg_write(theirs, text.len()).unwrap();
    pair.cms[0]
        .post_write(
            ours,
            2,
            &near,
            0,
            text.len(),
            SendFlags::SIGNALED,
            target.addr(),
            target.rkey(),
        )
        .unwrap();
    assert_eq!(
        pair.cms[0].get_send_comp_until(ours, end).unwrap().status,
        WcStatus::Success
    );
    let mut bytes = vec![0; text.len()];
    target.copy_out(0, &mut bytes).unwrap();
    assert_eq!(bytes, text);
}

#[test]
fn refusals() {
    let mut pair = Pair::new();
    // Nobody listens.
    let ours = pair.client();
    pair.cms[0].connect(ours, None).unwrap();
    let event = pair.expect(0, EventType::Rejected);
    assert_eq!(
        (event.status, event.private_data().len()),
        (8, REJECT_PRIVATE_DATA_MAX)
    );
    pair.cms[0].destroy_id(ours).unwrap();

    // The application refuses; what was posted is flushed.
    pair.listener();
    let ours = pair.client();
    let buffer = pair.cms[0].reg_msgs(ours, 64).unwrap();
    pair.cms[0].post_recv(ours, 9, &buffer, 0, 64).unwrap();
    pair.cms[0].connect(ours, None).unwrap();
    let theirs = pair.expect(1, EventType::ConnectRequest).id;
    pair.cms[1].reject(theirs, b"go away").unwrap();
    pair.cms[1].destroy_id(theirs).unwrap();
    let event = pair.expect(0, EventType::Rejected);
    assert_eq!(
        (event.status, &event.private_data()[..7]),
        (28, &b"go away"[..])
    );
    let end = pair.world.now() + SECOND;
    let flushed = pair.cms[0].get_recv_comp_until(ours, end).unwrap();
    assert_eq!((flushed.wr_id, flushed.status), (9, WcStatus::WrFlushErr));

    // The backlog is full: refused, not ignored.
    let clients: Vec<_> = (0..9).map(|_| pair.client()).collect();
    for id in &clients {
        pair.cms[0].connect(*id, None).unwrap();
    }
    let event = pair.expect(0, EventType::Rejected);
    assert_eq!((event.id, event.status), (clients[8], 3));
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
    assert_eq!(
        cm.create_id(None, 0, PortSpace::Udp).unwrap_err().errno(),
        errno::ENOSYS
    );

    // Addresses and ports.
    let elsewhere = SocketAddr::new(IpAddr::from([192, 0, 2, 1]), 5);
    assert_eq!(
        cm.bind_addr(id, elsewhere).unwrap_err().errno(),
        errno::ENODEV
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
    // Without somebody there.
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

/// Whether a frame carries this CM message: UD SEND_ONLY over IPv4, then the MAD's attribute.
fn carries(frame: &[u8], message: Attribute) -> bool {
    const BTH: usize = 14 + 20 + 8;
    frame.get(BTH) == Some(&0x64)
        && frame.get(BTH + 36..BTH + 38) == Some(&(message as u16).to_be_bytes()[..])
}

/// Each message of the handshake lost once, in each direction that it goes: it comes about all the same, in less than a
/// second.
#[test]
fn each_message_lost_once() {
    for (from, lost) in [
        (0, Attribute::Req),
        (1, Attribute::Rep),
        (0, Attribute::Rtu),
        (0, Attribute::Dreq),
        (1, Attribute::Drep),
        (1, Attribute::Dreq),
        (0, Attribute::Drep),
    ] {
        let what = format!("{lost} of node {from}");
        let mut pair = Pair::new();
        pair.listener();
        pair.world.with_wire(|wire| {
            wire.rule(0, 1, Action::Drop, move |port, frame| {
                port == from && carries(frame, lost)
            })
        });
        let start = pair.world.now();
        let (ours, theirs) = pair.connected();
        pair.say((0, ours), (1, theirs), b"still here");
        // The side that ends it is the one whose message, or whose answer, is to get lost.
        if from == 1 && lost == Attribute::Dreq || from == 0 && lost == Attribute::Drep {
            pair.cms[1].disconnect(theirs).unwrap();
        } else {
            pair.cms[0].disconnect(ours).unwrap();
        }
        pair.expect(0, EventType::Disconnected);
        pair.expect(1, EventType::Disconnected);
        assert_eq!(
            pair.world.with_wire(|wire| wire.report().dropped),
            1,
            "{what}"
        );
        assert!(pair.world.now() - start < SECOND, "{what}");
        let repeated: u64 = pair.cms.iter().map(|cm| cm.stats().repeated).sum();
        assert!(repeated > 0, "{what}");
    }
}

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
        std::thread::scope(|scope| {
            let server = scope.spawn(|| {
                let mut cm = manager(&devices, 1);
                let pd = Box::leak(Box::new(devices[1].alloc_pd().unwrap()));
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
                cm.post_recv(id, 1, &buffer, 0, 64).unwrap();
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
            let mut cm = manager(&devices, 0);
            listening.wait();
            let info = getaddrinfo(Some("10.0.0.2"), Some("7471"), None).unwrap();
            let mut init = qp();
            let id = cm.create_ep(&info, None, Some(&mut init)).unwrap();
            assert!(init.cap.max_recv_wr >= 8);
            let buffer = cm.reg_msgs(id, 64).unwrap();
            cm.post_recv(id, 1, &buffer, 0, 64).unwrap();
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
            // Nobody is there any more.
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
        scope.spawn(|| {
            let mut cm = manager(&devices, 1);
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                cm.poll(cm.now()).unwrap();
            }
        });
        let mut cm = manager(&devices, 0);
        let info = getaddrinfo(Some("10.0.0.2"), Some("1"), None).unwrap();
        let id = cm.create_ep(&info, None, Some(&mut qp())).unwrap();
        let error = cm.connect(id, None);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let error = error.unwrap_err();
        assert_eq!(error.errno(), errno::ECONNREFUSED, "{error}");
        assert_eq!(cm.event(id).unwrap().unwrap().status, 8);
        // And it does so to each unanswered one.
        cm.destroy_ep(id).unwrap();
    });
}

/// The QP is the application's: `init_qp_attr`, `ConnectResponse`, `establish`.
#[test]
fn external_qp() {
    let mut pair = Pair::new();
    pair.listener();
    let id = pair.cms[0]
        .create_id(Some(pair.channels[0]), 5, PortSpace::Tcp)
        .unwrap();
    pair.cms[0]
        .resolve_addr(id, None, address(1, PORT), SECOND)
        .unwrap();
    pair.expect(0, EventType::AddrResolved);
    pair.cms[0].resolve_route(id, SECOND).unwrap();
    pair.expect(0, EventType::RouteResolved);
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
    pair.cms[1].accept(theirs.id, None).unwrap();
    let response = pair.expect(0, EventType::ConnectResponse);
    assert!(response.conn.qp_num != 0);
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
    pair.cms[1].migrate_id(listener, Some(other)).unwrap();
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

/// Over IPv6, to an address that a listener is bound to beside a wildcard of the other family.
#[test]
fn ipv6() {
    let mut pair = Pair::new();
    let v6 = |node: usize| -> IpAddr { format!("fd00::{}", node + 1).parse().unwrap() };
    let macs = [0, 1].map(|node: usize| pair.cms[node].device().mac().unwrap());
    for node in 0..2 {
        let device = pair.cms[node].device();
        let index = device.free_gid_index().unwrap();
        let gid = Gid(mapped(v6(node)));
        device
            .set_gid(
                index,
                GidEntry {
                    gid,
                    version: RoceVersion::V2,
                    vlan: None,
                    mac: macs[node],
                },
            )
            .unwrap();
        let table = Box::leak(Box::new([
            (v6(0), macs[0]),
            (v6(1), macs[1]),
            (ip(0), macs[0]),
            (ip(1), macs[1]),
        ]));
        *pair.cms[node].resolver_mut() = StaticNeighbours(table);
    }
    let wildcard = pair.listener();
    let listener = pair.cms[1]
        .create_id(Some(pair.channels[1]), 6, PortSpace::Tcp)
        .unwrap();
    pair.cms[1]
        .bind_addr(listener, SocketAddr::new(v6(1), PORT))
        .unwrap();
    pair.cms[1].listen(listener, 8).unwrap();

    let ours = pair.cms[0]
        .create_id(Some(pair.channels[0]), 0, PortSpace::Tcp)
        .unwrap();
    pair.cms[0]
        .resolve_addr(ours, None, SocketAddr::new(v6(1), PORT), SECOND)
        .unwrap();
    pair.expect(0, EventType::AddrResolved);
    pair.cms[0].resolve_route(ours, SECOND).unwrap();
    pair.expect(0, EventType::RouteResolved);
    assert_eq!(
        pair.cms[0].get_local_addr(ours).unwrap().unwrap().ip(),
        v6(0)
    );
    pair.cms[0].create_qp(ours, None, &mut qp()).unwrap();
    pair.cms[0].connect(ours, None).unwrap();
    let request = pair.expect(1, EventType::ConnectRequest);
    assert_eq!((request.listen_id, request.context), (Some(listener), 6));
    pair.cms[1].create_qp(request.id, None, &mut qp()).unwrap();
    pair.cms[1].accept(request.id, None).unwrap();
    pair.expect(0, EventType::Established);
    pair.expect(1, EventType::Established);
    pair.say((0, ours), (1, request.id), b"over IPv6");
    // IPv4 goes to the other listener.
    let second = pair.client();
    pair.cms[0].connect(second, None).unwrap();
    assert_eq!(
        pair.expect(1, EventType::ConnectRequest).listen_id,
        Some(wildcard)
    );
}

/// A resolver that has to ask: the id waits, and gives up in time.
#[test]
fn address_resolution_takes_its_time() {
    struct Slow {
        known_from: Duration,
        mac: [u8; 6],
    }
    impl Resolver for Slow {
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
    let storage = Box::leak(Box::new(rdma::Resources::<ModelPlatform, 4, 1>::new()));
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

/// QP1 falls into error: it is started again, and what was lost is repeated.
#[test]
fn qp1_recovers() {
    let mut pair = Pair::new();
    pair.listener();
    let ours = pair.client();
    // Somebody moves every QP of node 1 to ERR, QP1 among them.
    for qpn in 0..256 {
        let mut command = bareverbs_core::firmware_cmds::qp::Qp2ErrIn::new();
        command.set_qpn(qpn);
        let _ = pair.cms[1].device().execute(&command);
    }
    pair.cms[0].connect(ours, None).unwrap();
    let theirs = pair.expect(1, EventType::ConnectRequest).id;
    assert_eq!(pair.cms[1].gsi_restarts(), 1);
    pair.cms[1].create_qp(theirs, None, &mut qp()).unwrap();
    pair.cms[1].accept(theirs, None).unwrap();
    pair.expect(0, EventType::Established);
    pair.expect(1, EventType::Established);
    pair.say((0, ours), (1, theirs), b"as if nothing had happened");
}
