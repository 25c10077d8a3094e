//! Page tables. Everything is mapped at its physical address, and only what is used: code that cannot be written, data
//! that cannot be executed, memory for frames, device registers uncached; nothing at 0, and nothing below the stack.

// UNSAFETY: writes page tables, and loads them.
#![expect(unsafe_code)]

use core::arch::asm;
use core::ops::Range;

use bitflags::bitflags;
use spin::Mutex;

use crate::error::MachineError;
use crate::frames::{FRAME, FRAMES};
use crate::image;

const ENTRIES: u64 = 512;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
/// Of the entry of a large page.
const LARGE: u64 = 1 << 7;
const LARGE_PAGE: u64 = 2 << 20;
/// What the canonical lower half and the physical addresses of today's processors have in common.
const HIGHEST: u64 = 1 << 46;

/// What the boot code maps to itself: everything below 4 GiB, of which 0 is nobody's.
pub(crate) const AT_BOOT: Range<u64> = 1..4 << 30;

bitflags! {
    /// What may be done with a page.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct Page: u64 {
        const PRESENT = 1;
        const WRITABLE = 1 << 1;
        /// Strongly uncached: the last of the four memory types that a page has without further ado.
        const UNCACHED = 1 << 3 | 1 << 4;
        const NO_EXECUTE = 1 << 63;
    }
}

impl Page {
    const CODE: Self = Self::PRESENT;
    const CONSTANTS: Self = Self::PRESENT.union(Self::NO_EXECUTE);
    const DATA: Self = Self::CONSTANTS.union(Self::WRITABLE);
    /// Device registers.
    pub(crate) const REGISTERS: Self = Self::DATA.union(Self::UNCACHED);
}

/// The tables in force, by the address of the first.
static ROOT: Mutex<Option<u64>> = Mutex::new(None);

/// Makes the tables and goes over to them.
pub(crate) fn init() -> Result<(), MachineError> {
    let mut root = ROOT.lock();
    let table = new_table()?;
    let memory = FRAMES.lock().memory();
    for (range, page) in [
        (image::text(), Page::CODE),
        (image::rodata(), Page::CONSTANTS),
        (image::data(), Page::DATA),
        (image::stack(), Page::DATA),
        (memory, Page::DATA),
    ] {
        map_in(table, &range, page)?;
    }
    // SAFETY: the tables map all of the image where it is, with the stack, and the memory that the tables are in.
    unsafe { asm!("mov cr3, {}", in(reg) table, options(nostack)) };
    *root = Some(table);
    Ok(())
}

/// Maps PCI's configuration space: as device registers.
pub(crate) use map_registers as map_configuration;

/// Maps device registers at their physical address, in whole pages.
pub(crate) fn map_registers(range: &Range<u64>) -> Result<*mut u8, MachineError> {
    let root = ROOT.lock();
    let root = root.ok_or(MachineError::OutOfMemory)?;
    map_in(root, range, Page::REGISTERS)?;
    Ok(range.start as *mut u8)
}

/// Maps a range to itself. What of it is mapped already stays as it is.
fn map_in(root: u64, range: &Range<u64>, page: Page) -> Result<(), MachineError> {
    if range.end > HIGHEST {
        return Err(MachineError::AddressTooHigh(range.end));
    }
    let mut at = range.start - range.start % FRAME;
    while at < range.end {
        let large = at.is_multiple_of(LARGE_PAGE) && range.end - at >= LARGE_PAGE;
        at += match large {
            true if map_page(root, at, 1, page.bits() | LARGE)? => LARGE_PAGE,
            _ => {
                map_page(root, at, 0, page.bits())?;
                FRAME
            }
        };
    }
    Ok(())
}

/// Maps one page: a large one at level 1, a small one at level 0. `false` if there are small ones where a large one was
/// to be.
fn map_page(root: u64, at: u64, level: u32, flags: u64) -> Result<bool, MachineError> {
    let mut table = root;
    for above in (level + 1..4).rev() {
        match next_table(table, at, above)? {
            Some(next) => table = next,
            // A large page has it already.
            None => return Ok(true),
        }
    }
    let entry = entry(table, at, level);
    // SAFETY: an entry of one of our tables, which nobody else changes: `ROOT` is locked.
    let found = unsafe { entry.read_volatile() };
    if found & Page::PRESENT.bits() == 0 {
        // SAFETY: as above.
        unsafe { entry.write_volatile(at | flags) };
        return Ok(true);
    }
    Ok(level == 0 || found & LARGE != 0)
}

/// The table that covers an address, below this one; made if there is none. `None` if there is a large page.
fn next_table(table: u64, address: u64, level: u32) -> Result<Option<u64>, MachineError> {
    let entry = entry(table, address, level);
    // SAFETY: as in `map_page`.
    let found = unsafe { entry.read_volatile() };
    if found & LARGE != 0 && found & Page::PRESENT.bits() != 0 {
        return Ok(None);
    }
    if found & Page::PRESENT.bits() != 0 {
        return Ok(Some(found & ADDRESS));
    }
    let next = new_table()?;
    let flags = Page::PRESENT | Page::WRITABLE;
    // SAFETY: as in `map_page`.
    unsafe { entry.write_volatile(next | flags.bits()) };
    Ok(Some(next))
}

fn entry(table: u64, address: u64, level: u32) -> *mut u64 {
    let index = address >> (12 + 9 * level) & (ENTRIES - 1);
    (table as *mut u64).wrapping_add(index as usize)
}

fn new_table() -> Result<u64, MachineError> {
    let frame = FRAMES.lock().take(1, FRAME);
    let frame = frame.ok_or(MachineError::OutOfMemory)?;
    // SAFETY: the frame is ours alone, and mapped where it is: by the boot code, or by `init`.
    unsafe { (frame as *mut u8).write_bytes(0, FRAME as usize) };
    Ok(frame)
}
