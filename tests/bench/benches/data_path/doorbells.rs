//! The scripted device with doorbells of plain memory.

// UNSAFETY: implements the platform seam by passing everything on, except for doorbells.
#![expect(unsafe_code)]

use std::cell::UnsafeCell;

use bareverbs_core::Platform;
use bareverbs_in_process::pass_on;

use crate::support::Fake;

/// The scripted device with doorbells of plain memory, and with a page of them that is taken for write-combining or not.
pub(crate) struct Doorbells<const COMBINING: bool> {
    pub(crate) fake: Fake,
    uar: Page,
    pub(crate) combining: Page,
}

impl<const COMBINING: bool> Doorbells<COMBINING> {
    pub(crate) fn new(fake: Fake) -> Self {
        let page = || Page([const { UnsafeCell::new(0) }; 512]);
        Self {
            fake,
            uar: page(),
            combining: page(),
        }
    }
}

/// The second UAR.
const COMBINING_PAGE: usize = 0x4000;

/// Empties a write-combining buffer.
#[inline]
fn flush() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every processor with 64 bits has the instruction.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

/// Plain memory for the registers of a page.
#[repr(C, align(4096))]
pub(crate) struct Page(pub(crate) [UnsafeCell<u64>; 512]);

// SAFETY: one thread uses each device.
unsafe impl Sync for Page {}

/// Writes a line of a register in the largest pieces that every processor of the kind has.
#[inline(always)]
fn write_line(to: &[UnsafeCell<u64>; 8], line: &[u64; 8]) {
    #[cfg(target_arch = "x86_64")]
    type Piece = std::arch::x86_64::__m128i;
    #[cfg(not(target_arch = "x86_64"))]
    type Piece = u64;

    let (to, from) = (UnsafeCell::raw_get(to.as_ptr()), line.as_ptr());
    for piece in 0..size_of::<[u64; 8]>() / size_of::<Piece>() {
        // SAFETY: a piece of the line, and of plain memory of ours.
        unsafe {
            let value = from.cast::<Piece>().add(piece).read_unaligned();
            to.cast::<Piece>().add(piece).write_volatile(value);
        }
    }
}

// SAFETY: as the scripted device's; a doorbell is one store.
unsafe impl<const COMBINING: bool> Platform for Doorbells<COMBINING> {
    const WRITE_COMBINING: bool = COMBINING;
    fn set_write_combining(&self, offset: usize, on: bool) -> bool {
        on && COMBINING && offset == COMBINING_PAGE
    }
    #[inline]
    fn write_combining(&self, offset: usize, words: &[u64]) {
        let at = offset.wrapping_sub(COMBINING_PAGE);
        flush();
        let (lines, rest) = words.as_chunks::<8>();
        let registers = self.combining.0.as_chunks::<8>().0;
        if let Some(registers) = registers.get(at / 64..at / 64 + lines.len()) {
            for (line, place) in lines.iter().zip(registers) {
                write_line(place, line);
            }
        }
        if let [word] = rest
            && let Some(register) = self.combining.0.get(at / 8)
        {
            // SAFETY: plain memory of ours.
            unsafe { register.get().write_volatile(*word) };
        }
        flush();
    }
    #[inline]
    fn write_be64(&self, offset: usize, value: u64) {
        // The UAR is page 3 of the BAR.
        if let Some(register) = self.uar.0.get(offset.wrapping_sub(0x3000) / 8) {
            // SAFETY: plain memory of ours.
            unsafe { register.get().write_volatile(value.to_be()) };
        }
    }

    pass_on!(
        fake: bar_len, read_be32, write_be32, dma_alloc, dma_free, dma_map, page_iova, dma_unmap,
        now, relax
    );
}
