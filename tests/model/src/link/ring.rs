//! A ring of frames in memory that two processes have in common: one writes, the other reads.
//!
//! Neither trusts the other. Each keeps its own index to itself and only publishes it; the other's index and the length of a
//! frame are read once, checked, and then used; a frame is copied out before it is looked at. What cannot be ends the
//! ring ([`Broken`]). Memory is accessed by words that are atomic, so that it is no fault of memory when the other process
//! writes at the same time.
//!
//! A reader that is about to sleep says so in the ring, and a writer that waits for room as well: each of them is woken only then
//! ([`Reader::doze`], [`Writer::push`]). The end that has said so looks again before it sleeps, and the other looks after it
//! has published its index, with a fence between the two at either end: so no wake-up is lost (`loom_tests.rs`).

use std::fmt;

#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::queue::LONGEST;

/// Memory that another process has as well, and may write at any time.
pub trait Words: Send + Sync + fmt::Debug {
    /// All words of it.
    fn words(&self) -> &[AtomicU64];
}

/// Words before the frames. Each end has those that it writes all the time in cache lines of their own.
const HEADER: usize = 64;
/// The place of the number of words that were ever written, frames and their lengths.
const TAIL: usize = 0;
/// The place of a flag: the writer waits for room.
const WAITS: usize = 16;
/// The place of the number of words that were ever read.
const HEAD: usize = 32;
/// The place of a flag: the reader sleeps.
const SLEEPS: usize = 48;
/// Words of frames. Loom remembers what was stored in each of them.
const CAPACITY: usize = if cfg!(all(test, loom)) { 4 } else { 256 * 1024 };
/// Words of a ring.
pub const RING_WORDS: usize = HEADER + CAPACITY;
/// From so many words on the writer's models shall pause, until no more than the second number are left.
const PAUSE_AT: u64 = CAPACITY as u64 / 2;
const RESUME_AT: u64 = CAPACITY as u64 / 4;

/// The other end has written what cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broken(&'static str);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// The result of [`Writer::push`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Push {
    /// There is no room; the reader will [say](Pop::Frame) when there is.
    Full,
    /// The frame was written, and the reader may sleep, which the writer has to end.
    Wake,
    /// The frame was written, and the reader is awake.
    Written,
}

/// The result of [`Reader::pop`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pop {
    /// There is no frame.
    Empty,
    /// A frame was read.
    Frame {
        /// The writer waits for the room that there is now, and has to be told.
        wake: bool,
    },
}

/// The header and the words of frames, if there are as many as a ring has.
fn frames(memory: &dyn Words) -> Option<(&[AtomicU64; HEADER], &[AtomicU64; CAPACITY])> {
    let (header, frames) = memory.words().split_first_chunk()?;
    Some((header, frames.first_chunk()?))
}

const SMALL: Broken = Broken("the memory is too small");

fn words_of(len: usize) -> u64 {
    1 + len.div_ceil(8) as u64
}

/// Takes a flag away that the other end may have set.
fn take(flag: &AtomicU64) -> bool {
    flag.load(Ordering::Relaxed) != 0 && flag.swap(0, Ordering::AcqRel) != 0
}

/// The words of a frame behind its length: those to the end of the ring, and those at its beginning.
fn parts(cells: &[AtomicU64; CAPACITY], at: u64) -> (&[AtomicU64], &[AtomicU64]) {
    let (second, first) = cells.split_at(at as usize % CAPACITY);
    (first, second)
}

fn copy_in(cells: &[AtomicU64], bytes: &[u8]) {
    let (words, rest) = bytes.as_chunks::<8>();
    for (cell, word) in cells.iter().zip(words) {
        cell.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
    }
    if let Some(cell) = cells.get(words.len())
        && !rest.is_empty()
    {
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        cell.store(u64::from_ne_bytes(word), Ordering::Relaxed);
    }
}

fn copy_out(cells: &[AtomicU64], bytes: &mut [u8]) {
    let (words, rest) = bytes.as_chunks_mut::<8>();
    for (cell, word) in cells.iter().zip(&mut *words) {
        *word = cell.load(Ordering::Relaxed).to_ne_bytes();
    }
    if let Some(cell) = cells.get(words.len()) {
        let word = cell.load(Ordering::Relaxed).to_ne_bytes();
        rest.copy_from_slice(&word[..rest.len()]);
    }
}

