//! Memory that driver and device share: how it is reached, in which order, and what lies in it.

pub(crate) mod arm;
pub(crate) mod blue_flame;
pub(crate) mod cqe_ring;
pub(crate) mod dma;
pub(crate) mod eqe_ring;
mod kept_block;
#[cfg(all(test, loom))]
mod loom_tests;
pub(crate) mod prefetch;
pub(crate) mod record;
pub(crate) mod recv_ring;
pub(crate) mod ring_pages;
#[cfg(all(test, not(loom)))]
mod ring_tests;
pub(crate) mod segment;
pub(crate) mod send_ring;
pub(crate) mod session_ring;
pub mod slots;
mod sync;
pub(crate) mod tables;
#[cfg(test)]
mod test_platform;
pub(crate) mod waiting_task;

/// Marks the branch that calls it as rarely taken, as `core::hint::cold_path` does from Rust 1.95 on.
#[cold]
#[inline]
fn cold_path() {}
