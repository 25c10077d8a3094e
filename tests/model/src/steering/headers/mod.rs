//! The headers of a frame: enough of them for flow entries, checksums and hashes.

use crate::ethernet::frame::Start;
use bareverbs_firmware_cmds::flow::{FteMatchSetLyr24, FteMatchSetMisc};

/// Length of an Ethernet header without tags.
pub(crate) const ETHERNET: usize = 14;

pub(crate) mod ethertype {
    pub(crate) const IPV4: u16 = 0x0800;
    pub(crate) const IPV6: u16 = 0x86dd;
    pub(crate) const CVLAN: u16 = 0x8100;
    pub(crate) const SVLAN: u16 = 0x88a8;
    pub(crate) const ROCE: u16 = 0x8915;
}

pub(crate) mod protocol {
    pub(crate) const HOP_BY_HOP: u8 = 0;
    pub(crate) const TCP: u8 = 6;
    pub(crate) const UDP: u8 = 17;
    pub(crate) const ROUTING: u8 = 43;
    pub(crate) const FRAGMENT: u8 = 44;
    pub(crate) const DESTINATION_OPTIONS: u8 = 60;
}

/// A VLAN tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tag {
    /// A service tag (802.1ad) rather than a customer's.
    pub(crate) service: bool,
    /// Priority, drop eligibility and VLAN.
    pub(crate) tci: u16,
}

/// An IP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Network {
    /// 4 or 6.
    pub(crate) version: u8,
    /// Where it starts in the frame.
    pub(crate) offset: usize,
    /// Where the datagram ends: what is behind is padding.
    pub(crate) end: usize,
    /// Length of version 4's header in dwords.
    pub(crate) ihl: u8,
    /// DSCP and ECN.
    pub(crate) traffic_class: u8,
    pub(crate) ttl: u8,
    pub(crate) flow_label: u32,
    /// The protocol behind the header and the extension headers that are stepped over.
    pub(crate) protocol: u8,
    /// Where that starts.
    pub(crate) payload: usize,
    /// Part of a datagram, also if it is the first.
    pub(crate) fragment: bool,
    /// Version 4's are in the last four bytes.
    pub(crate) source: [u8; 16],
    pub(crate) destination: [u8; 16],
}

/// A TCP or UDP header. Fragments have none: only a first fragment could carry it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Transport {
    pub(crate) tcp: bool,
    pub(crate) source: u16,
    pub(crate) destination: u16,
    /// TCP's nine.
    pub(crate) flags: u16,
}

/// A frame taken apart. Where it is cut off or contradicts itself, the headers from there on are absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Headers {
    pub(crate) destination: [u8; 6],
    pub(crate) source: [u8; 6],
    /// The outer one first; more than two are not looked at.
    pub(crate) tags: [Option<Tag>; 2],
    /// Behind the tags.
    pub(crate) ethertype: u16,
    pub(crate) network: Option<Network>,
    pub(crate) transport: Option<Transport>,
}

fn array<const N: usize>(frame: &[u8], at: usize) -> Option<[u8; N]> {
    frame.get(at..)?.first_chunk().copied()
}

fn short(frame: &[u8], at: usize) -> Option<u16> {
    array(frame, at).map(u16::from_be_bytes)
}

impl Headers {
    /// `None` if there is not even an Ethernet header.
    pub(crate) fn parse(frame: &[u8]) -> Option<Self> {
        let mut headers = Self {
            destination: array(frame, 0)?,
            source: array(frame, 6)?,
            tags: [None; 2],
            ethertype: short(frame, 12)?,
            network: None,
            transport: None,
        };
        let mut at = ETHERNET;
        for tag in &mut headers.tags {
            let service = headers.ethertype == ethertype::SVLAN;
            if !service && headers.ethertype != ethertype::CVLAN {
                break;
            }
            let (Some(tci), Some(next)) = (short(frame, at), short(frame, at + 2)) else {
                return Some(headers);
            };
            *tag = Some(Tag { service, tci });
            headers.ethertype = next;
            at += 4;
        }
        headers.look_behind(frame, at);
        Some(headers)
    }

