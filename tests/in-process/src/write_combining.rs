//! The platform of a machine that maps doorbell pages write-combining.

// UNSAFETY: implements the seam's unsafe trait by passing everything on.
#![expect(unsafe_code)]

use crate::pass_on;
use crate::platform::ModelPlatform;
use bareverbs_core::platform::Platform;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const PAGE: usize = 4096;
const LINE: usize = 64;
/// "No page".
const NONE: usize = usize::MAX;

/// One function of a world, one page of which may be write-combining.
///
/// What the driver does against the seam's rules is a panic: to touch that page otherwise, or another one so.
#[derive(Clone)]
pub struct WriteCombining {
    inner: ModelPlatform,
    page: Arc<AtomicUsize>,
    kind: Kind,
}

/// The form in which writes to the page arrive at the card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bursts,
    Pieces,
    Nothing,
    /// There is no such page.
    Refused,
}

impl WriteCombining {
    /// On a machine that combines what it is given at once.
    #[must_use]
    pub fn new(inner: ModelPlatform) -> Self {
        Self {
            inner,
            page: Arc::new(AtomicUsize::new(NONE)),
            kind: Kind::Bursts,
        }
    }

    fn of(inner: ModelPlatform, kind: Kind) -> Self {
        Self {
            kind,
            ..Self::new(inner)
        }
    }

    /// On a machine whose buffers are always emptied too early: everything arrives in pieces of eight bytes.
    #[must_use]
    pub fn in_pieces(inner: ModelPlatform) -> Self {
        Self::of(inner, Kind::Pieces)
    }

    /// On a machine that breaks its requirement: nothing arrives.
    #[must_use]
    pub fn losing(inner: ModelPlatform) -> Self {
        Self::of(inner, Kind::Nothing)
    }

    /// On a machine that could, and does not.
    #[must_use]
    pub fn refusing(inner: ModelPlatform) -> Self {
        Self::of(inner, Kind::Refused)
    }

    /// The write-combining page.
    #[must_use]
    pub fn page(&self) -> Option<usize> {
        Some(self.page.load(Ordering::Relaxed)).filter(|&page| page != NONE)
    }

    #[track_caller]
    fn uncached(&self, offset: usize) {
        assert_ne!(
            Some(offset & !(PAGE - 1)),
            self.page(),
            "the page of {offset:#x} is not uncached"
        );
    }
}

// SAFETY: every requirement is passed on to the model's platform, whose registers take writes at once and in order.
unsafe impl Platform for WriteCombining {
    const WRITE_COMBINING: bool = true;

    fn set_write_combining(&self, offset: usize, on: bool) -> bool {
        assert!(offset.is_multiple_of(PAGE) && offset < self.bar_len());
        if on && self.kind == Kind::Refused {
            return false;
        }
        let (before, after) = if on { (NONE, offset) } else { (offset, NONE) };
        let swapped =
            self.page
                .compare_exchange(before, after, Ordering::Relaxed, Ordering::Relaxed);
        assert_eq!(swapped, Ok(before), "one page at a time");
        on
    }

    fn write_combining(&self, offset: usize, words: &[u64]) {
        assert_eq!(Some(offset & !(PAGE - 1)), self.page());
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let wqe = bytes.len().is_multiple_of(LINE) && offset.is_multiple_of(LINE);
        assert!(!bytes.is_empty() && (wqe || words.len() == 1 && offset.is_multiple_of(8)));
        let burst = match self.kind {
            Kind::Bursts => LINE,
            Kind::Pieces => size_of::<u64>(),
            Kind::Nothing | Kind::Refused => return,
        };
        for (number, data) in bytes.chunks(burst).enumerate() {
            self.inner.write_bus(offset + number * burst, data);
        }
    }

    fn read_be32(&self, offset: usize) -> u32 {
        self.uncached(offset);
        self.inner.read_be32(offset)
    }
    fn write_be32(&self, offset: usize, value: u32) {
        self.uncached(offset);
        self.inner.write_be32(offset, value);
    }
    fn write_be64(&self, offset: usize, value: u64) {
        self.uncached(offset);
        self.inner.write_be64(offset, value);
    }

    pass_on!(
        inner: bar_len, device_id, dma_alloc, dma_free, dma_map, page_iova, dma_unmap, now, relax,
        interrupt_vectors, wait_interrupt, wake
    );
}
