//! A resolver with something more to have with subnet administration.

use core::time::Duration;

use crate::mad::MAD_LEN;
use crate::mad::sa::{McMemberRecord, PathRecord, SaRedirection};
use crate::rdma::resolver::{Attempt, Membership, PathQuery, Resolver, Subnet};
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

impl<R: Resolver, U: SaUser> Resolver for WithSaUser<R, U> {
    type Neighbours = R::Neighbours;
    type Subnet = Self;

    fn neighbours(&self) -> &R::Neighbours {
        self.resolver.neighbours()
    }

    fn neighbours_mut(&mut self) -> &mut R::Neighbours {
        self.resolver.neighbours_mut()
    }

    fn subnet(&self) -> &Self {
        self
    }

    fn subnet_mut(&mut self) -> &mut Self {
        self
    }
}

// A method that is left out would be the trait's own.
#[deny(clippy::missing_trait_methods)]
impl<R: Resolver, U: SaUser> Subnet for WithSaUser<R, U> {
    fn find_path(
        &mut self,
        now: Duration,
        query: &PathQuery,
        attempt: Attempt,
    ) -> Result<Option<PathRecord>, RdmaError> {
        self.resolver.subnet_mut().find_path(now, query, attempt)
    }

    fn join(
        &mut self,
        now: Duration,
        membership: &Membership,
        until: Duration,
    ) -> Result<(), RdmaError> {
        self.resolver.subnet_mut().join(now, membership, until)
    }

    fn membership(
        &mut self,
        now: Duration,
        membership: &Membership,
    ) -> Result<Option<McMemberRecord>, RdmaError> {
        self.resolver.subnet_mut().membership(now, membership)
    }

    fn leave(&mut self, now: Duration, membership: &Membership) {
        self.resolver.subnet_mut().leave(now, membership);
    }

    fn gid_gone(&mut self, gid: [u8; 16]) {
        self.resolver.subnet_mut().gid_gone(gid);
    }

    fn poll_transmit(&mut self, now: Duration, mad: &mut [u8; MAD_LEN]) -> bool {
        self.user.poll_transmit(now, mad) || self.resolver.subnet_mut().poll_transmit(now, mad)
    }

    fn redirection(&mut self) -> Option<SaRedirection> {
        let of = [
            self.user.redirection(),
            self.resolver.subnet_mut().redirection(),
        ];
        of.into_iter().flatten().next()
    }

    fn asks(&self, lid: u16) -> bool {
        self.user.asks(lid) || self.resolver.subnet().asks(lid)
    }

    fn handle_mad(&mut self, now: Duration, mad: &[u8; MAD_LEN]) {
        let subnet = self.resolver.subnet_mut();
        match self.user.handle_mad(now, mad) {
            Taken::Mine => {}
            Taken::NotMine => subnet.handle_mad(now, mad),
            Taken::GidGone(gid) => subnet.gid_gone(gid),
        }
    }

    fn subnet_changed(&mut self, now: Duration) {
        self.user.subnet_changed(now);
        self.resolver.subnet_mut().subnet_changed(now);
    }

    fn handle_timeout(&mut self, now: Duration) {
        self.user.handle_timeout(now);
        self.resolver.subnet_mut().handle_timeout(now);
    }

    fn next_timeout(&self) -> Option<Duration> {
        let deadlines = [
            self.user.next_deadline(),
            self.resolver.subnet().next_timeout(),
        ];
        deadlines.into_iter().flatten().min()
    }
}
