//! Addresses and neighbours of two ports on one cable, found out over their own Ethernet queues, in virtual time; and the
//! connections that stand on them.

mod link_changes;
mod mismatches;
mod second_stack;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bareverbs_cm::ip;
use bareverbs_cm::rdma::{self, *};
use bareverbs_core::firmware_cmds::opcode::Opcode;
use bareverbs_core::qp::QpCap;
use bareverbs_core::{Cqs, Device, EthernetInit, Gid, PageChunks, Qps, RoceVersion, Srqs};
use bareverbs_in_process::{Builder, ModelPlatform, World};
use connectx_model::Config as Card;
use connectx_model::fault::{CommandFault, CommandRule};
use connectx_model::link::Link;
use connectx_model::link::fault::Rates;
use connectx_model::syndrome::Status;

use crate::keep::keep;

const SECOND: Duration = Duration::from_secs(1);
const PORT: u16 = 7471;
/// MAC address of a host that takes the address of another.
const MOVED: [u8; 6] = [2, 0, 0, 0, 0, 0x99];

type Driver = &'static Device<'static, ModelPlatform>;
type Neighbours = NeighbourDiscovery<'static, 'static, ModelPlatform>;
type Cm = RdmaCm<'static, 'static, ModelPlatform, Neighbours>;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn device(world: &World, node: usize) -> Driver {
    let resources = keep(bareverbs_core::Resources::<
        Qps<16>,
        Cqs<32>,
        Srqs<2>,
        PageChunks<256>,
    >::new());
    let config = bareverbs_core::Config::DEFAULT;
    keep(world.open(node, config, resources.storage(), &[]))
}

fn neighbours(device: Driver) -> Neighbours {
    neighbours_of(device, ip::Config::new(1))
}

/// Makes neighbour discovery with these settings.
fn neighbours_of(device: Driver, config: ip::Config) -> Neighbours {
    let memory = keep(ip::Resources::<
        ip::Addresses<8>,
        ip::Neighbours<32>,
        ip::Routes<4>,
        ip::Groups<32>,
    >::new());
    let pd = keep(device.default_pd().unwrap());
    let init = EthernetInit::default();
    NeighbourDiscovery::new(device, pd, init, config, memory.storage()).expect("a queue")
}

fn manager(device: Driver, neighbours: Neighbours, seed: u64) -> Cm {
    let storage = keep(rdma::Resources::<Ids<ModelPlatform, 16>, Channels<4>>::new());
    RdmaCm::new(
        device,
        neighbours,
        rdma::Config::new(seed),
        storage.storage(),
    )
    .expect("QP1")
}

fn init() -> QpInit<'static, 'static, ModelPlatform> {
    QpInit {
        cap: QpCap {
            max_send_wr: 4,
            max_recv_wr: 4,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        },
        ..QpInit::default()
    }
}

struct Pair {
    world: World,
    devices: [Driver; 2],
    cms: [Cm; 2],
    channels: [ChannelId; 2],
}

impl Pair {
    /// Two ports with these addresses each.
    fn new(addresses: [&[(&str, u8, Option<u16>)]; 2]) -> Self {
        Self::with_roce(RoceVersion::V2, addresses)
    }

    /// The same in a version of RoCE.
    fn with_roce(version: RoceVersion, addresses: [&[(&str, u8, Option<u16>)]; 2]) -> Self {
        Self::with_versions([version; 2], addresses)
    }

    /// Makes two ports with these addresses each, and each port has its own version of RoCE.
    fn with_versions(
        versions: [RoceVersion; 2],
        addresses: [&[(&str, u8, Option<u16>)]; 2],
    ) -> Self {
        let world = Builder::new()
            .function(Card::new(1))
            .function(Card::new(2))
            .stepped();
        let devices = [0, 1].map(|node| device(&world, node));
        let mut hosts =
            [0, 1].map(|node| neighbours(devices[node]).with_roce_version(versions[node]));
        for (host, addresses) in hosts.iter_mut().zip(addresses) {
            for (address, prefix, vlan) in addresses {
                host.add_address(ip(address), *prefix, *vlan).unwrap();
            }
        }
        let deadline = devices[0].platform_now() + 10 * SECOND;
        for host in &mut hosts {
            host.wait_for_addresses(deadline).unwrap();
        }
        let [first, second] = hosts;
        let mut cms = [
            manager(devices[0], first, 1),
            manager(devices[1], second, 2),
        ];
        let channels = [0, 1].map(|node: usize| cms[node].create_event_channel().unwrap());
        Self {
            world,
            devices,
            cms,
            channels,
        }
    }

