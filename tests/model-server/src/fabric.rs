//! What is plugged into what: the functions' ports, and the wires that lead out of the process.

use connectx_model::link::{Cable, Link, Switch, Timing};
use std::time::Duration;

/// All cables and the switch as one [`Link`]. Its first ports are the functions', the ones behind them the wires' far ends.
pub(crate) struct Fabric {
    /// Each port's segment and the port there; `None` for a function that nothing is plugged into.
    places: Vec<Option<(usize, usize)>>,
    segments: Vec<Box<dyn Link>>,
}

impl Fabric {
    /// Of so many functions, those that `wired` names have a wire each, in this order; the rest are cabled together if they
    /// are two, and on one switch if they are more.
    pub(crate) fn new(functions: usize, wired: &[usize]) -> Self {
        let mut places = vec![None; functions + wired.len()];
        let mut segments: Vec<Box<dyn Link>> = Vec::new();
        for (wire, &function) in wired.iter().enumerate() {
            places[function] = Some((segments.len(), 0));
            places[functions + wire] = Some((segments.len(), 1));
            segments.push(Box::new(Cable::new()));
        }
        let rest: Vec<usize> = (0..functions).filter(|at| !wired.contains(at)).collect();
        if rest.len() > 1 {
            for (port, &function) in rest.iter().enumerate() {
                places[function] = Some((segments.len(), port));
            }
            segments.push(match rest.len() {
                2 => Box::new(Cable::new()),
                ports => Box::new(Switch::new(ports, Timing::default())),
            });
        }
        Self { places, segments }
    }

    fn place(&self, port: usize) -> Option<(usize, usize)> {
        self.places.get(port).copied().flatten()
    }
}

impl Link for Fabric {
    fn send(&mut self, from: usize, frame: &[u8], now: Duration) {
        if let Some((segment, port)) = self.place(from) {
            self.segments[segment].send(port, frame, now);
        }
    }

    fn receive(&mut self, to: usize, now: Duration, frame: &mut Vec<u8>) -> bool {
        self.place(to)
            .is_some_and(|(segment, port)| self.segments[segment].receive(port, now, frame))
    }

    fn next_arrival(&self) -> Option<Duration> {
        self.segments
            .iter()
            .filter_map(|segment| segment.next_arrival())
            .min()
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
        let mut alone = Fabric::new(1, &[]);
        assert_eq!(reached(&mut alone, 0), [0; 0]);
        let mut pair = Fabric::new(2, &[]);
        assert_eq!(reached(&mut pair, 0), [1]);
        assert_eq!(reached(&mut pair, 1), [0]);
        let mut switched = Fabric::new(4, &[]);
        assert_eq!(reached(&mut switched, 2), [0, 1, 3]);
        // Functions 1 and 3 have wires, whose ends are ports 4 and 5; 0 and 2 are left for a cable.
        let mut mixed = Fabric::new(4, &[3, 1]);
        assert_eq!(reached(&mut mixed, 3), [4]);
        assert_eq!(reached(&mut mixed, 4), [3]);
        assert_eq!(reached(&mut mixed, 5), [1]);
        assert_eq!(reached(&mut mixed, 0), [2]);
        assert_eq!(mixed.next_arrival(), None);
        assert_eq!(reached(&mut mixed, 6), [0; 0]);
    }
}
