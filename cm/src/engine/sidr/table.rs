//! Where requests for datagram services are kept: slots, names, duplicates, queues.

use super::super::retry::Retry;
use super::super::types::Address;
use super::super::wheel::{NIL, Wheel, timed};
use super::types::SidrId;
use crate::mad::{Ece, SidrReq};

/// The most private data of either message; a SIDR_REP's additional information and private data share the space.
pub(super) const PRIVATE: usize = SidrReq::PRIVATE_DATA_MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum SidrState {
    Free,
    /// A request of this end is under way.
    Asking,
    /// This end was answered, or given up; the application has not fetched that yet.
    Completed,
    /// The other end asks.
    Asked,
    /// The other end was answered; the answer is kept for repetitions.
    Answered,
}

/// Storage for one request for a datagram service. Hand a slice of them to [`Engine::new`](crate::engine::Engine::new).
#[derive(Debug, Clone)]
pub struct SidrSlot {
    // Shares of the tables; these belong to the slot's index.
    head: u32,
    tx_next: u32,
    event_next: u32,
    in_tx: bool,
    in_events: bool,
    generation: u32,

    // Free slots and kept answers each are a list, oldest first.
    list_prev: u32,
    list_next: u32,
    hash_next: u32,

    pub(super) state: SidrState,
    pub(super) name: u32,
    pub(super) request_id: u32,
    pub(super) transaction_id: u64,
    pub(super) service_id: u64,
    pub(super) user: u64,
    pub(super) listener: u32,
    pub(super) listener_generation: u32,
    pub(super) address: Address,

    pub(super) timer_tick: u64,
    pub(super) timer_next: u32,
    pub(super) timer_prev: u32,
    pub(super) timer_bucket: u16,
    pub(super) retry: Retry,
    pub(super) early: u32,

    pub(super) qpn: u32,
    pub(super) qkey: u32,
    pub(super) ece: Ece,
    /// Of the answer; `None` while or because there is none.
    pub(super) status: Option<u8>,
    pub(super) info_len: u8,
    pub(super) pending_tx: bool,
    pub(super) sent_before: bool,
    pub(super) pending_event: bool,
    pub(super) private_len: u8,
    pub(super) private: [u8; PRIVATE],
}

timed!(SidrSlot);

impl SidrSlot {
    /// An empty slot.
    pub const EMPTY: Self = Self {
        head: NIL,
        tx_next: NIL,
        event_next: NIL,
        in_tx: false,
        in_events: false,
        generation: 0,
        list_prev: NIL,
        list_next: NIL,
        hash_next: NIL,
        state: SidrState::Free,
        name: 0,
        request_id: 0,
        transaction_id: 0,
        service_id: 0,
        user: 0,
        listener: NIL,
        listener_generation: 0,
        address: super::super::slot::Slot::EMPTY.address,
        timer_tick: 0,
        timer_next: NIL,
        timer_prev: NIL,
        timer_bucket: u16::MAX,
        retry: Retry::NONE,
        early: 0,
        qpn: 0,
        qkey: 0,
        ece: Ece::NONE,
        status: None,
        info_len: 0,
        pending_tx: false,
        sent_before: false,
        pending_event: false,
        private_len: 0,
        private: [0; PRIVATE],
    };

    pub(super) fn store(&mut self, data: &[u8]) {
        let len = data.len().min(PRIVATE);
        self.private[..len].copy_from_slice(&data[..len]);
        self.private_len = len as u8;
    }

    /// Additional information and private data, laid out as in a SIDR_REP.
    pub(super) fn store_answer(&mut self, info: &[u8], private_data: &[u8]) {
        self.info_len = info.len().min(72) as u8;
        self.private[..72].fill(0);
        self.private[..info.len().min(72)].copy_from_slice(&info[..info.len().min(72)]);
        let len = private_data.len().min(PRIVATE - 72);
        self.private[72..72 + len].copy_from_slice(&private_data[..len]);
        self.private_len = (72 + len) as u8;
    }

    pub(super) fn private(&self) -> &[u8] {
        &self.private[..usize::from(self.private_len)]
    }
}

impl Default for SidrSlot {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// First and last of a list through the slots.
#[derive(Debug, Clone, Copy)]
struct List {
    first: u32,
    last: u32,
}

impl List {
    const EMPTY: Self = Self {
        first: NIL,
        last: NIL,
    };

    fn push(&mut self, slots: &mut [SidrSlot], index: u32) {
        let prev = core::mem::replace(&mut self.last, index);
        let slot = &mut slots[index as usize];
        (slot.list_prev, slot.list_next) = (prev, NIL);
        match slots.get_mut(prev as usize) {
            Some(prev) => prev.list_next = index,
            None => self.first = index,
        }
    }