    /// Both managers at work, until one has an event or the time is over.
    fn next(&mut self, node: usize, limit: Duration) -> Option<CmEvent> {
        let until = self.cms[0].now() + limit;
        loop {
            for cm in &mut self.cms {
                cm.poll(cm.now()).unwrap();
            }
            if let Some(event) = self.cms[node]
                .try_get_cm_event(self.channels[node])
                .unwrap()
            {
                return Some(event);
            }
            if self.cms[0].now() >= until {
                return None;
            }
            self.world.advance(Duration::from_micros(100));
        }
    }

    /// Sends an ARP request out of a node's port: it comes from 192.0.2.`from`, which is at `mac` now, and asks for
    /// 192.0.2.`to`; an announcement if they are the same.
    fn arp(&mut self, node: usize, vlan: Option<u16>, mac: [u8; 6], [from, to]: [u8; 2]) {
        let mut frame = [&[0xff; 6][..], &mac].concat();
        if let Some(vlan) = vlan {
            frame.extend([0x81, 0]);
            frame.extend(vlan.to_be_bytes());
        }
        frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
        frame.extend(mac);
        frame.extend([192, 0, 2, from, 0, 0, 0, 0, 0, 0, 192, 0, 2, to]);
        frame.resize(64, 0);
        let now = self.world.now();
        self.world.with_wire(|wire| wire.send(node, &frame, now));
    }

    fn expect(&mut self, node: usize, event: EventType) -> CmEvent {
        let got = self.next(node, 30 * SECOND).expect("an event");
        assert_eq!((got.event, got.status), (event, 0));
        got
    }

    /// Connects node 0 to node 1; both ids.
    fn connect(&mut self, to: &str) -> [CmId; 2] {
        self.listener(to);
        self.connect_to(to)
    }

    /// A listener of node 1 at every address of the family.
    fn listener(&mut self, to: &str) -> CmId {
        let listener = self.cms[1]
            .create_id(Some(self.channels[1]), 0, PortSpace::Tcp)
            .unwrap();
        let any = if ip(to).is_ipv4() { "0.0.0.0" } else { "::" };
        self.cms[1]
            .bind_addr(listener, SocketAddr::new(ip(any), PORT))
            .unwrap();
        self.cms[1].listen(listener, 0).unwrap();
        listener
    }

    /// Connects node 0 to a listener of node 1.
    fn connect_to(&mut self, to: &str) -> [CmId; 2] {
        let ours = self.client(to);
        self.cms[0].connect(ours, None).unwrap();
        let request = self.expect(1, EventType::ConnectRequest);
        self.cms[1]
            .create_qp(request.id, None, &mut init())
            .unwrap();
        self.cms[1].accept(request.id, None).unwrap();
        self.expect(0, EventType::Established);
        self.expect(1, EventType::Established);
        [ours, request.id]
    }

    /// An id of node 0 that is ready to connect.
    fn client(&mut self, to: &str) -> CmId {
        let ours = self.cms[0]
            .create_id(Some(self.channels[0]), 0, PortSpace::Tcp)
            .unwrap();
        self.cms[0]
            .resolve_addr(ours, None, SocketAddr::new(ip(to), PORT), 5 * SECOND)
            .unwrap();
        self.expect(0, EventType::AddrResolved);
        self.cms[0].resolve_route(ours, SECOND).unwrap();
        self.expect(0, EventType::RouteResolved);
        self.cms[0].create_qp(ours, None, &mut init()).unwrap();
        ours
    }
}

