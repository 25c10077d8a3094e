//! Firmware commands of ids: a QP is created, and moved through its states, while the manager goes on.
//!
//! An id has a [`Work`](crate::rdma::id::goal::Work), which says what it wants of its QP and what is under way. One command of an id is with the firmware
//! at a time, and of all ids as many as the command queue takes; the others wait for their turn, in order
//! ([`WorkList`](crate::rdma::id::work_list::WorkList)). [`RdmaCm::poll`] looks at the answers, and does what follows from them: the next command, or the message
//! that had to wait.

use core::time::Duration;

use bareverbs_core::Platform;
use bareverbs_core::qp::{CreateQpError, ModifyError, QpAttr, QpAttrMask, QpState};

#[cfg(feature = "infiniband")]
use crate::engine::Failover;
use crate::engine::ReplyParams;
use crate::mad::{RejectReason, SidrStatus};
use crate::rdma::id::attr::datagram_attr;
use crate::rdma::id::goal::{Goal, Move};
use crate::rdma::manager::RdmaCm;
use crate::rdma::port::gsi::SLICE;
use crate::rdma::resolver::Resolver;
use crate::rdma::types::EventType;
use crate::rdma::types::error::RdmaError;
use crate::rdma::types::id::NIL;
use crate::rdma::types::param::{Asked, Depths};
use crate::rdma::verbs::ending::Progress;
use crate::rdma::verbs::making::QpOf;
use crate::rdma::verbs::owned::Objects;

