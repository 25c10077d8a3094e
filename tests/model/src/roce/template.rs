//! The headers of a path, made once: from packet to packet only lengths differ, and the checksum over them.

use std::mem::offset_of;

use super::env::Encapsulation;
use super::headers::{
    Carrier, DONT_FRAGMENT, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_ROCE_V1, ETHERTYPE_VLAN,
    Headers, IPV4_WITHOUT_OPTIONS, Layout, MAX_LEN, NEXT_HEADER_BTH, PROTOCOL_UDP, UDP_LEN,
    UDP_PORT, fold, sum,
};
use super::wire::{Ethernet, Ipv4, Ipv6, Tag, Udp, Writer};
use zerocopy::IntoBytes;

/// Headers in front of a BTH, whose lengths are still to be set.
#[derive(Debug, Clone)]
pub(super) struct Template {
    bytes: [u8; MAX_LEN],
    len: usize,
    /// Where the IP header or GRH is.
    network: usize,
    carrier: Carrier,
    /// Of the IPv4 header without its total length.
    sum: u32,
}

fn put(frame: &mut [u8], at: usize, value: u16) {
    frame[at..][..2].copy_from_slice(&value.to_be_bytes());
}

impl Template {
    pub(super) fn new(headers: &Headers) -> Template {
        let path = &headers.path;
        let mut bytes = [0; MAX_LEN];
        let mut w = Writer {
            frame: &mut bytes,
            at: 0,
        };
        let ethertype = match path.encapsulation {
            Encapsulation::V1 { .. } => ETHERTYPE_ROCE_V1,
            Encapsulation::V2Ipv4 { .. } => ETHERTYPE_IPV4,
            Encapsulation::V2Ipv6 { .. } => ETHERTYPE_IPV6,
        };
        w.put(Ethernet {
            destination: path.destination_mac,
            source: path.source_mac,
            ethertype: path.vlan.map_or(ethertype, |_| ETHERTYPE_VLAN).into(),
        });
        if let Some(control) = path.vlan {
            w.put(Tag {
                control: control.into(),
                ethertype: ethertype.into(),
            });
        }
        let network = w.at;
        let mut ipv4_sum = 0;
        let ipv6 = |next, source, destination| Ipv6 {
            version_class_label: (6 << 28
                | u32::from(path.traffic_class) << 20
                | (path.flow_label & 0xf_ffff))
                .into(),
            payload: 0.into(),
            next,
            hop_limit: path.hop_limit,
            source,
            destination,
        };
        match path.encapsulation {
            Encapsulation::V2Ipv4 {
                source,
                destination,
            } => {
                let dont_fragment = headers.ipv4_dont_fragment;
                let ip = Ipv4 {
                    version_length: IPV4_WITHOUT_OPTIONS,
                    type_of_service: path.traffic_class,
                    total: 0.into(),
                    ident: headers.ipv4_ident.into(),
                    fragment: if dont_fragment { DONT_FRAGMENT } else { 0 }.into(),
                    time_to_live: path.hop_limit,
                    protocol: PROTOCOL_UDP,
                    checksum: 0.into(),
                    source: source.octets(),
                    destination: destination.octets(),
                };
                ipv4_sum = sum(ip.as_bytes(), 0);
                w.put(ip);
            }
            Encapsulation::V2Ipv6 {
                source,
                destination,
            } => w.put(ipv6(PROTOCOL_UDP, source.octets(), destination.octets())),
            Encapsulation::V1 {
                source,
                destination,
            } => w.put(ipv6(NEXT_HEADER_BTH, source, destination)),
        }
        let carrier = Carrier::of(&path.encapsulation);
        if carrier != Carrier::V1 {
            w.put(Udp {
                source: path.udp_source_port.into(),
                destination: UDP_PORT.into(),
                length: 0.into(),
                checksum: 0.into(),
            });
        }
        let len = w.at;
        Template {
            bytes,
            len,
            network,
            carrier,
            sum: ipv4_sum,
        }
    }

    /// Bytes in front of the BTH.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Writes the headers to the beginning of `frame`, for `transport` bytes from the BTH to the ICRC.
    ///
    /// `frame` has at least [`Template::len`] bytes.
    pub(super) fn emit(&self, frame: &mut [u8], transport: usize) -> Layout {
        let (head, _) = frame.split_at_mut(self.len);
        head.copy_from_slice(&self.bytes[..self.len]);
        let ip = &mut head[self.network..];
        let udp_len = (UDP_LEN + transport) as u16;
        match self.carrier {
            Carrier::V2Ipv4 => {
                let total = size_of::<Ipv4>() as u16 + udp_len;
                let checksum = !fold(self.sum + u32::from(total));
                put(ip, offset_of!(Ipv4, total), total);
                put(ip, offset_of!(Ipv4, checksum), checksum);
                put(ip, size_of::<Ipv4>() + offset_of!(Udp, length), udp_len);
            }
            Carrier::V2Ipv6 => {
                put(ip, offset_of!(Ipv6, payload), udp_len);
                put(ip, size_of::<Ipv6>() + offset_of!(Udp, length), udp_len);
            }
            Carrier::V1 => put(ip, offset_of!(Ipv6, payload), transport as u16),
        }
        Layout {
            carrier: self.carrier,
            network: self.network,
            transport: self.len,
            end: self.len + transport,
        }
    }
}
