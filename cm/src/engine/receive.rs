//! Acting on what arrives (IBTA volume 1, chapter 12.9.7; in detail as Linux's ib_cm does).

use core::net::Ipv6Addr;
use core::time::Duration;

use super::machine::Engine;
use super::slot::{Answer, Cause, ev, tx};
use super::state::State;
use super::types::{Address, Ignored, Outcome, Transport};
use super::units::{ack_timeout, nanos};
use super::wheel::NIL;
use crate::ip::is_unicast;
use crate::mad::{
    Apr, Attribute, CLASS_VERSION, Drep, Dreq, Lap, Mad, Mra, Rej, RejectReason, Rep, Req, Rtu,
    SidrRep, SidrReq, bounded, foreign_req,
};

/// LIDs from here on are no port's.
const FIRST_MULTICAST_LID: u16 = 0xc000;

/// The path of a request, as its receiver sees it. On RoCE the code that moves the MADs has the return path; on
/// InfiniBand the request has it, or, if it came through routers, the MAD that it came in.
fn path_of(req: &Req<'_>, from: &Address) -> Address {
    let path = Address {
        remote_gid: req.primary_local_gid,
        pkey: req.pkey,
        flow_label: req.primary_flow_label,
        traffic_class: req.primary_traffic_class,
        service_level: req.primary_sl,
        ..*from
    };
    if from.remote_lid == 0 {
        return path;
    }
    let lid = |said: u16, seen: u16| {
        if req.primary_subnet_local != 0 && (1..FIRST_MULTICAST_LID).contains(&said) {
            said
        } else {
            seen
        }
    };
    Address {
        local_lid: lid(req.primary_remote_lid, from.local_lid),
        remote_lid: lid(req.primary_local_lid, from.remote_lid),
        hop_limit: req.primary_hop_limit,
        ..path
    }
}

/// Returns `true` if a request's GID can be that of one port which `ours` can reach: an address of one host, in both of them IPv4
/// or in neither. The connection, and all that this end says about it, would go there.
pub(super) fn can_be_peer(gid: [u8; 16], ours: [u8; 16]) -> bool {
    let (gid, ours) = (
        Ipv6Addr::from(gid).to_canonical(),
        Ipv6Addr::from(ours).to_canonical(),
    );
    is_unicast(gid) && gid.is_ipv4() == ours.is_ipv4()
}

