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

use bareverbs_firmware_cmds::word::Word;
use bareverbs_firmware_cmds::wqe::{BASIC_BLOCK as BLOCK, InlineWord, SEGMENT_UNIT};

use crate::memory::segment::{put, put_data};
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

/// A send ring, as the queue that posts to it uses it.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct SendRing {
    base: NonNull<u8>,
    wr_ids: NonNull<AtomicU64>,
    heads: NonNull<AtomicU32>,
    /// Blocks minus 1.
    mask: u16,
    /// Identifiers minus 1.
    wr_mask: u16,
    /// Next block, running freely (the device sees 16 bits of it).
    pub(crate) block: u32,
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
            mask: (blocks - 1) as u16,
            wr_mask: (wrs - 1) as u16,
            block: 0,
        }
    }

    /// The WQE that starts at this block (running freely).
    #[inline(always)]
    pub(crate) fn wqe(&self, block: u32) -> Wqe<'_> {
        let block = block as u16 & self.mask;
        // SAFETY: the masked block lies inside the ring.
        let first = unsafe { self.base.add(usize::from(block) * BLOCK) };
        Wqe {
            ring: self,
            first,
            block,
        }
    }

    /// How many blocks it has.
    pub(crate) fn blocks(&self) -> u32 {
        u32::from(self.mask) + 1
    }

    /// Reads a block back, for BlueFlame.
    #[inline(always)]
    pub(crate) fn block(&self, number: u32) -> [u64; BLOCK_WORDS] {
        let at = usize::from(number as u16 & self.mask) * BLOCK;
        // SAFETY: the masked block lies inside the ring, which is aligned to blocks and which the device only reads.
        unsafe { self.base.add(at).cast::<[u64; BLOCK_WORDS]>().read() }
    }
}

/// A WQE that is being written.
#[derive(Debug, Clone, Copy)]
pub struct Wqe<'r> {
    ring: &'r SendRing,
    /// The block that it starts at, and its number.
    first: NonNull<u8>,
    block: u16,
}

impl Wqe<'_> {
    /// Where byte `at` of it lies, rounded down to a segment.
    #[inline(always)]
    fn place(self, at: usize) -> NonNull<u8> {
        let block = self.block.wrapping_add((at / BLOCK) as u16) & self.ring.mask;
        let inside = at % BLOCK / SEGMENT_UNIT * SEGMENT_UNIT;
        // SAFETY: the masked block lies inside the ring, and the segment in the block.
        unsafe { self.ring.base.add(usize::from(block) * BLOCK + inside) }
    }

    /// The same for a place that is known when the code is compiled.
    #[inline(always)]
    fn place_at<const AT: usize>(self) -> NonNull<u8> {
        const { assert!(AT.is_multiple_of(SEGMENT_UNIT)) };
        if AT < BLOCK {
            // SAFETY: a segment of the first block.
            return unsafe { self.first.add(AT) };
        }
        self.place(AT)
    }

    /// Writes the segment at byte `AT` of the first block.
    #[inline(always)]
    pub(crate) fn put<const AT: usize, A, B>(self, first: A, second: B)
    where
        A: Word<Raw = u64>,
        B: Word<Raw = u64>,
    {
        const { assert!(AT < BLOCK) };
        // SAFETY: a segment of the ring, which is the host's to write (`SendRing::new`).
        unsafe { put(self.place_at::<AT>().as_ptr(), first, second) };
    }

    /// Writes words from byte `AT` of the first block on, as they lie in memory.
    #[inline(always)]
    pub(crate) fn put_words<const AT: usize, const N: usize>(self, words: [u64; N]) {
        const { assert!(AT + 8 * N <= BLOCK) };
        // SAFETY: inside the block by the check above, and aligned.
        unsafe { self.place_at::<AT>().cast::<[u64; N]>().write(words) };
    }

    /// Writes a data segment at byte `AT`.
    #[inline(always)]
    pub(crate) fn put_data_at<const AT: usize>(self, sge: &Sge) {
        // SAFETY: a segment of the ring, which is the host's to write (`SendRing::new`).
        unsafe { put_data(self.place_at::<AT>().as_ptr(), sge) };
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

    /// Writes inline data from byte `AT` on, with its header before it.
    #[inline(always)]
    pub(crate) fn put_inline<const AT: usize>(self, data: &[u8]) {
        let (base, len) = (self.ring.base.as_ptr(), data.len());
        let ring_len = (usize::from(self.ring.mask) + 1) * BLOCK;
        let header = self.place_at::<AT>().as_ptr();
        // SAFETY: the header is part of a segment. The data is copied as far as the ring's end, and goes on at its start.
        unsafe {
            let word = InlineWord::new(len as u32).to_memory();
            header.cast::<u32>().write(word);
            let to = header.add(InlineWord::SIZE);
            let before_end = base.add(ring_len) as usize - to as usize;
            if len <= before_end {
                copy(data.as_ptr(), to, len);
            } else {
                wrap(data, to, before_end, base);
            }
        }
    }

    /// Records for the poller which work request (running freely) starts here, and its identifier.
    #[inline(always)]
    pub(crate) fn record(self, head: u32, wr_id: u64) {
        let id = (head & u32::from(self.ring.wr_mask)) as usize;
        // SAFETY: the masked indexes lie inside the arrays (`SendRing::new`).
        unsafe {
            let at = self.ring.heads.add(self.block.into());
            at.as_ref().store(head, Relaxed);
            let at = self.ring.wr_ids.add(id);
            at.as_ref().store(wr_id, Relaxed);
        }
    }
}

