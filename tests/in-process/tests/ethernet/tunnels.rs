//! Packets in VXLAN and GRE on the receiving side: drawn ones, right and with a bit that has changed. What the device says of
//! their checksums is compared with smoltcp's parsers, and their hashes with the published description.

use bareverbs_core::{
    EthernetInit, FlowAction, FlowMatch, FlowSlot, HashedHeaders, HashedPackets, RssError, RssHash,
    Tunnels, VXLAN_PORT,
};
use smoltcp::wire::{IpAddress, Ipv4Packet, Ipv6Packet, TcpPacket, UdpPacket};

use crate::lab::{MS, lab, lab_with};
use crate::packets::{TCP, UDP, toeplitz};
use crate::spread::{Pair, Rule};
use crate::strides::STRIDES;
use crate::support::{INIT, Random, send};

const GRE: u8 = 47;
const QUEUES: usize = 4;
const TABLE: u32 = 16;
const RING: EthernetInit = EthernetInit {
    recv_frames: 16,
    ..INIT
};

/// The sum of RFC 1071, inverted.
fn sum(parts: &[&[u8]]) -> u16 {
    let bytes = parts.concat();
    let mut total = 0_u32;
    for pair in bytes.chunks(2) {
        total += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    }
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    !(total as u16)
}

/// An IP packet as the test knows it.
#[derive(Debug, Clone)]
struct Ip {
    six: bool,
    protocol: u8,
    bytes: Vec<u8>,
}

impl Ip {
    fn header(&self) -> usize {
        if self.six { 40 } else { 20 }
    }

    fn addresses(&self) -> (&[u8], &[u8]) {
        let (at, length) = if self.six { (8, 16) } else { (12, 4) };
        let part = |at: usize| &self.bytes[at..at + length];
        (part(at), part(at + length))
    }

    fn body(&self) -> &[u8] {
        &self.bytes[self.header()..]
    }

    /// A packet with a body whose checksum, if it has one, is filled in at an offset.
    fn new(random: &mut Random, six: bool, protocol: u8, body: &[u8], at: Option<usize>) -> Self {
        let length = body.len() as u16;
        let mut bytes = if six {
            let mut header = vec![0x60, 0, 0, 0, 0, 0, protocol, 64];
            header[4..6].copy_from_slice(&length.to_be_bytes());
            header
        } else {
            let mut header = vec![0x45, 0, 0, 0, 0x12, 0x34, 0x40, 0, 64, protocol, 0, 0];
            header[2..4].copy_from_slice(&(20 + length).to_be_bytes());
            header
        };
        let addresses = if six { 32 } else { 8 };
        bytes.extend((0..addresses).map(|_| random.below(256) as u8));
        if !six {
            let value = sum(&[&bytes]);
            bytes[10..12].copy_from_slice(&value.to_be_bytes());
        }
        bytes.extend(body);
        let mut packet = Self {
            six,
            protocol,
            bytes,
        };
        if let Some(at) = at {
            let (from, to) = packet.addresses();
            let pseudo = [0, protocol, (length >> 8) as u8, length as u8];
            let value = match sum(&[from, to, &pseudo, body]) {
                0 => 0xffff,
                value => value,
            };
            let at = packet.header() + at;
            packet.bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
        }
        packet
    }

    /// TCP or UDP with drawn ports and payload.
    fn draw(random: &mut Random) -> Self {
        let six = random.below(2) == 1;
        let payload: Vec<u8> = (0..random.below(200))
            .map(|_| random.below(256) as u8)
            .collect();
        let mut ports: Vec<u8> = (0..4).map(|_| random.below(256) as u8).collect();
        // To none of VXLAN's ports.
        ports[2] = 0x40;
        if random.below(2) == 0 {
            ports.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
            ports.extend(payload);
            Self::new(random, six, TCP, &ports, Some(16))
        } else {
            ports.extend((8 + payload.len() as u16).to_be_bytes());
            ports.extend([0, 0]);
            ports.extend(payload);
            Self::new(random, six, UDP, &ports, Some(6))
        }
    }

