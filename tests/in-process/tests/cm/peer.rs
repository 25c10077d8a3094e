//! The manager against a peer made by hand: raw MADs from a GSI QP. What it answers is what Linux was seen to answer.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bareverbs_cm::mad::*;
use bareverbs_cm::rdma::{self, *};
use bareverbs_core::qp::QpCap;
use bareverbs_core::{
    Access, AhAttr, Buffer, Cq, CqInit, Cqs, Destination, Device, Gid, Gsi, PageChunks, Qp, QpAttr,
    QpAttrMask, QpInitAttr, QpState, Qpn, Qps, SendData, SendOp, SendWr, Srqs,
};
use bareverbs_in_process::{Builder, ModelPlatform, World};
use connectx_model::Config as Card;

use crate::keep::keep;
use crate::support::{self, PORT, SERVICE};

const MS: Duration = Duration::from_millis(1);
const GRH: usize = 40;

fn ip(node: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, node as u8 + 1])
}

fn gid(node: usize) -> Gid {
    ip(node).into()
}

fn open(world: &World, node: usize) -> &'static Device<'static, ModelPlatform> {
    let memory = keep(bareverbs_core::Resources::<
        Qps<16>,
        Cqs<32>,
        Srqs<2>,
        PageChunks<256>,
    >::new());
    let config = bareverbs_core::Config::DEFAULT;
    keep(world.open(node, config, memory.storage(), &[ip(node)]))
}

/// Node 0 by hand, node 1 the manager with a listener.
struct Bench {
    world: World,
    cm: RdmaCm<'static, 'static, ModelPlatform, StaticNeighbours<'static>>,
    channel: ChannelId,
    qp: Qp<'static, ModelPlatform, Gsi>,
    send_cq: Cq<'static, ModelPlatform>,
    recv_cq: Cq<'static, ModelPlatform>,
    buffer: Buffer<'static, ModelPlatform>,
    device: &'static Device<'static, ModelPlatform>,
    there: [u8; 6],
}

impl Bench {
    fn new() -> Self {
        let world = Builder::new()
            .function(Card::new(1))
            .function(Card::new(2))
            .stepped();
        let (device, other) = (open(&world, 0), open(&world, 1));
        let neighbours = keep([(ip(0), device.mac().unwrap())]);
        let storage = keep(rdma::Resources::<Ids<ModelPlatform, 8>, Channels<1>>::new());
        let mut cm = RdmaCm::new(
            other,
            StaticNeighbours(neighbours),
            rdma::Config::new(3),
            storage.storage(),
        )
        .expect("QP1");
        let channel = cm.create_event_channel().unwrap();
        let listener = cm.create_id(Some(channel), 0, PortSpace::Tcp).unwrap();
        cm.bind_addr(listener, SocketAddr::new(IpAddr::from([0, 0, 0, 0]), PORT))
            .unwrap();
        cm.listen(listener, 0).unwrap();

        let pd = keep(device.alloc_pd().unwrap());
        let send_cq = device.create_cq(CqInit::new(16)).unwrap();
        let recv_cq = device.create_cq(CqInit::new(16)).unwrap();
        let buffer = pd.alloc_buffer(4096 * 2, Access::LOCAL_WRITE).unwrap();
        let cap = QpCap {
            max_send_wr: 8,
            max_recv_wr: 8,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let mut init = QpInitAttr {
            send_cq: &send_cq,
            recv_cq: &recv_cq,
            srq: None,
            cap,
            sq_sig_all: true,
        };
        let mut qp = pd.create_qp::<Gsi>(&mut init).unwrap();
        let attr = QpAttr {
            qp_state: QpState::Init,
            qkey: GSI_QKEY,
            ..QpAttr::DEFAULT
        };
        qp.modify(
            &attr,
            QpAttrMask::STATE | QpAttrMask::PKEY_INDEX | QpAttrMask::QKEY,
        )
        .unwrap();
        qp.modify(
            &QpAttr {
                qp_state: QpState::Rtr,
                ..attr
            },
            QpAttrMask::STATE,
        )
        .unwrap();
        qp.modify(
            &QpAttr {
                qp_state: QpState::Rts,
                ..attr
            },
            QpAttrMask::STATE | QpAttrMask::SQ_PSN,
        )
        .unwrap();
        for index in 0..8 {
            let sge = buffer
                .sge(4096 + index as usize * 512, GRH + MAD_LEN)
                .unwrap();
            qp.recv_queue().post(index, &[sge]).unwrap();
        }
        let there = other.mac().unwrap();
        Self {
            world,
            cm,
            channel,
            qp,
            send_cq,
            recv_cq,
            buffer,
            device,
            there,
        }
    }

    fn say(&mut self, mad: &[u8; MAD_LEN]) {
        let ah = AhAttr {
            dgid: gid(1),
            sgid_index: 0,
            hop_limit: 64,
            dmac: self.there,
            ..AhAttr::default()
        };
        let ah = self.device.create_ah(&ah).unwrap();
        self.buffer.copy_in(0, mad).unwrap();
        let sge = self.buffer.sge(0, MAD_LEN).unwrap();
        let to = Destination {
            ah: &ah,
            remote_qpn: Qpn::new(GSI_QPN).unwrap(),
            remote_qkey: GSI_QKEY,
        };
        let wr = SendWr {
            wr_id: 0,
            op: SendOp::SendTo(to),
            flags: SendFlags::SIGNALED,
            data: SendData::Sges(&[sge]),
        };
        self.qp.send_queue().post(&wr).unwrap();
        self.run(MS);
        assert!(
            self.send_cq.poll().unwrap().is_some(),
            "the MAD was not sent"
        );
    }

    fn run(&mut self, time: Duration) {
        let end = self.world.now() + time;
        while self.world.now() < end {
            self.world.advance(MS / 20);
            self.cm.poll(self.cm.now()).unwrap();
        }
    }

    fn receive(&mut self) -> Option<[u8; MAD_LEN]> {
        let index = self.recv_cq.poll().unwrap()?.wr_id();
        let at = 4096 + index as usize * 512;
        let mut mad = [0; MAD_LEN];
        self.buffer.copy_out(at + GRH, &mut mad).unwrap();
        let sge = self.buffer.sge(at, GRH + MAD_LEN).unwrap();
        self.qp.recv_queue().post(index, &[sge]).unwrap();
        Some(mad)
    }

    /// Says something and returns the REJ that comes back.
    #[track_caller]
    fn refused(&mut self, req: &Req<'_>) -> (u16, Vec<u8>) {
        let mut mad = [0; MAD_LEN];
        req.emit(5, &mut mad).unwrap();
        self.say(&mad);
        let answer = self.receive().expect("no answer");
        let view = Mad::new(&answer).unwrap();
        assert_eq!(view.transaction_id(), 5);
        let rej = Rej::parse(&view).unwrap();
        assert_eq!((rej.remote_comm_id, rej.message), (req.local_comm_id, 0));
        assert!(self.cm.try_get_cm_event(self.channel).unwrap().is_none());
        (rej.reason, rej.additional_info().to_vec())
    }
}

fn header() -> [u8; CmaHeader::LEN] {
    support::header(ip(0), ip(1))
}

fn req(private_data: &[u8]) -> Req<'_> {
    support::req(ip(0), ip(1), 0xaaaa_000c, private_data)
}

