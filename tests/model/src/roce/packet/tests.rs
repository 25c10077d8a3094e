//! Golden frames, round trips, and garbage.

use std::convert::Infallible;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::*;
use crate::link::rng::Rng;
use crate::pcap::Reader as PcapReader;
use crate::roce::env::Path;
use crate::roce::template::Template;

const CAPTURE: &[u8] = include_bytes!("../../../tests/data/rxe61-guest-guest.pcap");

fn reencode(packet: &Packet<'_>) -> Vec<u8> {
    // 0xa5 shows a byte that the emitter left unwritten.
    let mut buf = vec![0xa5; MAX_FRAME];
    let len = packet
        .repr
        .emit(&mut buf, packet.payload.len(), |out| {
            out.copy_from_slice(packet.payload);
            Ok::<_, Infallible>(())
        })
        .unwrap();
    buf.truncate(len);
    buf
}

#[test]
fn kernel_frames_reencode_byte_for_byte() {
    let (mut v4, mut v6, mut other) = (0, 0, 0);
    for frame in PcapReader::new(CAPTURE).unwrap() {
        let frame = frame.unwrap().data;
        match Packet::parse(frame) {
            Ok(packet) => {
                match packet.repr.headers.path.encapsulation {
                    Encapsulation::V2Ipv4 { .. } => v4 += 1,
                    Encapsulation::V2Ipv6 { .. } => v6 += 1,
                    Encapsulation::V1 { .. } => panic!("no RoCE v1 in this capture"),
                }
                assert_eq!(reencode(&packet), frame);
            }
            Err(ParseError::NotRoce) => other += 1,
            Err(e) => panic!("{e}: {frame:02x?}"),
        }
    }
    assert_eq!((v4, v6, other), (77, 29, 47));
}

#[test]
fn every_flipped_bit_of_a_kernel_frame_is_noticed_or_harmless() {
    let frame = PcapReader::new(CAPTURE)
        .unwrap()
        .map(|f| f.unwrap().data)
        .find(|f| matches!(Packet::parse(f), Ok(p) if p.repr.bth.opcode.byte() == 0x0c))
        .unwrap();
    let mut damaged = frame.to_vec();
    for bit in 0..frame.len() * 8 {
        damaged[bit / 8] ^= 1 << (bit % 8);
        let accepted = Packet::parse(&damaged).is_ok();
        // Not covered by any check: MAC addresses, and the congestion bits of the BTH.
        let byte = bit / 8;
        let open = byte < 12 || byte == 14 + 20 + 8 + 4;
        assert_eq!(accepted, open, "bit {bit}");
        damaged[bit / 8] ^= 1 << (bit % 8);
    }
}

fn paths() -> Vec<Path> {
    let base = Path {
        source_mac: [2, 0, 0, 0, 0, 1],
        destination_mac: [2, 0, 0, 0, 0, 2],
        vlan: None,
        encapsulation: Encapsulation::V2Ipv4 {
            source: Ipv4Addr::new(10, 0, 0, 1),
            destination: Ipv4Addr::new(10, 0, 0, 2),
        },
        traffic_class: 0x6a,
        flow_label: 0,
        hop_limit: 64,
        udp_source_port: 0xc123,
    };
    let v6 = Path {
        encapsulation: Encapsulation::V2Ipv6 {
            source: Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1),
            destination: Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2),
        },
        flow_label: 0xa_bcde,
        ..base
    };
    let v1 = Path {
        encapsulation: Encapsulation::V1 {
            source: [0xfe; 16],
            destination: [0x80; 16],
        },
        udp_source_port: 0,
        ..v6
    };
    let tagged = |path: Path| Path {
        vlan: Some(0x6123),
        ..path
    };
    vec![base, v6, v1, tagged(base), tagged(v6), tagged(v1)]
}

