//! The ring of a send queue, in basic blocks of 64 bytes, with what the driver records of each work request.
//!
//! A WQE starts at a block and goes on at the ring's start when it reaches the end. A block number is masked, the
//! segments at fixed places lie in the first block, and no segment crosses the end, as both are multiples of 16 bytes;
//! so nothing given here can reach outside the ring. That a WQE is the host's, and not longer than the ring, is what
//! the queue checks.

// UNSAFETY: WQEs are written to raw memory shared with the device.
#![expect(unsafe_code)]

use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;

use bareverbs_firmware_cmds::doorbell::SendRecord;
use bareverbs_firmware_cmds::numbers::Qpn;
use bareverbs_firmware_cmds::word::Word;
use bareverbs_firmware_cmds::wqe::{BASIC_BLOCK as BLOCK, ControlWord, InlineWord, SEGMENT_UNIT};

use crate::memory::cold_path;
use crate::memory::segment::{put, put_data};
use crate::memory::slots::SILENT;
use crate::memory::sync::{AtomicU32, AtomicU64};
use crate::types::sge::Sge;

/// Words of a block.
pub(crate) const BLOCK_WORDS: usize = BLOCK / 8;

/// Where a send ring lies and how it is divided.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SendRingParts {
    /// The first block.
    pub(crate) base: NonNull<u8>,
    /// Identifiers, by work request.
    pub(crate) wr_ids: NonNull<AtomicU64>,
    /// Work request counter, by block.
    pub(crate) heads: NonNull<AtomicU32>,
    /// Blocks, a power of two of at most 2^16.
    pub(crate) blocks: u32,
    /// Identifiers, a power of two of at most 2^16.
    pub(crate) wrs: u32,
}

/// Where the next WQE of a queue starts, and the queue: the control word, rotated so that the counter of blocks has the
/// highest bits and wraps by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Cursor(u64);

impl Cursor {
    /// Bits above the counter in the control word.
    const ROTATED: u32 = 8;
    /// Bits below the counter here.
    const COUNTER: u32 = 48;

    /// The first block of a queue.
    pub(crate) fn new(qpn: Qpn) -> Self {
        Self(ControlWord::of_queue(qpn).0.rotate_left(Self::ROTATED))
    }

    /// Of no queue.
    pub(crate) const NONE: Self = Self(0);

    /// The first block of this queue.
    pub(crate) const fn start(self) -> Self {
        Self(self.0 << (64 - Self::COUNTER) >> (64 - Self::COUNTER))
    }

    /// Of which queue.
    pub(crate) fn qpn(self) -> u32 {
        ControlWord(self.0.rotate_right(Self::ROTATED)).qpn()
    }

    /// The counter of blocks.
    #[inline(always)]
    pub(crate) const fn block(self) -> u16 {
        (self.0 >> Self::COUNTER) as u16
    }

    /// The doorbell record of a queue whose last WQE ends here.
    #[inline(always)]
    pub(crate) fn record(self) -> SendRecord {
        // The counter with its bytes exchanged, as one part of an exchange of all bytes.
        let [high, low, ..] = self.0.to_be_bytes();
        SendRecord::from_memory(u32::from_ne_bytes([0, 0, high, low]))
    }

    /// Where the block lies behind the first, in bytes, counted on beyond the ring's end.
    #[inline(always)]
    const fn offset(self) -> usize {
        // What lies below the counter is 0 as far as this shows it: the opcode's place.
        (self.0 >> (Self::COUNTER - BLOCK.ilog2())) as usize
    }

    /// The control word of a WQE of this size, in segments (at most 63), that starts here.
    #[inline(always)]
    pub(crate) fn control(self, opcode: u8, size: u32) -> ControlWord {
        debug_assert!(size < 64);
        let mut of_opcode = ControlWord(0);
        of_opcode.set_opcode(opcode);
        // The size has the lowest bits, and needs no mask.
        let of_size = u64::from(size) << Self::ROTATED;
        let rotated = self.0 | of_opcode.0.rotate_left(Self::ROTATED) | of_size;
        ControlWord(rotated.rotate_right(Self::ROTATED))
    }

