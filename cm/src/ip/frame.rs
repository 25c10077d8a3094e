//! Ethernet framing, with at most one VLAN tag, and the headers of IPv4 and IPv6.

use core::net::{Ipv4Addr, Ipv6Addr};

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{IpProtocol, Ipv4Packet, Ipv4Repr, Ipv6Packet, Ipv6Repr};

use super::Mac;

pub(super) const ARP: u16 = 0x0806;
pub(super) const IPV4: u16 = 0x0800;
pub(super) const IPV6: u16 = 0x86dd;
const VLAN_TAG: u16 = 0x8100;

pub(super) const BROADCAST: Mac = [0xff; 6];
/// The shortest frame that Ethernet carries, without its check sequence.
const SHORTEST: usize = 60;

/// Source, destination, type and VLAN.
#[derive(Debug, Clone, Copy)]
pub(super) struct Header {
    pub(super) destination: Mac,
    pub(super) source: Mac,
    pub(super) vlan: Option<u16>,
    pub(super) kind: u16,
}

fn mac_at(frame: &[u8], at: usize) -> Option<Mac> {
    frame.get(at..at + 6)?.try_into().ok()
}

fn word_at(frame: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?))
}

impl Header {
    /// Splits a frame into its header and what it carries.
    pub(super) fn parse(frame: &[u8]) -> Option<(Self, &[u8])> {
        let (destination, source) = (mac_at(frame, 0)?, mac_at(frame, 6)?);
        let mut kind = word_at(frame, 12)?;
        let mut vlan = None;
        let mut at = 14;
        if kind == VLAN_TAG {
            // VLAN 0 is a tag for the priority alone.
            vlan = Some(word_at(frame, 14)? & 0xfff).filter(|vlan| *vlan != 0);
            kind = word_at(frame, 16)?;
            at = 18;
        }
        let header = Self {
            destination,
            source,
            vlan,
            kind,
        };
        Some((header, frame.get(at..)?))
    }

    /// Builds a frame with a payload of `length` bytes, which `fill` writes; padded to the shortest that Ethernet carries.
    /// `None` if the buffer is too small.
    pub(super) fn emit(
        &self,
        frame: &mut [u8],
        length: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Option<usize> {
        let (payload, total) = self.write(frame, length)?;
        fill(payload);
        Some(total)
    }

    /// Writes the header. The payload, all zeros, and the length of the frame.
    fn write<'f>(&self, frame: &'f mut [u8], length: usize) -> Option<(&'f mut [u8], usize)> {
        let at = if self.vlan.is_some() { 18 } else { 14 };
        let total = (at + length).max(SHORTEST);
        let frame = frame.get_mut(..total)?;
        frame[..6].copy_from_slice(&self.destination);
        frame[6..12].copy_from_slice(&self.source);
        if let Some(vlan) = self.vlan {
            frame[12..14].copy_from_slice(&VLAN_TAG.to_be_bytes());
            frame[14..16].copy_from_slice(&vlan.to_be_bytes());
        }
        frame[at - 2..at].copy_from_slice(&self.kind.to_be_bytes());
        let payload = &mut frame[at..];
        payload.fill(0);
        Some((&mut payload[..length], total))
    }
}

/// The Ethernet address that a multicast address maps to (RFC 1112 section 6.4, RFC 2464 section 7).
pub(crate) fn multicast_mac(group: core::net::IpAddr) -> Mac {
    match group {
        core::net::IpAddr::V4(group) => {
            let [_, b, c, d] = group.octets();
            [0x01, 0x00, 0x5e, b & 0x7f, c, d]
        }
        core::net::IpAddr::V6(group) => {
            let [.., a, b, c, d] = group.octets();
            [0x33, 0x33, a, b, c, d]
        }
    }
}

/// The solicited-node multicast address of a target (RFC 4291 section 2.7.1).
pub(super) fn solicited_node(target: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = target.octets();
    Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c])
}

/// An IPv4 packet that is whole, not a fragment, and whose checksum is right: its addresses, protocol and payload.
pub(super) fn parse_ipv4(packet: &[u8]) -> Option<(Ipv4Repr, &[u8])> {
    let packet = Ipv4Packet::new_checked(packet).ok()?;
    if packet.more_frags() || packet.frag_offset() != 0 {
        return None;
    }
    let repr = Ipv4Repr::parse(&packet, &ChecksumCapabilities::default()).ok()?;
    Some((repr, packet.payload()))
}

/// The result of `parse_ipv6` for a packet: its header, the payload's protocol (after a hop-by-hop header, if there is one), and
/// the payload.
pub(super) fn parse_ipv6(packet: &[u8]) -> Option<(Ipv6Repr, IpProtocol, &[u8])> {
    let packet = Ipv6Packet::new_checked(packet).ok()?;
    let repr = Ipv6Repr::parse(&packet).ok()?;
    let payload = packet.payload();
    if repr.next_header != IpProtocol::HopByHop {
        return Some((repr, repr.next_header, payload));
    }
    // Queries for multicast listeners come behind a router alert, which means nothing to hosts.
    let (next, words) = (*payload.first()?, usize::from(*payload.get(1)?));
    Some((repr, next.into(), payload.get(8 * (words + 1)..)?))
}

/// Writes an IPv4 header without options before a payload that `fill` writes.
pub(super) fn emit_ipv4(
    buffer: &mut [u8],
    source: Ipv4Addr,
    destination: Ipv4Addr,
    protocol: IpProtocol,
    fill: impl FnOnce(&mut [u8]),
) {
    fill(write_ipv4(buffer, source, destination, protocol));
}

/// Writes the header. The payload.
fn write_ipv4(
    buffer: &mut [u8],
    source: Ipv4Addr,
    destination: Ipv4Addr,
    protocol: IpProtocol,
) -> &mut [u8] {
    let repr = Ipv4Repr {
        src_addr: source,
        dst_addr: destination,
        next_header: protocol,
        payload_len: buffer.len() - smoltcp::wire::IPV4_HEADER_LEN,
        hop_limit: 64,
    };
    let mut packet = Ipv4Packet::new_unchecked(&mut buffer[..]);
    repr.emit(&mut packet, &ChecksumCapabilities::default());
    &mut buffer[smoltcp::wire::IPV4_HEADER_LEN..]
}

/// Writes an IPv6 header before a payload that `fill` writes.
pub(super) fn emit_ipv6(
    buffer: &mut [u8],
    source: Ipv6Addr,
    destination: Ipv6Addr,
    protocol: IpProtocol,
    hop_limit: u8,
    fill: impl FnOnce(&mut [u8]),
) {
    fill(write_ipv6(buffer, source, destination, protocol, hop_limit));
}

/// Writes the header. The payload.
fn write_ipv6(
    buffer: &mut [u8],
    source: Ipv6Addr,
    destination: Ipv6Addr,
    protocol: IpProtocol,
    hop_limit: u8,
) -> &mut [u8] {
    let repr = Ipv6Repr {
        src_addr: source,
        dst_addr: destination,
        next_header: protocol,
        payload_len: buffer.len() - smoltcp::wire::IPV6_HEADER_LEN,
        hop_limit,
    };
    let mut packet = Ipv6Packet::new_unchecked(&mut buffer[..]);
    repr.emit(&mut packet);
    &mut buffer[smoltcp::wire::IPV6_HEADER_LEN..]
}