/// A packet with every field filled; only the headers that the opcode has are kept.
fn sample(path: Path, opcode: Opcode, rng: &mut Rng) -> Repr {
    let full = Extended {
        deth: Deth {
            qkey: rng.next_u32(),
            source_qpn: rng.next_u32() & 0xff_ffff,
        },
        xrc_srqn: rng.next_u32() & 0xff_ffff,
        dc: Dceth {
            key: rng.next_u64(),
            connection: rng.next_u32(),
            first: rng.next_u32() & 0xff_ffff,
            source_qpn: rng.next_u32() & 0xff_ffff,
        },
        reth: Reth {
            addr: rng.next_u64(),
            rkey: rng.next_u32(),
            len: rng.next_u32(),
        },
        atomic: AtomicEth {
            addr: rng.next_u64(),
            rkey: rng.next_u32(),
            swap_or_add: rng.next_u64(),
            compare: rng.next_u64(),
        },
        aeth: Aeth {
            syndrome: Syndrome::Rnr(17),
            msn: rng.next_u32() & 0xff_ffff,
        },
        atomic_ack: rng.next_u64(),
        imm: rng.next_u32(),
        invalidate: rng.next_u32(),
    };
    let mut e = Extended::default();
    let op = opcode.operation;
    if opcode.service != Service::Cnp {
        if opcode.service == Service::Ud {
            e.deth = full.deth;
        }
        if opcode.has_xrceth() {
            e.xrc_srqn = full.xrc_srqn;
        }
        if opcode.has_dceth() {
            e.dc = full.dc;
        }
        if op.has_reth() {
            e.reth = full.reth;
        }
        if op.has_atomic() {
            e.atomic = full.atomic;
        }
        if op.has_aeth() {
            e.aeth = full.aeth;
        }
        if op == Operation::AtomicAcknowledge {
            e.atomic_ack = full.atomic_ack;
        }
        if op.has_imm() {
            e.imm = full.imm;
        }
        if op.has_ieth() {
            e.invalidate = full.invalidate;
        }
    }
    let flags = rng.next_u32();
    Repr {
        headers: Headers::new(path),
        bth: Bth {
            opcode,
            solicited: flags & 1 != 0,
            migration: flags & 2 != 0,
            pkey: (flags >> 16) as u16,
            fecn: flags & 4 != 0,
            becn: flags & 8 != 0,
            destination_qpn: rng.next_u32() & 0xff_ffff,
            ack_request: flags & 16 != 0,
            psn: Psn::new(rng.next_u32()),
        },
        extended: e,
    }
}

#[test]
fn every_opcode_on_every_path_round_trips() {
    let mut rng = Rng::new(0x5eed_0001);
    for path in paths() {
        for opcode in (0..=255).filter_map(Opcode::from_byte) {
            let lens: &[usize] = match (opcode.service, opcode.operation.has_payload()) {
                (Service::Cnp, _) => &[16],
                (_, true) => &[0, 1, 2, 3, 4, 255, 1024, 4095, 4096],
                (_, false) => &[0],
            };
            for &len in lens {
                let repr = sample(path, opcode, &mut rng);
                let payload: Vec<u8> = (0..len).map(|_| rng.next_u32() as u8).collect();
                let mut frame = vec![0xa5; MAX_FRAME];
                let total = repr
                    .emit(&mut frame, len, |out| {
                        out.copy_from_slice(&payload);
                        Ok::<_, Infallible>(())
                    })
                    .unwrap();
                let frame = &frame[..total];
                let packet = Packet::parse(frame).unwrap();
                assert_eq!(packet.repr, repr);
                assert_eq!(packet.payload, payload);
                assert_eq!(reencode(&packet), frame);
            }
        }
    }
}

#[test]
fn grh_area_holds_the_network_header() {
    let mut rng = Rng::new(1);
    for path in paths() {
        let repr = sample(
            path,
            Opcode::new(Service::Ud, Operation::SendOnly),
            &mut rng,
        );
        let mut frame = [0xa5; MAX_FRAME];
        let len = repr
            .emit(&mut frame, 0, |_| Ok::<_, Infallible>(()))
            .unwrap();
        let packet = Packet::parse(&frame[..len]).unwrap();
        let (area, kind) = packet.grh();
        let start = if path.vlan.is_some() { 18 } else { 14 };
        match path.encapsulation {
            Encapsulation::V2Ipv4 { .. } => {
                assert_eq!(kind, GrhKind::Ipv4);
                assert_eq!(area[..20], [0; 20]);
                assert_eq!(area[20..], frame[start..start + 20]);
            }
            Encapsulation::V2Ipv6 { .. } => {
                assert_eq!(kind, GrhKind::Ipv6);
                assert_eq!(area, frame[start..start + 40]);
            }
            Encapsulation::V1 { .. } => {
                assert_eq!(kind, GrhKind::Grh);
                assert_eq!(area, frame[start..start + 40]);
                assert_eq!(area[6], 0x1b);
            }
        }
    }
}

