//! Many frames in one send request: enhanced multi-packet send (`enhanced_multi_pkt_send_wqe`).
//!
//! A request is a control segment, an Ethernet segment whose flags are those of all its frames, and a data segment for
//! each frame; or the frame itself behind a header of four bytes. One completion is for the whole request, and says how many
//! frames are done with, in the order in which they were pushed.
//!
//! **Doorbell.** As with QPs: barrier, doorbell record, and the first eight bytes of the last request to the UAR.

use core::fmt;
use core::time::Duration;

use bareverbs_firmware_cmds::cqe::{ErrorWord, IndexWord, Opcode as CqeOpcode, Syndrome};
use bareverbs_firmware_cmds::doorbell::{self, SendRecord};
use bareverbs_firmware_cmds::numbers::Qpn;
use bareverbs_firmware_cmds::sq::{CreateSqIn, ModifySqIn, QuerySqIn};
use bareverbs_firmware_cmds::values::InlineMode;
use bareverbs_firmware_cmds::word::Word;
use bareverbs_firmware_cmds::wqe::{
    BASIC_BLOCK, ControlFlags, ControlWord, DataWord, EthernetOffloadWord, InlineWord, Opcode,
    SEGMENT_UNIT, completion,
};

use crate::barrier::write_barrier;
use crate::device::Device;
use crate::ethernet::HEADER_LEN;
use crate::ethernet::error::{EthernetError, EthernetSendError, QueueFailure};
use crate::ethernet::limits::Limits;
use crate::ethernet::objects::{Kind, Object, QueueMemory, WorkQueue, state};
use crate::ethernet::offload::EthernetSendFlags;
use crate::memory::cqe_ring::Cqe;
use crate::platform::Platform;
use crate::types::error::{CommandError, DeviceError};
use crate::types::sge::Sge;
use crate::verbs::cq::{Cq, CqInit};
use crate::verbs::pd::Pd;

/// Binary logarithm of a send queue's block.
const LOG_BLOCK: u8 = BASIC_BLOCK.ilog2() as u8;
/// Units of 16 bytes in a block.
const BLOCK_UNITS: u32 = (BASIC_BLOCK / SEGMENT_UNIT) as u32;
/// Units of the longest request: 15 blocks, and what six bits can say.
const MAX_UNITS: u32 = 60;
/// Control segment and Ethernet segment.
const HEAD_UNITS: u32 = 2;
/// In front of a frame that is in the request itself.
const INLINE_HEADER: usize = 4;
/// The longest frame in the request itself.
const MAX_INLINE: usize = 256;

/// The attributes of a new [`MultiSend`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MultiSendInit {
    /// Blocks of 64 bytes in the ring; rounded up to a power of two, at least 32. A burst of n frames takes n / 4 + 1.
    pub blocks: u32,
    /// Bytes of the longest frame, with header and VLAN tags and without check sequence; what the port's MTU makes of
    /// it if `None`.
    pub frame_len: Option<usize>,
    /// The completion vector (hence interrupt) that the events use, modulo their number.
    pub comp_vector: u16,
}

impl Default for MultiSendInit {
    fn default() -> Self {
        Self {
            blocks: 256,
            frame_len: None,
            comp_vector: 0,
        }
    }
}

/// A send queue whose requests have many frames each. `Send`, allocation-free, without locks.
pub struct MultiSend<'d, P: Platform> {
    // In the order in which they have to go.
    queue: WorkQueue<'d, P>,
    tis: Object<'d, P>,
    cq: Cq<'d, P>,
    device: &'d Device<'d, P>,
    doorbell: u32,
    /// Blocks, minus 1.
    mask: u32,
    /// The next block, and the first one of the oldest request under way, counted on.
    block: u32,
    tail: u32,
    /// Units and frames of the request that is being written.
    units: u32,
    packets: u32,
    cs_flags: u8,
    /// The last control word, for the doorbell.
    control: ControlWord,
    frame_len: u32,
    checksums: EthernetSendFlags,
    /// Frames pushed and not done with, as far as completions have been polled.
    outstanding: u32,
    failure: Option<QueueFailure>,
    garbage: u64,
}

