//! What is in front of the BTH: Ethernet, an optional 802.1Q tag, then IPv4 or IPv6 with UDP (RoCE v2) or a GRH (RoCE v1).

use std::net::{Ipv4Addr, Ipv6Addr};

use super::env::{Encapsulation, Path};
use super::packet::ParseError;

/// UDP destination port of RoCE v2.
pub const UDP_PORT: u16 = 4791;
/// Ethertype of RoCE v1.
pub const ETHERTYPE_ROCE_V1: u16 = 0x8915;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_VLAN: u16 = 0x8100;
const PROTOCOL_UDP: u8 = 17;
/// "Next header" of a GRH in front of a BTH.
const NEXT_HEADER_BTH: u8 = 0x1b;
const UDP_LEN: usize = 8;
/// Ethernet frames shorter than this are padded by some senders (without frame check sequence).
const MIN_FRAME: usize = 60;
/// Longest headers in front of the BTH.
pub const MAX_LEN: usize = 18 + 40 + UDP_LEN;

/// Headers in front of the BTH.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Headers {
    /// Addresses and the rest that one path has in common.
    pub path: Path,
    /// IPv4 identification.
    pub ipv4_ident: u16,
    /// IPv4 "don't fragment".
    pub ipv4_dont_fragment: bool,
}

/// Offsets of the headers in a parsed frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    /// First byte of the IP header or GRH.
    pub(super) network: usize,
    /// First byte of the BTH.
    pub(super) transport: usize,
    /// One past the ICRC; Ethernet padding may follow.
    pub(super) end: usize,
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

/// Adds big-endian 16-bit words to a ones' complement sum.
fn sum(bytes: &[u8], mut acc: u32) -> u32 {
    for pair in bytes.chunks(2) {
        acc += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |&b| u32::from(b));
    }
    acc
}

fn fold(mut acc: u32) -> u16 {
    while acc > 0xffff {
        acc = (acc & 0xffff) + (acc >> 16);
    }
    acc as u16
}

impl Headers {
    /// Headers as a ConnectX sends them.
    pub fn new(path: Path) -> Headers {
        Headers {
            path,
            ipv4_ident: 0,
            ipv4_dont_fragment: true,
        }
    }

    /// Bytes in front of the BTH.
    pub fn len(&self) -> usize {
        let ethernet = if self.path.vlan.is_some() { 18 } else { 14 };
        ethernet
            + match self.path.encapsulation {
                Encapsulation::V1 { .. } => 40,
                Encapsulation::V2Ipv4 { .. } => 20 + UDP_LEN,
                Encapsulation::V2Ipv6 { .. } => 40 + UDP_LEN,
            }
    }

