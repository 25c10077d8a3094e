//! The send half: frames into the device.
//!
//! Each frame has its own buffer, the one of its number modulo the queue's size, and a request in the ring that names
//! it. A request is as long as the headers that the device requires inline make it, so the ring is counted in blocks of
//! 64 bytes, and where each frame's request starts is noted, to identify it in its completion.
//!
//! **Doorbell.** As with QPs: barrier, doorbell record, and the first eight bytes of the request to the UAR.

use core::fmt;
use core::num::NonZeroU16;
use core::time::Duration;

use bareverbs_firmware_cmds::cqe::{ErrorWord, IndexWord, Opcode as CqeOpcode, Syndrome, TailWord};
use bareverbs_firmware_cmds::doorbell::{self, SendRecord};
use bareverbs_firmware_cmds::numbers::Qpn;
use bareverbs_firmware_cmds::sq::{CreateSqIn, ModifySqIn, QuerySqIn};
use bareverbs_firmware_cmds::word::Word;
use bareverbs_firmware_cmds::wqe::{
    BASIC_BLOCK, ControlFlags, ControlWord, EthernetInlineWord, EthernetOffloadWord, Opcode,
    completion, data_segment, ethernet,
};

use crate::barrier::write_barrier;
use crate::device::Device;
use crate::ethernet::HEADER_LEN;
use crate::ethernet::error::{EthernetError, EthernetSendError, QueueFailure};
use crate::ethernet::limits::Limits;
use crate::ethernet::objects::{Kind, Object, QueueMemory, WorkQueue, state};
use crate::ethernet::offload::{EthernetOffload, EthernetSendFlags};
use crate::platform::Platform;
use crate::types::error::{CommandError, DeviceError};
use crate::types::sge::{Access, Sge};
use crate::verbs::cq::{Cq, CqInit};
use crate::verbs::mr::Buffer;
use crate::verbs::pd::Pd;

/// Size of a send queue's block.
const BLOCK: usize = BASIC_BLOCK;
/// Binary logarithm of it.
const LOG_BLOCK: u8 = 6;
/// Pieces of the caller's memory in one frame.
const MAX_SGES: usize = 3;
/// The longest request: control, Ethernet with most headers inline, the frame's own buffer, the caller's pieces.
const MAX_WQE: usize = 4 * BLOCK;
/// Where inline headers start.
const INLINE_AT: usize = 16 + ethernet::INLINE_START;

/// The longest header of a large send: IPv6, and TCP with all options, in VXLAN over IPv4. Outside of a tunnel no header of
/// TCP is as long.
const MAX_LARGE_HEADER: usize = (HEADER_LEN + 20 + 8 + 8) + HEADER_LEN + 40 + 60;
const _: () =
    assert!((INLINE_AT + TAG + MAX_LARGE_HEADER).next_multiple_of(16) + MAX_SGES * 16 <= MAX_WQE);

/// Length of a VLAN tag, and of what stands in front of it.
const TAG: usize = 4;
const ADDRESSES: usize = 12;

/// Returns `true` if a frame has two VLAN tags (IEEE 802.1ad): then the Ethernet header is longer by one than what
/// [`Limits::min_inline`] counts.
fn has_second_tag(header: &[u8]) -> bool {
    let tag = |at: usize| {
        let kind = header.get(at..at + 2);
        kind == Some(&[0x81, 0x00]) || kind == Some(&[0x88, 0xa8])
    };
    tag(HEADER_LEN - 2) && tag(HEADER_LEN - 2 + TAG)
}

/// The bytes of a frame with two VLAN tags that have to be inline, if any have to.
const fn with_second_tag(min_inline: usize) -> usize {
    match min_inline {
        0 => 0,
        some => some + TAG,
    }
}

/// A frame that was handed to the device, for [`EthernetSend::is_complete`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentFrame(u32);

