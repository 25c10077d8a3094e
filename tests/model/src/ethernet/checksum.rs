//! The Internet's checksum: filled in when sending, verified and reported when receiving.

use super::frame::{self, Network, Parsed, Transport, Version};
use super::tunnel::{self, Tunnels};
use bareverbs_firmware_cmds::wqe::ethernet;

/// The checksums that a send asks for: `cs_flags` of its Ethernet segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wanted(pub(crate) u8);

impl Wanted {
    fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }

    /// Returns `true` if it asks for those of a frame inside of another.
    pub(super) fn inner(self) -> bool {
        self.has(ethernet::INNER_L3_CHECKSUM | ethernet::INNER_L4_CHECKSUM)
    }

    pub(super) fn any(self) -> bool {
        self.inner() || self.has(ethernet::L3_CHECKSUM | ethernet::L4_CHECKSUM)
    }

    /// Fills them in: the inner ones first, as they are part of what the outer ones are of.
    pub(crate) fn fill(self, frame: &mut [u8], tunnels: &Tunnels) {
        let parsed = frame::parse(frame);
        if self.inner()
            && let Some(start) = tunnels.inner(frame, &parsed)
        {
            let inner = frame::parse_from(frame, start);
            let network = self.has(ethernet::INNER_L3_CHECKSUM);
            let transport = self.has(ethernet::INNER_L4_CHECKSUM);
            fill(frame, &inner, network, transport);
        }
        let network = self.has(ethernet::L3_CHECKSUM);
        fill(frame, &parsed, network, self.has(ethernet::L4_CHECKSUM));
    }
}

/// The one's complement sum of bytes, not yet complemented.
pub(crate) fn sum(bytes: &[u8]) -> u16 {
    add(0, bytes)
}

/// Adds bytes to a sum. What was summed before must have had an even length.
fn add(start: u16, bytes: &[u8]) -> u16 {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let mut total = u64::from(start);
    for pair in pairs {
        total += u64::from(u16::from_be_bytes(*pair));
    }
    if let [last] = rest {
        total += u64::from(*last) << 8;
    }
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

/// The sum of what TCP and UDP have in front of themselves for their checksum.
fn pseudo_header(frame: &[u8], network: &Network) -> u16 {
    let (source, destination) = network.addresses(frame);
    let length = network.end.saturating_sub(network.transport) as u32;
    let start = add(add(0, source), destination);
    let start = add(start, &length.to_be_bytes());
    add(start, &[0, network.protocol])
}

/// The sum over header and payload, with the pseudo header: 0xffff if the checksum in it is right.
fn transport_sum(frame: &[u8], network: &Network) -> u16 {
    let body = frame.get(network.transport..network.end).unwrap_or(&[]);
    add(pseudo_header(frame, network), body)
}

/// Fills in the checksums that a send asks for, as far as the frame has such headers. What stands there does not matter:
/// the card computes them from nothing.
pub(crate) fn fill(frame: &mut [u8], parsed: &Parsed, network: bool, transport: bool) {
    let Some(header) = &parsed.network else {
        return;
    };
    if network && header.version == Version::V4 && header.sound {
        let range = header.at..header.transport;
        let field = header.at + 10;
        frame[field..field + 2].fill(0);
        let value = !sum(&frame[range]);
        frame[field..field + 2].copy_from_slice(&value.to_be_bytes());
    }
    if let (true, Some(part)) = (transport, &parsed.transport) {
        let field = part.checksum_at();
        frame[field..field + 2].fill(0);
        let value = match (!transport_sum(frame, header), part) {
            // Zero says that there is none.
            (0, Transport::Udp { .. }) => 0xffff,
            (value, _) => value,
        };
        frame[field..field + 2].copy_from_slice(&value.to_be_bytes());
    }
}

/// The result that a receiver gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Verdict {
    /// Over the network header and what it says that follows; padding is not in it.
    pub(crate) complete: u16,
    pub(crate) network_ok: bool,
    pub(crate) transport_ok: bool,
}

/// Looks at the checksums of a received frame.
pub(crate) fn check(frame: &[u8], parsed: &Parsed) -> Verdict {
    let Some(network) = &parsed.network else {
        return Verdict::default();
    };
    let complete = sum(frame.get(network.at..network.end).unwrap_or(&[]));
    let network_ok = network.sound
        && match network.version {
            Version::V4 => sum(&frame[network.at..network.transport]) == 0xffff,
            Version::V6 => true,
        };
    let transport_ok = match parsed.transport {
        Some(Transport::Udp { at })
            if network.version == Version::V4 && frame[at + 6..at + 8] == [0, 0] =>
        {
            true
        }
        Some(_) => transport_sum(frame, network) == 0xffff,
        None => false,
    };
    Verdict {
        complete,
        network_ok,
        transport_ok: transport_ok && network_ok,
    }
}

