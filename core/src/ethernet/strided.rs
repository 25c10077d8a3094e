//! Striding receive queues: a request has room for many frames, each of which starts at a stride.
//!
//! The device fills requests in the order of the ring, one frame behind the other. A frame that has no room in what is left
//! of a request goes to the next one, and a completion without a frame says how many strides stay unused. A request is
//! given to the device again when all its strides are used and all its frames were given back.
//!
//! [`StridedFrame`] is a frame that the caller has: its strides are not written to before it is
//! [given back](StridingReceive::give_back). Until then it can be sent on without a copy: [`StridingReceive::sge`].

use core::fmt;
use core::time::Duration;

use bareverbs_firmware_cmds::cqe::{
    ByteCountWord, ErrorWord, Format, HeadersWord, IndexWord, Opcode, SlidWord, Syndrome, TailWord,
    WqeIdWord,
};
use bareverbs_firmware_cmds::doorbell::ReceiveRecord;
use bareverbs_firmware_cmds::numbers::{LKey, Rqn};
use bareverbs_firmware_cmds::rq::{CreateRqIn, ModifyRqIn, QueryRqIn};
use bareverbs_firmware_cmds::values::WqType;
use bareverbs_firmware_cmds::word::Word;
use bareverbs_firmware_cmds::wqe::{SEGMENT_UNIT, data_segment};

use crate::barrier::write_barrier;
use crate::device::Device;
use crate::ethernet::HEADER_LEN;
use crate::ethernet::compression::StrideCompression;
use crate::ethernet::error::{EthernetError, EthernetReceiveError, QueueFailure, StrideFault};
use crate::ethernet::limits::Limits;
use crate::ethernet::objects::{Kind, QueueMemory, WorkQueue, state};
use crate::ethernet::strided_burst::StridedBurst;
use crate::memory::cqe_ring::Cqe;
use crate::platform::Platform;
use crate::types::error::{CommandError, DeviceError};
use crate::types::sge::{Access, Sge};
use crate::verbs::cq::{Cq, CqInit};
use crate::verbs::mr::Buffer;
use crate::verbs::pd::Pd;

/// A request: a segment that lists would be linked by, and a data segment.
const WQE: usize = 2 * SEGMENT_UNIT;
/// Binary logarithm of it.
const LOG_WQE: u8 = 5;
/// Binary logarithms of a stride's size, `MLX5_MPWQE_LOG_STRIDE_SZ_BASE` and the field's 3 bits.
const LOG_STRIDE: core::ops::RangeInclusive<u32> = 6..=13;
/// Binary logarithms of the strides in a request, and what the field counts from.
const LOG_STRIDES_BASE: u32 = 9;
const LOG_STRIDES_MAX: u32 = 16;

/// The attributes of a new striding receive queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StridingInit {
    /// Requests; rounded up to a power of two.
    pub requests: u32,
    /// Strides in a request; rounded up to a power of two. At least 512, or 8 on cards with `ext_stride_num_range`.
    pub strides: u32,
    /// Bytes of a stride; rounded up to a power of two from 64 to 8192. A frame takes as many as it fills.
    pub stride_len: u32,
    /// Bytes of the longest frame, with header and VLAN tags and without check sequence; what the port's MTU makes of
    /// it if `None`.
    pub frame_len: Option<usize>,
    /// Takes a VLAN tag (0x8100) out of each frame: [`StridedFrame::vlan`].
    pub strip_vlan: bool,
    /// The completion vector (hence interrupt) that the events use, modulo their number.
    pub comp_vector: u16,
    /// The compression of completions by the device.
    pub compression: StrideCompression,
}

impl Default for StridingInit {
    fn default() -> Self {
        Self {
            requests: 4,
            strides: 512,
            stride_len: 2048,
            frame_len: None,
            strip_vlan: false,
            comp_vector: 0,
            compression: StrideCompression::OFF,
        }
    }
}

