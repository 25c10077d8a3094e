//! The extended attributes of QPs (`rdma_create_qp_ex`).

use bareverbs_core::Platform;

use crate::rdma::manager::RdmaCm;
use crate::rdma::resolver::Resolver;
use crate::rdma::types::error::RdmaError;
use crate::rdma::types::{CmId, IdType};
use crate::rdma::verbs::objects::QpInitEx;

impl<'d, P: Platform, R: Resolver> RdmaCm<'_, 'd, P, R> {
    /// Creates the QP of an id with extended attributes (`rdma_create_qp_ex`), as [`create_qp`](Self::create_qp) does.
    /// EOPNOTSUPP, with its name, for an attribute that a QP cannot have; nothing is created then.
    pub fn create_qp_ex<'q: 'd>(
        &mut self,
        id: CmId,
        init: &mut QpInitEx<'_, 'q, P>,
    ) -> Result<(), RdmaError> {
        let id_type = self.ids.slot(id)?.id_type;
        let refused = init
            .extended
            .iter()
            .find(|attribute| !attribute.is_supported(id_type));
        if let Some(&attribute) = refused {
            return Err(RdmaError::UnsupportedAttribute(attribute));
        }
        if init.xrcd.is_some() && id_type != IdType::XrcRecv {
            return Err(RdmaError::WrongType {
                call: "create_qp_ex with an XRC domain",
                id_type,
            });
        }
        self.create_qp_in(id, init.pd, init.xrcd, &mut init.init)
    }
}
