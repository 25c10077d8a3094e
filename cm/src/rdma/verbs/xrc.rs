//! Ids for extended reliable connections.
//!
//! The listening end makes an SRQ on its id ([`create_srq`](RdmaCm::create_srq)), tells its number in the private data of
//! [`accept`](RdmaCm::accept), and gives each connection a target, which has no queues. The connecting end has an initiator,
//! whose work requests name the SRQ ([`xrc_endpoint`](RdmaCm::xrc_endpoint)).

use bareverbs_core::Platform;
use bareverbs_core::pd::Pd;
use bareverbs_core::qp::{QpCap, QpInitHandles, XrcSend};
use bareverbs_core::xrc::Xrcd;

use crate::rdma::manager::RdmaCm;
use crate::rdma::route::resolver::Resolver;
use crate::rdma::types::CmId;
use crate::rdma::types::error::RdmaError;
use crate::rdma::verbs::objects::{Endpoint, IdQp, KeptInit, XrcdOf};

impl<'d, P: Platform, R: Resolver> RdmaCm<'_, 'd, P, R> {
    /// The domain for what is to be created on an id: the one given, or that of its SRQ, or the default one.
    pub(crate) fn xrcd_for(
        &self,
        index: usize,
        given: Option<&'d Xrcd<'d, P>>,
    ) -> Result<XrcdOf<'d, P>, RdmaError> {
        self.is_ours("XRC domain", given.map(Xrcd::device))?;
        let own = self.ids[index]
            .objects
            .srq
            .as_ref()
            .and_then(|srq| srq.xrcd());
        Ok(match (given, own) {
            (Some(xrcd), _) | (None, Some(&XrcdOf::Given(xrcd))) => XrcdOf::Given(xrcd),
            (None, _) => XrcdOf::Default(self.device.default_xrcd()?),
        })
    }

    pub(crate) fn create_initiator(
        &mut self,
        index: usize,
        pd: Option<&'d Pd<'d, P>>,
        init: &mut KeptInit<'d, P>,
    ) -> Result<(), RdmaError> {
        let pd = self.pd_for(index, pd)?;
        let (own_send, send_cq) = self.cq_for(&init.send_cq, init.cap.max_send_wr)?;
        let mut attr = QpInitHandles {
            recv_cq: send_cq.clone(),
            send_cq,
            srq: init.srq.clone(),
            cap: init.cap,
            sq_sig_all: init.sq_sig_all,
        };
        let mut qp = IdQp::XrcSend(pd.get().create_qp_by_handles(&mut attr)?);
        init.cap = attr.cap;
        let (attr, mask) = self.init_attr(index);
        qp.modify(&attr, mask)?;
        let slot = &mut self.ids[index];
        slot.objects.qp = Some(qp);
        slot.objects.send_cq = own_send;
        slot.objects.pd = Some(pd);
        Ok(())
    }

    pub(crate) fn create_target(
        &mut self,
        index: usize,
        init: &mut KeptInit<'d, P>,
    ) -> Result<(), RdmaError> {
        let xrcd = self.xrcd_for(index, init.xrcd)?;
        let mut qp = IdQp::XrcRecv(xrcd.get().create_qp()?);
        init.cap = QpCap::default();
        let (attr, mask) = self.init_attr(index);
        qp.modify(&attr, mask)?;
        let slot = &mut self.ids[index];
        slot.objects.qp = Some(qp);
        slot.objects.xrcd = Some(xrcd);
        Ok(())
    }

    /// The verbs objects of an id that connects an initiator. Its work requests each name an SRQ of the other end, so that
    /// they are posted here and not by [`post_send`](Self::post_send).
    pub fn xrc_endpoint(&mut self, id: CmId) -> Result<Endpoint<'_, 'd, P, XrcSend>, RdmaError> {
        let slot = self.ids.slot_mut(id)?;
        match &mut slot.objects.qp {
            Some(IdQp::XrcSend(qp)) => Ok(Endpoint {
                qp,
                send_cq: slot.objects.send_cq.as_mut(),
                recv_cq: None,
            }),
            Some(_) => Err(RdmaError::WrongType {
                call: "xrc_endpoint",
                id_type: slot.id_type,
            }),
            None => Err(RdmaError::NoQp),
        }
    }
}
