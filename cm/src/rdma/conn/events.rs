//! Events: what the engine reports, what the manager does about it, and passing it on to the application.

use core::net::SocketAddr;
use core::time::Duration;

use bareverbs_core::Platform;

use crate::engine::{Address, ConnectionId, DisconnectCause, EventKind, State, Transport};
#[cfg(feature = "infiniband")]
use crate::mad::AprStatus;
use crate::mad::RejectReason;
use crate::rdma::id::slot::{Pending, Target};
use crate::rdma::manager::RdmaCm;
use crate::rdma::resolver::Resolver;
use crate::rdma::route::ends::Opened;
use crate::rdma::types::error::{RdmaError, errno};
use crate::rdma::types::id::NIL;
use crate::rdma::types::{
    ACCEPT_PRIVATE_DATA_MAX, ChannelId, CmEvent, CmId, ConnEvent, EventType, IdState, IdType,
    PortSpace, UdEvent,
};

/// Why a request does not reach an application.
pub(crate) enum Refusal {
    NoListener,
    /// The listener is there for QPs of another type.
    WrongType,
    Full,
    /// No free slot yet: the request is dropped as if it had been lost, and the peer repeats it.
    Later,
}

/// An engine's event, apart from its data.
enum Outcome {
    Request,
    Reply,
    Established,
    Rejected(RejectReason),
    Unreachable,
    Disconnected(DisconnectCause),
    TimewaitExit,
    #[cfg(feature = "infiniband")]
    AlternateAsked,
    #[cfg(feature = "infiniband")]
    AlternateAnswered(Option<AprStatus>),
}