/// The counts of a striding queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StridingCounters {
    /// Frames that the device could not write, as they were longer than a request.
    pub too_long: u64,
    /// Frames shorter than an Ethernet header or longer than the queue takes, and completions that contradict
    /// themselves otherwise.
    pub malformed: u64,
    /// Strides that stayed unused at the end of a request.
    pub unused_strides: u64,
    /// Completions that are not of this queue. Anything but 0 means a broken device.
    pub garbage_completions: u64,
}

/// A frame that lies in a striding queue's buffer. What is not [given back](StridingReceive::give_back) is not received to
/// again.
#[derive(Debug)]
#[must_use = "its strides are lost until it is given back"]
pub struct StridedFrame {
    /// Offset in the buffer.
    at: u32,
    length: u16,
    strides: u16,
    /// The queue, and how often it was set going.
    owner: u32,
    headers: HeadersWord,
    checksum: u16,
    tunneled: bool,
    flow_tag: u32,
}

impl StridedFrame {
    /// Its length in bytes.
    #[must_use]
    #[inline(always)]
    pub fn len(&self) -> usize {
        usize::from(self.length)
    }

    /// False: no frame is shorter than an Ethernet header.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The device found an IP header, and its checksum right; [in a tunnel](Self::tunneled) as in
    /// [other queues](super::ReceivedFrame::l3_ok).
    #[must_use]
    pub fn l3_ok(&self) -> bool {
        self.headers.l3_ok()
    }

    /// The device found a TCP or UDP header, and its checksum right; [in a tunnel](Self::tunneled) as in
    /// [other queues](super::ReceivedFrame::l4_ok).
    #[must_use]
    pub fn l4_ok(&self) -> bool {
        self.headers.l4_ok()
    }

    /// The device found a packet in the frame: [`ReceivedFrame::tunneled`](super::ReceivedFrame::tunneled).
    #[must_use]
    pub fn tunneled(&self) -> bool {
        self.tunneled
    }

    /// The tag that the device has taken out of the frame.
    #[must_use]
    pub fn vlan(&self) -> Option<u16> {
        self.headers.vlan().then(|| self.headers.vlan_info())
    }

    /// The sum over an IP packet: [`ReceivedFrame::checksum`](super::ReceivedFrame::checksum), and kept in any case.
    #[must_use]
    pub fn checksum(&self) -> u16 {
        self.checksum
    }

    /// The mark of the rule that sent the frame here: [`FlowRuleInit::tag`](super::FlowRuleInit::tag).
    #[must_use]
    pub fn flow_tag(&self) -> u32 {
        self.flow_tag
    }
}

/// A receive queue whose requests have room for many frames. `Send`, allocation-free, without locks.
pub struct StridingReceive<'d, P: Platform> {
    // In the order in which they have to go.
    queue: WorkQueue<'d, P>,
    frames: Buffer<'d, P>,
    pub(super) cq: Cq<'d, P>,
    device: &'d Device<'d, P>,
    lkey: LKey,
    addr: u64,
    /// Requests, minus 1.
    mask: u32,
    log_strides: u32,
    log_stride: u32,
    frame_len: u32,
    /// [`StridedFrame::owner`].
    owner: u32,
    /// Requests posted, given back in whole, and used up by the device, counted on.
    head: u32,
    oldest: u32,
    current: u32,
    /// Strides of the current request that are used up.
    used: u32,
    strip_vlan: bool,
    pub(super) failure: Option<EthernetReceiveError>,
    counters: StridingCounters,
}

