//! The data of a send work request, as it stands in a WQE: data segments, or the bytes themselves.

// UNSAFETY: WQEs are written to raw memory shared with the device.
#![expect(unsafe_code)]

use crate::types::sge::Sge;
use crate::verbs::qp::kind::QpType;
use crate::verbs::qp::wr::PostError;
use bareverbs_firmware_cmds::word::Word;
use bareverbs_firmware_cmds::wqe::{BASIC_BLOCK, DataAddressWord, DataWord, InlineWord};

/// Bytes of a basic block.
pub(crate) const BLOCK: usize = BASIC_BLOCK;

mod sealed {
    pub trait Sealed {}
}

/// Data of a work request: scatter/gather entries or [`Inline`] bytes.
pub trait Payload: sealed::Sealed {
    /// Whether the queue takes it.
    #[doc(hidden)]
    fn check<T: QpType>(&self, max_sge: u8, max_inline: u16) -> Result<(), PostError>;
    /// Writes the segments from byte `AT` of the WQE at block `block` on; returns the size of the whole WQE in units of 16
    /// bytes.
    ///
    /// # Safety
    /// `ring` is a ring of `mask + 1` blocks that belongs to the caller, and the payload was checked against its
    /// limits.
    #[doc(hidden)]
    unsafe fn write<const AT: usize>(&self, ring: *mut u8, mask: u16, block: u16) -> u32;
}

/// Bytes to copy into the work queue.
#[derive(Debug, Clone, Copy)]
pub struct Inline<'a>(pub &'a [u8]);

/// Where byte `at` of a WQE lies. Whole segments never straddle the end, since both are multiples of 16.
///
/// # Safety
/// `ring` is a ring of `mask + 1` blocks.
#[inline(always)]
unsafe fn place(ring: *mut u8, mask: u16, block: u16, at: usize) -> *mut u8 {
    let block = block.wrapping_add((at / BLOCK) as u16) & mask;
    // SAFETY: the masked block lies inside the ring.
    unsafe { ring.add(usize::from(block) * BLOCK + at % BLOCK) }
}

/// Writes 16 bytes, which are two words.
///
/// # Safety
/// `to` points to 16 bytes of a ring of the caller, aligned to 16.
#[inline(always)]
pub(crate) unsafe fn put<A, B>(to: *mut u8, first: A, second: B)
where
    A: Word<Raw = u64>,
    B: Word<Raw = u64>,
{
    const { assert!(A::OFFSET % 16 == 0 && B::OFFSET % 16 == 8) };
    // SAFETY: the caller's promise.
    unsafe {
        to.cast::<u64>().write(first.to_memory());
        to.cast::<u64>().add(1).write(second.to_memory());
    }
}

/// Writes a data segment.
///
/// # Safety
/// As [`put`].
#[inline(always)]
pub(crate) unsafe fn put_data(to: *mut u8, sge: &Sge) {
    // SAFETY: the caller's promise.
    unsafe {
        put(
            to,
            DataWord::new(sge.length, sge.lkey),
            DataAddressWord(sge.addr),
        );
    }
}

/// Whether a length can stand in a data segment: not 0, which means 2 GiB, and not so large that it looks like inline data.
#[inline(always)]
const fn fits(length: u32) -> bool {
    length.wrapping_sub(1) < 0x7fff_ffff
}

#[cold]
const fn too_long(length: u32) -> Result<(), PostError> {
    if length == 0 {
        Ok(())
    } else {
        Err(PostError::SgeTooLong { length })
    }
}

impl sealed::Sealed for Sge {}

impl Payload for Sge {
    #[inline(always)]
    fn check<T: QpType>(&self, max_sge: u8, _: u16) -> Result<(), PostError> {
        // The WQE of a connection is always large enough for one entry, whatever was asked for.
        if !T::CONNECTED && max_sge == 0 {
            return Err(PostError::TooManySges { given: 1, limit: 0 });
        }
        if fits(self.length) {
            Ok(())
        } else {
            too_long(self.length)
        }
    }

