//! IPv6 neighbour discovery: solicitations and advertisements of neighbours (RFC 4861 section 7, RFC 4862 section 5.4).

use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;

use smoltcp::wire::{
    EthernetAddress, IPV6_HEADER_LEN, Icmpv6Message, Icmpv6Packet, IpProtocol, Ipv6Repr,
    NdiscNeighborFlags, NdiscOption, NdiscOptionType, RawHardwareAddress,
};

use super::frame::{Header, IPV6, emit_ipv6, multicast_mac, solicited_node};
use super::neighbour::NeighbourMessage;
use super::{Host, Mac, is_unicast};

/// Neighbours are on the link: a message that was forwarded is forged (RFC 4861 section 7.1).
const HOP_LIMIT: u8 = 255;
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Bytes of a message before its options, and of an option with an Ethernet address.
const FIXED_LEN: usize = 24;
const OPTION_LEN: usize = 8;

/// A message to send.
struct Message {
    what: Icmpv6Message,
    flags: NdiscNeighborFlags,
    target: Ipv6Addr,
    /// The option in which our Ethernet address goes along.
    with: Option<NdiscOptionType>,
}

/// The last address among a message's options that is of this type. `None` if the options make no sense: then the whole
/// message counts for nothing.
fn link_layer_address(
    packet: &Icmpv6Packet<&[u8]>,
    wanted: NdiscOptionType,
) -> Option<Option<RawHardwareAddress>> {
    let mut options = packet.payload();
    let mut found = None;
    while !options.is_empty() {
        let option = NdiscOption::new_checked(options).ok()?;
        if option.option_type() == wanted {
            found = Some(option.link_layer_addr());
        }
        options = options.get(OPTION_LEN * usize::from(option.data_len())..)?;
    }
    Some(found)
}

fn mac_of(address: RawHardwareAddress) -> Option<Mac> {
    let mac: Mac = address.as_bytes().try_into().ok()?;
    (mac[0] & 1 == 0).then_some(mac)
}

