//! A platform on the model that breaks one requirement.

// UNSAFETY: implements the seam's unsafe trait. It breaks the promises that matter to the device and to the test, but none
// by which this process could come to harm: a pointer is wrong only where the test looks at its value before it uses it.
#![expect(unsafe_code)]

use std::alloc::Layout;
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bareverbs_core::VectorSet;
use bareverbs_core::platform::{Dma, DmaError, Mapping, Platform};
use bareverbs_in_process::ModelPlatform;
use memmap2::MmapRaw;

/// The platform's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    ShortBar,
    NoDevice,
    UnstableRegister,
    ReadSwapped,
    WriteSwapped,
    ReadWrapsAround,
    WriteWrapsAround,
    DoorbellWritesOutside,
    ReadRoundsDown,
    WriteRoundsDown,
    HalvesSwapped,
    BytesSwapped,
    HighHalfLost,
    ClockBack,
    ClockStands,
    ClockCoarse,
    NoMemory,
    Dirty,
    DirtyAgain,
    OtherLayout,
    PointerUnaligned,
    IovaUnaligned,
    IovaUnalignedForLarge,
    IovaWraps,
    SamePointer,
    SameIova,
    IovaOverlaps,
    Aliased,
    Absurd,
    FreeLeaks,
    IovaElsewhere,
    LargeNotContiguous,
    NoMap,
    MapsOther,
    SmallPages,
    PageTooFew,
    PageUnaligned,
    PagesSame,
    PagesReversed,
    PagesElsewhere,
    FirstPageOnly,
    UnmapLeaks,
    WaitEarly,
    WaitLate,
    PastWaitsToo,
    InterruptNever,
    InterruptForgotten,
    OnlyVectorZero,
    OnlyVectorOne,
}

/// Bytes of the model's memory that a leaking platform gives in all.
const LEAST_MEMORY: usize = 4 << 20;
/// Mappings that a leaking platform can hold.
const MOST_MAPPINGS: usize = 100;

/// The same page of a file, at two places.
fn twins() -> std::io::Result<[MmapRaw; 2]> {
    static FILES: AtomicU32 = AtomicU32::new(0);
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    let name = format!("twins-{}-{number}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let mut options = File::options();
    let file = options
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)?;
    std::fs::remove_file(&path)?;
    file.set_len(4096)?;
    Ok([MmapRaw::map_raw(&file)?, MmapRaw::map_raw(&file)?])
}

/// The model's platform, with a fault.
pub(crate) struct Broken {
    inner: ModelPlatform,
    fault: Fault,
    reads: Cell<u32>,
    /// The time that was returned last, and how often it was read.
    last_time: Cell<(Duration, u32)>,
    /// Memory in use, as `inner` gave it, by the address that was returned.
    given: RefCell<Vec<(u64, Dma)>>,
    ever: Cell<usize>,
    mapped: Cell<usize>,
    /// A page that is mapped twice.
    twins: [MmapRaw; 2],
}

impl Broken {
    pub(crate) fn new(inner: ModelPlatform, fault: Fault) -> Self {
        Self {
            inner,
            fault,
            reads: Cell::new(0),
            last_time: Cell::new((Duration::ZERO, 0)),
            given: RefCell::new(Vec::new()),
            ever: Cell::new(0),
            mapped: Cell::new(0),
            twins: twins().expect("a file that can be mapped"),
        }
    }

    /// The memory that `inner` gave, with the fault applied.
    fn altered(&self, real: &Dma, first: Option<&Dma>) -> Dma {
        let mut altered = Dma {
            ptr: real.ptr,
            iova: real.iova,
            layout: real.layout,
        };
        let (size, align) = (altered.layout.size(), altered.layout.align());
        match (self.fault, first) {
            (Fault::OtherLayout, _) => {
                altered.layout = Layout::from_size_align(size + 64, align).expect("a layout");
            }
            // SAFETY: one byte is there behind the pointer, and the test ends when it sees the address.
            (Fault::PointerUnaligned, _) => altered.ptr = unsafe { altered.ptr.add(1) },
            (Fault::IovaUnaligned, _) => altered.iova += 4,
            (Fault::IovaUnalignedForLarge, _) if align > 4096 => altered.iova += 4096,
            (Fault::IovaWraps, _) if size == 131_072 => altered.iova = u64::MAX << 16,
            (Fault::SamePointer, Some(first)) if altered.layout == first.layout => {
                altered.ptr = first.ptr
            }
            (Fault::SameIova, Some(first)) if altered.layout == first.layout => {
                altered.iova = first.iova
            }
            (Fault::IovaOverlaps, Some(first)) if align == 4096 => {
                altered.iova = (first.iova & !4095) + 4096;
            }
            (Fault::IovaElsewhere, _) => altered.iova += 1 << 40,
            _ => {}
        }
        altered
    }
}

