//! Memory that belongs to an object of a device.

use core::ops::Deref;

use crate::device::Device;
use crate::memory::dma::DmaMemory;
use crate::platform::Platform;

/// DMA memory that belongs to an object of a device: given back when dropped, or kept by
/// [`quarantine`](Self::quarantine) while the device may still use it.
pub(crate) struct DmaBuffer<'d, P: Platform> {
    device: &'d Device<'d, P>,
    /// [`DmaMemory::NONE`] once it was taken.
    memory: DmaMemory,
}

impl<'d, P: Platform> DmaBuffer<'d, P> {
    pub(crate) fn new(device: &'d Device<'d, P>, memory: DmaMemory) -> Self {
        Self { device, memory }
    }

    /// The memory, which is then not freed here.
    pub(crate) fn into_memory(mut self) -> DmaMemory {
        self.take_memory()
    }

    /// Keeps the memory until the function was torn down, because the device may still use it.
    pub(crate) fn quarantine(mut self) {
        let memory = self.take_memory();
        self.device.quarantine(memory);
    }

    /// Moves it out of an owner that is about to go, and leaves an empty one there.
    pub(crate) fn take(&mut self) -> Self {
        Self::new(self.device, self.take_memory())
    }

    fn take_memory(&mut self) -> DmaMemory {
        self.memory.take()
    }
}

impl<P: Platform> Deref for DmaBuffer<'_, P> {
    type Target = DmaMemory;

    #[inline]
    fn deref(&self) -> &DmaMemory {
        &self.memory
    }
}

impl<P: Platform> Drop for DmaBuffer<'_, P> {
    fn drop(&mut self) {
        self.take_memory().free(self.device.platform());
    }
}

impl<P: Platform> core::fmt::Debug for DmaBuffer<'_, P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.memory.fmt(f)
    }
}
