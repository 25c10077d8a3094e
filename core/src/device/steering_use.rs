//! The state that a device's Ethernet queues and flow tables share.

use core::sync::atomic::Ordering::Acquire;
use core::sync::atomic::{AtomicBool, AtomicU32};

/// The owners of the frames that the function receives: a device has one of these.
pub(crate) struct SteeringUse {
    /// `true` if the root is taken, and whether there is a table in front of a queue's.
    pub(crate) root: AtomicBool,
    pub(crate) front: AtomicBool,
    /// The table of the queue that has the root, plus 1; 0 without.
    pub(crate) queue: AtomicU32,
}

impl SteeringUse {
    pub(crate) const fn new() -> Self {
        Self {
            root: AtomicBool::new(false),
            front: AtomicBool::new(false),
            queue: AtomicU32::new(0),
        }
    }

    /// The table that one in front may lead to.
    pub(crate) fn queue_table(&self) -> Option<u32> {
        self.queue.load(Acquire).checked_sub(1)
    }
}
