//! The end of the machine: QEMU's `isa-debug-exit` turns what is written to its port into its exit status, which is twice
//! that and one.

// UNSAFETY: writes to an I/O port and stops the processor.
#![expect(unsafe_code)]

use core::arch::asm;

use super::port;
use crate::run::Status;

const EXIT_PORT: u16 = 0xf4;

/// Ends the machine; without the device the processor stops.
pub(crate) fn exit(status: Status) -> ! {
    // SAFETY: the port is the exit device's, or unassigned.
    unsafe { port::write_u32(EXIT_PORT, status as u32) };
    loop {
        // SAFETY: without interrupts the processor stays where it is.
        unsafe { asm!("cli", "hlt", options(nomem, nostack)) };
    }
}
