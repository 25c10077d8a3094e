//! Forwarding: what one port receives goes out by another one, from the memory that it came into.
//!
//! A [`Forwarder`] is one direction of one lane: a receive queue on one port, a send queue on the other, and frame buffers that
//! both devices reach. A frame is not copied and, but for cards that require headers inline, not read: the request that sends it
//! names the buffer, with the new addresses inline before it. Its buffer is received into again once the other device has sent
//! it; as both sides work in order, this is told for a whole burst by one completion.
//!
//! There are as many sends as buffers, so a send queue is never full: what comes faster than it can go out finds no buffer, and
//! the receiving device drops it and counts that.

// UNSAFETY: says which memory is the rings, and gives frame buffers to two devices.
#![expect(unsafe_code)]

use core::fmt;
use core::ptr::NonNull;

use bareverbs_firmware_cmds::cqe::{
    ByteCountWord, ErrorWord, Format, IndexWord, OpOwn, Opcode as CqeOpcode, Syndrome, TailWord,
};
use bareverbs_firmware_cmds::doorbell::{self, ReceiveRecord};
use bareverbs_firmware_cmds::numbers::{LKey, Qpn, Rqn};
use bareverbs_firmware_cmds::word::Word;
use bareverbs_firmware_cmds::wqe::{
    ControlFlags, ControlWord, DataAddressWord, DataWord, EthernetInlineWord, Opcode, SEGMENT_UNIT,
    completion, data_segment, ethernet,
};

use crate::barrier::read_barrier;
use crate::device::Device;
use crate::ethernet::HEADER_LEN;
use crate::ethernet::domain::EthernetDomain;
use crate::ethernet::error::{EthernetError, QueueFailure};
use crate::ethernet::forward_types::{ForwardCounters, ForwardError, ForwardInit};
use crate::ethernet::objects::{Object, QueueMemory, WorkQueue, state};
use crate::ethernet::work_queues::Completes;
use crate::memory::cqe_ring::Cqe;
use crate::memory::record::DoorbellRecord;
use crate::memory::send_ring::{Cursor, SendRing, SendRingParts};
use crate::platform::Platform;
use crate::types::error::CommandError;
use crate::types::gid::Mac;
use crate::types::sge::Access;
use crate::verbs::cq::{Cq, CqEntries, CqInit};
use crate::verbs::mr::{Buffer, Mr};
use crate::verbs::pd::Pd;

/// Frames that one call of [`Forwarder::forward`] takes at most.
pub const BURST: usize = 32;
/// Both addresses.
const ADDRESSES: usize = 12;
/// Size of a request: control, Ethernet, as much again for headers, data.
const BLOCK: usize = 64;
/// Where the data segment stands behind inline headers, and where without.
pub(super) const DATA_AT: usize = 48;
pub(super) const DATA_AT_ONCE: usize = 32;

/// One direction of a lane between two ports. `Send`, allocation-free, without locks.
pub struct Forwarder<'d, P: Platform> {
    pub(super) rx: Cq<'d, P>,
    tx: Cq<'d, P>,
    ring: SendRing,
    sq_record: DoorbellRecord,
    rq_record: DoorbellRecord,
    /// Where the next request starts.
    pub(super) cursor: Cursor,
    /// Frames, minus 1.
    pub(super) mask: u32,
    /// Receives posted and completed, sends posted and completed, counted on.
    pub(super) rx_head: u32,
    pub(super) rx_tail: u32,
    pub(super) tx_head: u32,
    tx_tail: u32,
    /// Bursts whose buffers are still the sender's.
    burst_head: u32,
    burst_tail: u32,
    /// The first buffer as the sender's requests name it.
    addr: u64,
    lkey: LKey,
    stride: u32,
    frame_len: u32,
    /// Bytes at the frame's start that the request itself has.
    pub(super) inline: u32,
    /// The sender requires more of the header than the addresses.
    reads_headers: bool,
    doorbell: u32,
    /// The Ethernet segment with the addresses, and the rest of them, as they lie in memory.
    segments: [u64; 4],
    out: &'d Device<'d, P>,
    pub(super) failure: Option<ForwardError>,
    pub(super) counters: ForwardCounters,
    // In the order in which they have to go.
    rq: WorkQueue<'d, P>,
    sq: WorkQueue<'d, P>,
    tis: Object<'d, P>,
    shared: Option<Mr<'d, P>>,
    frames: Option<Buffer<'d, P>>,
}

