//! Ids for datagrams: finding a service's QP, answering such requests, and the return path to the sender of a datagram.

use core::time::Duration;

use bareverbs_core::Platform;
use bareverbs_core::ah::AhAttr;
use bareverbs_core::wc::Wc;

use crate::engine::{Address, SidrEventKind, SidrId, SidrParams, SidrReply};
use crate::mad::{Ece, SidrReq, SidrStatus};
use crate::rdma::conn::events::Refusal;
use crate::rdma::id::goal::Goal;
use crate::rdma::id::table::IdTable;
use crate::rdma::manager::RdmaCm;
use crate::rdma::port::gsi::GRH;
use crate::rdma::resolver::Resolver;
use crate::rdma::types::error::{RdmaError, fits};
use crate::rdma::types::id::service_id;
use crate::rdma::types::{
    CmId, ConnParam, EventType, IdState, UD_ACCEPT_PRIVATE_DATA_MAX, UD_CONNECT_PRIVATE_DATA_MAX,
    UDP_QKEY,
};

/// An engine's event, apart from its data.
enum Outcome {
    Request { service: u64, address: Address },
    Resolved { qpn: u32, qkey: u32, ece: Ece },
    Refused(SidrStatus),
    Unreachable,
}

impl<P: Platform, R: Resolver> RdmaCm<'_, '_, P, R> {
    /// `connect` on an id for datagrams: SIDR_REQ.
    pub(crate) fn request_service(
        &mut self,
        id: CmId,
        private_data: &[u8],
    ) -> Result<(), RdmaError> {
        fits(private_data.len(), UD_CONNECT_PRIVATE_DATA_MAX)?;
        let index = self.ids.index(id)?;
        let slot = &self.ids[index];
        let (Some(local), Some(peer)) = (slot.route.local, slot.route.peer) else {
            return Err(RdmaError::NotBound);
        };
        let mut data = [0; SidrReq::PRIVATE_DATA_MAX];
        let start = self
            .router
            .begin_request(local, peer, slot.route.ip, &mut data)?;
        let end = start + private_data.len();
        data[start..end].copy_from_slice(private_data);
        let now = self.now();
        let defaults = self.engine.config().timers;
        let sidr = self.engine.sidr_request(
            now,
            &SidrParams {
                timers: slot.options.timers.unwrap_or(defaults),
                private_data: &data[..end],
                user: id.to_user(),
                ..SidrParams::new(service_id(slot.port_space, peer.port()), slot.route.address)
            },
        )?;
        let slot = &mut self.ids[index];
        slot.conn.sidr = Some(sidr);
        slot.state = IdState::Connect;
        slot.events.failure = None;
        self.watch(now, index);
        self.flush(now)?;
        self.complete(id)
    }

    /// `accept` on an id for datagrams: SIDR_REP with the QP.
    pub(crate) fn accept_service(
        &mut self,
        index: usize,
        param: Option<&ConnParam<'_>>,
    ) -> Result<(), RdmaError> {
        self.ids.asked(index, "accept")?;
        let slot = &mut self.ids[index];
        if !slot.objects.has_qp() && param.is_none() {
            return Err(RdmaError::NoQp);
        }
        if slot.work.is_connecting() {
            return Err(RdmaError::WrongState {
                call: "accept",
                state: slot.state,
            });
        }
        let private_data = param.map_or(&[][..], |param| param.private_data);
        fits(private_data.len(), UD_ACCEPT_PRIVATE_DATA_MAX)?;
        slot.events.private[..private_data.len()].copy_from_slice(private_data);
        slot.events.private_len = private_data.len() as u8;
        slot.events.private_event = None;
        slot.events.current = None;
        if slot.objects.qp.is_making() || slot.work.fresh.is_some() {
            slot.work.goal = Goal::Serve;
            return Ok(());
        }
        let now = self.now();
        self.answer_service(now, index, param.map_or(0, |param| param.qp_num))?;
        self.flush(now)
    }

    /// Sends SIDR_REP with the QP of the id, or this one if it has none, and the private data that is kept.
    pub(crate) fn answer_service(
        &mut self,
        now: Duration,
        index: usize,
        qp_num: u32,
    ) -> Result<(), RdmaError> {
        let sidr = self.ids.asked(index, "accept")?;
        let slot = &self.ids[index];
        let own = slot.objects.qp.number();
        let qpn = own.map_or(qp_num, |(qpn, _)| qpn.number());
        let private_data = &slot.events.private[..usize::from(slot.events.private_len)];
        let reply = SidrReply {
            private_data,
            ece: slot.conn.ece,
            ..SidrReply::new(qpn, UDP_QKEY)
        };
        self.engine.sidr_reply(now, sidr, &reply)?;
        let slot = &mut self.ids[index];
        slot.conn.sidr = None;
        slot.conn.accepted = true;
        Ok(())
    }

