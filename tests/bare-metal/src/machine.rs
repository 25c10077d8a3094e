//! The platform seam on the machine itself: BAR 0 where it is mapped, page frames as DMA memory, the cycle counter, and
//! the processor's interrupts.
//!
//! Memory is mapped at its physical address, and there is no IOMMU, so that what the host and the device see is the same.

// UNSAFETY: implements the platform seam; reads and writes device registers through raw pointers.
#![expect(unsafe_code)]

use core::alloc::Layout;
use core::ptr::NonNull;
use core::sync::atomic::{Ordering, compiler_fence};
use core::time::Duration;

use bareverbs_core::platform::{Dma, DmaError, Mapping, Platform, VectorSet};

use crate::error::MachineError;
use crate::frames::{FRAME, FRAMES};
use crate::pci::{Card, Ecam};
use crate::{clock, interrupts, paging};

/// Of an entry of the MSI-X table: its length, and where address, data and mask are.
const ENTRY: usize = 16;
const ENTRY_ADDRESS: usize = 0;
const ENTRY_DATA: usize = 8;
const ENTRY_CONTROL: usize = 12;

/// A card, and the machine that it is in.
#[derive(Debug)]
pub(crate) struct Machine {
    bar: *mut u8,
    bar_len: usize,
    device_id: u16,
    vectors: u16,
}

impl Machine {
    /// Maps the card's registers; with `interrupts`, sets its vectors up.
    pub(crate) fn new(card: Card, ecam: &Ecam, interrupts: bool) -> Result<Self, MachineError> {
        let bar = paging::map_registers(&card.bar)?;
        let mut machine = Self {
            bar,
            bar_len: (card.bar.end - card.bar.start) as usize,
            device_id: card.device_id,
            vectors: 0,
        };
        if interrupts {
            machine.enable_msix(card, ecam)?;
        }
        Ok(machine)
    }

    /// Gives each vector its message.
    fn enable_msix(&mut self, card: Card, ecam: &Ecam) -> Result<(), MachineError> {
        let missing = MachineError::NoMsix(card.at);
        let mut msix = card.msix.ok_or(missing)?;
        let table = msix.table_offset() as usize;
        let count = msix.table_size().min(interrupts::CARD_VECTORS);
        let end = table.saturating_add(usize::from(msix.table_size()) * ENTRY);
        if msix.table_bar() != 0 || end > self.bar_len {
            return Err(missing);
        }
        msix.set_function_mask(true, ecam);
        msix.set_enabled(true, ecam);
        for vector in 0..count {
            let (address, data) = interrupts::message(vector);
            let entry = table + usize::from(vector) * ENTRY;
            // PCI's registers are little-endian.
            let fields = [
                (ENTRY_ADDRESS, address as u32),
                (ENTRY_ADDRESS + 4, (address >> 32) as u32),
                (ENTRY_DATA, data),
                (ENTRY_CONTROL, 0),
            ];
            for (field, value) in fields {
                self.write_be32(entry + field, value.swap_bytes());
            }
        }
        msix.set_function_mask(false, ecam);
        self.vectors = count;
        Ok(())
    }

    /// Where a register of `size` bytes is, if it is aligned and in the BAR.
    #[inline(always)]
    fn register<T>(&self, offset: usize) -> Option<*mut T> {
        let size = size_of::<T>();
        // The length is a multiple of the size, so that an aligned register that starts in the BAR ends there.
        let inside = offset & (size - 1) == 0 && offset < self.bar_len;
        inside.then(|| self.bar.wrapping_add(offset).cast())
    }
}

fn frames_of(len: usize) -> usize {
    len.div_ceil(FRAME as usize).max(1)
}

// SAFETY: registers are single volatile accesses to the mapped, uncached BAR, which x86 keeps in order among themselves
// and after earlier stores to memory; fences keep the compiler from moving them; nothing outside the BAR is touched. DMA
// memory is page frames, which are given to one caller at a time, zeroed, mapped, contiguous, and where the device sees
// them, as there is no IOMMU. The clock is the cycle counter, which does not go back.
unsafe impl Platform for Machine {
    fn bar_len(&self) -> usize {
        self.bar_len
    }

    #[inline]
    fn read_be32(&self, offset: usize) -> u32 {
        let Some(register) = self.register::<u32>(offset) else {
            return u32::MAX;
        };
        // SAFETY: `register` is aligned and mapped, and reading a register is what it is there for.
        let value = unsafe { register.read_volatile() };
        compiler_fence(Ordering::SeqCst);
        u32::from_be(value)
    }

    #[inline]
    fn write_be32(&self, offset: usize, value: u32) {
        compiler_fence(Ordering::SeqCst);
        if let Some(register) = self.register::<u32>(offset) {
            // SAFETY: `register` is aligned and mapped for writing.
            unsafe { register.write_volatile(value.to_be()) };
        }
    }

    #[inline]
    fn write_be64(&self, offset: usize, value: u64) {
        compiler_fence(Ordering::SeqCst);
        if let Some(register) = self.register::<u64>(offset) {
            // SAFETY: as above.
            unsafe { register.write_volatile(value.to_be()) };
        }
    }

    fn dma_alloc(&self, layout: Layout) -> Result<Dma, DmaError> {
        let frames = frames_of(layout.size());
        let taken = FRAMES.lock().take(frames, layout.align() as u64);
        let iova = taken.ok_or(DmaError::OutOfMemory)?;
        let ptr = NonNull::new(iova as *mut u8).ok_or(DmaError::OutOfMemory)?;
        // SAFETY: the frames were nobody's, and are mapped.
        unsafe { ptr.write_bytes(0, frames * FRAME as usize) };
        Ok(Dma { ptr, iova, layout })
    }

    unsafe fn dma_free(&self, dma: Dma) {
        let frames = frames_of(dma.layout.size());
        FRAMES.lock().give_back(dma.iova, frames);
    }

    unsafe fn dma_map(&self, region: NonNull<[u8]>) -> Result<Mapping, DmaError> {
        let ptr = region.cast::<u8>();
        let first = ptr.as_ptr() as u64 / FRAME;
        let end = (ptr.as_ptr() as u64).saturating_add(region.len() as u64);
        Ok(Mapping {
            ptr,
            len: region.len(),
            page_shift: 12,
            pages: end.div_ceil(FRAME).saturating_sub(first).max(1) as usize,
            token: first * FRAME,
        })
    }

    fn page_iova(&self, mapping: &Mapping, index: usize) -> u64 {
        mapping.token + index as u64 * FRAME
    }

    unsafe fn dma_unmap(&self, _: Mapping) {}

    fn now(&self) -> Duration {
        clock::since_boot()
    }

    fn relax(&self) {
        core::hint::spin_loop();
    }

    fn device_id(&self) -> Option<u16> {
        Some(self.device_id)
    }

    fn interrupt_vectors(&self) -> u16 {
        self.vectors
    }

    fn wait_interrupt(&self, vectors: VectorSet, deadline: Duration) -> bool {
        if self.vectors == 0 {
            self.relax();
            return true;
        }
        interrupts::wait(vectors, deadline)
    }
}
