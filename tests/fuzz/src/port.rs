//! A port with everything behind it: the card's model, the driver, QPs of each kind, the connection manager on the GSI, and
//! the IP host on the Ethernet queue. The other end of the cable is the input.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use bareverbs_cm::ip::{self, Addresses, Groups, Neighbours, Routes};
use bareverbs_cm::mad::GSI_QKEY;
use bareverbs_cm::rdma::{self, *};
use bareverbs_core::qp::{SendData, SendOp, SendWr, transition};
use bareverbs_core::{
    Access, AhAttr, Buffer, Cq, CqInit, Cqs, Device, EthernetInit, Gid, Mtu, PageChunks, Pd, Qp,
    QpAttr, QpAttrMask, QpCap, QpInitAttr, QpState, QpType, Qps, Rc, Remote, Resources, SendFlags,
    Srqs, Uc, Ud,
};
use bareverbs_in_process::{Builder, ModelPlatform, World};
use connectx_model::link::Link;
use connectx_model::roce::packet::reseal;
use connectx_model::{Config as Card, Objects};

use crate::frame::{self, OURS, THEIRS};
use crate::input::{Input, STEPS};
use crate::message;

const US: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const THEM: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// Where this end's QPs begin to count, in either direction.
const PSN: u32 = 0x10_0000;
const QKEY: u32 = 0x1234_5678;
/// Virtual time of an input at most: the model looks after a QP in error a thousand times a second. The timers of connections
/// are shorter.
const LONGEST: Duration = Duration::from_secs(5);
const MEMORY: usize = 4096;
const ALL: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC);
const CAP: QpCap = QpCap {
    max_send_wr: 8,
    max_recv_wr: 8,
    max_send_sge: 1,
    max_recv_sge: 1,
    max_inline_data: 16,
};

type Driver<'d> = Device<'d, ModelPlatform>;
type Cm<'s, 'd> = RdmaCm<'s, 'd, ModelPlatform, NeighbourDiscovery<'s, 'd, ModelPlatform>>;

/// Runs an input; nothing may fail but what it played itself, nothing may be reached beyond the memory that is mapped, and
/// nothing may be left.
pub(crate) fn run(input: &mut Input<'_>) {
    let card = Card {
        mac: OURS,
        ..Card::new(1)
    };
    let world = Builder::with_link(Box::new(Inlet::default()), 0)
        .function(card)
        .stepped();
    let mut resources = Box::new(Resources::<Qps<12>, Cqs<24>, Srqs<1>, PageChunks<64>>::new());
    let device = world.open(0, bareverbs_core::Config::DEFAULT, resources.storage(), &[]);
    with_device(&world, &device, input);
    device.close().expect("closed in order");
    assert_eq!(world.take_faults(0), []);
    assert_eq!(world.accounting(0).allocated, 0);
    world.with_model(0, |model| {
        assert_eq!(model.objects(), Objects::default());
    });
}

/// Where a frame goes, if it is a RoCE v2 packet: a datagram to UDP port 4791.
fn roce_destination(frame: &[u8]) -> Option<IpAddr> {
    const UDP: u8 = 17;
    let (to, protocol, udp): (IpAddr, u8, usize) = match frame.get(12..14)? {
        [8, 0] => {
            let to: [u8; 4] = frame.get(30..34)?.try_into().ok()?;
            (to.into(), *frame.get(23)?, 34)
        }
        [0x86, 0xdd] => {
            let to: [u8; 16] = frame.get(38..54)?.try_into().ok()?;
            (to.into(), *frame.get(20)?, 54)
        }
        _ => return None,
    };
    let port = frame.get(udp + 2..udp + 4)?;
    (protocol == UDP && port == 4791_u16.to_be_bytes()).then_some(to)
}

/// Returns `true` if an address can be that of one other host: no wildcard, loopback, group, or broadcast address, that of
/// the port's own link included.
fn is_host(address: IpAddr) -> bool {
    if let IpAddr::V4(v4) = address {
        // 0.0.0.0/8 and 240.0.0.0/4, and the first and the last address of the link, which is 10.0.0.0/24.
        let [first, .., last] = v4.octets();
        let link = v4.octets()[..3] == US.octets()[..3];
        if first == 0 || first >= 240 || link && (last == 0 || last == 255) {
            return false;
        }
    }
    !(address.is_unspecified() || address.is_loopback() || address.is_multicast())
}

