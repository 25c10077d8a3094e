//! The QP of a connection while it is being created, with the CQs that it needs.

use bareverbs_core::cq::{Cq, CqInit, CreatingCq};
use bareverbs_core::qp::{
    CreateQpError, CreatingQp, Qp, QpCap, QpInitHandles, QpKind, Rc, queue_sizes,
};
use bareverbs_core::srq::SrqHandle;
use bareverbs_core::{Device, Platform};

use crate::rdma::types::error::RdmaError;
use crate::rdma::verbs::objects::{KeptInit, PdOf};

/// A QP under way, and what it is made from.
#[derive(Debug)]
pub(crate) struct Making<'d, P: Platform> {
    step: Step<'d, P>,
    /// Why there is no CQ.
    failed: Option<RdmaError>,
    pub(crate) pd: PdOf<'d, P>,
    /// CQs of the manager's are added when they are there.
    init: KeptInit<'d, P>,
    /// It receives from the id's SRQ.
    pub(crate) takes_own: bool,
}

#[derive(Debug)]
enum Step<'d, P: Platform> {
    /// The CQs that the manager makes, for sends and for receives.
    Cqs([Option<CreatingCq<'d, P>>; 2]),
    Qp(CreatingQp<'d, P, Rc>),
}

impl<'d, P: Platform> Making<'d, P> {
    /// Begins to create a QP on `device`, after the CQs that are not given, and waits for nothing; with the sizes that it
    /// will have.
    pub(crate) fn start_on(
        device: &'d Device<'d, P>,
        pd: PdOf<'d, P>,
        init: KeptInit<'d, P>,
        takes_own: bool,
    ) -> Result<(Self, QpCap), RdmaError> {
        let mut making = Making {
            step: Step::Cqs([None, None]),
            failed: None,
            pd,
            init,
            takes_own,
        };
        let init = &making.init;
        if init.send_cq.is_some() && init.recv_cq.is_some() {
            let (qp, cap) = making.start()?;
            making.step = Step::Qp(qp);
            return Ok((making, cap));
        }
        let limits = device.queue_limits();
        let sizes = queue_sizes(QpKind::Rc, &init.cap, init.srq.is_some(), &limits);
        let sizes = sizes.map_err(CreateQpError::Cap)?;
        let shared = init.srq.as_ref().map_or(0, SrqHandle::max_wr);
        let cq = |given: bool, cqe: u32| {
            let create = || device.start_create_cq(CqInit::new(cqe.max(1)));
            (!given).then(create).transpose()
        };
        let send = cq(init.send_cq.is_some(), init.cap.max_send_wr)?;
        let recv = cq(init.recv_cq.is_some(), init.cap.max_recv_wr.max(shared))?;
        making.step = Step::Cqs([send, recv]);
        Ok((making, sizes.cap))
    }

    /// Moves it on; the QP once it is there. The manager's CQs go to `own`. After an error it can be tried again.
    pub(crate) fn step(
        &mut self,
        own: [&mut Option<Cq<'d, P>>; 2],
    ) -> Option<Result<Qp<'d, P, Rc>, RdmaError>> {
        if let Step::Cqs(creating) = &mut self.step {
            let kept = [&mut self.init.send_cq, &mut self.init.recv_cq];
            for ((creating, kept), own) in creating.iter_mut().zip(kept).zip(own) {
                let Some(cq) = creating else {
                    continue;
                };
                match cq.try_finish() {
                    None => continue,
                    Some(Ok(cq)) => {
                        *kept = Some(cq.handle());
                        *own = Some(cq);
                    }
                    Some(Err(error)) => self.failed = Some(error.into()),
                }
                *creating = None;
            }
            // The other one is not left alone.
            if creating.iter().any(Option::is_some) {
                return None;
            }
            if let Some(error) = self.failed {
                return Some(Err(error));
            }
            match self.start() {
                Ok((qp, _)) => self.step = Step::Qp(qp),
                Err(error) => return Some(Err(error)),
            }
        }
        match &mut self.step {
            Step::Cqs(_) => None,
            Step::Qp(qp) => Some(qp.try_finish()?.map_err(RdmaError::from)),
        }
    }

    /// Begins to create the QP; with the sizes that it will have.
    fn start(&self) -> Result<(CreatingQp<'d, P, Rc>, QpCap), RdmaError> {
        let (Some(send_cq), Some(recv_cq)) = (self.init.send_cq.clone(), self.init.recv_cq.clone())
        else {
            return Err(RdmaError::NoQp);
        };
        let mut init = QpInitHandles {
            send_cq,
            recv_cq,
            srq: self.init.srq.clone(),
            cap: self.init.cap,
            sq_sig_all: self.init.sq_sig_all,
        };
        let qp = self.pd.get().start_create_qp_by_handles(&mut init)?;
        Ok((qp, init.cap))
    }

    /// Whether the firmware has a command of it; if not, the command queue is full.
    pub(crate) fn is_posted(&self) -> bool {
        match &self.step {
            Step::Cqs(creating) => creating.iter().flatten().any(CreatingCq::is_posted),
            Step::Qp(qp) => qp.is_posted(),
        }
    }
}
