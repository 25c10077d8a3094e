//! Work requests of an XRC initiator: each names the SRQ that it is for, in a segment behind the control segment.

use crate::memory::send_ring::Wqe;
use crate::platform::Platform;
use crate::types::sge::Sge;
use crate::verbs::qp::queue::payload::{Inline, Payload, put_atomic, put_remote};
use crate::verbs::qp::queue::send::{Batch, SendQueue};
use crate::verbs::qp::queue::wr::{PostError, Remote, SendData, SendFlags, SendOp, SendWr};
use crate::verbs::qp::route::service::XrcSend;
use bareverbs_firmware_cmds::numbers::{RKey, Srqn};
use bareverbs_firmware_cmds::wqe::{Opcode, XrcReservedWord, XrcWord};

/// Writes the segment that names the SRQ: the second one.
#[inline(always)]
pub(in crate::verbs::qp) fn put_srqn(wqe: Wqe<'_>, srqn: Srqn) {
    wqe.put::<16, _, _>(XrcWord::new(srqn), XrcReservedWord(0));
}

impl<P: Platform> SendQueue<'_, P, XrcSend> {
    /// Posts one work request for an SRQ of the target's domain and rings the doorbell: `ibv_post_send` with
    /// `qp_type.xrc.remote_srqn`.
    pub fn post_xrc(&mut self, remote_srqn: Srqn, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.batch().push_xrc(remote_srqn, wr)
    }
}

impl<P: Platform> Batch<'_, '_, P, XrcSend> {
    /// Posts a work request that is known only at run time, for an SRQ of the target's domain.
    pub fn push_xrc(&mut self, remote_srqn: Srqn, wr: &SendWr<'_>) -> Result<(), PostError> {
        match wr.data {
            SendData::Sges(sges) => self.push_xrc_with(remote_srqn, wr, &sges),
            SendData::Inline(bytes) => self.push_xrc_with(remote_srqn, wr, &Inline(bytes)),
        }
    }

    fn push_xrc_with<D: Payload>(
        &mut self,
        srqn: Srqn,
        wr: &SendWr<'_>,
        data: &D,
    ) -> Result<(), PostError> {
        let (id, flags) = (wr.wr_id, wr.flags);
        let inline = matches!(wr.data, SendData::Inline(_));
        match wr.op {
            SendOp::Send => self.xrc(id, Opcode::Send, 0, flags, srqn, data),
            SendOp::SendImm(imm) => self.xrc(id, Opcode::SendImmediate, imm, flags, srqn, data),
            SendOp::SendInv(key) => self.xrc(id, Opcode::SendInvalidate, key.0, flags, srqn, data),
            SendOp::Write(remote) => {
                self.xrc_rdma(id, Opcode::RdmaWrite, 0, flags, (srqn, remote), data)
            }
            SendOp::WriteImm(remote, imm) => self.xrc_rdma(
                id,
                Opcode::RdmaWriteImmediate,
                imm,
                flags,
                (srqn, remote),
                data,
            ),
            SendOp::Read(remote) if !inline => {
                self.xrc_rdma(id, Opcode::RdmaRead, 0, flags, (srqn, remote), data)
            }
            SendOp::CompareSwap {
                remote,
                compare,
                swap,
            } if !inline => {
                let operands = (swap, compare);
                self.xrc_atomic(
                    id,
                    Opcode::AtomicCompareSwap,
                    flags,
                    (srqn, remote),
                    operands,
                    data,
                )
            }
            SendOp::FetchAdd { remote, add } if !inline => self.xrc_atomic(
                id,
                Opcode::AtomicFetchAdd,
                flags,
                (srqn, remote),
                (add, 0),
                data,
            ),
            _ => Err(PostError::Unsupported),
        }
    }

    #[inline(always)]
    fn xrc<D: Payload>(
        &mut self,
        wr_id: u64,
        opcode: Opcode,
        imm: u32,
        flags: SendFlags,
        srqn: Srqn,
        data: &D,
    ) -> Result<(), PostError> {
        self.build::<32, D>(wr_id, opcode, imm, flags, data, move |wqe| {
            put_srqn(wqe, srqn);
        })
    }

