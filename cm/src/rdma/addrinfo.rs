//! Names to addresses (`rdma_getaddrinfo`). Hosts are numeric: there is no name service below an operating system.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::types::PortSpace;

/// What `getaddrinfo` finds and `create_ep` takes (`struct rdma_addrinfo`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddrInfo {
    /// `RAI_PASSIVE`: for a listener.
    pub passive: bool,
    /// Port space.
    pub port_space: PortSpace,
    /// Local address, if it matters.
    pub src_addr: Option<SocketAddr>,
    /// The other end's address; active side only.
    pub dst_addr: Option<SocketAddr>,
}

impl AddrInfo {
    /// Hints for the active side, or for a listener.
    pub const fn hints(passive: bool) -> Self {
        Self {
            passive,
            port_space: PortSpace::Tcp,
            src_addr: None,
            dst_addr: None,
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
    /// Not a port number.
    Service,
}

impl AddrInfoError {
    /// The `EAI_*` code or errno that librdmacm would give.
    pub const fn code(self) -> i32 {
        match self {
            Self::Nothing => 22,
            // EAI_NONAME and EAI_SERVICE.
            Self::Host => -2,
            Self::Service => -8,
        }
    }
}

impl fmt::Display for AddrInfoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "neither a host, nor a service, nor a source address was given",
            Self::Host => "the host is not a numeric IPv4 or IPv6 address",
            Self::Service => "the service is not a port number",
        })
    }
}

impl core::error::Error for AddrInfoError {}

/// Finds the address of `host` (numeric) and `service` (a port number), as a destination or, with `passive` in the hints,
/// as the address to listen to. Without a host a listener gets the wildcard and the active side the loopback address, as
/// getaddrinfo(3) has it.
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
    let ip = match host {
        Some(host) => host.parse::<IpAddr>().map_err(|_| AddrInfoError::Host)?,
        None => match (hints.passive, hints.src_addr) {
            (true, Some(SocketAddr::V6(_))) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            (true, _) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            (false, Some(SocketAddr::V6(_))) => IpAddr::V6(Ipv6Addr::LOCALHOST),
            (false, _) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        },
    };
    let address = SocketAddr::new(ip, port);
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
