//! IP packets: echo requests are answered, the rest goes to whom it is for.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    IPV4_HEADER_LEN, IPV6_HEADER_LEN, Icmpv4Packet, Icmpv4Repr, Icmpv6Packet, Icmpv6Repr,
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
                let checks = ChecksumCapabilities::default();
                let Icmpv4Repr::EchoRequest {
                    ident,
                    seq_no,
                    data,
                } = Icmpv4Repr::parse(&packet, &checks).ok()?
                else {
                    return None;
                };
                let answer = Icmpv4Repr::EchoReply {
                    ident,
                    seq_no,
                    data,
                };
                self.check_ends(header, ip.src_addr.into(), ip.dst_addr.into())?;
                let ends = (ip.dst_addr, ip.src_addr);
                Some(self.echo_ipv4(header, ends, &answer, reply).unwrap_or(0))
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
        let checks = ChecksumCapabilities::default();
        match Icmpv6Repr::parse(&ip.src_addr, &ip.dst_addr, &packet, &checks).ok()? {
            Icmpv6Repr::Ndisc(message) => self.receive_ndisc(now, header, &ip, &message, reply),
            Icmpv6Repr::Mld(message) => {
                self.receive_mld(now, header.vlan, &ip, &message)?;
                Some(0)
            }
            Icmpv6Repr::EchoRequest {
                ident,
                seq_no,
                data,
            } => {
                let answer = Icmpv6Repr::EchoReply {
                    ident,
                    seq_no,
                    data,
                };
                self.check_ends(header, ip.src_addr.into(), ip.dst_addr.into())?;
                let ends = (ip.dst_addr, ip.src_addr);
                Some(self.echo_ipv6(header, ends, &answer, reply).unwrap_or(0))
            }
            _ => None,
        }
    }

    /// Whether a request comes from one machine, to an address of ours.
    fn check_ends(&self, header: &Header, source: IpAddr, destination: IpAddr) -> Option<()> {
        let good = is_unicast(source)
            && self.is_own(destination, header.vlan)
            && header.destination == self.mac;
        good.then_some(())
    }

    fn echo_ipv4(
        &self,
        header: &Header,
        (source, destination): (Ipv4Addr, Ipv4Addr),
        answer: &Icmpv4Repr<'_>,
        reply: &mut [u8],
    ) -> Option<usize> {
        let length = IPV4_HEADER_LEN + answer.buffer_len();
        self.back(header, IPV4).emit(reply, length, |packet| {
            emit_ipv4(packet, source, destination, IpProtocol::Icmp, |payload| {
                answer.emit(
                    &mut Icmpv4Packet::new_unchecked(payload),
                    &ChecksumCapabilities::default(),
                );
            });
        })
    }

    fn echo_ipv6(
        &self,
        header: &Header,
        (source, destination): (Ipv6Addr, Ipv6Addr),
        answer: &Icmpv6Repr<'_>,
        reply: &mut [u8],
    ) -> Option<usize> {
        let length = IPV6_HEADER_LEN + answer.buffer_len();
        self.back(header, IPV6).emit(reply, length, |packet| {
            let protocol = IpProtocol::Icmpv6;
            emit_ipv6(
                packet,
                source,
                destination,
                protocol,
                HOP_LIMIT,
                |payload| {
                    answer.emit(
                        &source,
                        &destination,
                        &mut Icmpv6Packet::new_unchecked(payload),
                        &ChecksumCapabilities::default(),
                    );
                },
            );
        })
    }

    /// Back to where a frame came from.
    const fn back(&self, header: &Header, kind: u16) -> Header {
        Header {
            destination: header.source,
            source: self.mac,
            vlan: header.vlan,
            kind,
        }
    }
}
