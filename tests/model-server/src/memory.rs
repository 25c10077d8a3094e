//! The guest's memory: what the client mapped for DMA, by the device's address.
//!
//! A client passes a file descriptor with every map, mostly another one for the same file: with a virtual IOMMU there are
//! tens of thousands of one-page maps into one memfd. A file is therefore known by its inode, and mapped once as a whole.
//! Where the pages of late lie is remembered, as an IOMMU's TLB does, since nearly all accesses go to a few rings.
//!
//! A client may make a file [shorter](crate::shortened) than what it has mapped of it. From the first access behind the end on
//! nothing of this file is mapped any more for the function.

// UNSAFETY: the mappings are memory that the guest changes at will, so they are only ever copied from and to, through raw
// pointers.
#![expect(unsafe_code)]

use crate::shortened::{self, Region};
use connectx_model::IommuFault;
use memmap2::{MmapOptions, MmapRaw};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

/// One run of device addresses.
#[derive(Clone)]
struct Range {
    len: u64,
    /// The file behind it and where in it; `None` for what the client announces without a descriptor (ROMs, other devices'
    /// registers), which the device cannot reach.
    backing: Option<(Arc<MmapRaw>, u64)>,
    read: bool,
    write: bool,
}

impl Range {
    /// The part of it from `skip` bytes behind its start, `len` bytes long.
    fn part(&self, skip: u64, len: u64) -> Self {
        Self {
            len,
            backing: self
                .backing
                .as_ref()
                .map(|(map, offset)| (map.clone(), offset + skip)),
            ..*self
        }
    }
}

const PAGE: u64 = 4096;
/// Entries of the TLB.
const REMEMBERED: usize = 128;
/// With so many files, those that no range is in any more are closed before there are more.
const MANY_FILES: usize = 64;

/// Where the device address `start` and the `len` bytes from there lie.
#[derive(Clone, Copy)]
struct Place {
    start: u64,
    len: u64,
    ptr: *mut u8,
    /// The whole mapping.
    region: Region,
    read: bool,
    write: bool,
}

// SAFETY: the pointer is used in `Memory`'s methods only, for memory that any thread may copy from and to.
unsafe impl Send for Place {}

impl Place {
    const NOWHERE: Self = Self {
        start: 0,
        len: 0,
        ptr: std::ptr::null_mut(),
        region: Region::NONE,
        read: false,
        write: false,
    };

    /// The pointer for an access that lies in here as a whole, and is allowed.
    fn get(&self, iova: u64, len: usize, write: bool) -> Option<(*mut u8, Region)> {
        let skip = iova.checked_sub(self.start)?;
        let fits = skip < self.len && len as u64 <= self.len - skip;
        let allowed = if write { self.write } else { self.read };
        (fits && allowed).then(|| (self.ptr.wrapping_add(skip as usize), self.region))
    }
}

/// All of them, and the files.
pub(crate) struct Memory {
    ranges: BTreeMap<u64, Range>,
    files: HashMap<(u64, u64), Arc<MmapRaw>>,
    /// By page, as far as nothing was mapped or unmapped since.
    tlb: [Place; REMEMBERED],
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            ranges: BTreeMap::new(),
            files: HashMap::new(),
            tlb: [Place::NOWHERE; REMEMBERED],
        }
    }
}

