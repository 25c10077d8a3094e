//! The receive half: frames out of the device.
//!
//! A ring of requests that never change: each names its buffer, and posting it again is counting on. Frames complete in
//! the order of the ring, and at most one is lent out, so that they come back in that order, too.

use core::fmt;
use core::time::Duration;

use bareverbs_firmware_cmds::cqe::{
    ByteCountWord, ErrorWord, Format, HeadersWord, IndexWord, Opcode, PathWord, RssHashWord,
    SlidWord, Syndrome, TailWord, TimestampWord, WqeIdWord,
};
use bareverbs_firmware_cmds::doorbell::ReceiveRecord;
use bareverbs_firmware_cmds::numbers::Rqn;
use bareverbs_firmware_cmds::rq::{CreateRqIn, ModifyRqIn, QueryRqIn};
use bareverbs_firmware_cmds::word::Word;
use bareverbs_firmware_cmds::wqe::{SEGMENT_UNIT, data_segment};

use crate::barrier::write_barrier;
use crate::device::Device;
use crate::ethernet::HEADER_LEN;
use crate::ethernet::compression::{has_checksum, has_hash, has_time};
use crate::ethernet::error::{EthernetError, EthernetReceiveError, QueueFailure};
use crate::ethernet::limits::Limits;
use crate::ethernet::objects::{Kind, QueueMemory, WorkQueue, state};
use crate::ethernet::queue::EthernetInit;
use crate::ethernet::rss::FrameHash;
use crate::platform::Platform;
use crate::types::error::{CommandError, DeviceError};
use crate::types::sge::Access;
use crate::verbs::cq::{Cq, CqEntries, CqInit};
use crate::verbs::mr::Buffer;
use crate::verbs::pd::Pd;

/// Size of a request: one data segment.
const WQE: usize = SEGMENT_UNIT;
/// Binary logarithm of it.
const LOG_WQE: u8 = 4;

/// The counts of frames that came and were not handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReceiveCounters {
    /// Frames handed out.
    pub received: u64,
    /// Frames that were longer than the buffers.
    pub too_long: u64,
    /// Frames with less than an Ethernet header, or whose completion contradicts itself.
    pub malformed: u64,
    /// Completions that fitted no request and were dropped. Anything but 0 means a broken device.
    pub garbage_completions: u64,
}

/// The receive half of an Ethernet queue. `Send`, allocation-free, without locks.
pub struct EthernetReceive<'d, P: Platform> {
    // In the order in which they have to go.
    queue: WorkQueue<'d, P>,
    frames: Buffer<'d, P>,
    cq: Cq<'d, P>,
    device: &'d Device<'d, P>,
    /// Requests, minus 1.
    mask: u32,
    /// Requests posted, and completed, counted on.
    head: u32,
    tail: u32,
    stride: usize,
    frame_len: usize,
    strip_vlan: bool,
    failure: Option<QueueFailure>,
    counters: ReceiveCounters,
}

/// The meaning of a completion.
enum Outcome {
    Frame(Received),
    /// Nothing for the caller.
    Dropped,
}

/// A frame that lies in its buffer.
#[derive(Debug, Clone, Copy)]
struct Received {
    at: usize,
    length: usize,
    headers: HeadersWord,
    tunneled: bool,
    hash: FrameHash,
    checksum: u16,
    flow_tag: u32,
    timestamp: u64,
}