impl<'d, P: Platform> StridingReceive<'d, P> {
    pub(super) fn create(
        pd: &Pd<'d, P>,
        limits: &Limits,
        init: &StridingInit,
        frame_len: usize,
    ) -> Result<Self, EthernetError> {
        let device = pd.device();
        let lacks = |what| Err(EthernetError::Unsupported { what });
        let Some(log_least) = limits.log_strides else {
            return lacks("striding receive queues (striding_rq)");
        };
        if init.strip_vlan && !limits.vlan_strip {
            return lacks("VLAN tags taken out (vlan_cap)");
        }
        let size = |field, asked: u32, limit: u32| {
            Err(EthernetError::Size {
                field,
                asked: asked.into(),
                limit: limit.into(),
            })
        };
        let most = 1 << limits.log_queue;
        if init.requests == 0 || init.requests > most {
            return size("requests", init.requests, most);
        }
        if init.strides == 0 || init.strides > 1 << LOG_STRIDES_MAX {
            return size("strides", init.strides, 1 << LOG_STRIDES_MAX);
        }
        if init.stride_len == 0 || init.stride_len > 1 << LOG_STRIDE.end() {
            return size("stride_len", init.stride_len, 1 << LOG_STRIDE.end());
        }
        let requests = init.requests.next_power_of_two();
        let log_strides = init.strides.next_power_of_two().ilog2().max(log_least);
        let log_stride = init
            .stride_len
            .next_power_of_two()
            .ilog2()
            .max(*LOG_STRIDE.start());
        let log_room = log_strides + log_stride;
        // Offsets have 32 bits, and a frame has to fit into a request.
        let bytes = u64::from(requests) << log_room;
        if bytes > 1 << 31 {
            return Err(EthernetError::Size {
                field: "requests * strides * stride_len",
                asked: bytes,
                limit: 1 << 31,
            });
        }
        if frame_len > 1 << log_room {
            return Err(EthernetError::Size {
                field: "frame_len",
                asked: frame_len as u64,
                limit: 1 << log_room,
            });
        }
        let buffer = pd
            .alloc_buffer(bytes as usize, Access::LOCAL_WRITE)
            .map_err(EthernetError::Buffer)?;
        let cq = device
            .create_cq(CqInit {
                comp_vector: init.comp_vector,
                entries: init.compression.entries(),
                // A completion uses up a stride at least.
                ..CqInit::new(requests << log_strides)
            })
            .map_err(EthernetError::Cq)?;
        let memory = QueueMemory::new(device, requests as usize * WQE, requests as usize * 4)
            .map_err(EthernetError::Memory)?;
        for request in 0..requests as usize {
            let at = buffer.addr() + ((request as u64) << log_room);
            let data = data_segment(1 << log_room, buffer.lkey(), at);
            let place = request * WQE;
            memory.buffer.write_bytes(place, &[0; SEGMENT_UNIT]);
            memory.buffer.write_bytes(place + SEGMENT_UNIT, &data);
        }

        let mut command = CreateRqIn::new();
        let context = command.ctx_mut();
        context
            .set_vsd(!init.strip_vlan)
            .set_flush_in_error_en(true)
            .set_state(state::RESET)
            .set_ts_format(limits.receive_clock)
            .set_user_index(cq.index)
            .set_counter_set_id(device.queue_counter_set())
            .set_cqn(cq.cqn().number());
        let wq = context.wq_mut();
        wq.set_pd(pd.pdn().number())
            .set_log_wq_stride(LOG_WQE)
            .set_log_wq_sz(requests.ilog2() as u8)
            .set_log_wqe_stride_size((log_stride - LOG_STRIDE.start()) as u8)
            .set_log_wqe_num_of_strides(log_strides.wrapping_sub(LOG_STRIDES_BASE) as u8 & 0xf);
        let pages = memory.describe(wq);
        wq.set_wq_type(WqType::CyclicStriding.number());
        let queue = WorkQueue::create(device, Kind::Rq, memory, &pages, |tail| {
            device
                .execute_with(&command, tail, &mut [])
                .map(|out| out.rqn())
        })?;
        let mut receive = Self {
            lkey: buffer.lkey(),
            addr: buffer.addr(),
            owner: queue.number() << 8,
            queue,
            frames: buffer,
            cq,
            device,
            mask: requests - 1,
            log_strides,
            log_stride,
            frame_len: frame_len as u32,
            head: 0,
            oldest: 0,
            current: 0,
            used: 0,
            strip_vlan: init.strip_vlan,
            failure: None,
            counters: StridingCounters::default(),
        };
        receive.start()?;
        Ok(receive)
    }

