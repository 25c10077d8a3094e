//! Damage on purpose: random by seed, or by rule for single frames.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt;
use std::time::Duration;

use super::Link;
use super::rng::Rng;

/// The damage to frames, in times per thousand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rates {
    /// The frame is lost.
    pub loss: u32,
    /// The frame comes twice.
    pub duplicate: u32,
    /// The frame is overtaken by one to four later ones of the same direction.
    pub reorder: u32,
    /// The frame comes late, by up to [`Rates::max_delay`].
    pub delay: u32,
    /// One to three bits of the frame, behind the MAC addresses, are flipped.
    pub corrupt: u32,
    /// Longest delay; also how long a reordered frame waits if nothing overtakes it.
    pub max_delay: Duration,
    /// Every frame comes so much later, in its order. Not random, and no times per thousand.
    pub latency: Duration,
}

impl Rates {
    /// All kinds of damage at the same rate.
    pub fn all(per_mille: u32, max_delay: Duration) -> Rates {
        Rates {
            loss: per_mille,
            duplicate: per_mille,
            reorder: per_mille,
            delay: per_mille,
            corrupt: per_mille,
            max_delay,
            latency: Duration::ZERO,
        }
    }
}

/// The effect of a rule on a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Let it pass, without the random damage.
    Pass,
    /// Lose it.
    Drop,
    /// Deliver it twice.
    Duplicate,
    /// Deliver it later.
    Delay(Duration),
    /// Flip this bit, counted from the frame's first; beyond its end nothing happens.
    FlipBit(usize),
}

/// Frames held back at most; beyond, they pass at once, so that a flood does not pile up.
const MOST_HELD: usize = 4096;
/// Frames under way at most on a link with a latency; what does not fit is lost, as in a switch.
const MOST_UNDER_WAY: usize = 65_536;

type Matcher = Box<dyn FnMut(usize, &[u8]) -> bool + Send>;

struct Rule {
    matches: Matcher,
    skip: u32,
    times: u32,
    action: Action,
}

/// The counts of the damage so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Report {
    /// Frames that came in.
    pub frames: u64,
    /// Lost.
    pub dropped: u64,
    /// Doubled.
    pub duplicated: u64,
    /// Put behind later ones.
    pub reordered: u64,
    /// Delayed.
    pub delayed: u64,
    /// Damaged.
    pub corrupted: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} frames: {} dropped, {} duplicated, {} reordered, {} delayed, {} corrupted",
            self.frames,
            self.dropped,
            self.duplicated,
            self.reordered,
            self.delayed,
            self.corrupted
        )
    }
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Late {
    at: Duration,
    order: u64,
    from: usize,
    frame: Vec<u8>,
}

#[derive(Debug)]
struct Overtaken {
    at: Duration,
    frames_left: u32,
    from: usize,
    frame: Vec<u8>,
}

/// A link that damages what goes through.
pub struct Faulty<L> {
    inner: L,
    rng: Rng,
    rates: Rates,
    rules: Vec<Rule>,
    report: Report,
    late: BinaryHeap<Reverse<Late>>,
    overtaken: Vec<Overtaken>,
    /// Frames that the latency holds back, by the time at which they arrive: port and frame.
    under_way: VecDeque<(Duration, usize, Vec<u8>)>,
    /// Ports from which nothing is damaged, held back or ruled.
    spared: Vec<usize>,
    scratch: Vec<u8>,
}

