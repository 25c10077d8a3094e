//! The calls on the QPs of ids: creating them, and moving them through their states.

use bareverbs_core::Platform;
use bareverbs_core::pd::Pd;
use bareverbs_core::qp::{CreateQpError, QpAttr, QpAttrMask, QpState, Ud};
use bareverbs_core::xrc::Xrcd;

use crate::engine::ConnectionId;
use crate::rdma::manager::RdmaCm;
use crate::rdma::route::resolver::Resolver;
use crate::rdma::types::error::RdmaError;
use crate::rdma::types::param::Depths;
use crate::rdma::types::{CmId, IdState};
use crate::rdma::verbs::attr::datagram_attr;
use crate::rdma::verbs::objects::{Endpoint, IdQp, PdOf, QpInit};

impl<'d, P: Platform, R: Resolver> RdmaCm<'_, 'd, P, R> {
    /// Creates the QP of an id (`rdma_create_qp`) and moves it to INIT, so that receives can be posted; a UD QP to RTS, with
    /// the port space's Q_Key ([`UDP_QKEY`](crate::rdma::UDP_QKEY)). The id has to be bound to an address of the device.
    /// `init.cap` says afterwards what the hardware gives.
    ///
    /// The PD is the device's default one if none is given. PD, CQs and SRQ have to be of the id's device
    /// ([`RdmaError::OtherDevice`], EINVAL). Where no CQ is given one is made, with events on;
    /// [`endpoint`](Self::endpoint) gives it.
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
        let mut created = self.hca.create_qp(&mut self.ids[index], pd, &mut kept);
        if let Err(RdmaError::CreateQp(CreateQpError::NoSlot { .. })) = created {
            // Slots of destroyed QPs become free when their CQs are polled.
            for cq in [init.send_cq, init.recv_cq].into_iter().flatten() {
                cq.reap();
            }
            created = self.hca.create_qp(&mut self.ids[index], pd, &mut kept);
        }
        init.cap = kept.cap;
        created
    }

    /// Destroys the QP of an id, its automatic CQs, and its share of the default PD (`rdma_destroy_qp`).
    pub fn destroy_qp(&mut self, id: CmId) -> Result<(), RdmaError> {
        let index = self.ids.index(id)?;
        let slot = &mut self.ids[index];
        self.groups.detach(id, slot);
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
            QpState::Init if self.ids[index].route.bound => {
                Ok(self.hca.init_attr(&self.ids[index]))
            }
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
                let slot = &self.ids[index];
                Ok(if state == QpState::Rtr {
                    let path = self.router.ah_attr_at(&params.address, params.rate);
                    self.hca.rtr_attr(slot, &params, path, None)
                } else {
                    self.hca.rts_attr(slot, &params, None)
                })
            }
            _ => Err(wrong),
        }
    }

    /// Brings an id's QP up for its connection.
    pub(crate) fn move_to_rts(
        &mut self,
        index: usize,
        connection: ConnectionId,
        depths: Option<Depths>,
    ) -> Result<(), RdmaError> {
        let params = self.engine.qp_params(connection)?;
        let path = self.router.ah_attr_at(&params.address, params.rate);
        let slot = &mut self.ids[index];
        let (rtr, rtr_mask) = self.hca.rtr_attr(slot, &params, path, depths);
        let (rts, rts_mask) = self.hca.rts_attr(slot, &params, depths);
        let qp = slot.objects.qp.as_mut().ok_or(RdmaError::NoQp)?;
        qp.modify(&rtr, rtr_mask)?;
        qp.modify(&rts, rts_mask)?;
        Ok(())
    }

    /// Whether a QP can be allocated now.
    pub fn is_bound(&self, id: CmId) -> Result<bool, RdmaError> {
        Ok(self.ids.slot(id)?.route.bound && self.ids.slot(id)?.state != IdState::Idle)
    }
}
