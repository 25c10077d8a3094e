//! The running of queue pairs: whose turn it is, timers, and the flushing of what is left in error.

use crate::bus::front::Front;
use crate::bus::io::Io;
use crate::device::Device;
use crate::objects::eq::event;
use crate::objects::qp::EVENT_QP;
use crate::rdma::view::View;
use crate::roce::env::{
    Domain, QpState, RecvCompletion, RecvOp, SendCompletion, SendWork, Syndrome,
};
use crate::roce::transport::Transport;
use bareverbs_firmware_cmds::eq::QpEvents;
use bareverbs_firmware_cmds::event::DctEvents;
use bareverbs_firmware_cmds::word::Word;
use bareverbs_firmware_cmds::wqe::ControlWord;
use core::time::Duration;
use std::collections::BTreeSet;

/// The receive queues of QPs in error are looked at again after this time, as nothing rings for them; and after the longest
/// one, once this has gone on for a while: where time is virtual, each look is an event.
const DRAIN_PERIOD: Duration = Duration::from_micros(100);
const LONGEST_DRAIN_PERIOD: Duration = Duration::from_micros(800);
/// Packets a QP may send before the next one has its turn.
const RUN_BUDGET: usize = 64;

impl Device {
    /// Looks at the receive queue of a QP in error, or at one by itself, from now on.
    pub(crate) fn begin_draining(&mut self, number: u32) {
        self.draining.insert(number);
        self.drain_at = self.now;
        self.drain_period = DRAIN_PERIOD;
    }

    /// Lends a QP's transport out together with the device around it.
    pub(crate) fn with_transport(
        &mut self,
        io: &mut Io<'_>,
        qpn: u32,
        f: impl FnOnce(&mut Transport, &mut View<'_, '_>),
    ) {
        let Some(mut transport) = self.qps.get_mut(qpn).and_then(|qp| qp.transport.take()) else {
            return;
        };
        f(
            &mut transport,
            &mut View {
                device: self,
                io,
                qpn,
            },
        );
        let deadline = transport.next_deadline();
        let Some(qp) = self.qps.get_mut(qpn) else {
            return;
        };
        qp.transport = Some(transport);
        // Every acknowledgement moves the timer on. A timer that is set too early checks again when it expires, which
        // is cheaper than to set it for every packet.
        let Some(new) = deadline else {
            return;
        };
        if qp.deadline.is_none_or(|old| new < old) {
            if let Some(old) = qp.deadline {
                self.timers.remove(&(old, qpn));
            }
            qp.deadline = Some(new);
            self.timers.insert((new, qpn));
        }
    }

    pub(crate) fn make_ready(&mut self, qpn: u32) {
        if let Some(qp) = self.qps.get_mut(qpn)
            && !qp.queued
        {
            qp.queued = true;
            self.ready.push_back(qpn);
        }
    }

    /// Removes a QP from the schedule.
    pub(crate) fn unschedule(&mut self, qpn: u32) {
        if let Some(qp) = self.qps.get_mut(qpn)
            && let Some(deadline) = qp.deadline.take()
        {
            self.timers.remove(&(deadline, qpn));
        }
        self.ready.retain(|&other| other != qpn);
        self.draining.remove(&qpn);
    }

    /// Gives every QP that has something to do its turn. Returns whether something is left.
    pub(crate) fn run_queues(&mut self, io: &mut Io<'_>) -> bool {
        if self.paused {
            return false;
        }
        for _ in 0..self.ready.len() {
            let (budget, others) = self.turn(RUN_BUDGET, self.ready.len());
            self.ready.rotate_left(others);
            let Some(qpn) = self.ready.pop_front() else {
                break;
            };
            if let Some(qp) = self.qps.get_mut(qpn) {
                qp.queued = false;
                self.run_qp(io, qpn, budget);
            } else {
                self.run_sq(io, qpn);
            }
        }
        !self.ready.is_empty()
    }

