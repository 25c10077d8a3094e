//! Two engines on a pipe with virtual time.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

pub mod peer;

use std::collections::BTreeMap;
use std::time::Duration;

use bareverbs_cm::engine::*;
use bareverbs_cm::mad::{Attribute, MAD_LEN, Mad};

pub const SERVICE: u64 = 0x0106_1c06;
pub const MS: Duration = Duration::from_millis(1);

pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// The seeds of a test: as many as it asks for, or `BAREVERBS_SEEDS` times as many; from `BAREVERBS_SEED` on.
pub fn seeds(count: u64) -> std::ops::Range<u64> {
    let number = |name| {
        std::env::var(name)
            .ok()
            .and_then(|text: String| text.parse::<u64>().ok())
    };
    let first = number("BAREVERBS_SEED").unwrap_or(0);
    first..first + count * number("BAREVERBS_SEEDS").unwrap_or(1)
}

pub fn gid(node: usize) -> [u8; 16] {
    [
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0xff,
        0xff,
        10,
        0,
        0,
        node as u8 + 1,
    ]
}

/// The path from `node` to its peer.
pub fn path(node: usize) -> Address {
    Address {
        local_gid: gid(node),
        remote_gid: gid(1 - node),
        remote_mac: [2, 0, 0, 0, 0, 2 - node as u8],
        pkey: 0xffff,
        hop_limit: 64,
        flow_label: 0x69818,
        ..Address::default()
    }
}

pub fn engine(config: Config, connections: usize) -> Engine<'static> {
    engine_with(config, connections, 0)
}

/// An engine of an InfiniBand node, where there are alternate paths.
pub fn engine_with(config: Config, connections: usize, alternates: usize) -> Engine<'static> {
    Engine::new(
        config,
        Storage {
            connections: vec![Slot::EMPTY; connections].leak(),
            listeners: vec![ListenerSlot::EMPTY; 8].leak(),
            replies: vec![ReplySlot::EMPTY; 64].leak(),
            sidr: vec![SidrSlot::EMPTY; 16].leak(),
            alternates: vec![AlternateSlot::EMPTY; alternates].leak(),
        },
    )
}

pub fn params() -> ConnectParams<'static> {
    ConnectParams {
        service_id: SERVICE,
        local_qpn: 0x11,
        private_data: b"hello",
        ..ConnectParams::new(path(0))
    }
}

/// An event without its borrowed data.
#[derive(Debug, Clone, PartialEq)]
pub enum Seen {
    Request(Vec<u8>),
    Reply(Vec<u8>),
    Established,
    Rejected(u16, Vec<u8>),
    Unreachable(Attribute),
    Disconnected(DisconnectCause),
    TimewaitExit,
    AlternatePath(AlternatePath),
    AlternateResponse(Option<u8>),
}

/// The pipe's treatment of a message.
pub enum Delivery {
    Deliver,
    Drop,
    Twice,
    Late(Duration),
}

pub type Judge = Box<dyn FnMut(usize, Attribute) -> Delivery>;

/// Two engines, 0 and 1, and everything between them. The applications accept, confirm and note what they see.
pub struct World {
    pub now: Duration,
    pub nodes: [Engine<'static>; 2],
    pub seen: [Vec<(Duration, ConnectionId, Seen)>; 2],
    pub wire: BTreeMap<(Duration, u64), (usize, [u8; MAD_LEN])>,
    pub log: Vec<(Duration, usize, Attribute, bool)>,
    /// Messages that arrived, with the node that got each.
    pub received: Vec<(usize, [u8; MAD_LEN])>,
    pub judge: Judge,
    pub delay: Duration,
    /// The time that the passive application takes to accept; `None` never accepts by itself.
    pub accept_after: Option<Duration>,
    pub accepts: BTreeMap<(Duration, u32), (usize, ConnectionId)>,
    pub confirm: bool,
    qpn: u32,
    sequence: u64,
}

impl World {
    pub fn new(seed: u64, slots: usize) -> Self {
        let config = |node: u64| Config::new(seed * 2 + node, 0x5054_00ff_fe00_0002 - node);
        Self::with(config(0), config(1), slots)
    }

    pub fn with(client: Config, server: Config, slots: usize) -> Self {
        let mut nodes = [engine(client, slots), engine(server, slots)];
        nodes[1].listen(SERVICE, u32::MAX, false, 0).unwrap();
        Self {
            now: Duration::ZERO,
            nodes,
            seen: [Vec::new(), Vec::new()],
            wire: BTreeMap::new(),
            log: Vec::new(),
            received: Vec::new(),
            judge: Box::new(|_, _| Delivery::Deliver),
            delay: MS,
            accept_after: Some(Duration::ZERO),
            accepts: BTreeMap::new(),
            confirm: true,
            qpn: 0x22,
            sequence: 0,
        }
    }

    pub fn connect(&mut self) -> ConnectionId {
        self.nodes[0].connect(self.now, &params()).unwrap()
    }

    fn put(&mut self, at: Duration, to: usize, mad: [u8; MAD_LEN]) {
        self.sequence += 1;
        self.wire.insert((at, self.sequence), (to, mad));
    }

