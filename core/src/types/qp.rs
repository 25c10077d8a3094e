//! The type of a QP as a value, and its state.

use core::fmt;

use bareverbs_firmware_cmds::values::QpServiceType;

/// The transport service of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QpKind {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// The general services interface, QP 1.
    Gsi,
    /// The initiator of an extended reliable connection.
    XrcSend,
    /// The target of an extended reliable connection.
    XrcRecv,
    /// The initiator of dynamic connections.
    Dci,
    /// Their target.
    Dct,
    /// Whole Ethernet frames.
    RawPacket,
}

#[cfg(test)]
impl QpKind {
    pub(crate) const ALL: [Self; 9] = [
        Self::Rc,
        Self::Uc,
        Self::Ud,
        Self::Gsi,
        Self::XrcSend,
        Self::XrcRecv,
        Self::Dci,
        Self::Dct,
        Self::RawPacket,
    ];
}

impl QpKind {
    /// `qpc.st`.
    pub(crate) const fn service(self) -> u8 {
        match self {
            Self::Rc => QpServiceType::Rc,
            Self::Uc => QpServiceType::Uc,
            Self::Ud => QpServiceType::Ud,
            Self::XrcSend | Self::XrcRecv => QpServiceType::Xrc,
            Self::Gsi => QpServiceType::Qp1,
            Self::Dci => QpServiceType::Dci,
            Self::Dct => QpServiceType::Dct,
            // It has no QP context.
            Self::RawPacket => return 0,
        }
        .number()
    }

    /// Returns `true` if it is one end of an extended reliable connection. There are none in a build without them.
    pub(crate) const fn is_xrc(self) -> bool {
        cfg!(feature = "xrc") && matches!(self, Self::XrcSend | Self::XrcRecv)
    }
}

/// State of a queue pair: `enum ibv_qp_state`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum QpState {
    /// Newly made; nothing can be posted.
    Reset = 0,
    /// Receives can be posted.
    Init = 1,
    /// Ready to receive.
    Rtr = 2,
    /// Ready to send.
    Rts = 3,
    /// Send queue drained.
    Sqd = 4,
    /// Send queue error.
    Sqe = 5,
    /// Error: all work is flushed.
    Err = 6,
}

impl QpState {
    /// All states.
    pub const ALL: [Self; 7] = [
        Self::Reset,
        Self::Init,
        Self::Rtr,
        Self::Rts,
        Self::Sqd,
        Self::Sqe,
        Self::Err,
    ];

    /// From `qpc.state`, where "send queue draining" counts as drained.
    #[must_use]
    pub const fn from_qpc(state: u8) -> Option<Self> {
        Some(match state {
            0 => Self::Reset,
            1 => Self::Init,
            2 => Self::Rtr,
            3 => Self::Rts,
            4 => Self::Sqe,
            5 | 7 => Self::Sqd,
            6 => Self::Err,
            _ => return None,
        })
    }
}

impl fmt::Display for QpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reset => "RESET",
            Self::Init => "INIT",
            Self::Rtr => "RTR",
            Self::Rts => "RTS",
            Self::Sqd => "SQD",
            Self::Sqe => "SQE",
            Self::Err => "ERR",
        })
    }
}
