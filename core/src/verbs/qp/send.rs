//! The send queue: building WQEs in place, and ringing the doorbell.
//!
//! A WQE is a control segment, what the transport and the operation need, and data; it starts at a basic block of 64 bytes
//! and continues at the ring's start when it reaches the end. QP type, operation and kind of data are known when the code
//! is compiled, so that each posting function is a straight line.
//!
//! **Doorbell.** Once per batch: barrier, doorbell record (16 bits of the block counter), and the first eight bytes of
//! the last *complete* WQE to the UAR. A work request that fails half-way is never covered by a doorbell,
//! since neither counter moves before the WQE is whole. On platforms with write-combining doorbell pages a batch of
//! one short WQE is written there whole (`blue_flame.rs`).
//!
//! **Capacity.** Counted in work requests, as libibverbs counts: the ring is sized for `max_send_wr` of the largest.
//! The poller moves the tail in the QP's slot; this side reads it only when its own copy of it means "full".

use core::fmt;
use core::marker::PhantomData;
use core::sync::atomic::Ordering::Acquire;

use crate::device::Device;
use crate::memory::record::DoorbellRecord;
use crate::memory::send_ring::{SendRing, Wqe};
use crate::memory::slots::QpSlot;
use crate::platform::Platform;
use crate::types::sge::Sge;
use crate::verbs::qp::kind::{Connected, Datagram, QpType, Reliable};
use crate::verbs::qp::payload::{Inline, Payload};
use crate::verbs::qp::wr::{
    BadWr, Destination, PostError, Remote, SendData, SendFlags, SendOp, SendWr,
};
use bareverbs_firmware_cmds::doorbell::{self, SendRecord};
use bareverbs_firmware_cmds::numbers::RKey;
use bareverbs_firmware_cmds::wqe::{
    AtomicCompareWord, AtomicSwapAddWord, ControlFlags, ControlWord, Opcode, QKeyWord,
    RemoteAddressWord, RemoteKeyWord,
};

/// The other doorbell register: BlueFlame registers come in pairs of 256 bytes.
const DOORBELL_FLIP: u32 = doorbell::SEND_TOGGLE as u32;

/// The send half of a QP. `Send`, allocation-free, without locks, and without access to commands.
#[repr(C)]
pub struct SendQueue<'d, P: Platform, T: QpType> {
    pub(crate) ring: SendRing,
    /// Its doorbell record.
    pub(crate) record: DoorbellRecord,
    pub(crate) slot: &'d QpSlot,
    /// For its doorbells.
    pub(crate) device: &'d Device<'d, P>,
    pub(crate) doorbell: u32,
    /// The lower half of every control word: the QP number.
    pub(crate) control: u32,
    /// Next work request, running freely.
    pub(crate) head: u32,
    /// The poller's tail, as last seen.
    pub(crate) tail: u32,
    /// Work requests that it holds; 0 while the QP's state takes none.
    pub(crate) capacity: u16,
    pub(crate) max_inline: u16,
    pub(crate) max_sge: u8,
    /// What every control segment's flags contain: the completion bits, with `sq_sig_all`.
    pub(crate) always: u8,
    /// Blocks of the longest WQE that goes to the device by BlueFlame; 0 on an uncached doorbell page.
    pub(crate) blue_flame: u8,
    /// Whether atomics work as verbs promise.
    pub(crate) atomics: bool,
    pub(crate) kind: PhantomData<fn() -> T>,
}

impl<P: Platform, T: QpType> fmt::Debug for SendQueue<'_, P, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendQueue")
            .field(
                "qpn",
                &format_args!("{:#x}", ControlWord(self.control.into()).qpn()),
            )
            .field("next block", &self.ring.block)
            .field(
                "outstanding",
                &self.head.wrapping_sub(self.slot.sq_tail.load(Acquire)),
            )
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

impl<'d, P: Platform, T: QpType> SendQueue<'d, P, T> {
    /// Starts a batch: work requests that share one doorbell, rung by [`Batch::ring`] or when the batch is dropped.
    #[inline(always)]
    pub fn batch(&mut self) -> Batch<'_, 'd, P, T> {
        let (block, head) = (self.ring.block, self.head);
        let free = u32::from(self.capacity).wrapping_sub(head.wrapping_sub(self.tail));
        Batch {
            queue: self,
            block,
            head,
            free,
            last: 0,
        }
    }

    /// Posts one work request and rings the doorbell: `ibv_post_send`.
    #[inline]
    pub fn post(&mut self, wr: &SendWr<'_>) -> Result<(), PostError> {
        let mut batch = self.batch();
        batch.push(wr)?;
        batch.ring();
        Ok(())
    }

