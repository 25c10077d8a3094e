//! Why a run failed, from the machine up to the ping-pong.

use core::fmt;
use core::net::IpAddr;
use core::time::Duration;

use bareverbs_cm::rdma::RdmaError;
use bareverbs_core::error::{CloseError, CommandError, DeviceError, OpenError};
use bareverbs_core::{PortState, WcStatus};
use kernel::MachineError;

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
    Rdma(RdmaError),
    /// The server refused, and told this many bytes beside its reason.
    Refused(RdmaError, usize),
    /// A work request failed.
    Completion {
        /// Which.
        what: &'static str,
        /// How.
        status: WcStatus,
        /// What the vendor says of it.
        vendor: u8,
    },
    /// The other end has said nothing for so long.
    Silent(Duration),
    /// The other end disconnected in the middle of this ping.
    Disconnected(u32),
    /// A message has another length than all messages have.
    MessageLength(u32),
    /// The client wants more bytes than there is room for.
    TooLong {
        /// What it wants.
        wanted: u32,
        /// The room.
        room: u32,
    },
    /// What came back is not what was sent.
    Mismatch {
        /// In which ping.
        ping: u32,
        /// At which byte.
        at: usize,
        /// What was sent.
        sent: u8,
        /// What came back.
        received: u8,
    },
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
            Self::Rdma(error) => error.fmt(f),
            Self::Refused(error, told) => write!(f, "{error}, with {told} bytes of explanation"),
            Self::Completion {
                what,
                status,
                vendor,
            } => {
                write!(f, "{what} failed: {status} (vendor error {vendor:#x})")
            }
            Self::Silent(patience) => write!(f, "the other end has said nothing for {patience:?}"),
            Self::Disconnected(ping) => write!(f, "the other end disconnected in ping {ping}"),
            Self::MessageLength(len) => write!(f, "a message of {len} bytes"),
            Self::TooLong { wanted, room } => {
                write!(
                    f,
                    "the client wants {wanted} bytes, there is room for {room}"
                )
            }
            Self::Mismatch {
                ping,
                at,
                sent,
                received,
            } => write!(
                f,
                "ping {ping}: byte {at} came back as {received:#04x}, not {sent:#04x}"
            ),
            Self::Families(ours, theirs) => write!(f, "{ours} and {theirs} are of two families"),
        }
    }
}

macro_rules! from {
    ($($type:ty => $variant:ident),* $(,)?) => {
        $(impl From<$type> for Failure {
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
    RdmaError => Rdma,
}
