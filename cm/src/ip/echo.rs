//! IP packets: echo requests are answered, others are passed to their protocol.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use smoltcp::wire::{
    IPV4_HEADER_LEN, IPV6_HEADER_LEN, Icmpv4Message, Icmpv4Packet, Icmpv6Message, Icmpv6Packet,
    IpProtocol,
};

use super::frame::{Header, IPV4, IPV6, emit_ipv4, emit_ipv6, parse_ipv4, parse_ipv6};
use super::{Host, is_unicast};

const HOP_LIMIT: u8 = 64;

impl Host<'_> {
    pub(super) fn receive_ipv4(
        &mut self,
        now: Duration,
        header: &Header,
        packet: &[u8],
        reply: &mut [u8],
    ) -> Option<usize> {
        let (ip, payload) = parse_ipv4(packet)?;
        match ip.next_header {
            IpProtocol::Igmp => {
                self.receive_igmp(now, header.vlan, payload)?;
                Some(0)
            }
            IpProtocol::Icmp => {
                let packet = Icmpv4Packet::new_checked(payload).ok()?;
                let what = (packet.msg_type(), packet.msg_code());
                if !packet.verify_checksum() || what != (Icmpv4Message::EchoRequest, 0) {
                    return None;
                }
                self.check_ends(header, ip.src_addr.into(), ip.dst_addr.into())?;
                let ends = (ip.dst_addr, ip.src_addr);
                Some(self.echo_ipv4(header, ends, payload, reply).unwrap_or(0))
            }
            _ => None,
        }
    }

    pub(super) fn receive_ipv6(
        &mut self,
        now: Duration,
        header: &Header,
        packet: &[u8],
        reply: &mut [u8],
    ) -> Option<usize> {
        let (ip, protocol, payload) = parse_ipv6(packet)?;
        if protocol != IpProtocol::Icmpv6 {
            return None;
        }
        let packet = Icmpv6Packet::new_checked(payload).ok()?;
        if !packet.verify_checksum(&ip.src_addr, &ip.dst_addr) || packet.msg_code() != 0 {
            return None;
        }
        match packet.msg_type() {
            Icmpv6Message::NeighborSolicit | Icmpv6Message::NeighborAdvert => {
                self.receive_ndisc(now, header, &ip, &packet, reply)
            }
            Icmpv6Message::MldQuery => {
                self.receive_mld(now, header.vlan, &ip, &packet)?;
                Some(0)
            }
            Icmpv6Message::EchoRequest => {
                self.check_ends(header, ip.src_addr.into(), ip.dst_addr.into())?;
                let ends = (ip.dst_addr, ip.src_addr);
                Some(self.echo_ipv6(header, ends, payload, reply).unwrap_or(0))
            }
            _ => None,
        }
    }

    /// Checks that a request comes from one machine, to an address of ours.
    fn check_ends(&self, header: &Header, source: IpAddr, destination: IpAddr) -> Option<()> {
        let good = is_unicast(source)
            && self.is_own(destination, header.vlan)
            && header.destination == self.mac;
        good.then_some(())
    }

    /// The request as its answer.
    fn echo_ipv4(
        &self,
        header: &Header,
        (source, destination): (Ipv4Addr, Ipv4Addr),
        request: &[u8],
        reply: &mut [u8],
    ) -> Option<usize> {
        let length = IPV4_HEADER_LEN + request.len();
        self.back(header, IPV4).emit(reply, length, |packet| {
            emit_ipv4(packet, source, destination, IpProtocol::Icmp, |payload| {
                payload.copy_from_slice(request);
                let mut answer = Icmpv4Packet::new_unchecked(payload);
                answer.set_msg_type(Icmpv4Message::EchoReply);
                answer.fill_checksum();
            });
        })
    }

    fn echo_ipv6(
        &self,
        header: &Header,
        (source, destination): (Ipv6Addr, Ipv6Addr),
        request: &[u8],
        reply: &mut [u8],
    ) -> Option<usize> {
        let length = IPV6_HEADER_LEN + request.len();
        self.back(header, IPV6).emit(reply, length, |packet| {
            let protocol = IpProtocol::Icmpv6;
            emit_ipv6(
                packet,
                source,
                destination,
                protocol,
                HOP_LIMIT,
                |payload| {
                    payload.copy_from_slice(request);
                    let mut answer = Icmpv6Packet::new_unchecked(payload);
                    answer.set_msg_type(Icmpv6Message::EchoReply);
                    answer.fill_checksum(&source, &destination);
                },
            );
        })
    }

    /// The header of an answer to the sender of a frame.
    const fn back(&self, header: &Header, kind: u16) -> Header {
        Header {
            destination: header.source,
            source: self.mac,
            vlan: header.vlan,
            kind,
        }
    }
}
