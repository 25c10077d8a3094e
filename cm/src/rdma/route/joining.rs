//! The multicast groups that ids are in: requesting, joining and leaving them.

use core::net::IpAddr;
use core::ops::{Deref, DerefMut};
use core::time::Duration;

use bareverbs_core::Platform;
use bareverbs_core::ah::AhAttr;

use crate::engine::Address;
use crate::mad::sa::McMemberRecord;
use crate::rdma::id::group::GroupSlot;
use crate::rdma::id::slot::IdSlot;
#[cfg(feature = "attached-qps")]
use crate::rdma::id::slot::PENDING;
use crate::rdma::id::table::IdTable;
use crate::rdma::resolver::{Neighbours, Resolver, Subnet};
use crate::rdma::route::router::Router;
use crate::rdma::types::error::RdmaError;
use crate::rdma::types::{CmId, EventType, UdEvent};

/// The QP number that means all of a group's.
const MULTICAST_QPN: u32 = 0xff_ffff;

/// The events of an id with which no more joins are reported: the other places are for the application's own and for what ends
/// the id's work.
#[cfg(feature = "attached-qps")]
const JOINS: usize = PENDING / 2;

/// A slot for each group of each id.
#[derive(Debug)]
pub(crate) struct Groups<'s>(&'s mut [GroupSlot]);

impl Deref for Groups<'_> {
    type Target = [GroupSlot];

    fn deref(&self) -> &Self::Target {
        self.0
    }
}

impl DerefMut for Groups<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.0
    }
}

impl<'s> Groups<'s> {
    /// No groups.
    pub(crate) fn new(slots: &'s mut [GroupSlot]) -> Self {
        slots.fill(GroupSlot::EMPTY);
        Self(slots)
    }

    /// A slot that is free.
    pub(crate) fn free(&self) -> Result<usize, RdmaError> {
        let free = self.iter().position(|slot| slot.owner.is_none());
        free.ok_or(RdmaError::Full {
            what: "multicast groups",
            capacity: self.len(),
        })
    }

    /// Where an id's membership of a group is kept.
    pub(crate) fn find(&self, id: CmId, group: IpAddr) -> Option<usize> {
        self.iter()
            .position(|slot| slot.owner == Some(id) && slot.group == group)
    }

