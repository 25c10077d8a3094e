//! Errors of the manager, and librdmacm's errno for each.

use core::fmt;
use core::net::{IpAddr, SocketAddr};

use bareverbs_core::cq::CqError;
use bareverbs_core::mr::{MrError, OutOfRange};
use bareverbs_core::qp::{BadWr, CreateQpError, ModifyError, PostError};
use bareverbs_core::srq::SrqError;
use bareverbs_core::wc::WcError;
use bareverbs_core::{
    CommandError, DeviceError, EthernetError, EthernetReceiveError, EthernetSendError, GidError,
};

use crate::engine;
use crate::ip::HostError;
#[cfg(feature = "infiniband")]
use crate::mad::AprStatus;
use crate::mad::{MadError, RejectReason, SidrStatus};
use crate::rdma::types::awaited::Awaited;
use crate::rdma::types::extended::ExtendedAttribute;
use crate::rdma::types::{DEVICE_MAX, EventType, IdState, IdType, PortSpace};
use crate::sa::SaError;

/// Error numbers of Linux, as far as librdmacm's calls give them.
pub mod errno {
    #![expect(missing_docs, reason = "the names say it")]
    pub const EPERM: i32 = 1;
    pub const ENOENT: i32 = 2;
    pub const EIO: i32 = 5;
    pub const EAGAIN: i32 = 11;
    pub const ENOMEM: i32 = 12;
    pub const EBUSY: i32 = 16;
    pub const ENODEV: i32 = 19;
    pub const EINVAL: i32 = 22;
    pub const ENOSYS: i32 = 38;
    pub const EPROTONOSUPPORT: i32 = 93;
    pub const EOPNOTSUPP: i32 = 95;
    pub const EAFNOSUPPORT: i32 = 97;
    pub const EADDRINUSE: i32 = 98;
    pub const EADDRNOTAVAIL: i32 = 99;
    pub const ENETUNREACH: i32 = 101;
    pub const EISCONN: i32 = 106;
    pub const ETIMEDOUT: i32 = 110;
    pub const ECONNREFUSED: i32 = 111;
    pub const EHOSTUNREACH: i32 = 113;
}