    #[inline(always)]
    unsafe fn write<const AT: usize>(&self, ring: *mut u8, mask: u16, block: u16) -> u32 {
        if self.length == 0 {
            return (AT / 16) as u32;
        }
        // SAFETY: the caller's promise; the WQE's size was counted with at least one data segment.
        unsafe {
            put_data(place(ring, mask, block, AT), self);
        }
        (AT / 16) as u32 + 1
    }
}

impl sealed::Sealed for &[Sge] {}

impl Payload for &[Sge] {
    #[inline]
    fn check<T: QpType>(&self, max_sge: u8, _: u16) -> Result<(), PostError> {
        if self.len() > usize::from(max_sge) {
            return Err(PostError::TooManySges {
                given: self.len(),
                limit: max_sge.into(),
            });
        }
        for sge in *self {
            if !fits(sge.length) {
                too_long(sge.length)?;
            }
        }
        Ok(())
    }

    #[inline]
    unsafe fn write<const AT: usize>(&self, ring: *mut u8, mask: u16, block: u16) -> u32 {
        let mut at = AT;
        for sge in *self {
            if sge.length != 0 {
                // SAFETY: the caller's promise: at most `max_sge` segments.
                unsafe { put_data(place(ring, mask, block, at), sge) };
                at += 16;
            }
        }
        (at / 16) as u32
    }
}

impl<const N: usize> sealed::Sealed for &[Sge; N] {}

impl<const N: usize> Payload for &[Sge; N] {
    #[inline]
    fn check<T: QpType>(&self, max_sge: u8, max_inline: u16) -> Result<(), PostError> {
        self.as_slice().check::<T>(max_sge, max_inline)
    }

    #[inline]
    unsafe fn write<const AT: usize>(&self, ring: *mut u8, mask: u16, block: u16) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { self.as_slice().write::<AT>(ring, mask, block) }
    }
}

impl sealed::Sealed for Inline<'_> {}

impl Payload for Inline<'_> {
    #[inline(always)]
    fn check<T: QpType>(&self, _: u8, max_inline: u16) -> Result<(), PostError> {
        if self.0.len() > usize::from(max_inline) {
            return Err(PostError::InlineTooLong {
                given: self.0.len(),
                limit: max_inline.into(),
            });
        }
        Ok(())
    }

    #[inline(always)]
    unsafe fn write<const AT: usize>(&self, ring: *mut u8, mask: u16, block: u16) -> u32 {
        let data = self.0;
        let len = data.len();
        if len == 0 {
            return (AT / 16) as u32;
        }
        // SAFETY: the caller's promise; the header and `len` bytes, at most the inline limit, fit the largest WQE, and
        // what does not fit before the ring's end continues at its start.
        unsafe {
            let header = place(ring, mask, block, AT);
            header
                .cast::<u32>()
                .write(InlineWord::new(len as u32).to_memory());
            let to = header.add(InlineWord::SIZE);
            let end = ring.add((usize::from(mask) + 1) * BLOCK);
            let before_end = end as usize - to as usize;
            if len <= before_end {
                copy(data.as_ptr(), to, len);
            } else {
                wrap(data, to, before_end, ring);
            }
        }
        ((AT + InlineWord::SIZE + len).div_ceil(16)) as u32
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

/// Copies inline data that crosses the ring's end.
///
/// # Safety
/// `to` is `before_end` bytes before the ring's end, fewer than there are, and the rest fits at its start.
#[cold]
#[inline(never)]
unsafe fn wrap(data: &[u8], to: *mut u8, before_end: usize, ring: *mut u8) {
    // SAFETY: the caller's promise; the data is longer than what is left before the end.
    unsafe {
        core::ptr::copy_nonoverlapping(data.as_ptr(), to, before_end);
        let rest = data.as_ptr().add(before_end);
        core::ptr::copy_nonoverlapping(rest, ring, data.len().saturating_sub(before_end));
    }
}
