//! For platforms that stand before another one and change some of what it does.

/// In an `impl Platform`: the named functions, each of which asks the platform in the given field.
///
/// The requirements of the seam, which make it an unsafe trait, are that platform's, as long as the functions that are not
/// named here keep to it.
#[macro_export]
macro_rules! pass_on {
    ($to:tt: $($function:ident),+ $(,)?) => {
        $($crate::pass_on!(@ $to $function);)+
    };
    (@ $to:tt bar_len) => {
        fn bar_len(&self) -> usize {
            self.$to.bar_len()
        }
    };
    (@ $to:tt device_id) => {
        fn device_id(&self) -> Option<u16> {
            self.$to.device_id()
        }
    };
    (@ $to:tt read_be32) => {
        fn read_be32(&self, offset: usize) -> u32 {
            self.$to.read_be32(offset)
        }
    };
    (@ $to:tt write_be32) => {
        fn write_be32(&self, offset: usize, value: u32) {
            self.$to.write_be32(offset, value);
        }
    };
    (@ $to:tt write_be64) => {
        fn write_be64(&self, offset: usize, value: u64) {
            self.$to.write_be64(offset, value);
        }
    };
    (@ $to:tt dma_alloc) => {
        fn dma_alloc(&self, layout: ::std::alloc::Layout) -> Result<$crate::seam::Dma, $crate::seam::DmaError> {
            self.$to.dma_alloc(layout)
        }
    };
    (@ $to:tt dma_free) => {
        unsafe fn dma_free(&self, dma: $crate::seam::Dma) {
            // SAFETY: the caller's promise.
            unsafe { self.$to.dma_free(dma) }
        }
    };
    (@ $to:tt dma_map) => {
        unsafe fn dma_map(
            &self,
            region: ::std::ptr::NonNull<[u8]>,
        ) -> Result<$crate::seam::Mapping, $crate::seam::DmaError> {
            // SAFETY: the caller's promise.
            unsafe { self.$to.dma_map(region) }
        }
    };
    (@ $to:tt page_iova) => {
        fn page_iova(&self, mapping: &$crate::seam::Mapping, index: usize) -> u64 {
            self.$to.page_iova(mapping, index)
        }
    };
    (@ $to:tt dma_unmap) => {
        unsafe fn dma_unmap(&self, mapping: $crate::seam::Mapping) {
            // SAFETY: the caller's promise.
            unsafe { self.$to.dma_unmap(mapping) }
        }
    };
    (@ $to:tt now) => {
        fn now(&self) -> ::std::time::Duration {
            self.$to.now()
        }
    };
    (@ $to:tt relax) => {
        fn relax(&self) {
            self.$to.relax();
        }
    };
    (@ $to:tt interrupt_vectors) => {
        fn interrupt_vectors(&self) -> u16 {
            self.$to.interrupt_vectors()
        }
    };
    (@ $to:tt wait_interrupt) => {
        fn wait_interrupt(
            &self,
            vectors: $crate::seam::VectorSet,
            deadline: ::std::time::Duration,
        ) -> bool {
            self.$to.wait_interrupt(vectors, deadline)
        }
    };
    (@ $to:tt wake) => {
        fn wake(&self) -> bool {
            self.$to.wake()
        }
    };
}