    #[inline(always)]
    fn xrc_rdma<D: Payload>(
        &mut self,
        wr_id: u64,
        opcode: Opcode,
        imm: u32,
        flags: SendFlags,
        (srqn, remote): (Srqn, Remote),
        data: &D,
    ) -> Result<(), PostError> {
        self.build::<48, D>(wr_id, opcode, imm, flags, data, move |wqe| {
            put_srqn(wqe, srqn);
            put_remote::<32>(wqe, remote);
        })
    }

    #[inline(always)]
    fn xrc_atomic<D: Payload>(
        &mut self,
        wr_id: u64,
        opcode: Opcode,
        flags: SendFlags,
        (srqn, remote): (Srqn, Remote),
        (swap_or_add, compare): (u64, u64),
        data: &D,
    ) -> Result<(), PostError> {
        if !self.queue.atomics {
            return Err(PostError::NoAtomics);
        }
        self.build::<64, D>(wr_id, opcode, 0, flags, data, move |wqe| {
            put_srqn(wqe, srqn);
            put_remote::<32>(wqe, remote);
            put_atomic::<48>(wqe, swap_or_add, compare);
        })
    }

    /// Send.
    #[inline(always)]
    pub fn send(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        srqn: Srqn,
        data: impl Payload,
    ) -> Result<(), PostError> {
        self.xrc(wr_id, Opcode::Send, 0, flags, srqn, &data)
    }

    /// Send with immediate data.
    #[inline(always)]
    pub fn send_imm(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        srqn: Srqn,
        imm: u32,
        data: impl Payload,
    ) -> Result<(), PostError> {
        self.xrc(wr_id, Opcode::SendImmediate, imm, flags, srqn, &data)
    }

    /// Send, and invalidate a remote key of the receiver.
    #[inline(always)]
    pub fn send_inv(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        srqn: Srqn,
        key: RKey,
        data: impl Payload,
    ) -> Result<(), PostError> {
        self.xrc(wr_id, Opcode::SendInvalidate, key.0, flags, srqn, &data)
    }

    /// RDMA write, into memory of the SRQ's protection domain, as all that follows.
    #[inline(always)]
    pub fn write(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        srqn: Srqn,
        remote: Remote,
        data: impl Payload,
    ) -> Result<(), PostError> {
        self.xrc_rdma(wr_id, Opcode::RdmaWrite, 0, flags, (srqn, remote), &data)
    }

    /// RDMA write with immediate data.
    #[inline(always)]
    pub fn write_imm(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        srqn: Srqn,
        remote: Remote,
        imm: u32,
        data: impl Payload,
    ) -> Result<(), PostError> {
        self.xrc_rdma(
            wr_id,
            Opcode::RdmaWriteImmediate,
            imm,
            flags,
            (srqn, remote),
            &data,
        )
    }

    /// RDMA read, scattered to `sges`.
    #[inline(always)]
    pub fn read(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        srqn: Srqn,
        remote: Remote,
        sges: &[Sge],
    ) -> Result<(), PostError> {
        self.xrc_rdma(wr_id, Opcode::RdmaRead, 0, flags, (srqn, remote), &sges)
    }

    /// Compares 8 bytes with `compare` and, if equal, replaces them by `swap`; their old value goes to `result`.
    #[inline(always)]
    #[expect(clippy::too_many_arguments)]
    pub fn compare_swap(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        srqn: Srqn,
        remote: Remote,
        compare: u64,
        swap: u64,
        result: Sge,
    ) -> Result<(), PostError> {
        let operands = (swap, compare);
        self.xrc_atomic(
            wr_id,
            Opcode::AtomicCompareSwap,
            flags,
            (srqn, remote),
            operands,
            &result,
        )
    }

    /// Adds to 8 bytes; their old value goes to `result`.
    #[inline(always)]
    pub fn fetch_add(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        srqn: Srqn,
        remote: Remote,
        add: u64,
        result: Sge,
    ) -> Result<(), PostError> {
        self.xrc_atomic(
            wr_id,
            Opcode::AtomicFetchAdd,
            flags,
            (srqn, remote),
            (add, 0),
            &result,
        )
    }
}
