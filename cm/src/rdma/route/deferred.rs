//! MADs from hosts whose address has to be resolved first: they wait here for the answer, so that their senders need
//! not repeat.

use core::time::Duration;

use crate::rdma::port::gsi::Received;

/// The time that a MAD waits: as long as a neighbour is asked for.
const LIFE: Duration = Duration::from_secs(3);

/// Storage for one message of a host that the resolver has to ask for first.
#[derive(Debug, Clone, Copy)]
pub struct DeferredMadSlot(pub(crate) Option<DeferredMad>);

impl DeferredMadSlot {
    /// An empty slot.
    pub const EMPTY: Self = Self(None);
}

impl Default for DeferredMadSlot {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// A MAD, and since when it has been waiting.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeferredMad {
    pub(crate) received: Received,
    pub(crate) since: Duration,
}

/// A ring of them, oldest first.
#[derive(Debug)]
pub(crate) struct DeferredMads<'s> {
    slots: &'s mut [DeferredMadSlot],
    head: usize,
    len: usize,
}

impl<'s> DeferredMads<'s> {
    pub(crate) fn new(slots: &'s mut [DeferredMadSlot]) -> Self {
        slots.fill(DeferredMadSlot::EMPTY);
        Self {
            slots,
            head: 0,
            len: 0,
        }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn pop(&mut self) -> Option<DeferredMad> {
        if self.len == 0 {
            return None;
        }
        let deferred = self.slots.get_mut(self.head)?.0.take();
        self.head = (self.head + 1) % self.slots.len();
        self.len -= 1;
        deferred
    }

    /// Keeps a MAD that came at `since`. The oldest one is dropped if the storage is full; a source that has an eighth
    /// of it already gets no more. MADs that have waited too long are not kept.
    pub(crate) fn push(&mut self, now: Duration, deferred: DeferredMad) {
        let capacity = self.slots.len();
        if capacity == 0 || now >= deferred.since.saturating_add(LIFE) {
            return;
        }
        if now == deferred.since && self.len > capacity / 2 {
            let same = |slot: &&DeferredMadSlot| {
                let other = slot.0.as_ref().map(|other| other.received.source);
                other == Some(deferred.received.source)
            };
            if self.slots.iter().filter(same).count() > capacity / 8 {
                return;
            }
        }
        if self.len == capacity {
            self.pop();
        }
        let at = (self.head + self.len) % capacity;
        self.slots[at].0 = Some(deferred);
        self.len += 1;
    }
}
