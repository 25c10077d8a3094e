//! The memory that the fake platform gives out: freed pieces are poisoned and kept, so that later accesses are found.

// UNSAFETY: plain memory, reached by the driver through pointers.
#![expect(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use bareverbs_core::platform::{Dma, DmaError};

use super::Inner;

/// The content of freed memory.
pub(crate) const POISON: u8 = 0xdd;

/// One allocation.
pub(super) struct Memory {
    ptr: NonNull<u8>,
    layout: Layout,
    /// It was not freed.
    live: bool,
}

// SAFETY: plain memory behind the fake's mutex.
unsafe impl Send for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, freed once: here.
        unsafe { dealloc(self.ptr.as_ptr(), self.layout) };
    }
}

impl Inner {
    /// Allocates zeroed memory at a new device address.
    pub(super) fn allocate(&mut self, layout: Layout) -> Result<Dma, DmaError> {
        let layout = layout.align_to(64).unwrap();
        // SAFETY: never of size zero in the driver.
        let ptr = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(DmaError::OutOfMemory)?;
        let align = layout.align().max(4096) as u64;
        let iova = self.next_iova.next_multiple_of(align);
        // A hole, so that running over the end is a fault.
        self.next_iova = iova + layout.size() as u64 + 0x1000;
        let live = true;
        self.memory.insert(iova, Memory { ptr, layout, live });
        Ok(Dma { ptr, iova, layout })
    }

    /// Marks memory as freed, and poisons it.
    pub(super) fn free(&mut self, dma: &Dma) {
        let memory = self
            .memory
            .get_mut(&dma.iova)
            .expect("freed memory that was never allocated");
        assert!(memory.live, "double free at {:#x}", dma.iova);
        assert_eq!(
            memory.layout.size(),
            dma.layout.size(),
            "freed with another size"
        );
        memory.live = false;
        // SAFETY: still allocated; kept until the fake is dropped.
        unsafe { memory.ptr.write_bytes(POISON, memory.layout.size()) };
    }

    /// Bytes of memory that were not freed.
    pub(super) fn live_bytes(&self) -> usize {
        self.memory
            .values()
            .filter(|memory| memory.live)
            .map(|memory| memory.layout.size())
            .sum()
    }

    /// Pieces of memory that were written to after they had been freed.
    pub(super) fn freed_and_changed(&self) -> usize {
        let changed = |memory: &&Memory| {
            let len = memory.layout.size();
            // SAFETY: allocated until the fake is dropped.
            let bytes = unsafe { std::slice::from_raw_parts(memory.ptr.as_ptr(), len) };
            !memory.live && bytes.iter().any(|&byte| byte != POISON)
        };
        self.memory.values().filter(changed).count()
    }

    fn span(&mut self, iova: u64, len: usize, what: &str) -> Option<NonNull<u8>> {
        let found = self
            .memory
            .range(..=iova)
            .next_back()
            .and_then(|(start, memory)| {
                let offset = (iova - start) as usize;
                let inside = memory.live && offset + len <= memory.layout.size();
                // SAFETY: inside the allocation.
                inside.then(|| unsafe { memory.ptr.add(offset) })
            });
        if found.is_none() {
            self.faults
                .push(format!("{what} of {len} bytes at {iova:#x}"));
        }
        found
    }

    pub(crate) fn dma_read(&mut self, iova: u64, len: usize) -> Vec<u8> {
        let mut data = vec![0; len];
        if let Some(ptr) = self.span(iova, len, "read") {
            // SAFETY: live memory of that length.
            unsafe { std::ptr::copy_nonoverlapping(ptr.as_ptr(), data.as_mut_ptr(), len) };
        }
        data
    }

    pub(crate) fn dma_write(&mut self, iova: u64, data: &[u8]) {
        if let Some(ptr) = self.span(iova, data.len(), "write") {
            // SAFETY: live memory of that length.
            unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), ptr.as_ptr(), data.len()) };
        }
    }
}
