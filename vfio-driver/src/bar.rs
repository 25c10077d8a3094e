//! BAR 0: registers by volatile access to the mapped windows, and by the device's file in the gaps between them.

// UNSAFETY: reads and writes device registers through raw pointers.
#![expect(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;

use bareverbs_core::barrier::{read_barrier, write_barrier};
use memmap2::{Advice, MmapOptions, MmapRaw};
use volatile::VolatilePtr;
use zerocopy::FromBytes;

/// The registers of a function.
///
/// The first window is nearly always the whole BAR, and always where the initialization segment and the first doorbell
/// pages are, so the data path looks at it alone: a doorbell is a comparison and a store.
#[derive(Debug)]
pub(crate) struct Bar {
    /// Start of the window at offset 0.
    base: NonNull<u8>,
    /// Its length, a multiple of the page size; 0 if there is none.
    base_len: usize,
    /// The other windows, and the first one again, which it keeps mapped.
    windows: Vec<Window>,
    len: usize,
    file: File,
    start: u64,
}

#[derive(Debug)]
struct Window {
    range: Range<usize>,
    map: MmapRaw,
}

// SAFETY: `base` points into a mapping that the value owns, and registers may be accessed from any thread; each access
// is one load or store.
unsafe impl Send for Bar {}
// SAFETY: as above; there is no state beside the device's.
unsafe impl Sync for Bar {}

impl Bar {
    /// Maps the windows (disjoint, sorted, in whole pages) of a BAR of `len` bytes that starts at `start` in `file`.
    pub(crate) fn map(
        file: File,
        start: u64,
        len: usize,
        windows: &[Range<u64>],
    ) -> io::Result<Self> {
        let mut bar = Self {
            base: NonNull::dangling(),
            base_len: 0,
            windows: Vec::new(),
            len,
            file,
            start,
        };
        for window in windows {
            let too_large = |_| io::Error::from(io::ErrorKind::OutOfMemory);
            let range = usize::try_from(window.start).map_err(too_large)?
                ..usize::try_from(window.end).map_err(too_large)?;
            let map = MmapOptions::new()
                .offset(start + window.start)
                .len(range.len())
                .map_raw(&bar.file)?;
            // It would keep the device open in a child, as long as that lives.
            map.advise(Advice::DontFork)?;
            if range.start == 0 {
                bar.base = NonNull::new(map.as_mut_ptr())
                    .ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
                bar.base_len = range.len();
            }
            bar.windows.push(Window { range, map });
        }
        Ok(bar)
    }

    /// Length of the BAR.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The device's file, and where in it the registers of a range are, if a window has all of them.
    pub(crate) fn mappable(&self, range: &Range<usize>) -> Option<(BorrowedFd<'_>, u64)> {
        let has = |window: &Window| {
            window.range.start <= range.start
                && range.start < range.end
                && range.end <= window.range.end
        };
        let at = self.start + range.start as u64;
        let found = self.windows.iter().any(has);
        found.then(|| (self.file.as_fd(), at))
    }