/// A cable whose far end is the input, which does not listen. It looks where RoCE packets go.
#[derive(Default)]
struct Inlet(VecDeque<Vec<u8>>);

impl Link for Inlet {
    fn send(&mut self, from: usize, frame: &[u8], _: Duration) {
        if from == 1 {
            self.0.push_back(frame.to_vec());
        } else if let Some(to) = roce_destination(frame) {
            assert!(
                is_host(to) && frame[0] & 1 == 0,
                "a RoCE packet goes to {to}: {frame:02x?}"
            );
        }
    }

    fn receive(&mut self, _: usize, _: Duration, frame: &mut Vec<u8>) -> bool {
        let next = self.0.pop_front();
        let any = next.is_some();
        frame.clear();
        frame.extend(next.unwrap_or_default());
        any
    }

    fn next_arrival(&self) -> Option<Duration> {
        (!self.0.is_empty()).then_some(Duration::ZERO)
    }
}

/// What the input plays against.
struct Port<'w, 's, 'd> {
    world: &'w World,
    device: &'d Driver<'d>,
    cm: Cm<'s, 'd>,
    channel: ChannelId,
    rc: Qp<'d, ModelPlatform, Rc>,
    uc: Qp<'d, ModelPlatform, Uc>,
    ud: Qp<'d, ModelPlatform, Ud>,
    /// Goes after the QPs.
    cq: Cq<'d, ModelPlatform>,
    memory: Buffer<'d, ModelPlatform>,
    ids: Vec<CmId>,
    /// What this end's connections are called on the wire.
    names: Vec<u32>,
}

fn with_device<'d>(world: &World, device: &'d Driver<'d>, input: &mut Input<'_>) {
    let pd = device.alloc_pd().expect("a PD");
    let mut hosts = ip::Resources::<Addresses<2>, Neighbours<4>, Routes<1>, Groups<8>>::new();
    let mut storage = Box::new(rdma::Resources::<Ids<ModelPlatform, 6>, Channels<1>>::new());
    let mut neighbours = NeighbourDiscovery::new(
        device,
        &pd,
        // Small, as each input makes and frees it.
        EthernetInit {
            send_frames: 8,
            recv_frames: 8,
            ..EthernetInit::default()
        },
        ip::Config::new(1),
        hosts.storage(),
    )
    .expect("an Ethernet queue");
    neighbours
        .add_address(US.into(), 24, None)
        .expect("an address");
    let config = rdma::Config {
        gsi_depth: 16,
        trace: true,
        ..rdma::Config::new(1)
    };
    let mut cm = RdmaCm::new(device, neighbours, config, storage.storage()).expect("QP1");
    let channel = cm.create_event_channel().expect("a channel");
    let listener = cm
        .create_id(Some(channel), 0, PortSpace::Tcp)
        .expect("an id");
    let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 7174);
    cm.bind_addr(listener, any).expect("a free port");
    cm.listen(listener, 2).expect("listening");
    let cq = device.create_cq(CqInit::new(63)).expect("a CQ");
    let memory = pd.alloc_buffer(MEMORY, ALL).expect("memory");
    let port = Port {
        rc: qp(&pd, &cq, &memory),
        uc: qp(&pd, &cq, &memory),
        ud: qp(&pd, &cq, &memory),
        world,
        device,
        cm,
        channel,
        cq,
        memory,
        ids: vec![listener],
        names: Vec::new(),
    };
    port.play(input);
}

/// A QP in RTS with receives, whose other end is the input.
fn qp<'d, T: QpType>(
    pd: &Pd<'d, ModelPlatform>,
    cq: &Cq<'d, ModelPlatform>,
    memory: &Buffer<'d, ModelPlatform>,
) -> Qp<'d, ModelPlatform, T> {
    let mut init = QpInitAttr {
        send_cq: cq,
        recv_cq: cq,
        srq: None,
        cap: CAP,
        sq_sig_all: false,
    };
    let mut qp = pd.create_qp::<T>(&mut init).expect("a QP");
    let mut attr = QpAttr {
        path_mtu: Mtu::B1024,
        qkey: QKEY,
        rq_psn: PSN,
        sq_psn: PSN,
        dest_qp_num: qp.qpn(),
        qp_access_flags: ALL,
        ah_attr: AhAttr {
            dgid: Gid::from_ipv4(THEM),
            sgid_index: 0,
            hop_limit: 64,
            dmac: THEIRS,
            ..AhAttr::default()
        },
        max_rd_atomic: 4,
        max_dest_rd_atomic: 4,
        min_rnr_timer: 1,
        port_num: 1,
        timeout: 10,
        retry_cnt: 3,
        rnr_retry: 3,
        ..QpAttr::DEFAULT
    };
    for to in [QpState::Init, QpState::Rtr, QpState::Rts] {
        attr.qp_state = to;
        let row = transition(T::KIND, qp.state(), to).expect("a transition");
        qp.modify(&attr, row.required | QpAttrMask::STATE)
            .expect("modified");
    }
    for nth in 0..4 {
        let sge = memory.sge(nth * 600, 600).expect("inside");
        qp.recv_queue()
            .post(nth as u64, &[sge])
            .expect("queue space");
    }
    qp
}

