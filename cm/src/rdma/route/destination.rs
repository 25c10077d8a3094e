//! The route from an id to its peer: asking the resolver, at once and again, until it has an answer.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use bareverbs_core::Platform;

use crate::ip::is_unicast;
use crate::rdma::id::group::{group_neighbour, roce_group};
use crate::rdma::id::slot::{DEFAULT_PACKET_LIFE_TIME, IdSlot};
use crate::rdma::id::table::IdTable;
use crate::rdma::port::gsi;
use crate::rdma::resolver::{Neighbour, Neighbours, Resolution, Resolver, Subnet};
use crate::rdma::route::router::Router;
use crate::rdma::types::awaited::Awaited;
use crate::rdma::types::error::RdmaError;
use crate::rdma::types::id::NIL;
use crate::rdma::types::{EventType, IdState};

impl<P: Platform, R: Resolver> Router<'_, '_, P, R> {
    /// Drives the resolver: ids with a route to a neighbour whose address has changed get an event, and those
    /// that wait ask again.
    pub(crate) fn poll(
        &mut self,
        ids: &mut IdTable<'_, '_, P>,
        now: Duration,
    ) -> Result<(), RdmaError> {
        self.resolver.subnet_mut().handle_timeout(now);
        self.resolver.neighbours_mut().poll(now)?;
        while let Some(change) = self.resolver.neighbours_mut().next_change() {
            ids.neighbour_changed(self.device, &change);
        }
        if self.wait_head != NIL {
            self.ask_again(ids, now);
        }
        Ok(())
    }

    /// Begins to ask for the route of an id in `AddrQuery`, or for its path in `RouteQuery`. The id's event has the
    /// result; until then the id waits, and [`ask_again`](Self::ask_again) asks for it.
    ///
    /// # Errors
    /// If there is no route, which is known without asking a host: then there is no event.
    pub(crate) fn start_asking(
        &mut self,
        ids: &mut IdTable<'_, '_, P>,
        now: Duration,
        index: usize,
        timeout: Duration,
    ) -> Result<(), RdmaError> {
        self.resolutions += 1;
        let slot = &mut ids[index];
        slot.route.resolve_seq = self.resolutions;
        slot.route.deadline = now.saturating_add(timeout);
        if !self.ask(ids, now, index)? {
            let slot = &mut ids[index];
            slot.links.waiting = true;
            slot.links.wait_next = core::mem::replace(&mut self.wait_head, index as u32);
        }
        Ok(())
    }

    /// Asks again for every id that waits.
    pub(super) fn ask_again(&mut self, ids: &mut IdTable<'_, '_, P>, now: Duration) {
        let mut at = core::mem::replace(&mut self.wait_head, NIL);
        while let Some(slot) = ids.get_mut(at as usize) {
            let next = slot.links.wait_next;
            slot.links.waiting = false;
            match self.ask(ids, now, at as usize) {
                Ok(true) => {}
                Ok(false) => {
                    let slot = &mut ids[at as usize];
                    slot.links.waiting = true;
                    slot.links.wait_next = core::mem::replace(&mut self.wait_head, at);
                }
                Err(error) => ids.push_failure(at as usize, EventType::AddrError, error),
            }
            at = next;
        }
    }

    /// An id waits no more.
    pub(crate) fn stop_asking(&mut self, ids: &mut IdTable<'_, '_, P>, index: usize) {
        if !core::mem::take(&mut ids[index].links.waiting) {
            return;
        }
        let next = ids[index].links.wait_next;
        if self.wait_head == index as u32 {
            self.wait_head = next;
            return;
        }
        let mut at = self.wait_head;
        while let Some(slot) = ids.get_mut(at as usize) {
            if slot.links.wait_next == index as u32 {
                slot.links.wait_next = next;
                return;
            }
            at = slot.links.wait_next;
        }
    }

    /// Asks for the route of an id in `AddrQuery`, or for its path in `RouteQuery`. False if the answer is still to
    /// come.
    ///
    /// # Errors
    /// If there is no route. The id is bound again, and there is no event yet.
    fn ask(
        &mut self,
        ids: &mut IdTable<'_, '_, P>,
        now: Duration,
        index: usize,
    ) -> Result<bool, RdmaError> {
        if ids[index].state == IdState::RouteQuery {
            return Ok(self.ask_for_path(ids, now, index));
        }
        let outcome = match self.find_route(ids, now, index) {
            Ok(true) => Ok(()),
            Ok(false) if now < ids[index].route.deadline => return Ok(false),
            Err(error @ RdmaError::NetUnreachable(_)) => {
                ids[index].state = IdState::AddrBound;
                return Err(error);
            }
            Ok(false) => Err(RdmaError::Unanswered(self.awaited(&ids[index]))),
            Err(RdmaError::HostUnreachable(_))
                if self.resolver.neighbours().other_vlan().is_some() =>
            {
                Err(RdmaError::Unanswered(self.awaited(&ids[index])))
            }
            Err(error) => Err(error),
        };
        match outcome {
            Ok(()) => {
                ids[index].state = IdState::AddrResolved;
                ids.push(index, EventType::AddrResolved, 0);
            }
            Err(error) => {
                ids[index].state = IdState::AddrBound;
                ids.push_failure(index, EventType::AddrError, error);
            }
        }
        Ok(true)
    }

    /// Returns what an id in `AddrQuery` or `RouteQuery` waits for.
    pub(crate) fn awaited(&self, slot: &IdSlot<'_, P>) -> Awaited {
        match (slot.state, slot.route.peer) {
            (IdState::AddrQuery, Some(peer)) => Awaited::Neighbour {
                address: peer.ip(),
                other_vlan: self.resolver.neighbours().other_vlan(),
            },
            _ => Awaited::Path {
                subnet_manager: self.port().sm_lid,
            },
        }
    }

