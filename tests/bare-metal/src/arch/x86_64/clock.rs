//! Time: the processor's cycle counter, held against the ACPI power management timer, whose rate is known.
//!
//! An emulated processor may stand still at any moment, also between the readings of two counters. So each pair of
//! readings is the tightest of many, and two measurements have to agree.

// UNSAFETY: reads the timer's I/O port.
#![expect(unsafe_code)]

use core::arch::x86_64::_rdtsc;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

use super::port;
use crate::error::MachineError;

/// The rate of the power management timer, and the bits that it has at least.
const TIMER_HZ: u64 = 3_579_545;
const TIMER_MASK: u32 = 0xff_ffff;
/// Ticks of the timer in one measurement.
const SPAN: u64 = TIMER_HZ / 25;
const ATTEMPTS: usize = 8;

/// Cycles at boot.
static BOOT: AtomicU64 = AtomicU64::new(0);
/// Cycles in a second; 0 as long as that is unknown.
static RATE: AtomicU64 = AtomicU64::new(0);

/// The cycle counter.
#[must_use]
pub fn cycles() -> u64 {
    // SAFETY: every processor with 64 bits has the instruction, and nothing forbids it here.
    unsafe { _rdtsc() }
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

/// Cycles in a second.
pub(crate) fn rate() -> u64 {
    RATE.load(Ordering::Relaxed)
}

/// The power management timer's port.
pub(crate) struct Source(pub(crate) u16);

/// Finds out how fast the cycle counter is, which was this far at boot.
pub(crate) fn init(timer: Source, boot: u64) -> Result<u64, MachineError> {
    BOOT.store(boot, Ordering::Relaxed);
    // SAFETY: reading the timer changes nothing.
    let read = || unsafe { port::read_u32(timer.0) } & TIMER_MASK;
    let mut before = 0;
    for _ in 0..ATTEMPTS {
        let (cycles, ticks) = measure(read, TIMER_MASK, SPAN).ok_or(MachineError::ClockStands)?;
        let rate = (u128::from(cycles) * u128::from(TIMER_HZ) / u128::from(ticks)) as u64;
        // A rate that is accepted: within a hundredth of the one before, and possible.
        if rate.abs_diff(before) < rate / 100 && (100_000_000..20_000_000_000).contains(&rate) {
            RATE.store(rate, Ordering::Relaxed);
            return Ok(rate);
        }
        before = rate;
    }
    Err(MachineError::ClockUnsteady)
}

/// Cycles that passed while a counter went on by `span` ticks or some more, and these ticks. `None` if it stands.
pub(crate) fn measure(read: impl Fn() -> u32, mask: u32, span: u64) -> Option<(u64, u64)> {
    let started = sample(&read);
    for _ in 0..100_000_000u32 {
        let ticks = u64::from(read().wrapping_sub(started.1) & mask);
        if ticks >= span {
            let ended = sample(&read);
            let ticks = u64::from(ended.1.wrapping_sub(started.1) & mask);
            return (ticks > 0).then_some((ended.0.saturating_sub(started.0), ticks));
        }
        core::hint::spin_loop();
    }
    None
}

/// Both counters at a time.
fn sample(read: &impl Fn() -> u32) -> (u64, u32) {
    let mut best = (0, 0);
    let mut least = u64::MAX;
    for _ in 0..32 {
        let before = cycles();
        let ticks = read();
        let taken = cycles().saturating_sub(before);
        if taken < least {
            least = taken;
            best = (before + taken / 2, ticks);
        }
    }
    best
}
