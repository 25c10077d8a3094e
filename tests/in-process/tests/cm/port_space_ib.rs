//! `RDMA_PS_IB`: ids with UC and UD QPs beside those with RC ones, as `rdma_create_ep` makes them from `ai_qp_type`.

use std::net::{IpAddr, SocketAddr};

use crate::pair::*;
use bareverbs_cm::rdma::*;
use bareverbs_core::qp::{QpState, SendData, SendOp, SendWr};
use bareverbs_core::{Access, Mtu, QpAttrMask, Qpn, Remote, WcFlags, WcStatus};
use bareverbs_in_process::Builder;
use connectx_model::Config as Card;

/// The network header in front of a datagram.
const GRH: usize = 40;

/// An id of node 1 that listens at every address.
fn listener(pair: &mut Pair, id_type: IdType, port: u16) -> CmId {
    let cm = &mut pair.cms[1];
    let id = cm
        .create_id_of(Some(pair.channels[1]), 77, PortSpace::Ib, id_type)
        .unwrap();
    cm.bind_addr(id, SocketAddr::new(IpAddr::from([0, 0, 0, 0]), port))
        .unwrap();
    cm.listen(id, 8).unwrap();
    id
}

/// An id of node 0 with a QP, which is ready to connect.
fn client(pair: &mut Pair, id_type: IdType, port: u16) -> CmId {
    let id = pair.cms[0]
        .create_id_of(Some(pair.channels[0]), 5, PortSpace::Ib, id_type)
        .unwrap();
    pair.resolve(id, port);
    pair.cms[0].create_qp(id, None, &mut qp()).unwrap();
    id
}

fn connected_uc(pair: &mut Pair) -> (CmId, CmId) {
    let ours = client(pair, IdType::Uc, PORT);
    pair.cms[0].connect(ours, None).unwrap();
    let request = pair.expect(1, EventType::ConnectRequest);
    pair.cms[1].create_qp(request.id, None, &mut qp()).unwrap();
    pair.cms[1].accept(request.id, None).unwrap();
    let established = pair.expect(0, EventType::Established);
    pair.expect(1, EventType::Established);
    let theirs = pair.cms[1].uc_endpoint(request.id).unwrap().qp.qpn();
    assert_eq!(established.conn.qp_num, theirs.number());
    (ours, request.id)
}

/// Messages and writes both ways over an unreliable connection; what it has not is refused by name.
#[test]
fn an_unreliable_connection() {
    let mut pair = Pair::new();
    let before = [0, 1].map(|node| objects(&pair, node));
    let listening = listener(&mut pair, IdType::Uc, PORT);
    let (ours, theirs) = connected_uc(&mut pair);
    let ends = [ours, theirs];
    for (node, id) in ends.into_iter().enumerate() {
        let qp = pair.cms[node].uc_endpoint(id).unwrap().qp;
        assert_eq!(qp.state(), QpState::Rts);
        // The peer may not read, even if its request asked for that.
        let access = qp.query().unwrap().attr.qp_access_flags;
        assert_eq!(access, Access::REMOTE_WRITE);
    }
    for (from, to) in [(0, 1), (1, 0)] {
        pair.say((from, ends[from]), (to, ends[to]), b"may be lost");
        let source = pair.cms[from].reg_msgs(ends[from], 8).unwrap();
        let target = pair.cms[to].reg_write(ends[to], 8).unwrap();
        source.copy_in(0, b"12345678").unwrap();
        let remote = Remote {
            addr: target.addr(),
            rkey: target.rkey(),
        };
        pair.cms[to]
            .post_recv(ends[to], 4, target.slice(..0).unwrap())
            .unwrap();
        let cm = &mut pair.cms[from];
        let (id, flags) = (ends[from], SendFlags::SIGNALED);
        let whole = source.slice(..).unwrap();
        cm.post_write(id, 1, whole, SendFlags::empty(), remote)
            .unwrap();
        // One with a value, by the QP itself.
        let wr = SendWr {
            wr_id: 2,
            op: SendOp::WriteImm(remote, 0xfeed),
            flags,
            data: SendData::Sges(&[]),
        };
        let endpoint = cm.uc_endpoint(id).unwrap();
        endpoint.qp.send_queue().post(&wr).unwrap();
        let end = pair.world.now() + SECOND;
        let sent = pair.cms[from].get_send_comp_until(id, end).unwrap();
        assert_eq!((sent.wr_id, sent.status), (2, WcStatus::Success));
        let got = pair.cms[to].get_recv_comp_until(ends[to], end).unwrap();
        assert_eq!((got.wr_id, got.imm_data), (4, 0xfeed));
        assert!(got.flags.contains(WcFlags::WITH_IMM));
        let mut bytes = [0; 8];
        target.copy_out(0, &mut bytes).unwrap();
        assert_eq!(&bytes, b"12345678");
        let refused = pair.cms[from].post_read(id, 3, whole, flags, remote);
        let wrong = matches!(
            refused,
            Err(RdmaError::WrongType {
                id_type: IdType::Uc,
                ..
            })
        );
        assert!(wrong, "{refused:?}");
    }
    pair.cms[0].disconnect(ours).unwrap();
    pair.expect(1, EventType::Disconnected);
    pair.expect(0, EventType::Disconnected);
    pair.cms[1].disconnect(theirs).unwrap();
    for (node, id) in [(0, ours), (1, theirs), (1, listening)] {
        pair.cms[node].destroy_ep(id).unwrap();
    }
    for _ in 0..100 {
        pair.poll();
        pair.world.advance(MS);
    }
    assert_eq!([0, 1].map(|node| objects(&pair, node)), before);
}