impl<'d, P: Platform> EthernetDomain<'d, P> {
    /// Creates a lane for what this port receives into [`Forwarder::number`]: `to` is the domain of the other port (or of this
    /// one), with a protection domain of its device.
    ///
    /// # Errors
    /// [`EthernetError`] says which size does not go, what the cards lack, or what the firmware refused.
    pub fn create_forwarder(
        &self,
        pd: &Pd<'d, P>,
        to: (&Self, &Pd<'d, P>),
        init: &ForwardInit,
    ) -> Result<Forwarder<'d, P>, EthernetError> {
        self.make_forwarder(pd, to, init, CqEntries::PLAIN)
    }

    /// A lane whose receiving CQ has such entries.
    pub(super) fn make_forwarder(
        &self,
        pd: &Pd<'d, P>,
        (out, out_pd): (&Self, &Pd<'d, P>),
        init: &ForwardInit,
        entries: CqEntries,
    ) -> Result<Forwarder<'d, P>, EthernetError> {
        let most = 1_u32 << self.limits.log_queue.min(out.limits.log_queue);
        let size = |field, asked: u32, limit: u32| EthernetError::Size {
            field,
            asked: asked.into(),
            limit: limit.into(),
        };
        if init.frames == 0 || init.frames > most {
            return Err(size("frames", init.frames, most));
        }
        if !(64..=1 << 14).contains(&init.frame_len) {
            return Err(size("frame_len", init.frame_len, 1 << 14));
        }
        let demanded = out.limits.min_inline();
        if demanded > super::FRAME_OVERHEAD {
            return Err(EthernetError::Unsupported {
                what: "sending with no more than the Ethernet header inline",
            });
        }
        let reads_headers = demanded != 0;
        let inline = match (demanded, init.addresses) {
            (0, None) => 0,
            (0, Some(_)) => ADDRESSES,
            (demanded, _) => demanded,
        };
        let frames = init.frames.next_power_of_two();
        let stride = init.frame_len.next_multiple_of(64);
        let buffer = pd
            .alloc_buffer(frames as usize * stride as usize, Access::LOCAL_WRITE)
            .map_err(EthernetError::Buffer)?;
        let cq = |device: &'d Device<'d, P>, entries: CqEntries| {
            let cq = device.create_cq(CqInit {
                comp_vector: init.comp_vector,
                entries,
                ..CqInit::new(frames)
            });
            cq.map_err(EthernetError::Cq)
        };
        let (rx, tx) = (cq(self.device, entries)?, cq(out.device, CqEntries::PLAIN)?);
        let memory = QueueMemory::new(self.device, frames as usize * SEGMENT_UNIT, 0);
        let memory = memory.map_err(EthernetError::Memory)?;
        for frame in 0..frames as usize {
            let at = buffer.addr() + frame as u64 * u64::from(stride);
            let request = data_segment(init.frame_len, buffer.lkey(), at);
            memory.buffer.write_bytes(frame * SEGMENT_UNIT, &request);
        }
        let completes = |cq: &Cq<'d, P>| Completes {
            cqn: cq.cqn().number(),
            user_index: cq.index,
        };
        let shape = (frames, SEGMENT_UNIT as u32);
        let rq = self.make_rq(pd, memory, shape, completes(&rx))?;
        let tis = Object::tis(out.device, out.domain.number())?;
        let blocks = frames.max(2);
        // A counter for each block, an identifier, and for each burst where it ends.
        let notes = 4 * blocks as usize + 8 + 8 * frames as usize;
        let memory = QueueMemory::new(out.device, blocks as usize * BLOCK, notes);
        let memory = memory.map_err(EthernetError::Memory)?;
        let sq = out.make_sq(out_pd, memory, blocks, tis.number(), completes(&tx))?;
        let (shared, addr, lkey) =
            if core::ptr::addr_eq(self.device, out.device) && pd.pdn() == out_pd.pdn() {
                (None, buffer.addr(), buffer.lkey())
            } else {
                // SAFETY: the memory is a buffer's, which the host only reads and writes as bytes of a device, and which is
                // freed only after the key is gone (`destroy`).
                let shared = unsafe { out_pd.reg_mr(buffer.region(), Access::empty()) };
                let shared = shared.map_err(EthernetError::Buffer)?;
                let (addr, lkey) = (shared.addr(), shared.lkey());
                (Some(shared), addr, lkey)
            };
        let (send, receive) = (sq.memory(), rq.memory());
        let parts = SendRingParts {
            base: send.buffer.part(0),
            heads: send.buffer.part(send.notes + 8),
            wr_ids: send.buffer.part(send.notes),
            blocks,
            wrs: 1,
        };
        // SAFETY: ring, records and notes lie in the memory of the queues, which the forwarder owns and destroys as a whole.
        let (ring, sq_record, rq_record) = unsafe {
            (
                SendRing::new(parts),
                DoorbellRecord::new(send.buffer.part(send.record)),
                DoorbellRecord::new(receive.buffer.part(receive.record)),
            )
        };
        let mut forwarder = Forwarder {
            cursor: Cursor::new(Qpn::from_low_bits(sq.number())),
            rx,
            tx,
            ring,
            sq_record,
            rq_record,
            mask: frames - 1,
            rx_head: 0,
            rx_tail: 0,
            tx_head: 0,
            tx_tail: 0,
            burst_head: 0,
            burst_tail: 0,
            addr,
            lkey,
            stride,
            frame_len: init.frame_len,
            inline: inline as u32,
            reads_headers,
            doorbell: (out.device.qp_uar().bar_offset() + doorbell::SEND) as u32,
            segments: segments(inline, init.addresses),
            out: out.device,
            failure: None,
            counters: ForwardCounters::default(),
            rq,
            sq,
            tis,
            shared,
            frames: Some(buffer),
        };
        // Buffers are posted once the queue is ready, as in `EthernetReceive`.
        forwarder.start(self.device)?;
        forwarder.post(frames);
        Ok(forwarder)
    }
}

