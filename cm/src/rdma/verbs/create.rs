//! Creating the QP of an id, with the objects that it needs.

use bareverbs_core::Platform;
use bareverbs_core::pd::Pd;
#[cfg(feature = "xrc")]
use bareverbs_core::qp::QpCap;
use bareverbs_core::qp::QpKind;

use crate::rdma::types::IdType;
use crate::rdma::types::error::RdmaError;
use crate::rdma::verbs::hca::Hca;
use crate::rdma::verbs::making::{Making, QpOf};
use crate::rdma::verbs::objects::KeptInit;
use crate::rdma::verbs::owned::Objects;

impl<'d, P: Platform> Hca<'d, P> {
    /// Begins to create the QP of an id of this type. It waits for nothing; the first one for XRC waits for what the
    /// contexts of all of them name, and for the default domain. Of `init` the sizes are left, which say what it will hold.
    pub(crate) fn start_qp(
        &self,
        id_type: IdType,
        objects: &mut Objects<'d, P>,
        pd: Option<&'d Pd<'d, P>>,
        init: &mut KeptInit<'d, P>,
    ) -> Result<(), RdmaError> {
        let kind = match id_type {
            #[cfg(feature = "xrc")]
            IdType::XrcRecv => {
                let xrcd = self.xrcd_for(objects, init.xrcd)?;
                let creating = xrcd.get().start_create_dyn_qp()?;
                init.cap = QpCap::default();
                objects.qp = QpOf::Making(Making::of(creating));
                objects.xrcd = Some(xrcd);
                return Ok(());
            }
            IdType::XrcSend => QpKind::XrcSend,
            IdType::Uc => QpKind::Uc,
            IdType::Ud => QpKind::Ud,
            _ => QpKind::Rc,
        };
        let pd = self.pd_for(objects, pd)?;
        let own_srq = match kind {
            QpKind::XrcSend => None,
            _ => objects.srq.as_ref().map(|srq| srq.srq.handle()),
        };
        let takes_own = init.srq.is_none() && own_srq.is_some();
        let kept = KeptInit {
            send_cq: init.send_cq.take(),
            recv_cq: init.recv_cq.take(),
            srq: init.srq.take().or(own_srq),
            ..*init
        };
        let (making, cap) = Making::start_on(self.device, kind, &pd, kept, takes_own)?;
        init.cap = cap;
        objects.qp = QpOf::Making(making);
        objects.pd = Some(pd);
        Ok(())
    }
}
