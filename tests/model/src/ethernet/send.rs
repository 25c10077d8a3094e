//! Sending: work queue entries become frames.

use super::Looped;
use super::checksum::Wanted;
use super::demand::Asked;
use super::frame::{self, MIN_FRAME, TAG, ethertype};
use super::multi::{Form, OF_ONE_LENGTH};
use super::queue::QueueState;
use super::segment::{self, LsoError};
use crate::bus::io::Io;
use crate::device::Device;
use crate::objects::cqe::{entry as completion, put_error};
use crate::objects::mkey::{Accessor, Right};
use crate::objects::wqe;
use crate::port::vport::Kind;
use crate::roce::env::{AccessError, Syndrome};
use bareverbs_firmware_cmds::cqe::Opcode as CqeOpcode;
use bareverbs_firmware_cmds::doorbell::SendRecord;
use bareverbs_firmware_cmds::word::Word;
use bareverbs_firmware_cmds::wqe::ethernet::INLINE_START;
use bareverbs_firmware_cmds::wqe::{
    BASIC_BLOCK, ControlFlags, DataAddressWord, DataWord, EthernetInlineWord, EthernetOffloadWord,
    InlineWord, Opcode, SEGMENT_UNIT, completion as signal, ethernet,
};

const NOP: u8 = Opcode::Nop as u8;
const SEND: u8 = Opcode::Send as u8;
const LSO: u8 = Opcode::Lso as u8;
const UMR: u8 = Opcode::Umr as u8;
const ENHANCED_MPSW: u8 = Opcode::EnhancedMpsw as u8;

/// Entries a queue may send before the next one has its turn.
const RUN_BUDGET: usize = 64;
/// Longest WQE: 63 units of 16 bytes.
const MAX_WQE: usize = 1024;
/// Frames to the own address that may wait; a device drops what its buffer does not hold.
const LOOPBACK_DEPTH: usize = 1024;

/// The content of one WQE.
struct Entry {
    index: u16,
    opcode: u8,
    modifier: u8,
    signaled: bool,
}

/// A frame to be sent, and what is still to be done to it.
struct Draft<'a> {
    checksums: Wanted,
    tag: Option<(u16, u16)>,
    mss: usize,
    /// Headers that came inline.
    inline: &'a [u8],
}

impl Device {
    /// The doorbell of a send queue.
    pub(crate) fn ethernet_doorbell(&mut self, io: &mut Io<'_>, uar: u32, number: u32) {
        self.stats.doorbells += 1;
        let Some(sq) = self.nic.sqs.get_mut(number) else {
            self.stats.bad_doorbells += 1;
            return;
        };
        let wq = sq.context.wq();
        if wq.uar_page() != uar {
            log::warn!("doorbell of SQ {number:#x} through UAR {uar:#x}");
            self.stats.bad_doorbells += 1;
            return;
        }
        // The doorbell only wakes; how much was posted is in the record.
        let at = sq.ring.record().wrapping_add(SendRecord::OFFSET as u64);
        let Ok(record) = io.read_be32(at) else {
            return;
        };
        sq.posted = SendRecord(record).counter();
        self.wake_sq(number);
    }

    pub(crate) fn wake_sq(&mut self, number: u32) {
        if let Some(sq) = self.nic.sqs.get_mut(number)
            && !sq.queued
        {
            sq.queued = true;
            self.ready.push_back(number);
        }
    }

    /// Gives a send queue its turn.
    pub(crate) fn run_sq(&mut self, io: &mut Io<'_>, number: u32) {
        if let Some(sq) = self.nic.sqs.get_mut(number) {
            sq.queued = false;
        }
        for _ in 0..RUN_BUDGET {
            let Some(sq) = self.nic.sqs.get(number) else {
                return;
            };
            if sq.posted == sq.next {
                return;
            }
            let result = match sq.state {
                QueueState::Reset => return,
                QueueState::Ready => self.send_next(io, number),
                QueueState::Error => {
                    if !sq.context.flush_in_error_en() {
                        return;
                    }
                    self.flush_next(io, number)
                }
            };
            let (entry, syndrome) = match result {
                Ok(entry) => (entry, None),
                Err((entry, syndrome)) => (entry, Some(syndrome)),
            };
            if syndrome.is_some()
                && let Some(sq) = self.nic.sqs.get_mut(number)
            {
                sq.state = QueueState::Error;
            }
            self.send_done(io, number, &entry, syndrome);
        }
        self.wake_sq(number);
    }

