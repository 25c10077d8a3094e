//! Work requests of an initiator of dynamic connections: each names the target that it is for, in an address vector behind
//! the control segment.

use crate::memory::send_ring::Wqe;
use crate::platform::Platform;
use crate::types::ah::AddressHandle;
use crate::types::qp::QpState;
use crate::types::sge::Sge;
use crate::verbs::qp::control::attr::QpAttr;
use crate::verbs::qp::control::modify::ModifyError;
use crate::verbs::qp::control::qp::Qp;
use crate::verbs::qp::control::states::QpAttrMask;
use crate::verbs::qp::queue::payload::{Inline, Payload};
use crate::verbs::qp::queue::send::{Batch, SendQueue};
use crate::verbs::qp::queue::wr::{PostError, Remote, SendData, SendFlags, SendOp, SendWr};
use crate::verbs::qp::route::service::Dci;
use bareverbs_firmware_cmds::numbers::{Qpn, RKey};
use bareverbs_firmware_cmds::word::Word;
use bareverbs_firmware_cmds::wqe::{
    AtomicCompareWord, AtomicSwapAddWord, DcKeyWord, Opcode, RemoteAddressWord, RemoteKeyWord,
};

/// Where a work request of an initiator goes: what `mlx5dv_wr_set_dc_addr` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DcTarget<'a> {
    /// The path.
    pub ah: &'a AddressHandle,
    /// The target's number, [`Dct::dctn`](crate::Dct::dctn).
    pub dctn: Qpn,
    /// Its access key.
    pub access_key: u64,
}

impl DcTarget<'_> {
    /// In the form in which work requests carry it, for a target that many go to.
    #[must_use]
    #[inline]
    pub fn prepare(&self) -> DcAddress {
        let [mac, grh, high, low] = self.ah.rest;
        let key = DcKeyWord(self.access_key).to_memory();
        let path = self.ah.path.to(self.dctn).to_memory();
        DcAddress([key, path, mac, grh, high, low])
    }
}

/// A [`DcTarget`] as work requests carry it: the whole address vector (`struct mlx5_wqe_av`), as it lies in memory. A plain
/// value: nothing in the device stands behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DcAddress([u64; 6]);

/// Destination of an initiator's work request: a [`DcTarget`], or a [`DcAddress`] that was made of one.
pub trait DcRoute: Copy {
    /// Writes the address vector.
    #[doc(hidden)]
    fn put(self, wqe: Wqe<'_>);
}

impl DcRoute for DcTarget<'_> {
    #[inline(always)]
    fn put(self, wqe: Wqe<'_>) {
        wqe.put::<16, _, _>(DcKeyWord(self.access_key), self.ah.path.to(self.dctn));
        // The address vector's latter part is kept in memory order.
        wqe.put_words::<32, 4>(self.ah.rest);
    }
}

impl DcRoute for &DcAddress {
    #[inline(always)]
    fn put(self, wqe: Wqe<'_>) {
        wqe.put_words::<16, 6>(self.0);
    }
}

#[inline(always)]
fn put_remote(wqe: Wqe<'_>, remote: Remote) {
    let key = RemoteKeyWord::new(remote.rkey);
    wqe.put_behind::<64, _, _>(RemoteAddressWord(remote.addr), key);
}

impl<P: Platform> Qp<'_, P, Dci> {
    /// Moves a new initiator to RTS, as `ibv_modify_qp` does in three steps. It has no peer; what counts of `attr` are port,
    /// P_Key index, path MTU, timeout, retries, the first PSN, how many READs and atomics may be outstanding, and of
    /// [`ah_attr`](QpAttr::ah_attr) the GID table entry and the service level and traffic class: the device schedules what the
    /// initiator sends by these, whatever the address handles of its work requests say.
    pub fn activate(&mut self, attr: &QpAttr) -> Result<(), ModifyError> {
        let steps = [
            (QpState::Init, QpAttrMask::PKEY_INDEX | QpAttrMask::PORT),
            (QpState::Rtr, QpAttrMask::PATH_MTU | QpAttrMask::AV),
            (
                QpState::Rts,
                QpAttrMask::TIMEOUT
                    | QpAttrMask::RETRY_CNT
                    | QpAttrMask::RNR_RETRY
                    | QpAttrMask::SQ_PSN
                    | QpAttrMask::MAX_QP_RD_ATOMIC,
            ),
        ];
        for (qp_state, mask) in steps {
            let attr = QpAttr { qp_state, ..*attr };
            self.modify(&attr, mask | QpAttrMask::STATE)?;
        }
        Ok(())
    }
}

impl<P: Platform> SendQueue<'_, P, Dci> {
    /// Posts one work request for a target and rings the doorbell: `ibv_wr_start` to `ibv_wr_complete` with
    /// `mlx5dv_wr_set_dc_addr`.
    pub fn post_dc(&mut self, to: impl DcRoute, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.batch().push_dc(to, wr)
    }
}

impl<P: Platform> Batch<'_, '_, P, Dci> {
    /// Posts a work request that is known only at run time.
    pub fn push_dc(&mut self, to: impl DcRoute, wr: &SendWr<'_>) -> Result<(), PostError> {
        match wr.data {
            SendData::Sges(sges) => self.push_dc_with(to, wr, &sges),
            SendData::Inline(bytes) => self.push_dc_with(to, wr, &Inline(bytes)),
        }
    }

