//! The kernel's verbs ABI, served in the process: a library for `LD_PRELOAD`.
//!
//! rdma-core's own libibverbs and libmlx5 run on this driver, with no kernel driver. They open `/dev/infiniband/uverbs0`, which
//! the paths' library turns into a descriptor of a character device, and call `ioctl(RDMA_VERBS_IOCTL)` on it, which comes
//! here. A thread of this library has the device and answers. Rings and doorbell records are the program's own memory, doorbell
//! pages a file that it maps; posting and polling are rdma-core's code alone.
//!
//! On a device model a store to a doorbell page raises a signal, whose handler looks at the doorbell records; where that is not
//! possible, the thread looks at them all the time.

#![cfg_attr(
    test,
    allow(
        dead_code,
        reason = "the program of the unit tests keeps the C library's functions, by which the rest is reached"
    )
)]

mod abi;
mod attrs;
#[path = "../../src/process/cancel.rs"]
#[allow(dead_code, reason = "nothing is held here while a call waits")]
mod cancel;
mod clock;
mod cm;
mod cm_abi;
mod cm_group;
mod cm_groups;
mod commands;
mod dct;
mod devx;
mod devx_events;
mod devx_methods;
mod dm;
mod dm_commands;
mod doorbell_pages;
mod doorbells;
mod events;
mod flow;
mod flows;
mod import;
mod interposed;
mod matcher;
mod matchers;
mod memory;
mod multicast;
mod netdev;
mod netlink;
#[path = "../../paths/src/next.rs"]
mod next;
mod objects;
mod program_memory;
mod queries;
mod queues;
mod raw;
mod raw_abi;
mod raw_commands;
mod real;
mod server;
mod srq;
mod srq_commands;
#[cfg(test)]
mod tests;
mod thread;
mod transition;
mod trap;
mod umr;

/// Starts the log, once. A program in Rust may have a logger already.
fn start_log() {
    let level = env_logger::Env::new().filter_or("BAREVERBS_LOG", "error");
    let _ = env_logger::Builder::from_env(level).try_init();
}
