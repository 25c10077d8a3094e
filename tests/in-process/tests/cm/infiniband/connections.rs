//! Connections and datagram services.

use bareverbs_cm::mad::{Attribute, Mad, Message};
use bareverbs_cm::rdma::*;
use bareverbs_core::qp::{QpAttrMask, QpState};
use connectx_model::roce::packet::Packet;

use super::support::*;

#[test]
fn connect_talk_disconnect() {
    let mut nodes = Nodes::new(2);
    let listener = nodes.listener(1, PortSpace::Tcp);
    let (ours, theirs) = nodes.connected();
    nodes.say((0, ours), (1, theirs), b"over there");
    nodes.say((1, theirs), (0, ours), &[7; 5000]);
    for (node, id) in [(0, ours), (1, theirs)] {
        let cm = &nodes.cms[node];
        let (here, there) = (
            cm.get_local_ib_addr(id).unwrap().unwrap(),
            cm.get_peer_ib_addr(id).unwrap().unwrap(),
        );
        assert_eq!((here.gid, there.gid), (gid(node), gid(1 - node)));
        assert_eq!(cm.get_local_addr(id).unwrap(), None);
        assert_eq!(cm.stats().repeated, 0);
    }
    assert_eq!(nodes.cms[0].route(ours).unwrap().path_mtu, 4);
    assert_eq!(nodes.cms[0].route(ours).unwrap().packet_life_time, 14);
    nodes.cms[0].disconnect(ours).unwrap();
    assert_eq!(nodes.expect(1, EventType::Disconnected).status, 0);
    nodes.cms[1].disconnect(theirs).unwrap();
    assert_eq!(nodes.expect(0, EventType::Disconnected).status, 0);
    nodes.cms[1].destroy_id(theirs).unwrap();
    nodes.cms[1].destroy_id(listener).unwrap();
    nodes.cms[0].destroy_id(ours).unwrap();
    for cm in &nodes.cms {
        assert_eq!(cm.ids_in_use(), 0);
    }
    assert_eq!(nodes.questions(), 1);
}

/// The path record's fields, in the REQ and in both QPs.
#[test]
fn the_path_is_the_connections() {
    let mut nodes = Nodes::new(2);
    nodes.subnet.with(|state| state.frames = Some(Vec::new()));
    nodes.listener(1, PortSpace::Tcp);
    let (ours, theirs) = nodes.connected();
    let frames = nodes.subnet.with(|state| state.frames.take()).unwrap();
    let req = frames.iter().find_map(|frame| {
        let packet = Packet::parse(frame).ok()?;
        let mad = Mad::new(packet.payload).ok()?;
        (mad.attribute() == Attribute::Req).then(|| packet.payload.to_vec())
    });
    let req = req.expect("no REQ");
    let Message::Req(req) = Mad::new(&req).unwrap().message().unwrap() else {
        panic!("no REQ");
    };
    assert_eq!((req.primary_local_lid, req.primary_remote_lid), (2, 3));
    assert_eq!(req.primary_local_gid, gid(0).0);
    assert_eq!(req.primary_remote_gid, gid(1).0);
    assert_eq!((req.primary_hop_limit, req.primary_subnet_local), (0, 1));
    assert_eq!((req.primary_sl, req.primary_rate), (3, 16));
    assert_eq!((req.path_mtu, req.pkey), (4, 0xffff));
    assert_eq!(req.service_id, 0x0106_1c06);
    for (node, id, other) in [(0, ours, 3), (1, theirs, 2)] {
        let endpoint = nodes.cms[node].endpoint(id).unwrap();
        let attr = endpoint.qp.query().unwrap().attr;
        assert_eq!((attr.ah_attr.dlid, attr.ah_attr.sl), (other, 3));
        assert!(attr.ah_attr.dgid.is_zero(), "no header inside the subnet");
        assert_eq!(attr.path_mtu.number(), 4);
    }
}

/// Through routers there is a global header, and no LID of the far end to say.
#[test]
fn a_path_through_routers_has_a_header() {
    let mut nodes = Nodes::new(2);
    nodes
        .subnet
        .with(|state| state.administration.path.hop_limit = 5);
    nodes.listener(1, PortSpace::Tcp);
    let (ours, theirs) = nodes.connected();
    nodes.say((0, ours), (1, theirs), b"far away");
    for (node, id) in [(0, ours), (1, theirs)] {
        let endpoint = nodes.cms[node].endpoint(id).unwrap();
        let attr = endpoint.qp.query().unwrap().attr;
        let ah = attr.ah_attr;
        assert_eq!((ah.dlid, ah.dgid), (lid(1 - node), gid(1 - node)));
        assert_eq!(ah.hop_limit, 5);
    }
}