/// The send half of an Ethernet queue. `Send`, allocation-free, without locks.
pub struct EthernetSend<'d, P: Platform> {
    // In the order in which they have to go.
    queue: WorkQueue<'d, P>,
    tis: Object<'d, P>,
    frames: Buffer<'d, P>,
    cq: Cq<'d, P>,
    device: &'d Device<'d, P>,
    doorbell: u32,
    /// Blocks, minus 1.
    mask: u16,
    /// Next block; the device counts on, too.
    block: u16,
    /// Frames, minus 1.
    frame_mask: u32,
    /// Next frame and oldest one that has not completed, counted on.
    head: u32,
    tail: u32,
    /// Bytes from one frame's buffer to the next one's, and bytes of a frame at most.
    stride: usize,
    frame_len: usize,
    min_inline: usize,
    /// Those that the card fills in.
    checksums: EthernetSendFlags,
    vlan_insert: bool,
    /// Bytes of the longest large send; 0 without.
    max_lso: u32,
    failure: Option<QueueFailure>,
    garbage: u64,
}

/// The layout of a request.
#[derive(Clone, Copy)]
struct Plan {
    opcode: Opcode,
    offload: EthernetOffload,
    /// Bytes of the header that stand in the request.
    inline: usize,
    /// The tag stands there as well, rather than in the segment.
    inline_tag: bool,
}

impl<'d, P: Platform> EthernetSend<'d, P> {
    pub(super) fn create(
        pd: &Pd<'d, P>,
        limits: &Limits,
        domain: &Object<'d, P>,
        frames: u32,
        frame_len: usize,
        comp_vector: u16,
    ) -> Result<Self, EthernetError> {
        let device = pd.device();
        let min_inline = limits.min_inline();
        let longest = (INLINE_AT + with_second_tag(min_inline)).next_multiple_of(16);
        let blocks_each = (longest + 16 * (1 + MAX_SGES)).div_ceil(BLOCK) as u32;
        let most = (1_u32 << limits.log_queue) / blocks_each.next_power_of_two();
        if frames == 0 || frames > most {
            return Err(EthernetError::Size {
                field: "send_frames",
                asked: frames.into(),
                limit: most.into(),
            });
        }
        let frames = frames.next_power_of_two();
        let blocks = (frames * blocks_each).next_power_of_two();
        let stride = frame_len.next_multiple_of(64);
        let buffer = pd
            .alloc_buffer(frames as usize * stride, Access::empty())
            .map_err(EthernetError::Buffer)?;
        let cq = device
            .create_cq(CqInit {
                comp_vector,
                ..CqInit::new(frames)
            })
            .map_err(EthernetError::Cq)?;
        let tis = Object::tis(device, domain.number())?;
        let memory = QueueMemory::new(device, blocks as usize * BLOCK, frames as usize * 4)
            .map_err(EthernetError::Memory)?;

        let mut command = CreateSqIn::new();
        let context = command.ctx_mut();
        context
            .set_flush_in_error_en(true)
            .set_state(state::RESET)
            .set_min_wqe_inline_mode(limits.queue_inline_mode)
            .set_ts_format(limits.send_clock)
            .set_user_index(cq.index)
            .set_cqn(cq.cqn().number())
            .set_tis_lst_sz(1)
            .set_tis_num_0(tis.number());
        let wq = context.wq_mut();
        wq.set_pd(pd.pdn().number())
            .set_uar_page(device.uar().number())
            .set_log_wq_stride(LOG_BLOCK)
            .set_log_wq_sz(blocks.ilog2() as u8);
        let pages = memory.describe(wq);
        let queue = WorkQueue::create(device, Kind::Sq, memory, &pages, |tail| {
            device
                .execute_with(&command, tail, &mut [])
                .map(|out| out.sqn())
        })?;
        let send = Self {
            queue,
            tis,
            frames: buffer,
            cq,
            device,
            doorbell: (device.uar().bar_offset() + doorbell::SEND) as u32,
            mask: (blocks - 1) as u16,
            block: 0,
            frame_mask: frames - 1,
            head: 0,
            tail: 0,
            stride,
            frame_len,
            min_inline,
            checksums: limits.checksums,
            vlan_insert: limits.vlan_insert,
            max_lso: limits.max_lso,
            failure: None,
            garbage: 0,
        };
        send.modify(state::RESET, state::READY)?;
        Ok(send)
    }