    fn push_dc_with<D: Payload>(
        &mut self,
        to: impl DcRoute,
        wr: &SendWr<'_>,
        data: &D,
    ) -> Result<(), PostError> {
        let (id, flags) = (wr.wr_id, wr.flags);
        let inline = matches!(wr.data, SendData::Inline(_));
        match wr.op {
            SendOp::Send => self.dc(id, Opcode::Send, 0, flags, to, data),
            SendOp::SendImm(imm) => self.dc(id, Opcode::SendImmediate, imm, flags, to, data),
            SendOp::SendInv(key) => self.dc(id, Opcode::SendInvalidate, key.0, flags, to, data),
            SendOp::Write(remote) => {
                self.dc_rdma(id, Opcode::RdmaWrite, 0, flags, (to, remote), data)
            }
            SendOp::WriteImm(remote, imm) => {
                let opcode = Opcode::RdmaWriteImmediate;
                self.dc_rdma(id, opcode, imm, flags, (to, remote), data)
            }
            SendOp::Read(remote) if !inline => {
                self.dc_rdma(id, Opcode::RdmaRead, 0, flags, (to, remote), data)
            }
            SendOp::CompareSwap {
                remote,
                compare,
                swap,
            } if !inline => {
                let opcode = Opcode::AtomicCompareSwap;
                self.dc_atomic(id, opcode, flags, (to, remote), (swap, compare), data)
            }
            SendOp::FetchAdd { remote, add } if !inline => {
                let opcode = Opcode::AtomicFetchAdd;
                self.dc_atomic(id, opcode, flags, (to, remote), (add, 0), data)
            }
            _ => Err(PostError::Unsupported),
        }
    }

    #[inline(always)]
    fn dc<D: Payload>(
        &mut self,
        wr_id: u64,
        opcode: Opcode,
        imm: u32,
        flags: SendFlags,
        to: impl DcRoute,
        data: &D,
    ) -> Result<(), PostError> {
        self.build::<64, D>(wr_id, opcode, imm, flags, data, move |wqe| to.put(wqe))
    }

    #[inline(always)]
    fn dc_rdma<D: Payload>(
        &mut self,
        wr_id: u64,
        opcode: Opcode,
        imm: u32,
        flags: SendFlags,
        (to, remote): (impl DcRoute, Remote),
        data: &D,
    ) -> Result<(), PostError> {
        self.build::<80, D>(wr_id, opcode, imm, flags, data, move |wqe| {
            to.put(wqe);
            put_remote(wqe, remote);
        })
    }

    #[inline(always)]
    fn dc_atomic<D: Payload>(
        &mut self,
        wr_id: u64,
        opcode: Opcode,
        flags: SendFlags,
        (to, remote): (impl DcRoute, Remote),
        (swap_or_add, compare): (u64, u64),
        data: &D,
    ) -> Result<(), PostError> {
        if !self.queue.atomics {
            return Err(PostError::NoAtomics);
        }
        self.build::<96, D>(wr_id, opcode, 0, flags, data, move |wqe| {
            to.put(wqe);
            put_remote(wqe, remote);
            let compare = AtomicCompareWord(compare);
            wqe.put_behind::<80, _, _>(AtomicSwapAddWord(swap_or_add), compare);
        })
    }

    /// Send.
    #[inline(always)]
    pub fn send(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        to: impl DcRoute,
        data: impl Payload,
    ) -> Result<(), PostError> {
        self.dc(wr_id, Opcode::Send, 0, flags, to, &data)
    }

    /// Send with immediate data.
    #[inline(always)]
    pub fn send_imm(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        to: impl DcRoute,
        imm: u32,
        data: impl Payload,
    ) -> Result<(), PostError> {
        self.dc(wr_id, Opcode::SendImmediate, imm, flags, to, &data)
    }

    /// Send, and invalidate a remote key of the receiver.
    #[inline(always)]
    pub fn send_inv(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        to: impl DcRoute,
        key: RKey,
        data: impl Payload,
    ) -> Result<(), PostError> {
        self.dc(wr_id, Opcode::SendInvalidate, key.0, flags, to, &data)
    }

    /// RDMA write, into memory of the target's protection domain, as all that follows.
    #[inline(always)]
    pub fn write(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        to: impl DcRoute,
        remote: Remote,
        data: impl Payload,
    ) -> Result<(), PostError> {
        self.dc_rdma(wr_id, Opcode::RdmaWrite, 0, flags, (to, remote), &data)
    }

    /// RDMA write with immediate data.
    #[inline(always)]
    pub fn write_imm(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        to: impl DcRoute,
        remote: Remote,
        imm: u32,
        data: impl Payload,
    ) -> Result<(), PostError> {
        let opcode = Opcode::RdmaWriteImmediate;
        self.dc_rdma(wr_id, opcode, imm, flags, (to, remote), &data)
    }

    /// RDMA read, scattered to `sges`.
    #[inline(always)]
    pub fn read(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        to: impl DcRoute,
        remote: Remote,
        sges: &[Sge],
    ) -> Result<(), PostError> {
        self.dc_rdma(wr_id, Opcode::RdmaRead, 0, flags, (to, remote), &sges)
    }
}
