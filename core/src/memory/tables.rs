//! The slots of a device: which are free, and which CQ has which number.
//!
//! Free lists and the map from CQ numbers are behind one short lock that only creation, destruction and event handling take.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::task::Waker;

use crate::memory::slots::{CQ_FAILED, CqSlot, DEAD, DRAINED, NONE, QpSlot, SrqSlot, TARGET};

/// A list of free slots: those given back, then those never used.
#[derive(Debug)]
struct FreeList {
    /// Index + 1.
    head: u32,
    fresh: u32,
}

impl FreeList {
    const fn new() -> Self {
        Self { head: 0, fresh: 0 }
    }

    fn take(&mut self, len: usize, link: impl Fn(u32) -> u32) -> Option<u32> {
        if let Some(index) = self.head.checked_sub(1) {
            self.head = link(index);
            return Some(index);
        }
        if (self.fresh as usize) < len {
            self.fresh += 1;
            return Some(self.fresh - 1);
        }
        None
    }
}

#[derive(Debug)]
struct Free {
    qps: FreeList,
    cqs: FreeList,
    srqs: FreeList,
}

/// All slots of a device, with their free lists.
#[derive(Debug)]
pub(crate) struct Tables<'s> {
    pub(crate) qps: &'s [QpSlot],
    pub(crate) cqs: &'s [CqSlot],
    pub(crate) srqs: &'s [SrqSlot],
    free: spin::Mutex<Free>,
}

/// Puts a CQ on the list of those whose tasks are to be woken, unless it is there. The lists belong to the reader of the
/// event queues, of which there is one at a time.
fn push_woken(head: &mut u32, index: u32, slot: &CqSlot) {
    if slot.woken_next.load(Relaxed) == 0 {
        slot.woken_next.store(*head + 1, Relaxed);
        *head = index + 1;
    }
}

impl<'s> Tables<'s> {
    /// Takes over the caller's slots, and clears what an earlier device left in them.
    pub(crate) fn new(qps: &'s [QpSlot], cqs: &'s [CqSlot], srqs: &'s [SrqSlot]) -> Self {
        // 24 bits of user index, of which the last value asks for CQE version 0.
        let qps = &qps[..qps.len().min(0xff_ffff)];
        for slot in qps {
            slot.qpn_tag.store(DEAD, Relaxed);
            slot.flags.store(0, Relaxed);
            slot.cqs.iter().for_each(|cq| cq.store(NONE, Relaxed));
            slot.block.clear();
        }
        for slot in cqs {
            slot.cqn.store(NONE, Relaxed);
            slot.pending_flags.store(0, Relaxed);
            slot.bucket.store(0, Relaxed);
            slot.users.store(0, Relaxed);
            *slot.ring.lock() = None;
            slot.task.clear();
            slot.woken_next.store(0, Relaxed);
        }
        for slot in srqs {
            slot.qpn_tag.store(NONE, Relaxed);
            slot.users.store(0, Relaxed);
        }
        let free = Free {
            qps: FreeList::new(),
            cqs: FreeList::new(),
            srqs: FreeList::new(),
        };
        Self {
            qps,
            cqs,
            srqs,
            free: spin::Mutex::new(free),
        }
    }

    /// Reserves a QP slot.
    pub(crate) fn alloc_qp(&self) -> Option<u32> {
        let index = self.free.lock().qps.take(self.qps.len(), |i| {
            self.qps[i as usize].links[0].load(Relaxed)
        })?;
        let slot = &self.qps[index as usize];
        slot.qpn_tag.store(DEAD, Relaxed);
        slot.flags.store(0, Relaxed);
        Some(index)
    }

    /// Frees a QP slot. Its QP is destroyed and detached from its CQs.
    pub(crate) fn free_qp(&self, index: u32) {
        let Some(slot) = self.qps.get(index as usize) else {
            return;
        };
        slot.qpn_tag.store(DEAD, Release);
        let mut free = self.free.lock();
        slot.links[0].store(free.qps.head, Relaxed);
        free.qps.head = index + 1;
    }

    /// Reserves a CQ slot.
    pub(crate) fn alloc_cq(&self) -> Option<u32> {
        let index = self
            .free
            .lock()
            .cqs
            .take(self.cqs.len(), |i| self.cqs[i as usize].next.load(Relaxed))?;
        let slot = &self.cqs[index as usize];
        slot.cqn.store(NONE, Relaxed);
        slot.pending_flags.store(0, Relaxed);
        slot.events.store(0, Relaxed);
        slot.users.store(0, Relaxed);
        slot.syndrome.store(0, Relaxed);
        Some(index)
    }

