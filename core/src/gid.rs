//! The GID table: which addresses the port answers to and sends from.

use core::fmt;

use bareverbs_firmware_cmds::roce::{QueryRoceAddressIn, RoceAddr, SetRoceAddressIn};
use bareverbs_firmware_cmds::values::RoceL3Type;
pub use bareverbs_firmware_cmds::values::RoceVersion;

use crate::device::Device;
use crate::error::CommandError;
use crate::platform::Platform;
use crate::port::LinkLayer;

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

/// What to do about a port without MAC address.
pub(crate) const NO_MAC: &str = "the port has no MAC address; for a virtual function, the host sets one: ip link set \
                                 DEVICE vf NUMBER mac ADDRESS";

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
    len: usize,
    entries: [Option<GidEntry>; MAX_GIDS],
    /// A bit per entry that is in use: a port has a handful of addresses, and they are looked up for every datagram of
    /// the connection manager.
    used: [u64; MAX_GIDS / 64],
}

impl GidTable {
    /// An empty table.
    pub(crate) const fn new() -> Self {
        Self {
            len: 0,
            entries: [None; MAX_GIDS],
            used: [0; MAX_GIDS / 64],
        }
    }

    /// Makes it an empty one of this length.
    pub(crate) fn clear(&mut self, len: usize) {
        self.len = len.min(MAX_GIDS);
        self.entries.fill(None);
        self.used.fill(0);
    }

    fn set(&mut self, index: u16, entry: Option<GidEntry>) {
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

    /// The first entry in use at `index` or behind it.
    fn next(&self, index: u16) -> Option<(u16, &GidEntry)> {
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

    fn used(&self) -> impl Iterator<Item = (u16, &GidEntry)> {
        let mut from = 0;
        core::iter::from_fn(move || {
            let found = self.next(from)?;
            from = found.0 + 1;
            Some(found)
        })
    }
}

impl GidEntry {
    /// As the firmware wants it.
    fn to_firmware(self) -> RoceAddr {
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
    fn from_firmware(address: &RoceAddr) -> Option<Self> {
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

impl<P: Platform> Device<'_, P> {
    /// Entries that the GID table has; 0 on InfiniBand, where the subnet manager keeps it.
    pub fn gid_table_len(&self) -> usize {
        self.slot.gids.lock().len
    }

    /// An entry of the GID table; `None` if it is empty or does not exist.
    pub fn port_gid(&self, index: u16) -> Option<GidEntry> {
        let table = self.slot.gids.lock();
        *table.entries.get(..table.len)?.get(usize::from(index))?
    }

    /// All entries of the GID table that are in use.
    pub fn gid_table(&self) -> impl Iterator<Item = (u16, GidEntry)> + '_ {
        let mut from = 0;
        core::iter::from_fn(move || {
            let (index, entry) = self
                .slot
                .gids
                .lock()
                .next(from)
                .map(|(index, e)| (index, *e))?;
            from = index + 1;
            Some((index, entry))
        })
    }

    /// The first entry with this GID, encapsulation and VLAN.
    pub fn find_gid(&self, gid: &Gid, version: RoceVersion, vlan: Option<u16>) -> Option<u16> {
        let table = self.slot.gids.lock();
        let mut used = table.used();
        let found = used
            .find(|(_, entry)| entry.gid == *gid && entry.version == version && entry.vlan == vlan);
        found.map(|(index, _)| index)
    }

    /// The first entry that is not in use.
    pub fn free_gid_index(&self) -> Option<u16> {
        let table = self.slot.gids.lock();
        let free = table
            .entries
            .iter()
            .take(table.len)
            .position(Option::is_none);
        free.map(|index| index as u16)
    }

    /// Writes an entry of the GID table (SET_ROCE_ADDRESS): packets are sent from it and accepted for it from now on.
    pub fn set_gid(&self, index: u16, entry: GidEntry) -> Result<(), GidError> {
        if entry.gid.is_zero() || entry.vlan.is_some_and(|vlan| vlan > 0xfff) {
            return Err(GidError::Entry(entry));
        }
        if entry.mac == [0; 6] {
            return Err(GidError::NoMac);
        }
        self.roce_table()?;
        let supported = self.capabilities().roce_versions();
        if !supported.contains(&Some(entry.version)) {
            return Err(GidError::Version(entry.version));
        }
        self.write_gid(index, Some(entry))
    }

    /// Empties an entry of the GID table.
    pub fn del_gid(&self, index: u16) -> Result<(), GidError> {
        self.write_gid(index, None)
    }

    fn write_gid(&self, index: u16, entry: Option<GidEntry>) -> Result<(), GidError> {
        let len = self.roce_table()?;
        if usize::from(index) >= len {
            return Err(GidError::Index { index, len });
        }
        let _writer = self.gid_writer.lock();
        let mut set = SetRoceAddressIn::new();
        set.set_roce_address_index(index)
            .set_vhca_port_num(self.vhca_port_num());
        // Deleting is writing zeros.
        *set.roce_address_mut() = entry.map_or(RoceAddr::ZERO, GidEntry::to_firmware);
        self.order(&set).map_err(GidError::Command)?;
        self.slot.gids.lock().set(index, entry);
        Ok(())
    }

    /// The length of the table, on ports that have one.
    fn roce_table(&self) -> Result<usize, GidError> {
        let caps = self.capabilities();
        match (caps.link_layer(), caps.roce) {
            (LinkLayer::InfiniBand, _) => Err(GidError::NotRoce),
            (LinkLayer::Ethernet, None) => Err(GidError::NoRoce),
            (LinkLayer::Ethernet, Some(_)) => Ok(self.gid_table_len()),
        }
    }

    /// The port whose table it is, which is to be said where a function can have several.
    fn vhca_port_num(&self) -> u8 {
        u8::from(self.capabilities().hca.num_vhca_ports() > 0)
    }

    /// Asks the firmware for an entry of its table (QUERY_ROCE_ADDRESS), past the driver's own copy.
    pub fn query_gid(&self, index: u16) -> Result<Option<GidEntry>, GidError> {
        let len = self.roce_table()?;
        if usize::from(index) >= len {
            return Err(GidError::Index { index, len });
        }
        let mut query = QueryRoceAddressIn::new();
        query
            .set_roce_address_index(index)
            .set_vhca_port_num(self.vhca_port_num());
        let answer = self.execute(&query).map_err(GidError::Command)?;
        Ok(GidEntry::from_firmware(answer.roce_address()))
    }
}
