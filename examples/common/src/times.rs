//! Many durations in bounded memory.

use std::time::Duration;

use hdrhistogram::Histogram;

/// The longest that is distinguished from longer ones: an hour.
const LONGEST: u64 = 3_600_000_000_000;
/// Digits that count.
const DIGITS: u8 = 3;

/// Durations as a histogram (HdrHistogram), to three digits: as large with a million of them as with one. The shortest and
/// the longest are exact.
#[derive(Debug, Clone)]
pub struct Times {
    histogram: Histogram<u64>,
    shortest: Duration,
    longest: Duration,
}

impl Default for Times {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST, DIGITS);
        Self {
            histogram: histogram.expect("the bounds and the digits are possible"),
            shortest: Duration::MAX,
            longest: Duration::ZERO,
        }
    }
}

impl Times {
    /// Adds `time` as often as `count` says.
    pub fn record(&mut self, time: Duration, count: u64) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.histogram.saturating_record_n(nanos.max(1), count);
        if count > 0 {
            self.shortest = self.shortest.min(time);
            self.longest = self.longest.max(time);
        }
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The duration that this share of them (0 to 1) does not exceed. Zero if there are none.
    pub fn at(&self, share: f64) -> Duration {
        match share {
            _ if self.histogram.is_empty() => Duration::ZERO,
            0.0 => self.shortest,
            1.0 => self.longest,
            // What the histogram has for a value may lie beside the only ones there are.
            share => Duration::from_nanos(self.histogram.value_at_quantile(share))
                .clamp(self.shortest, self.longest),
        }
    }

    /// Average and standard deviation, in nanoseconds.
    pub fn mean_and_deviation(&self) -> [f64; 2] {
        [self.histogram.mean(), self.histogram.stdev()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_right_to_three_digits() {
        let mut times = Times::default();
        assert_eq!((times.count(), times.at(0.5)), (0, Duration::ZERO));
        for micros in 1..=1000 {
            times.record(Duration::from_micros(micros), 1);
        }
        for (share, micros) in [(0.0, 1.0), (0.5, 500.0), (0.99, 990.0), (1.0, 1000.0)] {
            let found = times.at(share).as_secs_f64() * 1e6;
            assert!((found / micros - 1.0).abs() < 2e-3, "{share}: {found}");
        }
        let [mean, deviation] = times.mean_and_deviation();
        assert!((mean / 500_500.0 - 1.0).abs() < 1e-3, "{mean}");
        assert!((deviation / 288_675.0 - 1.0).abs() < 1e-3, "{deviation}");
    }

    #[test]
    fn any_number_of_them_is_as_large_as_one() {
        let mut times = Times::default();
        times.record(Duration::MAX, 1);
        let size = times.histogram.distinct_values();
        for number in 0..3_000_000_u64 {
            times.record(Duration::from_nanos(number * number), 1);
        }
        assert_eq!(times.histogram.distinct_values(), size);
        assert_eq!(times.count(), 3_000_001);
    }

    #[test]
    fn the_shortest_and_the_longest_are_exact() {
        let mut times = Times::default();
        times.record(Duration::ZERO, 0);
        assert_eq!(times.count(), 0);
        for nanos in [3_000_001, 7_654_321, 5_000_003] {
            times.record(Duration::from_nanos(nanos), 2);
        }
        let found = [0.0, 1.0].map(|share| times.at(share).as_nanos());
        assert_eq!(found, [3_000_001, 7_654_321]);
    }

    #[test]
    fn no_share_is_outside_the_shortest_and_the_longest() {
        for nanos in (1..=100).chain((1..100).map(|step| 1_000_001 + 12_347 * step)) {
            let mut times = Times::default();
            let time = Duration::from_nanos(nanos);
            times.record(time, 3);
            assert_eq!(
                [0.0, 0.5, 0.99, 0.999, 1.0].map(|share| times.at(share)),
                [time; 5]
            );
        }
    }
}
