//! From addresses to paths: the traits that ARP, neighbour discovery and a table implement, and subnet administration.

pub(crate) mod neighbours;
pub(crate) mod subnet;
pub(crate) mod with_user;

use core::net::IpAddr;
use core::time::Duration;

use bareverbs_core::RoceVersion;

use crate::mad::MAD_LEN;
use crate::mad::sa::{JoinState, McMemberRecord, PathRecord, SaRedirection};
use crate::rdma::types::error::RdmaError;
use crate::rdma::types::sockaddr::DEFAULT_PKEY;

pub use crate::ip::{Neighbour, Resolution};

/// A neighbour's address has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressChange {
    /// The neighbour.
    pub address: IpAddr,
    /// The VLAN that it is in.
    pub vlan: Option<u16>,
    /// Its address now.
    pub mac: [u8; 6],
}

/// A query for an InfiniBand path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathQuery {
    /// GID of this end.
    pub sgid: [u8; 16],
    /// GID of the other end.
    pub dgid: [u8; 16],
    /// Partition.
    pub pkey: u16,
    /// The service that it leads to.
    pub service_id: u64,
    /// Traffic class.
    pub traffic_class: u8,
}

/// An InfiniBand group, and how the port is to join it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Membership {
    /// The group.
    pub mgid: [u8; 16],
    /// GID of the port.
    pub port_gid: [u8; 16],
    /// Partition.
    pub pkey: u16,
    /// The Q_Key that the group gets if it has to be made; 0 for a group that is there, whatever its Q_Key.
    pub qkey: u32,
    /// The traffic class that it gets then.
    pub traffic_class: u8,
    /// The port's membership.
    pub join_state: JoinState,
}

impl Membership {
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.mgid == other.mgid && self.join_state == other.join_state
    }
}

/// An attempt to resolve a route: which one, and how long it may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    /// Its number, from 1 and ever greater. A failure from before the attempt began does not end it.
    pub seq: u64,
    /// Until when.
    pub until: Duration,
}

const NOT_FOR_INFINIBAND: RdmaError =
    RdmaError::Unsupported("InfiniBand with a resolver that is not for it");

/// Finds neighbours: by ARP and neighbour discovery, or in a table. On InfiniBand also the IP addresses of the port.
pub trait Neighbours {
    /// The route to `destination` from `source`.
    fn resolve(&mut self, now: Duration, source: IpAddr, destination: IpAddr) -> Resolution;

    /// The same for the answer to an unsolicited message, whose source may be forged: a flood of them should not
    /// replace the known addresses of other hosts.
    fn resolve_unknown_host(
        &mut self,
        now: Duration,
        source: IpAddr,
        destination: IpAddr,
    ) -> Resolution {
        self.resolve(now, source, destination)
    }

    /// Returns `true` if there is a route to `destination` from `source`, an address of the port. No question is sent,
    /// nothing is kept: it is for addresses that unknown hosts name in their requests.
    fn has_route(&self, source: IpAddr, destination: IpAddr) -> bool {
        let _ = (source, destination);
        true
    }

    /// The local address to reach `destination` from; `None` leaves the choice to the GID table.
    fn source_for(&mut self, destination: IpAddr) -> Option<IpAddr> {
        let _ = destination;
        None
    }

    /// The encapsulation of what is sent to the neighbours that it finds, and so of the GIDs of an Ethernet port that its
    /// manager uses.
    fn roce_version(&self) -> RoceVersion {
        RoceVersion::V2
    }

    /// The VLAN of the last frame from a VLAN in which an Ethernet port has no address; 0 for frames without a tag.
    fn other_vlan(&self) -> Option<u16> {
        None
    }

    /// Returns `true` if InfiniBand ports have IP addresses with it.
    fn has_ip(&self) -> bool {
        false
    }

    /// The partition that the IP addresses of an InfiniBand port are in.
    fn partition(&self) -> u16 {
        DEFAULT_PKEY
    }

    /// Returns `true` if each address that an InfiniBand port was given is known to be its own, or another host's.
    fn is_settled(&self) -> bool {
        true
    }

    /// Returns `true` if an InfiniBand port has this IP address.
    fn has_address(&self, address: IpAddr) -> bool {
        let _ = address;
        false
    }

    /// The GID of a neighbour that [`resolve`](Self::resolve) has found for an InfiniBand port, by what stands for it.
    fn gid_of(&self, mac: [u8; 6]) -> Option<[u8; 16]> {
        let _ = mac;
        None
    }

    /// Lets a multicast group in, and reports it to switches and routers. Once for each join. A resolver that cannot
    /// leaves it to them: those that do not snoop send everything everywhere.
    ///
    /// # Errors
    /// If the storage for groups is full, or if the device fails.
    fn join_group(
        &mut self,
        now: Duration,
        group: IpAddr,
        vlan: Option<u16>,
    ) -> Result<(), RdmaError> {
        let _ = (now, group, vlan);
        Ok(())
    }

