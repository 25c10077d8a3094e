//! Creating the QP of an id, with the objects that it needs.

use bareverbs_core::Platform;
use bareverbs_core::pd::Pd;
use bareverbs_core::qp::{QpCap, QpInitHandles, QpState};
use bareverbs_core::srq::SrqHandle;

use crate::rdma::id::slot::{IdSlot, Objects};
use crate::rdma::types::error::RdmaError;
use crate::rdma::types::{IdType, UDP_QKEY};
use crate::rdma::verbs::attr::datagram_attr;
use crate::rdma::verbs::hca::Hca;
use crate::rdma::verbs::making::{Making, QpOf};
use crate::rdma::verbs::objects::{IdQp, KeptInit};

impl<'d, P: Platform> Hca<'d, P> {
    /// Begins to create the QP of an id for connections, and waits for nothing. Of `init` the sizes are left, which say what
    /// it will hold.
    pub(crate) fn start_qp(
        &self,
        objects: &mut Objects<'d, P>,
        pd: Option<&'d Pd<'d, P>>,
        init: &mut KeptInit<'d, P>,
    ) -> Result<(), RdmaError> {
        let pd = self.pd_for(objects, pd)?;
        let own_srq = objects.srq.as_ref().map(|srq| srq.srq.handle());
        let takes_own = init.srq.is_none() && own_srq.is_some();
        let kept = KeptInit {
            send_cq: init.send_cq.take(),
            recv_cq: init.recv_cq.take(),
            srq: init.srq.take().or(own_srq),
            ..*init
        };
        let (making, cap) = Making::start_on(self.device, &pd, kept, takes_own)?;
        init.cap = cap;
        objects.qp = QpOf::Making(making);
        objects.pd = Some(pd);
        Ok(())
    }

    /// Creates the QP of an id for datagrams or XRC, in RTS or INIT, and waits for it. After a failure the id is as before.
    pub(crate) fn create_qp(
        &self,
        slot: &mut IdSlot<'d, P>,
        pd: Option<&'d Pd<'d, P>>,
        init: &mut KeptInit<'d, P>,
    ) -> Result<(), RdmaError> {
        self.check_device(pd, init)?;
        // Everything is kept aside until all of it is there, so that a failure leaves nothing behind.
        match slot.id_type {
            IdType::XrcSend if cfg!(feature = "xrc") => {
                return self.create_initiator(slot, pd, init);
            }
            IdType::XrcRecv if cfg!(feature = "xrc") => return self.create_target(slot, init),
            _ => {}
        }
        let pd = self.pd_for(&slot.objects, pd)?;
        let own_srq = slot.objects.srq.as_ref().map(|srq| srq.srq.handle());
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
        let mut qp = IdQp::Ud(pd.get().create_qp_by_handles(&mut attr)?);
        let cap = attr.cap;
        let (attr, mask) = self.init_attr(slot);
        qp.modify(&attr, mask)?;
        // There is no connection to wait for.
        for state in [QpState::Rtr, QpState::Rts] {
            let (attr, mask) = datagram_attr(state);
            qp.modify(&attr, mask)?;
        }
        init.cap = cap;
        slot.conn.qkey = UDP_QKEY;
        if let Some(srq) = &mut slot.objects.srq {
            srq.own_qp = takes_own;
        }
        slot.objects.qp = QpOf::Made(qp);
        slot.objects.send_cq = own_send;
        slot.objects.recv_cq = own_recv;
        slot.objects.pd = Some(pd);
        Ok(())
    }

    fn create_initiator(
        &self,
        slot: &mut IdSlot<'d, P>,
        pd: Option<&'d Pd<'d, P>>,
        init: &mut KeptInit<'d, P>,
    ) -> Result<(), RdmaError> {
        let pd = self.pd_for(&slot.objects, pd)?;
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
        let (attr, mask) = self.init_attr(slot);
        qp.modify(&attr, mask)?;
        slot.objects.qp = QpOf::Made(qp);
        slot.objects.send_cq = own_send;
        slot.objects.pd = Some(pd);
        Ok(())
    }

    fn create_target(
        &self,
        slot: &mut IdSlot<'d, P>,
        init: &mut KeptInit<'d, P>,
    ) -> Result<(), RdmaError> {
        let xrcd = self.xrcd_for(&slot.objects, init.xrcd)?;
        let mut qp = IdQp::XrcRecv(xrcd.get().create_qp()?);
        init.cap = QpCap::default();
        let (attr, mask) = self.init_attr(slot);
        qp.modify(&attr, mask)?;
        slot.objects.qp = QpOf::Made(qp);
        slot.objects.xrcd = Some(xrcd);
        Ok(())
    }
}