impl<P: Platform, R: Resolver> RdmaCm<'_, '_, P, R> {
    /// Acts on what the engine reports.
    pub(crate) fn process_events(&mut self, now: Duration) {
        let mut data = [0; ACCEPT_PRIVATE_DATA_MAX];
        while let Some(event) = self.engine.poll_event() {
            let mut len = 0;
            let mut keep = |bytes: &[u8]| {
                len = bytes.len().min(data.len());
                data[..len].copy_from_slice(&bytes[..len]);
            };
            let what = match event.kind {
                EventKind::ConnectRequest { private_data, .. } => {
                    keep(private_data);
                    Outcome::Request
                }
                EventKind::Reply { private_data } => {
                    keep(private_data);
                    Outcome::Reply
                }
                EventKind::Established { .. } => Outcome::Established,
                EventKind::Rejected {
                    reason,
                    private_data,
                    ..
                } => {
                    keep(private_data);
                    Outcome::Rejected(reason)
                }
                EventKind::Unreachable { .. } => Outcome::Unreachable,
                EventKind::Disconnected { cause, .. } => Outcome::Disconnected(cause),
                EventKind::TimewaitExit => Outcome::TimewaitExit,
                #[cfg(feature = "infiniband")]
                EventKind::AlternatePath { .. } => Outcome::AlternateAsked,
                #[cfg(feature = "infiniband")]
                EventKind::AlternateResponse { status, .. } => Outcome::AlternateAnswered(status),
                // RoCE has no alternate paths: the engine has no slots for them and refuses by itself.
                #[cfg(not(feature = "infiniband"))]
                EventKind::AlternatePath { .. } | EventKind::AlternateResponse { .. } => continue,
            };
            let (connection, user) = (event.connection, event.user);
            let data = &data[..len];
            if let Outcome::Request = what {
                match self.on_request(now, connection, data) {
                    Ok(()) => {}
                    Err(Some(reason)) => {
                        let _ = self.engine.reject(now, connection, reason, &[], &[]);
                        let _ = self.engine.release(now, connection);
                    }
                    Err(None) => self.engine.ignore(connection),
                }
                continue;
            }
            let Ok(index) = self.ids.index(CmId::from_user(user)) else {
                let _ = self.engine.release(now, connection);
                continue;
            };
            if self.ids[index].conn.id != Some(connection) {
                continue;
            }
            match what {
                Outcome::Request => {}
                Outcome::Reply => self.on_reply(now, index, data),
                Outcome::Established => self.ids.push(index, EventType::Established, 0),
                Outcome::Rejected(RejectReason::STALE_CONNECTION)
                    if self.rest_if_stale(now, index, data.is_empty()) => {}
                #[cfg(feature = "attached-qps")]
                Outcome::Rejected(_) | Outcome::Unreachable
                    if self.ids[index].conn.is_quiet && !self.ids[index].conn.accepted => {}
                Outcome::Rejected(reason) => {
                    self.flush_qp(index);
                    let events = &mut self.ids[index].events;
                    events.failure = Some(RdmaError::Rejected(reason));
                    // An event that waits keeps its own data.
                    if !events.private_event.is_some_and(|it| events.has(it)) {
                        self.ids
                            .store_private_data(index, EventType::Rejected, data);
                    }
                    self.ids
                        .push(index, EventType::Rejected, i32::from(reason.0));
                }
                Outcome::Unreachable if self.discard_unfetched(index) => {}
                Outcome::Unreachable => {
                    self.ids[index].work.cancel();
                    let awaited = self.router.awaited_answer(&self.ids[index]);
                    let error = RdmaError::Unanswered(awaited);
                    self.ids.push_failure(index, EventType::Unreachable, error)
                }
                // The application was told when a keep-alive failed.
                #[cfg(feature = "keep-alive")]
                Outcome::Disconnected(_) if self.ids[index].conn.probe.failed => {}
                Outcome::Disconnected(cause) => {
                    let status = if cause == DisconnectCause::TimedOut {
                        -errno::ETIMEDOUT
                    } else {
                        0
                    };
                    self.ids[index].work.cancel();
                    let asked_for = self.ids[index].state == IdState::Disconnect;
                    if cause == DisconnectCause::Answered && !asked_for {
                        // The manager asked, since the peer turned out to have lost the connection: the peer's QP of that
                        // number is a new one, which must not get anything of this.
                        self.flush_qp(index);
                    }
                    self.ids[index].state = IdState::Disconnect;
                    self.ids.push(index, EventType::Disconnected, status);
                }
                #[cfg(feature = "infiniband")]
                Outcome::AlternateAsked => self.on_alternate_asked(now, index, connection),
                #[cfg(feature = "infiniband")]
                Outcome::AlternateAnswered(status) => {
                    self.on_alternate_answered(now, index, status)
                }
                // It is that of an attempt that was refused as stale and has not been called off.
                Outcome::TimewaitExit if self.ids[index].state == IdState::Connect => {
                    if let Err(error) = self.repeat_request(now, index) {
                        self.flush_qp(index);
                        self.ids.push_failure(index, EventType::ConnectError, error);
                    }
                }
                Outcome::TimewaitExit => self.ids.push(index, EventType::TimewaitExit, 0),
            }
        }
        self.process_sidr_events(now);
    }

    /// A REQ: finds the listener and makes an id for the new connection. Otherwise returns the reason, if the peer is
    /// to get one.
    fn on_request(
        &mut self,
        now: Duration,
        connection: ConnectionId,
        data: &[u8],
    ) -> Result<(), Option<RejectReason>> {
        // Linux answers a bad header with the same reason.
        let bad = Some(RejectReason::CONSUMER_DEFINED);
        let service = self.engine.service_id(connection).map_err(|_| bad)?;
        let address = match self.engine.qp_params(connection) {
            Ok(params) => params.address,
            Err(_) => return Err(bad),
        };
        let opened = self.router.open_request(&address, data).map_err(|_| bad)?;
        let index = self
            .accept_request(now, service, &opened, address, Some(connection))
            .map_err(|refusal| match refusal {
                Refusal::NoListener => bad,
                Refusal::WrongType => Some(RejectReason::INVALID_TRANSPORT_TYPE),
                Refusal::Full if self.engine.config().reject_overflow => {
                    Some(RejectReason::NO_RESOURCES)
                }
                Refusal::Full | Refusal::Later => None,
            })?;
        self.ids[index].conn.id = Some(connection);
        self.ids[index].apply_timers(&mut self.engine);
        let id = self.ids.id_of(index);
        let _ = self.engine.set_user(connection, id.to_user());
        self.ids
            .store_private_data(index, EventType::ConnectRequest, opened.data);
        self.ids.push(index, EventType::ConnectRequest, 0);
        Ok(())
    }