    /// The fields of `MulticastJoin`: where to send, and the context.
    pub(crate) fn describe(&self, id: CmId, place: u64) -> (UdEvent, u64) {
        match self.get(place as usize) {
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

    /// The QP of an id is destroyed, but not the id: the id stays in its groups.
    pub(crate) fn detach<P: Platform>(&mut self, id: CmId, owner: &mut IdSlot<'_, P>) {
        if !cfg!(feature = "datagrams") || owner.conn.groups == 0 {
            return;
        }
        for slot in self.iter_mut() {
            if slot.owner == Some(id) {
                slot.detach(owner.objects.qp.as_mut());
            }
        }
    }

    /// Processes the answers for the groups that were asked for, and for those that were asked for again. Messages to
    /// send are then with the resolver.
    pub(crate) fn ask<P: Platform, R: Resolver>(
        &mut self,
        router: &mut Router<'_, '_, P, R>,
        ids: &mut IdTable<'_, '_, P>,
        now: Duration,
    ) {
        if !router.is_infiniband() {
            return;
        }
        for place in 0..self.len() {
            let slot = &self[place];
            let (Some(owner), Some(membership)) = (slot.owner, slot.membership) else {
                continue;
            };
            let (joining, until) = (slot.joining, slot.until);
            let Ok(index) = ids.index(owner) else {
                continue;
            };
            let outcome = match router.resolver.subnet_mut().membership(now, &membership) {
                Ok(Some(record)) if joining => self.enter(router, ids, index, place, &record),
                Ok(None) if joining && now >= until => Err(RdmaError::TimedOut),
                Ok(_) => continue,
                Err(error) => Err(error),
            };
            if let Err(error) = outcome {
                if let Err(error) = self.leave(router, &mut ids[index], now, place) {
                    log::warn!("a group could not be left: {error}");
                }
                ids.push_failure(index, EventType::MulticastError, error);
            }
        }
    }

    /// The port is in the group; now the QP.
    fn enter<P: Platform, R: Resolver>(
        &mut self,
        router: &Router<'_, '_, P, R>,
        ids: &mut IdTable<'_, '_, P>,
        index: usize,
        place: usize,
        record: &McMemberRecord,
    ) -> Result<(), RdmaError> {
        let (ours, theirs) = (ids[index].conn.qkey, record.qkey);
        if ours != 0 && ours != theirs {
            return Err(RdmaError::WrongQkey { ours, theirs });
        }
        let address = Address {
            remote_gid: record.mgid,
            local_lid: router.port().lid,
            remote_lid: record.mlid,
            flow_label: record.flow_label,
            traffic_class: record.traffic_class,
            // Packets to groups always have a global header.
            hop_limit: record.hop_limit.max(1),
            service_level: record.sl,
            ..Address::default()
        };
        let path = router.ah_attr_at(&address, record.rate);
        let slot = GroupSlot {
            path: AhAttr {
                hop_limit: record.hop_limit,
                ..path
            },
            qkey: record.qkey,
            joining: false,
            ..self[place]
        };
        let attached = ids[index].objects.attach(&slot)?;
        self[place] = GroupSlot { attached, ..slot };
        self.tell(ids, index, place);
        Ok(())
    }

    /// Reports that an id has joined a group. C's programs may join any number before they take the events, as on Linux.
    pub(crate) fn tell<P: Platform>(
        &mut self,
        ids: &mut IdTable<'_, '_, P>,
        index: usize,
        place: usize,
    ) {
        #[cfg(feature = "attached-qps")]
        if ids[index].events.len() >= JOINS {
            self[place].untold = true;
            return;
        }
        ids.push_with(index, EventType::MulticastJoin, 0, place as u64);
    }

    /// Reports those that had to wait, in the order of the joins, as far as there are places.
    #[cfg(feature = "attached-qps")]
    pub(crate) fn tell_others<P: Platform>(&mut self, ids: &mut IdTable<'_, '_, P>, index: usize) {
        let id = ids.id_of(index);
        while ids[index].conn.groups > 0 && ids[index].events.len() < JOINS {
            let all = self.iter_mut().enumerate();
            let waiting = all.filter(|(_, slot)| slot.owner == Some(id) && slot.untold);
            let Some((place, slot)) = waiting.min_by_key(|(_, slot)| slot.until) else {
                return;
            };
            slot.untold = false;
            ids.push_with(index, EventType::MulticastJoin, 0, place as u64);
        }
    }

    /// Takes an id out of a group. On InfiniBand the resolver has something to send then.
    pub(crate) fn leave<P: Platform, R: Resolver>(
        &mut self,
        router: &mut Router<'_, '_, P, R>,
        owner: &mut IdSlot<'_, P>,
        now: Duration,
        place: usize,
    ) -> Result<(), RdmaError> {
        let slot = &mut self[place];
        slot.detach(owner.objects.qp.as_mut());
        let GroupSlot {
            group,
            vlan,
            send_only,
            membership,
            ..
        } = *slot;
        *slot = GroupSlot::EMPTY;
        owner.conn.groups -= 1;
        if let Some(membership) = membership {
            router.resolver.subnet_mut().leave(now, &membership);
            return Ok(());
        }
        if send_only {
            return Ok(());
        }
        router
            .resolver
            .neighbours_mut()
            .leave_group(now, group, vlan)
    }

    /// Takes an id that is destroyed out of all its groups.
    pub(crate) fn leave_all<P: Platform, R: Resolver>(
        &mut self,
        router: &mut Router<'_, '_, P, R>,
        id: CmId,
        owner: &mut IdSlot<'_, P>,
        now: Duration,
    ) {
        for place in 0..self.len() {
            if owner.conn.groups == 0 {
                return;
            }
            if self[place].owner == Some(id)
                && let Err(error) = self.leave(router, owner, now, place)
            {
                log::warn!("a group could not be left: {error}");
            }
        }
    }
}
