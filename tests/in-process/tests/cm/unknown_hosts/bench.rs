//! One card with a manager that listens, its own IP host beside it, and frames of any number of other hosts at the other end of
//! its wire.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use bareverbs_cm::engine::{ListenerSlot, ReplySlot, SidrSlot, Slot};
use bareverbs_cm::ip;
use bareverbs_cm::mad::*;
use bareverbs_cm::rdma::*;
use bareverbs_core::qp::QpCap;
use bareverbs_core::{Cqs, Device, EthernetInit, Gid, PageChunks, Qps, Srqs};
use bareverbs_in_process::{Builder, ModelPlatform, World};
use connectx_model::Config as Card;
use connectx_model::roce::packet::reseal;

use crate::keep::keep;
use crate::support::{self, Wire};
pub(crate) use crate::support::{PORT, Random};

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const CARD4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(crate) const CARD6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const ETHERNET: usize = 14;
const ROCE: u16 = 4791;

/// Another host on the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) mac: [u8; 6],
    pub(crate) ip: IpAddr,
}

impl Host {
    /// The one of this number: 10.x.y.z from 10.0.0.2 on.
    pub(crate) fn v4(number: u32) -> Self {
        Self::at(
            number,
            Ipv4Addr::from_bits(CARD4.to_bits() + 1 + number).into(),
        )
    }

    /// The one of this number: from 2001:db8::2 on.
    pub(crate) fn v6(number: u32) -> Self {
        let ip = Ipv6Addr::from_bits(CARD6.to_bits() + 1 + u128::from(number));
        Self::at(number, ip.into())
    }

    fn at(number: u32, ip: IpAddr) -> Self {
        let [a, b, c, d] = number.to_be_bytes();
        Self {
            mac: [0x52, 0x54, a, b, c, d],
            ip,
        }
    }

    pub(crate) fn gid(&self) -> [u8; 16] {
        Gid::from(self.ip).0
    }

    /// The card's address of this host's family.
    pub(crate) fn card(&self) -> IpAddr {
        match self.ip {
            IpAddr::V4(_) => CARD4.into(),
            IpAddr::V6(_) => CARD6.into(),
        }
    }

    /// The RDMA CM's header of a request.
    pub(crate) fn header(&self) -> [u8; CmaHeader::LEN] {
        support::header(self.ip, self.card())
    }

