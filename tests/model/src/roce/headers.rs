//! The headers in front of the BTH: Ethernet, an optional 802.1Q tag, then IPv4 or IPv6 with UDP (RoCE v2) or a GRH (RoCE v1).

use std::net::{Ipv4Addr, Ipv6Addr};

use super::env::{Encapsulation, Path};
use super::parse_error::ParseError;
use super::wire::{Ethernet, Ipv4, Ipv6, Reader, Tag, Udp};
use zerocopy::IntoBytes;

/// UDP destination port of RoCE v2.
pub const UDP_PORT: u16 = 4791;
/// Ethertype of RoCE v1.
pub const ETHERTYPE_ROCE_V1: u16 = 0x8915;
pub(super) const ETHERTYPE_IPV4: u16 = 0x0800;
pub(super) const ETHERTYPE_IPV6: u16 = 0x86dd;
pub(super) const ETHERTYPE_VLAN: u16 = 0x8100;
pub(super) const PROTOCOL_UDP: u8 = 17;
/// "Next header" of a GRH in front of a BTH.
pub(super) const NEXT_HEADER_BTH: u8 = 0x1b;
/// IPv4's first byte: version 4, five words.
pub(super) const IPV4_WITHOUT_OPTIONS: u8 = 0x45;
pub(super) const DONT_FRAGMENT: u16 = 0x4000;
/// More fragments follow, or some come before.
const FRAGMENTED: u16 = 0x3fff;
pub(super) const UDP_LEN: usize = 8;
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

/// The layer that carries the BTH.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Carrier {
    V1,
    V2Ipv4,
    V2Ipv6,
}

impl Carrier {
    pub(super) fn of(encapsulation: &Encapsulation) -> Carrier {
        match encapsulation {
            Encapsulation::V1 { .. } => Carrier::V1,
            Encapsulation::V2Ipv4 { .. } => Carrier::V2Ipv4,
            Encapsulation::V2Ipv6 { .. } => Carrier::V2Ipv6,
        }
    }
}

/// Offsets of the headers in a parsed frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) carrier: Carrier,
    /// First byte of the IP header or GRH.
    pub(super) network: usize,
    /// First byte of the BTH.
    pub(super) transport: usize,
    /// One past the ICRC; Ethernet padding may follow.
    pub(super) end: usize,
}

/// Adds big-endian 16-bit words to a ones' complement sum.
pub(super) fn sum(bytes: &[u8], mut acc: u32) -> u32 {
    let (pairs, odd) = bytes.as_chunks();
    for pair in pairs {
        acc += u32::from(u16::from_be_bytes(*pair));
    }
    match odd {
        [last] => acc + (u32::from(*last) << 8),
        _ => acc,
    }
}

pub(super) fn fold(mut acc: u32) -> u16 {
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

    /// Returns `false`: there are always headers.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Reads the headers of a frame; what is not RoCE is [`ParseError::NotRoce`].
    #[inline(always)]
    pub(super) fn parse(frame: &[u8]) -> Result<(Headers, Layout), ParseError> {
        let mut r = Reader { rest: frame };
        let ethernet: &Ethernet = r.take().ok_or(ParseError::Truncated)?;
        let mut ethertype = ethernet.ethertype.get();
        let mut vlan = None;
        if ethertype == ETHERTYPE_VLAN {
            let tag: &Tag = r.take().ok_or(ParseError::Truncated)?;
            vlan = Some(tag.control.get());
            ethertype = tag.ethertype.get();
        }
        let network = frame.len() - r.rest.len();
        let ip = match ethertype {
            ETHERTYPE_IPV4 => Network::ipv4(&mut r)?,
            ETHERTYPE_IPV6 => Network::ipv6(&mut r, false)?,
            ETHERTYPE_ROCE_V1 => Network::ipv6(&mut r, true)?,
            _ => return Err(ParseError::NotRoce),
        };
        let mut transport = frame.len() - r.rest.len();
        let end = transport + ip.payload;
        let mut udp_source_port = 0;
        if ethertype == ETHERTYPE_ROCE_V1 {
            if end > frame.len() {
                return Err(ParseError::Truncated);
            }
        } else {
            let datagram = frame.get(transport..end).ok_or(ParseError::Truncated)?;
            let mut r = Reader { rest: datagram };
            let udp: &Udp = r.take().ok_or(ParseError::Truncated)?;
            if udp.destination.get() != UDP_PORT {
                return Err(ParseError::NotRoce);
            }
            if usize::from(udp.length.get()) != ip.payload {
                return Err(ParseError::Length);
            }
            if udp.checksum.get() != 0 && !udp_checksum_right(&ip.encapsulation, datagram) {
                return Err(ParseError::UdpChecksum);
            }
            udp_source_port = udp.source.get();
            transport += UDP_LEN;
        }
        // Only frames that would be too short for Ethernet may be longer than their content.
        if end != frame.len() && frame.len() > MIN_FRAME {
            return Err(ParseError::Length);
        }
        let headers = Headers {
            path: Path {
                source_mac: ethernet.source,
                destination_mac: ethernet.destination,
                vlan,
                encapsulation: ip.encapsulation,
                traffic_class: ip.traffic_class,
                flow_label: ip.flow_label,
                hop_limit: ip.hop_limit,
                udp_source_port,
            },
            ipv4_ident: ip.ident,
            ipv4_dont_fragment: ip.dont_fragment,
        };
        let layout = Layout {
            carrier: Carrier::of(&ip.encapsulation),
            network,
            transport,
            end,
        };
        Ok((headers, layout))
    }
}

