//! Enhanced connection establishment: the vendor's options of QPs that are the application's own.
//!
//! The QPs of ids have no options to offer, which every peer has to accept; so options exist only for the application's
//! own QPs.

use bareverbs_core::Platform;

use crate::mad::{Ece, RejectReason};
use crate::rdma::manager::RdmaCm;
use crate::rdma::resolver::Resolver;
use crate::rdma::types::CmId;
use crate::rdma::types::error::RdmaError;

impl<P: Platform, R: Resolver> RdmaCm<'_, '_, P, R> {
    /// Sets the options that the QP of this end has, to go out with [`connect`](Self::connect) or
    /// [`accept`](Self::accept) (`rdma_set_local_ece`); on the passive side, those of the other end that the QP
    /// accepts. Only without a QP of the manager's on the id, and with a vendor.
    pub fn set_local_ece(&mut self, id: CmId, ece: Ece) -> Result<(), RdmaError> {
        let slot = self.ids.slot_mut(id)?;
        if slot.objects.qp.is_made() && !slot.objects.qp.is_attached() {
            return Err(RdmaError::QpExists);
        }
        if ece.vendor_id == 0 || ece.vendor_id > 0xff_ffff {
            return Err(RdmaError::TooMuch {
                name: "vendor ID (which is not 0)",
                value: ece.vendor_id,
                max: 0xff_ffff,
            });
        }
        slot.conn.ece = ece;
        Ok(())
    }

    /// The options that the other end's request or answer came with (`rdma_get_remote_ece`); vendor 0 if none did. Only
    /// without a QP of the manager's on the id.
    pub fn get_remote_ece(&self, id: CmId) -> Result<Ece, RdmaError> {
        let slot = self.ids.slot(id)?;
        if slot.objects.qp.is_made() && !slot.objects.qp.is_attached() {
            return Err(RdmaError::QpExists);
        }
        match slot.conn.id {
            Some(connection) => Ok(self.engine.remote_ece(connection)?),
            None => Ok(slot.conn.remote_ece),
        }
    }

    /// Refuses a connection because of its options (`rdma_reject_ece`): [`reject`](Self::reject) with reason 35, so that the
    /// other end can try again with others. Datagram services have no such reason and are refused as by `reject`.
    pub fn reject_ece(&mut self, id: CmId, private_data: &[u8]) -> Result<(), RdmaError> {
        self.reject_for(id, RejectReason::VENDOR_OPTION_NOT_SUPPORTED, private_data)
    }
}
