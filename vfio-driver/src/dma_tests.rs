//! The arena and the mapping of regions over an IOMMU that only keeps books, as strictly as the kernel's.

use super::*;
use proptest::prelude::*;
use std::cell::{Cell, RefCell};

const PAGE: u64 = 4096;

/// The rules of VFIO's type 1 (version 2): whole pages, no overlap, and unmapping only as it was mapped.
#[derive(Default)]
struct Books {
    mapped: RefCell<BTreeMap<u64, (usize, usize)>>,
    calls: Cell<usize>,
    fail_map: Cell<Option<DmaError>>,
    fail_unmap: Cell<Option<DmaError>>,
}

impl Iommu for &Books {
    unsafe fn map(&self, iova: u64, memory: NonNull<u8>, len: usize) -> Result<(), DmaError> {
        if let Some(error) = self.fail_map.get() {
            return Err(error);
        }
        self.calls.set(self.calls.get() + 1);
        assert_eq!(iova % PAGE, 0);
        assert_eq!(memory.as_ptr() as u64 % PAGE, 0);
        assert!(len > 0 && (len as u64).is_multiple_of(PAGE));
        let mut mapped = self.mapped.borrow_mut();
        if let Some((other, (_, other_len))) = mapped.range(..iova + len as u64).next_back() {
            assert!(other + *other_len as u64 <= iova, "EEXIST at {iova:#x}");
        }
        mapped.insert(iova, (memory.as_ptr() as usize, len));
        Ok(())
    }

    fn unmap(&self, iova: u64, len: usize) -> Result<(), DmaError> {
        if let Some(error) = self.fail_unmap.get() {
            return Err(error);
        }
        let removed = self.mapped.borrow_mut().remove(&iova);
        assert_eq!(removed.map(|(_, len)| len), Some(len), "at {iova:#x}");
        Ok(())
    }
}

impl Books {
    /// Where the device's access at `iova` goes.
    fn translate(&self, iova: u64) -> Option<usize> {
        let mapped = self.mapped.borrow();
        let (start, (memory, len)) = mapped.range(..=iova).next_back()?;
        let offset = (iova - start) as usize;
        (offset < *len).then_some(memory + offset)
    }
}

fn memory(books: &Books) -> DmaMemory<&Books> {
    let space = IovaSpace::new(&[0..=0xfedf_ffff, 0xfef0_0000..=(1 << 39) - 1], PAGE);
    DmaMemory::new(books, space, PAGE)
}

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).unwrap()
}

fn free(memory: &DmaMemory<&Books>, dma: Dma) {
    // SAFETY: the tests give memory back last; the device is imagined.
    unsafe { memory.free(dma) }
}

fn unmap(memory: &DmaMemory<&Books>, mapping: &Mapping) {
    // SAFETY: the device is imagined.
    unsafe { memory.unmap(mapping) }
}

/// Fills the memory and checks that it was zero.
fn scribble(dma: &Dma) {
    for i in 0..dma.layout.size() {
        // SAFETY: allocated, of this size, and not used elsewhere.
        unsafe {
            assert_eq!(dma.ptr.add(i).read(), 0, "byte {i}");
            dma.ptr.add(i).write(0xa5);
        }
    }
}

#[test]
fn small_allocations_share_a_block() {
    let books = Books::default();
    let memory = memory(&books);
    let a = memory.allocate(layout(64, 64)).unwrap();
    let b = memory.allocate(layout(5000, 4096)).unwrap();
    assert_eq!(books.calls.get(), 1);
    for dma in [&a, &b] {
        assert_eq!(books.translate(dma.iova), Some(dma.ptr.as_ptr() as usize));
        assert_eq!(dma.iova % dma.layout.align() as u64, 0);
        assert_eq!(dma.ptr.as_ptr() as usize % dma.layout.align(), 0);
        scribble(dma);
    }
    free(&memory, a);
    free(&memory, b);
}

/// Rings and record of a QP of 16 sends and 16 receives: they lie side by side, and one mapping holds 1,260 of them.
#[test]
fn rings_of_queue_pairs_share_pages() {
    let books = Books::default();
    let memory = memory(&books);
    let rings = layout(1664, 64);
    let mut all: Vec<_> = (0..BLOCK / rings.size())
        .map(|_| memory.allocate(rings).unwrap())
        .collect();
    assert_eq!((all.len(), books.calls.get()), (1260, 1));
    all.sort_by_key(|dma| dma.iova);
    assert!(all.windows(2).all(|two| two[1].iova - two[0].iova == 1664));
    all.push(memory.allocate(rings).unwrap());
    assert_eq!(books.calls.get(), 2);
    for dma in all {
        free(&memory, dma);
    }
}

#[test]
fn memory_that_was_used_before_is_cleared() {
    let books = Books::default();
    let memory = memory(&books);
    for size in [64, 4096, 100_000, 64] {
        let dma = memory.allocate(layout(size, 64)).unwrap();
        scribble(&dma);
        free(&memory, dma);
    }
    assert_eq!(books.calls.get(), 1);
}