    fn remove(&mut self, slots: &mut [SidrSlot], index: u32) {
        let slot = &slots[index as usize];
        let (prev, next) = (slot.list_prev, slot.list_next);
        match slots.get_mut(prev as usize) {
            Some(prev) => prev.list_next = next,
            None => self.first = next,
        }
        match slots.get_mut(next as usize) {
            Some(next) => next.list_prev = prev,
            None => self.last = prev,
        }
    }
}

/// All requests for datagram services, this end's and others'.
#[derive(Debug)]
pub(in crate::engine) struct Table<'s> {
    pub(super) slots: &'s mut [SidrSlot],
    pub(super) wheel: Wheel,
    index_bits: u32,
    free: List,
    /// Answers that are kept. The oldest is dropped when a slot is needed.
    kept: List,
    /// Slots that are neither free nor a kept answer.
    in_use: usize,
    tx: (u32, u32),
    events: (u32, u32),
}

impl<'s> Table<'s> {
    pub(in crate::engine) fn new(slots: &'s mut [SidrSlot]) -> Self {
        let usable = slots.len().min(1 << 24);
        let slots = &mut slots[..usable];
        let mut free = List::EMPTY;
        for index in 0..usable {
            let generation = slots[index].generation;
            slots[index] = SidrSlot {
                generation,
                ..SidrSlot::EMPTY
            };
            free.push(slots, index as u32);
        }
        Self {
            slots,
            wheel: Wheel::new(),
            index_bits: usize::BITS - usable.saturating_sub(1).leading_zeros(),
            free,
            kept: List::EMPTY,
            in_use: 0,
            tx: (NIL, NIL),
            events: (NIL, NIL),
        }
    }

    /// Returns `true` if there is no request and no kept answer, and so no timer.
    #[inline]
    fn is_idle(&self) -> bool {
        !cfg!(feature = "datagrams") || self.in_use == 0 && self.kept.first == NIL
    }

    /// Returns `true` if nothing has to be done at this time. Costs next to nothing where no services are resolved.
    #[inline]
    pub(in crate::engine) fn is_ahead_of(&self, now: u64) -> bool {
        self.is_idle() || self.wheel.is_ahead_of(now)
    }

    pub(in crate::engine) fn next_deadline(&self) -> Option<u64> {
        if self.is_idle() {
            return None;
        }
        self.wheel.next()
    }

    /// The wheel does not turn while it is idle: before the first timer it has to catch up.
    pub(super) fn wake(&mut self, now: u64) {
        if self.is_idle() {
            let _ = self.wheel.expire(self.slots, now);
        }
    }

    pub(super) fn in_use(&self) -> usize {
        self.in_use
    }

    /// Takes a free slot, or that of the oldest kept answer, and gives it an ID.
    pub(super) fn allocate(&mut self, state: SidrState, salt: u32, seed: u64) -> Option<usize> {
        if self.free.first == NIL && self.kept.first != NIL {
            self.release(self.kept.first as usize, seed);
        }
        let index = self.free.first;
        if index == NIL {
            return None;
        }
        self.free.remove(self.slots, index);
        self.in_use += 1;
        let slot = &mut self.slots[index as usize];
        // As with connections: the index finds the slot again, the generation distinguishes its requests, and 0 is no
        // name.
        loop {
            slot.generation = slot.generation.wrapping_add(1);
            let generation = slot.generation.checked_shl(self.index_bits).unwrap_or(0);
            slot.name = (generation | index) ^ salt;
            if slot.name != 0 {
                break;
            }
        }
        slot.state = state;
        slot.user = 0;
        slot.listener = NIL;
        slot.ece = Ece::NONE;
        slot.status = None;
        slot.info_len = 0;
        slot.sent_before = false;
        slot.private_len = 0;
        Some(index as usize)
    }

    /// Frees a slot of any state.
    pub(super) fn release(&mut self, index: usize, seed: u64) {
        self.wheel.disarm(self.slots, index as u32);
        match self.slots[index].state {
            SidrState::Free => return,
            SidrState::Answered => {
                self.leave(index, seed);
                self.kept.remove(self.slots, index as u32);
            }
            SidrState::Asked => {
                self.leave(index, seed);
                self.in_use -= 1;
            }
            SidrState::Asking | SidrState::Completed => self.in_use -= 1,
        }
        let slot = &mut self.slots[index];
        slot.state = SidrState::Free;
        slot.pending_tx = false;
        slot.pending_event = false;
        self.free.push(self.slots, index as u32);
    }

    /// The request was answered: from now on the slot only keeps the answer.
    pub(super) fn keep(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        slot.state = SidrState::Answered;
        slot.pending_event = false;
        self.kept.push(self.slots, index as u32);
        self.in_use -= 1;
    }

