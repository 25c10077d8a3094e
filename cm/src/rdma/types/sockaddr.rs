//! Addresses of ids: IP addresses with ports, and InfiniBand's GIDs with services.

use core::fmt;
use core::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use bareverbs_core::Gid;

use crate::rdma::types::PortSpace;
use crate::rdma::types::error::RdmaError;

/// The part of a service ID that is the port (`RDMA_IB_IP_PORT_MASK`).
const PORT_MASK: u64 = 0xffff;
/// The partition that every port is in.
pub(crate) const DEFAULT_PKEY: u16 = 0xffff;

/// An address on InfiniBand that needs no IP (`struct sockaddr_ib`, `AF_IB`).
///
/// As in Linux a service is a port of the id's port space: the upper bits of `sid`, as far as `sid_mask` has them, are the port
/// space's, and the lower 16 the port. [`SockaddrIb::new`] puts them together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SockaddrIb {
    /// Partition; 0 means the default one.
    pub pkey: u16,
    /// Flow label.
    pub flowinfo: u32,
    /// The port's GID; zero means this device's.
    pub gid: Gid,
    /// Service ID.
    pub sid: u64,
    /// Mask of the bits of `sid` that count.
    pub sid_mask: u64,
}

impl SockaddrIb {
    /// A port of a port space at a GID, in the default partition.
    pub const fn new(gid: Gid, port_space: PortSpace, port: u16) -> Self {
        Self {
            pkey: 0,
            flowinfo: 0,
            gid,
            sid: (port_space as u64) << 16 | port as u64,
            sid_mask: u64::MAX,
        }
    }

    /// The same in another partition.
    #[must_use]
    pub const fn with_pkey(self, pkey: u16) -> Self {
        Self { pkey, ..self }
    }

    /// The port; 0 for any.
    pub const fn port(&self) -> u16 {
        (self.sid & self.sid_mask & PORT_MASK) as u16
    }

    /// The port space of the service, for an id that was created in `port_space`: as in Linux one in [`PortSpace::Ib`] may
    /// have services of the port space `usual` for its type.
    pub(crate) fn select(&self, port_space: PortSpace, usual: PortSpace) -> PortSpace {
        match port_space {
            PortSpace::Ib if !self.is_in(PortSpace::Ib) && self.is_in(usual) => usual,
            other => other,
        }
    }

    /// Returns `true` if the service is one of the port space; a mask without a port space leaves it to the id.
    fn is_in(&self, port_space: PortSpace) -> bool {
        let mask = self.sid_mask & !PORT_MASK;
        self.sid & mask == (port_space as u64) << 16 & mask
    }

    /// The address without its partition, as ids keep it, if the service is one of the port space.
    pub(crate) fn in_port_space(&self, port_space: PortSpace) -> Result<SocketAddr, RdmaError> {
        if !self.is_in(port_space) {
            return Err(RdmaError::WrongService {
                service_id: self.sid,
                port_space,
            });
        }
        let flowinfo = self.flowinfo & 0xf_ffff;
        let address = SocketAddrV6::new(self.gid.to_ipv6(), self.port(), flowinfo, 0);
        Ok(SocketAddr::V6(address))
    }

    pub(crate) fn of(address: SocketAddr, port_space: PortSpace, pkey: u16) -> Self {
        let ip = match address.ip() {
            IpAddr::V6(ip) => ip,
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        };
        Self::new(Gid::from_ipv6(ip), port_space, address.port()).with_pkey(pkey)
    }

    /// The partition, never 0.
    pub(crate) const fn partition(&self) -> u16 {
        match self.pkey {
            0 => DEFAULT_PKEY,
            pkey => pkey,
        }
    }
}

impl fmt::Display for SockaddrIb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} service {:#x}", self.gid.to_ipv6(), self.sid)
    }
}

/// The address of an id, of either family (`struct sockaddr`). What takes one takes a [`SocketAddr`] or a [`SockaddrIb`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SockAddr {
    /// An IP address and a port (`AF_INET`, `AF_INET6`): on RoCE.
    Ip(SocketAddr),
    /// A GID and a service (`AF_IB`): on InfiniBand.
    Ib(SockaddrIb),
}

impl SockAddr {
    /// The port.
    pub const fn port(&self) -> u16 {
        match self {
            Self::Ip(address) => address.port(),
            Self::Ib(address) => address.port(),
        }
    }
}

impl From<SocketAddr> for SockAddr {
    fn from(address: SocketAddr) -> Self {
        Self::Ip(address)
    }
}

impl<I: Into<IpAddr>> From<(I, u16)> for SockAddr {
    fn from(address: (I, u16)) -> Self {
        Self::Ip(address.into())
    }
}

impl From<SockaddrIb> for SockAddr {
    fn from(address: SockaddrIb) -> Self {
        Self::Ib(address)
    }
}

impl fmt::Display for SockAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Ib(address) => address.fmt(f),
        }
    }
}

/// Any address of the family that ids on InfiniBand have inside.
pub(crate) const ANY_GID: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
