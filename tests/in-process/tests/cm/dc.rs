//! Dynamic connections over the RDMA CM: the numbers of targets go in requests and answers, their access keys in the private
//! data; initiators and targets are the application's own, as in rdma-core's tests with an external QP.

use crate::pair::*;
use bareverbs_cm::mad::RejectReason;
use bareverbs_cm::rdma::*;
use bareverbs_core::qp::{DcTarget, Dci, Dct, Inline, Qp, QpInitAttr, QpState};
use bareverbs_core::{Access, Buffer, Cq, CqInit, Mtu, Pd, Qpn, Remote, Srq, WcOpcode, WcStatus};
use bareverbs_in_process::ModelPlatform as P;

const LEN: usize = 64;

/// One end's objects beside its id.
struct End {
    // In the order in which they have to be destroyed.
    dci: Qp<'static, P, Dci>,
    dct: Dct<'static, P>,
    srq: Srq<'static, P>,
    send_cq: Cq<'static, P>,
    recv_cq: Cq<'static, P>,
    buffer: Buffer<'static, P>,
    key: u64,
    _pd: Pd<'static, P>,
}

/// An initiator and a target for an id whose path is known.
fn end(pair: &mut Pair, node: usize, id: CmId, key: u64) -> End {
    let device = pair.cms[node].device();
    let path = pair.cms[node].dc_path(id).unwrap();
    let pd = device.alloc_pd().unwrap();
    let send_cq = device.create_cq(CqInit::new(15)).unwrap();
    let recv_cq = device.create_cq(CqInit::new(15)).unwrap();
    let srq = pd.create_srq(&mut sizes(8)).unwrap();
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let buffer = pd.alloc_buffer(4 * LEN, access).unwrap();
    let dct = pd
        .create_dct(&path.target(&recv_cq, &srq, key, access))
        .unwrap();
    let mut dci = pd
        .create_qp::<Dci>(&mut QpInitAttr::new(&send_cq, 4))
        .unwrap();
    dci.activate(&path.initiator(1)).unwrap();
    assert_eq!(dci.state(), QpState::Rts);
    End {
        dci,
        dct,
        srq,
        send_cq,
        recv_cq,
        buffer,
        key,
        _pd: pd,
    }
}

/// The target of an end, as the CM carries it.
struct Announced {
    dctn: u32,
    private_data: [u8; 20],
}

impl Announced {
    fn of(end: &End) -> Self {
        let mut private_data = [0; 20];
        private_data[..8].copy_from_slice(&end.key.to_be_bytes());
        private_data[8..16].copy_from_slice(&end.buffer.addr().to_be_bytes());
        private_data[16..].copy_from_slice(&end.buffer.rkey().0.to_be_bytes());
        Self {
            dctn: end.dct.dctn().number(),
            private_data,
        }
    }

    fn param(&self) -> ConnParam<'_> {
        ConnParam {
            qp_num: self.dctn,
            srq: true,
            private_data: &self.private_data,
            ..ConnParam::default()
        }
    }
}

/// The other end's target, key and memory in an event.
fn peer(event: &CmEvent) -> (Qpn, u64, Remote) {
    assert!(event.conn.srq);
    let data = event.private_data();
    let number = |at: usize| u64::from_be_bytes(data[at..at + 8].try_into().unwrap());
    let remote = Remote {
        addr: number(8),
        rkey: bareverbs_core::RKey(u32::from_be_bytes(data[16..20].try_into().unwrap())),
    };
    (Qpn::from_low_bits(event.conn.qp_num), number(0), remote)
}

/// Connects an id of node 0 with a target of its own; both ends, with the events that tell about the other one.
fn connected(pair: &mut Pair, keys: [u64; 2]) -> ([CmId; 2], [End; 2], [CmEvent; 2]) {
    let ours = pair.resolved(PortSpace::Tcp);
    let own = end(pair, 0, ours, keys[0]);
    let said = Announced::of(&own);
    pair.cms[0].connect(ours, Some(&said.param())).unwrap();
    let request = pair.expect(1, EventType::ConnectRequest);
    let theirs = end(pair, 1, request.id, keys[1]);
    let said = Announced::of(&theirs);
    pair.cms[1].accept(request.id, Some(&said.param())).unwrap();
    let response = pair.expect(0, EventType::ConnectResponse);
    pair.cms[0].establish(ours).unwrap();
    pair.expect(1, EventType::Established);
    ([ours, request.id], [own, theirs], [response, request])
}

