//! From a device's time stamps to nanoseconds.

use core::time::Duration;

/// Bits of the free-running clock: Linux (`mlx5_init_timer_clock` in `lib/clock.c`) and, by what that says, rdma-core's
/// `mlx5dv_ts_to_ns` count on no more.
const BITS: u32 = 41;

/// Fraction bits of the factor: with the longest distance, half of the clock's range, it costs less than a nanosecond.
const SHIFT: u32 = 40;

const SECOND: u64 = 1_000_000_000;

/// Converts time stamps of the device's free-running clock ([`Completion::timestamp`](crate::Completion::timestamp),
/// [`Device::clock`](crate::Device::clock)) to nanoseconds: `mlx5dv_ts_to_ns`, and Linux's `timecounter`.
///
/// It has a mark, a time stamp with its nanoseconds, and converts what lies up to half of the clock's range (2^40 cycles, 18
/// minutes at 1 GHz) before or behind it. [`advance`](Self::advance) moves the mark, and has to be called at least that often;
/// what is lost to rounding is carried over, so that any number of calls gives the same as none.
///
/// ```
/// use bareverbs_core::Clock;
///
/// let mut clock = Clock::new(500_000).unwrap(); // 2 ns a cycle
/// clock.set_mark(1_000, 5_000_000);
/// assert_eq!(clock.to_ns(1_010), 5_000_020);
/// assert_eq!(clock.to_ns(990), 4_999_980);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    /// Nanoseconds of a cycle, shifted.
    factor: u64,
    cycles: u64,
    ns: u64,
    /// The distance of the mark behind `ns`, shifted.
    fraction: u64,
}

impl Clock {
    /// A clock of so many cycles per millisecond ([`Device::clock_khz`](crate::Device::clock_khz)), with its mark at 0; `None`
    /// for 0 kHz.
    #[must_use]
    pub const fn new(khz: u32) -> Option<Self> {
        if khz == 0 {
            return None;
        }
        // 10^6 has 20 bits.
        let ns = 1_000_000_u64 << SHIFT;
        let khz = khz as u64;
        Some(Self {
            factor: ns / khz + (ns % khz >= khz.div_ceil(2)) as u64,
            cycles: 0,
            ns: 0,
            fraction: 0,
        })
    }

    /// The time stamp `cycles` is `ns` nanoseconds from now on, such as those since 1970.
    pub const fn set_mark(&mut self, cycles: u64, ns: u64) {
        self.cycles = cycles;
        self.ns = ns;
        self.fraction = 0;
    }

    /// Moves the mark to a later time stamp.
    pub const fn advance(&mut self, cycles: u64) {
        let behind = cycles.wrapping_sub(self.cycles) & ((1 << BITS) - 1);
        // A time stamp from before the mark, such as that of a completion that was taken late.
        if behind >= 1 << (BITS - 1) {
            return;
        }
        let (ns, fraction) = self.distance(behind);
        self.cycles = cycles;
        self.ns = self.ns.wrapping_add(ns);
        self.fraction = fraction;
    }

    /// Whole nanoseconds of so many cycles behind the mark, and the fraction.
    const fn distance(&self, cycles: u64) -> (u64, u64) {
        // 41 bits times at most 60 bits, which u64 does not hold.
        let shifted = cycles as u128 * self.factor as u128 + self.fraction as u128;
        (
            (shifted >> SHIFT) as u64,
            (shifted & ((1 << SHIFT) - 1)) as u64,
        )
    }

    /// The nanoseconds of a time stamp. Those before 0 wrap around.
    #[must_use]
    pub const fn to_ns(&self, cycles: u64) -> u64 {
        let behind = cycles.wrapping_sub(self.cycles) & ((1 << BITS) - 1);
        if behind < 1 << (BITS - 1) {
            return self.ns.wrapping_add(self.distance(behind).0);
        }
        let before = (1 << BITS) - behind;
        let shifted = before as u128 * self.factor as u128;
        // Down to whole nanoseconds, as behind the mark.
        let before = (shifted.saturating_sub(self.fraction as u128)).div_ceil(1 << SHIFT);
        self.ns.wrapping_sub(before as u64)
    }
}

