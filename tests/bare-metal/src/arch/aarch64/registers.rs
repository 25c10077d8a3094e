//! The order of accesses to registers and to memory, which the processor chooses without barriers. Devices are in the
//! outer shareable domain.

// UNSAFETY: barriers are instructions.
#![expect(unsafe_code)]

use core::arch::asm;

/// Orders writes to memory before a following write to a register.
#[inline(always)]
pub(crate) fn before_write() {
    // SAFETY: a barrier between stores; it changes no register. The compiler moves no access to memory over it.
    unsafe { asm!("dmb oshst", options(nostack, preserves_flags)) };
}

/// Completes writes to configuration space before anything else is done.
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

/// Orders earlier writes, to memory or to write-combining pages, before all later writes, and keeps them from being combined
/// with these: they have arrived, or are on their way to the device. `dmb oshst` would keep the order, but not make the
/// processor part with what it gathers.
#[inline(always)]
pub(crate) fn flush_write_combining() {
    // SAFETY: waits for what was written; it changes no register. The compiler moves no access to memory over it.
    unsafe { asm!("dsb st", options(nostack, preserves_flags)) };
}