    pub(crate) fn req<'a>(&self, comm_id: u32, qpn: u32, header: &'a [u8]) -> Req<'a> {
        let mut guid = [0; 8];
        guid[2..].copy_from_slice(&self.mac);
        Req {
            local_ca_guid: u64::from_be_bytes(guid),
            local_qpn: qpn,
            ..support::req(self.ip, self.card(), comm_id, header)
        }
    }

    /// A REQ as it is on the wire.
    pub(crate) fn request(&self, comm_id: u32, qpn: u32) -> [u8; MAD_LEN] {
        let mut mad = [0; MAD_LEN];
        self.req(comm_id, qpn, &self.header())
            .emit(u64::from(comm_id), &mut mad)
            .unwrap();
        mad
    }

    /// A frame of this host with a MAD for QP1.
    pub(crate) fn datagram(&self, mad: &[u8; MAD_LEN]) -> Vec<u8> {
        let mut body = GSI_QKEY.to_be_bytes().to_vec();
        body.extend(1u32.to_be_bytes());
        body.extend(mad);
        self.roce(0x64, 1, 0, &body)
    }

    /// Ethernet, IP, UDP and BTH around a body without padding, and the ICRC behind.
    pub(crate) fn roce(&self, opcode: u8, qpn: u32, psn: u32, body: &[u8]) -> Vec<u8> {
        let udp_len = (8 + 12 + body.len() + 4) as u16;
        let mut frame = card_mac().to_vec();
        frame.extend(self.mac);
        match (self.ip, self.card()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                frame.extend([8, 0, 0x45, 0]);
                frame.extend((20 + udp_len).to_be_bytes());
                frame.extend([0, 1, 0x40, 0, 64, 17, 0, 0]);
                frame.extend(source.octets());
                frame.extend(destination.octets());
                let checksum = ip_checksum(&frame[ETHERNET..]);
                frame[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&checksum.to_be_bytes());
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
                frame.extend(udp_len.to_be_bytes());
                frame.extend([17, 64]);
                frame.extend(source.octets());
                frame.extend(destination.octets());
            }
            _ => unreachable!(),
        }
        frame.extend([0xd8, 0x72]);
        frame.extend(ROCE.to_be_bytes());
        frame.extend(udp_len.to_be_bytes());
        frame.extend([0, 0, opcode, 0, 0xff, 0xff]);
        frame.extend(qpn.to_be_bytes());
        frame.extend((0x8000_0000 | psn).to_be_bytes());
        frame.extend(body);
        frame.extend([0; 4]);
        assert!(reseal(&mut frame));
        frame
    }

    /// Its question for the card's address (ARP, or a neighbour solicitation), which says where it is itself.
    pub(crate) fn asks(&self) -> Vec<u8> {
        match (self.ip, self.card()) {
            (IpAddr::V4(own), IpAddr::V4(card)) => arp(1, [0xff; 6], self.mac, own, [0; 6], card),
            (IpAddr::V6(own), IpAddr::V6(card)) => {
                let tail = card.octets();
                let mut group = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 0];
                group[13..].copy_from_slice(&tail[13..]);
                let to = [0x33, 0x33, 0xff, tail[13], tail[14], tail[15]];
                ndisc(135, 0, to, self.mac, own, group.into(), card, 1)
            }
            _ => unreachable!(),
        }
    }

    /// Its answer to the card's question for it.
    pub(crate) fn answers(&self) -> Vec<u8> {
        match (self.ip, self.card()) {
            (IpAddr::V4(own), IpAddr::V4(card)) => {
                arp(2, card_mac(), self.mac, own, card_mac(), card)
            }
            (IpAddr::V6(own), IpAddr::V6(card)) => {
                ndisc(136, 0x60, card_mac(), self.mac, own, card, own, 2)
            }
            _ => unreachable!(),
        }
    }
}

fn arp(
    operation: u8,
    to: [u8; 6],
    mac: [u8; 6],
    source: Ipv4Addr,
    target_mac: [u8; 6],
    target: Ipv4Addr,
) -> Vec<u8> {
    let mut frame = to.to_vec();
    frame.extend(mac);
    frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, operation]);
    frame.extend(mac);
    frame.extend(source.octets());
    frame.extend(target_mac);
    frame.extend(target.octets());
    frame.resize(60, 0);
    frame
}

#[expect(clippy::too_many_arguments, reason = "the fields of a message")]
fn ndisc(
    kind: u8,
    flags: u8,
    to: [u8; 6],
    mac: [u8; 6],
    source: Ipv6Addr,
    destination: Ipv6Addr,
    target: Ipv6Addr,
    option: u8,
) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0, flags, 0, 0, 0];
    message.extend(target.octets());
    message.extend([option, 1]);
    message.extend(mac);
    let mut pseudo = source.octets().to_vec();
    pseudo.extend(destination.octets());
    pseudo.extend([0, 0, 0, message.len() as u8, 0, 0, 0, 58]);
    pseudo.extend(&message);
    let checksum = ip_checksum(&pseudo);
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    let mut frame = to.to_vec();
    frame.extend(mac);
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, message.len() as u8, 58, 255]);
    frame.extend(source.octets());
    frame.extend(destination.octets());
    frame.extend(message);
    frame
}

fn ip_checksum(bytes: &[u8]) -> u16 {
    let words = bytes.as_chunks::<2>().0;
    let mut sum: u32 = words
        .iter()
        .map(|word| u32::from(u16::from_be_bytes(*word)))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// A frame that the card sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SentFrame {
    /// A query for the owner of an address.
    Asks(IpAddr),
    /// A message of the CM, to this address.
    Mad(IpAddr, Box<[u8; MAD_LEN]>),
    Other,
}

