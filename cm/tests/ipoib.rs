//! IP over InfiniBand: packets as RFC 4391 has them, written by hand, and two hosts that find each other.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use bareverbs_cm::ip::{
    self, Addresses, Event, Groups, Host, Neighbours, Resolution, Resources, Routes,
};
use bareverbs_cm::ipoib::*;

const PKEY: u16 = 0xffff;
const OWN: HardwareAddress = HardwareAddress {
    qpn: 0x00_0048,
    gid: *b"\xfe\x80\0\0\0\0\0\0\0\x02\xc9\x03\0\0\x02\x01",
};
const PEER: HardwareAddress = HardwareAddress {
    qpn: 0xab_cdef,
    gid: *b"\xfe\x80\0\0\0\0\0\0\0\x02\xc9\x03\0\0\x01\x01",
};

fn sender(global: bool) -> Sender {
    Sender {
        qpn: PEER.qpn,
        lid: 7,
        service_level: 2,
        gid: global.then_some(PEER.gid),
    }
}

fn slots() -> &'static mut [PeerSlot] {
    vec![PeerSlot::EMPTY; 4].leak()
}

/// An ARP packet (RFC 4391 section 9.1.1): operation, sender, target.
fn arp(operation: u8, sender: &[u8; 20], from: [u8; 4], target: &[u8; 20], to: [u8; 4]) -> Vec<u8> {
    let fixed = [0x08, 0x06, 0, 0, 0, 32, 0x08, 0, 20, 4, 0, operation];
    [&fixed[..], sender, &from, target, &to].concat()
}

/// 0x80: connections are possible at the sender.
const PEER_BYTES: [u8; 20] = *b"\x80\xab\xcd\xef\xfe\x80\0\0\0\0\0\0\0\x02\xc9\x03\0\0\x01\x01";
const OWN_BYTES: [u8; 20] = *b"\0\0\0\x48\xfe\x80\0\0\0\0\0\0\0\x02\xc9\x03\0\0\x02\x01";

