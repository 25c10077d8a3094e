//! ARP packets and messages of neighbour discovery with addresses of the other kind.

use core::net::Ipv6Addr;

use smoltcp::wire::Icmpv6Packet;

use super::{HARDWARE_LEN, HardwareAddress};
use crate::ip::Mac;

pub(super) const ARP: u16 = 0x0806;
pub(super) const IPV4: u16 = 0x0800;
pub(super) const IPV6: u16 = 0x86dd;

/// An ARP packet: four numbers and the operation, then hardware and IP address of sender and target.
const ARP_FIXED: usize = 8;
pub(super) const ARP_LEN: usize = ARP_FIXED + 2 * (HARDWARE_LEN + 4);
pub(super) const ETHERNET_ARP_LEN: usize = ARP_FIXED + 2 * (6 + 4);
/// Hardware types (RFC 4391 section 9.1.1), IPv4, and the lengths of the addresses.
const INFINIBAND: [u8; 6] = [0, 32, 0x08, 0, HARDWARE_LEN as u8, 4];
const ETHERNET: [u8; 6] = [0, 1, 0x08, 0, 6, 4];

const IPV6_LEN: usize = 40;
const ICMPV6: u8 = 58;
/// Types of messages with options, and how long the messages are before these.
const SOLICITATIONS: core::ops::RangeInclusive<u8> = 133..=137;
const FIXED: [usize; 5] = [8, 16, 24, 24, 40];
/// Options with a hardware address: the source's, the target's. They count their length in units of 8 bytes.
const LINK_LAYER: core::ops::RangeInclusive<u8> = 1..=2;
const UNIT: usize = 8;
/// Between the option's length and a hardware address (RFC 4391 section 9.3).
const PADDING: usize = 2;
const INFINIBAND_UNITS: usize = 3;

/// `find` says what stands for a hardware address; for an unknown sender the packet is of no use.
pub(super) fn arp_to_ethernet(
    arp: &[u8; ARP_LEN],
    out: &mut [u8; ETHERNET_ARP_LEN],
    mut find: impl FnMut(&HardwareAddress) -> Option<Mac>,
) -> Option<()> {
    if arp[..6] != INFINIBAND {
        return None;
    }
    out[..6].copy_from_slice(&ETHERNET);
    out[6..8].copy_from_slice(&arp[6..8]);
    let mut address = |at: usize| find(&HardwareAddress::parse(arp.get(at..)?.first_chunk()?));
    let sender = address(ARP_FIXED)?;
    let target = address(ARP_FIXED + HARDWARE_LEN + 4).unwrap_or_default();
    out[8..14].copy_from_slice(&sender);
    out[14..18].copy_from_slice(&arp[28..32]);
    out[18..24].copy_from_slice(&target);
    out[24..28].copy_from_slice(&arp[52..56]);
    Some(())
}

/// The same in the other direction: what is not known stays zero, as in a question.
pub(super) fn arp_from_ethernet(
    arp: &[u8; ETHERNET_ARP_LEN],
    out: &mut [u8; ARP_LEN],
    find: impl Fn(&Mac) -> Option<HardwareAddress>,
) -> Option<()> {
    if arp[..6] != ETHERNET {
        return None;
    }
    out.fill(0);
    out[..6].copy_from_slice(&INFINIBAND);
    out[6..8].copy_from_slice(&arp[6..8]);
    let address = |at: usize| find(arp.get(at..)?.first_chunk()?);
    out[8..28].copy_from_slice(&address(8)?.to_bytes());
    out[28..32].copy_from_slice(&arp[14..18]);
    if let Some(target) = address(18) {
        out[32..52].copy_from_slice(&target.to_bytes());
    }
    out[52..56].copy_from_slice(&arp[24..28]);
    Some(())
}

/// Returns `true` if an IPv6 packet is a message of neighbour discovery, which has hardware addresses in its options.
pub(super) fn neighbour_message(packet: &[u8]) -> bool {
    let kind = packet.get(IPV6_LEN);
    packet.get(6) == Some(&ICMPV6) && kind.is_some_and(|kind| SOLICITATIONS.contains(kind))
}

/// The message's ends, and how long it is before its options.
fn ends(packet: &[u8]) -> Option<([Ipv6Addr; 2], usize)> {
    let address = |at: usize| {
        let octets = *packet.get(at..)?.first_chunk()?;
        Some(Ipv6Addr::from_octets(octets))
    };
    let kind = packet.get(IPV6_LEN)?.checked_sub(*SOLICITATIONS.start())?;
    let fixed = *FIXED.get(usize::from(kind))?;
    Some(([address(8)?, address(24)?], IPV6_LEN + fixed))
}

/// Copies a message, with each option as `option` writes it; how long it is then. A message whose checksum or whose options
/// are wrong is of no use.
fn rewrite(
    packet: &[u8],
    out: &mut [u8],
    mut option: impl FnMut(&[u8], &mut [u8]) -> Option<usize>,
) -> Option<usize> {
    let ([source, destination], fixed) = ends(packet)?;
    let message = Icmpv6Packet::new_checked(packet.get(IPV6_LEN..)?).ok()?;
    if !message.verify_checksum(&source, &destination) {
        return None;
    }
    out.get_mut(..fixed)?.copy_from_slice(packet.get(..fixed)?);
    let (mut options, mut at) = (packet.get(fixed..)?, fixed);
    while !options.is_empty() {
        let length = usize::from(*options.get(1)?) * UNIT;
        let (one, rest) = options.split_at_checked(length).filter(|_| length > 0)?;
        at += option(one, out.get_mut(at..)?)?;
        options = rest;
    }
    let length = u16::try_from(at - IPV6_LEN).ok()?;
    out[4..6].copy_from_slice(&length.to_be_bytes());
    let mut message = Icmpv6Packet::new_unchecked(out.get_mut(IPV6_LEN..at)?);
    message.fill_checksum(&source, &destination);
    Some(at)
}

fn keep(option: &[u8], out: &mut [u8]) -> Option<usize> {
    out.get_mut(..option.len())?.copy_from_slice(option);
    Some(option.len())
}

pub(super) fn ndisc_to_ethernet(
    packet: &[u8],
    out: &mut [u8],
    mut find: impl FnMut(&HardwareAddress) -> Option<Mac>,
) -> Option<usize> {
    rewrite(packet, out, |option, out| {
        if !LINK_LAYER.contains(&option[0]) {
            return keep(option, out);
        }
        let bytes = option.get(2 + PADDING..)?.first_chunk::<HARDWARE_LEN>()?;
        let mac = find(&HardwareAddress::parse(bytes))?;
        let out = out.first_chunk_mut::<UNIT>()?;
        out[..2].copy_from_slice(&[option[0], 1]);
        out[2..].copy_from_slice(&mac);
        Some(UNIT)
    })
}

pub(super) fn ndisc_from_ethernet(
    packet: &[u8],
    out: &mut [u8],
    find: impl Fn(&Mac) -> Option<HardwareAddress>,
) -> Option<usize> {
    rewrite(packet, out, |option, out| {
        if !LINK_LAYER.contains(&option[0]) {
            return keep(option, out);
        }
        let address = find(option.get(2..)?.first_chunk()?)?;
        let out = out.first_chunk_mut::<{ INFINIBAND_UNITS * UNIT }>()?;
        out.fill(0);
        out[..2].copy_from_slice(&[option[0], INFINIBAND_UNITS as u8]);
        out[2 + PADDING..].copy_from_slice(&address.to_bytes());
        Some(INFINIBAND_UNITS * UNIT)
    })
}
