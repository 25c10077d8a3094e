//! DMA memory: blocks of 2 MiB cut up for small needs, mappings of their own for large ones, and the caller's memory.
//!
//! A block is one mapping of the IOMMU, made once: small allocations cost no system call. It follows that what was freed
//! stays within the device's reach until its block is empty; that a device no longer uses what is freed is the caller's
//! promise anyway.

// UNSAFETY: hands out raw memory, has it mapped for the device, and clears it.
#![expect(unsafe_code)]

use std::alloc::Layout;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bareverbs_core::platform::{Dma, DmaError, Mapping};

use crate::bitmap::{BLOCK, Bitmap};
use crate::iova::{IovaRange, IovaSpace};
use crate::memory::Memory;

/// The largest page that a memory key's translation table can be made of (`mkc.log_page_size`, 5 bits).
const MAX_PAGE_SHIFT: u32 = 31;

/// The address translation between the device and memory.
pub(crate) trait Iommu {
    /// Makes `len` bytes at `memory` visible to the device at `iova`.
    ///
    /// # Safety
    /// The memory is mapped in this process, and nothing but raw pointers is used on it until it is unmapped, as the
    /// device may read and change it at any time.
    unsafe fn map(&self, iova: u64, memory: NonNull<u8>, len: usize) -> Result<(), DmaError>;

    /// Undoes [`map`](Self::map), for the same range.
    fn unmap(&self, iova: u64, len: usize) -> Result<(), DmaError>;
}

/// All DMA memory of one device.
pub(crate) struct DmaMemory<I: Iommu> {
    iommu: I,
    /// The smallest mapping of the IOMMU, a power of two, at least 4096.
    granule: u64,
    state: Mutex<State>,
}

struct State {
    space: IovaSpace,
    /// By device address.
    pieces: BTreeMap<u64, Piece>,
    /// The block that the last small allocation came from: mostly the next one fits there as well.
    recent: u64,
    /// The caller's memory, by device address of its first page.
    regions: BTreeMap<u64, IovaRange>,
}

/// Memory that is mapped for the device in one go.
struct Piece {
    memory: Memory,
    range: IovaRange,
    /// Present if it is a block that is cut up.
    bitmap: Option<Bitmap>,
    /// Up to here it may have been written to since it was new.
    dirty: usize,
}