    /// Makes an id for a request to one of the listeners.
    pub(crate) fn accept_request(
        &mut self,
        now: Duration,
        service: u64,
        opened: &Opened<'_>,
        address: Address,
        newcomer: Option<ConnectionId>,
    ) -> Result<usize, Refusal> {
        let port = service as u16;
        let Opened {
            header, over_ip, ..
        } = opened;
        let ours = self.router.check_ends(header, *over_ip);
        let port_space = PortSpace::of_service(service).ok_or(Refusal::NoListener)?;
        let listener = self
            .ids
            .find_listener(port_space, port, header.destination, *over_ip)
            .filter(|_| ours);
        let listener = listener.ok_or(Refusal::NoListener)?;
        let id_type = self.ids[listener].id_type;
        if (cfg!(feature = "uc") || cfg!(feature = "datagrams"))
            && port_space == PortSpace::Ib
            && !self.is_for(id_type, newcomer)
        {
            return Err(Refusal::WrongType);
        }
        let pkey_index = self
            .router
            .pkey_index(address.pkey)
            .map_err(|_| Refusal::NoListener)?;
        self.free_slot_for_request(now, listener, newcomer)?;
        let index = self.alloc_id().map_err(|_| Refusal::Full)? as usize;
        let listen_id = self.ids.id_of(listener);
        let parent = &mut self.ids[listener];
        parent.conn.unread += 1;
        let (target, context) = (parent.events.target, parent.context);
        let options = parent.options;
        let slot = &mut self.ids[index];
        slot.start(target, context, port_space);
        slot.id_type = id_type;
        slot.conn.passive = true;
        slot.route.bound = true;
        slot.route.ip = *over_ip;
        slot.state = IdState::Connect;
        slot.conn.listen_id = Some(listen_id);
        slot.route.local = Some(SocketAddr::new(header.destination, port));
        slot.route.peer = Some(SocketAddr::new(header.source, header.source_port));
        slot.options = options;
        slot.route.address = address;
        slot.route.pkey_index = pkey_index;
        if matches!(target, Target::Channel(_)) {
            self.ids.count_user(target, true);
        }
        Ok(index)
    }

    /// Returns `true` if a request is for ids of this type: one for a connection, or for a datagram service if there is none.
    fn is_for(&self, id_type: IdType, newcomer: Option<ConnectionId>) -> bool {
        let Some(newcomer) = newcomer else {
            return id_type.is_datagram();
        };
        let transport = match id_type {
            IdType::Rc => Transport::Rc,
            IdType::Uc => Transport::Uc,
            IdType::XrcSend | IdType::XrcRecv => Transport::Xrc,
            IdType::Ud => return false,
        };
        let asked = self.engine.qp_params(newcomer);
        asked.is_ok_and(|asked| asked.transport == transport)
    }

