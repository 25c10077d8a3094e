//! The cabling of the functions' ports, of the switches, and of the wires that lead out of the process.

use connectx_model::link::subnet::{Subnet, Topology};
use connectx_model::link::{Cable, Link, Switch, Timing};
use std::time::Duration;

/// Where a port is plugged in.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// A cable or switch of Ethernet's, and the port there.
    Segment(usize, usize),
    /// The subnet, as the adapter of this number.
    Subnet(usize),
}

/// All cables and switches as one [`Link`]. Its first ports are the functions', the ones behind them the wires' far ends.
pub(crate) struct Fabric {
    /// `None` for a function that nothing is plugged into.
    places: Vec<Option<Place>>,
    segments: Vec<Box<dyn Link>>,
    subnet: Option<Subnet>,
}

impl Fabric {
    /// Of so many functions, those that `wired` names have a wire each, in this order. The rest are adapters of a subnet if
    /// there is one; otherwise they are cabled together if they are two, and on one switch if they are more.
    pub(crate) fn new(functions: usize, wired: &[usize], subnet: Option<&Topology>) -> Self {
        let mut places = vec![None; functions + wired.len()];
        let mut segments: Vec<Box<dyn Link>> = Vec::new();
        for (wire, &function) in wired.iter().enumerate() {
            places[function] = Some(Place::Segment(segments.len(), 0));
            places[functions + wire] = Some(Place::Segment(segments.len(), 1));
            segments.push(Box::new(Cable::new()));
        }
        let rest: Vec<usize> = (0..functions).filter(|at| !wired.contains(at)).collect();
        if subnet.is_some() {
            for function in rest {
                places[function] = Some(Place::Subnet(function));
            }
        } else if rest.len() > 1 {
            for (port, &function) in rest.iter().enumerate() {
                places[function] = Some(Place::Segment(segments.len(), port));
            }
            segments.push(match rest.len() {
                2 => Box::new(Cable::new()),
                ports => Box::new(Switch::new(ports, Timing::default())),
            });
        }
        Self {
            places,
            segments,
            subnet: subnet.map(Subnet::new),
        }
    }

    /// The subnet, if there is one.
    pub(crate) fn subnet(&mut self) -> Option<&mut Subnet> {
        self.subnet.as_mut()
    }

    /// The link that a port is plugged into, and the port there.
    fn link(&mut self, port: usize) -> Option<(&mut dyn Link, usize)> {
        match self.places.get(port).copied().flatten()? {
            Place::Segment(segment, port) => Some((self.segments[segment].as_mut(), port)),
            Place::Subnet(adapter) => Some((self.subnet.as_mut()?, adapter)),
        }
    }
}

impl Link for Fabric {
    fn send(&mut self, from: usize, frame: &[u8], now: Duration) {
        if let Some((link, port)) = self.link(from) {
            link.send(port, frame, now);
        }
    }

    fn receive(&mut self, to: usize, now: Duration, frame: &mut Vec<u8>) -> bool {
        self.link(to)
            .is_some_and(|(link, port)| link.receive(port, now, frame))
    }

    fn next_arrival(&self) -> Option<Duration> {
        let segments = self.segments.iter().map(|segment| segment.next_arrival());
        let subnet = self.subnet.as_ref().map(Link::next_arrival);
        segments.chain(subnet).flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where a frame from `from`, to an unknown address, comes out.
    fn reached(fabric: &mut Fabric, from: usize) -> Vec<usize> {
        let frame = [0xff; 60];
        fabric.send(from, &frame, Duration::ZERO);
        let ports = fabric.places.len();
        let mut out = Vec::new();
        (0..ports)
            .filter(|&to| fabric.receive(to, Duration::ZERO, &mut out))
            .collect()
    }

    #[test]
    fn ports_reach_those_that_they_are_plugged_to() {
        let mut alone = Fabric::new(1, &[], None);
        assert_eq!(reached(&mut alone, 0), [0; 0]);
        let mut pair = Fabric::new(2, &[], None);
        assert_eq!(reached(&mut pair, 0), [1]);
        assert_eq!(reached(&mut pair, 1), [0]);
        let mut switched = Fabric::new(4, &[], None);
        assert_eq!(reached(&mut switched, 2), [0, 1, 3]);
        // Functions 1 and 3 have wires, whose ends are ports 4 and 5; 0 and 2 are left for a cable.
        let mut mixed = Fabric::new(4, &[3, 1], None);
        assert_eq!(reached(&mut mixed, 3), [4]);
        assert_eq!(reached(&mut mixed, 4), [3]);
        assert_eq!(reached(&mut mixed, 5), [1]);
        assert_eq!(reached(&mut mixed, 0), [2]);
        assert_eq!(mixed.next_arrival(), None);
        assert_eq!(reached(&mut mixed, 6), [0; 0]);
    }
}
