//! What can go wrong, from the machine up to the ping-pong.

use core::fmt;
use core::net::IpAddr;
use core::time::Duration;

use bareverbs_cm::rdma::RdmaError;
use bareverbs_core::error::{CloseError, CommandError, DeviceError, OpenError};
use bareverbs_core::{PortState, WcStatus};
use pci_types::PciAddress;

/// What is wrong with the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MachineError {
    /// The boot loader left no start information, or of an unknown form.
    NoStartInfo,
    /// There is no memory beyond the image.
    NoMemory,
    /// ACPI's root pointer leads nowhere.
    NoAcpi,
    /// ACPI lacks this table, or it is too short.
    NoTable(&'static str),
    /// A counter does not count.
    ClockStands,
    /// No two measurements of the cycle counter agree.
    ClockUnsteady,
    /// Page tables reach not so far.
    AddressTooHigh(u64),
    /// No page frame is left.
    OutOfMemory,
    /// There is no ConnectX on the PCI bus.
    NoCard,
    /// BAR 0 of the card has no address, or is no memory.
    NoBar(PciAddress),
    /// The card's MSI-X table is not where it should be.
    NoMsix(PciAddress),
    /// The card did not come back from its reset.
    NotReset(PciAddress),
}

impl fmt::Display for MachineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoStartInfo => f.write_str("the boot loader tells nothing about the machine"),
            Self::NoMemory => f.write_str("there is no memory beside the image"),
            Self::NoAcpi => f.write_str("there are no ACPI tables"),
            Self::NoTable(name) => write!(f, "ACPI has no usable table {name}"),
            Self::ClockStands => f.write_str("a timer stands still"),
            Self::ClockUnsteady => f.write_str("the cycle counter is not steady"),
            Self::AddressTooHigh(address) => write!(f, "{address:#x} cannot be mapped"),
            Self::OutOfMemory => f.write_str("no page frame is left"),
            Self::NoCard => f.write_str("there is no ConnectX"),
            Self::NoBar(at) => write!(f, "{}: BAR 0 is no memory", Place(*at)),
            Self::NoMsix(at) => write!(f, "{}: there is no MSI-X table in BAR 0", Place(*at)),
            Self::NotReset(at) => write!(f, "{}: it did not come back from its reset", Place(*at)),
        }
    }
}

/// A PCI address, as it is usually written.
pub(crate) struct Place(pub(crate) PciAddress);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.0;
        let (segment, bus) = (at.segment(), at.bus());
        write!(
            f,
            "{segment:04x}:{bus:02x}:{:02x}.{}",
            at.device(),
            at.function()
        )
    }
}

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