/// A function that shares its port's LID with others is found by its GID: all that it sends has a global header, questions to
/// subnet administration too, so that the answers have one (`update_sm_ah` of Linux's sa_query.c, `rdma_check_ah_attr`).
#[test]
fn a_port_that_needs_headers_gets_them() {
    let mut nodes = Nodes::with_cards(2, |mut card| {
        card.grh_required = true;
        card
    });
    assert!(nodes.cms[0].port().grh_required);
    nodes.listener(1, PortSpace::Tcp);
    let (ours, theirs) = nodes.connected();
    nodes.say((0, ours), (1, theirs), b"by name");
    nodes.say((1, theirs), (0, ours), &[7; 5000]);
    for (node, id) in [(0, ours), (1, theirs)] {
        let endpoint = nodes.cms[node].endpoint(id).unwrap();
        let attr = endpoint.qp.query().unwrap().attr;
        assert_eq!(attr.ah_attr.dgid, gid(1 - node));
    }
}

/// The completion says the service level where RoCE says which network header came.
#[test]
fn requests_through_routers_get_lost_at_some_service_levels() {
    for service_level in 0..16 {
        let mut nodes = Nodes::new(2);
        nodes.subnet.with(|state| {
            state.administration.path.hop_limit = 5;
            state.administration.path.service_level = service_level;
        });
        nodes.listener(1, PortSpace::Tcp);
        let ours = nodes.client(PortSpace::Tcp);
        nodes.cms[0].connect(ours, None).unwrap();
        let request = nodes.event_within(1, SECOND).map(|event| event.event);
        let wanted = Some(EventType::ConnectRequest);
        assert_eq!(request, wanted, "service level {service_level}");
    }
}

#[test]
fn private_data_and_refusals() {
    let mut nodes = Nodes::new(2);
    nodes.listener(1, PortSpace::Tcp);
    let ours = nodes.client(PortSpace::Tcp);
    let param = ConnParam {
        private_data: &[9; 92],
        ..ConnParam::default()
    };
    let long = ConnParam {
        private_data: &[9; 93],
        ..param
    };
    assert_eq!(
        nodes.cms[0].connect(ours, Some(&long)).unwrap_err(),
        RdmaError::PrivateDataTooLong { len: 93, max: 92 }
    );
    nodes.cms[0].connect(ours, Some(&param)).unwrap();
    let request = nodes.expect(1, EventType::ConnectRequest);
    assert_eq!(request.private_data(), [9; 92]);
    nodes.cms[1].reject(request.id, b"not today").unwrap();
    let refused = nodes.expect(0, EventType::Rejected);
    assert_eq!(refused.status, 28);
    assert_eq!(&refused.private_data()[..9], b"not today");

    let unanswered = nodes.id(0, PortSpace::Tcp);
    let there = address(1, PORT + 1);
    nodes.cms[0]
        .resolve_addr(unanswered, None, there, SECOND)
        .unwrap();
    nodes.expect(0, EventType::AddrResolved);
    nodes.cms[0].resolve_route(unanswered, SECOND).unwrap();
    nodes.expect(0, EventType::RouteResolved);
    nodes.cms[0].create_qp(unanswered, None, &mut qp()).unwrap();
    nodes.cms[0].connect(unanswered, None).unwrap();
    assert_eq!(nodes.expect(0, EventType::Rejected).status, 8);
}