    /// Posts a list with one doorbell. On an error those before the failing one are posted.
    pub fn post_list(&mut self, wrs: &[SendWr<'_>]) -> Result<(), BadWr> {
        let mut batch = self.batch();
        for (index, wr) in wrs.iter().enumerate() {
            if let Err(error) = batch.push(wr) {
                return Err(BadWr { index, error });
            }
        }
        batch.ring();
        Ok(())
    }

    /// Work requests that can be posted now, as far as completions have been polled.
    #[must_use]
    pub fn free(&self) -> u32 {
        let outstanding = self.head.wrapping_sub(self.slot.sq_tail.load(Acquire));
        u32::from(self.capacity).saturating_sub(outstanding)
    }

    /// Work requests that it holds at most; 0 while the QP's state takes none.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.capacity.into()
    }

    /// Rings on a write-combining page for `posted` work requests, of which the first lies at block `first`: a single one
    /// that fits goes there itself. Of a list the device has to fetch all but one anyway.
    // Out of line: with it the batch would be kept in memory until it is dropped.
    #[inline(never)]
    fn ring_write_combining(&mut self, first: u32, posted: u32, last: u64) {
        let (platform, register) = (self.device.platform(), &self.device.blue_flame);
        let blocks = self.ring.block.wrapping_sub(first);
        if posted == 1
            && blocks <= self.blue_flame.into()
            && register.write(platform, &self.ring, first, blocks)
        {
            return;
        }
        platform.write_combining(self.doorbell as usize, &[last.to_be()]);
        self.doorbell ^= DOORBELL_FLIP;
    }

    /// Free entries behind `head`, now that completions may have been polled.
    #[cold]
    #[inline(never)]
    fn refresh_tail(&mut self, head: u32) -> u32 {
        self.tail = self.slot.sq_tail.load(Acquire);
        u32::from(self.capacity).saturating_sub(head.wrapping_sub(self.tail))
    }

    /// Why there is no free entry.
    #[cold]
    fn refusal(&self) -> PostError {
        match self.capacity {
            0 => PostError::WrongState,
            capacity => PostError::QueueFull {
                limit: capacity.into(),
            },
        }
    }
}

/// Writes the remote address segment.
#[inline(always)]
pub(super) fn put_remote<const AT: usize>(wqe: Wqe<'_>, remote: Remote) {
    let key = RemoteKeyWord::new(remote.rkey);
    wqe.put::<AT, _, _>(RemoteAddressWord(remote.addr), key);
}

/// Writes the atomic segment.
#[inline(always)]
pub(super) fn put_atomic<const AT: usize>(wqe: Wqe<'_>, swap_or_add: u64, compare: u64) {
    let compare = AtomicCompareWord(compare);
    wqe.put::<AT, _, _>(AtomicSwapAddWord(swap_or_add), compare);
}

/// Work requests that share one doorbell.
///
/// The methods are those of `ibv_wr_*`: one per operation, each available on the QP types that have it.
pub struct Batch<'q, 'd, P: Platform, T: QpType> {
    pub(in crate::verbs::qp) queue: &'q mut SendQueue<'d, P, T>,
    /// The queue's counters, which it gets back when the doorbell is rung.
    block: u32,
    head: u32,
    /// Work requests that can still be posted.
    free: u32,
    /// The first eight bytes of the last complete WQE, as the doorbell takes them; 0 if there is none (a WQE is never
    /// all zero there: its size is not).
    last: u64,
}

