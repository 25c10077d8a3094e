//! Memory of an object that is destroyed while pollers may still use it: kept in the object's slot, in atomics, until
//! the last of them is done.

// UNSAFETY: memory that was taken apart becomes an owned value again.
#![expect(unsafe_code)]

use core::alloc::Layout;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize};

use crate::memory::dma::DmaMemory;
use crate::platform::Dma;

/// A place for one piece of DMA memory that was allocated with this alignment.
#[derive(Debug)]
pub(crate) struct KeptBlock<const ALIGN: usize> {
    /// Null while there is none.
    ptr: AtomicPtr<u8>,
    iova: AtomicU64,
    len: AtomicUsize,
}

impl<const ALIGN: usize> KeptBlock<ALIGN> {
    /// None.
    pub(crate) const fn new() -> Self {
        Self {
            ptr: AtomicPtr::new(core::ptr::null_mut()),
            iova: AtomicU64::new(0),
            len: AtomicUsize::new(0),
        }
    }

    /// Clears what an earlier device left.
    pub(crate) fn clear(&self) {
        self.ptr.store(core::ptr::null_mut(), Relaxed);
    }

    /// Keeps memory. There is none yet.
    pub(crate) fn keep(&self, memory: DmaMemory) {
        let dma = memory.into_raw();
        debug_assert!(dma.layout.align() == ALIGN);
        self.iova.store(dma.iova, Relaxed);
        self.len.store(dma.layout.size(), Relaxed);
        self.ptr.store(dma.ptr.as_ptr(), Release);
    }

    /// Takes the block, if one is kept. Neither device nor host uses it any more.
    pub(crate) fn take(&self) -> Option<DmaMemory> {
        let ptr = NonNull::new(self.ptr.swap(core::ptr::null_mut(), AcqRel))?;
        let layout = Layout::from_size_align(self.len.load(Relaxed), ALIGN).ok()?;
        let iova = self.iova.load(Relaxed);
        // SAFETY: these are the parts of one memory, as `keep` took it apart, and the exchange above gives them out once.
        Some(unsafe { DmaMemory::from_raw(Dma { ptr, iova, layout }) })
    }
}
