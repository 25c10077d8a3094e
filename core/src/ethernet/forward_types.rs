//! The types of a lane: its settings, its counts, and its errors.

use core::fmt;

use crate::ethernet::error::QueueFailure;
use crate::types::gid::Mac;
use crate::verbs::cq::CqError;

/// A lane to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForwardInit {
    /// Frames under way, rounded up to a power of two.
    pub frames: u32,
    /// Bytes of the longest frame.
    pub frame_len: u32,
    /// Destination and source address that frames leave with; without, they keep their own.
    pub addresses: Option<[Mac; 2]>,
    /// The completion vector that the queues use.
    pub comp_vector: u16,
}

impl Default for ForwardInit {
    /// 1024 frames of up to 1522 bytes, which keep their addresses.
    fn default() -> Self {
        Self {
            frames: 1024,
            frame_len: 1522,
            addresses: None,
            comp_vector: 0,
        }
    }
}

/// The counts of a lane's traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ForwardCounters {
    /// Frames received.
    pub received: u64,
    /// Frames handed to the other port.
    pub sent: u64,
    /// Frames that were longer than the buffers, shorter than their headers, or whose completion contradicts itself.
    pub dropped: u64,
    /// Completions that fitted nothing. Anything but 0 means a broken device.
    pub garbage_completions: u64,
}

/// Why a lane has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ForwardError {
    /// The receiving device has stopped its queue.
    Receive(QueueFailure),
    /// The sending device has stopped its queue.
    Send(QueueFailure),
    /// A completion queue failed.
    Cq(CqError),
}

impl fmt::Display for ForwardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Receive(failure) => write!(f, "receiving: {failure}"),
            Self::Send(failure) => write!(f, "sending: {failure}"),
            Self::Cq(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for ForwardError {}
