//! The resolver of a port: neighbour discovery on Ethernet, subnet administration on InfiniBand.

use std::net::IpAddr;
use std::time::Duration;

use bareverbs_node::cm::mad::MAD_LEN;
use bareverbs_node::cm::mad::sa::{McMemberRecord, PathRecord};
use bareverbs_node::cm::rdma::{
    AddressChange, Attempt, Membership, PathQuery, RdmaError, Resolution, Resolver,
};

/// Either resolver, so that the manager of each port has the same type.
pub(crate) struct PortResolver(Box<dyn Resolver + Send>);

impl PortResolver {
    /// The resolver of a port.
    pub(crate) fn new(resolver: impl Resolver + Send + 'static) -> Self {
        Self(Box::new(resolver))
    }
}

impl Resolver for PortResolver {
    fn resolve(&mut self, now: Duration, source: IpAddr, destination: IpAddr) -> Resolution {
        self.0.resolve(now, source, destination)
    }

    fn resolve_unknown_host(
        &mut self,
        now: Duration,
        source: IpAddr,
        destination: IpAddr,
    ) -> Resolution {
        self.0.resolve_unknown_host(now, source, destination)
    }

    fn has_route(&self, source: IpAddr, destination: IpAddr) -> bool {
        self.0.has_route(source, destination)
    }

    fn source_for(&mut self, destination: IpAddr) -> Option<IpAddr> {
        self.0.source_for(destination)
    }

    fn has_ip(&self) -> bool {
        self.0.has_ip()
    }

    fn is_settled(&self) -> bool {
        self.0.is_settled()
    }

    fn has_address(&self, address: IpAddr) -> bool {
        self.0.has_address(address)
    }

    fn gid_of(&self, mac: [u8; 6]) -> Option<[u8; 16]> {
        self.0.gid_of(mac)
    }

    fn join_group(
        &mut self,
        now: Duration,
        group: IpAddr,
        vlan: Option<u16>,
    ) -> Result<(), RdmaError> {
        self.0.join_group(now, group, vlan)
    }

    fn leave_group(
        &mut self,
        now: Duration,
        group: IpAddr,
        vlan: Option<u16>,
    ) -> Result<(), RdmaError> {
        self.0.leave_group(now, group, vlan)
    }

    fn find_path(
        &mut self,
        now: Duration,
        query: &PathQuery,
        attempt: Attempt,
    ) -> Result<Option<PathRecord>, RdmaError> {
        self.0.find_path(now, query, attempt)
    }

    fn join(
        &mut self,
        now: Duration,
        membership: &Membership,
        until: Duration,
    ) -> Result<(), RdmaError> {
        self.0.join(now, membership, until)
    }

    fn membership(
        &mut self,
        now: Duration,
        membership: &Membership,
    ) -> Result<Option<McMemberRecord>, RdmaError> {
        self.0.membership(now, membership)
    }

    fn leave(&mut self, now: Duration, membership: &Membership) {
        self.0.leave(now, membership);
    }

    fn poll_transmit(&mut self, now: Duration, mad: &mut [u8; MAD_LEN]) -> bool {
        self.0.poll_transmit(now, mad)
    }

    fn handle_mad(&mut self, now: Duration, mad: &[u8; MAD_LEN]) {
        self.0.handle_mad(now, mad);
    }

    fn subnet_changed(&mut self, now: Duration) {
        self.0.subnet_changed(now);
    }

    fn poll(&mut self, now: Duration) -> Result<(), RdmaError> {
        self.0.poll(now)
    }

    fn next_deadline(&self) -> Option<Duration> {
        self.0.next_deadline()
    }

    fn next_change(&mut self) -> Option<AddressChange> {
        self.0.next_change()
    }
}