#[test]
fn one_empty_block_is_kept_and_more_are_not() {
    let books = Books::default();
    let memory = memory(&books);
    let blocks: Vec<Dma> = (0..3)
        .map(|_| memory.allocate(layout(BLOCK, 4096)).unwrap())
        .collect();
    assert_eq!(books.mapped.borrow().len(), 3);
    for dma in blocks {
        free(&memory, dma);
    }
    assert_eq!(books.mapped.borrow().len(), 1);
    drop(memory);
    assert!(books.mapped.borrow().is_empty());
}

#[test]
fn large_allocations_are_mapped_and_unmapped_on_their_own() {
    let books = Books::default();
    let memory = memory(&books);
    let dma = memory.allocate(layout(5 << 20, 8 << 20)).unwrap();
    assert_eq!(dma.iova % (8 << 20), 0);
    assert_eq!(dma.ptr.as_ptr() as usize % (8 << 20), 0);
    let (iova, last) = (dma.iova, dma.layout.size() - 1);
    assert_eq!(
        books.translate(iova + last as u64),
        Some(dma.ptr.as_ptr() as usize + last)
    );
    free(&memory, dma);
    assert!(books.mapped.borrow().is_empty());
}

#[test]
fn a_size_of_nothing_and_one_of_everything() {
    let books = Books::default();
    let memory = memory(&books);
    let nothing = memory.allocate(layout(0, 1)).unwrap();
    let other = memory.allocate(layout(1, 1)).unwrap();
    assert_ne!(nothing.iova, other.iova);
    free(&memory, nothing);
    free(&memory, other);
    let everything = layout(isize::MAX as usize & !4095, 4096);
    assert!(memory.allocate(everything).is_err());
}

#[test]
fn a_refused_mapping_loses_nothing() {
    let books = Books::default();
    let memory = memory(&books);
    let limit = DmaError::LockedMemoryLimit {
        limit: 64,
        needed: BLOCK as u32 >> 10,
    };
    books.fail_map.set(Some(limit));
    let mut page = vec![0u8; 4096];
    let region = NonNull::from(page.as_mut_slice());
    for _ in 0..3 {
        assert_eq!(memory.allocate(layout(64, 64)).unwrap_err(), limit);
        assert_eq!(memory.allocate(layout(3 << 20, 64)).unwrap_err(), limit);
        // SAFETY: the vector still exists, and there is no device.
        assert_eq!(unsafe { memory.map(region) }.unwrap_err(), limit);
    }
    books.fail_map.set(None);
    // All addresses are there again: the first block lies where it lies in a new space.
    let dma = memory.allocate(layout(64, 64)).unwrap();
    assert_eq!(dma.iova, BLOCK as u64);
    free(&memory, dma);
}

#[test]
fn what_cannot_be_unmapped_is_never_used_again() {
    let books = Books::default();
    let memory = memory(&books);
    let lost = memory.allocate(layout(3 << 20, 4096)).unwrap();
    let (iova, ptr) = (lost.iova, lost.ptr);
    books.fail_unmap.set(Some(DmaError::Os(5)));
    free(&memory, lost);
    books.fail_unmap.set(None);
    let next = memory.allocate(layout(3 << 20, 4096)).unwrap();
    assert_ne!(next.iova, iova);
    assert_ne!(next.ptr, ptr);
    free(&memory, next);
}

#[test]
fn what_was_not_allocated_is_not_freed() {
    let books = Books::default();
    let memory = memory(&books);
    let dma = memory.allocate(layout(4096, 4096)).unwrap();
    let forged = |iova, size| Dma {
        ptr: dma.ptr,
        iova,
        layout: layout(size, 64),
    };
    free(&memory, forged(dma.iova, 8192));
    free(&memory, forged(dma.iova + 4096, 4096));
    free(&memory, forged(dma.iova + 1, 1));
    free(&memory, forged(0, 4096));
    free(&memory, forged(u64::MAX, 4096));
    let other = memory.allocate(layout(64, 64)).unwrap();
    assert!(other.iova >= dma.iova + 4096);
    free(&memory, other);
    free(&memory, dma);
}

#[test]
fn a_region_is_described_with_at_most_two_pages() {
    let books = Books::default();
    let memory = memory(&books);
    let mut buffer = vec![0u8; 3 << 20];
    for (offset, len) in [
        (0, 1),
        (1, 4096),
        (4095, 2),
        (0, 3 << 20),
        (123, (2 << 20) + 77),
        (4096, 0x2000),
    ] {
        let region = NonNull::from(&mut buffer[offset..offset + len]);
        // SAFETY: the buffer outlives the mapping, and the device is imagined.
        let mapping = unsafe { memory.map(region) }.unwrap();
        assert!((1..=2).contains(&mapping.pages), "{mapping:?}");
        let page = 1u64 << mapping.page_shift;
        let host = mapping.ptr.as_ptr() as u64;
        // As the device walks it: byte i is in the page that holds it, at the same offset as for the host.
        for i in [0, len / 2, len - 1] {
            let address = host + i as u64;
            let index = (address / page - host / page) as usize;
            assert!(index < mapping.pages);
            let start = DmaMemory::<&Books>::page_iova(&mapping, index);
            assert_eq!(start % page, 0);
            assert_eq!(
                books.translate(start + address % page),
                Some(address as usize)
            );
        }
        unmap(&memory, &mapping);
        assert!(books.mapped.borrow().is_empty());
    }
}

