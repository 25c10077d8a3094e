//! An Ethernet switch that learns addresses.

use std::collections::HashMap;
use std::time::Duration;

use super::{Link, PortQueue, Timing};

/// Any number of ports. Frames to an unknown or a group address go to all the others.
#[derive(Debug)]
pub struct Switch {
    lanes: Vec<PortQueue>,
    learnt: HashMap<[u8; 6], usize>,
}

impl Switch {
    /// A switch whose ports all have the same timing.
    pub fn new(ports: usize, timing: Timing) -> Switch {
        Switch {
            lanes: (0..ports).map(|_| PortQueue::new(timing)).collect(),
            learnt: HashMap::new(),
        }
    }
}

impl Link for Switch {
    fn send(&mut self, from: usize, frame: &[u8], now: Duration) {
        if from >= self.lanes.len() || frame.len() < 14 {
            return;
        }
        let (mut destination, mut source) = ([0; 6], [0; 6]);
        destination.copy_from_slice(&frame[0..6]);
        source.copy_from_slice(&frame[6..12]);
        if source[0] & 1 == 0 {
            self.learnt.insert(source, from);
        }
        match self.learnt.get(&destination) {
            Some(&to) if to != from => self.lanes[to].push(frame, now),
            Some(_) => {}
            None => {
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