    /// Takes the next WQE out of the queue.
    fn fetch_entry(
        &mut self,
        io: &mut Io<'_>,
        number: u32,
        wqe: &mut [u8; MAX_WQE],
    ) -> Result<(Entry, usize), (Entry, Syndrome)> {
        let bad = Syndrome::LocalQpOperation;
        let mut entry = Entry {
            index: 0,
            opcode: NOP,
            modifier: 0,
            signaled: false,
        };
        let Some(sq) = self.nic.sqs.get_mut(number) else {
            return Err((entry, bad));
        };
        entry.index = sq.next;
        let posted = sq.posted.wrapping_sub(sq.next);
        let written = sq.written.take().filter(|it| it.index == sq.next);
        let (head, rest) = wqe.split_at_mut(BASIC_BLOCK);
        let fetched = match &written {
            Some(written) => {
                head.copy_from_slice(&written.bytes[..64]);
                self.stats.blue_flame += 1;
                true
            }
            None => sq.read(io, sq.next, head).is_ok(),
        };
        if u32::from(posted) > sq.blocks() || !fetched {
            log::warn!(
                "SQ {number:#x}: {posted} blocks posted in a queue of {}, or out of reach",
                sq.blocks()
            );
            sq.next = sq.posted;
            return Err((entry, bad));
        }
        let control = wqe::control(head);
        entry.opcode = control.opcode();
        entry.modifier = control.op_mod();
        let flags = head
            .first_chunk::<16>()
            .map_or(ControlFlags(0), ControlFlags::read);
        entry.signaled = flags.fm_ce_se() & signal::MASK >= signal::ALWAYS;
        let length = usize::from(control.ds()) * SEGMENT_UNIT;
        let blocks = (length.div_ceil(64) as u16).max(1);
        let sound = length != 0
            && blocks <= posted
            && control.wqe_index() == sq.next
            && control.qpn() == number;
        let rest = &mut rest[..length.saturating_sub(64)];
        let fetched = match &written {
            Some(written) => {
                rest.copy_from_slice(&written.bytes[64..][..rest.len()]);
                true
            }
            None => sq.read(io, sq.next.wrapping_add(1), rest).is_ok(),
        };
        if !sound || !fetched {
            log::warn!(
                "SQ {number:#x}: WQE {:#x} of {length} bytes is malformed",
                entry.index
            );
            // What follows is flushed: only this WQE is skipped.
            sq.next = sq.next.wrapping_add(blocks.min(posted));
            return Err((entry, bad));
        }
        sq.next = sq.next.wrapping_add(blocks);
        Ok((entry, length))
    }

    fn flush_next(&mut self, io: &mut Io<'_>, number: u32) -> Result<Entry, (Entry, Syndrome)> {
        let mut wqe = [0; MAX_WQE];
        let (Ok((entry, _)) | Err((entry, _))) = self.fetch_entry(io, number, &mut wqe);
        Err((entry, Syndrome::WorkRequestFlushed))
    }

    fn send_next(&mut self, io: &mut Io<'_>, number: u32) -> Result<Entry, (Entry, Syndrome)> {
        let mut wqe = [0; MAX_WQE];
        let (entry, length) = self.fetch_entry(io, number, &mut wqe)?;
        let sent = match entry.opcode {
            NOP => Ok(()),
            ENHANCED_MPSW => self.send_multi(io, number, Form::Enhanced, &wqe[..length]),
            LSO if entry.modifier == OF_ONE_LENGTH => {
                self.send_multi(io, number, Form::OfOneLength, &wqe[..length])
            }
            UMR => self.umr_of_sq(io, number, &wqe[..length]),
            SEND | LSO => self.send_entry(io, number, entry.opcode == LSO, &wqe[..length]),
            other => {
                log::warn!("SQ {number:#x}: opcode {other:#x}");
                Err(Syndrome::LocalQpOperation)
            }
        };
        match sent {
            Ok(()) => Ok(entry),
            Err(syndrome) => Err((entry, syndrome)),
        }
    }

