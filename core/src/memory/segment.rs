//! Segments of WQEs: 16 bytes, written as two words of 8.

// UNSAFETY: WQEs are written to raw memory shared with the device.
#![expect(unsafe_code)]

use bareverbs_firmware_cmds::word::Word;
use bareverbs_firmware_cmds::wqe::{DataAddressWord, DataWord, SEGMENT_UNIT};

use crate::types::sge::Sge;

/// Writes a segment of two words.
///
/// # Safety
/// `to` points to 16 bytes of a ring of the caller, aligned to 16, that belong to the host.
#[inline(always)]
pub(super) unsafe fn put<A, B>(to: *mut u8, first: A, second: B)
where
    A: Word<Raw = u64>,
    B: Word<Raw = u64>,
{
    const { assert!(A::OFFSET % SEGMENT_UNIT == 0 && B::OFFSET % SEGMENT_UNIT == 8) };
    // SAFETY: the caller's promise.
    unsafe {
        to.cast::<u64>().write(first.to_memory());
        to.cast::<u64>().add(1).write(second.to_memory());
    }
}

/// An entry's key above its length, loaded at once.
#[inline(always)]
pub(crate) fn key_and_length(sge: &Sge) -> u64 {
    const {
        assert!(core::mem::offset_of!(Sge, length) == 8 && core::mem::offset_of!(Sge, lkey) == 12);
        assert!(align_of::<Sge>() == 8);
    }
    let sge: *const Sge = sge;
    // SAFETY: both lie in the second eight bytes, which are aligned.
    let both = unsafe { sge.cast::<u64>().add(1).read() };
    if cfg!(target_endian = "little") {
        both
    } else {
        both.rotate_left(32)
    }
}

/// Writes a data segment.
///
/// # Safety
/// As [`put`].
#[inline(always)]
pub(super) unsafe fn put_data(to: *mut u8, sge: &Sge) {
    let length = DataWord(key_and_length(sge).rotate_left(32));
    // SAFETY: the caller's promise.
    unsafe { put(to, length, DataAddressWord(sge.addr)) };
}
