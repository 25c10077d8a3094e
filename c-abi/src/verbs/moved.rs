//! QPs that the connection manager moves: those of ids, from `rdma_create_qp` until they are destroyed, or until the program takes
//! them from their ids (`id->qp = NULL`) and makes the next call on these.
//!
//! The manager is locked while it moves a QP, and takes the QP's locks then. It never waits for them, since a program holds that of
//! the send queue from `ibv_wr_start` to `ibv_wr_complete`, and may make calls meanwhile that wait for the manager.

// UNSAFETY: shares a QP of C with the connection manager.
#![expect(unsafe_code)]

use std::ffi::c_int;
use std::fmt;
use std::sync::Mutex;

use bareverbs_node::cm::rdma::{AttachedQp, CmId};
use bareverbs_node::verbs::{DynQp, ModifyError, QpAttr, QpAttrMask, QpState, Qpn};

use crate::process::data_lock::DataGuard;
use crate::process::failure::{Errno, Result, lock};
use crate::process::hca::P;
use crate::verbs::qp::{AnyQp, QpObject, SendHalf};

/// The part of a QP that the connection manager moves.
#[derive(Default)]
pub(crate) struct Moved {
    /// The id that has the QP. It may be gone.
    by: Mutex<Option<CmId>>,
    transition: Mutex<Transition>,
}

/// A transition that the connection manager has asked for.
#[derive(Default)]
enum Transition {
    #[default]
    None,
    /// It is begun once the QP's locks can be had.
    Waiting(QpAttr, QpAttrMask),
    /// It is under way, to this state if the state changes.
    Begun(Option<QpState>),
}

impl Moved {
    /// Returns `true` if a send that is posted has to wait for the manager, which may be about to move the QP to RTS.
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
            && let Err(error) = manager.detach_qp(id, self.qpn())
        {
            // The id is gone, or has another one.
            log::debug!("{error}");
        }
    }

    /// Waits until the connection manager has moved the QP to where it is to go.
    pub(crate) fn settle(&self) {
        let by = *lock(&self.moved.by);
        if let Some(id) = by {
            self.hca.settle(id, Some(self.qpn()));
        }
    }

    /// The send queue after the transition that is under way, for a post that was made in a state without one.
    ///
    /// # Errors
    /// EINVAL if the QP takes no sends in its state.
    pub(crate) fn send_later(&self) -> Result<DataGuard<'_, SendHalf>> {
        self.settle();
        let half = self.send.lock();
        half.is_some().then_some(half).ok_or(Errno::EINVAL)
    }

    fn begin(
        &self,
        qp: &mut AnyQp,
        attr: &QpAttr,
        mask: QpAttrMask,
    ) -> std::result::Result<(), ModifyError> {
        verbs(qp)?.start_modify(attr, mask)?;
        let state = mask.contains(QpAttrMask::STATE).then_some(attr.qp_state);
        *lock(&self.moved.transition) = Transition::Begun(state);
        if mask.contains(QpAttrMask::AV) {
            *lock(&self.path) = attr.ah_attr;
        }
        Ok(())
    }
}

/// The QP, which has no type that ids have no QPs of.
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
                *lock(&self.moved.transition) = Transition::Waiting(*attr, mask);
                Ok(())
            })
    }

    fn try_finish_modify(&self) -> Option<std::result::Result<(), ModifyError>> {
        self.try_with(|qp| {
            let transition = std::mem::take(&mut *lock(&self.moved.transition));
            let to = match transition {
                Transition::None => None,
                Transition::Begun(to) => to,
                Transition::Waiting(attr, mask) => match self.begin(qp, &attr, mask) {
                    Err(ModifyError::Command(error)) if error.failure.is_queue_full() => {
                        *lock(&self.moved.transition) = transition;
                        return None;
                    }
                    Err(error) => return Some(Err(error)),
                    Ok(()) => mask.contains(QpAttrMask::STATE).then_some(attr.qp_state),
                },
            };
            let finished = verbs(qp).map(DynQp::try_finish_modify);
            let is = qp.state();
            self.show_state(is);
            match (finished, to) {
                (Err(error), _) => Some(Err(error)),
                (Ok(None), to) => {
                    *lock(&self.moved.transition) = Transition::Begun(to);
                    None
                }
                // A call of the program's has taken the answer, which was a refusal, or has moved the QP since.
                (Ok(Some(Ok(()))), Some(said)) if said != is => {
                    Some(Err(ModifyError::CurrentState { said, is }))
                }
                (Ok(finished), _) => finished,
            }
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
