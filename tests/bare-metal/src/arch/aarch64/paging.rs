//! Page tables. Everything is mapped at its physical address, and only what is used: code that cannot be written, data
//! that cannot be executed, memory for frames, device registers; nothing at 0, and nothing below the stack.
//!
//! Memory is write-back and outer shareable, which is the domain that devices are in: what they read and write is what
//! the processor sees, without any cache maintenance. That is so where the device tree says `dma-coherent`, and nowhere
//! else does this kernel run. Device registers are nGnRE: no access is made twice or out of order, and a write is
//! acknowledged before it arrives, as PCI's posted writes are everywhere. Waiting for each doorbell to arrive would
//! gain nothing. Configuration space is nGnRnE, as writes there are not posted: what follows may rely on them.

// UNSAFETY: writes page tables, and loads them.
#![expect(unsafe_code)]

use core::arch::asm;
use core::ops::Range;

use bitflags::bitflags;
use spin::Mutex;

use super::serial;
use crate::error::MachineError;
use crate::frames::{FRAME, FRAMES};
use crate::image;

const ENTRIES: u64 = 512;
const ADDRESS: u64 = 0x0000_ffff_ffff_f000;
const LARGE_PAGE: u64 = 2 << 20;
/// End of the addresses that four levels of tables reach.
const HIGHEST: u64 = 1 << 48;
/// The address space that the tables are of; the boot code's are of 0.
const SPACE: u64 = 1 << 48;
/// Of SCTLR_EL1: what can be written is not executed, independent of the tables.
const WRITE_IMPLIES_NO_EXECUTE: u64 = 1 << 19;

/// Addresses that the boot code maps to themselves as memory.
pub(crate) const AT_BOOT: Range<u64> = 1 << 30..2 << 30;

bitflags! {
    /// An entry without its address. Memory attributes are those that the boot code numbered.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct Page: u64 {
        const VALID = 1;
        /// Above level 0 a table, at level 0 a page: else a large page, or nothing.
        const TABLE = 1 << 1;
        const DEVICE_EARLY = 1 << 2;
        const DEVICE = 2 << 2;
        /// Normal memory that is not cached: stores may be gathered.
        const COMBINING = 3 << 2;
        const READ_ONLY = 1 << 7;
        const OUTER_SHAREABLE = 2 << 8;
        const ACCESSED = 1 << 10;
        const NO_EXECUTE = 3 << 53;
    }
}

impl Page {
    const MEMORY: Self = Self::VALID
        .union(Self::OUTER_SHAREABLE)
        .union(Self::ACCESSED);
    const CODE: Self = Self::MEMORY.union(Self::READ_ONLY);
    const CONSTANTS: Self = Self::CODE.union(Self::NO_EXECUTE);
    const DATA: Self = Self::MEMORY.union(Self::NO_EXECUTE);
    const REGISTERS: Self = Self::VALID
        .union(Self::DEVICE_EARLY)
        .union(Self::ACCESSED)
        .union(Self::NO_EXECUTE);
    /// Device registers whose stores may be gathered.
    const COMBINING_REGISTERS: Self = Self::VALID
        .union(Self::COMBINING)
        .union(Self::ACCESSED)
        .union(Self::NO_EXECUTE);
    const CONFIGURATION: Self = Self::VALID
        .union(Self::DEVICE)
        .union(Self::ACCESSED)
        .union(Self::NO_EXECUTE);
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
        (serial::place(), Page::REGISTERS),
    ] {
        map_in(table, &range, page)?;
    }
    // SAFETY: the tables map all of the image where it is, with the stack, and the memory that the tables are in. None of
    // what the TLB holds of the boot code's tables is of this address space.
    unsafe {
        asm!(
            "dsb ishst",
            "msr ttbr0_el1, {tables}",
            "isb",
            "mrs {control}, sctlr_el1",
            "orr {control}, {control}, {no_execute}",
            "msr sctlr_el1, {control}",
            "isb",
            "tlbi vmalle1",
            "dsb nsh",
            "isb",
            tables = in(reg) table | SPACE,
            control = out(reg) _,
            no_execute = in(reg) WRITE_IMPLIES_NO_EXECUTE,
            options(nostack)
        );
    }
    *root = Some(table);
    Ok(())
}

/// Maps device registers at their physical address, in whole pages.
pub(crate) fn map_registers(range: &Range<u64>) -> Result<*mut u8, MachineError> {
    map(range, Page::REGISTERS)
}

/// Maps PCI's configuration space, in the same way.
pub(crate) fn map_configuration(range: &Range<u64>) -> Result<*mut u8, MachineError> {
    map(range, Page::CONFIGURATION)
}

