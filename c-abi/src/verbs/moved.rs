//! QPs that the connection manager moves: those of ids, from `rdma_create_qp` until they are destroyed.
//!
//! The manager is locked while it moves a QP, and takes the QP's locks then. It never waits for them, since a program holds that of
//! the send queue from `ibv_wr_start` to `ibv_wr_complete`; and no thread waits for the manager with one of them held.

// UNSAFETY: shares a QP of C with the connection manager.
#![expect(unsafe_code)]

use std::ffi::c_int;
use std::fmt;
use std::sync::Mutex;

use bareverbs_node::cm::rdma::{AttachedQp, CmId};
use bareverbs_node::verbs::{DynQp, ModifyError, QpAttr, QpAttrMask, QpState, Qpn};

use crate::abi::numbers::IBV_QPT_XRC_RECV;
use crate::process::data_lock::DataGuard;
use crate::process::failure::{Errno, Result, lock};
use crate::process::hca::P;
use crate::verbs::qp::{AnyQp, QpObject, SendHalf};

/// The part of a QP that the connection manager moves.
#[derive(Default)]
pub(crate) struct Moved {
    /// The id that has the QP. It may be gone.
    by: Mutex<Option<CmId>>,
    /// A transition that is begun once the QP's locks can be had.
    waiting: Mutex<Option<(QpAttr, QpAttrMask)>>,
}

impl Moved {
    /// Returns `true` if who posts a send has to wait for the manager, which may be about to move the QP to RTS.
    pub(super) fn closes(&self, state: QpState) -> bool {
        matches!(state, QpState::Init | QpState::Rtr) && lock(&self.by).is_some()
    }
}

impl QpObject {
    /// Lets the connection manager move the QP for an id.
    ///
    /// # Safety
    /// The QP was created here, and is not destroyed meanwhile.
    pub(crate) unsafe fn attach(&self, id: CmId) -> Result<()> {
        // SAFETY: `destroy_qp` takes the QP away from the manager before it frees it, and the manager uses it in its calls
        // only, which the manager's lock keeps apart from that.
        let qp: &'static Self = unsafe { &*std::ptr::from_ref(self) };
        self.hca.manager()?.attach_qp(id, qp)?;
        *lock(&self.moved.by) = Some(id);
        self.with(|_| Ok(()))
    }

    /// Takes the QP away from the connection manager, before it is destroyed.
    pub(super) fn detach(&self) {
        let by = lock(&self.moved.by).take();
        if let Some(id) = by
            && let Ok(mut manager) = self.hca.manager()
            && let Err(error) = manager.detach_qp(id)
        {
            // The id is gone.
            log::debug!("{error}");
        }
    }

    /// Waits until the connection manager has moved the QP to where it is to go.
    pub(crate) fn settle(&self) {
        let by = *lock(&self.moved.by);
        if let Some(id) = by {
            self.hca.settle(id);
        }
    }

    /// The send queue of a QP to which a post has found nothing to post to, after what the connection manager does with it.
    pub(crate) fn send_later(&self) -> Result<DataGuard<'_, SendHalf>> {
        self.settle();
        let half = self.send.lock();
        let has_queue =
            self.ex.qp_base.qp_type != IBV_QPT_XRC_RECV && lock(&self.moved.by).is_some();
        match *half {
            Some(_) => Ok(half),
            // It is there, and holds nothing in this state.
            None if has_queue => Err(Errno::ENOMEM),
            None => Err(Errno::EINVAL),
        }
    }

    fn begin(
        &self,
        qp: &mut AnyQp,
        attr: &QpAttr,
        mask: QpAttrMask,
    ) -> std::result::Result<(), ModifyError> {
        verbs(qp)?.start_modify(attr, mask)?;
        if mask.contains(QpAttrMask::AV) {
            *lock(&self.path) = attr.ah_attr;
        }
        Ok(())
    }
}

/// QPs of ids are of these.
fn verbs(qp: &mut AnyQp) -> std::result::Result<&mut DynQp<'static, P>, ModifyError> {
    match qp {
        AnyQp::Verbs(qp) => Ok(qp),
        _ => Err(ModifyError::Unsupported {
            attribute: QpAttrMask::STATE,
        }),
    }
}

impl AttachedQp for QpObject {
    fn qpn(&self) -> Qpn {
        Qpn::from_low_bits(self.ex.qp_base.qp_num)
    }

    fn has_srq(&self) -> bool {
        !self.ex.qp_base.srq.is_null()
    }

    fn state(&self) -> QpState {
        let shown = self.shown_state();
        let found = QpState::ALL
            .into_iter()
            .find(|state| *state as c_int == shown);
        // A program has written something else there.
        found.unwrap_or(QpState::Reset)
    }

    fn start_modify(
        &self,
        attr: &QpAttr,
        mask: QpAttrMask,
    ) -> std::result::Result<(), ModifyError> {
        self.try_with(|qp| self.begin(qp, attr, mask))
            .unwrap_or_else(|| {
                *lock(&self.moved.waiting) = Some((*attr, mask));
                Ok(())
            })
    }

    fn try_finish_modify(&self) -> Option<std::result::Result<(), ModifyError>> {
        self.try_with(|qp| {
            let mut waiting = lock(&self.moved.waiting);
            if let Some((attr, mask)) = *waiting {
                match self.begin(qp, &attr, mask) {
                    Err(ModifyError::Command(error)) if error.failure.is_queue_full() => {
                        return None;
                    }
                    Err(error) => {
                        *waiting = None;
                        return Some(Err(error));
                    }
                    Ok(()) => *waiting = None,
                }
            }
            let finished = verbs(qp).map(DynQp::try_finish_modify);
            self.show_state(qp.state());
            finished.unwrap_or_else(|error| Some(Err(error)))
        })
        .flatten()
    }
}

impl fmt::Debug for QpObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QpObject")
            .field("qpn", &self.qpn())
            .finish_non_exhaustive()
    }
}

// SAFETY: programs in C use a QP from any thread, and each field that changes has its lock.
unsafe impl Sync for QpObject {}
