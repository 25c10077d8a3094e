//! Delayed entries and interrupts, and the random number generator of the quirks.

use super::Quirks;
use crate::link::rng::Rng;
use core::time::Duration;
use std::collections::VecDeque;

/// An entry of an event queue that is written later.
pub(crate) struct LateEntry {
    pub(crate) at: Duration,
    pub(crate) eqn: u32,
    pub(crate) kind: u8,
    pub(crate) sub: u8,
    pub(crate) data: [u8; 28],
}

/// The state of the quirks.
pub(crate) struct QuirkState {
    /// `true` if there is any quirk: checked in every step, and most cards have none.
    pub(crate) any: bool,
    pub(crate) rng: Rng,
    pub(crate) late_entries: VecDeque<LateEntry>,
    pub(crate) late_interrupts: VecDeque<(Duration, u16)>,
    pub(crate) next_pages: Duration,
    pub(crate) rests_until: Duration,
    pub(crate) initializing_until: Duration,
}

impl QuirkState {
    pub(crate) fn new(quirks: &Quirks) -> Self {
        Self {
            any: *quirks != Quirks::default(),
            rng: Rng::new(quirks.seed),
            late_entries: VecDeque::new(),
            late_interrupts: VecDeque::new(),
            next_pages: Duration::ZERO,
            rests_until: Duration::ZERO,
            initializing_until: Duration::ZERO,
        }
    }

    /// A time up to `most`; half of the time none.
    pub(crate) fn delay(&mut self, most: Duration) -> Duration {
        if most.is_zero() || self.rng.chance(500) {
            return Duration::ZERO;
        }
        most.mul_f64(f64::from(self.rng.below(1001)) / 1000.0)
    }

    /// When the first delayed entry or interrupt is due.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        let entry = self.late_entries.front().map(|entry| entry.at);
        let interrupt = self.late_interrupts.front().map(|&(at, _)| at);
        [entry, interrupt].into_iter().flatten().min()
    }
}
