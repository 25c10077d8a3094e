//! The layout of a structure of C, and the macro that declares structures with it.

/// The place of a field in its structure.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Bytes before it.
    pub offset: usize,
    /// Its size in bytes.
    pub size: usize,
}

/// The layout of a structure in memory.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// The structure's name in C, without `struct`.
    pub name: &'static str,
    /// Its size in bytes.
    pub size: usize,
    /// Its fields in order.
    pub fields: &'static [Field],
}

/// Declares structures with C's layout, and their table `LAYOUTS`.
macro_rules! c_structures {
    ($(struct $name:ident { $($field:ident: $type:ty,)* })*) => {
        $(
            #[repr(C)]
            #[derive(Clone, Copy)]
            pub struct $name {
                $(pub $field: $type,)*
            }
        )*

        /// The structures of this module.
        pub const LAYOUTS: &[$crate::abi::Layout] = &[$(
            $crate::abi::Layout {
                name: stringify!($name),
                size: size_of::<$name>(),
                fields: &[$(
                    $crate::abi::Field {
                        name: stringify!($field),
                        offset: core::mem::offset_of!($name, $field),
                        size: size_of::<$type>(),
                    },
                )*],
            },
        )*];
    };
}
pub(super) use c_structures;
