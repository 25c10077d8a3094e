//! Multicast groups of ids for datagrams. On RoCE the group's address is its GID, and the switches are told by the resolver
//! (IGMP, MLD), so that there is no service to ask. On InfiniBand subnet administration makes the group, and says how to reach it.

use core::net::IpAddr;
use core::time::Duration;

use bareverbs_core::Platform;
use bareverbs_core::ah::AhAttr;

use crate::engine::Address;
use crate::ip::HostError;
use crate::mad::sa::{JoinState, McMemberRecord};
use crate::rdma::conn::group::{GroupSlot, JoinMulticast, mgid, way_to};
use crate::rdma::manager::RdmaCm;
use crate::rdma::port::gsi;
use crate::rdma::route::resolver::{Membership, Resolver};
use crate::rdma::types::error::RdmaError;
use crate::rdma::types::{CmId, EventType, IdState, UDP_QKEY, UdEvent};
use crate::rdma::verbs::objects::IdQp;

/// How long subnet administration has to let the port in.
const JOINING: Duration = Duration::from_secs(3);

/// The QP number that means all of a group's.
const MULTICAST_QPN: u32 = 0xff_ffff;

impl<P: Platform, R: Resolver> RdmaCm<'_, '_, P, R> {
    /// Joins a multicast group (`rdma_join_multicast`). The id has to be bound to an address of the device. Its QP, if it has
    /// one, receives what is sent there from now on; another one has to be attached by the application.
    ///
    /// On InfiniBand an IPv6 group is a GID as it is, and an IPv4 one stands for the GID that Linux' RDMA CM makes of it.
    ///
    /// What follows is `MulticastJoin`, which says where to send ([`UdEvent`]) and has `context` in
    /// [`arg`](crate::rdma::CmEvent::arg), or `MulticastError`.
    pub fn join_multicast(
        &mut self,
        id: CmId,
        group: IpAddr,
        context: u64,
    ) -> Result<(), RdmaError> {
        self.join_multicast_ex(
            id,
            &JoinMulticast {
                group,
                send_only: false,
                context,
            },
        )
    }

    /// The same with a choice of how (`rdma_join_multicast_ex`).
    pub fn join_multicast_ex(&mut self, id: CmId, join: &JoinMulticast) -> Result<(), RdmaError> {
        let index = self.ids.index(id)?;
        let group = join.group;
        let slot = &self.ids[index];
        let (state, tos) = (slot.state, slot.options.tos);
        if !slot.port_space.is_datagram() {
            return Err(RdmaError::WrongPortSpace {
                call: "join_multicast",
                port_space: slot.port_space,
            });
        }
        if !matches!(
            state,
            IdState::AddrBound | IdState::AddrResolved | IdState::RouteResolved
        ) {
            return Err(RdmaError::WrongState {
                call: "join_multicast",
                state,
            });
        }
        let Some(source) = slot
            .route
            .local
            .map(|local| local.ip())
            .filter(|_| slot.route.bound)
        else {
            return Err(RdmaError::NotBound);
        };
        if !group.is_multicast() {
            return Err(RdmaError::Host(HostError::NotAGroup(group)));
        }
        if group.is_ipv4() != source.is_ipv4() && !self.router.is_infiniband() {
            return Err(RdmaError::FamilyMismatch);
        }
        if self.group_of(id, group).is_some() {
            return Err(RdmaError::AddrInUse((group, 0).into()));
        }
        let capacity = self.groups.len();
        let free = self.groups.iter().position(|slot| slot.owner.is_none());
        let place = free.ok_or(RdmaError::Full {
            what: "multicast groups",
            capacity,
        })?;
        if self.router.is_infiniband() {
            return self.join_by_asking(index, place, join);
        }
        let (link, vlan) = self
            .router
            .own_entry(source)
            .ok_or(RdmaError::NoDevice(source))?;
        let now = self.now();
        if !join.send_only {
            self.router.resolver.join_group(now, group, vlan)?;
        }
        let way = way_to(group);
        let mut slot = GroupSlot {
            owner: Some(id),
            group,
            vlan,
            context: join.context,
            path: AhAttr {
                dgid: gsi::gid(group),
                sgid_index: link,
                hop_limit: way.hop_limit,
                traffic_class: tos,
                dmac: way.mac,
                port_num: 1,
                ..AhAttr::default()
            },
            send_only: join.send_only,
            ..GroupSlot::EMPTY
        };
        self.ids[index].events.failure = None;
        match self.attach(index, &slot) {
            Ok(attached) => {
                slot.attached = attached;
                self.groups[place] = slot;
                self.ids[index].conn.groups += 1;
                self.ids
                    .push_with(index, EventType::MulticastJoin, 0, place as u64);
            }
            Err(error) => {
                if !join.send_only {
                    self.router.resolver.leave_group(now, group, vlan)?;
                }
                self.ids
                    .push_failure(index, EventType::MulticastError, error);
            }
        }
        self.complete(id)
    }

