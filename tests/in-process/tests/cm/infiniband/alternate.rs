//! Alternate paths over two switches that stand between those of the ends: one after the other is cut off, with all its
//! cables, under a data flow, and the connection is given the path through it again when it is back.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bareverbs_cm::engine::{AlternateSlot, CmError, LapState};
use bareverbs_cm::mad::sa::PathRecord;
use bareverbs_cm::mad::{AprStatus, Attribute};
use bareverbs_cm::rdma::{self, *};
use bareverbs_cm::sa;
use bareverbs_core::{AsyncEvent, Device, PathMigState, WcStatus};
use bareverbs_in_process::{Builder, ModelPlatform, World};
use connectx_model::Config as Card;
use connectx_model::link::Link;
use connectx_model::link::rng::Rng;
use connectx_model::link::subnet::{Subnet, Topology};
use connectx_model::roce::packet::{Packet, reseal};

use super::support::{MS, PORT, SECOND, any, device, qp};
use crate::keep::keep;
use crate::managed::{LINEAR_FORWARDING, PAYLOAD, PORT_INFO, done, port_info, set};

const TOPOLOGY: &str = "switch a 4\nswitch b 4\nswitch s 2\nswitch t 2
adapter 0 a:1\nadapter 1 b:1\nadapter 2 a:2
cable a:3 s:1\ncable s:2 b:3\ncable a:4 t:1\ncable t:2 b:4";
/// The places of the two switches in the middle, and the ports of the outer ones that lead to them.
const MIDDLE: [usize; 2] = [2, 3];
const PORTS: [u8; 2] = [3, 4];
/// The first LID of each adapter; the second is reached through the second switch.
const LIDS: [u16; 2] = [10, 20];

type Event = (usize, EventType, i32);

struct Wires {
    subnet: Subnet,
    rng: Rng,
    /// Out of 256: how many messages about paths are lost, come twice, and come later.
    trouble: [u32; 3],
    late: Vec<(usize, Vec<u8>)>,
    /// Changes an APR on its way.
    change: Option<fn(&mut [u8], &mut Rng)>,
    /// Messages about paths that were sent.
    sent: usize,
}

#[derive(Clone)]
struct Shared(Arc<Mutex<Wires>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Wires> {
        self.0.lock().unwrap()
    }

    /// Cuts all cables of one of the two switches in the middle.
    fn cut(&self, switch: usize) {
        for port in 1..=2 {
            self.lock().subnet.set_cable(MIDDLE[switch], port, false);
        }
    }

    /// Plugs them in, and has the ports in use again.
    fn restore(&self, world: &World, switch: usize) {
        for port in 1..=2 {
            self.lock().subnet.set_cable(MIDDLE[switch], port, true);
        }
        let (to, other) = (PORTS[switch], PORTS[1 - switch]);
        for state in [3, 4] {
            let info = port_info(0, 0, state);
            let ports = [
                (to, &[1][..]),
                (1, &[1, to]),
                (2, &[1, to]),
                (to, &[1, other, 2]),
            ];
            for (port, path) in ports {
                self.manage(world, &set(PORT_INFO, port.into(), path, &info));
            }
        }
    }

    /// Sends a datagram of the manager's, and checks the answer.
    fn manage(&self, world: &World, frame: &[u8]) {
        self.lock().subnet.send(2, frame, world.now());
        while world.step() {}
        done(|answer| self.lock().subnet.receive(2, world.now(), answer));
    }
}

/// The attribute of a message of the CM.
fn attribute(frame: &[u8]) -> Option<u16> {
    let packet = Packet::parse(frame).ok()?;
    let mad = packet.payload;
    let of_cm = packet.repr.bth.destination_qpn == 1 && mad.len() == 256 && mad[1] == 7;
    of_cm.then(|| u16::from_be_bytes([mad[16], mad[17]]))
}