impl Memory {
    /// Maps `len` bytes of `file` from `offset` at `iova`. What was there before goes.
    pub(crate) fn map(
        &mut self,
        iova: u64,
        len: u64,
        file: Option<(&File, u64)>,
        read: bool,
        write: bool,
    ) -> io::Result<()> {
        if len == 0 || iova.checked_add(len - 1).is_none() {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let backing = match file {
            None => None,
            Some((file, offset)) => {
                let end = offset.checked_add(len).ok_or(io::ErrorKind::InvalidInput)?;
                Some((self.file(file, end)?, offset))
            }
        };
        if self.unmap(iova, len) != 0 {
            log::warn!("DMA map of {len:#x} bytes at {iova:#x} replaces another");
        }
        let range = Range {
            len,
            backing,
            read,
            write,
        };
        self.ranges.insert(iova, range);
        self.tlb.fill(Place::NOWHERE);
        Ok(())
    }

    /// The one mapping of a file, which must reach to `end`.
    fn file(&mut self, file: &File, end: u64) -> io::Result<Arc<MmapRaw>> {
        let about = file.metadata()?;
        let key = (about.dev(), about.ino());
        if let Some(map) = self.files.get(&key)
            && map.len() as u64 >= end
        {
            return Ok(map.clone());
        }
        if about.len() < end {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the descriptor's file is shorter than the range",
            ));
        }
        shortened::prepare()?;
        let len = usize::try_from(about.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let map = Arc::new(MmapOptions::new().len(len).map_raw(file)?);
        if self.files.len() >= MANY_FILES {
            self.files.retain(|_, map| Arc::strong_count(map) > 1);
        }
        self.files.insert(key, map.clone());
        Ok(map)
    }

    /// Takes `len` bytes at `iova` away, cutting ranges that reach over an end. Returns how many bytes were mapped there.
    pub(crate) fn unmap(&mut self, iova: u64, len: u64) -> u64 {
        let Some(last) = len.checked_sub(1).map(|rest| iova.saturating_add(rest)) else {
            return 0;
        };
        self.tlb.fill(Place::NOWHERE);
        let before = self.ranges.range(..iova).next_back();
        let first = match before {
            Some((&at, range)) if at + (range.len - 1) >= iova => at,
            _ => iova,
        };
        let hit: Vec<u64> = self.ranges.range(first..=last).map(|(&at, _)| at).collect();
        let mut gone = 0;
        for at in hit {
            let Some(range) = self.ranges.remove(&at) else {
                continue;
            };
            let end = at + (range.len - 1);
            gone += end.min(last) - at.max(iova) + 1;
            if at < iova {
                self.ranges.insert(at, range.part(0, iova - at));
            }
            if end > last {
                let skip = last + 1 - at;
                self.ranges
                    .insert(last + 1, range.part(skip, range.len - skip));
            }
        }
        gone
    }

    /// The number of bytes that the device can reach.
    pub(crate) fn reach(&self) -> u64 {
        let reached = self.ranges.values().filter(|range| range.backing.is_some());
        reached.map(|range| range.len).sum()
    }

    /// Removes all mappings.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The pointer for an access that lies in one range, from the TLB or put into it.
    fn whole(&mut self, iova: u64, len: usize, write: bool) -> Option<(*mut u8, Region)> {
        let slot = (iova / PAGE) as usize % REMEMBERED;
        if let Some(found) = self.tlb[slot].get(iova, len, write) {
            return Some(found);
        }
        let (&start, range) = self.ranges.range(..=iova).next_back()?;
        let (map, offset) = range.backing.as_ref()?;
        let place = Place {
            start,
            len: range.len,
            // `map` checked that the range lies in the file, and the file's mapping was made as long as the file.
            ptr: map
                .as_mut_ptr()
                .wrapping_add(usize::try_from(*offset).ok()?),
            region: Region::of(map),
            read: range.read,
            write: range.write,
        };
        self.tlb[slot] = place;
        place.get(iova, len, write)
    }

    /// The pieces of an access, in order: pointer, mapping and length. Fails as a whole.
    fn pieces(
        &self,
        iova: u64,
        len: usize,
        write: bool,
    ) -> Result<Vec<(*mut u8, Region, usize)>, IommuFault> {
        let fault = IommuFault { iova, len, write };
        let mut pieces = Vec::with_capacity(1);
        let (mut at, mut left) = (iova, len);
        while left != 0 {
            let (&start, range) = self.ranges.range(..=at).next_back().ok_or(fault)?;
            let skip = at - start;
            if skip >= range.len || !(if write { range.write } else { range.read }) {
                return Err(fault);
            }
            let (map, offset) = range.backing.as_ref().ok_or(fault)?;
            let here = usize::try_from(range.len - skip).map_or(left, |space| space.min(left));
            let from = usize::try_from(offset + skip).map_err(|_| fault)?;
            // `map` checked that the range lies in the file, and the file's mapping was made as long as the file.
            pieces.push((map.as_mut_ptr().wrapping_add(from), Region::of(map), here));
            left -= here;
            if left != 0 {
                at = at.checked_add(here as u64).ok_or(fault)?;
            }
        }
        Ok(pieces)
    }