impl<L: Link> Faulty<L> {
    /// Wraps a link. The same seed and the same frames give the same damage.
    pub fn new(inner: L, seed: u64, rates: Rates) -> Faulty<L> {
        Faulty {
            inner,
            rng: Rng::new(seed),
            rates,
            rules: Vec::new(),
            report: Report::default(),
            late: BinaryHeap::new(),
            overtaken: Vec::new(),
            under_way: VecDeque::new(),
            spared: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// Lets the frames that enter at a port pass as they are.
    pub fn spare(&mut self, port: usize) {
        self.spared.push(port);
    }

    /// Changes the random damage from here on.
    pub fn set_rates(&mut self, rates: Rates) {
        self.rates = rates;
    }

    /// The random damage in force.
    pub fn rates(&self) -> Rates {
        self.rates
    }

    /// Adds a rule: of the frames for which `matches(port, frame)` holds, the first `skip` are left alone, and `action`
    /// befalls the next `times`. The first rule that applies wins over later ones and over the random damage.
    pub fn rule(
        &mut self,
        skip: u32,
        times: u32,
        action: Action,
        matches: impl FnMut(usize, &[u8]) -> bool + Send + 'static,
    ) {
        self.rules.push(Rule {
            matches: Box::new(matches),
            skip,
            times,
            action,
        });
    }

    /// Removes all rules.
    pub fn clear_rules(&mut self) {
        self.rules.clear();
    }

    /// The counts of the damage so far.
    pub fn report(&self) -> Report {
        self.report
    }

    /// The link inside.
    pub fn inner_mut(&mut self) -> &mut L {
        &mut self.inner
    }

    /// Returns `true` if no damage is to be done and nothing is held back.
    fn idle(&self) -> bool {
        let Rates {
            loss,
            duplicate,
            reorder,
            delay,
            corrupt,
            ..
        } = self.rates;
        loss | duplicate | reorder | delay | corrupt == 0
            && self.rules.is_empty()
            && self.rates.latency.is_zero()
            && self.late.is_empty()
            && self.overtaken.is_empty()
            && self.under_way.is_empty()
    }

    /// Passes on a frame that is not lost, after the latency.
    fn pass(&mut self, from: usize, frame: &[u8], now: Duration) {
        let latency = self.rates.latency;
        if latency.is_zero() && self.under_way.is_empty() {
            self.inner.send(from, frame, now);
        } else if self.under_way.len() < MOST_UNDER_WAY {
            // Not before those that are under way, if the latency became less.
            let last = self.under_way.back().map_or(now, |(at, ..)| *at);
            let at = last.max(now + latency);
            self.under_way.push_back((at, from, frame.to_vec()));
        } else {
            self.report.dropped += 1;
        }
    }

    fn rule_for(&mut self, from: usize, frame: &[u8]) -> Option<Action> {
        for rule in &mut self.rules {
            if rule.times == 0 || !(rule.matches)(from, frame) {
                continue;
            }
            if rule.skip > 0 {
                rule.skip -= 1;
                continue;
            }
            rule.times -= 1;
            return Some(rule.action);
        }
        None
    }

    fn delay(&mut self, from: usize, frame: &[u8], at: Duration) {
        self.report.delayed += 1;
        self.late.push(Reverse(Late {
            at,
            order: self.report.frames,
            from,
            frame: frame.to_vec(),
        }));
    }

    fn random_delay(&mut self) -> Duration {
        let span = u32::try_from(self.rates.max_delay.as_nanos()).unwrap_or(u32::MAX);
        Duration::from_nanos(u64::from(self.rng.below(span)) + 1)
    }

    /// Passes on what has waited long enough.
    #[inline]
    fn release(&mut self, now: Duration) {
        if !(self.late.is_empty() && self.overtaken.is_empty() && self.under_way.is_empty()) {
            self.release_held(now);
        }
    }

    fn release_held(&mut self, now: Duration) {
        while self.late.peek().is_some_and(|Reverse(late)| late.at <= now) {
            if let Some(Reverse(late)) = self.late.pop() {
                self.pass(late.from, &late.frame, now);
            }
        }
        let mut i = 0;
        while i < self.overtaken.len() {
            if self.overtaken[i].at <= now || self.overtaken[i].frames_left == 0 {
                let held = self.overtaken.remove(i);
                self.pass(held.from, &held.frame, now);
            } else {
                i += 1;
            }
        }
        while self.under_way.front().is_some_and(|(at, ..)| *at <= now) {
            if let Some((_, from, frame)) = self.under_way.pop_front() {
                self.inner.send(from, &frame, now);
            }
        }
    }

    fn damage(&mut self, from: usize, frame: &[u8], now: Duration) {
        let rates = self.rates;
        if self.rng.chance(rates.loss) {
            self.report.dropped += 1;
            return;
        }
        let mut copies = 1;
        if self.rng.chance(rates.duplicate) {
            self.report.duplicated += 1;
            copies = 2;
        }
        for _ in 0..copies {
            let mut scratch = std::mem::take(&mut self.scratch);
            scratch.clear();
            scratch.extend_from_slice(frame);
            if frame.len() > 12 && self.rng.chance(rates.corrupt) {
                self.report.corrupted += 1;
                for _ in 0..=self.rng.below(3) {
                    let bit = 96 + self.rng.below((frame.len() as u32 - 12) * 8) as usize;
                    scratch[bit / 8] ^= 1 << (bit % 8);
                }
            }
            let space = self.late.len() + self.overtaken.len() < MOST_HELD;
            if space && self.rng.chance(rates.delay) {
                let at = now + self.random_delay();
                self.delay(from, &scratch, at);
            } else if space && self.rng.chance(rates.reorder) {
                self.report.reordered += 1;
                let held = Overtaken {
                    at: now + self.random_delay(),
                    frames_left: 1 + self.rng.below(4),
                    from,
                    frame: scratch.clone(),
                };
                self.overtaken.push(held);
            } else {
                self.pass(from, &scratch, now);
            }
            self.scratch = scratch;
        }
    }
}

impl<L: Link> Link for Faulty<L> {
    fn send(&mut self, from: usize, frame: &[u8], now: Duration) {
        if self.lets_pass(from) {
            self.inner.send(from, frame, now);
        } else {
            self.interfere(from, frame, now);
        }
    }

    // Models and what comes from outside call it: as one function for both it costs a small message 31 instructions.
    #[inline(always)]
    fn hand_over(&mut self, from: usize, frame: &mut Vec<u8>, now: Duration) {
        // Nothing to do costs nothing: not even a copy.
        if self.lets_pass(from) {
            self.inner.hand_over(from, frame, now);
        } else {
            self.interfere(from, frame, now);
        }
    }

    fn receive(&mut self, to: usize, now: Duration, frame: &mut Vec<u8>) -> bool {
        self.release(now);
        self.inner.receive(to, now, frame)
    }

    fn next_arrival(&self) -> Option<Duration> {
        let late = self.late.peek().map(|Reverse(late)| late.at);
        let overtaken = self.overtaken.iter().map(|held| held.at).min();
        let under_way = self.under_way.front().map(|(at, ..)| *at);
        [self.inner.next_arrival(), late, overtaken, under_way]
            .into_iter()
            .flatten()
            .min()
    }
}

impl<L: Link> Faulty<L> {
    /// Counts a frame; whether it passes as it is.
    fn lets_pass(&mut self, from: usize) -> bool {
        if self.spared.contains(&from) {
            return true;
        }
        self.report.frames += 1;
        self.idle()
    }

    /// Applies the damage to a frame.
    fn interfere(&mut self, from: usize, frame: &[u8], now: Duration) {
        let before = self.overtaken.len();
        match self.rule_for(from, frame) {
            None => self.damage(from, frame, now),
            Some(Action::Pass) => self.pass(from, frame, now),
            Some(Action::Drop) => self.report.dropped += 1,
            Some(Action::Duplicate) => {
                self.report.duplicated += 1;
                self.pass(from, frame, now);
                self.pass(from, frame, now);
            }
            Some(Action::Delay(by)) => self.delay(from, frame, now + by),
            Some(Action::FlipBit(bit)) => {
                self.report.corrupted += 1;
                let mut copy = frame.to_vec();
                if let Some(byte) = copy.get_mut(bit / 8) {
                    *byte ^= 1 << (bit % 8);
                }
                self.pass(from, &copy, now);
            }
        }
        for held in &mut self.overtaken[..before] {
            if held.from == from {
                held.frames_left = held.frames_left.saturating_sub(1);
            }
        }
        self.release(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Cable;

    fn run(seed: u64, rates: Rates, count: u32) -> (Vec<Vec<u8>>, Report) {
        let mut link = Faulty::new(Cable::new(), seed, rates);
        let mut out = Vec::new();
        let mut frame = Vec::new();
        let mut now = Duration::ZERO;
        for i in 0..count {
            let mut bytes = vec![0; 60];
            bytes[20..24].copy_from_slice(&i.to_be_bytes());
            link.send(0, &bytes, now);
            now += Duration::from_nanos(100);
            while link.receive(1, now, &mut frame) {
                out.push(frame.clone());
            }
        }
        while let Some(at) = link.next_arrival() {
            now = now.max(at);
            while link.receive(1, now, &mut frame) {
                out.push(frame.clone());
            }
        }
        (out, link.report())
    }

    #[test]
    fn the_same_seed_does_the_same() {
        let rates = Rates::all(100, Duration::from_micros(1));
        assert_eq!(run(7, rates, 1000), run(7, rates, 1000));
        assert_ne!(run(7, rates, 1000).0, run(8, rates, 1000).0);
    }

    #[test]
    fn the_report_agrees_with_what_came_out() {
        let none = Rates::default();
        let (out, report) = run(1, none, 100);
        assert_eq!(out.len(), 100);
        assert_eq!(
            report,
            Report {
                frames: 100,
                ..Report::default()
            }
        );

        let max_delay = Duration::from_micros(1);
        let (out, report) = run(1, Rates { loss: 100, ..none }, 1000);
        assert_eq!(out.len() as u64, 1000 - report.dropped);
        assert!((50..150).contains(&report.dropped), "{report}");

        let (out, report) = run(
            1,
            Rates {
                duplicate: 100,
                ..none
            },
            1000,
        );
        assert_eq!(out.len() as u64, 1000 + report.duplicated);
        assert!((50..150).contains(&report.duplicated), "{report}");

        let sorted = |out: &[Vec<u8>]| out.is_sorted();
        for rates in [
            Rates {
                reorder: 100,
                max_delay,
                ..none
            },
            Rates {
                delay: 100,
                max_delay,
                ..none
            },
        ] {
            let (mut out, report) = run(1, rates, 1000);
            assert!(
                (50..150).contains(&(report.reordered + report.delayed)),
                "{report}"
            );
            assert!(!sorted(&out));
            out.sort();
            out.dedup();
            assert_eq!(out.len(), 1000);
        }

        let (out, report) = run(
            1,
            Rates {
                corrupt: 100,
                ..none
            },
            1000,
        );
        let damaged = out
            .iter()
            .enumerate()
            .filter(|(i, f)| {
                let mut expected = vec![0; 60];
                expected[20..24].copy_from_slice(&(*i as u32).to_be_bytes());
                **f != expected
            })
            .count() as u64;
        assert_eq!(damaged, report.corrupted);
    }

    #[test]
    fn a_flood_is_not_held_back_without_end() {
        let rates = Rates {
            delay: 1000,
            max_delay: Duration::from_secs(1),
            ..Rates::default()
        };
        let mut link = Faulty::new(Cable::new(), 1, rates);
        for _ in 0..MOST_HELD + 10 {
            link.send(0, &[0; 60], Duration::ZERO);
        }
        assert_eq!(link.late.len(), MOST_HELD);
        assert_eq!(link.report().delayed, MOST_HELD as u64);
    }

    #[test]
    fn latency_keeps_the_order() {
        let rates = Rates {
            latency: Duration::from_micros(50),
            ..Rates::default()
        };
        let mut link = Faulty::new(Cable::new(), 1, rates);
        let sent = [0, 1, 40].map(Duration::from_micros);
        for (i, now) in sent.into_iter().enumerate() {
            link.send(0, &[i as u8; 60], now);
        }
        // Less of it does not let a frame overtake.
        link.set_rates(Rates::default());
        link.send(0, &[3; 60], sent[2]);
        let mut frame = Vec::new();
        for (i, at) in [50, 51, 90, 90]
            .map(Duration::from_micros)
            .into_iter()
            .enumerate()
        {
            assert_eq!(link.next_arrival(), Some(at));
            assert!(!link.receive(1, at - Duration::from_nanos(1), &mut frame));
            assert!(link.receive(1, at, &mut frame));
            assert_eq!(frame, [i as u8; 60]);
        }
        assert_eq!(link.next_arrival(), None);
        assert!(link.idle());
    }

    #[test]
    fn a_long_line_holds_so_much_and_loses_the_rest() {
        let rates = Rates {
            latency: Duration::from_secs(1),
            ..Rates::default()
        };
        let mut link = Faulty::new(Cable::new(), 1, rates);
        for _ in 0..MOST_UNDER_WAY + 10 {
            link.send(0, &[0; 60], Duration::ZERO);
        }
        assert_eq!(link.under_way.len(), MOST_UNDER_WAY);
        assert_eq!(link.report().dropped, 10);
    }

    #[test]
    fn spared_ports_are_not_touched() {
        let mut link = Faulty::new(
            Cable::new(),
            1,
            Rates {
                loss: 1000,
                ..Rates::default()
            },
        );
        link.spare(1);
        link.send(0, &[0; 60], Duration::ZERO);
        link.send(1, &[1; 60], Duration::ZERO);
        let mut frame = Vec::new();
        assert!(!link.receive(1, Duration::ZERO, &mut frame));
        assert!(link.receive(0, Duration::ZERO, &mut frame));
        assert_eq!(link.report().frames, 1);
    }

    #[test]
    fn rules_hit_single_frames() {
        let mut link = Faulty::new(Cable::new(), 1, Rates::default());
        link.rule(1, 2, Action::Drop, |from, frame| from == 0 && frame[0] == 7);
        link.rule(0, 1, Action::FlipBit(8), |_, frame| frame[0] == 9);
        link.rule(0, 1, Action::Duplicate, |_, frame| frame[0] == 8);
        for frame in [[7, 0], [7, 1], [7, 2], [7, 3], [9, 0], [9, 0], [8, 0]] {
            link.send(0, &frame, Duration::ZERO);
        }
        let (mut out, mut frame) = (Vec::new(), Vec::new());
        while link.receive(1, Duration::ZERO, &mut frame) {
            out.push([frame[0], frame[1]]);
        }
        assert_eq!(out, [[7, 0], [7, 3], [9, 1], [9, 0], [8, 0], [8, 0]]);
        assert_eq!(link.report().dropped, 2);
    }
}
