//! The driver's platform seam over one function of a [`World`](crate::World).

// UNSAFETY: implements the seam's unsafe trait.
#![expect(unsafe_code)]

use crate::shared::Shared;
use bareverbs_core::platform::{Dma, DmaError, Mapping, Platform, VectorSet};
use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

/// One function of a world, as the driver sees it.
#[derive(Clone)]
pub struct ModelPlatform {
    pub(crate) shared: Arc<Shared>,
    pub(crate) index: usize,
}

impl ModelPlatform {
    /// A write as the bus brings it: 4 or 8 bytes, or up to 64 that were combined.
    pub(crate) fn write_bus(&self, offset: usize, data: &[u8]) {
        self.shared.bar_write(self.index, offset as u64, data);
    }
}

// SAFETY: registers go to the model at once and in order, under one lock; memory comes from the world's table, which keeps
// it until it is given back, and which the device's accesses are checked against.
unsafe impl Platform for ModelPlatform {
    fn bar_len(&self) -> usize {
        self.shared.function(self.index).model.config().bar_size as usize
    }

    fn device_id(&self) -> Option<u16> {
        Some(self.shared.function(self.index).model.config().device_id)
    }

    fn read_be32(&self, offset: usize) -> u32 {
        let mut data = [0xff; 4];
        self.shared.bar_read(self.index, offset as u64, &mut data);
        u32::from_be_bytes(data)
    }

    fn write_be32(&self, offset: usize, value: u32) {
        self.shared
            .bar_write(self.index, offset as u64, &value.to_be_bytes());
    }

    #[inline]
    fn write_be64(&self, offset: usize, value: u64) {
        self.shared
            .bar_write(self.index, offset as u64, &value.to_be_bytes());
    }

    #[inline(never)]
    fn dma_alloc(&self, layout: Layout) -> Result<Dma, DmaError> {
        self.shared.function(self.index).port.memory.alloc(layout)
    }

    #[inline(never)]
    unsafe fn dma_free(&self, dma: Dma) {
        // SAFETY: the caller's promise.
        unsafe { self.shared.function(self.index).port.memory.free(dma) }
    }

    unsafe fn dma_map(&self, region: NonNull<[u8]>) -> Result<Mapping, DmaError> {
        self.shared.function(self.index).port.memory.map(region)
    }

    fn page_iova(&self, mapping: &Mapping, index: usize) -> u64 {
        self.shared
            .function(self.index)
            .port
            .memory
            .page_iova(mapping, index)
    }

    unsafe fn dma_unmap(&self, mapping: Mapping) {
        self.shared.function(self.index).port.memory.unmap(&mapping);
    }

    fn now(&self) -> Duration {
        self.shared.now()
    }

    #[inline]
    fn relax(&self) {
        self.shared.relax(self.index);
    }

    fn interrupt_vectors(&self) -> u16 {
        self.shared.interrupt_vectors
    }

    fn wait_interrupt(&self, vectors: VectorSet, deadline: Duration) -> bool {
        self.shared.wait_interrupt(self.index, vectors, deadline)
    }

    fn wake(&self) -> bool {
        self.shared.wake(self.index);
        true
    }
}
