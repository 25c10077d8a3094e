//! The platform seam on the machine itself: BAR 0 where it is mapped, page frames as DMA memory, the kernel's clock, and
//! its interrupts.
//!
//! Memory is mapped at its physical address, and there is no IOMMU, so that what the host and the device see is the same.

// UNSAFETY: implements the platform seam, and clears page frames.
#![expect(unsafe_code)]

use core::alloc::Layout;
use core::ptr::NonNull;
use core::time::Duration;

use bareverbs::verbs::platform::{Dma, DmaError, Mapping, Platform, VectorSet};
use kernel::{Card, Ecam, FRAME, FRAMES, MachineError, Registers, clock, interrupts};

/// A card, and the machine that it is in.
#[derive(Debug)]
pub(crate) struct Machine {
    registers: Registers,
    device_id: u16,
    vectors: u16,
}

impl Machine {
    /// Maps the card's registers; with `interrupts`, sets its vectors up.
    pub(crate) fn new(card: Card, ecam: &Ecam, interrupts: bool) -> Result<Self, MachineError> {
        let device_id = card.device_id;
        let registers = Registers::map(&card.bar)?;
        let vectors = match interrupts {
            true => card.enable_msix(ecam, &registers)?,
            false => 0,
        };
        Ok(Self {
            registers,
            device_id,
            vectors,
        })
    }
}

fn frames_of(len: usize) -> usize {
    len.div_ceil(FRAME as usize).max(1)
}

// SAFETY: registers are single accesses to the mapped BAR, in order among themselves and after earlier writes to memory, as
// `Registers` says; nothing outside the BAR is touched; a page of it is mapped once, and flushed before and after it is
// written when it is write-combining. DMA memory is page frames, which are given to one caller at a time,
// zeroed, mapped, contiguous, and where the device sees them, as there is no IOMMU. The clock does not go back.
unsafe impl Platform for Machine {
    const WRITE_COMBINING: bool = true;

    fn set_write_combining(&self, offset: usize, on: bool) -> bool {
        match self.registers.map_write_combining(offset, on) {
            Ok(()) => {
                let how = if on { "write-combining" } else { "uncached" };
                log::info!("doorbell page {offset:#x} is {how}");
                on
            }
            Err(error) => {
                log::warn!("doorbell page {offset:#x}: {error}");
                false
            }
        }
    }

    #[inline]
    fn write_combining(&self, offset: usize, words: &[u64]) {
        self.registers.write_combining(offset, words);
    }

    fn bar_len(&self) -> usize {
        self.registers.len()
    }

    #[inline]
    fn read_be32(&self, offset: usize) -> u32 {
        u32::from_be(self.registers.read32(offset))
    }

    #[inline]
    fn write_be32(&self, offset: usize, value: u32) {
        self.registers.write32(offset, value.to_be());
    }

    #[inline]
    fn write_be64(&self, offset: usize, value: u64) {
        self.registers.write64(offset, value.to_be());
    }

    fn dma_alloc(&self, layout: Layout) -> Result<Dma, DmaError> {
        let frames = frames_of(layout.size());
        let taken = FRAMES.lock().take(frames, layout.align() as u64);
        let iova = taken.ok_or(DmaError::OutOfMemory)?;
        let ptr = NonNull::new(iova as *mut u8).ok_or(DmaError::OutOfMemory)?;
        // SAFETY: the frames were not in use, and are mapped.
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
        let wanted = (0..self.vectors).filter(|&vector| vectors.contains(vector));
        let wanted = wanted.fold(0, |bits, vector| bits | 1 << vector);
        interrupts::wait(wanted, deadline)
    }
}
