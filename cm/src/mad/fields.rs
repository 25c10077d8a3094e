//! Bit fields of a MAD and the macro that turns a table of them into a message type.
//!
//! The offsets in the tables are those of the IBTA's tables: a byte in the CM's 232 bytes of data, a bit in that byte
//! counted from the most significant one, and a width.

use super::{DATA, MAD_LEN};

/// The dword at byte `at`.
#[inline(always)]
const fn dword(mad: &[u8; MAD_LEN], at: usize) -> u32 {
    u32::from_be_bytes([mad[at], mad[at + 1], mad[at + 2], mad[at + 3]])
}

#[inline(always)]
const fn put_dword(mad: &mut [u8; MAD_LEN], at: usize, value: u32) {
    [mad[at], mad[at + 1], mad[at + 2], mad[at + 3]] = value.to_be_bytes();
}

/// Reads `W` bits at bit `BIT` of the MAD. Everything is constant at compile time, so it ends as one load and a shift.
#[inline(always)]
pub(super) const fn get<const BIT: usize, const W: usize>(mad: &[u8; MAD_LEN]) -> u64 {
    if BIT % 32 + W <= 32 {
        let shift = 32 - BIT % 32 - W;
        return (dword(mad, BIT / 32 * 4) >> shift) as u64 & (u64::MAX >> (64 - W));
    }
    let last = (BIT + W - 1) / 8;
    let mut value = 0u64;
    let mut byte = BIT / 8;
    while byte <= last {
        value = (value << 8) | mad[byte] as u64;
        byte += 1;
    }
    (value >> ((last + 1) * 8 - (BIT + W))) & (u64::MAX >> (64 - W))
}

/// Sets `W` bits at bit `BIT` of the MAD; the field must be zero before. Returns false when `value` does not fit.
#[inline(always)]
#[must_use]
pub(super) fn put<const BIT: usize, const W: usize>(mad: &mut [u8; MAD_LEN], value: u64) -> bool {
    let fits = value & !(u64::MAX >> (64 - W)) == 0;
    // Most fields lie in one dword, which is one load and one store.
    if BIT % 32 + W <= 32 {
        let (at, shift) = (BIT / 32 * 4, 32 - BIT % 32 - W);
        let beside = if W == 32 { 0 } else { dword(mad, at) };
        put_dword(mad, at, beside | (value as u32) << shift);
        return fits;
    }
    let first = BIT / 8;
    let last = (BIT + W - 1) / 8;
    let mut rest = value << ((last + 1) * 8 - (BIT + W));
    let mut byte = last;
    loop {
        mad[byte] |= rest as u8;
        rest >>= 8;
        if byte == first {
            break;
        }
        byte -= 1;
    }
    fits
}

/// The `N` bytes at offset `D` of the CM data.
#[inline(always)]
pub(super) fn bytes<const D: usize, const N: usize>(mad: &[u8; MAD_LEN]) -> [u8; N] {
    const { assert!(DATA + D + N <= MAD_LEN) };
    mad[DATA + D..].first_chunk().copied().unwrap_or([0; N])
}

/// Writes the `N` bytes at offset `D` of the CM data.
#[inline(always)]
pub(super) fn put_bytes<const D: usize, const N: usize>(mad: &mut [u8; MAD_LEN], bytes: &[u8; N]) {
    const { assert!(DATA + D + N <= MAD_LEN) };
    if let Some(at) = mad[DATA + D..].first_chunk_mut() {
        *at = *bytes;
    }
}

/// Declares a message: its attribute, its bit fields, its byte arrays and where its private data lies.
///
/// The struct that comes out is the plain representation: `parse` reads it from a checked MAD, `emit` writes all 256
/// bytes of one.
macro_rules! message {
    (
        $(#[$doc:meta])*
        $name:ident, attribute $attribute:ident, private $from:literal,
        bits { $( $(#[$fdoc:meta])* $field:ident: $ty:ty = $byte:literal, $bit:literal, $width:literal; )* }
        bytes { $( $(#[$adoc:meta])* $array:ident: $len:literal = $at:literal; )* }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name<'a> {
            $( $(#[$fdoc])* pub $field: $ty, )*
            $( $(#[$adoc])* pub $array: [u8; $len], )*
            /// The consumer's bytes. A parsed message always has the whole field, zero padded: the length that was
            /// given at the other end is not on the wire.
            pub private_data: &'a [u8],
        }

        impl<'a> $name<'a> {
            /// The most private data that the message carries.
            pub const PRIVATE_DATA_MAX: usize = $crate::mad::DATA_LEN - $from;

            /// The message with all fields zero and no private data.
            pub const ZERO: $name<'static> = $name { $( $field: 0, )* $( $array: [0; $len], )* private_data: &[] };

            /// Reads the fields of a MAD that is known to carry this message.
            #[inline(always)]
            pub(crate) fn read(mad: &'a [u8; $crate::mad::MAD_LEN]) -> Self {
                Self {
                    $( $field: $crate::mad::fields::get::<{ ($crate::mad::DATA + $byte) * 8 + $bit }, $width>(mad) as $ty, )*
                    $( $array: $crate::mad::fields::bytes::<$at, $len>(mad), )*
                    private_data: &mad[$crate::mad::DATA + $from..],
                }
            }

            /// Reads the message from a MAD, which must be one of this kind.
            pub fn parse(mad: &$crate::mad::Mad<'a>) -> Result<Self, $crate::mad::MadError> {
                mad.expect($crate::mad::Attribute::$attribute)?;
                Ok(Self::read(mad.bytes()))
            }

            /// Writes the whole MAD, header and padding included.
            #[inline]
            pub fn emit(
                &self,
                transaction_id: u64,
                mad: &mut [u8; $crate::mad::MAD_LEN],
            ) -> Result<(), $crate::mad::MadError> {
                if self.private_data.len() > Self::PRIVATE_DATA_MAX {
                    return Err($crate::mad::MadError::PrivateDataTooLong {
                        len: self.private_data.len(),
                        max: Self::PRIVATE_DATA_MAX,
                    });
                }
                $crate::mad::Header::send($crate::mad::Attribute::$attribute, transaction_id).emit(mad);
                $(
                    if !$crate::mad::fields::put::<{ ($crate::mad::DATA + $byte) * 8 + $bit }, $width>(mad, u64::from(self.$field)) {
                        return Err($crate::mad::MadError::FieldTooWide { field: stringify!($field), bits: $width });
                    }
                )*
                $( $crate::mad::fields::put_bytes::<$at, $len>(mad, &self.$array); )*
                let start = $crate::mad::DATA + $from;
                mad[start..start + self.private_data.len()].copy_from_slice(self.private_data);
                Ok(())
            }
        }

        impl Default for $name<'_> {
            fn default() -> Self {
                Self::ZERO
            }
        }
    };
}
pub(super) use message;
