//! The definition of firmware structures: each is written down once, for four readers: the accessors that the driver
//! and the device model call, the comparison with the vendor's `mlx5_ifc.h` (rung 0), the decoder for bug reports, and
//! the documentation.
//!
//! Positions read as the manual prints them: the hexadecimal byte offset of a big-endian dword, then the bits
//! `high : low` inside it (bit 31 is the most significant). A 64-bit field is written `63:0` at its first byte.
//!
//! The `bitfield` crate numbers bits the same way, but it silently cuts off values that are too wide, walks bit by bit,
//! and cannot give out its field table; the table is what rung 0 compares, so it must come from the same line as the
//! accessor.

/// The content of a [`Field`].
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// A number of at most 64 bits.
    Bits,
    /// A byte array.
    Bytes,
    /// Another structure of this crate.
    Struct(&'static Descriptor),
    /// An array behind the fixed part whose length the message decides; the field's width is that of one element.
    Tail,
}

/// One field: its name in `mlx5_ifc.h`, and where it lies.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Name, as in `mlx5_ifc.h`.
    pub name: &'static str,
    /// Offset from the start of the structure, in bits, most significant bit first.
    pub offset: u32,
    /// Width in bits.
    pub width: u32,
    /// The kind of content.
    pub kind: Kind,
}

/// A structure: its name in `mlx5_ifc.h` without prefix and suffix, its size and its fields.
#[derive(Debug)]
pub struct Descriptor {
    /// `qpc` for `struct mlx5_ifc_qpc_bits`.
    pub name: &'static str,
    /// Size of the fixed part in bytes.
    pub size: usize,
    /// The named fields; bits between them are reserved.
    pub fields: &'static [Field],
    /// The accessors of the fields, in the same order.
    #[cfg(test)]
    pub(crate) accessors: &'static [Accessors],
}

/// The accessors of a field, on the bytes of its structure.
#[cfg(test)]
#[derive(Debug, Clone, Copy)]
pub(crate) enum Accessors {
    /// Of a number or a flag.
    Number {
        get: fn(&[u8]) -> u64,
        set: fn(&mut [u8], u64),
    },
    /// Of bytes and of a nested structure.
    Bytes {
        get: fn(&[u8]) -> &[u8],
        get_mut: fn(&mut [u8]) -> &mut [u8],
    },
    /// Of what follows the fixed part: the byte at which it starts.
    Tail(usize),
}

/// A firmware structure of fixed size.
pub trait Layout {
    /// Its description as data.
    const DESCRIPTOR: &'static Descriptor;
}

/// Reads a field: up to 32 bits inside one dword, or 64 bits from a dword boundary.
///
/// # Panics
/// If the field does not lie inside `bytes`; the layouts of this crate are checked when they are compiled.
#[must_use]
#[inline(always)]
pub const fn get(bytes: &[u8], offset: u32, width: u32) -> u64 {
    let at = (offset / 32 * 4) as usize;
    if width == 64 {
        return u64::from_be_bytes(*part(bytes, at));
    }
    let word = u32::from_be_bytes(*part(bytes, at));
    (word >> (32 - offset % 32 - width)) as u64 & mask(width)
}

/// Writes a field, leaving its neighbours alone.
///
/// # Panics
/// If the field does not lie inside `bytes`, or (in debug builds) if `value` does not fit into `width` bits. Release
/// builds keep the low bits.
#[inline(always)]
pub const fn set(bytes: &mut [u8], offset: u32, width: u32, value: u64) {
    let at = (offset / 32 * 4) as usize;
    if width == 64 {
        *part_mut(bytes, at) = value.to_be_bytes();
        return;
    }
    debug_assert!(value & !mask(width) == 0, "value too wide for its field");
    let shift = 32 - offset % 32 - width;
    let mask = mask(width) as u32;
    let place: &mut [u8; 4] = part_mut(bytes, at);
    let others = u32::from_be_bytes(*place) & !(mask << shift);
    *place = (others | (value as u32 & mask) << shift).to_be_bytes();
}

#[inline(always)]
const fn mask(width: u32) -> u64 {
    if width >= 64 {
        u64::MAX
    } else {
        (1 << width) - 1
    }
}