/// Looks at the checksums of a received frame with a packet inside, as a queue of tunnels does: the outer ones have to be
/// right as well. The sum is that of the frame.
pub(crate) fn check_inside(frame: &[u8], outer: &Parsed, inner: &Parsed) -> Verdict {
    let inside = check(frame, inner);
    let around = tunnel::outer_ok(frame, outer);
    let outer = check(frame, outer);
    Verdict {
        complete: outer.complete,
        network_ok: inside.network_ok && outer.network_ok,
        transport_ok: inside.transport_ok && around,
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::tests::{A4, A6, B4, B6, ipv4, ipv6, tcp, udp};
    use super::super::frame::{parse, protocol};
    use super::*;

    #[test]
    fn sums_of_rfc_1071() {
        assert_eq!(
            sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]),
            0xddf2
        );
        // An odd byte counts as the upper half of a word.
        assert_eq!(sum(&[0x12]), 0x1200);
        assert_eq!(sum(&[0xff; 70_000]), 0xffff);
        assert_eq!(sum(&[]), 0);
    }

    /// A header with a checksum known from elsewhere: the example of Wikipedia's article on it.
    #[test]
    fn a_known_ipv4_header() {
        let header = [
            0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8,
            0x00, 0x01, 0xc0, 0xa8, 0x00, 0xc7,
        ];
        assert_eq!(sum(&header), 0xffff);
        let mut frame = vec![0; 12];
        frame.extend([0x08, 0x00]);
        frame.extend(header);
        frame.resize(14 + 0x73, 0);
        frame[24..26].fill(0xab);
        let parsed = parse(&frame);
        fill(&mut frame, &parsed, true, false);
        assert_eq!(frame[24..26], [0xb8, 0x61]);
    }

    fn cases() -> Vec<Vec<u8>> {
        vec![
            ipv4(A4, B4, protocol::TCP, &tcp(1, 2, 0x18, b"odd")),
            ipv4(A4, B4, protocol::UDP, &udp(1, 2, b"even")),
            ipv6(A6, B6, protocol::TCP, &tcp(1, 2, 0x18, b"odd")),
            ipv6(A6, B6, protocol::UDP, &udp(1, 2, b"even")),
        ]
    }

    #[test]
    fn what_is_filled_in_is_found_right_and_one_flipped_bit_wrong() {
        for frame in cases() {
            let parsed = parse(&frame);
            let mut filled = frame.clone();
            // What stands there before does not matter.
            let field = parsed.transport.unwrap().checksum_at();
            filled[field] = 0x77;
            fill(&mut filled, &parsed, true, true);
            let verdict = check(&filled, &parsed);
            assert!(verdict.network_ok && verdict.transport_ok);
            let network = parsed.network.unwrap();
            assert_eq!(verdict.complete, sum(&filled[14..network.end]));

            let last = filled.len() - 1;
            filled[last] ^= 1;
            let verdict = check(&filled, &parsed);
            assert!(verdict.network_ok && !verdict.transport_ok);
            filled[last] ^= 1;
            if network.version == Version::V4 {
                filled[22] ^= 1;
                let verdict = check(&filled, &parsed);
                assert!(!verdict.network_ok && !verdict.transport_ok);
            }
        }
    }

    #[test]
    fn only_what_is_asked_for_is_filled_in() {
        for frame in cases() {
            let parsed = parse(&frame);
            let mut untouched = frame.clone();
            fill(&mut untouched, &parsed, false, false);
            assert_eq!(untouched, frame);
            let mut network = frame.clone();
            fill(&mut network, &parsed, true, false);
            assert_eq!(network[34..], frame[34..]);
        }
    }

    #[test]
    fn padding_is_not_summed() {
        let mut frame = ipv4(A4, B4, protocol::UDP, &udp(1, 2, b"x"));
        let parsed = parse(&frame);
        fill(&mut frame, &parsed, true, true);
        let before = check(&frame, &parse(&frame));
        frame.resize(60, 0x5a);
        assert_eq!(check(&frame, &parse(&frame)), before);
    }

    #[test]
    fn udp_says_with_zero_that_there_is_none() {
        let mut frame = ipv4(A4, B4, protocol::UDP, &udp(1, 2, b"x"));
        let parsed = parse(&frame);
        fill(&mut frame, &parsed, true, false);
        assert!(check(&frame, &parsed).transport_ok);
        // A checksum that comes out as zero is sent as all ones: the payload makes the sum full.
        fill(&mut frame, &parsed, true, true);
        let value = u16::from_be_bytes([frame[40], frame[41]]);
        let mut payload = vec![b'x', 0];
        payload.extend([0, 0]);
        let mut other = ipv4(A4, B4, protocol::UDP, &udp(1, 2, &payload));
        let parsed = parse(&other);
        fill(&mut other, &parsed, true, true);
        let value2 = u16::from_be_bytes([other[40], other[41]]);
        assert_ne!(value, value2);
        other[44..46].copy_from_slice(&value2.to_be_bytes());
        fill(&mut other, &parsed, true, true);
        assert_eq!(other[40..42], [0xff, 0xff]);
        assert!(check(&other, &parsed).transport_ok);
        // IPv6 has no such exception.
        let bare = ipv6(A6, B6, protocol::UDP, &udp(1, 2, b"x"));
        assert!(!check(&bare, &parse(&bare)).transport_ok);
    }
}