    /// The register at `offset`, if it is aligned and in a window, for one access.
    ///
    /// `VolatilePtr::new` asks that no other thread uses the place meanwhile. Registers are not memory: the device takes
    /// each access by itself, from any thread.
    #[inline(always)]
    fn register<T: FromBytes>(&self, offset: usize) -> Option<VolatilePtr<'_, T>> {
        let size = size_of::<T>();
        // Windows are whole pages: an aligned register that starts in one also ends there.
        let place = if offset & (size - 1) == 0 && offset < self.base_len {
            // SAFETY: within the mapping at `base`, which is `base_len` bytes long.
            unsafe { self.base.add(offset) }
        } else {
            self.register_elsewhere(offset, size)?
        };
        // SAFETY: aligned, and mapped for reading and writing as long as `self`; for other threads see above.
        Some(unsafe { VolatilePtr::new(place.cast()) })
    }

    #[cold]
    fn register_elsewhere(&self, offset: usize, size: usize) -> Option<NonNull<u8>> {
        let window = self
            .windows
            .iter()
            .find(|window| window.range.contains(&offset) && offset.is_multiple_of(size))?;
        let start = NonNull::new(window.map.as_mut_ptr())?;
        // SAFETY: within the window's mapping, which is as long as its range.
        Some(unsafe { start.add(offset - window.range.start) })
    }

    /// Where in the file a register is that is not mapped, if it is aligned and in the BAR.
    fn in_file(&self, offset: usize, size: usize) -> Option<u64> {
        let inside = size <= self.len && offset <= self.len - size && offset.is_multiple_of(size);
        inside.then(|| self.start + offset as u64)
    }

    /// Reads a big-endian register. All ones outside the BAR, and for a device that is gone.
    #[inline]
    pub(crate) fn read_be32(&self, offset: usize) -> u32 {
        let Some(register) = self.register::<u32>(offset) else {
            return self.read_unmapped(offset);
        };
        let value = register.read();
        read_barrier();
        u32::from_be(value)
    }

    /// Writes a big-endian 32-bit register; does nothing outside the BAR.
    #[inline]
    pub(crate) fn write_be32(&self, offset: usize, value: u32) {
        write_barrier();
        match self.register::<u32>(offset) {
            Some(register) => register.write(value.to_be()),
            None => self.write_unmapped(offset, &value.to_be_bytes()),
        }
    }

    /// Writes a big-endian 64-bit register; does nothing outside the BAR.
    #[inline]
    #[cfg(target_pointer_width = "64")]
    pub(crate) fn write_be64(&self, offset: usize, value: u64) {
        write_barrier();
        if offset & 7 != 0 || offset >= self.base_len {
            return self.write_be64_elsewhere(offset, value);
        }
        if let Some(register) = self.register::<u64>(offset) {
            register.write(value.to_be());
        }
    }

    /// The same where the first window does not have it. One call, so that the callers, which ring doorbells, save no registers
    /// for it.
    #[cold]
    #[inline(never)]
    #[cfg(target_pointer_width = "64")]
    fn write_be64_elsewhere(&self, offset: usize, value: u64) {
        match self.register::<u64>(offset) {
            Some(register) => register.write(value.to_be()),
            None => self.write_unmapped(offset, &value.to_be_bytes()),
        }
    }

    /// Writes a big-endian 64-bit register in two halves, the high one first, as the device acts on the low one; does
    /// nothing outside the BAR.
    #[inline]
    #[cfg(not(target_pointer_width = "64"))]
    pub(crate) fn write_be64(&self, offset: usize, value: u64) {
        if offset.is_multiple_of(8) {
            self.write_be32(offset, (value >> 32) as u32);
            self.write_be32(offset + 4, value as u32);
        }
    }

    #[cold]
    fn read_unmapped(&self, offset: usize) -> u32 {
        let mut data = [0xff; 4];
        if let Some(at) = self.in_file(offset, 4)
            && let Err(error) = self.file.read_exact_at(&mut data, at)
        {
            // What a read of a device that does not answer gives.
            log::warn!("register {offset:#x} could not be read: {error}");
            data = [0xff; 4];
        }
        u32::from_be_bytes(data)
    }

    #[cold]
    fn write_unmapped(&self, offset: usize, data: &[u8]) {
        match self.in_file(offset, data.len()) {
            Some(at) => {
                if let Err(error) = self.file.write_all_at(data, at) {
                    log::warn!("register {offset:#x} could not be written: {error}");
                }
            }
            None => log::warn!("{} bytes at {offset:#x} are no register", data.len()),
        }
    }
}

#[cfg(test)]
#[expect(
    clippy::single_range_in_vec_init,
    reason = "a list of one window is what is meant"
)]
mod tests {
    use super::*;
    use crate::testing::{Scratch, scratch_file};

    const PAGE: usize = 4096;

    /// A BAR of four pages at page 2 of a file of eight; the third page of the BAR is not mapped.
    fn bar(windows: &[Range<u64>]) -> (Bar, Scratch) {
        let (file, path) = scratch_file(&[0x11; 8 * PAGE]);
        let bar = Bar::map(file, 2 * PAGE as u64, 4 * PAGE, windows).unwrap();
        (bar, path)
    }

    const HOLE: [Range<u64>; 2] = [0..2 * PAGE as u64, 3 * PAGE as u64..4 * PAGE as u64];