impl<'d, P: Platform, R: Resolver> RdmaCm<'_, 'd, P, R> {
    /// Looks at the answers of the firmware, and does what follows.
    pub(crate) fn work(&mut self, now: Duration) {
        let mut at = 0;
        while let Some(&index) = self.work.posted.get(at) {
            match self.advance(now, index as usize) {
                Progress::Posted => at += 1,
                progress => {
                    self.work.posted.swap_remove(at);
                    if progress == Progress::Full {
                        self.work.push(&mut self.ids, index);
                    } else {
                        self.rest(index);
                    }
                }
            }
        }
        while self.work.head != NIL && !self.work.posted.is_full() {
            let index = self.work.head;
            let progress = self.advance(now, index as usize);
            if progress == Progress::Full {
                return;
            }
            self.work.pop(&self.ids);
            if progress == Progress::Posted {
                // There is room: that was looked at.
                let _ = self.work.posted.push(index);
            } else {
                self.rest(index);
            }
        }
    }

    /// Nothing of an id is with the firmware, or waits for its turn.
    fn rest(&mut self, index: u32) {
        self.ids[index as usize].links.working = false;
    }

    /// Begins what an id wants. Its turn comes after those that wait already.
    pub(crate) fn begin_work(&mut self, now: Duration, index: usize) {
        let free = self.work.head == NIL && !self.work.posted.is_full();
        let progress = if free || self.ids[index].links.working {
            self.advance(now, index)
        } else {
            Progress::Full
        };
        if progress == Progress::Done || self.ids[index].links.working {
            return;
        }
        self.ids[index].links.working = true;
        if progress == Progress::Full {
            self.work.push(&mut self.ids, index as u32);
        } else {
            let _ = self.work.posted.push(index as u32);
        }
    }

    /// The same in a call, which gets the error of what fails at once.
    fn begin_work_in_call(&mut self, now: Duration, index: usize) -> Result<(), RdmaError> {
        (self.work.in_call, self.work.error) = (index as u32, None);
        self.begin_work(now, index);
        self.work.in_call = NIL;
        self.work.error.take().map_or(Ok(()), Err)
    }

    /// Goes on with the QP of an id that was begun, which is moved to INIT.
    pub(crate) fn begin_qp(&mut self, index: usize) -> Result<(), RdmaError> {
        self.begin_work_in_call(self.now(), index)
    }

    /// Checks whether the QP that was begun is the id's.
    pub(crate) fn try_created(&mut self, index: usize) -> Result<Option<()>, RdmaError> {
        let slot = &mut self.ids[index];
        match slot.objects.qp {
            QpOf::None | QpOf::Saved(_) => Err(RdmaError::NoQp),
            QpOf::Failed(error) => {
                slot.objects.qp = QpOf::None;
                Err(error)
            }
            QpOf::Making(_) | QpOf::Ending(_) | QpOf::EndingCq(_) => Ok(None),
            QpOf::Made(_) | QpOf::Attached(_) => Ok(slot.work.fresh.is_none().then_some(())),
        }
    }

    /// Waits for a QP that was begun, and for nothing else: no message is answered meanwhile.
    pub(crate) fn wait_for_qp(&mut self, index: usize) -> Result<(), RdmaError> {
        while self.try_created(index)?.is_none() {
            let until = self.now().saturating_add(SLICE);
            // A device that has failed is found in the answer.
            let _ = self.hca.device.wait_for(self.vectors(), until);
            self.advance(self.now(), index);
        }
        Ok(())
    }

    /// Asks for a connection once the QP has its number.
    pub(crate) fn request_later(&mut self, index: usize, asked: Asked) {
        self.ids[index].work.goal = Goal::Request(asked);
    }

    /// Brings the QP of an id up, and accepts.
    pub(crate) fn begin_accept(
        &mut self,
        now: Duration,
        index: usize,
        asked: Asked,
    ) -> Result<(), RdmaError> {
        self.ids[index].work.goal = Goal::Accept(Move::Rtr, asked);
        self.begin_work_in_call(now, index)
    }

    /// Brings the QP of an id up, and confirms.
    pub(crate) fn begin_confirm(&mut self, now: Duration, index: usize) {
        self.ids[index].work.goal = Goal::Confirm(Move::Rtr);
        self.begin_work(now, index);
    }

    /// Moves the QP of an id, if there is one, to ERR: what was posted completes with an error. A connection that was on its
    /// way is called off.
    pub(crate) fn flush_qp(&mut self, index: usize) {
        let slot = &mut self.ids[index];
        slot.work.cancel();
        if slot.objects.qp.is_made() {
            slot.work.flush = true;
            self.begin_work(self.now(), index);
        }
    }

    /// Takes answers and begins commands of an id, until there is one to wait for.
    fn advance(&mut self, now: Duration, index: usize) -> Progress {
        loop {
            let slots_come = self.ids.ending() > 0;
            let slot = &mut self.ids[index];
            if slot.work.ending {
                if slot.work.recycle.is_some() {
                    if let Some(progress) = self.step_recycling(index) {
                        return progress;
                    }
                    // It is destroyed.
                    self.ids[index].work.recycle = None;
                    continue;
                }
                let progress = slot.objects.step_ending();
                if progress == Progress::Done {
                    self.ids.ended(index);
                }
                return progress;
            }
            if slot.work.failing {
                let progress = slot.objects.step_ending();
                if progress == Progress::Done {
                    self.not_made(now, index);
                }
                return progress;
            }
            let Objects {
                qp,
                send_cq,
                recv_cq,
                pd,
                srq,
                ..
            } = &mut slot.objects;
            if let QpOf::Making(under_way) = &mut *qp {
                match under_way.step(pd.as_ref(), [send_cq, recv_cq]) {
                    None if under_way.is_posted() => return Progress::Posted,
                    None => return Progress::Full,
                    // There will be a slot.
                    Some(Err(RdmaError::CreateQp(CreateQpError::NoSlot { .. }))) if slots_come => {
                        return Progress::Full;
                    }
                    Some(Ok(made)) => {
                        if let Some(srq) = srq {
                            srq.own_qp = under_way.takes_own();
                        }
                        *qp = QpOf::Made(made);
                        slot.work.fresh = Some(Move::Init);
                        self.ids.enter_qpn(index);
                    }
                    Some(Err(error)) => self.fail_qp(index, error),
                }
                continue;
            }
            if !qp.is_made() {
                return Progress::Done;
            }
            if let Some(transition) = slot.work.under_way {
                let Some(moved) = qp.try_finish_modify() else {
                    return Progress::Posted;
                };
                slot.work.under_way = None;
                self.moved(now, index, transition, moved.map_err(RdmaError::from));
                continue;
            }
            if slot.work.flush && matches!(qp.state(), Some(QpState::Reset | QpState::Err)) {
                slot.work.flush = false;
            }
            let Some(next) = slot.work.next() else {
                return Progress::Done;
            };
            match self.start(index, next) {
                Ok(()) => self.ids[index].work.under_way = Some(next),
                Err(RdmaError::ModifyQp(ModifyError::Command(error)))
                    if error.failure.is_queue_full() =>
                {
                    return Progress::Full;
                }
                Err(error) => self.moved(now, index, next, Err(error)),
            }
        }
    }

    /// Posts the command of a transition.
    fn start(&mut self, index: usize, next: Move) -> Result<(), RdmaError> {
        let slot = &self.ids[index];
        let (attr, mask) = match next {
            Move::Init => self.hca.init_attr(slot),
            Move::Flush => {
                let attr = QpAttr {
                    qp_state: QpState::Err,
                    ..QpAttr::DEFAULT
                };
                (attr, QpAttrMask::STATE)
            }
            #[cfg(feature = "infiniband")]
            Move::Load => self.load_attr(index)?,
            // There is no connection to wait for.
            Move::Rtr if slot.id_type.is_datagram() => datagram_attr(QpState::Rtr),
            Move::Rts if slot.id_type.is_datagram() => datagram_attr(QpState::Rts),
            Move::Rtr | Move::Rts => {
                let connection = self.ids.connection(index, "connect")?;
                let params = self.engine.qp_params(connection)?;
                let depths = match slot.work.goal {
                    Goal::Accept(_, asked) => Some(asked.depths),
                    _ => None,
                };
                if next == Move::Rts {
                    #[cfg_attr(not(feature = "infiniband"), expect(unused_mut))]
                    let mut to_rts = self.hca.rts_attr(slot, &params, depths);
                    #[cfg(feature = "infiniband")]
                    if self.engine.has_alternate_slots() {
                        self.add_alternate(index, connection, &mut to_rts);
                    }
                    to_rts
                } else {
                    let path = self.router.ah_attr_at(&params.address, params.rate);
                    self.hca.rtr_attr(slot, &params, path, depths)
                }
            }
        };
        self.ids[index].objects.qp.start_modify(&attr, mask)
    }

    /// A transition is over: what follows.
    fn moved(
        &mut self,
        now: Duration,
        index: usize,
        transition: Move,
        outcome: Result<(), RdmaError>,
    ) {
        let slot = &mut self.ids[index];
        let datagrams = slot.id_type.is_datagram();
        let work = &mut slot.work;
        match (transition, outcome) {
            (Move::Flush, outcome) => {
                work.flush = false;
                if let Err(error) = outcome {
                    log::warn!("a QP could not be moved to ERR: {error}");
                }
                self.ids[index].events.waiters.wake();
            }
            (transition, Ok(())) if work.fresh == Some(transition) => {
                work.fresh = match transition {
                    Move::Init if datagrams => Some(Move::Rtr),
                    Move::Rtr => Some(Move::Rts),
                    _ => None,
                };
                if work.fresh.is_none() {
                    self.made(now, index);
                }
            }
            (transition, Err(error)) if work.fresh == Some(transition) => {
                self.fail_qp(index, error)
            }
            // What was to be made was called off.
            (Move::Init, Ok(())) => {}
            #[cfg(feature = "infiniband")]
            (Move::Load, outcome) => self.alternate_loaded(now, index, outcome),
            (_, Err(error)) => {
                // What was called off meanwhile has no outcome.
                if work.is_connecting() {
                    self.not_up(now, index, error);
                }
            }
            (Move::Rtr, Ok(())) => {
                if let Goal::Accept(next, _) | Goal::Confirm(next) = &mut work.goal {
                    *next = Move::Rts;
                }
            }
            (Move::Rts, Ok(())) => match core::mem::replace(&mut work.goal, Goal::None) {
                Goal::Accept(_, asked) => {
                    if let Err(error) = self.send_reply(now, index, asked) {
                        self.ids[index].work.flush = true;
                        self.not_up(now, index, error);
                    }
                }
                Goal::Confirm(_) => self.confirm(now, index),
                other => work.goal = other,
            },
        }
    }

    /// The QP of an id is there, in INIT.
    fn made(&mut self, now: Duration, index: usize) {
        self.wake_creator(index);
        let work = &mut self.ids[index].work;
        let sent = match work.goal {
            Goal::Request(asked) => {
                work.cancel();
                self.send_request(now, index, asked)
            }
            Goal::Serve if cfg!(feature = "datagrams") => {
                work.cancel();
                self.answer_service(now, index, 0)
            }
            _ => return,
        };
        if let Err(error) = sent {
            self.ids.push_failure(index, EventType::ConnectError, error);
        }
    }

    /// Wakes who waits for the QP of an id, or for the id itself.
    fn wake_creator(&mut self, index: usize) {
        let slot = &mut self.ids[index];
        slot.events.waiters.wake();
        if let Some(listener) = slot.conn.listen_id
            && let Ok(listener) = self.ids.slot_mut(listener)
        {
            listener.events.waiters.wake();
        }
    }

    /// The QP of an id could not be made. What there is of it is destroyed, then the id is as before.
    fn fail_qp(&mut self, index: usize, error: RdmaError) {
        let slot = &mut self.ids[index];
        slot.work.fresh = None;
        slot.work.under_way = None;
        if slot.objects.qp.is_making() {
            slot.objects.qp = QpOf::None;
        }
        slot.work.failing = true;
        slot.events.failure = Some(error);
        if self.work.in_call == index as u32 {
            // Nothing is left when the call returns. What this waits for is rare: most of what fails at once was not begun.
            while slot.objects.step_ending() != Progress::Done {
                // A device that has failed is found in the answer.
                let _ = self.hca.device.poll();
                self.hca.device.platform().relax();
            }
        }
    }

    /// Reports that the QP of an id could not be created, once all parts of it are destroyed.
    fn not_made(&mut self, now: Duration, index: usize) {
        let slot = &mut self.ids[index];
        let connecting = slot.work.is_connecting();
        slot.work.failing = false;
        let error = slot.events.failure.take().unwrap_or(RdmaError::NoQp);
        if self.work.in_call == index as u32 {
            self.work.error = Some(error);
        } else {
            slot.objects.qp = QpOf::Failed(error);
            self.wake_creator(index);
        }
        if connecting {
            self.not_up(now, index, error);
        }
    }

    /// The QP of an id could not be brought up for its connection.
    pub(crate) fn not_up(&mut self, now: Duration, index: usize, error: RdmaError) {
        let slot = &mut self.ids[index];
        slot.work.cancel();
        if self.work.in_call == index as u32 {
            self.work.error = Some(error);
            return;
        }
        log::warn!("a connection fails locally: {error}");
        slot.work.flush = slot.objects.qp.is_made();
        if let Some(connection) = slot.conn.id {
            let reason = RejectReason::CONSUMER_DEFINED;
            let _ = self.engine.reject(now, connection, reason, &[], &[]);
        }
        if cfg!(feature = "datagrams")
            && let Some(sidr) = self.ids[index].conn.sidr.take()
        {
            let _ = self
                .engine
                .sidr_reject(now, sidr, SidrStatus::NO_QP, &[], &[]);
        }
        self.ids.push_failure(index, EventType::ConnectError, error);
    }

    /// Sends REP.
    pub(crate) fn send_reply(
        &mut self,
        now: Duration,
        index: usize,
        asked: Asked,
    ) -> Result<(), RdmaError> {
        let connection = self.ids.connection(index, "accept")?;
        #[cfg(feature = "infiniband")]
        let failover = match self.engine.has_alternate_slots() {
            true => self.failover(connection),
            false => Failover::Accepted,
        };
        let slot = &mut self.ids[index];
        let (qp_num, srq) = match slot.objects.qp.number() {
            Some((qpn, has_srq)) => (qpn.number(), has_srq),
            None => (asked.qp_num, asked.srq),
        };
        let private_data = &slot.events.private[..usize::from(slot.events.private_len)];
        let reply = ReplyParams {
            responder_resources: asked.depths.responder_resources,
            initiator_depth: asked.depths.initiator_depth,
            flow_control: asked.flow_control,
            rnr_retry_count: asked.rnr_retry_count,
            srq,
            ece: slot.conn.ece,
            #[cfg(feature = "infiniband")]
            failover,
            private_data,
            ..ReplyParams::new(qp_num)
        };
        if let Err(error) = self.engine.reply(now, connection, &reply) {
            let reason = RejectReason::CONSUMER_DEFINED;
            let _ = self.engine.reject(now, connection, reason, &[], &[]);
            return Err(error.into());
        }
        slot.conn.accepted = true;
        let Depths {
            responder_resources,
            initiator_depth,
        } = asked.depths;
        slot.conn.responder_resources = responder_resources;
        slot.conn.initiator_depth = initiator_depth;
        Ok(())
    }

    /// Sends RTU: the connection is there.
    fn confirm(&mut self, now: Duration, index: usize) {
        let confirmed = match self.ids.connection(index, "connect") {
            Ok(connection) => self.engine.ready(connection, &[]).map_err(RdmaError::from),
            Err(error) => Err(error),
        };
        match confirmed {
            Ok(()) => self.ids.push(index, EventType::Established, 0),
            Err(error) => self.not_up(now, index, error),
        }
    }

    /// Forgets the QP of an id, and what was to come with it; creation under way is waited for.
    pub(crate) fn forget_qp(&mut self, index: usize) {
        let slot = &mut self.ids[index];
        slot.work.forget_qp();
        if !slot.objects.qp.is_saved() {
            slot.objects.qp = QpOf::None;
        }
    }
}