#[test]
fn requests_that_make_no_sense() {
    let mut bench = Bench::new();
    let good = header();
    let edited = |edit: fn(&mut [u8; CmaHeader::LEN])| {
        let mut bytes = good;
        edit(&mut bytes);
        bytes
    };
    // T2: no listener there.
    assert_eq!(
        bench
            .refused(&Req {
                service_id: SERVICE + 1,
                ..req(&good)
            })
            .0,
        8
    );
    // T7: the header's destination is not ours.
    assert_eq!(bench.refused(&req(&edited(|bytes| bytes[35] = 99))).0, 28);
    // T7b: nor is the path's; the answer says what would be.
    let unknown = Req {
        primary_remote_gid: [9; 16],
        ..req(&good)
    };
    assert_eq!(bench.refused(&unknown), (12, gid(1).0.to_vec()));
    // T7c and T7d: versions of the header.
    assert_eq!(bench.refused(&req(&edited(|bytes| bytes[0] = 0x10))).0, 28);
    assert_eq!(bench.refused(&req(&edited(|bytes| bytes[1] = 0x50))).0, 28);
    // T8 and A6: unreliable connections and XRC. Linux says 28; the IBTA has a reason for it.
    assert_eq!(
        bench
            .refused(&Req {
                transport: 1,
                ..req(&good)
            })
            .0,
        9
    );
    assert_eq!(
        bench
            .refused(&Req {
                transport: 3,
                extended_transport: 1,
                ..req(&good)
            })
            .0,
        9
    );
    // A5: no alternate paths on RoCE.
    assert_eq!(
        bench
            .refused(&Req {
                alternate_local_lid: 0xffff,
                ..req(&good)
            })
            .0,
        18
    );
    assert_eq!(
        (bench.cm.ids_in_use(), bench.cm.connections_in_use()),
        (1, 0)
    );
}