    /// Everything that happens without time passing.
    pub fn settle(&mut self) {
        loop {
            let mut quiet = true;
            while let Some((&key, &(node, id))) = self.accepts.first_key_value()
                && key.0 <= self.now
            {
                self.accepts.remove(&key);
                // The request may have been withdrawn meanwhile.
                let _ = self.nodes[node].reply(self.now, id, &ReplyParams::new(self.qpn));
                self.qpn += 1;
                quiet = false;
            }
            while let Some((&key, &(to, mad))) = self.wire.first_key_value()
                && key.0 <= self.now
            {
                self.wire.remove(&key);
                // Enough for one connection; the big tests do not use it.
                if self.received.len() < 64 {
                    self.received.push((to, mad));
                }
                let _ = self.nodes[to].handle_mad(self.now, &path(to), &mad);
                quiet = false;
            }
            for node in 0..2 {
                let mut mad = [0xa5; MAD_LEN];
                while let Some(transmit) = self.nodes[node].poll_transmit(self.now, &mut mad) {
                    quiet = false;
                    assert_eq!(transmit.address.remote_gid, gid(1 - node));
                    assert_eq!(Mad::new(&mad).unwrap().attribute(), transmit.attribute);
                    self.log
                        .push((self.now, node, transmit.attribute, transmit.repeated));
                    let at = self.now + self.delay;
                    match (self.judge)(node, transmit.attribute) {
                        Delivery::Deliver => self.put(at, 1 - node, mad),
                        Delivery::Drop => {}
                        Delivery::Twice => {
                            self.put(at, 1 - node, mad);
                            self.put(at + self.delay, 1 - node, mad);
                        }
                        Delivery::Late(by) => self.put(at + by, 1 - node, mad),
                    }
                    mad = [0xa5; MAD_LEN];
                }
                while let Some(event) = self.nodes[node].poll_event() {
                    quiet = false;
                    let id = event.connection;
                    let seen = match event.kind {
                        EventKind::ConnectRequest { private_data, .. } => {
                            Seen::Request(private_data.to_vec())
                        }
                        EventKind::Reply { private_data } => Seen::Reply(private_data.to_vec()),
                        EventKind::Established { .. } => Seen::Established,
                        EventKind::Rejected { reason, info, .. } => {
                            Seen::Rejected(reason.0, info.to_vec())
                        }
                        EventKind::Unreachable { unanswered } => Seen::Unreachable(unanswered),
                        EventKind::Disconnected { cause, .. } => Seen::Disconnected(cause),
                        EventKind::TimewaitExit => Seen::TimewaitExit,
                        EventKind::AlternatePath { path, .. } => Seen::AlternatePath(*path),
                        EventKind::AlternateResponse { status, .. } => {
                            Seen::AlternateResponse(status.map(|status| status.0))
                        }
                    };
                    match &seen {
                        Seen::Request(_) => {
                            if let Some(after) = self.accept_after {
                                self.accepts
                                    .insert((self.now + after, id.comm_id()), (node, id));
                            }
                        }
                        Seen::Reply(_) if self.confirm => self.nodes[node].ready(id, b"").unwrap(),
                        _ => {}
                    }
                    self.seen[node].push((self.now, id, seen));
                }
            }
            if quiet {
                return;
            }
        }
    }

    /// When something happens next.
    pub fn next(&self) -> Option<Duration> {
        let wire = self.wire.first_key_value().map(|(key, _)| key.0);
        let accept = self.accepts.first_key_value().map(|(key, _)| key.0);
        let timers = self.nodes.iter().filter_map(Engine::next_deadline).min();
        [wire, accept, timers].into_iter().flatten().min()
    }

    /// Lets time pass until `done` or until nothing is left to happen before `limit`.
    pub fn run_until(&mut self, limit: Duration, mut done: impl FnMut(&Self) -> bool) -> bool {
        loop {
            self.settle();
            if done(self) {
                return true;
            }
            match self.next() {
                Some(next) if next <= limit => self.now = next.max(self.now),
                _ => {
                    self.now = self.now.max(limit);
                    self.settle();
                    return done(self);
                }
            }
        }
    }

    pub fn run(&mut self, limit: Duration) {
        self.run_until(limit, |_| false);
    }

    pub fn events(&self, node: usize) -> Vec<Seen> {
        self.seen[node]
            .iter()
            .map(|(_, _, seen)| seen.clone())
            .collect()
    }

    pub fn sent(&self, node: usize, attribute: Attribute) -> usize {
        self.log
            .iter()
            .filter(|(_, from, what, _)| *from == node && *what == attribute)
            .count()
    }

    pub fn established(&self, node: usize, id: ConnectionId) -> bool {
        self.nodes[node].state(id) == Ok(State::Established)
    }

    pub fn peer_id(&self) -> Option<ConnectionId> {
        self.seen[1]
            .iter()
            .rev()
            .find(|(_, _, seen)| matches!(seen, Seen::Request(_)))
            .map(|(_, id, _)| *id)
    }

    /// Releases everything that either application has, and checks that no slot stays behind.
    pub fn release_all(&mut self, own: &[ConnectionId]) {
        for id in own {
            let _ = self.nodes[0].release(self.now, *id);
        }
        let theirs: Vec<_> = self.seen[1].iter().map(|(_, id, _)| *id).collect();
        for id in theirs {
            let _ = self.nodes[1].release(self.now, id);
        }
        let limit = self.now + Duration::from_secs(600);
        self.run(limit);
        // A request may have come in between.
        let theirs: Vec<_> = self.seen[1].iter().map(|(_, id, _)| *id).collect();
        for id in theirs {
            let _ = self.nodes[1].release(self.now, id);
        }
        let limit = self.now + Duration::from_secs(600);
        self.run(limit);
        assert_eq!(self.nodes[0].in_use(), 0, "slots leaked at the client");
        assert_eq!(self.nodes[1].in_use(), 0, "slots leaked at the server");
        assert_eq!(self.nodes[0].next_deadline(), None);
        assert_eq!(self.nodes[1].next_deadline(), None);
    }
}
