//! IPv6 neighbour discovery: solicitations and advertisements of neighbours (RFC 4861 section 7, RFC 4862 section 5.4).

use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    EthernetAddress, Icmpv6Packet, Icmpv6Repr, IpProtocol, Ipv6Repr, NdiscNeighborFlags, NdiscRepr,
    RawHardwareAddress,
};

use super::frame::{Header, IPV6, emit_ipv6, multicast_mac, solicited_node};
use super::neighbour::Heard;
use super::{Host, Mac, is_unicast};

/// Neighbours are on the link: what was forwarded on its way is forged (RFC 4861 section 7.1).
const HOP_LIMIT: u8 = 255;
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

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
        message: &NdiscRepr<'_>,
        reply: &mut [u8],
    ) -> Option<usize> {
        if ip.hop_limit != HOP_LIMIT {
            return None;
        }
        match *message {
            NdiscRepr::NeighborSolicit {
                target_addr,
                lladdr,
            } => self.receive_solicitation(now, header, ip, target_addr, lladdr, reply),
            NdiscRepr::NeighborAdvert {
                flags,
                target_addr,
                lladdr,
            } => {
                self.receive_advertisement(now, header, ip, flags, target_addr, lladdr)?;
                Some(0)
            }
            // Routes are configured here.
            _ => None,
        }
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
                self.heard(now, source, vlan, mac, Heard::Question);
            }
            (ip.src_addr, header.source)
        };
        let mut flags = NdiscNeighborFlags::OVERRIDE;
        flags.set(NdiscNeighborFlags::SOLICITED, !probe);
        let message = NdiscRepr::NeighborAdvert {
            flags,
            target_addr: target,
            lladdr: Some(EthernetAddress(self.mac).into()),
        };
        let sent = self.emit_ndisc(reply, to, vlan, (target, destination), message);
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
        let how = Heard::Answer {
            solicited,
            instead: flags.contains(NdiscNeighborFlags::OVERRIDE),
        };
        self.heard(now, about, vlan, mac, how);
        Some(())
    }

    pub(super) fn nd_solicitation(
        &self,
        buffer: &mut [u8],
        target: Ipv6Addr,
        vlan: Option<u16>,
        to: Option<Mac>,
    ) -> Option<usize> {
        let way = self.way(None, IpAddr::V6(target));
        let source = match way {
            Some(way) if way.vlan == vlan => match way.source {
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
        let message = NdiscRepr::NeighborSolicit {
            target_addr: target,
            lladdr: Some(EthernetAddress(self.mac).into()),
        };
        self.emit_ndisc(buffer, mac, vlan, (source, destination), message)
    }

    /// Asks whether anybody has an address, without saying that we want it.
    pub(super) fn nd_probe(
        &self,
        buffer: &mut [u8],
        target: Ipv6Addr,
        vlan: Option<u16>,
    ) -> Option<usize> {
        let group = solicited_node(target);
        let message = NdiscRepr::NeighborSolicit {
            target_addr: target,
            lladdr: None,
        };
        let mac = multicast_mac(IpAddr::V6(group));
        self.emit_ndisc(buffer, mac, vlan, (Ipv6Addr::UNSPECIFIED, group), message)
    }

    /// Tells everybody that an address is ours.
    pub(super) fn nd_announcement(
        &self,
        buffer: &mut [u8],
        address: Ipv6Addr,
        vlan: Option<u16>,
    ) -> Option<usize> {
        let message = NdiscRepr::NeighborAdvert {
            flags: NdiscNeighborFlags::OVERRIDE,
            target_addr: address,
            lladdr: Some(EthernetAddress(self.mac).into()),
        };
        let mac = multicast_mac(IpAddr::V6(ALL_NODES));
        self.emit_ndisc(buffer, mac, vlan, (address, ALL_NODES), message)
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
        message: NdiscRepr<'_>,
    ) -> Option<usize> {
        let repr = Icmpv6Repr::Ndisc(message);
        let header = Header {
            destination: to,
            source: self.mac,
            vlan,
            kind: IPV6,
        };
        let length = smoltcp::wire::IPV6_HEADER_LEN + repr.buffer_len();
        header.emit(buffer, length, |packet| {
            let protocol = IpProtocol::Icmpv6;
            emit_ipv6(
                packet,
                source,
                destination,
                protocol,
                HOP_LIMIT,
                |payload| {
                    repr.emit(
                        &source,
                        &destination,
                        &mut Icmpv6Packet::new_unchecked(payload),
                        &ChecksumCapabilities::default(),
                    );
                },
            );
        })
    }
}