    /// Places of bits that lengths and kinds do not hang on: addresses, the header's checksum, ports, the transport's checksum,
    /// payload.
    fn loose(&self) -> Vec<usize> {
        let header = self.header();
        let mut places: Vec<usize> = if self.six {
            (8..40).collect()
        } else {
            (10..20).collect()
        };
        let (checksum, payload) = match self.protocol {
            TCP => (16, 20),
            _ => (6, 8),
        };
        let transport = (0..2).chain(checksum..checksum + 2);
        places.extend(
            transport
                .chain(payload..self.body().len())
                .map(|at| header + at),
        );
        places
    }

    /// Returns `true` if the header's checksum is right, and `true` if the transport's is: by smoltcp.
    fn verdict(&self) -> (bool, bool) {
        let (from, to): (IpAddress, IpAddress);
        let network = if self.six {
            let packet = Ipv6Packet::new_checked(&self.bytes[..]).expect("IPv6");
            (from, to) = (packet.src_addr().into(), packet.dst_addr().into());
            true
        } else {
            let packet = Ipv4Packet::new_checked(&self.bytes[..]).expect("IPv4");
            (from, to) = (packet.src_addr().into(), packet.dst_addr().into());
            packet.verify_checksum()
        };
        let transport = match self.protocol {
            TCP => TcpPacket::new_checked(self.body())
                .expect("TCP")
                .verify_checksum(&from, &to),
            UDP => UdpPacket::new_checked(self.body())
                .expect("UDP")
                .verify_checksum(&from, &to),
            // GRE's own, if it says that there is one.
            _ => self.body()[0] & 0x80 == 0 || sum(&[self.body()]) == 0,
        };
        (network, network && transport)
    }

    /// The hash of the description's concatenation for packets of a kind.
    fn hash(&self, packets: HashedPackets) -> u32 {
        let (six, protocol) = match packets {
            HashedPackets::TcpIpv4 => (false, TCP),
            HashedPackets::TcpIpv6 => (true, TCP),
            HashedPackets::UdpIpv4 => (false, UDP),
            HashedPackets::UdpIpv6 => (true, UDP),
            HashedPackets::Ipv4 => (false, 0),
            HashedPackets::Ipv6 => (true, 0),
        };
        if six != self.six {
            return 0;
        }
        let (from, to) = self.addresses();
        let mut input = [from, to].concat();
        if protocol == self.protocol {
            input.extend(&self.body()[..4]);
        }
        toeplitz(&RssHash::PUBLIC_KEY, &input)
    }
}

fn ethernet(to: [u8; 6], from: [u8; 6], packet: &Ip) -> Vec<u8> {
    let kind = if packet.six { 0x86dd_u16 } else { 0x0800 };
    [&to[..], &from, &kind.to_be_bytes(), &packet.bytes].concat()
}

/// A packet, and where what it carries begins, if it is a tunnel.
fn around(random: &mut Random, inner: &Ip) -> (Ip, usize) {
    let six = random.below(2) == 1;
    let bridged = ethernet([2; 6], [4; 6], inner);
    if random.below(2) == 0 {
        let summed = six || random.below(2) == 0;
        let length = (8 + 8 + bridged.len()) as u16;
        let mut body = [9999, VXLAN_PORT, length, 0].map(u16::to_be_bytes).concat();
        body.extend([8, 0, 0, 0, 0, 0, 42, 0]);
        body.extend(&bridged);
        let outer = Ip::new(random, six, UDP, &body, summed.then_some(6));
        let at = outer.header() + 16 + 14;
        return (outer, at);
    }
    let flags = random.below(8);
    let (kind, inside): (u16, _) = match (random.below(2), inner.six) {
        (0, _) => (0x6558, &bridged),
        (_, false) => (0x0800, &inner.bytes),
        (_, true) => (0x86dd, &inner.bytes),
    };
    let mut body = vec![0; 4 + 4 * flags.count_ones() as usize];
    // Checksum, key and sequence number; the bit between the first two is another.
    body[0] = ((flags & 4) << 5 | (flags & 3) << 4) as u8;
    body[2..4].copy_from_slice(&kind.to_be_bytes());
    body.extend(inside);
    if flags & 4 != 0 {
        let value = sum(&[&body]);
        body[4..6].copy_from_slice(&value.to_be_bytes());
    }
    let at = body.len() - inner.bytes.len();
    let outer = Ip::new(random, six, GRE, &body, None);
    let at = outer.header() + at;
    (outer, at)
}

