//! An Ethernet switch that learns addresses.

use std::collections::HashMap;
use std::time::Duration;

use super::{Link, PortQueue, Timing};

/// Addresses that are remembered: a port must not fill the memory with them.
const MOST_ADDRESSES: usize = 16 * 1024;

/// Where a frame goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    /// To one port.
    Port(usize),
    /// To all ports but the one that it came from.
    Others,
    /// Nowhere.
    Nowhere,
}

/// Behind which port an address is, and whether it stays there.
#[derive(Debug, Default)]
pub(super) struct Addresses(HashMap<[u8; 6], (usize, bool)>);

impl Addresses {
    /// Learns from a frame that came from port `from`, and says where it goes. An address that `stays` is that port's until the
    /// port is [forgotten](Self::forget), whatever frames of others say.
    pub(super) fn route(&mut self, from: usize, stays: bool, frame: &[u8]) -> Route {
        let Some((destination, rest)) = frame.split_first_chunk::<6>() else {
            return Route::Nowhere;
        };
        let Some(source) = rest.first_chunk::<6>().filter(|_| frame.len() >= 14) else {
            return Route::Nowhere;
        };
        let may_learn = source[0] & 1 == 0
            && match self.0.get(source) {
                Some((port, stays)) => *port != from && !stays,
                None => self.0.len() < MOST_ADDRESSES,
            };
        if may_learn {
            self.0.insert(*source, (from, stays));
        }
        match self.0.get(destination) {
            Some(&(to, _)) if to != from => Route::Port(to),
            Some(_) => Route::Nowhere,
            None => Route::Others,
        }
    }

    /// Nothing is behind a port any more.
    pub(super) fn forget(&mut self, port: usize) {
        self.0.retain(|_, (of, _)| *of != port);
    }
}

/// Any number of ports. Frames to an unknown or a group address go to all the others.
#[derive(Debug)]
pub struct Switch {
    lanes: Vec<PortQueue>,
    /// If this is set, an address stays at the port that used it first.
    keeps: bool,
    addresses: Addresses,
}

impl Switch {
    /// A switch whose ports all have the same timing.
    pub fn new(ports: usize, timing: Timing) -> Switch {
        Switch {
            lanes: (0..ports).map(|_| PortQueue::new(timing)).collect(),
            keeps: false,
            addresses: Addresses::default(),
        }
    }

    /// Makes a switch as [`new`](Self::new) does, with addresses that stay at the port that used them first: frames of
    /// others that come in elsewhere, such as recorded ones from outside, do not lead those for the address astray.
    pub fn keeping(ports: usize, timing: Timing) -> Switch {
        Switch {
            keeps: true,
            ..Switch::new(ports, timing)
        }
    }
}

impl Link for Switch {
    fn send(&mut self, from: usize, frame: &[u8], now: Duration) {
        if from >= self.lanes.len() {
            return;
        }
        match self.addresses.route(from, self.keeps, frame) {
            Route::Port(to) => self.lanes[to].push(frame, now),
            Route::Nowhere => {}
            Route::Others => {
                for (to, lane) in self.lanes.iter_mut().enumerate() {
                    if to != from {
                        lane.push(frame, now);
                    }
                }
            }
        }
    }

    fn receive(&mut self, to: usize, now: Duration, frame: &mut Vec<u8>) -> bool {
        self.lanes
            .get_mut(to)
            .is_some_and(|lane| lane.pop(now, frame))
    }

    fn next_arrival(&self) -> Option<Duration> {
        self.lanes.iter().filter_map(PortQueue::next_arrival).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_forgotten_and_bounded() {
        let frame = |to: u32, from: u32| {
            let mut frame = [0; 14];
            frame[2..6].copy_from_slice(&to.to_be_bytes());
            frame[8..12].copy_from_slice(&from.to_be_bytes());
            frame
        };
        let mut addresses = Addresses::default();
        assert_eq!(addresses.route(0, false, &frame(2, 1)), Route::Others);
        assert_eq!(addresses.route(1, false, &frame(1, 2)), Route::Port(0));
        assert_eq!(addresses.route(0, false, &frame(1, 1)), Route::Nowhere);
        addresses.forget(0);
        assert_eq!(addresses.route(1, false, &frame(1, 2)), Route::Others);
        for from in 0..2 * MOST_ADDRESSES as u32 {
            addresses.route(7, false, &frame(0, from));
        }
        assert!(addresses.0.len() <= MOST_ADDRESSES);
    }
}
