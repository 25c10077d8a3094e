//! The boot code, and what it calls.

// UNSAFETY: has the boot code, which runs before anything that Rust relies on, and gives the function that it calls a name.
#![expect(unsafe_code)]

use core::arch::global_asm;

global_asm!(include_str!("boot.s"));

/// Called by the boot code, with the address of the device tree, and what the counter was at boot.
#[unsafe(no_mangle)]
extern "C" fn start(device_tree: u64, cycles: u64) -> ! {
    crate::run::run(device_tree, cycles)
}
