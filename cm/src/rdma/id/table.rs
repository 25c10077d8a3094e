//! The table of ids and event channels: free slots, handles, and the queues of events between them.

use core::ops::{Deref, DerefMut};

use bareverbs_core::{Device, Platform};

use crate::engine::{ConnectionId, SidrId};
use crate::rdma::id::slot::{ChannelSlot, IdSlot, PENDING, Pending, Place, Queue, Target, places};
use crate::rdma::id::waiters::Waiters;
use crate::rdma::resolver::AddressChange;
use crate::rdma::types::error::{RdmaError, errno};
use crate::rdma::types::id::NIL;
use crate::rdma::types::{ChannelId, CmId, EventType, IdState};
use crate::rdma::verbs::ending::Progress;

/// The slots of ids, and the event channels that ids report to.
#[derive(Debug)]
pub(crate) struct IdTable<'s, 'd, P: Platform> {
    slots: &'s mut [IdSlot<'d, P>],
    pub(crate) channels: &'s mut [ChannelSlot],
    free_head: u32,
    in_use: usize,
    /// Slots of ids that are gone, whose objects are being destroyed.
    ending: usize,
    pub(super) ports: PortRange,
    /// The device is lost.
    removed: bool,
}

/// The ports for ids that do not ask for one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PortRange {
    pub(crate) first: u16,
    pub(crate) last: u16,
    /// Where to look for the next one that is free.
    pub(crate) next: u16,
}

impl<'d, P: Platform> Deref for IdTable<'_, 'd, P> {
    type Target = [IdSlot<'d, P>];

    #[inline]
    fn deref(&self) -> &Self::Target {
        self.slots
    }
}

impl<P: Platform> DerefMut for IdTable<'_, '_, P> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.slots
    }
}

