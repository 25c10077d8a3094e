//! The receive queue: no doorbell register, only a record that the device reads when a packet needs a WQE.

use core::sync::atomic::Ordering::{Acquire, Release};

use crate::memory::record::DoorbellRecord;
use crate::memory::recv_ring::RecvRing;
use crate::memory::slots::QpSlot;
use crate::types::sge::Sge;
use crate::verbs::qp::wr::{BadWr, PostError, RecvWr};
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
    /// The poller's tail, as last seen.
    pub(crate) tail: u32,
    /// WQEs; 0 while the QP's state takes none.
    pub(crate) capacity: u32,
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
        let free = self.capacity.wrapping_sub(head.wrapping_sub(self.tail));
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
        self.capacity
            .saturating_sub(self.head.wrapping_sub(self.slot.rq_tail.load(Acquire)))
    }
}

impl RecvQueue<'_> {
    /// Free entries behind `head`, now that completions may have been polled.
    #[cold]
    #[inline(never)]
    fn refresh_tail(&mut self, head: u32) -> u32 {
        self.tail = self.slot.rq_tail.load(Acquire);
        self.capacity.saturating_sub(head.wrapping_sub(self.tail))
    }

    /// Why there is no free entry.
    #[cold]
    fn refusal(&self) -> PostError {
        match self.capacity {
            0 => PostError::WrongState,
            capacity => PostError::QueueFull { limit: capacity },
        }
    }
}

/// Receives that share one update of the doorbell record.
#[derive(Debug)]
pub struct RecvBatch<'q, 'd> {
    queue: &'q mut RecvQueue<'d>,
    /// The queue's counter, which it gets back when the record is updated.
    head: u32,
    /// Receives that can still be posted.
    free: u32,
}

impl RecvBatch<'_, '_> {
    /// Posts one receive.
    #[inline(always)]
    pub fn post(&mut self, wr_id: u64, sges: &[Sge]) -> Result<(), PostError> {
        if self.free == 0 {
            self.free = self.queue.refresh_tail(self.head);
            if self.free == 0 {
                return Err(self.queue.refusal());
            }
        }
        let queue = &mut *self.queue;
        check_list(sges, queue.ring.max_sge())?;
        queue.ring.write(self.head, wr_id, sges);
        self.head = self.head.wrapping_add(1);
        self.free -= 1;
        Ok(())
    }

    /// Gives the device what was posted so far.
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