/// The attributes of a QP that is the application's: those that UC has, and no others (as the kernel's `ib_cm_init_qp_attr`).
#[test]
fn attributes_of_an_external_qp() {
    let mut pair = Pair::new();
    listener(&mut pair, IdType::Uc, PORT);
    let ours = pair.cms[0]
        .create_id_of(Some(pair.channels[0]), 5, PortSpace::Ib, IdType::Uc)
        .unwrap();
    pair.resolve(ours, PORT);
    let param = |qp_num| ConnParam {
        qp_num,
        responder_resources: 4,
        initiator_depth: 4,
        ..ConnParam::default()
    };
    pair.cms[0].connect(ours, Some(&param(0x123))).unwrap();
    let theirs = pair.expect(1, EventType::ConnectRequest);
    assert_eq!(theirs.conn.qp_num, 0x123);
    pair.cms[1].accept(theirs.id, Some(&param(0x456))).unwrap();
    let answer = pair.expect(0, EventType::ConnectResponse);
    assert_eq!(answer.conn.qp_num, 0x456);
    for (node, id, remote) in [(0, ours, 0x456), (1, theirs.id, 0x123)] {
        let attr = |state| pair.cms[node].init_qp_attr(id, state).unwrap();
        let (init, _) = attr(QpState::Init);
        assert_eq!(init.qp_access_flags, Access::REMOTE_WRITE);
        let (rtr, mask) = attr(QpState::Rtr);
        assert_eq!(rtr.dest_qp_num, Qpn::from_low_bits(remote));
        let answers = QpAttrMask::MAX_DEST_RD_ATOMIC | QpAttrMask::MIN_RNR_TIMER;
        assert!(!mask.intersects(answers), "{mask:?}");
        let (_, mask) = attr(QpState::Rts);
        assert_eq!(mask, QpAttrMask::STATE | QpAttrMask::SQ_PSN);
    }
    pair.cms[0].establish(ours).unwrap();
    pair.expect(1, EventType::Established);
}

