//! The IB connection manager and the RDMA CM, `no_std` and without an allocator.
#![no_std]
#![forbid(unsafe_code)]

pub mod engine;
pub mod mad;
pub mod rdma;
