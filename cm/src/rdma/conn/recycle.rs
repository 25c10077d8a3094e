//! QPs of ids that are gone, on their way to those that come ([`QpPool`]).

use core::time::Duration;

use bareverbs_core::Platform;
use bareverbs_core::qp::{ModifyError, QpAttr, QpAttrMask, QpState};

use crate::engine::{CmError, State};
use crate::rdma::id::attr::idle_attr;
use crate::rdma::id::goal::{Move, Recycle};
use crate::rdma::manager::RdmaCm;
use crate::rdma::resolver::Resolver;
use crate::rdma::types::error::RdmaError;
use crate::rdma::verbs::ending::Progress;
use crate::rdma::verbs::making::QpOf;
use crate::rdma::verbs::objects::{KeptInit, PdOf};
use crate::rdma::verbs::pool::{Kept, PooledQp, QpPool};

impl<'s, 'd, P: Platform, R: Resolver> RdmaCm<'s, 'd, P, R> {
    /// Keeps QPs of connections that are over in `slots`, as many as there are, and gives them to the ids that come: where
    /// [`create_qp`](Self::create_qp) or [`start_qp`](Self::start_qp) asks for one of the same sizes in the same PD, with the
    /// same CQs or with CQs of the manager's, it is there at once, in INIT. Creating one takes two commands, with
    /// CQs three or four, and destroying it as many.
    ///
    /// Nothing is left in it of the connection before, whose timewait is over. QPs that receive from an SRQ are not kept, and
    /// none whose connection has not ended yet when its id is destroyed. (Memory windows that were bound through a QP are
    /// deallocated before its id is destroyed, with or without this: IBTA volume 1, chapter 10.6.7.2.)
    ///
    /// A QP that is kept uses its PD and its CQs: the application's cannot be destroyed before
    /// [`destroy_kept_qps`](Self::destroy_kept_qps). Kept before, in other slots, QPs are destroyed.
    pub fn recycle_qps(&mut self, slots: &'s mut [PooledQp<'d, P>]) {
        self.destroy_kept_qps();
        self.pool = QpPool::new(slots);
    }

    /// Destroys the QPs that are kept, and waits for it. Of those that are on their way there nothing is left, either.
    pub fn destroy_kept_qps(&mut self) {
        self.ids.finish_endings(self.hca.device);
        self.pool.clear();
    }

    /// Begins to recycle the QP of an id that is about to be destroyed, if that can be done. Before its connection is
    /// released.
    pub(crate) fn plan_recycling(&mut self, now: Duration, index: usize) -> bool {
        let slot = &mut self.ids[index];
        let Some(qp) = slot.objects.qp.as_rc() else {
            return false;
        };
        if !self.pool.has_room()
            || qp.has_srq()
            || slot.objects.srq.is_some()
            || slot.objects.pd.is_none()
        {
            return false;
        }
        let state = qp.state();
        let timewait = slot.conn.id.map(|connection| {
            let state = self.engine.state(connection)?;
            let over = matches!(state, State::DreqReceived | State::Timewait | State::Idle);
            let len = self.engine.timewait_len(connection)?;
            Ok::<_, CmError>(over.then_some(len))
        });
        let from = match (state, timewait) {
            // It has never received.
            (QpState::Init, None | Some(Ok(Some(_)))) => now,
            (QpState::Reset | QpState::Init, _) => return false,
            (_, Some(Ok(Some(timewait)))) => now.saturating_add(timewait),
            _ => return false,
        };
        // The route is not used any more.
        slot.route.deadline = from;
        slot.work.recycle = Some(Recycle::Begun);
        true
    }

    /// Moves the QP of an id that is gone through RESET to INIT, and then to those that are kept. `None` if it has to be
    /// destroyed.
    pub(crate) fn step_recycling(&mut self, index: usize) -> Option<Progress> {
        loop {
            let slot = &mut self.ids[index];
            let step = slot.work.recycle?;
            let qp = slot.objects.qp.as_rc()?;
            match (qp.try_finish_modify(), step) {
                (None, _) => return Some(Progress::Posted),
                // Whatever was under way before, RESET ends it.
                (Some(Err(_)), Recycle::Reset | Recycle::Init) => return None,
                _ => {}
            }
            let (attr, mask, next) = match step {
                Recycle::Begun => {
                    let attr = QpAttr {
                        qp_state: QpState::Reset,
                        ..QpAttr::DEFAULT
                    };
                    (attr, QpAttrMask::STATE, Recycle::Reset)
                }
                Recycle::Reset => {
                    let (attr, mask) = idle_attr(slot.route.pkey_index);
                    (attr, mask, Recycle::Init)
                }
                Recycle::Init => return self.keep(index).then_some(Progress::Done),
            };
            match qp.start_modify(&attr, mask) {
                Ok(()) => slot.work.recycle = Some(next),
                Err(ModifyError::Command(error)) if error.failure.is_queue_full() => {
                    return Some(Progress::Full);
                }
                Err(_) => return None,
            }
        }
    }

    /// Keeps the QP of an id that is gone, whose slot is free then. False if it cannot be.
    fn keep(&mut self, index: usize) -> bool {
        let slot = &mut self.ids[index];
        let objects = &mut slot.objects;
        let usable = [&mut objects.send_cq, &mut objects.recv_cq]
            .into_iter()
            .flatten()
            .all(bareverbs_core::Cq::renew);
        if !usable || !self.pool.has_room() {
            return false;
        }
        let (Some(qp), Some(pd)) = (objects.qp.take(), objects.pd.take()) else {
            return false;
        };
        let kept = Kept {
            qp,
            send_cq: objects.send_cq.take(),
            recv_cq: objects.recv_cq.take(),
            pd,
            pkey_index: slot.route.pkey_index,
            from: slot.route.deadline,
        };
        // There is room: that was looked at.
        drop(self.pool.put(kept));
        self.ids.ended(index);
        true
    }

    /// Gives an id a QP that was kept, if one is as what it asks for.
    pub(crate) fn reuse_qp(
        &mut self,
        index: usize,
        pd: Option<&'d bareverbs_core::pd::Pd<'d, P>>,
        init: &mut KeptInit<'d, P>,
    ) -> Result<bool, RdmaError> {
        let slot = &mut self.ids[index];
        if self.pool.is_empty() || init.srq.is_some() || slot.objects.srq.is_some() {
            return Ok(false);
        }
        let pd: PdOf<'d, P> = self.hca.pd_for(&slot.objects, pd)?;
        let now = self.hca.device.platform().now();
        let Some(kept) = self.pool.take(now, pd.get(), init) else {
            return Ok(false);
        };
        init.cap = kept.qp.cap();
        let other_partition = kept.pkey_index != slot.route.pkey_index;
        // The old share of the PD is as good as the new one, which may be the caller's own.
        slot.objects.pd = Some(pd);
        slot.objects.send_cq = kept.send_cq;
        slot.objects.recv_cq = kept.recv_cq;
        slot.objects.qp = QpOf::Made(kept.qp);
        drop(kept.pd);
        self.ids.enter_qpn(index);
        if other_partition {
            self.ids[index].work.fresh = Some(Move::Init);
            self.begin_qp(index)?;
        }
        Ok(true)
    }
}
