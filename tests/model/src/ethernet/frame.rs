//! The parts of a frame that a network card sees: VLAN tags, network and transport headers.

/// Ethertypes.
pub(crate) mod ethertype {
    pub(crate) const IPV4: u16 = 0x0800;
    pub(crate) const VLAN: u16 = 0x8100;
    pub(crate) const SERVICE_VLAN: u16 = 0x88a8;
    pub(crate) const IPV6: u16 = 0x86dd;
}

/// IP protocols.
pub(crate) mod protocol {
    pub(crate) const TCP: u8 = 6;
    pub(crate) const UDP: u8 = 17;
    pub(crate) const GRE: u8 = 47;
    pub(super) const HOP_BY_HOP: u8 = 0;
    pub(super) const ROUTING: u8 = 43;
    pub(super) const FRAGMENT: u8 = 44;
    pub(super) const DESTINATION: u8 = 60;
}

/// Length of the two addresses and the type.
pub(crate) const HEADER: usize = 14;
/// Length of a VLAN tag.
pub(crate) const TAG: usize = 4;
/// Shortest frame on the cable, without its check sequence.
pub(crate) const MIN_FRAME: usize = 60;
const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
const TCP_HEADER: usize = 20;
const UDP_HEADER: usize = 8;
/// Tags, and extension headers, that are looked through.
const MAX_NESTED: usize = 8;

/// IP version of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    V4,
    V6,
}

/// The network header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Network {
    pub(crate) version: Version,
    pub(crate) at: usize,
    /// Where the transport header is, if there is one.
    pub(crate) transport: usize,
    /// Where the packet ends; padding may follow.
    pub(crate) end: usize,
    /// The next protocol, behind extension headers.
    pub(crate) protocol: u8,
    pub(crate) fragment: bool,
    /// The header fits the frame, and its lengths do.
    pub(crate) sound: bool,
}

/// The transport header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Tcp { at: usize, header: usize, flags: u8 },
    Udp { at: usize },
}

impl Transport {
    pub(crate) fn at(&self) -> usize {
        match *self {
            Self::Tcp { at, .. } | Self::Udp { at } => at,
        }
    }

    /// Where the checksum is.
    pub(crate) fn checksum_at(&self) -> usize {
        match *self {
            Self::Tcp { at, .. } => at + 16,
            Self::Udp { at } => at + 6,
        }
    }
}

/// A frame, looked into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parsed {
    /// The customer tag directly behind the addresses.
    pub(crate) tag: Option<u16>,
    /// Where the network header is.
    pub(crate) network_at: usize,
    pub(crate) network: Option<Network>,
    pub(crate) transport: Option<Transport>,
}

pub(crate) fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Where the headers of a packet start in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) at: usize,
    /// The type of the network header that is there; `None` if it is an Ethernet header.
    pub(crate) network: Option<u16>,
}

impl Start {
    /// The frame itself.
    pub(crate) const FRAME: Self = Self {
        at: 0,
        network: None,
    };
}

/// Looks into a frame.
pub(crate) fn parse(frame: &[u8]) -> Parsed {
    parse_from(frame, Start::FRAME)
}

/// Looks into what starts at a place of a frame. All places are counted from the frame's start.
pub(crate) fn parse_from(frame: &[u8], start: Start) -> Parsed {
    if let Some(kind) = start.network {
        return behind(frame, None, kind, start.at);
    }
    let mut at = start.at + HEADER - 2;
    let mut kind = be16(frame, at).unwrap_or(0);
    let tag = (kind == ethertype::VLAN)
        .then(|| be16(frame, at + 2))
        .flatten();
    for _ in 0..MAX_NESTED {
        if !matches!(kind, ethertype::VLAN | ethertype::SERVICE_VLAN) {
            break;
        }
        at += TAG;
        kind = be16(frame, at).unwrap_or(0);
    }
    behind(frame, tag, kind, at + 2)
}

/// Looks into what is behind the Ethernet header.
fn behind(frame: &[u8], tag: Option<u16>, kind: u16, at: usize) -> Parsed {
    let network = match kind {
        ethertype::IPV4 => ipv4(frame, at),
        ethertype::IPV6 => ipv6(frame, at),
        _ => None,
    };
    Parsed {
        tag,
        network_at: at,
        transport: network.and_then(|network| transport(frame, &network)),
        network,
    }
}

fn ipv4(frame: &[u8], at: usize) -> Option<Network> {
    let header = frame.get(at..at + IPV4_HEADER)?;
    let length = usize::from(header[0] & 0xf) * 4;
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let space = frame.len() - at;
    Some(Network {
        version: Version::V4,
        at,
        transport: at + length,
        end: at + total.min(space),
        protocol: header[9],
        // More fragments, or an offset.
        fragment: u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0,
        sound: header[0] >> 4 == 4 && (IPV4_HEADER..=total).contains(&length) && total <= space,
    })
}

