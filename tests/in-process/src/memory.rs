//! The host's memory as the device sees it: an IOMMU in a table.
//!
//! It is made to hurt a driver that is careless: device addresses never equal pointers, the pages of a mapped region lie
//! apart from each other, freed memory is poisoned, and every access outside what is mapped is recorded as a fault.

// UNSAFETY: this is the machine under the driver: it hands out memory, and copies for the device, which in a real machine
// is the DMA engine's doing.
#![expect(unsafe_code)]

use crate::gone_memory;
use bareverbs_core::platform::{Dma, DmaError, Mapping};
use connectx_model::host::IommuFault;
use std::alloc::Layout;
use std::collections::{BTreeMap, HashMap};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};

const PAGE: u64 = 4096;
/// A region of this length, such as one of all addresses, is mapped in pages of 2 GiB.
const HUGE: u64 = 1 << 40;
const HUGE_SHIFT: u8 = 31;
/// The byte that fills freed memory.
const POISON: u8 = 0xdb;
/// Device addresses start here: far from anything that is a pointer, and above 4 GiB so that the high half matters.
const FIRST_IOVA: u64 = 0x0000_00a5_0000_0000;
/// Space left between two mappings, so that running over an end faults.
const GUARD: u64 = 16 * PAGE;
/// Entries of the translation cache.
const CACHED: usize = 64;
/// Faults that are kept for the test to see: a peer may cause any number of them.
const FAULTS: usize = 4096;
/// Memory is filled in pieces of this size: for longer ones the C library has a string instruction, whose every byte
/// counts where instructions are counted.
const FILL: usize = 1024;

#[derive(Clone, Copy)]
struct Region {
    ptr: NonNull<u8>,
    len: usize,
}

/// A region in the table, and how it was allocated: `None` for the caller's memory.
struct Entry {
    region: Region,
    allocation: Option<Layout>,
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

/// The layout of memory that is asked for with `layout`: at least a byte, in cache lines of its own.
fn host_layout(layout: Layout) -> Option<Layout> {
    Layout::from_size_align(layout.size().max(1), layout.align().max(64)).ok()
}

/// Gives an allocated region back, poisoned.
///
/// # Safety
/// The region was allocated with this layout and is not used any more.
unsafe fn release(region: Region, layout: Layout) {
    // SAFETY: the caller's promise.
    unsafe {
        fill(region.ptr, POISON, region.len);
        std::alloc::dealloc(region.ptr.as_ptr(), layout);
    }
}

/// Every region that one function reaches, by device address.
///
/// What a driver does not give back, because the device could still use it, lasts as long as this table. The world and
/// the platforms of its functions share it; the last of them frees it, as the last file descriptor of a VFIO device does.
#[derive(Default)]
pub(crate) struct Memory {
    regions: BTreeMap<u64, Entry>,
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

/// The host's memory that a function still holds.
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
        let host = host_layout(layout).ok_or(DmaError::OutOfMemory)?;
        let size = host.size();
        if let Some(budget) = &mut self.budget {
            *budget = budget.checked_sub(size).ok_or(DmaError::OutOfMemory)?;
        }
        // SAFETY: the size is not zero.
        let ptr = NonNull::new(unsafe { std::alloc::alloc(host) }).ok_or(DmaError::OutOfMemory)?;
        // SAFETY: it was allocated with this size.
        unsafe { fill(ptr, 0, size) };
        let align = (layout.align() as u64).max(64);
        let page = self.take_iova(size as u64 + PAGE, align);
        // What need not start with a page starts anywhere else, as it does where small pieces share pages.
        let mixed = (page / PAGE).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let iova = page + mixed * align % PAGE;
        let entry = Entry {
            region: Region { ptr, len: size },
            allocation: Some(host),
        };
        self.regions.insert(iova, entry);
        self.allocated += size;
        Ok(Dma { ptr, iova, layout })
    }

    /// # Safety
    /// `dma` came from [`alloc`](Self::alloc) of this value and is no longer used.
    pub(crate) unsafe fn free(&mut self, dma: Dma) {
        self.cache.invalidate(dma.iova);
        let entry = self.regions.remove(&dma.iova);
        let (region, layout) = entry
            .and_then(|entry| Some((entry.region, entry.allocation?)))
            .expect("freed memory that was not allocated");
        assert_eq!(
            (region.ptr, Some(layout)),
            (dma.ptr, host_layout(dma.layout)),
            "freed something else"
        );
        self.allocated -= region.len;
        if let Some(budget) = &mut self.budget {
            *budget += region.len;
        }
        // SAFETY: the region came from `alloc` with this layout and its caller does not use it any more.
        unsafe { release(region, layout) };
    }

