//! The QP of a connection while it is being created, with the CQs that it needs.

use bareverbs_core::cq::{Cq, CqError, CqInit, CreatingCq, DestroyingCq};
use bareverbs_core::pd::Pd;
use bareverbs_core::qp::{
    CreateQpError, CreatingDynQp, DestroyingDynQp, DynQp, ModifyError, Qp, QpAttr, QpAttrMask,
    QpCap, QpInitHandles, QpKind, QpState, Rc, queue_sizes,
};
use bareverbs_core::srq::SrqHandle;
use bareverbs_core::{Device, Platform, Qpn};

use crate::rdma::types::error::RdmaError;
use crate::rdma::verbs::attached::Attached;
use crate::rdma::verbs::objects::{KeptInit, PdOf};

/// Attributes that `create_ep` keeps for the connections of a listener.
#[derive(Debug)]
pub(crate) struct Saved<'d, P: Platform> {
    pub(crate) pd: Option<&'d Pd<'d, P>>,
    pub(crate) init: KeptInit<'d, P>,
}

/// The QP of an id, or what there is instead of it.
#[derive(Debug)]
pub(crate) enum QpOf<'d, P: Platform> {
    None,
    /// The objects and attributes for the QPs of a listener's connections.
    Saved(Saved<'d, P>),
    /// The one that was begun could not be made, and no call has returned the error yet.
    Failed(RdmaError),
    Making(Making<'d, P>),
    Made(DynQp<'d, P>),
    /// A QP that belongs to the application, and that the manager moves.
    #[cfg_attr(not(feature = "attached-qps"), expect(dead_code))]
    Attached(Attached<'d>),
    /// The id is gone, or the QP could not be made.
    Ending(DestroyingDynQp<'d, P>),
    EndingCq(DestroyingCq<'d, P>),
}

impl<'d, P: Platform> QpOf<'d, P> {
    /// The number of the QP, if there is one, and whether it receives from an SRQ.
    pub(crate) fn number(&self) -> Option<(Qpn, bool)> {
        match self {
            Self::Made(qp) => Some((qp.qpn(), qp.has_srq())),
            Self::Attached(qp) => Some((qp.qpn(), qp.has_srq())),
            _ => None,
        }
    }

    /// The state of the QP, as far as the host knows it.
    #[inline]
    pub(crate) fn state(&self) -> Option<QpState> {
        match self {
            Self::Made(qp) => Some(qp.state()),
            Self::Attached(qp) => Some(qp.state()),
            _ => None,
        }
    }

    /// Begins a transition of the QP.
    #[inline]
    pub(crate) fn start_modify(
        &mut self,
        attr: &QpAttr,
        mask: QpAttrMask,
    ) -> Result<(), RdmaError> {
        match self {
            Self::Made(qp) => Ok(qp.start_modify(attr, mask)?),
            Self::Attached(qp) => Ok(qp.start_modify(attr, mask)?),
            _ => Err(RdmaError::NoQp),
        }
    }

    /// Returns the result of the transition once it is over.
    #[inline]
    pub(crate) fn try_finish_modify(&mut self) -> Option<Result<(), ModifyError>> {
        match self {
            Self::Made(qp) => qp.try_finish_modify(),
            Self::Attached(qp) => qp.try_finish_modify(),
            _ => Some(Ok(())),
        }
    }

    /// The QP if it is the manager's.
    pub(crate) const fn as_mut(&mut self) -> Option<&mut DynQp<'d, P>> {
        match self {
            Self::Made(qp) => Some(qp),
            _ => None,
        }
    }

    /// The QP if it is there and of type RC.
    pub(crate) fn as_rc(&mut self) -> Option<&mut Qp<'d, P, Rc>> {
        self.as_mut()?.as_qp_mut()
    }

    /// Returns `true` if there is a QP.
    pub(crate) const fn is_made(&self) -> bool {
        matches!(self, Self::Made(_) | Self::Attached(_))
    }

    /// Returns `true` if there is one that belongs to the application.
    pub(crate) const fn is_attached(&self) -> bool {
        matches!(self, Self::Attached(_))
    }

    /// Returns `true` if a QP is being created, or the parts of one that could not be created are being destroyed.
    pub(crate) const fn is_making(&self) -> bool {
        matches!(self, Self::Making(_) | Self::Ending(_) | Self::EndingCq(_))
    }

    pub(crate) const fn is_saved(&self) -> bool {
        matches!(self, Self::Saved(_))
    }

    /// Takes a QP of the manager's that is there.
    pub(crate) fn take(&mut self) -> Option<DynQp<'d, P>> {
        match core::mem::replace(self, Self::None) {
            Self::Made(qp) => Some(qp),
            other => {
                *self = other;
                None
            }
        }
    }

    pub(crate) fn put(&mut self, qp: Option<DynQp<'d, P>>) {
        *self = qp.map_or(Self::None, Self::Made);
    }
}

/// A QP under way, and what it is made from. It is as small as the QP is: ids have room for one of the two.
#[derive(Debug)]
pub(crate) struct Making<'d, P: Platform>(Step<'d, P>);

#[derive(Debug)]
enum Step<'d, P: Platform> {
    /// The CQs that the manager makes.
    Cqs {
        kind: QpKind,
        /// For sends and for receives.
        cqs: [CqOf<'d, P>; 2],
        /// CQs of the manager's are added when they are there.
        init: KeptInit<'d, P>,
        takes_own: bool,
    },
    Qp {
        qp: CreatingDynQp<'d, P>,
        takes_own: bool,
    },
}

/// A CQ for the QP.
#[derive(Debug)]
enum CqOf<'d, P: Platform> {
    There,
    Creating(CreatingCq<'d, P>),
    Failed(CqError),
}

impl<'d, P: Platform> Making<'d, P> {
    /// Goes on with a QP that needs no CQs.
    #[cfg(feature = "xrc")]
    pub(crate) const fn of(qp: CreatingDynQp<'d, P>) -> Self {
        let takes_own = false;
        Making(Step::Qp { qp, takes_own })
    }

    /// Begins to create a QP on `device`, after the CQs that are not given, and waits for nothing; with the sizes that it
    /// will have. One that only sends has one CQ.
    pub(crate) fn start_on(
        device: &'d Device<'d, P>,
        kind: QpKind,
        pd: &PdOf<'d, P>,
        init: KeptInit<'d, P>,
        takes_own: bool,
    ) -> Result<(Self, QpCap), RdmaError> {
        let sends_only = kind == QpKind::XrcSend;
        if init.send_cq.is_some() && (init.recv_cq.is_some() || sends_only) {
            let (qp, cap) = start(kind, pd, &init)?;
            return Ok((Making(Step::Qp { qp, takes_own }), cap));
        }
        let limits = device.queue_limits();
        let no_receives = init.srq.is_some() || sends_only;
        let sizes = queue_sizes(kind, &init.cap, no_receives, &limits);
        let sizes = sizes.map_err(CreateQpError::Cap)?;
        let shared = init.srq.as_ref().map_or(0, SrqHandle::max_wr);
        let cq = |given: bool, cqe: u32| {
            if given {
                return Ok(CqOf::There);
            }
            let creating = device.start_create_cq(CqInit::new(cqe.max(1)));
            creating.map(CqOf::Creating)
        };
        let send = cq(init.send_cq.is_some(), init.cap.max_send_wr)?;
        let recv = cq(
            init.recv_cq.is_some() || sends_only,
            init.cap.max_recv_wr.max(shared),
        )?;
        let step = Step::Cqs {
            kind,
            cqs: [send, recv],
            init,
            takes_own,
        };
        Ok((Making(step), sizes.cap))
    }

    /// Moves it on; the QP once it is there. The manager's CQs go to `own`. After an error it can be tried again. Without a PD
    /// no QP is begun any more ([`NoQp`](RdmaError::NoQp)).
    pub(crate) fn step(
        &mut self,
        pd: Option<&PdOf<'d, P>>,
        own: [&mut Option<Cq<'d, P>>; 2],
    ) -> Option<Result<DynQp<'d, P>, RdmaError>> {
        if let Step::Cqs {
            kind,
            cqs,
            init,
            takes_own,
        } = &mut self.0
        {
            let kept = [&mut init.send_cq, &mut init.recv_cq];
            for ((cq, kept), own) in cqs.iter_mut().zip(kept).zip(own) {
                let CqOf::Creating(creating) = cq else {
                    continue;
                };
                *cq = match creating.try_finish() {
                    None => continue,
                    Some(Ok(created)) => {
                        *kept = Some(created.handle());
                        *own = Some(created);
                        CqOf::There
                    }
                    Some(Err(error)) => CqOf::Failed(error),
                };
            }
            // The other one is not left alone.
            if cqs.iter().any(|cq| matches!(cq, CqOf::Creating(_))) {
                return None;
            }
            for cq in cqs {
                if let CqOf::Failed(error) = cq {
                    return Some(Err((*error).into()));
                }
            }
            let takes_own = *takes_own;
            let started = pd.ok_or(RdmaError::NoQp);
            match started.and_then(|pd| start(*kind, pd, init)) {
                Ok((qp, _)) => self.0 = Step::Qp { qp, takes_own },
                Err(error) => return Some(Err(error)),
            }
        }
        match &mut self.0 {
            Step::Cqs { .. } => None,
            Step::Qp { qp, .. } => Some(qp.try_finish()?.map_err(RdmaError::from)),
        }
    }

    /// Returns `true` if it uses no CQs but the manager's, of which those that are there are `own`.
    pub(crate) fn has_own_cqs(&self, own: [bool; 2]) -> bool {
        let there = match &self.0 {
            Step::Cqs { cqs, .. } => cqs.each_ref().map(|cq| matches!(cq, CqOf::There)),
            Step::Qp { .. } => [true; 2],
        };
        there.iter().zip(own).all(|(there, own)| own || !there)
    }

    /// Returns `true` if the QP receives from the id's SRQ.
    pub(crate) const fn takes_own(&self) -> bool {
        match &self.0 {
            Step::Cqs { takes_own, .. } | Step::Qp { takes_own, .. } => *takes_own,
        }
    }

    /// Returns `true` if the firmware has a command of it; if not, the command queue is full.
    pub(crate) fn is_posted(&self) -> bool {
        match &self.0 {
            Step::Cqs { cqs, .. } => cqs
                .iter()
                .any(|cq| matches!(cq, CqOf::Creating(cq) if cq.is_posted())),
            Step::Qp { qp, .. } => qp.is_posted(),
        }
    }
}

/// Begins to create the QP; with the sizes that it will have.
fn start<'d, P: Platform>(
    kind: QpKind,
    pd: &PdOf<'d, P>,
    init: &KeptInit<'d, P>,
) -> Result<(CreatingDynQp<'d, P>, QpCap), RdmaError> {
    let send_cq = init.send_cq.clone();
    let recv_cq = match kind {
        // It is not looked at.
        QpKind::XrcSend => send_cq.clone(),
        _ => init.recv_cq.clone(),
    };
    let (Some(send_cq), Some(recv_cq)) = (send_cq, recv_cq) else {
        return Err(RdmaError::NoQp);
    };
    let mut handles = QpInitHandles {
        send_cq,
        recv_cq,
        srq: init.srq.clone(),
        cap: init.cap,
        sq_sig_all: init.sq_sig_all,
    };
    let qp = pd
        .get()
        .start_create_dyn_qp_by_handles(kind, &mut handles)?;
    Ok((qp, handles.cap))
}
