//! The send queue: building WQEs in place, and ringing the doorbell.
//!
//! A WQE is a control segment, what the transport and the operation need, and data; it starts at a basic block of 64 bytes
//! and continues at the ring's start when it reaches the end. QP type, operation and kind of data are known when the code
//! is compiled, so that each posting function is a straight line.
//!
//! **Doorbell.** Once per batch: barrier, doorbell record (16 bits of the block counter), and the first eight bytes of
//! the last *complete* WQE to the UAR. A work request that fails half-way is never covered by a doorbell,
//! since neither counter moves before the WQE is whole. On platforms with write-combining doorbell pages a batch of
//! one short WQE is written there whole (`blue_flame.rs`). There the register's two buffers alternate; 8-byte doorbells on an
//! uncached page all go to one place, as in Linux's `mlx5e_notify_hw`.
//!
//! **Capacity.** Counted in work requests, as libibverbs counts: the ring is sized for `max_send_wr` of the largest.
//! The poller moves the tail in the QP's slot; this side reads it only at its own limit.
//!
//! **Two ways.** A work request is posted without a call and without a saved register, unless the limit is reached or
//! its data is unusual (no bytes, many inline, too many). Then a call does all that is left, also the doorbell if it is
//! the first of a batch: a call that comes back to the usual way would make it save its registers, for every work request.
//! So a batch that begins like that has two doorbells. (`unusual.rs`)

use core::fmt;
use core::marker::PhantomData;
use core::sync::atomic::Ordering::Acquire;

use crate::device::Device;
use crate::memory::record::DoorbellRecord;
use crate::memory::send_ring::{Cursor, SendRing, Wqe};
use crate::memory::slots::QpSlot;
use crate::platform::Platform;
use crate::types::sge::Sge;
use crate::verbs::qp::queue::payload::{Inline, Payload, put_atomic, put_remote};
use crate::verbs::qp::queue::slow_path_arguments::Late;
use crate::verbs::qp::queue::wr::{
    BadWr, Destination, PostError, Remote, SendData, SendFlags, SendOp, SendWr,
};
use crate::verbs::qp::route::raw_packet::Packets;
use crate::verbs::qp::route::service::{Connected, Datagram, QpType, Reliable};
use bareverbs_firmware_cmds::numbers::{Qpn, RKey};
use bareverbs_firmware_cmds::word::Word;
use bareverbs_firmware_cmds::wqe::{ControlFlags, Opcode, QKeyWord};

/// The send half of a QP. `Send`, allocation-free, without locks, and without access to commands.
#[repr(C)]
pub struct SendQueue<'d, P: Platform, T: QpType> {
    pub(crate) ring: SendRing,
    /// Its doorbell record.
    pub(crate) record: DoorbellRecord,
    pub(crate) slot: &'d QpSlot,
    /// For its doorbells.
    pub(crate) device: &'d Device<'d, P>,
    /// Where the next WQE starts.
    pub(crate) cursor: Cursor,
    /// The bits of every control segment's second word, as it lies in memory: the completion bits, with `sq_sig_all`.
    pub(crate) always: u64,
    /// Largest inline payload on the fast path.
    pub(crate) short_inline: usize,
    pub(crate) doorbell: u32,
    /// Next work request, running freely.
    pub(crate) head: u32,
    /// The first one for which there is no space, as far as the poller's tail was seen.
    pub(crate) limit: u32,
    /// Work requests that it holds; 0 while the QP's state takes none.
    pub(crate) capacity: u16,
    pub(crate) max_inline: u16,
    /// Bytes of the longest WQE that goes to the device by BlueFlame; 0 on an uncached doorbell page.
    pub(crate) blue_flame: u32,
    pub(crate) max_sge: u8,
    /// `true` if atomics work as verbs promise.
    pub(crate) atomics: bool,
    /// Arguments of [`post_late`](Self::post_late).
    pub(crate) late: Late,
    /// Requirements of frames.
    pub(crate) packets: Packets,
    pub(crate) kind: PhantomData<fn() -> T>,
}

impl<P: Platform, T: QpType> fmt::Debug for SendQueue<'_, P, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendQueue")
            .field("qpn", &format_args!("{:#x}", self.cursor.qpn()))
            .field("next block", &self.cursor.block())
            .field(
                "outstanding",
                &self.head.wrapping_sub(self.slot.sq_tail.load(Acquire)),
            )
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

impl<'d, P: Platform, T: QpType> SendQueue<'d, P, T> {
    /// Starts a batch: work requests that share one doorbell, rung by [`Batch::ring`] or when the batch is dropped. (The
    /// first one has a doorbell of its own where the queue has to look for space, once in as many work requests as it
    /// holds, and where it carries no bytes, or many inline.)
    #[inline(always)]
    pub fn batch(&mut self) -> Batch<'_, 'd, P, T> {
        Batch {
            cursor: if T::DYNAMIC {
                Cursor::NONE
            } else {
                self.cursor
            },
            head: self.head,
            from: self.head,
            queue: self,
            last: 0,
            first: true,
        }
    }