impl<P: Platform, T: QpType> Batch<'_, '_, P, T> {
    /// Writes one WQE: control segment, `FIXED - 16` bytes by `fixed`, then the data.
    #[inline(always)]
    pub(super) fn build<const FIXED: usize, D: Payload>(
        &mut self,
        wr_id: u64,
        opcode: Opcode,
        imm: u32,
        flags: SendFlags,
        data: &D,
        fixed: impl FnOnce(Wqe<'_>),
    ) -> Result<(), PostError> {
        if self.free == 0 {
            self.free = self.queue.refresh_tail(self.head);
            if self.free == 0 {
                return Err(self.queue.refusal());
            }
        }
        let queue = &*self.queue;
        data.check::<T>(queue.max_sge, queue.max_inline)?;
        // There is room for a WQE of the largest size from this block on.
        let wqe = queue.ring.wqe(self.block);
        let size = data.write::<FIXED>(wqe);
        let control = ControlWord(queue.control.into());
        let control = control.with(opcode, self.block as u16, size as u8);
        let flags = flags.control() | queue.always;
        wqe.put::<0, _, _>(control, ControlFlags::new(flags, imm));
        fixed(wqe);
        wqe.record(self.head, wr_id);
        self.head = self.head.wrapping_add(1);
        self.block = self.block.wrapping_add(size.div_ceil(4));
        self.free -= 1;
        self.last = control.0;
        Ok(())
    }

    /// Rings the doorbell for what was posted so far.
    #[inline(always)]
    pub fn ring(&mut self) {
        if self.last == 0 {
            return;
        }
        let queue = &mut *self.queue;
        let first = core::mem::replace(&mut queue.ring.block, self.block);
        let head = core::mem::replace(&mut queue.head, self.head);
        let mut record = SendRecord(0);
        record.set_counter(self.block as u16);
        queue.record.post(record);
        if P::WRITE_COMBINING && queue.blue_flame != 0 {
            queue.ring_write_combining(first, self.head.wrapping_sub(head), self.last);
        } else {
            let platform = queue.device.platform();
            platform.write_be64(queue.doorbell as usize, self.last);
            queue.doorbell ^= DOORBELL_FLIP;
        }
        self.last = 0;
    }

    /// Posts a work request that is known only at run time.
    pub fn push(&mut self, wr: &SendWr<'_>) -> Result<(), PostError> {
        match wr.data {
            SendData::Sges([sge]) => self.push_with(wr, sge),
            SendData::Sges(sges) => self.push_with(wr, &sges),
            SendData::Inline(bytes) => self.push_with(wr, &Inline(bytes)),
        }
    }

    #[inline(always)]
    fn push_with<D: Payload>(&mut self, wr: &SendWr<'_>, data: &D) -> Result<(), PostError> {
        let (id, flags) = (wr.wr_id, wr.flags);
        let inline = matches!(wr.data, SendData::Inline(_));
        match wr.op {
            // There is no SRQ number for the peer.
            _ if T::XRC => Err(PostError::Unsupported),
            SendOp::Send if T::CONNECTED => {
                self.build::<16, D>(id, Opcode::Send, 0, flags, data, |_| {})
            }
            SendOp::SendImm(imm) if T::CONNECTED => {
                self.build::<16, D>(id, Opcode::SendImmediate, imm, flags, data, |_| {})
            }
            SendOp::SendInv(key) if T::RELIABLE => {
                self.build::<16, D>(id, Opcode::SendInvalidate, key.0, flags, data, |_| {})
            }
            SendOp::SendTo(to) if !T::CONNECTED => {
                self.datagram(id, Opcode::Send, 0, flags, to, data)
            }
            SendOp::SendToImm(to, imm) if !T::CONNECTED => {
                self.datagram(id, Opcode::SendImmediate, imm, flags, to, data)
            }
            SendOp::Write(remote) if T::CONNECTED => {
                self.rdma(id, Opcode::RdmaWrite, 0, flags, remote, data)
            }
            SendOp::WriteImm(remote, imm) if T::CONNECTED => {
                self.rdma(id, Opcode::RdmaWriteImmediate, imm, flags, remote, data)
            }
            SendOp::Read(remote) if T::RELIABLE && !inline => {
                self.rdma(id, Opcode::RdmaRead, 0, flags, remote, data)
            }
            SendOp::CompareSwap {
                remote,
                compare,
                swap,
            } if T::RELIABLE && !inline => self.atomic(
                id,
                Opcode::AtomicCompareSwap,
                flags,
                remote,
                swap,
                compare,
                data,
            ),
            SendOp::FetchAdd { remote, add } if T::RELIABLE && !inline => {
                self.atomic(id, Opcode::AtomicFetchAdd, flags, remote, add, 0, data)
            }
            _ => Err(PostError::Unsupported),
        }
    }

    #[inline(always)]
    fn rdma<D: Payload>(
        &mut self,
        wr_id: u64,
        opcode: Opcode,
        imm: u32,
        flags: SendFlags,
        remote: Remote,
        data: &D,
    ) -> Result<(), PostError> {
        self.build::<32, D>(wr_id, opcode, imm, flags, data, |wqe| {
            put_remote::<16>(wqe, remote);
        })
    }

    #[inline(always)]
    #[expect(clippy::too_many_arguments)]
    fn atomic<D: Payload>(
        &mut self,
        wr_id: u64,
        opcode: Opcode,
        flags: SendFlags,
        remote: Remote,
        swap_or_add: u64,
        compare: u64,
        data: &D,
    ) -> Result<(), PostError> {
        if !self.queue.atomics {
            return Err(PostError::NoAtomics);
        }
        self.build::<48, D>(wr_id, opcode, 0, flags, data, |wqe| {
            put_remote::<16>(wqe, remote);
            put_atomic::<32>(wqe, swap_or_add, compare);
        })
    }

    #[inline(always)]
    fn datagram<D: Payload>(
        &mut self,
        wr_id: u64,
        opcode: Opcode,
        imm: u32,
        flags: SendFlags,
        to: Destination<'_>,
        data: &D,
    ) -> Result<(), PostError> {
        self.build::<64, D>(wr_id, opcode, imm, flags, data, |wqe| {
            let path = to.ah.path.to(to.remote_qpn);
            wqe.put::<16, _, _>(QKeyWord::new(to.remote_qkey), path);
            // The address vector's latter part is kept in memory order.
            wqe.put_words::<32, 4>(to.ah.rest);
        })
    }
}

impl<P: Platform, T: Connected> Batch<'_, '_, P, T> {
    /// Send.
    #[inline(always)]
    pub fn send(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        data: impl Payload,
    ) -> Result<(), PostError> {
        self.build::<16, _>(wr_id, Opcode::Send, 0, flags, &data, |_| {})
    }

