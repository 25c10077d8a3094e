//! The addresses of both ends that a request carries for the RDMA CM, written and read.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use bareverbs_core::Platform;

use crate::engine::Address;
use crate::ip::is_unicast;
use crate::mad::{CmaHeader, MadError};
use crate::rdma::route::resolver::Resolver;
use crate::rdma::route::router::Router;
use crate::rdma::types::ACCEPT_PRIVATE_DATA_MAX;
use crate::rdma::types::error::RdmaError;

impl<P: Platform, R: Resolver> Router<'_, '_, P, R> {
    /// Writes the RDMA CM's header for a request from one address to another; how long it is. InfiniBand's addresses need none.
    pub(crate) fn begin_request<const N: usize>(
        &self,
        local: SocketAddr,
        peer: SocketAddr,
        data: &mut [u8; N],
    ) -> Result<usize, RdmaError> {
        if self.is_infiniband() {
            return Ok(0);
        }
        let header = CmaHeader {
            source_port: local.port(),
            source: local.ip(),
            // A loopback address means nothing on the wire.
            destination: self.own_for_loopback(peer.ip())?,
        };
        let mut bytes = [0; CmaHeader::LEN];
        header.emit(&mut bytes)?;
        data[..CmaHeader::LEN].copy_from_slice(&bytes);
        Ok(CmaHeader::LEN)
    }

    /// The addresses of both ends, and the application's part of the private data. InfiniBand's addresses are those of
    /// the path.
    pub(crate) fn open_request<'b>(
        &self,
        address: &Address,
        data: &'b [u8],
    ) -> Result<(CmaHeader, &'b [u8]), MadError> {
        if self.is_infiniband() {
            let most = data.len().min(ACCEPT_PRIVATE_DATA_MAX);
            return Ok((ends_of(address), &data[..most]));
        }
        CmaHeader::parse(data)
    }

    /// Whether the addresses that a request names can be those of its two ends, as Linux's `validate_ipv4_net_dev` and
    /// `validate_ipv6_net_dev` ask: the source is one host's, and there is a route to it from the destination, which is
    /// the device's: a wildcard listener means the device's addresses, not any.
    pub(crate) fn check_ends(&self, header: &CmaHeader) -> bool {
        self.is_own(header.destination)
            && (self.is_infiniband()
                || header.source == header.destination
                || is_unicast(header.source)
                    && self.resolver.has_route(header.destination, header.source))
    }
}

/// The two ends of a request that has no header of the RDMA CM: those of its path.
fn ends_of(address: &Address) -> CmaHeader {
    let ip = |gid| IpAddr::V6(Ipv6Addr::from_octets(gid));
    CmaHeader {
        source_port: 0,
        source: ip(address.remote_gid),
        destination: ip(address.local_gid),
    }
}
