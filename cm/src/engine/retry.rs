//! When a message that waits for its answer is sent again, and when it is given up.

use super::units::exponent;

/// One tick of the timer wheel is 2 to this nanoseconds.
const TICK: u32 = 20;

/// The repetitions of one message.
///
/// Intervals follow each other as they were negotiated. Within the first one there may be early repetitions, each after
/// twice the time of the last. Those are moved by a random part of themselves, and with them the repetitions at the ends of
/// the intervals: a hundred clients that lost their server at the same moment do not come back at the same moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Retry {
    interval: u64,
    end: u64,
    /// The next step within the interval, in ticks.
    step: u32,
    left: u8,
}

/// The action when the timer expires; times are for the next expiry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Send(u64),
    Wait(u64),
    GiveUp,
}

/// Ticks of the wheel in a number of nanoseconds.
pub(super) fn ticks(nanos: u64) -> u32 {
    u32::try_from(nanos >> TICK).unwrap_or(u32::MAX)
}

/// A part of `whole`: that many of 2^32.
fn part(whole: u64, of: u32) -> u64 {
    ((u128::from(whole) * u128::from(of)) >> 32) as u64
}

impl Retry {
    pub(super) const NONE: Self = Self {
        interval: 0,
        end: 0,
        step: 0,
        left: 0,
    };

    /// The message is sent now. Returns the time of the next expiry.
    pub(super) fn start(
        &mut self,
        now: u64,
        interval: u64,
        retries: u8,
        early: u32,
        jitter: u8,
        random: u32,
    ) -> u64 {
        self.interval = interval;
        self.end = now + interval;
        self.left = retries;
        if early == 0 {
            self.step = 0;
            return self.end;
        }
        // Between 1 - jitter and 1 + jitter of the step that was asked for.
        let spread = u64::from(early) * u64::from(jitter.min(100)) / 100;
        let step = u64::from(early) - spread + part(2 * spread + 1, random);
        self.step = u32::try_from(step).unwrap_or(u32::MAX).max(1);
        (now + (u64::from(self.step) << TICK)).min(self.end)
    }

    /// The answer will take this much longer; the remaining repetitions keep that interval. Returns the time of the
    /// next expiry.
    pub(super) fn extend(&mut self, now: u64, interval: u64) -> u64 {
        self.interval = interval;
        self.end = now + interval;
        self.step = u32::MAX;
        self.end
    }

    /// The timer expired.
    pub(super) fn expired(&mut self, now: u64, early: u32, jitter: u8, random: u32) -> Next {
        if now < self.end {
            let step = u64::from(self.step) << TICK;
            self.step = self.step.saturating_mul(2);
            return Next::Send(now.saturating_add(step.saturating_mul(2)).min(self.end));
        }
        if self.left == 0 {
            return Next::GiveUp;
        }
        self.left -= 1;
        // Counted from the end of the interval, so that a late poll does not stretch the whole series; but several
        // missed repetitions are not sent at once.
        self.end = (self.end + self.interval).max(now + self.interval / 2);
        let spread = (u64::from(early) << TICK) * u64::from(jitter.min(100)) / 100;
        let wait = part(spread.min(self.interval / 4), random);
        if wait >> TICK == 0 {
            return Next::Send(self.end);
        }
        // The next expiry is the repetition that is due now, and the one after it the end of the interval.
        self.step = u32::MAX;
        Next::Wait(now + wait)
    }
}

/// The longest time that an exponent of the other end's choice may make this end wait: `limit` is an exponent too.
pub(super) fn bounded(value: u8, limit: u8) -> u64 {
    exponent(value.min(limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With any jitter, the series ends when it was negotiated to end, and has as many intervals.
    #[test]
    fn jitter_does_not_stretch_the_series() {
        for seed in 0..200u32 {
            let random = |n: u32| (seed + n).wrapping_mul(0x9e37_79b9);
            let mut retry = Retry::NONE;
            let interval = 5_000_000_000;
            let early = 244;
            let mut now = retry.start(1_000, interval, 3, early, 25, random(0));
            let (low, high) = (183 << TICK, 306 << TICK);
            assert!((low..=high).contains(&now), "seed {seed}: {now}");
            let mut sent = 1;
            let mut n = 0;
            loop {
                n += 1;
                match retry.expired(now, early, 25, random(n)) {
                    Next::Send(at) => {
                        sent += 1;
                        assert!(at > now, "seed {seed}");
                        now = at;
                    }
                    Next::Wait(at) => now = at,
                    Next::GiveUp => break,
                }
            }
            assert_eq!(now, 1_000 + 4 * interval, "seed {seed}");
            // Four or five early ones, and one in each of the three intervals after the first.
            assert!((8..=9).contains(&sent), "seed {seed}: {sent}");
        }
    }

    #[test]
    fn without_early_repetitions_the_pace_is_exact() {
        let mut retry = Retry::NONE;
        let mut now = retry.start(0, 1 << 32, 2, 0, 25, 12345);
        for nth in 1..=2 {
            assert_eq!(now, nth << 32);
            let Next::Send(at) = retry.expired(now, 0, 25, u32::MAX) else {
                panic!()
            };
            now = at;
        }
        assert_eq!(retry.expired(now, 0, 25, 0), Next::GiveUp);
    }
}
