//! A unikernel that runs bareverbs with nothing below it but the `kernel` beside it: one processor, no allocator. It brings
//! a ConnectX up, answers for an IP address, and is either end of `rping`; `options.rs` lists the words of its command line.
//!
//! It ends by itself, with QEMU's exit status 33 if all was well, and what was wrong on the serial console otherwise.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![cfg_attr(
    not(target_os = "none"),
    expect(dead_code, reason = "what needs no machine is tested on the host")
)]

#[cfg(feature = "alloc")]
extern crate alloc;

#[cfg_attr(
    not(feature = "rping"),
    expect(dead_code, reason = "the unused part is for other images")
)]
#[path = "../../../examples/common/src/channel.rs"]
mod channel;
#[cfg(all(target_os = "none", feature = "cm", not(feature = "rping")))]
mod connect;
mod failure;
#[cfg(target_os = "none")]
mod machine;
#[cfg(all(target_os = "none", feature = "cm"))]
mod manager;
#[cfg(target_os = "none")]
mod node;
mod options;
#[cfg(feature = "rping")]
#[cfg_attr(
    feature = "tasks",
    expect(dead_code, reason = "its server is for other images")
)]
#[path = "../../../examples/rping/ping.rs"]
mod ping;
#[cfg(target_os = "none")]
mod program;
#[cfg(all(target_os = "none", feature = "rping"))]
mod rping;
#[cfg(all(target_os = "none", feature = "tasks"))]
mod tasks;