// SAFETY: see the head of this file.
unsafe impl Platform for Broken {
    fn bar_len(&self) -> usize {
        match self.fault {
            Fault::ShortBar => 4096,
            _ => self.inner.bar_len(),
        }
    }

    fn device_id(&self) -> Option<u16> {
        self.inner.device_id()
    }

    fn read_be32(&self, offset: usize) -> u32 {
        let reads = self.reads.get() + 1;
        self.reads.set(reads);
        let len = self.inner.bar_len();
        match self.fault {
            Fault::NoDevice => u32::MAX,
            Fault::UnstableRegister if reads.is_multiple_of(50) => !self.inner.read_be32(offset),
            Fault::ReadSwapped => self.inner.read_be32(offset).swap_bytes(),
            Fault::ReadWrapsAround => self.inner.read_be32(offset % len),
            Fault::ReadRoundsDown => self.inner.read_be32(offset & !3),
            _ => self.inner.read_be32(offset),
        }
    }

    fn write_be32(&self, offset: usize, value: u32) {
        let len = self.inner.bar_len();
        match self.fault {
            Fault::WriteSwapped => self.inner.write_be32(offset, value.swap_bytes()),
            Fault::WriteWrapsAround => self.inner.write_be32(offset % len, value),
            Fault::WriteRoundsDown => self.inner.write_be32(offset & !3, value),
            _ => self.inner.write_be32(offset, value),
        }
    }

    fn write_be64(&self, offset: usize, value: u64) {
        let len = self.inner.bar_len();
        match self.fault {
            Fault::HalvesSwapped => self.inner.write_be64(offset, value.rotate_left(32)),
            Fault::BytesSwapped => self.inner.write_be64(offset, value.swap_bytes()),
            Fault::HighHalfLost => self.inner.write_be32(offset + 4, value as u32),
            Fault::DoorbellWritesOutside => self.inner.write_be64(offset % len, value),
            _ => self.inner.write_be64(offset, value),
        }
    }

    fn dma_alloc(&self, layout: Layout) -> Result<Dma, DmaError> {
        let size = layout.size();
        let ever = self.ever.get();
        match self.fault {
            Fault::NoMemory => return Err(DmaError::OutOfMemory),
            Fault::Absurd if size > isize::MAX as usize / 8 => {
                let ptr = NonNull::dangling();
                return Ok(Dma {
                    ptr,
                    iova: 0,
                    layout,
                });
            }
            Fault::FreeLeaks if ever > LEAST_MEMORY => return Err(DmaError::OutOfMemory),
            _ => {}
        }
        let real = self.inner.dma_alloc(layout)?;
        self.ever.set(ever + size);
        let given = self.given.borrow();
        let first = given.first().map(|(_, dma)| dma);
        let mut altered = self.altered(&real, first);
        match self.fault {
            // SAFETY: the memory is this long, and used by this function only.
            Fault::Dirty => unsafe { real.ptr.add(size - 1).write(1) },
            // SAFETY: as above.
            Fault::DirtyAgain if ever > 2_000_000 => unsafe { real.ptr.write(1) },
            // A buffer of the test's traffic, whose pages lie apart for the device.
            Fault::LargeNotContiguous if (160 << 10..200 << 10).contains(&size) => {
                let pages = NonNull::slice_from_raw_parts(real.ptr, size);
                // SAFETY: the memory is this long, and is never given back.
                let mapping = unsafe { self.inner.dma_map(pages) }?;
                altered.iova = self.inner.page_iova(&mapping, 0);
            }
            Fault::Aliased if (size, layout.align()) == (4096, 4096) => {
                let of_this = given.iter().filter(|(_, dma)| dma.layout == layout);
                if let Some(twin) = self.twins.get(of_this.count()) {
                    altered.ptr = NonNull::new(twin.as_mut_ptr()).expect("mapped memory");
                }
            }
            _ => {}
        }
        drop(given);
        self.given.borrow_mut().push((altered.iova, real));
        Ok(altered)
    }

