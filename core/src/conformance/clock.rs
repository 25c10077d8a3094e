//! The clock: every time-out of the driver and every timer of the connection manager is on it.

use core::time::Duration;

use super::violation::{ConformanceError, Violation};
use crate::platform::Platform;

/// The driver's finest deadline is 10 ms away, and the connection manager's timers are not much finer.
const COARSEST: Duration = Duration::from_millis(1);
/// Steps between turns of waiting that are looked at. On a busy machine each may be long, because the processor was
/// somewhere else: a clock that runs by itself is measured between the reads below as well.
const STEPS: usize = 16;
/// The most calls of `relax` without the clock moving.
const MOST_TURNS: u32 = 2_000_000;
/// The number of reads of the clock without waiting.
const READS: usize = 10_000;

/// The smallest step that was seen.
pub(super) fn check<P: Platform>(platform: &P) -> Result<Duration, ConformanceError> {
    let mut before = platform.now();
    let mut smallest = Duration::MAX;
    for _ in 0..READS {
        let now = next(platform, before)?;
        if now > before {
            smallest = smallest.min(now - before);
        }
        before = now;
    }
    for _ in 0..STEPS {
        let mut turns = 0;
        let now = loop {
            platform.relax();
            turns += 1;
            let now = next(platform, before)?;
            if now > before {
                break now;
            }
            if turns == MOST_TURNS {
                return Err(Violation::ClockStands { at: now, turns }.into());
            }
        };
        smallest = smallest.min(now - before);
        before = now;
    }
    if smallest > COARSEST {
        let step = smallest;
        let limit = COARSEST;
        return Err(Violation::ClockCoarse { step, limit }.into());
    }
    Ok(smallest)
}

fn next<P: Platform>(platform: &P, before: Duration) -> Result<Duration, ConformanceError> {
    let after = platform.now();
    if after < before {
        return Err(Violation::ClockWentBack { before, after }.into());
    }
    Ok(after)
}