fn completion(pair: &mut Pair, cq: &mut Cq<'static, P>) -> bareverbs_core::Wc {
    let limit = pair.world.now() + SECOND;
    loop {
        if let Some(completion) = cq.poll().unwrap() {
            return completion.to_wc();
        }
        assert!(pair.world.now() < limit, "nothing completes");
        pair.poll();
        pair.world.advance(MS / 10);
    }
}

/// A message and a write from one end to the other's target, with what the CM has said about it.
fn talk(pair: &mut Pair, ids: [CmId; 2], ends: &mut [End; 2], events: &[CmEvent; 2], from: usize) {
    let to = 1 - from;
    let (dctn, access_key, remote) = peer(&events[from]);
    assert_eq!((dctn, access_key), (ends[to].dct.dctn(), ends[to].key));
    let path = pair.cms[from].dc_path(ids[from]).unwrap();
    let ah = pair.cms[from].device().create_ah(&path.ah_attr).unwrap();
    let target = DcTarget {
        ah: &ah,
        dctn,
        access_key,
    };
    let text = [b"from the first", b"from the other"][from];
    ends[to].buffer.copy_in(0, &[0; 2 * LEN]).unwrap();
    let sge = ends[to].buffer.sge(LEN, LEN).unwrap();
    ends[to].srq.post(7, &[sge]).unwrap();
    let mut batch = ends[from].dci.send_queue().batch();
    let flags = SendFlags::SIGNALED;
    batch.write(1, flags, target, remote, Inline(text)).unwrap();
    batch.send(2, flags, target, Inline(text)).unwrap();
    drop(batch);
    for (wr_id, opcode) in [(1, WcOpcode::RdmaWrite), (2, WcOpcode::Send)] {
        let wc = completion(pair, &mut ends[from].send_cq);
        assert_eq!(
            (wc.wr_id, wc.status, wc.opcode),
            (wr_id, WcStatus::Success, opcode)
        );
    }
    let wc = completion(pair, &mut ends[to].recv_cq);
    assert_eq!((wc.wr_id, wc.byte_len as usize), (7, text.len()));
    for at in [0, LEN] {
        let mut bytes = [0; 14];
        ends[to].buffer.copy_out(at, &mut bytes).unwrap();
        assert_eq!(&bytes, text);
    }
}

/// Numbers and keys go in the request and in the answer, and data each way, also after the connection is over.
#[test]
fn targets_are_announced() {
    let mut pair = Pair::new();
    let before = [0, 1].map(|node| objects(&pair, node));
    let listener = pair.listener();
    let (ids, mut ends, events) = connected(&mut pair, [0x1111_2222, 0x3333_4444_5555]);
    for from in [0, 1] {
        talk(&mut pair, ids, &mut ends, &events, from);
    }
    pair.cms[0].disconnect(ids[0]).unwrap();
    pair.expect(1, EventType::Disconnected);
    pair.expect(0, EventType::Disconnected);
    // The CM has moved nothing.
    for end in &ends {
        assert_eq!(end.dci.state(), QpState::Rts);
        let (state, violations) = end.dct.query().unwrap();
        assert!(state.is_some());
        assert_eq!(violations, 0);
    }
    talk(&mut pair, ids, &mut ends, &events, 0);
    drop(ends);
    pair.cms[0].destroy_id(ids[0]).unwrap();
    pair.cms[1].destroy_id(ids[1]).unwrap();
    pair.cms[1].destroy_id(listener).unwrap();
    for _ in 0..100 {
        pair.poll();
        pair.world.advance(MS);
    }
    assert_eq!([0, 1].map(|node| objects(&pair, node)), before);
}

