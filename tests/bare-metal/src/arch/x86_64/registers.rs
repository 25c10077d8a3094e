//! The order of accesses to registers: x86 keeps those to uncached memory in order among themselves and after earlier
//! stores to memory. Only the compiler has to be held back. Stores to write-combining memory keep no order.

// UNSAFETY: a fence is an intrinsic.
#![expect(unsafe_code)]

use core::arch::x86_64::_mm_sfence;

use core::sync::atomic::{Ordering, compiler_fence};

/// Orders writes to memory before a following write to a register.
#[inline(always)]
pub(crate) fn before_write() {
    compiler_fence(Ordering::SeqCst);
}

/// Keeps writes to configuration space before all that is done later.
#[inline(always)]
pub(crate) fn after_configuration() {
    compiler_fence(Ordering::SeqCst);
}

/// Memory is read after the register that was read before.
#[inline(always)]
pub(crate) fn after_read() {
    compiler_fence(Ordering::SeqCst);
}

/// Orders earlier writes, to memory or to write-combining pages, before all later writes, and keeps them from being combined
/// with these: they have arrived, or are on their way to the device.
#[inline(always)]
pub(crate) fn flush_write_combining() {
    // SAFETY: every processor with 64 bits has the instruction.
    unsafe { _mm_sfence() };
}
