//! The data of a send work request in a WQE: data segments, or the bytes themselves.

use crate::memory::segment::key_and_length;
use crate::memory::send_ring::Wqe;
use crate::types::sge::Sge;
use crate::verbs::qp::queue::wr::{PostError, SendData, given};
use crate::verbs::qp::route::service::QpType;
use bareverbs_firmware_cmds::numbers::LKey;
use bareverbs_firmware_cmds::wqe::InlineWord;

pub(in crate::verbs::qp) mod sealed {
    pub trait Sealed {}
}

/// Data of a work request: scatter/gather entries or [`Inline`] bytes.
pub trait Payload: sealed::Sealed + Copy {
    /// `true` if it is in the WQE itself.
    #[doc(hidden)]
    const INLINE: bool = false;
    /// It in two registers.
    #[doc(hidden)]
    type Parts: Copy;
    #[doc(hidden)]
    fn parts(self) -> Self::Parts;
    #[doc(hidden)]
    fn of(parts: Self::Parts) -> Self;
    /// Returns `true` if the queue takes it, and [`write_usual`](Self::write_usual) can write it there. `short_inline` is not
    /// above [`Wqe::SHORT`].
    #[doc(hidden)]
    fn is_usual<T: QpType>(self, at: usize, max_sge: u8, short_inline: usize, wqe: Wqe<'_>)
    -> bool;
    /// As [`write`](Self::write), for what is usual in this WQE.
    #[doc(hidden)]
    fn write_usual(self, at: usize, wqe: Wqe<'_>) -> u32;
    /// Why the queue does not take it.
    #[doc(hidden)]
    fn check<T: QpType>(self, max_sge: u8, max_inline: u16) -> Result<(), PostError>;
    /// Writes the segments from byte `at` of the WQE on; returns the size of the whole WQE in units of 16 bytes. The payload
    /// was checked against the queue's limits.
    #[doc(hidden)]
    fn write(self, at: usize, wqe: Wqe<'_>) -> u32;
    /// The same as a value.
    #[doc(hidden)]
    fn as_data(&self) -> SendData<'_> {
        SendData::Sges(&[])
    }
}

/// Bytes to copy into the work queue.
#[derive(Debug, Clone, Copy)]
pub struct Inline<'a>(pub &'a [u8]);

/// Refuses a length that would look like inline data.
const fn check_length(length: u32) -> Result<(), PostError> {
    if length >> 31 == 0 {
        Ok(())
    } else {
        Err(PostError::SgeTooLong { length })
    }
}

/// No data, of a request that gets it later or takes none.
#[derive(Debug, Clone, Copy)]
pub(in crate::verbs::qp) struct Nothing;

impl sealed::Sealed for Nothing {}

impl Payload for Nothing {
    type Parts = ();

    fn parts(self) {}

    fn of((): ()) -> Self {
        Self
    }

    fn is_usual<T: QpType>(self, _: usize, _: u8, _: usize, _: Wqe<'_>) -> bool {
        true
    }

    #[inline(always)]
    fn write_usual(self, at: usize, _: Wqe<'_>) -> u32 {
        (at / 16) as u32
    }

    fn check<T: QpType>(self, _: u8, _: u16) -> Result<(), PostError> {
        Ok(())
    }

    fn write(self, at: usize, wqe: Wqe<'_>) -> u32 {
        self.write_usual(at, wqe)
    }
}

impl sealed::Sealed for Sge {}

impl Payload for Sge {
    type Parts = (u64, u64);

    #[inline(always)]
    fn parts(self) -> (u64, u64) {
        (self.addr, key_and_length(&self))
    }

    fn of((addr, rest): (u64, u64)) -> Self {
        Self::new(addr, rest as u32, LKey((rest >> 32) as u32))
    }

    /// Not without bytes: a length of 0 means 2 GiB to the device. And not around the ring's end.
    #[inline(always)]
    fn is_usual<T: QpType>(self, at: usize, max_sge: u8, _: usize, wqe: Wqe<'_>) -> bool {
        // The WQE of a connection is always large enough for one entry, whatever was asked for.
        (T::CONNECTED || max_sge != 0)
            && (key_and_length(&self) as u32).cast_signed() > 0
            // An initiator's second block was seen to be there.
            && (T::DYNAMIC || wqe.reaches(at))
    }

    #[inline(always)]
    fn write_usual(self, at: usize, wqe: Wqe<'_>) -> u32 {
        wqe.put_data_at(at, &self);
        (at / 16) as u32 + 1
    }

    fn check<T: QpType>(self, max_sge: u8, _: u16) -> Result<(), PostError> {
        if !T::CONNECTED && max_sge == 0 {
            return Err(PostError::TooManySges { given: 1, limit: 0 });
        }
        check_length(self.length)
    }

