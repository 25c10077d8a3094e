//! Addresses: binding to them, resolving them, and the way there.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;

use bareverbs_core::{Platform, RoceVersion};

use crate::ip::is_unicast;
use crate::rdma::id::slot::NIL;
use crate::rdma::manager::RdmaCm;
use crate::rdma::port::gsi;
use crate::rdma::route::resolver::{AddressChange, Neighbour, Resolution, Resolver};
use crate::rdma::types::error::RdmaError;
use crate::rdma::types::sockaddr::SockAddr;
use crate::rdma::types::{CmId, EventType, IdState};

const fn wildcard(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}

impl<P: Platform, R: Resolver> RdmaCm<'_, '_, P, R> {
    /// Gives an id a local address (`rdma_bind_addr`): a `SocketAddr` on RoCE, a [`SockaddrIb`](crate::rdma::SockaddrIb) on
    /// InfiniBand. A wildcard address stands for all of the device's; port 0 for any free one.
    pub fn bind_addr(&mut self, id: CmId, address: impl Into<SockAddr>) -> Result<(), RdmaError> {
        let index = self.ids.index(id)?;
        let (address, pkey) = self.inside(self.ids[index].port_space, address.into())?;
        self.bind(index, address, pkey)
    }

    fn bind(&mut self, index: usize, address: SocketAddr, pkey: u16) -> Result<(), RdmaError> {
        let state = self.ids[index].state;
        if state != IdState::Idle {
            return Err(RdmaError::WrongState {
                call: "bind_addr",
                state,
            });
        }
        let ip = address.ip();
        let specific = !ip.is_unspecified() && !ip.is_loopback();
        if specific && !self.is_own(ip) {
            return Err(RdmaError::NoDevice(ip));
        }
        let pkey_index = self.pkey_index(pkey)?;
        let port = if address.port() == 0 {
            self.free_port(self.ids[index].port_space, ip)?
        } else {
            address.port()
        };
        let address = SocketAddr::new(ip, port);
        let slot = &self.ids[index];
        self.ids.check_port(
            index,
            address,
            slot.options.reuse_addr,
            slot.options.af_only,
        )?;
        self.ids.enter_port(index, port);
        let slot = &mut self.ids[index];
        slot.route.local = Some(address);
        slot.route.address.pkey = pkey;
        slot.route.pkey_index = pkey_index;
        slot.route.bound = specific;
        slot.route.any_source = !specific;
        slot.state = IdState::AddrBound;
        Ok(())
    }

    /// Finds the way to `destination` (`rdma_resolve_addr`), binding the id to `source`, or to whatever address leads there.
    /// What follows is `AddrResolved` or `AddrError`; on a synchronous id the call waits for it.
    ///
    /// On InfiniBand no question is needed for the way to a GID.
    pub fn resolve_addr<A: Into<SockAddr>>(
        &mut self,
        id: CmId,
        source: Option<A>,
        destination: A,
        timeout: Duration,
    ) -> Result<(), RdmaError> {
        let index = self.ids.index(id)?;
        let port_space = self.ids[index].port_space;
        let (destination, pkey) = self.inside(port_space, destination.into())?;
        let source = source.map(|source| self.inside(port_space, source.into()));
        let source = source.transpose()?;
        let (source, pkey) = match source {
            Some((source, pkey)) => (Some(source), pkey),
            None => (None, pkey),
        };
        if source.is_some_and(|source| source.is_ipv4() != destination.is_ipv4()) {
            return Err(RdmaError::FamilyMismatch);
        }
        match self.ids[index].state {
            IdState::Idle => {
                let source = source.unwrap_or(SocketAddr::new(wildcard(destination.ip()), 0));
                self.bind(index, source, pkey)?;
            }
            IdState::AddrBound => {
                if self.ids[index]
                    .route
                    .local
                    .is_some_and(|local| local.is_ipv4() != destination.is_ipv4())
                {
                    return Err(RdmaError::FamilyMismatch);
                }
            }
            state => {
                return Err(RdmaError::WrongState {
                    call: "resolve_addr",
                    state,
                });
            }
        }
        let now = self.now();
        let slot = &mut self.ids[index];
        slot.route.peer = Some(destination);
        slot.state = IdState::AddrQuery;
        self.start_asking(now, index, timeout);
        self.complete(id)
    }

