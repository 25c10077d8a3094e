//! Packets inside of others, whose headers the card finds: VXLAN (RFC 7348), behind UDP to a known port, and GRE (RFC 2784
//! and RFC 2890) with an Ethernet frame or an IP packet.

use super::checksum;
use super::frame::{self, Parsed, Start, Transport, be16, ethertype, protocol};
use bareverbs_firmware_cmds::caps::EthernetOffloadCaps;
use std::collections::BTreeSet;

/// The port that a card knows without being told (IANA; `mlx5_vxlan_create` of Linux: "Hardware adds 4789 by default").
const IANA_PORT: u16 = 4789;
const UDP_HEADER: usize = 8;
const VXLAN_HEADER: usize = 8;
/// In its first byte: the network's number is valid.
const VALID: u8 = 1 << 3;

/// GRE's flags: a checksum, a key and a sequence number follow, four bytes each.
const GRE_CHECKSUM: u16 = 1 << 15;
const GRE_KEY: u16 = 1 << 13;
const GRE_SEQUENCE: u16 = 1 << 12;
const GRE_HEADER: usize = 4;
/// The protocol of an Ethernet frame in GRE (RFC 1701: transparent Ethernet bridging).
const BRIDGED: u16 = 0x6558;

/// The tunnels that a card looks into.
#[derive(Debug)]
pub(crate) struct Tunnels {
    vxlan: bool,
    gre: bool,
    /// The ports whose datagrams are VXLAN's.
    ports: BTreeSet<u16>,
}

impl Tunnels {
    pub(crate) fn new(caps: &EthernetOffloadCaps) -> Self {
        Self {
            vxlan: caps.tunnel_stateless_vxlan(),
            gre: caps.tunnel_stateless_gre(),
            ports: BTreeSet::from([IANA_PORT]),
        }
    }

    /// Returns `true` if there are any.
    pub(crate) fn any(&self) -> bool {
        self.vxlan || self.gre
    }

    /// Forgets all ports but the one that it knows by itself.
    pub(crate) fn reset(&mut self) {
        self.ports = BTreeSet::from([IANA_PORT]);
    }

    /// Adds a port; `false` if there are so many already.
    pub(crate) fn add(&mut self, port: u16, most: usize) -> bool {
        if !self.ports.contains(&port) && self.ports.len() >= most {
            return false;
        }
        self.ports.insert(port);
        true
    }

    /// Removes a port; `false` if it is not there.
    pub(crate) fn remove(&mut self, port: u16) -> bool {
        self.ports.remove(&port)
    }

    /// Where the packet inside of a frame begins.
    pub(crate) fn inner(&self, frame: &[u8], parsed: &Parsed) -> Option<Start> {
        let at = match parsed.transport {
            Some(Transport::Udp { at }) => at,
            Some(Transport::Tcp { .. }) => return None,
            None => return self.gre.then(|| gre(frame, parsed))?,
        };
        if !self.vxlan || !self.ports.contains(&be16(frame, at + 2)?) {
            return None;
        }
        let header = at + UDP_HEADER;
        let inner = header + VXLAN_HEADER;
        let valid = frame.get(header)? & VALID != 0;
        (valid && frame.len() >= inner + frame::HEADER).then_some(Start {
            at: inner,
            network: None,
        })
    }
}

/// Where GRE's header is, and where what it carries.
fn gre(frame: &[u8], parsed: &Parsed) -> Option<Start> {
    let network = parsed
        .network
        .filter(|it| it.sound && !it.fragment && it.protocol == protocol::GRE)?;
    let packet = frame.get(..network.end)?;
    let flags = be16(packet, network.transport)?;
    // Routes, other versions and what is reserved are not known.
    if flags & !(GRE_CHECKSUM | GRE_KEY | GRE_SEQUENCE) != 0 {
        return None;
    }
    let options = (flags.count_ones() * 4) as usize;
    let at = network.transport + GRE_HEADER + options;
    let (kind, least) = match be16(packet, network.transport + 2)? {
        BRIDGED => (None, frame::HEADER),
        kind @ (ethertype::IPV4 | ethertype::IPV6) => (Some(kind), 1),
        _ => return None,
    };
    (packet.len() >= at + least).then_some(Start { at, network: kind })
}