impl Link for Shared {
    fn send(&mut self, from: usize, frame: &[u8], now: Duration) {
        let mut guard = self.lock();
        let wires = &mut *guard;
        let kind = attribute(frame);
        let mut frame = frame.to_vec();
        if let Some(change) = wires.change
            && kind == Some(Attribute::Apr as u16)
        {
            change(&mut frame[PAYLOAD..PAYLOAD + 256], &mut wires.rng);
            assert!(reseal(&mut frame));
        }
        let mut times = 1;
        if kind == Some(Attribute::Lap as u16) || kind == Some(Attribute::Apr as u16) {
            wires.sent += 1;
            let [lost, twice, later] = wires.trouble;
            let drawn = wires.rng.below(256);
            if drawn < lost {
                times = 0;
            } else if drawn < lost + twice {
                times = 2;
            } else if drawn < lost + twice + later {
                wires.late.push((from, frame));
                return;
            }
        }
        for _ in 0..times {
            wires.subnet.send(from, &frame, now);
        }
        // What is late comes after something else.
        if wires.rng.below(4) == 0
            && let Some((from, frame)) = wires.late.pop()
        {
            wires.subnet.send(from, &frame, now);
        }
    }

    fn receive(&mut self, to: usize, now: Duration, frame: &mut Vec<u8>) -> bool {
        self.lock().subnet.receive(to, now, frame)
    }

    fn next_arrival(&self) -> Option<Duration> {
        self.lock().subnet.next_arrival()
    }
}

/// Everything that the manager sets, in order.
fn configuration() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    // The four switches: the way there, their own LID, and the port to each of the adapters' four LIDs.
    let switches: [(&[u8], u16, [u8; 4]); 4] = [
        (&[1], 2, [1, 1, 3, 4]),
        (&[1, 3], 3, [1, 1, 2, 2]),
        (&[1, 4], 4, [1, 1, 2, 2]),
        (&[1, 3, 2], 5, [3, 4, 1, 1]),
    ];
    for (path, own, ports) in switches {
        all.push(set(PORT_INFO, 0, path, &port_info(own, 0, 0)));
        let mut table = [0xff; 64];
        for (nth, port) in ports.into_iter().enumerate() {
            table[usize::from(LIDS[nth / 2]) + nth % 2] = port;
        }
        all.push(set(LINEAR_FORWARDING, 0, path, &table));
    }
    for state in [3, 4] {
        let ports: [&[u32]; 4] = [&[1, 2, 3, 4], &[1, 2], &[1, 2], &[1, 3, 4]];
        for ((path, ..), ports) in switches.into_iter().zip(ports) {
            for &port in ports {
                all.push(set(PORT_INFO, port, path, &port_info(0, 0, state)));
            }
        }
        for (path, lid) in [(&[1_u8, 1][..], LIDS[0]), (&[1, 3, 2, 1], LIDS[1])] {
            all.push(set(PORT_INFO, 1, path, &port_info(lid, 1, state)));
        }
    }
    all
}

type Cm = RdmaCm<'static, 'static, ModelPlatform, SubnetAdministration<'static>>;

struct Fabric {
    world: World,
    wires: Shared,
    devices: Vec<&'static Device<'static, ModelPlatform>>,
    cms: Vec<Cm>,
    channels: Vec<ChannelId>,
    seed: u64,
}

fn card(node: usize) -> Card {
    let mut card = Card::new(node as u8 + 1).infiniband();
    card.subnet_managed = true;
    card
}

fn gid(node: usize) -> bareverbs_core::Gid {
    let guid = card(node).port_guid;
    bareverbs_core::Gid((0xfe80_u128 << 112 | u128::from(guid)).to_be_bytes())
}

/// The path from a node through one of the two switches.
fn path(node: usize, switch: usize) -> PathRecord {
    PathRecord {
        sgid: gid(node).0,
        dgid: gid(1 - node).0,
        slid: LIDS[node] + switch as u16,
        dlid: LIDS[1 - node] + switch as u16,
        mtu: 3,
        rate: 16,
        packet_life_time: 6,
        pkey: 0xffff,
        ..PathRecord::ZERO
    }
}

