//! Names to addresses (`rdma_getaddrinfo`). Hosts are numeric: there is no name service below an operating system.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bareverbs_core::Gid;

use crate::mad::sa::PathRecord;
use crate::rdma::types::PortSpace;
use crate::rdma::types::sockaddr::{SockAddr, SockaddrIb};

/// Families of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AddressFamily {
    /// IPv4 (`AF_INET`).
    Inet,
    /// IPv6 (`AF_INET6`).
    Inet6,
    /// GIDs (`AF_IB`).
    Ib,
}

/// Result of `getaddrinfo`, hints for it, and the argument of `create_ep` (`struct rdma_addrinfo`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddrInfo {
    /// `RAI_PASSIVE`: for a listener.
    pub passive: bool,
    /// In hints: how to read the host (`RAI_FAMILY` and `ai_family`); what looks like an IPv6 address may be a GID. `None` takes it
    /// for an IP address.
    pub family: Option<AddressFamily>,
    /// Port space.
    pub port_space: PortSpace,
    /// Local address, if it matters.
    pub src_addr: Option<SockAddr>,
    /// The other end's address; active side only.
    pub dst_addr: Option<SockAddr>,
    /// The path there, if it is known from elsewhere (`ai_route`); active side on InfiniBand only.
    pub route: Option<PathRecord>,
}

impl AddrInfo {
    /// For a listener at `address`, in the port space of reliable connections (`RDMA_PS_TCP`).
    pub fn listen(address: impl Into<SockAddr>) -> Self {
        Self {
            src_addr: Some(address.into()),
            ..Self::hints(true)
        }
    }

    /// For a connection to `address`, in the port space of reliable connections (`RDMA_PS_TCP`), from any address of this
    /// host from which there is a route.
    pub fn connect(address: impl Into<SockAddr>) -> Self {
        Self {
            dst_addr: Some(address.into()),
            ..Self::hints(false)
        }
    }

    /// Hints for the active side, or for a listener.
    pub const fn hints(passive: bool) -> Self {
        Self {
            passive,
            family: None,
            port_space: PortSpace::Tcp,
            src_addr: None,
            dst_addr: None,
            route: None,
        }
    }
}

/// Why there is no address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddrInfoError {
    /// Neither a host, nor a service, nor a source address in the hints.
    Nothing,
    /// Not a numeric IPv4 or IPv6 address.
    Host,
    /// The address is not of the family that the hints ask for.
    Family,
    /// Not a port number.
    Service,
}

impl AddrInfoError {
    /// The `EAI_*` code or errno that librdmacm would give.
    pub const fn code(self) -> i32 {
        match self {
            Self::Nothing => 22,
            // EAI_NONAME, EAI_ADDRFAMILY and EAI_SERVICE.
            Self::Host => -2,
            Self::Family => -9,
            Self::Service => -8,
        }
    }
}

impl fmt::Display for AddrInfoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "neither a host, nor a service, nor a source address was given",
            Self::Family => "the host is of another address family than the hints",
            Self::Host => "the host is not a numeric IPv4 or IPv6 address",
            Self::Service => "the service is not a port number",
        })
    }
}

impl core::error::Error for AddrInfoError {}

/// Finds the address of `host` (numeric) and `service` (a port number), as a destination or, with `passive` in the hints,
/// as the address to listen to. Without a host a listener gets the wildcard and the active side the loopback address, as
/// getaddrinfo(3) has it. With [`AddressFamily::Ib`] in the hints the host is a GID.
pub fn getaddrinfo(
    host: Option<&str>,
    service: Option<&str>,
    hints: Option<&AddrInfo>,
) -> Result<AddrInfo, AddrInfoError> {
    let hints = hints.copied().unwrap_or(AddrInfo::hints(false));
    if host.is_none() && service.is_none() && hints.src_addr.is_none() {
        return Err(AddrInfoError::Nothing);
    }
    let port = match service {
        Some(service) => service.parse().map_err(|_| AddrInfoError::Service)?,
        None => 0,
    };
    let family = hints.family.or(hints.src_addr.map(family_of));
    let ip = match host {
        Some(host) => host.parse::<IpAddr>().map_err(|_| AddrInfoError::Host)?,
        None => unspecified_or_loopback(family.unwrap_or(AddressFamily::Inet), hints.passive),
    };
    let fits = match hints.family {
        None => true,
        Some(AddressFamily::Inet) => ip.is_ipv4(),
        Some(AddressFamily::Inet6 | AddressFamily::Ib) => ip.is_ipv6(),
    };
    if !fits {
        return Err(AddrInfoError::Family);
    }
    let address = match (family, ip) {
        (Some(AddressFamily::Ib), IpAddr::V6(gid)) => {
            SockaddrIb::new(Gid::from_ipv6(gid), hints.port_space, port).into()
        }
        _ => SocketAddr::new(ip, port).into(),
    };
    Ok(if hints.passive {
        let source = if host.is_none() && service.is_none() {
            hints.src_addr
        } else {
            Some(address)
        };
        AddrInfo {
            src_addr: source,
            dst_addr: None,
            ..hints
        }
    } else {
        AddrInfo {
            dst_addr: Some(address),
            ..hints
        }
    })
}

const fn family_of(address: SockAddr) -> AddressFamily {
    match address {
        SockAddr::Ip(SocketAddr::V4(_)) => AddressFamily::Inet,
        SockAddr::Ip(SocketAddr::V6(_)) => AddressFamily::Inet6,
        SockAddr::Ib(_) => AddressFamily::Ib,
    }
}

/// Any address for a listener, the loopback address to connect to.
const fn unspecified_or_loopback(family: AddressFamily, passive: bool) -> IpAddr {
    match (family, passive) {
        (AddressFamily::Inet, true) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        (AddressFamily::Inet, false) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        (_, true) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        (_, false) => IpAddr::V6(Ipv6Addr::LOCALHOST),
    }
}
