//! The QPs of ids: creating them, and moving them through their states.

use bareverbs_core::cq::{CqHandle, CqInit};
use bareverbs_core::mr::Access;
use bareverbs_core::pd::Pd;
use bareverbs_core::qp::{CreateQpError, QpAttr, QpAttrMask, QpInitHandles, QpState, Ud};
use bareverbs_core::srq::SrqHandle;
use bareverbs_core::xrc::Xrcd;
use bareverbs_core::{Device, Mtu, Platform, Qpn};

use crate::engine::{ConnectionId, QpParams};
use crate::rdma::manager::RdmaCm;
use crate::rdma::route::resolver::Resolver;
use crate::rdma::types::error::RdmaError;
use crate::rdma::types::param::Depths;
use crate::rdma::types::{CmId, IdState, IdType, UDP_QKEY};
use crate::rdma::verbs::objects::{Endpoint, IdQp, KeptInit, OwnCq, PdOf, QpInit};

impl<'d, P: Platform, R: Resolver> RdmaCm<'_, 'd, P, R> {
    /// Creates the QP of an id (`rdma_create_qp`) and moves it to INIT, so that receives can be posted; a UD QP to RTS, with
    /// the port space's Q_Key ([`UDP_QKEY`]). The id has to be bound to an address of the device. `init.cap` says afterwards
    /// what the hardware gives.
    ///
    /// The PD is the device's default one if none is given. PD, CQs and SRQ have to be of the id's device
    /// ([`RdmaError::OtherDevice`], EINVAL). Where no CQ is given one is made, with events on; it is to be
    /// had by [`endpoint`](Self::endpoint).
    pub fn create_qp(
        &mut self,
        id: CmId,
        pd: Option<&'d Pd<'d, P>>,
        init: &mut QpInit<'_, 'd, P>,
    ) -> Result<(), RdmaError> {
        self.create_qp_in(id, pd, None, init)
    }

    pub(crate) fn create_qp_in(
        &mut self,
        id: CmId,
        pd: Option<&'d Pd<'d, P>>,
        xrcd: Option<&'d Xrcd<'d, P>>,
        init: &mut QpInit<'_, 'd, P>,
    ) -> Result<(), RdmaError> {
        let index = self.ids.index(id)?;
        let mut kept = init.keep();
        kept.xrcd = xrcd;
        let mut created = self.create_kept_qp(index, pd, &mut kept);
        if let Err(RdmaError::CreateQp(CreateQpError::NoSlot { .. })) = created {
            // QPs that were destroyed wait until their CQs are looked at.
            for cq in [init.send_cq, init.recv_cq].into_iter().flatten() {
                cq.reap();
            }
            created = self.create_kept_qp(index, pd, &mut kept);
        }
        init.cap = kept.cap;
        created
    }

    pub(crate) fn create_kept_qp(
        &mut self,
        index: usize,
        pd: Option<&'d Pd<'d, P>>,
        init: &mut KeptInit<'d, P>,
    ) -> Result<(), RdmaError> {
        if self.ids[index].objects.qp.is_some() {
            return Err(RdmaError::QpExists);
        }
        if !self.ids[index].route.bound {
            return Err(RdmaError::NotBound);
        }
        self.check_device(pd, init)?;
        // Everything is kept aside until all of it is there, so that a failure leaves nothing behind.
        match self.ids[index].id_type {
            IdType::XrcSend if cfg!(feature = "xrc") => {
                return self.create_initiator(index, pd, init);
            }
            IdType::XrcRecv if cfg!(feature = "xrc") => return self.create_target(index, init),
            _ => {}
        }
        let pd = self.pd_for(index, pd)?;
        let own_srq = self.ids[index]
            .objects
            .srq
            .as_ref()
            .map(|srq| srq.srq.handle());
        let takes_own = init.srq.is_none() && own_srq.is_some();
        let srq = init.srq.clone().or(own_srq);
        let shared = srq.as_ref().map_or(0, SrqHandle::max_wr);
        let (own_send, send_cq) = self.cq_for(&init.send_cq, init.cap.max_send_wr)?;
        let (own_recv, recv_cq) = self.cq_for(&init.recv_cq, init.cap.max_recv_wr.max(shared))?;
        let mut attr = QpInitHandles {
            send_cq,
            recv_cq,
            srq,
            cap: init.cap,
            sq_sig_all: init.sq_sig_all,
        };
        let datagrams = self.ids[index].port_space.is_datagram();
        let mut qp = if datagrams {
            IdQp::Ud(pd.get().create_qp_by_handles(&mut attr)?)
        } else {
            IdQp::Rc(pd.get().create_qp_by_handles(&mut attr)?)
        };
        let cap = attr.cap;
        let (attr, mask) = self.init_attr(index);
        qp.modify(&attr, mask)?;
        if datagrams {
            // There is no connection to wait for.
            for state in [QpState::Rtr, QpState::Rts] {
                let (attr, mask) = datagram_attr(state);
                qp.modify(&attr, mask)?;
            }
        }
        init.cap = cap;
        let slot = &mut self.ids[index];
        if datagrams {
            slot.conn.qkey = UDP_QKEY;
        }
        if let Some(srq) = &mut slot.objects.srq {
            srq.own_qp = takes_own;
        }
        slot.objects.qp = Some(qp);
        slot.objects.send_cq = own_send;
        slot.objects.recv_cq = own_recv;
        slot.objects.pd = Some(pd);
        Ok(())
    }

    /// What a QP is made from has to be of the id's device (rdma_create_qp(3)).
    pub(crate) fn check_device(
        &self,
        pd: Option<&'d Pd<'d, P>>,
        init: &KeptInit<'d, P>,
    ) -> Result<(), RdmaError> {
        self.is_ours("PD", pd.map(Pd::device))?;
        self.is_ours("CQ", init.send_cq.as_ref().map(CqHandle::device))?;
        self.is_ours("CQ", init.recv_cq.as_ref().map(CqHandle::device))?;
        self.is_ours("SRQ", init.srq.as_ref().map(SrqHandle::device))?;
        self.is_ours("XRC domain", init.xrcd.map(Xrcd::device))
    }

    pub(crate) fn is_ours(
        &self,
        what: &'static str,
        device: Option<&Device<'d, P>>,
    ) -> Result<(), RdmaError> {
        match device {
            Some(device) if !core::ptr::addr_eq(device, self.device) => {
                Err(RdmaError::OtherDevice(what))
            }
            _ => Ok(()),
        }
    }

    /// The CQ given, or one of the manager's, which goes after its handle: that counts as a user of it.
    pub(crate) fn cq_for(
        &self,
        given: &Option<CqHandle<'d, P>>,
        cqe: u32,
    ) -> Result<OwnCq<'d, P>, RdmaError> {
        if let Some(given) = given {
            return Ok((None, given.clone()));
        }
        let cq = self.device.create_cq(CqInit::new(cqe.max(1)))?;
        let handle = cq.handle();
        Ok((Some(cq), handle))
    }

    /// Destroys the QP of an id, its automatic CQs, and its share of the default PD (`rdma_destroy_qp`).
    pub fn destroy_qp(&mut self, id: CmId) -> Result<(), RdmaError> {
        let index = self.ids.index(id)?;
        self.detach_groups(index);
        let slot = &mut self.ids[index];
        slot.objects.qp = None;
        slot.objects.send_cq = None;
        // That of an XRC SRQ is the SRQ's.
        if slot
            .objects
            .srq
            .as_ref()
            .is_none_or(|srq| !srq.srq.is_xrc())
        {
            slot.objects.recv_cq = None;
        }
        slot.objects.pd = None;
        slot.objects.xrcd = None;
        if let Some(srq) = &mut slot.objects.srq {
            srq.own_qp = false;
        }
        Ok(())
    }

    /// The verbs objects of an id for connections (`id->qp`, `id->send_cq`, `id->recv_cq`).
    pub fn endpoint(&mut self, id: CmId) -> Result<Endpoint<'_, 'd, P>, RdmaError> {
        let slot = self.ids.slot_mut(id)?;
        match &mut slot.objects.qp {
            Some(IdQp::Ud(_)) => Err(RdmaError::WrongPortSpace {
                call: "endpoint",
                port_space: slot.port_space,
            }),
            Some(IdQp::XrcSend(_) | IdQp::XrcRecv(_)) => Err(RdmaError::WrongType {
                call: "endpoint",
                id_type: slot.id_type,
            }),
            Some(IdQp::Rc(qp)) => Ok(Endpoint {
                qp,
                send_cq: slot.objects.send_cq.as_mut(),
                recv_cq: slot.objects.recv_cq.as_mut(),
            }),
            None => Err(RdmaError::NoQp),
        }
    }

    /// The verbs objects of an id for datagrams.
    pub fn ud_endpoint(&mut self, id: CmId) -> Result<Endpoint<'_, 'd, P, Ud>, RdmaError> {
        let slot = self.ids.slot_mut(id)?;
        match &mut slot.objects.qp {
            Some(IdQp::Rc(_) | IdQp::XrcSend(_) | IdQp::XrcRecv(_)) => {
                Err(RdmaError::WrongPortSpace {
                    call: "ud_endpoint",
                    port_space: slot.port_space,
                })
            }
            Some(IdQp::Ud(qp)) => Ok(Endpoint {
                qp,
                send_cq: slot.objects.send_cq.as_mut(),
                recv_cq: slot.objects.recv_cq.as_mut(),
            }),
            None => Err(RdmaError::NoQp),
        }
    }

    /// The PD of an id's QP (`id->pd`), or of its SRQ.
    pub fn pd(&self, id: CmId) -> Result<&Pd<'d, P>, RdmaError> {
        let slot = self.ids.slot(id)?;
        slot.objects
            .pd
            .as_ref()
            .or(slot.objects.srq.as_ref().map(|srq| &srq.pd))
            .map(PdOf::get)
            .ok_or(RdmaError::NoQp)
    }

    /// The attributes with which a QP that is not the id's is to be moved to INIT, RTR or RTS (`rdma_init_qp_attr`).
    pub fn init_qp_attr(
        &self,
        id: CmId,
        state: QpState,
    ) -> Result<(QpAttr, QpAttrMask), RdmaError> {
        let index = self.ids.index(id)?;
        let wrong = RdmaError::WrongState {
            call: "init_qp_attr",
            state: self.ids[index].state,
        };
        match state {
            QpState::Init if self.ids[index].route.bound => Ok(self.init_attr(index)),
            QpState::Init => Err(RdmaError::NotBound),
            QpState::Rtr | QpState::Rts if self.ids[index].port_space.is_datagram() => {
                Ok(datagram_attr(state))
            }
            QpState::Rtr | QpState::Rts => {
                let params = self
                    .engine
                    .qp_params(self.ids.connection(index, "init_qp_attr")?)?;
                // The other end's QP is only known once its REQ or REP is here.
                if params.dest_qpn == 0 {
                    return Err(wrong);
                }
                Ok(if state == QpState::Rtr {
                    self.rtr_attr(index, &params, None)
                } else {
                    self.rts_attr(index, &params, None)
                })
            }
            _ => Err(wrong),
        }
    }

    fn access(&self, responder_resources: u8) -> Access {
        let mut access = Access::REMOTE_WRITE;
        access.set(Access::REMOTE_READ, responder_resources > 0);
        let atomics = responder_resources > 0 && self.device.capabilities().has_atomics();
        access.set(Access::REMOTE_ATOMIC, atomics);
        access
    }

    pub(crate) fn init_attr(&self, index: usize) -> (QpAttr, QpAttrMask) {
        if self.ids[index].port_space.is_datagram() {
            let attr = QpAttr {
                qp_state: QpState::Init,
                qkey: UDP_QKEY,
                pkey_index: self.ids[index].route.pkey_index,
                port_num: 1,
                ..QpAttr::DEFAULT
            };
            let mask =
                QpAttrMask::STATE | QpAttrMask::PKEY_INDEX | QpAttrMask::PORT | QpAttrMask::QKEY;
            return (attr, mask);
        }
        // Before there is a connection no remote access is granted; RTR grants it.
        let access = match self.ids[index].conn.id {
            Some(_) => self.access(self.ids[index].conn.responder_resources),
            None => Access::empty(),
        };
        let attr = QpAttr {
            qp_state: QpState::Init,
            qp_access_flags: access,
            pkey_index: self.ids[index].route.pkey_index,
            port_num: 1,
            ..QpAttr::DEFAULT
        };
        let mask = QpAttrMask::STATE
            | QpAttrMask::PKEY_INDEX
            | QpAttrMask::PORT
            | QpAttrMask::ACCESS_FLAGS;
        (attr, mask)
    }

    fn rtr_attr(
        &self,
        index: usize,
        params: &QpParams,
        depths: Option<Depths>,
    ) -> (QpAttr, QpAttrMask) {
        let slot = &self.ids[index];
        let resources = depths.map_or(params.max_dest_rd_atomic, |depths| {
            depths.responder_resources
        });
        let attr = QpAttr {
            qp_state: QpState::Rtr,
            qp_access_flags: self.access(resources),
            ah_attr: self.router.ah_attr_at(&params.address, params.rate),
            path_mtu: Mtu::from_number(params.path_mtu).unwrap_or(Mtu::B256),
            dest_qp_num: Qpn::from_low_bits(params.dest_qpn),
            rq_psn: params.rq_psn,
            max_dest_rd_atomic: resources.min(self.max_responder_resources),
            min_rnr_timer: slot.options.min_rnr_timer,
            ..QpAttr::DEFAULT
        };
        let mask = QpAttrMask::STATE
            | QpAttrMask::ACCESS_FLAGS
            | QpAttrMask::AV
            | QpAttrMask::PATH_MTU
            | QpAttrMask::DEST_QPN
            | QpAttrMask::RQ_PSN;
        // An initiator has no requests to answer.
        let mask = match slot.id_type {
            IdType::XrcSend => mask,
            _ => mask | QpAttrMask::MAX_DEST_RD_ATOMIC | QpAttrMask::MIN_RNR_TIMER,
        };
        (attr, mask)
    }

    fn rts_attr(
        &self,
        index: usize,
        params: &QpParams,
        depths: Option<Depths>,
    ) -> (QpAttr, QpAttrMask) {
        let slot = &self.ids[index];
        let depth = depths.map_or(params.max_rd_atomic, |depths| depths.initiator_depth);
        let attr = QpAttr {
            qp_state: QpState::Rts,
            sq_psn: params.sq_psn,
            max_rd_atomic: depth.min(self.max_initiator_depth),
            retry_cnt: params.retry_count,
            rnr_retry: params.rnr_retry_count,
            timeout: slot.options.ack_timeout.unwrap_or(params.ack_timeout),
            ..QpAttr::DEFAULT
        };
        let mask = QpAttrMask::STATE | QpAttrMask::SQ_PSN | QpAttrMask::TIMEOUT;
        // A target makes no requests.
        let mask = match slot.id_type {
            IdType::XrcRecv => mask,
            _ => {
                mask | QpAttrMask::MAX_QP_RD_ATOMIC | QpAttrMask::RETRY_CNT | QpAttrMask::RNR_RETRY
            }
        };
        (attr, mask)
    }

    /// Brings an id's QP up for its connection.
    pub(crate) fn move_to_rts(
        &mut self,
        index: usize,
        connection: ConnectionId,
        depths: Option<Depths>,
    ) -> Result<(), RdmaError> {
        let params = self.engine.qp_params(connection)?;
        let (rtr, rtr_mask) = self.rtr_attr(index, &params, depths);
        let (rts, rts_mask) = self.rts_attr(index, &params, depths);
        let qp = self.ids[index].objects.qp.as_mut().ok_or(RdmaError::NoQp)?;
        qp.modify(&rtr, rtr_mask)?;
        qp.modify(&rts, rts_mask)?;
        Ok(())
    }

    /// Moves an id's QP, if it has one, to ERR: what was posted completes with an error.
    pub(crate) fn flush_qp(&mut self, index: usize) {
        if let Some(qp) = &mut self.ids[index].objects.qp
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

    /// Whether a QP can be had now, for a caller that wants to know before asking.
    pub fn is_bound(&self, id: CmId) -> Result<bool, RdmaError> {
        Ok(self.ids.slot(id)?.route.bound && self.ids.slot(id)?.state != IdState::Idle)
    }
}

/// How a UD QP gets from INIT to work.
fn datagram_attr(state: QpState) -> (QpAttr, QpAttrMask) {
    let mask = if state == QpState::Rts {
        QpAttrMask::STATE | QpAttrMask::SQ_PSN
    } else {
        QpAttrMask::STATE
    };
    let attr = QpAttr {
        qp_state: state,
        ..QpAttr::DEFAULT
    };
    (attr, mask)
}