impl<'d, P: Platform> MultiSend<'d, P> {
    pub(super) fn create(
        pd: &Pd<'d, P>,
        limits: &Limits,
        domain: &Object<'d, P>,
        init: &MultiSendInit,
        frame_len: usize,
    ) -> Result<Self, EthernetError> {
        let device = pd.device();
        // A request with many frames has no place for the headers of each.
        if !limits.multi_packet || limits.inline_mode != InlineMode::None {
            return Err(EthernetError::Unsupported {
                what: "several packets in one request (enhanced_multi_pkt_send_wqe, without inline headers)",
            });
        }
        let most = 1_u32 << limits.log_queue;
        if init.blocks == 0 || init.blocks > most {
            return Err(EthernetError::Size {
                field: "blocks",
                asked: init.blocks.into(),
                limit: most.into(),
            });
        }
        let blocks = init.blocks.next_power_of_two().max(32);
        let cq = device
            .create_cq(CqInit {
                comp_vector: init.comp_vector,
                ..CqInit::new(blocks)
            })
            .map_err(EthernetError::Cq)?;
        let tis = Object::tis(device, domain.number())?;
        let memory = QueueMemory::new(device, blocks as usize * BASIC_BLOCK, blocks as usize * 4)
            .map_err(EthernetError::Memory)?;
        let mut command = CreateSqIn::new();
        let context = command.ctx_mut();
        context
            .set_flush_in_error_en(true)
            .set_allow_multi_pkt_send_wqe(true)
            .set_state(state::RESET)
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
            cq,
            device,
            doorbell: (device.uar().bar_offset() + doorbell::SEND) as u32,
            mask: blocks - 1,
            block: 0,
            tail: 0,
            units: 0,
            packets: 0,
            cs_flags: 0,
            control: ControlWord(0),
            frame_len: frame_len as u32,
            checksums: limits.checksums,
            outstanding: 0,
            failure: None,
            garbage: 0,
        };
        send.modify(state::RESET, state::READY)?;
        Ok(send)
    }

    /// Frames to be sent together: the device is told of them when the burst is dropped.
    ///
    /// # Errors
    /// [`EthernetSendError::NoChecksums`] and [`EthernetSendError::Failed`].
    #[inline(always)]
    pub fn burst(
        &mut self,
        flags: EthernetSendFlags,
    ) -> Result<MultiBurst<'_, 'd, P>, EthernetSendError> {
        if let Some(failure) = self.failure {
            return Err(EthernetSendError::Failed(failure));
        }
        if !self.checksums.contains(flags) {
            return Err(EthernetSendError::NoChecksums);
        }
        self.cs_flags = flags.bits();
        Ok(MultiBurst {
            posted: false,
            send: self,
        })
    }

    /// Makes room for a frame of some units in the request that is being written, or begins one.
    #[inline(always)]
    fn room(&mut self, units: u32) -> Result<(), EthernetSendError> {
        // What was begun in this request is closed first, and there is always one block between the ring's ends.
        if self.packets != 0 && self.units + units <= self.limit() {
            return Ok(());
        }
        self.begin(units)
    }

    /// Units that the request being written may have.
    #[inline(always)]
    fn limit(&self) -> u32 {
        let free = self.mask + 1 - self.block.wrapping_sub(self.tail);
        (free * BLOCK_UNITS).min(MAX_UNITS)
    }

    #[inline(never)]
    fn begin(&mut self, units: u32) -> Result<(), EthernetSendError> {
        self.close();
        if HEAD_UNITS + units > self.limit() {
            return Err(EthernetSendError::Full {
                limit: (self.mask + 1) * BLOCK_UNITS,
            });
        }
        self.units = HEAD_UNITS;
        Ok(())
    }

    /// Where a unit of the request being written lies in the ring.
    #[inline(always)]
    fn at(&self, unit: u32) -> usize {
        let unit = self.block.wrapping_mul(BLOCK_UNITS).wrapping_add(unit);
        (unit & (self.mask * BLOCK_UNITS + BLOCK_UNITS - 1)) as usize * SEGMENT_UNIT
    }

    /// Writes control and Ethernet segment of the request that is being written, which is whole then.
    fn close(&mut self) {
        if self.packets == 0 {
            return;
        }
        let memory = self.queue.memory();
        let control = ControlWord::of_queue(Qpn::from_low_bits(self.queue.number()));
        self.control = control.with(Opcode::EnhancedMpsw, self.block as u16, self.units as u8);
        let at = self.at(0);
        memory.buffer.write_be64(at, self.control.0);
        let flags = ControlFlags::new(completion::ALWAYS, 0);
        memory.buffer.write_be64(at + 8, flags.0);
        let mut offload = EthernetOffloadWord(0);
        offload.set_cs_flags(self.cs_flags);
        let at = self.at(1);
        memory.buffer.write_be64(at, offload.0);
        memory.buffer.write_be64(at + 8, 0);
        let note = memory.notes + (self.block & self.mask) as usize * 4;
        let blocks = self.units.div_ceil(BLOCK_UNITS);
        memory.buffer.write_be32(note, self.packets << 8 | blocks);
        self.outstanding += self.packets;
        self.block = self.block.wrapping_add(blocks);
        (self.units, self.packets) = (0, 0);
    }

    /// Tells the device of the requests that are whole.
    fn ring(&mut self) {
        self.close();
        write_barrier();
        let mut record = SendRecord(0);
        record.set_counter(self.block as u16);
        let memory = self.queue.memory();
        let at = memory.record + SendRecord::OFFSET;
        memory.buffer.write_be32(at, record.0);
        self.device
            .platform()
            .write_be64(self.doorbell as usize, self.control.0);
        self.doorbell ^= doorbell::SEND_TOGGLE as u32;
    }

    /// Takes the completions that there are. How many frames the device is done with since the last time, in the order in
    /// which they were pushed.
    ///
    /// # Errors
    /// If the completion queue has failed.
    #[inline]
    pub fn poll(&mut self) -> Result<u32, EthernetSendError> {
        let (mut done, mut taken) = (0, 0);
        // No more than can be outstanding, so that a broken device cannot block the caller.
        while taken <= self.mask
            && let Some((entry, tail)) = self.cq.peek_entry()
        {
            self.cq.advance_entry(entry);
            taken += 1;
            let index: IndexWord = entry.word();
            let ours = index.srqn_uidx() == self.cq.index
                && tail.qpn() == self.queue.number()
                && tail.wqe_counter() == self.tail as u16
                && self.tail != self.block;
            let opcode = tail.last().opcode();
            if !ours || opcode != CqeOpcode::Requester as u8 {
                if !ours || opcode != CqeOpcode::RequesterError as u8 {
                    self.drop_garbage();
                    continue;
                }
                self.fail(entry);
            }
            let memory = self.queue.memory();
            let note = memory.notes + (self.tail & self.mask) as usize * 4;
            let note = memory.buffer.read_be32(note);
            // The note lies in memory that the device reaches: it is held to what can be.
            let packets = (note >> 8).min(self.outstanding);
            let blocks = (note & 0xff).min(self.block.wrapping_sub(self.tail));
            self.tail = self.tail.wrapping_add(blocks.max(1));
            self.outstanding -= packets;
            done += packets;
        }
        if taken != 0 {
            self.cq.publish_taken();
        } else {
            self.cq.check().map_err(EthernetSendError::Cq)?;
        }
        Ok(done)
    }

    #[cold]
    #[inline(never)]
    fn fail(&mut self, entry: Cqe) {
        let failure = QueueFailure::of(entry.word::<ErrorWord>());
        // What is flushed has not failed by itself.
        match self.failure {
            Some(known) if known.syndrome != Syndrome::WrFlush => {}
            _ => self.failure = Some(failure),
        }
    }

    #[cold]
    #[inline(never)]
    fn drop_garbage(&mut self) {
        self.garbage += 1;
        log::warn!("a completion that fits no request of many frames was dropped");
    }

    /// Frames that were pushed and that [`poll`](Self::poll) has not counted.
    #[must_use]
    pub fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// Why the device has stopped the queue, if it has.
    #[must_use]
    pub fn failure(&self) -> Option<QueueFailure> {
        self.failure
    }

    /// Completions that fitted no request and were dropped. Anything but 0 means a broken device.
    #[must_use]
    pub fn garbage_completions(&self) -> u64 {
        self.garbage
    }

    /// Bytes of the longest frame that can be sent.
    #[must_use]
    pub fn frame_len(&self) -> usize {
        self.frame_len as usize
    }

    /// Waits until the device is done with a request or the time is `deadline` (the platform's clock), driving the device
    /// meanwhile.
    ///
    /// # Errors
    /// If the device no longer works.
    pub fn wait(&mut self, deadline: Duration) -> Result<bool, DeviceError> {
        self.cq.wait_entry(deadline)
    }

    /// Sets the queue going again after the device has stopped it. How many frames were under way, which may be lost.
    ///
    /// # Errors
    /// If the firmware refuses.
    pub fn recover(&mut self) -> Result<u32, EthernetError> {
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
        (self.block, self.tail) = (0, 0);
        let memory = self.queue.memory();
        let at = memory.record + SendRecord::OFFSET;
        memory.buffer.write_be32(at, 0);
        write_barrier();
        self.modify(state::RESET, state::READY)?;
        self.failure = None;
        Ok(core::mem::take(&mut self.outstanding))
    }

    fn modify(&self, from: u8, to: u8) -> Result<(), CommandError> {
        let mut command = ModifySqIn::new();
        command.set_sqn(self.queue.number()).set_sq_state(from);
        command.ctx_mut().set_state(to);
        self.device.execute_no_output(&command)
    }

    /// Destroys it, as dropping does, and returns the firmware's first refusal.
    ///
    /// # Errors
    /// The firmware's first refusal.
    pub fn destroy(mut self) -> Result<(), CommandError> {
        let queue = self.queue.destroy();
        queue.and(self.tis.destroy())
    }
}

