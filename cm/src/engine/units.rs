//! Times and their exponents.

use core::time::Duration;

/// Nanoseconds since the start of the caller's clock, or enough of them that nothing added to it overflows: a clock that
/// runs for more than 146 years stands still.
#[inline]
pub(super) fn nanos(time: Duration) -> u64 {
    time.as_secs()
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::from(time.subsec_nanos()))
        .min(1 << 62)
}

/// The time of an exponent: 4.096 us times 2 to it, in nanoseconds.
pub(super) fn exponent(value: u8) -> u64 {
    4096 << value.min(31)
}

/// Exponent of the QP's ACK timeout on the active side: the packet's life time there and back, and the time that the
/// adapter at the far end takes, whichever of the two is longer by more than a step.
pub(super) fn ack_timeout(ack_delay: u8, packet_life_time: u8) -> u8 {
    let way = packet_life_time + 1;
    let sum = if way >= ack_delay {
        way + u8::from(ack_delay >= packet_life_time)
    } else {
        ack_delay + u8::from(way + 1 >= ack_delay)
    };
    sum.min(31)
}
