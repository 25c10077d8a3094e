//! Ids for extended reliable connections.
//!
//! The listening end makes an SRQ on its id ([`create_srq`](RdmaCm::create_srq)), sends its number in the private data
//! of [`accept`](RdmaCm::accept), and gives each connection a target, which has no queues. The connecting end has an
//! initiator, whose work requests name the SRQ ([`xrc_endpoint`](RdmaCm::xrc_endpoint)).

use bareverbs_core::Platform;
use bareverbs_core::qp::XrcSend;

use crate::rdma::manager::RdmaCm;
use crate::rdma::resolver::Resolver;
use crate::rdma::types::CmId;
use crate::rdma::types::error::RdmaError;
use crate::rdma::verbs::objects::Endpoint;

impl<'d, P: Platform, R: Resolver> RdmaCm<'_, 'd, P, R> {
    /// The verbs objects of an id that connects an initiator. Its work requests each name an SRQ of the other end, so that
    /// they are posted here and not by [`post_send`](Self::post_send).
    pub fn xrc_endpoint(&mut self, id: CmId) -> Result<Endpoint<'_, 'd, P, XrcSend>, RdmaError> {
        let slot = self.ids.slot_mut(id)?;
        slot.objects.endpoint()?.ok_or(RdmaError::WrongType {
            call: "xrc_endpoint",
            id_type: slot.id_type,
        })
    }
}
