//! Per-object state that more than one party needs: the poller of a CQ, the queues of a QP, and the control path.
//!
//! A completion names its QP by `user_index`, which is the index of a [`QpSlot`]; nothing is hashed or searched on the
//! data path. All fields are atomics, so that the slices can come from anywhere and be shared; on x86 and Arm a relaxed
//! atomic access costs what a plain one does. The free lists and the map from CQ numbers are behind one short lock that
//! only creation, destruction and event handling take.
//!
//! A destroyed QP cannot simply give its slot and its memory back: completions of it may still lie in its CQs, which
//! other threads may be polling at this moment. It is put on the CQ's list of goodbyes instead. The CQ's owner finds it at
//! the next poll, disarms the completions left behind (and recycles their SRQ entries), and whoever is last frees it.
//!
//! What arrives for an XRC SRQ completes in a CQ of the SRQ's, under the number of one QP or another. Such an SRQ takes a
//! [`QpSlot`] beside its own, which stands for all of them, so that it too says goodbye to its CQ.

// UNSAFETY: follows pointers to the arrays of queues, which lie in the queues' memory.
#![expect(unsafe_code)]

use crate::verbs::cq::shared::SharedRing;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize};

/// "No such slot" in an index.
pub(crate) const NONE: u32 = u32::MAX;

/// In [`QpSlot::key`]: the slot has no live QP, so that no completion matches.
pub(crate) const DEAD: u32 = 1 << 31;

/// In [`QpSlot::key`]: the slot stands for an XRC SRQ, whose completions carry the numbers of many QPs.
pub(crate) const SOURCE: u32 = 1 << 30;

/// In [`CqSlot::attention`]: the device has put the CQ into error.
pub(crate) const CQ_FAILED: u32 = 1 << 31;

/// In [`CqSlot::attention`]: the CQ's owner is gone, nobody takes goodbyes any more.
pub(crate) const CQ_ABANDONED: u32 = 1 << 30;

/// The list in [`CqSlot::attention`].
const GOODBYES: u32 = CQ_ABANDONED - 1;

/// Room for one queue pair: what its completions need to know about it.
///
/// Opaque to the caller, who only provides the memory (see `Storage`).
#[derive(Debug)]
#[repr(C, align(64))]
pub struct QpSlot {
    // First line: read for each completion.
    /// The QP number, with [`DEAD`] set while there is none.
    pub(crate) key: AtomicU32,
    /// Index of the SRQ it receives from, or [`NONE`].
    pub(crate) srq: AtomicU32,
    /// Number of basic blocks in the send ring, minus 1.
    pub(crate) sq_mask: AtomicU32,
    /// Number of entries in `sq_wr_ids`, minus 1.
    pub(crate) wr_mask: AtomicU32,
    /// Number of receive WQEs, minus 1.
    pub(crate) rq_mask: AtomicU32,
    /// Counter of the oldest send work request that has not completed.
    pub(crate) sq_tail: AtomicU32,
    /// Counter of the oldest receive work request that has not completed.
    pub(crate) rq_tail: AtomicU32,
    /// Counter of the receive work request that comes next: the device cannot have completed it. With an SRQ both stay 0,
    /// so that no completion looks like one of the QP's own receives.
    pub(crate) rq_head: AtomicU32,
    /// By basic block: counter of the work request that starts there.
    pub(crate) sq_heads: AtomicPtr<AtomicU32>,
    /// By work request counter.
    pub(crate) sq_wr_ids: AtomicPtr<AtomicU64>,
    /// By receive WQE.
    pub(crate) rq_wr_ids: AtomicPtr<AtomicU64>,

    // Second line: creation and destruction.
    /// Indexes of the CQs, send and receive.
    pub(crate) cqs: [AtomicU32; 2],
    /// Links of the two CQs' goodbye lists (index + 1, 0 at the end); free list link in the first one.
    pub(crate) links: [AtomicU32; 2],
    /// See [`goodbye`] and [`told`].
    pub(crate) flags: AtomicU32,
    /// How far the CQs had been filled at the last reset: completions before these indexes are stale.
    pub(crate) stale_before: [AtomicU32; 2],
    /// The QP's DMA block, while this slot and no handle owns it.
    pub(crate) block: AtomicPtr<u8>,
    /// Its device address.
    pub(crate) block_iova: AtomicU64,
    /// Its length.
    pub(crate) block_len: AtomicUsize,
}