    /// Sends a frame: everything from the destination address on, without check sequence. It is copied; the device pads
    /// it if it is shorter than Ethernet's minimum.
    ///
    /// # Errors
    /// [`EthernetSendError::Full`] as long as the device is behind; the others say what is wrong with frame or queue.
    pub fn send(
        &mut self,
        frame: &[u8],
        flags: EthernetSendFlags,
    ) -> Result<SentFrame, EthernetSendError> {
        self.send_gather(frame, &[], flags)
    }

    /// Sends a frame that starts with `header`, which is copied, and goes on with pieces of registered memory of the
    /// queue's protection domain, which must not change until the frame [is complete](Self::is_complete).
    ///
    /// # Errors
    /// The errors are those of [`send`](Self::send).
    pub fn send_gather(
        &mut self,
        header: &[u8],
        sges: &[Sge],
        flags: EthernetSendFlags,
    ) -> Result<SentFrame, EthernetSendError> {
        let offload = EthernetOffload {
            flags,
            ..EthernetOffload::default()
        };
        self.send_offloaded(header, sges, &offload)
    }

    /// Sends like [`send_gather`](Self::send_gather), with what the device is to do to the frame. With
    /// [`mss`](EthernetOffload::mss), the pieces are the payload of as many packets as it takes.
    ///
    /// # Errors
    /// The errors are those of [`send`](Self::send); [`EthernetSendError::Unsupported`] names the capability that the card lacks.
    pub fn send_offloaded(
        &mut self,
        header: &[u8],
        sges: &[Sge],
        offload: &EthernetOffload,
    ) -> Result<SentFrame, EthernetSendError> {
        self.poll()?;
        if let Some(failure) = self.failure {
            return Err(EthernetSendError::Failed(failure));
        }
        if sges.len() > MAX_SGES {
            return Err(EthernetSendError::TooManySges {
                given: sges.len(),
                limit: MAX_SGES,
            });
        }
        if !self.checksums.contains(offload.flags) {
            return Err(EthernetSendError::NoChecksums);
        }
        let plan = match offload.mss {
            None => self.plan(header, sges, offload)?,
            Some(mss) => self.plan_large(header, sges, offload, mss)?,
        };
        let full = match offload.mss {
            None => false,
            // What a request of this kind takes at most.
            Some(_) => self.free_blocks() < (MAX_WQE / BLOCK) as u16,
        };
        if self.free() == 0 || full {
            return Err(EthernetSendError::Full {
                limit: self.frame_mask + 1,
            });
        }
        self.write(header, sges, &plan);
        Ok(SentFrame(self.head.wrapping_sub(1)))
    }

    /// Blocks in front of the oldest frame under way.
    fn free_blocks(&self) -> u16 {
        let blocks = self.mask.wrapping_add(1);
        if self.outstanding() == 0 {
            return blocks;
        }
        let memory = self.queue.memory();
        let slot = (self.tail & self.frame_mask) as usize;
        let oldest = memory.buffer.read_be32(memory.notes + slot * 4) as u16;
        blocks.wrapping_sub(self.block.wrapping_sub(oldest))
    }