impl<'d, P: Platform> EthernetReceive<'d, P> {
    pub(super) fn create(
        pd: &Pd<'d, P>,
        limits: &Limits,
        init: &EthernetInit,
        frame_len: usize,
    ) -> Result<Self, EthernetError> {
        let device = pd.device();
        let (frames, strip_vlan) = (init.recv_frames, init.strip_vlan);
        if strip_vlan && !limits.vlan_strip {
            return Err(EthernetError::Unsupported {
                what: "VLAN tags taken out (vlan_cap)",
            });
        }
        let most = 1_u32 << limits.log_queue;
        if frames == 0 || frames > most {
            return Err(EthernetError::Size {
                field: "recv_frames",
                asked: frames.into(),
                limit: most.into(),
            });
        }
        let frames = frames.next_power_of_two();
        let stride = frame_len.next_multiple_of(64);
        let buffer = pd
            .alloc_buffer(frames as usize * stride, Access::LOCAL_WRITE)
            .map_err(EthernetError::Buffer)?;
        let cq = device
            .create_cq(CqInit {
                comp_vector: init.comp_vector,
                entries: init.compression.entries(),
                ..CqInit::new(frames)
            })
            .map_err(EthernetError::Cq)?;
        let memory =
            QueueMemory::new(device, frames as usize * WQE, 0).map_err(EthernetError::Memory)?;
        for frame in 0..frames as usize {
            let at = buffer.addr() + (frame * stride) as u64;
            let request = data_segment(frame_len as u32, buffer.lkey(), at);
            memory.buffer.write_bytes(frame * WQE, &request);
        }

        let mut command = CreateRqIn::new();
        let context = command.ctx_mut();
        context
            // With it, tags stay in the frame.
            .set_vsd(!strip_vlan)
            .set_flush_in_error_en(true)
            .set_state(state::RESET)
            .set_ts_format(limits.receive_clock)
            .set_user_index(cq.index)
            .set_counter_set_id(device.queue_counter_set())
            .set_cqn(cq.cqn().number());
        let wq = context.wq_mut();
        wq.set_pd(pd.pdn().number())
            .set_log_wq_stride(LOG_WQE)
            .set_log_wq_sz(frames.ilog2() as u8);
        let pages = memory.describe(wq);
        let queue = WorkQueue::create(device, Kind::Rq, memory, &pages, |tail| {
            device
                .execute_with(&command, tail, &mut [])
                .map(|out| out.rqn())
        })?;
        let mut receive = Self {
            queue,
            frames: buffer,
            cq,
            device,
            mask: frames - 1,
            head: 0,
            tail: 0,
            stride,
            frame_len,
            strip_vlan,
            failure: None,
            counters: ReceiveCounters::default(),
        };
        receive.start()?;
        Ok(receive)
    }

    /// Lets a queue in reset run, and posts everything. The record is 0 while it gets ready: "the RQ consumer index must be
    /// zeroed while moving from RESET state to RDY state" (DPDK, `mlx5_rx_err_handle`).
    fn start(&mut self) -> Result<(), CommandError> {
        self.tail = 0;
        self.head = 0;
        self.post(0);
        self.modify(state::RESET, state::READY)?;
        self.post(self.mask + 1);
        Ok(())
    }

    /// Gives the next `count` buffers to the device.
    fn post(&mut self, count: u32) {
        self.head = self.head.wrapping_add(count);
        let memory = self.queue.memory();
        write_barrier();
        let mut record = ReceiveRecord(0);
        record.set_counter(self.head as u16);
        let at = memory.record + ReceiveRecord::OFFSET;
        memory.buffer.write_be32(at, record.0);
    }

    /// The next frame, `None` if there is none.
    ///
    /// # Errors
    /// [`EthernetReceiveError::Failed`] once the device has stopped the queue and what came before has been taken.
    pub fn receive(&mut self) -> Result<Option<ReceivedFrame<'_, 'd, P>>, EthernetReceiveError> {
        // No more than can be there at once, so that a broken device cannot block the caller.
        for _ in 0..=self.mask {
            match self.cq.take_entry().map_err(EthernetReceiveError::Cq)? {
                Some(entry) => {
                    if let Outcome::Frame(received) = self.complete(&entry) {
                        return Ok(Some(ReceivedFrame {
                            queue: self,
                            received,
                        }));
                    }
                }
                None => {
                    return match self.failure {
                        Some(failure) => Err(EthernetReceiveError::Failed(failure)),
                        None => Ok(None),
                    };
                }
            }
        }
        Ok(None)
    }