impl Fabric {
    fn new(seed: u64, alternates: usize) -> Self {
        let topology: Topology = TOPOLOGY.parse().unwrap();
        let wires = Shared(Arc::new(Mutex::new(Wires {
            subnet: Subnet::new(&topology),
            rng: Rng::new(seed),
            trouble: [0; 3],
            late: Vec::new(),
            change: None,
            sent: 0,
        })));
        let world = Builder::with_link(Box::new(wires.clone()), seed)
            .function(card(0))
            .function(card(1))
            .stepped();
        let devices: Vec<_> = (0..2).map(|node| device(&world, node)).collect();
        while world.step() {}
        for frame in configuration() {
            wires.manage(&world, &frame);
        }
        let mut cms: Vec<Cm> = Vec::new();
        for (node, device) in devices.iter().enumerate() {
            let subnet = keep(SubnetResources::<Questions<2>, Paths<2>, Members<2>>::new());
            let resolver = SubnetAdministration::new(sa::Config::new(1 << 32), subnet.storage());
            let storage = keep(rdma::Resources::<Ids<ModelPlatform, 8>, Channels<2>>::new());
            let config = rdma::Config {
                gsi_depth: 64,
                ..rdma::Config::new(seed << 1 | node as u64)
            };
            // What the manager says of the port has to be queried first.
            device.poll().unwrap();
            let mut cm = RdmaCm::new(device, resolver, config, storage.storage()).expect("QP1");
            let slots = keep(vec![AlternateSlot::EMPTY; alternates]);
            cm.set_alternate_slots(slots).unwrap();
            cms.push(cm);
        }
        let channels = cms
            .iter_mut()
            .map(|cm| cm.create_event_channel().unwrap())
            .collect();
        Self {
            world,
            wires,
            devices,
            cms,
            channels,
            seed,
        }
    }

    fn poll(&mut self) {
        for (cm, device) in self.cms.iter_mut().zip(&self.devices) {
            while let Some(event) = device.next_async_event() {
                if let AsyncEvent::QpFatal { .. } = event {
                    panic!("{event:?}");
                }
                cm.handle_async_event(&event);
            }
            cm.poll(cm.now()).unwrap();
        }
        self.world.step();
        self.world.advance(MS / 10);
    }

    /// The events of both ends until there are `count`.
    #[track_caller]
    fn events(&mut self, count: usize) -> Vec<Event> {
        let mut all = Vec::new();
        let end = self.world.now() + 60 * SECOND;
        while all.len() < count {
            assert!(
                self.world.now() < end,
                "{all:?}, with seed {:#x}",
                self.seed
            );
            self.poll();
            for node in 0..2 {
                while let Some(event) = self.cms[node]
                    .try_get_cm_event(self.channels[node])
                    .unwrap()
                {
                    all.push((node, event.event, event.status));
                }
            }
        }
        all
    }

    fn event(&mut self, node: usize, kind: EventType) -> CmEvent {
        let end = self.world.now() + 10 * SECOND;
        while self.world.now() < end {
            let event = self.cms[node].try_get_cm_event(self.channels[node]);
            if let Some(event) = event.unwrap() {
                assert_eq!(event.event, kind, "{event:?}, with seed {:#x}", self.seed);
                return event;
            }
            self.poll();
        }
        panic!("no {kind}, with seed {:#x}", self.seed);
    }

    fn silence(&mut self, long: Duration) {
        let end = self.world.now() + long;
        while self.world.now() < end {
            self.poll();
            for node in 0..2 {
                let event = self.cms[node].try_get_cm_event(self.channels[node]);
                assert!(event.unwrap().is_none(), "with seed {:#x}", self.seed);
            }
        }
    }

    /// An id of node 0 with the path through the first switch, and a QP.
    fn client(&mut self) -> CmId {
        let cm = &mut self.cms[0];
        let id = cm
            .create_id(Some(self.channels[0]), 0, PortSpace::Tcp)
            .unwrap();
        let there = SockaddrIb::new(gid(1), PortSpace::Tcp, PORT);
        cm.resolve_addr(id, None, there, SECOND).unwrap();
        self.event(0, EventType::AddrResolved);
        let cm = &mut self.cms[0];
        cm.set_option(id, IdOption::AckTimeout(8)).unwrap();
        cm.set_option(id, IdOption::IbPath(path(0, 0))).unwrap();
        self.event(0, EventType::RouteResolved);
        self.cms[0].create_qp(id, None, &mut qp()).unwrap();
        id
    }

    /// Connects it; with the path through the second switch as the alternate one, if that is asked for.
    fn connected(&mut self, alternate: bool) -> [CmId; 2] {
        let cm = &mut self.cms[1];
        let listener = cm
            .create_id(Some(self.channels[1]), 0, PortSpace::Tcp)
            .unwrap();
        cm.set_option(listener, IdOption::AckTimeout(8)).unwrap();
        cm.bind_addr(listener, any(PortSpace::Tcp, PORT)).unwrap();
        cm.listen(listener, 2).unwrap();
        let ours = self.client();
        if alternate {
            let cm = &mut self.cms[0];
            cm.load_alternate_path(ours, &path(0, 1)).unwrap();
        }
        self.cms[0].connect(ours, None).unwrap();
        let theirs = self.event(1, EventType::ConnectRequest).id;
        self.cms[1].create_qp(theirs, None, &mut qp()).unwrap();
        self.cms[1].accept(theirs, None).unwrap();
        let mut events = self.events(2);
        events.sort_by_key(|event| event.0);
        let established = EventType::Established;
        assert_eq!(events, [(0, established, 0), (1, established, 0)]);
        [ours, theirs]
    }

