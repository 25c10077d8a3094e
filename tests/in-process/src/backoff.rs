//! The sleep of a driver between two looks at a function that has nothing to do.

use std::sync::atomic::{AtomicU32, Ordering};

/// Looks in a row that a driver takes at once: an answer on the way through the other function is there by then.
const SPINS: u32 = 64;
/// Looks after these between which another thread may run. Where there are more threads than processors, a scheduler gives
/// each that only yields its whole share of time, some milliseconds, before the one that could answer runs: so they are few.
const YIELDS: u32 = 64;

/// The way of waiting before the next check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pause {
    None,
    Spin,
    Yield,
    Sleep,
}

/// Looks at one function since there was something to do.
#[derive(Debug, Default)]
pub(crate) struct Backoff(AtomicU32);

impl Backoff {
    /// Returns `true` if the last look found nothing.
    pub(crate) fn is_waiting(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    /// After a look, which found something to do or not.
    pub(crate) fn next(&self, found: bool) -> Pause {
        if found {
            self.0.store(0, Ordering::Relaxed);
            return Pause::None;
        }
        // Two threads that look at one function may count one look for two.
        let looks = self.0.load(Ordering::Relaxed);
        self.0.store(looks.saturating_add(1), Ordering::Relaxed);
        match looks {
            0..SPINS => Pause::Spin,
            SPINS..MOST => Pause::Yield,
            MOST.. => Pause::Sleep,
        }
    }
}

const MOST: u32 = SPINS + YIELDS;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spins_then_yields_then_sleeps_until_something_is_found() {
        let backoff = Backoff::default();
        for _ in 0..2 {
            let pauses: Vec<Pause> = (0..MOST + 2).map(|_| backoff.next(false)).collect();
            assert!(pauses.is_sorted_by_key(|pause| *pause as u8));
            assert_eq!(pauses.first(), Some(&Pause::Spin));
            assert_eq!(pauses.last(), Some(&Pause::Sleep));
            assert_eq!(backoff.next(true), Pause::None);
        }
    }
}