/// A packet, and one around it, of which one goes out: right, or with a bit that has changed.
struct Drawn {
    inner: Ip,
    outer: Ip,
    tunneled: bool,
}

impl Drawn {
    fn new(random: &mut Random) -> Self {
        let mut inner = Ip::draw(random);
        let (mut outer, at) = around(random, &inner);
        let tunneled = random.below(5) != 0;
        match random.below(4) {
            0 => {
                let place = at + random.pick(&inner.loose());
                outer.bytes[place] ^= 1 << random.below(8);
                inner.bytes.copy_from_slice(&outer.bytes[at..]);
            }
            1 => {
                // Addresses or the header's checksum.
                let place = random.pick(&outer.loose()[..10]);
                outer.bytes[place] ^= 1 << random.below(8);
            }
            _ => {}
        }
        Self {
            inner,
            outer,
            tunneled,
        }
    }

    fn packet(&self) -> &Ip {
        match self.tunneled {
            true => &self.outer,
            false => &self.inner,
        }
    }

    /// The device's due verdicts on headers and on what follows them.
    fn verdict(&self) -> (bool, bool) {
        let (network, transport) = self.inner.verdict();
        match self.tunneled {
            true => {
                let (around, between) = self.outer.verdict();
                (network && around, transport && between)
            }
            false => (network, transport),
        }
    }
}

fn drawn(packets: HashedPackets, headers: HashedHeaders, seed: u64) {
    println!("seed {seed:#x}");
    lab(|lab| {
        let mut random = Random(seed);
        let mut a = lab.queue(0, INIT);
        let domain = lab.sides[1].device.alloc_ethernet_domain().unwrap();
        assert!(domain.tunnels().unwrap().contains(Tunnels::all()));
        let pd = &lab.sides[1].pd;
        let mut queues: Vec<Pair<'_>> = (0..QUEUES)
            .map(|_| domain.create_queues(pd, &RING).unwrap())
            .collect();
        let numbers: Vec<_> = queues.iter().map(|(_, it)| it.number()).collect();
        let table = domain.create_indirection_table(&numbers, TABLE).unwrap();
        // What replaces a hash stays one of the same headers.
        let any = RssHash::all_of(HashedPackets::Ipv4);
        let target = domain.create_hashed_tunnel_target(&table, &any, headers);
        let mut target = target.unwrap();
        target.set_hash(&RssHash::all_of(packets)).unwrap();
        let mut slots = [FlowSlot::new(); 4];
        let mut flows = domain.create_flow_table(&mut slots, 1).unwrap();
        let to = [target.number()];
        let matches = FlowMatch::ANY.destination(domain.mac());
        let _rule = flows
            .add(&Rule::new(matches, FlowAction::Forward(&to)))
            .unwrap();
        let mut verdicts = [0; 4];
        for _ in 0..150 {
            let drawn = Drawn::new(&mut random);
            let (inner, tunneled) = (&drawn.inner, drawn.tunneled);
            let (packet, expected) = (drawn.packet(), drawn.verdict());
            let frame = ethernet(domain.mac(), lab.sides[0].mac, packet);
            send(&mut a, &frame);
            lab.pause(MS);
            let hash = match (headers, tunneled) {
                (HashedHeaders::Inner, true) => inner.hash(packets),
                (HashedHeaders::Inner, false) => 0,
                (HashedHeaders::Outer, _) => packet.hash(packets),
            };
            let place = (hash % TABLE) as usize % QUEUES;
            for (nth, (_, receive)) in queues.iter_mut().enumerate() {
                let got = receive.receive().unwrap();
                assert_eq!(got.is_some(), nth == place, "{packet:?}");
                let Some(got) = got else { continue };
                assert_eq!(got.tunneled(), tunneled, "{packet:?}");
                let said = (got.l3_ok(), got.l4_ok());
                assert_eq!(said, expected, "{inner:?} in {packet:?}");
                assert_eq!(got.hash().unwrap().value, hash, "{packet:?}");
                verdicts[usize::from(said.0) * 2 + usize::from(said.1)] += 1;
            }
        }
        // Right, wrong in the header and wrong behind it: all were there.
        assert!(verdicts[0] > 5 && verdicts[2] > 5 && verdicts[3] > 50);
    });
}

