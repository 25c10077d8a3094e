//! The serial port: a PL011, which the firmware has set up.

// UNSAFETY: the port's registers are in memory.
#![expect(unsafe_code)]

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

/// Data, flags, and the flag of a transmitter that takes no more.
const DATA: u64 = 0;
const FLAGS: u64 = 0x18;
const FULL: u32 = 1 << 5;

/// Where it is: where QEMU's `virt` machine has it, until the device tree was read.
static PORT: AtomicU64 = AtomicU64::new(0x900_0000);

/// Its registers.
pub(super) fn place() -> Range<u64> {
    let start = PORT.load(Ordering::Relaxed);
    start..start + 0x1000
}

/// Where it is from here on.
pub(super) fn found(port: u64) {
    PORT.store(port, Ordering::Relaxed);
}

/// Nothing is left to set up.
pub(crate) fn init() {}

/// Sends a byte when the port is ready.
pub(crate) fn send(byte: u8) {
    let register = |offset| (place().start + offset) as *mut u32;
    // A port that is never ready is none.
    for _ in 0..1_000_000 {
        // SAFETY: the port is mapped, by the boot code and by all tables after; reading the flags changes nothing.
        if unsafe { register(FLAGS).read_volatile() } & FULL == 0 {
            break;
        }
    }
    // SAFETY: as above; only this module writes there.
    unsafe { register(DATA).write_volatile(u32::from(byte)) };
}
