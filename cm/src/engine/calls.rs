//! The calls of the user: connect, reply, ready, reject, disconnect, and querying a connection.

use core::time::Duration;

use super::alternate::types::Failover;
use super::error::{CmError, at_most, fits};
use super::machine::Engine;
use super::retry::bounded;
use super::slot::{Cause, PRIVATE, Slot, ev, own_transaction, tx};
use super::state::State;
use super::types::{Address, ConnectParams, ConnectionId, ReplyParams, Timers, Transport};
use super::units::{ack_timeout, exponent, nanos};
use super::wheel::NIL;
use crate::mad::{Dreq, Ece, Rej, RejectReason, Rep, Req, Rtu};

impl Timers {
    /// Checks whether the values fit into their fields.
    pub fn check(&self) -> Result<(), CmError> {
        at_most("remote response timeout", self.remote_response.into(), 31)?;
        at_most("local response timeout", self.local_response.into(), 31)?;
        at_most("CM retries", self.max_retries.into(), 15)
    }
}

impl ConnectParams<'_> {
    /// Parameters for the path `address`, with the defaults of the RDMA CM on RoCE.
    pub const fn new(address: Address) -> ConnectParams<'static> {
        ConnectParams {
            service_id: 0,
            address,
            transport: Transport::Rc,
            local_qpn: 0,
            starting_psn: None,
            path_mtu: 3,
            rate: 0,
            packet_life_time: 16,
            responder_resources: 1,
            initiator_depth: 1,
            flow_control: false,
            retry_count: 7,
            rnr_retry_count: 7,
            srq: false,
            timers: Timers {
                remote_response: 20,
                local_response: 20,
                max_retries: 15,
                early: Some(Duration::from_millis(256)),
            },
            alternate: None,
            ece: Ece::NONE,
            private_data: &[],
            user: 0,
        }
    }

    fn check(&self) -> Result<(), CmError> {
        fits(self.private_data.len(), Req::PRIVATE_DATA_MAX)?;
        at_most("local QP number", self.local_qpn.into(), 0xff_ffff)?;
        at_most(
            "starting PSN",
            self.starting_psn.unwrap_or(0).into(),
            0xff_ffff,
        )?;
        at_most("path MTU", self.path_mtu.into(), 5)?;
        at_most("packet life time", self.packet_life_time.into(), 31)?;
        at_most("packet rate", self.rate.into(), 63)?;
        at_most("retry count", self.retry_count.into(), 7)?;
        at_most("RNR retry count", self.rnr_retry_count.into(), 7)?;
        at_most("flow label", self.address.flow_label.into(), 0xf_ffff)?;
        at_most("service level", self.address.service_level.into(), 15)?;
        at_most("vendor ID", self.ece.vendor_id.into(), 0xff_ffff)?;
        if let Some(path) = &self.alternate {
            path.check()?;
        }
        self.timers.check()
    }
}

impl ReplyParams<'_> {
    /// Parameters with the defaults of the RDMA CM.
    pub const fn new(local_qpn: u32) -> ReplyParams<'static> {
        ReplyParams {
            local_qpn,
            responder_resources: 1,
            initiator_depth: 1,
            flow_control: false,
            rnr_retry_count: 7,
            srq: false,
            failover: Failover::Accepted,
            ece: Ece::NONE,
            private_data: &[],
        }
    }
}

