//! The order of accesses to registers: x86 keeps those to uncached memory in order among themselves and after earlier
//! stores to memory. Only the compiler has to be held back. Stores to write-combining memory keep no order.

// UNSAFETY: a fence is an intrinsic.
#![expect(unsafe_code)]

use core::arch::x86_64::_mm_sfence;

use core::sync::atomic::{Ordering, compiler_fence};

/// What was written to memory before is there before a register is written.
#[inline(always)]
pub(crate) fn before_write() {
    compiler_fence(Ordering::SeqCst);
}

/// What was written to configuration space is there before anything else is done.
#[inline(always)]
pub(crate) fn after_configuration() {
    compiler_fence(Ordering::SeqCst);
}

/// Memory is read after the register that was read before.
#[inline(always)]
pub(crate) fn after_read() {
    compiler_fence(Ordering::SeqCst);
}

/// What was written before, to memory or to write-combining pages, is there, or on its way to the device, before anything
/// that is written later, and is not combined with it.
#[inline(always)]
pub(crate) fn flush_write_combining() {
    // SAFETY: every processor with 64 bits has the instruction.
    unsafe { _mm_sfence() };
}