/// The time, for those who hold a device only.
trait Now {
    fn platform_now(&self) -> Duration;
}

impl Now for Driver {
    fn platform_now(&self) -> Duration {
        use bareverbs_core::Platform;
        self.platform().now()
    }
}

#[test]
fn hosts_resolve_each_other_and_connect() {
    const LINKS: [(&str, &str, u8, Option<u16>); 5] = [
        ("192.0.2.1", "192.0.2.2", 24, None),
        ("2001:db8::1", "2001:db8::2", 64, None),
        ("fe80::1", "fe80::2", 64, None),
        ("192.0.2.1", "192.0.2.2", 24, Some(100)),
        ("2001:db8::1", "2001:db8::2", 64, Some(7)),
    ];
    let versions = [RoceVersion::V2, RoceVersion::V1];
    let cases = LINKS.map(|link| versions.map(|version| (link, version)));
    for ((own, peer, prefix, vlan), version) in cases.into_iter().flatten() {
        let addresses: [&[_]; 2] = [&[(own, prefix, vlan)], &[(peer, prefix, vlan)]];
        let mut pair = Pair::with_roce(version, addresses);
        let found = |node: usize, address: &str| {
            let gid = Gid::from(ip(address));
            pair.devices[node].find_gid(&gid, version, vlan)
        };
        assert!(found(0, own).is_some() && found(1, peer).is_some());
        let ids = pair.connect(peer);
        for node in [0, 1] {
            assert_eq!(pair.cms[node].stats().repeated, 0);
        }
        // Data goes the same way.
        let receive = pair.cms[1].reg_msgs(ids[1], 64).unwrap();
        let send = pair.cms[0].reg_msgs(ids[0], 64).unwrap();
        send.copy_in(0, b"over the wire").unwrap();
        pair.cms[1]
            .post_recv(ids[1], 1, receive.slice(..64).unwrap())
            .unwrap();
        pair.cms[0]
            .post_send(ids[0], 2, send.slice(..13).unwrap(), SendFlags::SIGNALED)
            .unwrap();
        let mut completion = None;
        for _ in 0..100_000 {
            pair.world.step();
            completion = pair.cms[1].try_get_recv_comp(ids[1]).unwrap();
            if completion.is_some() {
                break;
            }
        }
        assert_eq!(completion.expect("a message").byte_len, 13);
    }
}

/// The peer still has our address, so that it does not resolve it; we have to resolve the peer's before we can answer.
#[test]
fn a_host_that_knows_our_address_does_not_ask() {
    let mut pair = Pair::new([&[("192.0.2.1", 24, None)], &[("192.0.2.2", 24, None)]]);
    pair.connect("192.0.2.2");
    pair.cms[1]
        .resolver_mut()
        .host()
        .forget(ip("192.0.2.1"), None);
    let ours = pair.cms[0]
        .create_id(Some(pair.channels[0]), 0, PortSpace::Tcp)
        .unwrap();
    let to = SocketAddr::new(ip("192.0.2.2"), PORT);
    pair.cms[0].resolve_addr(ours, None, to, SECOND).unwrap();
    pair.expect(0, EventType::AddrResolved);
    pair.cms[0].resolve_route(ours, SECOND).unwrap();
    pair.expect(0, EventType::RouteResolved);
    pair.cms[0].create_qp(ours, None, &mut init()).unwrap();
    pair.cms[0].connect(ours, None).unwrap();
    pair.expect(1, EventType::ConnectRequest);
    assert_eq!(pair.cms[0].stats().repeated, 0);
}