/// Flags of a [`QpSlot`] on its way out, one bit for each CQ (`<< side`).
pub(crate) mod goodbye {
    /// On the CQ's list.
    pub(crate) const QUEUED: u32 = 1 << 0;
    /// The CQ still has to say goodbye to the destroyed QP.
    pub(crate) const PENDING: u32 = 1 << 2;
    /// The QP was reset; completions before `stale_before` are to be dropped.
    pub(crate) const RESET: u32 = 1 << 4;
}

/// What completions told of a QP, in the same word. Cleared by transitions.
pub(crate) mod told {
    /// A send failed.
    pub(crate) const SEND_FAILED: u32 = 1 << 6;
    /// A receive failed, or a send was flushed: all of the QP is in error.
    pub(crate) const FAILED: u32 = 1 << 7;
}

impl QpSlot {
    /// Alignment of the DMA blocks that slots keep.
    pub(crate) const BLOCK_ALIGN: usize = 64;

    /// Whether the slot's live QP has this number.
    pub(crate) fn is(&self, qpn: u32) -> bool {
        self.key.load(Acquire) == qpn
    }

    /// Whether the slot's QP had this number, and is destroyed or being reset.
    pub(crate) fn was(&self, qpn: u32) -> bool {
        self.key.load(Acquire) == qpn | DEAD
    }

    /// Whether the slot stands for an XRC SRQ; also for one that is destroyed.
    pub(crate) fn is_source(&self) -> bool {
        self.key.load(Acquire) & SOURCE != 0
    }

    /// Whether a completion with this QP number may be the slot's.
    pub(crate) fn takes(&self, qpn: u32) -> bool {
        self.is(qpn) || self.is(SOURCE)
    }

    /// The same for a slot whose owner is destroyed or being reset.
    pub(crate) fn took(&self, qpn: u32) -> bool {
        self.was(qpn) || self.was(SOURCE)
    }

    /// An empty slot.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            key: AtomicU32::new(DEAD),
            srq: AtomicU32::new(NONE),
            sq_mask: AtomicU32::new(0),
            wr_mask: AtomicU32::new(0),
            rq_mask: AtomicU32::new(0),
            sq_tail: AtomicU32::new(0),
            rq_head: AtomicU32::new(0),
            rq_tail: AtomicU32::new(0),
            sq_heads: AtomicPtr::new(core::ptr::null_mut()),
            sq_wr_ids: AtomicPtr::new(core::ptr::null_mut()),
            rq_wr_ids: AtomicPtr::new(core::ptr::null_mut()),
            cqs: [AtomicU32::new(NONE), AtomicU32::new(NONE)],
            links: [AtomicU32::new(0), AtomicU32::new(0)],
            flags: AtomicU32::new(0),
            stale_before: [AtomicU32::new(0), AtomicU32::new(0)],
            block: AtomicPtr::new(core::ptr::null_mut()),
            block_iova: AtomicU64::new(0),
            block_len: AtomicUsize::new(0),
        }
    }
}

impl Default for QpSlot {
    fn default() -> Self {
        Self::new()
    }
}

/// Room for one completion queue. Opaque, as [`QpSlot`].
#[derive(Debug)]
#[repr(C, align(64))]
pub struct CqSlot {
    /// What a poll has to look at besides its ring, 0 almost always: [`CQ_FAILED`], and the head (index + 1) of the list
    /// of QPs to say goodbye to.
    pub(crate) attention: AtomicU32,
    /// Completion events that the device has delivered.
    pub(crate) events: AtomicU32,
    /// Its number.
    pub(crate) cqn: AtomicU32,
    /// QPs that use it, counted per queue.
    pub(crate) users: AtomicU32,
    /// Syndrome of the CQ error event.
    pub(crate) syndrome: AtomicU8,
    /// Map by number: head of the chain of CQs whose number falls on this slot (index + 1).
    bucket: AtomicU32,
    /// Map by number: next in the chain (index + 1); free list link while free.
    next: AtomicU32,
    /// Its ring while there is one, for those who look for completions of a QP that is reset.
    pub(crate) ring: spin::Mutex<Option<SharedRing>>,
}

