//! The SRQs of ids.

use bareverbs_core::Platform;
use bareverbs_core::pd::Pd;
use bareverbs_core::srq::{Srq, SrqAttr, SrqError, SrqHandle};

use super::RdmaCm;
use super::error::RdmaError;
use super::resolver::Resolver;
use super::slot::PdOf;
use super::types::{CmId, IdState};

/// The SRQ of an id.
#[derive(Debug)]
pub(super) struct IdSrq<'d, P: Platform> {
    // In the order in which they have to go.
    pub(super) srq: Srq<'d, P>,
    pub(super) pd: PdOf<'d, P>,
    /// The id's own QP receives from it.
    pub(super) own_qp: bool,
}

impl<'d, P: Platform, R: Resolver> RdmaCm<'_, 'd, P, R> {
    /// Creates the SRQ of an id (`rdma_create_srq`), in `pd` or the default PD; `attr` says afterwards what the hardware
    /// gives. The id has to be bound, be it to the wildcard, and may be a listener, which is how the
    /// connections of one come to share an SRQ: each takes its [`srq_handle`](Self::srq_handle).
    ///
    /// A QP that is created on the id later uses it, and [`post_recv`](Self::post_recv) posts to it, QP or not.
    pub fn create_srq(
        &mut self,
        id: CmId,
        pd: Option<&'d Pd<'d, P>>,
        attr: &mut SrqAttr,
    ) -> Result<(), RdmaError> {
        let index = self.index(id)?;
        if self.ids[index].srq.is_some() {
            return Err(RdmaError::SrqExists);
        }
        // A wildcard will do: the manager has one device.
        if self.ids[index].state == IdState::Idle {
            return Err(RdmaError::NotBound);
        }
        let pd = self.pd_for(index, pd)?;
        let srq = pd.get().create_srq(attr)?;
        self.ids[index].srq = Some(IdSrq {
            srq,
            pd,
            own_qp: false,
        });
        Ok(())
    }

    /// Destroys the SRQ of an id (`rdma_destroy_srq`): EBUSY while QPs receive from it, or handles of it are about.
    pub fn destroy_srq(&mut self, id: CmId) -> Result<(), RdmaError> {
        let slot = self.slot_mut(id)?;
        let IdSrq { srq, pd, own_qp } = slot.srq.take().ok_or(RdmaError::NoSrq)?;
        srq.destroy().map_err(|(srq, error)| {
            slot.srq = Some(IdSrq { srq, pd, own_qp });
            RdmaError::Srq(error)
        })
    }

    /// The SRQ of an id (`id->srq`).
    pub fn srq(&mut self, id: CmId) -> Result<&mut Srq<'d, P>, RdmaError> {
        let srq = self.slot_mut(id)?.srq.as_mut();
        Ok(&mut srq.ok_or(RdmaError::NoSrq)?.srq)
    }

    /// A handle of an id's SRQ, for the QPs of other ids ([`QpInit::srq`](super::QpInit::srq)).
    pub fn srq_handle(&self, id: CmId) -> Result<SrqHandle<'d, P>, RdmaError> {
        let srq = self.slot(id)?.srq.as_ref();
        Ok(srq.ok_or(RdmaError::NoSrq)?.srq.handle())
    }

    /// The PD for what is to be created on an id: the one given, or the one that the id has, or the default one.
    pub(super) fn pd_for(
        &self,
        index: usize,
        given: Option<&'d Pd<'d, P>>,
    ) -> Result<PdOf<'d, P>, RdmaError> {
        let slot = &self.ids[index];
        let own = slot.pd.as_ref().or(slot.srq.as_ref().map(|srq| &srq.pd));
        Ok(match (given, own) {
            (Some(pd), _) | (None, Some(&PdOf::Given(pd))) => PdOf::Given(pd),
            (None, _) => PdOf::Default(self.device.default_pd()?),
        })
    }

    /// EBUSY if others than the id itself use its SRQ.
    pub(super) fn srq_is_free(&self, index: usize) -> Result<(), RdmaError> {
        let Some(srq) = &self.ids[index].srq else {
            return Ok(());
        };
        match srq.srq.users() - u32::from(srq.own_qp) {
            0 => Ok(()),
            users => Err(RdmaError::Srq(SrqError::Busy { users })),
        }
    }
}
