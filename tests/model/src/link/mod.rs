//! Cables: how Ethernet frames get from one model's port to another's.
//!
//! A [`Link`] has numbered ports. Frames go in at one and come out at another, when their time has come; time is injected.
//! [`Cable`] joins two ports, [`Switch`] any number, and a [wire](datagram::Wire) leads out of the process, for example to an
//! [virtual switch](vswitch::VirtualSwitch) between processes. Around any link fit [`Faulty`](fault::Faulty) (loss, duplication,
//! reordering, delay, corruption, or rules for single frames), [`Tracer`](trace::Tracer) and
//! [`Capture`](crate::pcap::Capture).

mod address;
pub mod datagram;

pub mod fault;
#[cfg(all(test, loom))]
mod loom_tests;
pub mod neighbours;
mod port;
mod queue;
pub mod ring;
pub mod rng;
pub mod setting;
pub mod stale;
pub mod stream;
pub mod subnet;
pub mod switch;
pub mod trace;
pub mod vswitch;

use std::collections::VecDeque;
use std::time::Duration;

pub use switch::Switch;

/// Frames between ports.
pub trait Link: Send {
    /// A frame enters at port `from`.
    fn send(&mut self, from: usize, frame: &[u8], now: Duration);

    /// The same for a frame in a buffer of its own, which the link may keep if it leaves another one, with whatever content.
    fn hand_over(&mut self, from: usize, frame: &mut Vec<u8>, now: Duration) {
        self.send(from, frame, now);
    }

    /// Takes the next frame that has arrived at port `to`; it replaces what is in `frame`, whose buffer is kept for later
    /// frames.
    fn receive(&mut self, to: usize, now: Duration, frame: &mut Vec<u8>) -> bool;

    /// When the next frame arrives anywhere; `now` or earlier when one is waiting already.
    fn next_arrival(&self) -> Option<Duration>;
}

impl<L: Link + ?Sized> Link for Box<L> {
    fn send(&mut self, from: usize, frame: &[u8], now: Duration) {
        (**self).send(from, frame, now);
    }

    fn hand_over(&mut self, from: usize, frame: &mut Vec<u8>, now: Duration) {
        (**self).hand_over(from, frame, now);
    }

    fn receive(&mut self, to: usize, now: Duration, frame: &mut Vec<u8>) -> bool {
        (**self).receive(to, now, frame)
    }

    fn next_arrival(&self) -> Option<Duration> {
        (**self).next_arrival()
    }
}

/// The timing of a wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timing {
    /// From the last bit sent to the last bit received.
    pub latency: Duration,
    /// Line rate in bits per second; 0 for no limit.
    pub bits_per_second: u64,
}

impl Timing {
    /// The time that a frame occupies the line, with preamble, frame check sequence and inter-frame gap.
    fn occupancy(&self, len: usize) -> Duration {
        let bits = (len as u64 + 24) * 8;
        bits.saturating_mul(1_000_000_000)
            .checked_div(self.bits_per_second)
            .map_or(Duration::ZERO, Duration::from_nanos)
    }
}

/// Frames on their way to one port, in order, in buffers that are used again.
#[derive(Debug, Default)]
struct PortQueue {
    timing: Timing,
    free_at: Duration,
    frames: VecDeque<(Duration, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
}

impl PortQueue {
    fn new(timing: Timing) -> PortQueue {
        PortQueue {
            timing,
            ..PortQueue::default()
        }
    }

    /// When a frame that enters now arrives.
    fn arrival(&mut self, len: usize, now: Duration) -> Duration {
        self.free_at = self.free_at.max(now);
        if self.timing == Timing::default() {
            return self.free_at;
        }
        self.free_at += self.timing.occupancy(len);
        self.free_at + self.timing.latency
    }

    fn push(&mut self, frame: &[u8], now: Duration) {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(frame);
        let at = self.arrival(frame.len(), now);
        self.frames.push_back((at, buffer));
    }

    /// The same without a copy, in exchange for another buffer.
    fn push_buffer(&mut self, frame: &mut Vec<u8>, now: Duration) {
        let at = self.arrival(frame.len(), now);
        let spare = self.spare.pop().unwrap_or_default();
        self.frames.push_back((at, std::mem::replace(frame, spare)));
    }

