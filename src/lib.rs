//! RDMA verbs and the RDMA connection manager on bare metal.
//!
//! This crate is the front door: it re-exports the parts under the names that a user of libibverbs and librdmacm looks
//! for. All of them are `no_std` and allocate nothing.
//!
//! | module | what it is |
//! |---|---|
//! | [`verbs`] | the driver: [`Device`](verbs::device::Device), PD, MR, CQ, QP, SRQ, AH (libibverbs) |
//! | [`cm`] | the IB connection manager and the RDMA CM (librdmacm) |
//! | [`platform`] | the seam to implement where the library is to run |
//!
//! On Linux, `bareverbs-vfio` implements the seam over VFIO; for another kernel
//! [`PORTING.md`](https://github.com/bareverbs/bareverbs/blob/main/PORTING.md) is the way, and [`verbs::conformance`] the test. `examples/rping` is the whole way from a BAR to a
//! connection, on two device models in one process.
#![no_std]
#![forbid(unsafe_code)]

pub use bareverbs_cm as cm;
pub use bareverbs_core as verbs;
pub use bareverbs_core::platform;
