//! A subnet of InfiniBand's: switches that a subnet manager configures, the cables between them, and the ports of adapters.
//!
//! Frames between ports are as [two models](crate) on one cable have them.

use super::{Link, PortQueue, Timing};
use crate::subnet::busy;
use crate::subnet::switch::{MOST_PORTS, Ports, Switch};
use std::collections::{BTreeSet, VecDeque};
use std::str::FromStr;
use std::time::Duration;

/// Switches on a frame's way at most: tables may lead in a circle.
const MOST_SWITCHES: u8 = 64;

/// One end of a cable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// An adapter's port.
    Adapter(usize),
    /// A port of a switch.
    Switch(usize, u8),
}

/// The parts of a subnet, read from lines:
///
/// ```text
/// # Two switches with two cables between them, and an adapter at each.
/// switch leaf1 4
/// switch leaf2 4
/// adapter 0 leaf1:1
/// adapter 1 leaf2:1
/// cable leaf1:3 leaf2:3
/// cable leaf1:4 leaf2:4
/// ```
///
/// `fat-tree ADAPTERS PORTS` stands for all of a [fat tree](Self::fat_tree).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// Names and numbers of ports.
    switches: Vec<(String, u8)>,
    cables: Vec<[End; 2]>,
}

/// An error in the description of a subnet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct TopologyError {
    line: usize,
    what: &'static str,
}

impl Topology {
    /// Adapters on one switch, each at the port of its number and one more.
    #[must_use]
    pub fn one_switch(adapters: u8) -> Self {
        let adapters = adapters.min(MOST_PORTS);
        let cable = |at: u8| [End::Adapter(at.into()), End::Switch(0, at + 1)];
        Self {
            switches: vec![("switch".into(), adapters)],
            cables: (0..adapters).map(cable).collect(),
        }
    }

    /// A fat tree of two levels, of switches that all have so many ports. Of a leaf's ports the first half have adapters,
    /// in the order of their numbers, and the others one cable each to a spine; `None` if there are more adapters than
    /// it can have, or a port would be left of an odd number.
    #[must_use]
    pub fn fat_tree(adapters: usize, ports: u8) -> Option<Self> {
        let half = ports / 2;
        let each = usize::from(half);
        if ports != half * 2 || !(2..=MOST_PORTS).contains(&ports) {
            return None;
        }
        let leaves = u8::try_from(adapters.div_ceil(each)).ok();
        let leaves = leaves.filter(|leaves| (1..=ports).contains(leaves))?;
        let names = |level: &'static str, count| {
            (1..=count).map(move |number: u8| (format!("{level}{number}"), ports))
        };
        let to_adapter = |number: usize| {
            let (leaf, port) = (number / each, number % each);
            [End::Adapter(number), End::Switch(leaf, port as u8 + 1)]
        };
        let to_spine = |leaf: u8, spine: u8| {
            [
                End::Switch(leaf.into(), half + spine + 1),
                End::Switch(usize::from(leaves) + usize::from(spine), leaf + 1),
            ]
        };
        let mut cables: Vec<_> = (0..adapters).map(to_adapter).collect();
        for leaf in 0..leaves {
            cables.extend((0..half).map(|spine| to_spine(leaf, spine)));
        }
        Some(Self {
            switches: names("leaf", leaves).chain(names("spine", half)).collect(),
            cables,
        })
    }

    /// The number of adapters: one more than the largest number.
    #[must_use]
    pub fn adapters(&self) -> usize {
        let number = |end: &End| match end {
            End::Adapter(number) => number + 1,
            End::Switch(..) => 0,
        };
        self.cables.iter().flatten().map(number).max().unwrap_or(0)
    }

    fn place(&self, text: &str) -> Result<End, &'static str> {
        let (name, port) = text.split_once(':').ok_or("a port is SWITCH:NUMBER")?;
        let mut switches = self.switches.iter();
        let at = switches.position(|(known, _)| known == name);
        let at = at.ok_or("there is no such switch")?;
        let port = port.parse().ok();
        let port = port.filter(|port| (1..=self.switches[at].1).contains(port));
        Ok(End::Switch(at, port.ok_or("the switch has no such port")?))
    }

    fn line(&mut self, line: &str) -> Result<(), &'static str> {
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        let cable = match words[..] {
            [] => return Ok(()),
            ["switch", name, ports] => {
                if self.switches.iter().any(|(known, _)| known == name) {
                    return Err("a second switch of this name");
                }
                let ports = ports.parse().ok();
                let ports = ports.filter(|ports| (1..=MOST_PORTS).contains(ports));
                let ports = ports.ok_or("a switch has 1 to 64 ports")?;
                self.switches.push((name.into(), ports));
                return Ok(());
            }
            ["fat-tree", adapters, ports] => {
                let adapters = adapters.parse().map_err(|_| "how many adapters?")?;
                let ports = ports.parse().map_err(|_| "how many ports?")?;
                let tree = Self::fat_tree(adapters, ports);
                if !self.switches.is_empty() {
                    return Err("a fat tree is all that there is");
                }
                *self = tree.ok_or("switches with so many ports make no such tree")?;
                return Ok(());
            }
            ["adapter", number, place] => {
                let number = number
                    .parse()
                    .ok()
                    .filter(|&number: &usize| number < 0x1_0000);
                let number = number.ok_or("an adapter has a number")?;
                [End::Adapter(number), self.place(place)?]
            }
            ["cable", one, other] => [self.place(one)?, self.place(other)?],
            _ => return Err("no such line"),
        };
        let mut used = self.cables.iter().flatten();
        if cable[0] == cable[1] || used.any(|end| cable.contains(end)) {
            return Err("a port has two cables");
        }
        self.cables.push(cable);
        Ok(())
    }
}

