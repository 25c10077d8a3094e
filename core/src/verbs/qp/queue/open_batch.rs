//! Posting call by call: `ibv_wr_start`, an operation and then its data for each work request, `ibv_wr_complete`.
//!
//! Each call writes straight into the ring. The operation writes a whole WQE without data and begins the next one behind it; what
//! sets the data writes it behind the segments of the operation, and the WQE's new size into the control segment. So what was
//! built is whole after each call.
//!
//! **The device sees nothing before the end.** The queue's own position, which a doorbell gives to the device, moves in
//! [`OpenBatch::complete`] only. Until then the WQEs lie in blocks that the device has given back: as many work requests as the
//! queue holds have room, and each is counted before it is written. What is dropped before it is complete was never posted.

use core::fmt;
use core::marker::PhantomData;

use crate::memory::segment::key_and_length;
use crate::memory::send_ring::{Cursor, Wqe};
use crate::platform::Platform;
use crate::types::sge::Sge;
use crate::verbs::qp::queue::payload::{Nothing, Payload};
use crate::verbs::qp::queue::send::{Request, SendQueue};
use crate::verbs::qp::queue::window::FENCED;
use crate::verbs::qp::queue::wr::{Destination, PostError, Remote, SendFlags, SendOp, given};
use crate::verbs::qp::route::raw_packet::EthernetSegment;
use crate::verbs::qp::route::segments::{
    Atomic, COMPARE_SWAP, FETCH_ADD, Message, READ, Rdma, Route, RouteOf, SEND, SEND_IMM, SEND_INV,
    Segments, WRITE, WRITE_IMM,
};
use crate::verbs::qp::route::service::{Datagram, OnePeer, OneReliablePeer, QpType, RawPacket};
use bareverbs_firmware_cmds::numbers::RKey;
use bareverbs_firmware_cmds::word::Word;
use bareverbs_firmware_cmds::wqe::{
    BASIC_BLOCK, ControlWord, InlineWord, Opcode, READ_WQE, SEGMENT_UNIT,
};

/// Bits that the opcodes of READ and atomics have in common, which take no inline data.
const TAKES_NO_INLINE: u8 = Opcode::RdmaRead as u8;
/// Segments of the longest READ.
const READ_UNITS: u8 = (READ_WQE / SEGMENT_UNIT) as u8;

/// Work requests that are built call by call, and posted together: what is between `ibv_wr_start` and `ibv_wr_complete`.
///
/// A call that fails is remembered, and [`complete`](Self::complete) says so and posts nothing. Dropping it is
/// `ibv_wr_abort`.
///
/// ```
/// use bareverbs_core::{Platform, PostError, Rc, SendFlags, SendQueue, Sge};
/// fn two<P: Platform>(rc: &mut SendQueue<'_, P, Rc>, sge: Sge) -> Result<(), PostError> {
///     let mut open = rc.open();
///     open.send(1, SendFlags::SIGNALED);
///     open.set_sge(sge);
///     open.send(2, SendFlags::SIGNALED);
///     open.set_inline_data(b"bytes");
///     open.complete() // without it, nothing is posted
/// }
/// ```
pub struct OpenBatch<'q, 'd, P: Platform, T: QpType> {
    pub(in crate::verbs::qp) queue: &'q mut SendQueue<'d, P, T>,
    /// Where the next WQE starts: behind the last one.
    next: Cursor,
    /// Where the data of the last one goes: bytes behind the ring's start.
    data: usize,
    /// The first word of the last WQE, as it lies in memory; 0 if there is none.
    last: u64,
    /// The same as long as the WQE has no data; 0 if it takes none.
    bare: u64,
    /// Number of the next work request.
    head: u32,
    /// The last one does not say yet where it goes.
    lacks_target: bool,
    /// One of them has changed what the queue's requests have in their control segments.
    fenced: bool,
    /// The first call that failed.
    failed: Option<PostError>,
}

impl<P: Platform, T: QpType> fmt::Debug for OpenBatch<'_, '_, P, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenBatch")
            .field("queue", &self.queue)
            .field("requests", &self.built())
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

impl<'d, P: Platform, T: QpType> SendQueue<'d, P, T> {
    /// Begins work requests that are built call by call: `ibv_wr_start`.
    #[inline(always)]
    pub fn open(&mut self) -> OpenBatch<'_, 'd, P, T> {
        OpenBatch {
            next: self.cursor,
            head: self.head,
            data: 0,
            last: 0,
            bare: 0,
            lacks_target: false,
            fenced: false,
            failed: None,
            queue: self,
        }
    }
}

