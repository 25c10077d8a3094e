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
mod layout;
pub mod numbers;
pub mod objects;
pub mod ops;
pub mod requests;

pub use layout::{Field, Layout};

/// All structures of libibverbs and librdmacm that are declared here.
pub fn layouts() -> impl Iterator<Item = &'static Layout> {
    [
        objects::LAYOUTS,
        ops::LAYOUTS,
        requests::LAYOUTS,
        cma::LAYOUTS,
        flow::LAYOUTS,
    ]
    .into_iter()
    .flatten()
}