/// A datagram service in this port space is found by SIDR, with the Q_Key of `RDMA_PS_UDP`; its groups are there as well.
#[test]
fn a_datagram_service() {
    let mut pair = Pair::new();
    let listening = listener(&mut pair, IdType::Ud, PORT);
    let ours = client(&mut pair, IdType::Ud, PORT);
    pair.cms[0].connect(ours, None).unwrap();
    let request = pair.expect(1, EventType::ConnectRequest);
    assert_eq!(request.listen_id, Some(listening));
    let theirs = request.id;
    pair.cms[1].create_qp(theirs, None, &mut qp()).unwrap();
    let qpn = pair.cms[1].ud_endpoint(theirs).unwrap().qp.qpn();
    let inbox = pair.cms[1].reg_msgs(theirs, GRH + 8).unwrap();
    pair.cms[1]
        .post_recv(theirs, 7, inbox.slice(..GRH + 8).unwrap())
        .unwrap();
    pair.cms[1].accept(theirs, None).unwrap();
    let found = pair.expect(0, EventType::Established);
    assert_eq!((found.ud.qp_num, found.ud.qkey), (qpn.number(), UDP_QKEY));
    let ah = pair.cms[0].device().create_ah(&found.ud.ah_attr).unwrap();
    let out = pair.cms[0].reg_msgs(ours, 5).unwrap();
    out.copy_in(0, b"hello").unwrap();
    let whole = out.slice(..).unwrap();
    pair.cms[0]
        .post_ud_send(ours, 1, whole, SendFlags::SIGNALED, &ah, found.ud.qp_num)
        .unwrap();
    let end = pair.world.now() + SECOND;
    let sent = pair.cms[0].get_send_comp_until(ours, end).unwrap();
    assert_eq!(sent.status, WcStatus::Success);
    let got = pair.cms[1].get_recv_comp_until(theirs, end).unwrap();
    assert_eq!(got.byte_len as usize, GRH + 5);
    let mut bytes = [0; 5];
    inbox.copy_out(GRH, &mut bytes).unwrap();
    assert_eq!(&bytes, b"hello");
    // The other calls are those for datagrams, too.
    assert!(pair.cms[0].endpoint(ours).is_err());
    assert!(pair.cms[0].uc_endpoint(ours).is_err());
    let other = pair.cms[0]
        .create_id_of(Some(pair.channels[0]), 5, PortSpace::Ib, IdType::Ud)
        .unwrap();
    pair.resolve(other, PORT);
    pair.cms[0]
        .join_multicast(other, IpAddr::from([239, 1, 2, 3]), 9)
        .unwrap();
    pair.expect(0, EventType::MulticastJoin);
}

/// A listener takes requests for its own type only; its port is not another type's at the same address.
#[test]
fn types_do_not_mix() {
    let mut pair = Pair::new();
    let types = [IdType::Rc, IdType::Uc, IdType::Ud];
    for (number, listening) in types.into_iter().enumerate() {
        let port = PORT + number as u16;
        listener(&mut pair, listening, port);
        for asking in types {
            let id = client(&mut pair, asking, port);
            pair.cms[0].connect(id, None).unwrap();
            match (listening, asking) {
                (listening, asking) if listening == asking => {
                    let request = pair.expect(1, EventType::ConnectRequest);
                    pair.cms[1].reject(request.id, b"not now").unwrap();
                    pair.cms[1].destroy_id(request.id).unwrap();
                    let (event, status) = match asking {
                        IdType::Ud => (EventType::Unreachable, 2),
                        _ => (EventType::Rejected, 28),
                    };
                    assert_eq!(pair.expect(0, event).status, status);
                }
                // There is no such service.
                (_, IdType::Ud) => {
                    assert_eq!(pair.expect(0, EventType::Unreachable).status, 1);
                }
                (IdType::Ud, _) => assert_eq!(pair.expect(0, EventType::Rejected).status, 8),
                // REJ 9: invalid transport.
                _ => assert_eq!(pair.expect(0, EventType::Rejected).status, 9),
            }
            pair.cms[0].destroy_ep(id).unwrap();
        }
    }
    assert!(pair.event_within(1, SECOND).is_none());
    let cm = &mut pair.cms[1];
    for id_type in types {
        let id = cm
            .create_id_of(Some(pair.channels[1]), 1, PortSpace::Ib, id_type)
            .unwrap();
        let taken = cm.bind_addr(id, address(1, PORT)).unwrap_err();
        assert_eq!(taken.errno(), errno::EADDRNOTAVAIL, "{taken}");
    }
    for port_space in [PortSpace::Tcp, PortSpace::Udp, PortSpace::Ipoib] {
        let refused = cm.create_id_of(None, 0, port_space, IdType::Uc);
        let refused = refused.unwrap_err();
        assert_eq!(refused.errno(), errno::EINVAL, "{refused}");
    }
}