    /// A frame that goes out as it is, but for a tag.
    fn plan(
        &self,
        header: &[u8],
        sges: &[Sge],
        offload: &EthernetOffload,
    ) -> Result<Plan, EthernetSendError> {
        let length = sges.iter().fold(header.len(), |sum, sge| {
            sum.saturating_add(sge.length as usize)
        });
        let tag = if offload.vlan.is_some() { TAG } else { 0 };
        if header.len() < HEADER_LEN || length > self.frame_len - tag {
            return Err(EthernetSendError::Length {
                length: if header.len() < HEADER_LEN {
                    header.len()
                } else {
                    length
                },
                limit: self.frame_len - tag,
            });
        }
        let demanded = if has_second_tag(header) {
            with_second_tag(self.min_inline)
        } else {
            self.min_inline
        };
        let inline = demanded.min(length);
        if header.len() < inline {
            return Err(EthernetSendError::HeaderTooShort {
                length: header.len(),
                needed: inline,
            });
        }
        // The segment has a place for a tag or for headers.
        if tag != 0 && inline == 0 && !self.vlan_insert {
            return Err(EthernetSendError::Unsupported {
                what: "VLAN tags put in (wqe_vlan_insert)",
            });
        }
        Ok(Plan {
            opcode: Opcode::Send,
            offload: *offload,
            inline,
            inline_tag: tag != 0 && inline != 0,
        })
    }

    /// A large send, whose header stands in the request.
    fn plan_large(
        &self,
        header: &[u8],
        sges: &[Sge],
        offload: &EthernetOffload,
        mss: NonZeroU16,
    ) -> Result<Plan, EthernetSendError> {
        if self.max_lso == 0 {
            return Err(EthernetSendError::Unsupported {
                what: "large sends (max_lso_cap)",
            });
        }
        if !(HEADER_LEN..=MAX_LARGE_HEADER).contains(&header.len()) {
            return Err(EthernetSendError::Length {
                length: header.len(),
                limit: MAX_LARGE_HEADER,
            });
        }
        let payload = sges
            .iter()
            .fold(0_usize, |sum, sge| sum.saturating_add(sge.length as usize));
        let tag = if offload.vlan.is_some() { TAG } else { 0 };
        let limit = self.max_lso as usize;
        let packet = header.len() + tag + payload.min(mss.get().into());
        if payload == 0 || payload > limit || packet > self.frame_len {
            return Err(EthernetSendError::SegmentSize {
                mss: mss.get(),
                length: payload,
                limit,
            });
        }
        Ok(Plan {
            opcode: Opcode::Lso,
            offload: *offload,
            inline: header.len(),
            inline_tag: tag != 0,
        })
    }

    /// Writes the request and rings the doorbell. Everything was checked.
    fn write(&mut self, header: &[u8], sges: &[Sge], plan: &Plan) {
        let inline = plan.inline;
        let slot = (self.head & self.frame_mask) as usize;
        let own = (header.len() > inline).then(|| {
            // Inside the buffer, as slot and length are in range.
            let _ = self.frames.copy_in(slot * self.stride, header);
            let at = self.frames.addr() + (slot * self.stride + inline) as u64;
            data_segment((header.len() - inline) as u32, self.frames.lkey(), at)
        });
        let pieces = sges
            .iter()
            // A length of 0 would mean 2 GiB.
            .filter(|sge| sge.length != 0)
            .map(|sge| data_segment(sge.length, sge.lkey, sge.addr));

        let mut wqe = [0; MAX_WQE];
        let mut offload = EthernetOffloadWord(0);
        offload.set_cs_flags(plan.offload.flags.bits());
        offload.set_mss(plan.offload.mss.map_or(0, NonZeroU16::get));
        let mut headers = EthernetInlineWord(0);
        let mut end = INLINE_AT;
        let tci = plan.offload.vlan.unwrap_or(0);
        if plan.inline_tag {
            let (addresses, rest) = header[..inline].split_at(ADDRESSES.min(inline));
            let tag = [0x81, 0x00, (tci >> 8) as u8, tci as u8];
            for part in [addresses, &tag, rest] {
                wqe[end..end + part.len()].copy_from_slice(part);
                end += part.len();
            }
            headers.set_inline_hdr_sz((end - INLINE_AT) as u16);
        } else if plan.offload.vlan.is_some() {
            headers.set_inline_hdr_sz(ethernet::INSERT_VLAN);
            headers.set_vlan_tci(tci);
        } else {
            wqe[end..end + inline].copy_from_slice(&header[..inline]);
            end += inline;
            headers.set_inline_hdr_sz(inline as u16);
        }
        let mut segment = [0; 16];
        offload.write(&mut segment);
        headers.write(&mut segment);
        // The last two bytes of the segment are a tag's, or inline headers.
        let words = if inline == 0 {
            16
        } else {
            ethernet::INLINE_START
        };
        wqe[16..16 + words].copy_from_slice(&segment[..words]);
        let mut end = end.next_multiple_of(16).max(32);
        for data in own.into_iter().chain(pieces) {
            wqe[end..end + 16].copy_from_slice(&data);
            end += 16;
        }
        let control = ControlWord::of_queue(Qpn::from_low_bits(self.queue.number()));
        let control = control.with(plan.opcode, self.block, (end / 16) as u8);
        control.write(&mut wqe);
        ControlFlags::new(completion::ALWAYS, 0).write(&mut wqe);

        let memory = self.queue.memory();
        memory
            .buffer
            .write_be32(memory.notes + slot * 4, self.block.into());
        let (blocks, _) = wqe.as_chunks::<BLOCK>();
        for block in &blocks[..end.div_ceil(BLOCK)] {
            let at = usize::from(self.block & self.mask) * BLOCK;
            memory.buffer.write_bytes(at, block);
            self.block = self.block.wrapping_add(1);
        }
        self.head = self.head.wrapping_add(1);
        write_barrier();
        self.publish();
        self.device
            .platform()
            .write_be64(self.doorbell as usize, control.0);
        self.doorbell ^= doorbell::SEND_TOGGLE as u32;
    }