/// The Ethernet segment and what is inline behind it.
fn segments(inline: usize, addresses: Option<[Mac; 2]>) -> [u64; 4] {
    let mut bytes = [0; 32];
    let mut word = EthernetInlineWord(0);
    word.set_inline_hdr_sz(inline as u16);
    let mut segment = [0; SEGMENT_UNIT];
    word.write(&mut segment);
    bytes[..SEGMENT_UNIT].copy_from_slice(&segment);
    if let Some([to, from]) = addresses {
        bytes[ethernet::INLINE_START..][..6].copy_from_slice(&to);
        bytes[ethernet::INLINE_START + 6..][..6].copy_from_slice(&from);
    }
    let (words, _) = bytes.as_chunks::<8>();
    core::array::from_fn(|at| words.get(at).map_or(0, |word| u64::from_ne_bytes(*word)))
}

impl<'d, P: Platform> Forwarder<'d, P> {
    /// The receive queue's number, for [indirection tables](super::IndirectionTable) and [targets](super::EthernetTarget).
    #[must_use]
    pub fn number(&self) -> Rqn {
        Rqn::from_low_bits(self.rq.number())
    }

    /// The counts of the lane's traffic.
    #[must_use]
    pub fn counters(&self) -> ForwardCounters {
        self.counters
    }