#[test]
fn a_datagram_service_is_found_and_answers() {
    let mut nodes = Nodes::new(2);
    nodes.listener(1, PortSpace::Udp);
    let ours = nodes.client(PortSpace::Udp);
    nodes.cms[0].connect(ours, None).unwrap();
    let theirs = nodes.expect(1, EventType::ConnectRequest).id;
    nodes.cms[1].create_qp(theirs, None, &mut qp()).unwrap();
    nodes.cms[1].accept(theirs, None).unwrap();
    let there = nodes.expect(0, EventType::Established).ud;
    assert_eq!(there.ah_attr.dlid, lid(1));
    assert_eq!(there.qkey, UDP_QKEY);

    const GRH: usize = 40;
    let buffer = nodes.cms[1].reg_msgs(theirs, GRH + 16).unwrap();
    let out = nodes.cms[0].reg_msgs(ours, 5).unwrap();
    out.copy_in(0, b"hello").unwrap();
    nodes.cms[1]
        .post_recv(theirs, 3, buffer.slice(..GRH + 16).unwrap())
        .unwrap();
    let ah = nodes.cms[0].device().create_ah(&there.ah_attr).unwrap();
    nodes.cms[0]
        .post_ud_send(
            ours,
            4,
            out.slice(..).unwrap(),
            SendFlags::SIGNALED,
            &ah,
            there.qp_num,
        )
        .unwrap();
    let end = nodes.world.now() + SECOND;
    let got = nodes.cms[1].get_recv_comp_until(theirs, end).unwrap();
    let mut bytes = [0; 5];
    buffer.copy_out(GRH, &mut bytes).unwrap();
    assert_eq!(&bytes, b"hello");
    // The way back needs no header here.
    let mut header = [0; GRH];
    buffer.copy_out(0, &mut header).unwrap();
    let back = nodes.cms[1].ah_attr_from_wc(&got, &header).unwrap();
    assert_eq!((back.dlid, back.sl), (lid(0), 3));
    assert!(back.dgid.is_zero());
}

#[test]
fn synchronous_endpoints() {
    let (builder, _) = subnet(2, 1);
    let world = builder.threaded();
    let listening = std::sync::Barrier::new(2);
    let hints = |passive| AddrInfo {
        family: Some(AddressFamily::Ib),
        ..AddrInfo::hints(passive)
    };
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let mut cm = manager::<4>(&world, 1);
            let info = getaddrinfo(None, Some("7174"), Some(&hints(true))).unwrap();
            let listener = cm.create_ep(&info, None, Some(&mut qp())).unwrap();
            cm.listen(listener, 0).unwrap();
            listening.wait();
            let id = cm.get_request(listener).unwrap();
            let buffer = cm.reg_msgs(id, 16).unwrap();
            cm.post_recv(id, 1, buffer.slice(..16).unwrap()).unwrap();
            cm.accept(id, None).unwrap();
            assert_eq!(cm.get_recv_comp(id).unwrap().byte_len, 5);
            cm.disconnect(id).unwrap();
            cm.destroy_ep(id).unwrap();
            cm.destroy_ep(listener).unwrap();
        });
        let client = scope.spawn(|| {
            let mut cm = manager::<4>(&world, 0);
            listening.wait();
            let host = gid(1).to_string();
            let info = getaddrinfo(Some(&host), Some("7174"), Some(&hints(false))).unwrap();
            let id = cm.create_ep(&info, None, Some(&mut qp())).unwrap();
            let out = cm.reg_msgs(id, 5).unwrap();
            cm.connect(id, None).unwrap();
            cm.post_send(id, 2, out.slice(..5).unwrap(), SendFlags::SIGNALED)
                .unwrap();
            let _ = cm.get_send_comp(id).unwrap();
            cm.disconnect(id).unwrap();
            cm.destroy_ep(id).unwrap();
        });
        client.join().unwrap();
        server.join().unwrap();
    });
}

/// Attributes of QPs that the application makes by itself name the LIDs.
#[test]
fn external_qps_get_lids() {
    let mut nodes = Nodes::new(2);
    nodes.listener(1, PortSpace::Tcp);
    let ours = nodes.resolved(PortSpace::Tcp);
    nodes.cms[0].resolve_route(ours, SECOND).unwrap();
    nodes.expect(0, EventType::RouteResolved);
    let own = ConnParam {
        qp_num: 0x99,
        ..ConnParam::default()
    };
    nodes.cms[0].connect(ours, Some(&own)).unwrap();
    let theirs = nodes.expect(1, EventType::ConnectRequest);
    assert_eq!(theirs.conn.qp_num, 0x99);
    let (attr, mask) = nodes.cms[1].init_qp_attr(theirs.id, QpState::Rtr).unwrap();
    assert!(mask.contains(QpAttrMask::AV));
    assert_eq!((attr.ah_attr.dlid, attr.ah_attr.sl), (lid(0), 3));
    nodes.cms[1].accept(theirs.id, Some(&own)).unwrap();
    nodes.expect(0, EventType::ConnectResponse);
    let (attr, _) = nodes.cms[0].init_qp_attr(ours, QpState::Rtr).unwrap();
    assert_eq!(attr.ah_attr.dlid, lid(1));
    nodes.cms[0].establish(ours).unwrap();
    nodes.expect(1, EventType::Established);
}
