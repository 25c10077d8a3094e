//! A platform without memory and registers, for what needs no device but the BlueFlame register.

// UNSAFETY: implements the platform seam; there is nothing to give.
#![expect(unsafe_code)]

use core::alloc::Layout;
use core::ptr::NonNull;
use core::time::Duration;

use crate::platform::{Dma, DmaError, Mapping, Platform};

/// Hands on what is written to its write-combining page: offset and words.
pub(super) struct Bus<W>(pub(super) W);

// SAFETY: has neither memory nor registers to give.
unsafe impl<W: Fn(usize, &[u64])> Platform for Bus<W> {
    const WRITE_COMBINING: bool = true;
    fn write_combining(&self, offset: usize, words: &[u64]) {
        (self.0)(offset, words);
    }
    fn bar_len(&self) -> usize {
        0
    }
    fn read_be32(&self, _: usize) -> u32 {
        u32::MAX
    }
    fn write_be32(&self, _: usize, _: u32) {}
    fn write_be64(&self, _: usize, _: u64) {}
    fn dma_alloc(&self, _: Layout) -> Result<Dma, DmaError> {
        Err(DmaError::OutOfMemory)
    }
    unsafe fn dma_free(&self, _: Dma) {}
    unsafe fn dma_map(&self, _: NonNull<[u8]>) -> Result<Mapping, DmaError> {
        Err(DmaError::OutOfMemory)
    }
    fn page_iova(&self, _: &Mapping, _: usize) -> u64 {
        0
    }
    unsafe fn dma_unmap(&self, _: Mapping) {}
    fn now(&self) -> Duration {
        Duration::ZERO
    }
    fn relax(&self) {}
}