impl CqSlot {
    /// An empty slot.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            attention: AtomicU32::new(0),
            events: AtomicU32::new(0),
            cqn: AtomicU32::new(NONE),
            users: AtomicU32::new(0),
            syndrome: AtomicU8::new(0),
            bucket: AtomicU32::new(0),
            next: AtomicU32::new(0),
            ring: spin::Mutex::new(None),
        }
    }

    /// Puts QP slot `index` on the list of goodbyes. False if nobody takes them any more.
    #[must_use]
    pub(crate) fn push_goodbye(&self, qps: &[QpSlot], index: u32, side: usize) -> bool {
        let Some(slot) = qps.get(index as usize) else {
            return true;
        };
        if slot.flags.fetch_or(goodbye::QUEUED << side, AcqRel) & goodbye::QUEUED << side != 0 {
            return true;
        }
        let mut head = self.attention.load(Relaxed);
        loop {
            if head & CQ_ABANDONED != 0 {
                slot.flags.fetch_and(!(goodbye::QUEUED << side), AcqRel);
                return false;
            }
            slot.links[side].store(head & GOODBYES, Relaxed);
            let new = head & CQ_FAILED | (index + 1);
            match self
                .attention
                .compare_exchange_weak(head, new, Release, Relaxed)
            {
                Ok(_) => return true,
                Err(now) => head = now,
            }
        }
    }

    /// Takes the whole list; the result is index + 1 of its head.
    pub(crate) fn take_goodbyes(&self) -> u32 {
        self.attention.fetch_and(!GOODBYES, AcqRel) & GOODBYES
    }

    /// Refuses goodbyes from now on.
    pub(crate) fn abandon(&self) {
        self.attention.fetch_or(CQ_ABANDONED, AcqRel);
    }
}

impl Default for CqSlot {
    fn default() -> Self {
        Self::new()
    }
}

/// Room for one shared receive queue. Opaque, as [`QpSlot`].
#[derive(Debug)]
#[repr(C, align(64))]
pub struct SrqSlot {
    /// Its number, or [`NONE`].
    pub(crate) key: AtomicU32,
    /// Number of WQEs minus 1.
    pub(crate) mask: AtomicU32,
    /// Head of the stack of consumed WQEs (index + 1), which the queue's owner takes as a whole.
    returned: AtomicU32,
    /// QPs that receive from it.
    pub(crate) users: AtomicU32,
    /// Whoever may still look at its memory: the handle, and each QP until its CQs have said goodbye.
    pub(crate) pins: AtomicU32,
    /// The SRQ's DMA block, once the handle is gone.
    pub(crate) block: AtomicPtr<u8>,
    /// Its device address.
    pub(crate) block_iova: AtomicU64,
    /// Its length.
    pub(crate) block_len: AtomicUsize,
    /// By WQE.
    wr_ids: AtomicPtr<AtomicU64>,
    /// By WQE: [`SRQ_POSTED`] while the device may use it, else the link of the stack (index + 1).
    states: AtomicPtr<AtomicU32>,
    /// The device's last limit event, not yet looked at.
    pub(crate) limit_reached: AtomicU32,
    next: AtomicU32,
}

/// State of an SRQ WQE that the device may use.
const SRQ_POSTED: u32 = u32::MAX;

impl SrqSlot {
    /// Alignment of the DMA blocks that slots keep. The context of a receive memory pool has one bit less than others to
    /// say where in a page a ring starts, so it starts with the page.
    pub(crate) const BLOCK_ALIGN: usize = 4096;

