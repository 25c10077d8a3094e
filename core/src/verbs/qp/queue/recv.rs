//! The receive queue: no doorbell register, only a record that the device reads when a packet needs a WQE.

use core::sync::atomic::Ordering::{Acquire, Release};

use crate::memory::record::DoorbellRecord;
use crate::memory::recv_ring::{RecvPlaces, RecvRing};
use crate::memory::segment::key_and_length;
use crate::memory::slots::QpSlot;
use crate::types::sge::Sge;
use crate::verbs::qp::queue::wr::{BadWr, PostError, RecvWr, given};
use bareverbs_firmware_cmds::doorbell::ReceiveRecord;

/// The receive half of a QP. `Send`, allocation-free, without locks, and without access to commands.
#[derive(Debug)]
#[repr(C)]
pub struct RecvQueue<'d> {
    pub(crate) ring: RecvRing,
    /// Its doorbell record.
    pub(crate) record: DoorbellRecord,
    pub(crate) slot: &'d QpSlot,
    /// Next WQE, running freely.
    pub(crate) head: u32,
    /// The first one for which there is no space, as far as the poller's tail was seen.
    pub(crate) limit: u32,
    /// WQEs; 0 while the QP's state takes none.
    pub(crate) capacity: u32,
    /// Where the batch ends that calls [`post_late`](Self::post_late).
    pub(crate) late: u32,
}

/// Refuses what a scatter list cannot hold.
#[inline(always)]
pub(crate) fn check_list(sges: &[Sge], max: usize) -> Result<(), PostError> {
    if sges.len() > max {
        return Err(PostError::TooManySges {
            given: given(sges.len()),
            limit: max as u16,
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
        RecvBatch {
            head: self.head,
            limit: self.limit,
            places: self.ring.places,
            queue: self,
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
        self.capacity
            .saturating_sub(self.head.wrapping_sub(self.slot.rq_tail.load(Acquire)))
    }
}

impl RecvQueue<'_> {
    /// Opens the queue for so many receives, or closes it.
    pub(crate) fn set_capacity(&mut self, capacity: u32) {
        self.capacity = capacity;
        self.limit = match capacity {
            0 => self.head,
            _ => self.slot.rq_tail.load(Acquire).wrapping_add(capacity),
        };
    }

    /// Posts a receive that [`RecvBatch::post`] cannot, as the one after those before `self.late`, and updates the record:
    /// for all of them, or after an error for those before it. So the batch has nothing left to do.
    // `extern "C"` says to callers, also where its body is not known, that it does not unwind: no batch has to be dropped.
    #[cold]
    #[inline(never)]
    #[expect(improper_ctypes_definitions, reason = "only called from Rust")]
    extern "C" fn post_late(&mut self, wr_id: u64, sges: &[Sge]) -> Result<(), PostError> {
        let head = self.late;
        let posted = self.put_late(head, wr_id, sges);
        self.ring_for(head.wrapping_add(posted.is_ok().into()));
        posted
    }

    /// Writes a receive as the one with this index, if there is space.
    fn put_late(&mut self, head: u32, wr_id: u64, sges: &[Sge]) -> Result<(), PostError> {
        if head == self.limit {
            let limit = self.slot.rq_tail.load(Acquire).wrapping_add(self.capacity);
            if self.capacity == 0 || head == limit {
                return Err(match self.capacity {
                    0 => PostError::WrongState,
                    capacity => PostError::QueueFull { limit: capacity },
                });
            }
            self.limit = limit;
        }
        check_list(sges, self.ring.max_sge())?;
        self.ring.write(head, wr_id, sges);
        Ok(())
    }

    /// Gives the device all receives before `head`.
    #[inline(always)]
    fn ring_for(&mut self, head: u32) {
        self.head = head;
        self.slot.rq_head.store(head, Release);
        let mut record = ReceiveRecord(0);
        record.set_counter(head as u16);
        self.record.post(record);
    }
}

/// Receives that share one update of the doorbell record.
#[derive(Debug)]
pub struct RecvBatch<'q, 'd> {
    queue: &'q mut RecvQueue<'d>,
    /// Copies of what the queue has.
    places: RecvPlaces,
    limit: u32,
    /// The queue's, which it gets back when the record is updated.
    head: u32,
}

impl RecvBatch<'_, '_> {
    /// Posts one receive.
    #[inline(always)]
    pub fn post(&mut self, wr_id: u64, sges: &[Sge]) -> Result<(), PostError> {
        // As `SendQueue` does: without a call, or all that is left in a call.
        if let [sge] = sges
            && self.post_usual(wr_id, sge)
        {
            return Ok(());
        }
        let queue = &mut *self.queue;
        queue.late = self.head;
        let posted = queue.post_late(wr_id, sges);
        (self.head, self.limit) = (queue.head, queue.limit);
        posted
    }

    /// Posts one receive with this one entry if that takes no call: if there is room as far as the poller's tail was seen, and
    /// the entry is not empty. Whether it did.
    #[inline(always)]
    #[must_use]
    pub fn post_usual(&mut self, wr_id: u64, sge: &Sge) -> bool {
        let is_usual = self.head != self.limit && (key_and_length(sge) as u32).cast_signed() > 0;
        if is_usual {
            let ring = &self.queue.ring;
            ring.write_one(self.places, self.head, wr_id, sge);
            self.head = self.head.wrapping_add(1);
        }
        is_usual
    }

    /// Gives the device what was posted so far.
    #[inline(always)]
    pub fn ring(&mut self) {
        if self.head != self.queue.head {
            self.queue.ring_for(self.head);
        }
    }
}

impl Drop for RecvBatch<'_, '_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.ring();
    }
}