    pub(crate) fn map(&mut self, region: NonNull<[u8]>) -> Result<Mapping, DmaError> {
        let ptr = region.cast::<u8>();
        let start = ptr.as_ptr() as u64;
        let shift = match region.len() as u64 {
            HUGE.. => HUGE_SHIFT,
            _ => PAGE.ilog2() as u8,
        };
        let page = 1 << shift;
        let first = start & !(page - 1);
        let pages = ((start + region.len().max(1) as u64).next_multiple_of(page) - first) / page;
        let mut iovas = Vec::with_capacity(pages as usize);
        for index in 0..pages {
            // Only the part of the page that belongs to the region is reachable.
            let from = start.max(first + index * page);
            let to = (start + region.len() as u64).min(first + (index + 1) * page);
            let iova = self.take_iova(page, page);
            iovas.push(iova);
            if let Some(part) = NonNull::new(from as *mut u8).filter(|_| to > from) {
                let entry = Entry {
                    region: Region {
                        ptr: part,
                        len: (to - from) as usize,
                    },
                    allocation: None,
                };
                self.regions.insert(iova + from % page, entry);
            }
        }
        let token = self.next_token;
        self.next_token += 1;
        self.mappings.insert(token, iovas);
        self.mapped += region.len();
        Ok(Mapping {
            ptr,
            len: region.len(),
            page_shift: shift,
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
                mapping.ptr.as_ptr() as u64 % (1 << mapping.page_shift)
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
        if let Some((&start, entry)) = self.regions.range(..=iova).next_back() {
            let region = entry.region;
            let offset = (iova - start) as usize;
            if offset.checked_add(len).is_some_and(|end| end <= region.len) {
                *self.cache.slot(iova) = (start, region);
                // SAFETY: the offset lies inside the region.
                return Ok(unsafe { region.ptr.add(offset) });
            }
        }
        Err(self.fault(iova, len, write))
    }

    #[cold]
    fn fault(&mut self, iova: u64, len: usize, write: bool) -> IommuFault {
        let fault = IommuFault { iova, len, write };
        if self.faults.len() < FAULTS {
            self.faults.push(fault);
        }
        fault
    }

    pub(crate) fn read(&mut self, iova: u64, data: &mut [u8]) -> Result<(), IommuFault> {
        if data.is_empty() {
            return Ok(());
        }
        let from = self.find(iova, data.len(), false)?;
        // SAFETY: `find` checked the range; the region exists until it is freed or unmapped, which needs this table, or the
        // program takes it away, which is what `gone_memory` is for.
        match unsafe { model_dma_read(from, data) } {
            true => Ok(()),
            false => Err(self.fault(iova, data.len(), false)),
        }
    }

    pub(crate) fn write(&mut self, iova: u64, data: &[u8]) -> Result<(), IommuFault> {
        if data.is_empty() {
            return Ok(());
        }
        let to = self.find(iova, data.len(), true)?;
        // SAFETY: as in `read`.
        match unsafe { model_dma_write(to, data) } {
            true => Ok(()),
            false => Err(self.fault(iova, data.len(), true)),
        }
    }
}

impl Drop for Memory {
    /// Frees what was never given back; the caller's memory, which is only mapped, stays as it is.
    fn drop(&mut self) {
        while let Some((_, entry)) = self.regions.pop_first() {
            if let Some(layout) = entry.allocation {
                // SAFETY: `alloc` allocated the region with this layout, and `free`, which takes it out of the table, has
                // not freed it. It is not used any more. The device has no other way to it than `read` and `write`, which
                // need this table. The driver's objects that reach DMA memory borrow their `Device`, which has a platform
                // or borrows one; each platform of this function has a part in the `Arc` around this table, as the world
                // and its threads do. With the last part, the last platform is gone, and with it (or before) the last
                // device and its objects; what a device leaves in its storage is never looked at again, as the next one
                // starts by forgetting it.
                unsafe { release(entry.region, layout) };
            }
        }
    }
}

/// The copy that a DMA engine makes of the host's memory. `cargo rig sanitizers` knows it by its name: the host's
/// threads may write the same bytes meanwhile, as they may beside any device. Returns `false` if the memory is gone.
///
/// # Safety
/// `data.len()` bytes at `from` are memory that exists during the call, or the program's that is gone.
#[inline]
unsafe fn model_dma_read(from: NonNull<u8>, data: &mut [u8]) -> bool {
    fence(Ordering::Acquire);
    if gone_memory::is_active() {
        // SAFETY: the caller's promise; the slice is borrowed exclusively.
        return unsafe { gone_memory::copy(from, NonNull::from(&mut *data).cast(), data.len()) };
    }
    // SAFETY: the caller's promise; the slice is borrowed exclusively.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), data.as_mut_ptr(), data.len()) };
    true
}

/// The copy that a DMA engine makes into the host's memory, the last dword last and with release order: it holds the
/// ownership bit of a queue entry. `cargo rig sanitizers` knows this one by its name, too. Returns `false` if the memory
/// is gone.
///
/// # Safety
/// `data.len()` bytes at `to` are memory that exists during the call, or the program's that is gone.
#[inline]
unsafe fn model_dma_write(to: NonNull<u8>, data: &[u8]) -> bool {
    let end = to.as_ptr() as usize + data.len();
    let (body, last) = match data.split_last_chunk::<4>() {
        Some((body, last)) if end.is_multiple_of(4) => (body, Some(u32::from_ne_bytes(*last))),
        _ => (data, None),
    };
    // SAFETY: the dword lies behind the body, in the caller's memory, and is aligned if it is used.
    let at = unsafe { to.add(body.len()).cast::<u32>() };
    let done = if gone_memory::is_active() {
        let from = NonNull::from(body).cast();
        // SAFETY: the caller's promise.
        unsafe {
            gone_memory::copy(from, to, body.len())
                && last.is_none_or(|last| gone_memory::store_last(at, last))
        }
    } else {
        // SAFETY: the caller's promise.
        unsafe {
            std::ptr::copy_nonoverlapping(body.as_ptr(), to.as_ptr(), body.len());
            if let Some(last) = last {
                AtomicU32::from_ptr(at.as_ptr()).store(last, Ordering::Release);
            }
        }
        true
    };
    fence(Ordering::Release);
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Builder;
    use bareverbs_core::Platform;
    use connectx_model::Config;
    use std::alloc::{GlobalAlloc, System};
    use std::cell::Cell;

    thread_local!(static LIVE: Cell<usize> = const { Cell::new(0) });

    /// The system's allocator, which counts the bytes that each thread has of it.
    struct Counting;

    #[global_allocator]
    static ALLOCATOR: Counting = Counting;

    // SAFETY: everything is passed on to the system's allocator as it is.
    unsafe impl GlobalAlloc for Counting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            LIVE.set(LIVE.get().wrapping_add(layout.size()));
            // SAFETY: the caller's promise.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
            LIVE.set(LIVE.get().wrapping_sub(layout.size()));
            // SAFETY: the caller's promise.
            unsafe { System.dealloc(ptr, layout) }
        }
    }

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).unwrap()
    }

    #[test]
    fn what_was_not_given_back_is_freed_at_the_end() {
        let mut callers = vec![7_u8; 3 * 4096];
        let before = LIVE.get();
        let mut memory = Memory::default();
        let [_, given_back, _] = [layout(0, 1), layout(100, 64), layout(0x20_0000, 4096)]
            .map(|layout| memory.alloc(layout).unwrap());
        memory.map(NonNull::from(&mut callers[..])).unwrap();
        // SAFETY: just allocated, and not used.
        unsafe { memory.free(given_back) };
        assert_eq!(memory.accounting().allocated, 1 + 0x20_0000);
        assert!(LIVE.get() > before + 0x20_0000);
        drop(memory);
        assert_eq!(LIVE.get(), before);
        assert!(callers.iter().all(|&byte| byte == 7));
    }

    #[test]
    fn memory_lasts_as_long_as_the_last_platform() {
        // The cards' files are read once.
        let config = Config::new(1);
        let before = LIVE.get();
        let world = Builder::new().function(config.clone()).stepped();
        let platform = world.platform(0);
        let dma = platform.dma_alloc(layout(8192, 4096)).unwrap();
        drop(world);
        let last = platform.clone();
        drop(platform);
        // SAFETY: allocated with this length; the device does not know of it.
        let bytes = unsafe { std::slice::from_raw_parts_mut(dma.ptr.as_ptr(), 8192) };
        assert!(bytes.iter().all(|&byte| byte == 0));
        bytes.fill(1);
        drop(last);
        assert_eq!(LIVE.get(), before);
    }
}
