//! The Address Resolution Protocol (RFC 826), and the detection of conflicts over it (RFC 5227).

use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;

use smoltcp::wire::{ArpOperation, ArpPacket, ArpRepr, EthernetAddress};

use super::frame::{ARP, BROADCAST, Header};
use super::neighbour::NeighbourMessage;
use super::{Host, Mac, is_unicast};

/// The fields of one packet.
struct Arp {
    operation: ArpOperation,
    source: (Mac, Ipv4Addr),
    target: (Mac, Ipv4Addr),
}

impl Host<'_> {
    pub(super) fn receive_arp(
        &mut self,
        now: Duration,
        header: &Header,
        payload: &[u8],
        reply: &mut [u8],
    ) -> Option<usize> {
        let packet = ArpPacket::new_checked(payload).ok()?;
        let ArpRepr::EthernetIpv4 {
            operation,
            source_hardware_addr: EthernetAddress(mac),
            source_protocol_addr: sender,
            target_protocol_addr: target,
            ..
        } = ArpRepr::parse(&packet).ok()?
        else {
            return None;
        };
        let vlan = header.vlan;
        let source = IpAddr::V4(sender);
        let group = !sender.is_unspecified() && !is_unicast(source);
        if mac[0] & 1 != 0 || mac == self.mac || group {
            return None;
        }
        if !sender.is_unspecified() && self.address(source, vlan).is_some() {
            self.claimed(now, source, vlan, mac);
            return Some(0);
        }
        let wanted = IpAddr::V4(target);
        match operation {
            // A probe for the address that we probe for: both hosts started at the same moment, and both give it up.
            ArpOperation::Request if sender.is_unspecified() => {
                if self.is_tentative(wanted, vlan) {
                    self.claimed(now, wanted, vlan, mac);
                    return Some(0);
                }
            }
            // An announcement.
            ArpOperation::Request if sender == target => {
                let how = NeighbourMessage::Answer {
                    solicited: false,
                    instead: true,
                };
                self.on_neighbour_message(now, source, vlan, mac, how);
                return Some(0);
            }
            ArpOperation::Request => {}
            ArpOperation::Reply => {
                let how = NeighbourMessage::Answer {
                    solicited: header.destination == self.mac,
                    instead: true,
                };
                self.on_neighbour_message(now, source, vlan, mac, how);
                return Some(0);
            }
            ArpOperation::Unknown(_) => return None,
        }
        if !self.is_own(wanted, vlan) {
            self.say_if_own_elsewhere(wanted, vlan);
            // A question for another host still has its sender's MAC address, which is stored if it is needed (RFC
            // 826).
            let how = NeighbourMessage::Answer {
                solicited: false,
                instead: true,
            };
            self.on_neighbour_message(now, source, vlan, mac, how);
            return None;
        }
        self.on_neighbour_message(now, source, vlan, mac, NeighbourMessage::Question);
        let answer = Arp {
            operation: ArpOperation::Reply,
            source: (self.mac, target),
            target: (mac, sender),
        };
        Some(self.emit_arp(reply, mac, vlan, &answer).unwrap_or(0))
    }

    pub(super) fn arp_request(
        &self,
        buffer: &mut [u8],
        target: Ipv4Addr,
        vlan: Option<u16>,
        to: Option<Mac>,
    ) -> Option<usize> {
        let next_hop = self.next_hop(None, IpAddr::V4(target))?;
        let source = match next_hop.source {
            IpAddr::V4(source) if next_hop.vlan == vlan => source,
            _ => self.ipv4_in(vlan)?,
        };
        let arp = Arp {
            operation: ArpOperation::Request,
            source: (self.mac, source),
            target: ([0; 6], target),
        };
        self.emit_arp(buffer, to.unwrap_or(BROADCAST), vlan, &arp)
    }

    /// Asks whether another host has an address, without announcing it as ours.
    pub(super) fn arp_probe(
        &self,
        buffer: &mut [u8],
        target: Ipv4Addr,
        vlan: Option<u16>,
    ) -> Option<usize> {
        let arp = Arp {
            operation: ArpOperation::Request,
            source: (self.mac, Ipv4Addr::UNSPECIFIED),
            target: ([0; 6], target),
        };
        self.emit_arp(buffer, BROADCAST, vlan, &arp)
    }

    /// Announces on the link that an address is ours.
    pub(super) fn arp_announcement(
        &self,
        buffer: &mut [u8],
        address: Ipv4Addr,
        vlan: Option<u16>,
    ) -> Option<usize> {
        let arp = Arp {
            operation: ArpOperation::Request,
            source: (self.mac, address),
            target: ([0; 6], address),
        };
        self.emit_arp(buffer, BROADCAST, vlan, &arp)
    }

    /// The first IPv4 address in a VLAN.
    pub(super) fn ipv4_in(&self, vlan: Option<u16>) -> Option<Ipv4Addr> {
        self.addresses()
            .filter(|(.., of)| *of == vlan)
            .find_map(|(ip, ..)| match ip {
                IpAddr::V4(ip) => Some(ip),
                IpAddr::V6(_) => None,
            })
    }

    fn emit_arp(
        &self,
        buffer: &mut [u8],
        destination: Mac,
        vlan: Option<u16>,
        arp: &Arp,
    ) -> Option<usize> {
        let repr = ArpRepr::EthernetIpv4 {
            operation: arp.operation,
            source_hardware_addr: EthernetAddress(arp.source.0),
            source_protocol_addr: arp.source.1,
            target_hardware_addr: EthernetAddress(arp.target.0),
            target_protocol_addr: arp.target.1,
        };
        let header = Header {
            destination,
            source: self.mac,
            vlan,
            kind: ARP,
        };
        header.emit(buffer, repr.buffer_len(), |payload| {
            repr.emit(&mut ArpPacket::new_unchecked(payload));
        })
    }
}
