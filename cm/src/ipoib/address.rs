//! Hardware addresses, and the InfiniBand groups of IP's.

use core::fmt;
use core::net::IpAddr;

/// Bytes of a hardware address.
pub const HARDWARE_LEN: usize = 20;

/// Groups that are not permanent, of the subnet's scope; and what follows for IPv4 and for IPv6 (RFC 4391 section 4).
const PREFIX: [u8; 2] = [0xff, 0x12];
const SIGNATURE_IPV4: [u8; 2] = [0x40, 0x1b];
const SIGNATURE_IPV6: [u8; 2] = [0x60, 0x1b];

/// Where an interface is (RFC 4391 section 9.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HardwareAddress {
    /// The number of its QP.
    pub qpn: u32,
    /// The GID of its port.
    pub gid: [u8; 16],
}

impl HardwareAddress {
    /// Reads one. The first byte says whether connections are possible, and is not looked at.
    pub fn parse(bytes: &[u8; HARDWARE_LEN]) -> Self {
        let [_, a, b, c, gid @ ..] = *bytes;
        Self {
            qpn: u32::from_be_bytes([0, a, b, c]),
            gid,
        }
    }

    /// Returns the address as it is on the wire.
    pub fn to_bytes(&self) -> [u8; HARDWARE_LEN] {
        let mut bytes = [0; HARDWARE_LEN];
        bytes[..4].copy_from_slice(&(self.qpn & 0xff_ffff).to_be_bytes());
        bytes[4..].copy_from_slice(&self.gid);
        bytes
    }
}

impl fmt::Display for HardwareAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gid = core::net::Ipv6Addr::from_octets(self.gid);
        write!(f, "QP {:#x} at {gid}", self.qpn)
    }
}

fn mgid(signature: [u8; 2], pkey: u16) -> [u8; 16] {
    let mut mgid = [0; 16];
    mgid[..2].copy_from_slice(&PREFIX);
    mgid[2..4].copy_from_slice(&signature);
    // Full members and others have one group.
    mgid[4..6].copy_from_slice(&(pkey | 0x8000).to_be_bytes());
    mgid
}

/// The group of all interfaces of a partition, which says what MTU and Q_Key they have.
pub fn broadcast_group(pkey: u16) -> [u8; 16] {
    let mut mgid = mgid(SIGNATURE_IPV4, pkey);
    mgid[12..].fill(0xff);
    mgid
}

/// The group of an IP multicast address: its last 28 bits of IPv4, its last 80 bits of IPv6.
pub fn group(address: IpAddr, pkey: u16) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            let mut mgid = mgid(SIGNATURE_IPV4, pkey);
            mgid[12..].copy_from_slice(&[a & 0xf, b, c, d]);
            mgid
        }
        IpAddr::V6(address) => {
            let mut mgid = mgid(SIGNATURE_IPV6, pkey);
            mgid[6..].copy_from_slice(&address.octets()[6..]);
            mgid
        }
    }
}
