//! Connects and disconnects ids.

use core::time::Duration;

use bareverbs_core::Platform;

use crate::engine::{ConnectParams, ConnectionId, State, Transport};
use crate::mad::{CmaHeader, RejectReason};
use crate::rdma::manager::RdmaCm;
use crate::rdma::resolver::Resolver;
use crate::rdma::types::error::{RdmaError, depth, fits};
use crate::rdma::types::id::service_id;
use crate::rdma::types::param::{Asked, Depths};
use crate::rdma::types::{
    ACCEPT_PRIVATE_DATA_MAX, CONNECT_PRIVATE_DATA_MAX, CmId, ConnParam, DEVICE_MAX, IdState,
    IdType, REJECT_PRIVATE_DATA_MAX,
};

impl<P: Platform, R: Resolver> RdmaCm<'_, '_, P, R> {
    /// Asks for a connection (`rdma_connect`). Without parameters: no private data, retries 7, as many READs and atomics as
    /// the device can. What follows is `Established` (`ConnectResponse` if the id has no QP), `Rejected`, `Unreachable`
    /// or `ConnectError`.
    ///
    /// On an id for datagrams it asks for the service's QP and Q_Key: sends SIDR_REQ. `Established` then says where to send
    /// ([`UdEvent`](crate::rdma::UdEvent)); `Unreachable` has the status with which the service refused, if it is not a time-out.
    pub fn connect(&mut self, id: CmId, param: Option<&ConnParam<'_>>) -> Result<(), RdmaError> {
        let index = self.ids.index(id)?;
        let slot = &self.ids[index];
        let state = slot.state;
        if state != IdState::RouteResolved {
            return Err(RdmaError::WrongState {
                call: "connect",
                state,
            });
        }
        if slot.id_type == IdType::XrcRecv {
            return Err(RdmaError::WrongType {
                call: "connect",
                id_type: slot.id_type,
            });
        }
        if slot.id_type.is_datagram() {
            return self.request_service(id, param.map_or(&[][..], |param| param.private_data));
        }
        let (Some(local), Some(peer)) = (slot.route.local, slot.route.peer) else {
            return Err(RdmaError::NotBound);
        };
        if !slot.objects.has_qp() && param.is_none() {
            // There is no QP to connect.
            return Err(RdmaError::NoQp);
        }
        let param = param.copied().unwrap_or_default();
        let mut data = [0; CmaHeader::LEN + CONNECT_PRIVATE_DATA_MAX];
        let start = self
            .router
            .begin_request(local, peer, slot.route.ip, &mut data)?;
        fits(param.private_data.len(), data.len() - start)?;
        let responder_resources = depth(
            "responder_resources",
            param.responder_resources,
            self.hca.max_responder_resources,
        )?;
        let initiator_depth = depth(
            "initiator_depth",
            param.initiator_depth,
            self.hca.max_initiator_depth,
        )?;
        let depths = Depths {
            responder_resources,
            initiator_depth,
        };
        let asked = Asked::new(&param, depths);
        let slot = &mut self.ids[index];
        // Kept for later, and for another attempt; no event carries it.
        slot.events.private[..param.private_data.len()].copy_from_slice(param.private_data);
        slot.events.private_len = param.private_data.len() as u8;
        slot.events.private_event = None;
        if !slot.objects.qp.is_making() {
            let now = self.now();
            self.send_request(now, index, asked)?;
            self.flush(now)?;
        } else {
            slot.state = IdState::Connect;
            if !slot.work.failing {
                slot.events.failure = None;
            }
            self.request_later(index, asked);
        }
        self.complete(id)
    }