impl<P: Platform> fmt::Debug for MultiSend<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultiSend")
            .field("sqn", &format_args!("{:#x}", self.queue.number()))
            .field("outstanding", &self.outstanding)
            .field("failure", &self.failure)
            .finish_non_exhaustive()
    }
}

/// Frames that are sent together: [`MultiSend::burst`].
#[derive(Debug)]
pub struct MultiBurst<'q, 'd, P: Platform> {
    send: &'q mut MultiSend<'d, P>,
    /// There is something to tell the device.
    posted: bool,
}

impl<P: Platform> MultiBurst<'_, '_, P> {
    /// A frame in registered memory of the queue's protection domain, which must not change until
    /// [`poll`](MultiSend::poll) has counted it.
    ///
    /// # Errors
    /// [`EthernetSendError::Length`], and [`EthernetSendError::Full`] as long as the device is behind.
    #[inline(always)]
    pub fn push(&mut self, frame: Sge) -> Result<(), EthernetSendError> {
        let send = &mut *self.send;
        if frame.length < HEADER_LEN as u32 || frame.length > send.frame_len {
            return Err(length(frame.length as usize, send.frame_len));
        }
        send.room(1)?;
        let at = send.at(send.units);
        let memory = send.queue.memory();
        let word = DataWord::new(frame.length, frame.lkey);
        memory.buffer.write_be64(at, word.0);
        memory.buffer.write_be64(at + 8, frame.addr);
        send.units += 1;
        send.packets += 1;
        self.posted = true;
        Ok(())
    }

