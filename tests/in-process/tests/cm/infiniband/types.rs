//! Ids and dynamic connections of other types than the port spaces are made for.

use super::support::*;
use bareverbs_cm::rdma::*;
use bareverbs_core::qp::{DcTarget, Dci, QpInitAttr};
use bareverbs_core::{Access, CqInit, Qpn, WcStatus};

fn id(nodes: &mut Nodes, node: usize, id_type: IdType) -> CmId {
    let channel = nodes.channels[node];
    let cm = &mut nodes.cms[node];
    cm.create_id_of(Some(channel), 5, PortSpace::Ib, id_type)
        .unwrap()
}

fn resolve(nodes: &mut Nodes, id: CmId, port_space: PortSpace) {
    let there = SockaddrIb::new(gid(1), port_space, PORT);
    let cm = &mut nodes.cms[0];
    cm.resolve_addr(id, None, there, SECOND).unwrap();
    nodes.expect(0, EventType::AddrResolved);
    nodes.cms[0].resolve_route(id, SECOND).unwrap();
    nodes.expect(0, EventType::RouteResolved);
}

/// Messages each way over an unreliable connection.
#[test]
fn an_unreliable_connection() {
    let mut nodes = Nodes::new(2);
    let listener = id(&mut nodes, 1, IdType::Uc);
    let any = any(PortSpace::Ib, PORT);
    nodes.cms[1].bind_addr(listener, any).unwrap();
    nodes.cms[1].listen(listener, 8).unwrap();
    let ours = id(&mut nodes, 0, IdType::Uc);
    resolve(&mut nodes, ours, PortSpace::Ib);
    nodes.cms[0].create_qp(ours, None, &mut qp()).unwrap();
    let (ours, theirs) = nodes.connect(ours);
    nodes.say((0, ours), (1, theirs), b"by LID");
    nodes.say((1, theirs), (0, ours), b"and back");
}

/// As on Linux an id of `RDMA_PS_IB` may ask for services of the port space that its type is usual in.
#[test]
fn services_of_other_port_spaces() {
    let mut nodes = Nodes::new(2);
    nodes.listener(1, PortSpace::Udp);
    let ours = id(&mut nodes, 0, IdType::Ud);
    resolve(&mut nodes, ours, PortSpace::Udp);
    nodes.cms[0].create_qp(ours, None, &mut qp()).unwrap();
    nodes.cms[0].connect(ours, None).unwrap();
    let theirs = nodes.expect(1, EventType::ConnectRequest).id;
    nodes.cms[1].create_qp(theirs, None, &mut qp()).unwrap();
    let qpn = nodes.cms[1].ud_endpoint(theirs).unwrap().qp.qpn();
    nodes.cms[1].accept(theirs, None).unwrap();
    let found = nodes.expect(0, EventType::Established);
    assert_eq!((found.ud.qp_num, found.ud.qkey), (qpn.number(), UDP_QKEY));
    for (id_type, other) in [
        (IdType::Uc, PortSpace::Tcp),
        (IdType::Ud, PortSpace::Tcp),
        (IdType::Rc, PortSpace::Udp),
    ] {
        let id = id(&mut nodes, 0, id_type);
        let there = SockaddrIb::new(gid(1), other, PORT);
        let refused = nodes.cms[0].resolve_addr(id, None, there, SECOND);
        assert!(matches!(refused, Err(RdmaError::WrongService { .. })));
    }
}

/// The number and the key of a target come by the CM, and its address is a LID.
#[test]
fn a_target_of_dynamic_connections() {
    const KEY: u64 = 0x1bad_cafe;
    let mut nodes = Nodes::new(2);
    nodes.listener(1, PortSpace::Tcp);
    let ours = nodes.resolved(PortSpace::Tcp);
    nodes.cms[0].resolve_route(ours, SECOND).unwrap();
    nodes.expect(0, EventType::RouteResolved);
    let param = |qp_num, private_data| ConnParam {
        qp_num,
        private_data,
        ..ConnParam::default()
    };
    // An initiator alone, whose number is the connection's.
    let device = nodes.cms[0].device();
    let pd = device.alloc_pd().unwrap();
    let mut sent = device.create_cq(CqInit::new(4)).unwrap();
    let mut dci = pd.create_qp::<Dci>(&mut QpInitAttr::new(&sent, 4)).unwrap();
    let path = nodes.cms[0].dc_path(ours).unwrap();
    assert_eq!(path.ah_attr.dlid, lid(1));
    dci.activate(&path.initiator(1)).unwrap();
    let number = dci.qpn().number();
    nodes.cms[0]
        .connect(ours, Some(&param(number, &[])))
        .unwrap();

    let theirs = nodes.expect(1, EventType::ConnectRequest).id;
    let back = nodes.cms[1].dc_path(theirs).unwrap();
    assert_eq!((back.ah_attr.dlid, back.path_mtu), (lid(0), path.path_mtu));
    let device = nodes.cms[1].device();
    let their_pd = device.alloc_pd().unwrap();
    let mut received = device.create_cq(CqInit::new(4)).unwrap();
    let sizes = &mut crate::pair::sizes(4);
    let mut srq = their_pd.create_srq(sizes).unwrap();
    let inbox = their_pd.alloc_buffer(64, Access::LOCAL_WRITE).unwrap();
    srq.post(6, &[inbox.sge(0, 64).unwrap()]).unwrap();
    let attr = back.target(&received, &srq, KEY, Access::REMOTE_WRITE);
    let dct = their_pd.create_dct(&attr).unwrap();
    let key = KEY.to_be_bytes();
    let param = param(dct.dctn().number(), &key);
    nodes.cms[1].accept(theirs, Some(&param)).unwrap();

    let answer = nodes.expect(0, EventType::ConnectResponse);
    nodes.cms[0].establish(ours).unwrap();
    nodes.expect(1, EventType::Established);
    let ah = nodes.cms[0].device().create_ah(&path.ah_attr).unwrap();
    let target = DcTarget {
        ah: &ah,
        dctn: Qpn::from_low_bits(answer.conn.qp_num),
        access_key: u64::from_be_bytes(*answer.private_data().first_chunk().unwrap()),
    };
    let text = b"to a target by its LID";
    let mut open = dci.send_queue().open();
    open.send(3, SendFlags::SIGNALED);
    open.set_dc_addr(target);
    open.set_inline_data(text);
    open.complete().unwrap();
    drop(open);
    let end = nodes.world.now() + SECOND;
    let mut wait = |cq: &mut bareverbs_core::Cq<'_, _>| {
        loop {
            if let Some(completion) = cq.poll().unwrap() {
                return completion.to_wc();
            }
            assert!(nodes.world.now() < end, "nothing completes");
            nodes.poll();
            nodes.world.advance(MS / 10);
        }
    };
    let wc = wait(&mut sent);
    assert_eq!((wc.wr_id, wc.status), (3, WcStatus::Success));
    let wc = wait(&mut received);
    assert_eq!((wc.wr_id, wc.byte_len as usize), (6, text.len()));
    let mut found = [0; 22];
    inbox.copy_out(0, &mut found).unwrap();
    assert_eq!(&found, text);
}
