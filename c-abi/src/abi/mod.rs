//! The structures of `infiniband/verbs.h` and `rdma/rdma_cma.h`, as they lie in memory.
//!
//! Names, order and types of the fields are those of the headers of Debian 12's `libibverbs-dev` and `librdmacm-dev` (rdma-core
//! 44), and of newer ones for what those lack. [`layouts`] lists every structure with its offsets, for the test that compares them with the headers by the C compiler.

#![expect(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    reason = "names and meanings are those of the C headers"
)]

pub mod cma;
pub mod flow;
pub mod numbers;
pub mod objects;
pub mod ops;
pub mod requests;
pub mod work_queue;

/// Where a field of a structure lies.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Bytes before it.
    pub offset: usize,
    /// Its size in bytes.
    pub size: usize,
}

/// How a structure lies in memory.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// The structure's name in C, without `struct`.
    pub name: &'static str,
    /// Its size in bytes.
    pub size: usize,
    /// Its fields in order.
    pub fields: &'static [Field],
}

/// All structures of libibverbs and librdmacm that are declared here.
pub fn layouts() -> impl Iterator<Item = &'static Layout> {
    [
        objects::LAYOUTS,
        ops::LAYOUTS,
        requests::LAYOUTS,
        cma::LAYOUTS,
        flow::LAYOUTS,
        work_queue::LAYOUTS,
    ]
    .into_iter()
    .flatten()
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
use c_structures;
