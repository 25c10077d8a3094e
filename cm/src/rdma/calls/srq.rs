//! The SRQs of ids.

use bareverbs_core::Platform;
use bareverbs_core::cq::CqInit;
use bareverbs_core::pd::Pd;
use bareverbs_core::srq::{Srq, SrqAttr, SrqHandle};

use crate::rdma::manager::RdmaCm;
use crate::rdma::resolver::Resolver;
use crate::rdma::types::error::RdmaError;
use crate::rdma::types::{CmId, IdState, IdType};
use crate::rdma::verbs::objects::{IdSrq, SrqInit};

impl<'d, P: Platform, R: Resolver> RdmaCm<'_, 'd, P, R> {
    /// Creates the SRQ of an id (`rdma_create_srq`), in `pd` or the default PD; `attr` says afterwards what the hardware
    /// gives. The id has to be bound, be it to the wildcard, and may be a listener, which is how the connections of one
    /// come to share an SRQ: each takes its [`srq_handle`](Self::srq_handle).
    ///
    /// A QP that is created on the id later uses it, and [`post_recv`](Self::post_recv) posts to it, QP or not.
    pub fn create_srq(
        &mut self,
        id: CmId,
        pd: Option<&'d Pd<'d, P>>,
        attr: &mut SrqAttr,
    ) -> Result<(), RdmaError> {
        let mut init = SrqInit {
            pd,
            ..SrqInit::new(*attr)
        };
        self.create_srq_ex(id, &mut init)?;
        *attr = init.attr;
        Ok(())
    }

    /// The same with all attributes (`rdma_create_srq_ex`). On an id of type [`IdType::XrcRecv`] the SRQ is one for XRC: the
    /// targets of all connections in its domain receive into it, and what arrives completes in its CQ
    /// ([`get_recv_comp`](Self::get_recv_comp) on this id, if the CQ is the manager's).
    pub fn create_srq_ex(
        &mut self,
        id: CmId,
        init: &mut SrqInit<'_, 'd, P>,
    ) -> Result<(), RdmaError> {
        let index = self.ids.index(id)?;
        if self.ids[index].objects.srq.is_some() {
            return Err(RdmaError::SrqExists);
        }
        // A wildcard will do: the manager has one device.
        if self.ids[index].state == IdState::Idle {
            return Err(RdmaError::NotBound);
        }
        let id_type = self.ids[index].id_type;
        let pd = self.hca.pd_for(&self.ids[index].objects, init.pd)?;
        if !cfg!(feature = "xrc") || id_type != IdType::XrcRecv {
            if init.xrcd.is_some() || init.cq.is_some() {
                return Err(RdmaError::WrongType {
                    call: "create_srq_ex with an XRC domain or a CQ",
                    id_type,
                });
            }
            let srq = pd.get().create_srq(&mut init.attr)?;
            self.ids[index].objects.srq = Some(IdSrq {
                srq,
                pd,
                xrcd: None,
                own_qp: false,
            });
            return Ok(());
        }
        let xrcd = self.hca.xrcd_for(&self.ids[index].objects, init.xrcd)?;
        let make = |cqe: u32| self.hca.device.create_cq(CqInit::new(cqe.max(1)));
        let (srq, own_cq) = match init.cq {
            Some(cq) => (
                pd.get().create_xrc_srq(xrcd.get(), cq, &mut init.attr)?,
                None,
            ),
            None => {
                let cq = make(init.attr.max_wr)?;
                let srq = pd.get().create_xrc_srq(xrcd.get(), &cq, &mut init.attr)?;
                (srq, Some(cq))
            }
        };
        let slot = &mut self.ids[index];
        slot.objects.srq = Some(IdSrq {
            srq,
            pd,
            xrcd: Some(xrcd),
            own_qp: false,
        });
        slot.objects.recv_cq = own_cq;
        Ok(())
    }

    /// Destroys the SRQ of an id (`rdma_destroy_srq`): EBUSY while QPs receive from it, or handles of it exist.
    pub fn destroy_srq(&mut self, id: CmId) -> Result<(), RdmaError> {
        let slot = self.ids.slot_mut(id)?;
        let IdSrq {
            srq,
            pd,
            xrcd,
            own_qp,
        } = slot.objects.srq.take().ok_or(RdmaError::NoSrq)?;
        let own_cq = srq.is_xrc();
        match srq.destroy() {
            Ok(()) => {
                if own_cq {
                    slot.objects.recv_cq = None;
                }
                Ok(())
            }
            Err((srq, error)) => {
                slot.objects.srq = Some(IdSrq {
                    srq,
                    pd,
                    xrcd,
                    own_qp,
                });
                Err(error.into())
            }
        }
    }

    /// The SRQ of an id (`id->srq`).
    pub fn srq(&mut self, id: CmId) -> Result<&mut Srq<'d, P>, RdmaError> {
        let srq = self.ids.slot_mut(id)?.objects.srq.as_mut();
        Ok(&mut srq.ok_or(RdmaError::NoSrq)?.srq)
    }

    /// A handle of an id's SRQ, for the QPs of other ids ([`QpInit::srq`](crate::rdma::QpInit::srq)).
    pub fn srq_handle(&self, id: CmId) -> Result<SrqHandle<'d, P>, RdmaError> {
        let srq = self.ids.slot(id)?.objects.srq.as_ref();
        Ok(srq.ok_or(RdmaError::NoSrq)?.srq.handle())
    }
}
