//! Large sends: one header and much payload become many packets.

use super::checksum;
use super::frame::{self, Transport, Version};

const TCP_FIN: u8 = 0x01;
const TCP_PSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;

/// Why a large send cannot be cut into packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LsoError {
    /// The inline headers are not those of TCP or UDP over IP, or do not end where they should.
    Headers,
    /// A packet without payload, or longer than IP can say.
    Size,
}

fn add16(bytes: &mut [u8], at: usize, value: u16) {
    let old = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    bytes[at..at + 2].copy_from_slice(&old.wrapping_add(value).to_be_bytes());
}

/// Cuts `payload` into packets of at most `mss` bytes behind `headers`, and gives each its lengths, identification,
/// sequence number, flags and the checksums that are asked for.
pub(crate) fn cut(
    headers: &[u8],
    payload: &[u8],
    mss: usize,
    checksums: (bool, bool),
    mut each: impl FnMut(&[u8]),
) -> Result<(), LsoError> {
    if mss == 0 || payload.is_empty() {
        return Err(LsoError::Size);
    }
    let mut packet = Vec::with_capacity(headers.len() + mss);
    let count = payload.len().div_ceil(mss);
    for (nth, part) in payload.chunks(mss).enumerate() {
        packet.clear();
        packet.extend_from_slice(headers);
        packet.extend_from_slice(part);
        // The lengths in the headers are the whole send's, or nothing: they come first, for the rest to be found.
        let network_at = frame::parse(&packet).network_at;
        let version = packet.get(network_at).map_or(0, |byte| byte >> 4);
        let (length_at, counted) = match version {
            4 => (network_at + 2, packet.len() - network_at),
            6 => (network_at + 4, packet.len().saturating_sub(network_at + 40)),
            _ => return Err(LsoError::Headers),
        };
        let length = u16::try_from(counted).map_err(|_| LsoError::Size)?;
        packet
            .get_mut(length_at..length_at + 2)
            .ok_or(LsoError::Headers)?
            .copy_from_slice(&length.to_be_bytes());
        let parsed = frame::parse(&packet);
        let (Some(network), Some(transport)) = (parsed.network, parsed.transport) else {
            return Err(LsoError::Headers);
        };
        if network.version == Version::V4 {
            add16(&mut packet, network.at + 4, nth as u16);
        }
        match transport {
            Transport::Tcp { at, header, .. } => {
                if at + header != headers.len() {
                    return Err(LsoError::Headers);
                }
                let sequence = &mut packet[at + 4..at + 8];
                let first =
                    u32::from_be_bytes([sequence[0], sequence[1], sequence[2], sequence[3]]);
                let now = first.wrapping_add((nth * mss) as u32);
                sequence.copy_from_slice(&now.to_be_bytes());
                if nth + 1 != count {
                    packet[at + 13] &= !(TCP_FIN | TCP_PSH);
                }
                if nth != 0 {
                    packet[at + 13] &= !TCP_CWR;
                }
            }
            Transport::Udp { at } => {
                if at + 8 != headers.len() {
                    return Err(LsoError::Headers);
                }
                let length = (8 + part.len()) as u16;
                packet[at + 4..at + 6].copy_from_slice(&length.to_be_bytes());
            }
        }
        checksum::fill(&mut packet, &parsed, checksums.0, checksums.1);
        each(&packet);
    }
    Ok(())
}