    fn state(&mut self, node: usize, id: CmId) -> PathMigState {
        let endpoint = self.cms[node].endpoint(id).unwrap();
        endpoint.qp.query().unwrap().attr.path_mig_state
    }

    /// A message each way, whose bytes are those that were sent. Something is done after a number of steps.
    fn exchange(&mut self, ids: [CmId; 2], steps: u32, act: impl FnOnce(&Shared)) {
        const LEN: usize = 20_001;
        let mut rng = Rng::new(self.seed ^ self.world.now().as_nanos() as u64);
        let texts = [(); 2].map(|()| (0..LEN).map(|_| rng.below(256) as u8).collect::<Vec<_>>());
        let mut buffers = Vec::new();
        for (node, id) in ids.into_iter().enumerate() {
            let cm = &mut self.cms[node];
            let source = cm.reg_msgs(id, LEN).unwrap();
            source.copy_in(0, &texts[node]).unwrap();
            let sink = cm.reg_msgs(id, LEN).unwrap();
            cm.post_recv(id, 21, sink.slice(..LEN).unwrap()).unwrap();
            buffers.push((source, sink));
        }
        for (node, id) in ids.into_iter().enumerate() {
            let cm = &mut self.cms[node];
            cm.post_send(
                id,
                22,
                buffers[node].0.slice(..LEN).unwrap(),
                SendFlags::SIGNALED,
            )
            .unwrap();
        }
        for _ in 0..steps {
            self.world.step();
        }
        act(&self.wires);
        let end = self.world.now() + 10 * SECOND;
        let seed = self.seed;
        for (node, id) in ids.into_iter().enumerate() {
            let cm = &mut self.cms[node];
            let sent = cm.get_send_comp_until(id, end).unwrap();
            assert_eq!(sent.status, WcStatus::Success, "seed {seed:#x}");
            let got = cm.get_recv_comp_until(id, end).unwrap();
            assert_eq!(got.status, WcStatus::Success, "seed {seed:#x}");
            let mut bytes = vec![0; LEN];
            buffers[node].1.copy_out(0, &mut bytes).unwrap();
            assert!(bytes == texts[1 - node], "bytes, with seed {seed:#x}");
        }
    }

    /// Both ends go over.
    #[track_caller]
    fn migrated(&mut self, ids: [CmId; 2], to: usize) {
        let mut events = self.events(2);
        events.sort_by_key(|event| event.0);
        let migrated = EventType::PathMigrated;
        let seed = self.seed;
        assert_eq!(events, [(0, migrated, 0), (1, migrated, 0)], "{seed:#x}");
        for (node, id) in ids.into_iter().enumerate() {
            let cm = &mut self.cms[node];
            assert_eq!(cm.alternate_path(id), Ok(None));
            let attr = cm.endpoint(id).unwrap().qp.query().unwrap().attr;
            assert_eq!(attr.path_mig_state, PathMigState::Migrated);
            assert_eq!(attr.ah_attr.dlid, path(node, to).dlid);
        }
    }

    /// One end has the path through a switch loaded at both.
    #[track_caller]
    fn load(&mut self, ids: [CmId; 2], node: usize, switch: usize) {
        let cm = &mut self.cms[node];
        cm.load_alternate_path(ids[node], &path(node, switch))
            .unwrap();
        let events = self.events(2);
        let loaded = EventType::AlternatePathLoaded;
        // The end that was asked has it first.
        let seed = self.seed;
        assert_eq!(
            events,
            [(1 - node, loaded, 0), (node, loaded, 0)],
            "{seed:#x}"
        );
        self.armed(ids, switch);
    }

