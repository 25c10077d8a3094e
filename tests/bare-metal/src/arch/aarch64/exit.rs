//! The end of a run: what Arm calls semihosting makes a status that of QEMU.

// UNSAFETY: calls the processor's debugger or emulator, and stops it.
#![expect(unsafe_code)]

use core::arch::asm;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::run::Status;

/// The call that ends a program, and the reason that has a status ("Semihosting for AArch32 and AArch64", SYS_EXIT).
const SYS_EXIT: u64 = 0x18;
const APPLICATION_EXIT: u64 = 0x2_0026;

/// Ends the machine; where there is no semihosting the processor stops.
pub(crate) fn exit(status: Status) -> ! {
    static EXITING: AtomicBool = AtomicBool::new(false);
    // Without semihosting the call is an exception, whose handler comes here again.
    if !EXITING.swap(true, Ordering::Relaxed) {
        let status = 2 * status as u64 + 1;
        let reason = [APPLICATION_EXIT, status];
        // SAFETY: the call reads two numbers.
        unsafe {
            asm!("hlt #0xf000", in("x0") SYS_EXIT, in("x1") reason.as_ptr(), options(nostack))
        };
    }
    loop {
        // SAFETY: nothing is left to do.
        unsafe { asm!("wfi", options(nomem, nostack)) };
    }
}