    /// Writes the block counter to the doorbell record.
    fn publish(&self) {
        let mut record = SendRecord(0);
        record.set_counter(self.block);
        let memory = self.queue.memory();
        let at = memory.record + SendRecord::OFFSET;
        memory.buffer.write_be32(at, record.0);
    }

    /// Frames that can be sent now, as far as completions have been polled.
    #[must_use]
    pub fn free(&self) -> u32 {
        self.frame_mask + 1 - self.outstanding()
    }

    /// Frames that the device has not said to be done with, as far as completions have been polled.
    #[must_use]
    pub fn outstanding(&self) -> u32 {
        self.head.wrapping_sub(self.tail)
    }

    /// Returns `true` if the device is done with a frame, as far as completions have been polled. Asked within 2^31 frames.
    #[must_use]
    pub fn is_complete(&self, frame: SentFrame) -> bool {
        // Those under way are the `outstanding` ones from the tail on.
        frame.0.wrapping_sub(self.tail) >= self.outstanding()
    }

    /// Bytes of the longest frame that can be sent.
    #[must_use]
    pub fn frame_len(&self) -> usize {
        self.frame_len
    }

    /// Bytes at a frame's start that [`send_gather`](Self::send_gather) requires in the header, if the frame has them.
    /// With two VLAN tags it can be four more.
    #[must_use]
    pub fn min_inline(&self) -> usize {
        self.min_inline.max(HEADER_LEN)
    }

    /// Returns `true` if the device fills in checksums.
    #[must_use]
    pub fn has_checksums(&self) -> bool {
        self.checksums.contains(EthernetSendFlags::OUTER)
    }

    /// Returns `true` if it does so inside of tunnels: of [these](super::EthernetDomain::tunnels).
    #[must_use]
    pub fn has_inner_checksums(&self) -> bool {
        self.checksums.contains(EthernetSendFlags::INNER)
    }

    /// Returns `true` if the device puts VLAN tags in. (If headers have to be inline, the driver does.)
    #[must_use]
    pub fn has_vlan_insert(&self) -> bool {
        self.vlan_insert || self.min_inline != 0
    }

    /// Bytes of payload of the longest large send; 0 if the card has none.
    #[must_use]
    pub fn max_large_send(&self) -> u32 {
        self.max_lso
    }

    /// Why the device has stopped the queue, if it has.
    #[must_use]
    pub fn failure(&self) -> Option<QueueFailure> {
        self.failure
    }