impl<P: Platform, T: QpType> OpenBatch<'_, '_, P, T> {
    /// Each request says by a call of its own where it goes.
    const HAS_TARGET: bool = T::ROUTE != 0;

    /// Begins a work request with these segments before the data.
    #[inline(always)]
    fn begin<S: Segments>(&mut self, wr_id: u64, imm: u32, flags: SendFlags, segments: S) {
        if self.head == self.queue.limit || Self::HAS_TARGET && self.lacks_target {
            let rest = u64::from(imm) << 32 | u64::from(flags.bits());
            return self.begin_late(wr_id, rest, segments);
        }
        let request = Request { wr_id, imm, flags };
        self.lay(&request, segments);
    }

    /// The same where there may be no room, or the request before this one is not whole. `rest` is in one register.
    // `extern "C"` says to callers, also where its body is not known, that it does not unwind.
    #[cold]
    #[inline(never)]
    extern "C" fn begin_late<S: Segments>(&mut self, wr_id: u64, rest: u64, segments: S) {
        if !self.is_ready() {
            return;
        }
        let request = Request {
            wr_id,
            imm: (rest >> 32) as u32,
            flags: SendFlags::from_bits_truncate(rest as u32),
        };
        self.lay(&request, segments);
    }

    /// Returns `true` if another work request can begin. If not, why is remembered.
    fn is_ready(&mut self) -> bool {
        if self.lacks_target {
            self.fail(PostError::Unsupported);
        }
        match self.queue.find_room(self.head) {
            Ok(()) => true,
            Err(error) => {
                self.fail(error);
                false
            }
        }
    }

    #[inline(always)]
    fn lay<S: Segments>(&mut self, request: &Request, segments: S) {
        // One block, so that the next one begins behind it as long as there is no data. What is longer is looked at when data
        // comes.
        debug_assert!(S::SIZE <= BASIC_BLOCK || T::DYNAMIC);
        let (at, queue) = (self.next, &*self.queue);
        let wqe = queue.ring.wqe(at);
        self.data = wqe.offset() + S::SIZE;
        if T::DYNAMIC {
            queue.ring.record_id(self.head, request.wr_id);
        }
        let at = (at, self.head);
        let written = queue.write::<true, _, S>(wqe, at, request, Nothing, segments);
        (self.next, self.last) = written;
        self.bare = self.last;
        self.head = self.head.wrapping_add(1);
        if Self::HAS_TARGET {
            self.lacks_target = true;
        }
    }

    /// Writes a UMR, which is whole: it takes no data. Those behind it wait for it.
    pub(in crate::verbs::qp) fn umr_of<D: Payload, S: Segments>(
        &mut self,
        wr_id: u64,
        imm: u32,
        flags: SendFlags,
        data: D,
        segments: S,
    ) {
        if !self.is_ready() {
            return;
        }
        let request = Request { wr_id, imm, flags };
        let queue = &*self.queue;
        let (wqe, at) = (queue.ring.wqe(self.next), (self.next, self.head));
        let written = queue.write::<false, D, _>(wqe, at, &request, data, segments);
        (self.next, self.last) = written;
        self.bare = 0;
        self.head = self.head.wrapping_add(1);
        if self.queue.always & FENCED == 0 {
            self.queue.always |= FENCED;
            self.fenced = true;
        }
    }

    /// Remembers why nothing is posted, for what the caller cannot build. The request at hand takes no data any more.
    #[cold]
    #[inline(never)]
    pub fn fail(&mut self, error: PostError) {
        self.failed.get_or_insert(error);
        self.bare = 0;
        self.lacks_target = false;
    }

    /// The request at hand has so many segments of data.
    #[inline(always)]
    fn set_segments(&mut self, segments: u32) {
        let mut more = ControlWord(0);
        more.set_ds(segments as u8);
        // The sizes add up without a carry: a WQE is shorter than the field goes.
        let control = self.bare.wrapping_add(more.to_memory());
        // A connection's request with one segment of data is one block, as it is without.
        if Self::HAS_TARGET || segments != 1 {
            let size = ControlWord::from_memory(control).ds();
            let blocks = (u32::from(size) - 1) >> 2;
            // Without data it goes beyond its first block already, or not.
            let counted = match T::DYNAMIC {
                true => (size - more.ds() - 1) >> 2,
                false => 0,
            };
            self.next = self.next.behind(blocks - u32::from(counted));
        }
        let ring = &self.queue.ring;
        if Self::HAS_TARGET {
            ring.put_control(ring.place_of(control), control);
        } else {
            ring.put_control(self.data, control);
        }
        self.last = control;
        self.bare = 0;
    }