#[test]
fn short_frames_may_be_padded_by_ethernet_and_long_ones_not() {
    let mut rng = Rng::new(2);
    let repr = sample(
        paths()[0],
        Opcode::new(Service::Rc, Operation::SendOnly),
        &mut rng,
    );
    let mut frame = [0; MAX_FRAME];
    let len = repr
        .emit(&mut frame, 0, |_| Ok::<_, Infallible>(()))
        .unwrap();
    assert_eq!(len, 58);
    frame[len..].fill(0);
    assert!(Packet::parse(&frame[..60]).unwrap().payload.is_empty());
    assert_eq!(Packet::parse(&frame[..61]).unwrap_err(), ParseError::Length);
    let len = repr
        .emit(&mut frame, 4, |_| Ok::<_, Infallible>(()))
        .unwrap();
    assert_eq!(
        Packet::parse(&frame[..len + 1]).unwrap_err(),
        ParseError::Length
    );
}

#[test]
fn udp_checksum_is_checked_where_there_is_one() {
    let mut rng = Rng::new(3);
    let repr = sample(
        paths()[0],
        Opcode::new(Service::Rc, Operation::Acknowledge),
        &mut rng,
    );
    let mut frame = [0; MAX_FRAME];
    let len = repr
        .emit(&mut frame, 0, |_| Ok::<_, Infallible>(()))
        .unwrap();
    let mut hits = 0;
    // Neither the ICRC nor anything else covers the UDP checksum: exactly one non-zero value is right.
    for sum in 1..=0xffffu16 {
        frame[40..42].copy_from_slice(&sum.to_be_bytes());
        match Packet::parse(&frame[..len]) {
            Ok(_) => hits += 1,
            Err(e) => assert_eq!(e, ParseError::UdpChecksum),
        }
    }
    assert_eq!(hits, 1);
}

/// XRC packets from BTH to ICRC as 10.0.0.1 sends them to 10.0.0.2 from UDP port 0xc001: written by hand after annex A14, the
/// ICRC computed with zlib.
const XRC: [&str; 9] = [
    // SEND Only with Immediate: BTH, XRCETH, ImmDt.
    "a550ffff000000518000000100012345deadbeef112233009f2754e2",
    // RDMA WRITE Middle: BTH, XRCETH.
    "a740ffff00000051800000010001234544444444eb032abf",
    // RDMA WRITE Only with Immediate: BTH, XRCETH, RETH, ImmDt.
    "ab60ffff00000051800000010001234500007f000000100000000200000000020000000555660000105e21a7",
    // RDMA READ Request: BTH, XRCETH, RETH.
    "ac40ffff00000051800000010001234500007f0000001000000002000000004033bb204f",
    // CmpSwap: BTH, XRCETH, AtomicETH.
    "b340ffff00000051800000010001234500007f000000100000000200000000000000000700000000000000091733afba",
    // SEND Only with Invalidate: BTH, XRCETH, IETH.
    "b740ffff00000051800000010001234500000300f31e80f2",
    // RDMA READ Response Middle: BTH.
    "ae40ffff0000005180000001777777777f672484",
    // Acknowledge: BTH, AETH.
    "b140ffff00000051800000011f000003f6c5d374",
    // ATOMIC Acknowledge: BTH, AETH, AtomicAckETH.
    "b240ffff00000051800000011f00000300000000012345672265725f",
];

#[test]
fn xrc_packets_are_those_of_the_annex() {
    for text in XRC {
        let transport: Vec<u8> = (0..text.len() / 2)
            .map(|n| u8::from_str_radix(&text[2 * n..2 * n + 2], 16).unwrap())
            .collect();
        let path = Path {
            traffic_class: 0,
            udp_source_port: 0xc001,
            ..paths()[0]
        };
        let mut frame = vec![0; 42];
        Template::new(&Headers::new(path)).emit(&mut frame, transport.len());
        frame.extend(&transport);
        let packet = Packet::parse(&frame).unwrap();
        let Repr { bth, extended, .. } = packet.repr;
        assert_eq!(bth.opcode.service, Service::Xrc);
        assert_eq!(bth.destination_qpn, 0x51);
        let request = !bth.opcode.operation.is_response();
        assert_eq!(bth.opcode.has_xrceth(), request);
        assert_eq!(extended.xrc_srqn, if request { 0x1_2345 } else { 0 });
        match bth.opcode.byte() {
            0xa5 => assert_eq!(
                (extended.imm, packet.payload),
                (0xdead_beef, &[0x11, 0x22, 0x33][..])
            ),
            0xa7 => assert_eq!(packet.payload, [0x44; 4]),
            0xab => {
                assert_eq!((extended.imm, extended.reth.len), (5, 2));
                assert_eq!(packet.payload, [0x55, 0x66]);
            }
            0xac => assert_eq!(
                (extended.reth.addr, extended.reth.len),
                (0x7f00_0000_1000, 64)
            ),
            0xb3 => assert_eq!(
                (extended.atomic.swap_or_add, extended.atomic.compare),
                (7, 9)
            ),
            0xb7 => assert_eq!(extended.invalidate, 0x300),
            0xae => assert_eq!(packet.payload, [0x77; 4]),
            0xb1 => assert_eq!(extended.aeth.msn, 3),
            0xb2 => assert_eq!((extended.aeth.msn, extended.atomic_ack), (3, 0x123_4567)),
            other => panic!("opcode {other:#x}"),
        }
        assert_eq!(reencode(&packet), frame);
    }
}