/// The end that writes.
#[derive(Debug)]
pub struct Writer {
    memory: Box<dyn Words>,
    tail: u64,
    /// The reader's index when it was last looked at.
    head: u64,
    /// The models shall pause.
    congested: bool,
}

impl Writer {
    /// An end of a ring that is all zeros.
    #[must_use]
    pub fn new(memory: Box<dyn Words>) -> Self {
        Self {
            memory,
            tail: 0,
            head: 0,
            congested: false,
        }
    }

    /// The reader's index, looked at again: so it moves as long as the reader reads.
    ///
    /// # Errors
    /// It cannot be.
    pub fn head(&mut self) -> Result<u64, Broken> {
        let (header, _) = frames(&*self.memory).ok_or(SMALL)?;
        let head = header[HEAD].load(Ordering::Acquire);
        if self.tail.wrapping_sub(head) > CAPACITY as u64 {
            return Err(Broken("the reader's index is not within the ring"));
        }
        self.head = head;
        Ok(head)
    }

    fn used(&self) -> u64 {
        self.tail.wrapping_sub(self.head)
    }

    fn wait_for_room(&mut self) -> Result<(), Broken> {
        let (header, _) = frames(&*self.memory).ok_or(SMALL)?;
        if header[WAITS].load(Ordering::Relaxed) == 0 {
            header[WAITS].store(1, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
        self.head().map(|_| ())
    }

    /// Appends a copy of a frame.
    ///
    /// # Errors
    /// The reader's index cannot be.
    pub fn push(&mut self, frame: &[u8]) -> Result<Push, Broken> {
        let needed = words_of(frame.len());
        let fits = |ring: &Self| needed <= CAPACITY as u64 - ring.used();
        if !fits(self) {
            self.head()?;
            if !fits(self) {
                self.wait_for_room()?;
                self.congested = true;
                if !fits(self) {
                    return Ok(Push::Full);
                }
            }
        }
        let (header, cells) = frames(&*self.memory).ok_or(SMALL)?;
        cells[self.tail as usize % CAPACITY].store(frame.len() as u64, Ordering::Relaxed);
        let (first, second) = parts(cells, self.tail.wrapping_add(1));
        let (here, there) = frame.split_at(frame.len().min(first.len() * 8));
        copy_in(first, here);
        copy_in(second, there);
        self.tail = self.tail.wrapping_add(needed);
        header[TAIL].store(self.tail, Ordering::Release);
        fence(Ordering::SeqCst);
        let sleeps = take(&header[SLEEPS]);
        if !self.congested && self.used() >= PAUSE_AT {
            self.head()?;
            if self.used() >= PAUSE_AT {
                self.congested = true;
                self.wait_for_room()?;
            }
        }
        Ok(if sleeps { Push::Wake } else { Push::Written })
    }

    /// Returns `true` if it was [congested](Self::is_congested) at the last look.
    #[must_use]
    pub fn was_congested(&self) -> bool {
        self.congested
    }

    /// Returns `true` if so much waits in the ring that the models shall pause.
    ///
    /// # Errors
    /// The reader's index cannot be.
    pub fn is_congested(&mut self) -> Result<bool, Broken> {
        if self.congested {
            self.head()?;
            if self.used() > RESUME_AT {
                self.wait_for_room()?;
            }
            self.congested = self.used() > RESUME_AT;
        }
        Ok(self.congested)
    }
}

/// The end that reads.
#[derive(Debug)]
pub struct Reader {
    memory: Box<dyn Words>,
    head: u64,
    /// The writer's index when it was last looked at.
    tail: u64,
}

impl Reader {
    /// An end of a ring that nothing was read from.
    #[must_use]
    pub fn new(memory: Box<dyn Words>) -> Self {
        Self {
            memory,
            head: 0,
            tail: 0,
        }
    }

    /// Returns `true` if there is something to [`pop`](Self::pop), be it an error.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.tail != self.head
            || frames(&*self.memory)
                .is_none_or(|(header, _)| header[TAIL].load(Ordering::Acquire) != self.head)
    }

    /// Asks to be woken by the next frame. It may have come in between: see [`has_more`](Self::has_more).
    pub fn doze(&self) {
        if let Some((header, _)) = frames(&*self.memory) {
            header[SLEEPS].store(1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
        }
    }

    /// Reads the next frame, which replaces what is in `frame`.
    ///
    /// # Errors
    /// The writer has written what cannot be.
    pub fn pop(&mut self, frame: &mut Vec<u8>) -> Result<Pop, Broken> {
        let (header, cells) = frames(&*self.memory).ok_or(SMALL)?;
        if self.tail == self.head {
            let tail = header[TAIL].load(Ordering::Acquire);
            if tail.wrapping_sub(self.head) > CAPACITY as u64 {
                return Err(Broken("the writer's index is not within the ring"));
            }
            self.tail = tail;
            if tail == self.head {
                return Ok(Pop::Empty);
            }
        }
        let len = cells[self.head as usize % CAPACITY].load(Ordering::Relaxed);
        let len = usize::try_from(len)
            .ok()
            .filter(|len| (1..=LONGEST).contains(len))
            .ok_or(Broken("no frame has this length"))?;
        let needed = words_of(len);
        if needed > self.tail.wrapping_sub(self.head) {
            return Err(Broken("a frame ends behind the writer's index"));
        }
        frame.resize(len, 0);
        let (first, second) = parts(cells, self.head.wrapping_add(1));
        let (here, there) = frame.split_at_mut(len.min(first.len() * 8));
        copy_out(first, here);
        copy_out(second, there);
        self.head = self.head.wrapping_add(needed);
        header[HEAD].store(self.head, Ordering::Release);
        fence(Ordering::SeqCst);
        let wake = self.tail.wrapping_sub(self.head) <= RESUME_AT && take(&header[WAITS]);
        Ok(Pop::Frame { wake })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[derive(Debug)]
    struct Plain(Vec<AtomicU64>);

    impl Words for Arc<Plain> {
        fn words(&self) -> &[AtomicU64] {
            &self.0
        }
    }

    fn ring() -> (Writer, Reader, Arc<Plain>) {
        let memory = Arc::new(Plain((0..RING_WORDS).map(|_| AtomicU64::new(0)).collect()));
        let ends = (
            Writer::new(Box::new(memory.clone())),
            Reader::new(Box::new(memory.clone())),
        );
        (ends.0, ends.1, memory)
    }

    fn frame(number: usize) -> Vec<u8> {
        let len = 14 + number * 37 % (LONGEST - 13);
        (0..len).map(|at| (at + number) as u8).collect()
    }

    #[test]
    fn frames_of_all_lengths_come_out_as_they_went_in() {
        let (mut writer, mut reader, _) = ring();
        let mut out = Vec::new();
        // Round the ring some times, with none to many frames in it.
        let mut read = 0;
        for number in 0..2000 {
            assert_eq!(writer.push(&frame(number)), Ok(Push::Written));
            if number % 150 == 149 {
                while reader.pop(&mut out).unwrap() != Pop::Empty {
                    assert_eq!(out, frame(read));
                    read += 1;
                }
                assert_eq!(read, number + 1);
                assert!(!reader.has_more());
            }
        }
    }

    #[test]
    fn a_writer_without_room_is_told_of_it_and_a_reader_that_sleeps_of_frames() {
        let (mut writer, mut reader, _) = ring();
        let mut out = Vec::new();
        reader.doze();
        assert!(!reader.has_more());
        assert_eq!(writer.push(&[1; 60]), Ok(Push::Wake));
        assert_eq!(writer.push(&[2; 60]), Ok(Push::Written));
        assert!(reader.has_more());
        let mut count = 2;
        let mut paused_at = None;
        while writer.push(&[3; 4096]).unwrap() == Push::Written {
            count += 1;
            if writer.is_congested().unwrap() {
                paused_at.get_or_insert(count);
            }
        }
        assert_eq!(count, 2 + (CAPACITY - 18) / 513);
        assert!((250..260).contains(&paused_at.unwrap()), "{paused_at:?}");
        // It is told once, when three quarters have gone.
        let mut told = Vec::new();
        for number in 0..count {
            assert!(writer.is_congested().unwrap() || !told.is_empty());
            if (reader.pop(&mut out).unwrap()) == (Pop::Frame { wake: true }) {
                told.push(number);
                assert!(!writer.is_congested().unwrap());
            }
        }
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].abs_diff(count * 3 / 4) < 4, "{told:?}");
        assert_eq!(reader.pop(&mut out), Ok(Pop::Empty));
        assert_eq!(writer.push(&[3; 4096]), Ok(Push::Written));
    }

    #[test]
    fn two_threads_lose_nothing() {
        let (mut writer, mut reader, _) = ring();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for number in 0..20_000 {
                    while writer.push(&frame(number)).unwrap() == Push::Full {
                        std::thread::yield_now();
                    }
                }
            });
            let mut out = Vec::new();
            for number in 0..20_000 {
                while reader.pop(&mut out).unwrap() == Pop::Empty {
                    std::thread::yield_now();
                }
                assert_eq!(out, frame(number));
            }
        });
    }

    #[test]
    fn lies_are_found() {
        let set = |memory: &Plain, at: usize, value: u64| {
            memory.0[at].store(value, Ordering::SeqCst);
        };
        let mut out = Vec::new();
        for tail in [CAPACITY as u64 + 1, u64::MAX] {
            let (_, mut reader, memory) = ring();
            set(&memory, TAIL, tail);
            assert!(reader.has_more());
            assert!(reader.pop(&mut out).is_err(), "{tail}");
        }
        for len in [0, LONGEST as u64 + 1, 1 << 61, u64::MAX] {
            let (_, mut reader, memory) = ring();
            set(&memory, HEADER, len);
            set(&memory, TAIL, CAPACITY as u64);
            assert!(reader.pop(&mut out).is_err(), "{len}");
        }
        let (_, mut reader, memory) = ring();
        set(&memory, HEADER, 60);
        set(&memory, TAIL, 8);
        assert!(reader.pop(&mut out).is_err());
        set(&memory, TAIL, 9);
        // It has looked at the index, and keeps to that.
        assert!(reader.pop(&mut out).is_err());
        for head in [1, u64::MAX - CAPACITY as u64] {
            let (mut writer, _, memory) = ring();
            set(&memory, HEAD, head);
            assert!(writer.head().is_err(), "{head}");
        }
        let (mut writer, _, memory) = ring();
        while writer.push(&[1; 60]).unwrap() != Push::Full {}
        set(&memory, HEAD, 1 << 63);
        assert!(writer.push(&[1; 60]).is_err());
        assert!(writer.is_congested().is_err());
    }

    /// Frames have lengths that frames have, and reading comes to an end, whatever is in the memory and however it changes.
    #[test]
    fn nonsense_is_survived() {
        let mut rng = crate::link::rng::Rng::new(1);
        for seed in 0..300u64 {
            let (mut writer, mut reader, memory) = ring();
            let mut out = Vec::new();
            // The reader is behind, so that it finds lengths that were changed.
            for number in 0..3 {
                assert_eq!(writer.push(&frame(number)), Ok(Push::Written));
            }
            for round in 0..200 {
                let value = match rng.next_u64() % 4 {
                    0 => rng.next_u64(),
                    1 => rng.next_u64() % (CAPACITY as u64 + 3),
                    2 => rng.next_u64() % (LONGEST as u64 + 2),
                    _ => rng.next_u64() % 20,
                };
                let at = match rng.next_u64() % 3 {
                    0 => [TAIL, WAITS, HEAD, SLEEPS][rng.next_u64() as usize % 4],
                    1 => HEADER + reader.head as usize % CAPACITY,
                    _ => HEADER + rng.next_u64() as usize % CAPACITY,
                };
                memory.0[at].store(value, Ordering::Relaxed);
                let pushed = writer.push(&frame(round));
                let popped = reader.pop(&mut out);
                assert!(out.len() <= LONGEST);
                if pushed.is_err() && popped.is_err() {
                    break;
                }
            }
            assert!(out.len() <= LONGEST, "{seed}");
        }
    }
}
