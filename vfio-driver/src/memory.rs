//! Memory of the process that a device may be given.

use std::io;
use std::ptr::NonNull;

use bareverbs_core::platform::DmaError;
use memmap2::{Advice, MmapOptions, MmapRaw};

use crate::bitmap::BLOCK;

/// Anonymous memory, zeroed, aligned as asked, and not inherited by children.
#[derive(Debug)]
pub(crate) struct Memory {
    map: MmapRaw,
    /// Where the aligned part starts in the mapping.
    offset: usize,
    len: usize,
}

impl Memory {
    /// `len` bytes at a multiple of `align`, both multiples of the page size, `align` a power of two. Of huge pages, if
    /// the length allows it and the system has some to spare.
    pub(crate) fn new(len: usize, align: usize) -> Result<Self, DmaError> {
        if len.is_multiple_of(BLOCK) && align <= BLOCK {
            // A mapping of huge pages is reserved as a whole when it is made, so that touching it cannot fail later.
            if let Ok(map) = MmapOptions::new().len(len).huge(Some(21)).map_anon() {
                return Self::keep_from_children(MmapRaw::from(map), 0, len);
            }
        }
        // There is no way to ask for an alignment, so more is mapped than is used. What is never touched costs nothing.
        let slack = if align > 4096 { align } else { 0 };
        let total = len.checked_add(slack).ok_or(DmaError::OutOfMemory)?;
        let map = MmapOptions::new()
            .len(total)
            .map_anon()
            .map_err(dma_error)?;
        let map = MmapRaw::from(map);
        let offset = (map.as_mut_ptr() as usize).wrapping_neg() & (align - 1);
        if len.is_multiple_of(BLOCK) {
            // Transparent huge pages: fewer IOMMU entries if it works, no effect if it does not.
            let _ = map.advise(Advice::HugePage);
        }
        Self::keep_from_children(map, offset, len)
    }

    /// After a fork, the page that is written to first is copied, and the copy may be the parent's: the device would go
    /// on with the other one. Children do not get the memory, so nothing is ever copied.
    fn keep_from_children(map: MmapRaw, offset: usize, len: usize) -> Result<Self, DmaError> {
        map.advise(Advice::DontFork).map_err(dma_error)?;
        Ok(Self { map, offset, len })
    }

    /// The start of the memory.
    pub(crate) fn start(&self) -> NonNull<u8> {
        // `offset` is within the mapping, so this is no address that wraps; and a mapping is never at address 0.
        NonNull::new(self.map.as_mut_ptr().wrapping_add(self.offset)).unwrap_or(NonNull::dangling())
    }

    /// The length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

/// The meaning of an error of the operating system for DMA memory.
pub(crate) fn dma_error(error: io::Error) -> DmaError {
    match error.kind() {
        io::ErrorKind::OutOfMemory => DmaError::OutOfMemory,
        // 5 is EIO on every Linux: an error that came with no number was none of the system's.
        _ => DmaError::Os(error.raw_os_error().unwrap_or(5)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_as_asked() {
        for (len, align) in [
            (4096, 4096),
            (4096, 1 << 16),
            (BLOCK, BLOCK),
            (3 * BLOCK, 4 * BLOCK),
            (BLOCK + 4096, BLOCK),
        ] {
            let memory = Memory::new(len, align).unwrap();
            assert_eq!(memory.len(), len);
            let start = memory.start().as_ptr() as usize;
            assert_eq!(start % align, 0);
            let map = memory.map.as_mut_ptr() as usize;
            assert!(map <= start && start + len <= map + memory.map.len());
        }
    }

    #[test]
    fn memory_is_not_for_children() {
        let memory = Memory::new(BLOCK, BLOCK).unwrap();
        let start = format!("{:x}-", memory.map.as_ptr() as usize);
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let flags = maps
            .lines()
            .skip_while(|line| !line.starts_with(&start))
            .find(|line| line.starts_with("VmFlags:"))
            .expect("the mapping starts a separate line, as its flags differ from its neighbours'");
        // "dc": do not copy area on fork.
        assert!(flags.split_whitespace().any(|flag| flag == "dc"), "{flags}");
    }

    #[test]
    fn too_much_is_an_error() {
        assert_eq!(
            Memory::new(usize::MAX & !4095, 1 << 16).unwrap_err(),
            DmaError::OutOfMemory
        );
        assert_eq!(
            Memory::new(1 << 60, 4096).unwrap_err(),
            DmaError::OutOfMemory
        );
    }
}
