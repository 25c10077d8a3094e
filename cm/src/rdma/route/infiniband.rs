//! Routes on InfiniBand: addresses are GIDs, paths come from subnet administration, and messages are routed
//! by LIDs.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use bareverbs_core::ah::AhAttr;
use bareverbs_core::wc::{NetworkHeader, Wc, WcFlags};
use bareverbs_core::{Gid, Mtu, Platform, StaticRate};

use crate::engine::Address;
#[cfg(feature = "infiniband")]
use crate::engine::AlternatePath;
#[cfg(feature = "infiniband")]
use crate::mad::AprStatus;
use crate::mad::sa::{PathRecord, SaRedirection, SaStatus};
use crate::rdma::id::group::mgid;
use crate::rdma::id::slot::IdSlot;
use crate::rdma::id::table::IdTable;
use crate::rdma::port::gsi::{self, GRH, Received};
use crate::rdma::resolver::{Attempt, Neighbours, PathQuery, Resolution, Resolver, Subnet};
use crate::rdma::route::router::Router;
use crate::rdma::types::awaited::Awaited;
use crate::rdma::types::error::RdmaError;
use crate::rdma::types::id::NIL;
use crate::rdma::types::id::service_id;
use crate::rdma::types::sockaddr::{ANY_GID, DEFAULT_PKEY, SockAddr, SockaddrIb};
use crate::rdma::types::{EventType, IdState, PortSpace};
#[cfg(feature = "infiniband")]
use crate::sa::PORT_LIDS;
use crate::sa::{SaError, check_path_fields};

/// For answers to what came with a global header.
const MOST_HOPS: u8 = 0xff;
/// The GUID of subnet administration in each subnet (IBTA vol. 1, 4.1.1; `IB_SA_WELL_KNOWN_GUID` of Linux).
const SA_GUID: u64 = 0x0200_0000_0000_0002;
const PKEY_BASE: u16 = 0x7fff;
const FULL_MEMBER: u16 = 0x8000;

/// The limit of a path with this rate on a port of this speed: none if the port is no faster, or if there is no such rate.
fn limit(rate: u8, port_mbps: u32) -> StaticRate {
    StaticRate::from_number(rate)
        .filter(|rate| rate.mbps().is_some_and(|mbps| mbps < port_mbps))
        .unwrap_or_default()
}

impl<P: Platform, R: Resolver> Router<'_, '_, P, R> {
    /// An address as ids keep it, and its partition.
    pub(crate) fn to_internal(
        &self,
        port_space: PortSpace,
        address: SockAddr,
    ) -> Result<(SocketAddr, u16), RdmaError> {
        match address {
            SockAddr::Ip(address) if !self.is_infiniband() => Ok((address, DEFAULT_PKEY)),
            SockAddr::Ib(address) if self.is_infiniband() => {
                Ok((address.in_port_space(port_space)?, address.partition()))
            }
            SockAddr::Ip(address) if self.resolver.neighbours().has_ip() => {
                Ok((address, self.resolver.neighbours().partition()))
            }
            SockAddr::Ip(_) => Err(RdmaError::Unsupported(
                "IP over InfiniBand with a resolver that is not for it",
            )),
            SockAddr::Ib(_) => Err(RdmaError::Unsupported("InfiniBand's addresses on RoCE")),
        }
    }

    /// Every address of the device, with any port.
    pub(crate) fn any_address(&self, port_space: PortSpace) -> SockAddr {
        if self.is_infiniband() {
            SockaddrIb::new(Gid::ZERO, port_space, 0).into()
        } else {
            SocketAddr::from(([0, 0, 0, 0], 0)).into()
        }
    }

    /// An address of an id as the application has it; `None` if it is an IP address.
    pub(crate) fn to_sockaddr(
        &self,
        slot: &IdSlot<'_, P>,
        address: Option<SocketAddr>,
    ) -> Option<SockaddrIb> {
        let address = address.filter(|_| self.is_infiniband() && !slot.route.ip)?;
        let pkey = slot.route.address.pkey;
        Some(SockaddrIb::of(address, slot.port_space, pkey))
    }