impl Engine<'_> {
    /// Takes a MAD that came to QP1. `from` has this end as local and the sender as remote.
    ///
    /// The error is for information only: nothing needs to be done about a MAD that was ignored.
    pub fn handle_mad(
        &mut self,
        now: Duration,
        from: &Address,
        mad: &[u8],
    ) -> Result<Attribute, Ignored> {
        self.stats.received += 1;
        let outcome = self.dispatch(nanos(now), from, mad);
        match outcome {
            Err(Ignored::Duplicate(_)) => self.stats.duplicates += 1,
            Err(_) => self.stats.ignored += 1,
            Ok(_) => {}
        }
        outcome
    }

    /// Refuses a REQ for a reason of the caller's, so that no connection comes of it. `mad` has to be one.
    #[cold]
    pub fn refuse_request(
        &mut self,
        from: &Address,
        mad: &[u8],
        reason: RejectReason,
    ) -> Result<Attribute, Ignored> {
        self.stats.received += 1;
        let mad = Mad::new(mad).map_err(Ignored::Malformed)?;
        let req = Req::read(mad.bytes());
        self.refuse_req(from, &mad, &req, reason, &from.local_gid)?;
        Ok(Attribute::Req)
    }

    fn dispatch(&mut self, now: u64, from: &Address, mad: &[u8]) -> Result<Attribute, Ignored> {
        let mad = match Mad::new(mad) {
            Ok(mad) => mad,
            Err(error) => {
                self.on_foreign(from, mad);
                return Err(Ignored::Malformed(error));
            }
        };
        let attribute = mad.attribute();
        // One type per message rather than one for all: only the fields that are needed are read.
        match attribute {
            Attribute::Req => {
                let req = Req::read(mad.bytes());
                self.on_req(now, from, &mad, &req)
            }
            Attribute::Rep => {
                let rep = Rep::read(mad.bytes());
                self.on_rep(now, from, &mad, &rep)
            }
            Attribute::Rtu => self.on_rtu(&Rtu::read(mad.bytes())),
            Attribute::Dreq => {
                let dreq = Dreq::read(mad.bytes());
                self.on_dreq(now, from, &mad, &dreq)
            }
            Attribute::Drep => self.on_drep(now, &Drep::read(mad.bytes())),
            _ => self.dispatch_other(now, from, &mad),
        }?;
        Ok(attribute)
    }

    /// A REQ of another class version would be repeated for a minute without an answer that refuses the version.
    #[cold]
    fn on_foreign(&mut self, from: &Address, bytes: &[u8]) {
        if let Some((remote, transaction_id)) = foreign_req(bytes)
            && self.config.reject_unknown
        {
            let mut info = [0; 16];
            info[0] = CLASS_VERSION;
            let answer = Answer::Rej {
                local: 0,
                remote,
                message: 0,
                reason: RejectReason::INVALID_CLASS_VERSION.0,
                info_len: 1,
                info,
            };
            self.answer(from, transaction_id, answer);
        }
    }

    /// Messages that an ordinary connection does not need. Those of parts that the build lacks are ignored.
    #[cold]
    fn dispatch_other(&mut self, now: u64, from: &Address, mad: &Mad<'_>) -> Outcome {
        let attribute = mad.attribute();
        let bytes = mad.bytes();
        match attribute {
            Attribute::SidrReq | Attribute::SidrRep if !cfg!(feature = "datagrams") => {
                Err(Ignored::Unexpected(attribute))
            }
            Attribute::Lap | Attribute::Apr if !cfg!(feature = "infiniband") => {
                Err(Ignored::Unexpected(attribute))
            }
            Attribute::Mra => self.on_mra(now, mad, &Mra::read(bytes)),
            Attribute::Rej => {
                // A refusal is one even if it claims more additional information than it can hold.
                let mut rej = Rej::read(bytes);
                rej.info_len = rej.info_len.min(72);
                self.on_rej(now, &rej)
            }
            Attribute::SidrReq => self.on_sidr_req(now, from, mad, &SidrReq::read(bytes)),
            Attribute::SidrRep => {
                let rep = bounded(SidrRep::read(bytes), |rep| rep.info_len);
                self.on_sidr_rep(from, mad, &rep.map_err(Ignored::Malformed)?)
            }
            Attribute::Lap => self.on_lap(now, from, mad, &Lap::read(bytes)),
            Attribute::Apr => {
                let apr = bounded(Apr::read(bytes), |apr| apr.info_len);
                self.on_apr(mad, &apr.map_err(Ignored::Malformed)?)
            }
            Attribute::ClassPortInfo if mad.is_get() => {
                self.reply_to(from, mad, Answer::ClassPortInfo)
            }
            _ => Err(Ignored::Unexpected(attribute)),
        }
    }

    pub(super) fn reply_to(&mut self, from: &Address, mad: &Mad<'_>, answer: Answer) -> Outcome {
        if self.answer(from, mad.transaction_id(), answer) {
            Ok(())
        } else {
            Err(Ignored::NoReplySlot(mad.attribute()))
        }
    }

    /// Refuses a REQ for which there is no connection.
    #[cold]
    #[inline(never)]
    fn refuse_req(
        &mut self,
        from: &Address,
        mad: &Mad<'_>,
        req: &Req<'_>,
        reason: RejectReason,
        info: &[u8],
    ) -> Outcome {
        self.refuse_with(from, mad, 0, req.local_comm_id, 0, reason, info)
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of a REJ")]
    #[cold]
    #[inline(never)]
    fn refuse_with(
        &mut self,
        from: &Address,
        mad: &Mad<'_>,
        local: u32,
        remote: u32,
        message: u8,
        reason: RejectReason,
        info: &[u8],
    ) -> Outcome {
        let mut bytes = [0; 16];
        let len = info.len().min(bytes.len());
        bytes[..len].copy_from_slice(&info[..len]);
        let answer = Answer::Rej {
            local,
            remote,
            message,
            reason: reason.0,
            info_len: len as u8,
            info: bytes,
        };
        self.reply_to(from, mad, answer)
    }

    fn on_req(&mut self, now: u64, from: &Address, mad: &Mad<'_>, req: &Req<'_>) -> Outcome {
        if let Some(index) = self.find_remote_id(req.local_comm_id, req.local_ca_guid) {
            let slot = &self.slots[index];
            let same = slot.remote_qpn == req.local_qpn && slot.service_id == req.service_id;
            if slot.stale && !(same && slot.remote_psn == req.starting_psn) {
                // The peer was restarted, and uses the same communication ID again.
                self.leave(index);
            } else if same {
                return self.on_duplicate_req(index);
            } else {
                // Another request with the same communication ID: the connection that has the ID keeps it.
                let reason = RejectReason::DUPLICATE_LOCAL_COMM_ID;
                return self.refuse_req(from, mad, req, reason, &[]);
            }
        }
        if let Some(old) = self.find_remote_qp(req.local_qpn, req.local_ca_guid) {
            let slot = &self.slots[old];
            if slot.stale && slot.refused_comm_id != req.local_comm_id {
                // The next try after the refusal.
                self.leave_qp(old);
            } else {
                // The QP cannot be in two connections: the peer has lost the old one.
                self.stale(old, req.local_comm_id, now);
                return self.refuse_req(from, mad, req, RejectReason::STALE_CONNECTION, &[]);
            }
        }
        let Some(listener_index) = self.find_listener(req.service_id, false) else {
            return self.refuse_req(from, mad, req, RejectReason::INVALID_SERVICE_ID, &[]);
        };
        let listener = self.listeners[listener_index];
        let transport = match (req.transport, req.extended_transport) {
            (0, _) if !listener.accepts_xrc => Transport::Rc,
            (1, _) if listener.accepts_uc => Transport::Uc,
            (3, 1) if listener.accepts_xrc => Transport::Xrc,
            _ => return self.refuse_req(from, mad, req, RejectReason::INVALID_TRANSPORT_TYPE, &[]),
        };
        if req.primary_remote_gid != from.local_gid {
            return self.refuse_req(from, mad, req, RejectReason::INVALID_GID, &from.local_gid);
        }
        if !can_be_peer(req.primary_local_gid, from.local_gid) {
            return self.refuse_req(from, mad, req, RejectReason::INVALID_GID, &from.local_gid);
        }
        let roce = !cfg!(feature = "infiniband") || from.remote_lid == 0;
        if req.alternate_local_lid != 0 && self.alternates.is_empty() && roce {
            // A second path has no meaning there.
            return self.refuse_req(
                from,
                mad,
                req,
                RejectReason::INVALID_ALT_GID,
                &from.local_gid,
            );
        }
        if !(1..=self.config.max_mtu).contains(&req.path_mtu) {
            return self.refuse_req(
                from,
                mad,
                req,
                RejectReason::INVALID_MTU,
                &[self.config.max_mtu],
            );
        }
        if listener.waiting >= listener.backlog {
            return self.overflow(from, mad, req);
        }
        let mut taken = self.allocate_for_peer();
        if taken.is_none() && self.evict_for(now, from) {
            taken = self.allocate_for_peer();
            if taken.is_none() {
                // The slot is free as soon as the user has released what was evicted: for the next try.
                return Err(Ignored::Unexpected(Attribute::Req));
            }
        }
        let Some(index) = taken else {
            return self.overflow(from, mad, req);
        };
        self.listeners[listener_index].waiting += 1;
        let (timers, auto_mra) = (self.config.timers, self.config.auto_mra);
        let slot = &mut self.slots[index];
        slot.state = State::ReqReceived;
        slot.transaction_id = mad.transaction_id();
        slot.listener = listener_index as u32;
        slot.listener_generation = listener.generation;
        slot.service_id = req.service_id;
        slot.transport = transport;
        slot.address = path_of(req, from);
        slot.remote_comm_id = req.local_comm_id;
        slot.remote_guid = req.local_ca_guid;
        slot.remote_qpn = req.local_qpn;
        slot.remote_psn = req.starting_psn;
        slot.path_mtu = req.path_mtu;
        slot.rate = req.primary_rate;
        slot.packet_life_time = req.primary_ack_timeout.saturating_sub(1);
        slot.ack_timeout = req.primary_ack_timeout.max(1);
        slot.peer_responder_resources = req.responder_resources;
        slot.peer_initiator_depth = req.initiator_depth;
        slot.peer_flow_control = req.flow_control != 0;
        slot.peer_srq = req.srq != 0;
        slot.retry_count = req.retry_count;
        slot.peer_rnr_retry_count = req.rnr_retry_count;
        // The requester says how long it takes to answer, and how often to ask again.
        slot.set_timers(&timers);
        slot.remote_response = req.local_cm_response_timeout;
        slot.max_retries = req.max_cm_retries;
        slot.auto_mra = auto_mra.unwrap_or(0xff);
        slot.peer_ece = req.ece(mad.modifier());
        slot.store_received(ev::REQUEST, req.private_data);
        if cfg!(feature = "infiniband") && req.alternate_local_lid != 0 {
            self.store_alternate(index, mad);
        }
        self.enter(index);
        self.enter_half_open(index, now, from);
        self.raise(index, ev::REQUEST);
        Ok(())
    }

    /// A slot for a request of a peer.
    fn allocate_for_peer(&mut self) -> Option<usize> {
        let has_slot = self.in_use.saturating_add(self.config.reserved as usize) < self.slots.len();
        has_slot.then(|| self.allocate()).flatten()
    }

    fn overflow(&mut self, from: &Address, mad: &Mad<'_>, req: &Req<'_>) -> Outcome {
        if self.config.reject_overflow {
            self.refuse_req(from, mad, req, RejectReason::NO_RESOURCES, &[])
        } else {
            Err(Ignored::Unexpected(Attribute::Req))
        }
    }

    fn on_duplicate_req(&mut self, index: usize) -> Outcome {
        match self.slots[index].state {
            State::ReqReceived => {
                let timeout = self.slots[index].auto_mra;
                if timeout != 0xff {
                    self.answer_later(index, timeout);
                }
            }
            State::MraReqSent => self.send(index, tx::MRA),
            // The REP may have been lost; waiting for its timer would take longer.
            State::RepSent => self.send(index, tx::REP),
            _ => {}
        }
        Err(Ignored::Duplicate(Attribute::Req))
    }

    /// The peer of this connection does not have it any more: the request `refused` shows that. The peer's next try
    /// gets through, even with the same QP and even if it never answers the DREQ; but a late copy of the request that
    /// made this connection, or of the one that was refused, makes no connection that the peer does not have. A half-open
    /// one ends as if the peer had withdrawn its request.
    fn stale(&mut self, index: usize, refused: u32, now: u64) {
        let slot = &mut self.slots[index];
        match slot.state {
            State::Established | State::DreqSent | State::DreqReceived => {
                slot.stale = true;
                slot.refused_comm_id = refused;
            }
            State::ReqReceived | State::MraReqSent | State::RepSent | State::MraRepReceived => {
                let withdrawal = Rej {
                    reason: RejectReason::STALE_CONNECTION.0,
                    ..Rej::ZERO
                };
                return self.refused(index, now, &withdrawal, false);
            }
            _ => return,
        }
        if slot.state == State::Established {
            self.send_dreq(index, now, &[]);
        }
    }

    fn on_mra(&mut self, now: u64, mad: &Mad<'_>, mra: &Mra<'_>) -> Outcome {
        let unexpected = Err(Ignored::Unexpected(Attribute::Mra));
        let Some(index) = self.find(mra.remote_comm_id) else {
            return unexpected;
        };
        let slot = &mut self.slots[index];
        match (mra.message, slot.state) {
            (2, State::Established) if slot.remote_comm_id == mra.local_comm_id => {
                self.lap_delayed(index, mad.transaction_id())?;
            }
            (0, State::ReqSent) => slot.state = State::MraReqReceived,
            (1, State::RepSent) if slot.remote_comm_id == mra.local_comm_id => {
                slot.state = State::MraRepReceived
            }
            (0, State::MraReqReceived) | (1, State::MraRepReceived) => {
                return Err(Ignored::Duplicate(Attribute::Mra));
            }
            _ => return unexpected,
        }
        self.extend(index, now, mra.service_timeout);
        Ok(())
    }

    fn on_rep(&mut self, now: u64, from: &Address, mad: &Mad<'_>, rep: &Rep<'_>) -> Outcome {
        let index = self.find(rep.remote_comm_id).filter(|index| {
            let slot = &self.slots[*index];
            slot.state != State::Idle
                && (slot.remote_comm_id == 0 || slot.remote_comm_id == rep.local_comm_id)
        });
        let Some(index) = index else {
            if !self.config.reject_unknown {
                return Err(Ignored::Unexpected(Attribute::Rep));
            }
            let (local, remote) = (rep.remote_comm_id, rep.local_comm_id);
            return self.refuse_with(
                from,
                mad,
                local,
                remote,
                1,
                RejectReason::INVALID_COMM_ID,
                &[],
            );
        };
        match self.slots[index].state {
            State::ReqSent | State::MraReqReceived => {}
            State::Established => {
                self.send(index, tx::RTU);
                return Err(Ignored::Duplicate(Attribute::Rep));
            }
            State::RepReceived => {
                let timeout = self.slots[index].auto_mra;
                if timeout != 0xff {
                    self.answer_later(index, timeout);
                }
                return Err(Ignored::Duplicate(Attribute::Rep));
            }
            State::MraRepSent => {
                self.send(index, tx::MRA);
                return Err(Ignored::Duplicate(Attribute::Rep));
            }
            _ => return Err(Ignored::Unexpected(Attribute::Rep)),
        }
        let known = self.find_remote_id(rep.local_comm_id, rep.local_ca_guid);
        if known.is_some_and(|index| !self.slots[index].stale) {
            return Err(Ignored::Duplicate(Attribute::Rep));
        }
        // A target's number stands elsewhere.
        let remote_qpn = match self.slots[index].transport {
            Transport::Xrc => rep.local_eecn,
            Transport::Rc | Transport::Uc => rep.local_qpn,
        };
        let known = self.find_remote_qp(remote_qpn, rep.local_ca_guid);
        if let Some(old) = known.filter(|index| !self.slots[*index].stale) {
            self.stale(old, 0, now);
            self.leave_qp(old);
            let own = rep.remote_comm_id;
            let refusal = Rej {
                reason: RejectReason::STALE_CONNECTION.0,
                ..Rej::ZERO
            };
            self.refused(index, now, &refusal, true);
            let reason = RejectReason::STALE_CONNECTION;
            return self.refuse_with(from, mad, own, rep.local_comm_id, 1, reason, &[]);
        }
        self.wheel.disarm(self.slots, index as u32);
        self.unsend(index);
        let slot = &mut self.slots[index];
        slot.state = State::RepReceived;
        slot.remote_comm_id = rep.local_comm_id;
        slot.remote_guid = rep.local_ca_guid;
        slot.remote_qpn = remote_qpn;
        slot.remote_psn = rep.starting_psn;
        slot.peer_responder_resources = rep.responder_resources;
        slot.peer_initiator_depth = rep.initiator_depth;
        slot.peer_rnr_retry_count = rep.rnr_retry_count;
        slot.peer_flow_control = rep.flow_control != 0;
        slot.peer_srq = rep.srq != 0;
        slot.peer_ece = rep.ece(mad.modifier());
        slot.ack_timeout = ack_timeout(rep.target_ack_delay, slot.packet_life_time);
        slot.store_received(ev::REPLY, rep.private_data);
        if slot.link != NIL {
            self.alternate_accepted(index, rep.failover_accepted);
        }
        self.enter(index);
        self.raise(index, ev::REPLY);
        Ok(())
    }

    fn on_rtu(&mut self, rtu: &Rtu<'_>) -> Outcome {
        let Some(index) = self.find_pair(rtu.remote_comm_id, rtu.local_comm_id) else {
            return Err(Ignored::Unexpected(Attribute::Rtu));
        };
        match self.slots[index].state {
            State::RepSent | State::MraRepReceived => {
                self.established(index, rtu.private_data);
                Ok(())
            }
            _ => Err(Ignored::Duplicate(Attribute::Rtu)),
        }
    }

    fn on_rej(&mut self, now: u64, rej: &Rej<'_>) -> Outcome {
        let unexpected = Err(Ignored::Unexpected(Attribute::Rej));
        let by_guid = if rej.reason == RejectReason::TIMEOUT.0 && rej.additional_info().len() >= 8 {
            // The sender gave up before it learnt our ID: it names itself by its GUID.
            let mut guid = [0; 8];
            guid.copy_from_slice(&rej.info[..8]);
            self.find_remote_id(rej.local_comm_id, u64::from_be_bytes(guid))
        } else {
            None
        };
        let index = by_guid.or_else(|| {
            if rej.message == 0 {
                self.find(rej.remote_comm_id)
                    .filter(|index| self.slots[*index].remote_comm_id == 0)
            } else {
                self.find_pair(rej.remote_comm_id, rej.local_comm_id)
            }
        });
        let Some(index) = index else {
            return unexpected;
        };
        match self.slots[index].state {
            State::ReqSent
            | State::MraReqReceived
            | State::ReqReceived
            | State::MraReqSent
            | State::RepSent
            | State::MraRepReceived => {
                let stale = rej.reason == RejectReason::STALE_CONNECTION.0;
                self.refused(index, now, rej, stale);
            }
            State::RepReceived | State::MraRepSent => self.refused(index, now, rej, true),
            State::Established | State::DreqSent | State::DreqReceived => {
                let dreq_received = self.slots[index].state == State::DreqReceived;
                self.slots[index].reason = rej.reason;
                self.unsend(index);
                if dreq_received {
                    self.timewait(index, now);
                } else {
                    self.disconnected(index, now, Cause::Rejected, &[]);
                }
            }
            State::Idle | State::Timewait => return unexpected,
        }
        Ok(())
    }

    fn on_dreq(&mut self, now: u64, from: &Address, mad: &Mad<'_>, dreq: &Dreq<'_>) -> Outcome {
        let Some(index) = self.find_pair(dreq.remote_comm_id, dreq.local_comm_id) else {
            // In every state the connection is over: answer, or the peer will repeat for a minute.
            let answer = Answer::Drep {
                local: dreq.remote_comm_id,
                remote: dreq.local_comm_id,
            };
            return self.reply_to(from, mad, answer);
        };
        let slot = &mut self.slots[index];
        let state = slot.state;
        match state {
            State::ReqReceived | State::MraReqSent | State::ReqSent | State::MraReqReceived => {
                return Err(Ignored::Unexpected(Attribute::Dreq));
            }
            _ if dreq.remote_qpn != slot.local_qpn => {
                return Err(Ignored::Unexpected(Attribute::Dreq));
            }
            _ => slot.transaction_id = mad.transaction_id(),
        }
        match state {
            State::Idle | State::Timewait | State::DreqReceived => {
                self.send(index, tx::DREP);
                return Err(Ignored::Duplicate(Attribute::Dreq));
            }
            State::RepReceived | State::MraRepSent => {
                // No established connection was reported yet, so that this is a late refusal.
                let refusal = Rej {
                    reason: RejectReason::CONSUMER_DEFINED.0,
                    ..Rej::ZERO
                };
                self.refused(index, now, &refusal, true);
                self.send(index, tx::DREP);
            }
            _ => {
                self.unsend(index);
                if self.config.auto_drep || self.slots[index].zombie {
                    self.send(index, tx::DREP);
                    self.disconnected(index, now, Cause::Requested, dreq.private_data);
                } else {
                    self.wheel.disarm(self.slots, index as u32);
                    let slot = &mut self.slots[index];
                    slot.state = State::DreqReceived;
                    slot.cause = Cause::Requested;
                    slot.exit_due = true;
                    slot.store_received(ev::DISCONNECTED, dreq.private_data);
                    self.raise(index, ev::DISCONNECTED);
                }
            }
        }
        Ok(())
    }

    fn on_drep(&mut self, now: u64, drep: &Drep<'_>) -> Outcome {
        let Some(index) = self.find_pair(drep.remote_comm_id, drep.local_comm_id) else {
            return Err(Ignored::Unexpected(Attribute::Drep));
        };
        if self.slots[index].state != State::DreqSent {
            return Err(Ignored::Duplicate(Attribute::Drep));
        }
        self.unsend(index);
        self.disconnected(index, now, Cause::Answered, drep.private_data);
        Ok(())
    }

    /// The connection that both ends name.
    pub(super) fn find_pair(&self, ours: u32, theirs: u32) -> Option<usize> {
        self.find(ours)
            .filter(|index| self.slots[*index].remote_comm_id == theirs)
    }
}