    /// An empty slot.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            key: AtomicU32::new(NONE),
            mask: AtomicU32::new(0),
            returned: AtomicU32::new(0),
            users: AtomicU32::new(0),
            pins: AtomicU32::new(0),
            block: AtomicPtr::new(core::ptr::null_mut()),
            block_iova: AtomicU64::new(0),
            block_len: AtomicUsize::new(0),
            wr_ids: AtomicPtr::new(core::ptr::null_mut()),
            states: AtomicPtr::new(core::ptr::null_mut()),
            limit_reached: AtomicU32::new(0),
            next: AtomicU32::new(0),
        }
    }

    /// Says where the SRQ keeps identifiers and states, each by WQE.
    ///
    /// # Safety
    /// Both have `entries` elements (a power of two) and stay allocated until the last pin is gone. Before that no WQE is
    /// posted and no completion names this slot; afterwards neither happens again.
    pub(crate) unsafe fn publish(
        &self,
        wr_ids: NonNull<AtomicU64>,
        states: NonNull<AtomicU32>,
        entries: u32,
    ) {
        self.wr_ids.store(wr_ids.as_ptr(), Release);
        self.states.store(states.as_ptr(), Release);
        self.mask.store(entries - 1, Relaxed);
    }

    /// The state of a WQE of an SRQ that was published.
    fn state(&self, index: u32) -> &AtomicU32 {
        let at = (index & self.mask.load(Relaxed)) as usize;
        // SAFETY: the masked index lies inside the array (`publish`).
        unsafe { &*self.states.load(Acquire).add(at) }
    }

    /// Hands a WQE to the device, as far as completions are concerned: the doorbell record comes later.
    pub(crate) fn post(&self, index: u32) {
        self.state(index).store(SRQ_POSTED, Release);
    }

    /// A WQE has completed: takes it back, for [`take_returned`](Self::take_returned). Its identifier, or `None` if the
    /// device does not hold it.
    pub(crate) fn complete(&self, counter: u16) -> Option<u64> {
        let index = u32::from(counter);
        if index > self.mask.load(Relaxed) {
            return None;
        }
        // SAFETY: the index lies inside the array (`publish`).
        let wr_id = unsafe { (*self.wr_ids.load(Acquire).add(index as usize)).load(Relaxed) };
        let state = self.state(index);
        // Whoever turns the state takes the entry; a second completion for it finds it taken.
        state
            .compare_exchange(SRQ_POSTED, 0, AcqRel, Relaxed)
            .ok()?;
        let mut head = self.returned.load(Relaxed);
        loop {
            state.store(head, Relaxed);
            match self
                .returned
                .compare_exchange_weak(head, index + 1, Release, Relaxed)
            {
                Ok(_) => return Some(wr_id),
                Err(now) => head = now,
            }
        }
    }

    /// Takes all WQEs that completions gave back, the last one first.
    pub(crate) fn take_returned(&self, mut each: impl FnMut(u32)) {
        let mut link = self.returned.swap(0, AcqRel);
        while let Some(index) = link.checked_sub(1) {
            link = self.state(index).load(Acquire);
            each(index);
        }
    }
}

impl Default for SrqSlot {
    fn default() -> Self {
        Self::new()
    }
}

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

