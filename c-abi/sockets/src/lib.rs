//! Ordinary sockets over RDMA: a library for `LD_PRELOAD`.
//!
//! `bareverbs-run --sockets` puts it in front of the C library. A program's socket stays a socket of the system's; when it is
//! bound or connected to an address of our ports' networks, or bound to all addresses, it gets an rsocket besides
//! (`table`), and calls go there. So flags, and what is not interposed, stay the system's.
//!
//! * What is bound to all addresses is on both networks: connections and datagrams of both are accepted.
//! * What connects to an address of our networks tries RDMA, and the system's network if that fails, as librdmacm's
//!   preload library has it.
//! * Everything else (loopback, other networks, Unix sockets) is the system's.
//!
//! Calls that wait can be cancelled (`pthread_cancel`), as in the C library: nothing is to be dropped where they wait, and
//! what has to be dropped afterwards is lent to the thread (`cancel::holding`).
//!
//! In a process that never uses an address of our networks, and binds no socket to all addresses, our libraries are not
//! even loaded.

pub mod data;
pub mod epoll;
pub mod names;
pub mod several;
pub mod wait;

mod address;
#[path = "../../src/process/cancel.rs"]
#[allow(
    dead_code,
    reason = "the C library's functions are called by others' names here"
)]
mod cancel;
mod interest;
#[path = "../../paths/src/next.rs"]
mod next;
mod rdma;
mod real;
mod sets;
mod table;
