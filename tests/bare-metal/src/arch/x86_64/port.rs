//! The processor's I/O ports.

// UNSAFETY: I/O instructions reach devices, which can do anything.
#![expect(unsafe_code)]

use core::arch::asm;

/// Reads a byte.
///
/// # Safety
/// Reading the port has no side effect that breaks an assumption of other code.
pub(crate) unsafe fn read_u8(port: u16) -> u8 {
    let value;
    // SAFETY: the caller's promise.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nomem, nostack)) };
    value
}

/// Writes a byte.
///
/// # Safety
/// As [`read_u8`], for writing.
pub(crate) unsafe fn write_u8(port: u16, value: u8) {
    // SAFETY: the caller's promise.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack)) };
}

/// Reads 32 bits.
///
/// # Safety
/// As [`read_u8`].
pub(crate) unsafe fn read_u32(port: u16) -> u32 {
    let value;
    // SAFETY: the caller's promise.
    unsafe { asm!("in eax, dx", in("dx") port, out("eax") value, options(nomem, nostack)) };
    value
}

/// Writes 32 bits.
///
/// # Safety
/// As [`read_u8`], for writing.
pub(crate) unsafe fn write_u32(port: u16, value: u32) {
    // SAFETY: the caller's promise.
    unsafe { asm!("out dx, eax", in("dx") port, in("eax") value, options(nomem, nostack)) };
}
