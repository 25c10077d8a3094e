//! The kernel below the program: what there is of an operating system. It boots, finds memory and the PCI functions, maps
//! both, keeps time, takes interrupts, and writes to the console. It has no RDMA code.
//!
//! A program names its main function with [`entry!`]. It is called once, on the only processor, and ends the machine by
//! returning.
//!
//! What belongs to one architecture is in `arch`; what reads the tables of boot loaders and firmware, in `firmware`, is
//! for all, so that it is tested wherever the tests run.
#![cfg_attr(target_os = "none", no_std)]
#![cfg_attr(
    not(target_os = "none"),
    expect(dead_code, reason = "what needs no machine is tested on the host")
)]

#[cfg(target_os = "none")]
mod arch;
mod assign;
#[cfg(target_os = "none")]
mod console;
mod error;
pub mod executor;
mod firmware;
mod frames;
#[cfg(target_os = "none")]
mod image;
#[cfg(target_os = "none")]
mod pci;
mod physical;
#[cfg(target_os = "none")]
mod registers;
#[cfg(target_os = "none")]
mod run;

#[cfg(target_os = "none")]
pub use arch::{clock, interrupts};
pub use error::{MachineError, Place};
pub use frames::{FRAME, FRAMES, Frames};
#[cfg(target_os = "none")]
pub use pci::{Card, Ecam};
#[cfg(target_os = "none")]
pub use registers::Registers;
#[cfg(target_os = "none")]
pub use run::{Boot, Status, ended};

/// Names the program's main function: it takes a [`&Boot`](Boot), and returns `Result<(), E>`, where `E` can be displayed.
#[macro_export]
macro_rules! entry {
    ($main:path) => {
        #[unsafe(no_mangle)]
        extern "Rust" fn kernel_main(boot: &$crate::Boot) -> $crate::Status {
            $crate::ended($main(boot))
        }
    };
}