impl SentFrame {
    pub(crate) fn of(frame: &[u8]) -> Self {
        let kind = u16::from_be_bytes([frame[12], frame[13]]);
        let four = |at: usize| Ipv4Addr::from(<[u8; 4]>::try_from(&frame[at..at + 4]).unwrap());
        let six = |at: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&frame[at..at + 16]).unwrap());
        let (destination, transport): (IpAddr, _) = match kind {
            0x0806 if frame[21] == 1 && frame[28..32] != frame[38..42] => {
                return Self::Asks(four(38).into());
            }
            0x86dd if frame[20] == 58 && frame[54] == 135 => return Self::Asks(six(62).into()),
            0x0800 if frame[23] == 17 => (four(30).into(), ETHERNET + 20),
            0x86dd if frame[20] == 17 => (six(38).into(), ETHERNET + 40),
            _ => return Self::Other,
        };
        let bth = transport + 8;
        if frame[bth] != 0x64 {
            return Self::Other;
        }
        let mad = bth + 12 + 8;
        Self::Mad(
            destination,
            Box::new(frame[mad..mad + MAD_LEN].try_into().unwrap()),
        )
    }
}

/// Only queries and announcements of the IP host go to a group, for any source of a received packet.
pub(crate) fn check_destination(frame: &[u8]) -> Result<(), String> {
    let kind = u16::from_be_bytes([frame[12], frame[13]]);
    let (address, protocol): (IpAddr, u8) = match kind {
        0x0800 => (
            <[u8; 4]>::try_from(&frame[30..34]).unwrap().into(),
            frame[23],
        ),
        0x86dd => (
            <[u8; 16]>::try_from(&frame[38..54]).unwrap().into(),
            frame[20],
        ),
        _ => return Ok(()),
    };
    if protocol != 17 {
        return Ok(());
    }
    let group = match address {
        IpAddr::V4(address) => {
            matches!(address.octets(), [0 | 127 | 224.., ..])
                || address == Ipv4Addr::new(10, 255, 255, 255)
        }
        IpAddr::V6(address) => {
            address.is_multicast() || address.is_unspecified() || address.is_loopback()
        }
    };
    if group || frame[0] & 1 != 0 || frame[..6] == [0; 6] {
        return Err(format!("a message to {address}, {:02x?}", &frame[..6]));
    }
    Ok(())
}

fn card_mac() -> [u8; 6] {
    Card::new(1).mac
}

pub(crate) type Cm =
    RdmaCm<'static, 'static, ModelPlatform, NeighbourDiscovery<'static, 'static, ModelPlatform>>;

/// The manager's storage.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Capacity {
    pub(crate) ids: usize,
    pub(crate) neighbours: usize,
    pub(crate) gsi_depth: u32,
}

impl Default for Capacity {
    fn default() -> Self {
        Self {
            ids: 16,
            neighbours: 16,
            gsi_depth: 64,
        }
    }
}

/// Storage until the end of the test.
fn some<T: 'static>(count: usize, mut one: impl FnMut() -> T) -> &'static mut [T] {
    let all: Vec<T> = (0..count).map(|_| one()).collect();
    keep(all)
}

/// One card with a manager that listens, and its wire.
pub(crate) struct Bench {
    pub(crate) world: World,
    pub(crate) cm: Cm,
    pub(crate) channel: ChannelId,
    wire: Wire,
}

