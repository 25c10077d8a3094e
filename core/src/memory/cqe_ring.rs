//! The ring of a CQ: which entries are the host's, and what they hold.
//!
//! **Ownership.** A CQE belongs to the host when its opcode is not 0xf (a ring starts out filled with that) and its owner
//! bit equals the parity of the pass through the ring. The device writes the byte that says so last; this driver reads
//! it first, and the rest behind a read barrier (nothing on x86, where loads stay in order).

// UNSAFETY: rings are raw memory shared with the device.
#![expect(unsafe_code)]

use core::ptr::NonNull;

use bareverbs_firmware_cmds::cqe::mini::MiniFormat;
use bareverbs_firmware_cmds::cqe::{ByteCountWord, Format, OpOwn, Opcode, SIZE, TailWord};
use bareverbs_firmware_cmds::doorbell::CqConsumerRecord;
use bareverbs_firmware_cmds::word::Word;

use crate::barrier::read_barrier;
use crate::memory::dma::{DmaMemory, load, shared, store};
use crate::memory::record::DoorbellRecord;

/// Completions are counted with 24 bits.
const INDEX: u32 = 0xff_ffff;

/// A CQE of the host's in its ring.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cqe(NonNull<u8>);

// SAFETY: all access is by single volatile loads and stores of words, to memory that no thread owns.
unsafe impl Send for Cqe {}

impl Cqe {
    /// The CQE at this place in a ring.
    #[inline(always)]
    pub(crate) fn at(place: NonNull<u8>) -> Self {
        Self(place)
    }

    /// Where it lies.
    #[inline(always)]
    pub(crate) fn base(self) -> NonNull<u8> {
        self.0
    }

    /// The CQE that lies so many behind this one, whether the device or software owns it.
    ///
    /// # Safety
    /// They are fewer than there are from here up to the [ring's end](CqeRing::rest), of 64 bytes each.
    #[inline(always)]
    pub(crate) unsafe fn behind(self, count: u32) -> Self {
        // SAFETY: a CQE of the ring, as the caller promises.
        Self(unsafe { self.0.add(count as usize * SIZE) })
    }

    /// A word of it. The device does not write it any more, but a broken one may: use what was read, never read twice.
    #[inline(always)]
    pub(crate) fn word<W: Word>(self) -> W {
        const { assert!(W::OFFSET + size_of::<W::Raw>() <= SIZE) };
        // SAFETY: the entry lies in a ring, which is allocated (`CqeRing::new`), and the word in the entry.
        unsafe { load(self.0) }
    }

    /// Changes a word of it.
    #[inline(always)]
    pub(crate) fn set_word<W: Word>(self, word: W) {
        const { assert!(W::OFFSET + size_of::<W::Raw>() <= SIZE) };
        // SAFETY: as in `word`; the entry is the host's.
        unsafe { store(self.0, word) }
    }

    /// All of it.
    pub(crate) fn to_bytes(self) -> [u8; SIZE] {
        let mut copy = [0; SIZE];
        for (index, word) in copy.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            // SAFETY: inside the entry.
            let place = unsafe { shared(self.0.cast::<u64>().add(index)) };
            *word = place.read().to_ne_bytes();
        }
        copy
    }

    /// The first half of its entry.
    ///
    /// # Safety
    /// The entry has 128 bytes.
    pub(crate) unsafe fn first_half(self) -> [u8; SIZE] {
        // SAFETY: the half of the entry in front of the CQE, as the caller promises.
        Self(unsafe { self.0.sub(SIZE) }).to_bytes()
    }

    /// Writes all of it.
    pub(crate) fn set_bytes(self, bytes: &[u8; SIZE]) {
        for (index, word) in bytes.as_chunks::<8>().0.iter().enumerate() {
            // SAFETY: inside the entry.
            let place = unsafe { shared(self.0.cast::<u64>().add(index)) };
            place.write(u64::from_ne_bytes(*word));
        }
    }
}

/// Where the entries of a ring lie.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entries {
    pub(crate) base: NonNull<u8>,
    /// Their number, a power of two.
    pub(crate) size: u32,
    /// Their distance. The CQE is in the last 64 bytes.
    pub(crate) log_stride: u8,
    /// The format of mini CQEs, if the device compresses.
    pub(crate) format: Option<MiniFormat>,
}

impl Entries {
    /// The CQE at the place of this index.
    #[inline(always)]
    pub(crate) fn at(self, index: u32) -> Cqe {
        let at = ((index & (self.size - 1)) as usize) << self.log_stride;
        let at = at + ((1 << self.log_stride) - SIZE);
        // SAFETY: the masked index lies inside the ring.
        Cqe(unsafe { self.base.add(at) })
    }