    /// Send with immediate data.
    #[inline(always)]
    pub fn send_imm(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        imm: u32,
        data: impl Payload,
    ) -> Result<(), PostError> {
        self.build::<16, _>(wr_id, Opcode::SendImmediate, imm, flags, &data, |_| {})
    }

    /// RDMA write.
    #[inline(always)]
    pub fn write(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        remote: Remote,
        data: impl Payload,
    ) -> Result<(), PostError> {
        self.rdma(wr_id, Opcode::RdmaWrite, 0, flags, remote, &data)
    }

    /// RDMA write with immediate data.
    #[inline(always)]
    pub fn write_imm(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        remote: Remote,
        imm: u32,
        data: impl Payload,
    ) -> Result<(), PostError> {
        self.rdma(wr_id, Opcode::RdmaWriteImmediate, imm, flags, remote, &data)
    }
}

impl<P: Platform, T: Reliable> Batch<'_, '_, P, T> {
    /// Send, and invalidate a remote key of the receiver.
    #[inline(always)]
    pub fn send_inv(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        key: RKey,
        data: impl Payload,
    ) -> Result<(), PostError> {
        self.build::<16, _>(wr_id, Opcode::SendInvalidate, key.0, flags, &data, |_| {})
    }

    /// RDMA read, scattered to `sges`.
    #[inline(always)]
    pub fn read(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        remote: Remote,
        sges: &[Sge],
    ) -> Result<(), PostError> {
        if let [sge] = sges {
            return self.rdma(wr_id, Opcode::RdmaRead, 0, flags, remote, sge);
        }
        self.rdma(wr_id, Opcode::RdmaRead, 0, flags, remote, &sges)
    }

    /// Compares 8 bytes with `compare` and, if equal, replaces them by `swap`; their old value goes to `result`.
    #[inline(always)]
    pub fn compare_swap(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        remote: Remote,
        compare: u64,
        swap: u64,
        result: Sge,
    ) -> Result<(), PostError> {
        self.atomic(
            wr_id,
            Opcode::AtomicCompareSwap,
            flags,
            remote,
            swap,
            compare,
            &result,
        )
    }

    /// Adds to 8 bytes; their old value goes to `result`.
    #[inline(always)]
    pub fn fetch_add(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        remote: Remote,
        add: u64,
        result: Sge,
    ) -> Result<(), PostError> {
        self.atomic(
            wr_id,
            Opcode::AtomicFetchAdd,
            flags,
            remote,
            add,
            0,
            &result,
        )
    }
}

impl<P: Platform, T: Datagram> Batch<'_, '_, P, T> {
    /// Send a datagram.
    #[inline(always)]
    pub fn send_to(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        to: Destination<'_>,
        data: impl Payload,
    ) -> Result<(), PostError> {
        self.datagram(wr_id, Opcode::Send, 0, flags, to, &data)
    }

    /// Send a datagram with immediate data.
    #[inline(always)]
    pub fn send_to_imm(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        to: Destination<'_>,
        imm: u32,
        data: impl Payload,
    ) -> Result<(), PostError> {
        self.datagram(wr_id, Opcode::SendImmediate, imm, flags, to, &data)
    }
}

impl<P: Platform, T: QpType> Drop for Batch<'_, '_, P, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.ring();
    }
}