    /// `reject` on an id for datagrams: SIDR_REP without a QP.
    pub(crate) fn refuse_service(
        &mut self,
        index: usize,
        private_data: &[u8],
    ) -> Result<(), RdmaError> {
        fits(private_data.len(), UD_ACCEPT_PRIVATE_DATA_MAX)?;
        let sidr = self.ids.asked(index, "reject")?;
        let now = self.now();
        self.engine
            .sidr_reject(now, sidr, SidrStatus::REJECTED, &[], private_data)?;
        self.ids[index].conn.sidr = None;
        self.flush(now)
    }

    /// Acts on what the engine reports of datagram services.
    pub(crate) fn process_sidr_events(&mut self, now: Duration) {
        if !cfg!(feature = "datagrams") {
            return;
        }
        while let Some(event) = self.engine.poll_sidr_event() {
            let mut data = [0; SidrReq::PRIVATE_DATA_MAX];
            let mut len = 0;
            let mut keep = |bytes: &[u8]| {
                len = bytes.len().min(data.len());
                data[..len].copy_from_slice(&bytes[..len]);
            };
            let what = match event.kind {
                SidrEventKind::Request {
                    service_id,
                    address,
                    private_data,
                    ..
                } => {
                    keep(private_data);
                    Outcome::Request {
                        service: service_id,
                        address,
                    }
                }
                SidrEventKind::Resolved {
                    qpn,
                    qkey,
                    ece,
                    private_data,
                    ..
                } => {
                    keep(private_data);
                    Outcome::Resolved { qpn, qkey, ece }
                }
                SidrEventKind::Refused {
                    status,
                    private_data,
                    ..
                } => {
                    keep(private_data);
                    Outcome::Refused(status)
                }
                SidrEventKind::Unreachable => Outcome::Unreachable,
            };
            let (sidr, user) = (event.id, event.user);
            let data = &data[..len];
            if let Outcome::Request { service, address } = what {
                if let Err(status) = self.on_service_request(sidr, service, address, data) {
                    let _ = self.engine.sidr_reject(now, sidr, status, &[], &[]);
                }
                continue;
            }
            let Ok(index) = self.ids.index(CmId::from_user(user)) else {
                continue;
            };
            if self.ids[index].conn.sidr != Some(sidr) {
                continue;
            }
            self.ids[index].conn.sidr = None;
            match what {
                Outcome::Request { .. } => {}
                Outcome::Resolved { qpn, qkey, ece } => {
                    self.ids[index].conn.remote_ece = ece;
                    self.ids.on_service(index, qpn, qkey, data);
                }
                Outcome::Refused(status) => {
                    self.ids
                        .store_private_data(index, EventType::Unreachable, data);
                    self.ids[index].events.failure = Some(RdmaError::ServiceRefused(status));
                    self.ids
                        .push(index, EventType::Unreachable, i32::from(status.0));
                }
                Outcome::Unreachable => {
                    let awaited = self.router.awaited_answer(&self.ids[index]);
                    let error = RdmaError::Unanswered(awaited);
                    self.ids.push_failure(index, EventType::Unreachable, error);
                }
            }
        }
    }

    /// A SIDR_REQ: finds the listener and makes an id for the peer that asks.
    fn on_service_request(
        &mut self,
        sidr: SidrId,
        service: u64,
        address: Address,
        data: &[u8],
    ) -> Result<(), SidrStatus> {
        let opened = self
            .router
            .open_request(&address, data)
            .map_err(|_| SidrStatus::REJECTED)?;
        let index = self
            .accept_request(self.now(), service, &opened, address, None)
            .map_err(|refusal| match refusal {
                Refusal::Full | Refusal::Later if self.engine.config().reject_overflow => {
                    SidrStatus::NO_QP
                }
                _ => SidrStatus::REJECTED,
            })?;
        self.ids[index].conn.sidr = Some(sidr);
        self.ids
            .store_private_data(index, EventType::ConnectRequest, opened.data);
        self.ids.push(index, EventType::ConnectRequest, 0);
        Ok(())
    }

    /// The return path to the sender of a datagram (`ibv_init_ah_from_wc`): `wc` is its completion, `grh` the
    /// first 40 bytes of where it was received. The QP there is `wc.src_qp`.
    ///
    /// EAGAIN while the resolver is still asking; the error of `resolve_addr` if there is no route.
    pub fn ah_attr_from_wc(&mut self, wc: &Wc, grh: &[u8; GRH]) -> Result<AhAttr, RdmaError> {
        let now = self.now();
        self.router.ah_attr_from_wc(now, wc, grh)
    }
}

impl<P: Platform> IdTable<'_, '_, P> {
    /// A SIDR_REP with a QP.
    fn on_service(&mut self, index: usize, qpn: u32, qkey: u32, data: &[u8]) {
        let slot = &mut self[index];
        if slot.conn.qkey != 0 && slot.conn.qkey != qkey {
            let ours = slot.conn.qkey;
            let theirs = qkey;
            self.push_failure(
                index,
                EventType::AddrError,
                RdmaError::WrongQkey { ours, theirs },
            );
            return;
        }
        slot.conn.qkey = qkey;
        slot.conn.remote_qpn = qpn;
        slot.conn.remote_qkey = qkey;
        self.store_private_data(index, EventType::Established, data);
        self.push(index, EventType::Established, 0);
    }
}
