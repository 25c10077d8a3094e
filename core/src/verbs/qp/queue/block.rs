//! The memory of a QP.
//!
//! One block of DMA memory holds everything: receive ring, send ring, the doorbell record in a line of its own, and the
//! side arrays (identifiers by work request, counters by block), which only the driver sees. It
//! starts anywhere at a multiple of 64 bytes, so that small QPs share pages.

use crate::memory::dma::DmaMemory;
use crate::memory::record::RECORD_LEN;
use crate::verbs::qp::queue::sizes::QueueSizes;

/// The places of the parts of a QP's block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockLayout {
    /// Bytes of both rings, receive first.
    pub(crate) rings: usize,
    /// Offset of the send ring.
    pub(crate) sq: usize,
    /// Offset of the doorbell record.
    pub(crate) record: usize,
    /// Offsets of the side arrays.
    pub(crate) sq_wr_ids: usize,
    pub(crate) rq_wr_ids: usize,
    pub(crate) sq_heads: usize,
    /// Entries of `sq_wr_ids`.
    pub(crate) wr_entries: usize,
    pub(crate) len: usize,
}

impl BlockLayout {
    /// Each array has at least one entry, so that no pointer ever dangles.
    pub(crate) const fn new(sizes: &QueueSizes) -> Self {
        let sq = sizes.rq_entries as usize * sizes.rq_stride as usize;
        let rings = sq + sizes.sq_blocks as usize * 64;
        let record = rings;
        let sq_wr_ids = record + RECORD_LEN;
        let wr_entries = (sizes.cap.max_send_wr as usize).next_power_of_two();
        let rq_wr_ids = sq_wr_ids + 8 * wr_entries;
        let rq_entries = if sizes.rq_entries == 0 {
            1
        } else {
            sizes.rq_entries as usize
        };
        let sq_heads = rq_wr_ids + 8 * rq_entries;
        let blocks = if sizes.sq_blocks == 0 {
            1
        } else {
            sizes.sq_blocks as usize
        };
        let len = (sq_heads + 4 * blocks).next_multiple_of(64);
        Self {
            rings,
            sq,
            record,
            sq_wr_ids,
            rq_wr_ids,
            sq_heads,
            wr_entries,
            len,
        }
    }
}

impl BlockLayout {
    /// Makes no block the start of a work request that could be outstanding: all counters are the one before the first.
    pub(crate) fn reset_wqe_heads(&self, block: &DmaMemory) {
        block.fill(self.sq_heads, self.len - self.sq_heads, 0xff);
    }
}