#[test]
fn verdicts_and_hashes_of_drawn_packets_in_tunnels() {
    let kinds = [
        HashedPackets::TcpIpv4,
        HashedPackets::UdpIpv6,
        HashedPackets::Ipv6,
    ];
    for (nth, packets) in kinds.into_iter().enumerate() {
        drawn(packets, HashedHeaders::Inner, 0x7e1 + nth as u64);
    }
    drawn(HashedPackets::UdpIpv4, HashedHeaders::Outer, 0x7e0);
}

#[test]
fn striding_queues_look_into_tunnels() {
    const SEED: u64 = 0x7e8;
    println!("seed {SEED:#x}");
    lab(|lab| {
        let mut random = Random(SEED);
        let mut a = lab.queue(0, INIT);
        let domain = lab.sides[1].device.alloc_ethernet_domain().unwrap();
        let made = domain.create_striding_receive(&lab.sides[1].pd, &STRIDES);
        let mut receive = made.unwrap();
        let target = domain.create_tunnel_target(receive.number()).unwrap();
        let mut slots = [FlowSlot::new(); 4];
        let mut flows = domain.create_flow_table(&mut slots, 1).unwrap();
        let to = [target.number()];
        let matches = FlowMatch::ANY.destination(domain.mac());
        let _rule = flows
            .add(&Rule::new(matches, FlowAction::Forward(&to)))
            .unwrap();
        for _ in 0..150 {
            let drawn = Drawn::new(&mut random);
            let packet = drawn.packet();
            send(&mut a, &ethernet(domain.mac(), lab.sides[0].mac, packet));
            lab.pause(MS);
            let got = receive.receive().unwrap().expect("a frame");
            assert_eq!(got.tunneled(), drawn.tunneled, "{packet:?}");
            let said = (got.l3_ok(), got.l4_ok());
            assert_eq!(said, drawn.verdict(), "{:?} in {packet:?}", drawn.inner);
            receive.give_back(got).unwrap();
        }
    });
}

/// A queue without a hash, beside a target that does not look into tunnels.
#[test]
fn only_a_target_of_tunnels_looks_into_them() {
    lab(|lab| {
        let mut random = Random(0x7e9);
        let mut a = lab.queue(0, INIT);
        let domain = lab.sides[1].device.alloc_ethernet_domain().unwrap();
        let (_send, mut receive) = domain.create_queues(&lab.sides[1].pd, &RING).unwrap();
        let inside = domain.create_tunnel_target(receive.number()).unwrap();
        let plain = domain.create_target(receive.number()).unwrap();
        let mut slots = [FlowSlot::new(); 4];
        let mut flows = domain.create_flow_table(&mut slots, 1).unwrap();
        for (target, looks) in [(&inside, true), (&plain, false)] {
            let to = [target.number()];
            let matches = FlowMatch::ANY.destination(domain.mac());
            let rule = flows
                .add(&Rule::new(matches, FlowAction::Forward(&to)))
                .unwrap();
            let inner = Ip::draw(&mut random);
            let (outer, _) = around(&mut random, &inner);
            send(&mut a, &ethernet(domain.mac(), lab.sides[0].mac, &outer));
            lab.pause(MS);
            let got = receive.receive().unwrap().expect("a frame");
            assert_eq!(got.tunneled(), looks);
            drop(got);
            flows.remove(rule).unwrap();
        }
    });
}

#[test]
fn a_card_that_does_not_look_into_tunnels_is_not_asked_to() {
    let poor = |mut card: connectx_model::Config| {
        card.ethernet
            .set_tunnel_stateless_vxlan(false)
            .set_tunnel_stateless_gre(false)
            .set_max_vxlan_udp_ports(0);
        card
    };
    lab_with(poor, |lab| {
        let domain = lab.sides[1].device.alloc_ethernet_domain().unwrap();
        assert!(domain.tunnels().unwrap().is_empty());
        let (_send, receive) = domain.create_queues(&lab.sides[1].pd, &RING).unwrap();
        let number = receive.number();
        let refused = domain.create_tunnel_target(number).err();
        assert_eq!(refused, Some(RssError::Tunnels));
        let table = domain.create_indirection_table(&[number], 1).unwrap();
        let hash = RssHash::all_of(HashedPackets::Ipv4);
        let hashed = domain.create_hashed_tunnel_target(&table, &hash, HashedHeaders::Inner);
        assert_eq!(hashed.err(), Some(RssError::Tunnels));
    });
}