    /// The request at hand goes there. It has not said so before.
    #[inline(always)]
    pub(in crate::verbs::qp) fn set_route<R: RouteOf<T>>(&mut self, route: R) {
        const { assert!(R::SIZE == T::ROUTE) };
        if !self.lacks_target {
            return self.fail(PostError::Unsupported);
        }
        self.lacks_target = false;
        let ring = &self.queue.ring;
        route.put(ring.wqe_at(ring.place_of(self.last)));
    }

    /// The data of the request at hand is one entry: `ibv_wr_set_sge`.
    #[inline(always)]
    pub fn set_sge(&mut self, sge: Sge) {
        let has_length = (key_and_length(&sge) as u32).cast_signed() > 0;
        // As ever, the WQE of a connection has room for one entry.
        if self.bare == 0 || !has_length || !T::CONNECTED && self.queue.max_sge == 0 {
            let (addr, rest) = sge.parts();
            return self.set_unusual_sge(addr, rest);
        }
        self.queue.ring.put_data(self.data, &sge);
        self.set_segments(1);
    }

    #[cold]
    #[inline(never)]
    extern "C" fn set_unusual_sge(&mut self, addr: u64, rest: u64) {
        let sge = Sge::of((addr, rest));
        let checked = sge.check::<T>(self.queue.max_sge, 0);
        self.set_checked(&[sge], checked);
    }

    /// The data of the request at hand are these entries: `ibv_wr_set_sge_list`.
    pub fn set_sge_list(&mut self, sges: &[Sge]) {
        if let [sge] = sges {
            return self.set_sge(*sge);
        }
        let checked = sges.check::<T>(self.max_sge(), 0);
        self.set_checked(sges, checked);
    }

    /// Entries that the request at hand takes.
    fn max_sge(&self) -> u8 {
        let control = ControlWord::from_memory(self.bare);
        match control.opcode() {
            READ => self
                .queue
                .max_sge
                .min(READ_UNITS.saturating_sub(control.ds())),
            _ => self.queue.max_sge,
        }
    }

    /// Writes entries that were checked. Empty ones are left out, since a length of 0 means 2 GiB to the device.
    fn set_checked(&mut self, sges: &[Sge], checked: Result<(), PostError>) {
        let checked = match self.bare {
            0 => Err(PostError::Unsupported),
            _ => checked,
        };
        if let Err(error) = checked {
            return self.fail(error);
        }
        let mut segments = 0;
        for sge in sges {
            if sge.length != 0 {
                let at = self.data + segments as usize * SEGMENT_UNIT;
                self.queue.ring.put_data(at, sge);
                segments += 1;
            }
        }
        self.end_data(segments);
    }

    /// The request at hand has so many segments of data, or none.
    fn end_data(&mut self, segments: u32) {
        match segments {
            0 => self.bare = 0,
            _ => self.set_segments(segments),
        }
    }

    /// The data of the request at hand are these bytes, copied into the work queue: `ibv_wr_set_inline_data`.
    #[inline(always)]
    pub fn set_inline_data(&mut self, data: &[u8]) {
        let ring = &self.queue.ring;
        let len = data.len();
        if len.wrapping_sub(1) >= self.queue.short_inline
            || !self.takes_inline()
            || !ring.has_inline_room(self.data, len)
        {
            return self.set_unusual_inline(data);
        }
        ring.put_inline(self.data, data);
        self.set_segments(inline_segments(len));
    }

    #[cold]
    #[inline(never)]
    fn set_unusual_inline(&mut self, data: &[u8]) {
        self.set_inline_data_list([data].into_iter());
    }