fn ipv6(frame: &[u8], at: usize) -> Option<Network> {
    let header = frame.get(at..at + IPV6_HEADER)?;
    let total = IPV6_HEADER + usize::from(u16::from_be_bytes([header[4], header[5]]));
    let space = frame.len() - at;
    let end = at + total.min(space);
    let mut next = header[6];
    let mut transport = at + IPV6_HEADER;
    let mut fragment = false;
    let mut sound = header[0] >> 4 == 6 && total <= space;
    for _ in 0..MAX_NESTED {
        let length = match next {
            protocol::HOP_BY_HOP | protocol::ROUTING | protocol::DESTINATION => {
                (usize::from(frame.get(transport + 1).copied().unwrap_or(0)) + 1) * 8
            }
            protocol::FRAGMENT => {
                let bits = be16(frame, transport + 2).unwrap_or(0);
                // The offset, or more fragments.
                fragment |= bits & 0xfff9 != 0;
                8
            }
            _ => break,
        };
        if transport + length > end {
            sound = false;
            break;
        }
        next = frame[transport];
        transport += length;
    }
    Some(Network {
        version: Version::V6,
        at,
        transport,
        end,
        protocol: next,
        fragment,
        sound,
    })
}

fn transport(frame: &[u8], network: &Network) -> Option<Transport> {
    if !network.sound || network.fragment {
        return None;
    }
    let at = network.transport;
    let rest = frame.get(at..network.end)?;
    match network.protocol {
        protocol::TCP if rest.len() >= TCP_HEADER => {
            let header = usize::from(rest[12] >> 4) * 4;
            (TCP_HEADER..=rest.len())
                .contains(&header)
                .then_some(Transport::Tcp {
                    at,
                    header,
                    flags: rest[13],
                })
        }
        protocol::UDP if rest.len() >= UDP_HEADER => Some(Transport::Udp { at }),
        _ => None,
    }
}