    fn complete(&mut self, entry: &[u8; 64]) -> Outcome {
        let tail = TailWord::read(entry);
        // In a receive completion there is no queue's number: a mark of flow steering stands there instead.
        let ours = IndexWord::read(entry).srqn_uidx() == self.cq.index;
        let posted = ours && self.head != self.tail;
        let next = (u32::from(tail.wqe_counter()) ^ self.tail) & self.mask == 0;
        match Opcode::from_number(tail.last().opcode()) {
            Some(Opcode::ResponderSend) if posted && next => {}
            // What is flushed need not name its request; they come in order anyway.
            Some(Opcode::ResponderError) if posted => {
                self.tail = self.tail.wrapping_add(1);
                self.fail(ErrorWord::read(entry));
                return Outcome::Dropped;
            }
            _ => {
                self.counters.garbage_completions += 1;
                log::warn!("a completion that fits no receive buffer was dropped");
                return Outcome::Dropped;
            }
        }
        let slot = (self.tail & self.mask) as usize;
        self.tail = self.tail.wrapping_add(1);
        let length = ByteCountWord::read(entry).byte_cnt() as usize;
        let whole = (HEADER_LEN..=self.frame_len).contains(&length);
        let headers = HeadersWord::read(entry);
        let tag_unasked = headers.vlan() && !self.strip_vlan;
        if !whole || tag_unasked || tail.last().format() != Format::NoInline as u8 {
            self.counters.malformed += 1;
            self.post(1);
            return Outcome::Dropped;
        }
        self.counters.received += 1;
        Outcome::Frame(Received {
            at: slot * self.stride,
            length,
            headers,
            tunneled: WqeIdWord::read(entry).tunneled(),
            hash: FrameHash {
                value: RssHashWord::read(entry).rss_hash_result(),
                kind: PathWord::read(entry).rss_hash_type(),
            },
            checksum: SlidWord::read(entry).check_sum(),
            flow_tag: tail.qpn(),
            timestamp: TimestampWord::read(entry).timestamp(),
        })
    }

    #[cold]
    fn fail(&mut self, error: ErrorWord) {
        let failure = QueueFailure::of(error);
        match failure.syndrome {
            // Costs its buffer, and the queue goes on.
            Syndrome::LocalLength => {
                self.counters.too_long += 1;
                self.post(1);
            }
            // What is flushed has not failed by itself.
            Syndrome::WrFlush if self.failure.is_some() => {}
            _ => self.failure = Some(self.failure.unwrap_or(failure)),
        }
    }

    /// Sets the queue going again after the device has stopped it. Frames that have not been taken are lost.
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

    /// Asks for an event at the next frame, as [`Cq::arm`] does: look for frames afterwards.
    pub fn arm(&mut self) {
        self.cq.arm(false);
    }

    /// Returns `true` if an event came since the last call; events arrive while the device is polled.
    pub fn take_event(&mut self) -> bool {
        self.cq.take_event()
    }

    /// Waits until there is a frame or the time is `deadline` (the platform's clock), driving the device meanwhile.
    ///
    /// # Errors
    /// If the device no longer works.
    pub fn wait(&mut self, deadline: Duration) -> Result<bool, DeviceError> {
        Ok(self.failure.is_some() || self.cq.wait_entry(deadline)?)
    }

    /// Bytes of the longest frame that can be received.
    #[must_use]
    pub fn frame_len(&self) -> usize {
        self.frame_len
    }

    /// Frames that the queue holds.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.mask + 1
    }

    /// The counts of frames.
    #[must_use]
    pub fn counters(&self) -> ReceiveCounters {
        self.counters
    }

    /// Why the device has stopped the queue, if it has.
    #[must_use]
    pub fn failure(&self) -> Option<QueueFailure> {
        self.failure
    }

    /// Its number, for [indirection tables](super::IndirectionTable) and [targets](super::EthernetTarget).
    #[must_use]
    pub fn number(&self) -> Rqn {
        Rqn::from_low_bits(self.queue.number())
    }

    pub(super) fn rqn(&self) -> u32 {
        self.queue.number()
    }

    pub(super) fn destroy(&mut self) -> Result<(), CommandError> {
        self.queue.destroy()
    }
}

/// A frame that was received. Its buffer goes back to the device when this is dropped.
///
/// The contents are copied out, and a caller that looks at them twice should look at the copy: nothing keeps a
/// device from writing there.
pub struct ReceivedFrame<'q, 'd, P: Platform> {
    queue: &'q mut EthernetReceive<'d, P>,
    received: Received,
}