#[test]
fn an_absent_host_is_an_error_in_time() {
    let mut pair = Pair::new([&[("192.0.2.1", 24, None)], &[]]);
    let ours = pair.cms[0]
        .create_id(Some(pair.channels[0]), 0, PortSpace::Tcp)
        .unwrap();
    let start = pair.cms[0].now();
    let absent = SocketAddr::new(ip("192.0.2.77"), PORT);
    pair.cms[0]
        .resolve_addr(ours, None, absent, 20 * SECOND)
        .unwrap();
    let event = pair.next(0, 30 * SECOND).expect("an event");
    assert_eq!(event.event, EventType::AddrError);
    assert_eq!(event.status, -errno::EHOSTUNREACH);
    let why = pair.cms[0].last_error(ours).unwrap().expect("an error");
    assert_eq!(why, RdmaError::HostUnreachable(ip("192.0.2.77")));
    let took = pair.cms[0].now() - start;
    assert!(took < 4 * SECOND, "{took:?}");

    // Asked for with less time than the questions take.
    let start = pair.cms[0].now();
    let absent = SocketAddr::new(ip("192.0.2.78"), PORT);
    pair.cms[0]
        .resolve_addr(ours, None, absent, SECOND)
        .unwrap();
    let event = pair.next(0, 30 * SECOND).expect("an event");
    assert_eq!(
        (event.event, event.status),
        (EventType::AddrError, -errno::ETIMEDOUT)
    );
    assert!(pair.cms[0].now() - start < 2 * SECOND);
    let why = pair.cms[0].last_error(ours).unwrap().expect("an error");
    assert_eq!(why.errno(), errno::ETIMEDOUT, "{why}");

    // Without a route the call fails, and there is no event: core/addr.c of Linux, `rdma_resolve_ip`, which waits for hosts
    // only. The id stays bound.
    for elsewhere in ["198.51.100.1", "2001:db8::9"] {
        let ours = pair.cms[0]
            .create_id(Some(pair.channels[0]), 0, PortSpace::Tcp)
            .unwrap();
        let elsewhere = SocketAddr::new(ip(elsewhere), PORT);
        let error = pair.cms[0]
            .resolve_addr(ours, None, elsewhere, SECOND)
            .unwrap_err();
        assert_eq!(error.errno(), errno::ENETUNREACH, "{error}");
        assert!(pair.next(0, SECOND).is_none());
        assert_eq!(pair.cms[0].state(ours), Ok(IdState::AddrBound));
    }
}

#[test]
fn a_peer_that_takes_another_port_is_unreachable() {
    let mut pair = Pair::new([&[("192.0.2.1", 24, None)], &[("192.0.2.2", 24, None)]]);
    let [ours, _] = pair.connect("192.0.2.2");
    // Another id, without a route: it has to be resolved for Linux's `cma_add_id_to_tree`.
    let to = SocketAddr::new(ip("192.0.2.2"), PORT);
    let unrouted = pair.cms[0]
        .create_id(Some(pair.channels[0]), 0, PortSpace::Tcp)
        .unwrap();
    pair.cms[0]
        .resolve_addr(unrouted, None, to, SECOND)
        .unwrap();
    pair.expect(0, EventType::AddrResolved);
    // Another host announces the address of each end.
    for end in 0..2 {
        let last = 2 - end as u8;
        assert_ne!(pair.devices[end].mac(), Ok(MOVED));
        pair.arp(1 - end, None, MOVED, [last; 2]);
        let event = pair.next(end, SECOND / 100);
        let host = pair.cms[end].resolver_mut().host();
        assert!(host.neighbours().any(|(_, _, mac)| mac == MOVED));
        let event = event.map(|event| (event.event, event.id, event.status));
        // The end that was connected to has not resolved a route.
        let expected = (EventType::Unreachable, ours, -errno::ETIMEDOUT);
        assert_eq!(event, (end == 0).then_some(expected));
        assert!(pair.next(end, SECOND).is_none(), "reported once");
    }
}

/// Questions of twenty hosts that a node does not know, or knows by another MAC address: each is an event of that node's.
fn ask_from_many(pair: &mut Pair, node: usize, round: u8) {
    for host in 0..20 {
        let mac = [2, 0, 0, 1, round, host];
        pair.arp(1 - node, None, mac, [100 + host, node as u8 + 1]);
    }
}

