//! Per-object state that the poller of a CQ, the queues of a QP and the control path share.
//!
//! A completion names its QP by `user_index`, which is the index of a [`QpSlot`]; nothing is hashed or searched on the
//! data path. All fields are atomics, so that the slices can come from anywhere and be shared; on x86 and Arm a relaxed
//! atomic access costs what a plain one does.
//!
//! A destroyed QP cannot simply give its slot and its memory back: completions of it may still lie in its CQs, which
//! other threads may be polling at this moment. It is put on the CQ's list of detached QPs instead. The next poll of
//! the CQ finds it there and marks its remaining completions as stale (their SRQ entries are recycled); the last CQ to
//! do so frees slot and memory.
//!
//! What arrives for an XRC SRQ completes in the SRQ's CQ, under the number of any of its QPs. Such an SRQ takes a
//! [`QpSlot`] beside its own, which stands for all of them, so that it is detached from its CQ in the same way.

// UNSAFETY: follows pointers to the arrays of queues, which lie in the queues' memory.
#![expect(unsafe_code)]

use crate::memory::cqe_ring::SharedRing;
use crate::memory::kept_block::KeptBlock;
use crate::memory::prefetch::prefetch;
use crate::memory::sync::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, constant};
use crate::memory::waiting_task::WaitingTask;
use bareverbs_firmware_cmds::cqe::{Opcode, TailWord};
use core::ptr::NonNull;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// "No such slot" in an index.
pub(crate) const NONE: u32 = u32::MAX;

/// In [`QpSlot::qpn_tag`]: the slot has no live QP, so that no completion matches.
pub(crate) const DEAD: u32 = 1 << 31;

/// In [`QpSlot::qpn_tag`]: the slot stands for an XRC SRQ, whose completions carry the numbers of many QPs.
pub(crate) const XRC_SRQ: u32 = 1 << 30;

/// In [`CqSlot::pending_flags`]: the device has put the CQ into error.
pub(crate) const CQ_FAILED: u32 = 1 << 31;

/// In [`CqSlot::pending_flags`]: the CQ was dropped and accepts no more detached QPs.
pub(crate) const CQ_ABANDONED: u32 = 1 << 30;

/// In [`CqSlot::pending_flags`]: queues of raw packets use the CQ from now on. The next poll takes note.
pub(crate) const CQ_PACKETS: u32 = 1 << 29;

/// The list in [`CqSlot::pending_flags`].
const DETACHED: u32 = CQ_PACKETS - 1;

/// Memory for one queue pair: what processing its completions needs.
///
/// Opaque to the caller, which only provides the memory (see `Storage`).
#[derive(Debug)]
#[repr(C, align(64))]
pub struct QpSlot {
    // First line: read for each completion.
    /// The QP number, with [`DEAD`] set while there is none.
    pub(crate) qpn_tag: AtomicU32,
    /// Index of the SRQ it receives from, or [`NONE`].
    pub(crate) srq: AtomicU32,
    /// Number of basic blocks in the send ring, minus 1.
    sq_mask: AtomicU32,
    /// Number of entries in `sq_wr_ids`, minus 1.
    wr_mask: AtomicU32,
    /// Number of receive WQEs, minus 1.
    rq_mask: AtomicU32,
    /// Counter of the oldest send work request that has not completed.
    pub(crate) sq_tail: AtomicU32,
    /// Counter of the oldest receive work request that has not completed.
    pub(crate) rq_tail: AtomicU32,
    /// Counter of the receive work request that comes next: the device cannot have completed it. With an SRQ both stay 0,
    /// so that no completion looks like one of the QP's own receives.
    pub(crate) rq_head: AtomicU32,
    /// By basic block: counter of the work request that starts there.
    sq_heads: AtomicPtr<AtomicU32>,
    /// Identifiers of the send work requests, by work request counter.
    sq_wr_ids: AtomicPtr<AtomicU64>,
    /// Identifiers of the receive work requests, by WQE.
    rq_wr_ids: AtomicPtr<AtomicU64>,

