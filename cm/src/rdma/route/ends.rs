//! The addresses of both ends that a request carries for the RDMA CM, written and read.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use bareverbs_core::Platform;

use crate::engine::Address;
use crate::ip::is_unicast;
use crate::mad::{CmaHeader, MadError};
use crate::rdma::resolver::{Neighbours, Resolver};
use crate::rdma::route::router::Router;
use crate::rdma::types::ACCEPT_PRIVATE_DATA_MAX;
use crate::rdma::types::error::RdmaError;

impl<P: Platform, R: Resolver> Router<'_, '_, P, R> {
    /// Writes the RDMA CM's header for a request from one address to another; how long it is. InfiniBand's addresses need none.
    pub(crate) fn begin_request<const N: usize>(
        &self,
        local: SocketAddr,
        peer: SocketAddr,
        over_ip: bool,
        data: &mut [u8; N],
    ) -> Result<usize, RdmaError> {
        let infiniband = self.is_infiniband();
        if infiniband && !over_ip {
            return Ok(0);
        }
        let header = CmaHeader {
            source_port: local.port(),
            source: local.ip(),
            destination: if infiniband {
                peer.ip()
            } else {
                // A loopback address means nothing on the wire.
                self.own_for_loopback(peer.ip())?
            },
        };
        let mut bytes = [0; CmaHeader::LEN];
        header.emit(&mut bytes)?;
        data[..CmaHeader::LEN].copy_from_slice(&bytes);
        Ok(CmaHeader::LEN)
    }

    /// The addresses of both ends, and the application's part of the private data. InfiniBand's addresses are those of
    /// the path, unless there is a header that names an IP address of the port.
    pub(crate) fn open_request<'b>(
        &self,
        address: &Address,
        data: &'b [u8],
    ) -> Result<Opened<'b>, MadError> {
        if self.is_infiniband() {
            if self.resolver.neighbours().has_ip()
                && let Ok((header, data)) = CmaHeader::parse(data)
                && self.resolver.neighbours().has_address(header.destination)
            {
                return Ok(Opened {
                    header,
                    over_ip: true,
                    data,
                });
            }
            let most = data.len().min(ACCEPT_PRIVATE_DATA_MAX);
            return Ok(Opened {
                header: ends_of(address),
                over_ip: false,
                data: &data[..most],
            });
        }
        let (header, data) = CmaHeader::parse(data)?;
        Ok(Opened {
            header,
            over_ip: false,
            data,
        })
    }

    /// Returns `true` if the addresses that a request names can be those of its two ends, as Linux's `validate_ipv4_net_dev`
    /// and `validate_ipv6_net_dev` ask: the source is one host's, and there is a route to it from the destination, which is
    /// the device's: a wildcard listener means the device's addresses, not any.
    pub(crate) fn check_ends(&self, header: &CmaHeader, over_ip: bool) -> bool {
        self.is_own_end(header.destination, over_ip)
            && (self.is_infiniband() && !over_ip
                || header.source == header.destination
                || is_unicast(header.source)
                    && self
                        .resolver
                        .neighbours()
                        .has_route(header.destination, header.source))
    }
}

/// A request's ends, and the application's part of its private data.
pub(crate) struct Opened<'b> {
    pub(crate) header: CmaHeader,
    /// On InfiniBand: the ends are IP addresses.
    pub(crate) over_ip: bool,
    pub(crate) data: &'b [u8],
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
