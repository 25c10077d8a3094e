//! Where a node is in the network.

use std::fmt;
use std::net::{AddrParseError, IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use bareverbs_cm::rdma::{PortSpace, SockAddr, SockaddrIb};
use bareverbs_core::Gid;

/// The address of a node: an IP address, or the GID of an InfiniBand port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NodeAddress {
    /// An IP address, which the node claims. On InfiniBand it is one of IP over InfiniBand, in the partition of
    /// [`Options::pkey`](crate::Options::pkey).
    Ip(Address),
    /// On InfiniBand, the GID that the port has; zero for whichever that is.
    Gid(Gid),
}

impl NodeAddress {
    /// The same without the network.
    #[must_use]
    pub const fn host(&self) -> Host {
        match self {
            Self::Ip(address) => Host::Ip(address.ip),
            Self::Gid(gid) => Host::Gid(*gid),
        }
    }
}

impl<I: Into<Host>> From<I> for NodeAddress {
    fn from(host: I) -> Self {
        match host.into() {
            Host::Ip(ip) => Self::Ip(ip.into()),
            Host::Gid(gid) => Self::Gid(gid),
        }
    }
}

impl From<Address> for NodeAddress {
    fn from(address: Address) -> Self {
        Self::Ip(address)
    }
}

/// A host, by an IP address or by the GID of an InfiniBand port: `10.0.0.1`, `fd00::1`, `gid:fe80::2c9:1:1`. `gid` alone is the
/// GID of the port that it is used on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Host {
    /// An IP address.
    Ip(IpAddr),
    /// A GID, or zero for the port's own.
    Gid(Gid),
}

impl Host {
    /// A port of a port space there.
    #[must_use]
    pub fn at(self, port_space: PortSpace, port: u16) -> SockAddr {
        match self {
            Self::Ip(ip) => SocketAddr::new(ip, port).into(),
            Self::Gid(gid) => SockaddrIb::new(gid, port_space, port).into(),
        }
    }

    /// The IP address, if it is one.
    #[must_use]
    pub const fn ip(self) -> Option<IpAddr> {
        match self {
            Self::Ip(ip) => Some(ip),
            Self::Gid(_) => None,
        }
    }

    /// `true` if it stands for the GID of the port that it is used on.
    #[must_use]
    pub fn is_own_gid(self) -> bool {
        self == Self::Gid(Gid::ZERO)
    }
}

/// The prefix of a GID.
const GID: &str = "gid";

impl FromStr for Host {
    type Err = AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let gid = text.strip_prefix(GID);
        Ok(match (gid, gid.and_then(|rest| rest.strip_prefix(':'))) {
            (Some(""), _) => Self::Gid(Gid::ZERO),
            (_, Some(gid)) => Self::Gid(Gid::from_ipv6(gid.parse()?)),
            _ => Self::Ip(text.parse()?),
        })
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(ip) => ip.fmt(f),
            Self::Gid(Gid::ZERO) => f.write_str(GID),
            Self::Gid(gid) => write!(f, "{GID}:{}", gid.to_ipv6()),
        }
    }
}

impl From<IpAddr> for Host {
    fn from(ip: IpAddr) -> Self {
        Self::Ip(ip)
    }
}

impl From<Ipv4Addr> for Host {
    fn from(ip: Ipv4Addr) -> Self {
        Self::Ip(ip.into())
    }
}

impl From<Ipv6Addr> for Host {
    fn from(ip: Ipv6Addr) -> Self {
        Self::Ip(ip.into())
    }
}

impl From<[u8; 4]> for Host {
    fn from(ip: [u8; 4]) -> Self {
        Self::Ip(ip.into())
    }
}

impl From<Gid> for Host {
    fn from(gid: Gid) -> Self {
        Self::Gid(gid)
    }
}

/// A node's IP address, and the network that it is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Address {
    /// The address.
    pub ip: IpAddr,
    /// The number of leading bits that all hosts on the link share; 24 of IPv4 and 64 of IPv6 if not given.
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
