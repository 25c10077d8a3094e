//! The host's memory as the device sees it: an IOMMU in a table.
//!
//! It is made to hurt a driver that is careless: device addresses never equal pointers, the pages of a mapped region lie
//! apart from each other, freed memory is poisoned, and every access outside what is mapped is recorded as a fault.

// UNSAFETY: this is the machine under the driver: it hands out memory, and copies for the device, which in a real machine
// is the DMA engine's doing.
#![expect(unsafe_code)]

use bareverbs_core::platform::{Dma, DmaError, Mapping};
use connectx_model::host::IommuFault;
use std::alloc::Layout;
use std::collections::{BTreeMap, HashMap};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};

const PAGE: u64 = 4096;
/// What freed memory is filled with.
const POISON: u8 = 0xdb;
/// Device addresses start here: far from anything that is a pointer, and above 4 GiB so that the high half matters.
const FIRST_IOVA: u64 = 0x0000_00a5_0000_0000;
/// Space left between two mappings, so that running over an end faults.
const GUARD: u64 = 16 * PAGE;
/// Entries of the translation cache.
const CACHED: usize = 64;
/// Memory is filled in pieces of this size: for longer ones the C library has a string instruction, whose every byte
/// counts where instructions are counted.
const FILL: usize = 1024;

#[derive(Clone, Copy)]
struct Region {
    ptr: NonNull<u8>,
    len: usize,
}

/// Regions that were reached lately, by the page of the device's address, as an IOMMU's TLB has them.
struct Cache([(u64, Region); CACHED]);

impl Cache {
    fn slot(&mut self, iova: u64) -> &mut (u64, Region) {
        &mut self.0[(iova / PAGE) as usize % CACHED]
    }

    /// Removes a region.
    fn invalidate(&mut self, iova: u64) {
        for (start, region) in &mut self.0 {
            if *start == iova {
                region.len = 0;
            }
        }
    }
}

impl Default for Cache {
    fn default() -> Self {
        let nothing = Region {
            ptr: NonNull::dangling(),
            len: 0,
        };
        Self([(0, nothing); CACHED])
    }
}

/// # Safety
/// `len` bytes at `ptr` are the caller's to write.
unsafe fn fill(ptr: NonNull<u8>, byte: u8, len: usize) {
    let mut at = 0;
    while at < len {
        let piece = FILL.min(len - at);
        // SAFETY: inside what the caller vouches for. The compiler must not see through, or it would make one piece of
        // them again, or leave out what is written before memory is freed.
        unsafe { std::ptr::write_bytes(std::hint::black_box(ptr.add(at).as_ptr()), byte, piece) };
        at += piece;
    }
    std::hint::black_box(ptr);
}

/// Every region that one function reaches, by device address.
#[derive(Default)]
pub(crate) struct Memory {
    regions: BTreeMap<u64, Region>,
    /// Page addresses of mapped regions, by token.
    mappings: HashMap<u64, Vec<u64>>,
    next_iova: u64,
    next_token: u64,
    cache: Cache,
    pub(crate) faults: Vec<IommuFault>,
    /// Bytes that may still be handed out; tests lower it to starve the driver.
    pub(crate) budget: Option<usize>,
    allocated: usize,
    mapped: usize,
}

// SAFETY: the pointers refer to memory that any thread may touch on the device's behalf, as a DMA engine does.
unsafe impl Send for Memory {}

/// What a function still holds of the host's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accounting {
    /// Bytes from [`dma_alloc`](bareverbs_core::platform::Platform::dma_alloc).
    pub allocated: usize,
    /// Bytes from [`dma_map`](bareverbs_core::platform::Platform::dma_map).
    pub mapped: usize,
    /// Runs of device addresses in use.
    pub regions: usize,
}

impl Memory {
    fn take_iova(&mut self, len: u64, align: u64) -> u64 {
        let start = (FIRST_IOVA + self.next_iova).next_multiple_of(align.max(PAGE));
        self.next_iova = start + len.next_multiple_of(PAGE) + GUARD - FIRST_IOVA;
        start
    }