    /// Lets a queue in reset run, and posts everything. The record is 0 while it gets ready, as in
    /// [`EthernetReceive`](super::EthernetReceive).
    fn start(&mut self) -> Result<(), CommandError> {
        (self.oldest, self.current, self.used) = (0, 0, 0);
        for request in 0..=self.mask {
            self.set_left(request, 1 << self.log_strides);
        }
        self.head = 0;
        self.publish();
        self.modify(state::RESET, state::READY)?;
        self.head = self.mask + 1;
        self.publish();
        Ok(())
    }

    /// Writes the count of requests to the doorbell record.
    fn publish(&self) {
        let memory = self.queue.memory();
        write_barrier();
        let mut record = ReceiveRecord(0);
        record.set_counter(self.head as u16);
        let at = memory.record + ReceiveRecord::OFFSET;
        memory.buffer.write_be32(at, record.0);
    }

    /// Strides of a request that are not done with.
    #[inline(always)]
    fn left(&self, request: u32) -> u32 {
        let memory = self.queue.memory();
        let at = memory.notes + (request & self.mask) as usize * 4;
        memory.buffer.read_be32(at)
    }

    #[inline(always)]
    fn set_left(&self, request: u32, strides: u32) {
        let memory = self.queue.memory();
        let at = memory.notes + (request & self.mask) as usize * 4;
        memory.buffer.write_be32(at, strides);
    }

    /// Strides of a request are done with. The count lies in memory that the device reaches, and so it is not trusted with
    /// more than when the device may write there again.
    #[inline(always)]
    fn release(&mut self, request: u32, strides: u32) {
        let left = self.left(request).saturating_sub(strides);
        self.set_left(request, left);
        if left == 0 {
            self.repost();
        }
    }

    /// Gives the oldest requests to the device again, as far as they are done with.
    fn repost(&mut self) {
        let before = self.head;
        while self.oldest != self.current && self.left(self.oldest) == 0 {
            self.set_left(self.oldest, 1 << self.log_strides);
            self.oldest = self.oldest.wrapping_add(1);
            self.head = self.head.wrapping_add(1);
        }
        if self.head != before {
            self.publish();
        }
    }

    /// The next frame, `None` if there is none.
    ///
    /// # Errors
    /// [`EthernetReceiveError::Failed`] once the device has stopped the queue and what came before has been taken;
    /// [`EthernetReceiveError::Strides`] once it has said what cannot be: [`recover`](Self::recover) goes on.
    pub fn receive(&mut self) -> Result<Option<StridedFrame>, EthernetReceiveError> {
        self.burst().next()
    }

    /// The frames that are there, whose completions are given back to the device together.
    #[inline(always)]
    pub fn burst(&mut self) -> StridedBurst<'_, 'd, P> {
        StridedBurst::new(self)
    }