    /// Index of a partition in the port's table.
    pub(crate) fn pkey_index(&self, pkey: u16) -> Result<u16, RdmaError> {
        Ok(self.membership(pkey)?.0)
    }

    /// Returns the index of a partition in the port's table, and whether the port is a limited member.
    fn membership(&self, pkey: u16) -> Result<(u16, bool), RdmaError> {
        if !self.is_infiniband() {
            return Ok((0, false));
        }
        let found = self.device.find_pkey(pkey)?;
        let (index, entry) = found.ok_or(RdmaError::NoSuchPartition(pkey))?;
        Ok((index, entry & FULL_MEMBER == 0))
    }

    /// Returns `true` if an id on InfiniBand has IP addresses, by one that it is given.
    pub(crate) fn is_over_ip(&self, address: &SockAddr) -> bool {
        self.is_infiniband() && matches!(address, SockAddr::Ip(_))
    }

    /// The route of an id to its peer's IP address: the GID there. False if that is still being found out.
    pub(super) fn find_gid_by_ip(
        &mut self,
        slot: &mut IdSlot<'_, P>,
        now: Duration,
    ) -> Result<bool, RdmaError> {
        let (Some(local), Some(peer)) = (slot.route.local, slot.route.peer) else {
            return Err(RdmaError::NotBound);
        };
        let to = peer.ip();
        let source = if !slot.route.any_source {
            Some(local.ip())
        } else if self.resolver.neighbours().has_address(to) {
            Some(to)
        } else {
            self.resolver.neighbours_mut().source_for(to)
        };
        let source = source.ok_or(RdmaError::NetUnreachable(to))?;
        let gid = if self.resolver.neighbours().has_address(to) {
            self.gid.0
        } else if to.is_multicast() {
            mgid(slot.port_space, to, slot.route.address.pkey, true)
        } else {
            match self.resolver.neighbours_mut().resolve(now, source, to) {
                // Of a neighbour whose packets had no global header the GID comes with its answer.
                Resolution::Found(neighbour) => {
                    match self.resolver.neighbours().gid_of(neighbour.mac) {
                        Some(gid) => gid,
                        None => return Ok(false),
                    }
                }
                Resolution::Pending => return Ok(false),
                Resolution::NoRoute => return Err(RdmaError::NetUnreachable(to)),
                Resolution::NoAnswer => return Err(RdmaError::HostUnreachable(to)),
            }
        };
        (slot.route.pkey_index, slot.route.limited) = self.membership(slot.route.address.pkey)?;
        slot.route.local = Some(SocketAddr::new(source, local.port()));
        slot.route.bound = true;
        slot.route.address.local_gid = self.gid.0;
        slot.route.address.remote_gid = gid;
        slot.route.address.traffic_class = slot.options.tos;
        Ok(true)
    }

    /// The route of an id to its peer's GID, as far as it is known without a query.
    pub(super) fn find_gids(&self, slot: &mut IdSlot<'_, P>) -> Result<(), RdmaError> {
        let (Some(local), Some(peer)) = (slot.route.local, slot.route.peer) else {
            return Err(RdmaError::NotBound);
        };
        let own = IpAddr::V6(self.gid.to_ipv6());
        let to = match peer.ip() {
            ip if ip.is_unspecified() || ip.is_loopback() => own,
            ip if ip.is_multicast() => return Err(RdmaError::Unsupported("paths to groups")),
            ip => ip,
        };
        (slot.route.pkey_index, slot.route.limited) = self.membership(slot.route.address.pkey)?;
        slot.route.local = Some(SocketAddr::new(own, local.port()));
        slot.route.bound = true;
        slot.route.address.local_gid = self.gid.0;
        slot.route.address.remote_gid = gsi::gid(to).0;
        slot.route.address.traffic_class = slot.options.tos;
        Ok(())
    }