impl Engine<'_> {
    /// Asks for a connection: sends REQ. What follows is [`Reply`](super::EventKind::Reply),
    /// [`Rejected`](super::EventKind::Rejected) or [`Unreachable`](super::EventKind::Unreachable).
    pub fn connect(
        &mut self,
        now: Duration,
        params: &ConnectParams<'_>,
    ) -> Result<ConnectionId, CmError> {
        params.check()?;
        let capacity = self.slots.len();
        let index = self
            .allocate()
            .ok_or(CmError::NoConnectionSlots { capacity })?;
        let config = self.config;
        let slot = &mut self.slots[index];
        slot.active = true;
        slot.state = State::ReqSent;
        slot.service_id = params.service_id;
        slot.address = params.address;
        slot.user = params.user;
        slot.transport = params.transport;
        slot.local_qpn = params.local_qpn;
        slot.local_psn = params.starting_psn.unwrap_or(slot.local_psn);
        slot.path_mtu = params.path_mtu;
        slot.rate = params.rate;
        slot.packet_life_time = params.packet_life_time;
        slot.ack_timeout = ack_timeout(config.ack_delay, params.packet_life_time);
        slot.responder_resources = params.responder_resources;
        slot.initiator_depth = params.initiator_depth;
        slot.flow_control = params.flow_control;
        slot.retry_count = params.retry_count;
        slot.rnr_retry_count = params.rnr_retry_count;
        slot.srq = params.srq;
        slot.set_timers(&params.timers);
        slot.auto_mra = config.auto_mra.unwrap_or(0xff);
        slot.ece = params.ece;
        slot.transaction_id = own_transaction(config.transaction_id_high, slot);
        slot.store(params.private_data);
        let interval = active_interval(slot);
        let id = slot.id();
        if let Some(path) = &params.alternate
            && let Err(error) = self.offer_alternate(index, path)
        {
            self.free(index);
            return Err(error);
        }
        self.start(index, nanos(now), interval);
        self.send(index, tx::REQ);
        Ok(id)
    }

    /// Lets an attempt rest that was refused as [stale](RejectReason::STALE_CONNECTION): after `wait` comes
    /// [`TimewaitExit`](super::EventKind::TimewaitExit), and [`retry`](Self::retry) may follow. The other end drops its old
    /// connection meanwhile. It is an error if this end still has the connection, so that the refusal was right.
    pub fn rest(&mut self, now: Duration, id: ConnectionId, wait: Duration) -> Result<(), CmError> {
        let index = self.in_state(id, "rest", &[State::Timewait])?;
        let qpn = self.slots[index].local_qpn;
        let mut others = self.slots.iter().filter(|slot| {
            let alive = slot.used && !slot.zombie && slot.local_qpn == qpn;
            alive && !matches!(slot.state, State::Idle | State::Timewait)
        });
        if let Some(other) = others.next() {
            return Err(CmError::WrongState {
                call: "rest",
                state: other.state,
            });
        }
        self.slots[index].exit_due = true;
        let at = nanos(now).saturating_add(nanos(wait));
        self.wheel.arm(self.slots, index as u32, at);
        Ok(())
    }

    /// Asks once more after a refusal, with a new communication ID and PSN: for use after
    /// [`STALE_CONNECTION`](RejectReason::STALE_CONNECTION), where the other end still had a connection with this QP from
    /// before. Everything else is as before, with `private_data` again; an alternate path is not offered again. The old ID
    /// stays valid until it is released.
    pub fn retry(
        &mut self,
        now: Duration,
        id: ConnectionId,
        private_data: &[u8],
    ) -> Result<ConnectionId, CmError> {
        let index = self.in_state(id, "retry", &[State::Idle, State::Timewait])?;
        let slot = &self.slots[index];
        if !slot.active {
            return Err(CmError::WrongState {
                call: "retry",
                state: slot.state,
            });
        }
        let auto_mra = slot.auto_mra;
        let params = ConnectParams {
            service_id: slot.service_id,
            transport: slot.transport,
            local_qpn: slot.local_qpn,
            path_mtu: slot.path_mtu,
            rate: slot.rate,
            packet_life_time: slot.packet_life_time,
            responder_resources: slot.responder_resources,
            initiator_depth: slot.initiator_depth,
            flow_control: slot.flow_control,
            retry_count: slot.retry_count,
            rnr_retry_count: slot.rnr_retry_count,
            srq: slot.srq,
            timers: slot.timers(),
            ece: slot.ece,
            user: slot.user,
            private_data,
            ..ConnectParams::new(slot.address)
        };
        let again = self.connect(now, &params)?;
        let index = self.get(again)?;
        self.slots[index].auto_mra = auto_mra;
        Ok(again)
    }

    /// Accepts a connection request: sends REP. The QP has to be ready to send by then
    /// ([`qp_params`](Self::qp_params)), since data may come before the RTU.
    pub fn reply(
        &mut self,
        now: Duration,
        id: ConnectionId,
        params: &ReplyParams<'_>,
    ) -> Result<(), CmError> {
        fits(params.private_data.len(), Rep::PRIVATE_DATA_MAX)?;
        at_most("local QP number", params.local_qpn.into(), 0xff_ffff)?;
        at_most("RNR retry count", params.rnr_retry_count.into(), 7)?;
        at_most("vendor ID", params.ece.vendor_id.into(), 0xff_ffff)?;
        let limit = self.config.max_response;
        let index = self.in_state(id, "reply", &[State::ReqReceived, State::MraReqSent])?;
        let slot = &mut self.slots[index];
        slot.state = State::RepSent;
        slot.local_qpn = params.local_qpn;
        slot.responder_resources = params.responder_resources;
        slot.initiator_depth = params.initiator_depth;
        slot.flow_control = params.flow_control;
        slot.rnr_retry_count = params.rnr_retry_count;
        slot.srq = params.srq;
        slot.ece = params.ece;
        slot.store(params.private_data);
        // As long as the peer asked for, but not without limit: an RTU can be sent at once.
        let end = nanos(self.config.rtu_limit).max(1);
        let interval = bounded(slot.remote_response, limit).min(end);
        let retries = (end / interval).saturating_sub(1);
        let retries = u64::from(slot.max_retries).min(retries) as u8;
        self.settle_backlog(index);
        if self.slots[index].link != NIL {
            self.settle_alternate(index, params.failover);
        }
        self.unsend(index);
        self.start_series(index, nanos(now), interval, retries);
        self.send(index, tx::REP);
        Ok(())
    }

    /// Completes a connection that the other end accepted: sends RTU. If it is lost, it is sent again for the other
    /// end's next REP, or data from this end takes its place.
    pub fn ready(&mut self, id: ConnectionId, private_data: &[u8]) -> Result<(), CmError> {
        fits(private_data.len(), Rtu::PRIVATE_DATA_MAX)?;
        let index = self.in_state(id, "ready", &[State::RepReceived, State::MraRepSent])?;
        let slot = &mut self.slots[index];
        slot.state = State::Established;
        slot.store(private_data);
        self.unsend(index);
        self.send(index, tx::RTU);
        Ok(())
    }

    /// Asks the other end for more time (4.096 us times 2 to `service_timeout`) to answer its REQ, REP or LAP: sends MRA.
    pub fn mra(&mut self, id: ConnectionId, service_timeout: u8) -> Result<(), CmError> {
        at_most("service timeout", service_timeout.into(), 31)?;
        let index = self.in_state(
            id,
            "mra",
            &[
                State::ReqReceived,
                State::MraReqSent,
                State::RepReceived,
                State::MraRepSent,
                State::Established,
            ],
        )?;
        if !self.answer_later(index, service_timeout) {
            return Err(CmError::NoAlternatePathAsked);
        }
        Ok(())
    }

    /// Queues an MRA. False on an established connection whose other end does not wait for an answer.
    pub(super) fn answer_later(&mut self, index: usize, service_timeout: u8) -> bool {
        let (state, message) = match self.slots[index].state {
            State::RepReceived | State::MraRepSent => (State::MraRepSent, 1),
            State::Established => {
                if !self.delay_lap(index) {
                    return false;
                }
                (State::Established, 2)
            }
            _ => (State::MraReqSent, 0),
        };
        let slot = &mut self.slots[index];
        (slot.state, slot.mra_message) = (state, message);
        slot.service_timeout = service_timeout;
        self.send(index, tx::MRA);
        true
    }

    /// Refuses a request or a reply, or gives up an attempt of one's own: sends REJ. `info` says what would have been
    /// acceptable, as the reason defines it.
    pub fn reject(
        &mut self,
        now: Duration,
        id: ConnectionId,
        reason: RejectReason,
        info: &[u8],
        private_data: &[u8],
    ) -> Result<(), CmError> {
        fits(private_data.len(), Rej::PRIVATE_DATA_MAX)?;
        at_most(
            "length of the additional information",
            info.len() as u64,
            72,
        )?;
        let index = self.in_state(
            id,
            "reject",
            &[
                State::ReqSent,
                State::MraReqReceived,
                State::ReqReceived,
                State::MraReqSent,
                State::RepReceived,
                State::MraRepSent,
                State::RepSent,
                State::MraRepReceived,
            ],
        )?;
        self.refuse(index, nanos(now), reason, info, private_data);
        Ok(())
    }

    pub(super) fn refuse(
        &mut self,
        index: usize,
        now: u64,
        reason: RejectReason,
        info: &[u8],
        private_data: &[u8],
    ) {
        self.settle_backlog(index);
        let slot = &mut self.slots[index];
        let state = slot.state;
        slot.pending_tx = 0;
        slot.pending_events = 0;
        slot.reason = reason.0;
        slot.rej_message = match state {
            State::ReqReceived | State::MraReqSent => 0,
            State::RepReceived | State::MraRepSent => 1,
            _ => 2,
        };
        // Laid out as in the MAD: additional information, then private data.
        slot.rej_info_len = info.len().min(72) as u8;
        slot.private[..PRIVATE].fill(0);
        slot.private[..info.len()].copy_from_slice(info);
        slot.private[72..72 + private_data.len()].copy_from_slice(private_data);
        slot.private_len = (72 + Rej::PRIVATE_DATA_MAX) as u8;
        slot.data_event = 0;
        match state {
            State::RepSent | State::MraRepReceived => self.timewait(index, now),
            _ => self.finish(index),
        }
        self.send(index, tx::REJ);
    }

    /// Ends an established connection: sends DREQ, or the DREP that is due. If the other end has disconnected before,
    /// there is nothing to send, and that is no error.
    pub fn disconnect(
        &mut self,
        now: Duration,
        id: ConnectionId,
        private_data: &[u8],
    ) -> Result<(), CmError> {
        fits(private_data.len(), Dreq::PRIVATE_DATA_MAX)?;
        let index = self.in_state(
            id,
            "disconnect",
            &[
                State::Established,
                State::DreqReceived,
                State::DreqSent,
                State::Timewait,
            ],
        )?;
        match self.slots[index].state {
            State::Established => self.send_dreq(index, nanos(now), private_data),
            State::DreqReceived => {
                self.slots[index].store(private_data);
                self.timewait(index, nanos(now));
                self.send(index, tx::DREP);
            }
            _ => {}
        }
        Ok(())
    }

    /// The time that the answer to one of this end's messages may take on an established connection.
    pub(super) fn interval(&self, index: usize) -> u64 {
        let slot = &self.slots[index];
        if slot.active {
            active_interval(slot)
        } else {
            bounded(slot.remote_response, self.config.max_response)
        }
    }

    /// Sends DREQ on an established connection.
    pub(super) fn send_dreq(&mut self, index: usize, now: u64, private_data: &[u8]) {
        let high = self.config.transaction_id_high;
        let slot = &mut self.slots[index];
        slot.state = State::DreqSent;
        slot.transaction_id = own_transaction(high, slot);
        // Data of an event that was not fetched yet has to stay; it is better to lose the DREQ's private data.
        if slot.data_event == 0 || slot.pending_events & slot.data_event == 0 {
            slot.store(private_data);
        }
        if slot.link != NIL {
            self.drop_alternate(index);
        }
        let interval = self.interval(index);
        self.unsend(index);
        self.start(index, now, interval);
        self.send(index, tx::DREQ);
    }

    /// The QP received data before the RTU came: as good as an RTU. `Ok(false)` if it was established already.
    pub fn notify_established(&mut self, id: ConnectionId) -> Result<bool, CmError> {
        let index = self.in_state(
            id,
            "notify",
            &[State::RepSent, State::MraRepReceived, State::Established],
        )?;
        if self.slots[index].state == State::Established {
            return Ok(false);
        }
        self.established(index, &[]);
        Ok(true)
    }

    pub(super) fn established(&mut self, index: usize, data: &[u8]) {
        self.leave_half_open(index);
        self.wheel.disarm(self.slots, index as u32);
        self.unsend(index);
        let slot = &mut self.slots[index];
        slot.state = State::Established;
        slot.store_received(ev::ESTABLISHED, data);
        self.raise(index, ev::ESTABLISHED);
    }

    /// The user is done with a connection, whatever its state. The peer is notified if necessary: REJ during the
    /// handshake, DREQ (repeated until it is answered) when established. No event follows.
    pub fn release(&mut self, now: Duration, id: ConnectionId) -> Result<(), CmError> {
        let index = self.get(id)?;
        let now = nanos(now);
        let guid = self.config.node_guid.to_be_bytes();
        let slot = &mut self.slots[index];
        slot.pending_events = 0;
        slot.data_event = 0;
        slot.zombie = true;
        match slot.state {
            State::ReqSent | State::MraReqReceived => {
                self.refuse(index, now, RejectReason::TIMEOUT, &guid, &[])
            }
            State::ReqReceived
            | State::MraReqSent
            | State::RepReceived
            | State::MraRepSent
            | State::RepSent
            | State::MraRepReceived => {
                self.refuse(index, now, RejectReason::CONSUMER_DEFINED, &[], &[])
            }
            State::Established => self.send_dreq(index, now, &[]),
            State::DreqReceived => {
                slot.private_len = 0;
                self.finish(index);
                self.send(index, tx::DREP);
            }
            State::Idle | State::DreqSent | State::Timewait => {}
        }
        self.release_if_done(index);
        Ok(())
    }

    pub(super) fn in_state(
        &self,
        id: ConnectionId,
        call: &'static str,
        states: &[State],
    ) -> Result<usize, CmError> {
        let index = self.get(id)?;
        let state = self.slots[index].state;
        if states.contains(&state) {
            Ok(index)
        } else {
            Err(CmError::WrongState { call, state })
        }
    }
}