    // Second line: creation and destruction.
    /// Indexes of the send and the receive CQ; [`NONE`] if there is none, and once the QP is detached from it.
    pub(crate) cqs: [AtomicU32; 2],
    /// Links of the two CQs' lists of detached QPs (index + 1, 0 at the end); free list link in the first one.
    pub(crate) links: [AtomicU32; 2],
    /// See [`detach`] and [`error_flags`].
    pub(crate) flags: AtomicU32,
    /// The indexes up to which the CQs had been filled at the last reset: earlier completions are stale.
    pub(crate) stale_before: [AtomicU32; 2],
    /// The QP's DMA block, while this slot and no handle owns it.
    pub(crate) block: KeptBlock<{ Self::BLOCK_ALIGN }>,
}

/// Where a QP keeps what the poller needs, in the QP's memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QpArrays {
    /// Work request counters of sends, by block.
    pub(crate) heads: NonNull<AtomicU32>,
    /// Their number, a power of two.
    pub(crate) blocks: u32,
    /// Identifiers of sends, by work request.
    pub(crate) send_ids: NonNull<AtomicU64>,
    /// Their number, a power of two.
    pub(crate) sends: u32,
    /// Identifiers of receives, by WQE.
    pub(crate) recv_ids: NonNull<AtomicU64>,
    /// Their number, a power of two.
    pub(crate) recvs: u32,
}

/// Flags of a [`QpSlot`] that is being detached, one bit for each CQ (`<< side`).
pub(crate) mod detach {
    /// On the CQ's list.
    pub(crate) const QUEUED: u32 = 1 << 0;
    /// The QP is destroyed, and the CQ may still hold completions of it.
    pub(crate) const PENDING: u32 = 1 << 2;
    /// The QP was reset; completions before `stale_before` are to be dropped.
    pub(crate) const RESET: u32 = 1 << 4;
}

/// In [`QpSlot::flags`]: its receives are frames, whose completions name no queue but by the slot's index: a mark of flow
/// steering stands in the number's place.
pub(crate) const PACKETS: u32 = 1 << 8;

/// In [`QpSlot::flags`]: it is a target of dynamic connections, which the firmware counts apart from QPs.
pub(crate) const TARGET: u32 = 1 << 9;

/// In [`QpSlot::flags`]: it is one that has drained.
pub(crate) const DRAINED: u32 = 1 << 10;

/// The mark in a ring's record of a work request ([`QpSlot::sq_heads`]) whose completion is not handed out. It makes the place
/// one that is not outstanding, so that the usual way of polling does not have to look for it. A place that was never posted
/// is half of all numbers away ([`SendRing`](crate::memory::send_ring::SendRing)), and this mark does not lead back from there.
pub(crate) const SILENT: u32 = 1 << 30;

/// The mark of a work request that closes a window. The device completes it as one that opens it; the slow way of polling hands it
/// out, and knows it by this mark.
pub(crate) const CLOSES: u32 = 1 << 29;

/// Errors of a QP that completions have reported, in the same word. Cleared by transitions.
pub(crate) mod error_flags {
    /// A send failed.
    pub(crate) const SEND_FAILED: u32 = 1 << 6;
    /// A receive failed, or a send was flushed: all of the QP is in error.
    pub(crate) const FAILED: u32 = 1 << 7;
}

impl QpSlot {
    /// Alignment of the DMA blocks that slots keep.
    pub(crate) const BLOCK_ALIGN: usize = 64;

    /// Publishes the arrays of a new QP to the poller. The QP is not live yet.
    ///
    /// # Safety
    /// The arrays stay allocated until the QP is detached from all CQs: until no completion with its number is
    /// processed any more.
    pub(crate) unsafe fn publish(&self, arrays: QpArrays) {
        self.sq_mask.store(arrays.blocks - 1, Relaxed);
        self.wr_mask.store(arrays.sends - 1, Relaxed);
        self.rq_mask.store(arrays.recvs - 1, Relaxed);
        self.sq_heads.store(arrays.heads.as_ptr(), Relaxed);
        self.sq_wr_ids.store(arrays.send_ids.as_ptr(), Relaxed);
        self.rq_wr_ids.store(arrays.recv_ids.as_ptr(), Relaxed);
        self.reset_counters();
    }

    /// No work request is outstanding, and the next one is the first.
    pub(crate) fn reset_counters(&self) {
        for counter in [&self.sq_tail, &self.rq_head, &self.rq_tail] {
            counter.store(0, Relaxed);
        }
    }

