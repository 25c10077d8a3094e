//! Extended reliable connections, as rdma_xserver and rdma_xclient make them with `-c x`.

use std::net::{IpAddr, SocketAddr};

use crate::keep::keep;
use crate::pair::*;
use bareverbs_cm::rdma::*;
use bareverbs_core::qp::{QpState, SendData, SendOp, SendWr};
use bareverbs_core::{CqInit, Mtu, SrqError, Srqn, WcStatus};
use bareverbs_in_process::Builder;
use connectx_model::Config as Card;

/// An id of node 1 that listens, with an SRQ of eight receives of 16 bytes posted to it.
fn listener(
    pair: &mut Pair,
    port: u16,
) -> (
    CmId,
    bareverbs_core::Buffer<'static, bareverbs_in_process::ModelPlatform>,
) {
    let channel = pair.channels[1];
    let cm = &mut pair.cms[1];
    let id = cm
        .create_id_of(Some(channel), 77, PortSpace::Ib, IdType::XrcRecv)
        .unwrap();
    cm.bind_addr(id, SocketAddr::new(IpAddr::from([0, 0, 0, 0]), port))
        .unwrap();
    cm.create_srq(id, None, &mut sizes(8)).unwrap();
    assert!(cm.srq(id).unwrap().is_xrc());
    let pool = cm.reg_msgs(id, 8 * 16).unwrap();
    for slot in 0..8 {
        cm.post_recv(
            id,
            slot,
            pool.slice(slot as usize * 16..slot as usize * 16 + 16)
                .unwrap(),
        )
        .unwrap();
    }
    cm.listen(id, 8).unwrap();
    (id, pool)
}

/// An id of node 0 with an initiator, which is ready to connect.
fn client(pair: &mut Pair, port: u16) -> CmId {
    let id = pair.cms[0]
        .create_id_of(Some(pair.channels[0]), 5, PortSpace::Ib, IdType::XrcSend)
        .unwrap();
    pair.resolve(id, port);
    let mut init = qp();
    pair.cms[0].create_qp(id, None, &mut init).unwrap();
    assert!(init.cap.max_send_wr >= 8);
    assert_eq!(init.cap.max_recv_wr, 0);
    id
}

/// Connects an initiator; gives the target's id, and the SRQ's number from the private data.
fn connect(pair: &mut Pair, client: CmId, listener: CmId) -> (CmId, Srqn) {
    pair.cms[0].connect(client, None).unwrap();
    let request = pair.expect(1, EventType::ConnectRequest);
    assert_eq!(request.listen_id, Some(listener));
    let srqn = pair.cms[1].srq(listener).unwrap().srqn();
    pair.cms[1].create_qp(request.id, None, &mut qp()).unwrap();
    let param = ConnParam {
        private_data: &srqn.number().to_be_bytes(),
        ..ConnParam::default()
    };
    pair.cms[1].accept(request.id, Some(&param)).unwrap();
    let established = pair.expect(0, EventType::Established);
    assert!(established.conn.srq);
    assert_ne!(established.conn.qp_num, 0);
    pair.expect(1, EventType::Established);
    let number = established.private_data().first_chunk().unwrap();
    (request.id, Srqn::from_low_bits(u32::from_be_bytes(*number)))
}

/// One message from an initiator to an SRQ.
fn send(pair: &mut Pair, client: CmId, srqn: Srqn, text: &[u8]) {
    let wr = SendWr {
        wr_id: 9,
        op: SendOp::Send,
        flags: SendFlags::SIGNALED,
        data: SendData::Inline(text),
    };
    let cm = &mut pair.cms[0];
    let endpoint = cm.xrc_endpoint(client).unwrap();
    endpoint.qp.send_queue().post_xrc(srqn, &wr).unwrap();
    let end = pair.world.now() + SECOND;
    let sent = pair.cms[0].get_send_comp_until(client, end).unwrap();
    assert_eq!((sent.wr_id, sent.status), (9, WcStatus::Success));
}