    /// Parses the packet inside of a frame. The places in it are counted from where that starts.
    pub(crate) fn parse_inner(frame: &[u8], start: Start) -> Option<Self> {
        let inner = frame.get(start.at..)?;
        let Some(ethertype) = start.network else {
            return Self::parse(inner);
        };
        let mut headers = Self {
            destination: [0; 6],
            source: [0; 6],
            tags: [None; 2],
            ethertype,
            network: None,
            transport: None,
        };
        headers.look_behind(inner, 0);
        Some(headers)
    }

    fn look_behind(&mut self, frame: &[u8], at: usize) {
        self.network = match self.ethertype {
            ethertype::IPV4 => ipv4(frame, at),
            ethertype::IPV6 => ipv6(frame, at),
            _ => None,
        };
        self.transport = self.network.and_then(|ip| transport(frame, &ip));
    }

    /// The fields as flow groups name them, of the outer headers or of the inner ones.
    pub(crate) fn layer(&self) -> FteMatchSetLyr24 {
        let mut set = FteMatchSetLyr24::ZERO;
        let [d0, d1, d2, d3, d4, d5] = self.destination;
        let [s0, s1, s2, s3, s4, s5] = self.source;
        set.set_dmac_47_16(u32::from_be_bytes([d0, d1, d2, d3]))
            .set_dmac_15_0(u16::from_be_bytes([d4, d5]))
            .set_smac_47_16(u32::from_be_bytes([s0, s1, s2, s3]))
            .set_smac_15_0(u16::from_be_bytes([s4, s5]))
            .set_ethertype(self.ethertype);
        if let Some(tag) = self.tags[0] {
            set.set_cvlan_tag(!tag.service)
                .set_svlan_tag(tag.service)
                .set_first_prio(tag.priority())
                .set_first_cfi(tag.drop_eligible())
                .set_first_vid(tag.vlan());
        }
        if let Some(ip) = &self.network {
            set.set_ip_version(ip.version)
                .set_ip_protocol(ip.protocol)
                .set_ip_dscp(ip.traffic_class >> 2)
                .set_ip_ecn(ip.traffic_class & 3)
                .set_frag(ip.fragment)
                .set_ipv4_ihl(ip.ihl)
                .set_ttl_hoplimit(ip.ttl);
            *set.src_ipv4_src_ipv6_mut() = ip.source;
            *set.dst_ipv4_dst_ipv6_mut() = ip.destination;
        }
        match self.transport {
            Some(tcp) if tcp.tcp => {
                set.set_tcp_sport(tcp.source)
                    .set_tcp_dport(tcp.destination)
                    .set_tcp_flags(tcp.flags);
            }
            Some(udp) => {
                set.set_udp_sport(udp.source).set_udp_dport(udp.destination);
            }
            None => {}
        }
        set
    }

    /// The fields of the miscellaneous parameters that a frame can have.
    pub(crate) fn misc(&self) -> FteMatchSetMisc {
        let mut set = FteMatchSetMisc::ZERO;
        if let Some(tag) = self.tags[1] {
            set.set_outer_second_cvlan_tag(!tag.service)
                .set_outer_second_svlan_tag(tag.service)
                .set_outer_second_prio(tag.priority())
                .set_outer_second_cfi(tag.drop_eligible())
                .set_outer_second_vid(tag.vlan());
        }
        if let Some(ip) = &self.network {
            set.set_outer_ipv6_flow_label(ip.flow_label);
        }
        set
    }
}

impl Tag {
    pub(crate) fn priority(self) -> u8 {
        (self.tci >> 13) as u8
    }

    pub(crate) fn drop_eligible(self) -> bool {
        self.tci & 0x1000 != 0
    }

    pub(crate) fn vlan(self) -> u16 {
        self.tci & 0xfff
    }
}

