//! The order of accesses to registers and to memory, which the processor chooses without barriers. Devices are in the
//! outer shareable domain.

// UNSAFETY: barriers are instructions.
#![expect(unsafe_code)]

use core::arch::asm;

/// What was written to memory before is there before a register is written.
#[inline(always)]
pub(crate) fn before_write() {
    // SAFETY: a barrier between stores; it changes no register. The compiler moves no access to memory over it.
    unsafe { asm!("dmb oshst", options(nostack, preserves_flags)) };
}

/// What was written to configuration space is there before anything else is done.
#[inline(always)]
pub(crate) fn after_configuration() {
    // SAFETY: waits for what was written; it changes no register.
    unsafe { asm!("dsb osh", options(nostack, preserves_flags)) };
}

/// Memory is read after the register that was read before.
#[inline(always)]
pub(crate) fn after_read() {
    // SAFETY: a barrier behind loads; it changes no register. The compiler moves no access to memory over it.
    unsafe { asm!("dmb oshld", options(nostack, preserves_flags)) };
}

/// What was written before, to memory or to write-combining pages, is there, or on its way to the device, before anything
/// that is written later, and is not combined with it. `dmb oshst` would keep the order, but not make the processor part
/// with what it gathers.
#[inline(always)]
pub(crate) fn flush_write_combining() {
    // SAFETY: waits for what was written; it changes no register. The compiler moves no access to memory over it.
    unsafe { asm!("dsb st", options(nostack, preserves_flags)) };
}