    /// Copies out of the guest's memory.
    pub(crate) fn read(&mut self, iova: u64, data: &mut [u8]) -> Result<(), IommuFault> {
        let fault = IommuFault {
            iova,
            len: data.len(),
            write: false,
        };
        if let Some((from, region)) = self.whole(iova, data.len(), false) {
            // SAFETY: `from` is good for the access's length in a live shared mapping: a range that is mapped now holds it
            // (the TLB is emptied whenever one goes), and no Rust reference to it exists anywhere. The guest may write
            // meanwhile: the bytes may then be torn, as they are for a DMA engine, and every use of them copes with any
            // value.
            let there = shortened::access(region, || unsafe { copy_in(from, data) });
            self.expect(there, region, fault)?;
        } else {
            let mut rest = data;
            for (from, region, len) in self.pieces(iova, rest.len(), false)? {
                let (now, later) = rest.split_at_mut(len);
                // SAFETY: as above, for each piece (see `pieces`).
                let there = shortened::access(region, || unsafe { copy_in(from, now) });
                self.expect(there, region, fault)?;
                rest = later;
            }
        }
        // What is read after a doorbell or an ownership bit must not be older than it.
        fence(Ordering::Acquire);
        Ok(())
    }

    /// Copies into the guest's memory; the last byte becomes visible last.
    pub(crate) fn write(&mut self, iova: u64, data: &[u8]) -> Result<(), IommuFault> {
        let fault = IommuFault {
            iova,
            len: data.len(),
            write: true,
        };
        if let Some((to, region)) = self.whole(iova, data.len(), true) {
            fence(Ordering::Release);
            // SAFETY: as for `read`; that the mapping is writable was checked when it was made, as it was made writable.
            let there = shortened::access(region, || unsafe { copy_out(to, data) });
            return self.expect(there, region, fault);
        }
        let mut rest = data;
        for (to, region, len) in self.pieces(iova, data.len(), true)? {
            let (now, later) = rest.split_at(len);
            fence(Ordering::Release);
            // SAFETY: as above, for each piece.
            let there = shortened::access(region, || unsafe { copy_out(to, now) });
            self.expect(there, region, fault)?;
            rest = later;
        }
        Ok(())
    }

    /// Takes all ranges of a mapping away if the file was not there as a whole.
    fn expect(&mut self, there: bool, region: Region, fault: IommuFault) -> Result<(), IommuFault> {
        if there {
            return Ok(());
        }
        log::error!("{fault}: the client's file is shorter than what it has mapped of it");
        let other = |map: &Arc<MmapRaw>| Region::of(map) != region;
        self.ranges
            .retain(|_, range| range.backing.as_ref().is_none_or(|(map, _)| other(map)));
        self.files.retain(|_, map| other(map));
        self.tlb.fill(Place::NOWHERE);
        Err(fault)
    }
}

/// Reads a register-sized piece at once, as a DMA engine does, and anything else as it comes.
///
/// # Safety
/// `from` must be good for reads of `data.len()` bytes of memory outside Rust's objects.
unsafe fn copy_in(from: *mut u8, data: &mut [u8]) {
    // SAFETY: the caller's promise; alignment is what the guards look at.
    unsafe {
        match data.len() {
            2 if from.addr().is_multiple_of(2) => data.copy_from_slice(
                &AtomicU16::from_ptr(from.cast())
                    .load(Ordering::Acquire)
                    .to_ne_bytes(),
            ),
            4 if from.addr().is_multiple_of(4) => data.copy_from_slice(
                &AtomicU32::from_ptr(from.cast())
                    .load(Ordering::Acquire)
                    .to_ne_bytes(),
            ),
            8 if from.addr().is_multiple_of(8) => data.copy_from_slice(
                &AtomicU64::from_ptr(from.cast())
                    .load(Ordering::Acquire)
                    .to_ne_bytes(),
            ),
            len => std::ptr::copy_nonoverlapping(from, data.as_mut_ptr(), len),
        }
    }
}

