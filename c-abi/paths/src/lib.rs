//! The files and interfaces that programs look for elsewhere than in libibverbs: a library for `LD_PRELOAD`.
//!
//! UCX and others read files of the kernel's RDMA drivers in `/sys/class/infiniband`, and libfabric looks for the ports'
//! addresses among those of the system's network interfaces. For devices of this library the kernel has neither. So
//! `bareverbs-run` puts this library in front of the C library:
//!
//! * Paths of the kernel's RDMA drivers ([`translate`]) are looked for in a folder that the bundle has, which the environment
//!   variable [`ROOT`] names. All others go to the system as they are.
//! * `getifaddrs` has the addresses of the ports behind those of the system, in processes that have loaded our libibverbs.
//!
//! Without the variable, nothing is different.

mod interfaces;
// The program of the unit tests keeps the C library's functions.
#[cfg(not(test))]
mod interposed;
mod next;
mod translate;

pub use interfaces::Answer;
pub use translate::{ROOT, translate};