    /// Sends REQ, with the private data that is kept.
    pub(crate) fn send_request(
        &mut self,
        now: Duration,
        index: usize,
        asked: Asked,
    ) -> Result<(), RdmaError> {
        let id = self.ids.id_of(index);
        let slot = &self.ids[index];
        let (Some(local), Some(peer)) = (slot.route.local, slot.route.peer) else {
            return Err(RdmaError::NotBound);
        };
        let (qp_num, srq) = match slot.objects.qp.number() {
            Some((qpn, has_srq)) => (qpn.number(), has_srq),
            None => (asked.qp_num, asked.srq),
        };
        let mut data = [0; CmaHeader::LEN + CONNECT_PRIVATE_DATA_MAX];
        let start = self
            .router
            .begin_request(local, peer, slot.route.ip, &mut data)?;
        let kept = &slot.events.private[..usize::from(slot.events.private_len)];
        let end = start + kept.len();
        data.get_mut(start..end)
            .ok_or(RdmaError::NotBound)?
            .copy_from_slice(kept);
        let Depths {
            responder_resources,
            initiator_depth,
        } = asked.depths;
        let defaults = self.engine.config().timers;
        let connection = self.engine.connect(
            now,
            &ConnectParams {
                service_id: service_id(slot.port_space, peer.port()),
                transport: match slot.id_type {
                    IdType::Uc if cfg!(feature = "uc") => Transport::Uc,
                    IdType::XrcSend if cfg!(feature = "xrc") => Transport::Xrc,
                    _ => Transport::Rc,
                },
                local_qpn: qp_num,
                path_mtu: slot.route.path_mtu,
                rate: slot.route.rate,
                packet_life_time: slot.route.packet_life_time,
                responder_resources,
                initiator_depth,
                flow_control: asked.flow_control,
                retry_count: asked.retry_count,
                rnr_retry_count: asked.rnr_retry_count,
                srq,
                timers: slot.options.timers.unwrap_or(defaults),
                #[cfg(feature = "infiniband")]
                alternate: slot.route.alternate,
                ece: slot.conn.ece,
                private_data: &data[..end],
                user: id.to_user(),
                ..ConnectParams::new(slot.route.address)
            },
        )?;
        let slot = &mut self.ids[index];
        slot.conn.id = Some(connection);
        slot.state = IdState::Connect;
        slot.conn.responder_resources = responder_resources;
        slot.conn.initiator_depth = initiator_depth;
        slot.events.failure = None;
        slot.conn.stale_retries = 0;
        self.ids[index].apply_timers(&mut self.engine);
        self.watch(now, index);
        Ok(())
    }

    /// Accepts a connection request (`rdma_accept`): brings the QP to RTS and then sends REP. Without parameters, or with
    /// [`DEVICE_MAX`], as many READs and atomics as both ends can. What follows is `Established`.
    ///
    /// It returns once the first command is begun. If the QP cannot be moved and that shows at once, the error is
    /// returned and nothing is sent: the request can still be rejected. Where the firmware refuses later, the other end gets
    /// a REJ, and the application `ConnectError`, on a synchronous id as the error of this call.
    ///
    /// On an id for datagrams it sends SIDR_REP with the QP, or that of the parameters, and its Q_Key, once the QP is
    /// there. No event follows, but `ConnectError` where that fails later.
    pub fn accept(&mut self, id: CmId, param: Option<&ConnParam<'_>>) -> Result<(), RdmaError> {
        let index = self.ids.index(id)?;
        if self.ids[index].id_type.is_datagram() {
            return self.accept_service(index, param);
        }
        let connection = self.unanswered(index, "accept")?;
        let slot = &self.ids[index];
        let has_qp = slot.objects.has_qp();
        if !has_qp && param.is_none() {
            return Err(RdmaError::NoQp);
        }
        if slot.work.is_connecting() {
            let state = slot.state;
            return Err(RdmaError::WrongState {
                call: "accept",
                state,
            });
        }
        let param = param.copied().unwrap_or_default();
        fits(param.private_data.len(), ACCEPT_PRIVATE_DATA_MAX)?;
        let asked = self.engine.qp_params(connection)?;
        // The request limits what is useful, the device what is possible.
        let shared = |name, asked: u8, peer: u8, max: u8| match asked {
            DEVICE_MAX => Ok(peer.min(max)),
            asked => depth(name, asked, max),
        };
        let depths = Depths {
            responder_resources: shared(
                "responder_resources",
                param.responder_resources,
                asked.max_dest_rd_atomic,
                self.hca.max_responder_resources,
            )?,
            initiator_depth: shared(
                "initiator_depth",
                param.initiator_depth,
                asked.max_rd_atomic,
                self.hca.max_initiator_depth,
            )?,
        };
        let now = self.now();
        let asked = Asked::new(&param, depths);
        let slot = &mut self.ids[index];
        slot.events.private[..param.private_data.len()].copy_from_slice(param.private_data);
        slot.events.private_len = param.private_data.len() as u8;
        slot.events.private_event = None;
        slot.events.failure = None;
        let begun = if has_qp {
            self.begin_accept(now, index, asked)
        } else {
            self.send_reply(now, index, asked)
        };
        self.flush(now)?;
        begun?;
        self.complete(id)
    }