#[test]
fn questions_and_answers_of_arp() {
    let mut link = Link::new(OWN, PKEY, slots());
    let asked = arp(1, &PEER_BYTES, [10, 1, 0, 1], &[0; 20], [10, 1, 0, 2]);
    let mut frame = [0xa5; 128];
    let length = link.incoming(&asked, &sender(true), true, &mut frame);
    assert_eq!(length, Some(60));
    assert_eq!(frame[..6], [0xff; 6]);
    assert_eq!(frame[12..22], [8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    assert_eq!(frame[22..28], frame[6..12]);
    assert_eq!(frame[28..32], [10, 1, 0, 1]);
    assert_eq!(frame[38..42], [10, 1, 0, 2]);
    assert_eq!(frame[42..60], [0; 18]);

    let mac: [u8; 6] = frame[6..12].try_into().unwrap();
    let peer = link.peer(mac).unwrap();
    assert_eq!((peer.address, peer.lid, peer.service_level), (PEER, 7, 2));
    let own = link.mac();
    let fixed = [8, 6, 0, 1, 8, 0, 6, 4, 0, 2];
    let reply = [
        &mac[..],
        &own,
        &fixed,
        &own,
        &[10, 1, 0, 2],
        &mac,
        &[10, 1, 0, 1],
    ];
    let mut packet = [0xa5; 128];
    let (to, length) = link.outgoing(&reply.concat(), &mut packet).unwrap();
    assert_eq!(to, To::Peer(peer));
    let mut known = PEER_BYTES;
    known[0] = 0;
    assert_eq!(
        packet[..length],
        arp(2, &OWN_BYTES, [10, 1, 0, 2], &known, [10, 1, 0, 1])
    );
}

/// Solicitation of 2001:db8::2 (RFC 4861 section 4.3, RFC 4391 section 9.3), with its checksum.
fn solicitation() -> Vec<u8> {
    let mut packet = vec![0x86, 0xdd, 0, 0, 0x60, 0, 0, 0, 0, 48, 58, 255];
    packet.extend(b"\xfe\x80\0\0\0\0\0\0\x02\x02\xc9\x03\0\0\x01\x01");
    packet.extend(b"\xff\x02\0\0\0\0\0\0\0\0\0\x01\xff\0\0\x02");
    packet.extend([135, 0, 0, 0, 0, 0, 0, 0]);
    packet.extend(b"\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x02");
    // The source's address, of 3 times 8 bytes, in which two are reserved.
    packet.extend([1, 3, 0, 0]);
    packet.extend(PEER_BYTES);
    // RFC 1071, over the addresses, the length and the next header, and the message.
    let message = &packet[44..];
    let words = [&packet[12..44], &[0, 0, 0, 48, 0, 0, 0, 58], message].concat();
    let sum: u32 = words
        .chunks(2)
        .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !((folded & 0xffff) + (folded >> 16)) as u16;
    packet[46..48].copy_from_slice(&checksum.to_be_bytes());
    packet
}

#[test]
fn options_of_neighbour_discovery() {
    let mut link = Link::new(OWN, PKEY, slots());
    let asked = solicitation();
    let mut frame = [0; 256];
    let length = link.incoming(&asked, &sender(true), true, &mut frame);
    // Two units of the option less.
    assert_eq!(length, Some(14 + 40 + 24 + 8));
    assert_eq!(frame[..6], [0x33, 0x33, 0xff, 0, 0, 2]);
    assert_eq!(frame[18..20], [0, 32]);
    assert_eq!(frame[78..80], [1, 1]);
    assert_eq!(frame[80..86], frame[6..12]);
    // Out again, as if the neighbour's address was this host's to give: the same bytes, but for the flags.
    let mut packet = [0; 256];
    let (to, length) = link.outgoing(&frame[..86], &mut packet).unwrap();
    assert_eq!(
        to,
        To::Group(*b"\xff\x12\x60\x1b\xff\xff\0\0\0\0\0\x01\xff\0\0\x02")
    );
    assert_eq!(length, asked.len());
    assert_eq!(packet[..46], asked[..46]);
    assert_eq!(packet[72], 0);
    assert_eq!(packet[73..92], asked[73..]);

    // Damaged: one byte after the other.
    for at in 44..asked.len() {
        let mut damaged = asked.clone();
        damaged[at] ^= 0x10;
        let taken = link.incoming(&damaged, &sender(true), true, &mut frame);
        // Another type has no options that are known.
        assert!(taken.is_none() || at == 44, "byte {at}");
    }
}

#[test]
fn groups_have_their_gids() {
    let of = |address: &str, pkey| group(address.parse().unwrap(), pkey);
    assert_eq!(
        broadcast_group(0x7fff),
        *b"\xff\x12\x40\x1b\xff\xff\0\0\0\0\0\0\xff\xff\xff\xff"
    );
    assert_eq!(
        of("224.0.0.1", 0x8001),
        *b"\xff\x12\x40\x1b\x80\x01\0\0\0\0\0\0\0\0\0\x01"
    );
    assert_eq!(
        of("239.255.1.2", PKEY),
        *b"\xff\x12\x40\x1b\xff\xff\0\0\0\0\0\0\x0f\xff\x01\x02"
    );
    assert_eq!(
        of("ff02::1", PKEY),
        *b"\xff\x12\x60\x1b\xff\xff\0\0\0\0\0\0\0\0\0\x01"
    );
}

/// Only a packet's sender is believed about the sender.
#[test]
fn others_cannot_be_named() {
    let mut link = Link::new(OWN, PKEY, slots());
    let mut frame = [0; 256];
    let mut asked = arp(1, &PEER_BYTES, [10, 1, 0, 1], &[0; 20], [10, 1, 0, 2]);
    for at in 13..32 {
        asked[at] ^= 1;
        let taken = link.incoming(&asked, &sender(true), true, &mut frame);
        assert_eq!(taken, None, "byte {at}");
        asked[at] ^= 1;
    }
    assert!(
        link.incoming(&asked, &sender(true), true, &mut frame)
            .is_some()
    );
    // This interface's own packets come back from groups.
    let own = Sender {
        qpn: OWN.qpn,
        gid: Some(OWN.gid),
        ..sender(true)
    };
    assert_eq!(link.incoming(&asked, &own, true, &mut frame), None);
    for length in 0..asked.len() {
        let cut = &asked[..length];
        assert_eq!(link.incoming(cut, &sender(true), true, &mut frame), None);
    }
}

/// A neighbour that another one has made way for is no longer reached by what stood for it.
#[test]
fn an_address_stands_for_one_neighbour_only() {
    let mut link = Link::new(OWN, PKEY, &mut slots()[..2]);
    let mut frame = [0; 64];
    let packet = [&[8, 0, 0, 0, 0x45, 0, 0, 20][..], &[0; 16]].concat();
    let mut mac = |qpn| {
        let from = Sender {
            qpn,
            ..sender(false)
        };
        link.incoming(&packet, &from, false, &mut frame).unwrap();
        <[u8; 6]>::try_from(&frame[6..12]).unwrap()
    };
    let [a, b] = [mac(1), mac(2)];
    assert_eq!(mac(1), a);
    // The second was not needed for longest.
    let c = mac(3);
    assert_eq!(mac(1), a);
    assert_eq!(link.peer(b), None);
    assert_eq!(link.peer(c).map(|peer| peer.address.qpn), Some(3));
    let mut packet = [0; 64];
    let lost = [&b[..], &[0; 6], &[8, 0], &packet[..20]].concat();
    assert_eq!(link.outgoing(&lost, &mut packet), None);
}

/// Packets without a global header are attributed to the same neighbour.
#[test]
fn a_neighbour_without_a_name_gets_it() {
    let mut link = Link::new(OWN, PKEY, slots());
    let mut frame = [0; 128];
    let packet = [&[8, 0, 0, 0, 0x45, 0, 0, 20][..], &[0; 16]].concat();
    link.incoming(&packet, &sender(false), false, &mut frame)
        .unwrap();
    let before: [u8; 6] = frame[6..12].try_into().unwrap();
    let answer = arp(2, &PEER_BYTES, [10, 1, 0, 1], &OWN_BYTES, [10, 1, 0, 2]);
    link.incoming(&answer, &sender(false), false, &mut frame)
        .unwrap();
    assert_eq!(frame[6..12], before);
    assert_eq!(frame[..6], link.mac());
    assert_eq!(frame[32..38], link.mac());
    assert_eq!(link.peer(before).unwrap().address, PEER);
}

/// Hosts on interfaces of one subnet, whose QPs deliver to each other.
struct Node {
    host: Host<'static>,
    link: Link<'static>,
    lid: u16,
}

fn node(address: HardwareAddress, lid: u16, ips: &[&str]) -> Node {
    type Memory = Resources<Addresses<4>, Neighbours<8>, Routes<1>, Groups<16>>;
    let memory = Box::leak(Box::new(Memory::new()));
    let link = Link::new(address, PKEY, slots());
    let config = ip::Config::new(lid.into());
    let mut host = Host::new(link.mac(), config, memory.storage());
    for ip in ips {
        host.add_address(
            Duration::ZERO,
            ip.parse().unwrap(),
            64.min(if ip.contains(':') { 64 } else { 24 }),
            None,
        )
        .unwrap();
    }
    Node { host, link, lid }
}

/// Lets both talk until both are silent.
fn talk(nodes: &mut [Node; 2], now: Duration) {
    let mut wire: VecDeque<(usize, To, Vec<u8>)> = VecDeque::new();
    loop {
        for (index, node) in nodes.iter_mut().enumerate() {
            let (mut frame, mut packet) = ([0; 256], [0; 256]);
            while let Some(length) = node.host.poll_transmit(now, &mut frame) {
                let (to, length) = node.link.outgoing(&frame[..length], &mut packet).unwrap();
                wire.push_back((index, to, packet[..length].to_vec()));
            }
        }
        let Some((from, to, packet)) = wire.pop_front() else {
            return;
        };
        let Node { link, lid, .. } = &nodes[from];
        let sender = Sender {
            qpn: link.own().qpn,
            lid: *lid,
            service_level: 0,
            gid: matches!(to, To::Group(_)).then_some(link.own().gid),
        };
        let node = &mut nodes[1 - from];
        if let To::Peer(peer) = to {
            assert_eq!((peer.address, peer.lid), (node.link.own(), node.lid));
        }
        let (mut frame, mut reply, mut answer) = ([0; 256], [0; 256], [0; 256]);
        let multicast = matches!(to, To::Group(_));
        let length = node.link.incoming(&packet, &sender, multicast, &mut frame);
        let length = length.expect("a frame");
        if let Some(length) = node.host.receive(now, &frame[..length], &mut reply) {
            let (to, length) = node.link.outgoing(&reply[..length], &mut answer).unwrap();
            wire.push_back((1 - from, to, answer[..length].to_vec()));
        }
    }
}

#[test]
fn hosts_find_each_other() {
    let ips = [["10.0.0.1", "fd00::1"], ["10.0.0.2", "fd00::2"]];
    let mut nodes = [node(OWN, 3, &ips[0]), node(PEER, 7, &ips[1])];
    let mut now = Duration::ZERO;
    // Until the IPv6 addresses are known to be no other's.
    for _ in 0..40 {
        talk(&mut nodes, now);
        now += Duration::from_millis(100);
    }
    for (at, own) in ips.iter().enumerate() {
        let node = &mut nodes[at].host;
        let ready = std::iter::from_fn(|| node.poll_event());
        let ready = ready.filter(|event| matches!(event, Event::AddressReady { .. }));
        assert_eq!(ready.count(), own.len());
    }
    for (from, to) in ips[0].iter().zip(&ips[1]) {
        let [from, to]: [IpAddr; 2] = [from, to].map(|ip| ip.parse().unwrap());
        assert_eq!(nodes[0].host.resolve(now, from, to), Resolution::Pending);
        talk(&mut nodes, now);
        let Resolution::Found(neighbour) = nodes[0].host.resolve(now, from, to) else {
            panic!("{to} was not found");
        };
        let peer = nodes[0].link.peer(neighbour.mac).unwrap();
        assert_eq!((peer.address, peer.lid), (PEER, 7));
    }
}

/// Packets and frames with bytes changed, cut off and put in: nothing panics, and what comes out is one that was asked for.
#[test]
fn any_packet_is_borne() {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % below as u64) as usize
    };
    let mut ipv4 = vec![8, 0, 0, 0, 0x45, 0, 0, 28];
    ipv4.resize(32, 1);
    let seeds = [
        arp(1, &PEER_BYTES, [10, 1, 0, 1], &OWN_BYTES, [10, 1, 0, 2]),
        solicitation(),
        ipv4,
    ];
    let mut link = Link::new(OWN, PKEY, slots());
    let (mut frame, mut packet) = ([0; 256], [0; 256]);
    let (mut taken, mut sent) = (0, 0);
    for _ in 0..200_000 {
        let mut bytes = seeds[next(seeds.len())].clone();
        for _ in 0..next(4) {
            let at = next(bytes.len());
            match next(3) {
                0 => bytes[at] = next(256) as u8,
                1 => bytes.truncate(at + 1),
                _ => bytes.insert(at, next(256) as u8),
            }
        }
        let from = Sender {
            qpn: [PEER.qpn, next(16) as u32][next(2)],
            ..sender(next(2) == 0)
        };
        let room = 32 + next(224);
        let out = &mut frame[..room];
        let Some(length) = link.incoming(&bytes, &from, next(2) == 0, out) else {
            continue;
        };
        taken += 1;
        assert!(length >= 60 && length <= room);
        // To the neighbour that it came from, or damaged.
        frame.copy_within(6..12, 0);
        if next(2) == 0 {
            frame[next(length)] = next(256) as u8;
        }
        let room = 32 + next(224);
        if let Some((_, length)) = link.outgoing(&frame[..length], &mut packet[..room]) {
            sent += 1;
            assert!(length <= room);
        }
    }
    assert!(taken > 10_000 && sent > 5_000, "{taken} {sent}");
}
