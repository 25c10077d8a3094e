//! Finding connections and listeners: by communication ID, by the peer's ID and GUID, by its QP and GUID, by service.

use super::error::CmError;
use super::machine::Engine;
use super::slot::{Cause, ev, tx};
use super::state::State;
use super::types::{ConnectionId, ListenerId};
use super::units::exponent;
use super::wheel::NIL;

impl Engine<'_> {
    /// SplitMix64: all that communication IDs and PSNs need is to differ from boot to boot.
    pub(crate) fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.random;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// Takes a free slot, gives it a communication ID and draws its PSN.
    pub(super) fn allocate(&mut self) -> Option<usize> {
        let index = self.free_head;
        if index == NIL {
            return None;
        }
        let psn = self.random() as u32 & 0xff_ffff;
        let slot = &mut self.slots[index as usize];
        self.free_head = core::mem::replace(&mut slot.link, NIL);
        if self.free_head == NIL {
            self.free_tail = NIL;
        }
        self.in_use += 1;
        slot.used = true;
        // The index in the low bits finds the slot again; the generation above it distinguishes the slot's connections.
        // 0 is not used: on the wire it means "not known".
        loop {
            slot.generation = slot.generation.wrapping_add(1);
            let generation = slot.generation.checked_shl(self.index_bits).unwrap_or(0);
            slot.local_comm_id = (generation | index) ^ self.salt;
            if slot.local_comm_id != 0 {
                break;
            }
        }
        slot.local_psn = psn;
        Some(index as usize)
    }

    /// Frees a slot.
    pub(super) fn free(&mut self, index: usize) {
        self.finish(index);
        self.settle_backlog(index);
        let slot = &mut self.slots[index];
        slot.reset();
        slot.used = false;
        slot.link = NIL;
        // Behind all others: a communication ID is used again only after every slot has gone through all its
        // generations, long after the last message that carried it.
        match self.slots.get_mut(self.free_tail as usize) {
            Some(tail) => tail.link = index as u32,
            None => self.free_head = index as u32,
        }
        self.free_tail = index as u32;
        self.in_use -= 1;
    }

    /// The slot of a communication ID.
    #[inline]
    pub(super) fn find(&self, comm_id: u32) -> Option<usize> {
        let mask = 1u32
            .checked_shl(self.index_bits)
            .map_or(u32::MAX, |bit| bit - 1);
        let index = ((comm_id ^ self.salt) & mask) as usize;
        let slot = self.slots.get(index)?;
        (slot.used && slot.local_comm_id == comm_id).then_some(index)
    }

    /// The slot of a connection that the user has not released.
    #[inline]
    pub(super) fn get(&self, id: ConnectionId) -> Result<usize, CmError> {
        self.find(id.0)
            .filter(|index| !self.slots[*index].zombie)
            .ok_or(CmError::UnknownConnection)
    }

    #[inline]
    fn bucket(&self, number: u32, guid: u64) -> usize {
        let mut value =
            (guid ^ self.hash_seed).wrapping_mul(0xff51_afd7_ed55_8ccd) ^ u64::from(number);
        value = (value ^ (value >> 32)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        // The high half, spread over the buckets without a division.
        (((value >> 32) * self.slots.len() as u64) >> 32) as usize
    }

    pub(super) fn find_remote_id(&self, comm_id: u32, guid: u64) -> Option<usize> {
        let mut index = self.slots.get(self.bucket(comm_id, guid))?.head_id;
        while let Some(slot) = self.slots.get(index as usize) {
            if slot.remote_comm_id == comm_id && slot.remote_guid == guid {
                return Some(index as usize);
            }
            index = slot.next_id;
        }
        None
    }

    pub(super) fn find_remote_qp(&self, qpn: u32, guid: u64) -> Option<usize> {
        let mut index = self.slots.get(self.bucket(qpn, guid))?.head_qp;
        while let Some(slot) = self.slots.get(index as usize) {
            if slot.remote_qpn == qpn && slot.remote_guid == guid {
                return Some(index as usize);
            }
            index = slot.next_qp;
        }
        None
    }

    /// Enters a connection whose peer is known into both tables.
    pub(super) fn enter(&mut self, index: usize) {
        let slot = &self.slots[index];
        let by_id = self.bucket(slot.remote_comm_id, slot.remote_guid);
        let by_qp = self.bucket(slot.remote_qpn, slot.remote_guid);
        let next_id = core::mem::replace(&mut self.slots[by_id].head_id, index as u32);
        let next_qp = core::mem::replace(&mut self.slots[by_qp].head_qp, index as u32);
        let slot = &mut self.slots[index];
        slot.next_id = next_id;
        slot.next_qp = next_qp;
        slot.hashed_id = true;
        slot.hashed_qp = true;
    }

    /// Takes it out again.
    pub(super) fn leave(&mut self, index: usize) {
        self.leave_id(index);
        self.leave_qp(index);
    }

    fn leave_id(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        let (number, guid, next) = (slot.remote_comm_id, slot.remote_guid, slot.next_id);
        if !core::mem::take(&mut slot.hashed_id) {
            return;
        }
        let bucket = self.bucket(number, guid);
        if self.slots[bucket].head_id == index as u32 {
            self.slots[bucket].head_id = next;
            return;
        }
        let mut at = self.slots[bucket].head_id;
        while let Some(slot) = self.slots.get_mut(at as usize) {
            if slot.next_id == index as u32 {
                slot.next_id = next;
                return;
            }
            at = slot.next_id;
        }
    }

    /// Takes it out of the table of QPs only.
    pub(super) fn leave_qp(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        let (number, guid, next) = (slot.remote_qpn, slot.remote_guid, slot.next_qp);
        if !core::mem::take(&mut slot.hashed_qp) {
            return;
        }
        let bucket = self.bucket(number, guid);
        if self.slots[bucket].head_qp == index as u32 {
            self.slots[bucket].head_qp = next;
            return;
        }
        let mut at = self.slots[bucket].head_qp;
        while let Some(slot) = self.slots.get_mut(at as usize) {
            if slot.next_qp == index as u32 {
                slot.next_qp = next;
                return;
            }
            at = slot.next_qp;
        }
    }

    /// The connection is over without timewait.
    pub(super) fn finish(&mut self, index: usize) {
        self.wheel.disarm(self.slots, index as u32);
        self.leave_half_open(index);
        self.leave(index);
        if self.slots[index].link != NIL {
            self.drop_alternate(index);
        }
        self.slots[index].state = State::Idle;
    }

    /// The connection is over, and its numbers are not used again for a while. The peer may use its own ones again at
    /// once, so that the tables drop them.
    pub(super) fn timewait(&mut self, index: usize, now: u64) {
        if !self.slots[index].stale {
            self.leave(index);
        }
        self.leave_half_open(index);
        if self.slots[index].link != NIL {
            self.drop_alternate(index);
        }
        let slot = &mut self.slots[index];
        slot.state = State::Timewait;
        let at = now + exponent(slot.ack_timeout);
        self.wheel.arm(self.slots, index as u32, at);
    }

    /// The one place where an established connection ends, so that `Disconnected` is reported exactly once.
    pub(super) fn disconnected(&mut self, index: usize, now: u64, cause: Cause, data: &[u8]) {
        let slot = &mut self.slots[index];
        slot.cause = cause;
        slot.exit_due = true;
        // An event that was not fetched yet keeps its data.
        if slot.data_event == 0 || slot.pending_events & slot.data_event == 0 {
            slot.store_received(ev::DISCONNECTED, data);
        }
        self.timewait(index, now);
        self.raise(index, ev::DISCONNECTED);
        self.release_if_done(index);
    }

    /// A listener's backlog has a free place as soon as a request is answered, in any way.
    pub(super) fn settle_backlog(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        let (listener, generation) = (slot.listener, slot.listener_generation);
        slot.listener = NIL;
        if let Some(listener) = self.listeners.get_mut(listener as usize)
            && listener.used
            && listener.generation == generation
        {
            listener.waiting = listener.waiting.saturating_sub(1);
        }
    }

    /// Queues a message.
    pub(super) fn send(&mut self, index: usize, bit: u8) {
        let tail = self.tx_tail;
        let slot = &mut self.slots[index];
        slot.pending_tx |= bit;
        if !slot.in_tx {
            slot.in_tx = true;
            slot.tx_next = NIL;
            match self.slots.get_mut(tail as usize) {
                Some(tail) => tail.tx_next = index as u32,
                None => self.tx_head = index as u32,
            }
            self.tx_tail = index as u32;
        }
    }

    /// Starts the timer of a message that waits for an answer.
    pub(super) fn start(&mut self, index: usize, now: u64, interval: u64) {
        self.start_series(index, now, interval, self.slots[index].max_retries);
    }

    pub(super) fn start_series(&mut self, index: usize, now: u64, interval: u64, retries: u8) {
        let random = self.random() as u32;
        let jitter = self.config.jitter;
        let slot = &mut self.slots[index];
        let early = slot.early;
        let at = slot
            .retry
            .start(now, interval, retries, early, jitter, random);
        self.wheel.arm(self.slots, index as u32, at);
    }

    /// Frees the slot of a released connection once there is nothing left to send or report.
    pub(super) fn release_if_done(&mut self, index: usize) {
        let slot = &self.slots[index];
        if slot.zombie
            && slot.pending_tx == 0
            && matches!(slot.state, State::Idle | State::Timewait)
        {
            self.free(index);
        }
    }

    /// Drops messages that wait to be sent; a later one makes them pointless.
    pub(super) fn unsend(&mut self, index: usize) {
        self.slots[index].pending_tx &= tx::DREP | tx::REJ;
    }

    fn listener_bucket(&self, service_id: u64) -> usize {
        let value = (service_id ^ self.hash_seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (((value >> 32) * self.listeners.len() as u64) >> 32) as usize
    }

    pub(super) fn find_listener(&self, service_id: u64, datagrams: bool) -> Option<usize> {
        let mut index = self.listeners.get(self.listener_bucket(service_id))?.head;
        while let Some(listener) = self.listeners.get(index as usize) {
            if listener.service_id == service_id && listener.datagrams == datagrams {
                return Some(index as usize);
            }
            index = listener.next;
        }
        None
    }

    /// Waits for connections to `service_id`. At most `backlog` of them stay unanswered at a time.
    pub fn listen(
        &mut self,
        service_id: u64,
        backlog: u32,
        accepts_uc: bool,
        user: u64,
    ) -> Result<ListenerId, CmError> {
        self.add_listener(service_id, backlog, accepts_uc, false, user)
    }

    /// Listens as [`listen`](Self::listen) does, for extended reliable connections and no others.
    pub fn listen_xrc(
        &mut self,
        service_id: u64,
        backlog: u32,
        user: u64,
    ) -> Result<ListenerId, CmError> {
        let listener = self.add_listener(service_id, backlog, false, false, user)?;
        if let Some(slot) = self.listeners.get_mut(listener.index as usize) {
            slot.accepts_xrc = true;
        }
        Ok(listener)
    }

    pub(super) fn add_listener(
        &mut self,
        service_id: u64,
        backlog: u32,
        accepts_uc: bool,
        datagrams: bool,
        user: u64,
    ) -> Result<ListenerId, CmError> {
        if self.find_listener(service_id, datagrams).is_some() {
            return Err(CmError::ServiceInUse { service_id });
        }
        // Listeners come and go rarely; only finding them has to be quick.
        let Some(index) = self.listeners.iter().position(|listener| !listener.used) else {
            return Err(CmError::NoListenerSlots {
                capacity: self.listeners.len(),
            });
        };
        let bucket = self.listener_bucket(service_id);
        let next = core::mem::replace(&mut self.listeners[bucket].head, index as u32);
        let listener = &mut self.listeners[index];
        listener.next = next;
        listener.used = true;
        listener.generation = listener.generation.wrapping_add(1);
        listener.accepts_uc = accepts_uc;
        listener.accepts_xrc = false;
        listener.datagrams = datagrams;
        listener.service_id = service_id;
        listener.user = user;
        listener.backlog = backlog;
        listener.waiting = 0;
        Ok(ListenerId {
            index: index as u32,
            generation: listener.generation,
        })
    }

    /// Stops to listen. Requests that were reported already stay.
    pub fn unlisten(&mut self, id: ListenerId) -> Result<(), CmError> {
        let index = id.index;
        let service_id = match self.listeners.get(index as usize) {
            Some(listener) if listener.used && listener.generation == id.generation => {
                listener.service_id
            }
            _ => return Err(CmError::UnknownListener),
        };
        let bucket = self.listener_bucket(service_id);
        let next = self.listeners[index as usize].next;
        if self.listeners[bucket].head == index {
            self.listeners[bucket].head = next;
        } else {
            let mut at = self.listeners[bucket].head;
            while at != NIL {
                let listener = &mut self.listeners[at as usize];
                if listener.next == index {
                    listener.next = next;
                    break;
                }
                at = listener.next;
            }
        }
        let listener = &mut self.listeners[index as usize];
        listener.used = false;
        listener.next = NIL;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec;

    use super::super::slot::{ListenerSlot, ReplySlot, Slot};
    use super::super::wheel::NIL;
    use super::super::{Config, Engine, Storage};

    /// Finding a connection takes one or two steps, also when all slots are in use and the peers' numbers are as
    /// regular as peers make them.
    #[test]
    fn chains_stay_short() {
        const COUNT: usize = 100_000;
        for stride in [1, 8, 0x1000] {
            let mut connections = vec![Slot::EMPTY; COUNT];
            let storage = Storage {
                connections: &mut connections,
                listeners: &mut [ListenerSlot::EMPTY],
                replies: &mut [ReplySlot::EMPTY],
                ..Storage::default()
            };
            let mut engine = Engine::new(Config::new(stride.into(), 1), storage);
            for n in 0..COUNT as u32 {
                let index = engine.allocate().expect("a slot");
                let slot = &mut engine.slots[index];
                // A hundred peers, each counting its IDs and QPs up.
                slot.remote_guid = 0x0002_c903_0000_0000 + u64::from(n % 100);
                slot.remote_comm_id = n / 100 * stride;
                slot.remote_qpn = (n / 100 * stride) & 0xff_ffff;
                engine.enter(index);
            }
            let chain = |mut at: u32, next: fn(&Slot) -> u32| {
                let mut length = 0;
                while at != NIL {
                    length += 1;
                    at = next(&engine.slots[at as usize]);
                }
                length
            };
            let longest = |head: fn(&Slot) -> u32, next: fn(&Slot) -> u32| {
                engine
                    .slots
                    .iter()
                    .map(|slot| chain(head(slot), next))
                    .max()
            };
            assert!(
                longest(|slot| slot.head_id, |slot| slot.next_id) < Some(12),
                "stride {stride}"
            );
            assert!(
                longest(|slot| slot.head_qp, |slot| slot.next_qp) < Some(12),
                "stride {stride}"
            );
            for index in 0..COUNT {
                let (id, qpn, guid) = {
                    let slot = &engine.slots[index];
                    (slot.remote_comm_id, slot.remote_qpn, slot.remote_guid)
                };
                assert_eq!(engine.find_remote_id(id, guid), Some(index));
                assert_eq!(engine.find_remote_qp(qpn, guid), Some(index));
                engine.free(index);
                assert_eq!(engine.find_remote_id(id, guid), None);
                assert_eq!(engine.find_remote_qp(qpn, guid), None);
            }
        }
    }

    /// Communication IDs are not used again soon, and are never 0.
    #[test]
    fn names_differ() {
        for count in [1, 2, 16, 1000] {
            let mut connections = vec![Slot::EMPTY; count];
            let storage = Storage {
                connections: &mut connections,
                listeners: &mut [],
                replies: &mut [],
                ..Storage::default()
            };
            let mut engine = Engine::new(Config::new(7, 1), storage);
            let mut seen = std::collections::HashSet::new();
            for round in 0..200_000 {
                let index = engine.allocate().expect("a slot");
                let id = engine.slots[index].local_comm_id;
                assert!(id != 0 && seen.insert(id), "{count} slots, round {round}");
                assert_eq!(engine.find(id), Some(index));
                engine.free(index);
                assert_eq!(engine.find(id), None);
            }
        }
    }
}
