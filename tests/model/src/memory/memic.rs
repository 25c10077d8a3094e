//! Memory on the device: what of it is allocated, and its bytes.

use bareverbs_firmware_cmds::caps::DeviceMemCap;
use core::cell::RefCell;
use core::ops::Range;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::config::Config;

/// Memory on the device, by its place in BAR 0.
#[derive(Debug, Default)]
pub(crate) struct Memic {
    /// The part of the BAR that shows it.
    window: Range<u64>,
    bytes: Bytes,
    /// The allocations: place and length.
    allocated: BTreeMap<u64, u64>,
    /// The number of bytes, from the start on, that other functions hold.
    held: u64,
}

/// The place of the bytes.
#[derive(Debug)]
enum Bytes {
    Here(RefCell<Vec<u8>>),
    In(Arc<File>),
}

impl Default for Bytes {
    fn default() -> Self {
        Self::Here(RefCell::default())
    }
}

/// Size of the pages of which drivers make up the ranges that they ask for.
const PAGE: u64 = 1 << 12;
/// Size of the largest pages of a host.
const LARGEST_PAGE: u64 = 1 << 16;

impl Memic {
    pub(crate) fn new(caps: &DeviceMemCap, config: &Config) -> Self {
        let start = caps.memic_bar_start_addr();
        let size = if caps.memic() {
            caps.memic_bar_size()
        } else {
            0
        };
        // A file that cannot be so long is not used: those who map it find that it is short.
        let file = config.memic_file.as_ref();
        let file = file.filter(|file| file.set_len(size.into()).is_ok());
        Self {
            window: start..start + u64::from(size),
            bytes: match file {
                Some(file) => Bytes::In(file.clone()),
                None => Bytes::Here(RefCell::new(vec![0; size as usize])),
            },
            allocated: BTreeMap::new(),
            held: u64::from(config.memic_held) * PAGE,
        }
    }

    /// Returns true if drivers ask for this range: the pages, of the host's size, that the memory takes. No source says what a
    /// card does with another one.
    pub(crate) fn as_drivers_ask(&self, range: &Range<u64>, len: u64) -> bool {
        let size = range.end - range.start;
        (range.start - self.window.start).is_multiple_of(PAGE)
            && size.is_multiple_of(PAGE)
            && size < len + LARGEST_PAGE
    }

    /// Returns `true` if the bus finds it at this place of the BAR.
    pub(crate) fn shows(&self, offset: u64) -> bool {
        self.window.contains(&offset)
    }

    /// Where the part of the BAR begins that is not for UARs.
    pub(crate) fn begins(&self) -> u64 {
        match self.window.is_empty() {
            true => u64::MAX,
            false => self.window.start,
        }
    }

    /// Bytes that are allocated.
    pub(crate) fn used(&self) -> u64 {
        self.allocated.values().sum()
    }

    pub(crate) fn places(&self) -> impl Iterator<Item = u32> + '_ {
        self.allocated.keys().map(|&place| place as u32)
    }

    /// Returns `true` if a range lies in the window.
    pub(crate) fn contains(&self, range: &Range<u64>) -> bool {
        self.window.start <= range.start && range.end <= self.window.end
    }

    /// Returns `true` if a range lies in one allocation.
    pub(crate) fn is_allocated(&self, range: &Range<u64>) -> bool {
        let last = self.allocated.range(..=range.start).next_back();
        last.is_some_and(|(start, len)| range.end <= start + len)
    }

    /// Allocates `len` bytes in a part of the window.
    pub(crate) fn alloc(&mut self, range: Range<u64>, len: u64, align: u64) -> Option<u64> {
        let first = range.start.max(self.window.start + self.held);
        let mut at = first.checked_next_multiple_of(align)?;
        for (&start, &taken) in &self.allocated {
            if at + len > start && at < start + taken {
                at = (start + taken).next_multiple_of(align);
            }
        }
        (at + len <= range.end).then(|| {
            self.allocated.insert(at, len);
            at
        })
    }

    /// Frees what was allocated at this place with this length.
    pub(crate) fn free(&mut self, start: u64, len: u64) -> bool {
        let known = self.allocated.get(&start) == Some(&len);
        if known {
            self.allocated.remove(&start);
        }
        known
    }

    pub(crate) fn read(&self, place: u64, data: &mut [u8]) -> bool {
        let Some(at) = self.at(place, data.len()) else {
            return false;
        };
        match &self.bytes {
            Bytes::In(file) => return file.read_exact_at(data, at as u64).is_ok(),
            Bytes::Here(bytes) => data.copy_from_slice(&bytes.borrow()[at..][..data.len()]),
        }
        true
    }

    /// The offset of these bytes in the window, if they lie there.
    fn at(&self, place: u64, len: usize) -> Option<usize> {
        let end = place.checked_add(len as u64)?;
        let inside = self.contains(&(place..end));
        inside.then(|| (place - self.window.start) as usize)
    }

    pub(crate) fn write(&self, place: u64, data: &[u8]) -> bool {
        let Some(at) = self.at(place, data.len()) else {
            return false;
        };
        match &self.bytes {
            Bytes::In(file) => return file.write_all_at(data, at as u64).is_ok(),
            Bytes::Here(bytes) => {
                bytes.borrow_mut()[at..][..data.len()].copy_from_slice(data);
            }
        }
        true
    }

    pub(crate) fn clear(&mut self) {
        self.allocated.clear();
    }
}
