//! The verbs objects of an id, and what can be done with them alone.

use core::task::{Context, Poll};

use bareverbs_core::Platform;
use bareverbs_core::cq::{Completion, Cq};
use bareverbs_core::qp::{QpKind, QpType};
use bareverbs_core::srq::SrqError;
use bareverbs_core::wc::{Wc, WcStatus};

use crate::rdma::types::error::RdmaError;
use crate::rdma::verbs::making::QpOf;
use crate::rdma::verbs::objects::{Endpoint, IdSrq, PdOf, XrcdOf};

/// A CQ of an id.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Side {
    Send,
    Recv,
}

/// The verbs objects of an id, in the order in which they have to be destroyed.
#[derive(Debug)]
pub(crate) struct Objects<'d, P: Platform> {
    pub(crate) qp: QpOf<'d, P>,
    pub(crate) srq: Option<IdSrq<'d, P>>,
    pub(crate) send_cq: Option<Cq<'d, P>>,
    pub(crate) recv_cq: Option<Cq<'d, P>>,
    pub(crate) pd: Option<PdOf<'d, P>>,
    /// Of an XRC target.
    pub(crate) xrcd: Option<XrcdOf<'d, P>>,
}

impl<P: Platform> Objects<'_, P> {
    pub(crate) const NONE: Self = Self {
        qp: QpOf::None,
        srq: None,
        send_cq: None,
        recv_cq: None,
        pd: None,
        xrcd: None,
    };
}

impl<'d, P: Platform> Objects<'d, P> {
    /// Returns `true` if the QP, made or under way, uses nothing of the application's, so that it can go later.
    pub(crate) fn are_own(&self) -> bool {
        let own_pd = matches!(self.pd, Some(PdOf::Default(_)));
        let qp = match &self.qp {
            QpOf::Made(qp) => qp,
            QpOf::Making(making) => {
                let there = [&self.send_cq, &self.recv_cq].map(Option::is_some);
                return own_pd && self.srq.is_none() && making.has_own_cqs(there);
            }
            _ => return false,
        };
        let own = match qp.kind() {
            QpKind::XrcSend => own_pd && self.send_cq.is_some(),
            QpKind::XrcRecv => matches!(self.xrcd, Some(XrcdOf::Default(_))),
            _ => own_pd && self.send_cq.is_some() && self.recv_cq.is_some(),
        };
        own && self.srq.is_none()
    }

    /// QP and CQs, for work without the manager; `None` if the QP is of another type.
    #[inline]
    pub(crate) fn endpoint<T: QpType>(
        &mut self,
    ) -> Result<Option<Endpoint<'_, 'd, P, T>>, RdmaError> {
        let qp = self.qp.as_mut().ok_or(RdmaError::NoQp)?;
        Ok(qp.as_qp_mut().map(|qp| Endpoint {
            qp,
            send_cq: self.send_cq.as_mut(),
            recv_cq: self.recv_cq.as_mut(),
        }))
    }

    /// Returns `true` if there is a QP, or will be.
    pub(crate) fn has_qp(&self) -> bool {
        self.qp.is_made() || self.qp.is_making()
    }

    /// EBUSY if others than the id itself use its SRQ.
    pub(crate) fn srq_is_free(&self) -> Result<(), RdmaError> {
        let Some(srq) = &self.srq else {
            return Ok(());
        };
        match srq.srq.users() - u32::from(srq.own_qp) {
            0 => Ok(()),
            users => Err(RdmaError::Srq(SrqError::Busy { users })),
        }
    }

    fn own_cq(&mut self, side: Side) -> Result<&mut Cq<'d, P>, RdmaError> {
        let cq = match side {
            Side::Send => self.send_cq.as_mut(),
            Side::Recv => self.recv_cq.as_mut(),
        };
        if cq.is_none() && !self.qp.is_made() {
            return Err(RdmaError::NoQp);
        }
        cq.ok_or(RdmaError::WrongMode {
            call: "get_comp without a CQ of the manager's",
        })
    }

    /// Takes a completion from a CQ of the manager's, which is an error if its work request failed, or lets the task wait for the next one.
    pub(crate) fn poll_next(
        &mut self,
        side: Side,
        task: &mut Context<'_>,
    ) -> Poll<Result<Wc, RdmaError>> {
        let next = self.own_cq(side)?.poll_next(task);
        next.map(|wc| Ok(wc?.ok()?))
    }

    /// No task waits for completions any more.
    pub(crate) fn forget_task(&mut self, side: Side) {
        if let Ok(cq) = self.own_cq(side) {
            cq.forget_task();
        }
    }

    /// Takes a completion from a CQ of the manager's, which is an error if its work request failed. If there is none, `arm`
    /// asks for an event of the next one.
    pub(crate) fn poll_comp(&mut self, side: Side, arm: bool) -> Result<Option<Wc>, RdmaError> {
        let cq = self.own_cq(side)?;
        if let Some(completion) = cq.poll()? {
            return succeeded(&completion);
        }
        if arm {
            cq.take_event();
            cq.arm(false);
            if let Some(completion) = cq.poll()? {
                return succeeded(&completion);
            }
        }
        Ok(None)
    }
}

/// Decodes a completion; that of a failed work request is an error.
#[inline(always)]
fn succeeded(completion: &Completion<'_>) -> Result<Option<Wc>, RdmaError> {
    let wc = completion.to_wc();
    if wc.status != WcStatus::Success {
        return Err(wc.error().into());
    }
    Ok(Some(wc))
}