    /// Frees a slot for one more request to a listener, if necessary by evicting half-open connections, see
    /// [`engine::Config::half_open_age`](crate::engine::Config::half_open_age).
    /// [`Storage::ids`](crate::rdma::Storage::ids) says which sources may use the last eighth of the ids.
    fn free_slot_for_request(
        &mut self,
        now: Duration,
        listener: usize,
        newcomer: Option<ConnectionId>,
    ) -> Result<(), Refusal> {
        let capacity = self.ids.len();
        let full = |cm: &Self| {
            cm.ids.in_use() >= capacity
                || cm.ids[listener].conn.unread >= cm.ids[listener].conn.backlog
        };
        let share = capacity / 8;
        let many = newcomer.is_some_and(|newcomer| self.engine.half_open_beside(newcomer) > share);
        if many && self.ids.in_use() < capacity && capacity - self.ids.in_use() <= share {
            if let Some(user) = self.engine.evict(now, newcomer, true) {
                self.discard_evicted(user);
                return Err(Refusal::Later);
            }
            return if full(self) {
                Err(Refusal::Full)
            } else {
                Ok(())
            };
        }
        if !full(self) {
            return Ok(());
        }
        if cfg!(feature = "attached-qps") && self.ids.in_use() < capacity {
            // The backlog is full, and C's programs find in it what has come first, as on Linux (`ucma_event_handler` of
            // core/ucma.c).
            return Err(Refusal::Full);
        }
        // Several at once: some of the slots have to be free still when this request is repeated.
        let mut evicted = false;
        for _ in 0..(capacity / 16).max(1) {
            let Some(user) = self.engine.evict(now, newcomer, false) else {
                break;
            };
            self.discard_evicted(user);
            evicted = true;
        }
        match (full(self), evicted) {
            (false, _) => Ok(()),
            (true, true) => Err(Refusal::Later),
            (true, false) => Err(Refusal::Full),
        }
    }

    fn discard_evicted(&mut self, user: u64) {
        if let Ok(index) = self.ids.index(CmId::from_user(user)) {
            self.discard_unfetched(index);
        }
    }

    /// Discards the id of a request that the application has not fetched, so that the application gets no event about
    /// its end either.
    fn discard_unfetched(&mut self, index: usize) -> bool {
        let slot = &self.ids[index];
        if !slot.events.has(EventType::ConnectRequest) {
            return false;
        }
        if let Some(listener) = slot.conn.listen_id.and_then(|id| self.ids.index(id).ok()) {
            self.ids[listener].conn.unread = self.ids[listener].conn.unread.saturating_sub(1);
        }
        self.discard(index);
        true
    }

    /// A REP: brings the QP up and confirms.
    fn on_reply(&mut self, now: Duration, index: usize, data: &[u8]) {
        if !self.ids[index].objects.has_qp() {
            self.ids
                .store_private_data(index, EventType::ConnectResponse, data);
            self.ids.push(index, EventType::ConnectResponse, 0);
            return;
        }
        self.ids
            .store_private_data(index, EventType::Established, data);
        self.begin_confirm(now, index);
    }

    /// Takes an event that waits, without blocking: `None` is EAGAIN.
    pub fn try_get_cm_event(&mut self, channel: ChannelId) -> Result<Option<CmEvent>, RdmaError> {
        self.ids.channel(channel)?;
        Ok(self
            .ids
            .pop(Target::Channel(channel))
            .map(|(index, pending)| self.fetch(index, pending)))
    }

    /// Takes an event that waits on an id without a channel. `None`: there is none.
    pub fn try_get_id_event(&mut self, id: CmId) -> Result<Option<CmEvent>, RdmaError> {
        let index = self.ids.index(id)?;
        if !self.ids.is_sync(index) {
            return Err(RdmaError::WrongMode {
                call: "try_get_id_event",
            });
        }
        Ok(self
            .ids
            .pop(Target::Id(index as u32))
            .map(|(index, pending)| self.fetch(index, pending)))
    }

    /// Returns `true` if an event waits in a channel: what makes a descriptor of the caller's readable.
    pub fn has_cm_event(&self, channel: ChannelId) -> Result<bool, RdmaError> {
        self.ids.channel(channel)?;
        Ok(self.ids.queue(Target::Channel(channel)).head != NIL)
    }

    /// Waits for an event (`rdma_get_cm_event`), driving the manager.
    pub fn get_cm_event(&mut self, channel: ChannelId) -> Result<CmEvent, RdmaError> {
        self.ids.channel(channel)?;
        self.block(None, |cm| cm.try_get_cm_event(channel))
    }