/// Why a call failed.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum RdmaError {
    /// The id was destroyed.
    NoSuchId,
    /// The event channel was destroyed.
    NoSuchChannel,
    /// The call is not allowed in the id's state.
    WrongState {
        /// The call.
        call: &'static str,
        /// The state.
        state: IdState,
    },
    /// The id works with a channel where it would have to work without one, or the other way round.
    WrongMode {
        /// The call.
        call: &'static str,
    },
    /// The id has no local address yet, so that it belongs to no device.
    NotBound,
    /// The storage is full.
    Full {
        /// The kind of object whose storage is full.
        what: &'static str,
        /// The number of objects that the storage can hold.
        capacity: usize,
    },
    /// This port space, or this call in it, comes with a later version.
    Unsupported(&'static str),
    /// The port is taken.
    AddrInUse(SocketAddr),
    /// The address is not the port's, the port number is taken by a wildcard, or no port number is free.
    AddrNotAvailable(SocketAddr),
    /// The address is not in the device's GID table.
    NoDevice(IpAddr),
    /// Source and destination are of different families.
    FamilyMismatch,
    /// There is no route to the address.
    NetUnreachable(IpAddr),
    /// No host answers at the address.
    HostUnreachable(IpAddr),
    /// It took too long.
    TimedOut,
    /// The other end refused.
    Rejected(RejectReason),
    /// Nothing came of what an id waited for, in the time that there was.
    Unanswered(Awaited),
    /// Another event than the one that was waited for.
    Event {
        /// The event.
        event: EventType,
        /// Its status.
        status: i32,
    },
    /// There is nothing yet.
    WouldBlock,
    /// A value is above what the device or the protocol can do.
    TooMuch {
        /// Name of the value.
        name: &'static str,
        /// The value.
        value: u32,
        /// The most that is possible.
        max: u32,
    },
    /// More private data than the message carries.
    PrivateDataTooLong {
        /// Bytes given.
        len: usize,
        /// Bytes that fit.
        max: usize,
    },
    /// The datagram service is not available.
    ServiceRefused(SidrStatus),
    /// The call is not for ids of this port space.
    WrongPortSpace {
        /// The call.
        call: &'static str,
        /// The id's port space.
        port_space: PortSpace,
    },
    /// The call is not for ids of this type.
    WrongType {
        /// The call.
        call: &'static str,
        /// The id's type.
        id_type: IdType,
    },
    /// The datagram service has another Q_Key than the id's QP, which will not receive from it.
    WrongQkey {
        /// The id's Q_Key.
        ours: u32,
        /// The service's Q_Key.
        theirs: u32,
    },
    /// The datagram has no network header in front, so that its source is not known.
    NoNetworkHeader,
    /// The service of an address is not one of the id's port space.
    WrongService {
        /// The service.
        service_id: u64,
        /// The id's port space.
        port_space: PortSpace,
    },
    /// The port is not in this partition.
    NoSuchPartition(u16),
    /// Subnet administration has no path in this partition, of which the port is a limited member.
    LimitedMember(u16),
    /// A path does not begin at the port.
    NotOurLid(u16),
    /// The other end, or this one, refuses an alternate path.
    #[cfg(feature = "infiniband")]
    AlternatePath(AprStatus),
    /// Subnet administration refused or did not answer.
    Sa(SaError),
    /// The id is not in this multicast group.
    NotJoined(IpAddr),
    /// A PD, a CQ, an SRQ or an XRC domain is of another device than the id.
    OtherDevice(&'static str),
    /// The id has a QP already.
    QpExists,
    /// The id has no QP.
    NoQp,
    /// The connection is established already.
    AlreadyConnected,
    /// The CM's engine refused.
    Engine(engine::CmError),
    /// A header could not be written.
    Mad(MadError),
    /// Another machine has the address.
    AddressInUse {
        /// The address.
        address: IpAddr,
        /// The other machine.
        mac: [u8; 6],
    },
    /// An address, a route or a group was refused.
    Host(HostError),
    /// The GID table did not take an address.
    Gid(GidError),
    /// The port's Ethernet queue could not be made or changed.
    Ethernet(EthernetError),
    /// The Ethernet queue does not send.
    EthernetSend(EthernetSendError),
    /// The Ethernet queue does not receive.
    EthernetReceive(EthernetReceiveError),
    /// The device has failed.
    Device(DeviceError),
    /// A firmware command failed.
    Command(CommandError),
    /// A CQ failed.
    Cq(CqError),
    /// An SRQ could not be created, or destroyed.
    Srq(SrqError),
    /// The id has an SRQ already.
    SrqExists,
    /// The id has no SRQ.
    NoSrq,
    /// A QP cannot have this attribute.
    UnsupportedAttribute(ExtendedAttribute),
    /// A QP could not be created.
    CreateQp(CreateQpError),
    /// A QP could not be moved to another state.
    ModifyQp(ModifyError),
    /// Memory could not be registered.
    Mr(MrError),
    /// A work request could not be posted.
    Post(PostError),
    /// One of a list of work requests could not be posted.
    BadWr(BadWr),
    /// A work request completed with an error. The completion was taken from its CQ; this is what it said.
    Completion(WcError),
    /// Beyond the end of a buffer.
    OutOfRange(OutOfRange),
}

impl RdmaError {
    /// The firmware's command that failed.
    const fn command(&self) -> Option<&CommandError> {
        match self {
            Self::Command(command)
            | Self::Cq(CqError::Command(command))
            | Self::CreateQp(CreateQpError::Command(command))
            | Self::Gid(GidError::Command(command))
            | Self::ModifyQp(ModifyError::Command(command))
            | Self::Mr(MrError::Command(command))
            | Self::Srq(SrqError::Command(command)) => Some(command),
            _ => None,
        }
    }

    /// librdmacm's `errno` for this error. That of a firmware's command that failed is the one of Linux's driver
    /// ([`CommandError::errno`]).
    pub const fn errno(&self) -> i32 {
        match self {
            Self::ModifyQp(ModifyError::Unsupported { .. }) => errno::EOPNOTSUPP,
            _ => match self.command() {
                Some(command) => command.errno(),
                None => self.status(),
            },
        }
    }

    /// Returns the number for the status of an event, in which every failure of the firmware is EIO.
    pub(crate) const fn status(&self) -> i32 {
        use errno::*;
        match self {
            Self::NoSuchId
            | Self::NoSuchChannel
            | Self::WrongState { .. }
            | Self::WrongMode { .. }
            | Self::NotBound
            | Self::TooMuch { .. }
            | Self::PrivateDataTooLong { .. }
            | Self::OtherDevice(_)
            | Self::QpExists
            | Self::NoQp
            | Self::SrqExists
            | Self::NoSrq
            | Self::WrongPortSpace { .. }
            | Self::WrongType { .. }
            | Self::WrongQkey { .. }
            | Self::NotOurLid(_)
            | Self::FamilyMismatch
            | Self::NoNetworkHeader
            | Self::Mad(_)
            | Self::OutOfRange(_) => EINVAL,
            Self::ModifyQp(ModifyError::Command(_)) | Self::Mr(MrError::Command(_)) => EIO,
            #[cfg(feature = "infiniband")]
            Self::AlternatePath(_) => EINVAL,
            Self::Mr(MrError::Memory(_) | MrError::DmExhausted) => ENOMEM,
            Self::Mr(MrError::Unsupported { .. } | MrError::NoOnDemandPaging { .. }) => EOPNOTSUPP,
            Self::ModifyQp(_) | Self::Mr(_) => EINVAL,
            Self::Full { .. } => ENOMEM,
            Self::Unsupported(_) => ENOSYS,
            Self::AddrInUse(_) | Self::AddressInUse { .. } => EADDRINUSE,
            Self::Host(HostError::Full { .. }) => ENOMEM,
            Self::Host(HostError::Exists(_)) => EADDRINUSE,
            Self::Host(HostError::Unknown(_)) => EADDRNOTAVAIL,
            Self::Host(HostError::GatewayOutOfReach(_)) => ENETUNREACH,
            Self::Host(_) => EINVAL,
            Self::Ethernet(EthernetError::Busy) => EBUSY,
            Self::Ethernet(EthernetError::Memory(_)) => ENOMEM,
            Self::Ethernet(EthernetError::NotEthernet) => EAFNOSUPPORT,
            Self::Gid(_) | Self::Ethernet(_) | Self::EthernetSend(_) | Self::EthernetReceive(_) => {
                EIO
            }
            Self::AddrNotAvailable(_) => EADDRNOTAVAIL,
            Self::NotJoined(_) => EADDRNOTAVAIL,
            Self::NoSuchPartition(_) => ENODEV,
            Self::WrongService { .. } => EPROTONOSUPPORT,
            Self::Sa(SaError::NoAnswer) => ETIMEDOUT,
            Self::Sa(SaError::NoSlots { .. }) => ENOMEM,
            Self::Sa(_) | Self::LimitedMember(_) => EINVAL,
            Self::NoDevice(_) => ENODEV,
            Self::NetUnreachable(_) => ENETUNREACH,
            Self::HostUnreachable(_)
            | Self::Unanswered(Awaited::Neighbour {
                other_vlan: Some(_),
                ..
            }) => EHOSTUNREACH,
            Self::TimedOut | Self::Unanswered(_) => ETIMEDOUT,
            Self::Rejected(_) => ECONNREFUSED,
            // What librdmacm makes of an event's positive status.
            Self::ServiceRefused(status) => status.0 as i32,
            Self::Event { status, .. } => {
                if *status < 0 {
                    -*status
                } else if *status > 0 {
                    *status
                } else {
                    EINVAL
                }
            }
            Self::WouldBlock => EAGAIN,
            Self::AlreadyConnected => EISCONN,
            Self::Engine(error) => match error {
                engine::CmError::NoConnectionSlots { .. }
                | engine::CmError::NoSidrSlots { .. }
                | engine::CmError::NoListenerSlots { .. } => ENOMEM,
                engine::CmError::ServiceInUse { .. } => EADDRINUSE,
                _ => EINVAL,
            },
            Self::Device(_) | Self::Command(_) | Self::Completion(_) => EIO,
            Self::Cq(error) => match error {
                CqError::NoSlot { .. } | CqError::Memory(_) => ENOMEM,
                CqError::Busy { .. } => EBUSY,
                CqError::Size { .. } | CqError::TooManyOutstanding { .. } => EINVAL,
                CqError::Unsupported => EOPNOTSUPP,
                _ => EIO,
            },
            Self::Srq(error) => match error {
                SrqError::NoSlot { .. } | SrqError::Memory(_) => ENOMEM,
                SrqError::Busy { .. } => EBUSY,
                SrqError::Command(_) => EIO,
                _ => EINVAL,
            },
            Self::UnsupportedAttribute(_) => EOPNOTSUPP,
            Self::CreateQp(error) => match error {
                CreateQpError::NoSlot { .. } | CreateQpError::Memory(_) => ENOMEM,
                CreateQpError::Command(_) => EIO,
                _ => EINVAL,
            },
            Self::Post(error) | Self::BadWr(BadWr { error, .. }) => match error {
                PostError::QueueFull { .. } => ENOMEM,
                _ => EINVAL,
            },
        }
    }
}

impl fmt::Display for RdmaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchId => f.write_str("the id was destroyed"),
            Self::NoSuchChannel => f.write_str("the event channel was destroyed"),
            Self::WrongState { call, state } => write!(f, "{call} on an id in state {state:?}"),
            Self::WrongMode { call } => write!(
                f,
                "{call} does not go with the id's mode (synchronous or not)"
            ),
            Self::NotBound => f.write_str("the id is not bound to an address of the device"),
            Self::Full { what, capacity } => write!(f, "all {capacity} {what} are in use"),
            Self::Unsupported(what) => write!(f, "{what} is not supported"),
            Self::AddrInUse(address) => write!(f, "{address} is in use"),
            Self::AddrNotAvailable(address) => write!(
                f,
                "{address} is not available: another host's address, or its port is taken"
            ),
            Self::NoDevice(address) => {
                write!(
                    f,
                    "{address} is not in the GID table (RoCE v2, or the resolver's version)"
                )
            }
            Self::FamilyMismatch => {
                f.write_str("source and destination are of different address families")
            }
            Self::NetUnreachable(address) => write!(f, "there is no route to {address}"),
            Self::HostUnreachable(address) => write!(f, "no host answers at {address}"),
            Self::TimedOut => f.write_str("timed out"),
            Self::Rejected(reason) => write!(f, "the other end refused: reason {reason}"),
            Self::ServiceRefused(status) => write!(f, "no such datagram service: {status}"),
            Self::WrongQkey { ours, theirs } => write!(
                f,
                "the service has Q_Key {theirs:#010x}, the id has {ours:#010x}"
            ),
            Self::WrongService {
                service_id,
                port_space,
            } => write!(
                f,
                "service {service_id:#x} is not one of port space {port_space:?}"
            ),
            Self::NoSuchPartition(pkey) => write!(f, "the port is not in partition {pkey:#06x}"),
            #[cfg(feature = "infiniband")]
            Self::AlternatePath(status) => write!(f, "an alternate path is refused: {status}"),
            Self::NotOurLid(lid) => write!(f, "LID {lid:#x} is not the port's"),
            Self::Sa(error) => error.fmt(f),
            Self::LimitedMember(pkey) => write!(
                f,
                "subnet administration has no path there: this port is a limited member of partition {pkey:#06x}, and limited \
                 members do not reach each other (for OpenSM, \"=full\" in the list of partitions)"
            ),
            Self::NotJoined(group) => write!(f, "the id is not in {group}"),
            Self::NoNetworkHeader => f.write_str("the datagram has no network header"),
            Self::WrongPortSpace { call, port_space } => {
                write!(f, "{call} on an id of port space {port_space:?}")
            }
            Self::WrongType { call, id_type } => {
                write!(f, "{call} on an id of type {id_type:?}")
            }
            Self::Unanswered(awaited) => awaited.fmt(f),
            Self::Event { event, status } => write!(f, "{event} with status {status}"),
            Self::WouldBlock => f.write_str("there is nothing"),
            Self::TooMuch { name, value, max } => {
                write!(f, "{name} is {value}, at most {max} is possible")
            }
            Self::PrivateDataTooLong { len, max } => {
                write!(f, "{len} bytes of private data, at most {max} fit")
            }
            Self::OtherDevice(what) => {
                write!(f, "the {what} is of another device than the id")
            }
            Self::QpExists => f.write_str("the id has a QP already"),
            Self::NoQp => f.write_str("the id has no QP"),
            Self::AlreadyConnected => f.write_str("the connection is established already"),
            Self::Engine(error) => error.fmt(f),
            Self::Mad(error) => error.fmt(f),
            Self::AddressInUse {
                address,
                mac: [a, b, c, d, e, g],
            } => write!(
                f,
                "{address} is the address of another machine, {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}"
            ),
            Self::Host(error) => error.fmt(f),
            Self::Gid(error) => error.fmt(f),
            Self::Ethernet(error) => error.fmt(f),
            Self::EthernetSend(error) => error.fmt(f),
            Self::EthernetReceive(error) => error.fmt(f),
            Self::Device(error) => error.fmt(f),
            Self::Command(error) => error.fmt(f),
            Self::Cq(error) => error.fmt(f),
            Self::Srq(error) => error.fmt(f),
            Self::SrqExists => f.write_str("the id has an SRQ already"),
            Self::NoSrq => f.write_str("the id has no SRQ"),
            Self::UnsupportedAttribute(attribute) => {
                write!(f, "a QP cannot have {attribute}")
            }
            Self::CreateQp(error) => write!(f, "no QP: {error}"),
            Self::ModifyQp(error) => error.fmt(f),
            Self::Mr(error) => write!(f, "no memory region: {error}"),
            Self::Post(error) => error.fmt(f),
            Self::BadWr(error) => error.fmt(f),
            Self::Completion(error) => error.fmt(f),
            Self::OutOfRange(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for RdmaError {}

macro_rules! from {
    ($($type:ty => $variant:ident),* $(,)?) => {
        $(impl From<$type> for RdmaError {
            #[cold]
            #[inline(never)]
            fn from(error: $type) -> Self {
                Self::$variant(error)
            }
        })*
    };
}

from! {
    MadError => Mad,
    SaError => Sa,
    HostError => Host,
    GidError => Gid,
    EthernetError => Ethernet,
    DeviceError => Device,
    CommandError => Command,
    CqError => Cq,
    SrqError => Srq,
    CreateQpError => CreateQp,
    ModifyError => ModifyQp,
    MrError => Mr,
    PostError => Post,
    BadWr => BadWr,
    WcError => Completion,
    OutOfRange => OutOfRange,
}

impl From<engine::CmError> for RdmaError {
    #[cold]
    #[inline(never)]
    fn from(error: engine::CmError) -> Self {
        match error {
            engine::CmError::PrivateDataTooLong { len, max } => {
                Self::PrivateDataTooLong { len, max }
            }
            other => Self::Engine(other),
        }
    }
}

/// Refuses private data that is longer than the message can hold.
pub(crate) fn fits(len: usize, max: usize) -> Result<(), RdmaError> {
    if len > max {
        Err(RdmaError::PrivateDataTooLong { len, max })
    } else {
        Ok(())
    }
}

/// A depth that was asked for, against what the device can: EINVAL above it.
pub(crate) fn depth(name: &'static str, asked: u8, max: u8) -> Result<u8, RdmaError> {
    match asked {
        DEVICE_MAX => Ok(max),
        asked if asked > max => Err(RdmaError::TooMuch {
            name,
            value: asked.into(),
            max: max.into(),
        }),
        asked => Ok(asked),
    }
}