/// Two connections, each of which reaches the queues of two listeners.
#[test]
fn initiators_reach_the_queues_of_listeners() {
    let mut pair = Pair::new();
    let before = [0, 1].map(|node| objects(&pair, node));
    let (first, first_pool) = listener(&mut pair, PORT);
    let (second, second_pool) = listener(&mut pair, PORT + 1);
    let clients = [client(&mut pair, PORT), client(&mut pair, PORT + 1)];
    let (one, first_srqn) = connect(&mut pair, clients[0], first);
    let (two, second_srqn) = connect(&mut pair, clients[1], second);
    assert_ne!(first_srqn, second_srqn);
    for slot in 0..4u64 {
        for (number, &from) in clients.iter().enumerate() {
            for (to, srqn, pool) in [
                (first, first_srqn, &first_pool),
                (second, second_srqn, &second_pool),
            ] {
                let text = [slot as u8, number as u8, 3];
                send(&mut pair, from, srqn, &text);
                let end = pair.world.now() + SECOND;
                // At the listener, for every connection.
                let wc = pair.cms[1].get_recv_comp_until(to, end).unwrap();
                let at = slot * 2 + number as u64;
                assert_eq!((wc.wr_id, wc.status), (at, WcStatus::Success));
                let mut got = [0; 3];
                pool.copy_out(at as usize * 16, &mut got).unwrap();
                assert_eq!(got, text);
            }
        }
    }
    // From either end.
    pair.cms[0].disconnect(clients[0]).unwrap();
    pair.expect(1, EventType::Disconnected);
    pair.cms[1].disconnect(one).unwrap();
    pair.expect(0, EventType::Disconnected);
    pair.cms[1].disconnect(two).unwrap();
    pair.cms[0].destroy_ep(clients[0]).unwrap();
    pair.cms[0].destroy_ep(clients[1]).unwrap();
    pair.cms[1].destroy_ep(one).unwrap();
    drop((first_pool, second_pool));
    // The order of destruction does not matter: the domain exists as long as an object uses it.
    pair.cms[1].destroy_srq(first).unwrap();
    assert_eq!(pair.cms[1].srq_handle(first).err(), Some(RdmaError::NoSrq));
    pair.cms[1].destroy_ep(first).unwrap();
    pair.cms[1].destroy_ep(second).unwrap();
    pair.cms[1].destroy_ep(two).unwrap();
    assert_eq!([0, 1].map(|node| objects(&pair, node)), before);
}

/// Domain and CQ of the application's own, on both calls; a CQ of the manager's stays with the SRQ when the QP goes.
#[test]
fn given_domains_and_queues() {
    let mut pair = Pair::new();
    let device = pair.cms[1].device();
    let domain = keep(device.open_xrcd().unwrap());
    let mut cq = device.create_cq(CqInit::new(15)).unwrap();
    let cm = &mut pair.cms[1];
    let id = cm
        .create_id_of(Some(pair.channels[1]), 1, PortSpace::Ib, IdType::XrcRecv)
        .unwrap();
    let mut init = SrqInit {
        xrcd: Some(domain),
        cq: Some(&cq),
        ..SrqInit::new(sizes(8))
    };
    assert_eq!(cm.create_srq_ex(id, &mut init), Err(RdmaError::NotBound));
    cm.bind_addr(id, address(1, PORT)).unwrap();
    cm.create_srq_ex(id, &mut init).unwrap();
    assert_eq!(init.attr.max_wr, 15);
    let pool = cm.reg_msgs(id, 16).unwrap();
    cm.post_recv(id, 4, pool.slice(..16).unwrap()).unwrap();
    cm.listen(id, 1).unwrap();
    let ours = client(&mut pair, PORT);
    pair.cms[0].connect(ours, None).unwrap();
    let theirs = pair.expect(1, EventType::ConnectRequest).id;
    let mut init = QpInitEx {
        xrcd: Some(domain),
        ..QpInitEx::default()
    };
    pair.cms[1].create_qp_ex(theirs, &mut init).unwrap();
    assert_eq!(init.init.cap, Default::default());
    pair.cms[1].accept(theirs, None).unwrap();
    pair.expect(0, EventType::Established);
    pair.expect(1, EventType::Established);
    let srqn = pair.cms[1].srq(id).unwrap().srqn();
    send(&mut pair, ours, srqn, b"given");
    let wc = cq.poll().unwrap().expect("it was acknowledged").to_wc();
    assert_eq!((wc.wr_id, wc.byte_len), (4, 5));
    let error = pair.cms[1].try_get_recv_comp(id).unwrap_err();
    assert_eq!(error.errno(), errno::EINVAL, "{error}");
    // An XRC SRQ is not for the QPs of other ids.
    let tcp = pair.cms[1]
        .create_id(Some(pair.channels[1]), 0, PortSpace::Tcp)
        .unwrap();
    pair.cms[1].bind_addr(tcp, address(1, 0)).unwrap();
    let mut init = QpInit {
        srq: Some(pair.cms[1].srq_handle(id).unwrap()),
        ..qp()
    };
    let error = pair.cms[1].create_qp(tcp, None, &mut init).unwrap_err();
    assert_eq!(error.errno(), errno::EINVAL, "{error}");
    let busy = RdmaError::Srq(SrqError::Busy { users: 1 });
    assert_eq!(pair.cms[1].destroy_srq(id), Err(busy));
    drop(init);
    pair.cms[1].destroy_srq(id).unwrap();

    // On one id: its target goes, its SRQ stays and still completes.
    pair.cms[1].create_srq(id, None, &mut sizes(4)).unwrap();
    pair.cms[1].create_qp(theirs, None, &mut qp()).unwrap_err();
    pair.cms[1].destroy_qp(id).unwrap();
    assert_eq!(pair.cms[1].try_get_recv_comp(id), Ok(None));
    pair.cms[1].destroy_srq(id).unwrap();
    assert_eq!(
        pair.cms[1].try_get_recv_comp(id),
        Err(RdmaError::NoQp),
        "the CQ went with the SRQ"
    );
}

