//! A function's registers in memory: a BAR that is mapped.

// UNSAFETY: reads and writes device registers through raw pointers.
#![expect(unsafe_code)]

use core::ops::Range;
use core::ptr::NonNull;

use volatile::VolatilePtr;

use crate::arch::paging;
use crate::arch::registers::{after_read, before_write, flush_write_combining};
use crate::error::MachineError;
use crate::frames::FRAME;

/// Mapped registers. Each access is one, of the size asked for, in program order, and comes after earlier writes to memory.
/// Numbers are as the processor sees them: PCI's own registers are little-endian, a ConnectX's are big-endian.
#[derive(Debug)]
pub struct Registers {
    start: NonNull<u8>,
    len: usize,
}

impl Registers {
    /// Maps them, uncached, for this value alone.
    pub fn map(place: &Range<u64>) -> Result<Self, MachineError> {
        // No mapping begins at 0.
        let start = NonNull::new(paging::map_registers(place)?).ok_or(MachineError::OutOfMemory)?;
        let len = (place.end - place.start) as usize;
        Ok(Self { start, len })
    }

    /// Their length in bytes.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Reads one. All ones if there is none, or if `offset` is not a multiple of 4.
    #[inline]
    #[must_use]
    pub fn read32(&self, offset: usize) -> u32 {
        let Some(register) = self.register::<u32>(offset) else {
            return u32::MAX;
        };
        let value = register.read();
        after_read();
        value
    }

    /// Writes one. Nothing happens if there is none, or if `offset` is not a multiple of 4.
    #[inline]
    pub fn write32(&self, offset: usize, value: u32) {
        before_write();
        if let Some(register) = self.register::<u32>(offset) {
            register.write(value);
        }
    }

    /// Writes one of 64 bits. Nothing happens if there is none, or if `offset` is not a multiple of 8.
    #[inline]
    pub fn write64(&self, offset: usize, value: u64) {
        before_write();
        if let Some(register) = self.register::<u64>(offset) {
            register.write(value);
        }
    }

    /// Maps the page at `offset` write-combining, or uncached again. Then nothing but
    /// [`write_combining`](Self::write_combining) belongs there.
    pub fn map_write_combining(&self, offset: usize, on: bool) -> Result<(), MachineError> {
        let page = self.at::<u64>(offset & !(FRAME as usize - 1));
        let page = page.ok_or(MachineError::NoWriteCombining)?;
        flush_write_combining();
        paging::map_write_combining(page.addr().get() as u64, on)
    }

    /// Writes words to a page that is write-combining, the lowest address first, after everything that was written to
    /// memory, and so that nothing that comes later is combined with it. Nothing happens if not all of them are there, or if
    /// `offset` is not a multiple of 8.
    #[inline]
    pub fn write_combining(&self, offset: usize, words: &[u64]) {
        let fits = offset.saturating_add(size_of_val(words)) <= self.len;
        let Some(first) = self.at::<u64>(offset).filter(|_| fits) else {
            return;
        };
        flush_write_combining();
        for (index, &word) in words.iter().enumerate() {
            // SAFETY: the first is aligned, and all of them are mapped for writing.
            unsafe { VolatilePtr::new(first.add(index)) }.write(word);
        }
        flush_write_combining();
    }

    /// A register, if it is aligned and all of it is there, for one access.
    #[inline(always)]
    fn register<T>(&self, offset: usize) -> Option<VolatilePtr<'_, T>> {
        // SAFETY: aligned and mapped for reading and writing as long as `self`; one thread runs on this machine.
        self.at(offset)
            .map(|place| unsafe { VolatilePtr::new(place) })
    }

    /// Where a register is, if it is aligned and all of it is there.
    #[inline(always)]
    fn at<T>(&self, offset: usize) -> Option<NonNull<T>> {
        let size = size_of::<T>();
        // BARs are whole pages, so that an aligned register that starts in one ends there.
        let inside = offset & (size - 1) == 0 && offset < self.len;
        // SAFETY: within the mapping at `start`, which is `len` bytes long.
        inside.then(|| unsafe { self.start.add(offset) }.cast())
    }
}
