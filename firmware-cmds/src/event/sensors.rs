//! Sensors of temperature, by their numbers.

use core::fmt;

/// A set of sensors (`struct mlx5_eqe_temp_warning`), and an iterator that takes them from it, the lowest number first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Sensors {
    /// 64 to 127: those of modules.
    high: u64,
    /// 0 to 63.
    low: u64,
}

impl Sensors {
    /// From one bit for each.
    #[must_use]
    pub const fn new(bits: u128) -> Self {
        Self {
            high: (bits >> 64) as u64,
            low: bits as u64,
        }
    }

    /// One bit for each.
    #[must_use]
    pub const fn bits(self) -> u128 {
        (self.high as u128) << 64 | self.low as u128
    }
}

impl Iterator for Sensors {
    type Item = u8;

    #[inline(never)]
    fn next(&mut self) -> Option<u8> {
        let (bits, first) = match self.low {
            0 => (&mut self.high, 64),
            _ => (&mut self.low, 0),
        };
        let rest = bits.checked_sub(1)?;
        let lowest = bits.trailing_zeros();
        *bits &= rest;
        Some(first + lowest as u8)
    }
}

/// The lowest number. A derived one would link the formatting of 64-bit numbers in programs that have no other use for it.
impl fmt::Debug for Sensors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        { *self }.next().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    #[test]
    fn the_lowest_number_comes_first() {
        let numbers = |bits| Sensors::new(bits).collect::<Vec<u8>>();
        assert_eq!(numbers(0), []);
        assert_eq!(numbers(1 << 127 | 1 << 64 | 1 << 63 | 1), [0, 63, 64, 127]);
        assert_eq!(numbers(u128::MAX).len(), 128);
        let shown = std::format!("{:?}", Sensors::new(1 << 64 | 4));
        assert_eq!(shown, "Some(2)");
        assert_eq!(Sensors::new(1 << 64 | 4).bits(), 1 << 64 | 4);
    }
}