    /// Bytes from an earlier place in the same queue up to this one.
    #[inline(always)]
    pub(crate) const fn bytes_from(self, earlier: Self) -> u32 {
        // The counters' difference: all below them is the same.
        Self(self.0.wrapping_sub(earlier.0)).offset() as u32
    }

    /// Behind a WQE of this size, in segments (at most 63), that starts here.
    #[inline(always)]
    pub(crate) const fn behind_segments(self, size: u32) -> Self {
        // Four segments are a block, rounded up. Turned rather than shifted, since the compiler would merge a shift with the
        // rounding, and then need constants of 64 bits for both.
        let blocks = ((size + 3) & 0xfc) as u64;
        Self(self.0.wrapping_add(blocks.rotate_left(Self::COUNTER - 2)))
    }

    /// Where a WQE of one block starts that ends here.
    #[inline(always)]
    pub(crate) const fn before(self) -> Self {
        Self(self.0.wrapping_sub(1 << Self::COUNTER))
    }

    /// Behind a WQE of so many blocks that starts here.
    #[inline(always)]
    pub(crate) const fn behind(self, blocks: u32) -> Self {
        Self(self.0.wrapping_add((blocks as u64) << Self::COUNTER))
    }
}

/// A send ring, as the queue that posts to it uses it.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct SendRing {
    base: NonNull<u8>,
    wr_ids: NonNull<AtomicU64>,
    heads: NonNull<AtomicU32>,
    /// The bytes of all blocks but one.
    mask: u32,
    /// Identifiers minus 1.
    wr_mask: u32,
}

// SAFETY: the ring is its owner's, and what the poller reads of it are atomics.
unsafe impl Send for SendRing {}

impl SendRing {
    /// A ring with these parts.
    ///
    /// # Safety
    /// The parts are memory that stays allocated for as long as the ring is used; only the ring writes to it, and the device
    /// only reads it. It holds as many blocks, counters and identifiers as it says; the blocks are aligned to 64 bytes.
    pub(crate) unsafe fn new(parts: SendRingParts) -> Self {
        let SendRingParts {
            base,
            wr_ids,
            heads,
            blocks,
            wrs,
        } = parts;
        Self {
            base,
            wr_ids,
            heads,
            mask: (blocks - 1) * BLOCK as u32,
            wr_mask: wrs - 1,
        }
    }

    #[inline(always)]
    fn mask(&self) -> usize {
        self.mask as usize
    }

    /// Records for the poller a work request's (running freely) identifier.
    #[inline(always)]
    pub(crate) fn record_id(&self, head: u32, wr_id: u64) {
        let id = (head & self.wr_mask) as usize;
        // SAFETY: the masked index lies inside the array (`new`).
        unsafe { self.wr_ids.add(id).as_ref().store(wr_id, Relaxed) };
    }

