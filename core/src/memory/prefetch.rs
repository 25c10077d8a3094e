//! A hint to the processor that memory will be read soon.

// UNSAFETY: hints are instructions.
#![cfg_attr(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    expect(unsafe_code)
)]

/// Brings the cache line of this address nearer. The address need not be one of memory: such a hint does nothing.
///
/// On other processors than x86-64 and 64-bit ARM it is nothing at all.
#[inline(always)]
pub(crate) fn prefetch<T>(at: *const T) {
    // SAFETY: the instruction accesses nothing as far as the program can see, faults at no address, and changes no register.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        core::arch::asm!("prefetcht0 [{}]", in(reg) at.addr(), options(nostack, nomem, preserves_flags));
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{}]", in(reg) at.addr(), options(nostack, nomem, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = at;
}