    /// The frame of a completion; `None` if there is nothing for the caller in it.
    #[inline(always)]
    pub(super) fn complete(&mut self, entry: Cqe, tail: TailWord) -> Option<StridedFrame> {
        let count: ByteCountWord = entry.word();
        let index: IndexWord = entry.word();
        let id: WqeIdWord = entry.word();
        let usual = tail.last().opcode() == Opcode::ResponderSend as u8
            && tail.last().format() == Format::NoInline as u8
            && index.srqn_uidx() == self.cq.index;
        if !usual {
            return self.complete_unusual(entry, tail);
        }
        let request = self.current;
        let first = u32::from(tail.wqe_counter());
        let strides = u32::from(count.consumed_strides());
        let end = self.used + strides;
        let posted = request != self.head && (u32::from(id.wqe_id()) ^ request) & self.mask == 0;
        if !posted || first != self.used || strides == 0 || end > 1 << self.log_strides {
            return self.contradiction(first, strides);
        }
        self.used = end;
        if end == 1 << self.log_strides {
            self.current = request.wrapping_add(1);
            self.used = 0;
        }
        let length = u32::from(count.strided_byte_cnt());
        let headers: HeadersWord = entry.word();
        let sound = !count.filler()
            && length >= HEADER_LEN as u32
            && length <= self.frame_len
            && length <= strides << self.log_stride
            && (!headers.vlan() || self.strip_vlan);
        if !sound {
            return self.no_frame(request, strides, count);
        }
        let at = ((request & self.mask) << self.log_strides | first) << self.log_stride;
        Some(StridedFrame {
            at,
            length: length as u16,
            strides: strides as u16,
            owner: self.owner,
            headers,
            checksum: entry.word::<SlidWord>().check_sum(),
            tunneled: id.tunneled(),
            flow_tag: tail.qpn(),
        })
    }

    #[cold]
    #[inline(never)]
    fn no_frame(
        &mut self,
        request: u32,
        strides: u32,
        count: ByteCountWord,
    ) -> Option<StridedFrame> {
        if count.filler() {
            self.counters.unused_strides += u64::from(strides);
        } else {
            self.counters.malformed += 1;
        }
        self.release(request, strides);
        None
    }

    #[cold]
    #[inline(never)]
    fn contradiction(&mut self, stride: u32, strides: u32) -> Option<StridedFrame> {
        let fault = StrideFault {
            stride: stride as u16,
            consumed: strides as u16,
            expected: self.used as u16,
        };
        log::warn!("{fault}");
        self.failure
            .get_or_insert(EthernetReceiveError::Strides(fault));
        None
    }

    #[cold]
    #[inline(never)]
    fn complete_unusual(&mut self, entry: Cqe, tail: TailWord) -> Option<StridedFrame> {
        let index: IndexWord = entry.word();
        let failed = tail.last().opcode() == Opcode::ResponderError as u8;
        if !failed || index.srqn_uidx() != self.cq.index {
            self.counters.garbage_completions += 1;
            log::warn!("a completion that fits no striding queue was dropped");
            return None;
        }
        let failure = QueueFailure::of(entry.word::<ErrorWord>());
        if failure.syndrome == Syndrome::LocalLength {
            // Costs what is left of its request, and the queue goes on.
            self.counters.too_long += 1;
            let request = self.current;
            if request != self.head {
                let rest = (1 << self.log_strides) - self.used;
                self.current = request.wrapping_add(1);
                self.used = 0;
                self.release(request, rest);
            }
            return None;
        }
        // What is flushed has not failed by itself.
        match self.failure {
            Some(EthernetReceiveError::Failed(known)) if known.syndrome != Syndrome::WrFlush => {}
            Some(EthernetReceiveError::Strides(_)) => {}
            _ => self.failure = Some(EthernetReceiveError::Failed(failure)),
        }
        None
    }

    /// Returns `true` if the frame came from this queue, since it was set going.
    #[inline(always)]
    fn owns(&self, frame: &StridedFrame) -> bool {
        frame.owner == self.owner
    }

    /// Lets the device write to the frame's strides again.
    ///
    /// # Errors
    /// The frame, if it is not from this queue, or from before a [`recover`](Self::recover), after which it is nothing
    /// any more.
    #[inline(always)]
    pub fn give_back(&mut self, frame: StridedFrame) -> Result<(), StridedFrame> {
        if !self.owns(&frame) {
            return Err(frame);
        }
        let request = frame.at >> (self.log_strides + self.log_stride);
        self.release(request, frame.strides.into());
        Ok(())
    }

    /// Where the frame lies, for requests of the same protection domain. `None` if it is not from this queue.
    #[must_use]
    #[inline(always)]
    pub fn sge(&self, frame: &StridedFrame) -> Option<Sge> {
        self.owns(frame).then(|| Sge {
            addr: self.addr + u64::from(frame.at),
            length: frame.length.into(),
            lkey: self.lkey,
        })
    }

