//! Doorbell records: a line of host memory in which the driver counts and which the device reads when it needs to.
//!
//! A QP's has two words, how many WQEs were posted to the receive and to the send queue; a CQ's has the consumer index
//! and the arm word (`SendRecord`, `ReceiveRecord`, `CqConsumerRecord` and `CqArmRecord` of `firmware-cmds`). The order
//! of accesses to a record and to its ring is kept here:
//!
//! * [`post`](DoorbellRecord::post) makes the WQEs visible before the counter that gives them to the device;
//! * [`consume`](DoorbellRecord::consume) has read the CQEs before it writes the index that returns them to the device;
//! * [`arm`](DoorbellRecord::arm) makes the record visible before the doorbell that follows.

// UNSAFETY: a record is raw memory shared with the device.
#![expect(unsafe_code)]

use core::ptr::NonNull;

use bareverbs_firmware_cmds::word::Word;

use crate::barrier::{read_barrier, write_barrier};
use crate::memory::dma::{load, store};

/// Bytes that a record has to itself: a line, so that no other data shares it.
pub(crate) const RECORD_LEN: usize = 64;

/// A doorbell record, as its queue uses it.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(crate) struct DoorbellRecord(NonNull<u8>);

// SAFETY: all access is by single volatile loads and stores of words, to memory that no thread owns (`new`).
unsafe impl Send for DoorbellRecord {}
// SAFETY: as above.
unsafe impl Sync for DoorbellRecord {}

impl DoorbellRecord {
    /// The record at `at`.
    ///
    /// # Safety
    /// `at` is the start of [`RECORD_LEN`] bytes of memory shared with the device, aligned to 8, which stay allocated for
    /// as long as the value and its copies are used.
    pub(crate) const unsafe fn new(at: NonNull<u8>) -> Self {
        Self(at)
    }

    /// Returns `true` if it is the record at `at`.
    pub(crate) fn is_at(self, at: NonNull<u8>) -> bool {
        self.0 == at
    }

    /// Gives the device what was written to the ring before.
    #[inline(always)]
    pub(crate) fn post<W: Word>(self, word: W) {
        write_barrier();
        self.store(word);
    }

    /// Gives back what was read from the ring before.
    #[inline(always)]
    pub(crate) fn consume<W: Word>(self, word: W) {
        read_barrier();
        self.store(word);
    }

    /// Writes a word that the device reads at the doorbell that comes next.
    #[inline(always)]
    pub(crate) fn arm<W: Word>(self, word: W) {
        self.store(word);
        write_barrier();
    }

    /// Reads a word of the record.
    #[inline(always)]
    pub(crate) fn load<W: Word>(self) -> W {
        const { assert!(W::OFFSET + size_of::<W::Raw>() <= RECORD_LEN) };
        // SAFETY: the word lies in the record, which is allocated (`new`).
        unsafe { load(self.0) }
    }

    #[inline(always)]
    fn store<W: Word>(self, word: W) {
        const { assert!(W::OFFSET + size_of::<W::Raw>() <= RECORD_LEN) };
        // SAFETY: the word lies in the record, which is allocated (`new`) and which only the queue's owner writes.
        unsafe { store(self.0, word) }
    }
}
