//! The faults that the self test finds.

use std::time::Duration;

use bareverbs::verbs::{QpState, WcStatus};

/// The longest time that any step takes.
pub(super) const TIMEOUT: Duration = Duration::from_secs(5);

/// A result that is not as it should be, though every call went well.
#[derive(Debug, Clone, Copy, thiserror::Error)]
pub(super) enum Wrong {
    /// Nothing happened for [`TIMEOUT`].
    #[error("no {} within {:?}", .0, TIMEOUT)]
    Missing(&'static str),
    #[error("completed with \"{status}\" (vendor error {vendor_err:#x}) instead of \"{expected}\"")]
    Completion {
        status: WcStatus,
        vendor_err: u8,
        expected: WcStatus,
    },
    #[error("{is} bytes came instead of {expected}")]
    Length { is: usize, expected: usize },
    #[error("of {size} bytes, byte {at} is {is:#04x} instead of {expected:#04x}")]
    Byte {
        size: usize,
        at: usize,
        is: u8,
        expected: u8,
    },
    #[error("{is:#x} instead of {expected:#x}")]
    Atomic { is: u64, expected: u64 },
    #[error("a queue pair is in {is}, not {expected}")]
    State { is: QpState, expected: QpState },
    #[error("{events} events lost, {unknown} not understood, {bytes} bytes kept from reuse")]
    Lost {
        events: u64,
        unknown: u64,
        bytes: u64,
    },
}
