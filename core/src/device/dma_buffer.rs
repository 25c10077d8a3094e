//! Memory that belongs to an object of a device.

// UNSAFETY: the memory is taken out of its owner once, by hand.
#![expect(unsafe_code)]

use core::mem::ManuallyDrop;
use core::ops::Deref;

use crate::device::Device;
use crate::memory::dma::DmaMemory;
use crate::platform::Platform;

/// DMA memory that belongs to an object of a device: given back when dropped, or kept by
/// [`quarantine`](Self::quarantine) while the device may still use it.
pub(crate) struct DmaBuffer<'d, P: Platform> {
    device: &'d Device<'d, P>,
    memory: ManuallyDrop<DmaMemory>,
}

impl<'d, P: Platform> DmaBuffer<'d, P> {
    pub(crate) fn new(device: &'d Device<'d, P>, memory: DmaMemory) -> Self {
        Self {
            device,
            memory: ManuallyDrop::new(memory),
        }
    }

    /// The memory, which is then not freed here.
    pub(crate) fn into_memory(self) -> DmaMemory {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is never dropped, so the memory is taken once.
        unsafe { ManuallyDrop::take(&mut this.memory) }
    }

    /// Keeps the memory until the function was torn down, because the device may still use it.
    pub(crate) fn quarantine(self) {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is never dropped, so the memory is taken once.
        let memory = unsafe { ManuallyDrop::take(&mut this.memory) };
        this.device.quarantine(memory);
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
        // SAFETY: taken once, here; the buffer is not used again.
        let memory = unsafe { ManuallyDrop::take(&mut self.memory) };
        memory.free(self.device.platform());
    }
}

impl<P: Platform> core::fmt::Debug for DmaBuffer<'_, P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.memory.fmt(f)
    }
}