impl FromStr for Topology {
    type Err = TopologyError;

    fn from_str(text: &str) -> Result<Self, TopologyError> {
        let mut topology = Self {
            switches: Vec::new(),
            cables: Vec::new(),
        };
        for (line, content) in (1..).zip(text.lines()) {
            topology
                .line(content)
                .map_err(|what| TopologyError { line, what })?;
        }
        Ok(topology)
    }
}

/// Its ports are the adapters'.
pub struct Subnet {
    switches: Vec<Switch>,
    /// The peers of each switch's ports, and of each adapter.
    behind: Vec<Vec<Option<End>>>,
    adapters: Vec<Option<End>>,
    /// Frames for adapters.
    lanes: Vec<PortQueue>,
    /// The adapters that have some.
    waiting: BTreeSet<usize>,
    /// Where frames are, in order, while they pass the switches.
    under_way: VecDeque<(End, u8, Vec<u8>)>,
    /// So many questions to subnet administration are still to be answered in its place.
    busy: u32,
    now: Duration,
}

impl Subnet {
    /// A subnet whose cables are all plugged in.
    #[must_use]
    pub fn new(topology: &Topology) -> Self {
        let adapters = topology.adapters();
        let mut this = Self {
            switches: (1..)
                .zip(&topology.switches)
                .map(|(number, (name, ports))| {
                    Switch::new(0x0002_c902_0000_0000 | number << 8, name, *ports)
                })
                .collect(),
            behind: topology
                .switches
                .iter()
                .map(|(_, ports)| vec![None; usize::from(*ports) + 1])
                .collect(),
            adapters: vec![None; adapters],
            lanes: (0..adapters)
                .map(|_| PortQueue::new(Timing::default()))
                .collect(),
            waiting: BTreeSet::new(),
            under_way: VecDeque::new(),
            busy: 0,
            now: Duration::ZERO,
        };
        for &[one, other] in &topology.cables {
            this.join(one, other);
            this.join(other, one);
            this.set_end(one, true);
            this.set_end(other, true);
        }
        this
    }

    fn join(&mut self, from: End, to: End) {
        match from {
            End::Adapter(number) => self.adapters[number] = Some(to),
            End::Switch(switch, port) => self.behind[switch][usize::from(port)] = Some(to),
        }
    }

    /// Sets the link state of a switch's port; does nothing for an adapter's end.
    fn set_end(&mut self, end: End, up: bool) {
        if let End::Switch(switch, port) = end
            && let Some((frame, out)) = self.switches[switch].set_link(port, up)
        {
            self.spread(switch, out, MOST_SWITCHES, frame);
            self.forward();
        }
    }

    /// The cable of an adapter's port is pulled out or plugged in, or the adapter goes and comes; its switch notices.
    pub fn set_adapter(&mut self, number: usize, up: bool) {
        if let Some(Some(end)) = self.adapters.get(number).copied() {
            self.set_end(end, up);
        }
    }

    /// The next questions that adapters send to subnet administration, so many, get lost on their way, and answers that it is
    /// busy come back; a fault that no subnet manager at hand shows by itself.
    pub fn set_busy(&mut self, questions: u32) {
        self.busy = questions;
    }

    /// Number of questions that are still to be lost or answered as busy.
    #[must_use]
    pub fn busy(&self) -> u32 {
        self.busy
    }

    /// The cable at a port of a switch, by the number of the switch in its topology, is pulled out or plugged in.
    pub fn set_cable(&mut self, switch: usize, port: u8, up: bool) {
        let ports = self.behind.get(switch);
        let other = ports.and_then(|ports| ports.get(usize::from(port)).copied().flatten());
        if let Some(other) = other {
            self.set_end(End::Switch(switch, port), up);
            self.set_end(other, up);
        }
    }

