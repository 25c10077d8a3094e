//! Half-open connections (requested by peers and not established yet), ordered by age and counted by source: when there
//! is no slot for a new one, some of them are evicted.

use core::time::Duration;

use super::machine::Engine;
use super::slot::ev;
use super::types::{Address, ConnectionId};
use super::units::nanos;
use super::wheel::NIL;
use crate::mad::RejectReason;

/// Counters of half-open connections: sources are hashed to them, so that two sources may share one.
const SOURCES: usize = 64;
/// The number of the oldest that are compared: a source that floods has most of them, so that one of them is compared.
const LOOK: usize = 32;

/// The list and the counts; the links are in the slots.
#[derive(Debug)]
pub(super) struct HalfOpen {
    head: u32,
    tail: u32,
    of: [u32; SOURCES],
}

impl HalfOpen {
    pub(super) const fn new() -> Self {
        Self {
            head: NIL,
            tail: NIL,
            of: [0; SOURCES],
        }
    }
}

impl Engine<'_> {
    fn source(&self, address: &Address) -> u8 {
        let peer = u128::from_be_bytes(address.peer());
        let value = (peer as u64 ^ (peer >> 64) as u64 ^ self.hash_seed)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (value >> 58) as u8
    }

    /// A REQ made this connection.
    pub(super) fn enter_half_open(&mut self, index: usize, now: u64, from: &Address) {
        let source = self.source(from);
        self.half_open.of[usize::from(source)] += 1;
        let tail = core::mem::replace(&mut self.half_open.tail, index as u32);
        match self.slots.get_mut(tail as usize) {
            Some(tail) => tail.half_next = index as u32,
            None => self.half_open.head = index as u32,
        }
        let slot = &mut self.slots[index];
        slot.half_open = true;
        slot.source = source;
        slot.since = now;
        (slot.half_prev, slot.half_next) = (tail, NIL);
    }

    /// It is established, or over.
    pub(super) fn leave_half_open(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        if !core::mem::take(&mut slot.half_open) {
            return;
        }
        let (prev, next, source) = (slot.half_prev, slot.half_next, slot.source);
        self.half_open.of[usize::from(source)] -= 1;
        match self.slots.get_mut(prev as usize) {
            Some(prev) => prev.half_next = next,
            None => self.half_open.head = next,
        }
        match self.slots.get_mut(next as usize) {
            Some(next) => next.half_prev = prev,
            None => self.half_open.tail = prev,
        }
    }

    /// The connection that is replaced by a new one from `source`: the oldest one of the source that has most, if it is
    /// old enough and its source has at least as many as the newcomer's.
    fn victim(&self, now: u64, source: Option<u8>, own_only: bool) -> Option<usize> {
        let of = |source: u8| self.half_open.of[usize::from(source)];
        let age = nanos(self.config.half_open_age);
        let mut found = None;
        let mut at = self.half_open.head;
        for _ in 0..LOOK {
            let Some(slot) = self.slots.get(at as usize) else {
                break;
            };
            if now.saturating_sub(slot.since) < age {
                break;
            }
            let fits = if own_only {
                source == Some(slot.source)
            } else {
                source.is_none_or(|source| of(slot.source) >= of(source))
            };
            let more = |than: usize| of(slot.source) > of(self.slots[than].source);
            if fits && found.is_none_or(more) {
                found = Some(at as usize);
            }
            at = slot.half_next;
        }
        found
    }

    /// The number of half-open connections that the source of this one has, in all.
    pub fn half_open_beside(&self, id: ConnectionId) -> usize {
        let source = |index: usize| usize::from(self.slots[index].source);
        self.get(id)
            .map_or(0, |index| self.half_open.of[source(index)] as usize)
    }

    /// Evicts the first half-open connection to free a slot: its peer gets a REJ 3, its user
    /// [`Unreachable`](super::EventKind::Unreachable). Returns the user's value of it.
    ///
    /// `newcomer` is the connection that there is no slot for; `own_only` takes the slot from its own source.
    pub fn evict(
        &mut self,
        now: Duration,
        newcomer: Option<ConnectionId>,
        own_only: bool,
    ) -> Option<u64> {
        let now = nanos(now);
        let newcomer = newcomer.and_then(|id| self.get(id).ok());
        let source = newcomer.map(|index| self.slots[index].source);
        let index = self.victim(now, source, own_only)?;
        Some(self.evict_at(index, now))
    }

    fn evict_at(&mut self, index: usize, now: u64) -> u64 {
        let user = self.slots[index].user;
        let unseen = self.slots[index].pending_events & ev::REQUEST != 0;
        self.refuse(index, now, RejectReason::NO_RESOURCES, &[], &[]);
        self.stats.evicted += 1;
        if unseen {
            // The user has not fetched the request yet.
            self.slots[index].zombie = true;
        } else {
            self.raise(index, ev::UNREACHABLE);
        }
        self.release_if_done(index);
        user
    }

    /// The same for a request that comes when all slots are in use.
    pub(super) fn evict_for(&mut self, now: u64, from: &Address) -> bool {
        let source = self.source(from);
        match self.victim(now, Some(source), false) {
            Some(index) => {
                self.evict_at(index, now);
                true
            }
            None => false,
        }
    }

    /// Drops a request without an answer, so that its sender tries again.
    pub fn ignore(&mut self, id: ConnectionId) {
        if let Ok(index) = self.get(id) {
            self.free(index);
        }
    }
}