#[test]
fn only_the_pages_of_the_region_are_mapped() {
    let books = Books::default();
    let memory = memory(&books);
    let mut buffer = vec![0u8; 64 << 10];
    let start = buffer.as_ptr().align_offset(4096);
    let region = NonNull::from(&mut buffer[start + 4000..start + 4000 + 8192]);
    // SAFETY: the buffer outlives the mapping, and the device is imagined.
    let mapping = unsafe { memory.map(region) }.unwrap();
    let total: usize = books.mapped.borrow().values().map(|(_, len)| len).sum();
    assert_eq!(total, 3 * 4096);
    unmap(&memory, &mapping);
}

#[test]
fn the_same_memory_may_be_mapped_twice() {
    let books = Books::default();
    let memory = memory(&books);
    let mut buffer = vec![0u8; 4096];
    let region = NonNull::from(buffer.as_mut_slice());
    // SAFETY: the buffer outlives the mappings, and the device is imagined.
    let (a, b) = unsafe { (memory.map(region).unwrap(), memory.map(region).unwrap()) };
    assert_ne!(a.token, b.token);
    unmap(&memory, &a);
    assert!(books.translate(b.token).is_some());
    unmap(&memory, &b);
    // A second time is detected and has no effect.
    unmap(&memory, &b);
}

#[test]
fn an_empty_region_is_refused() {
    let books = Books::default();
    let memory = memory(&books);
    let region = NonNull::slice_from_raw_parts(NonNull::<u8>::dangling(), 0);
    // SAFETY: there is no byte that the device could reach.
    assert_eq!(unsafe { memory.map(region) }.unwrap_err(), DmaError::Os(22));
}

#[test]
fn all_is_unmapped_at_the_end() {
    let books = Books::default();
    let memory = memory(&books);
    let mut buffer = vec![0u8; 10_000];
    // SAFETY: the buffer outlives `memory`, and the device is imagined.
    let mapping = unsafe { memory.map(NonNull::from(buffer.as_mut_slice())) };
    assert!(mapping.is_ok());
    let kept = memory.allocate(layout(64, 64)).unwrap();
    let large = memory.allocate(layout(3 << 20, 64)).unwrap();
    assert_eq!(books.mapped.borrow().len(), 3);
    drop(memory);
    assert!(books.mapped.borrow().is_empty());
    let _ = (kept, large);
}

proptest! {
    #![proptest_config(crate::testing::seeded())]

    /// The case of rdma-core's fault among them: take and give memory and regions of all lengths in any order. The
    /// books panic on any overlap and on any unmapping that differs from its mapping.
    #[test]
    fn maps_and_unmaps_agree(
        steps in proptest::collection::vec((0usize..4, 0usize..300_000, 1usize..400_000, any::<usize>()), 1..80),
    ) {
        let books = Books::default();
        let memory = memory(&books);
        let mut buffer = vec![0u8; 700_000];
        let base = NonNull::from(buffer.as_mut_slice()).cast::<u8>();
        let mut regions = Vec::new();
        let mut pieces = Vec::new();
        for (kind, offset, len, pick) in steps {
            match kind {
                0 => {
                    // SAFETY: offset and length stay within the buffer, which outlives `memory`.
                    let region = NonNull::slice_from_raw_parts(unsafe { base.add(offset) }, len);
                    // SAFETY: as above; the device is imagined.
                    regions.push(unsafe { memory.map(region) }.unwrap());
                }
                1 if !regions.is_empty() => {
                    unmap(&memory, &regions.swap_remove(pick % regions.len()));
                }
                2 => pieces.push(memory.allocate(layout(len * 8, 64 << (pick % 10))).unwrap()),
                3 if !pieces.is_empty() => free(&memory, pieces.swap_remove(pick % pieces.len())),
                _ => {}
            }
            for mapping in &regions {
                prop_assert_eq!(books.translate(mapping.token), Some(mapping.ptr.as_ptr() as usize));
            }
            for dma in &pieces {
                let last = dma.layout.size() - 1;
                prop_assert_eq!(
                    books.translate(dma.iova + last as u64),
                    Some(dma.ptr.as_ptr() as usize + last)
                );
            }
        }
        drop(memory);
        prop_assert!(books.mapped.borrow().is_empty());
    }
}
