//! Large sends: one header and much payload become many packets.

use super::checksum::Wanted;
use super::frame::{self, Parsed, Start, Transport, Version};
use super::tunnel::Tunnels;

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

/// Gives the packet in a frame the lengths that it has, and counts its identification on.
fn lengthen(frame: &mut [u8], start: Start, nth: u16) -> Result<Parsed, LsoError> {
    // The lengths in the headers are the whole send's, or nothing: they come first, for the rest to be found.
    let network_at = frame::parse_from(frame, start).network_at;
    let version = frame.get(network_at).map_or(0, |byte| byte >> 4);
    let (length_at, counted) = match version {
        4 => (network_at + 2, frame.len().saturating_sub(network_at)),
        6 => (network_at + 4, frame.len().saturating_sub(network_at + 40)),
        _ => return Err(LsoError::Headers),
    };
    let length = u16::try_from(counted).map_err(|_| LsoError::Size)?;
    frame
        .get_mut(length_at..length_at + 2)
        .ok_or(LsoError::Headers)?
        .copy_from_slice(&length.to_be_bytes());
    let parsed = frame::parse_from(frame, start);
    let network = parsed.network.ok_or(LsoError::Headers)?;
    if network.version == Version::V4 {
        add16(frame, network.at + 4, nth);
    }
    if let Some(Transport::Udp { at }) = parsed.transport {
        let length = (frame.len() - at) as u16;
        frame[at + 4..at + 6].copy_from_slice(&length.to_be_bytes());
    }
    Ok(parsed)
}

/// Cuts `payload` into packets of at most `mss` bytes behind `headers`, and gives each its lengths, identification,
/// sequence number, flags and the checksums that are asked for. If these are of inner headers, the packets in a tunnel
/// are cut.
pub(crate) fn cut(
    headers: &[u8],
    payload: &[u8],
    mss: usize,
    checksums: Wanted,
    tunnels: &Tunnels,
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
        let outer = lengthen(&mut packet, Start::FRAME, nth as u16)?;
        let inner = tunnels.inner(&packet, &outer).filter(|_| checksums.inner());
        let parsed = match inner {
            Some(start) => lengthen(&mut packet, start, nth as u16)?,
            None => outer,
        };
        let end = match parsed.transport.ok_or(LsoError::Headers)? {
            Transport::Tcp { at, header, .. } => {
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
                at + header
            }
            Transport::Udp { at } => at + 8,
        };
        if end != headers.len() {
            return Err(LsoError::Headers);
        }
        checksums.fill(&mut packet, tunnels);
        each(&packet);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::checksum;
    use super::super::frame::protocol;
    use super::super::frame::tests::{A4, A6, B4, B6, ipv4, ipv6, tcp, udp};
    use super::super::tunnel::tests::{every_kind, gre, vxlan};
    use super::*;
    use bareverbs_firmware_cmds::wqe::ethernet;

    fn packets(headers: &[u8], payload: &[u8], mss: usize) -> Result<Vec<Vec<u8>>, LsoError> {
        let mut all = Vec::new();
        let tunnels = every_kind();
        let checksums = Wanted(ethernet::L3_CHECKSUM | ethernet::L4_CHECKSUM);
        cut(headers, payload, mss, checksums, &tunnels, |one| {
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
    fn a_packet_in_gre_is_cut_without_a_frame_around_it() {
        let inner = ipv4(A4, B4, protocol::TCP, &tcp(1, 2, 0x10, b""));
        let headers = gre(0x2000, frame::ethertype::IPV4, &inner[14..]);
        let (data, tunnels) = (payload(2001), every_kind());
        let mut all = Vec::new();
        let flags = ethernet::INNER_L3_CHECKSUM | ethernet::INNER_L4_CHECKSUM;
        let keep = |one: &[u8]| all.push(one.to_vec());
        cut(&headers, &data, 1000, Wanted(flags), &tunnels, keep).unwrap();
        assert_eq!(all.len(), 3);
        let mut joined = Vec::<u8>::new();
        for (nth, packet) in all.iter().enumerate() {
            let outer = frame::parse(packet);
            assert_eq!(outer.network.unwrap().end, packet.len());
            let start = tunnels.inner(packet, &outer).unwrap();
            let inner = frame::parse_from(packet, start);
            assert_eq!(inner.network.unwrap().end, packet.len());
            let verdict = checksum::check_inside(packet, &outer, &inner);
            assert!(verdict.network_ok && verdict.transport_ok);
            let sequence = 0xffff_fff0_u32.wrapping_add(nth as u32 * 1000);
            let at = inner.transport.unwrap().at();
            assert_eq!(packet[at + 4..at + 8], sequence.to_be_bytes());
            joined.extend(&packet[headers.len()..]);
        }
        assert_eq!(joined, data);
    }

    #[test]
    fn tcp_in_a_tunnel() {
        let inner = ipv4(A4, B4, protocol::TCP, &tcp(1, 2, 0x10, b""));
        let headers = vxlan(4789, &inner);
        let (data, tunnels) = (payload(2500), every_kind());
        let mut all = Vec::new();
        let flags =
            ethernet::L3_CHECKSUM | ethernet::INNER_L3_CHECKSUM | ethernet::INNER_L4_CHECKSUM;
        let keep = |one: &[u8]| all.push(one.to_vec());
        cut(&headers, &data, 1000, Wanted(flags), &tunnels, keep).unwrap();
        assert_eq!(all.len(), 3);
        let mut joined = Vec::<u8>::new();
        for (nth, packet) in all.iter().enumerate() {
            let outer = frame::parse(packet);
            let network = outer.network.unwrap();
            // The outer UDP header says that it has no checksum.
            assert!(network.sound && checksum::check(packet, &outer).transport_ok);
            assert_eq!(network.end, packet.len());
            let datagram = frame::be16(packet, 38).unwrap();
            assert_eq!(usize::from(datagram), packet.len() - 34);
            let start = tunnels.inner(packet, &outer).unwrap();
            let inner = frame::parse_from(packet, start);
            let verdict = checksum::check(packet, &inner);
            assert!(verdict.network_ok && verdict.transport_ok);
            for identification in [18, start.at + 18] {
                let now = frame::be16(packet, identification);
                assert_eq!(now, Some(0x1234 + nth as u16));
            }
            joined.extend(&packet[headers.len()..]);
        }
        assert_eq!(joined, data);
        // To another port it is a datagram, whose header ends elsewhere.
        let plain = vxlan(4790, &inner);
        let cut = cut(&plain, &data, 1000, Wanted(flags), &tunnels, |_| {});
        assert_eq!(cut, Err(LsoError::Headers));
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