/// Listeners of all types on one port, each at an address of its own; each is found, and goes alone.
#[test]
fn types_share_a_port_by_addresses() {
    let mut pair = Pair::new();
    let v6: IpAddr = "fe80::1".parse().unwrap();
    for [first, second] in [
        [IdType::Rc, IdType::Uc],
        [IdType::Uc, IdType::Ud],
        [IdType::Ud, IdType::Rc],
    ] {
        let cm = &mut pair.cms[1];
        let ids = [(first, ip(1)), (second, v6)].map(|(id_type, ip)| {
            let id = cm
                .create_id_of(Some(pair.channels[1]), 1, PortSpace::Ib, id_type)
                .unwrap();
            cm.bind_addr(id, SocketAddr::new(ip, PORT)).unwrap();
            cm.listen(id, 1).unwrap();
            id
        });
        let expect = |pair: &mut Pair, id_type, found: bool| {
            let id = client(pair, id_type, PORT);
            pair.cms[0].connect(id, None).unwrap();
            if found {
                let request = pair.expect(1, EventType::ConnectRequest);
                assert_eq!(request.listen_id, Some(ids[0]));
                pair.cms[1].destroy_id(request.id).unwrap();
            }
            let end = match id_type {
                IdType::Ud => EventType::Unreachable,
                _ => EventType::Rejected,
            };
            pair.expect(0, end);
            pair.cms[0].destroy_ep(id).unwrap();
        };
        expect(&mut pair, first, true);
        // It listens to another address.
        expect(&mut pair, second, false);
        pair.cms[1].destroy_id(ids[1]).unwrap();
        expect(&mut pair, first, true);
        pair.cms[1].destroy_id(ids[0]).unwrap();
        expect(&mut pair, first, false);
    }
}

/// `rdma_create_ep` with `IBV_QPT_UC` and `IBV_QPT_UD`: synchronous endpoints on two threads.
#[test]
fn synchronous_endpoints() {
    let world = Builder::new()
        .function(Card::new(1))
        .function(Card::new(2))
        .threaded();
    let devices = [device(&world, 0), device(&world, 1)];
    let steps = std::sync::Barrier::new(2);
    let hints = |passive| AddrInfo {
        port_space: PortSpace::Ib,
        ..AddrInfo::hints(passive)
    };
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let mut cm = manager(&devices, 1, Mtu::B4096);
            for id_type in [IdType::Uc, IdType::Ud] {
                let info = getaddrinfo(None, Some("7471"), Some(&hints(true))).unwrap();
                let listener = cm
                    .create_ep_of(&info, id_type, None, Some(&mut qp()))
                    .unwrap();
                cm.listen(listener, 0).unwrap();
                steps.wait();
                let id = cm.get_request(listener).unwrap();
                let buffer = cm.reg_msgs(id, GRH + 16).unwrap();
                cm.post_recv(id, 1, buffer.slice(..GRH + 16).unwrap())
                    .unwrap();
                cm.accept(id, None).unwrap();
                let got = cm.get_recv_comp(id).unwrap();
                let header = if id_type == IdType::Ud { GRH } else { 0 };
                assert_eq!(got.byte_len as usize, header + 5);
                let mut bytes = [0; 5];
                buffer.copy_out(header, &mut bytes).unwrap();
                assert_eq!(&bytes, b"hello");
                if id_type == IdType::Uc {
                    cm.disconnect(id).unwrap();
                }
                drop(buffer);
                cm.destroy_ep(id).unwrap();
                cm.destroy_ep(listener).unwrap();
                assert_eq!(cm.ids_in_use(), 0);
            }
        });
        let mut cm = manager(&devices, 0, Mtu::B4096);
        for id_type in [IdType::Uc, IdType::Ud] {
            steps.wait();
            let info = getaddrinfo(Some("10.0.0.2"), Some("7471"), Some(&hints(false))).unwrap();
            let id = cm
                .create_ep_of(&info, id_type, None, Some(&mut qp()))
                .unwrap();
            cm.connect(id, None).unwrap();
            let message = cm.reg_msgs(id, 5).unwrap();
            message.copy_in(0, b"hello").unwrap();
            if id_type == IdType::Uc {
                cm.post_send(id, 2, message.slice(..5).unwrap(), SendFlags::SIGNALED)
                    .unwrap();
            } else {
                let to = cm.event(id).unwrap().unwrap().ud;
                let ah = cm.device().create_ah(&to.ah_attr).unwrap();
                let whole = message.slice(..).unwrap();
                cm.post_ud_send(id, 2, whole, SendFlags::SIGNALED, &ah, to.qp_num)
                    .unwrap();
            }
            assert_eq!(cm.get_send_comp(id).unwrap().status, WcStatus::Success);
            if id_type == IdType::Uc {
                cm.disconnect(id).unwrap();
            }
            drop(message);
            cm.destroy_ep(id).unwrap();
        }
        while !server.is_finished() {
            cm.poll(cm.now()).unwrap();
        }
        server.join().unwrap();
    });
}
