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
//! So a batch that begins like that has two doorbells. (`slow_path.rs`)

use core::fmt;
use core::marker::PhantomData;
use core::sync::atomic::Ordering::Acquire;

use crate::device::Device;
use crate::memory::record::DoorbellRecord;
use crate::memory::send_ring::{Cursor, SendRing, Wqe};
use crate::memory::slots::QpSlot;
use crate::platform::Platform;
use crate::types::sge::Sge;
use crate::verbs::qp::queue::payload::{Inline, Payload};
use crate::verbs::qp::queue::slow_path_arguments::Late;
use crate::verbs::qp::queue::wr::{
    BadWr, Destination, PostError, Remote, SendData, SendFlags, SendOp, SendWr,
};
use crate::verbs::qp::route::raw_packet::{EthernetSegment, Packets};
use crate::verbs::qp::route::segments::{
    Atomic, COMPARE_SWAP, FETCH_ADD, Message, READ, Rdma, Route, RouteOf, SEND, SEND_IMM, SEND_INV,
    Segments, WRITE, WRITE_IMM,
};
use crate::verbs::qp::route::service::{Connected, Datagram, QpType, Reliable};
use bareverbs_firmware_cmds::numbers::RKey;
use bareverbs_firmware_cmds::word::Word;
use bareverbs_firmware_cmds::wqe::{BASIC_BLOCK, ControlFlags, SEGMENT_UNIT};

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
        self.batch().push_by((), wr)
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

    /// Writes one WQE: control segment, the segments before the data, then the data. Callers with the usual data of an
    /// initiator ([`QpType::DYNAMIC`]) have recorded the identifier.
    #[inline(always)]
    pub(in crate::verbs::qp) fn write<const USUAL: bool, D: Payload, S: Segments>(
        &self,
        wqe: Wqe<'_>,
        (cursor, head): (Cursor, u32),
        request: &Request,
        data: D,
        segments: S,
    ) -> (Cursor, u64) {
        const { assert!(S::SIZE.is_multiple_of(SEGMENT_UNIT) && S::SIZE < 2 * BASIC_BLOCK) };
        let wqe = match T::DYNAMIC {
            true => wqe,
            // The same; one instruction less of datagrams.
            false => self.ring.wqe(cursor),
        };
        // An order that takes few registers: what is short or prepared first, an address vector that is put together last.
        let long = if S::SIZE < BASIC_BLOCK || T::DYNAMIC {
            segments.put(wqe);
            None
        } else {
            Some(segments)
        };
        let size = if USUAL {
            data.write_usual(S::SIZE, wqe)
        } else {
            data.write(S::SIZE, wqe)
        };
        // Both parts in the order of memory, where most of them are constants.
        let flags = request.flags.control() | self.always;
        let imm = ControlFlags::new(0, request.imm).to_memory();
        wqe.put_word(ControlFlags::from_memory(flags | imm));
        let control = cursor.control(S::OPCODE, size);
        wqe.put_word(control);
        if let Some(segments) = long {
            segments.put(wqe);
        }
        if T::DYNAMIC && USUAL {
            wqe.record_head(head);
        } else {
            wqe.record(head ^ S::MARK, request.wr_id);
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
    pub(in crate::verbs::qp) imm: u32,
    pub(in crate::verbs::qp) flags: SendFlags,
}

impl<P: Platform, T: QpType> Batch<'_, '_, P, T> {
    /// Writes one WQE: control segment, the segments before the data, then the data.
    #[inline(always)]
    pub(in crate::verbs::qp) fn build<D: Payload, S: Segments>(
        &mut self,
        wr_id: u64,
        imm: u32,
        flags: SendFlags,
        data: &D,
        segments: S,
    ) -> Result<(), PostError> {
        let data = *data;
        let request = Request { wr_id, imm, flags };
        let is_full = self.head == self.queue.limit;
        if T::DYNAMIC {
            // Before the address needs all registers.
            if is_full {
                self.read_cursor();
                return self.build_late(&request, data, segments);
            }
            // The poller does not read it until the work request is posted.
            self.queue.ring.record_id(self.head, wr_id);
            // For the same reason.
            self.read_cursor();
        }
        let max_sge = self.queue.max_sge.min(S::MAX_SGE);
        let short_inline = self.queue.short_inline;
        let Some(wqe) = self.queue.wqe(self.cursor) else {
            return self.build_late(&request, data, segments);
        };
        if is_full || !data.is_usual::<T>(S::SIZE, max_sge, short_inline, wqe) {
            return self.build_late(&request, data, segments);
        }
        let at = (self.cursor, self.head);
        let written = self
            .queue
            .write::<true, D, S>(wqe, at, &request, data, segments);
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

    /// Returns `true` if a request with this many bytes before its data is posted without a call.
    #[inline(always)]
    fn is_usual(&self, at: usize, data: impl Payload) -> bool {
        let queue = &*self.queue;
        let cursor = match T::DYNAMIC && self.first {
            true => queue.cursor,
            false => self.cursor,
        };
        // Not by a closure, which would be called.
        match queue.wqe(cursor) {
            Some(wqe) if self.head != queue.limit => {
                data.is_usual::<T>(at, queue.max_sge, queue.short_inline, wqe)
            }
            _ => false,
        }
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
        self.push_by((), wr)
    }

    /// Posts a work request on a route to its receiver, of a type that has one: [`Destination`], an SRQ's number, a
    /// [`DcTarget`](crate::qp::DcTarget).
    pub fn push_to<R: RouteOf<T>>(&mut self, route: R, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.push_by(route, wr)
    }

    #[inline(always)]
    fn push_by<R: Route>(&mut self, route: R, wr: &SendWr<'_>) -> Result<(), PostError> {
        match wr.data {
            SendData::Sges([sge]) => self.operation(wr.wr_id, wr.flags, &wr.op, route, sge),
            SendData::Sges(sges) => self.operation(wr.wr_id, wr.flags, &wr.op, route, &sges),
            SendData::Inline(bytes) => {
                self.operation(wr.wr_id, wr.flags, &wr.op, route, &Inline(bytes))
            }
        }
    }

    /// Posts a SEND, WRITE or READ if that takes no call. Returns `false` if it takes one, or is refused; then nothing is posted,
    /// and [`push`](Self::push) or its like for the route does it, or says why not.
    #[inline(always)]
    pub fn push_usual<R: RouteOf<T>>(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        op: SendOp<'_>,
        route: R,
        data: impl Payload,
    ) -> bool {
        let at = match op {
            SendOp::Send if T::PACKET => Message::<SEND, EthernetSegment>::SIZE,
            SendOp::Send | SendOp::SendImm(_) | SendOp::SendInv(_) => Message::<SEND, R>::SIZE,
            SendOp::Write(_) | SendOp::WriteImm(..) | SendOp::Read(_) => Rdma::<WRITE, R>::SIZE,
            _ => return false,
        };
        self.is_usual(at, data) && self.operation(wr_id, flags, &op, route, &data).is_ok()
    }

    /// Posts an operation that is known only at run time. This and [`OpenBatch::push`](super::open_batch::OpenBatch::push) decide by
    /// it and the type of the QP.
    #[inline(always)]
    pub(in crate::verbs::qp) fn operation<R: Route, D: Payload>(
        &mut self,
        id: u64,
        flags: SendFlags,
        op: &SendOp<'_>,
        route: R,
        data: &D,
    ) -> Result<(), PostError> {
        match *op {
            // The request does not name its receiver.
            _ if R::SIZE != T::ROUTE && !T::DATAGRAM => Err(PostError::Unsupported),
            SendOp::SendTo(to) if T::DATAGRAM && R::SIZE == 0 => {
                self.build(id, 0, flags, data, Message::<SEND, _>(to))
            }
            SendOp::SendToImm(to, imm) if T::DATAGRAM && R::SIZE == 0 => {
                self.build(id, imm, flags, data, Message::<SEND_IMM, _>(to))
            }
            SendOp::Send if T::PACKET => self.packet(id, flags, data),
            SendOp::Send if R::SIZE == T::ROUTE => {
                self.build(id, 0, flags, data, Message::<SEND, _>(route))
            }
            SendOp::SendImm(imm) if R::SIZE == T::ROUTE && !T::PACKET => {
                self.build(id, imm, flags, data, Message::<SEND_IMM, _>(route))
            }
            SendOp::SendInv(key) if T::RELIABLE => {
                self.build(id, key.0, flags, data, Message::<SEND_INV, _>(route))
            }
            SendOp::Write(remote) if T::CONNECTED => {
                self.build(id, 0, flags, data, Rdma::<WRITE, _>(route, remote))
            }
            SendOp::WriteImm(remote, imm) if T::CONNECTED => {
                self.build(id, imm, flags, data, Rdma::<WRITE_IMM, _>(route, remote))
            }
            SendOp::Read(remote) if T::RELIABLE && !D::INLINE => {
                self.build(id, 0, flags, data, Rdma::<READ, _>(route, remote))
            }
            SendOp::CompareSwap {
                remote,
                compare,
                swap,
            } if T::RELIABLE && !D::INLINE => {
                let rdma = Rdma::<COMPARE_SWAP, _>(route, remote);
                self.atomic(id, flags, rdma, (swap, compare), data)
            }
            SendOp::FetchAdd { remote, add } if T::RELIABLE && !D::INLINE => {
                let rdma = Rdma::<FETCH_ADD, _>(route, remote);
                self.atomic(id, flags, rdma, (add, 0), data)
            }
            _ => Err(PostError::Unsupported),
        }
    }

    #[inline(always)]
    fn atomic<const OPCODE: u8, R: Route, D: Payload>(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        rdma: Rdma<OPCODE, R>,
        (swap_or_add, compare): (u64, u64),
        data: &D,
    ) -> Result<(), PostError> {
        if !self.queue.atomics {
            return Err(PostError::NoAtomics);
        }
        let segments = Atomic {
            rdma,
            swap_or_add,
            compare,
        };
        self.build(wr_id, 0, flags, data, segments)
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
        self.operation(wr_id, flags, &SendOp::Send, (), &data)
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
        self.operation(wr_id, flags, &SendOp::SendImm(imm), (), &data)
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
        self.operation(wr_id, flags, &SendOp::Write(remote), (), &data)
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
        self.operation(wr_id, flags, &SendOp::WriteImm(remote, imm), (), &data)
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
        self.operation(wr_id, flags, &SendOp::SendInv(key), (), &data)
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
        let op = SendOp::Read(remote);
        if let [sge] = sges {
            return self.operation(wr_id, flags, &op, (), sge);
        }
        self.operation(wr_id, flags, &op, (), &sges)
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
        let op = SendOp::CompareSwap {
            remote,
            compare,
            swap,
        };
        self.operation(wr_id, flags, &op, (), &result)
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
        self.operation(wr_id, flags, &SendOp::FetchAdd { remote, add }, (), &result)
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
        self.operation(wr_id, flags, &SendOp::SendTo(to), (), &data)
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
        self.operation(wr_id, flags, &SendOp::SendToImm(to, imm), (), &data)
    }
}

impl<P: Platform, T: QpType> Drop for Batch<'_, '_, P, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.ring();
    }
}
