//! The definition of the data path's words: integers of 8, 32 or 64 bits that the device reads or writes
//! big-endian, with the fields in them as `bitfield` accessors, which compile to shifts and masks.
//!
//! The same lines make the accessors that driver and model run and a [`WordDescriptor`] for rung 0: every field is
//! compared with the member of the vendor's structure that it lies in, and with what the vendor's own functions write.

/// A word of a structure in memory or of a register.
pub trait Word: Copy {
    /// The integer that holds it.
    type Raw: Copy;

    /// Byte in the structure at which it starts.
    const OFFSET: usize;
    /// The description that rung 0 compares.
    const DESCRIPTOR: &'static WordDescriptor;

    /// From the integer as it lies in memory.
    fn from_memory(raw: Self::Raw) -> Self;

    /// The integer as it lies in memory.
    fn to_memory(self) -> Self::Raw;

    /// The word of a structure, or of its first `N` bytes.
    fn read<const N: usize>(structure: &[u8; N]) -> Self;

    /// Puts the word into a structure, or into its first `N` bytes.
    fn write<const N: usize>(self, structure: &mut [u8; N]);
}

/// A field of a word.
#[derive(Debug)]
pub struct WordField {
    /// Name of its getter.
    pub name: &'static str,
    /// Most significant bit.
    pub high: u32,
    /// Least significant bit.
    pub low: u32,
    /// Member of the C structure that it is, or lies in.
    pub member: &'static str,
    /// The getter, on the word as a number.
    pub get: fn(u64) -> u64,
    /// The setter: the word as a number with this field changed.
    pub set: fn(u64, u64) -> u64,
}

/// A word as data.
#[derive(Debug)]
pub struct WordDescriptor {
    /// Name of its type.
    pub name: &'static str,
    /// The structure that it is in, as in `data/mlx5_ifc.tsv`; empty for a word that stands alone.
    pub structure: &'static str,
    /// Byte in the structure at which it starts.
    pub offset: usize,
    /// Its size in bits.
    pub width: u32,
    /// Its fields.
    pub fields: &'static [WordField],
}

impl WordDescriptor {
    /// Bit of the structure at which a field starts, counted as in `mlx5_ifc.h`.
    #[must_use]
    pub const fn bit_offset(&self, field: &WordField) -> u32 {
        self.offset as u32 * 8 + self.width - 1 - field.high
    }
}

/// The types that fields have, as numbers: for [`WordField::get`] and [`WordField::set`].
pub(crate) trait FieldValue {
    fn from_number(number: u64) -> Self;
    fn number(self) -> u64;
}

impl FieldValue for bool {
    fn from_number(number: u64) -> Self {
        number & 1 != 0
    }

    fn number(self) -> u64 {
        self.into()
    }
}

macro_rules! field_value {
    ($($T:ty),*) => {$(
        impl FieldValue for $T {
            fn from_number(number: u64) -> Self {
                number as Self
            }

            fn number(self) -> u64 {
                self as u64
            }
        }
    )*};
}
field_value!(u8, u16, u32, u64);

/// Defines words. One line a field: type, getter, setter, bits, and the C member where it has another name:
///
/// ```text
/// pub struct DataWord(u64): "struct mlx5_wqe_data_seg" @ 0x00 {
///     u32 byte_count, set_byte_count: 63, 32;
///     u32 lkey, set_lkey: 31, 0;
/// }
/// ```
macro_rules! words {
    ($(
        $(#[$meta:meta])*
        pub struct $Name:ident($T:ident): $structure:literal @ $at:literal {
            $( $(#[$field_meta:meta])* $F:ident $get:ident, $set:ident: $high:literal $(, $low:literal)? $(=> $member:tt)?; )*
        }
    )*) => {$(
        bitfield::bitfield! {
            $(#[$meta])*
            #[doc = $crate::word::words!(@place $structure, $at)]
            #[derive(Clone, Copy, PartialEq, Eq, Default)]
            #[repr(transparent)]
            pub struct $Name(pub $T);
            impl Debug;
            $(
                $(#[$field_meta])*
                #[doc = concat!("\n", $crate::word::words!(@doc $get $($member)?), ", ",
                    $crate::word::words!(@bits $high $(, $low)?), ".")]
                #[inline(always)]
                pub $F, $get, $set: $high $(, $low)?;
            )*
        }

        impl $Name {
            /// Size in bytes.
            pub const SIZE: usize = size_of::<$T>();
        }

        impl $crate::word::Word for $Name {
            type Raw = $T;

            const OFFSET: usize = $at;
            const DESCRIPTOR: &'static $crate::word::WordDescriptor = &$crate::word::WordDescriptor {
                name: stringify!($Name),
                structure: $structure,
                offset: $at,
                width: <$T>::BITS,
                fields: &[$( $crate::word::WordField {
                    name: stringify!($get),
                    high: $high,
                    low: $crate::word::words!(@low $high $(, $low)?),
                    member: $crate::word::words!(@member $get $($member)?),
                    get: |word| $crate::word::FieldValue::number($Name(word as $T).$get()),
                    set: |word, value| {
                        let mut word = $Name(word as $T);
                        word.$set($crate::word::FieldValue::from_number(value));
                        word.0.into()
                    },
                } ),*],
            };

            #[inline(always)]
            fn from_memory(raw: $T) -> Self {
                Self(<$T>::from_be(raw))
            }

            #[inline(always)]
            fn to_memory(self) -> $T {
                self.0.to_be()
            }

            #[inline]
            fn read<const N: usize>(structure: &[u8; N]) -> Self {
                const { assert!($at + size_of::<$T>() <= N) };
                Self(<$T>::from_be_bytes(*$crate::layout::part(structure, $at)))
            }

            #[inline]
            fn write<const N: usize>(self, structure: &mut [u8; N]) {
                const { assert!($at + size_of::<$T>() <= N) };
                *$crate::layout::part_mut(structure, $at) = self.0.to_be_bytes();
            }
        }
    )*};
    (@place "", $at:literal) => { "" };
    (@place $structure:literal, $at:literal) => { concat!("\nIn `", $structure, "` at byte ", stringify!($at), ".") };
    (@doc $get:ident) => { concat!("`", stringify!($get), "`") };
    (@doc $get:ident $member:literal) => { concat!("In `", $member, "`") };
    (@doc $get:ident $member:ident) => { concat!("In `", stringify!($member), "`") };
    (@bits $high:literal) => { concat!("bit ", stringify!($high)) };
    (@bits $high:literal, $low:literal) => { concat!("bits ", stringify!($high), ":", stringify!($low)) };
    (@low $high:literal) => { $high };
    (@low $high:literal, $low:literal) => { $low };
    (@member $get:ident) => { stringify!($get) };
    (@member $get:ident $member:literal) => { $member };
    (@member $get:ident $member:ident) => { stringify!($member) };
}
pub(crate) use words;
