//! For platforms of unit tests that have neither memory nor registers, only a write-combining page.

/// The methods of [`Platform`](crate::Platform) that are the same for all of them.
macro_rules! no_memory_and_no_registers {
    () => {
        fn bar_len(&self) -> usize {
            0
        }
        fn read_be32(&self, _: usize) -> u32 {
            u32::MAX
        }
        fn write_be32(&self, _: usize, _: u32) {}
        fn write_be64(&self, _: usize, _: u64) {}
        fn dma_alloc(
            &self,
            _: core::alloc::Layout,
        ) -> Result<crate::platform::Dma, crate::platform::DmaError> {
            Err(crate::platform::DmaError::OutOfMemory)
        }
        unsafe fn dma_free(&self, _: crate::platform::Dma) {}
        unsafe fn dma_map(
            &self,
            _: core::ptr::NonNull<[u8]>,
        ) -> Result<crate::platform::Mapping, crate::platform::DmaError> {
            Err(crate::platform::DmaError::OutOfMemory)
        }
        fn page_iova(&self, _: &crate::platform::Mapping, _: usize) -> u64 {
            0
        }
        unsafe fn dma_unmap(&self, _: crate::platform::Mapping) {}
        fn now(&self) -> core::time::Duration {
            core::time::Duration::ZERO
        }
        fn relax(&self) {}
    };
}

pub(super) use no_memory_and_no_registers;