/// A peer whose request was refused has no key, and its packets are not accepted.
#[test]
fn a_refused_end_has_no_key() {
    let mut pair = Pair::new();
    pair.listener();
    let ours = pair.resolved(PortSpace::Tcp);
    let mut own = end(&mut pair, 0, ours, 1);
    let said = Announced::of(&own);
    pair.cms[0].connect(ours, Some(&said.param())).unwrap();
    let request = pair.expect(1, EventType::ConnectRequest);
    let theirs = end(&mut pair, 1, request.id, 0xfeed);
    pair.cms[1].reject(request.id, b"no").unwrap();
    let refused = pair.expect(0, EventType::Rejected);
    assert_eq!(refused.status, i32::from(RejectReason::CONSUMER_DEFINED.0));
    let path = pair.cms[0].dc_path(ours).unwrap();
    let ah = pair.cms[0].device().create_ah(&path.ah_attr).unwrap();
    let guessed = DcTarget {
        ah: &ah,
        dctn: theirs.dct.dctn(),
        access_key: 0xbeef,
    };
    let mut batch = own.dci.send_queue().batch();
    batch
        .send(1, SendFlags::SIGNALED, guessed, Inline(b"let me in"))
        .unwrap();
    drop(batch);
    let wc = completion(&mut pair, &mut own.send_cq);
    assert_eq!(wc.status, WcStatus::RemAccessErr);
    assert_eq!(theirs.dct.query().unwrap().1, 1);
}

/// A target that has a connection already is refused as stale, which ends that one; another target is fine.
#[test]
fn each_connection_needs_a_target_of_its_own() {
    let mut pair = Pair::new();
    pair.listener();
    let (first, ends, _) = connected(&mut pair, [1, 2]);
    let second = pair.resolved(PortSpace::Tcp);
    let said = Announced::of(&ends[0]);
    pair.cms[0].connect(second, Some(&said.param())).unwrap();
    let refused = pair.expect(0, EventType::Rejected);
    assert_eq!(refused.id, second);
    assert_eq!(refused.status, i32::from(RejectReason::STALE_CONNECTION.0));
    let over = pair.expect(1, EventType::Disconnected);
    assert_eq!(over.id, first[1]);
    drop(ends);
    let mut other = Pair::new();
    other.listener();
    let (one, mut of_one, said_to_one) = connected(&mut other, [1, 2]);
    let (two, mut of_two, said_to_two) = connected(&mut other, [3, 4]);
    talk(&mut other, two, &mut of_two, &said_to_two, 0);
    talk(&mut other, one, &mut of_one, &said_to_one, 1);
}

/// The path is said when it is known, to ids without a QP; the link's limits are in it.
#[test]
fn the_path() {
    let mut pair = Pair::with_path_mtu(Mtu::B1024);
    pair.listener();
    let idle = pair.cms[0]
        .create_id(Some(pair.channels[0]), 5, PortSpace::Tcp)
        .unwrap();
    let refused = pair.cms[0].dc_path(idle).unwrap_err();
    assert!(matches!(refused, RdmaError::WrongState { .. }), "{refused}");
    pair.cms[0]
        .set_option(idle, IdOption::AckTimeout(9))
        .unwrap();
    pair.cms[0]
        .set_option(idle, IdOption::MinRnrTimer(3))
        .unwrap();
    pair.cms[0].set_option(idle, IdOption::Tos(0x68)).unwrap();
    pair.resolve(idle, PORT);
    let path = pair.cms[0].dc_path(idle).unwrap();
    assert_eq!(path.path_mtu, Mtu::B1024);
    assert_eq!((path.timeout, path.min_rnr_timer), (9, 3));
    assert_eq!(path.ah_attr.traffic_class, 0x68);
    assert_eq!(path.ah_attr.dgid.0, mapped(ip(1)));
    assert_eq!(Ok(path.ah_attr.dmac), pair.cms[1].device().mac());
    // The other end says the same of the way back.
    let param = ConnParam {
        qp_num: 0x77,
        retry_count: 5,
        ..ConnParam::default()
    };
    pair.cms[0].connect(idle, Some(&param)).unwrap();
    let request = pair.expect(1, EventType::ConnectRequest);
    let back = pair.cms[1].dc_path(request.id).unwrap();
    assert_eq!((back.path_mtu, back.retry_cnt), (Mtu::B1024, 5));
    assert_eq!(back.ah_attr.dgid.0, mapped(ip(0)));
    assert_eq!(
        pair.cms[0].dc_path(idle).unwrap(),
        DcPath {
            retry_cnt: 5,
            ..path
        }
    );
    let with_qp = pair.client();
    assert_eq!(pair.cms[0].dc_path(with_qp), Err(RdmaError::QpExists));
    let datagrams = pair.resolved(PortSpace::Udp);
    let refused = pair.cms[0].dc_path(datagrams).unwrap_err();
    assert!(matches!(refused, RdmaError::WrongType { .. }), "{refused}");
}
