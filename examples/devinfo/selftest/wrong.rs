//! The faults that the self test finds.

use std::fmt;

use bareverbs::verbs::{QpState, WcStatus};

use super::TIMEOUT;

/// A result that is not as it should be, though every call went well.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wrong {
    /// Nothing happened for [`TIMEOUT`].
    Missing(&'static str),
    Completion {
        status: WcStatus,
        vendor_err: u8,
        expected: WcStatus,
    },
    Length {
        is: usize,
        expected: usize,
    },
    Byte {
        size: usize,
        at: usize,
        is: u8,
        expected: u8,
    },
    Atomic {
        is: u64,
        expected: u64,
    },
    State {
        is: QpState,
        expected: QpState,
    },
    Lost {
        events: u64,
        unknown: u64,
        bytes: u64,
    },
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(what) => write!(f, "no {what} within {TIMEOUT:?}"),
            Self::Completion {
                status,
                vendor_err,
                expected,
            } => write!(
                f,
                "completed with \"{status}\" (vendor error {vendor_err:#x}) instead of \"{expected}\""
            ),
            Self::Length { is, expected } => write!(f, "{is} bytes came instead of {expected}"),
            Self::Byte {
                size,
                at,
                is,
                expected,
            } => write!(
                f,
                "of {size} bytes, byte {at} is {is:#04x} instead of {expected:#04x}"
            ),
            Self::Atomic { is, expected } => write!(f, "{is:#x} instead of {expected:#x}"),
            Self::State { is, expected } => write!(f, "a queue pair is in {is}, not {expected}"),
            Self::Lost {
                events,
                unknown,
                bytes,
            } => write!(
                f,
                "{events} events lost, {unknown} not understood, {bytes} bytes kept from reuse"
            ),
        }
    }
}

impl std::error::Error for Wrong {}
