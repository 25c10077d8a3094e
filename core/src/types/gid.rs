//! The GID table: which addresses the port answers to and sends from.

use core::fmt;

use bareverbs_firmware_cmds::roce::RoceAddr;
use bareverbs_firmware_cmds::values::RoceL3Type;
pub use bareverbs_firmware_cmds::values::RoceVersion;

use crate::types::error::CommandError;

/// A port's address: 128 bits, read as an IPv6 address. RoCE v2 over IPv4 uses the mapped form `::ffff:a.b.c.d`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Gid(pub [u8; 16]);

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

impl GidEntry {
    /// A RoCE v2 address outside any VLAN.
    #[must_use]
    pub const fn roce_v2(gid: Gid, mac: Mac) -> Self {
        Self {
            gid,
            version: RoceVersion::V2,
            vlan: None,
            mac,
        }
    }
}

impl From<core::net::IpAddr> for Gid {
    fn from(address: core::net::IpAddr) -> Self {
        match address {
            core::net::IpAddr::V4(address) => Self::from_ipv4(address),
            core::net::IpAddr::V6(address) => Self::from_ipv6(address),
        }
    }
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

    /// Returns `true` if it is all zero: an empty entry.
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

/// The advice for a port without MAC address.
pub(crate) const NO_MAC: &str = "the port has no MAC address; for a virtual function, the host sets one: ip link set \
                                 DEVICE vf NUMBER mac ADDRESS";

/// Why the GID table could not be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum GidError {
    /// The table is shorter.
    Index {
        /// The index that was asked for.
        index: u16,
        /// Entries of the table.
        len: usize,
    },
    /// The entry cannot be: an all-zero GID, or a VLAN above 4095.
    Entry(GidEntry),
    /// An entry without MAC address, as a virtual function has none until it is given or sets one.
    NoMac,
    /// The port is InfiniBand; its GIDs are the subnet manager's.
    NotRoce,
    /// The port is Ethernet, and the device has no RoCE on it (capability `roce`).
    NoRoce,
    /// The device does not have this encapsulation.
    Version(RoceVersion),
    /// The firmware refused.
    Command(CommandError),
}

impl fmt::Display for GidError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index { index, len } => write!(f, "GID index {index} of a table of {len}"),
            Self::Entry(GidEntry { gid, vlan, .. }) => write!(
                f,
                "{gid} in VLAN {} is not a possible GID table entry",
                vlan.unwrap_or(0)
            ),
            Self::NoMac => f.write_str(NO_MAC),
            Self::NotRoce => f.write_str("the GIDs of an InfiniBand port are not the driver's"),
            Self::NoRoce => f.write_str("the device has no RoCE on this port"),
            Self::Version(version) => write!(f, "the device does not have RoCE {version:?}"),
            Self::Command(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for GidError {}

/// The longest table that the driver keeps; devices have up to 255 entries.
const MAX_GIDS: usize = 256;

/// The driver's copy of the table: the firmware is asked only when an entry changes.
#[derive(Debug)]
pub(crate) struct GidTable {
    pub(crate) len: usize,
    pub(crate) entries: [Option<GidEntry>; MAX_GIDS],
    /// A bit per entry that is in use: a port has a handful of addresses, and they are looked up for every datagram of
    /// the connection manager.
    used: [u64; MAX_GIDS / 64],
    /// The number of QPs and DCTs whose contexts name the entry, or may name it.
    holders: [u32; MAX_GIDS],
}

impl GidTable {
    /// An empty table.
    pub(crate) const fn new() -> Self {
        Self {
            len: 0,
            entries: [None; MAX_GIDS],
            used: [0; MAX_GIDS / 64],
            holders: [0; MAX_GIDS],
        }
    }

    /// Makes it an empty one of this length.
    pub(crate) fn clear(&mut self, len: usize) {
        self.len = len.min(MAX_GIDS);
        self.entries.fill(None);
        self.used.fill(0);
        self.holders.fill(0);
    }

    pub(crate) fn set(&mut self, index: u16, entry: Option<GidEntry>) {
        let at = usize::from(index);
        let (Some(slot), Some(used)) = (self.entries.get_mut(at), self.used.get_mut(at / 64))
        else {
            return;
        };
        *slot = entry;
        let bit = 1 << (at % 64);
        if entry.is_some() {
            *used |= bit;
        } else {
            *used &= !bit;
        }
    }

    /// Changes the number of an entry's holders.
    pub(crate) fn count_holder(&mut self, index: u16, change: i32) {
        if let Some(holders) = self.holders.get_mut(usize::from(index)) {
            *holders = holders.saturating_add_signed(change);
        }
    }

    /// The first entry that is not in use and has no holder.
    pub(crate) fn first_free(&self) -> Option<u16> {
        let mut all = self.entries.iter().zip(&self.holders).take(self.len);
        let at = all.position(|(entry, holders)| entry.is_none() && *holders == 0)?;
        Some(at as u16)
    }

    /// The first entry in use at `index` or behind it.
    pub(crate) fn next(&self, index: u16) -> Option<(u16, &GidEntry)> {
        let mut at = usize::from(index);
        while let Some(used) = self.used.get(at / 64) {
            let rest = used >> (at % 64);
            if rest != 0 {
                at += rest.trailing_zeros() as usize;
                let entry = self.entries.get(at)?.as_ref()?;
                return Some((at as u16, entry));
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }

    pub(crate) fn used(&self) -> impl Iterator<Item = (u16, &GidEntry)> {
        let mut from = 0;
        core::iter::from_fn(move || {
            let found = self.next(from)?;
            from = found.0 + 1;
            Some(found)
        })
    }
}

impl GidEntry {
    /// In the firmware's format.
    pub(crate) fn to_firmware(self) -> RoceAddr {
        let mut address = RoceAddr::ZERO;
        *address.source_l3_address_mut() = self.gid.0;
        // RoCE v1 has no IP header, and leaves the field 0.
        let l3_type = match (self.version, self.gid.to_ipv4()) {
            (RoceVersion::V1, _) => 0,
            (RoceVersion::V2, Some(_)) => RoceL3Type::Ipv4.number(),
            (RoceVersion::V2, None) => RoceL3Type::Ipv6.number(),
        };
        let [a, b, rest @ ..] = self.mac;
        address
            .set_vlan_valid(self.vlan.is_some())
            .set_vlan_id(self.vlan.unwrap_or(0))
            .set_source_mac_47_32(u16::from_be_bytes([a, b]))
            .set_source_mac_31_0(u32::from_be_bytes(rest))
            .set_roce_l3_type(l3_type)
            .set_roce_version(self.version.number());
        address
    }

    /// From what the firmware has; `None` for an empty entry or an unknown encapsulation.
    pub(crate) fn from_firmware(address: &RoceAddr) -> Option<Self> {
        let gid = Gid(*address.source_l3_address());
        let [a, b] = address.source_mac_47_32().to_be_bytes();
        let [c, d, e, f] = address.source_mac_31_0().to_be_bytes();
        (!gid.is_zero()).then_some(Self {
            gid,
            version: RoceVersion::from_number(address.roce_version())?,
            vlan: address.vlan_valid().then(|| address.vlan_id()),
            mac: [a, b, c, d, e, f],
        })
    }
}
