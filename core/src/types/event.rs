//! Asynchronous events: what `ibv_get_async_event` reports.

pub use bareverbs_firmware_cmds::event::SyncReset;
use bareverbs_firmware_cmds::numbers::{Cqn, Qpn, Rqn, Srqn};

use crate::types::error::DeviceError;

/// An event that no completion reports (the names are those of `enum ibv_event_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AsyncEvent {
    /// The link came up.
    PortActive {
        /// Port number, from 1.
        port: u8,
    },
    /// The link went down.
    PortError {
        /// Port number, from 1.
        port: u8,
    },
    /// The port was initialized by the subnet manager but is not active yet (InfiniBand).
    PortInitialized {
        /// Port number, from 1.
        port: u8,
    },
    /// The port's LID changed (InfiniBand).
    LidChange {
        /// Port number, from 1.
        port: u8,
    },
    /// The P_Key table changed.
    PkeyChange {
        /// Port number, from 1.
        port: u8,
    },
    /// The port's GUID, hence its GIDs, changed.
    GidChange {
        /// Port number, from 1.
        port: u8,
    },
    /// The subnet manager asks clients to register again.
    ClientReregister {
        /// Port number, from 1.
        port: u8,
    },
    /// A sensor of the device, or of a module, is too hot.
    TemperatureWarning {
        /// Its number: those of modules are from 64 on. See
        /// [`Device::query_temperature`](crate::Device::query_temperature).
        sensor: u8,
    },
    /// Another host of the card, or a tool (`mlxfwreset`, `devlink dev reload`), resets the firmware, as for an update. The
    /// driver has refused, or agreed if [`Config::allow_firmware_reset`](crate::Config::allow_firmware_reset) is set. After it
    /// has agreed, [`SyncReset::Now`] and [`SyncReset::Unload`] ask the application to close the device, to have the function
    /// reset, its PCI link included, and to open it again. If the firmware is reset without that, the device has
    /// [failed](Self::DeviceFatal).
    FirmwareReset {
        /// The state of the reset.
        state: SyncReset,
    },
    /// First message on a connection whose own side has not reached RTS yet.
    CommunicationEstablished {
        /// The QP's number.
        qpn: Qpn,
    },
    /// The send queue has drained after a move to SQD.
    SqDrained {
        /// The QP's number.
        qpn: Qpn,
    },
    /// The alternate path was taken.
    PathMigrated {
        /// The QP's number.
        qpn: Qpn,
    },
    /// The alternate path could not be taken.
    PathMigrationError {
        /// The QP's number.
        qpn: Qpn,
    },
    /// The QP is in error, and no completion says so.
    QpFatal {
        /// The QP's number.
        qpn: Qpn,
    },
    /// An incoming request was not valid.
    QpRequestError {
        /// The QP's number.
        qpn: Qpn,
    },
    /// An incoming request was not allowed.
    QpAccessError {
        /// The QP's number.
        qpn: Qpn,
    },
    /// The QP in error has taken its last receive work request from the SRQ.
    QpLastWqeReached {
        /// The QP's number.
        qpn: Qpn,
    },
    /// A request with a wrong access key came to a target of dynamic connections that was
    /// [armed](crate::Dct::arm_key_violation) for it.
    DctKeyViolation {
        /// The target's number.
        dctn: Qpn,
    },
    /// The CQ is in error: it was overrun (syndrome 1), or its memory could not be reached (2).
    CqError {
        /// The CQ's number.
        cqn: Cqn,
        /// The device's reason.
        syndrome: u8,
    },
    /// The SRQ is in error.
    SrqError {
        /// The SRQ's number.
        srqn: Srqn,
    },
    /// The SRQ holds fewer work requests than its limit.
    SrqLimitReached {
        /// The SRQ's number.
        srqn: Srqn,
    },
    /// A receive queue by itself, or that of a raw packet QP, is in error, and no completion says so.
    WqFatal {
        /// The receive queue's number: [`RawPacketQp::receive_number`](crate::RawPacketQp::receive_number).
        rqn: Rqn,
    },
    /// The device no longer works.
    DeviceFatal(DeviceError),
}