/// A listener for one kind of connection refuses the other, and each call refuses ids of the wrong kind.
#[test]
fn kinds_do_not_mix() {
    let mut pair = Pair::new();
    let (xrc, _pool) = listener(&mut pair, PORT);
    let cm = &mut pair.cms[1];
    let plain = cm
        .create_id(Some(pair.channels[1]), 1, PortSpace::Ib)
        .unwrap();
    cm.bind_addr(plain, address(1, PORT + 1)).unwrap();
    cm.listen(plain, 1).unwrap();
    // An initiator to a plain listener.
    let initiator = client(&mut pair, PORT + 1);
    pair.cms[0].connect(initiator, None).unwrap();
    assert_eq!(pair.expect(0, EventType::Rejected).status, 9);
    // A plain client to an XRC listener.
    let id = pair.cms[0]
        .create_id(Some(pair.channels[0]), 5, PortSpace::Ib)
        .unwrap();
    pair.resolve(id, PORT);
    pair.cms[0].create_qp(id, None, &mut qp()).unwrap();
    pair.cms[0].connect(id, None).unwrap();
    assert_eq!(pair.expect(0, EventType::Rejected).status, 9);

    let cm = &mut pair.cms[0];
    for port_space in [PortSpace::Tcp, PortSpace::Udp, PortSpace::Ipoib] {
        for id_type in [IdType::XrcSend, IdType::XrcRecv] {
            let refused = cm.create_id_of(None, 0, port_space, id_type).unwrap_err();
            assert_eq!(refused.errno(), errno::EINVAL, "{refused}");
        }
    }
    assert!(
        cm.create_id_of(None, 0, PortSpace::Tcp, IdType::Ud)
            .is_err()
    );
    let wrong = |error: RdmaError| matches!(error, RdmaError::WrongType { .. });
    assert!(wrong(cm.endpoint(initiator).err().unwrap()));
    assert!(wrong(cm.xrc_endpoint(id).err().unwrap()));
    assert!(cm.ud_endpoint(initiator).is_err());
    // The SRQ is not said.
    let error = cm
        .post_send_inline(initiator, 1, b"to whom?", SendFlags::SIGNALED)
        .unwrap_err();
    assert!(wrong(error));
    let sending = cm
        .create_id_of(None, 0, PortSpace::Ib, IdType::XrcSend)
        .unwrap();
    cm.bind_addr(sending, address(0, 0)).unwrap();
    assert!(wrong(cm.listen(sending, 1).unwrap_err()));
    let domain = keep(cm.device().open_xrcd().unwrap());
    let mut init = SrqInit {
        xrcd: Some(domain),
        ..SrqInit::new(sizes(4))
    };
    assert!(wrong(cm.create_srq_ex(sending, &mut init).unwrap_err()));
    let mut init = QpInitEx {
        init: qp(),
        xrcd: Some(domain),
        ..QpInitEx::default()
    };
    assert!(wrong(cm.create_qp_ex(sending, &mut init).unwrap_err()));
    // A target sends nothing, and an initiator all that a connection has.
    for (id_type, ops, fine) in [
        (IdType::XrcRecv, send_ops::SEND, false),
        (IdType::XrcSend, send_ops::SEND | send_ops::RDMA_READ, true),
    ] {
        let id = cm.create_id_of(None, 0, PortSpace::Ib, id_type).unwrap();
        cm.bind_addr(id, address(0, 0)).unwrap();
        let mut init = QpInitEx {
            init: qp(),
            extended: &[ExtendedAttribute::SendOps(ops)],
            ..QpInitEx::default()
        };
        assert_eq!(cm.create_qp_ex(id, &mut init).is_ok(), fine);
        let (_, mask) = cm.init_qp_attr(id, QpState::Init).unwrap();
        assert!(mask.contains(bareverbs_core::QpAttrMask::ACCESS_FLAGS));
    }
    pair.cms[1].destroy_id(xrc).unwrap();
}

