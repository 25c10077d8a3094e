//! From IP addresses to paths: the seam behind which ARP, neighbour discovery or a table stand.

use core::net::IpAddr;
use core::time::Duration;

use super::error::RdmaError;
pub use crate::ip::{Neighbour, Resolution};

/// A neighbour is no longer where it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressChange {
    /// The neighbour.
    pub address: IpAddr,
    /// The VLAN that it is in.
    pub vlan: Option<u16>,
    /// Where it is now, if it answers at all.
    pub mac: Option<[u8; 6]>,
}

/// Finds neighbours.
pub trait Resolver {
    /// The way to `destination` from `source`.
    fn resolve(&mut self, now: Duration, source: IpAddr, destination: IpAddr) -> Resolution;

    /// The local address to reach `destination` from; `None` leaves the choice to the GID table.
    fn source_for(&mut self, destination: IpAddr) -> Option<IpAddr> {
        let _ = destination;
        None
    }

    /// Lets a multicast group in, and tells switches and routers of it. Once for each join. A resolver that cannot leaves it
    /// to them: those that do not snoop send everything everywhere.
    ///
    /// # Errors
    /// If there is no room for the group, or if the device fails.
    fn join_group(
        &mut self,
        now: Duration,
        group: IpAddr,
        vlan: Option<u16>,
    ) -> Result<(), RdmaError> {
        let _ = (now, group, vlan);
        Ok(())
    }

    /// Takes a join back.
    ///
    /// # Errors
    /// If the device fails.
    fn leave_group(
        &mut self,
        now: Duration,
        group: IpAddr,
        vlan: Option<u16>,
    ) -> Result<(), RdmaError> {
        let _ = (now, group, vlan);
        Ok(())
    }

    /// Does what is due and takes what has arrived. [`RdmaCm::poll`](super::RdmaCm::poll) calls it.
    ///
    /// # Errors
    /// If the device fails.
    fn poll(&mut self, now: Duration) -> Result<(), RdmaError> {
        let _ = now;
        Ok(())
    }

    /// When [`poll`](Self::poll) has to be called at the latest, if nothing arrives before.
    fn next_deadline(&self) -> Option<Duration> {
        None
    }

    /// A neighbour that is not where it was, since the last call. Ids that are connected to it learn of it.
    fn next_change(&mut self) -> Option<AddressChange> {
        None
    }
}

impl<R: Resolver + ?Sized> Resolver for &mut R {
    fn resolve(&mut self, now: Duration, source: IpAddr, destination: IpAddr) -> Resolution {
        (**self).resolve(now, source, destination)
    }

    fn source_for(&mut self, destination: IpAddr) -> Option<IpAddr> {
        (**self).source_for(destination)
    }

    fn join_group(
        &mut self,
        now: Duration,
        group: IpAddr,
        vlan: Option<u16>,
    ) -> Result<(), RdmaError> {
        (**self).join_group(now, group, vlan)
    }

    fn leave_group(
        &mut self,
        now: Duration,
        group: IpAddr,
        vlan: Option<u16>,
    ) -> Result<(), RdmaError> {
        (**self).leave_group(now, group, vlan)
    }

    fn poll(&mut self, now: Duration) -> Result<(), RdmaError> {
        (**self).poll(now)
    }

    fn next_deadline(&self) -> Option<Duration> {
        (**self).next_deadline()
    }

    fn next_change(&mut self) -> Option<AddressChange> {
        (**self).next_change()
    }
}

/// A fixed table of addresses and MACs; whoever is not in it cannot be reached.
#[derive(Debug, Clone, Copy)]
pub struct StaticNeighbours<'t>(pub &'t [(IpAddr, [u8; 6])]);

impl Resolver for StaticNeighbours<'_> {
    fn resolve(&mut self, _now: Duration, _source: IpAddr, destination: IpAddr) -> Resolution {
        match self.0.iter().find(|(address, _)| *address == destination) {
            Some((_, mac)) => Resolution::Found(Neighbour::new(*mac)),
            None => Resolution::NoRoute,
        }
    }
}