    /// Undoes a join.
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

    /// Does what is due and takes what has arrived. [`RdmaCm::poll`](crate::rdma::RdmaCm::poll) calls it.
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

    /// A neighbour whose address has changed since the last call. Ids with a route to it get an event.
    fn next_change(&mut self) -> Option<AddressChange> {
        None
    }
}

/// Finds paths and joins groups of an InfiniBand subnet. An Ethernet port needs none of its methods.
pub trait Subnet {
    /// The path between two ports of an InfiniBand subnet; `None` if it is still being found out: ask again.
    ///
    /// # Errors
    /// If there is none, or if it took longer than there was time.
    fn find_path(
        &mut self,
        now: Duration,
        query: &PathQuery,
        attempt: Attempt,
    ) -> Result<Option<PathRecord>, RdmaError> {
        let _ = (now, query, attempt);
        Err(NOT_FOR_INFINIBAND)
    }

    /// Begins to join an InfiniBand group. Once for each join; [`membership`](Self::membership) has the result, and
    /// each ends with [`leave`](Self::leave).
    ///
    /// # Errors
    /// If the storage for groups is full.
    fn join(
        &mut self,
        now: Duration,
        membership: &Membership,
        until: Duration,
    ) -> Result<(), RdmaError> {
        let _ = (now, membership, until);
        Err(NOT_FOR_INFINIBAND)
    }

    /// The group as it is for a member; `None` while the port is not in it yet.
    ///
    /// # Errors
    /// If it cannot be joined.
    fn membership(
        &mut self,
        now: Duration,
        membership: &Membership,
    ) -> Result<Option<McMemberRecord>, RdmaError> {
        let _ = (now, membership);
        Err(NOT_FOR_INFINIBAND)
    }

    /// Undoes a join of an InfiniBand group.
    fn leave(&mut self, now: Duration, membership: &Membership) {
        let _ = (now, membership);
    }

    /// Writes a MAD for subnet administration, if there is one to send.
    fn poll_transmit(&mut self, now: Duration, mad: &mut [u8; MAD_LEN]) -> bool {
        let _ = (now, mad);
        false
    }

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
    fn handle_mad(&mut self, now: Duration, mad: &[u8; MAD_LEN]) {
        let _ = (now, mad);
    }

    /// The port of an InfiniBand subnet has changed, or its subnet has another manager: all answers so far are invalid,
    /// and all memberships are lost.
    fn subnet_changed(&mut self, now: Duration) {
        let _ = now;
    }

    /// No port can be reached by this GID any more, as far as subnet administration knows: paths that led there are invalid.
    fn gid_gone(&mut self, gid: [u8; 16]) {
        let _ = gid;
    }

    /// Does what is due, before [`Neighbours::poll`].
    fn handle_timeout(&mut self, now: Duration) {
        let _ = now;
    }

    /// When [`handle_timeout`](Self::handle_timeout) and [`poll_transmit`](Self::poll_transmit) have to be called at the
    /// latest.
    fn next_timeout(&self) -> Option<Duration> {
        None
    }
}

/// The two parts with which a manager resolves addresses.
///
/// A type that implements both is a resolver itself. For Ethernet `impl Subnet for MyNeighbours {}` is enough.
pub trait Resolver {
    /// The part that finds neighbours.
    type Neighbours: Neighbours + ?Sized;
    /// The part that asks subnet administration.
    type Subnet: Subnet + ?Sized;

    /// The part that finds neighbours.
    fn neighbours(&self) -> &Self::Neighbours;

    /// Lends the part that finds neighbours, for calls that change it.
    fn neighbours_mut(&mut self) -> &mut Self::Neighbours;

    /// The part that asks subnet administration.
    fn subnet(&self) -> &Self::Subnet;

    /// Lends the part that asks subnet administration, for calls that change it.
    fn subnet_mut(&mut self) -> &mut Self::Subnet;
}

impl<T: Neighbours + Subnet> Resolver for T {
    type Neighbours = T;
    type Subnet = T;

    fn neighbours(&self) -> &T {
        self
    }

    fn neighbours_mut(&mut self) -> &mut T {
        self
    }

    fn subnet(&self) -> &T {
        self
    }

    fn subnet_mut(&mut self) -> &mut T {
        self
    }
}

/// A fixed table of addresses and MACs; a host that is not in it cannot be reached.
#[derive(Debug, Clone, Copy)]
pub struct StaticNeighbours<'t>(pub &'t [(IpAddr, [u8; 6])]);

impl Neighbours for StaticNeighbours<'_> {
    fn resolve(&mut self, _now: Duration, _source: IpAddr, destination: IpAddr) -> Resolution {
        match self.0.iter().find(|(address, _)| *address == destination) {
            Some((_, mac)) => Resolution::Found(Neighbour::new(*mac)),
            None => Resolution::NoRoute,
        }
    }
}

impl Subnet for StaticNeighbours<'_> {}
