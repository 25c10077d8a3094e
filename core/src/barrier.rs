//! The two barriers between processor and device, of each architecture by its own name.
//!
//! Barriers between processors, such as [`fence`](core::sync::atomic::fence), are not enough: on RISC-V they leave out the
//! device's registers, and on ARM the domain that devices are in. These are the instructions of rdma-core's
//! `udma_to_device_barrier` and `udma_from_device_barrier`, but that x86 keeps loads in order by itself, that on RISC-V
//! stores wait for loads, too, and that on PowerPC registers are included. It has none for 32-bit ARM, where they are those of
//! Linux. A [`Platform`](crate::Platform) may use them for its registers.

// UNSAFETY: barriers are instructions.
#![cfg_attr(
    any(
        target_arch = "aarch64",
        target_arch = "arm",
        target_arch = "powerpc64",
        target_arch = "riscv32",
        target_arch = "riscv64"
    ),
    expect(unsafe_code)
)]

#[cfg(not(any(
    target_arch = "x86_64",
    target_arch = "x86",
    target_arch = "aarch64",
    target_arch = "arm",
    target_arch = "powerpc64",
    target_arch = "riscv64",
    target_arch = "riscv32",
    target_arch = "s390x"
)))]
compile_error!(
    "bareverbs does not know this architecture's barriers between memory and a device's registers: add them to \
     core/src/barrier.rs (Linux has them in arch/*/include/asm/barrier.h, rdma-core in util/udma_barrier.h)"
);

/// Makes everything that was written before, to memory or registers, visible to the device before later writes.
///
/// x86 and s390x keep stores in order, so only the compiler has to be held back.
#[inline(always)]
pub fn write_barrier() {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier between stores, for the outer shareable domain; it has no operands and changes no register.
    unsafe {
        core::arch::asm!("dmb oshst", options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "arm")]
    // SAFETY: it waits until stores are done, for the whole system; it has no operands and changes no register.
    unsafe {
        core::arch::asm!("dsb st", options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "powerpc64")]
    // SAFETY: a barrier between all accesses, registers' included; it has no operands and changes no register.
    unsafe {
        core::arch::asm!("sync", options(nostack, preserves_flags));
    }
    #[cfg(any(target_arch = "riscv32", target_arch = "riscv64"))]
    // SAFETY: a barrier between stores, to memory and to devices; it has no operands and changes no register.
    unsafe {
        core::arch::asm!("fence ow, ow", options(nostack, preserves_flags));
    }
    core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
}

/// Nothing after is read or written, of memory or registers, before what was read before.
///
/// x86 and s390x keep loads in order, and stores behind them; others may satisfy a later load first, and would read an entry's
/// old contents after its new owner bit, or give entries back that are not read yet. For the latter RISC-V has to be told that
/// stores wait as well, which is more than rdma-core's `fence ir, ir`; on ARM they do so by `dmb oshld`. PowerPC's `lwsync`
/// would leave out registers.
#[inline(always)]
pub fn read_barrier() {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier behind loads, for the outer shareable domain; it has no operands and changes no register.
    unsafe {
        core::arch::asm!("dmb oshld", options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "arm")]
    // SAFETY: a barrier between all accesses, for the outer shareable domain; it has no operands and changes no register.
    unsafe {
        core::arch::asm!("dmb osh", options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "powerpc64")]
    // SAFETY: a barrier between all accesses, registers' included; it has no operands and changes no register.
    unsafe {
        core::arch::asm!("sync", options(nostack, preserves_flags));
    }
    #[cfg(any(target_arch = "riscv32", target_arch = "riscv64"))]
    // SAFETY: a barrier behind loads, of memory and of devices; it has no operands and changes no register.
    unsafe {
        core::arch::asm!("fence ir, iorw", options(nostack, preserves_flags));
    }
    core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
}
