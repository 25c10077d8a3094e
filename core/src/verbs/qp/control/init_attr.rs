//! The attributes of a new QP, and why it could not be created.

use core::fmt;

use crate::platform::{DmaError, Platform};
use crate::types::error::CommandError;
use crate::types::qp::QpKind;
use crate::verbs::cq::{Cq, CqHandle};
use crate::verbs::qp::queue::sizes::{CapError, QpCap};
use crate::verbs::srq::{Srq, SrqHandle};

/// The attributes of a new QP: `struct ibv_qp_init_attr`.
pub struct QpInitAttr<'a, 'd, P: Platform> {
    /// The CQ for sends.
    pub send_cq: &'a Cq<'d, P>,
    /// The CQ for receives; an XRC initiator has none, and does not look at it.
    pub recv_cq: &'a Cq<'d, P>,
    /// The SRQ to receive from, instead of a receive queue of its own (RC and UD only).
    pub srq: Option<&'a Srq<'d, P>>,
    /// Sizes: asked for, then given.
    pub cap: QpCap,
    /// Let every send make a completion.
    pub sq_sig_all: bool,
}

impl<'a, 'd, P: Platform> QpInitAttr<'a, 'd, P> {
    /// One CQ for both queues, which hold `depth` work requests of one piece of memory each; every send makes a completion.
    #[must_use]
    pub const fn new(cq: &'a Cq<'d, P>, depth: u32) -> Self {
        Self {
            send_cq: cq,
            recv_cq: cq,
            srq: None,
            cap: QpCap {
                max_send_wr: depth,
                max_recv_wr: depth,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            sq_sig_all: true,
        }
    }
}

/// The same by handles, for a caller that does not own CQs and SRQ.
pub struct QpInitHandles<'d, P: Platform> {
    /// The CQ for sends.
    pub send_cq: CqHandle<'d, P>,
    /// The CQ for receives; an XRC initiator has none, and does not look at it.
    pub recv_cq: CqHandle<'d, P>,
    /// The SRQ to receive from, instead of a receive queue of its own (RC and UD only).
    pub srq: Option<SrqHandle<'d, P>>,
    /// Sizes: asked for, then given.
    pub cap: QpCap,
    /// Let every send make a completion.
    pub sq_sig_all: bool,
}

impl<'d, P: Platform> QpInitAttr<'_, 'd, P> {
    pub(crate) fn handles(&self) -> QpInitHandles<'d, P> {
        QpInitHandles {
            send_cq: self.send_cq.handle(),
            recv_cq: self.recv_cq.handle(),
            srq: self.srq.map(Srq::handle),
            cap: self.cap,
            sq_sig_all: self.sq_sig_all,
        }
    }
}

impl<P: Platform> fmt::Debug for QpInitAttr<'_, '_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QpInitAttr")
            .field("send_cq", &self.send_cq)
            .field("recv_cq", &self.recv_cq)
            .field("srq", &self.srq)
            .field("cap", &self.cap)
            .field("sq_sig_all", &self.sq_sig_all)
            .finish()
    }
}

impl<P: Platform> fmt::Debug for QpInitHandles<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QpInitHandles")
            .field("send_cq", &self.send_cq)
            .field("recv_cq", &self.recv_cq)
            .field("srq", &self.srq)
            .field("cap", &self.cap)
            .field("sq_sig_all", &self.sq_sig_all)
            .finish()
    }
}

/// Why a QP could not be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CreateQpError {
    /// A size is more than the device gives.
    Cap(CapError),
    /// QPs of this type are created by another call: XRC targets by [`Xrcd::create_qp`](crate::Xrcd::create_qp), targets of
    /// dynamic connections by [`Pd::create_dct`](crate::Pd::create_dct), raw packet QPs in an
    /// [`EthernetDomain`](crate::EthernetDomain).
    OtherCall {
        /// The type.
        kind: QpKind,
    },
    /// CQs, SRQ and PD are not all of one device.
    OtherDevice,
    /// QPs of this type do not take an SRQ.
    NoSrq {
        /// The type.
        kind: QpKind,
    },
    /// The SRQ is one for XRC: XRC targets receive into it, other QPs cannot use it.
    XrcSrq,
    /// The device, or the software interface agreed on, does not have XRC.
    NoXrc,
    /// The device does not have dynamic connections (`dct`).
    NoDc,
    /// The device, or this type of QP, does not put messages into completions.
    NoCqeScatter,
    /// The device does not support user indexes (CQE version 1), without which completions cannot be assigned.
    NoUserIndex,
    /// There is a GSI queue pair already, and the port has one QP1.
    GsiTaken,
    /// The storage that the device was opened with holds no more QPs.
    NoSlot {
        /// QPs that it holds.
        limit: usize,
    },
    /// The platform has no memory for the queues.
    Memory(DmaError),
    /// The firmware refused.
    Command(CommandError),
}

impl fmt::Display for CreateQpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cap(error) => error.fmt(f),
            Self::OtherCall { kind } => {
                write!(f, "a QP of type {kind:?} is created by another call")
            }
            Self::OtherDevice => f.write_str("CQs, SRQ and PD are not all of one device"),
            Self::NoSrq { kind } => write!(f, "a QP of type {kind:?} does not take an SRQ"),
            Self::XrcSrq => f.write_str("the SRQ is one for XRC"),
            Self::NoXrc => f.write_str("the device does not have XRC"),
            Self::NoDc => f.write_str("the device does not have dynamic connections"),
            Self::NoCqeScatter => f.write_str("no scatter to CQE"),
            Self::NoUserIndex => f.write_str("the device does not have CQE version 1"),
            Self::GsiTaken => f.write_str("QP1 is in use by the device's connection manager"),
            Self::NoSlot { limit } => {
                write!(f, "the device's storage holds {limit} QPs, all are in use")
            }
            Self::Memory(error) => error.fmt(f),
            Self::Command(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for CreateQpError {}
