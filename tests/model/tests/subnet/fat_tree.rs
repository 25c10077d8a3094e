//! Fat trees: found by directed routes as a manager finds them, and what it sets at adapters that no driver has.

use crate::common::TestHost;
use crate::switch::{PAYLOAD, PERMISSIVE, directed, frame};
use crate::*;
use connectx_model::link::Link;
use connectx_model::link::rng::Rng;
use connectx_model::link::subnet::{Subnet, Topology};
use connectx_model::{Config, Model};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

const CHANNEL_ADAPTER: u8 = 1;
const SWITCH: u8 = 2;
/// When the cards have booted.
const NOW: Duration = Duration::from_secs(1);

/// A subnet whose adapters are models without drivers, all but the first, whose place the test has.
struct World {
    subnet: Subnet,
    models: Vec<Model>,
    host: TestHost,
}

/// A node's NodeInfo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Found {
    guid: u64,
    kind: u8,
    ports: u8,
    /// The port at which the request came in.
    port: u8,
}

impl World {
    fn new(topology: &Topology) -> Self {
        let model = |at: usize| {
            let mut config = Config::new(1).with_unit(at as u16 + 1).infiniband();
            config.subnet_managed = true;
            Model::new(config)
        };
        let mut this = Self {
            subnet: Subnet::new(topology),
            models: (0..topology.adapters()).map(model).collect(),
            host: TestHost::new(0),
        };
        for model in &mut this.models {
            model.advance(&mut this.host, NOW);
        }
        this
    }

    /// Sends a datagram; the answer to it.
    fn ask(&mut self, mad: &[u8; 256]) -> Option<[u8; 256]> {
        self.subnet.send(0, &frame(0, PERMISSIVE, 0, mad), NOW);
        let mut bytes = Vec::new();
        while let Some(at) = self.subnet.next_waiting(1) {
            while self.subnet.receive(at, NOW, &mut bytes) {
                let model = &mut self.models[at];
                model.receive(&mut self.host, &bytes);
                model.advance(&mut self.host, NOW);
            }
            for sent in self.host.frames.drain(..) {
                self.subnet.send(at, &sent, NOW);
            }
        }
        let received = self.subnet.receive(0, NOW, &mut bytes);
        received.then(|| bytes[PAYLOAD..PAYLOAD + 256].try_into().unwrap())
    }

    fn get(&mut self, attribute: u16, modifier: u32, path: &[u8]) -> [u8; 64] {
        let answer = self.ask(&directed(GET, attribute, modifier, path));
        let answer = answer.unwrap_or_else(|| panic!("no answer by {path:?}"));
        assert_eq!((answer[3], status(&answer)), (GET_RESPONSE, 0), "{path:?}");
        answer[64..128].try_into().unwrap()
    }

    fn node(&mut self, path: &[u8]) -> Found {
        let info = self.get(NODE_INFO, 0, path);
        Found {
            guid: u64::from_be_bytes(info[12..20].try_into().unwrap()),
            kind: info[2],
            ports: info[3],
            port: info[36],
        }
    }
}

/// A cable, by the GUIDs and ports of its ends, the smaller one first.
type Cable = [(u64, u8); 2];

/// Nodes that were found by GUID, each with a route to it.
type Nodes = BTreeMap<u64, (Found, Vec<u8>)>;

/// All cables and nodes.
fn discover(world: &mut World) -> (BTreeSet<Cable>, Nodes) {
    let mut cables = BTreeSet::new();
    let mut nodes = BTreeMap::new();
    let first = world.node(&[1]);
    let mut open = VecDeque::from([(first, vec![1])]);
    nodes.insert(first.guid, (first, vec![1]));
    while let Some((switch, path)) = open.pop_front() {
        for port in 1..=switch.ports {
            let info = world.get(PORT_INFO, port.into(), &path);
            let (state, physical) = (info[32] & 0xf, info[33] >> 4);
            if (state, physical) == (1, 2) {
                continue;
            }
            assert_eq!((state, physical), (INITIALIZE, 5));
            // The test's own adapter does not answer.
            if path.len() == 1 && port == switch.port {
                continue;
            }
            let way = [&path[..], &[port]].concat();
            let there = world.node(&way);
            let mut cable = [(switch.guid, port), (there.guid, there.port)];
            cable.sort_unstable();
            cables.insert(cable);
            if nodes.insert(there.guid, (there, way.clone())).is_none() && there.kind == SWITCH {
                open.push_back((there, way));
            }
        }
    }
    (cables, nodes)
}

fn check(adapters: u64, ports: u8) {
    let text = format!("fat-tree {adapters} {ports}");
    println!("{text}");
    let mut world = World::new(&text.parse().unwrap());
    let (cables, nodes) = discover(&mut world);
    let half = u64::from(ports / 2);
    let leaves = adapters.div_ceil(half);
    let switch = |number: u64| 0x0002_c902_0000_0000 | (number + 1) << 8;
    let mut expected = BTreeSet::new();
    for adapter in 1..adapters {
        let guid = 0x0002_c903_0000_0000 | (adapter + 1) << 8;
        let leaf = (switch(adapter / half), (adapter % half + 1) as u8);
        expected.insert([leaf, (guid, 1)]);
    }
    for (leaf, spine) in (0..leaves).flat_map(|leaf| (0..half).map(move |spine| (leaf, spine))) {
        let up = (switch(leaf), (half + spine + 1) as u8);
        expected.insert([up, (switch(leaves + spine), leaf as u8 + 1)]);
    }
    assert_eq!(cables, expected);
    assert_eq!(nodes.len() as u64, adapters - 1 + leaves + half);
    // Each adapter gets an identifier of its own, and becomes active.
    for (lid, (found, path)) in (0x100..).zip(nodes.values()) {
        if found.kind == SWITCH {
            assert_eq!(found.ports, ports);
            continue;
        }
        assert_eq!((found.kind, found.ports), (CHANNEL_ADAPTER, 1));
        for state in [ARMED, ACTIVE] {
            let mut mad = directed(SET, PORT_INFO, 1, path);
            mad[64..128].copy_from_slice(&port_info(lid, 0, state));
            assert_eq!(status(&world.ask(&mad).unwrap()), 0);
        }
    }
    for (lid, (found, path)) in (0x100_u16..).zip(nodes.values()) {
        if found.kind == CHANNEL_ADAPTER {
            let info = world.get(PORT_INFO, 1, path);
            assert_eq!(info[16..18], lid.to_be_bytes());
            assert_eq!(info[32] & 0xf, ACTIVE);
        }
    }
    assert_eq!(world.subnet.next_arrival(), None);
}

#[test]
fn any_fat_tree_is_what_it_should_be() {
    for seed in 0..40 {
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        let ports = 2 + 2 * rng.below(8) as u8;
        let most = u32::from(ports) * u32::from(ports) / 2;
        check(1 + u64::from(rng.below(most)), ports);
    }
}

/// The one that `cargo rig infiniband sweep` puts under OpenSM.
#[test]
fn five_hundred_adapters() {
    check(500, 36);
}
