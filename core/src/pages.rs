//! Memory that the firmware asks of the host.

use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};

/// Pages of 4 KiB in the largest chunk.
pub(crate) const CHUNK_PAGES: usize = 512;

/// State of one run of memory lent to the firmware: up to 2 MiB from the platform, and who has which page of it.
#[derive(Debug)]
pub struct PageChunk {
    ptr: AtomicUsize,
    iova: AtomicU64,
    pages: AtomicU32,
    given: [AtomicU64; CHUNK_PAGES / 64],
}

impl PageChunk {
    /// An empty place.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            ptr: AtomicUsize::new(0),
            iova: AtomicU64::new(0),
            pages: AtomicU32::new(0),
            given: [const { AtomicU64::new(0) }; CHUNK_PAGES / 64],
        }
    }
}

impl Default for PageChunk {
    fn default() -> Self {
        Self::new()
    }
}