    /// Copies the frame's beginning, as much as there is place for; how much that was. 0 if it is not from this queue.
    pub fn copy_to(&self, frame: &StridedFrame, data: &mut [u8]) -> usize {
        let length = frame.len().min(data.len());
        let data = data.get_mut(..length).unwrap_or(&mut []);
        if self.owns(frame) && self.frames.copy_out(frame.at as usize, data).is_ok() {
            length
        } else {
            0
        }
    }

    /// Writes into the frame, to send it on with another header; whether it was this queue's and had as many
    /// bytes.
    #[must_use]
    #[inline]
    pub fn copy_from(&self, frame: &StridedFrame, offset: usize, data: &[u8]) -> bool {
        let inside = offset
            .checked_add(data.len())
            .is_some_and(|end| end <= frame.len());
        inside
            && self.owns(frame)
            && self
                .frames
                .copy_in(frame.at as usize + offset, data)
                .is_ok()
    }

    /// Sets the queue going again after the device has stopped it. Frames that have not been taken are lost, and those
    /// that have are nothing any more.
    ///
    /// # Errors
    /// If the firmware refuses.
    pub fn recover(&mut self) -> Result<(), EthernetError> {
        let mut query = QueryRqIn::new();
        query.set_rqn(self.queue.number());
        let now = self.device.execute(&query)?.rq_context().state();
        if now == state::READY {
            self.modify(state::READY, state::ERROR)?;
        }
        if now != state::RESET {
            self.modify(state::ERROR, state::RESET)?;
        }
        // In reset the device completes nothing any more, and what it has completed lies before the command's answer.
        self.cq.drain().map_err(EthernetError::Cq)?;
        self.owner = self.owner & !0xff | self.owner.wrapping_add(1) & 0xff;
        self.start()?;
        self.failure = None;
        Ok(())
    }

    fn modify(&self, from: u8, to: u8) -> Result<(), CommandError> {
        let mut command = ModifyRqIn::new();
        command.set_rqn(self.queue.number()).set_rq_state(from);
        command.ctx_mut().set_state(to).set_vsd(!self.strip_vlan);
        self.device.execute_no_output(&command)
    }

    /// Returns `true` if a completion waits to be taken; most likely a frame.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.failure.is_some() || !self.cq.is_empty()
    }

    /// Waits until there is a frame or the time is `deadline` (the platform's clock), driving the device meanwhile.
    ///
    /// # Errors
    /// If the device no longer works.
    pub fn wait(&mut self, deadline: Duration) -> Result<bool, DeviceError> {
        Ok(self.failure.is_some() || self.cq.wait_entry(deadline)?)
    }

    /// The counts of completions that were no frames.
    #[must_use]
    pub fn counters(&self) -> StridingCounters {
        self.counters
    }

    /// Requests that the device may write to.
    #[must_use]
    pub fn posted(&self) -> u32 {
        self.head.wrapping_sub(self.current)
    }

    /// Strides in a request, and bytes of a stride.
    #[must_use]
    pub fn strides(&self) -> (u32, u32) {
        (1 << self.log_strides, 1 << self.log_stride)
    }

    /// Its number, for [indirection tables](super::IndirectionTable) and [targets](super::EthernetTarget).
    #[must_use]
    pub fn number(&self) -> Rqn {
        Rqn::from_low_bits(self.queue.number())
    }

    /// Destroys it, as dropping does, and returns the firmware's refusal.
    ///
    /// # Errors
    /// If the firmware refuses, most likely as a target names it.
    pub fn destroy(mut self) -> Result<(), CommandError> {
        self.queue.destroy()
    }
}

impl<P: Platform> fmt::Debug for StridingReceive<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StridingReceive")
            .field("rqn", &format_args!("{:#x}", self.queue.number()))
            .field("posted", &self.posted())
            .field("failure", &self.failure)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}