impl Host<'_> {
    pub(super) fn receive_ndisc(
        &mut self,
        now: Duration,
        header: &Header,
        ip: &Ipv6Repr,
        packet: &Icmpv6Packet<&[u8]>,
        reply: &mut [u8],
    ) -> Option<usize> {
        if ip.hop_limit != HOP_LIMIT {
            return None;
        }
        let target = packet.target_addr();
        if packet.msg_type() == Icmpv6Message::NeighborSolicit {
            let source = link_layer_address(packet, NdiscOptionType::SourceLinkLayerAddr)?;
            return self.receive_solicitation(now, header, ip, target, source, reply);
        }
        let at = link_layer_address(packet, NdiscOptionType::TargetLinkLayerAddr)?;
        self.receive_advertisement(now, header, ip, packet.neighbor_flags(), target, at)?;
        Some(0)
    }

    fn receive_solicitation(
        &mut self,
        now: Duration,
        header: &Header,
        ip: &Ipv6Repr,
        target: Ipv6Addr,
        lladdr: Option<RawHardwareAddress>,
        reply: &mut [u8],
    ) -> Option<usize> {
        let (vlan, wanted) = (header.vlan, IpAddr::V6(target));
        let probe = ip.src_addr.is_unspecified();
        if target.is_multicast()
            || probe && (ip.dst_addr != solicited_node(target) || lladdr.is_some())
        {
            return None;
        }
        if self.is_tentative(wanted, vlan) {
            // Another one probes for it; a question is no claim.
            if probe {
                self.claimed(now, wanted, vlan, header.source);
            }
            return Some(0);
        }
        if !self.is_own(wanted, vlan) {
            return None;
        }
        let (destination, to) = if probe {
            (ALL_NODES, multicast_mac(IpAddr::V6(ALL_NODES)))
        } else {
            let source = IpAddr::V6(ip.src_addr);
            if !is_unicast(source) {
                return None;
            }
            if let Some(mac) = lladdr.and_then(mac_of) {
                self.on_neighbour_message(now, source, vlan, mac, NeighbourMessage::Question);
            }
            (ip.src_addr, header.source)
        };
        let mut flags = NdiscNeighborFlags::OVERRIDE;
        flags.set(NdiscNeighborFlags::SOLICITED, !probe);
        let message = Message {
            what: Icmpv6Message::NeighborAdvert,
            flags,
            target,
            with: Some(NdiscOptionType::TargetLinkLayerAddr),
        };
        let sent = self.emit_ndisc(reply, to, vlan, (target, destination), &message);
        Some(sent.unwrap_or(0))
    }

    fn receive_advertisement(
        &mut self,
        now: Duration,
        header: &Header,
        ip: &Ipv6Repr,
        flags: NdiscNeighborFlags,
        target: Ipv6Addr,
        lladdr: Option<RawHardwareAddress>,
    ) -> Option<()> {
        let (vlan, about) = (header.vlan, IpAddr::V6(target));
        let solicited = flags.contains(NdiscNeighborFlags::SOLICITED);
        if target.is_multicast() || solicited && ip.dst_addr.is_multicast() {
            return None;
        }
        if self.address(about, vlan).is_some() {
            self.claimed(now, about, vlan, header.source);
            return Some(());
        }
        // Who answers a question to it alone may leave out where it is.
        let mac = match lladdr {
            Some(address) => mac_of(address)?,
            None => header.source,
        };
        let how = NeighbourMessage::Answer {
            solicited,
            instead: flags.contains(NdiscNeighborFlags::OVERRIDE),
        };
        self.on_neighbour_message(now, about, vlan, mac, how);
        Some(())
    }

    pub(super) fn nd_solicitation(
        &self,
        buffer: &mut [u8],
        target: Ipv6Addr,
        vlan: Option<u16>,
        to: Option<Mac>,
    ) -> Option<usize> {
        let next_hop = self.next_hop(None, IpAddr::V6(target));
        let source = match next_hop {
            Some(next_hop) if next_hop.vlan == vlan => match next_hop.source {
                IpAddr::V6(source) => source,
                IpAddr::V4(_) => return None,
            },
            _ => self.ipv6_in(vlan)?,
        };
        let (destination, mac) = match to {
            Some(mac) => (target, mac),
            None => {
                let group = solicited_node(target);
                (group, multicast_mac(IpAddr::V6(group)))
            }
        };
        let message = Message {
            what: Icmpv6Message::NeighborSolicit,
            flags: NdiscNeighborFlags::empty(),
            target,
            with: Some(NdiscOptionType::SourceLinkLayerAddr),
        };
        self.emit_ndisc(buffer, mac, vlan, (source, destination), &message)
    }

    /// Asks whether another host has an address, without announcing it as ours.
    pub(super) fn nd_probe(
        &self,
        buffer: &mut [u8],
        target: Ipv6Addr,
        vlan: Option<u16>,
    ) -> Option<usize> {
        let group = solicited_node(target);
        let message = Message {
            what: Icmpv6Message::NeighborSolicit,
            flags: NdiscNeighborFlags::empty(),
            target,
            with: None,
        };
        let mac = multicast_mac(IpAddr::V6(group));
        self.emit_ndisc(buffer, mac, vlan, (Ipv6Addr::UNSPECIFIED, group), &message)
    }

    /// Announces on the link that an address is ours.
    pub(super) fn nd_announcement(
        &self,
        buffer: &mut [u8],
        address: Ipv6Addr,
        vlan: Option<u16>,
    ) -> Option<usize> {
        let message = Message {
            what: Icmpv6Message::NeighborAdvert,
            flags: NdiscNeighborFlags::OVERRIDE,
            target: address,
            with: Some(NdiscOptionType::TargetLinkLayerAddr),
        };
        let mac = multicast_mac(IpAddr::V6(ALL_NODES));
        self.emit_ndisc(buffer, mac, vlan, (address, ALL_NODES), &message)
    }

    /// The first IPv6 address in a VLAN.
    fn ipv6_in(&self, vlan: Option<u16>) -> Option<Ipv6Addr> {
        self.addresses()
            .filter(|(.., of)| *of == vlan)
            .find_map(|(ip, ..)| match ip {
                IpAddr::V6(ip) => Some(ip),
                IpAddr::V4(_) => None,
            })
    }

    fn emit_ndisc(
        &self,
        buffer: &mut [u8],
        to: Mac,
        vlan: Option<u16>,
        (source, destination): (Ipv6Addr, Ipv6Addr),
        message: &Message,
    ) -> Option<usize> {
        let header = Header {
            destination: to,
            source: self.mac,
            vlan,
            kind: IPV6,
        };
        let options = message.with.map_or(0, |_| OPTION_LEN);
        let length = IPV6_HEADER_LEN + FIXED_LEN + options;
        header.emit(buffer, length, |packet| {
            let protocol = IpProtocol::Icmpv6;
            emit_ipv6(
                packet,
                source,
                destination,
                protocol,
                HOP_LIMIT,
                |payload| {
                    // All of it was zeros.
                    let mut packet = Icmpv6Packet::new_unchecked(payload);
                    packet.set_msg_type(message.what);
                    packet.set_neighbor_flags(message.flags);
                    packet.set_target_addr(message.target);
                    if let Some(kind) = message.with {
                        let mut option = NdiscOption::new_unchecked(packet.payload_mut());
                        option.set_option_type(kind);
                        option.set_data_len((OPTION_LEN / 8) as u8);
                        option.set_link_layer_addr(EthernetAddress(self.mac).into());
                    }
                    packet.fill_checksum(&source, &destination);
                },
            );
        })
    }
}
