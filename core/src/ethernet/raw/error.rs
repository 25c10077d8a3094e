//! Why a raw packet QP was refused, or a change of it.

use core::fmt;

use crate::ethernet::error::EthernetError;
use crate::types::error::CommandError;
use crate::verbs::qp::CreateQpError;
use crate::verbs::qp::ModifyError;

/// Why a raw packet QP, or a change of it, was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RawPacketError {
    /// An error that other QPs have, too.
    Create(CreateQpError),
    /// An error that Ethernet queues have, too.
    Ethernet(EthernetError),
    /// An error that other QPs have, too.
    Modify(ModifyError),
    /// The QP was created for neither sends nor receives.
    NoQueue,
    /// The QP was created without receives.
    NoReceiveQueue,
}

impl fmt::Display for RawPacketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create(error) => error.fmt(f),
            Self::Ethernet(error) => error.fmt(f),
            Self::Modify(error) => error.fmt(f),
            Self::NoQueue => f.write_str("a raw packet QP without sends and receives"),
            Self::NoReceiveQueue => f.write_str("the QP has no receive queue"),
        }
    }
}

impl core::error::Error for RawPacketError {}

impl From<CreateQpError> for RawPacketError {
    fn from(error: CreateQpError) -> Self {
        Self::Create(error)
    }
}

impl From<EthernetError> for RawPacketError {
    fn from(error: EthernetError) -> Self {
        Self::Ethernet(error)
    }
}

impl From<ModifyError> for RawPacketError {
    fn from(error: ModifyError) -> Self {
        Self::Modify(error)
    }
}

impl From<CommandError> for RawPacketError {
    fn from(error: CommandError) -> Self {
        Self::Ethernet(EthernetError::Command(error))
    }
}
