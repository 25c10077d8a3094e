//! Multicast groups of ids for datagrams. On RoCE the group's address is its GID, and the resolver reports it to the
//! switches (IGMP, MLD), so that there is no service to ask. On InfiniBand subnet administration makes the group, and
//! says how to reach it.

use core::net::IpAddr;
use core::time::Duration;

use bareverbs_core::Platform;
use bareverbs_core::ah::AhAttr;

use crate::ip::HostError;
use crate::mad::sa::JoinState;
use crate::rdma::id::group::{GroupSlot, JoinMulticast, group_neighbour, mgid, roce_group};
use crate::rdma::manager::RdmaCm;
use crate::rdma::port::gsi;
use crate::rdma::resolver::{Membership, Neighbours, Resolver, Subnet};
use crate::rdma::types::error::RdmaError;
use crate::rdma::types::{CmId, EventType, IdState, UDP_QKEY};

/// Time for subnet administration to let the port join.
const JOINING: Duration = Duration::from_secs(3);

impl<P: Platform, R: Resolver> RdmaCm<'_, '_, P, R> {
    /// Joins a multicast group (`rdma_join_multicast`). The id has to be bound to an address of the device. Its QP, if it has
    /// one, receives what is sent there from now on; another one has to be attached by the application.
    ///
    /// On InfiniBand an IPv6 group is a GID as it is; an IPv4 one, and of an id that has IP addresses an IPv6 one as well, means
    /// the GID that Linux's RDMA CM makes of it.
    ///
    /// What follows is `MulticastJoin`, which says where to send ([`UdEvent`](crate::rdma::UdEvent)) and has `context` in
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
        if !slot.id_type.is_datagram() {
            return Err(RdmaError::WrongType {
                call: "join_multicast",
                id_type: slot.id_type,
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
        if group.is_ipv6() && source.is_ipv4() && !self.router.is_infiniband() {
            return Err(RdmaError::FamilyMismatch);
        }
        if self.groups.find(id, group).is_some() {
            return Err(RdmaError::AddrInUse((group, 0).into()));
        }
        let place = self.groups.free()?;
        let slot = &self.ids[index];
        if slot.objects.qp.is_making() || slot.work.fresh.is_some() {
            // It has to be there, so that it can be attached.
            self.wait_for_qp(index)?;
        }
        if self.router.is_infiniband() {
            return self.join_by_subnet_administration(index, place, join);
        }
        let (link, vlan) = self
            .router
            .own_entry(source)
            .ok_or(RdmaError::NoDevice(source))?;
        let now = self.now();
        if !join.send_only {
            self.router
                .resolver
                .neighbours_mut()
                .join_group(now, group, vlan)?;
        }
        let version = self.router.resolver.neighbours().roce_version();
        let neighbour = group_neighbour(version, group);
        let mut slot = GroupSlot {
            owner: Some(id),
            group,
            vlan,
            context: join.context,
            path: AhAttr {
                dgid: gsi::gid(roce_group(version, group)),
                sgid_index: link,
                hop_limit: neighbour.hop_limit,
                traffic_class: tos,
                dmac: neighbour.mac,
                port_num: 1,
                ..AhAttr::default()
            },
            send_only: join.send_only,
            until: now,
            ..GroupSlot::EMPTY
        };
        self.ids[index].events.failure = None;
        match self.ids[index].objects.attach(&slot) {
            Ok(attached) => {
                slot.attached = attached;
                self.groups[place] = slot;
                self.ids[index].conn.groups += 1;
                self.groups.tell(&mut self.ids, index, place);
            }
            Err(error) => {
                if !join.send_only {
                    self.router
                        .resolver
                        .neighbours_mut()
                        .leave_group(now, group, vlan)?;
                }
                self.ids
                    .push_failure(index, EventType::MulticastError, error);
            }
        }
        self.complete(id)
    }

    /// Asks subnet administration to let the port join.
    fn join_by_subnet_administration(
        &mut self,
        index: usize,
        place: usize,
        join: &JoinMulticast,
    ) -> Result<(), RdmaError> {
        let (id, slot) = (self.ids.id_of(index), &self.ids[index]);
        let pkey = slot.route.address.pkey;
        let membership = Membership {
            mgid: mgid(slot.port_space, join.group, pkey, slot.route.ip),
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
        self.router
            .resolver
            .subnet_mut()
            .join(now, &membership, until)?;
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
        self.groups.ask(&mut self.router, &mut self.ids, now);
        self.flush(now)?;
        self.complete(id)
    }

    /// Leaves a multicast group (`rdma_leave_multicast`). An event of it that was not fetched is dropped.
    pub fn leave_multicast(&mut self, id: CmId, group: IpAddr) -> Result<(), RdmaError> {
        let index = self.ids.index(id)?;
        let place = self
            .groups
            .find(id, group)
            .ok_or(RdmaError::NotJoined(group))?;
        self.ids.withdraw(index, |it| {
            it.event == EventType::MulticastJoin && it.arg == place as u64
        });
        let now = self.now();
        self.groups
            .leave(&mut self.router, &mut self.ids[index], now, place)?;
        #[cfg(feature = "attached-qps")]
        self.groups.tell_others(&mut self.ids, index);
        if self.router.is_infiniband() {
            self.flush(now)?;
        }
        Ok(())
    }
}