    pub(crate) fn alloc(&mut self, layout: Layout) -> Result<Dma, DmaError> {
        let size = layout.size().max(1);
        if let Some(budget) = &mut self.budget {
            *budget = budget.checked_sub(size).ok_or(DmaError::OutOfMemory)?;
        }
        let host = Layout::from_size_align(size, layout.align().max(64))
            .map_err(|_| DmaError::OutOfMemory)?;
        // SAFETY: the size is not zero.
        let ptr = NonNull::new(unsafe { std::alloc::alloc(host) }).ok_or(DmaError::OutOfMemory)?;
        // SAFETY: it was allocated with this size.
        unsafe { fill(ptr, 0, size) };
        let align = (layout.align() as u64).max(64);
        let page = self.take_iova(size as u64 + PAGE, align);
        // What need not start with a page starts anywhere else, as it does where small pieces share pages.
        let mixed = (page / PAGE).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let iova = page + mixed * align % PAGE;
        self.regions.insert(iova, Region { ptr, len: size });
        self.allocated += size;
        Ok(Dma { ptr, iova, layout })
    }

    /// # Safety
    /// `dma` came from [`alloc`](Self::alloc) of this value and is no longer used.
    pub(crate) unsafe fn free(&mut self, dma: Dma) {
        self.cache.invalidate(dma.iova);
        let region = self
            .regions
            .remove(&dma.iova)
            .expect("freed memory that was not allocated");
        assert_eq!(
            (region.ptr, region.len),
            (dma.ptr, dma.layout.size().max(1)),
            "freed something else"
        );
        self.allocated -= region.len;
        if let Some(budget) = &mut self.budget {
            *budget += region.len;
        }
        let host = Layout::from_size_align(region.len, dma.layout.align().max(64))
            .expect("it was allocated with this");
        // SAFETY: the region came from `alloc` with this layout and its caller does not use it any more.
        unsafe {
            fill(region.ptr, POISON, region.len);
            std::alloc::dealloc(region.ptr.as_ptr(), host);
        }
    }

    pub(crate) fn map(&mut self, region: NonNull<[u8]>) -> Result<Mapping, DmaError> {
        let ptr = region.cast::<u8>();
        let start = ptr.as_ptr() as u64;
        let first = start & !(PAGE - 1);
        let pages = ((start + region.len().max(1) as u64).next_multiple_of(PAGE) - first) / PAGE;
        let mut iovas = Vec::with_capacity(pages as usize);
        for index in 0..pages {
            // Only the part of the page that belongs to the region is reachable.
            let from = start.max(first + index * PAGE);
            let to = (start + region.len() as u64).min(first + (index + 1) * PAGE);
            let iova = self.take_iova(PAGE, PAGE);
            iovas.push(iova);
            if let Some(part) = NonNull::new(from as *mut u8).filter(|_| to > from) {
                self.regions.insert(
                    iova + from % PAGE,
                    Region {
                        ptr: part,
                        len: (to - from) as usize,
                    },
                );
            }
        }
        let token = self.next_token;
        self.next_token += 1;
        self.mappings.insert(token, iovas);
        self.mapped += region.len();
        Ok(Mapping {
            ptr,
            len: region.len(),
            page_shift: 12,
            pages: pages as usize,
            token,
        })
    }

    pub(crate) fn page_iova(&self, mapping: &Mapping, index: usize) -> u64 {
        self.mappings[&mapping.token][index]
    }

    pub(crate) fn unmap(&mut self, mapping: &Mapping) {
        let iovas = self
            .mappings
            .remove(&mapping.token)
            .expect("unmapped something that was not mapped");
        for (index, iova) in iovas.iter().enumerate() {
            let offset = if index == 0 {
                mapping.ptr.as_ptr() as u64 % PAGE
            } else {
                0
            };
            self.cache.invalidate(iova + offset);
            self.regions.remove(&(iova + offset));
        }
        self.mapped -= mapping.len;
    }