/// The peer's move is not lost among those of others, of which there are more than events are kept.
#[test]
fn a_peer_that_moves_while_many_hosts_appear_is_unreachable() {
    let mut pair = Pair::new([&[("192.0.2.1", 24, None)], &[("192.0.2.2", 24, None)]]);
    let [ours, _] = pair.connect("192.0.2.2");
    pair.arp(1, None, MOVED, [2; 2]);
    ask_from_many(&mut pair, 0, 0);
    // All of them arrive before the next poll.
    pair.world.advance(SECOND / 100);
    let event = pair.next(0, SECOND).expect("an event");
    assert_eq!((event.event, event.id), (EventType::Unreachable, ours));
    let host = pair.cms[0].resolver_mut().host();
    assert_eq!(host.neighbours().count(), 21);
}

/// The event of an address that is another's is not lost among those of hosts that move.
#[test]
fn an_address_that_is_anothers_is_told_while_many_hosts_move() {
    let mut pair = Pair::new([&[("2001:db8::1", 64, None)], &[("192.0.2.2", 24, None)]]);
    let host = pair.cms[1].resolver_mut();
    host.add_address(ip("2001:db8::1"), 64, None).unwrap();
    let mut told = Vec::new();
    for round in 0..200 {
        ask_from_many(&mut pair, 1, round);
        pair.world.advance(SECOND / 50);
        for cm in &mut pair.cms {
            cm.poll(cm.now()).unwrap();
        }
        while let Some(event) = pair.cms[1].resolver_mut().next_event() {
            told.extend(matches!(event, ip::Event::AddressDuplicate { .. }).then_some(round));
        }
    }
    assert_eq!(told.len(), 1, "{told:?}");
}

#[test]
fn an_address_that_is_anothers_is_not_taken() {
    let mut pair = Pair::new([&[("2001:db8::1", 64, None)], &[]]);
    let host = pair.cms[1].resolver_mut();
    host.add_address(ip("2001:db8::1"), 64, None).unwrap();
    let mut waited = 0;
    let event = loop {
        pair.world.advance(Duration::from_millis(1));
        for cm in &mut pair.cms {
            cm.poll(cm.now()).unwrap();
        }
        if let Some(event) = pair.cms[1].resolver_mut().next_event() {
            break event;
        }
        waited += 1;
        assert!(waited < 1_000_000);
    };
    let mac = pair.devices[0].mac().unwrap();
    assert_eq!(
        event,
        ip::Event::AddressDuplicate {
            address: ip("2001:db8::1"),
            vlan: None,
            mac,
        }
    );
    assert_eq!(pair.devices[1].gid_table().count(), 0);
}

/// An optimistic address has its entry while it is probed for, and loses it to the host that has had the address.
#[test]
fn an_optimistic_address_that_is_anothers_loses_its_entry() {
    use rdma::Neighbours as _;
    let world = Builder::new()
        .function(Card::new(1))
        .function(Card::new(2))
        .stepped();
    let devices = [0, 1].map(|node| device(&world, node));
    let mut config = ip::Config::new(2);
    config.optimistic = true;
    let mut hosts = [neighbours(devices[0]), neighbours_of(devices[1], config)];
    let address = ip("2001:db8::1");
    hosts[0].add_address(address, 64, None).unwrap();
    hosts[0].wait_for_addresses(10 * SECOND).unwrap();
    hosts[1].add_address(address, 64, None).unwrap();
    let entry = |node: usize| devices[node].find_gid(&Gid::from(address), RoceVersion::V2, None);
    assert!(hosts[1].host().is_settled() && entry(1).is_some());
    for _ in 0..50 {
        world.advance(SECOND / 10);
        for host in &mut hosts {
            host.poll(world.now()).unwrap();
        }
    }
    assert_eq!([0, 1].map(|node| entry(node).is_some()), [true, false]);
    let told: Vec<ip::Event> = std::iter::from_fn(|| hosts[1].next_event()).collect();
    let (vlan, mac) = (None, devices[0].mac().unwrap());
    let lost = ip::Event::AddressDuplicate { address, vlan, mac };
    assert_eq!(told, [ip::Event::AddressReady { address, vlan }, lost]);
}