    /// A frame that is copied into the request, of at most 256 bytes.
    ///
    /// # Errors
    /// The errors are those of [`push`](Self::push).
    pub fn push_inline(&mut self, frame: &[u8]) -> Result<(), EthernetSendError> {
        let send = &mut *self.send;
        if !(HEADER_LEN..=MAX_INLINE.min(send.frame_len as usize)).contains(&frame.len()) {
            return Err(length(frame.len(), send.frame_len.min(MAX_INLINE as u32)));
        }
        let mut bytes = [0; MAX_INLINE + SEGMENT_UNIT];
        let head = InlineWord::new(frame.len() as u32);
        bytes[..INLINE_HEADER].copy_from_slice(&head.0.to_be_bytes());
        bytes[INLINE_HEADER..INLINE_HEADER + frame.len()].copy_from_slice(frame);
        let units = (INLINE_HEADER + frame.len()).div_ceil(SEGMENT_UNIT);
        send.room(units as u32)?;
        let (segments, _) = bytes.as_chunks::<SEGMENT_UNIT>();
        for segment in &segments[..units] {
            let at = send.at(send.units);
            send.queue.memory().buffer.write_bytes(at, segment);
            send.units += 1;
        }
        send.packets += 1;
        self.posted = true;
        Ok(())
    }
}

#[cold]
fn length(length: usize, limit: u32) -> EthernetSendError {
    EthernetSendError::Length {
        length,
        limit: limit as usize,
    }
}

impl<P: Platform> Drop for MultiBurst<'_, '_, P> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.posted {
            self.send.ring();
        }
    }
}