#[test]
fn refusals_are_typed() {
    let mut rng = Rng::new(4);
    let path = paths()[0];
    let bth = 42;
    let mut check = |opcode: u8, len: usize, edit: &dyn Fn(&mut Vec<u8>)| {
        let repr = sample(path, Opcode::from_byte(opcode).unwrap(), &mut rng);
        let mut frame = vec![0; MAX_FRAME];
        let total = repr
            .emit(&mut frame, len, |_| Ok::<_, Infallible>(()))
            .unwrap();
        frame.truncate(total);
        edit(&mut frame);
        reseal(&mut frame);
        Packet::parse(&frame).map(|_| ()).unwrap_err()
    };
    assert_eq!(check(4, 0, &|f| f[bth] = 0x15), ParseError::Opcode(0x15));
    assert_eq!(check(4, 0, &|f| f[bth] = 0xe4), ParseError::Opcode(0xe4));
    // The XRCETH is not there, nor the DC header.
    assert_eq!(check(4, 0, &|f| f[bth] = 0xa4), ParseError::Truncated);
    assert_eq!(check(4, 0, &|f| f[bth] = 0xc4), ParseError::Truncated);
    assert_eq!(check(4, 0, &|f| f[bth + 1] |= 1), ParseError::Version);
    assert_eq!(check(4, 0, &|f| f[bth + 1] |= 0x30), ParseError::Payload);
    assert_eq!(
        check(0x11, 0, &|f| f[bth + 12] = 0x64),
        ParseError::AethSyndrome(0x64)
    );
    assert_eq!(check(0x13, 0, &|f| f[bth] = 0x0c), ParseError::Payload);
    assert_eq!(check(4, 4, &|f| f[bth] = 0x0c), ParseError::Truncated);
    assert_eq!(check(4, 0, &|f| f[20] |= 0x80), ParseError::IpHeader);
    for (at, bits) in [(20, 0x20), (20, 1), (21, 1)] {
        assert_eq!(check(4, 0, &|f| f[at] |= bits), ParseError::NotRoce);
    }
    assert_eq!(check(4, 0, &|f| f[14] = 0x46), ParseError::IpHeader);
    assert_eq!(check(4, 0, &|f| f[16] = 0xff), ParseError::IpChecksum);
    assert_eq!(check(4, 0, &|f| f.truncate(40)), ParseError::Truncated);
    assert_eq!(check(4, 0, &|f| f[39] ^= 4), ParseError::Length);
    assert_eq!(check(4, 0, &|f| f[36] = 0), ParseError::NotRoce);
}

#[test]
fn garbage_never_panics() {
    for seed in 0..200u64 {
        let mut rng = Rng::new(seed + 1);
        let mut frame = vec![0; (rng.next_u32() % 300) as usize];
        frame.iter_mut().for_each(|b| *b = rng.next_u32() as u8);
        let _ = Packet::parse(&frame);
        reseal(&mut frame);
    }
    // Damaged kernel frames, with the ICRC made right again so that the checks behind it are reached.
    let frames: Vec<&[u8]> = PcapReader::new(CAPTURE)
        .unwrap()
        .map(|f| f.unwrap().data)
        .collect();
    for seed in 0..20_000u64 {
        let mut rng = Rng::new(seed + 1);
        let mut frame = frames[rng.next_u32() as usize % frames.len()].to_vec();
        for _ in 0..=rng.next_u32() % 4 {
            let at = rng.next_u32() as usize % frame.len();
            frame[at] = rng.next_u32() as u8;
        }
        if rng.next_u32().is_multiple_of(4) {
            frame.truncate(rng.next_u32() as usize % frame.len());
        }
        reseal(&mut frame);
        if let Ok(packet) = Packet::parse(&frame) {
            let _ = packet.grh();
            let _ = reencode(&packet);
        }
    }
}
