//! RDMA verbs and the RDMA connection manager on bare metal.
//!
//! This crate is the entry point: it re-exports the parts under the names that a user of libibverbs and librdmacm looks
//! for. All of them are `no_std` and allocate nothing.
//!
//! | module | what it is |
//! |---|---|
//! | [`verbs`] | the driver: [`Device`](verbs::device::Device), PD, MR, CQ, QP, SRQ, AH (libibverbs) |
//! | [`cm`] | the IB connection manager and the RDMA CM (librdmacm) |
//! | [`platform`] | the seam to implement where the library is to run |
//!
//! [`Error`] is any of their errors, for programs that pass errors on.
//!
//! What an image has no use for can be left out of it. All of these features are on unless they are turned off
//! (`default-features = false`):
//!
//! | feature | what goes without it |
//! |---|---|
//! | `datagrams` | ids for datagrams (`RDMA_PS_UDP`, `RDMA_PS_IPOIB`) and multicast groups; requests for datagram services are not answered |
//! | `infiniband` | InfiniBand's link layer: a port of that kind does not come up |
//! | `keep-alive` | keep-alives on idle connections |
//! | `uc` | ids with UC QPs |
//! | `xrc` | extended reliable connections |
//!
//! On Linux, `bareverbs-node` opens a device with an address and the connection manager in one call, and `bareverbs-vfio`
//! implements the seam over VFIO; for another kernel
//! `PORTING.md` is the way, and [`verbs::conformance`] the test. `examples/rping` is the whole way from a BAR to a
//! connection, on two device models in one process.
#![no_std]
#![forbid(unsafe_code)]

mod error;

pub use bareverbs_cm as cm;
pub use bareverbs_core as verbs;
pub use bareverbs_core::platform;
pub use error::Error;

// The program in the README is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