    fn run_qp(&mut self, io: &mut Io<'_>, qpn: u32, budget: usize) {
        let now = self.now;
        self.read_ahead.clear();
        let Some(qp) = self.qps.get_mut(qpn) else {
            return;
        };
        if core::mem::take(&mut qp.broken) && qp.state != QpState::Err {
            self.qp_event(io, qpn, event::WQ_CATAS);
            self.enter_state(io, qpn, QpState::Err);
        }
        let Some(qp) = self.qps.get_mut(qpn) else {
            return;
        };
        match qp.state {
            QpState::Reset | QpState::Init => {}
            QpState::Err | QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe => {
                let local = qp.transport.is_none();
                if qp.state == QpState::Err {
                    self.flush(io, qpn);
                } else if local {
                    self.run_local(io, qpn);
                }
                if local {
                    return;
                }
                // Also in error: the peer has still to be sent the reason.
                let mut scratch = self.scratch.take().unwrap_or_default();
                let mut more = false;
                self.with_transport(io, qpn, |transport, env| {
                    more = transport.run(env, &mut scratch, now, budget);
                });
                self.scratch = Some(scratch);
                if more {
                    self.make_ready(qpn);
                }
                if self.qps.get(qpn).is_some_and(|qp| qp.state == QpState::Sqe) {
                    self.flush_sends(io, qpn);
                }
            }
        }
    }

    /// Completes what is still posted in error: the transport has flushed only what it had fetched.
    fn flush(&mut self, io: &mut Io<'_>, qpn: u32) {
        self.flush_sends(io, qpn);
        self.flush_receives(io, qpn);
        if let Some(qp) = self.qps.get_mut(qpn)
            && core::mem::take(&mut qp.last_wqe_due)
        {
            self.qp_event(io, qpn, event::SRQ_LAST_WQE);
        }
    }

    fn flush_sends(&mut self, io: &mut Io<'_>, qpn: u32) {
        loop {
            let Some(qp) = self.qps.get(qpn) else {
                return;
            };
            let left = qp.sq_posted.wrapping_sub(qp.sq_next);
            if left == 0 || u32::from(left) > qp.sq_blocks() {
                return;
            }
            let mut head = [0; 16];
            if qp.read_sq(io, qp.sq_next, &mut head).is_err() {
                return;
            }
            let control = ControlWord::read(&head);
            let index = qp.sq_next;
            let blocks = u16::from(control.ds()).div_ceil(4).clamp(1, left);
            if let Some(qp) = self.qps.get_mut(qpn) {
                qp.sq_next = index.wrapping_add(blocks);
                qp.written = None;
            }
            self.send_completed(
                io,
                qpn,
                &SendCompletion {
                    index,
                    wqe_opcode: control.opcode(),
                    signaled: true,
                    byte_len: 0,
                    result: Err(Syndrome::WorkRequestFlushed),
                },
            );
        }
    }

    fn flush_receives(&mut self, io: &mut Io<'_>, qpn: u32) {
        if self.qps.get(qpn).is_none_or(|qp| qp.rq_entries() == 0)
            || !self.read_receive_record(io, qpn)
        {
            return;
        }
        loop {
            let Some(qp) = self.qps.get_mut(qpn) else {
                return;
            };
            let left = qp.rq_posted.wrapping_sub(qp.rq_next);
            if left == 0 || u32::from(left) > qp.rq_entries() {
                return;
            }
            let index = qp.rq_next;
            qp.rq_next = index.wrapping_add(1);
            self.receive_completed(
                io,
                qpn,
                &RecvCompletion {
                    index,
                    op: RecvOp::Send,
                    byte_len: 0,
                    solicited: false,
                    source: None,
                    domain: Domain::Own,
                    result: Err(Syndrome::WorkRequestFlushed),
                },
            );
        }
    }

    /// QPs that never reach the wire only execute what is local.
    fn run_local(&mut self, io: &mut Io<'_>, qpn: u32) {
        while self.qps.get(qpn).is_some_and(|qp| qp.state == QpState::Rts) {
            let mut work = SendWork::default();
            let fetched = self.fetch_send(io, qpn, &mut work);
            let result = match fetched {
                Ok(false) => return,
                Ok(true) => self.execute_local(io, qpn, &work),
                Err(bad) => Err(bad.0),
            };
            self.send_completed(
                io,
                qpn,
                &SendCompletion {
                    index: work.index,
                    wqe_opcode: work.wqe_opcode,
                    signaled: work.signaled,
                    byte_len: 0,
                    result,
                },
            );
            if result.is_err() {
                self.enter_state(io, qpn, QpState::Err);
            }
        }
    }

