//! Posting call by call to targets of dynamic connections: mlx5dv's `mlx5dv_wr_set_dc_addr` among the calls of
//! [`open`](crate::verbs::qp::queue::open_batch).

use crate::memory::send_ring::Wqe;
use crate::platform::Platform;
use crate::verbs::qp::queue::open_batch::OpenBatch;
use crate::verbs::qp::queue::wr::{PostError, Remote, SendFlags};
use crate::verbs::qp::route::dc::DcRoute;
use crate::verbs::qp::route::service::Dci;
use bareverbs_firmware_cmds::numbers::RKey;
use bareverbs_firmware_cmds::wqe::{
    AtomicCompareWord, AtomicSwapAddWord, Opcode, RemoteAddressWord, RemoteKeyWord,
};

/// Writes the remote address segment, which is the first one of the second block.
#[inline(always)]
fn put_remote(wqe: Wqe<'_>, remote: Remote) {
    let key = RemoteKeyWord::new(remote.rkey);
    wqe.put_behind::<64, _, _>(RemoteAddressWord(remote.addr), key);
}

impl<P: Platform> OpenBatch<'_, '_, P, Dci> {
    /// Send: `ibv_wr_send`.
    #[inline(always)]
    pub fn send(&mut self, wr_id: u64, flags: SendFlags) {
        self.begin::<64, _>(wr_id, Opcode::Send, 0, flags, |_| {});
    }

    /// Send with immediate data, in host order: `ibv_wr_send_imm`.
    #[inline(always)]
    pub fn send_imm(&mut self, wr_id: u64, flags: SendFlags, imm: u32) {
        self.begin::<64, _>(wr_id, Opcode::SendImmediate, imm, flags, |_| {});
    }

    /// Send, and invalidate a remote key of the receiver: `ibv_wr_send_inv`.
    #[inline(always)]
    pub fn send_inv(&mut self, wr_id: u64, flags: SendFlags, key: RKey) {
        self.begin::<64, _>(wr_id, Opcode::SendInvalidate, key.0, flags, |_| {});
    }

    #[inline(always)]
    fn rdma(&mut self, wr_id: u64, opcode: Opcode, imm: u32, flags: SendFlags, remote: Remote) {
        self.begin::<80, _>(wr_id, opcode, imm, flags, move |wqe| {
            put_remote(wqe, remote);
        });
    }

    /// RDMA write, into memory of the target's protection domain, as all that follows: `ibv_wr_rdma_write`.
    #[inline(always)]
    pub fn write(&mut self, wr_id: u64, flags: SendFlags, remote: Remote) {
        self.rdma(wr_id, Opcode::RdmaWrite, 0, flags, remote);
    }

    /// RDMA write with immediate data, in host order: `ibv_wr_rdma_write_imm`.
    #[inline(always)]
    pub fn write_imm(&mut self, wr_id: u64, flags: SendFlags, remote: Remote, imm: u32) {
        self.rdma(wr_id, Opcode::RdmaWriteImmediate, imm, flags, remote);
    }

    /// RDMA read, scattered to the data: `ibv_wr_rdma_read`.
    #[inline(always)]
    pub fn read(&mut self, wr_id: u64, flags: SendFlags, remote: Remote) {
        self.rdma(wr_id, Opcode::RdmaRead, 0, flags, remote);
    }

    #[inline(always)]
    fn atomic(
        &mut self,
        wr_id: u64,
        opcode: Opcode,
        flags: SendFlags,
        remote: Remote,
        (swap_or_add, compare): (u64, u64),
    ) {
        if !self.queue.atomics {
            return self.fail(PostError::NoAtomics);
        }
        self.begin::<96, _>(wr_id, opcode, 0, flags, move |wqe| {
            put_remote(wqe, remote);
            let compare = AtomicCompareWord(compare);
            wqe.put_behind::<80, _, _>(AtomicSwapAddWord(swap_or_add), compare);
        });
    }

    /// Compares 8 bytes with `compare` and, if equal, replaces them by `swap`; their old value goes to the data:
    /// `ibv_wr_atomic_cmp_swp`.
    #[inline(always)]
    pub fn compare_swap(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        remote: Remote,
        compare: u64,
        swap: u64,
    ) {
        let values = (swap, compare);
        self.atomic(wr_id, Opcode::AtomicCompareSwap, flags, remote, values);
    }

    /// Adds to 8 bytes; their old value goes to the data: `ibv_wr_atomic_fetch_add`.
    #[inline(always)]
    pub fn fetch_add(&mut self, wr_id: u64, flags: SendFlags, remote: Remote, add: u64) {
        self.atomic(wr_id, Opcode::AtomicFetchAdd, flags, remote, (add, 0));
    }

    /// Where the request at hand goes: `mlx5dv_wr_set_dc_addr`.
    #[inline(always)]
    pub fn set_dc_addr(&mut self, to: impl DcRoute) {
        if let Some(wqe) = self.take_target() {
            to.put(wqe);
        }
    }
}
