//! The use of subnet administration beside paths and groups.

use core::time::Duration;

use crate::mad::MAD_LEN;
use crate::mad::sa::SaRedirection;

/// A user's treatment of a MAD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// It is not for this user.
    NotMine,
    /// It was acted on, or was found to be of no use.
    Mine,
    /// It says that no port can be reached by this GID any more.
    GidGone([u8; 16]),
}

/// Sends MADs to subnet administration and takes those that come from there. Two users in a pair are one user.
pub trait SaUser {
    /// Writes the next MAD that is due. False if there is none.
    fn poll_transmit(&mut self, now: Duration, mad: &mut [u8; MAD_LEN]) -> bool;

    /// Where the MAD that [`poll_transmit`](Self::poll_transmit) has just written goes; `None`: to subnet administration. Can
    /// be had once.
    fn redirection(&mut self) -> Option<SaRedirection> {
        None
    }

    /// Returns `true` if an answer is to come from the port with this LID, to which a question was redirected.
    fn asks(&self, lid: u16) -> bool {
        let _ = lid;
        false
    }

    /// Takes a MAD that came from subnet administration, or from a port that it [asks](Self::asks).
    fn handle_mad(&mut self, now: Duration, mad: &[u8; MAD_LEN]) -> Taken;

    /// Subnet administration has forgotten what it was told.
    fn subnet_changed(&mut self, now: Duration);

    /// Does what is due.
    fn handle_timeout(&mut self, now: Duration);

    /// When [`handle_timeout`](Self::handle_timeout) and [`poll_transmit`](Self::poll_transmit) have to be called at the
    /// latest.
    fn next_deadline(&self) -> Option<Duration>;
}

impl<A: SaUser, B: SaUser> SaUser for (A, B) {
    fn poll_transmit(&mut self, now: Duration, mad: &mut [u8; MAD_LEN]) -> bool {
        self.0.poll_transmit(now, mad) || self.1.poll_transmit(now, mad)
    }

    fn redirection(&mut self) -> Option<SaRedirection> {
        let of = [self.0.redirection(), self.1.redirection()];
        of.into_iter().flatten().next()
    }

    fn asks(&self, lid: u16) -> bool {
        self.0.asks(lid) || self.1.asks(lid)
    }

    fn handle_mad(&mut self, now: Duration, mad: &[u8; MAD_LEN]) -> Taken {
        match self.0.handle_mad(now, mad) {
            Taken::NotMine => self.1.handle_mad(now, mad),
            taken => taken,
        }
    }

    fn subnet_changed(&mut self, now: Duration) {
        self.0.subnet_changed(now);
        self.1.subnet_changed(now);
    }

    fn handle_timeout(&mut self, now: Duration) {
        self.0.handle_timeout(now);
        self.1.handle_timeout(now);
    }

    fn next_deadline(&self) -> Option<Duration> {
        let deadlines = [self.0.next_deadline(), self.1.next_deadline()];
        deadlines.into_iter().flatten().min()
    }
}