/// Time to wait for the answer to the active side's messages: there, the peer's time to answer, and back.
fn active_interval(slot: &Slot) -> u64 {
    2 * exponent(slot.packet_life_time) + exponent(slot.remote_response)
}

impl Engine<'_> {
    /// The peer ended an attempt that was not established yet.
    pub(super) fn refused(&mut self, index: usize, now: u64, rej: &Rej<'_>, rest: bool) {
        self.settle_backlog(index);
        let slot = &mut self.slots[index];
        if slot.pending_events & ev::REQUEST != 0 {
            // The request was not sent yet, so that its withdrawal need not be sent either.
            self.free(index);
            return;
        }
        slot.pending_tx = 0;
        slot.pending_events = 0;
        slot.cause = Cause::Rejected;
        slot.reason = rej.reason;
        slot.rej_info_len = rej.info_len.min(72);
        let mut data = [0; 72 + Rej::PRIVATE_DATA_MAX];
        data[..72].copy_from_slice(&rej.info);
        data[72..72 + rej.private_data.len()].copy_from_slice(rej.private_data);
        slot.store_received(ev::REJECTED, &data[..72 + rej.private_data.len()]);
        if rest {
            self.timewait(index, now);
        } else {
            self.finish(index);
        }
        self.raise(index, ev::REJECTED);
        self.release_if_done(index);
    }
}
