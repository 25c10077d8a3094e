//! Several packets in one WQE: enhanced multi-packet send (`MLX5_OPCODE_ENHANCED_MPSW` of Linux and DPDK), and the older
//! form (`MLX5_OPC_MOD_MPW` of DPDK), whose packets are all of one length.
//!
//! One Ethernet segment, without inline headers, for all packets. Behind it each packet is a data segment that names its
//! memory, or its bytes themselves behind a header of four bytes, padded to units of 16. In the older form the length stands
//! where an MSS would, and bytes in the WQE are those of all packets, one behind the other; these have their headers in the WQE,
//! so that DPDK sends them to a ConnectX-4 Lx that demands headers inline (`mlx5_tx_burst_empw_inline`).

use super::checksum::Wanted;
use super::demand::Asked;
use crate::bus::io::Io;
use crate::device::Device;
use crate::roce::env::Syndrome;
use bareverbs_firmware_cmds::values::InlineMode;
use bareverbs_firmware_cmds::word::Word;
use bareverbs_firmware_cmds::wqe::{
    EthernetInlineWord, EthernetOffloadWord, InlineWord, SEGMENT_UNIT,
};

/// In front of inline data.
const INLINE_HEADER: usize = 4;
/// The modifier that makes LSO the older form.
pub(super) const OF_ONE_LENGTH: u8 = 1;

/// The two forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Enhanced,
    OfOneLength,
}

impl Device {
    /// Sends the packets of a WQE. Those in front of one that is malformed are sent.
    pub(super) fn send_multi(
        &mut self,
        io: &mut Io<'_>,
        number: u32,
        form: Form,
        wqe: &[u8],
    ) -> Result<(), Syndrome> {
        let bad = Syndrome::LocalQpOperation;
        let sq = self.nic.sqs.get(number).ok_or(bad)?;
        let who = sq.accessor(number);
        let tis = self.nic.tises.get(sq.context.tis_num_0()).ok_or(bad)?;
        let transport_domain = tis.context.transport_domain();
        let inline_mode = self.inline_mode(&sq.context);
        let body = wqe.get(SEGMENT_UNIT..).ok_or(bad)?;
        let (segment, mut rest) = body.split_first_chunk::<SEGMENT_UNIT>().ok_or(bad)?;
        let offload = EthernetOffloadWord::read(segment);
        let checksums = Wanted(offload.cs_flags());
        let caps = &self.caps.ethernet;
        let (offered, capability) = match form {
            Form::Enhanced => (
                caps.enhanced_multi_pkt_send_wqe(),
                "enhanced_multi_pkt_send_wqe",
            ),
            Form::OfOneLength => (caps.multi_pkt_send_wqe() != 0, "multi_pkt_send_wqe"),
        };
        if !offered {
            self.answer_unknown(format_args!("SQ {number:#x}: a WQE without {capability}"));
            return Err(bad);
        }
        self.check_offer(
            number,
            &Asked {
                checksums,
                insert_tag: false,
                large: false,
            },
        )?;
        // The segment has no place for the headers of more than one packet, and DPDK never makes the newer form with a minimum.
        if (inline_mode != InlineMode::None && form == Form::Enhanced)
            || EthernetInlineWord::read(segment).inline_hdr_sz() != 0
            || (offload.mss() != 0) != (form == Form::OfOneLength)
            || rest.is_empty()
        {
            log::warn!("SQ {number:#x}: a multi-packet WQE with headers, or without packets");
            return Err(bad);
        }
        let limit = usize::from(crate::port::vport::MAX_HW_MTU);
        while let Some(segment) = rest.first_chunk::<SEGMENT_UNIT>() {
            let head = InlineWord::read(segment);
            let mut packet = core::mem::take(&mut self.nic.packet);
            packet.clear();
            let gathered;
            if head.inline() {
                let length = (head.0 & !(1 << 31)) as usize;
                let space = (INLINE_HEADER + length).next_multiple_of(SEGMENT_UNIT);
                gathered = match rest.get(INLINE_HEADER..INLINE_HEADER + length) {
                    Some(data) if space <= rest.len() && length <= limit => {
                        packet.extend_from_slice(data);
                        Ok(())
                    }
                    _ => Err(bad),
                };
                rest = rest.get(space..).unwrap_or(&[]);
            } else {
                gathered = self
                    .gather(io, who, segment, &mut packet, limit)
                    .and_then(|()| self.check_inline(number, inline_mode, &packet, 0));
                rest = &rest[SEGMENT_UNIT..];
            }
            let length = usize::from(offload.mss());
            let sent = gathered.and_then(|()| {
                let mut send = |frame: &mut Vec<u8>| {
                    checksums.fill(frame, &self.nic.tunnels);
                    self.send_ethernet(io, frame, None, transport_domain);
                };
                match form {
                    Form::Enhanced => send(&mut packet),
                    Form::OfOneLength => {
                        let most = if head.inline() { usize::MAX } else { length };
                        let whole = packet.len().is_multiple_of(length);
                        if packet.is_empty() || packet.len() > most || !whole {
                            log::warn!("SQ {number:#x}: packets of other lengths than {length}");
                            return Err(bad);
                        }
                        packet
                            .chunks_exact(length)
                            .for_each(|one| send(&mut one.to_vec()));
                    }
                }
                Ok(())
            });
            self.nic.packet = packet;
            sent?;
        }
        Ok(())
    }
}