/// The content of a frame's IP header or GRH.
struct Network {
    encapsulation: Encapsulation,
    traffic_class: u8,
    flow_label: u32,
    hop_limit: u8,
    ident: u16,
    dont_fragment: bool,
    /// Bytes behind it.
    payload: usize,
}

impl Network {
    #[inline]
    fn ipv4(r: &mut Reader<'_>) -> Result<Network, ParseError> {
        let ip: &Ipv4 = r.take().ok_or(ParseError::Truncated)?;
        if ip.protocol != PROTOCOL_UDP {
            return Err(ParseError::NotRoce);
        }
        let fragment = ip.fragment.get();
        // What is in fragments is for hosts to put together, and only the first one has a port.
        if fragment & FRAGMENTED != 0 {
            return Err(ParseError::NotRoce);
        }
        if ip.version_length != IPV4_WITHOUT_OPTIONS || fragment & !DONT_FRAGMENT != 0 {
            return Err(ParseError::IpHeader);
        }
        if fold(sum(ip.as_bytes(), 0)) != 0xffff {
            return Err(ParseError::IpChecksum);
        }
        let payload = usize::from(ip.total.get()).checked_sub(size_of::<Ipv4>());
        Ok(Network {
            encapsulation: Encapsulation::V2Ipv4 {
                source: Ipv4Addr::from(ip.source),
                destination: Ipv4Addr::from(ip.destination),
            },
            traffic_class: ip.type_of_service,
            flow_label: 0,
            hop_limit: ip.time_to_live,
            ident: ip.ident.get(),
            dont_fragment: fragment & DONT_FRAGMENT != 0,
            payload: payload.ok_or(ParseError::Length)?,
        })
    }

    fn ipv6(r: &mut Reader<'_>, v1: bool) -> Result<Network, ParseError> {
        let ip: &Ipv6 = r.take().ok_or(ParseError::Truncated)?;
        if ip.next != if v1 { NEXT_HEADER_BTH } else { PROTOCOL_UDP } {
            return Err(ParseError::NotRoce);
        }
        let word = ip.version_class_label.get();
        if word >> 28 != 6 {
            return Err(ParseError::IpHeader);
        }
        let (source, destination) = (ip.source, ip.destination);
        Ok(Network {
            encapsulation: if v1 {
                Encapsulation::V1 {
                    source,
                    destination,
                }
            } else {
                Encapsulation::V2Ipv6 {
                    source: Ipv6Addr::from(source),
                    destination: Ipv6Addr::from(destination),
                }
            },
            traffic_class: (word >> 20) as u8,
            flow_label: word & 0xf_ffff,
            hop_limit: ip.hop_limit,
            ident: 0,
            dont_fragment: true,
            payload: usize::from(ip.payload.get()),
        })
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
