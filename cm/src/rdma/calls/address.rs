//! The calls on addresses: binding to them, resolving them and the route, and asking for them.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;

use bareverbs_core::Platform;

use crate::mad::sa::PathRecord;
use crate::rdma::manager::RdmaCm;
use crate::rdma::resolver::Resolver;
use crate::rdma::types::error::RdmaError;
use crate::rdma::types::sockaddr::{SockAddr, SockaddrIb};
use crate::rdma::types::{CmId, EventType, IdState};

const fn wildcard(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}

impl<P: Platform, R: Resolver> RdmaCm<'_, '_, P, R> {
    /// Gives an id a local address (`rdma_bind_addr`): a `SocketAddr` on RoCE, a [`SockaddrIb`](crate::rdma::SockaddrIb) on
    /// InfiniBand. A wildcard address means all of the device's; port 0 for any free one. An IP address that is not the port's is
    /// EADDRNOTAVAIL, a GID that is not ENODEV.
    pub fn bind_addr(&mut self, id: CmId, address: impl Into<SockAddr>) -> Result<(), RdmaError> {
        let index = self.ids.index(id)?;
        let address = address.into();
        self.select_port_space(index, &address);
        let ip = self.router.is_over_ip(&address);
        let (address, pkey) = self
            .router
            .to_internal(self.ids[index].port_space, address)?;
        self.bind(index, address, pkey, ip)
    }

    /// A new id gets the port space of its first address.
    fn select_port_space(&mut self, index: usize, address: &SockAddr) {
        let slot = &mut self.ids[index];
        if let SockAddr::Ib(address) = address
            && slot.state == IdState::Idle
            && let Some(usual) = slot.id_type.usual_port_space()
        {
            slot.port_space = address.select(slot.port_space, usual);
        }
    }

    fn bind(
        &mut self,
        index: usize,
        address: SocketAddr,
        pkey: u16,
        over_ip: bool,
    ) -> Result<(), RdmaError> {
        let state = self.ids[index].state;
        if state != IdState::Idle {
            return Err(RdmaError::WrongState {
                call: "bind_addr",
                state,
            });
        }
        let ip = address.ip();
        let specific = !ip.is_unspecified() && !ip.is_loopback();
        if specific && !self.router.is_own_end(ip, over_ip) {
            return Err(self.router.not_own(address, over_ip));
        }
        let pkey_index = self.router.pkey_index(pkey)?;
        let port = if address.port() == 0 {
            self.ids.free_port(self.ids[index].port_space, ip)?
        } else {
            address.port()
        };
        let address = SocketAddr::new(ip, port);
        self.ids
            .check_port(index, address, self.ids[index].options.reuse_addr)?;
        self.ids.enter_port(index, port);
        let slot = &mut self.ids[index];
        slot.route.local = Some(address);
        slot.route.address.pkey = pkey;
        slot.route.pkey_index = pkey_index;
        slot.route.bound = specific;
        slot.route.any_source = !specific;
        slot.route.ip = over_ip;
        slot.state = IdState::AddrBound;
        Ok(())
    }

    /// Finds the route to `destination` (`rdma_resolve_addr`), binding the id to `source`, or to the address of the
    /// route. What follows is `AddrResolved` or `AddrError`; on a synchronous id the call waits for it. Without a route there is
    /// no event: the call fails with ENETUNREACH, and the id stays bound.
    ///
    /// On InfiniBand no query is needed for the route to a GID.
    pub fn resolve_addr<A: Into<SockAddr>>(
        &mut self,
        id: CmId,
        source: Option<A>,
        destination: A,
        timeout: Duration,
    ) -> Result<(), RdmaError> {
        let index = self.ids.index(id)?;
        let destination = destination.into();
        self.select_port_space(index, &destination);
        let port_space = self.ids[index].port_space;
        let ip = self.router.is_over_ip(&destination);
        let (destination, pkey) = self.router.to_internal(port_space, destination)?;
        let source = source.map(Into::into);
        if source.is_some_and(|source| self.router.is_over_ip(&source) != ip) {
            return Err(RdmaError::FamilyMismatch);
        }
        let source = source.map(|source| self.router.to_internal(port_space, source));
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
                self.bind(index, source, pkey, ip)?;
            }
            IdState::AddrBound => {
                if self.ids[index]
                    .route
                    .local
                    .is_some_and(|local| local.is_ipv4() != destination.is_ipv4())
                    || self.ids[index].route.ip != ip
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
        self.watch(now, index);
        self.router
            .start_asking(&mut self.ids, now, index, timeout)?;
        self.complete(id)
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
        if self.router.is_infiniband() {
            return self.resolve_path(id, timeout);
        }
        let slot = &mut self.ids[index];
        self.router.fill_path(slot);
        slot.state = IdState::RouteResolved;
        self.ids.push(index, EventType::RouteResolved, 0);
        self.complete(id)
    }