    #[track_caller]
    fn armed(&mut self, ids: [CmId; 2], switch: usize) {
        for (node, id) in ids.into_iter().enumerate() {
            let alternate = self.cms[node].alternate_path(id).unwrap().unwrap();
            let wanted = path(node, switch);
            assert_eq!(
                (alternate.local_lid, alternate.remote_lid),
                (wanted.slid, wanted.dlid)
            );
            // The device's delay is far above the packet lifetime of the path, and is the sum (`cm_ack_timeout` of Linux's
            // core/cm.c).
            let attr = self.cms[node]
                .endpoint(id)
                .unwrap()
                .qp
                .query()
                .unwrap()
                .attr;
            assert_ne!(attr.alt_timeout, 0);
            assert_eq!(attr.alt_timeout, alternate.ack_timeout, "node {node}");
        }
        self.exchange(ids, 0, |_| {});
        for (node, id) in ids.into_iter().enumerate() {
            let seed = self.seed;
            assert_eq!(
                self.state(node, id),
                PathMigState::Armed,
                "node {node}, seed {seed:#x}"
            );
        }
    }

    fn end(&mut self, ids: [CmId; 2]) {
        self.cms[0].disconnect(ids[0]).unwrap();
        self.event(1, EventType::Disconnected);
        self.cms[1].disconnect(ids[1]).unwrap();
        self.event(0, EventType::Disconnected);
    }
}

/// The alternate path of the request; then those that either end has loaded after each cut.
#[test]
fn a_connection_survives_one_switch_after_the_other() {
    for seed in 0..3 {
        let mut fabric = Fabric::new(seed, 1);
        let mut rng = Rng::new(seed);
        let ids = fabric.connected(true);
        fabric.armed(ids, 1);
        for round in 0..5 {
            let used = round % 2;
            let steps = rng.below(60);
            fabric.exchange(ids, steps, |wires| wires.cut(used));
            // Whatever was over before the cut: this is not.
            fabric.exchange(ids, 0, |_| {});
            fabric.migrated(ids, 1 - used);
            let (world, wires) = (&fabric.world, fabric.wires.clone());
            wires.restore(world, used);
            fabric.load(ids, rng.below(2) as usize, used);
        }
        fabric.silence(100 * MS);
        fabric.end(ids);
    }
}

/// The same with messages about paths that are lost, come twice or come late. The other end's answer may be lost for good
/// in time, so that only its own event says that it has the path.
#[test]
fn paths_are_loaded_over_a_bad_fabric() {
    let mut repeated = 0;
    for seed in 0..6 {
        let mut fabric = Fabric::new(seed, 1);
        let mut rng = Rng::new(seed);
        let ids = fabric.connected(false);
        assert_eq!(fabric.cms[0].alternate_path(ids[0]), Ok(None));
        fabric.wires.lock().trouble = [80, 60, 40];
        for round in 0..4 {
            let used = round % 2;
            fabric.load(ids, rng.below(2) as usize, 1 - used);
            let steps = rng.below(60);
            fabric.exchange(ids, steps, |wires| wires.cut(used));
            fabric.exchange(ids, 0, |_| {});
            fabric.migrated(ids, 1 - used);
            let (world, wires) = (&fabric.world, fabric.wires.clone());
            wires.restore(world, used);
        }
        repeated += fabric.wires.lock().sent.saturating_sub(8);
        fabric.end(ids);
    }
    assert!(repeated > 10, "{repeated} repetitions");
}

/// APRs with any bytes in them: the LAP is answered, refused, or given up, and the connection goes on.
#[test]
fn answers_may_be_anything() {
    let [mut loaded, mut refused, mut given_up] = [0; 3];
    for seed in 0..24 {
        let mut fabric = Fabric::new(seed, 1);
        let ids = fabric.connected(false);
        // Fewer repetitions.
        let timers = bareverbs_cm::engine::Timers {
            remote_response: 14,
            local_response: 14,
            max_retries: 2,
            early: None,
        };
        let cm = &mut fabric.cms[0];
        cm.set_option(ids[0], IdOption::CmTimers(timers)).unwrap();
        fabric.wires.lock().change = Some(|mad, rng| match rng.below(4) {
            0 => mad[33] = rng.below(256) as u8,
            1 => mad[24 + rng.below(8) as usize] ^= 1 << rng.below(8),
            2 => mad[8 + rng.below(8) as usize] ^= 1 << rng.below(8),
            _ => mad[32 + rng.below(224) as usize] = rng.below(256) as u8,
        });
        let cm = &mut fabric.cms[0];
        cm.load_alternate_path(ids[0], &path(0, 1)).unwrap();
        let events = fabric.events(2);
        assert_eq!(events[0], (1, EventType::AlternatePathLoaded, 0));
        let error = fabric.cms[0].last_error(ids[0]).unwrap();
        match events[1] {
            (0, EventType::AlternatePathLoaded, 0) => loaded += 1,
            (0, EventType::AlternatePathError, status @ 1..) => {
                let said = RdmaError::AlternatePath(AprStatus(status as u8));
                assert_eq!(error, Some(said));
                refused += 1;
            }
            (0, EventType::AlternatePathError, status) => {
                assert_eq!((status, error), (-110, Some(RdmaError::TimedOut)));
                given_up += 1;
            }
            other => panic!("{other:?}, with seed {seed:#x}"),
        }
        fabric.exchange(ids, 0, |_| {});
        // Once more, with the answer as it was given.
        fabric.wires.lock().change = None;
        fabric.load(ids, 0, 1);
        fabric.exchange(ids, 3, |wires| wires.cut(0));
        fabric.exchange(ids, 0, |_| {});
        fabric.migrated(ids, 1);
        fabric.end(ids);
    }
    assert!(
        loaded > 1 && refused > 1 && given_up > 0,
        "{loaded}, {refused}, {given_up}"
    );
}