    fn pop(&mut self, now: Duration, frame: &mut Vec<u8>) -> bool {
        match self.frames.front() {
            Some((at, _)) if *at <= now => {}
            _ => return false,
        }
        if let Some((_, buffer)) = self.frames.pop_front() {
            self.spare.push(std::mem::replace(frame, buffer));
        }
        true
    }

    fn next_arrival(&self) -> Option<Duration> {
        self.frames.front().map(|(at, _)| *at)
    }
}

/// Two ports, 0 and 1, and what goes into one comes out of the other.
#[derive(Debug, Default)]
pub struct Cable {
    /// By destination port.
    lanes: [PortQueue; 2],
}

impl Cable {
    /// A cable that takes no time.
    pub fn new() -> Cable {
        Cable::default()
    }

    /// A cable with a latency and a line rate.
    pub fn with_timing(timing: Timing) -> Cable {
        Cable {
            lanes: [PortQueue::new(timing), PortQueue::new(timing)],
        }
    }
}

impl Link for Cable {
    fn send(&mut self, from: usize, frame: &[u8], now: Duration) {
        // A cable has no port 2.
        if let Some(to) = 1usize.checked_sub(from) {
            self.lanes[to].push(frame, now);
        }
    }

    fn hand_over(&mut self, from: usize, frame: &mut Vec<u8>, now: Duration) {
        if let Some(to) = 1usize.checked_sub(from) {
            self.lanes[to].push_buffer(frame, now);
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

    fn drain(link: &mut dyn Link, to: usize, now: Duration) -> Vec<Vec<u8>> {
        let (mut all, mut frame) = (Vec::new(), Vec::new());
        while link.receive(to, now, &mut frame) {
            all.push(frame.clone());
        }
        all
    }

    #[test]
    fn a_cable_joins_two_ports() {
        let mut cable = Cable::new();
        cable.send(0, &[1], Duration::ZERO);
        cable.send(0, &[2], Duration::ZERO);
        cable.send(1, &[3], Duration::ZERO);
        cable.send(2, &[4], Duration::ZERO);
        assert_eq!(cable.next_arrival(), Some(Duration::ZERO));
        assert_eq!(drain(&mut cable, 1, Duration::ZERO), [[1], [2]]);
        assert_eq!(drain(&mut cable, 0, Duration::ZERO), [[3]]);
        assert_eq!(drain(&mut cable, 2, Duration::ZERO), [[0u8; 0]; 0]);
        assert_eq!(cable.next_arrival(), None);
    }

    #[test]
    fn frames_take_their_time() {
        // 76 bytes with 24 of overhead are 800 bits: 8 µs at 100 Mbit/s.
        let mut cable = Cable::with_timing(Timing {
            latency: Duration::from_micros(5),
            bits_per_second: 100_000_000,
        });
        let us = Duration::from_micros;
        cable.send(0, &[0; 76], us(0));
        cable.send(0, &[1; 76], us(0));
        assert_eq!(cable.next_arrival(), Some(us(13)));
        assert_eq!(drain(&mut cable, 1, us(12)).len(), 0);
        assert_eq!(drain(&mut cable, 1, us(13)), [[0; 76]]);
        assert_eq!(cable.next_arrival(), Some(us(21)));
        assert_eq!(drain(&mut cable, 1, us(21)), [[1; 76]]);
    }

    #[test]
    fn switch_floods_then_learns() {
        let mut switch = Switch::new(3, Timing::default());
        let frame = |to: u8, from: u8| {
            [
                to,
                0,
                0,
                0,
                0,
                to,
                from & 0xfe,
                0,
                0,
                0,
                0,
                from,
                0x08,
                0x00,
            ]
        };
        let t = Duration::ZERO;
        switch.send(0, &frame(4, 2), t);
        assert_eq!(drain(&mut switch, 0, t).len(), 0);
        assert_eq!(drain(&mut switch, 1, t).len(), 1);
        assert_eq!(drain(&mut switch, 2, t).len(), 1);
        // Now port 0 is known to have address 2.
        switch.send(1, &frame(2, 4), t);
        assert_eq!(drain(&mut switch, 0, t).len(), 1);
        assert_eq!(drain(&mut switch, 2, t).len(), 0);
        // Multicast goes everywhere; runts nowhere.
        switch.send(1, &frame(0xff, 4), t);
        assert_eq!(drain(&mut switch, 0, t).len(), 1);
        assert_eq!(drain(&mut switch, 2, t).len(), 1);
        switch.send(1, &[0; 13], t);
        assert_eq!(switch.next_arrival(), None);
    }
}