    /// Returns `true` if the slot's QP uses this CQ and is not detached from it. Only the CQ's owner detaches QPs from it;
    /// so, when the owner asks, the arrays and the SRQ of the QP stay allocated until the owner detaches it.
    #[inline(always)]
    pub(crate) fn uses_cq(&self, cq: u32) -> bool {
        // Acquire: what was published before the QP was given its CQs.
        self.cqs[0].load(Acquire) == cq || self.cqs[1].load(Acquire) == cq
    }

    /// Brings nearer what the completion with this tail reads, of the QP that has this slot now: a hint, which checks nothing.
    #[inline(always)]
    pub(crate) fn prefetch_work(&self, tail: TailWord) {
        if tail.last().opcode() == Opcode::Requester as u8 {
            let block = u32::from(tail.wqe_counter()) & self.sq_mask.load(Relaxed);
            let at = self.sq_tail.load(Relaxed) & self.wr_mask.load(Relaxed);
            prefetch(self.sq_heads.load(Relaxed).wrapping_add(block as usize));
            prefetch(self.sq_wr_ids.load(Relaxed).wrapping_add(at as usize));
        } else {
            let at = self.rq_tail.load(Relaxed) & self.rq_mask.load(Relaxed);
            prefetch(self.rq_wr_ids.load(Relaxed).wrapping_add(at as usize));
        }
    }

    /// The QP is detached from the CQ of this side, and from the other one if both are the same.
    pub(crate) fn clear_cq(&self, side: usize) {
        let gone = self.cqs[side].load(Relaxed);
        for cq in &self.cqs {
            if cq.load(Relaxed) == gone {
                cq.store(NONE, Relaxed);
            }
        }
    }

    /// The live QP of this slot, if it has this number (24 bits).
    #[inline(always)]
    pub(crate) fn live(&self, qpn: u32) -> Option<LiveQp<'_>> {
        (self.qpn_tag.load(Acquire) == qpn).then_some(LiveQp(self))
    }

    /// Returns `true` if the slot's live QP has this number.
    pub(crate) fn matches_live(&self, qpn: u32) -> bool {
        self.qpn_tag.load(Acquire) == qpn
    }

    /// Returns `true` if the slot's QP had this number, and is destroyed or being reset.
    pub(crate) fn matches_dead(&self, qpn: u32) -> bool {
        self.qpn_tag.load(Acquire) == qpn | DEAD
    }

    /// Returns `true` if the slot stands for an XRC SRQ; also for one that is destroyed.
    pub(crate) fn is_xrc_srq(&self) -> bool {
        self.qpn_tag.load(Acquire) & XRC_SRQ != 0
    }

    /// Returns `true` if a completion with this QP number may be the slot's.
    pub(crate) fn tracks_live(&self, qpn: u32) -> bool {
        self.matches_live(qpn) || self.matches_live(XRC_SRQ)
    }

    /// Returns `true` if its receives are frames.
    pub(crate) fn has_packets(&self) -> bool {
        self.flags.load(Acquire) & PACKETS != 0
    }

    /// The live QP of a slot whose receives are frames, and its number.
    pub(crate) fn live_packets(&self) -> Option<(LiveQp<'_>, u32)> {
        let qpn = self.qpn_tag.load(Acquire);
        (qpn & DEAD == 0 && self.has_packets()).then_some((LiveQp(self), qpn))
    }

    /// The same for a slot whose owner is destroyed or being reset.
    pub(crate) fn tracks_dead(&self, qpn: u32) -> bool {
        self.matches_dead(qpn) || self.matches_dead(XRC_SRQ)
    }

    constant! {
    /// An empty slot.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            qpn_tag: AtomicU32::new(DEAD),
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
            block: KeptBlock::new(),
        }
    }
    }
}

/// The slot of a QP that is not detached from the CQ being polled, so that its arrays are there. For the poller.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LiveQp<'s>(&'s QpSlot);

impl<'s> LiveQp<'s> {
    /// A send work request has completed, and with it all before it: frees them. `None` if none that is outstanding starts
    /// at this block.
    #[inline(always)]
    pub(crate) fn complete_send(self, counter: u16) -> Option<u64> {
        self.complete(counter, 0)
    }