/// For the QPs of ids.
fn init<'a, 'd>() -> QpInit<'a, 'd, ModelPlatform> {
    QpInit {
        cap: CAP,
        ..QpInit::default()
    }
}

impl Port<'_, '_, '_> {
    fn play(mut self, input: &mut Input<'_>) {
        for _ in 0..STEPS {
            if input.is_empty() {
                break;
            }
            let step = input.byte();
            match step % 8 {
                0 => {
                    let mut frame = frame::frame(input, step & 0x10 != 0);
                    if step & 0x20 != 0 {
                        reseal(&mut frame);
                    }
                    self.arrive(&frame);
                }
                1 | 2 => self.packet(input, step >> 4),
                3 => {
                    let name = input.one_of(&self.names).unwrap_or(0);
                    let mad = message::any(input, name);
                    let deth = [&GSI_QKEY.to_be_bytes()[..], &[0, 0, 0, 1]].concat();
                    self.roce(0x64, 0x40, 1, PSN, &[&deth[..], &mad].concat());
                }
                4 => self.post(input),
                5 => {
                    let pause = Duration::from_micros(1 << (input.byte() % 24));
                    if self.world.now() + pause < LONGEST {
                        self.world.advance(pause);
                    }
                }
                6 => self.news(input.byte()),
                _ => self.connect(input.byte()),
            }
            self.turn();
        }
        for id in std::mem::take(&mut self.ids) {
            let _ = self.cm.destroy_id(id);
        }
        self.turn();
    }

    /// Everything at this end has its turn.
    fn turn(&mut self) {
        self.world.step();
        self.cm.poll(self.cm.now()).expect("a healthy device");
        self.device.poll().expect("a healthy device");
        while let Some(entry) = self.cm.next_trace() {
            if entry.sent && !self.names.contains(&entry.local_comm_id) {
                self.names.push(entry.local_comm_id);
            }
        }
        while self.device.next_async_event().is_some() {}
        while let Some(completion) = self.cq.poll().expect("a healthy CQ") {
            let wc = completion.to_wc();
            assert!(wc.byte_len as usize <= MEMORY, "{wc:?}");
        }
        self.world.step();
    }

    /// A frame comes in.
    fn arrive(&self, frame: &[u8]) {
        let now = self.world.now();
        self.world.with_wire(|wire| wire.send(1, frame, now));
        self.world.step();
    }

    /// A packet to one of the QPs, of any kind, with extended headers that may be right.
    fn packet(&mut self, input: &mut Input<'_>, kind: u8) {
        let (opcode, flags, which) = (input.byte(), input.byte(), input.byte());
        let psn = PSN.wrapping_add_signed(i32::from(input.byte() as i8)) & 0xff_ffff;
        let qpn = match which % 4 {
            0 => self.rc.qpn().number(),
            1 => self.uc.qpn().number(),
            2 => self.ud.qpn().number(),
            _ => u32::from(which >> 2),
        };
        let mut rest = Vec::new();
        // RETH or AtomicETH of our memory.
        if kind & 1 != 0 {
            let address = self.memory.addr() + u64::from(input.word());
            rest.extend(address.to_be_bytes());
            rest.extend(self.memory.rkey().0.to_be_bytes());
            rest.extend(u32::from(input.word()).to_be_bytes());
        }
        // DETH.
        if kind & 2 != 0 {
            rest.extend(QKEY.to_be_bytes());
            rest.extend([0, 0, 0, 2]);
        }
        let len = usize::from(input.byte()) * if kind & 4 != 0 { 8 } else { 1 };
        let bytes = input.bytes(len);
        rest.extend(bytes);
        // A payload may be longer than the input has bytes for.
        if kind & 4 != 0 {
            rest.resize(rest.len() + len - bytes.len(), 0x5a);
        }
        let psn_and_ack = if kind & 8 != 0 { psn | 1 << 31 } else { psn };
        self.roce(opcode, flags, qpn, psn_and_ack, &rest);
    }

    /// A RoCE v2 packet with everything below it right.
    fn roce(&self, opcode: u8, flags: u8, qpn: u32, psn: u32, rest: &[u8]) {
        let length = (20 + 8 + 12 + rest.len() + 4) as u16;
        let mut frame = [&OURS[..], &THEIRS, &[8, 0]].concat();
        let mut ip = [0; 20];
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&length.to_be_bytes());
        ip[6..10].copy_from_slice(&[0x40, 0, 64, 17]);
        ip[12..16].copy_from_slice(&THEM.octets());
        ip[16..20].copy_from_slice(&US.octets());
        let mut sum: u32 = ip
            .as_chunks::<2>()
            .0
            .iter()
            .map(|pair| u32::from(u16::from_be_bytes(*pair)))
            .sum();
        sum = (sum & 0xffff) + (sum >> 16);
        sum = (sum & 0xffff) + (sum >> 16);
        ip[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
        frame.extend(ip);
        frame.extend(0xc000_u16.to_be_bytes());
        frame.extend(4791_u16.to_be_bytes());
        frame.extend((length - 20).to_be_bytes());
        frame.extend([0, 0]);
        frame.extend([opcode, flags, 0xff, 0xff]);
        frame.extend(qpn.to_be_bytes());
        frame.extend(psn.to_be_bytes());
        frame.extend(rest);
        frame.extend([0; 4]);
        reseal(&mut frame);
        self.arrive(&frame);
    }

    fn post(&mut self, input: &mut Input<'_>) {
        let (kind, len) = (input.byte(), usize::from(input.word()) % MEMORY);
        let sges = [self.memory.sge(0, len).expect("inside")];
        let remote = Remote {
            addr: 0x1000,
            rkey: self.memory.rkey(),
        };
        let op = match kind >> 2 & 3 {
            0 => SendOp::Send,
            1 => SendOp::WriteImm(remote, 7),
            2 => SendOp::Read(remote),
            _ => SendOp::Write(remote),
        };
        let wr = SendWr {
            wr_id: 9,
            op,
            flags: SendFlags::SIGNALED,
            data: SendData::Sges(&sges),
        };
        // A full or failed queue says so.
        match kind & 3 {
            0 => drop(self.rc.send_queue().post(&wr)),
            1 => drop(self.uc.send_queue().post(&wr)),
            2 => drop(self.rc.recv_queue().post(3, &sges)),
            _ => drop(self.ud.recv_queue().post(3, &sges)),
        }
    }

    /// Requests are answered as the input says.
    fn news(&mut self, answer: u8) {
        while let Some(event) = self
            .cm
            .try_get_cm_event(self.channel)
            .expect("the channel exists")
        {
            if event.event != EventType::ConnectRequest {
                continue;
            }
            self.ids.push(event.id);
            let _ = match answer % 4 {
                0 => self.cm.reject(event.id, b"no"),
                1 => Ok(()),
                _ => {
                    let qp = self.cm.create_qp(event.id, None, &mut init());
                    qp.and_then(|()| self.cm.accept(event.id, None))
                }
            };
        }
        if answer & 0x80 != 0 && self.ids.len() > 1 {
            let id = self
                .ids
                .remove(1 + usize::from(answer) % (self.ids.len() - 1));
            let _ = self.cm.destroy_id(id);
        }
    }

    /// The next call of a connection from this end, or hanging up.
    fn connect(&mut self, which: u8) {
        let there = SocketAddr::new(IpAddr::from(THEM), 7174);
        let second = Duration::from_secs(1);
        let Some(&id) = self.ids.get(usize::from(which)) else {
            if let Ok(id) = self.cm.create_id(Some(self.channel), 0, PortSpace::Tcp) {
                self.ids.push(id);
            }
            return;
        };
        let cm = &mut self.cm;
        // A call that makes no sense says so.
        let _ = match cm.state(id) {
            Ok(IdState::Idle) => cm.resolve_addr(id, None, there, second),
            Ok(IdState::AddrResolved) => cm.resolve_route(id, second),
            Ok(IdState::RouteResolved) => {
                let qp = cm.create_qp(id, None, &mut init());
                qp.and_then(|()| cm.connect(id, None))
            }
            Ok(IdState::Connect) => cm.disconnect(id),
            _ => Ok(()),
        };
    }
}