#[test]
fn a_connection_by_hand() {
    let mut bench = Bench::new();
    let data = header();
    let mut mad = [0; MAD_LEN];
    req(&data).emit(5, &mut mad).unwrap();
    bench.say(&mad);
    let event = bench
        .cm
        .try_get_cm_event(bench.channel)
        .unwrap()
        .expect("a request");
    assert_eq!(
        (event.event, event.conn.qp_num),
        (EventType::ConnectRequest, 0x77)
    );
    assert_eq!(
        bench.cm.get_peer_addr(event.id).unwrap(),
        Some(SocketAddr::new(ip(0), 4000))
    );
    // T5: the application takes its time; the second REQ gets an MRA for 2^24 * 4.096 us.
    bench.say(&mad);
    let answer = bench.receive().expect("an MRA");
    let mra = Mra::parse(&Mad::new(&answer).unwrap()).unwrap();
    assert_eq!(
        (mra.message, mra.service_timeout, mra.remote_comm_id),
        (0, 24, 0xaaaa_000c)
    );
    let mut init = QpInit::default();
    bench.cm.create_qp(event.id, None, &mut init).unwrap();
    bench.cm.accept(event.id, None).unwrap();
    bench.run(MS);
    let answer = bench.receive().expect("a REP");
    let rep = Rep::parse(&Mad::new(&answer).unwrap()).unwrap();
    assert_eq!(
        (
            rep.remote_comm_id,
            rep.responder_resources,
            rep.initiator_depth
        ),
        (0xaaaa_000c, 1, 1)
    );
    let (theirs, qpn) = (rep.local_comm_id, rep.local_qpn);
    let qp = bench.cm.endpoint(event.id).unwrap().qp.query().unwrap();
    assert_eq!(
        (qp.attr.qp_state, qp.attr.dest_qp_num.number()),
        (QpState::Rts, 0x77)
    );
    assert_eq!((qp.attr.sq_psn, qp.attr.rq_psn), (0x1234, rep.starting_psn));
    // T3: unanswered, it comes again.
    bench.run(300 * MS);
    assert_eq!(
        Mad::new(&bench.receive().expect("the REP again"))
            .unwrap()
            .attribute(),
        Attribute::Rep
    );
    Rtu {
        local_comm_id: 0xaaaa_000c,
        remote_comm_id: theirs,
        private_data: &[],
    }
    .emit(5, &mut mad)
    .unwrap();
    bench.say(&mad);
    let event = bench
        .cm
        .try_get_cm_event(bench.channel)
        .unwrap()
        .expect("established");
    assert_eq!(event.event, EventType::Established);
    // T1e: a DREQ for another QP. T1f and T1g: the right one, and again.
    let dreq = Dreq {
        local_comm_id: 0xaaaa_000c,
        remote_comm_id: theirs,
        remote_qpn: qpn + 1,
        ..Dreq::ZERO
    };
    dreq.emit(6, &mut mad).unwrap();
    bench.say(&mad);
    assert!(bench.receive().is_none());
    Dreq {
        remote_qpn: qpn,
        ..dreq
    }
    .emit(7, &mut mad)
    .unwrap();
    for _ in 0..2 {
        bench.say(&mad);
        let answer = bench.receive().expect("a DREP");
        let view = Mad::new(&answer).unwrap();
        assert_eq!(
            (view.attribute(), view.transaction_id()),
            (Attribute::Drep, 7)
        );
    }
    let event = bench
        .cm
        .try_get_cm_event(bench.channel)
        .unwrap()
        .expect("disconnected");
    assert_eq!((event.event, event.status), (EventType::Disconnected, 0));
    bench.run(Duration::from_secs(3));
    let event = bench
        .cm
        .try_get_cm_event(bench.channel)
        .unwrap()
        .expect("the end of timewait");
    assert_eq!(event.event, EventType::TimewaitExit);
    assert!(bench.cm.try_get_cm_event(bench.channel).unwrap().is_none());
}