    /// Frees a send work request whose completion is not handed out ([`SILENT`]), and all before it; returns false if there
    /// is none.
    #[cold]
    pub(crate) fn complete_silent(self, counter: u16) -> bool {
        self.complete(counter, SILENT).is_some()
    }

    /// Completes a work request that closes a window ([`CLOSES`]), as [`complete_send`](Self::complete_send) does others.
    #[cold]
    pub(crate) fn complete_closing(self, counter: u16) -> Option<u64> {
        self.complete(counter, CLOSES)
    }

    #[inline(always)]
    fn complete(self, counter: u16, mark: u32) -> Option<u64> {
        let slot = self.0;
        let block = (u32::from(counter) & slot.sq_mask.load(Relaxed)) as usize;
        // SAFETY: the masked index lies inside the array (`publish`).
        let head = unsafe { (*slot.sq_heads.load(Relaxed).add(block)).load(Relaxed) } ^ mark;
        // A counter is there only if it was posted, so it lies before the next one; it also has to lie behind the tail.
        let mask = slot.wr_mask.load(Relaxed);
        if head.wrapping_sub(slot.sq_tail.load(Relaxed)) > mask {
            return None;
        }
        let at = (head & mask) as usize;
        // SAFETY: as above.
        let wr_id = unsafe { (*slot.sq_wr_ids.load(Relaxed).add(at)).load(Relaxed) };
        slot.sq_tail.store(head.wrapping_add(1), Release);
        Some(wr_id)
    }

    /// The oldest receive work request has completed. `None` if the completion names another one.
    #[inline(always)]
    pub(crate) fn complete_recv(self, counter: u16) -> Option<u64> {
        let slot = self.0;
        let tail = slot.rq_tail.load(Relaxed);
        let mask = slot.rq_mask.load(Relaxed);
        if (tail ^ u32::from(counter)) & mask != 0 || tail == slot.rq_head.load(Relaxed) {
            return None;
        }
        let at = (tail & mask) as usize;
        // SAFETY: as in `complete_send`.
        let wr_id = unsafe { (*slot.rq_wr_ids.load(Relaxed).add(at)).load(Relaxed) };
        slot.rq_tail.store(tail.wrapping_add(1), Release);
        Some(wr_id)
    }

    /// The oldest `count` receive work requests have completed, if so many were posted and the first has this counter.
    #[inline(always)]
    pub(crate) fn complete_recvs(self, counter: u16, count: u32) -> Option<Receives<'s>> {
        let slot = self.0;
        let tail = slot.rq_tail.load(Relaxed);
        let mask = slot.rq_mask.load(Relaxed);
        let posted = slot.rq_head.load(Relaxed).wrapping_sub(tail);
        if (tail ^ u32::from(counter)) & mask != 0 || posted < count || posted > mask + 1 {
            return None;
        }
        Some(Receives {
            tail: &slot.rq_tail,
            wr_ids: slot.rq_wr_ids.load(Relaxed),
            mask,
            next: tail,
        })
    }

    /// The oldest receive work request was flushed. A flushed receive need not name its WQE; they come in order anyway.
    pub(crate) fn flush_recv(self) -> Option<u64> {
        self.complete_recv(self.0.rq_tail.load(Relaxed) as u16)
    }
}

/// Receive work requests that have completed. Each is freed when its identifier is taken, not before: its place may then be
/// posted to.
#[derive(Debug)]
pub(crate) struct Receives<'s> {
    tail: &'s AtomicU32,
    wr_ids: *mut AtomicU64,
    mask: u32,
    next: u32,
}