    fn send_entry(
        &mut self,
        io: &mut Io<'_>,
        number: u32,
        large: bool,
        wqe: &[u8],
    ) -> Result<(), Syndrome> {
        let bad = Syndrome::LocalQpOperation;
        let sq = self.nic.sqs.get(number).ok_or(bad)?;
        let who = sq.accessor(number);
        // Without a TIS a queue has nowhere to send to.
        let tis = self.nic.tises.get(sq.context.tis_num_0()).ok_or(bad)?;
        let transport_domain = tis.context.transport_domain();
        let inline_mode = self.inline_mode(&sq.context);
        let (draft, data) = parse(wqe)?;
        let asked = Asked {
            checksums: draft.checksums,
            insert_tag: draft.tag.is_some(),
            large,
        };
        self.check_offer(number, &asked)?;
        let limit = if large {
            1 << self.caps.ethernet.max_lso_cap()
        } else {
            usize::from(crate::port::vport::MAX_HW_MTU)
        };
        let mut packet = core::mem::take(&mut self.nic.packet);
        packet.clear();
        if !large {
            packet.extend_from_slice(draft.inline);
        }
        let gathered = self.gather(io, who, data, &mut packet, limit);
        let sent = gathered.and_then(|()| {
            if large {
                let mut ready = Vec::new();
                let tunnels = &self.nic.tunnels;
                segment::cut(
                    draft.inline,
                    &packet,
                    draft.mss,
                    draft.checksums,
                    tunnels,
                    |one| ready.push(one.to_vec()),
                )
                .map_err(|error| match error {
                    LsoError::Headers => Syndrome::LocalQpOperation,
                    LsoError::Size => Syndrome::LocalLength,
                })?;
                for mut one in ready {
                    self.send_ethernet(io, &mut one, draft.tag, transport_domain);
                }
                return Ok(());
            }
            self.check_inline(number, inline_mode, &packet, draft.inline.len())?;
            draft.checksums.fill(&mut packet, &self.nic.tunnels);
            self.send_ethernet(io, &mut packet, draft.tag, transport_domain);
            Ok(())
        });
        self.nic.packet = packet;
        sent
    }

    /// Reads what data segments name.
    pub(super) fn gather(
        &self,
        io: &mut Io<'_>,
        who: Accessor,
        segments: &[u8],
        to: &mut Vec<u8>,
        limit: usize,
    ) -> Result<(), Syndrome> {
        let (segments, rest) = segments.as_chunks::<SEGMENT_UNIT>();
        if !rest.is_empty() {
            return Err(Syndrome::LocalQpOperation);
        }
        let mut at = 0;
        while let Some(segment) = segments.get(at) {
            let inline = InlineWord::read(segment);
            if inline.inline() {
                // The bytes themselves, up to the next multiple of 16.
                let length = usize::from(inline.length());
                let end = InlineWord::SIZE + length;
                let held = segments[at..].as_flattened().get(InlineWord::SIZE..end);
                let held = held.ok_or(Syndrome::LocalQpOperation)?;
                if to.len() + length > limit {
                    return Err(Syndrome::LocalLength);
                }
                to.extend_from_slice(held);
                at += end.div_ceil(SEGMENT_UNIT);
                continue;
            }
            at += 1;
            let word = DataWord::read(segment);
            let length = word.byte_count() as usize;
            // Zero means 2 GiB.
            if length == 0 || to.len() + length > limit {
                return Err(Syndrome::LocalLength);
            }
            let start = to.len();
            to.resize(start + length, 0);
            let data = &mut to[start..];
            let (key, address) = (word.lkey(), DataAddressWord::read(segment).addr());
            self.read_key(io, key, who, address, data, Right::LocalRead)
                .map_err(|error: AccessError| {
                    log::warn!("SQ {:#x}: gather of {length} bytes: {error:?}", who.qpn);
                    Syndrome::LocalProtection
                })?;
        }
        Ok(())
    }

