//! Frames by hand, and a card with a manager at the other end of the wire.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bareverbs_cm::mad::*;
use bareverbs_cm::rdma::{self, *};
use bareverbs_core::{Buffer, Cqs, Device, PageChunks, Qps, Srqs};
use bareverbs_in_process::{Builder, ModelPlatform, World};
use connectx_model::Config as Card;

use crate::keep::keep;
use crate::support::{self, PORT, Wire};

const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
const PEER: [u8; 4] = [10, 0, 0, 1];
const CARD: [u8; 4] = [10, 0, 0, 2];
/// Number of the peer's QP.
pub(crate) const PEER_QP: u32 = 0x77;

const ETHERNET: usize = 14;
const BTH: usize = ETHERNET + 20 + 8;
const DETH: usize = BTH + 12;
const UD_SEND_ONLY: u8 = 0x64;
const ACKNOWLEDGE: u8 = 0x11;

/// Properties of a datagram to QP1 that a test may change.
pub(crate) struct Datagram {
    pub(crate) qkey: u32,
    pub(crate) source_qp: u32,
    pub(crate) pkey: u16,
}

impl Default for Datagram {
    fn default() -> Self {
        Self {
            qkey: GSI_QKEY,
            source_qp: 1,
            pkey: 0xffff,
        }
    }
}

/// A frame of the peer that carries a MAD.
pub(crate) fn datagram(mad: &[u8; MAD_LEN], how: &Datagram) -> Vec<u8> {
    let mut body = how.qkey.to_be_bytes().to_vec();
    body.extend(how.source_qp.to_be_bytes());
    body.extend(mad);
    frame(UD_SEND_ONLY, how.pkey, 1, 0, &body)
}

/// A frame of the peer's QP to one of the card's that asks for an acknowledgement.
pub(crate) fn rc(opcode: u8, qpn: u32, psn: u32, body: &[u8]) -> Vec<u8> {
    frame(opcode, 0xffff, qpn, psn, body)
}

/// Ethernet, IPv4, UDP and BTH around extended headers and payload, and the ICRC behind. Bodies here need no padding.
fn frame(opcode: u8, pkey: u16, qpn: u32, psn: u32, body: &[u8]) -> Vec<u8> {
    let udp_len = 8 + 12 + body.len() + 4;
    let mut frame = card_mac().to_vec();
    frame.extend(PEER_MAC);
    frame.extend([0x08, 0x00]);
    frame.extend([0x45, 0]);
    frame.extend((20 + udp_len as u16).to_be_bytes());
    frame.extend([0, 1, 0x40, 0, 64, 17, 0, 0]);
    frame.extend(PEER);
    frame.extend(CARD);
    let checksum = ip_checksum(&frame[ETHERNET..]);
    frame[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&checksum.to_be_bytes());
    frame.extend([0xd8, 0x72, 0x12, 0xb7]);
    frame.extend((udp_len as u16).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend([opcode, 0]);
    frame.extend(pkey.to_be_bytes());
    frame.extend(qpn.to_be_bytes());
    frame.extend((0x8000_0000 | psn).to_be_bytes());
    frame.extend(body);
    let icrc = icrc(&frame[ETHERNET..]);
    frame.extend(icrc);
    frame
}

fn ip_checksum(header: &[u8]) -> u16 {
    let words = header.as_chunks::<2>().0;
    let sum: u32 = words
        .iter()
        .map(|word| u32::from(u16::from_be_bytes(*word)))
        .sum();
    !((sum & 0xffff) + (sum >> 16)) as u16
}

/// The invariant CRC of an IPv4 packet without it: what routers may change counts as ones.
fn icrc(packet: &[u8]) -> [u8; 4] {
    let mut bytes = vec![0xff; 8];
    bytes.extend(packet);
    for at in [1, 8, 10, 11, 26, 27, 32] {
        bytes[8 + at] = 0xff;
    }
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
        }
    }
    (!crc).to_le_bytes()
}

/// A packet of the card.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    opcode: u8,
    pub(crate) destination_qp: u32,
    pub(crate) psn: u32,
    body: Vec<u8>,
}