/// rdma_xserver and rdma_xclient: synchronous endpoints on two threads.
#[test]
fn synchronous_endpoints() {
    let world = Builder::new()
        .function(Card::new(1))
        .function(Card::new(2))
        .threaded();
    let devices = [device(&world, 0), device(&world, 1)];
    let listening = std::sync::Barrier::new(2);
    let hints = |passive| AddrInfo {
        port_space: PortSpace::Ib,
        ..AddrInfo::hints(passive)
    };
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let mut cm = manager(&devices, 1, Mtu::B4096);
            let info = getaddrinfo(None, Some("7471"), Some(&hints(true))).unwrap();
            let listener = cm
                .create_ep_of(&info, IdType::XrcRecv, None, Some(&mut qp()))
                .unwrap();
            cm.create_srq(listener, None, &mut sizes(4)).unwrap();
            let buffer = cm.reg_msgs(listener, 16).unwrap();
            cm.post_recv(listener, 1, buffer.slice(..16).unwrap())
                .unwrap();
            cm.listen(listener, 0).unwrap();
            listening.wait();
            // The target was made from what the endpoint keeps.
            let id = cm.get_request(listener).unwrap();
            let srqn = cm.srq(listener).unwrap().srqn().number().to_be_bytes();
            let param = ConnParam {
                private_data: &srqn,
                ..ConnParam::default()
            };
            cm.accept(id, Some(&param)).unwrap();
            let got = cm.get_recv_comp(listener).unwrap();
            assert_eq!((got.status, got.byte_len), (WcStatus::Success, 5));
            let mut bytes = [0; 5];
            buffer.copy_out(0, &mut bytes).unwrap();
            assert_eq!(&bytes, b"hello");
            cm.disconnect(id).unwrap();
            cm.destroy_ep(id).unwrap();
            drop(buffer);
            cm.destroy_ep(listener).unwrap();
            assert_eq!(cm.ids_in_use(), 0);
        });
        let mut cm = manager(&devices, 0, Mtu::B4096);
        listening.wait();
        let info = getaddrinfo(Some("10.0.0.2"), Some("7471"), Some(&hints(false))).unwrap();
        let id = cm
            .create_ep_of(&info, IdType::XrcSend, None, Some(&mut qp()))
            .unwrap();
        cm.connect(id, None).unwrap();
        let event = cm.event(id).unwrap().unwrap();
        let srqn = u32::from_be_bytes(*event.private_data().first_chunk().unwrap());
        let queue = cm.xrc_endpoint(id).unwrap().qp.send_queue();
        let wr = SendWr {
            wr_id: 2,
            op: SendOp::Send,
            flags: SendFlags::SIGNALED,
            data: SendData::Inline(b"hello"),
        };
        queue.post_xrc(Srqn::from_low_bits(srqn), &wr).unwrap();
        assert_eq!(cm.get_send_comp(id).unwrap().status, WcStatus::Success);
        cm.disconnect(id).unwrap();
        cm.destroy_ep(id).unwrap();
        // The remaining events of the peer.
        while !server.is_finished() {
            cm.poll(cm.now()).unwrap();
        }
        server.join().unwrap();
    });
}
