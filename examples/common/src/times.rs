//! Many durations in bounded memory.

use std::time::Duration;

use hdrhistogram::Histogram;

/// The longest that is distinguished from longer ones: an hour.
const LONGEST: u64 = 3_600_000_000_000;
/// Digits that count.
const DIGITS: u8 = 3;

/// Durations as a histogram (HdrHistogram), to three digits: as large with a million of them as with one. The shortest, the two
/// longest and the mean are exact.
#[derive(Debug, Clone)]
pub struct Times {
    histogram: Histogram<u64>,
    shortest: Duration,
    /// The longest and the second longest, zero if there are none.
    longest: [Duration; 2],
    /// Of all but those two, in nanoseconds.
    sum: u128,
    squares: f64,
}

impl Default for Times {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST, DIGITS);
        Self {
            histogram: histogram.expect("the bounds and the digits are possible"),
            shortest: Duration::MAX,
            longest: [Duration::ZERO; 2],
            sum: 0,
            squares: 0.0,
        }
    }
}

impl Times {
    /// Adds `time` as often as `count` says.
    pub fn record(&mut self, time: Duration, count: u64) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.histogram.saturating_record_n(nanos.max(1), count);
        if count == 0 {
            return;
        }
        self.shortest = self.shortest.min(time);
        let mut rest = count;
        for _ in 0..count.min(2) {
            let [longest, second] = self.longest;
            if time <= second {
                break;
            }
            // What was there is one of the others now.
            let other = second.as_nanos();
            self.sum += other;
            self.squares += (other as f64).powi(2);
            self.longest = [longest.max(time), longest.min(time)];
            rest -= 1;
        }
        self.sum += u128::from(nanos) * u128::from(rest);
        self.squares += (nanos as f64).powi(2) * rest as f64;
    }

    /// The number of recorded times.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The duration that this share of them (0 to 1) does not exceed. Zero if there are none.
    pub fn at(&self, share: f64) -> Duration {
        match share {
            _ if self.histogram.is_empty() => Duration::ZERO,
            0.0 => self.shortest,
            1.0 => self.longest[0],
            // What the histogram has for a value may lie beside the only ones there are.
            share => Duration::from_nanos(self.histogram.value_at_quantile(share))
                .clamp(self.shortest, self.longest[0]),
        }
    }

    /// The one with this place in ascending order, from 1 on.
    pub fn at_rank(&self, rank: u64) -> Duration {
        match self.count().saturating_sub(rank) {
            below @ 0..=1 => self.longest[below as usize],
            _ if rank <= 1 => self.shortest,
            _ => self
                .at((rank as f64 - 0.5) / self.count() as f64)
                .min(self.longest[1]),
        }
    }

    /// Average and standard deviation in nanoseconds, of all but so many of the longest: up to two. Zero if there are no others.
    pub fn mean_and_deviation_without(&self, longest: usize) -> [f64; 2] {
        let count = self.count().saturating_sub(longest as u64);
        if count == 0 {
            return [0.0; 2];
        }
        let (mut sum, mut squares) = (self.sum, self.squares);
        for time in &self.longest[longest.min(2)..] {
            sum += time.as_nanos();
            squares += (time.as_nanos() as f64).powi(2);
        }
        let most = self.at_rank(count).as_nanos() as f64;
        let mean = (sum as f64 / count as f64).min(most);
        let variance = squares / count as f64 - mean.powi(2);
        [mean, variance.max(0.0).sqrt()]
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
        let [mean, deviation] = times.mean_and_deviation_without(0);
        assert!((mean - 500_500.0).abs() < 1e-6, "{mean}");
        assert!((deviation / 288_675.0 - 1.0).abs() < 1e-6, "{deviation}");
        let [mean, _] = times.mean_and_deviation_without(2);
        assert!((mean - 499_500.0).abs() < 1e-6, "{mean}");
    }

    #[test]
    fn the_mean_is_between_the_shortest_and_the_longest() {
        for nanos in (1..=100).chain((1..100).map(|step| 1_000_001 + 12_347 * step)) {
            let mut times = Times::default();
            for (more, count) in [(0, 3), (1, 1)] {
                times.record(Duration::from_nanos(nanos + more), count);
                for longest in 0..=2 {
                    let [mean, deviation] = times.mean_and_deviation_without(longest);
                    let range = nanos as f64..=(nanos + more) as f64;
                    assert!(range.contains(&mean), "{mean} of {nanos}");
                    assert!(deviation < 0.6, "{deviation} of {nanos}");
                }
            }
        }
        assert_eq!(Times::default().mean_and_deviation_without(0), [0.0; 2]);
    }

    #[test]
    fn ranks_count_from_the_shortest() {
        let mut times = Times::default();
        for nanos in [70_003, 10_001, 30_001, 90_005, 50_001] {
            times.record(Duration::from_nanos(nanos), 1);
        }
        let ranks = [1, 2, 3, 4, 5].map(|rank| times.at_rank(rank).as_nanos());
        let wanted = [10_001, 30_001, 50_001, 70_003, 90_005];
        for (found, wanted) in ranks.into_iter().zip(wanted) {
            assert!(found.abs_diff(wanted) <= wanted / 1000, "{ranks:?}");
        }
        assert_eq!(times.at_rank(4).as_nanos(), 70_003);
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