    fn start_asking(&mut self, now: Duration, index: usize, timeout: Duration) {
        self.resolutions += 1;
        let slot = &mut self.ids[index];
        slot.route.resolve_seq = self.resolutions;
        slot.route.deadline = now.saturating_add(timeout);
        if !self.ask(now, index) {
            let slot = &mut self.ids[index];
            slot.links.waiting = true;
            slot.links.wait_next = core::mem::replace(&mut self.wait_head, index as u32);
        }
    }

    /// Asks for the way of an id in `AddrQuery`, or for its path in `RouteQuery`. False if the answer is still to come.
    fn ask(&mut self, now: Duration, index: usize) -> bool {
        if self.ids[index].state == IdState::RouteQuery {
            return self.ask_for_path(now, index);
        }
        let outcome = match self.find_way(now, index) {
            Ok(true) => Ok(()),
            Ok(false) if now < self.ids[index].route.deadline => return false,
            Ok(false) => Err(RdmaError::TimedOut),
            Err(error) => Err(error),
        };
        match outcome {
            Ok(()) => {
                self.ids[index].state = IdState::AddrResolved;
                self.ids.push(index, EventType::AddrResolved, 0);
            }
            Err(error) => {
                self.ids[index].state = IdState::AddrBound;
                self.ids.push_failure(index, EventType::AddrError, error);
            }
        }
        true
    }

