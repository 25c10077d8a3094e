//! Large sends and VLAN tags: what comes over the cable is taken apart by smoltcp's parsers and checksums, and put together
//! again by the test.

use core::num::NonZeroU16;

use bareverbs_core::{
    Access, CqInit, EthernetError, EthernetInit, EthernetOffload, EthernetSendError,
    EthernetSendFlags, QpInitAttr, RawPacketError, Sge, VXLAN_PORT,
};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    IpAddress, IpProtocol, Ipv4Address, Ipv4Packet, Ipv4Repr, Ipv6Address, Ipv6Packet, Ipv6Repr,
    TcpPacket, UdpPacket,
};

use crate::lab::{Lab, MS, lab, lab_with, pattern};
use crate::support::{INIT, NONE, Queue, Random, frame, take};

const BOTH: EthernetSendFlags =
    EthernetSendFlags::L3_CHECKSUM.union(EthernetSendFlags::L4_CHECKSUM);
const DEEP: EthernetInit = EthernetInit {
    recv_frames: 256,
    ..INIT
};

const FROM: [u8; 4] = [10, 0, 0, 1];
const TO: [u8; 4] = [10, 0, 0, 2];

fn v6(last: u8) -> Ipv6Address {
    Ipv6Address::new(0xfd00, 0, 0, 0, 0, 0, 0, last.into())
}

/// Headers of a large send, with lengths and checksums that are nothing.
fn headers(lab: &Lab<'_>, six: bool, options: usize, sequence: u32, flags: u8) -> Vec<u8> {
    let mut bytes = [lab.sides[1].mac, lab.sides[0].mac].concat();
    if six {
        bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 6, 64]);
        bytes.extend(v6(1).octets());
        bytes.extend(v6(2).octets());
    } else {
        bytes.extend([0x08, 0x00, 0x45, 0, 0, 0, 0x12, 0x34, 0x40, 0, 64, 6, 0, 0]);
        bytes.extend(FROM);
        bytes.extend(TO);
    }
    bytes.extend([0x10, 0x00, 0x00, 0x50]);
    bytes.extend(sequence.to_be_bytes());
    bytes.extend(7_u32.to_be_bytes());
    bytes.extend([
        (((20 + options) / 4) << 4) as u8,
        flags,
        0x10,
        0,
        0xde,
        0xad,
        0,
        0,
    ]);
    // No-operations.
    bytes.extend(vec![1; options]);
    bytes
}

/// A packet taken apart: sequence number, FIN, PSH, identification, payload.
fn parse(bytes: &[u8], six: bool) -> (u32, bool, bool, u16, Vec<u8>) {
    let caps = ChecksumCapabilities::default();
    let body = &bytes[14..];
    let (from, to, id, payload): (IpAddress, IpAddress, u16, &[u8]) = if six {
        let packet = Ipv6Packet::new_checked(body).expect("IPv6");
        let repr = Ipv6Repr::parse(&packet).expect("IPv6");
        assert_eq!(repr.next_header, IpProtocol::Tcp);
        (
            repr.src_addr.into(),
            repr.dst_addr.into(),
            0,
            packet.payload(),
        )
    } else {
        let packet = Ipv4Packet::new_checked(body).expect("IPv4");
        // With its checksum.
        let repr = Ipv4Repr::parse(&packet, &caps).expect("IPv4");
        assert_eq!(repr.dst_addr, Ipv4Address::from(TO));
        let id = packet.ident();
        (
            repr.src_addr.into(),
            repr.dst_addr.into(),
            id,
            packet.payload(),
        )
    };
    let segment = TcpPacket::new_checked(payload).expect("TCP");
    assert!(segment.verify_checksum(&from, &to));
    let sequence = segment.seq_number().0 as u32;
    let data = segment.payload().to_vec();
    (sequence, segment.fin(), segment.psh(), id, data)
}