    #[test]
    fn registers_are_big_endian_in_windows_and_in_gaps() {
        for windows in [&HOLE[..], &[0..4 * PAGE as u64], &HOLE[1..], &[]] {
            let (bar, path) = bar(windows);
            for page in 0..4 {
                let at = page * PAGE;
                bar.write_be32(at + 0x10, 0x0102_0304);
                bar.write_be64(at + 0x18, 0x0506_0708_090a_0b0c);
                assert_eq!(bar.read_be32(at + 0x10), 0x0102_0304);
                assert_eq!(bar.read_be32(at + 0x18), 0x0506_0708);
                assert_eq!(bar.read_be32(at + 0x1c), 0x090a_0b0c);
                assert_eq!(bar.read_be32(at + 0x20), 0x1111_1111);
            }
            let mut page = [0x11; PAGE];
            page[0x10..0x14].copy_from_slice(&[1, 2, 3, 4]);
            page[0x18..0x20].copy_from_slice(&[5, 6, 7, 8, 9, 10, 11, 12]);
            let bytes = std::fs::read(path.path()).unwrap();
            for (index, found) in bytes.chunks(PAGE).enumerate() {
                let expected = if (2..6).contains(&index) {
                    page
                } else {
                    [0x11; PAGE]
                };
                assert_eq!(found, expected, "page {index} of the file");
            }
        }
    }

    #[test]
    fn the_last_register_is_in_and_the_next_is_out() {
        let (bar, path) = bar(&HOLE);
        bar.write_be32(4 * PAGE - 4, 7);
        bar.write_be64(4 * PAGE - 16, 8);
        assert_eq!(bar.read_be32(4 * PAGE - 4), 7);
        let before = std::fs::read(path.path()).unwrap();
        for offset in [
            4 * PAGE,
            4 * PAGE + 4,
            5 * PAGE,
            usize::MAX - 3,
            usize::MAX - 7,
        ] {
            assert_eq!(bar.read_be32(offset), u32::MAX);
            bar.write_be32(offset, 0);
            bar.write_be64(offset & !7, 0);
        }
        assert!(std::fs::read(path.path()).unwrap() == before);
    }

    #[test]
    fn a_register_that_is_not_aligned_is_none() {
        let (bar, path) = bar(&HOLE);
        let before = std::fs::read(path.path()).unwrap();
        for at in [0, 2 * PAGE, 3 * PAGE] {
            assert_eq!(bar.read_be32(at + 2), u32::MAX);
            bar.write_be32(at + 1, 0);
            bar.write_be64(at + 4, 0);
        }
        assert!(std::fs::read(path.path()).unwrap() == before);
    }

    #[test]
    fn a_range_can_be_mapped_where_one_window_has_all_of_it() {
        let (bar, path) = bar(&HOLE);
        let (file, at) = bar.mappable(&(PAGE..2 * PAGE)).unwrap();
        assert_eq!(at, 3 * PAGE as u64);
        let map = MmapOptions::new().offset(at).len(PAGE).map_raw(&file);
        let map = map.unwrap();
        bar.write_be32(PAGE + 8, 0x0102_0304);
        // SAFETY: the mapping has a page, and no other thread writes to it now.
        let seen = unsafe { map.as_ptr().add(8).cast::<[u8; 4]>().read_volatile() };
        assert_eq!(seen, [1, 2, 3, 4]);
        // In the gap, partly in it, behind the end, with nothing in it.
        for (start, end) in [(2, 3), (1, 3), (2, 4), (4, 5), (1, 1)] {
            let none = bar.mappable(&(start * PAGE..end * PAGE));
            assert!(none.is_none(), "pages {start} to {end}");
        }
        drop(path);
    }

    #[test]
    fn a_file_that_does_not_answer_reads_all_ones() {
        let (file, _path) = scratch_file(&[0; PAGE]);
        let bar = Bar::map(file, 0, 4 * PAGE, &[0..PAGE as u64]).unwrap();
        assert_eq!(bar.len(), 4 * PAGE);
        assert_eq!(bar.read_be32(2 * PAGE), u32::MAX);
    }
}
