//! The errors of CQs.

use core::fmt;

use bareverbs_firmware_cmds::numbers::Cqn;

use crate::platform::DmaError;
use crate::types::error::{CommandError, DeviceError};

/// The error of a CQ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CqError {
    /// The size is 0 or more than the device has.
    Size {
        /// The entries that were asked for.
        asked: u32,
        /// The largest possible.
        limit: u32,
    },
    /// The storage that the device was opened with holds no more CQs.
    NoSlot {
        /// The number of CQs that it holds.
        limit: usize,
    },
    /// QPs still use it.
    Busy {
        /// The number of queues.
        users: u32,
    },
    /// The ring would be too small for the completions in it.
    TooManyOutstanding {
        /// Completions in the ring.
        outstanding: u32,
    },
    /// The device cannot resize CQs, or moderate them.
    Unsupported,
    /// More completions came than the CQ holds, or its memory could not be written: the device has stopped it, and
    /// every QP that uses it is going into error. Syndrome 1 is an overrun, 2 an access violation.
    Failed {
        /// The CQ.
        cqn: Cqn,
        /// The device's reason.
        syndrome: u8,
    },
    /// The card does not offer this.
    NotOffered {
        /// The capability that says so, as `mlx5_ifc.h` names it.
        capability: &'static str,
    },
    /// The platform has no memory for the ring.
    Memory(DmaError),
    /// The firmware refused.
    Command(CommandError),
    /// The device has failed, so that no completion comes any more.
    Device(DeviceError),
}

impl fmt::Display for CqError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size { asked, limit } => {
                write!(f, "a CQ of {asked} entries; 1 to {limit} are possible")
            }
            Self::NoSlot { limit } => {
                write!(f, "the device's storage holds {limit} CQs, all are in use")
            }
            Self::Busy { users } => write!(f, "the CQ is in use by {users} queues"),
            Self::TooManyOutstanding { outstanding } => {
                write!(
                    f,
                    "{outstanding} completions lie in the CQ, more than the new size holds"
                )
            }
            Self::Unsupported => f.write_str("the device cannot do this"),
            Self::NotOffered { capability } => {
                write!(f, "the device does not offer {capability}")
            }
            Self::Failed { cqn, syndrome: 1 } => write!(f, "{cqn} was overrun"),
            Self::Failed { cqn, syndrome } => {
                write!(f, "{cqn} is in error, syndrome {syndrome:#x}")
            }
            Self::Memory(error) => error.fmt(f),
            Self::Command(error) => error.fmt(f),
            Self::Device(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for CqError {}