    /// The slot of a request by its ID, from the user or from the wire.
    pub(super) fn find(&self, name: u32, salt: u32) -> Option<usize> {
        let mask = 1u32
            .checked_shl(self.index_bits)
            .map_or(u32::MAX, |bit| bit - 1);
        let index = ((name ^ salt) & mask) as usize;
        let slot = self.slots.get(index)?;
        let used = !matches!(slot.state, SidrState::Free | SidrState::Answered);
        (used && slot.name == name).then_some(index)
    }

    pub(super) fn get(&self, id: SidrId, salt: u32) -> Option<usize> {
        self.find(id.0, salt)
    }

    fn bucket(&self, request_id: u32, peer: &[u8; 16], seed: u64) -> usize {
        let [high, low] = [0, 8].map(|at| {
            let mut half = [0; 8];
            half.copy_from_slice(&peer[at..at + 8]);
            u64::from_be_bytes(half)
        });
        let mut value = (low ^ seed).wrapping_mul(0xff51_afd7_ed55_8ccd) ^ high;
        value = (value ^ (value >> 32) ^ u64::from(request_id)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        (((value >> 32) * self.slots.len() as u64) >> 32) as usize
    }

    /// The other end's request with this ID. Two nodes may use the same number, so the node is part of the ID.
    pub(super) fn find_asked(
        &self,
        request_id: u32,
        service_id: u64,
        peer: &[u8; 16],
        seed: u64,
    ) -> Option<usize> {
        let mut index = self.slots.get(self.bucket(request_id, peer, seed))?.head;
        while let Some(slot) = self.slots.get(index as usize) {
            if slot.request_id == request_id
                && slot.service_id == service_id
                && slot.address.peer() == *peer
            {
                return Some(index as usize);
            }
            index = slot.hash_next;
        }
        None
    }

    pub(super) fn enter(&mut self, index: usize, seed: u64) {
        let slot = &self.slots[index];
        let bucket = self.bucket(slot.request_id, &slot.address.peer(), seed);
        let next = core::mem::replace(&mut self.slots[bucket].head, index as u32);
        self.slots[index].hash_next = next;
    }

    fn leave(&mut self, index: usize, seed: u64) {
        let slot = &self.slots[index];
        let bucket = self.bucket(slot.request_id, &slot.address.peer(), seed);
        let next = slot.hash_next;
        if self.slots[bucket].head == index as u32 {
            self.slots[bucket].head = next;
            return;
        }
        let mut at = self.slots[bucket].head;
        while let Some(slot) = self.slots.get_mut(at as usize) {
            if slot.hash_next == index as u32 {
                slot.hash_next = next;
                return;
            }
            at = slot.hash_next;
        }
    }

    /// Queues the slot's message.
    pub(super) fn send(&mut self, index: usize) {
        let last = self.tx.1;
        let slot = &mut self.slots[index];
        slot.pending_tx = true;
        if core::mem::replace(&mut slot.in_tx, true) {
            return;
        }
        slot.tx_next = NIL;
        match self.slots.get_mut(last as usize) {
            Some(last) => last.tx_next = index as u32,
            None => self.tx.0 = index as u32,
        }
        self.tx.1 = index as u32;
    }

    #[inline]
    pub(in crate::engine) fn has_nothing_to_send(&self) -> bool {
        !cfg!(feature = "datagrams") || self.tx.0 == NIL
    }

    /// Takes the next slot whose message is to be sent.
    pub(super) fn next_to_send(&mut self) -> Option<usize> {
        loop {
            let index = self.tx.0;
            let slot = self.slots.get_mut(index as usize)?;
            self.tx.0 = slot.tx_next;
            slot.in_tx = false;
            let pending = core::mem::take(&mut slot.pending_tx);
            if self.tx.0 == NIL {
                self.tx.1 = NIL;
            }
            // It may have been freed meanwhile.
            if pending {
                return Some(index as usize);
            }
        }
    }

    /// Queues the slot's event.
    pub(super) fn raise(&mut self, index: usize) {
        let last = self.events.1;
        let slot = &mut self.slots[index];
        slot.pending_event = true;
        if core::mem::replace(&mut slot.in_events, true) {
            return;
        }
        slot.event_next = NIL;
        match self.slots.get_mut(last as usize) {
            Some(last) => last.event_next = index as u32,
            None => self.events.0 = index as u32,
        }
        self.events.1 = index as u32;
    }

    /// Takes the next slot with something to report.
    pub(super) fn next_event(&mut self) -> Option<usize> {
        loop {
            let index = self.events.0;
            let slot = self.slots.get_mut(index as usize)?;
            self.events.0 = slot.event_next;
            slot.in_events = false;
            let pending = core::mem::take(&mut slot.pending_event);
            if self.events.0 == NIL {
                self.events.1 = NIL;
            }
            if pending {
                return Some(index as usize);
            }
        }
    }
}
