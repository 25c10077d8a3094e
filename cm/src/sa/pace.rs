//! When a question is sent again.

use core::time::Duration;

use super::Config;

/// Intervals that double up to the longest one, each moved by a random part of itself: ports that ask at the same time do not
/// stay in step while subnet administration is busy or restarts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// When the question is due.
    pub(super) next: Duration,
    interval: Duration,
}

impl Pace {
    pub(super) const NONE: Self = Self {
        next: Duration::ZERO,
        interval: Duration::ZERO,
    };

    /// Due at once.
    pub(super) const fn begin(config: &Config, now: Duration) -> Self {
        Self {
            next: now,
            interval: config.first_interval,
        }
    }

    /// The question with this transaction ID was sent.
    pub(super) fn sent(&mut self, config: &Config, now: Duration, transaction_id: u64) {
        self.next = now.saturating_add(self.moved(config, now, transaction_id));
        let doubled = self.interval.saturating_mul(2);
        self.interval = doubled.min(config.longest_interval);
    }

    /// The answer is that subnet administration is busy: as if the question had been sent just now.
    pub(super) fn busy(&mut self, config: &Config, now: Duration, transaction_id: u64) {
        let next = now.saturating_add(self.moved(config, now, transaction_id));
        self.next = self.next.max(next);
    }

    /// The interval, between 1 - jitter and 1 + jitter of it.
    fn moved(&self, config: &Config, now: Duration, transaction_id: u64) -> Duration {
        let interval = u64::try_from(self.interval.as_micros()).unwrap_or(u64::MAX);
        let spread = interval / 100 * u64::from(config.jitter.min(100));
        // SplitMix64's last step: transaction IDs begin with the seed, and the time differs with each repetition.
        let mut value = transaction_id ^ now.as_micros() as u64;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^= value >> 31;
        let more = value % spread.saturating_mul(2).saturating_add(1);
        Duration::from_micros((interval - spread).saturating_add(more))
    }
}