    unsafe fn dma_free(&self, dma: Dma) {
        let mut given = self.given.borrow_mut();
        // The latest, where several were returned with the same address.
        let Some(at) = given.iter().rposition(|(iova, _)| *iova == dma.iova) else {
            return;
        };
        let (_, real) = given.remove(at);
        // SAFETY: it is what the inner platform gave, taken out of the list, and its user is done with it.
        unsafe { self.inner.dma_free(real) }
    }

    unsafe fn dma_map(&self, region: NonNull<[u8]>) -> Result<Mapping, DmaError> {
        let mapped = self.mapped.get();
        self.mapped.set(mapped + 1);
        match self.fault {
            Fault::NoMap => return Err(DmaError::TooManyMappings),
            Fault::UnmapLeaks if mapped > MOST_MAPPINGS => return Err(DmaError::TooManyMappings),
            _ => {}
        }
        // SAFETY: the caller's promise.
        let mut mapping = unsafe { self.inner.dma_map(region) }?;
        match self.fault {
            Fault::MapsOther => mapping.len += 1,
            Fault::SmallPages => mapping.page_shift = 9,
            Fault::PageTooFew if mapping.pages > 2 => mapping.pages -= 1,
            _ => {}
        }
        Ok(mapping)
    }

    fn page_iova(&self, mapping: &Mapping, index: usize) -> u64 {
        let real = |index| self.inner.page_iova(mapping, index);
        match self.fault {
            Fault::PageUnaligned => real(index) + mapping.ptr.as_ptr().addr() as u64 % 4096 + 64,
            Fault::PagesSame => real(index & !1),
            Fault::PagesReversed
                if mapping.pages > 4 && (1..mapping.pages - 1).contains(&index) =>
            {
                real(mapping.pages - 1 - index)
            }
            Fault::PagesElsewhere => real(index) + (1 << 40),
            // Right for memory that is contiguous for the device as well, which this never is.
            Fault::FirstPageOnly => real(0) + (index as u64) * 4096,
            _ => real(index),
        }
    }

    unsafe fn dma_unmap(&self, mut mapping: Mapping) {
        match self.fault {
            Fault::MapsOther => mapping.len -= 1,
            Fault::SmallPages => mapping.page_shift = 12,
            _ => {}
        }
        // SAFETY: the caller's promise.
        unsafe { self.inner.dma_unmap(mapping) }
    }

    fn now(&self) -> Duration {
        let now = self.inner.now();
        let (before, asked) = self.last_time.get();
        self.last_time.set((now, asked + 1));
        match self.fault {
            Fault::ClockBack if asked % 1000 == 999 => {
                before.saturating_sub(Duration::from_nanos(1))
            }
            Fault::ClockBack => now + Duration::from_secs(1),
            Fault::ClockStands => Duration::from_secs(7),
            Fault::ClockCoarse => Duration::from_millis(now.as_millis() as u64 / 15 * 15),
            _ => now,
        }
    }

    fn relax(&self) {
        self.inner.relax();
        if self.fault == Fault::InterruptForgotten {
            self.inner.wait_interrupt(VectorSet::ALL, Duration::ZERO);
        }
    }

    fn interrupt_vectors(&self) -> u16 {
        self.inner.interrupt_vectors()
    }

    fn wait_interrupt(&self, vectors: VectorSet, deadline: Duration) -> bool {
        let wait = |deadline| self.inner.wait_interrupt(vectors, deadline);
        match self.fault {
            Fault::WaitEarly => wait(Duration::ZERO),
            Fault::WaitLate if deadline > self.inner.now() => {
                wait(deadline + Duration::from_secs(10))
            }
            Fault::PastWaitsToo if deadline <= self.inner.now() => {
                wait(deadline + Duration::from_secs(10))
            }
            Fault::InterruptNever => {
                while self.inner.now() < deadline {
                    self.inner.relax();
                }
                false
            }
            Fault::OnlyVectorZero => self.inner.wait_interrupt(VectorSet::one(0), deadline),
            Fault::OnlyVectorOne => self.inner.wait_interrupt(VectorSet::one(1), deadline),
            _ => wait(deadline),
        }
    }
}