/// Maps a small page of registers, which are mapped, write-combining, or uncached again.
///
/// The page has one type at a time: what becomes of a page that is mapped twice, with two types, Arm's and Intel's manuals
/// leave open. The processor may read such a page unasked, which changes nothing in a page of doorbells.
pub(crate) fn map_write_combining(at: u64, on: bool) -> Result<(), MachineError> {
    let missing = MachineError::NoWriteCombining;
    let root = ROOT.lock();
    let mut table = root.ok_or(missing)?;
    for level in (1..4).rev() {
        if level == 1 {
            split(entry(table, at, level), at)?;
        }
        table = next_table(table, at, level)?.ok_or(missing)?;
    }
    let page = match on {
        true => Page::COMBINING_REGISTERS,
        false => Page::REGISTERS,
    };
    let entry = entry(table, at, 0);
    // SAFETY: an entry of one of our tables, which only this function changes: `ROOT` is locked.
    if unsafe { entry.read_volatile() } & Page::VALID.bits() == 0 {
        return Err(missing);
    }
    replace(entry, at, at & ADDRESS | page.union(Page::TABLE).bits());
    Ok(())
}

/// Makes a table of small pages of a large one, if there is one: the same pages, with the same rights.
fn split(entry: *mut u64, at: u64) -> Result<(), MachineError> {
    // SAFETY: as in `map_page`.
    let found = unsafe { entry.read_volatile() };
    if found & Page::VALID.bits() == 0 || found & Page::TABLE.bits() != 0 {
        return Ok(());
    }
    let table = new_table()?;
    for index in 0..ENTRIES {
        let small = (found | Page::TABLE.bits()) + index * FRAME;
        // SAFETY: an entry of the new table.
        unsafe {
            (table as *mut u64)
                .add(index as usize)
                .write_volatile(small)
        };
    }
    replace(entry, at, table | (Page::VALID | Page::TABLE).bits());
    Ok(())
}

/// Changes an entry through which `at` is reached, which is nothing in between: the TLB must not hold the old one and
/// the new one at the same time. Only registers are reached through it, which are not accessed meanwhile.
fn replace(entry: *mut u64, at: u64, new: u64) {
    // SAFETY: as in `map_page`; there is one processor, whose TLB drops the old entry before there is a new one.
    unsafe {
        entry.write_volatile(0);
        asm!("dsb ishst", "tlbi vaae1, {}", "dsb nsh", "isb", in(reg) at >> 12, options(nostack, preserves_flags));
        entry.write_volatile(new);
        asm!("dsb ishst", "isb", options(nostack, preserves_flags));
    }
}

fn map(range: &Range<u64>, page: Page) -> Result<*mut u8, MachineError> {
    let root = ROOT.lock();
    let root = root.ok_or(MachineError::OutOfMemory)?;
    map_in(root, range, page)?;
    // SAFETY: the tables' new entries are visible to all accesses from now on. Until then there were none, and of those
    // nothing is remembered.
    unsafe { asm!("dsb ishst", "isb", options(nostack, preserves_flags)) };
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
            true if map_page(root, at, 1, page)? => LARGE_PAGE,
            _ => {
                map_page(root, at, 0, page.union(Page::TABLE))?;
                FRAME
            }
        };
    }
    Ok(())
}

/// Maps one page: a large one at level 1, a small one at level 0 (which Arm calls 2 and 3). `false` if there are small
/// ones where a large one was to be.
fn map_page(root: u64, at: u64, level: u32, page: Page) -> Result<bool, MachineError> {
    let mut table = root;
    for above in (level + 1..4).rev() {
        match next_table(table, at, above)? {
            Some(next) => table = next,
            // A large page has it already.
            None => return Ok(true),
        }
    }
    let entry = entry(table, at, level);
    // SAFETY: an entry of one of our tables, which only this function changes: `ROOT` is locked.
    let found = Page::from_bits_truncate(unsafe { entry.read_volatile() });
    if !found.contains(Page::VALID) {
        // SAFETY: as above.
        unsafe { entry.write_volatile(at | page.bits()) };
        return Ok(true);
    }
    Ok(level == 0 || !found.contains(Page::TABLE))
}

/// The table that covers an address, below this one; made if there is none. `None` if there is a large page.
fn next_table(table: u64, address: u64, level: u32) -> Result<Option<u64>, MachineError> {
    let entry = entry(table, address, level);
    // SAFETY: as in `map_page`.
    let bits = unsafe { entry.read_volatile() };
    let found = Page::from_bits_truncate(bits);
    if found.contains(Page::VALID) {
        return Ok(found.contains(Page::TABLE).then_some(bits & ADDRESS));
    }
    let next = new_table()?;
    let flags = Page::VALID | Page::TABLE;
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
    // The table walker sees the zeros before it sees that there is a table.
    // SAFETY: a barrier between stores.
    unsafe { asm!("dmb ishst", options(nostack, preserves_flags)) };
    Ok(frame)
}