    /// The same for bytes that lie in several places: `ibv_wr_set_inline_data_list`.
    pub fn set_inline_data_list<'a>(&mut self, parts: impl Iterator<Item = &'a [u8]> + Clone) {
        let lengths = parts.clone().map(<[u8]>::len);
        let len = lengths.fold(0, usize::saturating_add);
        if !self.takes_inline() {
            return self.fail(PostError::Unsupported);
        }
        let limit = self.queue.max_inline;
        if len > usize::from(limit) {
            let given = given(len);
            return self.fail(PostError::InlineTooLong { given, limit });
        }
        if len == 0 {
            return self.end_data(0);
        }
        let mut at = self.queue.ring.put_inline_header(self.data, len);
        for part in parts {
            at = self.queue.ring.put_bytes(at, part);
        }
        self.end_data(inline_segments(len));
    }

    /// Returns `true` if the request at hand takes inline data.
    #[inline(always)]
    fn takes_inline(&self) -> bool {
        self.bare != 0 && ControlWord::from_memory(self.bare).opcode() & TAKES_NO_INLINE == 0
    }

    /// Posts all requests and rings the doorbell: `ibv_wr_complete`. Requests that are built afterwards are further ones.
    ///
    /// # Errors
    /// That of the first call that failed: nothing is posted then.
    #[inline(always)]
    pub fn complete(&mut self) -> Result<(), PostError> {
        if self.refused().is_some() {
            return Err(self.refuse());
        }
        if self.last != 0 {
            let single = self.head.wrapping_sub(self.queue.head) == 1;
            self.queue.ring_for(self.next, self.head, self.last, single);
        }
        (self.last, self.bare) = (0, 0);
        self.fenced = false;
        Ok(())
    }

    /// Why nothing can be posted, as far as it is known by now.
    #[inline(always)]
    #[must_use]
    pub fn refused(&self) -> Option<PostError> {
        if Self::HAS_TARGET && self.lacks_target {
            return Some(self.failed.unwrap_or(PostError::Unsupported));
        }
        self.failed
    }

    #[cold]
    #[inline(never)]
    fn refuse(&mut self) -> PostError {
        let error = self.refused().unwrap_or(PostError::Unsupported);
        self.abort();
        error
    }

    /// Requests that were built.
    fn built(&self) -> u32 {
        self.head.wrapping_sub(self.queue.head)
    }

    /// Drops the requests that were built: `ibv_wr_abort`, as dropping this does. Requests that are built afterwards are the first
    /// ones.
    pub fn abort(&mut self) {
        let queue = &mut *self.queue;
        if self.last != 0 {
            queue.ring.forget(queue.cursor, self.next, queue.head);
        }
        if self.fenced {
            queue.always &= !FENCED;
        }
        (self.next, self.head) = (queue.cursor, queue.head);
        (self.last, self.bare) = (0, 0);
        (self.lacks_target, self.fenced) = (false, false);
        self.failed = None;
    }
}

impl<P: Platform, T: QpType> Drop for OpenBatch<'_, '_, P, T> {
    #[inline]
    fn drop(&mut self) {
        if self.last != 0 {
            self.abort();
        }
    }
}

/// Segments that so many bytes inline take, with the header before them.
#[inline(always)]
const fn inline_segments(len: usize) -> u32 {
    (len + InlineWord::SIZE).div_ceil(SEGMENT_UNIT) as u32
}

/// Space for the route of a request, which a call of its own writes.
struct Later<T>(PhantomData<T>);

impl<T: QpType> Route for Later<T> {
    const SIZE: usize = T::ROUTE;

    #[inline(always)]
    fn put(self, _: Wqe<'_>) {}
}

impl<P: Platform, T: QpType> OpenBatch<'_, '_, P, T> {
    /// Begins a work request of an operation that is known only at run time. Of datagrams that is a [`Send`](SendOp::Send) or [`SendImm`](SendOp::SendImm), as their destination comes later.
    #[inline(always)]
    pub fn push(&mut self, wr_id: u64, flags: SendFlags, op: SendOp<'_>) {
        let route = Later::<T>(PhantomData);
        match op {
            SendOp::Send if T::PACKET => self.packet(wr_id, flags),
            SendOp::Send => self.begin(wr_id, 0, flags, Message::<SEND, _>(route)),
            SendOp::SendImm(imm) if !T::PACKET => {
                self.begin(wr_id, imm, flags, Message::<SEND_IMM, _>(route));
            }
            SendOp::SendInv(key) if T::RELIABLE => {
                self.begin(wr_id, key.0, flags, Message::<SEND_INV, _>(route));
            }
            SendOp::Write(remote) if T::CONNECTED => {
                self.begin(wr_id, 0, flags, Rdma::<WRITE, _>(route, remote));
            }
            SendOp::WriteImm(remote, imm) if T::CONNECTED => {
                self.begin(wr_id, imm, flags, Rdma::<WRITE_IMM, _>(route, remote));
            }
            SendOp::Read(remote) if T::RELIABLE => {
                self.begin(wr_id, 0, flags, Rdma::<READ, _>(route, remote));
            }
            SendOp::CompareSwap {
                remote,
                compare,
                swap,
            } if T::RELIABLE => {
                self.atomic::<COMPARE_SWAP>(wr_id, flags, remote, (swap, compare));
            }
            SendOp::FetchAdd { remote, add } if T::RELIABLE => {
                self.atomic::<FETCH_ADD>(wr_id, flags, remote, (add, 0));
            }
            _ => self.fail(PostError::Unsupported),
        }
    }

