//! The ends that a run can have. QEMU's `isa-debug-exit` turns what is written to its port into its exit status, which is
//! twice that and one.

// UNSAFETY: writes to an I/O port and stops the processor.
#![expect(unsafe_code)]

use core::arch::asm;
use core::panic::PanicInfo;

use crate::port;

const EXIT_PORT: u16 = 0xf4;

/// How it ended.
#[derive(Debug, Clone, Copy)]
#[repr(u32)]
pub(crate) enum Status {
    /// Everything was as it should be: QEMU's status is 33.
    Good = 0x10,
    /// Something failed, and was said: 35.
    Failed = 0x11,
    /// This program is wrong: 37.
    Broken = 0x12,
}

/// Ends the machine; without the device the processor stops.
pub(crate) fn exit(status: Status) -> ! {
    // SAFETY: the port is the exit device's, or nobody's.
    unsafe { port::write_u32(EXIT_PORT, status as u32) };
    loop {
        // SAFETY: without interrupts the processor stays where it is.
        unsafe { asm!("cli", "hlt", options(nomem, nostack)) };
    }
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    log::error!("{info}");
    exit(Status::Broken)
}
