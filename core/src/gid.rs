//! The GID table: which addresses the port answers to and sends from.

use core::fmt;

use crate::error::CommandError;

/// A port's address: 128 bits, read as an IPv6 address. RoCE v2 over IPv4 uses the mapped form `::ffff:a.b.c.d`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Gid(pub [u8; 16]);

/// Encapsulation of an entry's packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RoceVersion {
    /// RoCE v1: a GRH directly on Ethernet (type 0x8915).
    V1,
    /// RoCE v2: UDP, port 4791.
    V2,
}

/// An Ethernet address.
pub type Mac = [u8; 6];

/// An entry of the GID table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GidEntry {
    /// The address.
    pub gid: Gid,
    /// The encapsulation.
    pub version: RoceVersion,
    /// The VLAN, if any (0..=4095).
    pub vlan: Option<u16>,
    /// The source MAC.
    pub mac: Mac,
}

impl Gid {
    /// No address.
    pub const ZERO: Self = Self([0; 16]);

    /// The GID of an IPv4 address.
    #[must_use]
    pub const fn from_ipv4(address: core::net::Ipv4Addr) -> Self {
        Self(address.to_ipv6_mapped().octets())
    }

    /// The GID of an IPv6 address.
    #[must_use]
    pub const fn from_ipv6(address: core::net::Ipv6Addr) -> Self {
        Self(address.octets())
    }

    /// The link-local GID that a MAC gives by EUI-64, as the kernel's default GIDs are made.
    #[must_use]
    pub const fn link_local(mac: Mac) -> Self {
        Self([
            0xfe,
            0x80,
            0,
            0,
            0,
            0,
            0,
            0,
            mac[0] ^ 2,
            mac[1],
            mac[2],
            0xff,
            0xfe,
            mac[3],
            mac[4],
            mac[5],
        ])
    }

    /// As an IPv6 address (mapped, for IPv4).
    #[must_use]
    pub const fn to_ipv6(self) -> core::net::Ipv6Addr {
        core::net::Ipv6Addr::from_octets(self.0)
    }

    /// The IPv4 address, if it is one.
    #[must_use]
    pub const fn to_ipv4(self) -> Option<core::net::Ipv4Addr> {
        self.to_ipv6().to_ipv4_mapped()
    }

    /// Whether it is all zero: an empty entry.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self == Self::ZERO
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_ipv6().fmt(f)
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why the GID table could not be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum GidError {
    /// The table is shorter.
    Index {
        /// What was asked for.
        index: u16,
        /// Entries of the table.
        len: usize,
    },
    /// The entry cannot be: an all-zero GID, or a VLAN above 4095.
    Entry(GidEntry),
    /// The port is InfiniBand; its GIDs are the subnet manager's.
    NotRoce,
    /// The device does not have this encapsulation.
    Version(RoceVersion),
    /// The firmware refused.
    Command(CommandError),
}

impl fmt::Display for GidError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index { index, len } => write!(f, "GID index {index} of a table of {len}"),
            Self::Entry(entry) => write!(f, "{entry:?} is not a possible GID table entry"),
            Self::NotRoce => f.write_str("the GIDs of an InfiniBand port are not the driver's"),
            Self::Version(version) => write!(f, "the device does not have RoCE {version:?}"),
            Self::Command(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for GidError {}
