//! The ring of a receive queue or of an SRQ: WQEs that are scatter lists, and the identifier of each.
//!
//! An index is masked, and a list is cut to the size of a WQE, so that nothing given here can reach behind the ring.

// UNSAFETY: WQEs are written to raw memory shared with the device.
#![expect(unsafe_code)]

use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;

use bareverbs_firmware_cmds::numbers::LKey;
use bareverbs_firmware_cmds::word::Word;
use bareverbs_firmware_cmds::wqe::{DataWord, SEGMENT_UNIT};

use crate::memory::segment::put_data;
use crate::memory::sync::AtomicU64;
use crate::types::sge::Sge;

/// Where a receive ring lies and how it is divided.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecvRingParts {
    /// The scatter list of the first WQE.
    pub(crate) lists: NonNull<u8>,
    /// Identifiers, by WQE.
    pub(crate) wr_ids: NonNull<AtomicU64>,
    /// WQEs, a power of two.
    pub(crate) entries: u32,
    /// Binary logarithm of the bytes from one WQE to the next.
    pub(crate) log_stride: u8,
    /// Entries that a scatter list has room for.
    pub(crate) max_sge: u16,
    /// The key that ends a list which is not full.
    pub(crate) terminator: LKey,
}

/// Where the WQEs and identifiers of a receive ring lie. A batch keeps a copy: what is written to the ring could lie in the
/// queue for all that the compiler knows, so that it would read each part again for each work request.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct RecvPlaces {
    lists: NonNull<u8>,
    wr_ids: NonNull<AtomicU64>,
    /// WQEs minus 1.
    mask: u32,
    log_stride: u8,
}

// SAFETY: the ring is its owner's, and the identifiers are atomics.
unsafe impl Send for RecvPlaces {}
// SAFETY: through `&self` nothing of the ring is reached.
unsafe impl Sync for RecvPlaces {}

impl RecvPlaces {
    /// The scatter list and the identifier of the WQE with this index (running freely).
    #[inline(always)]
    fn at(&self, index: u32) -> (*mut u8, &AtomicU64) {
        let at = (index & self.mask) as usize;
        // SAFETY: the masked index lies inside the ring and the array (`RecvRing::new`).
        unsafe {
            let list = self.lists.add(at << self.log_stride).as_ptr();
            (list, self.wr_ids.add(at).as_ref())
        }
    }
}

/// A receive ring, as the queue that posts to it uses it.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct RecvRing {
    pub(crate) places: RecvPlaces,
    /// `true` if the second segment of a WQE may be something else than the one that ends a list.
    has_long_lists: bool,
    max_sge: u16,
    /// The first half of the data segment that ends a list, as it lies in memory: no length, and the device's key for
    /// that.
    terminator: u64,
}

impl RecvRing {
    /// A ring with these parts.
    ///
    /// # Safety
    /// The parts are memory that stays allocated for as long as the ring is used; only the ring writes to it, and the device
    /// only reads it. It holds `entries` identifiers, and from each multiple of `1 << log_stride` bytes below `entries` on
    /// `16 * max(max_sge, 1)` bytes aligned to 16.
    pub(crate) unsafe fn new(parts: RecvRingParts) -> Self {
        let RecvRingParts {
            lists,
            wr_ids,
            entries,
            log_stride,
            max_sge,
            terminator,
        } = parts;
        let ring = Self {
            places: RecvPlaces {
                lists,
                wr_ids,
                mask: entries - 1,
                log_stride,
            },
            has_long_lists: false,
            max_sge,
            terminator: DataWord::new(0, terminator).to_memory(),
        };
        if max_sge > 1 {
            for index in 0..entries {
                // SAFETY: there is room for two segments (the caller's promise).
                unsafe { ring.end_list(ring.places.at(index).0.add(SEGMENT_UNIT)) };
            }
        }
        ring
    }

    /// Entries that a scatter list has room for.
    #[inline(always)]
    pub(crate) fn max_sge(&self) -> usize {
        self.max_sge.into()
    }

    /// Writes the WQE with this index (running freely), and its identifier. The WQE is the host's. Empty entries are
    /// left out, since a length of 0 means 2 GiB to the device; so are those that do not fit.
    pub(crate) fn write(&mut self, index: u32, wr_id: u64, sges: &[Sge]) {
        let (list, id) = self.places.at(index);
        // SAFETY: a list of this ring.
        let used = unsafe { self.write_list(list, sges) };
        self.has_long_lists |= used > 1;
        id.store(wr_id, Relaxed);
    }

    /// The same for a list of one entry, which is not empty. Every list has room for one. `places` are this ring's.
    #[inline(always)]
    pub(crate) fn write_one(&self, places: RecvPlaces, index: u32, wr_id: u64, sge: &Sge) {
        let (list, id) = places.at(index);
        // SAFETY: there is room for one segment, and for two if a list of two was written.
        unsafe {
            put_data(list, sge);
            if self.has_long_lists {
                self.end_list(list.add(SEGMENT_UNIT));
            }
        }
        id.store(wr_id, Relaxed);
    }

    /// Returns how many segments it has.
    ///
    /// # Safety
    /// `list` is the scatter list of a WQE of this ring.
    unsafe fn write_list(&self, list: *mut u8, sges: &[Sge]) -> usize {
        let max = self.max_sge();
        let mut used = 0;
        for sge in sges.iter().take(max) {
            if sge.length != 0 {
                // SAFETY: fewer than `max` segments lie before this one.
                unsafe { put_data(list.add(used * SEGMENT_UNIT), sge) };
                used += 1;
            }
        }
        if used < max {
            // SAFETY: as above.
            unsafe { self.end_list(list.add(used * SEGMENT_UNIT)) };
        }
        used
    }

    /// Writes the segment that ends a list.
    ///
    /// # Safety
    /// `to` points to a segment of this ring.
    #[inline(always)]
    unsafe fn end_list(&self, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe {
            to.cast::<u64>().write(self.terminator);
            to.cast::<u64>().add(1).write(0);
        }
    }
}
