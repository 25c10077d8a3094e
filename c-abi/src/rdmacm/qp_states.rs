//! The states of the QPs of ids, on the way to a connection and at its end.

// UNSAFETY: raw pointers of C.
#![expect(unsafe_code)]

use bareverbs_node::cm::rdma::ConnParam;
use bareverbs_node::verbs::{QpAttr, QpAttrMask, QpState};

use crate::abi::cma::rdma_cm_id;
use crate::abi::numbers::IBV_QPT_UD;
use crate::process::failure::Result;
use crate::rdmacm::id::manager_of;
use crate::verbs::qp;

/// Takes an id's QP to a state, with as many READs and atomics as the parameters say if there are any.
///
/// # Safety
/// The id was created here, and has a QP.
pub(super) unsafe fn move_qp(
    id: *mut rdma_cm_id,
    state: QpState,
    param: Option<&ConnParam<'_>>,
) -> Result<()> {
    // SAFETY: the caller promises that the id was created here, and has a QP.
    unsafe {
        let (hca, cm) = manager_of(id)?;
        let (mut attr, mask) = hca.manager()?.init_qp_attr(cm, state)?;
        if let Some(param) = param {
            attr.max_dest_rd_atomic = param.responder_resources;
            attr.max_rd_atomic = param.initiator_depth;
        }
        qp::qp((*id).qp)?.modify(&attr, mask)
    }
}

/// Takes the QP of an id to INIT, or to work for datagrams.
///
/// # Safety
/// The id was created here, and has a QP.
pub(crate) unsafe fn init_qp(id: *mut rdma_cm_id) -> Result<()> {
    // SAFETY: the caller promises that the id was created here, and has a QP.
    unsafe {
        move_qp(id, QpState::Init, None)?;
        if (*id).qp_type == IBV_QPT_UD {
            move_qp(id, QpState::Rtr, None)?;
            move_qp(id, QpState::Rts, None)?;
        }
        Ok(())
    }
}

/// The other end has accepted: moves the QP and confirms. If that fails the QP is in ERR, and the other end is refused.
///
/// # Safety
/// The id was created here, and has a QP.
pub(crate) unsafe fn establish_own(id: *mut rdma_cm_id) -> Result<()> {
    // SAFETY: the caller promises that the id was created here, and has a QP.
    unsafe {
        let (hca, cm) = manager_of(id)?;
        let established = (|| {
            move_qp(id, QpState::Rtr, None)?;
            move_qp(id, QpState::Rts, None)?;
            Ok(hca.manager()?.establish(cm)?)
        })();
        if established.is_err() {
            flush_qp(id);
            let refused = hca.manager()?.reject(cm, &[]);
            if let Err(error) = refused {
                log::debug!("{error}");
            }
        }
        established
    }
}

/// Moves the QP of an id to ERR, so that what is posted comes back.
///
/// # Safety
/// The id was created here.
pub(crate) unsafe fn flush_qp(id: *mut rdma_cm_id) {
    let attr = QpAttr {
        qp_state: QpState::Err,
        ..QpAttr::DEFAULT
    };
    // SAFETY: the caller's promise: its QP is one of this library's.
    let flushed = match unsafe { qp::qp((*id).qp) } {
        Ok(qp) => qp.modify(&attr, QpAttrMask::STATE),
        Err(_) => Ok(()),
    };
    if let Err(errno) = flushed {
        log::debug!("to ERR: {errno:?}");
    }
}
