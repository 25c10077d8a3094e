//! What can be done with the verbs objects of an id alone.

use bareverbs_core::Platform;
use bareverbs_core::qp::{QpAttr, QpAttrMask, QpState};
use bareverbs_core::srq::SrqError;
use bareverbs_core::wc::Wc;

use crate::rdma::conn::group::GroupSlot;
use crate::rdma::id::slot::Objects;
use crate::rdma::types::error::RdmaError;
use crate::rdma::verbs::objects::IdQp;

/// A CQ of an id.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Side {
    Send,
    Recv,
}

impl<P: Platform> Objects<'_, P> {
    /// Moves the QP, if there is one, to ERR: what was posted completes with an error.
    pub(crate) fn flush_qp(&mut self) {
        if let Some(qp) = &mut self.qp
            && !matches!(qp.state(), QpState::Reset | QpState::Err)
            && let Err(error) = qp.modify(
                &QpAttr {
                    qp_state: QpState::Err,
                    ..QpAttr::DEFAULT
                },
                QpAttrMask::STATE,
            )
        {
            log::warn!("a QP could not be moved to ERR: {error}");
        }
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

    /// Lets the QP, if there is one, receive what is sent to a group.
    pub(crate) fn attach(&mut self, slot: &GroupSlot) -> Result<bool, RdmaError> {
        match &mut self.qp {
            Some(IdQp::Ud(qp)) if !slot.send_only => {
                qp.attach_mcast(slot.path.dgid)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Takes a completion from a CQ of the manager's. If there is none, `arm` asks for an event of the next one.
    pub(crate) fn poll_comp(&mut self, side: Side, arm: bool) -> Result<Option<Wc>, RdmaError> {
        let cq = match side {
            Side::Send => self.send_cq.as_mut(),
            Side::Recv => self.recv_cq.as_mut(),
        };
        if cq.is_none() && self.qp.is_none() {
            return Err(RdmaError::NoQp);
        }
        let cq = cq.ok_or(RdmaError::WrongMode {
            call: "get_comp without a CQ of the manager's",
        })?;
        if let Some(completion) = cq.poll()? {
            return Ok(Some(completion.to_wc()));
        }
        if arm {
            cq.take_event();
            cq.arm(false);
            if let Some(completion) = cq.poll()? {
                return Ok(Some(completion.to_wc()));
            }
        }
        Ok(None)
    }
}
