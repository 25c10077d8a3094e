//! The errors of Ethernet queues.

use core::fmt;

use bareverbs_firmware_cmds::cqe::{ErrorWord, Syndrome};

use crate::platform::DmaError;
use crate::types::error::CommandError;
use crate::types::gid::{Mac, NO_MAC};
use crate::verbs::cq::CqError;
use crate::verbs::mr::MrError;

/// Why an Ethernet queue, or a change of it, was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum EthernetError {
    /// The port is an InfiniBand port.
    NotEthernet,
    /// The function lacks a capability.
    Unsupported {
        /// The missing feature.
        what: &'static str,
    },
    /// The port has no MAC address, as a virtual function has none until it is given or sets one.
    NoMac,
    /// The function's receive steering is another queue's.
    Busy,
    /// A size is 0, or more than the device gives.
    Size {
        /// The field's name.
        field: &'static str,
        /// The value that was asked for.
        asked: u64,
        /// The largest possible.
        limit: u64,
    },
    /// Only multicast addresses can be joined.
    NotMulticast {
        /// The address.
        mac: Mac,
    },
    /// All multicast addresses that the queue was created for are taken.
    GroupsFull {
        /// The number of slots.
        limit: u32,
    },
    /// The address was not joined.
    NotJoined {
        /// The address.
        mac: Mac,
    },
    /// A completion queue could not be made.
    Cq(CqError),
    /// The frame buffers could not be made.
    Buffer(MrError),
    /// The platform has no memory for the queues.
    Memory(DmaError),
    /// The firmware refused.
    Command(CommandError),
}

impl fmt::Display for EthernetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotEthernet => f.write_str("not an Ethernet port"),
            Self::Unsupported { what } => write!(f, "the function does not have {what}"),
            Self::NoMac => f.write_str(NO_MAC),
            Self::Busy => f.write_str("the function's receive steering is another queue's"),
            Self::Size {
                field,
                asked,
                limit,
            } => write!(f, "{field} of {asked} is not in 1..={limit}"),
            Self::NotMulticast { mac } => write!(f, "{} is no multicast address", Address(*mac)),
            Self::GroupsFull { limit } => write!(f, "all {limit} multicast addresses are taken"),
            Self::NotJoined { mac } => write!(f, "{} was not joined", Address(*mac)),
            Self::Cq(error) => error.fmt(f),
            Self::Buffer(error) => error.fmt(f),
            Self::Memory(error) => error.fmt(f),
            Self::Command(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for EthernetError {}

impl From<CommandError> for EthernetError {
    fn from(error: CommandError) -> Self {
        Self::Command(error)
    }
}

/// An address as it is written.
struct Address(Mac);

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// Why the device stopped a queue. `recover` of the queue sets it going again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueFailure {
    /// The first error's syndrome.
    pub syndrome: Syndrome,
    /// The vendor's own number for it.
    pub vendor_err: u8,
}

impl QueueFailure {
    /// The failure that a completion in error reports.
    pub(crate) fn of(error: ErrorWord) -> Self {
        Self {
            syndrome: Syndrome::from_number(error.syndrome()),
            vendor_err: error.vendor_err_synd(),
        }
    }
}

impl fmt::Display for QueueFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the device stopped the queue: {} (vendor's number {:#x})",
            self.syndrome, self.vendor_err
        )
    }
}

impl core::error::Error for QueueFailure {}

/// Why a frame was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum EthernetSendError {
    /// The queue is full: all its places have frames that are under way.
    Full {
        /// The number that it holds.
        limit: u32,
    },
    /// The frame is shorter than an Ethernet header, or longer than the queue takes.
    Length {
        /// Its length.
        length: usize,
        /// The longest possible.
        limit: usize,
    },
    /// The device requires more of the frame's headers in the request itself than the header that was given has.
    HeaderTooShort {
        /// Bytes given.
        length: usize,
        /// Bytes wanted.
        needed: usize,
    },
    /// More pieces than a request holds.
    TooManySges {
        /// The number of entries given.
        given: usize,
        /// The number that fits.
        limit: usize,
    },
    /// The device does not fill in these checksums.
    NoChecksums,
    /// The function lacks a capability.
    Unsupported {
        /// The missing feature.
        what: &'static str,
    },
    /// The packets of a large send would be longer than the queue's frames, or have no payload, or the whole is longer than
    /// the device takes.
    SegmentSize {
        /// Bytes of payload in each packet that were asked for.
        mss: u16,
        /// Bytes of payload.
        length: usize,
        /// The longest payload possible.
        limit: usize,
    },
    /// The device stopped the queue: nothing is sent before [`EthernetSend::recover`](super::EthernetSend::recover).
    Failed(QueueFailure),
    /// The completion queue failed.
    Cq(CqError),
}

impl fmt::Display for EthernetSendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { limit } => write!(f, "{limit} frames are under way already"),
            Self::Length { length, limit } => write!(
                f,
                "a frame of {length} bytes is not in {}..={limit}",
                super::HEADER_LEN
            ),
            Self::HeaderTooShort { length, needed } => write!(
                f,
                "the device requires {needed} bytes of headers inline, and the header has {length}"
            ),
            Self::TooManySges { given, limit } => {
                write!(f, "{given} pieces in a request of {limit}")
            }
            Self::Unsupported { what } => write!(f, "the function does not have {what}"),
            Self::SegmentSize { mss, length, .. } => write!(
                f,
                "{length} bytes of payload do not go into packets of {mss}"
            ),
            Self::NoChecksums => f.write_str("the device does not fill in checksums"),
            Self::Failed(failure) => failure.fmt(f),
            Self::Cq(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for EthernetSendError {}

/// Why nothing can be received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum EthernetReceiveError {
    /// The device stopped the queue: nothing comes before
    /// [`EthernetReceive::recover`](super::EthernetReceive::recover).
    Failed(QueueFailure),
    /// The device has said that strides are used up which cannot be.
    Strides(StrideFault),
    /// The completion queue failed.
    Cq(CqError),
}

/// A report of the device on a striding queue's request that cannot be. Nothing comes before
/// [`StridingReceive::recover`](super::StridingReceive::recover).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StrideFault {
    /// The stride that the completion names.
    pub stride: u16,
    /// Strides that it uses up.
    pub consumed: u16,
    /// The stride at which the next frame has to lie.
    pub expected: u16,
}

impl fmt::Display for StrideFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the device has used up {} strides from {} on, where {} was next",
            self.consumed, self.stride, self.expected
        )
    }
}

impl core::error::Error for StrideFault {}

impl fmt::Display for EthernetReceiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(failure) => failure.fmt(f),
            Self::Strides(fault) => fault.fmt(f),
            Self::Cq(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for EthernetReceiveError {}