    /// The first adapter from this number on for which frames are on their way.
    #[must_use]
    pub fn next_waiting(&self, from: usize) -> Option<usize> {
        self.waiting.range(from..).next().copied()
    }

    /// Puts a frame on the cables behind some ports of a switch.
    fn spread(&mut self, switch: usize, out: Ports, switches: u8, frame: Vec<u8>) {
        let ends = self.behind[switch].iter().enumerate();
        let ends = ends.filter(|(port, _)| out >> port & 1 != 0);
        for end in ends.filter_map(|(_, end)| *end) {
            self.under_way.push_back((end, switches, frame.clone()));
        }
    }

    /// Moves frames on until all have arrived.
    fn forward(&mut self) {
        while let Some((end, switches, mut frame)) = self.under_way.pop_front() {
            match end {
                End::Adapter(number) => {
                    self.lanes[number].push(&frame, self.now);
                    self.waiting.insert(number);
                }
                End::Switch(switch, port) => {
                    let out = self.switches[switch].receive(port, &mut frame, self.now);
                    if let Some(left) = switches.checked_sub(1) {
                        self.spread(switch, out, left, frame);
                    }
                }
            }
        }
    }
}

impl Link for Subnet {
    fn send(&mut self, from: usize, frame: &[u8], now: Duration) {
        self.now = now;
        if let Some(Some(end)) = self.adapters.get(from).copied() {
            let busy = (self.busy > 0).then(|| busy::answer(frame)).flatten();
            self.busy -= u32::from(busy.is_some());
            let way = match busy {
                Some(answer) => (End::Adapter(from), MOST_SWITCHES, answer),
                None => (end, MOST_SWITCHES, frame.into()),
            };
            self.under_way.push_back(way);
            self.forward();
        }
    }

    fn receive(&mut self, to: usize, now: Duration, frame: &mut Vec<u8>) -> bool {
        // Of hundreds of ports most have nothing, and are asked all the time.
        if !self.waiting.contains(&to) {
            return false;
        }
        let lane = &mut self.lanes[to];
        let taken = lane.pop(now, frame);
        if lane.next_arrival().is_none() {
            self.waiting.remove(&to);
        }
        taken
    }

    fn next_arrival(&self) -> Option<Duration> {
        let lanes = self.waiting.iter().map(|&number| &self.lanes[number]);
        lanes.filter_map(PortQueue::next_arrival).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topologies_are_read() {
        let text = "switch a 2 # the first\n\nswitch b 3\nadapter 1 a:1\ncable a:2 b:3\n";
        let topology: Topology = text.parse().unwrap();
        assert_eq!(topology.switches.len(), 2);
        assert_eq!(topology.adapters(), 2);
        let switch = |at, port| End::Switch(at, port);
        assert_eq!(
            topology.cables,
            [
                [End::Adapter(1), switch(0, 1)],
                [switch(0, 2), switch(1, 3)]
            ]
        );
        assert_eq!(Topology::one_switch(4).adapters(), 4);
        let tree: Topology = "# as it is sold\nfat-tree 3 4".parse().unwrap();
        let mut lines = String::new();
        for name in ["leaf1", "leaf2", "spine1", "spine2"] {
            lines += &format!("switch {name} 4\n");
        }
        lines += "adapter 0 leaf1:1\nadapter 1 leaf1:2\nadapter 2 leaf2:1\n";
        lines += "cable leaf1:3 spine1:1\ncable leaf1:4 spine2:1\ncable leaf2:3 spine1:2\ncable leaf2:4 spine2:2\n";
        assert_eq!(tree, lines.parse().unwrap());
        for (bad, line) in [
            ("switch a", 1),
            ("switch a 65", 1),
            ("switch a 0", 1),
            ("switch a 2\nswitch a 2", 2),
            ("switch a 2\nadapter 0 b:1", 2),
            ("switch a 2\nadapter 0 a:3", 2),
            ("switch a 2\nadapter 0 a:0", 2),
            ("switch a 2\nadapter x a:1", 2),
            ("fat-tree 0 4", 1),
            ("fat-tree 9 4", 1),
            ("fat-tree 2 5", 1),
            ("fat-tree 2 0", 1),
            ("fat-tree 2 66", 1),
            ("fat-tree x 4", 1),
            ("switch a 2\nfat-tree 2 4", 2),
            ("switch a 2\ncable a:1 a:1", 2),
            ("switch a 2\nadapter 0 a:1\ncable a:1 a:2", 3),
            ("switch a 2\nadapter 0 a:1\nadapter 0 a:2", 3),
        ] {
            assert_eq!(bad.parse::<Topology>().unwrap_err().line, line, "{bad}");
        }
    }
}