    fn find_way(&mut self, now: Duration, index: usize) -> Result<bool, RdmaError> {
        if self.is_infiniband() {
            return self.find_gids(index).map(|()| true);
        }
        let slot = &self.ids[index];
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
        }) = self.way(now, source, destination)?
        else {
            return Ok(false);
        };
        let Some(gid_index) = self.gsi.gid_index(source, vlan) else {
            return Err(RdmaError::NoDevice(source));
        };
        let slot = &mut self.ids[index];
        slot.route.local = Some(SocketAddr::new(source, local.port()));
        slot.route.bound = true;
        slot.route.address.local_gid = gsi::gid(source).0;
        slot.route.address.remote_gid = gsi::gid(destination).0;
        slot.route.address.remote_mac = mac;
        slot.route.address.link = u32::from(gid_index);
        slot.route.address.hop_limit = hop_limit;
        slot.route.address.traffic_class = slot.options.tos;
        slot.route.address.pkey = 0xffff;
        Ok(true)
    }

    /// Loopback and wildcard destinations mean this device.
    pub(crate) fn own_for_loopback(&self, destination: IpAddr) -> Result<IpAddr, RdmaError> {
        if destination.is_loopback() || destination.is_unspecified() {
            self.first_own(destination)
                .ok_or(RdmaError::NoDevice(destination))
        } else {
            Ok(destination)
        }
    }

    /// The device's first address of the family, link-local only if that is what is wanted.
    fn first_own(&self, like: IpAddr) -> Option<IpAddr> {
        let link_local = |address: IpAddr| match address {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        };
        let mut fallback = None;
        for (_, entry) in self.device.gid_table() {
            let address = entry.gid.to_ipv6().to_canonical();
            if entry.version != RoceVersion::V2 || address.is_ipv4() != like.is_ipv4() {
                continue;
            }
            if link_local(address) == link_local(like) {
                return Some(address);
            }
            fallback = fallback.or(Some(address));
        }
        fallback
    }

    fn choose_source(&mut self, destination: IpAddr) -> Result<IpAddr, RdmaError> {
        if self.is_own(destination) {
            return Ok(destination);
        }
        self.resolver
            .source_for(destination)
            .or_else(|| self.first_own(destination))
            .ok_or(RdmaError::NoDevice(destination))
    }

    /// As [`neighbour`](Self::neighbour), for who may want to send to a group as well.
    fn way(
        &mut self,
        now: Duration,
        source: IpAddr,
        destination: IpAddr,
    ) -> Result<Option<Neighbour>, RdmaError> {
        if destination.is_multicast() {
            let vlan = self.own_entry(source).and_then(|(_, vlan)| vlan);
            let way = crate::rdma::conn::group::way_to(destination);
            return Ok(Some(Neighbour { vlan, ..way }));
        }
        self.neighbour(now, source, destination)
    }

    /// MAC, VLAN and hop limit on the way to `destination`; `None` if that is still being found out.
    pub(crate) fn neighbour(
        &mut self,
        now: Duration,
        source: IpAddr,
        destination: IpAddr,
    ) -> Result<Option<Neighbour>, RdmaError> {
        self.neighbour_by(R::resolve, now, source, destination)
    }

    /// The same for the answer to a MAD, whose source may be forged.
    pub(crate) fn neighbour_of_stranger(
        &mut self,
        now: Duration,
        source: IpAddr,
        destination: IpAddr,
    ) -> Result<Option<Neighbour>, RdmaError> {
        self.neighbour_by(R::resolve_stranger, now, source, destination)
    }

    fn neighbour_by(
        &mut self,
        resolve: fn(&mut R, Duration, IpAddr, IpAddr) -> Resolution,
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
        match resolve(&mut self.resolver, now, source, destination) {
            Resolution::Found(neighbour) => Ok(Some(neighbour)),
            Resolution::Pending => Ok(None),
            // The device's own addresses need not be listed.
            _ if self.is_own(destination) => Ok(Some(Neighbour::new(self.port.mac))),
            Resolution::NoRoute => Err(RdmaError::NetUnreachable(destination)),
            Resolution::NoAnswer => Err(RdmaError::HostUnreachable(destination)),
        }
    }

    /// Asks again for every id that waits.
    pub(crate) fn ask_again(&mut self, now: Duration) {
        let mut at = core::mem::replace(&mut self.wait_head, NIL);
        while let Some(slot) = self.ids.get_mut(at as usize) {
            let next = slot.links.wait_next;
            slot.links.waiting = false;
            if !self.ask(now, at as usize) {
                let slot = &mut self.ids[at as usize];
                slot.links.waiting = true;
                slot.links.wait_next = core::mem::replace(&mut self.wait_head, at);
            }
            at = next;
        }
    }

    /// A peer is no longer where its connections send to: they will fail, and the application hears why
    /// (`RDMA_CM_EVENT_ADDR_CHANGE`).
    pub(crate) fn neighbour_changed(&mut self, change: &AddressChange) {
        for index in 0..self.ids.len() {
            let slot = &self.ids[index];
            let connected = slot.used
                && (slot.conn.id.is_some() || slot.conn.remote_qpn != 0)
                && slot
                    .route
                    .peer
                    .is_some_and(|peer| peer.ip() == change.address)
                && change.mac != Some(slot.route.address.remote_mac);
            if connected {
                self.ids.push(index, EventType::AddrChange, 0);
            }
        }
    }

    pub(crate) fn stop_asking(&mut self, index: usize) {
        if !core::mem::take(&mut self.ids[index].links.waiting) {
            return;
        }
        let next = self.ids[index].links.wait_next;
        if self.wait_head == index as u32 {
            self.wait_head = next;
            return;
        }
        let mut at = self.wait_head;
        while let Some(slot) = self.ids.get_mut(at as usize) {
            if slot.links.wait_next == index as u32 {
                slot.links.wait_next = next;
                return;
            }
            at = slot.links.wait_next;
        }
    }

    /// Finds the path to the address that was resolved (`rdma_resolve_route`). On RoCE that needs no asking, on InfiniBand the
    /// resolver asks subnet administration. What follows is `RouteResolved` or `RouteError`.
    pub fn resolve_route(&mut self, id: CmId, timeout: Duration) -> Result<(), RdmaError> {
        let index = self.ids.index(id)?;
        let state = self.ids[index].state;
        if state != IdState::AddrResolved {
            return Err(RdmaError::WrongState {
                call: "resolve_route",
                state,
            });
        }
        if timeout.is_zero() {
            return Err(RdmaError::TooMuch {
                name: "haste: the timeout",
                value: 0,
                max: 0,
            });
        }
        if self.is_infiniband() {
            return self.resolve_path(id, timeout);
        }
        let limit = self.config.max_path_mtu.number();
        let mtu = self.port.active_mtu.number().min(limit);
        let slot = &mut self.ids[index];
        let port =
            |address: Option<SocketAddr>| u32::from(address.map_or(0, |address| address.port()));
        slot.route.path_mtu = mtu;
        // As Linux spreads flows: from the ports of both ends.
        slot.route.address.flow_label =
            (port(slot.route.local) * 31 + port(slot.route.peer)) & 0xf_ffff;
        slot.route.address.traffic_class = slot.options.tos;
        slot.route.address.service_level = 0;
        if let Some(timeout) = slot.options.ack_timeout {
            slot.route.packet_life_time = timeout.saturating_sub(1);
        }
        slot.state = IdState::RouteResolved;
        self.ids.push(index, EventType::RouteResolved, 0);
        self.complete(id)
    }

    fn resolve_path(&mut self, id: CmId, timeout: Duration) -> Result<(), RdmaError> {
        let index = self.ids.index(id)?;
        if self.port.sm_lid == 0 {
            // There was no subnet manager yet when this was asked last.
            self.refresh_port()?;
        }
        let now = self.now();
        self.ids[index].state = IdState::RouteQuery;
        self.start_asking(now, index, timeout);
        self.flush(now)?;
        self.complete(id)
    }

    /// Local port (`rdma_get_src_port`); 0 if there is none yet.
    pub fn get_src_port(&self, id: CmId) -> Result<u16, RdmaError> {
        Ok(self
            .ids
            .slot(id)?
            .route
            .local
            .map_or(0, |address| address.port()))
    }

    /// The other end's port (`rdma_get_dst_port`); 0 if there is none yet.
    pub fn get_dst_port(&self, id: CmId) -> Result<u16, RdmaError> {
        Ok(self
            .ids
            .slot(id)?
            .route
            .peer
            .map_or(0, |address| address.port()))
    }

    /// Local address on RoCE (`rdma_get_local_addr`).
    pub fn get_local_addr(&self, id: CmId) -> Result<Option<SocketAddr>, RdmaError> {
        let ip = !self.is_infiniband();
        Ok(self.ids.slot(id)?.route.local.filter(|_| ip))
    }

    /// The other end's address on RoCE (`rdma_get_peer_addr`).
    pub fn get_peer_addr(&self, id: CmId) -> Result<Option<SocketAddr>, RdmaError> {
        let ip = !self.is_infiniband();
        Ok(self.ids.slot(id)?.route.peer.filter(|_| ip))
    }

    /// Index and VLAN of the GID of one of the device's addresses.
    pub(crate) fn own_entry(&self, address: IpAddr) -> Option<(u16, Option<u16>)> {
        if self.is_infiniband() {
            return self.is_own_gid(address).then_some((0, None));
        }
        let gid = gsi::gid(address);
        let mut table = self.device.gid_table();
        table
            .find(|(_, entry)| entry.gid == gid && entry.version == RoceVersion::V2)
            .map(|(index, entry)| (index, entry.vlan))
    }

    /// Whether the device has this address.
    pub(crate) fn is_own(&self, address: IpAddr) -> bool {
        if self.is_infiniband() {
            return self.is_own_gid(address);
        }
        let gid = gsi::gid(address);
        let mut table = self.device.gid_table();
        table.any(|(_, entry)| entry.gid == gid && entry.version == RoceVersion::V2)
    }
}