/// Copies inline data that crosses the end of the ring, which starts at `base`.
///
/// # Safety
/// `to` lies in the ring, `before_end` bytes before its end, and the data is longer than that.
#[cold]
#[inline(never)]
unsafe fn wrap(data: &[u8], to: *mut u8, before_end: usize, base: *mut u8) {
    // No queue accepts data that would wrap to its own start.
    let most = to as usize - base as usize;
    let rest = data.len().saturating_sub(before_end).min(most);
    // SAFETY: the caller's promise, and what goes to the start ends before `to`.
    unsafe {
        core::ptr::copy_nonoverlapping(data.as_ptr(), to, before_end);
        core::ptr::copy_nonoverlapping(data.as_ptr().add(before_end), base, rest);
    }
}

/// Copies inline data, as a rule so short that a call of `memcpy` costs more than the copy: in pieces of fixed size, which
/// may overlap.
///
/// # Safety
/// As `copy_nonoverlapping`.
#[inline(always)]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    /// # Safety
    /// As `copy_nonoverlapping` for one `T` at `at`.
    #[inline(always)]
    unsafe fn piece<T>(from: *const u8, to: *mut u8, at: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            to.add(at)
                .cast::<T>()
                .write_unaligned(from.add(at).cast::<T>().read_unaligned())
        }
    }
    // SAFETY: the caller's promise; each piece lies inside the `len` bytes.
    unsafe {
        if len > 64 {
            core::ptr::copy_nonoverlapping(from, to, len);
        } else if len >= 16 {
            piece::<u128>(from, to, 0);
            if len > 32 {
                piece::<u128>(from, to, 16);
                piece::<u128>(from, to, len - 32);
            }
            piece::<u128>(from, to, len - 16);
        } else if len >= 8 {
            piece::<u64>(from, to, 0);
            piece::<u64>(from, to, len - 8);
        } else if len >= 4 {
            piece::<u32>(from, to, 0);
            piece::<u32>(from, to, len - 4);
        } else if len > 0 {
            piece::<u8>(from, to, 0);
            piece::<u8>(from, to, len / 2);
            piece::<u8>(from, to, len - 1);
        }
    }
}