    /// An asynchronous event that names a QP.
    pub(crate) fn qp_event(&mut self, io: &mut Io<'_>, qpn: u32, kind: u8) {
        let mut data = QpEvents::ZERO;
        data.set_type(EVENT_QP).set_qpn_rqn_sqn(qpn);
        self.event(io, kind, 0, &data.0);
    }

    /// An asynchronous event that names a target of dynamic connections.
    pub(crate) fn dct_event(&mut self, io: &mut Io<'_>, number: u32, kind: u8) {
        let mut data = DctEvents::ZERO;
        data.set_dct_number(number);
        self.event(io, kind, 0, &data.0);
    }

    /// A request with a wrong access key has come.
    pub(crate) fn key_violated(&mut self, io: &mut Io<'_>, number: u32) {
        let dct = self.qps.get_mut(number).and_then(|qp| qp.dct.as_mut());
        let Some(dct) = dct else {
            return;
        };
        dct.violations = dct.violations.saturating_add(1);
        if core::mem::take(&mut dct.armed) {
            self.dct_event(io, number, event::DCT_KEY_VIOLATION);
        }
    }

    /// Returns `true` if no queue has something to do that it may do, and no frame is on its way round.
    pub(crate) fn idle(&self) -> bool {
        (self.paused || self.ready.is_empty())
            && self.loopback.is_empty()
            && self.forced.is_empty()
            && self.looped.is_empty()
    }

    fn front_is_late(&self, now: Duration) -> bool {
        let late = |front: &Front| front.deadline().is_some_and(|at| at <= now);
        self.front.as_deref().is_some_and(late)
    }

    /// Returns `true` if anything but commands is due.
    pub(crate) fn has_work(&self) -> bool {
        let now = self.now;
        let due = |timers: &BTreeSet<(Duration, u32)>| {
            !timers.is_empty() && timers.first().is_some_and(|&(at, _)| at <= now)
        };
        !self.idle() && !self.rests()
            || self.quirk_is_due()
            || due(&self.timers)
            || due(&self.held_back)
            || due(&self.sessions)
            || self.front_is_late(now)
            || !self.draining.is_empty() && self.drain_at <= now
    }

    /// Timers that have come, events held back for long enough, and receive queues to be drained.
    pub(crate) fn run_timers(&mut self, io: &mut Io<'_>) {
        let now = self.now;
        if self.front_is_late(now) {
            self.front_late(io);
        }
        while let Some(&(deadline, qpn)) = self.timers.first() {
            if deadline > now {
                break;
            }
            self.timers.pop_first();
            if let Some(qp) = self.qps.get_mut(qpn) {
                qp.deadline = None;
            }
            let mut came = false;
            self.with_transport(io, qpn, |transport, env| {
                came = transport.next_deadline().is_some_and(|at| at <= now);
                if came {
                    transport.on_timer(env, now);
                }
            });
            if came {
                self.make_ready(qpn);
            }
            // A transport whose deadline does not move would stay scheduled for ever.
            if self.timers.first() == Some(&(deadline, qpn)) {
                break;
            }
        }
        self.close_late_sessions(io);
        while let Some(&(at, cqn)) = self.held_back.first()
            && at <= now
        {
            self.held_back.pop_first();
            self.fire(io, cqn);
        }
        if !self.draining.is_empty() && self.drain_at <= now {
            self.drain_at = now + self.drain_period;
            self.drain_period = LONGEST_DRAIN_PERIOD.min(self.drain_period * 2);
            let mut next = self.draining.first().copied();
            while let Some(qpn) = next {
                if self.qps.contains(qpn) {
                    self.flush_receives(io, qpn);
                } else {
                    self.flush_rq(io, qpn);
                }
                next = self.draining.range(qpn + 1..).next().copied();
            }
        }
    }
}
