//! The data of a send work request in a WQE: data segments, or the bytes themselves.

use crate::memory::send_ring::Wqe;
use crate::types::sge::Sge;
use crate::verbs::qp::kind::QpType;
use crate::verbs::qp::wr::PostError;
use bareverbs_firmware_cmds::wqe::InlineWord;

pub(super) mod sealed {
    pub trait Sealed {}
}

/// Data of a work request: scatter/gather entries or [`Inline`] bytes.
pub trait Payload: sealed::Sealed {
    /// Whether the queue takes it.
    #[doc(hidden)]
    fn check<T: QpType>(&self, max_sge: u8, max_inline: u16) -> Result<(), PostError>;
    /// Writes the segments from byte `AT` of the WQE on; returns the size of the whole WQE in units of 16 bytes. The payload
    /// was checked against the queue's limits.
    #[doc(hidden)]
    fn write<const AT: usize>(&self, wqe: Wqe<'_>) -> u32;
}

/// Bytes to copy into the work queue.
#[derive(Debug, Clone, Copy)]
pub struct Inline<'a>(pub &'a [u8]);

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
    fn write<const AT: usize>(&self, wqe: Wqe<'_>) -> u32 {
        if self.length == 0 {
            return (AT / 16) as u32;
        }
        wqe.put_data_at::<AT>(self);
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
    fn write<const AT: usize>(&self, wqe: Wqe<'_>) -> u32 {
        let mut at = AT;
        for sge in *self {
            if sge.length != 0 {
                wqe.put_data(at, sge);
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
    fn write<const AT: usize>(&self, wqe: Wqe<'_>) -> u32 {
        self.as_slice().write::<AT>(wqe)
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
    fn write<const AT: usize>(&self, wqe: Wqe<'_>) -> u32 {
        let len = self.0.len();
        if len == 0 {
            return (AT / 16) as u32;
        }
        wqe.put_inline::<AT>(self.0);
        ((AT + InlineWord::SIZE + len).div_ceil(16)) as u32
    }
}