    /// Refuses a connection request (`rdma_reject`): sends REJ with reason 28 and the private data. Also calls off an attempt
    /// of the id's own that is not established yet. A datagram service is refused by SIDR_REP with status 2.
    pub fn reject(&mut self, id: CmId, private_data: &[u8]) -> Result<(), RdmaError> {
        self.reject_for(id, RejectReason::CONSUMER_DEFINED, private_data)
    }

    pub(crate) fn reject_for(
        &mut self,
        id: CmId,
        reason: RejectReason,
        private_data: &[u8],
    ) -> Result<(), RdmaError> {
        let index = self.ids.index(id)?;
        if self.ids[index].id_type.is_datagram() {
            return self.refuse_service(index, private_data);
        }
        fits(private_data.len(), REJECT_PRIVATE_DATA_MAX)?;
        let connection = self.ids.connection(index, "reject")?;
        let now = self.now();
        self.engine
            .reject(now, connection, reason, &[], private_data)?;
        if cfg!(feature = "attached-qps") && self.ids[index].objects.qp.is_attached() {
            // It stays as it is, as `rdma_reject` leaves it.
            self.ids[index].work.cancel();
        } else {
            self.flush_qp(index);
        }
        self.flush(now)
    }

    /// Confirms a connection whose QP is not the id's (`rdma_establish`), after `ConnectResponse`: sends RTU.
    pub fn establish(&mut self, id: CmId) -> Result<(), RdmaError> {
        let index = self.ids.index(id)?;
        if self.ids[index].objects.has_qp() {
            return Err(RdmaError::QpExists);
        }
        let connection = self.ids.connection(index, "establish")?;
        self.engine.ready(connection, &[])?;
        self.flush(self.now())
    }

    /// The QP received something (`rdma_notify` with `IBV_EVENT_COMM_EST`): establishes a connection whose RTU was lost.
    /// EISCONN if it is established already.
    pub fn notify(&mut self, id: CmId) -> Result<(), RdmaError> {
        let index = self.ids.index(id)?;
        let connection = self.ids.connection(index, "notify")?;
        if !self.engine.notify_established(connection)? {
            return Err(RdmaError::AlreadyConnected);
        }
        self.process_events(self.now());
        Ok(())
    }

    /// Ends a connection (`rdma_disconnect`): begins to move the QP to ERR, so that everything posted is flushed, and notifies
    /// the other end, if that one did not disconnect first. What follows is `Disconnected`, and later `TimewaitExit`.
    ///
    /// The call ends an attempt whose QP is on its way to RTS, for REP or RTU: the other end gets a REJ, and `ConnectError`
    /// follows. Otherwise the other end is told nothing before a connection is established: the attempt goes on, as on Linux
    /// (`rdma_disconnect` of core/cma.c), and fails at the QP. [`reject`](Self::reject) and
    /// [`destroy_id`](Self::destroy_id) call it off.
    pub fn disconnect(&mut self, id: CmId) -> Result<(), RdmaError> {
        let index = self.ids.index(id)?;
        let connection = self.ids.connection(index, "disconnect")?;
        let connecting = self.ids[index].work.is_connecting();
        self.flush_qp(index);
        let now = self.now();
        match self.engine.state(connection)? {
            State::Established | State::DreqReceived => {
                self.engine.disconnect(now, connection, &[])?;
                self.ids[index].state = IdState::Disconnect;
            }
            // The connection is over. An attempt that rests after a refusal as stale is called off.
            State::Timewait => self.ids[index].state = IdState::Disconnect,
            // The message that was to follow the commands does not come any more.
            _ if connecting => {
                let error = RdmaError::WrongState {
                    call: "disconnect",
                    state: self.ids[index].state,
                };
                self.not_up(now, index, error);
                self.begin_work(now, index);
            }
            // Not connected yet, or not any more.
            _ => {}
        }
        self.flush(now)?;
        self.complete_disconnect(id)
    }

    /// The same, of an id that has to answer a request.
    fn unanswered(&self, index: usize, call: &'static str) -> Result<ConnectionId, RdmaError> {
        let connection = self.ids.connection(index, call)?;
        let slot = &self.ids[index];
        let waits = matches!(
            self.engine.state(connection)?,
            State::ReqReceived | State::MraReqSent
        );
        if slot.conn.passive && waits {
            Ok(connection)
        } else {
            Err(RdmaError::WrongState {
                call,
                state: slot.state,
            })
        }
    }
}