    /// Whether there are none: never.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Writes the headers to the beginning of `frame`, for `transport` bytes from the BTH to the ICRC.
    ///
    /// `frame` has at least [`Headers::len`] bytes.
    pub(super) fn emit(&self, frame: &mut [u8], transport: usize) -> Layout {
        let path = &self.path;
        frame[0..6].copy_from_slice(&path.destination_mac);
        frame[6..12].copy_from_slice(&path.source_mac);
        let mut network = 14;
        if let Some(tag) = path.vlan {
            frame[12..14].copy_from_slice(&ETHERTYPE_VLAN.to_be_bytes());
            frame[14..16].copy_from_slice(&tag.to_be_bytes());
            network = 18;
        }
        let ethertype = match path.encapsulation {
            Encapsulation::V1 { .. } => ETHERTYPE_ROCE_V1,
            Encapsulation::V2Ipv4 { .. } => ETHERTYPE_IPV4,
            Encapsulation::V2Ipv6 { .. } => ETHERTYPE_IPV6,
        };
        frame[network - 2..network].copy_from_slice(&ethertype.to_be_bytes());
        let ip = &mut frame[network..];
        let bth = match path.encapsulation {
            Encapsulation::V2Ipv4 {
                source,
                destination,
            } => {
                let total = (20 + UDP_LEN + transport) as u16;
                ip[0] = 0x45;
                ip[1] = path.traffic_class;
                ip[2..4].copy_from_slice(&total.to_be_bytes());
                ip[4..6].copy_from_slice(&self.ipv4_ident.to_be_bytes());
                let flags: u16 = if self.ipv4_dont_fragment { 0x4000 } else { 0 };
                ip[6..8].copy_from_slice(&flags.to_be_bytes());
                ip[8] = path.hop_limit;
                ip[9] = PROTOCOL_UDP;
                ip[10..12].fill(0);
                ip[12..16].copy_from_slice(&source.octets());
                ip[16..20].copy_from_slice(&destination.octets());
                let checksum = !fold(sum(&ip[..20], 0));
                ip[10..12].copy_from_slice(&checksum.to_be_bytes());
                network + 20
            }
            Encapsulation::V2Ipv6 {
                source,
                destination,
            } => {
                self.emit_40(
                    ip,
                    UDP_LEN + transport,
                    PROTOCOL_UDP,
                    source.octets(),
                    destination.octets(),
                );
                network + 40
            }
            Encapsulation::V1 {
                source,
                destination,
            } => {
                self.emit_40(ip, transport, NEXT_HEADER_BTH, source, destination);
                return Layout {
                    network,
                    transport: network + 40,
                    end: network + 40 + transport,
                };
            }
        };
        let udp = &mut frame[bth..];
        udp[0..2].copy_from_slice(&path.udp_source_port.to_be_bytes());
        udp[2..4].copy_from_slice(&UDP_PORT.to_be_bytes());
        udp[4..6].copy_from_slice(&((UDP_LEN + transport) as u16).to_be_bytes());
        udp[6..8].fill(0);
        Layout {
            network,
            transport: bth + UDP_LEN,
            end: bth + UDP_LEN + transport,
        }
    }

    /// IPv6 header or GRH: one layout.
    fn emit_40(
        &self,
        ip: &mut [u8],
        payload: usize,
        next: u8,
        source: [u8; 16],
        destination: [u8; 16],
    ) {
        let word =
            6 << 28 | u32::from(self.path.traffic_class) << 20 | (self.path.flow_label & 0xf_ffff);
        ip[0..4].copy_from_slice(&word.to_be_bytes());
        ip[4..6].copy_from_slice(&(payload as u16).to_be_bytes());
        ip[6] = next;
        ip[7] = self.path.hop_limit;
        ip[8..24].copy_from_slice(&source);
        ip[24..40].copy_from_slice(&destination);
    }