    /// Frames that wait in the sending device, as far as completions have been looked at.
    #[must_use]
    pub fn outstanding(&self) -> u32 {
        self.tx_head.wrapping_sub(self.tx_tail)
    }

    fn start(&self, device: &Device<'d, P>) -> Result<(), CommandError> {
        super::objects::move_sq(self.out, self.sq.number(), state::RESET, state::READY)?;
        super::objects::move_rq(device, self.rq.number(), state::RESET, state::READY)
    }

    /// Gives buffers to the receiving device: all up to this one.
    #[inline(always)]
    fn post(&mut self, head: u32) {
        self.rx_head = head;
        let mut record = ReceiveRecord(0);
        record.set_counter(head as u16);
        self.rq_record.post(record);
    }

    /// Forwards what has come, [`BURST`] frames at most, with one doorbell. Returns how many went out.
    ///
    /// # Errors
    /// [`ForwardError`] once a device has stopped its queue, and then always.
    #[inline]
    pub fn forward(&mut self) -> Result<u32, ForwardError> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        self.complete()?;
        let (first, sent) = (self.rx_tail, self.tx_head);
        let mut left = BURST as u32;
        while left > 0 {
            let (went, ended_by) = if self.inline == 0 {
                self.run::<DATA_AT_ONCE, 2>(left)
            } else {
                self.run::<DATA_AT, 4>(left)
            };
            left -= went;
            // Else at a ring's end.
            if let Some((entry, tail)) = ended_by {
                if !tail.last().is_ready(self.rx.entries().owner()) {
                    break;
                }
                self.take_unusual(entry, tail);
                left -= 1;
            }
        }
        self.finish(first, sent)
    }

    /// Lets out what was taken since the counts of receives and sends were these.
    #[inline(always)]
    pub(super) fn finish(&mut self, first: u32, sent: u32) -> Result<u32, ForwardError> {
        if first != self.rx_tail {
            self.rx.publish_taken();
            self.end_burst();
        }
        let went = self.tx_head.wrapping_sub(sent);
        if went != 0 {
            // The last one tells that all are done.
            let last = self.cursor.before();
            let wqe = self.ring.wqe(last);
            wqe.put_word(ControlFlags::new(completion::ALWAYS, 0));
            self.ring_doorbell(last);
        } else if let Err(error) = self.rx.check() {
            return self.fail(ForwardError::Cq(error));
        }
        self.counters.received += u64::from(went);
        self.counters.sent += u64::from(went);
        Ok(went)
    }

    /// Writes requests for frames that have come, for so many at most, as long as no ring ends: `DATA_AT` bytes before the
    /// data, of which `N` words are the same for all. Returns for how many, and which completion ended it: one that is not
    /// there, or not of a frame that can go out as it is.
    #[inline(always)]
    fn run<const DATA_AT: usize, const N: usize>(
        &mut self,
        most: u32,
    ) -> (u32, Option<(Cqe, TailWord)>) {
        let ours = IndexWord(self.rx.index).to_memory();
        let entries = self.rx.entries();
        let posted = self.rx_head.wrapping_sub(self.rx_tail);
        let (rest, owner, next) = (entries.rest(), entries.owner(), entries.look().0);
        let count = most.min(posted).min(rest.min(self.rest()));

        // What the next completion's tail has to be: as one word, so that it is compared at once.
        let mut whole = OpOwn(0);
        whole.set_opcode(CqeOpcode::ResponderSend as u8);
        whole.set_format(Format::NoInline as u8);
        let mut wanted = TailWord(0);
        wanted.set_op_own(whole.0 | owner);
        wanted.set_wqe_counter(self.rx_tail as u16);
        let mut any = OpOwn(0);
        any.set_solicited(true);
        let mut compared = TailWord(0);
        compared.set_op_own(!any.0);
        compared.set_wqe_counter(self.mask as u16);
        let mut one_on = TailWord(0);
        one_on.set_wqe_counter(1);

        let (least, lengths) = self.lengths();
        let mut ended_by = None;
        let done = self.put::<DATA_AT, N>(count, |nth| {
            // SAFETY: less than the rest of the ring.
            let entry = unsafe { next.behind(nth) };
            let tail = entry.word::<TailWord>();
            read_barrier();
            let length = entry.word::<ByteCountWord>().byte_cnt();
            if (tail.0 ^ wanted.0) & compared.0 != 0
                || entry.word::<IndexWord>().to_memory() != ours
                || length.wrapping_sub(least) >= lengths
            {
                ended_by = Some((entry, tail));
                return None;
            }
            // The counter wraps where the ring ends.
            wanted.0 = wanted.0.wrapping_add(one_on.0);
            Some(length)
        });
        if posted == 0 {
            ended_by = Some(self.rx.entries().look());
        }
        self.rx.entries().skip(done);
        (done, ended_by)
    }

    /// The least length of a frame, and how many there are: with a byte that is not inline, since a length of 0 means 2 GiB.
    #[inline(always)]
    pub(super) fn lengths(&self) -> (u32, u32) {
        let least = self.inline.max(HEADER_LEN as u32) + 1;
        (least, self.frame_len + 1 - least)
    }

    /// Frames for which no ring of requests ends.
    #[inline(always)]
    pub(super) fn rest(&self) -> u32 {
        let slot = self.rx_tail & self.mask;
        (self.mask + 1 - slot).min(self.ring.rest(self.cursor))
    }

    /// Writes requests for the frames that come next, `count` at most, which are no more than the [rest](Self::rest): with
    /// `DATA_AT` bytes before the data, of which `N` words are the same for all. `length` is asked for each one's, from 0 on,
    /// and ends it with `None`. Returns for how many.
    #[inline(always)]
    pub(super) fn put<const DATA_AT: usize, const N: usize>(
        &mut self,
        count: u32,
        mut length: impl FnMut(u32) -> Option<u32>,
    ) -> u32 {
        let slot = self.rx_tail & self.mask;
        let key = DataWord::new(0, self.lkey).to_memory();
        let mut addr = self.addr + u64::from(slot * self.stride + self.inline);
        let mut control = self
            .cursor
            .control(Opcode::Send as u8, (DATA_AT / 16 + 1) as u32);
        let mut next_control = ControlWord(0);
        next_control.set_wqe_index(1);
        let fixed: [u64; N] = core::array::from_fn(|at| self.segments[at]);
        let first = self.ring.wqe(self.cursor);
        let (inline, stride) = (self.inline, u64::from(self.stride));
        let mut done = 0;
        while done < count {
            let Some(length) = length(done) else {
                break;
            };
            // SAFETY: less than the rest of the ring.
            let wqe = unsafe { first.behind(done) };
            let length = DataWord::new(length - inline, LKey(0));
            wqe.put_words::<16, N>(fixed);
            let data = [length.to_memory() | key, DataAddressWord(addr).to_memory()];
            wqe.put_words::<DATA_AT, 2>(data);
            wqe.put_word(control);
            wqe.put_word(ControlFlags::new(0, 0));
            // The counter wraps where the ring ends.
            control.0 = control.0.wrapping_add(next_control.0);
            addr += stride;
            done += 1;
        }
        if self.reads_headers {
            for nth in 0..done {
                self.put_headers(self.cursor.behind(nth), slot + nth);
            }
        }
        self.rx_tail = self.rx_tail.wrapping_add(done);
        self.tx_head = self.tx_head.wrapping_add(done);
        self.cursor = self.cursor.behind(done);
        done
    }

    /// A completion of the receiving device that is not of a frame to be sent.
    #[cold]
    #[inline(never)]
    fn take_unusual(&mut self, entry: Cqe, tail: TailWord) {
        self.rx.advance_entry(entry);
        self.refuse(entry, tail);
    }

    /// The same, taken from the ring.
    #[cold]
    #[inline(never)]
    pub(super) fn refuse(&mut self, entry: Cqe, tail: TailWord) {
        let ours = entry.word::<IndexWord>().srqn_uidx() == self.rx.index;
        let posted = ours && self.rx_tail != self.rx_head;
        let next = (u32::from(tail.wqe_counter()) ^ self.rx_tail) & self.mask == 0;
        match CqeOpcode::from_number(tail.last().opcode()) {
            Some(CqeOpcode::ResponderSend) if posted && next => {}
            Some(CqeOpcode::ResponderError) if posted => {
                let failure = QueueFailure::of(entry.word::<ErrorWord>());
                // What is too long costs its buffer, and the queue goes on.
                if failure.syndrome != Syndrome::LocalLength {
                    let failure = ForwardError::Receive(failure);
                    self.failure = Some(self.failure.unwrap_or(failure));
                }
            }
            _ => {
                self.counters.garbage_completions += 1;
                log::warn!("a completion that fits no buffer was dropped");
                // The place in the ring is the device's again even if no frame is.
                self.rx.publish_taken();
                return;
            }
        }
        self.drop_next();
    }

    /// Passes over the next buffer, which goes back with its burst.
    pub(super) fn drop_next(&mut self) {
        self.rx_tail = self.rx_tail.wrapping_add(1);
        self.counters.received += 1;
        self.counters.dropped += 1;
    }

    /// Copies the headers that the sending device requires inline, but for addresses that are new.
    #[cold]
    #[inline(never)]
    fn put_headers(&self, request: Cursor, slot: u32) {
        let mut headers = [0; super::FRAME_OVERHEAD];
        let inline = (self.inline as usize).min(headers.len());
        let headers = &mut headers[..inline];
        if let Some(frames) = &self.frames {
            // Inside the buffer, as the slot is.
            let _ = frames.copy_out((slot * self.stride) as usize, headers);
        }
        let at = self.ring.wqe(request).offset() + 16 + ethernet::INLINE_START;
        let has_new = self.segments[1..].iter().skip(1).any(|&word| word != 0);
        let from = if has_new { ADDRESSES } else { 0 };
        let rest = headers.get(from..).unwrap_or_default();
        self.ring.put_bytes(at + from, rest);
    }

    /// Notes where a burst ends.
    #[inline(always)]
    fn end_burst(&mut self) {
        let memory = self.sq.memory();
        let at = memory.notes + 8 + 4 * (self.ring.blocks() as usize);
        let at = at + 8 * (self.burst_head & self.mask) as usize;
        let ends = u64::from(self.rx_tail) << 32 | u64::from(self.tx_head);
        memory.buffer.write_be64(at, ends);
        self.burst_head = self.burst_head.wrapping_add(1);
    }

    /// Rings for all requests up to the one that starts here.
    #[inline(always)]
    fn ring_doorbell(&self, last: Cursor) {
        self.sq_record.post(self.cursor.record());
        let units = if self.inline == 0 {
            DATA_AT_ONCE
        } else {
            DATA_AT
        } / SEGMENT_UNIT
            + 1;
        let doorbell = last.control(Opcode::Send as u8, units as u32);
        let platform = self.out.platform();
        platform.write_be64(self.doorbell as usize, doorbell.0);
    }

    /// Takes completions of the sending device, and gives the buffers of the bursts that are done to the receiving one.
    #[inline(always)]
    pub(super) fn complete(&mut self) -> Result<(), ForwardError> {
        let mut any = false;
        // No more than can be there at once, so that a broken device cannot block the caller.
        for _ in 0..=self.mask {
            let Some((entry, tail)) = self.tx.peek_entry() else {
                break;
            };
            self.tx.advance_entry(entry);
            any = true;
            self.sent(entry, tail);
        }
        if any {
            self.tx.publish_taken();
        } else if let Err(error) = self.tx.check() {
            return self.fail(ForwardError::Cq(error)).map(drop);
        }
        let notes = self.sq.memory().notes + 8 + 4 * (self.ring.blocks() as usize);
        let mut free = None;
        while self.burst_tail != self.burst_head {
            let at = notes + 8 * (self.burst_tail & self.mask) as usize;
            let memory = self.sq.memory();
            let [rx_end, tx_end] = [at, at + 4].map(|at| memory.buffer.read_be32(at));
            if self.tx_tail.wrapping_sub(tx_end).cast_signed() < 0 {
                break;
            }
            free = Some(rx_end);
            self.burst_tail = self.burst_tail.wrapping_add(1);
        }
        if let Some(free) = free {
            self.post(free.wrapping_add(self.mask + 1));
        }
        match self.failure {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }

    /// A completion of the sending device: all up to the one that it names are done.
    #[inline(always)]
    fn sent(&mut self, entry: Cqe, tail: TailWord) {
        let ours = entry.word::<IndexWord>().srqn_uidx() == self.tx.index
            && tail.qpn() == self.sq.number();
        let done = tail.wqe_counter().wrapping_sub(self.tx_tail as u16);
        let inside = ours && u32::from(done) < self.outstanding();
        if !inside || tail.last().opcode() != CqeOpcode::Requester as u8 {
            return self.sent_unusual(entry, tail, inside);
        }
        self.tx_tail = self.tx_tail.wrapping_add(u32::from(done) + 1);
    }

    /// A completion of the sending device that is no success, or that names no request under way.
    #[cold]
    #[inline(never)]
    fn sent_unusual(&mut self, entry: Cqe, tail: TailWord, inside: bool) {
        if inside && tail.last().opcode() == CqeOpcode::RequesterError as u8 {
            let failure = ForwardError::Send(QueueFailure::of(entry.word::<ErrorWord>()));
            self.failure = Some(self.failure.unwrap_or(failure));
            let done = tail.wqe_counter().wrapping_sub(self.tx_tail as u16);
            self.tx_tail = self.tx_tail.wrapping_add(u32::from(done) + 1);
            return;
        }
        self.counters.garbage_completions += 1;
        log::warn!("a completion that fits no frame sent was dropped");
    }

    #[cold]
    fn fail(&mut self, failure: ForwardError) -> Result<u32, ForwardError> {
        self.failure = Some(failure);
        Err(failure)
    }

    /// Destroys everything in order; goes on after a refusal, and returns the first one.
    fn take_down(&mut self) -> Result<(), CommandError> {
        let queues = self.rq.destroy().and(self.sq.destroy());
        let mut first = queues.and(self.tis.destroy());
        if let Some(shared) = self.shared.take()
            && let Err((shared, error)) = shared.dereg()
        {
            // The other device may still read the buffers: neither is ever freed.
            core::mem::forget(shared);
            core::mem::forget(self.frames.take());
            first = first.and(Err(error));
        }
        first
    }

    /// Destroys the lane, as dropping does, and returns the firmware's first refusal.
    ///
    /// # Errors
    /// If the firmware refuses, most likely as a table or a target names the queue.
    pub fn destroy(mut self) -> Result<(), CommandError> {
        self.take_down()
    }
}

impl<P: Platform> Drop for Forwarder<'_, P> {
    fn drop(&mut self) {
        if let Err(error) = self.take_down() {
            log::warn!("a lane stays with its devices: {error}");
        }
    }
}

impl<P: Platform> fmt::Debug for Forwarder<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forwarder")
            .field("rqn", &format_args!("{:#x}", self.rq.number()))
            .field("sqn", &format_args!("{:#x}", self.sq.number()))
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

/// Where a buffer lies, for another device.
impl<P: Platform> Buffer<'_, P> {
    /// Its memory. Only a device may read or write it through this.
    fn region(&self) -> NonNull<[u8]> {
        NonNull::slice_from_raw_parts(self.start(), self.len())
    }
}