    /// Puts a frame on the cable, round to the own queues, or both.
    pub(super) fn send_ethernet(
        &mut self,
        io: &mut Io<'_>,
        frame: &mut Vec<u8>,
        tag: Option<(u16, u16)>,
        transport_domain: u32,
    ) {
        if frame.len() < frame::HEADER {
            self.stats.frames_dropped += 1;
            return;
        }
        if let Some((kind, tci)) = tag {
            let mut bytes = [0; TAG];
            bytes[..2].copy_from_slice(&kind.to_be_bytes());
            bytes[2..].copy_from_slice(&tci.to_be_bytes());
            let at = frame::HEADER - 2;
            frame.splice(at..at, bytes);
        }
        let tunnels = &self.nic.tunnels;
        let inside = |frame: &[u8]| tunnels.inner(frame, &frame::parse(frame));
        if !self.steering.transmit(frame, inside) {
            self.stats.frames_dropped += 1;
            return;
        }
        if frame.len() > self.vport.max_frame() {
            log::debug!("frame of {} bytes is beyond the port's MTU", frame.len());
            self.stats.frames_dropped += 1;
            return;
        }
        // The port pads, as nothing shorter may be on the cable.
        if frame.len() < MIN_FRAME {
            frame.resize(MIN_FRAME, 0);
        }
        let mut to = [0; 6];
        to.copy_from_slice(&frame[..6]);
        let group = to[0] & 1 != 0;
        let own = self.vport.accepts(to);
        let context = &self.vport.context;
        let blocked = if group {
            context.disable_mc_local_lb()
        } else {
            context.disable_uc_local_lb()
        };
        if (own || group) && !blocked && self.looped.len() < LOOPBACK_DEPTH {
            self.looped.push_back(Looped {
                frame: frame.clone(),
                transport_domain,
            });
        }
        if own && !blocked {
            return;
        }
        if !self.vport.up() {
            self.stats.frames_dropped += 1;
            return;
        }
        self.stats.frames_sent += 1;
        self.vport.ethernet.sent[Kind::of(frame) as usize].count(frame);
        self.vport.cable.sent[Kind::of(frame) as usize].count(frame);
        io.transmit(frame);
    }

    fn send_done(
        &mut self,
        io: &mut Io<'_>,
        number: u32,
        entry: &Entry,
        syndrome: Option<Syndrome>,
    ) {
        if syndrome.is_none() && !entry.signaled {
            return;
        }
        let Some(sq) = self.nic.sqs.get(number) else {
            return;
        };
        let cqn = sq.context.cqn();
        let opcode = match syndrome {
            None => CqeOpcode::Requester,
            Some(_) => CqeOpcode::RequesterError,
        };
        let user_index = sq.context.user_index();
        let format = sq.context.ts_format();
        let mut cqe = completion(opcode, user_index, entry.opcode, number, entry.index);
        self.stamp(&mut cqe, format, self.caps.general.sq_ts_format());
        if let Some(syndrome) = syndrome {
            put_error(&mut cqe, syndrome);
        }
        if self.complete(io, cqn, &mut cqe, false).is_err()
            && let Some(sq) = self.nic.sqs.get_mut(number)
        {
            sq.state = QueueState::Error;
        }
    }
}

/// Takes a WQE apart: what is to be done, and the data segments.
fn parse(wqe: &[u8]) -> Result<(Draft<'_>, &[u8]), Syndrome> {
    let bad = Syndrome::LocalQpOperation;
    let body = wqe.get(SEGMENT_UNIT..).ok_or(bad)?;
    let (segment, after) = body.split_first_chunk::<SEGMENT_UNIT>().ok_or(bad)?;
    let offload = EthernetOffloadWord::read(segment);
    let headers = EthernetInlineWord::read(segment);
    let size = headers.inline_hdr_sz();
    let insert = size & ethernet::INSERT_VLAN != 0;
    let tag = insert.then(|| {
        let kind = if size & ethernet::SERVICE_TAG != 0 {
            ethertype::SERVICE_VLAN
        } else {
            ethertype::VLAN
        };
        (kind, headers.vlan_tci())
    });
    let (inline, data): (&[u8], &[u8]) = if insert || size == 0 {
        (&[], after)
    } else {
        let end = INLINE_START + usize::from(size);
        // The inline headers go on to the next multiple of 16.
        let next = end.next_multiple_of(16).max(SEGMENT_UNIT);
        (
            body.get(INLINE_START..end).ok_or(bad)?,
            body.get(next..).ok_or(bad)?,
        )
    };
    Ok((
        Draft {
            checksums: Wanted(offload.cs_flags()),
            tag,
            mss: usize::from(offload.mss()),
            inline,
        },
        data,
    ))
}
