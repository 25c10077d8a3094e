//! Creating the QP of an id, with the objects that it needs.

use bareverbs_core::Platform;
use bareverbs_core::pd::Pd;
use bareverbs_core::qp::{QpCap, QpInitHandles, QpState};
use bareverbs_core::srq::SrqHandle;

use crate::rdma::id::slot::IdSlot;
use crate::rdma::types::error::RdmaError;
use crate::rdma::types::{IdType, UDP_QKEY};
use crate::rdma::verbs::attr::datagram_attr;
use crate::rdma::verbs::hca::Hca;
use crate::rdma::verbs::objects::{IdQp, KeptInit};

impl<'d, P: Platform> Hca<'d, P> {
    /// Creates the QP of an id, in INIT or, for datagrams, in RTS. After a failure the id is as before.
    pub(crate) fn create_qp(
        &self,
        slot: &mut IdSlot<'d, P>,
        pd: Option<&'d Pd<'d, P>>,
        init: &mut KeptInit<'d, P>,
    ) -> Result<(), RdmaError> {
        if slot.objects.qp.is_some() {
            return Err(RdmaError::QpExists);
        }
        if !slot.route.bound {
            return Err(RdmaError::NotBound);
        }
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
        let datagrams = slot.port_space.is_datagram();
        let mut qp = if datagrams {
            IdQp::Ud(pd.get().create_qp_by_handles(&mut attr)?)
        } else {
            IdQp::Rc(pd.get().create_qp_by_handles(&mut attr)?)
        };
        let cap = attr.cap;
        let (attr, mask) = self.init_attr(slot);
        qp.modify(&attr, mask)?;
        if datagrams {
            // There is no connection to wait for.
            for state in [QpState::Rtr, QpState::Rts] {
                let (attr, mask) = datagram_attr(state);
                qp.modify(&attr, mask)?;
            }
        }
        init.cap = cap;
        if datagrams {
            slot.conn.qkey = UDP_QKEY;
        }
        if let Some(srq) = &mut slot.objects.srq {
            srq.own_qp = takes_own;
        }
        slot.objects.qp = Some(qp);
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
        slot.objects.qp = Some(qp);
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
        slot.objects.qp = Some(qp);
        slot.objects.xrcd = Some(xrcd);
        Ok(())
    }
}