    /// The WQE that starts here.
    #[inline(always)]
    pub(crate) fn wqe(&self, cursor: Cursor) -> Wqe<'_> {
        self.wqe_at(cursor.offset())
    }

    /// The segment that lies so many bytes behind the ring's start, rounded down to one; what lies beyond the end goes on at the
    /// start.
    #[inline(always)]
    fn segment(&self, at: usize) -> NonNull<u8> {
        const INSIDE: usize = BLOCK - SEGMENT_UNIT;
        // SAFETY: the masked segment lies inside the ring.
        unsafe { self.base.add(at & (self.mask() | INSIDE)) }
    }

    /// The WQE that starts so many bytes behind the ring's start, rounded down to a block.
    #[inline(always)]
    pub(crate) fn wqe_at(&self, at: usize) -> Wqe<'_> {
        let offset = at & self.mask();
        // SAFETY: the masked block lies inside the ring.
        let first = unsafe { self.base.add(offset) };
        Wqe {
            ring: self,
            first,
            offset,
        }
    }

    /// The WQE that starts here, if its second block lies before the ring's end.
    #[inline(always)]
    pub(crate) fn wqe_of_two(&self, cursor: Cursor) -> Option<Wqe<'_>> {
        // Fewer instructions than to mask the first block and to compare it with the last.
        let second = (cursor.offset() + BLOCK) & self.mask();
        if second == 0 {
            return None;
        }
        let offset = second - BLOCK;
        Some(Wqe {
            ring: self,
            // SAFETY: the second block lies inside the ring and is not its first, so that another one lies before it.
            first: unsafe { self.base.add(offset) },
            offset,
        })
    }

    /// Where the WQE with this first word (as it lies in memory) starts: bytes behind the ring's start.
    #[inline(always)]
    pub(crate) fn place_of(&self, control: u64) -> usize {
        let block = ControlWord::from_memory(control).wqe_index();
        (usize::from(block) * BLOCK) & self.mask()
    }

    /// Writes the first word of the WQE in whose first block this place lies, as it lies in memory.
    #[inline(always)]
    pub(crate) fn put_control(&self, at: usize, control: u64) {
        // SAFETY: the masked block lies inside the ring, which is the host's to write (`new`).
        unsafe { self.base.add(at & self.mask()).cast::<u64>().write(control) };
    }

    /// Writes a data segment at this place.
    #[inline(always)]
    pub(crate) fn put_data(&self, at: usize, sge: &Sge) {
        // SAFETY: a segment of the ring, which is the host's to write (`new`).
        unsafe { put_data(self.segment(at).as_ptr(), sge) };
    }

    /// Returns `true` if inline data from this place on, with its header before it, ends before the ring does.
    #[inline(always)]
    pub(crate) fn has_inline_room(&self, at: usize, len: usize) -> bool {
        let bytes = self.mask() + BLOCK;
        (at & (bytes - 1)) + InlineWord::SIZE + len <= bytes
    }

    /// Writes [short](Wqe::SHORT) inline data from this place on, with its header before it. There is
    /// [room](Self::has_inline_room) before the ring's end.
    #[inline(always)]
    pub(crate) fn put_inline(&self, at: usize, data: &[u8]) {
        debug_assert!(data.len() <= Wqe::SHORT && self.has_inline_room(at, data.len()));
        let to = self.segment(at).as_ptr();
        let header = InlineWord::new(data.len() as u32).to_memory();
        // SAFETY: the header is part of a segment, and the data goes into the ring behind it.
        unsafe {
            to.cast::<u32>().write(header);
            copy(data.as_ptr(), to, InlineWord::SIZE, data.len());
        }
    }

    /// Writes the header of so much inline data; where the data goes.
    pub(crate) fn put_inline_header(&self, at: usize, len: usize) -> usize {
        let header = InlineWord::new(len as u32).to_memory();
        // SAFETY: part of a segment of the ring, which is the host's to write (`new`).
        unsafe { self.segment(at).cast::<u32>().write(header) };
        at + InlineWord::SIZE
    }

    /// Copies bytes to this place, any one, and on to the ring's start; no more than the ring has. Where the next ones go.
    pub(crate) fn put_bytes(&self, at: usize, data: &[u8]) -> usize {
        let bytes = self.mask() + BLOCK;
        let start = at & (bytes - 1);
        let (first, rest) = data.split_at_checked(bytes - start).unwrap_or((data, &[]));
        let rest = rest.get(..start).unwrap_or(rest);
        let base = self.base.as_ptr();
        // SAFETY: the first part ends before the ring does, the second one before it reaches the first.
        unsafe {
            base.add(start)
                .copy_from_nonoverlapping(first.as_ptr(), first.len());
            base.copy_from_nonoverlapping(rest.as_ptr(), rest.len());
        }
        start + data.len()
    }

    /// Lets the poller find no work request at the blocks from `from` up to `to`, which were recorded and not posted: `head` is
    /// the first of them.
    pub(crate) fn forget(&self, from: Cursor, to: Cursor, head: u32) {
        // As far away from each that can be outstanding as there is.
        let never = head.wrapping_sub(1 << 31);
        let mut at = from;
        loop {
            // SAFETY: the masked index lies inside the array (`new`).
            let recorded = unsafe { self.heads.add((at.offset() & self.mask()) / BLOCK).as_ref() };
            recorded.store(never, Relaxed);
            at = at.behind(1);
            if at == to {
                break;
            }
        }
    }

    /// The number of blocks from this one up to the ring's end.
    #[inline(always)]
    pub(crate) fn rest(&self, from: Cursor) -> u32 {
        (self.mask - (from.offset() as u32 & self.mask)) / BLOCK as u32 + 1
    }

    /// The number of its blocks.
    pub(crate) fn blocks(&self) -> u32 {
        (self.mask() / BLOCK + 1) as u32
    }

    /// So many words of the WQE that starts here, as they were written; `None` if it goes on at the ring's start before.
    #[inline(always)]
    pub(crate) fn words<const N: usize>(&self, first: Cursor) -> Option<&[u64; N]> {
        const { assert!(N.is_multiple_of(BLOCK_WORDS) && N != 0) };
        let at = first.offset() & self.mask();
        // The first block never crosses the end.
        if N > BLOCK_WORDS && at + (8 * N - BLOCK) > self.mask() {
            return None;
        }
        // SAFETY: inside the ring, and aligned. The device only reads it, and who writes to it borrows the ring's queue.
        Some(unsafe { self.base.add(at).cast().as_ref() })
    }

    /// The block that is here, as it was written.
    pub(crate) fn block(&self, at: Cursor) -> [u64; BLOCK_WORDS] {
        self.words(at).copied().unwrap_or_default()
    }
}