/// Enters addresses until there is no room.
fn fill_gid_table(device: Driver) {
    while let Some(index) = device.free_gid_index() {
        let gid = Gid::from_ipv4([198, 51, (index >> 8) as u8, index as u8].into());
        device
            .set_gid(index, bareverbs_core::GidEntry::roce_v2(gid, [2; 6]))
            .unwrap();
    }
}

/// Addresses that find the GID table full are reported as errors, and get their entries when there is room.
#[test]
fn an_address_waits_for_room_in_the_gid_table() {
    use rdma::Neighbours as _;
    let world = Builder::new()
        .function(Card::new(1))
        .function(Card::new(2))
        .stepped();
    let device = device(&world, 0);
    fill_gid_table(device);
    let mut host = neighbours(device);
    let texts = ["2001:db8::1", "2001:db8::2"];
    for text in texts {
        host.add_address(ip(text), 64, None).unwrap();
    }
    let patience = 10 * SECOND;
    for _ in texts {
        let full = host
            .wait_for_addresses(device.platform_now() + patience)
            .unwrap_err();
        assert!(matches!(full, RdmaError::Full { .. }), "{full}");
    }
    assert!(host.host().is_settled());
    let entry = |text: &str| device.find_gid(&Gid::from(ip(text)), RoceVersion::V2, None);
    let pass = |host: &mut Neighbours| {
        for _ in 0..20 {
            world.advance(SECOND / 10);
            host.poll(device.platform_now()).unwrap();
        }
        texts.map(entry)
    };
    assert_eq!(pass(&mut host), [None; 2]);
    assert_eq!(host.next_event(), None);
    for (index, text) in [5, 3].into_iter().zip(texts) {
        let late = host.wait_for_addresses(device.platform_now() + patience);
        assert!(matches!(late, Err(RdmaError::Full { .. })));
        device.del_gid(index).unwrap();
        let _ = pass(&mut host);
        assert_eq!(entry(text), Some(index));
        let address = ip(text);
        let ready = ip::Event::AddressReady {
            address,
            vlan: None,
        };
        assert_eq!((host.next_event(), host.next_event()), (Some(ready), None));
    }
    host.wait_for_addresses(device.platform_now() + patience)
        .unwrap();
    // The entry of an address that is removed is the next one's at once, and an address that is removed waits no longer.
    for (text, entered) in [("192.0.2.3", true), ("192.0.2.4", false)] {
        // It is not probed for.
        let full = host.add_address(ip(text), 24, None);
        assert!(matches!(full, Err(RdmaError::Full { .. })));
        let removed = if entered { texts[0] } else { text };
        host.remove_address(ip(removed), None).unwrap();
        assert_eq!(entry(text).is_some(), entered);
        host.wait_for_addresses(device.platform_now() + patience)
            .unwrap();
    }
}

/// The firmware refuses the entry of one address that has waited for room: the others get theirs, and the refusal is told once.
#[test]
fn a_refused_address_does_not_keep_others_from_the_gid_table() {
    use rdma::Neighbours as _;
    let world = Builder::new()
        .function(Card::new(1))
        .function(Card::new(2))
        .stepped();
    let device = device(&world, 0);
    fill_gid_table(device);
    let mut host = neighbours(device);
    let texts = ["192.0.2.1", "192.0.2.2", "192.0.2.3"];
    for text in texts {
        let full = host.add_address(ip(text), 24, None);
        assert!(matches!(full, Err(RdmaError::Full { .. })));
    }
    for index in 3..6 {
        device.del_gid(index).unwrap();
    }
    let refusal = CommandFault::Fail {
        status: Status::BadParam,
        syndrome: 0xabc,
    };
    let rule = CommandRule::next(Opcode::SetRoceAddress.number(), refusal);
    world.with_model(0, |model| model.faults_mut().commands.push(rule));
    world.advance(2 * SECOND);
    let refused = host.poll(device.platform_now());
    assert!(matches!(refused, Err(RdmaError::Gid(_))), "{refused:?}");
    let entered = texts.map(|text| {
        let gid = Gid::from(ip(text));
        device.find_gid(&gid, RoceVersion::V2, None).is_some()
    });
    assert_eq!(entered, [false, true, true]);
    // Nor is it tried again when there is room for another one that has waited.
    fill_gid_table(device);
    let full = host.add_address(ip("192.0.2.4"), 24, None);
    assert!(matches!(full, Err(RdmaError::Full { .. })));
    for index in 6..8 {
        device.del_gid(index).unwrap();
    }
    world.advance(2 * SECOND);
    host.poll(device.platform_now()).unwrap();
    let entered = ["192.0.2.1", "192.0.2.4"].map(|text| {
        let gid = Gid::from(ip(text));
        device.find_gid(&gid, RoceVersion::V2, None).is_some()
    });
    assert_eq!(entered, [false, true]);
}