#[test]
fn what_cannot_be_is_refused() {
    let mut fabric = Fabric::new(1, 1);
    let ids = fabric.connected(false);
    let good = path(0, 1);
    let refused = |status| Err(RdmaError::AlternatePath(status));
    let cm = &mut fabric.cms[0];
    let mut load = |path| cm.load_alternate_path(ids[0], &path);
    assert_eq!(load(path(0, 0)), refused(AprStatus::IS_CURRENT));
    assert_eq!(
        load(PathRecord { slid: 30, ..good }),
        refused(AprStatus::INVALID_LID)
    );
    assert!(matches!(
        load(PathRecord {
            dlid: 0xc000,
            ..good
        }),
        Err(RdmaError::Sa(_))
    ));
    assert!(matches!(
        load(PathRecord { dlid: 0, ..good }),
        Err(RdmaError::Sa(_))
    ));
    assert!(matches!(
        load(PathRecord {
            sgid: [9; 16],
            ..good
        }),
        Err(RdmaError::NoDevice(_))
    ));
    load(good).unwrap();
    assert_eq!(
        load(good),
        Err(RdmaError::Engine(CmError::AlternatePathBusy {
            state: LapState::Sent
        }))
    );
    assert_eq!(fabric.events(2).len(), 2);
    let slots = keep([AlternateSlot::EMPTY; 4]);
    assert!(matches!(
        fabric.cms[0].set_alternate_slots(slots),
        Err(RdmaError::Unsupported(_))
    ));
    // A path that does not begin at the port that is asked: node 1 says so.
    let elsewhere = PathRecord { dlid: 30, ..good };
    fabric.cms[0]
        .load_alternate_path(ids[0], &elsewhere)
        .unwrap();
    let invalid = i32::from(AprStatus::INVALID_LID.0);
    let events = fabric.events(1);
    assert_eq!(events, [(0, EventType::AlternatePathError, invalid)]);
    fabric.exchange(ids, 0, |_| {});
    fabric.end(ids);
    // It is over.
    assert!(matches!(
        fabric.cms[0].load_alternate_path(ids[0], &good),
        Err(RdmaError::WrongState { .. })
    ));
}

/// A manager without slots: the request's path is refused and the connection made without it, and so with LAPs.
#[test]
fn an_end_without_alternate_paths_says_so() {
    let mut fabric = Fabric::new(1, 1);
    fabric.cms[1].set_alternate_slots(&mut []).unwrap();
    let ids = fabric.connected(true);
    for (node, id) in ids.into_iter().enumerate() {
        assert_eq!(fabric.cms[node].alternate_path(id), Ok(None));
        assert_eq!(fabric.state(node, id), PathMigState::Migrated);
    }
    let cm = &mut fabric.cms[0];
    cm.load_alternate_path(ids[0], &path(0, 1)).unwrap();
    let unsupported = i32::from(AprStatus::UNSUPPORTED.0);
    let events = fabric.events(1);
    assert_eq!(events, [(0, EventType::AlternatePathError, unsupported)]);
    let cm = &mut fabric.cms[1];
    assert_eq!(
        cm.load_alternate_path(ids[1], &path(1, 1)),
        Err(RdmaError::Engine(CmError::NoAlternateSlots { capacity: 0 }))
    );
    fabric.exchange(ids, 0, |_| {});
    fabric.end(ids);
}
