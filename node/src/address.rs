//! Where a node is in the network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A node's address, and the network that it is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Address {
    /// The address.
    pub ip: IpAddr,
    /// As many leading bits are those of all hosts on the link; 24 of IPv4 and 64 of IPv6 if not given.
    pub prefix: Option<u8>,
    /// The router to hosts that are not on the link.
    pub gateway: Option<IpAddr>,
    /// The VLAN of the address, from 1 to 4094.
    pub vlan: Option<u16>,
}

impl Address {
    /// The length of the prefix in bits.
    #[must_use]
    pub const fn prefix_len(&self) -> u8 {
        match (self.prefix, self.ip) {
            (Some(bits), _) => bits,
            (None, IpAddr::V4(_)) => 24,
            (None, IpAddr::V6(_)) => 64,
        }
    }
}

impl From<IpAddr> for Address {
    fn from(ip: IpAddr) -> Self {
        Self {
            ip,
            prefix: None,
            gateway: None,
            vlan: None,
        }
    }
}

impl From<Ipv4Addr> for Address {
    fn from(ip: Ipv4Addr) -> Self {
        IpAddr::from(ip).into()
    }
}

impl From<Ipv6Addr> for Address {
    fn from(ip: Ipv6Addr) -> Self {
        IpAddr::from(ip).into()
    }
}

impl From<[u8; 4]> for Address {
    fn from(ip: [u8; 4]) -> Self {
        IpAddr::from(ip).into()
    }
}