    #[inline(always)]
    fn atomic<const OPCODE: u8>(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        remote: Remote,
        (swap_or_add, compare): (u64, u64),
    ) {
        if !self.queue.atomics {
            return self.fail(PostError::NoAtomics);
        }
        let segments = Atomic {
            rdma: Rdma::<OPCODE, _>(Later::<T>(PhantomData), remote),
            swap_or_add,
            compare,
        };
        self.begin(wr_id, 0, flags, segments);
    }

    #[inline(always)]
    fn packet(&mut self, wr_id: u64, flags: SendFlags) {
        let packets = &self.queue.packets;
        if packets.min_inline != 0 {
            let needed = packets.min_inline;
            return self.fail(PostError::HeadersNotInline { needed });
        }
        if flags.contains(SendFlags::IP_CSUM) && !packets.checksums {
            return self.fail(PostError::NoChecksums);
        }
        let segments = Message::<SEND, _>(EthernetSegment(flags));
        self.begin(wr_id, 0, flags, segments);
    }
}

impl<P: Platform, T: OnePeer> OpenBatch<'_, '_, P, T> {
    /// Send: `ibv_wr_send`.
    #[inline(always)]
    pub fn send(&mut self, wr_id: u64, flags: SendFlags) {
        self.push(wr_id, flags, SendOp::Send);
    }

    /// Send with immediate data, in host order: `ibv_wr_send_imm`.
    #[inline(always)]
    pub fn send_imm(&mut self, wr_id: u64, flags: SendFlags, imm: u32) {
        self.push(wr_id, flags, SendOp::SendImm(imm));
    }

    /// RDMA write: `ibv_wr_rdma_write`.
    #[inline(always)]
    pub fn write(&mut self, wr_id: u64, flags: SendFlags, remote: Remote) {
        self.push(wr_id, flags, SendOp::Write(remote));
    }

    /// RDMA write with immediate data, in host order: `ibv_wr_rdma_write_imm`.
    #[inline(always)]
    pub fn write_imm(&mut self, wr_id: u64, flags: SendFlags, remote: Remote, imm: u32) {
        self.push(wr_id, flags, SendOp::WriteImm(remote, imm));
    }
}

impl<P: Platform, T: OneReliablePeer> OpenBatch<'_, '_, P, T> {
    /// Send, and invalidate a remote key of the receiver: `ibv_wr_send_inv`.
    #[inline(always)]
    pub fn send_inv(&mut self, wr_id: u64, flags: SendFlags, key: RKey) {
        self.push(wr_id, flags, SendOp::SendInv(key));
    }

    /// RDMA read, scattered to the data: `ibv_wr_rdma_read`.
    #[inline(always)]
    pub fn read(&mut self, wr_id: u64, flags: SendFlags, remote: Remote) {
        self.push(wr_id, flags, SendOp::Read(remote));
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
        let op = SendOp::CompareSwap {
            remote,
            compare,
            swap,
        };
        self.push(wr_id, flags, op);
    }

    /// Adds to 8 bytes; their old value goes to the data: `ibv_wr_atomic_fetch_add`.
    #[inline(always)]
    pub fn fetch_add(&mut self, wr_id: u64, flags: SendFlags, remote: Remote, add: u64) {
        self.push(wr_id, flags, SendOp::FetchAdd { remote, add });
    }
}

impl<P: Platform> OpenBatch<'_, '_, P, RawPacket> {
    /// Sends a frame, as [`Batch::send_packet`](crate::qp::send::Batch::send_packet): `ibv_wr_send`. Not for cards that
    /// require headers inline ([`PostError::HeadersNotInline`]).
    #[inline(always)]
    pub fn send_packet(&mut self, wr_id: u64, flags: SendFlags) {
        self.push(wr_id, flags, SendOp::Send);
    }
}

impl<P: Platform, T: Datagram> OpenBatch<'_, '_, P, T> {
    /// Send a datagram, to where [`set_ud_addr`](Self::set_ud_addr) says: `ibv_wr_send`.
    #[inline(always)]
    pub fn send_to(&mut self, wr_id: u64, flags: SendFlags) {
        self.push(wr_id, flags, SendOp::Send);
    }

    /// The same with immediate data, in host order: `ibv_wr_send_imm`.
    #[inline(always)]
    pub fn send_to_imm(&mut self, wr_id: u64, flags: SendFlags, imm: u32) {
        self.push(wr_id, flags, SendOp::SendImm(imm));
    }

    /// Names the receiver of the request at hand: `ibv_wr_set_ud_addr`.
    #[inline(always)]
    pub fn set_ud_addr(&mut self, to: Destination<'_>) {
        self.set_route(to);
    }
}