    /// Waits for an event until `deadline` on the platform's clock ([`now`](Self::now)).
    pub fn get_cm_event_until(
        &mut self,
        channel: ChannelId,
        deadline: Duration,
    ) -> Result<CmEvent, RdmaError> {
        self.ids.channel(channel)?;
        self.block(Some(deadline), |cm| cm.try_get_cm_event(channel))
    }

    /// Done with an event (`rdma_ack_cm_event`). Dropping it is the same.
    pub fn ack_cm_event(&mut self, event: CmEvent) {
        let _ = event;
    }

    /// Puts an event of the application's own into the id's queue (`rdma_write_cm_event`), for instance to wake up the thread that
    /// waits there.
    pub fn write_cm_event(&mut self, id: CmId, status: i32, arg: u64) -> Result<(), RdmaError> {
        let index = self.ids.index(id)?;
        if self.ids.push_with(index, EventType::User, status, arg) {
            Ok(())
        } else {
            Err(RdmaError::Full {
                what: "events of an id",
                capacity: crate::rdma::id::slot::PENDING,
            })
        }
    }

    /// The event of the last blocking call on a synchronous id (`id->event`).
    pub fn event(&self, id: CmId) -> Result<Option<CmEvent>, RdmaError> {
        let index = self.ids.index(id)?;
        Ok(self.ids[index]
            .events
            .current
            .map(|pending| self.describe(index, pending)))
    }

    /// The error behind the last event of a failure: the event has only an errno, which many errors share. Kept until
    /// the next attempt; on a synchronous id it was the call's result.
    pub fn last_error(&self, id: CmId) -> Result<Option<RdmaError>, RdmaError> {
        Ok(self.ids.slot(id)?.events.failure)
    }

    /// An event leaves its queue.
    pub(crate) fn fetch(&mut self, index: usize, pending: Pending) -> CmEvent {
        let event = self.describe(index, pending);
        if pending.event == EventType::ConnectRequest
            && let Some(listener) = event.listen_id.and_then(|id| self.ids.index(id).ok())
        {
            self.ids[listener].conn.unread = self.ids[listener].conn.unread.saturating_sub(1);
        }
        #[cfg(feature = "attached-qps")]
        self.groups.tell_others(&mut self.ids, index);
        event
    }

    fn describe(&self, index: usize, pending: Pending) -> CmEvent {
        let slot = &self.ids[index];
        let conn = match pending.event {
            EventType::ConnectRequest | EventType::ConnectResponse | EventType::Established => {
                let params = slot
                    .conn
                    .id
                    .and_then(|connection| self.engine.qp_params(connection).ok());
                params.map_or(ConnEvent::default(), |params| ConnEvent {
                    responder_resources: params.max_dest_rd_atomic,
                    initiator_depth: params.max_rd_atomic,
                    flow_control: params.flow_control,
                    retry_count: params.retry_count,
                    rnr_retry_count: params.rnr_retry_count,
                    srq: params.peer_srq,
                    qp_num: params.dest_qpn,
                })
            }
            _ => ConnEvent::default(),
        };
        let mut arg = pending.arg;
        let ud = match pending.event {
            EventType::MulticastJoin => {
                let (ud, context) = self.groups.describe(self.ids.id_of(index), pending.arg);
                arg = context;
                ud
            }
            EventType::ConnectRequest | EventType::Established if slot.id_type.is_datagram() => {
                UdEvent {
                    ah_attr: self.router.ah_attr_at(&slot.route.address, slot.route.rate),
                    qp_num: slot.conn.remote_qpn,
                    qkey: slot.conn.remote_qkey,
                }
            }
            _ => UdEvent::default(),
        };
        let has_data = slot.events.private_event == Some(pending.event);
        CmEvent {
            id: self.ids.id_of(index),
            listen_id: if pending.event == EventType::ConnectRequest {
                slot.conn.listen_id
            } else {
                None
            },
            context: slot.context,
            event: pending.event,
            status: pending.status,
            conn,
            ud,
            arg,
            private_len: if has_data { slot.events.private_len } else { 0 },
            private: if has_data {
                slot.events.private
            } else {
                [0; ACCEPT_PRIVATE_DATA_MAX]
            },
        }
    }