impl Packet {
    fn parse(frame: &[u8]) -> Self {
        let (covered, crc) = frame.split_at(frame.len() - 4);
        assert_eq!(crc, icrc(&covered[ETHERNET..]));
        let word = |at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().unwrap());
        Self {
            opcode: frame[BTH],
            destination_qp: word(BTH + 4) & 0xff_ffff,
            psn: word(BTH + 8) & 0xff_ffff,
            body: covered[DETH..].to_vec(),
        }
    }

    #[track_caller]
    pub(crate) fn mad(&self) -> &[u8] {
        assert_eq!(self.opcode, UD_SEND_ONLY);
        &self.body[8..]
    }

    #[track_caller]
    pub(crate) fn syndrome(&self) -> u8 {
        assert_eq!(self.opcode, ACKNOWLEDGE);
        self.body[0]
    }
}

fn card() -> Card {
    Card::new(1)
}

fn card_mac() -> [u8; 6] {
    card().mac
}

/// One card with a manager that listens, and its wire.
pub(crate) struct Bench {
    world: World,
    pub(crate) cm: RdmaCm<'static, 'static, ModelPlatform, StaticNeighbours<'static>>,
    channel: ChannelId,
    wire: Wire,
    buffers: Vec<Buffer<'static, ModelPlatform>>,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let wire = Wire::default();
        let world = Builder::with_link(Box::new(wire.clone()), 0)
            .function(card())
            .stepped();
        let memory = keep(bareverbs_core::Resources::<
            Qps<16>,
            Cqs<32>,
            Srqs<2>,
            PageChunks<256>,
        >::new());
        let config = bareverbs_core::Config::DEFAULT;
        let device: &'static Device<'_, _> =
            keep(world.open(0, config, memory.storage(), &[IpAddr::from(CARD)]));
        let neighbours = keep([(IpAddr::from(PEER), PEER_MAC)]);
        let storage = keep(rdma::Resources::<Ids<ModelPlatform, 8>, Channels<1>>::new());
        let mut cm = RdmaCm::new(
            device,
            StaticNeighbours(neighbours),
            rdma::Config::new(3),
            storage.storage(),
        )
        .expect("QP1");
        let channel = cm.create_event_channel().unwrap();
        let listener = cm.create_id(Some(channel), 0, PortSpace::Tcp).unwrap();
        cm.bind_addr(listener, SocketAddr::new(IpAddr::from(CARD), PORT))
            .unwrap();
        cm.listen(listener, 0).unwrap();
        Self {
            world,
            cm,
            channel,
            wire,
            buffers: Vec::new(),
        }
    }

    /// Puts a frame on the wire and lets a millisecond pass: more than an answer needs, less than any timer.
    pub(crate) fn say(&mut self, frame: Vec<u8>) {
        self.wire.put(frame);
        self.run();
    }

    pub(crate) fn run(&mut self) {
        for _ in 0..10 {
            self.world.advance(Duration::from_micros(100));
            self.cm.poll(self.cm.now()).unwrap();
        }
    }

    /// The packets that the card has sent since the last call.
    pub(crate) fn sent(&mut self) -> Vec<Packet> {
        self.wire
            .take()
            .iter()
            .map(|frame| Packet::parse(frame))
            .collect()
    }

    pub(crate) fn event(&mut self) -> Option<EventType> {
        let event = self.cm.try_get_cm_event(self.channel).unwrap();
        event.map(|event| event.event)
    }

    #[track_caller]
    pub(crate) fn request(&mut self) -> CmId {
        let event = self.cm.try_get_cm_event(self.channel).unwrap();
        let event = event.expect("a request");
        assert_eq!(event.event, EventType::ConnectRequest);
        event.id
    }

    /// Memory of receives stays until the card has no use for it.
    pub(crate) fn keep(&mut self, buffer: Buffer<'static, ModelPlatform>) {
        self.buffers.push(buffer);
    }
}

/// The RDMA CM's header of the peer's requests.
pub(crate) fn header() -> [u8; CmaHeader::LEN] {
    support::header(PEER.into(), CARD.into())
}

pub(crate) fn req(comm_id: u32, private_data: &[u8]) -> Req<'_> {
    Req {
        local_qpn: PEER_QP,
        responder_resources: 0,
        initiator_depth: 0,
        ..support::req(PEER.into(), CARD.into(), comm_id, private_data)
    }
}
