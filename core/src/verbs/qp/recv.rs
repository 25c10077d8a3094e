//! The receive queue: no doorbell register, only a record that the device reads when a packet needs a WQE.

// UNSAFETY: WQEs are written to raw memory shared with the device.
#![expect(unsafe_code)]

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::memory::record::DoorbellRecord;
use crate::memory::slots::QpSlot;
use crate::types::sge::Sge;
use crate::verbs::qp::payload::put_data;
use crate::verbs::qp::wr::{BadWr, PostError, RecvWr};
use bareverbs_firmware_cmds::doorbell::ReceiveRecord;
use bareverbs_firmware_cmds::numbers::LKey;
use bareverbs_firmware_cmds::word::Word;
use bareverbs_firmware_cmds::wqe::DataWord;

/// The first half of the data segment that ends the list of a receive WQE, as it lies in memory: no length, and the
/// device's key for that.
pub(crate) fn terminator(key: u32) -> u64 {
    DataWord::new(0, LKey(key)).to_memory()
}

/// The receive half of a QP. `Send`, allocation-free, without locks, and without access to commands.
#[derive(Debug)]
#[repr(C)]
pub struct RecvQueue<'d> {
    pub(crate) ring: *mut u8,
    pub(crate) wr_ids: *const AtomicU64,
    /// Its doorbell record.
    pub(crate) record: DoorbellRecord,
    pub(crate) slot: &'d QpSlot,
    /// Next WQE, counted on.
    pub(crate) head: u32,
    /// The poller's tail, as last seen.
    pub(crate) tail: u32,
    /// WQEs minus 1.
    pub(crate) mask: u32,
    /// WQEs; 0 while the QP's state takes none.
    pub(crate) room: u32,
    /// Binary logarithm of a WQE's size.
    pub(crate) shift: u8,
    pub(crate) max_sge: u16,
    /// See [`terminator`].
    pub(crate) terminator: u64,
}

// SAFETY: the pointers are to parts of the QP's block that only this half writes (identifiers by atomics).
unsafe impl Send for RecvQueue<'_> {}

/// Writes the segment that ends a list.
///
/// # Safety
/// As [`put_data`].
#[inline(always)]
unsafe fn put_terminator(to: *mut u8, terminator: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        to.cast::<u64>().write(terminator);
        to.cast::<u64>().add(1).write(0);
    }
}

/// Writes the scatter list of a receive WQE with room for `max` entries: empty ones are left out, since a length of 0
/// means 2 GiB to the device, and a [`terminator`] ends a list that is not full.
///
/// # Safety
/// `to` points to `16 * max` bytes of a ring of the caller, aligned to 16, and there are at most `max` entries.
#[inline(always)]
pub(crate) unsafe fn put_list(to: *mut u8, sges: &[Sge], max: usize, terminator: u64) {
    if let [sge] = sges
        && sge.length != 0
    {
        // SAFETY: the caller's promise.
        unsafe {
            put_data(to, sge);
            if max > 1 {
                put_terminator(to.add(16), terminator);
            }
        }
        return;
    }
    let mut used = 0;
    for sge in sges {
        if sge.length != 0 {
            // SAFETY: the caller's promise.
            unsafe { put_data(to.add(used * 16), sge) };
            used += 1;
        }
    }
    if used < max {
        // SAFETY: the caller's promise.
        unsafe { put_terminator(to.add(used * 16), terminator) };
    }
}

/// Refuses what a scatter list cannot hold.
#[inline(always)]
pub(crate) fn check_list(sges: &[Sge], max: usize) -> Result<(), PostError> {
    if sges.len() > max {
        return Err(PostError::TooManySges {
            given: sges.len(),
            limit: max as u32,
        });
    }
    // All lengths at once: only their high bits matter.
    let length = sges.iter().fold(0, |bits, sge| bits | sge.length);
    if length >> 31 != 0 {
        return Err(PostError::SgeTooLong { length });
    }
    Ok(())
}

impl<'d> RecvQueue<'d> {
    /// Starts a batch: receives that share one update of the record, made by [`RecvBatch::ring`] or when the batch is
    /// dropped.
    #[inline(always)]
    pub fn batch(&mut self) -> RecvBatch<'_, 'd> {
        let head = self.head;
        let free = self.room.wrapping_sub(head.wrapping_sub(self.tail));
        RecvBatch {
            queue: self,
            head,
            free,
        }
    }

    /// Posts one receive: `ibv_post_recv`.
    #[inline(always)]
    pub fn post(&mut self, wr_id: u64, sges: &[Sge]) -> Result<(), PostError> {
        self.batch().post(wr_id, sges)
    }

    /// Posts a list with one update of the record. On an error those before the failing one are posted.
    pub fn post_list(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), BadWr> {
        let mut batch = self.batch();
        for (index, wr) in wrs.iter().enumerate() {
            if let Err(error) = batch.post(wr.wr_id, wr.sges) {
                return Err(BadWr { index, error });
            }
        }
        Ok(())
    }

    /// Receives that can be posted now, as far as completions have been polled.
    #[must_use]
    pub fn free(&self) -> u32 {
        self.room
            .saturating_sub(self.head.wrapping_sub(self.slot.rq_tail.load(Acquire)))
    }
}

impl RecvQueue<'_> {
    /// The room behind `head`, now that completions may have been polled.
    #[cold]
    #[inline(never)]
    fn look_again(&mut self, head: u32) -> u32 {
        self.tail = self.slot.rq_tail.load(Acquire);
        self.room.saturating_sub(head.wrapping_sub(self.tail))
    }

    /// Why there is no room.
    #[cold]
    fn refusal(&self) -> PostError {
        match self.room {
            0 => PostError::WrongState,
            room => PostError::QueueFull { limit: room },
        }
    }
}

/// Receives that share one update of the doorbell record.
#[derive(Debug)]
pub struct RecvBatch<'q, 'd> {
    queue: &'q mut RecvQueue<'d>,
    /// The queue's counter, which it gets back when the record is updated.
    head: u32,
    /// Receives that there is room for.
    free: u32,
}

impl RecvBatch<'_, '_> {
    /// Posts one receive.
    #[inline(always)]
    pub fn post(&mut self, wr_id: u64, sges: &[Sge]) -> Result<(), PostError> {
        if self.free == 0 {
            self.free = self.queue.look_again(self.head);
            if self.free == 0 {
                return Err(self.queue.refusal());
            }
        }
        let queue = &*self.queue;
        check_list(sges, queue.max_sge.into())?;
        let at = (self.head & queue.mask) as usize;
        // SAFETY: the masked index lies inside the ring and the array; the WQE there has completed.
        unsafe {
            put_list(
                queue.ring.add(at << queue.shift),
                sges,
                queue.max_sge.into(),
                queue.terminator,
            );
            (*queue.wr_ids.add(at)).store(wr_id, Relaxed);
        }
        self.head = self.head.wrapping_add(1);
        self.free -= 1;
        Ok(())
    }

    /// Tells the device of what was posted so far.
    #[inline(always)]
    pub fn ring(&mut self) {
        let queue = &mut *self.queue;
        if queue.head == self.head {
            return;
        }
        queue.head = self.head;
        queue.slot.rq_head.store(self.head, Release);
        let mut record = ReceiveRecord(0);
        record.set_counter(self.head as u16);
        queue.record.post(record);
    }
}

impl Drop for RecvBatch<'_, '_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.ring();
    }
}