    pub(crate) fn accounting(&self) -> Accounting {
        Accounting {
            allocated: self.allocated,
            mapped: self.mapped,
            regions: self.regions.len(),
        }
    }

    #[inline]
    fn find(&mut self, iova: u64, len: usize, write: bool) -> Result<NonNull<u8>, IommuFault> {
        let (start, region) = *self.cache.slot(iova);
        let offset = iova.wrapping_sub(start);
        if offset < region.len as u64 && len <= region.len - offset as usize {
            // SAFETY: the offset lies inside the region.
            return Ok(unsafe { region.ptr.add(offset as usize) });
        }
        self.look_up(iova, len, write)
    }

    #[cold]
    fn look_up(&mut self, iova: u64, len: usize, write: bool) -> Result<NonNull<u8>, IommuFault> {
        if let Some((&start, &region)) = self.regions.range(..=iova).next_back() {
            let offset = (iova - start) as usize;
            if offset.checked_add(len).is_some_and(|end| end <= region.len) {
                *self.cache.slot(iova) = (start, region);
                // SAFETY: the offset lies inside the region.
                return Ok(unsafe { region.ptr.add(offset) });
            }
        }
        let fault = IommuFault { iova, len, write };
        self.faults.push(fault);
        Err(fault)
    }

    pub(crate) fn read(&mut self, iova: u64, data: &mut [u8]) -> Result<(), IommuFault> {
        if data.is_empty() {
            return Ok(());
        }
        let from = self.find(iova, data.len(), false)?;
        // SAFETY: `find` checked the range; the region exists until it is freed or unmapped, which needs this table.
        unsafe { model_dma_read(from, data) };
        Ok(())
    }

    pub(crate) fn write(&mut self, iova: u64, data: &[u8]) -> Result<(), IommuFault> {
        if data.is_empty() {
            return Ok(());
        }
        let to = self.find(iova, data.len(), true)?;
        // SAFETY: `find` checked the range; the region exists until it is freed or unmapped, which needs this table.
        unsafe { model_dma_write(to, data) };
        Ok(())
    }
}

/// The copy that a DMA engine makes of the host's memory. `cargo rig sanitizers` knows it by its name: the host's
/// threads may write the same bytes meanwhile, as they may beside any device.
///
/// # Safety
/// `data.len()` bytes at `from` are memory that exists during the call.
#[inline]
unsafe fn model_dma_read(from: NonNull<u8>, data: &mut [u8]) {
    fence(Ordering::Acquire);
    // SAFETY: the caller's promise; the slice is borrowed exclusively.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), data.as_mut_ptr(), data.len()) };
}

/// The copy that a DMA engine makes into the host's memory, the last dword last and with release order: it holds the
/// ownership bit of a queue entry. `cargo rig sanitizers` knows this one by its name, too.
///
/// # Safety
/// `data.len()` bytes at `to` are memory that exists during the call.
#[inline]
unsafe fn model_dma_write(to: NonNull<u8>, data: &[u8]) {
    let end = to.as_ptr() as usize + data.len();
    match data.split_last_chunk::<4>() {
        // SAFETY: the caller's promise; the last dword is aligned.
        Some((body, last)) if end.is_multiple_of(4) => unsafe {
            std::ptr::copy_nonoverlapping(body.as_ptr(), to.as_ptr(), body.len());
            let at = to.as_ptr().add(body.len()).cast();
            AtomicU32::from_ptr(at).store(u32::from_ne_bytes(*last), Ordering::Release);
        },
        // SAFETY: the caller's promise.
        _ => unsafe {
            std::ptr::copy_nonoverlapping(data.as_ptr(), to.as_ptr(), data.len());
        },
    }
    fence(Ordering::Release);
}