    /// Returns `true` if the CQE with this index (less than the ring's size ahead) is the host's.
    pub(crate) fn is_there(self, index: u32) -> bool {
        let last = self.at(index).word::<OpOwn>();
        last.is_ready(self.parity(index))
    }

    /// The owner bit of the pass that this index lies in.
    #[inline(always)]
    pub(crate) fn parity(self, index: u32) -> u8 {
        u8::from(index & self.size != 0)
    }
}

/// Where a consumer is, to see whether it has moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position(NonNull<u8>, u32);

/// A CQ's ring, as its consumer uses it.
#[derive(Debug)]
pub(crate) struct CqeRing {
    /// The next CQE.
    next: NonNull<u8>,
    /// Behind the last CQE.
    end: NonNull<u8>,
    entries: Entries,
    /// Index of the first CQE in this pass through the ring.
    pass: u32,
    /// Owner bit of this pass through the ring.
    parity: u8,
}

// SAFETY: the pointers are to memory that the ring's owner has to itself (and the device).
unsafe impl Send for CqeRing {}

impl CqeRing {
    /// A ring of `size` CQEs (a power of two) at `base` that was not used yet.
    ///
    /// # Safety
    /// `base` is memory shared with the device, of this size and aligned to 64, that stays allocated for as long as the
    /// ring, an entry of it, or a [`SharedRing`] made of it is used.
    pub(crate) unsafe fn new(base: NonNull<u8>, size: u32) -> Self {
        // SAFETY: the ring's end.
        let end = unsafe { base.add(size as usize * SIZE) };
        Self {
            next: base,
            end,
            entries: Entries {
                base,
                size,
                log_stride: SIZE.ilog2() as u8,
                format: None,
            },
            pass: 0,
            parity: 0,
        }
    }

    /// Says that the first CQE has this index.
    pub(crate) fn set_pass(&mut self, index: u32) {
        self.pass = index;
    }

    /// Begins at another consumer index.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn start_at(&mut self, ci: u32) {
        self.next = self.entries.at(ci).0;
        self.pass = ci & !(self.entries.size - 1);
        self.parity = self.entries.parity(ci);
    }

    /// Number of CQEs.
    #[inline(always)]
    pub(crate) fn size(&self) -> u32 {
        self.entries.size
    }

    /// The next CQE and its tail, if it is the host's.
    #[inline(always)]
    pub(crate) fn peek(&self) -> Option<(Cqe, TailWord)> {
        let entry = Cqe(self.next);
        let tail = entry.word::<TailWord>();
        if !tail.last().is_ready(self.parity) {
            return None;
        }
        read_barrier();
        Some((entry, tail))
    }

    /// Goes on to the CQE behind the next one, which is `next`, as [`peek`](Self::peek) gave it. (That spares a load.)
    #[inline(always)]
    pub(crate) fn advance(&mut self, next: Cqe) {
        debug_assert_eq!(next.0, self.next);
        // SAFETY: at most the end of the ring.
        self.next = unsafe { next.0.add(SIZE) };
        if self.next == self.end {
            self.begin_pass();
        }
    }

    /// The number of CQEs from the next one up to the ring's end.
    #[inline(always)]
    pub(crate) fn rest(&self) -> u32 {
        ((self.end.as_ptr() as usize - self.next.as_ptr() as usize) / SIZE) as u32
    }

    /// Goes on by so many CQEs, at most the [rest](Self::rest).
    #[inline(always)]
    pub(crate) fn skip(&mut self, count: u32) {
        debug_assert!(count <= self.rest());
        let count = count.min(self.rest());
        // SAFETY: at most the end of the ring.
        self.next = unsafe { self.next.add(count as usize * SIZE) };
        if self.next == self.end {
            self.begin_pass();
        }
    }

    #[inline(always)]
    fn begin_pass(&mut self) {
        self.next = self.entries.base;
        self.parity ^= 1;
        self.pass = self.pass.wrapping_add(self.entries.size);
    }

    /// The next CQE and its tail, whether the device or software owns it.
    #[inline(always)]
    pub(crate) fn look(&self) -> (Cqe, TailWord) {
        let entry = Cqe(self.next);
        let tail = entry.word::<TailWord>();
        read_barrier();
        (entry, tail)
    }

    /// The owner bit of this pass.
    #[inline(always)]
    pub(crate) fn owner(&self) -> u8 {
        self.parity
    }

    /// Index of the next CQE, running freely; the device sees 24 bits of it.
    #[inline(always)]
    pub(crate) fn ci(&self) -> u32 {
        let offset = self.next.as_ptr() as usize - self.entries.base.as_ptr() as usize;
        self.pass.wrapping_add((offset / SIZE) as u32)
    }

    /// Where the consumer is.
    #[inline(always)]
    pub(crate) fn position(&self) -> Position {
        Position(self.next, self.pass)
    }

    /// The CQE with this index (less than the ring's size ahead) and its tail, if it is the host's.
    pub(crate) fn owned(&self, index: u32) -> Option<(Cqe, TailWord)> {
        let entry = self.entries.at(index);
        let tail = entry.word::<TailWord>();
        if !tail.last().is_ready(self.entries.parity(index)) {
            return None;
        }
        read_barrier();
        Some((entry, tail))
    }

    /// Goes on in another ring of `size` CQEs. What lies behind the consumer index is carried over, up to the RESIZE_CQ
    /// completion that the device has put behind it. That one took an index too, so everything moves up by one.
    ///
    /// # Safety
    /// As [`new`](Self::new), with `base` for the ring and what is made of it from here on. The device writes to it from
    /// the RESIZE_CQ completion's index on.
    pub(crate) unsafe fn move_to(&mut self, base: NonNull<u8>, size: u32) {
        // SAFETY: the caller's promise.
        let mut new = unsafe { Self::new(base, size) };
        let ci = self.ci();
        let mut at = ci;
        while let Some((entry, tail)) = self.owned(at) {
            let mut last = tail.last();
            if last.opcode() == Opcode::ResizeCq as u8 {
                break;
            }
            let to = at.wrapping_add(1);
            let copy = new.entries.at(to);
            copy.set_bytes(&entry.to_bytes());
            last.set_owner(new.entries.parity(to));
            copy.set_word(last);
            at = to;
            if at.wrapping_sub(ci) > self.entries.size {
                break;
            }
        }
        let ci = ci.wrapping_add(1);
        new.next = new.entries.at(ci).0;
        new.pass = ci & !(size - 1);
        new.parity = new.entries.parity(ci);
        *self = new;
    }

    /// Where the CQEs are.
    pub(crate) fn entries(&self) -> &Entries {
        &self.entries
    }
}

