//! What is late, and what is decided at random.

use super::Unkind;
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

/// What the unkindness has in store.
pub(crate) struct Whims {
    /// Whether there is any: most cards have none, and their every step comes past here.
    pub(crate) any: bool,
    pub(crate) rng: Rng,
    pub(crate) late_entries: VecDeque<LateEntry>,
    pub(crate) late_interrupts: VecDeque<(Duration, u16)>,
    pub(crate) next_pages: Duration,
    pub(crate) rests_until: Duration,
    pub(crate) initializing_until: Duration,
}

impl Whims {
    pub(crate) fn new(unkind: &Unkind) -> Self {
        Self {
            any: *unkind != Unkind::default(),
            rng: Rng::new(unkind.seed),
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

    /// When the first thing that is late is due.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        let entry = self.late_entries.front().map(|entry| entry.at);
        let interrupt = self.late_interrupts.front().map(|&(at, _)| at);
        [entry, interrupt].into_iter().flatten().min()
    }
}
