//! Why a call is refused, and the checks that refuse it.

use core::fmt;

use super::state::{LapState, State};

/// Why a call was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CmError {
    /// No connection with this ID: it was released.
    UnknownConnection,
    /// No listener with this ID.
    UnknownListener,
    /// The call is not allowed in the connection's state.
    WrongState {
        /// The call.
        call: &'static str,
        /// The state.
        state: State,
    },
    /// No datagram request with this ID: it was answered, released, or is over.
    UnknownRequest,
    /// All slots for datagram services are in use.
    NoSidrSlots {
        /// The number of slots.
        capacity: usize,
    },
    /// All slots for alternate paths are in use.
    NoAlternateSlots {
        /// The number of slots.
        capacity: usize,
    },
    /// An exchange about an alternate path is under way on this connection.
    AlternatePathBusy {
        /// Its state.
        state: LapState,
    },
    /// The other end of this connection waits for no answer about an alternate path.
    NoAlternatePathAsked,
    /// An alternate path has to have a LID of this end: 0 means on the wire that there is no path.
    AlternatePathWithoutLid,
    /// All connection slots are in use.
    NoConnectionSlots {
        /// The number of slots.
        capacity: usize,
    },
    /// All listener slots are in use.
    NoListenerSlots {
        /// The number of slots.
        capacity: usize,
    },
    /// This service has a listener already.
    ServiceInUse {
        /// The service.
        service_id: u64,
    },
    /// More private data than the message carries.
    PrivateDataTooLong {
        /// Bytes given.
        len: usize,
        /// Bytes that fit.
        max: usize,
    },
    /// A parameter does not fit into its field.
    BadParameter {
        /// The parameter's name.
        name: &'static str,
        /// Its value.
        value: u64,
        /// The greatest value.
        max: u64,
    },
}

impl fmt::Display for CmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::UnknownConnection => f.write_str("no such connection"),
            Self::UnknownListener => f.write_str("no such listener"),
            Self::UnknownRequest => f.write_str("no such datagram request"),
            Self::NoSidrSlots { capacity } => {
                write!(f, "all {capacity} slots for datagram services are in use")
            }
            Self::NoAlternateSlots { capacity } => {
                write!(f, "all {capacity} slots for alternate paths are in use")
            }
            Self::AlternatePathBusy { state } => {
                write!(f, "an alternate path is being talked about: {state:?}")
            }
            Self::NoAlternatePathAsked => {
                f.write_str("no answer about an alternate path is awaited")
            }
            Self::AlternatePathWithoutLid => {
                f.write_str("the alternate path has no LID of this end")
            }
            Self::WrongState { call, state } => write!(f, "{call} in state {state:?}"),
            Self::NoConnectionSlots { capacity } => {
                write!(f, "all {capacity} connection slots are in use")
            }
            Self::NoListenerSlots { capacity } => {
                write!(f, "all {capacity} listener slots are in use")
            }
            Self::ServiceInUse { service_id } => {
                write!(f, "service {service_id:#018x} has a listener already")
            }
            Self::PrivateDataTooLong { len, max } => {
                write!(f, "{len} bytes of private data, at most {max} fit")
            }
            Self::BadParameter { name, value, max } => {
                write!(f, "{name} is {value}, at most {max} is possible")
            }
        }
    }
}

impl core::error::Error for CmError {}

pub(super) fn fits(len: usize, max: usize) -> Result<(), CmError> {
    if len > max {
        Err(CmError::PrivateDataTooLong { len, max })
    } else {
        Ok(())
    }
}

pub(super) fn at_most(name: &'static str, value: u64, max: u64) -> Result<(), CmError> {
    if value > max {
        Err(CmError::BadParameter { name, value, max })
    } else {
        Ok(())
    }
}