impl Receives<'_> {
    /// The next one.
    #[inline(always)]
    pub(crate) fn next_id(&mut self) -> u64 {
        let at = (self.next & self.mask) as usize;
        // SAFETY: as in `complete_send`. The QP stays attached to the CQ until the poller detaches it.
        let wr_id = unsafe { (*self.wr_ids.add(at)).load(Relaxed) };
        self.next = self.next.wrapping_add(1);
        self.tail.store(self.next, Release);
        wr_id
    }

    /// Hands the next ones to `each`, with their numbers among these, unless the ring's end is between them; whether it did.
    #[inline(always)]
    pub(crate) fn next_ids<const N: usize>(&mut self, mut each: impl FnMut(usize, u64)) -> bool {
        const { assert!(N > 0 && N <= 1 << 16) };
        let at = self.next & self.mask;
        if self.mask - at < N as u32 - 1 {
            return false;
        }
        // SAFETY: as in `next_id`.
        let first = unsafe { self.wr_ids.add(at as usize) };
        for nth in 0..N {
            // SAFETY: as in `next_id`; the last one is not behind the ring's last by the check.
            let wr_id = unsafe { (*first.add(nth)).load(Relaxed) };
            self.tail
                .store(self.next.wrapping_add(nth as u32 + 1), Release);
            each(nth, wr_id);
        }
        self.next = self.next.wrapping_add(N as u32);
        true
    }
}

impl Default for QpSlot {
    fn default() -> Self {
        Self::new()
    }
}

/// Memory for one completion queue. Opaque, as [`QpSlot`].
#[derive(Debug)]
#[repr(C, align(64))]
pub struct CqSlot {
    /// The work of a poller besides its ring, 0 almost always: [`CQ_FAILED`], and the head (index + 1) of the
    /// list of detached QPs.
    pub(crate) pending_flags: AtomicU32,
    /// Completion events that the device has delivered.
    pub(crate) events: AtomicU32,
    /// Its number.
    pub(crate) cqn: AtomicU32,
    /// QPs that use it, counted per queue.
    pub(crate) users: AtomicU32,
    /// Syndrome of the CQ error event.
    pub(crate) syndrome: AtomicU8,
    /// Map by number: head of the chain of CQs whose number maps to this slot (index + 1).
    pub(super) bucket: AtomicU32,
    /// Map by number: next in the chain (index + 1); free list link while free.
    pub(super) next: AtomicU32,
    /// Its ring, if there is one: to find completions of a QP that is reset, and to keep the memory of a CQ that was
    /// dropped while queues used it.
    pub(crate) ring: spin::Mutex<Option<SharedRing>>,
    /// The task that waits for its next event.
    pub(crate) task: WaitingTask,
    /// List of CQs whose tasks are to be woken: the next one (index + 1) and 1 more; 0 while it is not on the list.
    pub(super) woken_next: AtomicU32,
}

impl CqSlot {
    constant! {
    /// An empty slot.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            pending_flags: AtomicU32::new(0),
            events: AtomicU32::new(0),
            cqn: AtomicU32::new(NONE),
            users: AtomicU32::new(0),
            syndrome: AtomicU8::new(0),
            bucket: AtomicU32::new(0),
            next: AtomicU32::new(0),
            ring: spin::Mutex::new(None),
            task: WaitingTask::new(),
            woken_next: AtomicU32::new(0),
        }
    }
    }

    /// Puts QP slot `index` on the list of detached QPs. False if the CQ was dropped.
    #[must_use]
    pub(crate) fn push_detached(&self, qps: &[QpSlot], index: u32, side: usize) -> bool {
        let Some(slot) = qps.get(index as usize) else {
            return true;
        };
        if slot.flags.fetch_or(detach::QUEUED << side, AcqRel) & detach::QUEUED << side != 0 {
            return true;
        }
        let mut head = self.pending_flags.load(Relaxed);
        loop {
            if head & CQ_ABANDONED != 0 {
                slot.flags.fetch_and(!(detach::QUEUED << side), AcqRel);
                return false;
            }
            slot.links[side].store(head & DETACHED, Relaxed);
            let new = head & (CQ_FAILED | CQ_PACKETS) | (index + 1);
            match self
                .pending_flags
                .compare_exchange_weak(head, new, Release, Relaxed)
            {
                Ok(_) => return true,
                Err(now) => head = now,
            }
        }
    }

    /// Takes the whole list of this CQ, whose index is `index`: calls `each` with the index of a QP, its slot, its
    /// flags, and which of its CQs this one is.
    pub(crate) fn take_detached<'s>(
        &self,
        qps: &'s [QpSlot],
        index: u32,
        mut each: impl FnMut(u32, &'s QpSlot, u32, usize),
    ) {
        let mut link = self.pending_flags.fetch_and(!DETACHED, AcqRel) & DETACHED;
        while let Some(at) = link.checked_sub(1) {
            let Some(slot) = qps.get(at as usize) else {
                return;
            };
            // The send side stands for both if they are the same CQ.
            let side = usize::from(slot.cqs[0].load(Relaxed) != index);
            link = slot.links[side].load(Relaxed);
            slot.flags.fetch_and(!(detach::QUEUED << side), AcqRel);
            each(at, slot, slot.flags.load(Acquire), side);
        }
    }

    /// The device has delivered a completion event. Whether a task waits for it.
    pub(crate) fn add_event(&self) -> bool {
        self.events.fetch_add(1, Release);
        self.task.notify()
    }

    /// Queues of raw packets use the CQ.
    pub(crate) fn expect_packets(&self) {
        self.pending_flags.fetch_or(CQ_PACKETS, AcqRel);
    }

    /// Returns `true` if [`expect_packets`](Self::expect_packets) was called since the last call.
    pub(crate) fn take_packets(&self) -> bool {
        let said = self.pending_flags.load(Acquire) & CQ_PACKETS != 0;
        if said {
            self.pending_flags.fetch_and(!CQ_PACKETS, AcqRel);
        }
        said
    }

    /// The CQ is dropped: it refuses detached QPs from now on.
    pub(crate) fn abandon(&self) {
        self.pending_flags.fetch_or(CQ_ABANDONED, AcqRel);
    }
}