    fn as_data(&self) -> SendData<'_> {
        SendData::Sges(core::slice::from_ref(self))
    }

    fn write(self, at: usize, wqe: Wqe<'_>) -> u32 {
        (&[self]).write(at, wqe)
    }
}

impl sealed::Sealed for &[Sge] {}

impl Payload for &[Sge] {
    type Parts = Self;

    #[inline(always)]
    fn parts(self) -> Self {
        self
    }

    fn of(parts: Self) -> Self {
        parts
    }

    #[inline]
    fn is_usual<T: QpType>(self, _: usize, max_sge: u8, _: usize, _: Wqe<'_>) -> bool {
        self.len() <= usize::from(max_sge) && self.iter().all(|sge| sge.length >> 31 == 0)
    }

    #[inline]
    fn write_usual(self, at: usize, wqe: Wqe<'_>) -> u32 {
        let mut at = at;
        for sge in self {
            if sge.length != 0 {
                wqe.put_data(at, sge);
                at += 16;
            }
        }
        (at / 16) as u32
    }

    fn check<T: QpType>(self, max_sge: u8, _: u16) -> Result<(), PostError> {
        if self.len() > usize::from(max_sge) {
            return Err(PostError::TooManySges {
                given: given(self.len()),
                limit: max_sge.into(),
            });
        }
        self.iter().try_for_each(|sge| check_length(sge.length))
    }

    fn as_data(&self) -> SendData<'_> {
        SendData::Sges(self)
    }

    fn write(self, at: usize, wqe: Wqe<'_>) -> u32 {
        self.write_usual(at, wqe)
    }
}

impl<const N: usize> sealed::Sealed for &[Sge; N] {}

impl<const N: usize> Payload for &[Sge; N] {
    type Parts = Self;

    #[inline(always)]
    fn parts(self) -> Self {
        self
    }

    fn of(parts: Self) -> Self {
        parts
    }

    #[inline]
    fn is_usual<T: QpType>(
        self,
        at: usize,
        max_sge: u8,
        short_inline: usize,
        wqe: Wqe<'_>,
    ) -> bool {
        self.as_slice()
            .is_usual::<T>(at, max_sge, short_inline, wqe)
    }

    #[inline]
    fn write_usual(self, at: usize, wqe: Wqe<'_>) -> u32 {
        self.as_slice().write_usual(at, wqe)
    }

    fn check<T: QpType>(self, max_sge: u8, max_inline: u16) -> Result<(), PostError> {
        self.as_slice().check::<T>(max_sge, max_inline)
    }

    fn as_data(&self) -> SendData<'_> {
        SendData::Sges(self.as_slice())
    }

    fn write(self, at: usize, wqe: Wqe<'_>) -> u32 {
        self.as_slice().write(at, wqe)
    }
}

impl sealed::Sealed for Inline<'_> {}

impl Inline<'_> {
    /// The size of a WQE with so many bytes from byte `at` on.
    #[inline(always)]
    const fn size(at: usize, len: usize) -> u32 {
        (len as u32 + (at + InlineWord::SIZE + 15) as u32) >> 4
    }
}

impl Payload for Inline<'_> {
    const INLINE: bool = true;
    type Parts = Self;

    #[inline(always)]
    fn parts(self) -> Self {
        self
    }

    fn of(parts: Self) -> Self {
        parts
    }

    /// Not without bytes, which need no header, not many, and not around the ring's end.
    #[inline(always)]
    fn is_usual<T: QpType>(self, at: usize, _: u8, short_inline: usize, wqe: Wqe<'_>) -> bool {
        let len = self.0.len();
        len.wrapping_sub(1) < short_inline && wqe.has_room(at, len)
    }

    #[inline(always)]
    fn write_usual(self, at: usize, wqe: Wqe<'_>) -> u32 {
        wqe.put_inline(at, self.0);
        Self::size(at, self.0.len())
    }

    fn check<T: QpType>(self, _: u8, max_inline: u16) -> Result<(), PostError> {
        if self.0.len() > usize::from(max_inline) {
            return Err(PostError::InlineTooLong {
                given: given(self.0.len()),
                limit: max_inline,
            });
        }
        Ok(())
    }

    fn as_data(&self) -> SendData<'_> {
        SendData::Inline(self.0)
    }

    fn write(self, at: usize, wqe: Wqe<'_>) -> u32 {
        match self.0 {
            [] => (at / 16) as u32,
            data => {
                wqe.put_long_inline(at, data);
                Self::size(at, data.len())
            }
        }
    }
}
