//! From IP addresses to paths: the seam behind which ARP, neighbour discovery or a table stand.

use core::net::IpAddr;
use core::time::Duration;

/// How a datagram to an address leaves the port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neighbour {
    /// MAC address of the next hop.
    pub mac: [u8; 6],
    /// VLAN of the way there. The GID table needs an entry with it.
    pub vlan: Option<u16>,
    /// Hop limit to send with.
    pub hop_limit: u8,
}

impl Neighbour {
    /// A neighbour on the untagged link.
    pub const fn new(mac: [u8; 6]) -> Self {
        Self {
            mac,
            vlan: None,
            hop_limit: 64,
        }
    }
}

/// The answer to a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// Known.
    Found(Neighbour),
    /// Asked for; ask again later.
    Pending,
    /// There is no way to that address (ENETUNREACH).
    NoRoute,
    /// There would be a way, but nobody answers there (EHOSTUNREACH).
    NoAnswer,
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
}

impl<R: Resolver + ?Sized> Resolver for &mut R {
    fn resolve(&mut self, now: Duration, source: IpAddr, destination: IpAddr) -> Resolution {
        (**self).resolve(now, source, destination)
    }

    fn source_for(&mut self, destination: IpAddr) -> Option<IpAddr> {
        (**self).source_for(destination)
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
