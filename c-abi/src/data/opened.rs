//! Requests of `ibv_wr_*` that a QP keeps between two calls.

use std::ffi::c_int;
use std::mem::ManuallyDrop;

use bareverbs_node::verbs::{OpenBatch, Rc, Uc, Ud, XrcSend, qp::RawPacket};

use crate::abi::numbers::*;
use crate::process::hca::P;

/// Requests of one type that are built and not posted.
pub(crate) type Open<T> = OpenBatch<'static, 'static, P, T>;

/// Requests between `ibv_wr_start` and `ibv_wr_complete` or `ibv_wr_abort`: of the QP's type.
pub(crate) union Opened {
    pub(crate) rc: ManuallyDrop<Option<Open<Rc>>>,
    pub(crate) uc: ManuallyDrop<Option<Open<Uc>>>,
    pub(crate) ud: ManuallyDrop<Option<Open<Ud>>>,
    pub(crate) xrc: ManuallyDrop<Option<Open<XrcSend>>>,
    pub(crate) raw: ManuallyDrop<Option<Open<RawPacket>>>,
}

/// None, of a QP of this type.
pub(crate) fn none(qp_type: c_int) -> Opened {
    match qp_type {
        IBV_QPT_UC => Opened {
            uc: ManuallyDrop::new(None),
        },
        IBV_QPT_UD => Opened {
            ud: ManuallyDrop::new(None),
        },
        IBV_QPT_XRC_SEND => Opened {
            xrc: ManuallyDrop::new(None),
        },
        IBV_QPT_RAW_PACKET => Opened {
            raw: ManuallyDrop::new(None),
        },
        _ => Opened {
            rc: ManuallyDrop::new(None),
        },
    }
}
