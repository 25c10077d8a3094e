//! What others than its owner may see of a CQ's ring: how far the device has come.

// UNSAFETY: rings and doorbell records are raw memory shared with the device.
#![expect(unsafe_code)]

use core::ptr::NonNull;

use bareverbs_firmware_cmds::cqe::{self, OpOwn};
use bareverbs_firmware_cmds::doorbell::CqConsumerRecord;

use crate::memory::dma::{load, read_barrier};
use crate::memory::record::DoorbellRecord;

/// Completions are counted with 24 bits.
const INDEX: u32 = 0xff_ffff;

/// A CQ's ring and doorbell record.
#[derive(Debug)]
pub(crate) struct SharedRing {
    base: NonNull<u8>,
    record: DoorbellRecord,
    size: u32,
}

// SAFETY: the memory is only read through it, by single volatile accesses; it is the device's as much as the host's.
unsafe impl Send for SharedRing {}

impl SharedRing {
    /// A ring of `size` CQEs, a power of two, at `base`, with its doorbell record.
    ///
    /// # Safety
    /// The ring is memory of the device that stays allocated, as its record does, for as long as this value exists.
    pub(crate) unsafe fn new(base: NonNull<u8>, record: DoorbellRecord, size: u32) -> Self {
        Self { base, record, size }
    }

    /// The consumer index that the owner has published.
    fn consumer(&self) -> u32 {
        self.record.load::<CqConsumerRecord>().consumer()
    }

    /// Whether the device has written the CQE with this index, and not yet the one that comes to its place later.
    fn is_there(&self, index: u32) -> bool {
        let at = (index & (self.size - 1)) as usize * cqe::SIZE;
        // SAFETY: the masked index lies inside the ring, which is allocated (`new`).
        let last = unsafe { load::<OpOwn>(self.base.add(at).as_ptr()) };
        last.is_ready(u8::from(index & self.size != 0))
    }

    /// Index (24 bits) behind the last CQE that the device has written by now, as the ring itself shows it. The counters
    /// of QUERY_CQ may lag behind.
    ///
    /// The owner may take completions meanwhile. A CQE that is no longer there was overwritten after the owner had
    /// published a later consumer index, and the search goes on from there; so it ends at a CQE that was not written yet,
    /// or behind all that were in the ring when it began.
    pub(crate) fn producer(&self) -> u32 {
        let start = self.consumer();
        let mut at = start;
        while at.wrapping_sub(start) & INDEX < self.size {
            if self.is_there(at) {
                at = at.wrapping_add(1);
                continue;
            }
            read_barrier();
            let consumer = self.consumer();
            let ahead = consumer.wrapping_sub(at) & INDEX;
            if ahead == 0 || ahead > INDEX / 2 {
                break;
            }
            at = consumer;
        }
        at & INDEX
    }
}