/// Writes a register-sized piece at once, and of anything else the last byte behind a barrier: it is where entries of
/// queues have their owner.
///
/// # Safety
/// `to` must be good for writes of `data.len()` bytes of memory outside Rust's objects.
unsafe fn copy_out(to: *mut u8, data: &[u8]) {
    // SAFETY: the caller's promise; alignment is what the guards look at.
    unsafe {
        match *data {
            [] => {}
            [a, b] if to.addr().is_multiple_of(2) => {
                AtomicU16::from_ptr(to.cast()).store(u16::from_ne_bytes([a, b]), Ordering::Release)
            }
            [a, b, c, d] if to.addr().is_multiple_of(4) => AtomicU32::from_ptr(to.cast())
                .store(u32::from_ne_bytes([a, b, c, d]), Ordering::Release),
            [a, b, c, d, e, f, g, h] if to.addr().is_multiple_of(8) => {
                AtomicU64::from_ptr(to.cast()).store(
                    u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
                    Ordering::Release,
                );
            }
            [.., last] => {
                let head = data.len() - 1;
                std::ptr::copy_nonoverlapping(data.as_ptr(), to, head);
                AtomicU8::from_ptr(to.add(head)).store(last, Ordering::Release);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// A file of `pages` pages, page n filled with n + 1, which has no name any more.
    fn file(name: &str, pages: u8) -> File {
        let path =
            std::env::temp_dir().join(format!("connectx-model-{name}-{}", std::process::id()));
        let mut file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .unwrap();
        std::fs::remove_file(&path).unwrap();
        for page in 1..=pages {
            file.write_all(&[page; 4096]).unwrap();
        }
        file
    }

    fn page(memory: &mut Memory, iova: u64) -> Result<u8, IommuFault> {
        let mut byte = [0];
        memory.read(iova, &mut byte).map(|()| byte[0])
    }

    #[test]
    fn pages_of_one_file_share_one_mapping() {
        let file = file("share", 4);
        let mut memory = Memory::default();
        for at in 0..4 {
            // In reverse, and each with its own descriptor.
            let again = file.try_clone().unwrap();
            memory
                .map(at * 4096, 4096, Some((&again, (3 - at) * 4096)), true, true)
                .unwrap();
        }
        assert_eq!(memory.files.len(), 1);
        assert_eq!(
            [0, 1, 2, 3].map(|at| page(&mut memory, at * 4096)),
            [Ok(4), Ok(3), Ok(2), Ok(1)]
        );
        // An access may run over from one to the next, which is elsewhere in the file.
        let mut across = [0; 4];
        memory.read(4094, &mut across).unwrap();
        assert_eq!(across, [4, 4, 3, 3]);
        memory.write(4094, &[9, 8, 7, 6]).unwrap();
        memory.read(4094, &mut across).unwrap();
        assert_eq!(across, [9, 8, 7, 6]);
    }

    #[test]
    fn files_that_nothing_is_mapped_of_are_let_go() {
        let mut memory = Memory::default();
        let kept = file("kept", 1);
        memory.map(0, 4096, Some((&kept, 0)), true, true).unwrap();
        for n in 0..3 * MANY_FILES {
            let file = file(&format!("let-go-{n}"), 1);
            memory
                .map(0x10_0000, 4096, Some((&file, 0)), true, true)
                .unwrap();
            assert_eq!(memory.unmap(0x10_0000, 4096), 4096);
            assert!(memory.files.len() <= MANY_FILES);
        }
        assert_eq!(page(&mut memory, 0), Ok(1));
    }

    #[test]
    fn accesses_fail_as_a_whole() {
        let file = file("whole", 2);
        let mut memory = Memory::default();
        memory
            .map(0x1000, 4096, Some((&file, 0)), true, true)
            .unwrap();
        memory.map(0x2000, 4096, None, true, true).unwrap();
        memory
            .map(0x3000, 4096, Some((&file, 4096)), true, false)
            .unwrap();
        let fault = |iova, len, write| Some(IommuFault { iova, len, write });
        assert_eq!(memory.write(0x1ffe, &[7; 4]).err(), fault(0x1ffe, 4, true));
        assert_eq!(page(&mut memory, 0x1ffe), Ok(1));
        assert_eq!(page(&mut memory, 0x2000).err(), fault(0x2000, 1, false));
        assert_eq!(memory.write(0x3000, &[7]).err(), fault(0x3000, 1, true));
        assert_eq!(page(&mut memory, 0x3000), Ok(2));
        assert_eq!(page(&mut memory, 0xfff).err(), fault(0xfff, 1, false));
        assert_eq!(page(&mut memory, 0x4000).err(), fault(0x4000, 1, false));
        assert!(
            memory
                .map(0x8000, 8192, Some((&file, 4096)), true, true)
                .is_err()
        );
        assert!(memory.map(u64::MAX, 2, None, true, true).is_err());
    }

    #[test]
    fn a_file_that_gets_shorter_ends_its_own_mappings_only() {
        let [short, other] = ["short", "other"].map(|name| file(name, 4));
        let mut memory = Memory::default();
        let map = |memory: &mut Memory, at: u64, file: &File| {
            for page in 0..4 {
                memory
                    .map(
                        at + page * PAGE,
                        PAGE,
                        Some((file, page * PAGE)),
                        true,
                        true,
                    )
                    .unwrap();
            }
        };
        for (round, write) in (0..).zip([false, true, false, true]) {
            short.set_len(4 * PAGE).unwrap();
            map(&mut memory, 0x1_0000, &short);
            map(&mut memory, 0x2_0000, &other);
            memory.write(0x1_2000, &[round; 8]).unwrap();
            short.set_len(PAGE).unwrap();
            assert!(page(&mut memory, 0x1_0000).is_ok());
            // One that lies in a single page, and one over two of them, of which the first is there.
            let (iova, len) = if round < 2 {
                (0x1_2000, 8)
            } else {
                (0x1_0ff0, 64)
            };
            let mut data = vec![7; len];
            let result = if write {
                memory.write(iova, &data)
            } else {
                memory.read(iova, &mut data)
            };
            assert_eq!(result, Err(IommuFault { iova, len, write }));
            assert!(page(&mut memory, 0x1_0000).is_err());
            assert_eq!(page(&mut memory, 0x2_3000), Ok(4));
            assert_eq!(memory.reach(), 4 * PAGE);
        }
        // What is left of it can be mapped again.
        memory
            .map(0x1_0000, PAGE, Some((&short, 0)), true, true)
            .unwrap();
        assert!(page(&mut memory, 0x1_0000).is_ok());
    }

    #[test]
    fn unmapping_cuts() {
        let file = file("cut", 4);
        let mut memory = Memory::default();
        memory
            .map(0x1_0000, 0x4000, Some((&file, 0)), true, true)
            .unwrap();
        assert_eq!(memory.unmap(0x1_1000, 0x1000), 0x1000);
        let pages =
            |memory: &mut Memory| [0, 1, 2, 3].map(|at| page(memory, 0x1_0000 + at * 0x1000).ok());
        assert_eq!(pages(&mut memory), [Some(1), None, Some(3), Some(4)]);
        assert_eq!(memory.unmap(0, 0x1_1000), 0x1000);
        assert_eq!(pages(&mut memory), [None, None, Some(3), Some(4)]);
        assert_eq!(memory.unmap(0x1_3000, u64::MAX), 0x1000);
        assert_eq!(pages(&mut memory), [None, None, Some(3), None]);
        assert_eq!(memory.unmap(0, 0), 0);
        // Of what comes without a descriptor the device reaches nothing.
        memory.map(0x8000, 0x1000, None, true, true).unwrap();
        assert_eq!(memory.reach(), 0x1000);
        memory.clear();
        assert_eq!(pages(&mut memory), [None; 4]);
    }
}