impl Default for CqSlot {
    fn default() -> Self {
        Self::new()
    }
}

/// Memory for one shared receive queue. Opaque, as [`QpSlot`].
#[derive(Debug)]
#[repr(C, align(64))]
pub struct SrqSlot {
    /// Its number, or [`NONE`].
    pub(crate) qpn_tag: AtomicU32,
    /// Number of WQEs minus 1.
    pub(crate) mask: AtomicU32,
    /// Head of the stack of consumed WQEs (index + 1), which the queue's owner takes as a whole.
    pub(super) returned: AtomicU32,
    /// QPs that receive from it.
    pub(crate) users: AtomicU32,
    /// Users of its memory: the handle, and each QP until it is detached from its CQs.
    pub(crate) pins: AtomicU32,
    /// The SRQ's DMA block, once the handle is gone.
    pub(crate) block: KeptBlock<{ Self::BLOCK_ALIGN }>,
    /// Identifiers of the work requests, by WQE.
    wr_ids: AtomicPtr<AtomicU64>,
    /// By WQE: [`SRQ_POSTED`] while the device may use it, else the link of the stack (index + 1).
    states: AtomicPtr<AtomicU32>,
    /// 1 if the device has reported a limit event that the caller has not taken yet.
    pub(crate) limit_reached: AtomicU32,
    /// Free list link while free.
    pub(super) next: AtomicU32,
}

/// State of an SRQ WQE that the device may use.
const SRQ_POSTED: u32 = u32::MAX;

impl SrqSlot {
    /// Alignment of the DMA blocks that slots keep. The context of a receive memory pool has one bit less than others
    /// for the offset of a ring in its page, so the ring starts at a page.
    pub(crate) const BLOCK_ALIGN: usize = 4096;

    constant! {
    /// An empty slot.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            qpn_tag: AtomicU32::new(NONE),
            mask: AtomicU32::new(0),
            returned: AtomicU32::new(0),
            users: AtomicU32::new(0),
            pins: AtomicU32::new(0),
            block: KeptBlock::new(),
            wr_ids: AtomicPtr::new(core::ptr::null_mut()),
            states: AtomicPtr::new(core::ptr::null_mut()),
            limit_reached: AtomicU32::new(0),
            next: AtomicU32::new(0),
        }
    }
    }

    /// Publishes the arrays of identifiers and states of the SRQ, each by WQE, to pollers.
    ///
    /// # Safety
    /// Both have `entries` elements (a power of two) and stay allocated until the last pin is gone. Before this call
    /// no WQE is posted and no completion names this slot; after the last pin is gone neither happens again.
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
        // The thread that changes the state takes the entry; a second completion for the same entry is ignored.
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
