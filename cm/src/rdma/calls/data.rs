//! The conveniences of `rdma_verbs.h`: memory, posting, and waiting for completions, by id.
//!
//! librdmacm registers memory of the caller, which only the caller can promise to leave alone. Here the `reg` calls give
//! memory that is safe to share with the device; memory of the caller's own is registered with
//! [`Pd::reg_mr`](bareverbs_core::pd::Pd::reg_mr) on [`pd`](RdmaCm::pd) and posted with the `…v` calls.

use core::time::Duration;

use bareverbs_core::ah::AddressHandle;
use bareverbs_core::mr::{Access, Buffer, Sge};
use bareverbs_core::qp::send::Batch;
use bareverbs_core::qp::{Destination, Inline, Rc, Remote, SendFlags, Uc};
use bareverbs_core::wc::Wc;
use bareverbs_core::{Platform, Qpn};

use crate::rdma::manager::RdmaCm;
use crate::rdma::resolver::Resolver;
use crate::rdma::types::error::RdmaError;
use crate::rdma::types::{CmId, UDP_QKEY};
use crate::rdma::verbs::owned::Side;

impl<'d, P: Platform, R: Resolver> RdmaCm<'_, 'd, P, R> {
    /// Memory that may be used in these ways: that the other end may read and write, say. The calls behind are the usual
    /// cases. The device itself may always write to it.
    ///
    /// Not in librdmacm, where `ibv_reg_mr` on `id->pd` does this.
    pub fn reg(&self, id: CmId, len: usize, access: Access) -> Result<Buffer<'d, P>, RdmaError> {
        Ok(self
            .pd(id)?
            .alloc_buffer(len, access | Access::LOCAL_WRITE)?)
    }

    /// Memory for messages (`rdma_reg_msgs`).
    pub fn reg_msgs(&self, id: CmId, len: usize) -> Result<Buffer<'d, P>, RdmaError> {
        self.reg(id, len, Access::LOCAL_WRITE)
    }

    /// Memory that the other end may read (`rdma_reg_read`).
    pub fn reg_read(&self, id: CmId, len: usize) -> Result<Buffer<'d, P>, RdmaError> {
        self.reg(id, len, Access::REMOTE_READ)
    }

    /// Memory that the other end may write (`rdma_reg_write`).
    pub fn reg_write(&self, id: CmId, len: usize) -> Result<Buffer<'d, P>, RdmaError> {
        self.reg(id, len, Access::REMOTE_WRITE)
    }

    /// Posts a receive into `local` memory, a piece of a buffer ([`Buffer::slice`]; `rdma_post_recv`). `context` comes back
    /// as the completion's `wr_id`.
    pub fn post_recv(&mut self, id: CmId, context: u64, local: Sge) -> Result<(), RdmaError> {
        self.post_recvv(id, context, &[local])
    }

    /// Posts a receive into several pieces (`rdma_post_recvv`): to the id's SRQ if it has one, else to its QP.
    pub fn post_recvv(&mut self, id: CmId, context: u64, sges: &[Sge]) -> Result<(), RdmaError> {
        let slot = self.ids.slot_mut(id)?;
        if let Some(srq) = &mut slot.objects.srq {
            return Ok(srq.srq.post(context, sges)?);
        }
        let qp = slot.objects.qp.as_mut().ok_or(RdmaError::NoQp)?;
        Ok(qp.recv_queue().post(context, sges)?)
    }

    /// Sends `local` memory, a piece of a buffer ([`Buffer::slice`]; `rdma_post_send`).
    pub fn post_send(
        &mut self,
        id: CmId,
        context: u64,
        local: Sge,
        flags: SendFlags,
    ) -> Result<(), RdmaError> {
        let error = match self.batch(id) {
            Ok(mut batch) => return Ok(batch.send(context, flags, local)?),
            Err(error) => error,
        };
        Ok(self.uc_batch(id, error)?.send(context, flags, local)?)
    }

    /// Sends several pieces as one message (`rdma_post_sendv`).
    pub fn post_sendv(
        &mut self,
        id: CmId,
        context: u64,
        sges: &[Sge],
        flags: SendFlags,
    ) -> Result<(), RdmaError> {
        let error = match self.batch(id) {
            Ok(mut batch) => {
                match sges {
                    [sge] => batch.send(context, flags, *sge)?,
                    sges => batch.send(context, flags, sges)?,
                }
                return Ok(());
            }
            Err(error) => error,
        };
        Ok(self.uc_batch(id, error)?.send(context, flags, sges)?)
    }

    /// Sends bytes that are copied into the work queue (`rdma_post_send` with `IBV_SEND_INLINE`).
    pub fn post_send_inline(
        &mut self,
        id: CmId,
        context: u64,
        data: &[u8],
        flags: SendFlags,
    ) -> Result<(), RdmaError> {
        let error = match self.batch(id) {
            Ok(mut batch) => return Ok(batch.send(context, flags, Inline(data))?),
            Err(error) => error,
        };
        Ok(self
            .uc_batch(id, error)?
            .send(context, flags, Inline(data))?)
    }

    /// Reads `remote` memory of the other end into `local` memory (`rdma_post_read`), a piece of a buffer
    /// ([`Buffer::slice`]).
    pub fn post_read(
        &mut self,
        id: CmId,
        context: u64,
        local: Sge,
        flags: SendFlags,
        remote: Remote,
    ) -> Result<(), RdmaError> {
        self.post_readv(id, context, &[local], flags, remote)
    }

    /// Reads the other end's memory into several pieces (`rdma_post_readv`).
    pub fn post_readv(
        &mut self,
        id: CmId,
        context: u64,
        sges: &[Sge],
        flags: SendFlags,
        remote: Remote,
    ) -> Result<(), RdmaError> {
        Ok(self.batch(id)?.read(context, flags, remote, sges)?)
    }

    /// Writes `local` memory, a piece of a buffer ([`Buffer::slice`]), into `remote` memory of the other end
    /// (`rdma_post_write`).
    pub fn post_write(
        &mut self,
        id: CmId,
        context: u64,
        local: Sge,
        flags: SendFlags,
        remote: Remote,
    ) -> Result<(), RdmaError> {
        let error = match self.batch(id) {
            Ok(mut batch) => return Ok(batch.write(context, flags, remote, local)?),
            Err(error) => error,
        };
        Ok(self
            .uc_batch(id, error)?
            .write(context, flags, remote, local)?)
    }

    /// Writes as [`post_write`](Self::post_write) does, and takes a receive of the other end, whose completion has `imm` in
    /// it ([`Wc::imm_data`]).
    ///
    /// Not in librdmacm, where `ibv_post_send` on `id->qp` does this.
    pub fn post_write_imm(
        &mut self,
        id: CmId,
        context: u64,
        local: Sge,
        flags: SendFlags,
        remote: Remote,
        imm: u32,
    ) -> Result<(), RdmaError> {
        let error = match self.batch(id) {
            Ok(mut batch) => return Ok(batch.write_imm(context, flags, remote, imm, local)?),
            Err(error) => error,
        };
        Ok(self
            .uc_batch(id, error)?
            .write_imm(context, flags, remote, imm, local)?)
    }

    /// Writes several pieces into the other end's memory (`rdma_post_writev`).
    pub fn post_writev(
        &mut self,
        id: CmId,
        context: u64,
        sges: &[Sge],
        flags: SendFlags,
        remote: Remote,
    ) -> Result<(), RdmaError> {
        let error = match self.batch(id) {
            Ok(mut batch) => {
                match sges {
                    [sge] => batch.write(context, flags, remote, *sge)?,
                    sges => batch.write(context, flags, remote, sges)?,
                }
                return Ok(());
            }
            Err(error) => error,
        };
        Ok(self
            .uc_batch(id, error)?
            .write(context, flags, remote, sges)?)
    }

    /// Sends `local` memory, a piece of a buffer ([`Buffer::slice`]), as a datagram (`rdma_post_ud_send`) to the QP
    /// `remote_qpn` at the end of `ah`, with the Q_Key of all datagrams between ids ([`UDP_QKEY`]). The receiver's buffer has
    /// 40 bytes more in front.
    pub fn post_ud_send(
        &mut self,
        id: CmId,
        context: u64,
        local: Sge,
        flags: SendFlags,
        ah: &AddressHandle,
        remote_qpn: u32,
    ) -> Result<(), RdmaError> {
        let to = Destination {
            ah,
            remote_qpn: Qpn::from_low_bits(remote_qpn),
            remote_qkey: UDP_QKEY,
        };
        let mut batch = self.ud_endpoint(id)?.qp.send_queue().batch();
        Ok(batch.send_to(context, flags, to, local)?)
    }

    /// Where an id's work requests go. Each call writes the one that it is about, so that a program contains only those
    /// that it uses, and none has to find out at run time which one it is.
    fn batch(&mut self, id: CmId) -> Result<Batch<'_, 'd, P, Rc>, RdmaError> {
        Ok(self.endpoint(id)?.qp.send_queue().batch())
    }

    /// The same of an id for unreliable connections, for which the other one has given this error.
    fn uc_batch(&mut self, id: CmId, error: RdmaError) -> Result<Batch<'_, 'd, P, Uc>, RdmaError> {
        if !cfg!(feature = "uc") {
            return Err(error);
        }
        match self.uc_endpoint(id) {
            Ok(endpoint) => Ok(endpoint.qp.send_queue().batch()),
            Err(_) => Err(error),
        }
    }

    /// Waits for the completion of a send (`rdma_get_send_comp`) in the CQ that the manager made, driving it.
    ///
    /// # Errors
    ///
    /// [`RdmaError::Completion`] if the work request failed, where librdmacm returns the completion with its status. It is
    /// taken from the CQ all the same, and the error says which work request of which QP it is of. This is so in all calls
    /// here that take completions; [`endpoint`](Self::endpoint) has the CQ itself.
    pub fn get_send_comp(&mut self, id: CmId) -> Result<Wc, RdmaError> {
        self.wait_comp(id, Side::Send, None)
    }

    /// The same until `deadline` on the platform's clock.
    pub fn get_send_comp_until(&mut self, id: CmId, deadline: Duration) -> Result<Wc, RdmaError> {
        self.wait_comp(id, Side::Send, Some(deadline))
    }

    /// Waits for the completion of a receive (`rdma_get_recv_comp`) in the CQ that the manager made, driving it.
    pub fn get_recv_comp(&mut self, id: CmId) -> Result<Wc, RdmaError> {
        self.wait_comp(id, Side::Recv, None)
    }

    /// The same until `deadline` on the platform's clock.
    pub fn get_recv_comp_until(&mut self, id: CmId, deadline: Duration) -> Result<Wc, RdmaError> {
        self.wait_comp(id, Side::Recv, Some(deadline))
    }

    /// Takes a completion of a send if there is one. If not, and with interrupts, the next one raises an interrupt: the CQ
    /// was armed and looked at once more, so that it is safe to sleep ([`wait`](Self::wait), or in an event loop). That of a
    /// failed work request is an error, as of [`get_send_comp`](Self::get_send_comp): there may be more behind it.
    pub fn try_get_send_comp(&mut self, id: CmId) -> Result<Option<Wc>, RdmaError> {
        let arm = self.device().config().interrupts;
        self.ids.slot_mut(id)?.objects.poll_comp(Side::Send, arm)
    }

    /// The same for a receive.
    pub fn try_get_recv_comp(&mut self, id: CmId) -> Result<Option<Wc>, RdmaError> {
        let arm = self.device().config().interrupts;
        self.ids.slot_mut(id)?.objects.poll_comp(Side::Recv, arm)
    }

    fn wait_comp(
        &mut self,
        id: CmId,
        side: Side,
        deadline: Option<Duration>,
    ) -> Result<Wc, RdmaError> {
        // Usually the completion is there, or comes soon: arming costs a doorbell.
        for _ in 0..SPINS {
            if let Some(wc) = self.ids.slot_mut(id)?.objects.poll_comp(side, false)? {
                return Ok(wc);
            }
            self.device().platform().relax();
        }
        let arm = self.device().config().interrupts;
        self.block(deadline, |cm| {
            cm.ids.slot_mut(id)?.objects.poll_comp(side, arm)
        })
    }
}

/// Polls before the CQ is armed.
const SPINS: u32 = 16;
