//! Two device models on a cable that records, and what was meant with every frame that goes over it.

use super::expect::{Expected, Path, Step};
use bareverbs_core::{
    Config, Cqs, Device, Gid, GidEntry, PageChunks, Qps, Resources, RoceVersion, Srqs,
};
use bareverbs_in_process::{Builder, ModelPlatform, World};
use connectx_model::Config as Card;
use connectx_model::link::Cable;
use connectx_model::link::fault::{Action, Faulty, Rates};
use connectx_model::pcap::Capture;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A device of the scene. The rig ends with its process, and so do they.
pub(super) type Node = &'static Device<'static, ModelPlatform>;

/// The VLAN of the tagged addresses.
pub(super) const VLAN: u16 = 42;

/// Where the GID table has what; the same on both nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Address {
    Ipv4,
    Ipv6,
    TaggedIpv4,
    V1,
    TaggedV1,
}

impl Address {
    pub(super) const ALL: [Address; 5] = [
        Address::Ipv4,
        Address::Ipv6,
        Address::TaggedIpv4,
        Address::V1,
        Address::TaggedV1,
    ];

    pub(super) fn index(self) -> u16 {
        self as u16
    }

    pub(super) fn vlan(self) -> Option<u16> {
        matches!(self, Address::TaggedIpv4 | Address::TaggedV1).then_some(VLAN)
    }

    pub(super) fn version(self) -> RoceVersion {
        match self {
            Address::V1 | Address::TaggedV1 => RoceVersion::V1,
            _ => RoceVersion::V2,
        }
    }

    pub(super) fn ip(self, node: usize) -> IpAddr {
        let host = node as u8 + 1;
        match self {
            Address::Ipv4 => Ipv4Addr::new(10, 0, 0, host).into(),
            Address::TaggedIpv4 => Ipv4Addr::new(10, 0, VLAN as u8, host).into(),
            Address::Ipv6 => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host.into()).into(),
            Address::V1 => Ipv6Addr::new(0xfe80, 0, 0, 0, 0x2c9, 0xff, 0xfe00, host.into()).into(),
            Address::TaggedV1 => {
                Ipv6Addr::new(0xfe80, 0, 0, 0, 0x2c9, 0x2a, 0xfe00, host.into()).into()
            }
        }
    }

    pub(super) fn gid(self, node: usize) -> Gid {
        match self.ip(node) {
            IpAddr::V4(ip) => Gid::from_ipv4(ip),
            IpAddr::V6(ip) => Gid::from_ipv6(ip),
        }
    }
}

/// Where the capture goes.
#[derive(Clone, Default)]
struct Tape(Arc<Mutex<Vec<u8>>>);

impl Write for Tape {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

type Picky = Box<dyn FnMut(&[u8]) -> bool + Send>;

/// The world, its nodes, and the notes taken so far.
pub(super) struct Scene {
    pub(super) world: World,
    pub(super) nodes: [Node; 2],
    pub(super) macs: [[u8; 6]; 2],
    tape: Tape,
    /// The next frame that matches is lost behind the recorder.
    lose: Arc<Mutex<Option<Picky>>>,
    pub(super) steps: Vec<Step>,
}

impl Scene {
    /// Brings two functions up and gives each all of its addresses.
    pub(super) fn new() -> Result<Self, String> {
        let tape = Tape::default();
        let lose = Arc::new(Mutex::new(None::<Picky>));
        let mut cable = Faulty::new(Cable::new(), 0, Rates::default());
        let rule = lose.clone();
        cable.rule(0, u32::MAX, Action::Drop, move |_, frame| {
            let mut rule = rule.lock().unwrap_or_else(PoisonError::into_inner);
            let hit = rule.as_mut().is_some_and(|matches| matches(frame));
            if hit {
                *rule = None;
            }
            hit
        });
        // The recorder is in front of the fault: what is lost was sent, and is to be seen.
        let link = Capture::new(cable, tape.clone()).map_err(|e| format!("capture: {e}"))?;
        let cards = [Card::new(1), Card::new(2)];
        let macs = [cards[0].mac, cards[1].mac];
        let [first, second] = cards;
        let world = Builder::with_link(Box::new(link), 0)
            .function(first)
            .function(second)
            .stepped();
        let nodes = [open(&world, 0)?, open(&world, 1)?];
        for (node, device) in nodes.iter().enumerate() {
            for address in Address::ALL {
                let entry = GidEntry {
                    gid: address.gid(node),
                    version: address.version(),
                    vlan: address.vlan(),
                    mac: macs[node],
                };
                device
                    .set_gid(address.index(), entry)
                    .map_err(|e| format!("GID of {address:?}: {e}"))?;
            }
        }
        Ok(Self {
            world,
            nodes,
            macs,
            tape,
            lose,
            steps: Vec::new(),
        })
    }

    /// The path of a packet between these addresses, with nothing special.
    pub(super) fn path(&self, address: Address) -> Path {
        Path {
            macs: self.macs,
            vlan: address.vlan().map(|id| (id, 0)),
            roce_v1: address.version() == RoceVersion::V1,
            addresses: [address.ip(0), address.ip(1)],
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
            source_port: None,
        }
    }

    /// Loses the next frame that `matches` accepts.
    pub(super) fn lose(&self, matches: impl FnMut(&[u8]) -> bool + Send + 'static) {
        *self.lose.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(matches));
    }

    /// The file so far.
    pub(super) fn file(&self) -> Vec<u8> {
        self.tape
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Frames recorded so far.
    pub(super) fn frames(&self) -> usize {
        let tape = self.tape.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut at, mut count) = (24, 0);
        while let Some(len) = tape.get(at + 8..at + 12) {
            at += 16 + u32::from_le_bytes([len[0], len[1], len[2], len[3]]) as usize;
            count += 1;
        }
        count
    }

    /// Everything recorded since frame `start` was meant to be exactly this, each direction in this order.
    pub(super) fn note(&mut self, name: impl Into<String>, start: usize, expected: Vec<Expected>) {
        self.steps.push(Step {
            name: name.into(),
            frames: start..self.frames(),
            expected,
        });
    }

    /// Calls `done` until it gives something, letting time pass in between.
    pub(super) fn wait<T>(
        &mut self,
        what: &str,
        mut done: impl FnMut(&mut Self) -> Result<Option<T>, String>,
    ) -> Result<T, String> {
        let end = self.world.now() + Duration::from_secs(20);
        loop {
            if let Some(outcome) = done(self)? {
                return Ok(outcome);
            }
            if self.world.now() > end {
                return Err(format!("{what}: nothing for 20 s"));
            }
            self.world.step();
            self.world.advance(Duration::from_micros(20));
        }
    }

    /// Lets everything that is still under way arrive.
    pub(super) fn settle(&self) {
        self.world.advance(Duration::from_millis(1));
    }
}

fn open(world: &World, node: usize) -> Result<Node, String> {
    let resources = Box::leak(Box::new(Resources::<
        Qps<128>,
        Cqs<256>,
        Srqs<2>,
        PageChunks<256>,
    >::new()));
    let device = Device::open(world.platform(node), Config::DEFAULT, resources.storage())
        .map_err(|e| format!("bring-up of node {node}: {e}"))?;
    Ok(Box::leak(Box::new(device)))
}
