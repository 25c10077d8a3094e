//! The calls on the QPs of ids: creating them, and moving them through their states.

use core::time::Duration;

use bareverbs_core::Platform;
use bareverbs_core::cq::CqError;
use bareverbs_core::pd::Pd;
use bareverbs_core::qp::{CreateQpError, QpAttr, QpAttrMask, QpState, Uc, Ud};
use bareverbs_core::xrc::Xrcd;

use crate::engine::State;
use crate::rdma::id::attr::datagram_attr;
use crate::rdma::manager::RdmaCm;
use crate::rdma::resolver::Resolver;
use crate::rdma::types::error::RdmaError;
use crate::rdma::types::param::Depths;
use crate::rdma::types::{CmId, IdState, IdType, UDP_QKEY};
use crate::rdma::verbs::objects::{Endpoint, KeptInit, PdOf, QpInit};

impl<'d, P: Platform, R: Resolver> RdmaCm<'_, 'd, P, R> {
    /// Creates the QP of an id (`rdma_create_qp`) and moves it to INIT, so that receives can be posted; a UD QP to RTS, with
    /// the port space's Q_Key ([`UDP_QKEY`](crate::rdma::UDP_QKEY)). The id has to be bound to an address of the device.
    /// `init.cap` says afterwards what the hardware gives.
    ///
    /// The PD is the device's default one if none is given. PD, CQs and SRQ have to be of the id's device
    /// ([`RdmaError::OtherDevice`], EINVAL). Where no CQ is given one is made, with events on;
    /// [`endpoint`](Self::endpoint) gives it.
    pub fn create_qp<'q: 'd>(
        &mut self,
        id: CmId,
        pd: Option<&'d Pd<'d, P>>,
        init: &mut QpInit<'_, 'q, P>,
    ) -> Result<(), RdmaError> {
        self.create_qp_in(id, pd, None, init)
    }

    pub(crate) fn create_qp_in<'q: 'd>(
        &mut self,
        id: CmId,
        pd: Option<&'d Pd<'d, P>>,
        xrcd: Option<&'d Xrcd<'d, P>>,
        init: &mut QpInit<'_, 'q, P>,
    ) -> Result<(), RdmaError> {
        self.start_qp_in(id, pd, xrcd, init)?;
        loop {
            if self.try_finish_qp(id)?.is_some() {
                return Ok(());
            }
            if let Err(error) = self.wait(Duration::MAX) {
                let index = self.ids.index(id)?;
                self.forget_qp(index);
                return Err(error);
            }
        }
    }

    /// Begins to create the QP of an id as [`create_qp`](Self::create_qp) does, and waits for nothing. `init.cap` says what the
    /// hardware will give. [`try_finish_qp`](Self::try_finish_qp) says when the QP is there; [`connect`](Self::connect) and
    /// [`accept`](Self::accept) may be called before, and go on when it is. If it cannot be made they end in
    /// `ConnectError`.
    ///
    /// The first one for XRC waits for what all of those share.
    pub fn start_qp<'q: 'd>(
        &mut self,
        id: CmId,
        pd: Option<&'d Pd<'d, P>>,
        init: &mut QpInit<'_, 'q, P>,
    ) -> Result<(), RdmaError> {
        self.start_qp_in(id, pd, None, init)
    }

    /// Checks whether the QP that [`start_qp`](Self::start_qp) has begun is there; `None` while it is not. Meanwhile the
    /// manager has to be [polled](Self::poll).
    pub fn try_finish_qp(&mut self, id: CmId) -> Result<Option<()>, RdmaError> {
        let index = self.ids.index(id)?;
        self.try_created(index)
    }

    fn start_qp_in<'q: 'd>(
        &mut self,
        id: CmId,
        pd: Option<&'d Pd<'d, P>>,
        xrcd: Option<&'d Xrcd<'d, P>>,
        init: &mut QpInit<'_, 'q, P>,
    ) -> Result<(), RdmaError> {
        let index = self.ids.index(id)?;
        let mut cap = init.cap;
        let mut start = |cm: &mut Self, init: &QpInit<'_, 'q, P>| {
            let mut kept = init.keep();
            kept.xrcd = xrcd;
            let begun = cm.start_kept_qp(index, pd, &mut kept);
            cap = kept.cap;
            begun
        };
        let mut begun = start(self, init);
        if let Err(RdmaError::CreateQp(CreateQpError::NoSlot { .. })) = begun {
            // Slots of destroyed QPs become free when their CQs are polled.
            for cq in [init.send_cq, init.recv_cq].into_iter().flatten() {
                cq.reap();
            }
            begun = start(self, init);
        }
        if is_full(&begun) && self.ids.ending() > 0 {
            // There will be slots.
            self.ids.finish_endings(self.hca.device);
            begun = start(self, init);
        }
        if is_full(&begun)
            && let Some(kept) = self.pool.take_oldest()
        {
            drop(kept);
            for cq in [init.send_cq, init.recv_cq].into_iter().flatten() {
                cq.reap();
            }
            begun = start(self, init);
        }
        init.cap = cap;
        begun
    }

    /// Begins to create the QP of an id.
    pub(crate) fn start_kept_qp(
        &mut self,
        index: usize,
        pd: Option<&'d Pd<'d, P>>,
        init: &mut KeptInit<'d, P>,
    ) -> Result<(), RdmaError> {
        let slot = &self.ids[index];
        if slot.objects.has_qp() || slot.objects.qp.is_saved() {
            return Err(RdmaError::QpExists);
        }
        if !slot.route.bound {
            return Err(RdmaError::NotBound);
        }
        #[cfg(feature = "keep-alive")]
        if slot.options.keep_alive.is_some() && slot.id_type == IdType::Rc {
            // The keep-alive takes none of the application's places.
            init.cap.max_send_wr = init.cap.max_send_wr.saturating_add(1);
            let begun = self.start_sized_qp(index, pd, init);
            init.cap.max_send_wr -= 1;
            return begun;
        }
        self.start_sized_qp(index, pd, init)
    }

    fn start_sized_qp(
        &mut self,
        index: usize,
        pd: Option<&'d Pd<'d, P>>,
        init: &mut KeptInit<'d, P>,
    ) -> Result<(), RdmaError> {
        let slot = &mut self.ids[index];
        let datagrams = slot.id_type.is_datagram();
        let can_be_used_again = slot.id_type == IdType::Rc;
        self.hca.check_device(pd, init)?;
        if can_be_used_again && self.reuse_qp(index, pd, init)? {
            return Ok(());
        }
        let slot = &mut self.ids[index];
        self.hca
            .start_qp(slot.id_type, &mut slot.objects, pd, init)?;
        if datagrams {
            slot.conn.qkey = UDP_QKEY;
        }
        self.begin_qp(index)
    }

    /// Destroys the QP of an id, its automatic CQs, and its share of the default PD (`rdma_destroy_qp`).
    pub fn destroy_qp(&mut self, id: CmId) -> Result<(), RdmaError> {
        let index = self.ids.index(id)?;
        let slot = &mut self.ids[index];
        self.groups.detach(id, slot);
        self.forget_qp(index);
        let slot = &mut self.ids[index];
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
        match slot.objects.endpoint()? {
            Some(endpoint) => Ok(endpoint),
            None => Err(match slot.id_type {
                IdType::Ud => RdmaError::WrongPortSpace {
                    call: "endpoint",
                    port_space: slot.port_space,
                },
                id_type => RdmaError::WrongType {
                    call: "endpoint",
                    id_type,
                },
            }),
        }
    }

    /// The verbs objects of an id for unreliable connections.
    pub fn uc_endpoint(&mut self, id: CmId) -> Result<Endpoint<'_, 'd, P, Uc>, RdmaError> {
        let slot = self.ids.slot_mut(id)?;
        slot.objects.endpoint()?.ok_or(RdmaError::WrongType {
            call: "uc_endpoint",
            id_type: slot.id_type,
        })
    }

    /// The verbs objects of an id for datagrams.
    pub fn ud_endpoint(&mut self, id: CmId) -> Result<Endpoint<'_, 'd, P, Ud>, RdmaError> {
        let slot = self.ids.slot_mut(id)?;
        slot.objects.endpoint()?.ok_or(RdmaError::WrongPortSpace {
            call: "ud_endpoint",
            port_space: slot.port_space,
        })
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

    /// The attributes with which a QP that is not the id's is to be moved to INIT, RTR or RTS (`rdma_init_qp_attr`). A listener
    /// for connections has none, nor has an id whose connection has ended.
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
        if !self.ids[index].route.bound {
            return Err(RdmaError::NotBound);
        }
        if !self.ids[index].id_type.is_datagram() && self.is_over(index)? {
            return Err(wrong);
        }
        match state {
            QpState::Init => {
                let slot = &self.ids[index];
                let (mut attr, mask) = self.hca.init_attr(slot);
                if let Some(connection) = slot.conn.id.filter(|_| !slot.conn.accepted) {
                    // The other end's REQ or REP counts, until this end has answered (`cm_init_qp_init_attr` of core/cm.c).
                    let params = self.engine.qp_params(connection)?;
                    if params.dest_qpn != 0 {
                        let asked = params.max_dest_rd_atomic;
                        attr.qp_access_flags = self.hca.access(slot.id_type, asked);
                    }
                }
                Ok((attr, mask))
            }
            QpState::Rtr | QpState::Rts if self.ids[index].id_type.is_datagram() => {
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
                // This end's answer counts once it is sent.
                let depths = slot.conn.accepted.then_some(Depths {
                    responder_resources: slot.conn.responder_resources,
                    initiator_depth: slot.conn.initiator_depth,
                });
                Ok(if state == QpState::Rtr {
                    let path = self.router.ah_attr_at(&params.address, params.rate);
                    self.hca.rtr_attr(slot, &params, path, depths)
                } else {
                    self.hca.rts_attr(slot, &params, depths)
                })
            }
            _ => Err(wrong),
        }
    }

    /// Returns `true` if there is no connection that a QP of the id's could serve: it listens, or its connection has ended.
    fn is_over(&self, index: usize) -> Result<bool, RdmaError> {
        let Some(connection) = self.ids[index].conn.id else {
            return Ok(self.ids[index].state == IdState::Listen);
        };
        Ok(matches!(
            self.engine.state(connection)?,
            State::Idle | State::DreqSent | State::DreqReceived | State::Timewait
        ))
    }

    /// Returns `true` if a QP can be allocated now.
    pub fn is_bound(&self, id: CmId) -> Result<bool, RdmaError> {
        Ok(self.ids.slot(id)?.route.bound && self.ids.slot(id)?.state != IdState::Idle)
    }
}

/// Returns `true` if an object could not be made for lack of a slot.
fn is_full(begun: &Result<(), RdmaError>) -> bool {
    matches!(
        begun,
        Err(RdmaError::CreateQp(CreateQpError::NoSlot { .. })
            | RdmaError::Cq(CqError::NoSlot { .. }))
    )
}