/// A WQE that is being written.
#[derive(Debug, Clone, Copy)]
pub struct Wqe<'r> {
    ring: &'r SendRing,
    /// The block that it starts at, and how far that is from the ring's start.
    first: NonNull<u8>,
    offset: usize,
}

impl Wqe<'_> {
    /// The distance from the ring's start, in bytes.
    #[inline(always)]
    pub(crate) fn offset(self) -> usize {
        self.offset
    }

    /// The WQE that lies so many blocks behind this one's start.
    ///
    /// # Safety
    /// They are fewer than there are from here up to the [ring's end](SendRing::rest).
    #[inline(always)]
    pub(crate) unsafe fn behind(self, blocks: u32) -> Self {
        let distance = blocks as usize * BLOCK;
        debug_assert!(self.offset + distance <= self.ring.mask());
        Self {
            // SAFETY: a block of the ring, as the caller promises.
            first: unsafe { self.first.add(distance) },
            offset: self.offset + distance,
            ..self
        }
    }

    /// Where byte `at` of it lies, rounded down to a segment.
    #[inline(always)]
    fn place(self, at: usize) -> NonNull<u8> {
        let block = (self.offset + at / BLOCK * BLOCK) & self.ring.mask();
        let inside = at % BLOCK / SEGMENT_UNIT * SEGMENT_UNIT;
        // SAFETY: the masked block lies inside the ring, and the segment in the block.
        unsafe { self.ring.base.add(block + inside) }
    }

    /// Finds the same place as [`place`](Self::place), with fewer instructions for one in the first block.
    #[inline(always)]
    fn place_at(self, at: usize) -> NonNull<u8> {
        if at < BLOCK {
            // SAFETY: a segment of the first block.
            return unsafe { self.first.add(at / SEGMENT_UNIT * SEGMENT_UNIT) };
        }
        self.place(at)
    }

    /// Writes the segment at byte `at`, rounded down to one. Behind the first block the ring's end may part it from that.
    #[inline(always)]
    pub(crate) fn put<A, B>(self, at: usize, first: A, second: B)
    where
        A: Word<Raw = u64>,
        B: Word<Raw = u64>,
    {
        // SAFETY: a segment of the ring, which is the host's to write (`SendRing::new`).
        unsafe { put(self.place_at(at).as_ptr(), first, second) };
    }

    /// Writes a word of the first segment.
    #[inline(always)]
    pub(crate) fn put_word<W: Word<Raw = u64>>(self, word: W) {
        const { assert!(W::OFFSET == 0 || W::OFFSET == 8) };
        let to = self.first.cast::<u64>();
        // SAFETY: a segment of the ring, which is the host's to write (`SendRing::new`).
        unsafe { to.byte_add(W::OFFSET).write(word.to_memory()) };
    }

    /// Writes words from byte `AT` of the first block on, as they lie in memory.
    #[inline(always)]
    pub(crate) fn put_words<const AT: usize, const N: usize>(self, words: [u64; N]) {
        const { assert!(AT + 8 * N <= BLOCK && AT.is_multiple_of(SEGMENT_UNIT)) };
        // SAFETY: inside the block by the check above, and aligned.
        unsafe { self.place_at(AT).cast::<[u64; N]>().write(words) };
    }

    /// Returns `true` if byte `at`, of the first two blocks, lies before the ring's end.
    #[inline(always)]
    pub(crate) fn reaches(self, at: usize) -> bool {
        debug_assert!(at < 2 * BLOCK);
        at < BLOCK || self.offset != self.ring.mask()
    }

    /// Writes a data segment at byte `at`, which the WQE [reaches](Self::reaches).
    #[inline(always)]
    pub(crate) fn put_data_at(self, at: usize, sge: &Sge) {
        debug_assert!(at.is_multiple_of(SEGMENT_UNIT) && self.reaches(at));
        let at = at & (2 * BLOCK - SEGMENT_UNIT);
        // SAFETY: a segment of the first block, or of one behind it that the ring has, as the caller has seen; it is the host's
        // to write (`SendRing::new`).
        unsafe { put_data(self.first.add(at).as_ptr(), sge) };
    }

    /// Writes a data segment at byte `at`, rounded down to a segment.
    #[inline(always)]
    pub(crate) fn put_data(self, at: usize, sge: &Sge) {
        // SAFETY: a segment of the ring, which is the host's to write (`SendRing::new`).
        unsafe { put_data(self.place(at).as_ptr(), sge) };
    }

    /// Writes a segment at byte `at`, rounded down to one, as it lies in memory.
    pub(crate) fn put_segment(self, at: usize, segment: &[u8; SEGMENT_UNIT]) {
        // SAFETY: a segment of the ring, which is the host's to write (`SendRing::new`).
        unsafe { self.place(at).cast::<[u8; SEGMENT_UNIT]>().write(*segment) };
    }

    /// Bytes of inline data that [`put_inline`](Self::put_inline) writes at most.
    pub(crate) const SHORT: usize = 64;

    /// Returns `true` if [short](Self::SHORT) inline data from byte `at` on, with its header before it, ends before the ring
    /// does.
    #[inline(always)]
    pub(crate) fn has_room(self, at: usize, len: usize) -> bool {
        let end = at + InlineWord::SIZE + len;
        if at + InlineWord::SIZE + Self::SHORT <= 2 * BLOCK {
            // No longer than two blocks, and one does not cross the end.
            if self.offset == self.ring.mask() {
                cold_path();
                return end <= BLOCK;
            }
            return true;
        }
        self.offset + end <= self.ring.mask() + BLOCK
    }

    /// Writes [short](Self::SHORT) inline data from byte `at` on, with its header before it. There is
    /// [room](Self::has_room) before the ring's end.
    #[inline(always)]
    pub(crate) fn put_inline(self, at: usize, data: &[u8]) {
        debug_assert!(data.len() <= Self::SHORT && self.has_room(at, data.len()));
        self.put_header(at, data.len());
        let (to, start) = (self.first.as_ptr(), at + InlineWord::SIZE);
        // SAFETY: the data goes into the ring, behind the header.
        unsafe { copy(data.as_ptr(), to, start, data.len()) };
    }

    /// The same for data of any length, which goes on at the ring's start. (No queue accepts data that would reach its own
    /// start.)
    pub(crate) fn put_long_inline(self, at: usize, data: &[u8]) {
        let start = (self.offset + at + InlineWord::SIZE) & (self.ring.mask() | (BLOCK - 1));
        let before_end = self.ring.mask() + BLOCK - start;
        let (first, rest) = data.split_at_checked(before_end).unwrap_or((data, &[]));
        let rest = rest.get(..start).unwrap_or(rest);
        let base = self.ring.base.as_ptr();
        let to = self.put_header(at, data.len());
        // SAFETY: the first part ends before the ring does, the second one before it reaches its own start.
        unsafe {
            to.copy_from_nonoverlapping(first.as_ptr(), first.len());
            base.copy_from_nonoverlapping(rest.as_ptr(), rest.len());
        }
    }

    /// Writes the header of inline data of this length; where the data goes.
    #[inline(always)]
    fn put_header(self, at: usize, len: usize) -> *mut u8 {
        let header = self.place_at(at).as_ptr();
        let word = InlineWord::new(len as u32).to_memory();
        // SAFETY: the header is part of a segment.
        unsafe {
            header.cast::<u32>().write(word);
            header.add(InlineWord::SIZE)
        }
    }

    /// Records for the poller which work request (running freely) starts here, and its identifier.
    #[inline(always)]
    pub(crate) fn record(self, head: u32, wr_id: u64) {
        let id = (head & self.ring.wr_mask) as usize;
        // SAFETY: the masked indexes lie inside the arrays (`SendRing::new`).
        unsafe {
            let at = self.ring.heads.add(self.offset / BLOCK);
            at.as_ref().store(head, Relaxed);
            let at = self.ring.wr_ids.add(id);
            at.as_ref().store(wr_id, Relaxed);
        }
    }

    /// Records the same of a work request whose completion is not handed out.
    pub(crate) fn record_silent(self, head: u32) {
        // SAFETY: the masked index lies inside the array (`SendRing::new`).
        let at = unsafe { self.ring.heads.add(self.offset / BLOCK) };
        // SAFETY: as above.
        unsafe { at.as_ref() }.store(head ^ SILENT, Relaxed);
    }

    /// Records only which work request starts here.
    #[inline(always)]
    pub(crate) fn record_head(self, head: u32) {
        // By the second block, which `wqe_of_two` has in a register.
        let block = (self.offset + BLOCK) / BLOCK - 1;
        // SAFETY: the masked index lies inside the array (`SendRing::new`).
        unsafe {
            let at = self.ring.heads.add(block);
            at.as_ref().store(head, Relaxed);
        }
    }
}