    /// Looks for the path of an id in `RouteQuery`. False if the answer is still to come.
    pub(super) fn ask_for_path(
        &mut self,
        ids: &mut IdTable<'_, '_, P>,
        now: Duration,
        index: usize,
    ) -> bool {
        let slot = &ids[index];
        let query = PathQuery {
            sgid: slot.route.address.local_gid,
            dgid: slot.route.address.remote_gid,
            pkey: slot.route.address.pkey,
            service_id: service_id(
                slot.port_space,
                slot.route.peer.map_or(0, |peer| peer.port()),
            ),
            traffic_class: slot.options.tos,
        };
        let (seq, until) = (slot.route.resolve_seq, slot.route.deadline);
        let attempt = Attempt { seq, until };
        let outcome = match self.resolver.subnet_mut().find_path(now, &query, attempt) {
            Ok(Some(path)) => self.take_path(&mut ids[index], &path),
            Ok(None) if now < until => return false,
            Ok(None) => Err(RdmaError::Unanswered(self.awaited(slot))),
            Err(RdmaError::Sa(SaError::Status(SaStatus::NO_RECORDS))) if slot.route.limited => Err(
                RdmaError::LimitedMember(slot.route.address.pkey & PKEY_BASE),
            ),
            Err(error) => Err(error),
        };
        match outcome {
            Ok(()) => ids.push(index, EventType::RouteResolved, 0),
            Err(error) => {
                ids[index].state = IdState::AddrResolved;
                ids.push_failure(index, EventType::RouteError, error);
            }
        }
        true
    }

    /// Gives an id the path that subnet administration, or the application, has for it.
    pub(crate) fn take_path(
        &self,
        slot: &mut IdSlot<'_, P>,
        path: &PathRecord,
    ) -> Result<(), RdmaError> {
        check_path_fields(path)?;
        let slid = path.slid & !self.path_mask();
        if slid != self.port.lid & !self.path_mask() {
            return Err(RdmaError::NotOurLid(path.slid));
        }
        slot.route.path_mtu = path.mtu.min(self.max_path_mtu()).max(Mtu::B256.number());
        slot.route.rate = path.rate;
        slot.route.packet_life_time = path.packet_life_time;
        slot.route.address.local_lid = path.slid;
        slot.route.address.remote_lid = path.dlid;
        // It may have the subnet's own prefix, with which the peer compares: a request has the path's (`cma_query_handler` and
        // `cma_connect_ib` of core/cma.c).
        slot.route.address.remote_gid = path.dgid;
        slot.route.address.service_level = path.sl;
        slot.route.address.flow_label = path.flow_label;
        slot.route.address.traffic_class = path.traffic_class;
        slot.route.address.hop_limit = path.hop_limit;
        #[cfg(feature = "infiniband")]
        {
            slot.route.alternate = None;
        }
        slot.state = IdState::RouteResolved;
        Ok(())
    }

    /// Checks whether a QP of this port can have this alternate path; if not, what the other end is answered.
    #[cfg(feature = "infiniband")]
    pub(crate) fn check_alternate(&self, path: &AlternatePath) -> Result<(), AprStatus> {
        if !self.device.capabilities().has_alternate_paths() {
            return Err(AprStatus::UNSUPPORTED);
        }
        let ours = (path.local_lid ^ self.port.lid) & !self.path_mask() == 0;
        if !ours || !PORT_LIDS.contains(&path.remote_lid) {
            return Err(AprStatus::INVALID_LID);
        }
        if path.local_gid != self.gid.0 {
            return Err(AprStatus::INVALID_GID);
        }
        Ok(())
    }

    /// The path in the device's format, at the rate that subnet administration has for it.
    pub(crate) fn ah_attr_at(&self, address: &Address, rate: u8) -> AhAttr {
        let static_rate = match address.remote_lid {
            0 => StaticRate::PORT,
            _ => limit(rate, self.port.rate_mbps),
        };
        AhAttr {
            static_rate,
            ..self.ah_attr(address)
        }
    }

    /// Returns what an id in `Connect` waits for.
    pub(crate) fn awaited_answer(&self, slot: &IdSlot<'_, P>) -> Awaited {
        let limited = slot.route.limited;
        Awaited::Answer {
            roce: (!self.is_infiniband()).then(|| self.resolver.neighbours().roce_version()),
            limited: limited.then_some(slot.route.address.pkey & PKEY_BASE),
        }
    }