    fn resolve_path(&mut self, id: CmId, timeout: Duration) -> Result<(), RdmaError> {
        let index = self.ids.index(id)?;
        if self.router.port().sm_lid == 0 {
            // There was no subnet manager yet when this was asked last.
            self.router.refresh_port()?;
        }
        let now = self.now();
        self.ids[index].state = IdState::RouteQuery;
        self.watch(now, index);
        self.router
            .start_asking(&mut self.ids, now, index, timeout)?;
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
        let ip = !self.router.is_infiniband();
        let route = &self.ids.slot(id)?.route;
        Ok(route.local.filter(|_| ip || route.ip))
    }

    /// The other end's address on RoCE (`rdma_get_peer_addr`).
    pub fn get_peer_addr(&self, id: CmId) -> Result<Option<SocketAddr>, RdmaError> {
        let ip = !self.router.is_infiniband();
        let route = &self.ids.slot(id)?.route;
        Ok(route.peer.filter(|_| ip || route.ip))
    }

    /// Local address of an id on InfiniBand (`rdma_get_local_addr`).
    pub fn get_local_ib_addr(&self, id: CmId) -> Result<Option<SockaddrIb>, RdmaError> {
        let slot = self.ids.slot(id)?;
        Ok(self.router.to_sockaddr(slot, slot.route.local))
    }

    /// The other end's address of an id on InfiniBand (`rdma_get_peer_addr`).
    pub fn get_peer_ib_addr(&self, id: CmId) -> Result<Option<SockaddrIb>, RdmaError> {
        let slot = self.ids.slot(id)?;
        Ok(self.router.to_sockaddr(slot, slot.route.peer))
    }

    /// The path of an id on InfiniBand whose route is resolved (`id->route.path_rec`); `None` on RoCE and before.
    pub fn path(&self, id: CmId) -> Result<Option<PathRecord>, RdmaError> {
        let slot = self.ids.slot(id)?;
        let (route, address) = (&slot.route, &slot.route.address);
        if !self.router.is_infiniband() || address.remote_lid == 0 {
            return Ok(None);
        }
        Ok(Some(PathRecord {
            dgid: address.remote_gid,
            sgid: address.local_gid,
            dlid: address.remote_lid,
            slid: address.local_lid,
            flow_label: address.flow_label,
            hop_limit: address.hop_limit,
            traffic_class: address.traffic_class,
            reversible: 1,
            numb_path: 1,
            pkey: address.pkey,
            sl: address.service_level,
            mtu: route.path_mtu,
            rate: route.rate,
            packet_life_time: route.packet_life_time,
            ..PathRecord::ZERO
        }))
    }

    /// The application has the path from elsewhere (`RDMA_OPTION_IB_PATH`), in place of `resolve_route`.
    pub(crate) fn use_path(&mut self, id: CmId, path: &PathRecord) -> Result<(), RdmaError> {
        let index = self.ids.index(id)?;
        let state = self.ids[index].state;
        if state != IdState::AddrResolved {
            return Err(RdmaError::WrongState {
                call: "set_option",
                state,
            });
        }
        if !self.router.is_infiniband() {
            return Err(RdmaError::Unsupported("InfiniBand's paths on RoCE"));
        }
        self.router.take_path(&mut self.ids[index], path)?;
        self.ids.push(index, EventType::RouteResolved, 0);
        self.complete(id)
    }
}
