//! What a network card sees in a frame: VLAN tags, network and transport headers.

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
    /// What follows, behind extension headers.
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

/// Looks into a frame.
pub(crate) fn parse(frame: &[u8]) -> Parsed {
    let mut at = HEADER - 2;
    let mut kind = be16(frame, at).unwrap_or(0);
    let tag = (kind == ethertype::VLAN)
        .then(|| be16(frame, HEADER))
        .flatten();
    for _ in 0..MAX_NESTED {
        if !matches!(kind, ethertype::VLAN | ethertype::SERVICE_VLAN) {
            break;
        }
        at += TAG;
        kind = be16(frame, at).unwrap_or(0);
    }
    at += 2;
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
    let room = frame.len() - at;
    Some(Network {
        version: Version::V4,
        at,
        transport: at + length,
        end: at + total.min(room),
        protocol: header[9],
        // More fragments, or an offset.
        fragment: u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0,
        sound: header[0] >> 4 == 4 && (IPV4_HEADER..=total).contains(&length) && total <= room,
    })
}

fn ipv6(frame: &[u8], at: usize) -> Option<Network> {
    let header = frame.get(at..at + IPV6_HEADER)?;
    let total = IPV6_HEADER + usize::from(u16::from_be_bytes([header[4], header[5]]));
    let room = frame.len() - at;
    let end = at + total.min(room);
    let mut next = header[6];
    let mut transport = at + IPV6_HEADER;
    let mut fragment = false;
    let mut sound = header[0] >> 4 == 6 && total <= room;
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