#[test]
fn what_is_no_connection() {
    let mut bench = Bench::new();
    let mut mad = [0; MAD_LEN];
    // T6: a DREQ for a connection that never was.
    Dreq {
        local_comm_id: 1,
        remote_comm_id: 2,
        remote_qpn: 3,
        ..Dreq::ZERO
    }
    .emit(9, &mut mad)
    .unwrap();
    bench.say(&mad);
    let answer = bench.receive().expect("a DREP");
    let drep = Drep::parse(&Mad::new(&answer).unwrap()).unwrap();
    assert_eq!((drep.local_comm_id, drep.remote_comm_id), (2, 1));
    // T9: a datagram service without a listener.
    SidrReq {
        request_id: 4,
        service_id: 0x0111_0001,
        ..SidrReq::ZERO
    }
    .emit(9, &mut mad)
    .unwrap();
    bench.say(&mad);
    let answer = bench.receive().expect("a SIDR_REP");
    assert_eq!(
        SidrRep::parse(&Mad::new(&answer).unwrap()).unwrap().status,
        1
    );
    // T10: another class version, and A11: an alternate path. Linux does not answer; here both get the reason.
    req(&[]).emit(9, &mut mad).unwrap();
    mad[2] = 1;
    bench.say(&mad);
    let answer = bench.receive().expect("a REJ");
    assert_eq!(Rej::parse(&Mad::new(&answer).unwrap()).unwrap().reason, 31);
    Lap::ZERO.emit(9, &mut mad).unwrap();
    bench.say(&mad);
    let answer = bench.receive().expect("an APR");
    assert_eq!(Apr::parse(&Mad::new(&answer).unwrap()).unwrap().status, 1);
    // Noise is ignored.
    bench.say(&[0xa5; MAD_LEN]);
    assert!(bench.receive().is_none());
    assert_eq!(bench.cm.stats().ignored, 2);
}

/// A peer that refuses as stale, always: the request comes again with the same QP, and with another communication ID and
/// PSN, since the refused ones may be remembered. Each time the wait is twice as long. Then the application gets
/// librdmacm's event, and what it had posted. The peer asks for the end of the connection that it still has, as Linux
/// does, and is answered.
#[test]
fn a_refusal_as_stale_again_and_again() {
    let mut bench = Bench::new();
    let id = bench
        .cm
        .create_id(Some(bench.channel), 0, PortSpace::Tcp)
        .unwrap();
    let second = Duration::from_secs(1);
    let there = SocketAddr::new(ip(0), PORT);
    bench.cm.resolve_addr(id, None, there, second).unwrap();
    bench.run(MS);
    bench.cm.resolve_route(id, second).unwrap();
    for step in [EventType::AddrResolved, EventType::RouteResolved] {
        let event = bench.cm.try_get_cm_event(bench.channel).unwrap();
        assert_eq!(event.map(|event| event.event), Some(step));
    }
    bench
        .cm
        .create_qp(id, None, &mut QpInit::default())
        .unwrap();
    let qpn = bench.cm.endpoint(id).unwrap().qp.qpn().number();
    let buffer = bench.cm.reg_msgs(id, 64).unwrap();
    bench
        .cm
        .post_recv(id, 7, buffer.slice(..64).unwrap())
        .unwrap();
    let param = ConnParam {
        private_data: b"the same every time",
        ..ConnParam::default()
    };
    bench.cm.connect(id, Some(&param)).unwrap();
    let mut seen = vec![];
    let mut mad = [0; MAD_LEN];
    for wait in [0, 500, 1000, 2000, 4000] {
        // The request does not come before its time.
        bench.run((MS * wait).saturating_sub(50 * MS));
        assert!(bench.receive().is_none(), "{wait} ms");
        bench.run(100 * MS);
        let request = bench.receive().expect("a REQ");
        let request = Req::parse(&Mad::new(&request).unwrap()).unwrap();
        assert_eq!(request.local_qpn, qpn);
        assert_eq!(&request.private_data[36..][..19], b"the same every time");
        let ids = (request.local_comm_id, request.starting_psn);
        assert!(!seen.iter().any(|&(id, psn)| id == ids.0 || psn == ids.1));
        seen.push(ids);
        Rej {
            remote_comm_id: ids.0,
            reason: RejectReason::STALE_CONNECTION.0,
            ..Rej::ZERO
        }
        .emit(9, &mut mad)
        .unwrap();
        bench.say(&mad);
        Dreq {
            local_comm_id: 0x1234,
            remote_comm_id: 0x5678,
            remote_qpn: qpn,
            ..Dreq::ZERO
        }
        .emit(10, &mut mad)
        .unwrap();
        bench.say(&mad);
        let answer = bench.receive().expect("a DREP");
        let drep = Drep::parse(&Mad::new(&answer).unwrap()).unwrap();
        assert_eq!(drep.remote_comm_id, 0x1234);
    }
    let event = bench.cm.try_get_cm_event(bench.channel).unwrap().unwrap();
    assert_eq!((event.event, event.status), (EventType::Rejected, 10));
    match bench.cm.get_recv_comp_until(id, bench.cm.now() + second) {
        Err(RdmaError::Completion(flushed)) => assert_eq!(flushed.wr_id, 7),
        other => panic!("{other:?}"),
    }
    bench.cm.destroy_id(id).unwrap();
    bench.run(5 * second);
    assert!(bench.receive().is_none());
    assert!(bench.cm.try_get_cm_event(bench.channel).unwrap().is_none());
    assert_eq!(
        (bench.cm.ids_in_use(), bench.cm.connections_in_use()),
        (1, 0)
    );
}
