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

#[cfg(test)]
mod tests {
    use super::super::frame::protocol;
    use super::super::frame::tests::{A4, A6, B4, B6, ipv4, ipv6, tcp, udp};
    use super::*;

    fn packets(headers: &[u8], payload: &[u8], mss: usize) -> Result<Vec<Vec<u8>>, LsoError> {
        let mut all = Vec::new();
        cut(headers, payload, mss, (true, true), |one| {
            all.push(one.to_vec())
        })?;
        Ok(all)
    }

    fn payload(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at * 7) as u8).collect()
    }

    #[test]
    fn tcp_over_ipv4() {
        const FLAGS: u8 = 0x10 | TCP_FIN | TCP_PSH | TCP_CWR;
        let headers = ipv4(A4, B4, protocol::TCP, &tcp(1, 2, FLAGS, b""));
        let data = payload(2500);
        let all = packets(&headers, &data, 1000).unwrap();
        assert_eq!(all.len(), 3);
        let mut joined = Vec::<u8>::new();
        for (nth, packet) in all.iter().enumerate() {
            let parsed = frame::parse(packet);
            let network = parsed.network.unwrap();
            let verdict = checksum::check(packet, &parsed);
            assert!(network.sound && verdict.network_ok && verdict.transport_ok);
            assert_eq!(network.end, packet.len());
            assert_eq!(packet[18..20], (0x1234 + nth as u16).to_be_bytes());
            // The sequence number wraps.
            let sequence = 0xffff_fff0u32.wrapping_add(nth as u32 * 1000);
            assert_eq!(packet[38..42], sequence.to_be_bytes());
            joined.extend(&packet[54..]);
        }
        assert_eq!(joined, data);
        let flags: Vec<u8> = all.iter().map(|packet| packet[47]).collect();
        assert_eq!(flags, [0x10 | TCP_CWR, 0x10, 0x10 | TCP_FIN | TCP_PSH]);
    }

    #[test]
    fn tcp_over_ipv6_behind_a_tag() {
        let mut headers = ipv6(A6, B6, protocol::TCP, &tcp(1, 2, 0x10, b""));
        headers.splice(12..12, [0x81, 0, 0, 5]);
        // Software leaves the length out of what is longer than it can say.
        headers[22..24].fill(0);
        let data = payload(2001);
        let all = packets(&headers, &data, 1000).unwrap();
        assert_eq!(all.len(), 3);
        for packet in &all {
            let parsed = frame::parse(packet);
            assert_eq!(parsed.tag, Some(5));
            assert_eq!(parsed.network.unwrap().end, packet.len());
            assert!(checksum::check(packet, &parsed).transport_ok);
        }
        assert_eq!(all[2].len(), headers.len() + 1);
    }

    #[test]
    fn udp_gets_its_lengths() {
        for headers in [
            ipv4(A4, B4, protocol::UDP, &udp(1, 2, b"")),
            ipv6(A6, B6, protocol::UDP, &udp(1, 2, b"")),
        ] {
            let all = packets(&headers, &payload(25), 10).unwrap();
            let lengths: Vec<u8> = all
                .iter()
                .map(|packet| {
                    let parsed = frame::parse(packet);
                    assert!(checksum::check(packet, &parsed).transport_ok);
                    packet[parsed.transport.unwrap().at() + 5]
                })
                .collect();
            assert_eq!(lengths, [18, 18, 13]);
        }
    }

    #[test]
    fn what_cannot_be_cut_is_refused() {
        let headers = ipv4(A4, B4, protocol::TCP, &tcp(1, 2, 0x10, b""));
        assert_eq!(packets(&headers, &payload(10), 0), Err(LsoError::Size));
        assert_eq!(packets(&headers, &[], 10), Err(LsoError::Size));
        assert_eq!(
            packets(&headers[..50], &payload(10), 5),
            Err(LsoError::Headers)
        );
        let longer = [&headers[..], b"!"].concat();
        assert_eq!(packets(&longer, &payload(10), 5), Err(LsoError::Headers));
        let arp = [&[0; 12][..], &[0x08, 0x06], &[0; 28]].concat();
        assert_eq!(packets(&arp, &payload(10), 5), Err(LsoError::Headers));
        assert_eq!(
            packets(&headers, &payload(70_000), 66_000),
            Err(LsoError::Size)
        );
    }
}
