//! A resolver with something more to have with subnet administration.

use core::net::IpAddr;
use core::time::Duration;

use bareverbs_core::RoceVersion;

use crate::mad::MAD_LEN;
use crate::mad::sa::{McMemberRecord, PathRecord, SaRedirection};
use crate::rdma::resolver::{AddressChange, Attempt, Membership, PathQuery, Resolution, Resolver};
use crate::rdma::types::error::RdmaError;
use crate::sa::{SaUser, Taken};

/// A resolver of an InfiniBand port, and a [`SaUser`] whose MADs go the same way. When a report says that a GID is out of
/// service, the resolver does not keep the paths that led there.
///
/// ```
/// use bareverbs_cm::mad::sa::Trap;
/// use bareverbs_cm::rdma::{SubnetAdministration, WithSaUser};
/// use bareverbs_cm::sa::{Config, QuestionSlot, ReportSlot, SubscriptionSlot, Subscriptions};
/// use core::time::Duration;
///
/// /// The resolver of a manager to be; later it is `cm.resolver_mut()`.
/// fn watchful<'s>(
///     resolver: SubnetAdministration<'s>,
///     questions: &'s mut [QuestionSlot<bareverbs_cm::sa::InformQuestion>],
///     slots: &'s mut [SubscriptionSlot],
///     reports: &'s mut [ReportSlot],
/// ) -> WithSaUser<SubnetAdministration<'s>, Subscriptions<'s>> {
///     let mut user = Subscriptions::new(Config::new(43), questions, slots, reports);
///     let _ = user.subscribe(Duration::ZERO, Trap::GidOutOfService);
///     WithSaUser { resolver, user }
/// }
/// ```
#[derive(Debug)]
pub struct WithSaUser<R, U> {
    /// Finds paths and joins groups.
    pub resolver: R,
    /// What else there is.
    pub user: U,
}

// A method that is left out would be the trait's own.
#[deny(clippy::missing_trait_methods)]
impl<R: Resolver, U: SaUser> Resolver for WithSaUser<R, U> {
    fn resolve(&mut self, now: Duration, source: IpAddr, destination: IpAddr) -> Resolution {
        self.resolver.resolve(now, source, destination)
    }

    fn resolve_unknown_host(
        &mut self,
        now: Duration,
        source: IpAddr,
        destination: IpAddr,
    ) -> Resolution {
        self.resolver.resolve_unknown_host(now, source, destination)
    }

    fn has_route(&self, source: IpAddr, destination: IpAddr) -> bool {
        self.resolver.has_route(source, destination)
    }

    fn source_for(&mut self, destination: IpAddr) -> Option<IpAddr> {
        self.resolver.source_for(destination)
    }

    fn roce_version(&self) -> RoceVersion {
        self.resolver.roce_version()
    }

    fn other_vlan(&self) -> Option<u16> {
        self.resolver.other_vlan()
    }

    fn has_ip(&self) -> bool {
        self.resolver.has_ip()
    }

    fn partition(&self) -> u16 {
        self.resolver.partition()
    }

    fn is_settled(&self) -> bool {
        self.resolver.is_settled()
    }

    fn has_address(&self, address: IpAddr) -> bool {
        self.resolver.has_address(address)
    }

    fn gid_of(&self, mac: [u8; 6]) -> Option<[u8; 16]> {
        self.resolver.gid_of(mac)
    }

    fn join_group(
        &mut self,
        now: Duration,
        group: IpAddr,
        vlan: Option<u16>,
    ) -> Result<(), RdmaError> {
        self.resolver.join_group(now, group, vlan)
    }

    fn leave_group(
        &mut self,
        now: Duration,
        group: IpAddr,
        vlan: Option<u16>,
    ) -> Result<(), RdmaError> {
        self.resolver.leave_group(now, group, vlan)
    }

    fn find_path(
        &mut self,
        now: Duration,
        query: &PathQuery,
        attempt: Attempt,
    ) -> Result<Option<PathRecord>, RdmaError> {
        self.resolver.find_path(now, query, attempt)
    }

    fn join(
        &mut self,
        now: Duration,
        membership: &Membership,
        until: Duration,
    ) -> Result<(), RdmaError> {
        self.resolver.join(now, membership, until)
    }

    fn membership(
        &mut self,
        now: Duration,
        membership: &Membership,
    ) -> Result<Option<McMemberRecord>, RdmaError> {
        self.resolver.membership(now, membership)
    }

    fn leave(&mut self, now: Duration, membership: &Membership) {
        self.resolver.leave(now, membership);
    }

    fn gid_gone(&mut self, gid: [u8; 16]) {
        self.resolver.gid_gone(gid);
    }

    fn poll_transmit(&mut self, now: Duration, mad: &mut [u8; MAD_LEN]) -> bool {
        self.user.poll_transmit(now, mad) || self.resolver.poll_transmit(now, mad)
    }

    fn redirection(&mut self) -> Option<SaRedirection> {
        let of = [self.user.redirection(), self.resolver.redirection()];
        of.into_iter().flatten().next()
    }

    fn asks(&self, lid: u16) -> bool {
        self.user.asks(lid) || self.resolver.asks(lid)
    }

    fn handle_mad(&mut self, now: Duration, mad: &[u8; MAD_LEN]) {
        match self.user.handle_mad(now, mad) {
            Taken::Mine => {}
            Taken::NotMine => self.resolver.handle_mad(now, mad),
            Taken::GidGone(gid) => self.resolver.gid_gone(gid),
        }
    }

    fn subnet_changed(&mut self, now: Duration) {
        self.user.subnet_changed(now);
        self.resolver.subnet_changed(now);
    }

    fn poll(&mut self, now: Duration) -> Result<(), RdmaError> {
        self.user.handle_timeout(now);
        self.resolver.poll(now)
    }

    fn next_deadline(&self) -> Option<Duration> {
        let deadlines = [self.user.next_deadline(), self.resolver.next_deadline()];
        deadlines.into_iter().flatten().min()
    }

    fn next_change(&mut self) -> Option<AddressChange> {
        self.resolver.next_change()
    }
}