    fn find_route(
        &mut self,
        ids: &mut IdTable<'_, '_, P>,
        now: Duration,
        index: usize,
    ) -> Result<bool, RdmaError> {
        if self.is_infiniband() {
            if ids[index].route.ip {
                return self.find_gid_by_ip(&mut ids[index], now);
            }
            return self.find_gids(&mut ids[index]).map(|()| true);
        }
        let slot = &ids[index];
        let (Some(local), Some(peer)) = (slot.route.local, slot.route.peer) else {
            return Err(RdmaError::NotBound);
        };
        let any_source = slot.route.any_source;
        let destination = self.own_for_loopback(peer.ip())?;
        let source = if any_source {
            self.choose_source(destination)?
        } else {
            local.ip()
        };
        let Some(Neighbour {
            mac,
            vlan,
            hop_limit,
        }) = self.neighbour_or_group(now, source, destination)?
        else {
            return Ok(false);
        };
        let Some(gid_index) = self.gid_index(source, vlan) else {
            return Err(RdmaError::NoDevice(source));
        };
        let remote = roce_group(self.resolver.neighbours().roce_version(), destination);
        let slot = &mut ids[index];
        slot.route.local = Some(SocketAddr::new(source, local.port()));
        slot.route.bound = true;
        slot.route.address.local_gid = gsi::gid(source).0;
        slot.route.address.remote_gid = gsi::gid(remote).0;
        slot.route.address.remote_mac = mac;
        slot.route.address.link = u32::from(gid_index);
        slot.route.address.hop_limit = hop_limit;
        slot.route.address.traffic_class = slot.options.tos;
        slot.route.address.pkey = 0xffff;
        Ok(true)
    }

    /// The rest of an id's path on RoCE, which needs no query.
    pub(crate) fn fill_path(&self, slot: &mut IdSlot<'_, P>) {
        let port =
            |address: Option<SocketAddr>| u32::from(address.map_or(0, |address| address.port()));
        slot.route.path_mtu = self.max_path_mtu();
        // As Linux spreads flows: from the ports of both ends.
        slot.route.address.flow_label =
            (port(slot.route.local) * 31 + port(slot.route.peer)) & 0xf_ffff;
        slot.route.address.traffic_class = slot.options.tos;
        slot.route.address.service_level = 0;
        // `cma_resolve_iboe_route` of Linux's core/cma.c: an ACK timeout of 0, which a QP waits for without end, is none for the path.
        slot.route.packet_life_time = match slot.options.ack_timeout {
            None | Some(0) => DEFAULT_PACKET_LIFE_TIME,
            Some(timeout) => timeout - 1,
        };
    }

    fn choose_source(&mut self, destination: IpAddr) -> Result<IpAddr, RdmaError> {
        if self.is_own(destination) {
            return Ok(destination);
        }
        self.resolver
            .neighbours_mut()
            .source_for(destination)
            .or_else(|| self.first_own(destination))
            .ok_or(RdmaError::NetUnreachable(destination))
    }

    /// Finds a neighbour as [`neighbour`](Self::neighbour) does, for an id that may send to a group as well.
    fn neighbour_or_group(
        &mut self,
        now: Duration,
        source: IpAddr,
        destination: IpAddr,
    ) -> Result<Option<Neighbour>, RdmaError> {
        if destination.is_multicast() {
            let vlan = self.own_entry(source).and_then(|(_, vlan)| vlan);
            let neighbour = group_neighbour(self.resolver.neighbours().roce_version(), destination);
            return Ok(Some(Neighbour { vlan, ..neighbour }));
        }
        self.neighbour(now, source, destination)
    }

    /// MAC, VLAN and hop limit of the route to `destination`; `None` if that is still being resolved.
    pub(super) fn neighbour(
        &mut self,
        now: Duration,
        source: IpAddr,
        destination: IpAddr,
    ) -> Result<Option<Neighbour>, RdmaError> {
        self.neighbour_by(R::Neighbours::resolve, now, source, destination)
    }

    /// The same for the answer to a MAD, whose source may be forged.
    pub(super) fn neighbour_of_unknown_host(
        &mut self,
        now: Duration,
        source: IpAddr,
        destination: IpAddr,
    ) -> Result<Option<Neighbour>, RdmaError> {
        self.neighbour_by(
            R::Neighbours::resolve_unknown_host,
            now,
            source,
            destination,
        )
    }

    fn neighbour_by(
        &mut self,
        resolve: fn(&mut R::Neighbours, Duration, IpAddr, IpAddr) -> Resolution,
        now: Duration,
        source: IpAddr,
        destination: IpAddr,
    ) -> Result<Option<Neighbour>, RdmaError> {
        if !is_unicast(destination) {
            return Err(RdmaError::NetUnreachable(destination));
        }
        if source == destination {
            return Ok(Some(Neighbour::new(self.port.mac)));
        }
        match resolve(self.resolver.neighbours_mut(), now, source, destination) {
            Resolution::Found(neighbour) => Ok(Some(neighbour)),
            Resolution::Pending => Ok(None),
            // The device's own addresses need not be listed.
            _ if self.is_own(destination) => Ok(Some(Neighbour::new(self.port.mac))),
            Resolution::NoRoute => Err(RdmaError::NetUnreachable(destination)),
            Resolution::NoAnswer => Err(RdmaError::HostUnreachable(destination)),
        }
    }
}