    /// Enters the CQ into the map by number.
    pub(crate) fn register_cq(&self, index: u32, cqn: u32) {
        let Some(slot) = self.cqs.get(index as usize) else {
            return;
        };
        let _guard = self.free.lock();
        let bucket = &self.cqs[cqn as usize % self.cqs.len()].bucket;
        slot.cqn.store(cqn, Release);
        slot.next.store(bucket.load(Relaxed), Relaxed);
        bucket.store(index + 1, Relaxed);
    }

    /// Frees a CQ slot, and removes it from the map by number if it is there.
    pub(crate) fn free_cq(&self, index: u32) {
        let Some(slot) = self.cqs.get(index as usize) else {
            return;
        };
        let mut free = self.free.lock();
        let cqn = slot.cqn.swap(NONE, Relaxed);
        if cqn != NONE {
            let mut link = &self.cqs[cqn as usize % self.cqs.len()].bucket;
            while let Some(at) = link.load(Relaxed).checked_sub(1) {
                if at == index {
                    link.store(slot.next.load(Relaxed), Relaxed);
                    break;
                }
                link = &self.cqs[at as usize].next;
            }
        }
        slot.next.store(free.cqs.head, Relaxed);
        free.cqs.head = index + 1;
    }

    fn find_cq(&self, cqn: u32) -> Option<(u32, &'s CqSlot)> {
        let _guard = self.free.lock();
        let mut link = self
            .cqs
            .get(cqn as usize % self.cqs.len().max(1))?
            .bucket
            .load(Relaxed);
        while let Some(at) = link.checked_sub(1) {
            let slot = &self.cqs[at as usize];
            if slot.cqn.load(Relaxed) == cqn {
                return Some((at, slot));
            }
            link = slot.next.load(Relaxed);
        }
        None
    }

    /// Counts a completion event from the EQ; false if there is no such CQ (any more). If a task waits for it, the CQ is put
    /// on the list whose head `woken` is.
    pub(crate) fn completion_event(&self, woken: &mut u32, cqn: u32) -> bool {
        let Some((index, slot)) = self.find_cq(cqn) else {
            return false;
        };
        if slot.add_event() {
            push_woken(woken, index, slot);
        }
        true
    }

    /// The next waker of the list whose head `woken` is.
    pub(crate) fn next_woken(&self, woken: &mut u32) -> Option<Waker> {
        while let Some(slot) = self.cqs.get(woken.wrapping_sub(1) as usize) {
            *woken = slot.woken_next.swap(0, Relaxed).saturating_sub(1);
            if let Some(waker) = slot.task.take() {
                return Some(waker);
            }
        }
        None
    }

    /// Records a CQ error (overrun) from the EQ; false if there is no such CQ.
    pub(crate) fn cq_error(&self, woken: &mut u32, cqn: u32, syndrome: u8) -> bool {
        let Some((index, slot)) = self.find_cq(cqn) else {
            return false;
        };
        slot.syndrome.store(syndrome, Relaxed);
        slot.pending_flags.fetch_or(CQ_FAILED, Release);
        if slot.task.notify() {
            push_woken(woken, index, slot);
        }
        true
    }

    /// Records an SRQ limit event from the EQ; false if there is no such SRQ.
    pub(crate) fn srq_limit(&self, srqn: u32) -> bool {
        let Some(slot) = self
            .srqs
            .iter()
            .find(|slot| slot.qpn_tag.load(Acquire) == srqn)
        else {
            return false;
        };
        slot.limit_reached.store(1, Release);
        true
    }

    /// Records that a target of dynamic connections has drained; false if there is no such target.
    pub(crate) fn target_drained(&self, dctn: u32) -> bool {
        let target = self.qps.iter().find(|slot| {
            slot.qpn_tag.load(Acquire) == dctn && slot.flags.load(Relaxed) & TARGET != 0
        });
        target.is_some_and(|slot| {
            slot.flags.fetch_or(DRAINED, Release);
            true
        })
    }

    /// Reserves an SRQ slot.
    pub(crate) fn alloc_srq(&self) -> Option<u32> {
        let index = self.free.lock().srqs.take(self.srqs.len(), |i| {
            self.srqs[i as usize].next.load(Relaxed)
        })?;
        let slot = &self.srqs[index as usize];
        slot.qpn_tag.store(NONE, Relaxed);
        slot.returned.store(0, Relaxed);
        slot.users.store(0, Relaxed);
        slot.limit_reached.store(0, Relaxed);
        Some(index)
    }

    /// Frees an SRQ slot.
    pub(crate) fn free_srq(&self, index: u32) {
        let Some(slot) = self.srqs.get(index as usize) else {
            return;
        };
        slot.qpn_tag.store(NONE, Release);
        let mut free = self.free.lock();
        slot.next.store(free.srqs.head, Relaxed);
        free.srqs.head = index + 1;
    }
}
