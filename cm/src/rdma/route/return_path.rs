//! The return path to the sender of a MAD or of a datagram.

use core::net::IpAddr;
use core::time::Duration;

use bareverbs_core::ah::AhAttr;
use bareverbs_core::wc::{NetworkHeader, Wc, WcFlags};
use bareverbs_core::{Gid, Platform};

use crate::engine::Address;
use crate::mad::{Attribute, MAD_LEN, Req};
use crate::rdma::port::gsi::{self, GRH, Received, addresses};
use crate::rdma::resolver::{Neighbour, Neighbours, Resolver};
use crate::rdma::route::router::Router;
use crate::rdma::types::error::RdmaError;

/// The return path to the sender of a MAD, as far as it is known.
#[derive(Debug)]
pub(crate) enum ReturnPath {
    /// Answers go there.
    Found(Address),
    /// Answers go there, but the MAD is a REQ with a GID that cannot be reached: it is to be refused.
    Refuse(Address),
    /// The resolver has to ask first.
    Pending,
    /// There is no route: the MAD is dropped.
    None,
}

impl<P: Platform, R: Resolver> Router<'_, '_, P, R> {
    /// The return path to the sender of a MAD for the CM: a peer may have this host's address while this host does not
    /// have the peer's.
    pub(crate) fn return_path(&mut self, now: Duration, received: &Received) -> ReturnPath {
        if self.is_infiniband() {
            return ReturnPath::Found(self.return_path_by_lid(received));
        }
        let (source, destination) = (received.source, received.destination);
        let neighbour = match self.neighbour_of_unknown_host(now, destination, source) {
            Ok(Some(neighbour)) => neighbour,
            Ok(None) => return ReturnPath::Pending,
            Err(error) => {
                log::debug!("no answer to {source}: {error}");
                return ReturnPath::None;
            }
        };
        let Some(address) = self.address_of(neighbour, received) else {
            return ReturnPath::None;
        };
        if self.names_unreachable_gid(destination, &received.mad) {
            ReturnPath::Refuse(address)
        } else {
            ReturnPath::Found(address)
        }
    }

    /// Returns `true` if a MAD is a REQ whose GID, to which everything else would be sent, has no route to it, such as a link's
    /// broadcast address. Linux looks for a route there as well (`roce_resolve_route_from_path`).
    fn names_unreachable_gid(&self, destination: IpAddr, mad: &[u8; MAD_LEN]) -> bool {
        if mad[16..18] != (Attribute::Req as u16).to_be_bytes() {
            return false;
        }
        let gid = Gid(Req::read(mad).primary_local_gid)
            .to_ipv6()
            .to_canonical();
        gid != destination && !self.resolver.neighbours().has_route(destination, gid)
    }

    /// The path back to the sender of a MAD.
    fn address_of(&self, neighbour: Neighbour, received: &Received) -> Option<Address> {
        let (source, destination) = (received.source, received.destination);
        let Neighbour {
            mac,
            vlan,
            hop_limit,
        } = neighbour;
        let index = self.gid_index(destination, vlan)?;
        Some(Address {
            local_gid: gsi::gid(destination).0,
            remote_gid: gsi::gid(source).0,
            remote_mac: mac,
            pkey: if received.pkey == 0 {
                0xffff
            } else {
                received.pkey
            },
            link: u32::from(index),
            traffic_class: received.traffic_class,
            hop_limit,
            ..Address::default()
        })
    }

    /// The return path to the sender of a datagram: `wc` is its completion, `grh` the first 40 bytes of where it was
    /// received.
    pub(crate) fn ah_attr_from_wc(
        &mut self,
        now: Duration,
        wc: &Wc,
        grh: &[u8; GRH],
    ) -> Result<AhAttr, RdmaError> {
        if self.is_infiniband() {
            return self.ah_attr_from_local(wc, grh);
        }
        let header = header_kind(grh).filter(|_| wc.flags.contains(WcFlags::GRH));
        let found = header.and_then(|kind| addresses(kind, grh));
        let Some((source, destination, traffic_class)) = found else {
            return Err(RdmaError::NoNetworkHeader);
        };
        let neighbour = self.neighbour(now, destination, source)?;
        let neighbour = neighbour.ok_or(RdmaError::WouldBlock)?;
        let link = self
            .gid_index(destination, neighbour.vlan)
            .ok_or(RdmaError::NoDevice(destination))?;
        Ok(gsi::ah_attr(&Address {
            local_gid: gsi::gid(destination).0,
            remote_gid: gsi::gid(source).0,
            remote_mac: neighbour.mac,
            pkey: 0xffff,
            link: u32::from(link),
            traffic_class,
            hop_limit: neighbour.hop_limit,
            service_level: wc.sl,
            ..Address::default()
        }))
    }
}

/// Finds the kind of header in the 40 bytes before a datagram. An IPv4 header lies in the last 20, and the bytes before it may
/// look like an IPv6 one, so that its check sum decides.
fn header_kind(grh: &[u8; GRH]) -> Option<NetworkHeader> {
    let ip = grh.last_chunk::<20>()?;
    let sum: u32 = ip
        .chunks_exact(2)
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    if ip[0] == 0x45 && (folded & 0xffff) + (folded >> 16) == 0xffff {
        Some(NetworkHeader::Ipv4)
    } else if grh[0] >> 4 == 6 {
        Some(NetworkHeader::Ipv6)
    } else {
        None
    }
}