/// Waiting for an address counts the time since the last step of probing: a probe goes within a second (RFC 4862, 5.4.2,
/// `MAX_RTR_SOLICITATION_DELAY`), and the address is the port's one second after it (RFC 4861, `RETRANS_TIMER`). Twice that
/// time for both steps does not do for a thread that comes late to one.
#[test]
fn probing_is_waited_for_step_by_step() {
    let world = Builder::new()
        .function(Card::new(1))
        .function(Card::new(2))
        .stepped();
    let device = device(&world, 0);
    let mut late = 0;
    for last in 1..=8 {
        let mut host = neighbours_of(device, ip::Config::new(last));
        let address = ip(&format!("2001:db8::{last}"));
        host.add_address(address, 64, None).unwrap();
        let begun = device.platform_now();
        let nothing_done = host.wait_for_addresses(begun);
        assert!(matches!(nothing_done, Err(RdmaError::TimedOut)), "{last}");
        let patience = SECOND + Duration::from_millis(1);
        host.wait_for_addresses(begun + patience).unwrap();
        late += u32::from(device.platform_now() > begun + patience);
        assert!(
            device
                .find_gid(&Gid::from(address), RoceVersion::V2, None)
                .is_some()
        );
    }
    assert!(
        late > 0,
        "no probe was late enough to need more than one second"
    );
}

#[test]
fn an_address_goes_with_its_gid() {
    let mut pair = Pair::new([&[("192.0.2.1", 24, None)], &[("192.0.2.2", 24, None)]]);
    assert_eq!(pair.devices[0].gid_table().count(), 1);
    let host = pair.cms[0].resolver_mut();
    host.remove_address(ip("192.0.2.1"), None).unwrap();
    assert_eq!(pair.devices[0].gid_table().count(), 0);
    let ours = pair.cms[0]
        .create_id(Some(pair.channels[0]), 0, PortSpace::Tcp)
        .unwrap();
    let bound = pair.cms[0].bind_addr(ours, SocketAddr::new(ip("192.0.2.1"), 0));
    assert_eq!(bound.unwrap_err().errno(), errno::EADDRNOTAVAIL);
}

#[test]
fn a_bad_cable_only_takes_longer() {
    for seed in 0..8 {
        let mut pair = Pair::new([&[("192.0.2.1", 24, None)], &[("192.0.2.2", 24, None)]]);
        pair.world.with_wire(|wire| {
            wire.set_rates(Rates {
                loss: 200,
                duplicate: 200,
                ..Rates::default()
            });
        });
        println!("seed {seed}");
        let mut outcome = None;
        for _ in 0..4 {
            let ours = pair.cms[0]
                .create_id(Some(pair.channels[0]), 0, PortSpace::Tcp)
                .unwrap();
            let to = SocketAddr::new(ip("192.0.2.2"), PORT);
            pair.cms[0]
                .resolve_addr(ours, None, to, 5 * SECOND)
                .unwrap();
            let event = pair.next(0, 30 * SECOND).expect("an event");
            outcome = Some(event.event);
            if event.event == EventType::AddrResolved {
                break;
            }
            assert_eq!(event.status, -errno::EHOSTUNREACH);
        }
        assert_eq!(outcome, Some(EventType::AddrResolved));
    }
}