impl<P: Platform> ReceivedFrame<'_, '_, P> {
    /// Bytes of the frame, from the destination address on and without check sequence, perhaps with padding.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it has a header at least")]
    pub fn len(&self) -> usize {
        self.received.length
    }

    /// Copies the frame's start to `data`, as far as it goes, and returns how many bytes that were.
    pub fn copy_to(&self, data: &mut [u8]) -> usize {
        let length = self.received.length.min(data.len());
        self.copy_from(0, &mut data[..length]);
        length
    }

    /// Copies from `offset` on to `data`; whether the frame has that many bytes there.
    pub fn copy_from(&self, offset: usize, data: &mut [u8]) -> bool {
        let inside = offset
            .checked_add(data.len())
            .is_some_and(|end| end <= self.received.length);
        inside
            && self
                .queue
                .frames
                .copy_out(self.received.at + offset, data)
                .is_ok()
    }

    /// The device found an IP header, and its checksum right; [in a tunnel](Self::tunneled), the inner and the outer one.
    #[must_use]
    pub fn l3_ok(&self) -> bool {
        self.received.headers.l3_ok()
    }

    /// The device found a TCP or UDP header, and its checksum right; [in a tunnel](Self::tunneled), the inner one, and the
    /// outer checksum if there is one.
    #[must_use]
    pub fn l4_ok(&self) -> bool {
        self.received.headers.l4_ok()
    }

    /// The device found a packet in the frame: what it says of headers is of that. It looks there for a
    /// [target of tunnels](super::EthernetDomain::create_tunnel_target) only.
    #[must_use]
    pub fn tunneled(&self) -> bool {
        self.received.tunneled
    }

    /// The VLAN tag (its TCI) that the device has taken out of the frame, if it was
    /// [asked to](super::EthernetInit::strip_vlan).
    #[must_use]
    pub fn vlan(&self) -> Option<u16> {
        let headers = self.received.headers;
        headers.vlan().then(|| headers.vlan_info())
    }

    /// The hash that chose the queue, if an [`EthernetTarget`](super::EthernetTarget) with a hash did. `None` if the device
    /// compresses and does not keep it: [`FrameCompression::CHECKSUM`](super::FrameCompression::CHECKSUM).
    #[must_use]
    pub fn hash(&self) -> Option<FrameHash> {
        has_hash(self.entries()).then_some(self.received.hash)
    }

    /// The sum (16 bits, one's complement, not inverted) over an IP packet with its header, without what is around it: Linux's
    /// `CHECKSUM_COMPLETE`. `None` if the device compresses and does not keep it:
    /// [`FrameCompression::HASH`](super::FrameCompression::HASH).
    #[must_use]
    pub fn checksum(&self) -> Option<u16> {
        has_checksum(self.entries()).then_some(self.received.checksum)
    }

    fn entries(&self) -> CqEntries {
        self.queue.cq.init().entries
    }

    /// The mark of the rule that sent the frame here: [`FlowRuleInit::tag`](super::FlowRuleInit::tag).
    #[must_use]
    pub fn flow_tag(&self) -> u32 {
        self.received.flow_tag
    }

    /// The device's clock when the frame came. `None` if the device [compresses](super::FrameCompression): then only the first
    /// frame of a session has its own.
    #[must_use]
    pub fn timestamp(&self) -> Option<u64> {
        has_time(self.entries()).then_some(self.received.timestamp)
    }
}

impl<P: Platform> Drop for ReceivedFrame<'_, '_, P> {
    fn drop(&mut self) {
        self.queue.post(1);
    }
}

impl<P: Platform> fmt::Debug for ReceivedFrame<'_, '_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceivedFrame")
            .field("len", &self.len())
            .field("l3_ok", &self.l3_ok())
            .field("l4_ok", &self.l4_ok())
            .finish_non_exhaustive()
    }
}

impl<P: Platform> fmt::Debug for EthernetReceive<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EthernetReceive")
            .field("rqn", &format_args!("{:#x}", self.queue.number()))
            .field("posted", &self.head.wrapping_sub(self.tail))
            .field("failure", &self.failure)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}