    /// Posts one work request and rings the doorbell: `ibv_post_send`.
    #[inline]
    pub fn post(&mut self, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.batch().push_inlined(wr)
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

    /// The WQE that starts here; of an initiator only if its second block lies before the ring's end.
    #[inline(always)]
    fn wqe(&self, cursor: Cursor) -> Option<Wqe<'_>> {
        if T::DYNAMIC {
            self.ring.wqe_of_two(cursor)
        } else {
            Some(self.ring.wqe(cursor))
        }
    }

    /// Writes one WQE: control segment, `FIXED - 16` bytes by `fixed`, then the data. Who calls this for what is usual of an
    /// initiator ([`QpType::DYNAMIC`]) has recorded the identifier.
    #[inline(always)]
    pub(in crate::verbs::qp) fn write<const FIXED: usize, const USUAL: bool, D: Payload>(
        &self,
        wqe: Wqe<'_>,
        (cursor, head): (Cursor, u32),
        request: &Request,
        data: D,
        fixed: impl FnOnce(Wqe<'_>),
    ) -> (Cursor, u64) {
        let wqe = match T::DYNAMIC {
            true => wqe,
            // The same; one instruction less of datagrams.
            false => self.ring.wqe(cursor),
        };
        // An order that takes few registers: what is short or prepared first, an address vector that is put together last.
        let long = if FIXED < 64 || T::DYNAMIC {
            fixed(wqe);
            None
        } else {
            Some(fixed)
        };
        let size = if USUAL {
            data.write_usual::<FIXED>(wqe)
        } else {
            data.write::<FIXED>(wqe)
        };
        // Both parts in the order of memory, where most of them are constants.
        let flags = request.flags.control() | self.always;
        let imm = ControlFlags::new(0, request.imm).to_memory();
        wqe.put_word(ControlFlags::from_memory(flags | imm));
        let control = cursor.control(request.opcode, size);
        wqe.put_word(control);
        if let Some(fixed) = long {
            fixed(wqe);
        }
        if T::DYNAMIC && USUAL {
            wqe.record_head(head);
        } else {
            wqe.record(head, request.wr_id);
        }
        (cursor.behind_segments(size), control.to_memory())
    }

    /// Opens the queue for so many work requests, or closes it.
    pub(crate) fn set_capacity(&mut self, capacity: u16) {
        self.capacity = capacity;
        self.limit = match capacity {
            0 => self.head,
            _ => self
                .slot
                .sq_tail
                .load(Acquire)
                .wrapping_add(capacity.into()),
        };
    }

    /// Looks how far the poller is, if there was no room for this work request when that was last seen.
    pub(in crate::verbs::qp) fn find_room(&mut self, head: u32) -> Result<(), PostError> {
        if head == self.limit {
            let tail = self.slot.sq_tail.load(Acquire);
            let capacity = self.capacity.into();
            let limit = tail.wrapping_add(capacity);
            if capacity == 0 {
                return Err(PostError::WrongState);
            } else if head == limit {
                return Err(PostError::QueueFull { limit: capacity });
            }
            self.limit = limit;
        }
        Ok(())
    }
}

/// Work requests that share one doorbell.
///
/// The methods are those of `ibv_wr_*`: one per operation, each available on the QP types that have it.
pub struct Batch<'q, 'd, P: Platform, T: QpType> {
    pub(in crate::verbs::qp) queue: &'q mut SendQueue<'d, P, T>,
    /// The queue's, which it gets back when the doorbell is rung.
    pub(in crate::verbs::qp) cursor: Cursor,
    pub(in crate::verbs::qp) head: u32,
    /// The first word of the last complete WQE, as it lies in memory; 0 if there is none (a WQE is never all zero there: its
    /// size is not).
    pub(in crate::verbs::qp) last: u64,
    /// `true` if the next work request is the first one.
    pub(in crate::verbs::qp) first: bool,
    /// The first one that the next doorbell is for: the queue's, in a copy that the compiler need not read again.
    pub(in crate::verbs::qp) from: u32,
}

/// Values for the control segment and the records of a work request.
#[derive(Debug, Clone, Copy)]
pub(in crate::verbs::qp) struct Request {
    pub(in crate::verbs::qp) wr_id: u64,
    pub(in crate::verbs::qp) opcode: u8,
    pub(in crate::verbs::qp) imm: u32,
    pub(in crate::verbs::qp) flags: SendFlags,
}

impl<P: Platform, T: QpType> Batch<'_, '_, P, T> {
    /// Writes one WQE: control segment, `FIXED - 16` bytes by `fixed`, then the data.
    #[inline(always)]
    pub(in crate::verbs::qp) fn build<const FIXED: usize, D: Payload>(
        &mut self,
        wr_id: u64,
        opcode: Opcode,
        imm: u32,
        flags: SendFlags,
        data: &D,
        fixed: impl FnOnce(Wqe<'_>),
    ) -> Result<(), PostError> {
        let data = *data;
        let request = Request {
            wr_id,
            opcode: opcode as u8,
            imm,
            flags,
        };
        let is_full = self.head == self.queue.limit;
        if T::DYNAMIC {
            // Before the address needs all registers.
            if is_full {
                self.read_cursor();
                return self.build_late::<FIXED, D>(&request, data, fixed);
            }
            // The poller does not read it until the work request is posted.
            self.queue.ring.record_id(self.head, wr_id);
            // For the same reason.
            self.read_cursor();
        }
        let (max_sge, short_inline) = (self.queue.max_sge, self.queue.short_inline);
        let Some(wqe) = self.queue.wqe(self.cursor) else {
            return self.build_late::<FIXED, D>(&request, data, fixed);
        };
        if is_full || !data.is_usual::<T, FIXED>(max_sge, short_inline, wqe) {
            return self.build_late::<FIXED, D>(&request, data, fixed);
        }
        let at = (self.cursor, self.head);
        let written = self
            .queue
            .write::<FIXED, true, D>(wqe, at, &request, data, fixed);
        (self.cursor, self.last) = written;
        self.head = self.head.wrapping_add(1);
        self.first = false;
        Ok(())
    }

    /// Reads the queue's cursor for the first request of an initiator's batch.
    #[inline(always)]
    fn read_cursor(&mut self) {
        if self.first {
            self.cursor = self.queue.cursor;
        }
    }

    /// Returns `true` if a request with `AT` bytes before this data is posted without a call.
    #[inline(always)]
    pub fn is_usual<const AT: usize>(&self, data: impl Payload) -> bool {
        let queue = &*self.queue;
        let cursor = match T::DYNAMIC && self.first {
            true => queue.cursor,
            false => self.cursor,
        };
        let usual = |wqe| data.is_usual::<T, AT>(queue.max_sge, queue.short_inline, wqe);
        self.head != queue.limit && queue.wqe(cursor).is_some_and(usual)
    }

    /// Rings the doorbell for what was posted so far.
    #[inline(always)]
    pub fn ring(&mut self) {
        if self.last != 0 {
            let single = self.head.wrapping_sub(self.from) == 1;
            self.queue
                .ring_for(self.cursor, self.head, self.last, single);
            self.last = 0;
            self.from = self.head;
        }
    }

    /// Posts a work request that is known only at run time.
    pub fn push(&mut self, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.push_inlined(wr)
    }

    #[inline(always)]
    fn push_inlined(&mut self, wr: &SendWr<'_>) -> Result<(), PostError> {
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
            // There is no SRQ number for the peer, or no target.
            _ if T::XRC || T::DYNAMIC => Err(PostError::Unsupported),
            SendOp::Send if T::PACKET => self.packet(id, flags, data),
            SendOp::Send if T::CONNECTED => {
                self.build::<16, D>(id, Opcode::Send, 0, flags, data, |_| {})
            }
            SendOp::SendImm(imm) if T::CONNECTED => {
                self.build::<16, D>(id, Opcode::SendImmediate, imm, flags, data, |_| {})
            }
            SendOp::SendInv(key) if T::RELIABLE => {
                self.build::<16, D>(id, Opcode::SendInvalidate, key.0, flags, data, |_| {})
            }
            SendOp::SendTo(to) if !T::CONNECTED && !T::PACKET => {
                self.datagram(id, Opcode::Send, 0, flags, to, data)
            }
            SendOp::SendToImm(to, imm) if !T::CONNECTED && !T::PACKET => {
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
        self.build::<32, D>(wr_id, opcode, imm, flags, data, move |wqe| {
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
        self.build::<48, D>(wr_id, opcode, 0, flags, data, move |wqe| {
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
        // Two words, to be passed in registers.
        let (ah, qp) = (
            to.ah,
            u64::from(to.remote_qpn.number()) << 32 | u64::from(to.remote_qkey),
        );
        self.build::<64, D>(wr_id, opcode, imm, flags, data, move |wqe| {
            let path = ah.path.to(Qpn::from_low_bits((qp >> 32) as u32));
            wqe.put::<16, _, _>(QKeyWord::new(qp as u32), path);
            // The address vector's latter part is kept in memory order.
            wqe.put_words::<32, 4>(ah.rest);
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