    /// Completions that fitted no frame and were dropped. Anything but 0 means a broken device.
    #[must_use]
    pub fn garbage_completions(&self) -> u64 {
        self.garbage
    }

    /// Takes the completions that there are. Sending does it as well.
    ///
    /// # Errors
    /// If the completion queue has failed.
    pub fn poll(&mut self) -> Result<(), EthernetSendError> {
        // No more than can be outstanding, so that a broken device cannot block the caller.
        for _ in 0..=self.frame_mask {
            let Some(entry) = self.cq.take_entry().map_err(EthernetSendError::Cq)? else {
                break;
            };
            self.complete(&entry);
        }
        Ok(())
    }

    /// Waits until the device is done with a frame or the time is `deadline` (the platform's clock), driving the device
    /// meanwhile.
    ///
    /// # Errors
    /// If the device no longer works.
    pub fn wait(&mut self, deadline: Duration) -> Result<bool, DeviceError> {
        self.cq.wait_entry(deadline)
    }

    fn complete(&mut self, entry: &[u8; 64]) {
        let tail = TailWord::read(entry);
        let failed = match CqeOpcode::from_number(tail.last().opcode()) {
            Some(CqeOpcode::Requester) => false,
            Some(CqeOpcode::RequesterError) => true,
            _ => return self.drop_garbage(),
        };
        let index = IndexWord::read(entry).srqn_uidx();
        if index != self.cq.index || tail.qpn() != self.queue.number() {
            return self.drop_garbage();
        }
        let memory = self.queue.memory();
        let starts_here = |frame: u32| {
            let slot = (self.tail.wrapping_add(frame) & self.frame_mask) as usize;
            memory.buffer.read_be32(memory.notes + slot * 4) == u32::from(tail.wqe_counter())
        };
        // The oldest one, in all likelihood.
        let Some(done) = (0..self.outstanding()).find(|&frame| starts_here(frame)) else {
            return self.drop_garbage();
        };
        self.tail = self.tail.wrapping_add(done + 1);
        if failed {
            let failure = QueueFailure::of(ErrorWord::read(entry));
            // What is flushed has not failed by itself.
            match self.failure {
                Some(known) if known.syndrome != Syndrome::WrFlush => {}
                _ => self.failure = Some(failure),
            }
        }
    }

    #[cold]
    fn drop_garbage(&mut self) {
        self.garbage += 1;
        log::warn!("a completion that fits no frame sent was dropped");
    }

    /// Sets the queue going again after the device has stopped it. Frames under way are lost.
    ///
    /// # Errors
    /// If the firmware refuses.
    pub fn recover(&mut self) -> Result<(), EthernetError> {
        let mut query = QuerySqIn::new();
        query.set_sqn(self.queue.number());
        let now = self.device.execute(&query)?.sq_context().state();
        if now == state::READY {
            self.modify(state::READY, state::ERROR)?;
        }
        if now != state::RESET {
            self.modify(state::ERROR, state::RESET)?;
        }
        // In reset the device completes nothing any more, and what it has completed lies before the command's answer.
        self.cq.drain().map_err(EthernetError::Cq)?;
        self.tail = self.head;
        self.block = 0;
        self.publish();
        write_barrier();
        self.modify(state::RESET, state::READY)?;
        self.failure = None;
        Ok(())
    }

    fn modify(&self, from: u8, to: u8) -> Result<(), CommandError> {
        let mut command = ModifySqIn::new();
        command.set_sqn(self.queue.number()).set_sq_state(from);
        command.ctx_mut().set_state(to);
        self.device.execute_no_output(&command)
    }

    pub(super) fn destroy(&mut self) -> Result<(), CommandError> {
        let queue = self.queue.destroy();
        queue.and(self.tis.destroy())
    }
}

impl<P: Platform> fmt::Debug for EthernetSend<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EthernetSend")
            .field("sqn", &format_args!("{:#x}", self.queue.number()))
            .field("outstanding", &self.outstanding())
            .field("free", &self.free())
            .field("failure", &self.failure)
            .finish_non_exhaustive()
    }
}
