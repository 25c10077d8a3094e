//! Packet sequence numbers: 24 bits that wrap.

use std::fmt;

const MASK: u32 = 0xff_ffff;

/// A packet sequence number.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Psn(u32);

impl Psn {
    /// The low 24 bits of `value`.
    pub fn new(value: u32) -> Psn {
        Psn(value & MASK)
    }

    /// The number.
    pub fn get(self) -> u32 {
        self.0
    }

    /// `count` packets later.
    pub fn plus(self, count: u32) -> Psn {
        Psn(self.0.wrapping_add(count) & MASK)
    }

    /// `count` packets earlier.
    pub fn minus(self, count: u32) -> Psn {
        Psn(self.0.wrapping_sub(count) & MASK)
    }

    /// The distance from `earlier` to this one in packets: -2^23 to 2^23 - 1.
    pub fn since(self, earlier: Psn) -> i32 {
        // Sign-extends the 24-bit difference.
        ((self.0.wrapping_sub(earlier.0) << 8) as i32) >> 8
    }

    /// The distance from `earlier`, known not to be behind it: 0 to 2^24 - 1.
    pub fn distance(self, earlier: Psn) -> u32 {
        self.0.wrapping_sub(earlier.0) & MASK
    }

    /// Returns `true` if this one comes before `other`.
    pub fn before(self, other: Psn) -> bool {
        self.since(other) < 0
    }
}

impl fmt::Debug for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wraps() {
        let last = Psn::new(0xff_ffff);
        assert_eq!(last.plus(1), Psn::new(0));
        assert_eq!(Psn::new(0).minus(1), last);
        assert_eq!(Psn::new(2).since(last), 3);
        assert_eq!(last.since(Psn::new(2)), -3);
        assert!(last.before(Psn::new(0)));
        assert!(!Psn::new(0).before(last));
        assert_eq!(Psn::new(0x7f_ffff).since(Psn::new(0)), 0x7f_ffff);
        assert_eq!(Psn::new(0x80_0000).since(Psn::new(0)), -0x80_0000);
        assert_eq!(Psn::new(1).distance(Psn::new(2)), MASK);
    }
}
