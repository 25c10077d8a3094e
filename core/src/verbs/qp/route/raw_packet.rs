//! Posting whole frames: the Ethernet segment, and the headers that some cards require in it.
//!
//! A frame whose card requires nothing inline is posted on the ways of all work requests. Where headers have to be inline,
//! the bytes come from the caller: what an entry names is the device's to read, not the driver's.

use bareverbs_firmware_cmds::word::Word;
use bareverbs_firmware_cmds::wqe::{
    ControlFlags, EthernetInlineWord, EthernetOffloadWord, Opcode, SEGMENT_UNIT, ethernet,
};

use crate::memory::send_ring::Wqe;
use crate::platform::Platform;
use crate::verbs::qp::queue::payload::Payload;
use crate::verbs::qp::queue::send::Batch;
use crate::verbs::qp::queue::wr::{PostError, SendData, SendFlags, given};
use crate::verbs::qp::route::segments::{Message, Route, SEND};
use crate::verbs::qp::route::service::{QpType, RawPacket};

/// Bytes before the inline headers: the control segment, and most of the Ethernet segment.
const HEADERS_AT: usize = SEGMENT_UNIT + ethernet::INLINE_START;
/// Where data starts if no header is inline.
const DATA_AT: usize = 2 * SEGMENT_UNIT;

/// Requirements of a queue's frames.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packets {
    /// Bytes of a frame's start that the device requires inline.
    pub(crate) min_inline: u16,
    /// Bytes of the largest WQE.
    pub(crate) max_wqe: u16,
    /// `true` if the device fills in checksums.
    pub(crate) checksums: bool,
}

impl Packets {
    /// Of a queue for messages.
    pub(crate) const NONE: Self = Self {
        min_inline: 0,
        max_wqe: 0,
        checksums: false,
    };
}

/// The Ethernet segment of a frame without inline headers.
pub(in crate::verbs::qp) struct EthernetSegment(pub(in crate::verbs::qp) SendFlags);

impl Route for EthernetSegment {
    const SIZE: usize = SEGMENT_UNIT;

    #[inline(always)]
    fn put(self, wqe: Wqe<'_>) {
        wqe.put(SEGMENT_UNIT, offload(self.0), EthernetInlineWord(0));
    }
}

/// The first word of the Ethernet segment.
#[inline(always)]
fn offload(flags: SendFlags) -> EthernetOffloadWord {
    const BOTH: u8 = ethernet::L3_CHECKSUM | ethernet::L4_CHECKSUM;
    const { assert!(SendFlags::IP_CSUM.bits() == 1 << 4) };
    let mut word = EthernetOffloadWord(0);
    // All ones or none, without a jump.
    let wanted = 0_u8.wrapping_sub((flags.bits() >> 4 & 1) as u8);
    word.set_cs_flags(BOTH & wanted);
    word
}

impl<P: Platform> Batch<'_, '_, P, RawPacket> {
    /// Sends a frame: everything from the destination address on, without check sequence. The device pads it if it is
    /// shorter than Ethernet's minimum. With [`SendFlags::IP_CSUM`] it fills in the checksums of an IPv4 header and of TCP
    /// or UDP.
    ///
    /// # Errors
    /// [`PostError::HeadersNotInline`] on a card that requires headers inline, if the data is not.
    #[inline(always)]
    pub fn send_packet(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        data: impl Payload,
    ) -> Result<(), PostError> {
        self.packet(wr_id, flags, &data)
    }

    /// The same for a frame that starts with `headers`, which are copied, and goes on with `data`. No card requires more
    /// than [`min_inline`](crate::RawPacketQp::min_inline) bytes of headers, or the whole frame if it is shorter.
    ///
    /// # Errors
    /// [`PostError::HeadersNotInline`] if the device requires more.
    pub fn send_packet_with(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        headers: &[u8],
        data: SendData<'_>,
    ) -> Result<(), PostError> {
        self.long_packet(wr_id, flags, headers, data)
    }
}