fn take_all(lab: &Lab<'_>, queue: &mut Queue<'_>) -> Vec<Vec<u8>> {
    lab.pause(MS);
    std::iter::from_fn(|| take(queue)).collect()
}

#[test]
fn drawn_large_sends_are_cut_as_tcp_would() {
    const SEED: u64 = 0x150;
    println!("seed {SEED:#x}");
    lab(|lab| {
        let mut random = Random(SEED);
        let (mut a, mut b) = (lab.queue(0, INIT), lab.queue(1, DEEP));
        let memory = lab.sides[0]
            .pd
            .alloc_buffer(1 << 16, Access::empty())
            .unwrap();
        for _ in 0..200 {
            let six = random.below(2) == 1;
            let options = 4 * random.below(11);
            let vlan = (random.below(2) == 1).then(|| random.below(1 << 16) as u16);
            let flags = 0x10 | random.pick(&[0, 1, 8, 9]);
            let sequence = random.below(1 << 32) as u32;
            let header = headers(lab, six, options, sequence, flags);
            let most = 1518 - header.len() - 4;
            let mss = 100 + random.below(most - 99);
            let length = 1 + random.below(20_000);
            let data = pattern(length, random.0);
            memory.copy_in(0, &data).unwrap();
            let cut = random.below(length + 1);
            let sges: [Sge; 2] = [
                memory.sge(0, cut).unwrap(),
                memory.sge(cut, length - cut).unwrap(),
            ];
            let offload = EthernetOffload {
                flags: BOTH,
                vlan,
                mss: NonZeroU16::new(mss as u16),
            };
            a.send_half()
                .send_offloaded(&header, &sges, &offload)
                .expect("sent");
            let packets = take_all(lab, &mut b);
            assert_eq!(packets.len(), length.div_ceil(mss));
            let mut joined = Vec::new();
            for (nth, packet) in packets.iter().enumerate() {
                let mut packet = packet.clone();
                if let Some(tci) = vlan {
                    assert_eq!(packet[12..14], [0x81, 0x00]);
                    assert_eq!(packet[14..16], tci.to_be_bytes());
                    packet.drain(12..16);
                }
                let (at, fin, psh, id, payload) = parse(&packet, six);
                assert_eq!(at, sequence.wrapping_add((nth * mss) as u32));
                let last = nth + 1 == packets.len();
                assert_eq!(fin, last && flags & 1 != 0);
                assert_eq!(psh, last && flags & 8 != 0);
                assert!(six || id == 0x1234 + nth as u16);
                assert!(last || payload.len() == mss);
                joined.extend(payload);
            }
            assert_eq!(joined, data);
        }
    });
}