impl Bench {
    pub(crate) fn new(capacity: Capacity) -> Self {
        let wire = Wire::default();
        let world = Builder::with_link(Box::new(wire.clone()), 0)
            .function(Card::new(1))
            .stepped();
        let memory = keep(bareverbs_core::Resources::<
            Qps<128>,
            Cqs<256>,
            Srqs<2>,
            PageChunks<256>,
        >::new());
        let config = bareverbs_core::Config::DEFAULT;
        let device: &'static Device<'_, _> = keep(world.open(0, config, memory.storage(), &[]));
        let pd = keep(device.default_pd().unwrap());
        let storage = ip::Storage {
            addresses: some(2, || ip::AddressSlot::EMPTY),
            neighbours: some(capacity.neighbours, || ip::NeighbourSlot::EMPTY),
            routes: some(1, || None),
            groups: some(8, || ip::GroupSlot::EMPTY),
        };
        let config = ip::Config {
            ipv6_probes: 0,
            announcements: 0,
            ..ip::Config::new(1)
        };
        let mut neighbours =
            NeighbourDiscovery::new(device, pd, EthernetInit::default(), config, storage)
                .expect("an Ethernet queue");
        neighbours.add_address(CARD4.into(), 8, None).unwrap();
        neighbours.add_address(CARD6.into(), 64, None).unwrap();
        let storage = Self::storage(capacity);
        let config = Config {
            gsi_depth: capacity.gsi_depth,
            ..Config::new(3)
        };
        let mut cm = RdmaCm::new(device, neighbours, config, storage).expect("QP1");
        let channel = cm.create_event_channel().unwrap();
        let listener = cm.create_id(Some(channel), 0, PortSpace::Tcp).unwrap();
        let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), PORT);
        cm.bind_addr(listener, any).unwrap();
        cm.listen(listener, 0).unwrap();
        let mut bench = Self {
            world,
            cm,
            channel,
            wire,
        };
        bench.run(MS);
        bench.sent();
        bench
    }

    fn storage(capacity: Capacity) -> Storage<'static, 'static, ModelPlatform> {
        Storage {
            ids: some(capacity.ids, || IdSlot::EMPTY),
            channels: some(1, || ChannelSlot::EMPTY),
            connections: some(capacity.ids, || Slot::EMPTY),
            listeners: some(2, || ListenerSlot::EMPTY),
            replies: some(32, || ReplySlot::EMPTY),
            sidr: some(4, || SidrSlot::EMPTY),
            groups: some(1, || GroupSlot::EMPTY),
            deferred_mads: some(capacity.ids, || DeferredMadSlot::EMPTY),
        }
    }

    /// Puts a frame on the wire.
    pub(crate) fn put(&mut self, frame: Vec<u8>) {
        self.wire.put(frame);
    }

    /// Puts a frame on the wire, and lets more time pass than an answer needs, and less than any timer.
    pub(crate) fn say(&mut self, frame: Vec<u8>) {
        self.put(frame);
        self.run(MS / 2);
    }

    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.world.now() + time;
        let step = (time / 5).min(10 * MS);
        while self.world.now() < end {
            self.world.advance(step);
            self.cm.poll(self.cm.now()).unwrap();
        }
    }

    /// The frames that the card sent since. A message to a group is an error.
    pub(crate) fn sent(&mut self) -> Vec<SentFrame> {
        let frames = self.wire.take();
        let check = |frame: &Vec<u8>| {
            check_destination(frame).unwrap();
            SentFrame::of(frame)
        };
        frames.iter().map(check).collect()
    }

    /// The messages of the CM among them.
    pub(crate) fn mads(&mut self) -> Vec<(IpAddr, Box<[u8; MAD_LEN]>)> {
        let mad = |said| match said {
            SentFrame::Mad(to, mad) => Some((to, mad)),
            _ => None,
        };
        self.sent().into_iter().filter_map(mad).collect()
    }

    pub(crate) fn event(&mut self) -> Option<CmEvent> {
        self.cm.try_get_cm_event(self.channel).unwrap()
    }

    /// Gives a request's id a QP, and accepts.
    pub(crate) fn accept(&mut self, id: CmId) -> Result<(), RdmaError> {
        let mut init = QpInit {
            cap: QpCap {
                max_send_wr: 1,
                max_recv_wr: 1,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            ..QpInit::default()
        };
        self.cm.create_qp(id, None, &mut init)?;
        self.cm.accept(id, None)
    }
}
