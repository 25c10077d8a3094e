//! Routing: over the link of one of the host's addresses, or over a gateway on it.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::address::AddressSlot;
use super::{Host, HostError, is_unicast, same_prefix};

/// Routes a prefix over a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// An address in the prefix.
    pub destination: IpAddr,
    /// So many bits of it count; 0 is the default route.
    pub prefix: u8,
    /// The gateway, on the link of one of the host's addresses.
    pub gateway: IpAddr,
}

impl Route {
    /// The default gateway.
    pub const fn default_over(gateway: IpAddr) -> Self {
        let destination = match gateway {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        Self {
            destination,
            prefix: 0,
            gateway,
        }
    }
}

/// The next hop to a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NextHop {
    /// Its address: the destination's or the gateway's.
    pub(super) hop: IpAddr,
    pub(super) vlan: Option<u16>,
    /// Our address on that link.
    pub(super) source: IpAddr,
}

impl Host<'_> {
    /// Adds a route.
    ///
    /// # Errors
    /// If a prefix cannot be that long, if the gateway is on no link of this host, or if the storage is full.
    pub fn add_route(&mut self, route: Route) -> Result<(), HostError> {
        let longest = if route.destination.is_ipv4() { 32 } else { 128 };
        if route.prefix > longest || route.destination.is_ipv4() != route.gateway.is_ipv4() {
            return Err(HostError::NotAnAddress(route.destination, route.prefix));
        }
        if !is_unicast(route.gateway) || self.on_link(None, route.gateway).is_none() {
            return Err(HostError::GatewayOutOfReach(route.gateway));
        }
        if self.routes.contains(&Some(route)) {
            return Err(HostError::Exists(route.destination));
        }
        let max = self.routes.len();
        let Some(slot) = self.routes.iter_mut().find(|slot| slot.is_none()) else {
            return Err(HostError::Full {
                what: "routes",
                max,
            });
        };
        *slot = Some(route);
        Ok(())
    }

    /// Removes a route.
    ///
    /// # Errors
    /// If it is not there.
    pub fn remove_route(&mut self, route: Route) -> Result<(), HostError> {
        let slot = self.routes.iter_mut().find(|slot| **slot == Some(route));
        *slot.ok_or(HostError::Unknown(route.destination))? = None;
        Ok(())
    }

    /// The routes over gateways.
    pub fn routes(&self) -> impl Iterator<Item = &Route> {
        self.routes.iter().flatten()
    }

    pub(super) fn drop_unreachable_routes(&mut self) {
        for index in 0..self.routes.len() {
            if let Some(route) = self.routes[index]
                && self.on_link(None, route.gateway).is_none()
            {
                self.routes[index] = None;
            }
        }
    }

    /// The local address to reach `destination` from.
    pub fn source_for(&self, destination: IpAddr) -> Option<IpAddr> {
        if let Some(slot) = self
            .addresses
            .iter()
            .find(|slot| slot.is_ready() && slot.ip == destination)
        {
            return Some(slot.ip);
        }
        Some(self.next_hop(None, destination)?.source)
    }

    /// The next hop to a destination, from a given own address or from any.
    pub(super) fn next_hop(&self, source: Option<IpAddr>, destination: IpAddr) -> Option<NextHop> {
        let direct = self.on_link(source, destination);
        let routes = self.routes.iter().flatten();
        let over = routes
            .filter(|route| same_prefix(route.destination, destination, route.prefix))
            .filter_map(|route| Some((route, self.on_link(source, route.gateway)?)))
            .max_by_key(|(route, _)| route.prefix);
        match (direct, over) {
            // A route to a part of the link's prefix is meant.
            (Some(slot), Some((route, _))) if slot.prefix >= route.prefix => {
                Some(next_hop_of(slot, destination))
            }
            (Some(slot), None) => Some(next_hop_of(slot, destination)),
            (_, Some((route, slot))) => Some(next_hop_of(slot, route.gateway)),
            (None, None) => None,
        }
    }

    /// Returns `true` if an IPv4 address means all hosts of a link that we are on (RFC 1122 section 3.2.1.3): its host part
    /// is all ones, or all zeros as it was once.
    pub(crate) fn is_broadcast_of_link(&self, address: IpAddr) -> bool {
        let IpAddr::V4(ip) = address else {
            return false;
        };
        let host_part = |slot: &AddressSlot| u32::MAX.checked_shr(slot.prefix.into()).unwrap_or(0);
        self.addresses.iter().any(|slot| {
            let mask = host_part(slot);
            // Links of two hosts have no such address (RFC 3021).
            slot.is_ready()
                && slot.prefix < 31
                && same_prefix(slot.ip, address, slot.prefix)
                && (ip.to_bits() & mask == mask || ip.to_bits() & mask == 0)
        })
    }

    /// Our address with the longest prefix that `destination` shares.
    fn on_link(&self, source: Option<IpAddr>, destination: IpAddr) -> Option<&AddressSlot> {
        self.addresses
            .iter()
            .filter(|slot| slot.is_ready() && source.is_none_or(|source| source == slot.ip))
            .filter(|slot| {
                same_prefix(slot.ip, destination, slot.prefix)
                    || is_link_local(destination) && slot.ip.is_ipv6()
            })
            // The first of several.
            .rev()
            .max_by_key(|slot| (same_prefix(slot.ip, destination, slot.prefix), slot.prefix))
    }
}

/// Every IPv6 host can be reached at its link-local address from any address.
const fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => false,
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

const fn next_hop_of(slot: &AddressSlot, hop: IpAddr) -> NextHop {
    NextHop {
        hop,
        vlan: slot.vlan,
        source: slot.ip,
    }
}
