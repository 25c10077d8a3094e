//! Page frames: the memory that the device and page tables are made of. A bit for each says whether it is taken.

use core::ops::Range;

use spin::Mutex;

/// Bytes in a frame.
pub(crate) const FRAME: u64 = 4096;
/// Frames that are managed at most: of 1 GiB.
const MOST: usize = 1 << 18;

/// All of them.
pub(crate) static FRAMES: Mutex<Frames> = Mutex::new(Frames::NONE);

/// Frames of one run of memory.
pub(crate) struct Frames {
    first: u64,
    count: usize,
    taken: [u64; MOST / 64],
    in_use: usize,
    most_in_use: usize,
}

impl Frames {
    const NONE: Self = Self {
        first: 0,
        count: 0,
        taken: [0; MOST / 64],
        in_use: 0,
        most_in_use: 0,
    };

    /// Manages this memory from here on, as far as it is whole frames.
    pub(crate) fn manage(&mut self, memory: &Range<u64>) {
        self.first = memory.start.div_ceil(FRAME);
        self.count = (memory.end / FRAME)
            .saturating_sub(self.first)
            .min(MOST as u64) as usize;
        self.taken.fill(0);
    }

    /// The memory that is managed.
    pub(crate) fn memory(&self) -> Range<u64> {
        self.first * FRAME..(self.first + self.count as u64) * FRAME
    }

    /// Frames that were taken at the same time, at most.
    pub(crate) fn most_in_use(&self) -> usize {
        self.most_in_use
    }

    /// Takes so many frames in a row. The address of the first, a multiple of `align`, a power of two.
    pub(crate) fn take(&mut self, frames: usize, align: u64) -> Option<u64> {
        let step = (align.max(FRAME) / FRAME).max(1);
        let mut at = self.first.checked_next_multiple_of(step)? - self.first;
        let frames = frames.max(1);
        while at.checked_add(frames as u64)? <= self.count as u64 {
            let run = at as usize..at as usize + frames;
            match run.clone().rev().find(|&index| self.is_taken(index)) {
                None => {
                    run.for_each(|index| self.set(index, true));
                    self.in_use += frames;
                    self.most_in_use = self.most_in_use.max(self.in_use);
                    return Some((self.first + at) * FRAME);
                }
                // Nothing that has this one in it is free.
                Some(taken) => {
                    let next = self.first + taken as u64 + 1;
                    at = next.checked_next_multiple_of(step)? - self.first;
                }
            }
        }
        None
    }

    /// Gives frames back. Those that were not taken stay as they are.
    pub(crate) fn give_back(&mut self, address: u64, frames: usize) {
        let Some(at) = (address / FRAME).checked_sub(self.first) else {
            return;
        };
        let end = (at as usize).saturating_add(frames.max(1)).min(self.count);
        for index in at as usize..end {
            if self.is_taken(index) {
                self.set(index, false);
                self.in_use -= 1;
            }
        }
    }

    fn is_taken(&self, index: usize) -> bool {
        self.taken[index / 64] >> (index % 64) & 1 != 0
    }

    fn set(&mut self, index: usize, taken: bool) {
        let bit = 1 << (index % 64);
        if taken {
            self.taken[index / 64] |= bit;
        } else {
            self.taken[index / 64] &= !bit;
        }
    }
}