impl<'s> Tables<'s> {
    /// Takes the caller's slots over; whatever an earlier device left in them is forgotten.
    pub(crate) fn new(qps: &'s [QpSlot], cqs: &'s [CqSlot], srqs: &'s [SrqSlot]) -> Self {
        // 24 bits of user index, of which the last value asks for CQE version 0.
        let qps = &qps[..qps.len().min(0xff_ffff)];
        for slot in qps {
            slot.key.store(DEAD, Relaxed);
            slot.flags.store(0, Relaxed);
            slot.block.store(core::ptr::null_mut(), Relaxed);
        }
        for slot in cqs {
            slot.cqn.store(NONE, Relaxed);
            slot.attention.store(0, Relaxed);
            slot.bucket.store(0, Relaxed);
            slot.users.store(0, Relaxed);
            *slot.ring.lock() = None;
        }
        for slot in srqs {
            slot.key.store(NONE, Relaxed);
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
    pub(crate) fn take_qp(&self) -> Option<u32> {
        let index = self.free.lock().qps.take(self.qps.len(), |i| {
            self.qps[i as usize].links[0].load(Relaxed)
        })?;
        let slot = &self.qps[index as usize];
        slot.key.store(DEAD, Relaxed);
        slot.flags.store(0, Relaxed);
        Some(index)
    }

    /// Gives a QP slot back; its QP is gone and no CQ knows it any more.
    pub(crate) fn give_qp(&self, index: u32) {
        let Some(slot) = self.qps.get(index as usize) else {
            return;
        };
        slot.key.store(DEAD, Release);
        let mut free = self.free.lock();
        slot.links[0].store(free.qps.head, Relaxed);
        free.qps.head = index + 1;
    }

    /// Reserves a CQ slot.
    pub(crate) fn take_cq(&self) -> Option<u32> {
        let index = self
            .free
            .lock()
            .cqs
            .take(self.cqs.len(), |i| self.cqs[i as usize].next.load(Relaxed))?;
        let slot = &self.cqs[index as usize];
        slot.cqn.store(NONE, Relaxed);
        slot.attention.store(0, Relaxed);
        slot.events.store(0, Relaxed);
        slot.users.store(0, Relaxed);
        slot.syndrome.store(0, Relaxed);
        Some(index)
    }

    /// Makes the CQ findable by its number.
    pub(crate) fn name_cq(&self, index: u32, cqn: u32) {
        let Some(slot) = self.cqs.get(index as usize) else {
            return;
        };
        let _guard = self.free.lock();
        let bucket = &self.cqs[cqn as usize % self.cqs.len()].bucket;
        slot.cqn.store(cqn, Release);
        slot.next.store(bucket.load(Relaxed), Relaxed);
        bucket.store(index + 1, Relaxed);
    }

    /// Gives a CQ slot back, named or not.
    pub(crate) fn give_cq(&self, index: u32) {
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

    fn find_cq(&self, cqn: u32) -> Option<&'s CqSlot> {
        let _guard = self.free.lock();
        let mut link = self
            .cqs
            .get(cqn as usize % self.cqs.len().max(1))?
            .bucket
            .load(Relaxed);
        while let Some(at) = link.checked_sub(1) {
            let slot = &self.cqs[at as usize];
            if slot.cqn.load(Relaxed) == cqn {
                return Some(slot);
            }
            link = slot.next.load(Relaxed);
        }
        None
    }

    /// The EQ's news of a completion event; false if there is no such CQ (any more).
    pub(crate) fn completion_event(&self, cqn: u32) -> bool {
        self.find_cq(cqn)
            .map(|slot| slot.events.fetch_add(1, Release))
            .is_some()
    }

    /// The EQ's news of a CQ error (overrun); false if there is no such CQ.
    pub(crate) fn cq_error(&self, cqn: u32, syndrome: u8) -> bool {
        let Some(slot) = self.find_cq(cqn) else {
            return false;
        };
        slot.syndrome.store(syndrome, Relaxed);
        slot.attention.fetch_or(CQ_FAILED, Release);
        true
    }

    /// The EQ's news that an SRQ's limit was reached; false if there is no such SRQ.
    pub(crate) fn srq_limit(&self, srqn: u32) -> bool {
        let Some(slot) = self.srqs.iter().find(|slot| slot.key.load(Acquire) == srqn) else {
            return false;
        };
        slot.limit_reached.store(1, Release);
        true
    }

    /// Reserves an SRQ slot.
    pub(crate) fn take_srq(&self) -> Option<u32> {
        let index = self.free.lock().srqs.take(self.srqs.len(), |i| {
            self.srqs[i as usize].next.load(Relaxed)
        })?;
        let slot = &self.srqs[index as usize];
        slot.key.store(NONE, Relaxed);
        slot.returned.store(0, Relaxed);
        slot.users.store(0, Relaxed);
        slot.limit_reached.store(0, Relaxed);
        Some(index)
    }

    /// Gives an SRQ slot back.
    pub(crate) fn give_srq(&self, index: u32) {
        let Some(slot) = self.srqs.get(index as usize) else {
            return;
        };
        slot.key.store(NONE, Release);
        let mut free = self.free.lock();
        slot.next.store(free.srqs.head, Relaxed);
        free.srqs.head = index + 1;
    }
}