/// Copies [short](Wqe::SHORT) inline data, without a call: in pieces of fixed size, which may overlap.
///
/// # Safety
/// As `copy_nonoverlapping`, to what is `start` bytes behind `to`; at most 64 bytes.
#[inline(always)]
unsafe fn copy(from: *const u8, to: *mut u8, start: usize, len: usize) {
    // What is known when the code is compiled is added last, and separately: then it is part of the address in the
    // instruction, and takes no other instruction nor register.
    let piece_at = |at: usize, back: usize| {
        let (from, to) = (from.wrapping_add(at), to.wrapping_add(at));
        (
            from.wrapping_sub(back),
            to.wrapping_add(start).wrapping_sub(back),
        )
    };
    /// # Safety
    /// As `copy_nonoverlapping` for one `T`.
    #[inline(always)]
    unsafe fn piece<T>((from, to): (*const u8, *mut u8)) {
        // SAFETY: the caller's promise.
        unsafe {
            to.cast::<T>()
                .write_unaligned(from.cast::<T>().read_unaligned())
        }
    }
    // SAFETY: the caller's promise; each piece lies inside the `len` bytes.
    unsafe {
        if len >= 16 {
            piece::<u128>(piece_at(0, 0));
            if len > 32 {
                piece::<u128>(piece_at(16, 0));
                piece::<u128>(piece_at(len, 32));
            }
            piece::<u128>(piece_at(len, 16));
        } else if len >= 8 {
            piece::<u64>(piece_at(0, 0));
            piece::<u64>(piece_at(len, 8));
        } else if len >= 4 {
            piece::<u32>(piece_at(0, 0));
            piece::<u32>(piece_at(len, 4));
        } else if len > 0 {
            piece::<u8>(piece_at(0, 0));
            piece::<u8>(piece_at(len / 2, 0));
            piece::<u8>(piece_at(len, 1));
        }
    }
}