    /// Lets an id's QP, if it has one, receive what is sent to a group.
    fn attach(&mut self, index: usize, slot: &GroupSlot) -> Result<bool, RdmaError> {
        match &mut self.ids[index].objects.qp {
            Some(IdQp::Ud(qp)) if !slot.send_only => {
                qp.attach_mcast(slot.path.dgid)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Asks subnet administration to let the port in.
    fn join_by_asking(
        &mut self,
        index: usize,
        place: usize,
        join: &JoinMulticast,
    ) -> Result<(), RdmaError> {
        let (id, slot) = (self.ids.id_of(index), &self.ids[index]);
        let pkey = slot.route.address.pkey;
        let membership = Membership {
            mgid: mgid(slot.port_space, join.group, pkey),
            port_gid: self.router.gid().0,
            pkey,
            qkey: UDP_QKEY,
            traffic_class: slot.options.tos,
            join_state: if join.send_only {
                JoinState::SendOnlyFullMember
            } else {
                JoinState::FullMember
            },
        };
        let now = self.now();
        let until = now.saturating_add(JOINING);
        self.router.resolver.join(now, &membership, until)?;
        self.ids[index].events.failure = None;
        self.ids[index].conn.groups += 1;
        self.groups[place] = GroupSlot {
            owner: Some(id),
            group: join.group,
            context: join.context,
            send_only: join.send_only,
            membership: Some(membership),
            joining: true,
            until,
            ..GroupSlot::EMPTY
        };
        self.ask_for_groups(now);
        self.flush(now)?;
        self.complete(id)
    }

    /// Looks what became of the groups that were asked for, and of those that were asked for again.
    pub(crate) fn ask_for_groups(&mut self, now: Duration) {
        if !self.router.is_infiniband() {
            return;
        }
        for place in 0..self.groups.len() {
            let slot = &self.groups[place];
            let (Some(owner), Some(membership)) = (slot.owner, slot.membership) else {
                continue;
            };
            let (joining, until) = (slot.joining, slot.until);
            let Ok(index) = self.ids.index(owner) else {
                continue;
            };
            let outcome = match self.router.resolver.membership(now, &membership) {
                Ok(Some(record)) if joining => self.enter_group(index, place, &record),
                Ok(None) if joining && now >= until => Err(RdmaError::TimedOut),
                Ok(_) => continue,
                Err(error) => Err(error),
            };
            if let Err(error) = outcome {
                if let Err(error) = self.leave_place(index, place) {
                    log::warn!("a group could not be left: {error}");
                }
                self.ids
                    .push_failure(index, EventType::MulticastError, error);
            }
        }
    }

    /// The port is in the group; now the QP.
    fn enter_group(
        &mut self,
        index: usize,
        place: usize,
        record: &McMemberRecord,
    ) -> Result<(), RdmaError> {
        let (ours, theirs) = (self.ids[index].conn.qkey, record.qkey);
        if ours != 0 && ours != theirs {
            return Err(RdmaError::WrongQkey { ours, theirs });
        }
        let address = Address {
            remote_gid: record.mgid,
            local_lid: self.router.port().lid,
            remote_lid: record.mlid,
            flow_label: record.flow_label,
            traffic_class: record.traffic_class,
            // Packets to groups always have a global header.
            hop_limit: record.hop_limit.max(1),
            service_level: record.sl,
            ..Address::default()
        };
        let path = self.router.ah_attr_at(&address, record.rate);
        let slot = GroupSlot {
            path: AhAttr {
                hop_limit: record.hop_limit,
                ..path
            },
            qkey: record.qkey,
            joining: false,
            ..self.groups[place]
        };
        let attached = self.attach(index, &slot)?;
        self.groups[place] = GroupSlot { attached, ..slot };
        self.ids
            .push_with(index, EventType::MulticastJoin, 0, place as u64);
        Ok(())
    }

    /// Leaves a multicast group (`rdma_leave_multicast`). An event of it that was not fetched is dropped.
    pub fn leave_multicast(&mut self, id: CmId, group: IpAddr) -> Result<(), RdmaError> {
        let index = self.ids.index(id)?;
        let place = self
            .group_of(id, group)
            .ok_or(RdmaError::NotJoined(group))?;
        let slot = &mut self.ids[index];
        for _ in 0..slot.events.pending.len() {
            if let Some(pending) = slot.events.pending.pop_front()
                && (pending.event != EventType::MulticastJoin || pending.arg != place as u64)
            {
                let _ = slot.events.pending.push_back(pending);
            }
        }
        if slot.events.pending.is_empty() {
            self.ids.unqueue(index);
        }
        self.leave_place(index, place)
    }

    fn leave_place(&mut self, index: usize, place: usize) -> Result<(), RdmaError> {
        let slot = &mut self.groups[place];
        slot.detach(self.ids[index].objects.qp.as_mut());
        let GroupSlot {
            group,
            vlan,
            send_only,
            membership,
            ..
        } = *slot;
        *slot = GroupSlot::EMPTY;
        self.ids[index].conn.groups -= 1;
        let now = self.now();
        if let Some(membership) = membership {
            self.router.resolver.leave(now, &membership);
            return self.flush(now);
        }
        if send_only {
            return Ok(());
        }
        self.router.resolver.leave_group(now, group, vlan)
    }

    /// Leaves all groups of an id that goes.
    pub(crate) fn leave_groups(&mut self, index: usize) {
        let id = self.ids.id_of(index);
        for place in 0..self.groups.len() {
            if self.ids[index].conn.groups == 0 {
                return;
            }
            if self.groups[place].owner == Some(id)
                && let Err(error) = self.leave_place(index, place)
            {
                log::warn!("a group could not be left: {error}");
            }
        }
    }

    /// The QP of an id goes, but not the id: it stays in its groups.
    pub(crate) fn detach_groups(&mut self, index: usize) {
        if !cfg!(feature = "datagrams") || self.ids[index].conn.groups == 0 {
            return;
        }
        let id = self.ids.id_of(index);
        for slot in self.groups.iter_mut() {
            if slot.owner == Some(id) {
                slot.detach(self.ids[index].objects.qp.as_mut());
            }
        }
    }

    /// What `MulticastJoin` tells: where to send, and the context.
    pub(crate) fn describe_group(&self, index: usize, place: u64) -> (UdEvent, u64) {
        let id = self.ids.id_of(index);
        match self.groups.get(place as usize) {
            Some(slot) if slot.owner == Some(id) => {
                let ud = UdEvent {
                    ah_attr: slot.path,
                    qp_num: MULTICAST_QPN,
                    qkey: slot.qkey,
                };
                (ud, slot.context)
            }
            _ => (UdEvent::default(), 0),
        }
    }

    fn group_of(&self, id: CmId, group: IpAddr) -> Option<usize> {
        self.groups
            .iter()
            .position(|slot| slot.owner == Some(id) && slot.group == group)
    }
}
