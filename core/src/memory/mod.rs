//! Memory that driver and device share: how it is reached, in which order, and what lies in it.

pub(crate) mod blue_flame;
pub(crate) mod cqe_ring;
pub(crate) mod dma;
pub(crate) mod eqe_ring;
mod kept_block;
pub(crate) mod record;
pub(crate) mod recv_ring;
pub(crate) mod ring_pages;
#[cfg(test)]
mod ring_tests;
mod segment;
pub(crate) mod send_ring;
pub(crate) mod slots;
pub(crate) mod tables;
