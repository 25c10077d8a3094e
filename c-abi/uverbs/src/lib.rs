//! The kernel's verbs ABI, served in the process: a library for `LD_PRELOAD`.
//!
//! rdma-core's own libibverbs and libmlx5 run on this driver, with no kernel driver. They open `/dev/infiniband/uverbs0`, which
//! the paths' library turns into a descriptor of a character device, and call `ioctl(RDMA_VERBS_IOCTL)` on it, which comes
//! here. A thread of this library has the device and answers. Rings and doorbell records are the program's own memory, doorbell
//! pages a file that it maps; posting and polling are rdma-core's code alone.
//!
//! On a device model nobody sees a store to the doorbell page. So the thread looks at the doorbell records.

#![cfg_attr(
    test,
    allow(
        dead_code,
        reason = "the program of the unit tests keeps the C library's functions, by which the rest is reached"
    )
)]

mod abi;
mod attrs;
mod cm;
mod commands;
mod doorbell_pages;
mod doorbells;
mod events;
mod interposed;
mod memory;
mod queues;
mod server;
#[cfg(test)]
mod tests;
mod transition;
mod trap;