impl<P: Platform, T: QpType> Batch<'_, '_, P, T> {
    /// Posts a frame without headers of its own.
    #[inline(always)]
    pub(in crate::verbs::qp) fn packet<D: Payload>(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        data: &D,
    ) -> Result<(), PostError> {
        let packets = &self.queue.packets;
        let lacks = flags.contains(SendFlags::IP_CSUM) && !packets.checksums;
        if packets.min_inline != 0 || lacks {
            return self.unusual_packet(wr_id, flags, data.as_data());
        }
        let segments = Message::<SEND, _>(EthernetSegment(flags));
        self.build(wr_id, 0, flags, data, segments)
    }

    #[cold]
    #[inline(never)]
    fn unusual_packet(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        data: SendData<'_>,
    ) -> Result<(), PostError> {
        let needed = usize::from(self.queue.packets.min_inline);
        match data {
            SendData::Inline(bytes) => {
                let (headers, rest) = bytes.split_at(needed.min(bytes.len()));
                self.long_packet(wr_id, flags, headers, SendData::Inline(rest))
            }
            data => self.long_packet(wr_id, flags, &[], data),
        }
    }

    /// Posts a frame with inline headers.
    fn long_packet(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        headers: &[u8],
        data: SendData<'_>,
    ) -> Result<(), PostError> {
        let queue = &mut *self.queue;
        let packets = queue.packets;
        if flags.contains(SendFlags::IP_CSUM) && !packets.checksums {
            return Err(PostError::NoChecksums);
        }
        queue.find_room(self.head)?;
        let limit = queue.max_inline;
        let bytes = match data {
            SendData::Inline(bytes) => bytes.len(),
            SendData::Sges(sges) => {
                sges.check::<T>(queue.max_sge, limit)?;
                sges.iter().map(|sge| sge.length as usize).sum()
            }
        };
        if headers.len() < usize::from(packets.min_inline) && bytes != 0 {
            let needed = packets.min_inline;
            return Err(PostError::HeadersNotInline { needed });
        }
        // More than a queue can take is refused before it is added up.
        let start = HEADERS_AT.saturating_add(headers.len()).max(DATA_AT);
        let start = start.checked_next_multiple_of(SEGMENT_UNIT);
        let behind = match data {
            SendData::Inline([]) => 0,
            SendData::Inline(bytes) => (4 + bytes.len().min(1 << 16)).next_multiple_of(16),
            SendData::Sges(sges) => 16 * sges.iter().filter(|sge| sge.length != 0).count(),
        };
        let size = start.and_then(|start| start.checked_add(behind));
        let fits = size.filter(|&size| size <= packets.max_wqe.into());
        let (Some(start), Some(size)) = (start, fits) else {
            let inline = match data {
                SendData::Inline(bytes) => bytes.len(),
                SendData::Sges(_) => 0,
            };
            return Err(PostError::InlineTooLong {
                given: given(headers.len().saturating_add(inline)),
                limit,
            });
        };

        let ring = &queue.ring;
        let wqe = ring.wqe(self.cursor);
        let mut inline = EthernetInlineWord(0);
        inline.set_inline_hdr_sz(headers.len() as u16);
        let mut segment = [0; SEGMENT_UNIT];
        offload(flags).write(&mut segment);
        inline.write(&mut segment);
        let (first, rest) = headers.split_at(headers.len().min(2));
        segment[ethernet::INLINE_START..][..first.len()].copy_from_slice(first);
        wqe.put_segment(SEGMENT_UNIT, &segment);
        ring.put_bytes(wqe.offset() + DATA_AT, rest);
        match data {
            SendData::Inline([]) => {}
            SendData::Inline(bytes) => {
                let at = ring.put_inline_header(wqe.offset() + start, bytes.len());
                ring.put_bytes(at, bytes);
            }
            SendData::Sges(sges) => {
                let mut at = start;
                for sge in sges.iter().filter(|sge| sge.length != 0) {
                    wqe.put_data(at, sge);
                    at += SEGMENT_UNIT;
                }
            }
        }
        let units = (size / SEGMENT_UNIT) as u32;
        wqe.put_word(ControlFlags::from_memory(flags.control() | queue.always));
        let control = self.cursor.control(Opcode::Send as u8, units);
        wqe.put_word(control);
        wqe.record(self.head, wr_id);
        self.cursor = self.cursor.behind_segments(units);
        self.last = control.to_memory();
        self.head = self.head.wrapping_add(1);
        self.first = false;
        Ok(())
    }
}