/// The part of a CQ's ring that others than its owner may use: up to which index the device has written.
#[derive(Debug)]
pub(crate) struct SharedRing {
    entries: Entries,
    record: DoorbellRecord,
}

// SAFETY: the memory is only read through it, by single volatile accesses; it is the device's as much as the host's.
unsafe impl Send for SharedRing {}

impl SharedRing {
    /// Of these entries, with this record.
    pub(crate) fn new(entries: Entries, record: DoorbellRecord) -> Self {
        Self { entries, record }
    }

    /// The consumer index that the owner has published.
    fn consumer(&self) -> u32 {
        self.record.load::<CqConsumerRecord>().consumer()
    }

    /// Returns `true` if this memory is the ring's or its record's.
    pub(crate) fn is_in(&self, memory: &DmaMemory) -> bool {
        self.entries.base == memory.ptr() || self.record.is_at(memory.ptr())
    }

    /// The number of completions that the device has written from this index on, and has not overwritten yet, as one entry
    /// says: 0, 1, or those of a session.
    fn written(&self, index: u32) -> u32 {
        let entry = self.entries.at(index);
        let last = entry.word::<OpOwn>();
        if !last.is_ready(self.entries.parity(index)) {
            return 0;
        }
        if self.entries.format.is_none() || last.format() != Format::Compressed as u8 {
            return 1;
        }
        read_barrier();
        let count = entry.word::<ByteCountWord>().byte_cnt();
        read_barrier();
        // The owner may have expanded the session meanwhile.
        let still = entry.word::<OpOwn>() == last;
        if still && (2..=self.entries.size).contains(&count) {
            count
        } else {
            1
        }
    }

    /// Index (24 bits) behind the last CQE that the device has written by now, as the ring itself shows it. The counters
    /// of QUERY_CQ may lag behind.
    ///
    /// The owner may take completions meanwhile. A CQE that is no longer there was overwritten after the owner had
    /// published a later consumer index, and the search goes on from there; so it ends at a CQE that was not written yet,
    /// or behind all that were in the ring when it began.
    pub(crate) fn producer(&self) -> u32 {
        let start = self.consumer();
        let mut at = start;
        while at.wrapping_sub(start) & INDEX < self.entries.size {
            let written = self.written(at);
            if written != 0 {
                at = at.wrapping_add(written);
                continue;
            }
            read_barrier();
            let consumer = self.consumer();
            let ahead = consumer.wrapping_sub(at) & INDEX;
            if ahead == 0 || ahead > INDEX / 2 {
                break;
            }
            at = consumer;
        }
        at & INDEX
    }
}
