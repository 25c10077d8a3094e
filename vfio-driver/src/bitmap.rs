//! The parts of a DMA block that are in use.
//!
//! A block of 2 MiB is handed out in cache lines of 64 bytes, as most of what a device uses is small (a doorbell
//! record, a mailbox, the ring of a modest queue pair). Pure bookkeeping; the block's memory is elsewhere.

/// Bytes in a block: the huge page of x86 and of arm64 with 4 KiB pages, and one IOMMU entry.
pub(crate) const BLOCK: usize = 2 << 20;

/// The smallest unit that is handed out.
pub(crate) const LINE: usize = 64;

const LINES: usize = BLOCK / LINE;
const WORDS: usize = LINES / u64::BITS as usize;

/// The lines of one block, a set bit per line in use.
#[derive(Debug)]
pub(crate) struct Bitmap {
    words: Box<[u64; WORDS]>,
    used: usize,
    /// No free run is longer than this many lines: saves the search in blocks that are full of holes.
    longest: usize,
}

impl Bitmap {
    pub(crate) fn new() -> Self {
        Self {
            words: Box::new([0; WORDS]),
            used: 0,
            longest: LINES,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Takes `len` bytes at a multiple of `align` (a power of two up to [`BLOCK`]) and returns their offset.
    pub(crate) fn allocate(&mut self, len: usize, align: usize) -> Option<usize> {
        let lines = len.div_ceil(LINE).max(1);
        let step = align.div_ceil(LINE);
        if lines > self.longest || lines > LINES - self.used || !align.is_power_of_two() {
            return None;
        }
        let mut start = 0;
        let mut longest = 0;
        while start + lines <= LINES {
            // The run of free lines from `start` on ends at `end`; the next one starts at or after it.
            let end = self.next(start, true);
            longest = longest.max(end - start);
            if end - start >= lines {
                self.set(start, lines, true);
                self.used += lines;
                return Some(start * LINE);
            }
            start = self.next(end, false).next_multiple_of(step);
        }
        if step == 1 {
            // Every run was looked at from its start; the last one, too short to look at, may have what is left.
            self.longest = longest.max(LINES.saturating_sub(start));
        }
        None
    }

    /// Gives back what [`allocate`](Self::allocate) took, at this offset and of this length.
    ///
    /// Returns whether it was in use; if not, nothing is changed.
    pub(crate) fn free(&mut self, offset: usize, len: usize) -> bool {
        let start = offset / LINE;
        let lines = len.div_ceil(LINE).max(1);
        if !offset.is_multiple_of(LINE)
            || lines > LINES
            || start > LINES - lines
            || self.next(start, false) < start + lines
        {
            return false;
        }
        self.set(start, lines, false);
        self.used -= lines;
        self.longest = LINES;
        true
    }

    /// The first line from `from` on that is in use (or, for `used == false`, free); the number of lines if none is.
    fn next(&self, from: usize, used: bool) -> usize {
        let flip = if used { 0 } else { u64::MAX };
        let (mut index, bit) = (from / 64, from % 64);
        let mut mask = u64::MAX << bit;
        while let Some(word) = self.words.get(index) {
            let hits = (word ^ flip) & mask;
            if hits != 0 {
                return index * 64 + hits.trailing_zeros() as usize;
            }
            mask = u64::MAX;
            index += 1;
        }
        LINES
    }

    fn set(&mut self, start: usize, lines: usize, used: bool) {
        let mut line = start;
        let end = start + lines;
        while line < end {
            let bit = line % 64;
            let count = (64 - bit).min(end - line);
            let mask = (u64::MAX >> (64 - count)) << bit;
            let word = &mut self.words[line / 64];
            *word = if used { *word | mask } else { *word & !mask };
            line += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_whole_block_is_one_piece() {
        let mut bitmap = Bitmap::new();
        assert_eq!(bitmap.allocate(BLOCK, BLOCK), Some(0));
        assert_eq!(bitmap.allocate(1, 1), None);
        assert!(bitmap.free(0, BLOCK));
        assert!(bitmap.is_empty());
        assert_eq!(bitmap.allocate(BLOCK + 1, 1), None);
    }

    #[test]
    fn alignment_skips_and_the_gap_is_used_later() {
        let mut bitmap = Bitmap::new();
        assert_eq!(bitmap.allocate(1, 1), Some(0));
        assert_eq!(bitmap.allocate(4096, 4096), Some(4096));
        assert_eq!(bitmap.allocate(64, 64), Some(64));
        assert_eq!(bitmap.allocate(4096 - 128, 64), Some(128));
        assert_eq!(bitmap.allocate(65, 64), Some(8192));
        assert_eq!(bitmap.allocate(64, 64), Some(8192 + 128));
    }

    #[test]
    fn a_block_full_of_holes_refuses_and_recovers() {
        let mut bitmap = Bitmap::new();
        while bitmap.allocate(LINE, LINE).is_some() {}
        for line in (0..LINES).step_by(2) {
            assert!(bitmap.free(line * LINE, LINE));
        }
        assert_eq!(bitmap.allocate(2 * LINE, LINE), None);
        assert_eq!(bitmap.longest, 1);
        assert!(bitmap.free(3 * LINE, LINE));
        assert_eq!(bitmap.allocate(3 * LINE, LINE), Some(2 * LINE));
    }

    #[test]
    fn what_is_not_in_use_cannot_be_freed() {
        let mut bitmap = Bitmap::new();
        let offset = bitmap.allocate(100, 64).unwrap();
        assert!(!bitmap.free(offset, 3 * LINE));
        assert!(!bitmap.free(offset + 1, 10));
        assert!(!bitmap.free(BLOCK, LINE));
        assert!(!bitmap.free(BLOCK - LINE, 2 * LINE));
        assert!(!bitmap.free(usize::MAX - 63, LINE));
        assert!(!bitmap.free(0, usize::MAX));
        assert!(bitmap.free(offset, 100));
        assert!(!bitmap.free(offset, 100));
        assert!(bitmap.is_empty());
    }

    proptest! {
        #![proptest_config(crate::testing::seeded())]

        #[test]
        fn pieces_never_overlap(
            steps in proptest::collection::vec((1usize..200_000, 0u32..=21, any::<Option<usize>>()), 1..300),
        ) {
            let mut bitmap = Bitmap::new();
            let mut taken: Vec<(usize, usize)> = Vec::new();
            for (len, align, free) in steps {
                if let Some(offset) = bitmap.allocate(len, 1 << align) {
                    prop_assert_eq!(offset % (1usize << align).max(LINE), 0);
                    prop_assert!(offset + len <= BLOCK);
                    let end = offset + len.next_multiple_of(LINE);
                    for (other, other_len) in &taken {
                        prop_assert!(end <= *other || other + other_len.next_multiple_of(LINE) <= offset);
                    }
                    taken.push((offset, len));
                } else {
                    // First fit means: no aligned place is free.
                    let lines = len.div_ceil(LINE);
                    let step = (1usize << align).div_ceil(LINE);
                    for start in (0..=LINES - lines).step_by(step) {
                        prop_assert!(bitmap.next(start, true) < start + lines);
                    }
                }
                if let Some(free) = free && !taken.is_empty() {
                    let (offset, len) = taken.swap_remove(free % taken.len());
                    prop_assert!(bitmap.free(offset, len));
                }
            }
            for (offset, len) in taken {
                prop_assert!(bitmap.free(offset, len));
            }
            prop_assert!(bitmap.is_empty());
            prop_assert!(bitmap.words.iter().all(|w| *w == 0));
        }
    }
}
