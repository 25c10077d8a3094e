//! User access regions: the doorbell pages of the BAR.

use crate::memory::pages::Place;

/// A doorbell page.
#[derive(Debug)]
pub(crate) struct Uar {
    /// Event queues with their doorbell here. Completion and work queues do not keep a UAR: rdma-core frees those of a
    /// program that ends with live queues before the kernel destroys these (`mlx5_free_context`), and Linux ignores the
    /// answer (`mlx5_ib_mmap_free`), so that cards that refused would run out of UARs. No card's answer is recorded:
    /// [`Device::answer_unknown`](crate::device::Device::answer_unknown).
    pub(crate) users: u32,
    pub(crate) place: Place,
    /// First half of a completion queue's doorbell that arrives as two 32-bit writes.
    pub(crate) cq_high: u32,
}

impl Uar {
    pub(crate) fn new(place: Place) -> Self {
        Self {
            users: 0,
            place,
            cq_high: 0,
        }
    }
}
