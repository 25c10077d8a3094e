//! Time: the virtual counter of the processor's generic timer, whose rate is in a register.

// UNSAFETY: reads system registers.
#![expect(unsafe_code)]

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

use crate::error::MachineError;

/// The counter at boot.
static BOOT: AtomicU64 = AtomicU64::new(0);
/// Cycles in a second; 0 as long as that is unknown.
static RATE: AtomicU64 = AtomicU64::new(0);

/// The clock's needs beside the processor: none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source;

/// The counter.
#[must_use]
pub fn cycles() -> u64 {
    let cycles;
    // SAFETY: the boot code made sure that the counter can be read. The barrier keeps it from being read early.
    unsafe {
        asm!("isb", "mrs {}, cntvct_el0", out(reg) cycles, options(nostack, preserves_flags))
    };
    cycles
}

/// Time since boot; it stands still until the clock is set.
#[must_use]
pub fn since_boot() -> Duration {
    let rate = RATE.load(Ordering::Relaxed);
    let passed = cycles().saturating_sub(BOOT.load(Ordering::Relaxed));
    match (passed.checked_div(rate), passed.checked_rem(rate)) {
        (Some(seconds), Some(rest)) => {
            // Less than a second, so that it fits; the product does not.
            let nanoseconds = u128::from(rest) * 1_000_000_000 / u128::from(rate);
            Duration::new(seconds, nanoseconds as u32)
        }
        _ => Duration::ZERO,
    }
}

/// The counter's value at a time since boot.
pub(super) fn cycles_at(time: Duration) -> u64 {
    let rate = u128::from(RATE.load(Ordering::Relaxed));
    let passed =
        u128::from(time.as_secs()) * rate + u128::from(time.subsec_nanos()) * rate / 1_000_000_000;
    let passed = u64::try_from(passed).unwrap_or(u64::MAX);
    BOOT.load(Ordering::Relaxed).saturating_add(passed)
}

/// Sets the clock. `boot` is what the counter was at boot. Cycles in a second.
pub(crate) fn init(_: Source, boot: u64) -> Result<u64, MachineError> {
    let rate: u64;
    // SAFETY: reading it changes nothing.
    unsafe { asm!("mrs {}, cntfrq_el0", out(reg) rate, options(nostack, preserves_flags)) };
    // The firmware or hypervisor that starts the processor has to have set it.
    if rate == 0 {
        return Err(MachineError::ClockStands);
    }
    BOOT.store(boot, Ordering::Relaxed);
    RATE.store(rate, Ordering::Relaxed);
    Ok(rate)
}