/// Returns `true` if the outer headers of a packet with one inside have right checksums as far as they have any.
pub(super) fn outer_ok(frame: &[u8], parsed: &Parsed) -> bool {
    let verdict = checksum::check(frame, parsed);
    let Some(network) = parsed.network else {
        return false;
    };
    if parsed.transport.is_some() {
        return verdict.transport_ok;
    }
    let body = frame.get(network.transport..network.end).unwrap_or(&[]);
    let summed = be16(body, 0).unwrap_or(0) & GRE_CHECKSUM != 0;
    verdict.network_ok && (!summed || checksum::sum(body) == 0xffff)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::frame::parse;
    use super::super::frame::protocol::{TCP, UDP};
    use super::super::frame::tests::{A4, A6, B4, B6, ipv4, ipv6, tcp, udp};
    use super::*;

    /// A frame in VXLAN over IPv4.
    pub(in super::super) fn vxlan(port: u16, inner: &[u8]) -> Vec<u8> {
        let header = [VALID, 0, 0, 0, 0, 0, 42, 0];
        ipv4(A4, B4, UDP, &udp(7, port, &[&header[..], inner].concat()))
    }

    /// Of a card with all of them.
    pub(in super::super) fn every_kind() -> Tunnels {
        let mut caps = EthernetOffloadCaps::ZERO;
        caps.set_tunnel_stateless_vxlan(true)
            .set_tunnel_stateless_gre(true);
        Tunnels::new(&caps)
    }

    #[test]
    fn a_card_without_them_finds_nothing() {
        let tunnels = Tunnels::new(&EthernetOffloadCaps::ZERO);
        assert!(!tunnels.any() && every_kind().any());
        let inner = ipv4(A4, B4, UDP, &udp(1, 2, b"x"));
        for frame in [vxlan(4789, &inner), gre(0, BRIDGED, &inner)] {
            assert!(every_kind().inner(&frame, &parse(&frame)).is_some());
            assert_eq!(tunnels.inner(&frame, &parse(&frame)), None);
        }
    }

    /// A packet in GRE over IPv6.
    pub(in super::super) fn gre(flags: u16, kind: u16, inner: &[u8]) -> Vec<u8> {
        let mut body = [flags.to_be_bytes(), kind.to_be_bytes()].concat();
        body.resize(4 + 4 * flags.count_ones() as usize, 0);
        body.extend(inner);
        if flags & GRE_CHECKSUM != 0 {
            let sum = !checksum::sum(&body);
            body[4..6].copy_from_slice(&sum.to_be_bytes());
        }
        ipv6(A6, B6, protocol::GRE, &body)
    }

    #[test]
    fn gre_carries_frames_and_packets() {
        let tunnels = every_kind();
        let inner = ipv4(A4, B4, UDP, &udp(1, 2, b"x"));
        let find = |frame: &[u8]| tunnels.inner(frame, &parse(frame));
        for (flags, options) in [(0, 0), (0x8000, 4), (0x2000, 4), (0xb000, 12)] {
            let frame = gre(flags, BRIDGED, &inner);
            let at = 14 + 40 + 4 + options;
            let found = Start { at, network: None };
            assert_eq!(find(&frame), Some(found), "{flags:#x}");
            assert!(outer_ok(&frame, &parse(&frame)));
            let frame = gre(flags, ethertype::IPV4, &inner[14..]);
            let network = Some(ethertype::IPV4);
            let found = Start { at, network };
            assert_eq!(find(&frame), Some(found), "{flags:#x}");
            let parsed = frame::parse_from(&frame, found);
            assert_eq!(parsed.transport, Some(Transport::Udp { at: at + 20 }));
            // A checksum is one of all that GRE carries.
            let mut wrong = frame.clone();
            *wrong.last_mut().unwrap() ^= 1;
            assert_eq!(outer_ok(&wrong, &parse(&wrong)), flags & GRE_CHECKSUM == 0);
        }
        for (flags, kind) in [(1, BRIDGED), (0x4000, BRIDGED), (0, 0x880b)] {
            let frame = gre(flags, kind, &inner);
            assert_eq!(find(&frame), None, "{flags:#x} {kind:#x}");
        }
        let frame = gre(0, BRIDGED, &inner[..13]);
        assert_eq!(find(&frame), None);
    }

    #[test]
    fn the_inner_frame_is_found_behind_known_ports_only() {
        let inner = ipv6(A6, B6, TCP, &tcp(1, 2, 0x10, b"x"));
        let mut tunnels = every_kind();
        let frame = vxlan(4789, &inner);
        let found = Some(Start {
            at: 14 + 20 + 8 + 8,
            network: None,
        });
        assert_eq!(tunnels.inner(&frame, &parse(&frame)), found);
        let other = vxlan(8472, &inner);
        assert_eq!(tunnels.inner(&other, &parse(&other)), None);
        assert!(tunnels.add(8472, 2) && !tunnels.add(8473, 2) && tunnels.add(4789, 2));
        assert_eq!(tunnels.inner(&other, &parse(&other)), found);
        assert!(tunnels.remove(8472) && !tunnels.remove(8472));
        assert_eq!(tunnels.inner(&other, &parse(&other)), None);
        // Without a valid number, too short, or no UDP.
        let mut invalid = frame.clone();
        invalid[42] = 0;
        assert_eq!(tunnels.inner(&invalid, &parse(&invalid)), None);
        let short = vxlan(4789, &inner[..13]);
        assert_eq!(tunnels.inner(&short, &parse(&short)), None);
        assert_eq!(tunnels.inner(&inner, &parse(&inner)), None);
    }
}