impl<'s, 'd, P: Platform> IdTable<'s, 'd, P> {
    /// A table of empty slots. Generations go on, so that ids of an earlier manager are none here.
    pub(crate) fn new(
        slots: &'s mut [IdSlot<'d, P>],
        channels: &'s mut [ChannelSlot],
        ports: PortRange,
    ) -> Self {
        let count = slots.len();
        for (index, slot) in slots.iter_mut().enumerate() {
            let generation = slot.links.generation;
            *slot = IdSlot::EMPTY;
            slot.links.generation = generation;
            slot.links.free_next = if index + 1 < count {
                index as u32 + 1
            } else {
                NIL
            };
        }
        channels.fill(ChannelSlot::EMPTY);
        Self {
            slots,
            channels,
            free_head: if count == 0 { NIL } else { 0 },
            in_use: 0,
            ending: 0,
            ports,
            removed: false,
        }
    }

    /// Ids in use.
    pub(crate) const fn in_use(&self) -> usize {
        self.in_use
    }

    /// Slots of ids that are gone, whose objects are being destroyed.
    pub(crate) const fn ending(&self) -> usize {
        self.ending
    }

    /// Frees the slot of an id, which is in no list any more.
    pub(crate) fn free(&mut self, index: usize) {
        self.end(index);
        self.ended(index);
    }

    /// An id, which is in no list any more, is gone; its objects are destroyed in its slot.
    pub(crate) fn end(&mut self, index: usize) {
        let slot = &mut self[index];
        slot.used = false;
        slot.work.ending = true;
        slot.links.generation = slot.links.generation.wrapping_add(1);
        slot.events.waiters.wake();
        self.in_use -= 1;
        self.ending += 1;
    }

    /// The objects are destroyed: the slot is free.
    pub(crate) fn ended(&mut self, index: usize) {
        let free = self.free_head;
        let slot = &mut self[index];
        (slot.work.ending, slot.work.recycle) = (false, None);
        slot.links.free_next = free;
        self.free_head = index as u32;
        self.ending -= 1;
    }

    /// Returns `true` if the only slots that are left are those of ids that are gone.
    pub(crate) fn has_only_endings(&self) -> bool {
        self.free_head == NIL && self.ending > 0
    }

    pub(crate) fn alloc(&mut self) -> Result<u32, RdmaError> {
        let index = self.free_head;
        let Some(slot) = self.get_mut(index as usize) else {
            return Err(RdmaError::Full {
                what: "ids",
                capacity: self.len(),
            });
        };
        self.free_head = slot.links.free_next;
        self.in_use += 1;
        Ok(index)
    }

    pub(crate) fn count_user(&mut self, target: Target, more: bool) {
        if let Target::Channel(channel) = target
            && let Some(slot) = self.channels.get_mut(channel.index as usize)
            && slot.generation == channel.generation
        {
            slot.users = if more {
                slot.users + 1
            } else {
                slot.users.saturating_sub(1)
            };
        }
    }

    pub(crate) fn id_of(&self, index: usize) -> CmId {
        CmId {
            index: index as u32,
            generation: self[index].links.generation,
        }
    }

    pub(crate) fn index(&self, id: CmId) -> Result<usize, RdmaError> {
        match self.get(id.index as usize) {
            Some(slot) if slot.used && slot.links.generation == id.generation => {
                Ok(id.index as usize)
            }
            _ => Err(RdmaError::NoSuchId),
        }
    }

    pub(crate) fn slot(&self, id: CmId) -> Result<&IdSlot<'d, P>, RdmaError> {
        self.index(id).map(|index| &self[index])
    }

    pub(crate) fn slot_mut(&mut self, id: CmId) -> Result<&mut IdSlot<'d, P>, RdmaError> {
        let index = self.index(id)?;
        Ok(&mut self[index])
    }

    pub(crate) fn channel(&self, channel: ChannelId) -> Result<usize, RdmaError> {
        match self.channels.get(channel.index as usize) {
            Some(slot) if slot.used && slot.generation == channel.generation => {
                Ok(channel.index as usize)
            }
            _ => Err(RdmaError::NoSuchChannel),
        }
    }

    /// Returns `true` if the id works without a channel.
    pub(crate) fn is_sync(&self, index: usize) -> bool {
        self[index].events.target == Target::Id(index as u32)
    }

    pub(crate) fn queue(&self, target: Target) -> Queue {
        match target {
            Target::Id(index) => self
                .get(index as usize)
                .map_or(Queue::EMPTY, |slot| slot.events.own),
            Target::Channel(channel) => self
                .channels
                .get(channel.index as usize)
                .map_or(Queue::EMPTY, |slot| slot.queue),
        }
    }

    fn set_queue(&mut self, target: Target, queue: Queue) {
        match target {
            Target::Id(index) => {
                if let Some(slot) = self.get_mut(index as usize) {
                    slot.events.own = queue;
                }
            }
            Target::Channel(channel) => {
                if let Some(slot) = self.channels.get_mut(channel.index as usize) {
                    slot.queue = queue;
                }
            }
        }
    }

    /// The place of an event in its queue.
    pub(crate) fn place(&self, at: u32) -> Option<&Place> {
        let slot = self.get(at as usize / PENDING)?;
        Some(&slot.events.places[at as usize % PENDING])
    }

    fn place_mut(&mut self, at: u32) -> Option<&mut Place> {
        let slot = self.get_mut(at as usize / PENDING)?;
        Some(&mut slot.events.places[at as usize % PENDING])
    }

    /// Puts an event at the end of a queue.
    fn put(&mut self, target: Target, at: u32, pending: Pending) {
        let mut queue = self.queue(target);
        match self.place_mut(queue.tail) {
            Some(tail) => tail.next = at,
            None => queue.head = at,
        }
        if let Some(place) = self.place_mut(at) {
            *place = Place {
                pending: Some(pending),
                prev: queue.tail,
                next: NIL,
            };
        }
        queue.tail = at;
        self.set_queue(target, queue);
        if let Some(waiters) = self.waiters_mut(target) {
            waiters.wake();
        }
    }

    /// The tasks that wait for the events of a queue.
    pub(crate) fn waiters_mut(&mut self, target: Target) -> Option<&mut Waiters> {
        match target {
            Target::Id(index) => {
                let slot = self.get_mut(index as usize)?;
                Some(&mut slot.events.waiters)
            }
            Target::Channel(channel) => {
                let slot = self.channels.get_mut(channel.index as usize)?;
                Some(&mut slot.waiters)
            }
        }
    }

    /// Takes an event out of its queue, if there is one in this place.
    fn take(&mut self, target: Target, at: u32) -> Option<Pending> {
        let place = self.place_mut(at)?;
        let pending = place.pending.take()?;
        let (prev, next) = (place.prev, place.next);
        let mut queue = self.queue(target);
        match self.place_mut(prev) {
            Some(place) => place.next = next,
            None => queue.head = next,
        }
        match self.place_mut(next) {
            Some(place) => place.prev = prev,
            None => queue.tail = prev,
        }
        self.set_queue(target, queue);
        Some(pending)
    }

    /// Moves an event to the end of another queue, if there is one in this place.
    pub(crate) fn move_event(&mut self, from: Target, at: u32, to: Target) {
        if let Some(pending) = self.take(from, at) {
            self.put(to, at, pending);
        }
    }

    /// Drops these events of an id. Returns `true` if there were any.
    pub(crate) fn withdraw(&mut self, index: usize, which: impl Fn(&Pending) -> bool) -> bool {
        let target = self[index].events.target;
        let mut any = false;
        for at in places(index) {
            let pending = self.place(at).and_then(|place| place.pending);
            if pending.is_some_and(|pending| which(&pending)) {
                any |= self.take(target, at).is_some();
            }
        }
        any
    }

    /// Reports an event.
    pub(crate) fn push(&mut self, index: usize, event: EventType, status: i32) {
        self.push_with(index, event, status, 0);
    }

    pub(crate) fn push_with(
        &mut self,
        index: usize,
        event: EventType,
        status: i32,
        arg: u64,
    ) -> bool {
        let events = &self[index].events;
        let target = events.target;
        let mut places = places(index).zip(&events.places);
        let Some((at, _)) = places.find(|(_, place)| place.pending.is_none()) else {
            log::warn!("an id has too many events that are not fetched; {event} is lost");
            return false;
        };
        self.put(target, at, Pending { event, status, arg });
        true
    }

    /// The device is lost: every id has one event of it, and can only be destroyed after.
    pub(crate) fn remove(&mut self) {
        if core::mem::replace(&mut self.removed, true) {
            return;
        }
        for index in 0..self.len() {
            if self[index].used {
                self.push(index, EventType::DeviceRemoval, 0);
            }
        }
    }

    /// Keeps the private data that came with an event.
    pub(crate) fn store_private_data(&mut self, index: usize, event: EventType, data: &[u8]) {
        let slot = &mut self[index];
        slot.events.private[..data.len()].copy_from_slice(data);
        slot.events.private_len = data.len() as u8;
        slot.events.private_event = Some(event);
    }

    /// The engine's connection of an id.
    pub(crate) fn connection(
        &self,
        index: usize,
        call: &'static str,
    ) -> Result<ConnectionId, RdmaError> {
        let slot = &self[index];
        slot.conn.id.ok_or(RdmaError::WrongState {
            call,
            state: slot.state,
        })
    }

    /// The SIDR_REQ that an id has to answer.
    pub(crate) fn asked(&self, index: usize, call: &'static str) -> Result<SidrId, RdmaError> {
        let slot = &self[index];
        slot.conn
            .sidr
            .filter(|_| slot.conn.passive)
            .ok_or(RdmaError::WrongState {
                call,
                state: slot.state,
            })
    }

    /// Reports a failure: the event carries its errno, a synchronous call the error itself.
    pub(crate) fn push_failure(&mut self, index: usize, event: EventType, error: RdmaError) {
        self[index].events.failure = Some(error);
        self.push(index, event, -error.status());
    }

    /// A peer is no longer where ids send to, on RoCE: those that have resolved their route to it hear so
    /// (`RDMA_CM_EVENT_UNREACHABLE`), as from `cma_netevent_callback` of Linux's core/cma.c, whose table has the ids of
    /// `rdma_resolve_route`, by interface and address: the same address in another VLAN is another peer. Nothing else follows.
    pub(crate) fn neighbour_changed(&mut self, device: &Device<'_, P>, change: &AddressChange) {
        for index in 0..self.len() {
            let slot = &self[index];
            let concerned = slot.used
                && !slot.conn.passive
                && !slot.route.ip
                && matches!(
                    slot.state,
                    IdState::RouteResolved | IdState::Connect | IdState::Disconnect
                )
                && slot
                    .route
                    .peer
                    .is_some_and(|peer| peer.ip() == change.address)
                && change.mac != slot.route.address.remote_mac
                && device
                    .port_gid(slot.route.address.link as u16)
                    .is_some_and(|entry| entry.vlan == change.vlan);
            // An id that has not fetched it hears it once, however often the peer moves: what ends the connection needs its place.
            let events = &slot.events;
            let told = events.len() >= PENDING / 2 || events.has(EventType::Unreachable);
            if concerned && !told {
                self.push(index, EventType::Unreachable, -errno::ETIMEDOUT);
            }
        }
    }

    /// Takes the oldest event of a queue: events are fetched in the order in which they came, of whichever id, as from Linux's
    /// core/ucma.c, which has one list for each channel.
    pub(crate) fn pop(&mut self, target: Target) -> Option<(usize, Pending)> {
        let at = self.queue(target).head;
        let pending = self.take(target, at)?;
        Some((at as usize / PENDING, pending))
    }
}

impl<P: Platform> IdTable<'_, '_, P> {
    /// Waits until the objects of all ids that are gone are destroyed.
    pub(crate) fn finish_endings(&mut self, device: &Device<'_, P>) {
        for index in 0..self.len() {
            if self.ending() == 0 {
                return;
            }
            if !self[index].work.ending {
                continue;
            }
            while self[index].objects.step_ending() != Progress::Done {
                // A device that has died is found in the answer.
                let _ = device.poll();
                device.platform().relax();
            }
            self.ended(index);
        }
    }
}