impl Network {
    /// Source and destination address.
    pub(crate) fn addresses<'a>(&self, frame: &'a [u8]) -> (&'a [u8], &'a [u8]) {
        let (at, length) = match self.version {
            Version::V4 => (self.at + 12, 4),
            Version::V6 => (self.at + 8, 16),
        };
        let part = |at: usize| frame.get(at..at + length).unwrap_or(&[]);
        (part(at), part(at + length))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::checksum::Wanted;
    use super::super::segment::cut;
    use super::super::tunnel::tests::{every_kind, gre, vxlan};
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn ethernet(kind: u16) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        frame.extend(kind.to_be_bytes());
        frame
    }

    /// A frame with an IPv4 packet, its checksum not filled in.
    pub(in super::super) fn ipv4(
        from: Ipv4Addr,
        to: Ipv4Addr,
        protocol: u8,
        body: &[u8],
    ) -> Vec<u8> {
        let mut frame = ethernet(ethertype::IPV4);
        let total = (20 + body.len()) as u16;
        frame.extend([0x45, 0]);
        frame.extend(total.to_be_bytes());
        frame.extend([0x12, 0x34, 0x40, 0, 64, protocol, 0, 0]);
        frame.extend(from.octets());
        frame.extend(to.octets());
        frame.extend(body);
        frame
    }

    /// A frame with an IPv6 packet.
    pub(in super::super) fn ipv6(from: Ipv6Addr, to: Ipv6Addr, next: u8, body: &[u8]) -> Vec<u8> {
        let mut frame = ethernet(ethertype::IPV6);
        frame.extend([0x60, 0, 0, 0]);
        frame.extend((body.len() as u16).to_be_bytes());
        frame.extend([next, 64]);
        frame.extend(from.octets());
        frame.extend(to.octets());
        frame.extend(body);
        frame
    }

    /// TCP without options, its checksum not filled in.
    pub(in super::super) fn tcp(from: u16, to: u16, flags: u8, data: &[u8]) -> Vec<u8> {
        let mut segment = Vec::new();
        segment.extend(from.to_be_bytes());
        segment.extend(to.to_be_bytes());
        segment.extend(0xffff_fff0u32.to_be_bytes());
        segment.extend(7u32.to_be_bytes());
        segment.extend([0x50, flags, 0x10, 0, 0, 0, 0, 0]);
        segment.extend(data);
        segment
    }

    /// UDP, its checksum not filled in.
    pub(in super::super) fn udp(from: u16, to: u16, data: &[u8]) -> Vec<u8> {
        let mut datagram = Vec::new();
        datagram.extend(from.to_be_bytes());
        datagram.extend(to.to_be_bytes());
        datagram.extend((8 + data.len() as u16).to_be_bytes());
        datagram.extend([0, 0]);
        datagram.extend(data);
        datagram
    }

    pub(in super::super) const A4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    pub(in super::super) const B4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
    pub(in super::super) const A6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
    pub(in super::super) const B6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);

    #[test]
    fn tags_are_looked_through() {
        let plain = ipv4(A4, B4, protocol::UDP, &udp(1, 2, b"abc"));
        let expected = parse(&plain);
        assert_eq!(expected.tag, None);
        assert_eq!(expected.network_at, 14);
        assert_eq!(expected.transport, Some(Transport::Udp { at: 34 }));
        let mut tagged = plain.clone();
        tagged.splice(12..12, [0x81, 0x00, 0x20, 0x05]);
        assert_eq!(parse(&tagged).tag, Some(0x2005));
        assert_eq!(parse(&tagged).transport, Some(Transport::Udp { at: 38 }));
        // Of two, the outer one counts, and a service tag is not stripped.
        tagged.splice(12..12, [0x88, 0xa8, 0x00, 0x07]);
        assert_eq!(parse(&tagged).tag, None);
        assert_eq!(parse(&tagged).network_at, 22);
        assert_eq!(parse(&tagged).transport, Some(Transport::Udp { at: 42 }));
    }

    #[test]
    fn extension_headers_are_looked_through_and_fragments_have_no_transport() {
        let mut body = vec![protocol::DESTINATION, 0, 1, 4, 0, 0, 0, 0];
        body.extend([protocol::UDP, 1]);
        body.extend([0; 14]);
        body.extend(udp(1, 2, b"abc"));
        let frame = ipv6(A6, B6, protocol::HOP_BY_HOP, &body);
        let parsed = parse(&frame);
        assert_eq!(parsed.transport, Some(Transport::Udp { at: 14 + 40 + 24 }));
        assert_eq!(parsed.network.unwrap().protocol, protocol::UDP);

        let mut fragment = vec![protocol::UDP, 0, 0, 1, 0, 0, 0, 9];
        fragment.extend(udp(1, 2, b"abc"));
        let parsed = parse(&ipv6(A6, B6, protocol::FRAGMENT, &fragment));
        assert!(parsed.network.unwrap().fragment);
        assert_eq!(parsed.transport, None);

        let mut first = ipv4(A4, B4, protocol::UDP, &udp(1, 2, b"abc"));
        first[20] = 0x20;
        assert!(parse(&first).network.unwrap().fragment);
        assert_eq!(parse(&first).transport, None);
    }

    #[test]
    fn padding_is_not_part_of_the_packet() {
        let mut frame = ipv4(A4, B4, protocol::TCP, &tcp(1, 2, 0x10, b""));
        let end = frame.len();
        frame.resize(MIN_FRAME, 0xee);
        assert_eq!(parse(&frame).network.unwrap().end, end);
    }

    #[test]
    fn no_bytes_make_it_fail() {
        let mut seed = 0x1234_5678_9abc_def1u64;
        let mut next = || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        };
        let whole = [
            ipv4(A4, B4, protocol::TCP, &tcp(1, 2, 0x10, b"abcdef")),
            ipv6(A6, B6, protocol::UDP, &udp(1, 2, b"abcdef")),
            vxlan(
                4789,
                &ipv4(A4, B4, protocol::TCP, &tcp(1, 2, 0x10, b"abcdef")),
            ),
            gre(
                0xb000,
                ethertype::IPV4,
                &ipv4(A4, B4, protocol::TCP, &tcp(1, 2, 0x10, b"abcdef"))[14..],
            ),
        ];
        for round in 0..40_000 {
            let mut frame = whole[round % 4].clone();
            for _ in 0..next() % 6 {
                let at = (next() as usize) % frame.len();
                frame[at] = next() as u8;
            }
            frame.truncate((next() as usize) % (frame.len() + 1));
            let parsed = parse(&frame);
            super::super::checksum::check(&frame, &parsed);
            if let Some(start) = every_kind().inner(&frame, &parsed) {
                let inner = parse_from(&frame, start);
                super::super::checksum::check_inside(&frame, &parsed, &inner);
            }
            Wanted(!0).fill(&mut frame, &every_kind());
            let middle = frame.len() / 2;
            let (headers, payload) = frame.split_at(middle);
            let tunnels = every_kind();
            let _ = cut(headers, payload, 3, Wanted(!0), &tunnels, |_| {});
        }
    }
}
