//! Page frames: the memory that the device and page tables are made of. A bit for each says whether it is taken.

use core::ops::Range;

use spin::Mutex;

/// Bytes in a frame.
pub const FRAME: u64 = 4096;
/// Frames that are managed at most: of 1 GiB.
const MOST: usize = 1 << 18;

/// All of them.
pub static FRAMES: Mutex<Frames> = Mutex::new(Frames::NONE);

/// Frames of one run of memory.
#[derive(Debug)]
pub struct Frames {
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
    #[must_use]
    pub fn memory(&self) -> Range<u64> {
        self.first * FRAME..(self.first + self.count as u64) * FRAME
    }

    /// Frames that were taken at the same time, at most.
    #[must_use]
    pub fn most_in_use(&self) -> usize {
        self.most_in_use
    }

    /// Takes so many frames in a row. The address of the first, a multiple of `align`, a power of two.
    pub fn take(&mut self, frames: usize, align: u64) -> Option<u64> {
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
    pub fn give_back(&mut self, address: u64, frames: usize) {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames of memory that begins in the middle of one.
    fn frames(count: u64) -> Box<Frames> {
        let mut frames = Box::new(Frames::NONE);
        frames.manage(&(FRAME * 5 + 1..FRAME * (6 + count) + 7));
        assert_eq!(frames.memory(), FRAME * 6..FRAME * (6 + count));
        frames
    }

    #[test]
    fn every_frame_once() {
        let mut frames = frames(9);
        let taken: Vec<_> = std::iter::from_fn(|| frames.take(1, 1)).collect();
        let all: Vec<_> = (6..15).map(|frame| frame * FRAME).collect();
        assert_eq!(taken, all);
        frames.give_back(all[4], 1);
        assert_eq!((frames.take(2, 1), frames.take(1, 1)), (None, Some(all[4])));
        assert_eq!(frames.most_in_use(), 9);
    }

    #[test]
    fn runs_are_aligned_and_whole() {
        let mut frames = frames(20);
        assert_eq!(frames.take(3, 8 * FRAME), Some(8 * FRAME));
        assert_eq!(frames.take(4, 8 * FRAME), Some(16 * FRAME));
        // Behind the first, in front of the second.
        assert_eq!(frames.take(5, 1), Some(11 * FRAME));
        assert_eq!(frames.take(3, 8 * FRAME), None);
        assert_eq!(frames.take(2, 8 * FRAME), Some(24 * FRAME));
    }

    #[test]
    fn more_than_there_is() {
        let mut frames = frames(4);
        for (count, align) in [
            (5, 1),
            (usize::MAX, 1),
            (1, 1 << 40),
            (1, 1 << 63),
            (usize::MAX, 1 << 63),
        ] {
            assert_eq!(
                frames.take(count, align),
                None,
                "{count} frames at {align:#x}"
            );
        }
        assert_eq!(frames.take(4, FRAME), Some(6 * FRAME));
    }

    #[test]
    fn what_was_not_taken_cannot_be_given_back() {
        let mut frames = frames(4);
        for (address, count) in [
            (0, 1),
            (6 * FRAME, 4),
            (10 * FRAME, 1),
            (u64::MAX, usize::MAX),
        ] {
            frames.give_back(address, count);
        }
        assert_eq!(frames.in_use, 0);
        assert_eq!(frames.take(4, 1), Some(6 * FRAME));
        frames.give_back(6 * FRAME, usize::MAX);
        assert_eq!(frames.in_use, 0);
    }

    #[test]
    fn no_memory() {
        let mut frames = Frames::NONE;
        assert_eq!(frames.take(1, 1), None);
        frames.manage(&(1..FRAME * 2 - 1));
        assert_eq!(frames.take(1, 1), None);
    }
}
