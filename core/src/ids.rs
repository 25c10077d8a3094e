//! Numbers and keys of device objects, as types that cannot be mixed up.

use core::fmt;

macro_rules! number {
    ($(#[$meta:meta])* $Name:ident, $prefix:literal, 24) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[repr(transparent)]
        pub struct $Name(u32);

        impl $Name {
            /// Takes the low 24 bits, as the device does.
            #[must_use]
            pub const fn new(number: u32) -> Self {
                Self(number & 0xff_ffff)
            }

            /// The number.
            #[must_use]
            pub const fn get(self) -> u32 {
                self.0
            }
        }

        impl fmt::Display for $Name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, " {:#x}"), self.0)
            }
        }
    };
    ($(#[$meta:meta])* $Name:ident, $prefix:literal, 32) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[repr(transparent)]
        pub struct $Name(u32);

        impl $Name {
            /// The key with this value.
            #[must_use]
            pub const fn new(key: u32) -> Self {
                Self(key)
            }

            /// The value.
            #[must_use]
            pub const fn get(self) -> u32 {
                self.0
            }
        }

        impl fmt::Display for $Name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, " {:#010x}"), self.0)
            }
        }
    };
}

number! {
    /// Queue pair number, 24 bits.
    Qpn, "QP", 24
}
number! {
    /// Completion queue number, 24 bits.
    Cqn, "CQ", 24
}
number! {
    /// Number of a shared receive queue (SRQ, RMP or XRC SRQ), 24 bits.
    Srqn, "SRQ", 24
}
number! {
    /// Event queue number.
    Eqn, "EQ", 24
}
number! {
    /// Protection domain number, 24 bits.
    Pdn, "PD", 24
}
number! {
    /// XRC domain number, 24 bits.
    Xrcdn, "XRCD", 24
}
number! {
    /// Packet sequence number, 24 bits (IBTA vol. 1, 9.2).
    Psn, "PSN", 24
}
number! {
    /// Key by which the device's owner names memory in a work request: mkey index and variant byte.
    LKey, "lkey", 32
}
number! {
    /// Key by which the other side names memory.
    RKey, "rkey", 32
}
