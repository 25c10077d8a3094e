//! How the structures of the data path are written down: plain `repr(C)` structs of big-endian integers, which compile
//! to single loads, stores and byte swaps, with a [`Descriptor`](crate::layout::Descriptor) for rung 0.
//!
//! Their outside witness is not `mlx5_ifc.h`, which has none of them in 6.1, but the C structures of
//! `include/linux/mlx5/device.h` and `qp.h` in the same package.

/// Defines a structure. A field is named as in the C structure, or `rust_name = c_name`
/// (a literal for a path through nested structures); `reserved…` fields are padding.
macro_rules! wire {
    (
        $(#[$meta:meta])*
        pub struct $Name:ident: $c:literal, $size:literal {
            $( $(#[$field_meta:meta])* $f:ident $(= $c_name:tt)?: $T:ty, )*
        }
    ) => {
        $(#[$meta])*
        #[doc = concat!("\n`struct ", $c, "`, ", stringify!($size), " bytes.")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq,
            zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::KnownLayout, zerocopy::Immutable, zerocopy::Unaligned)]
        #[repr(C)]
        pub struct $Name {
            $( $(#[$field_meta])* pub $f: $T, )*
        }

        const _: () = assert!(size_of::<$Name>() == $size);

        impl $Name {
            /// Size in bytes.
            pub const SIZE: usize = $size;
        }

        impl Default for $Name {
            /// All bytes zero.
            #[inline]
            fn default() -> Self {
                zerocopy::FromZeros::new_zeroed()
            }
        }

        impl $crate::layout::Layout for $Name {
            const DESCRIPTOR: &'static $crate::layout::Descriptor = &$crate::layout::Descriptor {
                name: concat!("struct ", $c),
                size: $size,
                fields: &[$( $crate::layout::Field {
                    name: $crate::wire::wire!(@name $f $($c_name)?),
                    offset: core::mem::offset_of!($Name, $f) as u32 * 8,
                    width: size_of::<$T>() as u32 * 8,
                    kind: if size_of::<$T>() > 8 { $crate::layout::Kind::Bytes } else { $crate::layout::Kind::Bits },
                } ),*],
            };
        }
    };
    (@name $f:ident) => { stringify!($f) };
    (@name $f:ident $c_name:literal) => { $c_name };
    (@name $f:ident $c_name:ident) => { stringify!($c_name) };
}
pub(crate) use wire;