impl<I: Iommu> DmaMemory<I> {
    pub(crate) fn new(iommu: I, space: IovaSpace, granule: u64) -> Self {
        Self {
            iommu,
            granule: granule.max(4096),
            state: Mutex::new(State {
                space,
                pieces: BTreeMap::new(),
                recent: 0,
                regions: BTreeMap::new(),
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Platform::dma_alloc`](bareverbs_core::platform::Platform::dma_alloc).
    pub(crate) fn allocate(&self, layout: Layout) -> Result<Dma, DmaError> {
        let mut state = self.state();
        if layout.size() > BLOCK || layout.align() > BLOCK {
            let granule = usize::try_from(self.granule).map_err(|_| DmaError::OutOfMemory)?;
            let len = layout
                .size()
                .checked_next_multiple_of(granule)
                .ok_or(DmaError::OutOfMemory)?;
            let piece = self.new_piece(&mut state, len, layout.align().max(granule), None)?;
            let dma = piece.dma(0, layout);
            state.pieces.insert(dma.iova, piece);
            return Ok(dma);
        }
        let recent = state.recent;
        let State { pieces, .. } = &mut *state;
        if let Some(piece) = pieces.get_mut(&recent)
            && let Some(dma) = piece.cut(layout)
        {
            return Ok(dma);
        }
        let found = pieces
            .iter_mut()
            .find_map(|(iova, piece)| Some((*iova, piece.cut(layout)?)));
        if let Some((iova, dma)) = found {
            state.recent = iova;
            return Ok(dma);
        }
        let mut piece = self.new_piece(&mut state, BLOCK, BLOCK, Some(Bitmap::new()))?;
        let iova = piece.range.start();
        let dma = piece.cut(layout);
        state.recent = iova;
        state.pieces.insert(iova, piece);
        dma.ok_or(DmaError::OutOfMemory)
    }

    /// Allocated memory, mapped for the device.
    fn new_piece(
        &self,
        state: &mut State,
        len: usize,
        align: usize,
        bitmap: Option<Bitmap>,
    ) -> Result<Piece, DmaError> {
        // Large pieces are aligned so that the IOMMU can use huge pages for them.
        let align = if len >= BLOCK {
            align.max(BLOCK)
        } else {
            align
        };
        let memory = Memory::new(len, align)?;
        let range = state
            .space
            .allocate(len as u64, align as u64, 0)
            .ok_or(DmaError::OutOfAddresses)?;
        // SAFETY: the memory was just mapped and has no user yet; users of its parts get raw pointers. It stays
        // mapped in the process until `release` has unmapped it for the device.
        let mapped = unsafe { self.iommu.map(range.start(), memory.start(), memory.len()) };
        if let Err(error) = mapped {
            state.space.free(range);
            return Err(error);
        }
        Ok(Piece {
            memory,
            range,
            bitmap,
            dirty: 0,
        })
    }

    /// As [`Platform::dma_free`](bareverbs_core::platform::Platform::dma_free). What was not allocated here is
    /// reported in the log and left alone.
    ///
    /// # Safety
    /// The requirements of [`Platform::dma_free`](bareverbs_core::platform::Platform::dma_free).
    pub(crate) unsafe fn free(&self, dma: Dma) {
        let mut state = self.state();
        let State { pieces, .. } = &mut *state;
        let Some((&start, piece)) = pieces
            .range_mut(..=dma.iova)
            .next_back()
            .filter(|(_, piece)| dma.iova - piece.range.start() < piece.range.len())
        else {
            log::error!("DMA memory at {:#x} is not of this device", dma.iova);
            return;
        };
        let offset = (dma.iova - start) as usize;
        let known = match &mut piece.bitmap {
            Some(bitmap) => bitmap.free(offset, dma.layout.size()),
            None => offset == 0,
        };
        if !known {
            log::error!(
                "{} bytes of DMA memory at {:#x} were not in use",
                dma.layout.size(),
                dma.iova
            );
            return;
        }
        let idle = |piece: &Piece| piece.bitmap.as_ref().is_some_and(Bitmap::is_empty);
        let gone = match &piece.bitmap {
            None => true,
            // One empty block is kept, so that a single object that comes and goes costs no system calls.
            Some(bitmap) => {
                bitmap.is_empty() && pieces.iter().any(|(at, p)| *at != start && idle(p))
            }
        };
        if gone && let Some(piece) = state.pieces.remove(&start) {
            self.release(&mut state, piece);
        }
    }

    /// Takes a piece away from the device and gives it back to the system.
    fn release(&self, state: &mut State, piece: Piece) {
        let Piece { memory, range, .. } = piece;
        match self.iommu.unmap(range.start(), memory.len()) {
            Ok(()) => state.space.free(range),
            Err(error) => {
                // The device may still reach it: neither the memory nor the addresses may be used again.
                log::error!(
                    "DMA memory at {:#x} could not be unmapped and is lost: {error}",
                    range.start()
                );
                std::mem::forget(memory);
            }
        }
    }

    /// As [`Platform::dma_map`](bareverbs_core::platform::Platform::dma_map).
    ///
    /// The whole region gets consecutive device addresses, so it can be described with pages of any size. The page is
    /// chosen so large that two cover the region (up to 2 GiB): the shorter the translation table, the better.
    ///
    /// # Safety
    /// The requirements of [`Platform::dma_map`](bareverbs_core::platform::Platform::dma_map).
    pub(crate) unsafe fn map(&self, region: NonNull<[u8]>) -> Result<Mapping, DmaError> {
        let ptr = region.cast::<u8>();
        let address = ptr.as_ptr() as u64;
        let len = region.len() as u64;
        let Some(last) = len.checked_sub(1).and_then(|l| address.checked_add(l)) else {
            // An empty region, which no key can describe, or one that wraps. 22 is EINVAL on every Linux.
            return Err(DmaError::Os(22));
        };
        let mask = self.granule - 1;
        let first_page = address & !mask;
        let total = (last | mask) - first_page + 1;
        let widest = MAX_PAGE_SHIFT.min(u64::BITS - (total - 1).leading_zeros());
        let narrowest = self.granule.trailing_zeros();
        let (range, shift) = {
            let mut state = self.state();
            // Host and device address agree in the lower `shift` bits. The wider, the fewer places there are for that.
            (narrowest..=widest.max(narrowest))
                .rev()
                .find_map(|shift| {
                    let align = 1 << shift;
                    let range = state
                        .space
                        .allocate(total, align, first_page & (align - 1))?;
                    Some((range, shift))
                })
                .ok_or(DmaError::OutOfAddresses)?
        };
        let Ok(total) = usize::try_from(total) else {
            self.state().space.free(range);
            return Err(DmaError::OutOfMemory);
        };
        // Rounding down to the page stays in the page that the region starts in.
        let start = ptr.as_ptr().wrapping_sub((address - first_page) as usize);
        let start = NonNull::new(start).unwrap_or(ptr);
        // Pinning takes its time, so the lock is not held.
        // SAFETY: the caller promises that the region is valid memory, which only comes in whole pages, and that it
        // accepts changes by the device until it unmaps it.
        if let Err(error) = unsafe { self.iommu.map(range.start(), start, total) } {
            self.state().space.free(range);
            return Err(error);
        }
        let iova = range.start() + (address - first_page);
        self.state().regions.insert(range.start(), range);
        Ok(Mapping {
            ptr,
            len: region.len(),
            page_shift: shift as u8,
            pages: ((last >> shift) - (address >> shift) + 1) as usize,
            token: iova,
        })
    }

    /// The device's address of a page of a region, as
    /// [`Platform::page_iova`](bareverbs_core::platform::Platform::page_iova).
    pub(crate) fn page_iova(mapping: &Mapping, index: usize) -> u64 {
        let shift = u32::from(mapping.page_shift);
        let first = mapping.token.checked_shr(shift).unwrap_or(0);
        first
            .wrapping_add(index as u64)
            .checked_shl(shift)
            .unwrap_or(0)
    }

    /// As [`Platform::dma_unmap`](bareverbs_core::platform::Platform::dma_unmap).
    ///
    /// # Safety
    /// The requirements of [`Platform::dma_unmap`](bareverbs_core::platform::Platform::dma_unmap).
    pub(crate) unsafe fn unmap(&self, mapping: &Mapping) {
        let start = mapping.token & !(self.granule - 1);
        let Some(range) = self.state().regions.remove(&start) else {
            log::error!("no memory of the caller is mapped at {start:#x}");
            return;
        };
        self.unmap_region(range);
    }

    fn unmap_region(&self, range: IovaRange) {
        match self.iommu.unmap(range.start(), range.len() as usize) {
            Ok(()) => self.state().space.free(range),
            // The range is dropped and thereby stays taken. The memory is the caller's.
            Err(error) => log::error!(
                "memory at {:#x} could not be unmapped: {error}",
                range.start()
            ),
        }
    }
}

impl<I: Iommu> Drop for DmaMemory<I> {
    /// Everything goes, also what was never freed: the function is quiet by now, and no longer reaches memory.
    fn drop(&mut self) {
        let mut state = self.state();
        let pieces = std::mem::take(&mut state.pieces);
        for piece in pieces.into_values() {
            self.release(&mut state, piece);
        }
        let regions = std::mem::take(&mut state.regions);
        drop(state);
        for range in regions.into_values() {
            self.unmap_region(range);
        }
    }
}

impl Piece {
    /// A part of a block, cleared.
    fn cut(&mut self, layout: Layout) -> Option<Dma> {
        let offset = self
            .bitmap
            .as_mut()?
            .allocate(layout.size(), layout.align())?;
        let end = offset + layout.size();
        let dma = self.dma(offset, layout);
        let stale = end.min(self.dirty).saturating_sub(offset);
        // SAFETY: the part lies within the block's memory, is not in use since the bitmap had it as free, and is
        // this caller's from now on.
        unsafe { dma.ptr.write_bytes(0, stale) };
        self.dirty = self.dirty.max(end);
        Some(dma)
    }

    fn dma(&self, offset: usize, layout: Layout) -> Dma {
        // SAFETY: `offset` is within the piece's memory: 0, or what the bitmap of the block of that size gave.
        let ptr = unsafe { self.memory.start().add(offset) };
        Dma {
            ptr,
            iova: self.range.start() + offset as u64,
            layout,
        }
    }
}

#[cfg(test)]
#[path = "dma_tests.rs"]
mod tests;