/// A field's name without the `r#` that Rust requires before its own keywords.
#[doc(hidden)]
#[must_use]
pub const fn field_name(ident: &'static str) -> &'static str {
    match ident.as_bytes() {
        [b'r', b'#', ..] => ident.split_at(2).1,
        _ => ident,
    }
}

/// Bit offset of bit `high` in the dword (or qword) at byte `at`.
#[doc(hidden)]
#[must_use]
pub const fn bit(at: u32, high: u32) -> u32 {
    at * 8 + if high > 31 { 63 } else { 31 } - high
}

/// The `N` bytes at `at`. The position is checked against the structure's size when the layout is compiled.
#[doc(hidden)]
#[must_use]
#[inline(always)]
pub const fn part<const N: usize>(bytes: &[u8], at: usize) -> &[u8; N] {
    match bytes.split_at(at).1.first_chunk() {
        Some(part) => part,
        None => unreachable!(),
    }
}

/// [`part`], to write to.
#[doc(hidden)]
#[must_use]
#[inline(always)]
pub const fn part_mut<const N: usize>(bytes: &mut [u8], at: usize) -> &mut [u8; N] {
    match bytes.split_at_mut(at).1.first_chunk_mut() {
        Some(part) => part,
        None => unreachable!(),
    }
}

/// Defines a structure: a transparent byte array with a getter and a setter per field, and its [`Descriptor`].
///
/// One line a field, named as in `mlx5_ifc.h`:
/// * `bits name, set_name: u8 @ 0x10 [31:24];` a number,
/// * `flag name, set_name @ 0x10 [31];` one bit,
/// * `bytes name, name_mut: 16 @ 0x10;` a byte array,
/// * `part name, name_mut: Ads @ 0x18;` a nested structure,
/// * `tail name: 64 @ 0x110;` what follows the fixed part, in elements of that many bits.
macro_rules! layout {
    (
        $(#[$meta:meta])*
        pub struct $Name:ident: $ifc:literal, $size:literal {
            $( $(#[$field_meta:meta])* $kind:ident $f:ident $(, $f_mut:ident)? $(: $T:tt)? @ $at:literal $([$($range:tt)*])? ; )*
        }
    ) => {
        $(#[$meta])*
        #[doc = concat!("\n`mlx5_ifc_", $ifc, "_bits`, ", stringify!($size), " bytes.")]
        #[derive(Clone, Copy, PartialEq, Eq,
            zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::KnownLayout, zerocopy::Immutable, zerocopy::Unaligned)]
        #[repr(transparent)]
        pub struct $Name(pub [u8; $size]);

        // The header spells some names with capitals (`atomic_req_8B_…`), and the names must stay comparable; the
        // `len` of a memory key is no container's.
        #[allow(non_snake_case, clippy::len_without_is_empty)]
        impl $Name {
            /// Size of the fixed part in bytes.
            pub const SIZE: usize = $size;
            /// All fields zero.
            pub const ZERO: Self = Self([0; $size]);

            $( $crate::layout::layout!(@accessor $(#[$field_meta])* $kind $f $(, $f_mut)? $(: $T)? @ $at $([$($range)*])?, $size); )*
        }

        impl Default for $Name {
            fn default() -> Self { Self::ZERO }
        }

        impl core::fmt::Debug for $Name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                $crate::layout::debug_fields(<Self as $crate::layout::Layout>::DESCRIPTOR, &self.0, f)
            }
        }

        impl $crate::layout::Layout for $Name {
            const DESCRIPTOR: &'static $crate::layout::Descriptor = &$crate::layout::Descriptor {
                name: $ifc,
                size: $size,
                fields: &[ $( $crate::layout::layout!(@field $kind $f $(: $T)? @ $at $([$($range)*])?) ),* ],
                #[cfg(test)]
                accessors: &[ $( $crate::layout::layout!(@accessors $Name $kind $f $(, $f_mut)? $(: $T)?) ),* ],
            };
        }
    };

    (@accessor $(#[$m:meta])* bits $f:ident, $f_mut:ident: $T:tt @ $at:literal [$hi:literal : $lo:literal], $size:literal) => {
        $(#[$m])*
        #[doc = concat!("`", stringify!($f), "`: byte ", stringify!($at), ", bits ", stringify!($hi), ":", stringify!($lo), ".")]
        #[must_use]
        pub const fn $f(&self) -> $T {
            const { assert!($at % 4 == 0 && $at + $hi / 32 * 4 + 4 <= $size && $hi >= $lo && $hi / 32 * $lo == 0) };
            $crate::layout::get(&self.0, $crate::layout::bit($at, $hi), $hi - $lo + 1) as $T
        }
        #[doc = concat!("Sets `", stringify!($f), "`.")]
        pub const fn $f_mut(&mut self, value: $T) -> &mut Self {
            $crate::layout::set(&mut self.0, $crate::layout::bit($at, $hi), $hi - $lo + 1, value as u64);
            self
        }
    };
    (@accessor $(#[$m:meta])* flag $f:ident, $f_mut:ident @ $at:literal [$hi:literal], $size:literal) => {
        $(#[$m])*
        #[doc = concat!("`", stringify!($f), "`: byte ", stringify!($at), ", bit ", stringify!($hi), ".")]
        #[must_use]
        pub const fn $f(&self) -> bool {
            const { assert!($at % 4 == 0 && $at + 4 <= $size && $hi < 32) };
            $crate::layout::get(&self.0, $crate::layout::bit($at, $hi), 1) != 0
        }
        #[doc = concat!("Sets `", stringify!($f), "`.")]
        pub const fn $f_mut(&mut self, value: bool) -> &mut Self {
            $crate::layout::set(&mut self.0, $crate::layout::bit($at, $hi), 1, value as u64);
            self
        }
    };
    (@accessor $(#[$m:meta])* bytes $f:ident, $f_mut:ident: $n:tt @ $at:literal, $size:literal) => {
        $(#[$m])*
        #[doc = concat!("`", stringify!($f), "`: ", stringify!($n), " bytes at ", stringify!($at), ".")]
        #[must_use]
        pub fn $f(&self) -> &[u8; $n] {
            const { assert!($at + $n <= $size) };
            $crate::layout::part(&self.0, $at)
        }
        #[doc = concat!("`", stringify!($f), "`, to write to.")]
        pub fn $f_mut(&mut self) -> &mut [u8; $n] { $crate::layout::part_mut(&mut self.0, $at) }
    };
    (@accessor $(#[$m:meta])* part $f:ident, $f_mut:ident: $T:tt @ $at:literal, $size:literal) => {
        $(#[$m])*
        #[doc = concat!("`", stringify!($f), "`: [`", stringify!($T), "`] at byte ", stringify!($at), ".")]
        #[must_use]
        pub fn $f(&self) -> &$T {
            const { assert!($at + $T::SIZE <= $size) };
            zerocopy::transmute_ref!($crate::layout::part::<{ $T::SIZE }>(&self.0, $at))
        }
        #[doc = concat!("`", stringify!($f), "`, to write to.")]
        pub fn $f_mut(&mut self) -> &mut $T {
            zerocopy::transmute_mut!($crate::layout::part_mut::<{ $T::SIZE }>(&mut self.0, $at))
        }
    };
    (@accessor $(#[$m:meta])* tail $f:ident: $width:tt @ $at:literal, $size:literal) => {
        #[doc = concat!("Byte at which `", stringify!($f), "` starts: behind the fixed part.")]
        pub const TAIL: usize = { assert!($at == $size); $at };
    };

    (@accessors $Name:ident bits $f:ident, $f_mut:ident: $T:tt) => {
        $crate::layout::Accessors::Number {
            get: |bytes| <$Name as zerocopy::FromBytes>::ref_from_bytes(bytes).unwrap().$f() as u64,
            set: |bytes, value| {
                <$Name as zerocopy::FromBytes>::mut_from_bytes(bytes).unwrap().$f_mut(value as $T);
            },
        }
    };
    (@accessors $Name:ident flag $f:ident, $f_mut:ident) => {
        $crate::layout::Accessors::Number {
            get: |bytes| u64::from(<$Name as zerocopy::FromBytes>::ref_from_bytes(bytes).unwrap().$f()),
            set: |bytes, value| {
                <$Name as zerocopy::FromBytes>::mut_from_bytes(bytes).unwrap().$f_mut(value != 0);
            },
        }
    };
    (@accessors $Name:ident bytes $f:ident, $f_mut:ident: $n:tt) => {
        $crate::layout::Accessors::Bytes {
            get: |bytes| <$Name as zerocopy::FromBytes>::ref_from_bytes(bytes).unwrap().$f(),
            get_mut: |bytes| <$Name as zerocopy::FromBytes>::mut_from_bytes(bytes).unwrap().$f_mut(),
        }
    };
    (@accessors $Name:ident part $f:ident, $f_mut:ident: $T:tt) => {
        $crate::layout::Accessors::Bytes {
            get: |bytes| &<$Name as zerocopy::FromBytes>::ref_from_bytes(bytes).unwrap().$f().0,
            get_mut: |bytes| &mut <$Name as zerocopy::FromBytes>::mut_from_bytes(bytes).unwrap().$f_mut().0,
        }
    };
    (@accessors $Name:ident tail $f:ident: $width:tt) => {
        $crate::layout::Accessors::Tail($Name::TAIL)
    };

    (@field bits $f:ident: $T:tt @ $at:literal [$hi:literal : $lo:literal]) => {
        $crate::layout::Field {
            name: $crate::layout::field_name(stringify!($f)), offset: $crate::layout::bit($at, $hi), width: $hi - $lo + 1, kind: $crate::layout::Kind::Bits,
        }
    };
    (@field flag $f:ident @ $at:literal [$hi:literal]) => {
        $crate::layout::Field {
            name: $crate::layout::field_name(stringify!($f)), offset: $crate::layout::bit($at, $hi), width: 1, kind: $crate::layout::Kind::Bits,
        }
    };
    (@field bytes $f:ident: $n:tt @ $at:literal) => {
        $crate::layout::Field { name: $crate::layout::field_name(stringify!($f)), offset: $at * 8, width: $n * 8, kind: $crate::layout::Kind::Bytes }
    };
    (@field part $f:ident: $T:tt @ $at:literal) => {
        $crate::layout::Field {
            name: $crate::layout::field_name(stringify!($f)), offset: $at * 8, width: $T::SIZE as u32 * 8,
            kind: $crate::layout::Kind::Struct(<$T as $crate::layout::Layout>::DESCRIPTOR),
        }
    };
    (@field tail $f:ident: $width:tt @ $at:literal) => {
        $crate::layout::Field { name: $crate::layout::field_name(stringify!($f)), offset: $at * 8, width: $width, kind: $crate::layout::Kind::Tail }
    };
}
pub(crate) use layout;

/// Prints the fields that are not zero.
pub(crate) fn debug_fields(
    of: &Descriptor,
    bytes: &[u8],
    f: &mut core::fmt::Formatter<'_>,
) -> core::fmt::Result {
    let mut out = f.debug_struct(of.name);
    for field in of.fields {
        let at = (field.offset / 8) as usize;
        match field.kind {
            Kind::Bits => {
                let value = get(bytes, field.offset, field.width);
                if value != 0 {
                    out.field(field.name, &format_args!("{value:#x}"));
                }
            }
            Kind::Bytes => {
                let value = &bytes[at..at + (field.width / 8) as usize];
                if value.iter().any(|&b| b != 0) {
                    out.field(field.name, &format_args!("{value:02x?}"));
                }
            }
            Kind::Struct(inner) => {
                let value = Nested {
                    of: inner,
                    bytes: &bytes[at..at + inner.size],
                };
                if value.bytes.iter().any(|&b| b != 0) {
                    out.field(field.name, &value);
                }
            }
            Kind::Tail => {}
        }
    }
    out.finish()
}

struct Nested<'a> {
    of: &'static Descriptor,
    bytes: &'a [u8],
}

impl core::fmt::Debug for Nested<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        debug_fields(self.of, self.bytes, f)
    }
}

#[cfg(test)]
mod tests;