fn ipv4(frame: &[u8], at: usize) -> Option<Network> {
    let header: [u8; 20] = array(frame, at)?;
    let ihl = header[0] & 0xf;
    let payload = at + usize::from(ihl) * 4;
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let end = (at + total).min(frame.len());
    if header[0] >> 4 != 4 || ihl < 5 || payload > end {
        return None;
    }
    let mut ip = Network {
        version: 4,
        offset: at,
        end,
        ihl,
        traffic_class: header[1],
        ttl: header[8],
        flow_label: 0,
        protocol: header[9],
        payload,
        // More to come, or an offset.
        fragment: u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0,
        source: [0; 16],
        destination: [0; 16],
    };
    ip.source[12..].copy_from_slice(&header[12..16]);
    ip.destination[12..].copy_from_slice(&header[16..20]);
    Some(ip)
}

fn ipv6(frame: &[u8], at: usize) -> Option<Network> {
    let header: [u8; 40] = array(frame, at)?;
    let first = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
    if first >> 28 != 6 {
        return None;
    }
    let payload = at + header.len();
    let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let mut ip = Network {
        version: 6,
        offset: at,
        end: (payload + length).min(frame.len()),
        ihl: 0,
        traffic_class: (first >> 20) as u8,
        ttl: header[7],
        flow_label: first & 0xf_ffff,
        protocol: header[6],
        payload,
        fragment: false,
        source: array(&header, 8)?,
        destination: array(&header, 24)?,
    };
    step_over_extensions(frame, &mut ip);
    Some(ip)
}

/// Goes to the first header that is no extension, or stays at the one that is cut off.
fn step_over_extensions(frame: &[u8], ip: &mut Network) {
    let whole = frame.get(..ip.end).unwrap_or_default();
    while let Some(header) = array::<8>(whole, ip.payload) {
        let length = match ip.protocol {
            protocol::HOP_BY_HOP | protocol::ROUTING | protocol::DESTINATION_OPTIONS => {
                (usize::from(header[1]) + 1) * 8
            }
            protocol::FRAGMENT => {
                let place = u16::from_be_bytes([header[2], header[3]]);
                ip.fragment |= place & 0xfff9 != 0;
                if place & 0xfff8 != 0 {
                    // What follows is the middle of something.
                    ip.protocol = header[0];
                    ip.payload += 8;
                    return;
                }
                8
            }
            _ => return,
        };
        if ip.payload + length > ip.end {
            return;
        }
        ip.protocol = header[0];
        ip.payload += length;
    }
}

fn transport(frame: &[u8], ip: &Network) -> Option<Transport> {
    if ip.fragment {
        return None;
    }
    let segment = frame.get(ip.payload..ip.end)?;
    let tcp = match ip.protocol {
        protocol::TCP if segment.len() >= 20 => true,
        protocol::UDP if segment.len() >= 8 => false,
        _ => return None,
    };
    Some(Transport {
        tcp,
        source: short(segment, 0)?,
        destination: short(segment, 2)?,
        flags: if tcp { short(segment, 12)? & 0x1ff } else { 0 },
    })
}

/// The fields of a base transport header that tables look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BaseTransport {
    pub(crate) opcode: u8,
    pub(crate) destination_qp: u32,
}

/// The base transport header of a RoCE packet: behind UDP (IBTA Annex A17), or behind a GRH (Annex A16).
pub(crate) fn base_transport(frame: &[u8], headers: &Headers) -> Option<BaseTransport> {
    const ROCE_PORT: u16 = 4791;
    let at = match (headers.ethertype, headers.transport, headers.network) {
        (ethertype::ROCE, _, _) => ETHERNET + 4 * headers.tags.iter().flatten().count() + 40,
        (_, Some(transport), Some(ip)) if !transport.tcp && transport.destination == ROCE_PORT => {
            ip.payload + 8
        }
        _ => return None,
    };
    let header: [u8; 12] = array(frame, at)?;
    Some(BaseTransport {
        opcode: header[0],
        destination_qp: u32::from_be_bytes([0, header[5], header[6], header[7]]),
    })
}

#[cfg(test)]
pub(crate) mod tests;
