//! Page tables. Everything is mapped at its physical address, and only what is used: code that cannot be written, data
//! that cannot be executed, memory for frames, device registers uncached; nothing at 0, and nothing below the stack.

// UNSAFETY: writes page tables, and loads them.
#![expect(unsafe_code)]

use core::arch::asm;
use core::arch::x86_64::__cpuid;
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
/// The page attribute table: a model-specific register of eight memory types, of a byte each. The first four are what
/// they have always been, and so are the others until they are changed.
const ATTRIBUTES: u32 = 0x277;
const COMBINING_SHIFT: u32 = 4 * 8;
const WRITE_COMBINING: u64 = 1;
/// CPUID's bit in EDX for the page attribute table.
const HAS_ATTRIBUTES: u32 = 1 << 16;
/// End of the addresses that are in the canonical lower half and that today's processors have as physical ones.
const HIGHEST: u64 = 1 << 46;

/// Addresses that the boot code maps to themselves: all below 4 GiB, of which page 0 is unused.
pub(crate) const AT_BOOT: Range<u64> = 1..4 << 30;

bitflags! {
    /// Rights and memory type of a page.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct Page: u64 {
        const PRESENT = 1;
        const WRITABLE = 1 << 1;
        /// Strongly uncached: the last of the four memory types that a page has without further ado.
        const UNCACHED = 1 << 3 | 1 << 4;
        /// Of a small page: the fifth memory type of the page attribute table, which is made write-combining.
        const COMBINING = 1 << 7;
        const NO_EXECUTE = 1 << 63;
    }
}

impl Page {
    const CODE: Self = Self::PRESENT;
    const CONSTANTS: Self = Self::PRESENT.union(Self::NO_EXECUTE);
    const DATA: Self = Self::CONSTANTS.union(Self::WRITABLE);
    /// Device registers.
    pub(crate) const REGISTERS: Self = Self::DATA.union(Self::UNCACHED);
    /// Device registers whose stores may be gathered.
    const COMBINING_REGISTERS: Self = Self::DATA.union(Self::COMBINING);
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

/// Maps a small page of registers, which are mapped, write-combining, or uncached again.
///
/// The page has one type at a time: what becomes of a page that is mapped twice, with two types, Intel's and Arm's manuals
/// leave open. The processor may read such a page unasked, which changes nothing in a page of doorbells.
pub(crate) fn map_write_combining(at: u64, on: bool) -> Result<(), MachineError> {
    let missing = MachineError::NoWriteCombining;
    let root = ROOT.lock();
    let mut table = root.ok_or(missing)?;
    if on && !attribute_is_write_combining() {
        return Err(missing);
    }
    for level in (1..4).rev() {
        if level == 1 {
            split(entry(table, at, level))?;
        }
        table = next_table(table, at, level)?.ok_or(missing)?;
    }
    let page = match on {
        true => Page::COMBINING_REGISTERS,
        false => Page::REGISTERS,
    };
    let entry = entry(table, at, 0);
    // SAFETY: an entry of one of our tables, which only this function changes: `ROOT` is locked.
    if unsafe { entry.read_volatile() } & Page::PRESENT.bits() == 0 {
        return Err(missing);
    }
    // SAFETY: as above. It has pointed to this page before, which is registers, so that no cache has anything of it; and
    // there is one processor, whose TLB drops the old entry, and that of a large page.
    unsafe {
        entry.write_volatile(at & ADDRESS | page.bits());
        asm!("invlpg [{}]", in(reg) at, options(nostack));
    }
    Ok(())
}

/// Makes a table of small pages of a large one, if there is one: the same pages, with the same rights.
fn split(entry: *mut u64) -> Result<(), MachineError> {
    // SAFETY: as in `map_page`.
    let found = unsafe { entry.read_volatile() };
    if found & Page::PRESENT.bits() == 0 || found & LARGE == 0 {
        return Ok(());
    }
    let table = new_table()?;
    for index in 0..ENTRIES {
        let small = (found & !LARGE) + index * FRAME;
        // SAFETY: an entry of the new table.
        unsafe {
            (table as *mut u64)
                .add(index as usize)
                .write_volatile(small)
        };
    }
    let flags = Page::PRESENT | Page::WRITABLE;
    // SAFETY: as in `map_page`.
    unsafe { entry.write_volatile(table | flags.bits()) };
    Ok(())
}

/// Makes the fifth memory type write-combining. As long as no page has it, nothing is in any cache because of it.
fn attribute_is_write_combining() -> bool {
    // Each processor with 64 bits has the instruction.
    if __cpuid(1).edx & HAS_ATTRIBUTES == 0 {
        return false;
    }
    let (mut low, mut high): (u32, u32);
    // SAFETY: the register is there, as the processor says.
    unsafe {
        asm!("rdmsr", in("ecx") ATTRIBUTES, out("eax") low, out("edx") high, options(nomem, nostack));
    }
    let types = u64::from(high) << 32 | u64::from(low);
    let types = types & !(0xff << COMBINING_SHIFT) | WRITE_COMBINING << COMBINING_SHIFT;
    (low, high) = (types as u32, (types >> 32) as u32);
    // SAFETY: as above. Of the types only one changes, that no page has that was not given it by `map_write_combining`.
    unsafe {
        asm!("wrmsr", in("ecx") ATTRIBUTES, in("eax") low, in("edx") high, options(nostack));
    }
    true
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
    // SAFETY: an entry of one of our tables, which only this function changes: `ROOT` is locked.
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