    /// Reads the headers of a frame; what is not RoCE is [`ParseError::NotRoce`].
    pub(super) fn parse(frame: &[u8]) -> Result<(Headers, Layout), ParseError> {
        if frame.len() < 14 {
            return Err(ParseError::Truncated);
        }
        let destination_mac = array(frame, 0);
        let source_mac = array(frame, 6);
        let mut ethertype = be16(frame, 12);
        let mut network = 14;
        let mut vlan = None;
        if ethertype == ETHERTYPE_VLAN {
            if frame.len() < 18 {
                return Err(ParseError::Truncated);
            }
            vlan = Some(be16(frame, 14));
            ethertype = be16(frame, 16);
            network = 18;
        }
        let mut path = Path {
            source_mac,
            destination_mac,
            vlan,
            encapsulation: Encapsulation::V1 {
                source: [0; 16],
                destination: [0; 16],
            },
            traffic_class: 0,
            flow_label: 0,
            hop_limit: 0,
            udp_source_port: 0,
        };
        let mut headers = Headers::new(path);
        let ip = &frame[network..];
        let (header_len, payload_len) = match ethertype {
            ETHERTYPE_IPV4 => {
                if ip.len() < 20 {
                    return Err(ParseError::Truncated);
                }
                if ip[9] != PROTOCOL_UDP {
                    return Err(ParseError::NotRoce);
                }
                if ip[0] != 0x45 {
                    return Err(ParseError::IpHeader);
                }
                let fragment = be16(ip, 6);
                if fragment & 0xbfff != 0 {
                    return Err(ParseError::IpHeader);
                }
                if fold(sum(&ip[..20], 0)) != 0xffff {
                    return Err(ParseError::IpChecksum);
                }
                headers.ipv4_ident = be16(ip, 4);
                headers.ipv4_dont_fragment = fragment & 0x4000 != 0;
                path.traffic_class = ip[1];
                path.hop_limit = ip[8];
                path.encapsulation = Encapsulation::V2Ipv4 {
                    source: Ipv4Addr::from(array(ip, 12)),
                    destination: Ipv4Addr::from(array(ip, 16)),
                };
                let total = usize::from(be16(ip, 2));
                (20, total.checked_sub(20).ok_or(ParseError::Length)?)
            }
            ETHERTYPE_IPV6 | ETHERTYPE_ROCE_V1 => {
                if ip.len() < 40 {
                    return Err(ParseError::Truncated);
                }
                let v1 = ethertype == ETHERTYPE_ROCE_V1;
                let next = if v1 { NEXT_HEADER_BTH } else { PROTOCOL_UDP };
                if ip[6] != next {
                    return Err(ParseError::NotRoce);
                }
                let word = be32(ip, 0);
                if word >> 28 != 6 {
                    return Err(ParseError::IpHeader);
                }
                path.traffic_class = (word >> 20) as u8;
                path.flow_label = word & 0xf_ffff;
                path.hop_limit = ip[7];
                let (source, destination) = (array::<16>(ip, 8), array::<16>(ip, 24));
                path.encapsulation = if v1 {
                    Encapsulation::V1 {
                        source,
                        destination,
                    }
                } else {
                    Encapsulation::V2Ipv6 {
                        source: Ipv6Addr::from(source),
                        destination: Ipv6Addr::from(destination),
                    }
                };
                (40, usize::from(be16(ip, 4)))
            }
            _ => return Err(ParseError::NotRoce),
        };
        let end = network + header_len + payload_len;
        if end > frame.len() {
            return Err(ParseError::Truncated);
        }
        let mut transport = network + header_len;
        if ethertype != ETHERTYPE_ROCE_V1 {
            let udp = &frame[transport..end];
            if udp.len() < UDP_LEN {
                return Err(ParseError::Truncated);
            }
            if be16(udp, 2) != UDP_PORT {
                return Err(ParseError::NotRoce);
            }
            if usize::from(be16(udp, 4)) != payload_len {
                return Err(ParseError::Length);
            }
            if be16(udp, 6) != 0 && !udp_checksum_right(&path.encapsulation, udp) {
                return Err(ParseError::UdpChecksum);
            }
            path.udp_source_port = be16(udp, 0);
            transport += UDP_LEN;
        }
        // Only frames that would be too short for Ethernet may be longer than their content.
        if end != frame.len() && frame.len() > MIN_FRAME {
            return Err(ParseError::Length);
        }
        headers.path = path;
        Ok((
            headers,
            Layout {
                network,
                transport,
                end,
            },
        ))
    }
}

fn udp_checksum_right(encapsulation: &Encapsulation, udp: &[u8]) -> bool {
    let mut acc = u32::from(PROTOCOL_UDP) + udp.len() as u32;
    acc = match encapsulation {
        Encapsulation::V2Ipv4 {
            source,
            destination,
        } => sum(&destination.octets(), sum(&source.octets(), acc)),
        Encapsulation::V2Ipv6 {
            source,
            destination,
        } => sum(&destination.octets(), sum(&source.octets(), acc)),
        Encapsulation::V1 { .. } => return true,
    };
    fold(sum(udp, acc)) == 0xffff
}