/// The time of a time stamp of the real-time clock: seconds in the upper half and nanoseconds in the lower one
/// (`REAL_TIME_TO_NS` of Linux). `None` if it is none: a second has fewer nanoseconds.
///
/// Queues have such time stamps where the card's `ts_format` capabilities offer no others, or their default is this.
#[must_use]
pub const fn real_time(stamp: u64) -> Option<Duration> {
    let (seconds, ns) = (stamp >> 32, stamp & 0xffff_ffff);
    if ns >= SECOND {
        return None;
    }
    Some(Duration::new(seconds, ns as u32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Exact, in whole numbers: nanoseconds of a distance, rounded down, and one more or less.
    fn is_near(found: u64, mark: u64, cycles: i128, khz: u32) -> bool {
        let exact = (cycles * 1_000_000).div_euclid(khz.into());
        let found = i128::from(found.wrapping_sub(mark) as i64);
        (found - exact).abs() <= 1
    }

    proptest! {
        #[test]
        fn conversions_are_exact_to_a_nanosecond(
            khz in prop_oneof![1_000..4_000_000_u32, Just(156_250), Just(1_000_000), Just(78_125)],
            mark in any::<u64>(),
            ns in 0..u64::MAX / 2,
            distance in -(1_i64 << 40)..1 << 40,
        ) {
            let mut clock = Clock::new(khz).unwrap();
            clock.set_mark(mark, ns);
            let stamp = mark.wrapping_add_signed(distance);
            prop_assert!(is_near(clock.to_ns(stamp), ns, distance.into(), khz));
            // Only so many bits count.
            prop_assert_eq!(clock.to_ns(stamp & ((1 << BITS) - 1)), clock.to_ns(stamp));
        }

        #[test]
        fn moving_the_mark_loses_nothing(
            khz in 1_000..4_000_000_u32,
            start in any::<u64>(),
            steps in proptest::collection::vec(0..1_u64 << 34, 1..200),
            probe in 0..1_u64 << 30,
        ) {
            let mut clock = Clock::new(khz).unwrap();
            clock.set_mark(start, 0);
            let mut cycles = 0_i128;
            let mut at = start;
            for step in steps {
                at = at.wrapping_add(step);
                cycles += i128::from(step);
                clock.advance(at);
                let late = clock;
                clock.advance(at.wrapping_sub(probe));
                prop_assert!(probe == 0 || clock == late, "it went back");
                // The factor itself is right to 2^-41 of a nanosecond for each cycle.
                let slack = 1 + (cycles >> 41);
                let exact = cycles * 1_000_000 / i128::from(khz);
                prop_assert!((i128::from(clock.to_ns(at)) - exact).abs() <= slack);
                let before = (cycles - i128::from(probe)) * 1_000_000;
                let before = before.div_euclid(khz.into());
                let found = clock.to_ns(at.wrapping_sub(probe)) as i64;
                prop_assert!((i128::from(found) - before).abs() <= slack + 1);
            }
        }

        #[test]
        fn real_times_are_seconds_and_nanoseconds(seconds in any::<u32>(), ns in any::<u32>()) {
            let stamp = u64::from(seconds) << 32 | u64::from(ns);
            let expected = (ns < 1_000_000_000).then(|| Duration::new(seconds.into(), ns));
            prop_assert_eq!(real_time(stamp), expected);
        }
    }

    #[test]
    fn a_clock_without_a_frequency_is_none() {
        assert_eq!(Clock::new(0), None);
        // The extremes do not overflow.
        for khz in [1, u32::MAX] {
            let mut clock = Clock::new(khz).unwrap();
            clock.advance((1 << 40) - 1);
            assert!(is_near(clock.to_ns((1 << 40) - 1), 0, (1 << 40) - 1, khz));
        }
    }
}
