//! Static rates: the limit of a path that is slower than the port.

/// The most that a path carries: `enum ibv_rate`, the "rate" of path records, of the CM's messages and of address vectors.
///
/// Its number is not in the order of the speeds, and it is not the device's number either: where the driver describes a
/// path to the device, it takes the fastest rate that the device has (`stat_rate_support`) and that is not above this one.
/// If there is none, the path has no limit but the port's own. Many cards have none at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct StaticRate(u8);

/// Megabits per second by number, from 2 on. The last is Linux's; rdma-core ends with the one before. Linux's mlx5 refuses
/// numbers above the one of 800 Gb/s where it does not know 1600 Gb/s yet.
const MBPS: [u32; 24] = [
    2_500, 10_000, 30_000, 5_000, 20_000, 40_000, 60_000, 80_000, 120_000, 14_062, 56_250, 112_500,
    168_750, 25_781, 103_125, 206_250, 309_375, 28_125, 53_125, 425_000, 637_500, 850_000,
    1_275_000, 1_700_000,
];

/// The number of each value of the device's field of four bits (`ib_to_mlx5_rate_map` of Linux's mlx5). 0 is no limit.
const DEVICE: [u8; 16] = [0, 12, 15, 16, 17, 20, 21, 2, 3, 4, 5, 6, 7, 8, 9, 10];

/// 800 Gb/s: no port is faster, so that this limits nothing.
const FASTEST_PORT: u32 = 850_000;

impl StaticRate {
    /// No limit but the port's own speed.
    pub const PORT: Self = Self(0);

    /// The rate with this number; `None` where there is none.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        if number == 0 || number >= 2 && number as usize - 2 < MBPS.len() {
            Some(Self(number))
        } else {
            None
        }
    }

    /// Its number: the value of `enum ibv_rate`.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Megabits per second; `None` for the port's own.
    #[must_use]
    pub fn mbps(self) -> Option<u32> {
        MBPS.get(usize::from(self.0).checked_sub(2)?).copied()
    }

    /// The value for the device's field; bit `n` of `supported` says that it has value `n`.
    ///
    /// Linux's mlx5 looks for the next lower one by number instead of by speed, and gets 120 Gb/s for 14.
    pub(crate) fn to_device(self, supported: u16) -> u8 {
        let Some(limit) = self.mbps().filter(|&mbps| mbps < FASTEST_PORT) else {
            return 0;
        };
        (1..16)
            .filter(|value| supported >> value & 1 != 0)
            .filter_map(|value| Some((Self::from_device(value).mbps()?, value)))
            .filter(|&(mbps, _)| mbps <= limit)
            .max()
            .map_or(0, |(_, value)| value)
    }

    /// Returns the rate that a value of the device's field of four bits stands for.
    pub(crate) fn from_device(value: u8) -> Self {
        Self(DEVICE[usize::from(value & 15)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Linux's `ib_to_mlx5_rate_map`, as far as its results fit into the field.
    fn mapped_by_linux(number: u8) -> Option<u8> {
        let value = match number {
            12 => 1,
            15 => 2,
            16 => 3,
            17 => 4,
            20 => 5,
            21 => 6,
            other => other + 5,
        };
        (value < 16).then_some(value)
    }

    fn rates() -> impl Iterator<Item = StaticRate> {
        (0..=u8::MAX).filter_map(StaticRate::from_number)
    }

    #[test]
    fn a_device_with_all_rates_gets_the_values_of_linux() {
        let mut mapped = 0;
        for rate in rates().filter(|rate| *rate != StaticRate::PORT) {
            if let Some(value) = mapped_by_linux(rate.number()) {
                assert_eq!(rate.to_device(u16::MAX), value, "{rate:?}");
                assert_eq!(StaticRate::from_device(value), rate);
                mapped += 1;
            }
        }
        assert_eq!(mapped, 15, "each value but 0 of four bits is a rate");
        assert_eq!(StaticRate::PORT.to_device(u16::MAX), 0);
        assert_eq!(StaticRate::from_device(0), StaticRate::PORT);
    }

    #[test]
    fn rates_that_the_device_lacks_become_the_next_slower_ones() {
        let value = |number, supported| StaticRate(number).to_device(supported);
        // 14 Gb/s becomes 10, 28 becomes 25, 112 becomes 103, 168 becomes 120, 300 becomes 200, 600 becomes 400.
        for (number, expected) in [(11, 8), (19, 2), (13, 3), (14, 15), (18, 4), (22, 6)] {
            assert_eq!(value(number, u16::MAX), expected, "{number}");
        }
        // 5 Gb/s without it becomes 2.5, and not 30, which is one less by number.
        assert_eq!(value(5, !(1 << 10)), 7);
        // 400 Gb/s without it becomes 200, and not 50.
        assert_eq!(value(21, !(1 << 6)), 4);
        // Nothing is slow enough.
        assert_eq!(value(2, !(1 << 7)), 0);
        // Neither bit 0 nor nothing is a rate; the former is what ConnectX-6 Dx and ConnectX-7 report.
        for rate in rates() {
            assert_eq!((rate.to_device(0), rate.to_device(1)), (0, 0), "{rate:?}");
        }
        // 800 Gb/s and more, as in Linux.
        for number in 23..=25 {
            assert_eq!(value(number, u16::MAX), 0);
        }
    }

    #[test]
    fn a_value_is_supported_and_not_too_fast_and_nothing_lies_between() {
        for supported in (0..=u16::MAX).step_by(13) {
            for rate in rates().filter(|rate| rate.number() < 23) {
                let value = rate.to_device(supported);
                let Some(limit) = rate.mbps() else {
                    assert_eq!(value, 0);
                    continue;
                };
                assert!(value == 0 || supported >> value & 1 == 1, "{rate:?}");
                let chosen = StaticRate::from_device(value).mbps().unwrap_or(0);
                assert!(chosen <= limit, "{rate:?} of {supported:#x}");
                for other in (1..16).filter(|other| supported >> other & 1 == 1) {
                    let other = StaticRate::from_device(other).mbps().unwrap();
                    assert!(
                        other <= chosen || other > limit,
                        "{rate:?} of {supported:#x}"
                    );
                }
            }
        }
    }

    #[test]
    fn other_numbers_are_no_rates() {
        assert_eq!(rates().count(), 25);
        for number in [1, 26, 63, 255] {
            assert_eq!(StaticRate::from_number(number), None, "{number}");
        }
        assert_eq!(StaticRate::PORT.mbps(), None);
        assert_eq!(StaticRate::from_number(16).unwrap().mbps(), Some(103_125));
    }
}
