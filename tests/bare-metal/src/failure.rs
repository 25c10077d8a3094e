//! Why a run failed, from the machine up to the ping-pong.

use core::fmt;
use core::net::IpAddr;

#[cfg(feature = "cm")]
use bareverbs::cm::rdma::RdmaError;
use bareverbs::verbs::PortState;
use bareverbs::verbs::error::{CloseError, CommandError, DeviceError, OpenError};
use kernel::MachineError;

#[cfg(feature = "rping")]
use crate::ping::PingError;

/// Why a run failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The machine is not as it should be.
    Machine(MachineError),
    /// The command line has a word that means nothing here.
    Option(&'static str),
    /// The command line lacks this one.
    Missing(&'static str),
    /// The card did not come up.
    Open(OpenError),
    /// The card did not go down in order.
    Close(CloseError),
    /// The firmware refused.
    Command(CommandError),
    /// The card is in trouble.
    Device(DeviceError),
    /// The cable is not plugged in.
    Port(PortState),
    /// The connection manager, or a verb.
    #[cfg(feature = "cm")]
    Rdma(RdmaError),
    /// The pings ended too early.
    #[cfg(feature = "rping")]
    Ping(PingError),
    /// Addresses of different families do not meet.
    Families(IpAddr, IpAddr),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine(error) => error.fmt(f),
            Self::Option(word) => write!(f, "the command line has {word:?}, which means nothing"),
            Self::Missing(name) => write!(f, "the command line has no {name}"),
            Self::Open(error) => error.fmt(f),
            Self::Close(error) => error.fmt(f),
            Self::Command(error) => error.fmt(f),
            Self::Device(error) => error.fmt(f),
            Self::Port(state) => write!(f, "the port is {state:?}"),
            #[cfg(feature = "cm")]
            Self::Rdma(error) => error.fmt(f),
            #[cfg(feature = "rping")]
            Self::Ping(error) => error.fmt(f),
            Self::Families(ours, theirs) => write!(f, "{ours} and {theirs} are of two families"),
        }
    }
}

macro_rules! from {
    ($($(#[$when:meta])? $type:ty => $variant:ident),* $(,)?) => {
        $($(#[$when])?
        impl From<$type> for Failure {
            #[cold]
            #[inline(never)]
            fn from(error: $type) -> Self {
                Self::$variant(error)
            }
        })*
    };
}

from! {
    MachineError => Machine,
    OpenError => Open,
    CloseError => Close,
    CommandError => Command,
    DeviceError => Device,
    #[cfg(feature = "cm")]
    RdmaError => Rdma,
    #[cfg(feature = "rping")]
    PingError => Ping,
}
