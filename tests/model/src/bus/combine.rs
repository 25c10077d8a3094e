//! Write combining, which is the processor's: stores to one line of a page that is mapped so leave together.
//!
//! The card sees only what the bus brings. Emulators hand each store over by itself, so that a guest's bursts would
//! never arrive as such; with [`Config::combining`](crate::Config::combining) they are put together here, in front of the
//! card, as a processor's buffer would: a line that was filled leaves whole, in any order of the stores, and one that
//! was not leaves in chunks of eight bytes, lowest first, when another line is partial, when anything else is accessed,
//! or when nothing was added for a while. The model cannot see how the guest has mapped the page, nor when it flushes
//! the buffer: the time replaces that.

use core::time::Duration;

const LINE: u64 = 64;
const CHUNK: usize = 8;

/// A write as it leaves.
type Write = (u64, Vec<u8>);

/// The buffer: one line.
#[derive(Debug)]
pub(crate) struct Combiner {
    /// The time that a line that is not full may stay as it is.
    timeout: Duration,
    line: Option<Line>,
}

#[derive(Debug)]
struct Line {
    at: u64,
    chunks: [Option<[u8; CHUNK]>; 8],
    until: Duration,
}

impl Line {
    fn leave(self) -> Vec<Write> {
        let whole: Option<Vec<[u8; CHUNK]>> = self.chunks.into_iter().collect();
        if let Some(whole) = whole {
            return vec![(self.at, whole.concat())];
        }
        let chunks = (0..).zip(self.chunks);
        chunks
            .filter_map(|(n, chunk)| Some((self.at + n * CHUNK as u64, chunk?.to_vec())))
            .collect()
    }
}

impl Combiner {
    pub(crate) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            line: None,
        }
    }

    /// A store to a page that is mapped write-combining; what leaves because of it.
    pub(crate) fn store(&mut self, now: Duration, at: u64, data: &[u8]) -> Vec<Write> {
        let Ok(chunk) = <[u8; CHUNK]>::try_from(data) else {
            // Not what drivers write there: straight on.
            let mut writes = self.empty();
            writes.push((at, data.to_vec()));
            return writes;
        };
        let start = at & !(LINE - 1);
        let mut writes = match &self.line {
            Some(line) if line.at != start => self.empty(),
            _ => Vec::new(),
        };
        let line = self.line.get_or_insert(Line {
            at: start,
            chunks: [None; 8],
            until: now + self.timeout,
        });
        line.until = now + self.timeout;
        line.chunks[(at - start) as usize / CHUNK] = Some(chunk);
        if line.chunks.iter().all(Option::is_some) {
            writes.append(&mut self.empty());
        }
        writes
    }

    /// Something else is accessed.
    pub(crate) fn empty(&mut self) -> Vec<Write> {
        self.line.take().map_or_else(Vec::new, Line::leave)
    }

    /// Returns the lines that have stayed for long enough.
    pub(crate) fn late(&mut self, now: Duration) -> Vec<Write> {
        let line = self.line.take_if(|line| line.until <= now);
        line.map_or_else(Vec::new, Line::leave)
    }

    /// When something will have.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        Some(self.line.as_ref()?.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1);
    const WHILE: Duration = Duration::from_micros(10);

    fn chunk(n: u8) -> [u8; CHUNK] {
        [n; CHUNK]
    }

    #[test]
    fn a_full_line_leaves_whole_in_any_order_of_filling() {
        let mut combiner = Combiner::new(WHILE);
        for n in [3, 1, 0, 2, 7, 6, 4] {
            let at = 0x8a00 + u64::from(n) * 8;
            assert_eq!(combiner.store(NOW, at, &chunk(n)), []);
        }
        let expected: Vec<u8> = (0..8).flat_map(chunk).collect();
        let left = combiner.store(NOW, 0x8a28, &chunk(5));
        assert_eq!(left, [(0x8a00, expected)]);
        assert_eq!((combiner.empty(), combiner.deadline()), (vec![], None));
    }

    #[test]
    fn what_is_not_full_leaves_in_chunks() {
        let mut combiner = Combiner::new(WHILE);
        assert_eq!(combiner.store(NOW, 0x8908, &chunk(1)), []);
        assert_eq!(combiner.store(NOW, 0x8900, &chunk(0)), []);
        // Another line, then time, then something else.
        let left = combiner.store(NOW, 0x8a00, &chunk(2));
        let first = [(0x8900, chunk(0).to_vec()), (0x8908, chunk(1).to_vec())];
        assert_eq!(left, first);
        assert_eq!(combiner.late(NOW), []);
        assert_eq!(combiner.deadline(), Some(NOW + WHILE));
        assert_eq!(combiner.late(NOW + WHILE), [(0x8a00, chunk(2).to_vec())]);
        combiner.store(NOW, 0x8a00, &chunk(3));
        let left = combiner.store(NOW, 0x8a10, &[4; 4]);
        assert_eq!(left, [(0x8a00, chunk(3).to_vec()), (0x8a10, vec![4; 4])]);
        // Two stores to one place become one, which is why drivers empty the buffer between doorbells.
        combiner.store(NOW, 0x8a00, &chunk(5));
        combiner.store(NOW, 0x8a00, &chunk(6));
        assert_eq!(combiner.empty(), [(0x8a00, chunk(6).to_vec())]);
    }
}