    /// Where subnet administration is.
    pub(crate) fn sa_address(&self) -> Address {
        let subnet = u128::from_be_bytes(self.gid.0) & !u128::from(u64::MAX);
        let there = Gid((subnet | u128::from(SA_GUID)).to_be_bytes());
        Address {
            local_gid: self.gid.0,
            // The answer takes the header that the question has, and without one does not find a port that needs it.
            remote_gid: if self.port.grh_required {
                there.0
            } else {
                Gid::ZERO.0
            },
            local_lid: self.port.lid,
            remote_lid: self.port.sm_lid,
            service_level: self.port.sm_sl,
            pkey: DEFAULT_PKEY,
            ..Address::default()
        }
    }

    /// Where it has redirected to. A GID of another subnet's port takes a global header.
    pub(crate) fn redirected_address(&self, to: &SaRedirection) -> Address {
        let far = to.gid != [0; 16] && to.gid[..8] != self.gid.0[..8];
        Address {
            remote_gid: to.gid,
            remote_lid: to.lid,
            service_level: to.sl,
            flow_label: to.flow_label,
            traffic_class: to.traffic_class,
            hop_limit: if far { MOST_HOPS } else { 0 },
            ..self.sa_address()
        }
    }

    /// Takes a MAD of subnet administration's class. False if it did not come from there, and was dropped.
    pub(crate) fn handle_subnet_mad(
        &mut self,
        ids: &mut IdTable<'_, '_, P>,
        now: Duration,
        received: &Received,
    ) -> bool {
        let from = received.local.slid;
        if from != self.port.sm_lid && !self.resolver.subnet().asks(from) {
            log::debug!("LID {from:#x} is not subnet administration");
            return false;
        }
        self.resolver.subnet_mut().handle_mad(now, &received.mad);
        if self.wait_head != NIL {
            self.ask_again(ids, now);
        }
        true
    }

    /// The return path to the sender of a datagram.
    pub(super) fn ah_attr_from_local(&self, wc: &Wc, grh: &[u8; GRH]) -> Result<AhAttr, RdmaError> {
        let global = wc.flags.contains(WcFlags::GRH);
        let found = gsi::addresses(NetworkHeader::Grh, grh).filter(|_| global);
        if global && found.is_none() {
            return Err(RdmaError::NoNetworkHeader);
        }
        let (source, _, traffic_class) = found.unwrap_or((ANY_GID, ANY_GID, 0));
        Ok(self.ah_attr(&Address {
            remote_gid: gsi::gid(source).0,
            local_lid: u16::from(wc.dlid_path_bits),
            remote_lid: wc.slid,
            traffic_class,
            hop_limit: if global { MOST_HOPS } else { 0 },
            service_level: wc.sl,
            ..Address::default()
        }))
    }

    /// The return path to the sender of a MAD.
    pub(super) fn return_path_by_lid(&self, received: &Received) -> Address {
        let from = received.local;
        Address {
            local_gid: self.gid.0,
            remote_gid: gsi::gid(received.source).0,
            local_lid: self.port.lid | u16::from(from.path_bits) & self.path_mask(),
            remote_lid: from.slid,
            pkey: if received.pkey == 0 {
                DEFAULT_PKEY
            } else {
                received.pkey
            },
            traffic_class: received.traffic_class,
            hop_limit: if from.global { MOST_HOPS } else { 0 },
            service_level: from.service_level,
            ..Address::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::limit;
    use bareverbs_core::StaticRate;

    #[test]
    fn only_paths_that_are_slower_than_the_port_have_a_limit() {
        let number = |rate, port_mbps| limit(rate, port_mbps).number();
        // As fast as the port, faster, of no known rate.
        for rate in [0, 1, 16, 17, 63] {
            assert_eq!(limit(rate, 100_000), StaticRate::PORT, "{rate}");
        }
        // 40, 56 and 2.5 Gb/s.
        for rate in [7, 12, 2] {
            assert_eq!(number(rate, 100_000), rate);
        }
        // 56 Gb/s on a port of 56 Gb/s, 800 on one that is twice as fast.
        assert_eq!(limit(12, 56_000), StaticRate::PORT);
        assert_eq!(number(23, 1_600_000), 23);
    }
}
