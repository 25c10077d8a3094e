//! The resolver of a port, whatever its link layer.

use std::net::IpAddr;
use std::time::Duration;

use bareverbs_cm::ip::Host;
use bareverbs_cm::mad::MAD_LEN;
use bareverbs_cm::mad::sa::{McMemberRecord, PathRecord, SaRedirection};
use bareverbs_cm::rdma::{
    AddressChange, Attempt, IpOverInfiniband, Membership, NeighbourDiscovery, PathQuery, RdmaError,
    Resolution, Resolver, SubnetAdministration,
};
use bareverbs_core::{Platform, RoceVersion};

/// A resolver that is chosen by the port's link layer, so that the manager of each port has the same type.
#[derive(Debug)]
pub enum PortResolver<'s, 'd, P: Platform> {
    /// Ethernet: ARP and neighbour discovery.
    Ethernet(Box<NeighbourDiscovery<'s, 'd, P>>),
    /// InfiniBand with IP addresses.
    IpOverInfiniband(Box<IpOverInfiniband<'s, 'd, P>>),
    /// InfiniBand with GIDs only.
    Gids(Box<SubnetAdministration<'s>>),
}

impl<'s, 'd, P: Platform> PortResolver<'s, 'd, P> {
    /// The IP host, where there is one.
    pub const fn host(&mut self) -> Option<&mut Host<'s>> {
        match self {
            Self::Ethernet(neighbours) => Some(neighbours.host()),
            Self::IpOverInfiniband(interface) => Some(interface.host()),
            Self::Gids(_) => None,
        }
    }

    /// The resolver of an Ethernet port, if it is one.
    pub const fn ethernet(&mut self) -> Option<&mut NeighbourDiscovery<'s, 'd, P>> {
        match self {
            Self::Ethernet(neighbours) => Some(neighbours),
            Self::IpOverInfiniband(_) | Self::Gids(_) => None,
        }
    }
}

impl<'s, 'd, P: Platform> From<NeighbourDiscovery<'s, 'd, P>> for PortResolver<'s, 'd, P> {
    fn from(resolver: NeighbourDiscovery<'s, 'd, P>) -> Self {
        Self::Ethernet(Box::new(resolver))
    }
}

impl<'s, 'd, P: Platform> From<IpOverInfiniband<'s, 'd, P>> for PortResolver<'s, 'd, P> {
    fn from(resolver: IpOverInfiniband<'s, 'd, P>) -> Self {
        Self::IpOverInfiniband(Box::new(resolver))
    }
}

impl<'s, P: Platform> From<SubnetAdministration<'s>> for PortResolver<'s, '_, P> {
    fn from(resolver: SubnetAdministration<'s>) -> Self {
        Self::Gids(Box::new(resolver))
    }
}

/// Calls the same function of the variant's resolver.
macro_rules! pass_on {
    ($self:ident, $resolver:ident => $call:expr) => {
        match $self {
            Self::Ethernet($resolver) => $call,
            Self::IpOverInfiniband($resolver) => $call,
            Self::Gids($resolver) => $call,
        }
    };
}

// A method that is left out would be the trait's own.
#[deny(clippy::missing_trait_methods)]
impl<P: Platform> Resolver for PortResolver<'_, '_, P> {
    fn resolve(&mut self, now: Duration, source: IpAddr, destination: IpAddr) -> Resolution {
        pass_on!(self, resolver => resolver.resolve(now, source, destination))
    }

    fn resolve_unknown_host(
        &mut self,
        now: Duration,
        source: IpAddr,
        destination: IpAddr,
    ) -> Resolution {
        pass_on!(self, resolver => resolver.resolve_unknown_host(now, source, destination))
    }

    fn has_route(&self, source: IpAddr, destination: IpAddr) -> bool {
        pass_on!(self, resolver => resolver.has_route(source, destination))
    }

    fn source_for(&mut self, destination: IpAddr) -> Option<IpAddr> {
        pass_on!(self, resolver => resolver.source_for(destination))
    }

    fn roce_version(&self) -> RoceVersion {
        pass_on!(self, resolver => resolver.roce_version())
    }

    fn other_vlan(&self) -> Option<u16> {
        pass_on!(self, resolver => resolver.other_vlan())
    }

    fn has_ip(&self) -> bool {
        pass_on!(self, resolver => resolver.has_ip())
    }

    fn partition(&self) -> u16 {
        pass_on!(self, resolver => resolver.partition())
    }

    fn is_settled(&self) -> bool {
        pass_on!(self, resolver => resolver.is_settled())
    }

    fn has_address(&self, address: IpAddr) -> bool {
        pass_on!(self, resolver => resolver.has_address(address))
    }

    fn gid_of(&self, mac: [u8; 6]) -> Option<[u8; 16]> {
        pass_on!(self, resolver => resolver.gid_of(mac))
    }

    fn join_group(
        &mut self,
        now: Duration,
        group: IpAddr,
        vlan: Option<u16>,
    ) -> Result<(), RdmaError> {
        pass_on!(self, resolver => resolver.join_group(now, group, vlan))
    }

    fn leave_group(
        &mut self,
        now: Duration,
        group: IpAddr,
        vlan: Option<u16>,
    ) -> Result<(), RdmaError> {
        pass_on!(self, resolver => resolver.leave_group(now, group, vlan))
    }

    fn find_path(
        &mut self,
        now: Duration,
        query: &PathQuery,
        attempt: Attempt,
    ) -> Result<Option<PathRecord>, RdmaError> {
        pass_on!(self, resolver => resolver.find_path(now, query, attempt))
    }

    fn join(
        &mut self,
        now: Duration,
        membership: &Membership,
        until: Duration,
    ) -> Result<(), RdmaError> {
        pass_on!(self, resolver => resolver.join(now, membership, until))
    }

    fn membership(
        &mut self,
        now: Duration,
        membership: &Membership,
    ) -> Result<Option<McMemberRecord>, RdmaError> {
        pass_on!(self, resolver => resolver.membership(now, membership))
    }

    fn leave(&mut self, now: Duration, membership: &Membership) {
        pass_on!(self, resolver => resolver.leave(now, membership));
    }

    fn gid_gone(&mut self, gid: [u8; 16]) {
        pass_on!(self, resolver => resolver.gid_gone(gid));
    }

    fn poll_transmit(&mut self, now: Duration, mad: &mut [u8; MAD_LEN]) -> bool {
        pass_on!(self, resolver => resolver.poll_transmit(now, mad))
    }

    fn redirection(&mut self) -> Option<SaRedirection> {
        pass_on!(self, resolver => resolver.redirection())
    }

    fn asks(&self, lid: u16) -> bool {
        pass_on!(self, resolver => resolver.asks(lid))
    }

    fn handle_mad(&mut self, now: Duration, mad: &[u8; MAD_LEN]) {
        pass_on!(self, resolver => resolver.handle_mad(now, mad));
    }

    fn subnet_changed(&mut self, now: Duration) {
        pass_on!(self, resolver => resolver.subnet_changed(now));
    }

    fn poll(&mut self, now: Duration) -> Result<(), RdmaError> {
        pass_on!(self, resolver => resolver.poll(now))
    }

    fn next_deadline(&self) -> Option<Duration> {
        pass_on!(self, resolver => resolver.next_deadline())
    }

    fn next_change(&mut self) -> Option<AddressChange> {
        pass_on!(self, resolver => resolver.next_change())
    }
}