/// Frames in VXLAN, cut or not, to the port that cards know and to one that the card is told.
#[test]
fn inner_checksums_of_drawn_frames_are_right() {
    const SEED: u64 = 0x1789;
    const OTHER_PORT: u16 = 8472;
    const OUTER: usize = 14 + 20 + 8 + 8;
    println!("seed {SEED:#x}");
    lab(|lab| {
        let mut random = Random(SEED);
        let (mut a, mut b) = (lab.queue(0, INIT), lab.queue(1, DEEP));
        assert!(a.send_half().has_inner_checksums());
        lab.sides[0].device.add_vxlan_port(OTHER_PORT).unwrap();
        let memory = lab.sides[0]
            .pd
            .alloc_buffer(1 << 16, Access::empty())
            .unwrap();
        for _ in 0..200 {
            let six = random.below(2) == 1;
            let large = random.below(2) == 1;
            let port = random.pick(&[VXLAN_PORT, OTHER_PORT]);
            let sequence = random.below(1 << 32) as u32;
            let mut inner = headers(lab, six, 4 * random.below(11), sequence, 0x10);
            let most = 1514 - OUTER - inner.len();
            let mss = 100 + random.below(most - 99);
            let length = 1 + random.below(if large { 20_000 } else { most });
            let data = pattern(length, random.0);
            memory.copy_in(0, &data).unwrap();
            if !large {
                // Without cutting, the lengths are the sender's.
                let (at, counted) = if six {
                    (18, inner.len() - 54)
                } else {
                    (16, inner.len() - 14)
                };
                inner[at..at + 2].copy_from_slice(&((counted + length) as u16).to_be_bytes());
            }
            let mut header = [lab.sides[1].mac, lab.sides[0].mac].concat();
            let datagram = (16 + inner.len() + length) as u16;
            header.extend([0x08, 0x00, 0x45, 0]);
            header.extend((20 + datagram).to_be_bytes());
            header.extend([0x43, 0x21, 0x40, 0, 64, 17, 0, 0]);
            header.extend([FROM, TO].concat());
            for part in [9999, port, datagram, 0] {
                header.extend(part.to_be_bytes());
            }
            header.extend([8, 0, 0, 0, 0, 0, 42, 0]);
            header.extend(&inner);
            let offload = EthernetOffload {
                flags: EthernetSendFlags::L3_CHECKSUM | EthernetSendFlags::INNER,
                vlan: None,
                mss: NonZeroU16::new(mss as u16).filter(|_| large),
            };
            let sges = [memory.sge(0, length).unwrap()];
            a.send_half()
                .send_offloaded(&header, &sges, &offload)
                .expect("sent");
            let packets = take_all(lab, &mut b);
            assert_eq!(packets.len(), if large { length.div_ceil(mss) } else { 1 });
            let mut joined = Vec::new();
            for (nth, packet) in packets.iter().enumerate() {
                let outer = Ipv4Packet::new_checked(&packet[14..]).expect("IPv4");
                assert!(outer.verify_checksum());
                assert_eq!(outer.ident(), 0x4321 + nth as u16);
                assert_eq!(usize::from(outer.total_len()), packet.len() - 14);
                let udp = UdpPacket::new_checked(outer.payload()).expect("UDP");
                assert_eq!((udp.dst_port(), udp.checksum()), (port, 0));
                let (at, _, _, id, payload) = parse(&packet[OUTER..], six);
                assert_eq!(at, sequence.wrapping_add((nth * mss) as u32));
                assert!(six || id == 0x1234 + nth as u16);
                joined.extend(payload);
            }
            assert_eq!(joined, data);
        }
        lab.sides[0].device.remove_vxlan_port(OTHER_PORT).unwrap();
        assert!(lab.sides[0].device.remove_vxlan_port(OTHER_PORT).is_err());
    });
}

/// Tags go in on one side and come out on the other, and a frame in between shows what was on the cable.
#[test]
fn tags_are_put_in_and_taken_out() {
    let stripping = EthernetInit {
        strip_vlan: true,
        ..INIT
    };
    let without = |card: connectx_model::Config| {
        let mut card = card;
        card.ethernet.set_wqe_inline_mode(0);
        card
    };
    // By the segment, and by the driver where headers have to be inline.
    for inline in [false, true] {
        let test = |lab: &Lab<'_>| {
            let mut random = Random(0x7a65);
            let mut a = lab.queue(0, INIT);
            for strip in [false, true] {
                let init = if strip { stripping } else { INIT };
                let mut b = lab.queue(1, init);
                for seed in 0..100 {
                    let data = lab.frame(0, 60 + random.below(1455), seed);
                    let vlan = (random.below(3) != 0).then(|| random.below(1 << 16) as u16);
                    let offload = EthernetOffload {
                        vlan,
                        ..EthernetOffload::default()
                    };
                    a.send_half()
                        .send_offloaded(&data, &[], &offload)
                        .expect("sent");
                    lab.pause(MS);
                    let got = b.receive_half().receive().unwrap().expect("a frame");
                    let mut bytes = vec![0; got.len()];
                    got.copy_to(&mut bytes);
                    let mut wanted = data;
                    if let (Some(tci), false) = (vlan, strip) {
                        let tag = [[0x81, 0x00], tci.to_be_bytes()].concat();
                        wanted.splice(12..12, tag);
                    }
                    assert_eq!(bytes, wanted);
                    assert_eq!(got.vlan(), vlan.filter(|_| strip));
                }
            }
        };
        if inline {
            lab_with(without, test);
        } else {
            lab(test);
        }
    }
}

