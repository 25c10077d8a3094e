//! Numbers of objects and keys, each a separate type, so that a CQ number cannot end up in a QP's field.

use core::fmt;

macro_rules! number24 {
    ($($(#[$meta:meta])* $Name:ident = $prefix:literal;)*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $Name(u32);

        impl $Name {
            /// The greatest: all 24 bits.
            pub const MAX: Self = Self(0x00ff_ffff);

            /// `None` if it does not fit into 24 bits.
            #[must_use]
            #[inline]
            pub const fn new(number: u32) -> Option<Self> {
                if number >> 24 == 0 { Some(Self(number)) } else { None }
            }

            /// From the lower 24 bits of a dword, whose upper 8 bits are something else.
            #[must_use]
            #[inline]
            pub const fn from_low_bits(dword: u32) -> Self {
                Self(dword & 0x00ff_ffff)
            }

            /// The number.
            #[must_use]
            #[inline]
            pub const fn number(self) -> u32 {
                self.0
            }
        }

        impl From<$Name> for u32 {
            #[inline]
            fn from(number: $Name) -> Self {
                number.0
            }
        }

        impl fmt::Display for $Name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, " {:#x}"), self.0)
            }
        }
    )*};
}

number24! {
    /// Queue pair number.
    Qpn = "QP";
    /// Completion queue number.
    Cqn = "CQ";
    /// Shared receive queue number. SRQ, XRC SRQ and RMP draw from one space: a QP names any of them in one field.
    Srqn = "SRQ";
    /// Protection domain number.
    Pdn = "PD";
    /// Transport domain number.
    Tdn = "TD";
    /// Number of an Ethernet receive queue.
    Rqn = "RQ";
    /// Transport interface receive number: what flow steering sends frames to.
    Tirn = "TIR";
    /// XRC domain number.
    Xrcdn = "XRCD";
    /// Index of a user access region: the number of a page of BAR 0.
    UarIndex = "UAR";
    /// Index of a memory key: a key without its lowest 8 bits.
    MkeyIndex = "MKEY";
}

impl Qpn {
    /// "Any QP", in a memory key.
    pub const ANY: Self = Self::MAX;
}

impl UarIndex {
    /// Where the page starts in BAR 0.
    #[must_use]
    pub const fn bar_offset(self) -> usize {
        self.0 as usize * 0x1000
    }
}

impl MkeyIndex {
    /// The key with this index and variant.
    #[must_use]
    pub const fn key(self, variant: u8) -> u32 {
        self.0 << 8 | variant as u32
    }
}

/// Event queue number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Eqn(pub u8);

impl fmt::Display for Eqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EQ {:#x}", self.0)
    }
}

/// Queue counter set number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct CounterSetId(pub u8);

/// Index into the table of RoCE addresses, which are this port's GIDs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct GidIndex(pub u8);

/// Index into the table of partition keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct PkeyIndex(pub u16);

macro_rules! keys {
    ($($(#[$meta:meta])* $Name:ident;)*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $Name(pub u32);

        impl $Name {
            /// The key of a memory region with this index and variant.
            #[must_use]
            pub const fn new(index: MkeyIndex, variant: u8) -> Self {
                Self(index.key(variant))
            }

            /// Index of the region.
            #[must_use]
            pub const fn index(self) -> MkeyIndex {
                MkeyIndex(self.0 >> 8)
            }

            /// Lowest byte, which the owner chooses and which must match.
            #[must_use]
            pub const fn variant(self) -> u8 {
                self.0 as u8
            }
        }

        impl fmt::Display for $Name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#010x}", self.0)
            }
        }
    )*};
}

keys! {
    /// Key under which a work request names local memory.
    LKey;
    /// Key under which a peer names our memory.
    RKey;
}

impl LKey {
    /// Ends a list of scatter entries that is shorter than its stride.
    pub const TERMINATOR: Self = Self(0x100);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_four_bits() {
        assert_eq!(Qpn::new(0x00ff_ffff), Some(Qpn::ANY));
        assert_eq!(Qpn::new(0x0100_0000), None);
        assert_eq!(Cqn::from_low_bits(0xab00_0007).number(), 7);
        assert_eq!(UarIndex::new(5).unwrap().bar_offset(), 0x5000);
    }

    #[test]
    fn keys_are_index_and_variant() {
        let key = LKey::new(MkeyIndex::new(0x00ab_cdef).unwrap(), 0x12);
        assert_eq!(key, LKey(0xabcd_ef12));
        assert_eq!(key.index().number(), 0x00ab_cdef);
        assert_eq!(key.variant(), 0x12);
    }
}