    /// On a synchronous id: waits for the outcome of a call and makes it the call's result.
    pub(crate) fn complete(&mut self, id: CmId) -> Result<(), RdmaError> {
        let index = self.ids.index(id)?;
        if !self.ids.is_sync(index) {
            return Ok(());
        }
        self.ids[index].events.current = None;
        if self.waits_elsewhere {
            return Ok(());
        }
        self.block(None, |cm| cm.try_complete(id))
    }

    /// Makes a call whose outcome is waited for elsewhere, also on a synchronous id.
    pub(crate) fn without_waiting<T>(&mut self, call: impl FnOnce(&mut Self) -> T) -> T {
        self.waits_elsewhere = true;
        let result = call(self);
        self.waits_elsewhere = false;
        result
    }

    /// The outcome of a call on a synchronous id, if it is there.
    #[inline(never)]
    pub(crate) fn try_complete(&mut self, id: CmId) -> Result<Option<()>, RdmaError> {
        let index = self.ids.index(id)?;
        if !self.ids.is_sync(index) {
            return Ok(Some(()));
        }
        let pending = loop {
            match self.ids.pop(Target::Id(index as u32)) {
                // The end of an earlier connection is not the outcome of this call.
                Some((_, pending)) if pending.event == EventType::TimewaitExit => {}
                #[cfg(feature = "infiniband")]
                Some((_, pending)) if pending.event.is_of_paths() => {}
                Some((_, pending)) => break pending,
                None => return Ok(None),
            }
        };
        let slot = &mut self.ids[index];
        slot.events.current = Some(pending);
        let failure = slot.events.failure.take();
        let (event, status) = (pending.event, pending.status);
        match event {
            EventType::AddrError
            | EventType::RouteError
            | EventType::ConnectError
            | EventType::Unreachable
            | EventType::MulticastError
            | EventType::Rejected
            | EventType::DeviceRemoval => {
                Err(failure.unwrap_or(RdmaError::Event { event, status }))
            }
            _ if status != 0 => Err(RdmaError::Event { event, status }),
            _ => Ok(Some(())),
        }
    }

    /// On a synchronous id: waits until a connection is over, unless it is over and the application has fetched that
    /// event.
    pub(crate) fn complete_disconnect(&mut self, id: CmId) -> Result<(), RdmaError> {
        if self.waits_elsewhere || self.try_complete_disconnect(id)?.is_some() {
            return Ok(());
        }
        self.block(None, |cm| cm.try_complete_disconnect(id))
    }

    /// Checks whether the connection of a synchronous id is over. An event of a failure that was in the queue is the call's outcome,
    /// although the disconnection goes on: `rdma_disconnect` of librdmacm takes the next event of the id (`ucma_complete`).
    #[inline(never)]
    pub(crate) fn try_complete_disconnect(&mut self, id: CmId) -> Result<Option<()>, RdmaError> {
        let index = self.ids.index(id)?;
        if !self.ids.is_sync(index) {
            return Ok(Some(()));
        }
        loop {
            let slot = &self.ids[index];
            let fetched = !slot.events.has(EventType::Disconnected);
            let state = slot
                .conn
                .id
                .and_then(|connection| self.engine.state(connection).ok());
            let over = !matches!(
                state,
                Some(State::DreqSent | State::DreqReceived | State::Established)
            );
            if fetched && over {
                // Not before the QP is in ERR.
                return Ok((!slot.work.is_busy()).then_some(()));
            }
            if self.try_complete(id)?.is_none() {
                return Ok(None);
            }
            if self.ids[index]
                .events
                .current
                .is_some_and(|current| current.event == EventType::Disconnected)
                && !self.ids[index].work.is_busy()
            {
                return Ok(Some(()));
            }
        }
    }
}