#[test]
fn what_the_card_lacks_is_refused_by_name() {
    let poor = |card: connectx_model::Config| {
        let mut card = card;
        card.ethernet
            .set_max_lso_cap(0)
            .set_wqe_vlan_insert(false)
            .set_vlan_cap(false)
            .set_tunnel_stateless_vxlan(false)
            .set_tunnel_stateless_gre(false)
            .set_max_vxlan_udp_ports(0);
        card
    };
    lab_with(poor, |lab| {
        let mut a = lab.queue(0, INIT);
        let data = frame([2; 6], lab.sides[0].mac, 60, 1);
        let large = EthernetOffload {
            mss: NonZeroU16::new(100),
            ..EthernetOffload::default()
        };
        let tagged = EthernetOffload {
            vlan: Some(5),
            ..EthernetOffload::default()
        };
        for (offload, name) in [(large, "max_lso_cap"), (tagged, "wqe_vlan_insert")] {
            let refused = a.send_half().send_offloaded(&data, &[], &offload);
            let Err(EthernetSendError::Unsupported { what }) = refused else {
                panic!("{refused:?}");
            };
            assert!(what.contains(name), "{what}");
        }
        assert_eq!(
            a.send_half().send(&data, EthernetSendFlags::INNER),
            Err(EthernetSendError::NoChecksums)
        );
        let refused = lab.sides[0].device.add_vxlan_port(1).err();
        let Some(EthernetError::Unsupported { what }) = refused else {
            panic!("{refused:?}");
        };
        assert!(what.contains("max_vxlan_udp_ports"));
        a.send_half().send(&data, NONE).unwrap();
        let stripping = EthernetInit {
            strip_vlan: true,
            ..INIT
        };
        let refused = lab.sides[1].pd.create_ethernet_queue(&stripping).err();
        let Some(EthernetError::Unsupported { what }) = refused else {
            panic!("{refused:?}");
        };
        assert!(what.contains("vlan_cap"));
        let cq = lab.sides[1].device.create_cq(CqInit::new(8)).unwrap();
        let domain = lab.sides[1].device.alloc_ethernet_domain().unwrap();
        let mut init = QpInitAttr::new(&cq, 4);
        let mut raw = domain.create_raw_packet_qp(&lab.sides[1].pd, &mut init);
        let refused = raw.as_mut().unwrap().set_vlan_strip(true);
        assert!(!domain.has_vlan_strip());
        let Err(RawPacketError::Ethernet(EthernetError::Unsupported { what })) = refused else {
            panic!("{refused:?}");
        };
        assert!(what.contains("vlan_cap"));
    });
    lab(|lab| {
        let mut a = lab.queue(0, INIT);
        let memory = lab.sides[0]
            .pd
            .alloc_buffer(1 << 20, Access::empty())
            .unwrap();
        let header = headers(lab, false, 0, 1, 0x10);
        let mut refused = |mss: u16, length: usize| {
            let offload = EthernetOffload {
                mss: NonZeroU16::new(mss),
                ..EthernetOffload::default()
            };
            let sges = [memory.sge(0, length).unwrap()];
            let sent = a.send_half().send_offloaded(&header, &sges, &offload);
            matches!(sent, Err(EthernetSendError::SegmentSize { .. }))
        };
        // Nothing to send, more than the card takes, packets beyond the frames.
        assert!(refused(100, 0));
        assert!(refused(1000, (1 << 18) + 1));
        assert!(refused(1500, 2000));
        assert!(!refused(1464, 2000));
    });
}
