//! The RDMA CM over driver and model: connections between two functions on one cable, in virtual time.

use std::net::{IpAddr, SocketAddr};

use crate::keep::keep;
use crate::pair::*;
use bareverbs_cm::mad::Attribute;
use bareverbs_cm::rdma::*;
use bareverbs_core::{GidEntry, Mtu, WcStatus};
use connectx_model::link::fault::Action;

/// Returns `true` if a frame carries this CM message: UD SEND_ONLY over IPv4, then the MAD's attribute.
fn carries(frame: &[u8], message: Attribute) -> bool {
    const BTH: usize = 14 + 20 + 8;
    frame.get(BTH) == Some(&0x64)
        && frame.get(BTH + 36..BTH + 38) == Some(&(message as u16).to_be_bytes()[..])
}

#[test]
fn the_path_mtu_is_the_ports_or_what_was_allowed() {
    for (limit, expected) in [(Mtu::B4096, 5), (Mtu::B1024, 3)] {
        let mut pair = Pair::with_path_mtu(limit);
        pair.listener();
        let ours = pair.client();
        assert_eq!(pair.cms[0].route(ours).unwrap().path_mtu, expected);
    }
}

#[test]
fn connect_talk_disconnect() {
    let mut pair = Pair::new();
    let listener = pair.listener();
    let ours = pair.client();
    let data = ConnParam {
        private_data: b"hello",
        ..ConnParam::default()
    };
    pair.cms[0].connect(ours, Some(&data)).unwrap();

    let request = pair.expect(1, EventType::ConnectRequest);
    assert_eq!(
        (request.listen_id, request.context, request.status),
        (Some(listener), 77, 0)
    );
    assert_eq!(&request.private_data()[..6], b"hello\0");
    assert_eq!(request.private_data().len(), CONNECT_PRIVATE_DATA_MAX);
    assert_eq!(
        (request.conn.retry_count, request.conn.rnr_retry_count),
        (7, 7)
    );
    assert!(request.conn.responder_resources > 0 && request.conn.initiator_depth > 0);
    let theirs = request.id;
    assert_eq!(
        pair.cms[1].get_local_addr(theirs).unwrap(),
        Some(address(1, PORT))
    );
    assert_eq!(
        pair.cms[1].get_peer_addr(theirs).unwrap(),
        pair.cms[0].get_local_addr(ours).unwrap()
    );
    assert_eq!(pair.cms[0].get_dst_port(ours).unwrap(), PORT);

    let mut init = qp();
    pair.cms[1].create_qp(theirs, None, &mut init).unwrap();
    assert!(
        init.cap.max_send_wr >= 8 && init.cap.max_inline_data >= 16,
        "{:?}",
        init.cap
    );
    let welcome = ConnParam {
        private_data: b"welcome",
        ..ConnParam::default()
    };
    pair.cms[1].accept(theirs, Some(&welcome)).unwrap();
    let established = pair.expect(0, EventType::Established);
    assert_eq!(&established.private_data()[..7], b"welcome");
    assert_eq!(established.private_data().len(), ACCEPT_PRIVATE_DATA_MAX);
    pair.expect(1, EventType::Established);

    pair.say((0, ours), (1, theirs), b"a message of the active side");
    pair.say((1, theirs), (0, ours), b"and one of the passive side");

    pair.cms[0].disconnect(ours).unwrap();
    assert_eq!(pair.expect(1, EventType::Disconnected).status, 0);
    assert_eq!(pair.expect(0, EventType::Disconnected).status, 0);
    pair.cms[1].disconnect(theirs).unwrap();
    pair.expect(0, EventType::TimewaitExit);
    pair.expect(1, EventType::TimewaitExit);
    assert_eq!(pair.event_within(0, SECOND).map(|event| event.event), None);

    let trace: Vec<_> = std::iter::from_fn(|| pair.cms[0].next_trace())
        .map(|entry| (entry.sent, entry.message.name()))
        .collect();
    assert_eq!(
        trace,
        [
            (true, "REQ"),
            (false, "REP"),
            (true, "RTU"),
            (true, "DREQ"),
            (false, "DREP")
        ]
    );
    for cm in &pair.cms {
        assert_eq!(
            (
                cm.stats().repeated,
                cm.stats().duplicates,
                cm.stats().ignored
            ),
            (0, 0, 0)
        );
    }
    pair.cms[0].destroy_id(ours).unwrap();
    pair.cms[1].destroy_id(theirs).unwrap();
    pair.cms[1].destroy_id(listener).unwrap();
    assert_eq!(
        pair.cms
            .each_ref()
            .map(|cm| (cm.ids_in_use(), cm.connections_in_use())),
        [(0, 0); 2]
    );
    assert_eq!(pair.cms[0].state(ours), Err(RdmaError::NoSuchId));
}

#[test]
fn rdma_read_and_write() {
    let mut pair = Pair::new();
    pair.listener();
    let (ours, theirs) = pair.connected();
    let text: Vec<u8> = (0..5000u32).map(|n| (n * 7) as u8).collect();
    let far = pair.cms[1].reg_read(theirs, text.len()).unwrap();
    far.copy_in(0, &text).unwrap();
    let near = pair.cms[0].reg_write(ours, text.len()).unwrap();
    pair.cms[0]
        .post_read(
            ours,
            1,
            near.slice(..text.len()).unwrap(),
            SendFlags::SIGNALED,
            far.remote(0),
        )
        .unwrap();
    let end = pair.world.now() + SECOND;
    assert_eq!(
        pair.cms[0].get_send_comp_until(ours, end).unwrap().status,
        WcStatus::Success
    );
    let mut bytes = vec![0; text.len()];
    near.copy_out(0, &mut bytes).unwrap();
    assert_eq!(bytes, text);

    let target = pair.cms[1].reg_write(theirs, text.len()).unwrap();
    pair.cms[0]
        .post_write(
            ours,
            2,
            near.slice(..text.len()).unwrap(),
            SendFlags::SIGNALED,
            target.remote(0),
        )
        .unwrap();
    assert_eq!(
        pair.cms[0].get_send_comp_until(ours, end).unwrap().status,
        WcStatus::Success
    );
    let mut bytes = vec![0; text.len()];
    target.copy_out(0, &mut bytes).unwrap();
    assert_eq!(bytes, text);
}

#[test]
fn refusals() {
    let mut pair = Pair::new();
    // No listener.
    let ours = pair.client();
    pair.cms[0].connect(ours, None).unwrap();
    let event = pair.expect(0, EventType::Rejected);
    assert_eq!(
        (event.status, event.private_data().len()),
        (8, REJECT_PRIVATE_DATA_MAX)
    );
    pair.cms[0].destroy_id(ours).unwrap();

    // The application refuses; what was posted is flushed.
    pair.listener();
    let ours = pair.client();
    let buffer = pair.cms[0].reg_msgs(ours, 64).unwrap();
    pair.cms[0]
        .post_recv(ours, 9, buffer.slice(..64).unwrap())
        .unwrap();
    pair.cms[0].connect(ours, None).unwrap();
    let theirs = pair.expect(1, EventType::ConnectRequest).id;
    pair.cms[1].reject(theirs, b"go away").unwrap();
    pair.cms[1].destroy_id(theirs).unwrap();
    let event = pair.expect(0, EventType::Rejected);
    assert_eq!(
        (event.status, &event.private_data()[..7]),
        (28, &b"go away"[..])
    );
    let end = pair.world.now() + SECOND;
    let flushed = failed(pair.cms[0].get_recv_comp_until(ours, end));
    assert_eq!((flushed.wr_id, flushed.status), (9, WcStatus::WrFlushErr));

    // The backlog is full: refused, not ignored.
    let clients: Vec<_> = (0..9).map(|_| pair.client()).collect();
    for id in &clients {
        pair.cms[0].connect(*id, None).unwrap();
    }
    let event = pair.expect(0, EventType::Rejected);
    assert_eq!((event.id, event.status), (clients[8], 3));
}

/// Each message of the handshake lost once, in each direction that it goes: it comes about all the same, in less than a
/// second.
#[test]
fn each_message_lost_once() {
    for (from, lost) in [
        (0, Attribute::Req),
        (1, Attribute::Rep),
        (0, Attribute::Rtu),
        (0, Attribute::Dreq),
        (1, Attribute::Drep),
        (1, Attribute::Dreq),
        (0, Attribute::Drep),
    ] {
        let what = format!("{lost} of node {from}");
        let mut pair = Pair::new();
        pair.listener();
        pair.world.with_wire(|wire| {
            wire.rule(0, 1, Action::Drop, move |port, frame| {
                port == from && carries(frame, lost)
            })
        });
        let start = pair.world.now();
        let (ours, theirs) = pair.connected();
        pair.say((0, ours), (1, theirs), b"still here");
        // The side that ends it is the one whose message, or whose answer, is to get lost.
        if from == 1 && lost == Attribute::Dreq || from == 0 && lost == Attribute::Drep {
            pair.cms[1].disconnect(theirs).unwrap();
        } else {
            pair.cms[0].disconnect(ours).unwrap();
        }
        pair.expect(0, EventType::Disconnected);
        pair.expect(1, EventType::Disconnected);
        assert_eq!(
            pair.world.with_wire(|wire| wire.report().dropped),
            1,
            "{what}"
        );
        assert!(pair.world.now() - start < SECOND, "{what}");
        let repeated: u64 = pair.cms.iter().map(|cm| cm.stats().repeated).sum();
        assert!(repeated > 0, "{what}");
    }
}

/// Over IPv6, to an address that a listener is bound to beside a wildcard of the other family.
#[test]
fn ipv6() {
    let mut pair = Pair::new();
    let v6 = |node: usize| -> IpAddr { format!("fd00::{}", node + 1).parse().unwrap() };
    let macs = [0, 1].map(|node: usize| pair.cms[node].device().mac().unwrap());
    for node in 0..2 {
        let device = pair.cms[node].device();
        let index = device.free_gid_index().unwrap();
        let gid = v6(node).into();
        device
            .set_gid(index, GidEntry::roce_v2(gid, macs[node]))
            .unwrap();
        let table = keep([
            (v6(0), macs[0]),
            (v6(1), macs[1]),
            (ip(0), macs[0]),
            (ip(1), macs[1]),
        ]);
        *pair.cms[node].resolver_mut() = StaticNeighbours(table);
    }
    let wildcard = pair.listener();
    let listener = pair.cms[1]
        .create_id(Some(pair.channels[1]), 6, PortSpace::Tcp)
        .unwrap();
    // Beside an id of the other family it keeps to its own.
    pair.cms[1]
        .set_option(listener, IdOption::AfOnly(true))
        .unwrap();
    pair.cms[1]
        .bind_addr(listener, SocketAddr::new(v6(1), PORT))
        .unwrap();
    pair.cms[1].listen(listener, 8).unwrap();

    let ours = pair.cms[0]
        .create_id(Some(pair.channels[0]), 0, PortSpace::Tcp)
        .unwrap();
    pair.cms[0]
        .resolve_addr(ours, None, SocketAddr::new(v6(1), PORT), SECOND)
        .unwrap();
    pair.expect(0, EventType::AddrResolved);
    pair.cms[0].resolve_route(ours, SECOND).unwrap();
    pair.expect(0, EventType::RouteResolved);
    assert_eq!(
        pair.cms[0].get_local_addr(ours).unwrap().unwrap().ip(),
        v6(0)
    );
    pair.cms[0].create_qp(ours, None, &mut qp()).unwrap();
    pair.cms[0].connect(ours, None).unwrap();
    let request = pair.expect(1, EventType::ConnectRequest);
    assert_eq!((request.listen_id, request.context), (Some(listener), 6));
    pair.cms[1].create_qp(request.id, None, &mut qp()).unwrap();
    pair.cms[1].accept(request.id, None).unwrap();
    pair.expect(0, EventType::Established);
    pair.expect(1, EventType::Established);
    pair.say((0, ours), (1, request.id), b"over IPv6");
    // IPv4 goes to the other listener.
    let second = pair.client();
    pair.cms[0].connect(second, None).unwrap();
    assert_eq!(
        pair.expect(1, EventType::ConnectRequest).listen_id,
        Some(wildcard)
    );
}

/// QP1 falls into error: it is started again, and what was lost is repeated.
#[test]
fn qp1_recovers() {
    let mut pair = Pair::new();
    pair.listener();
    let ours = pair.client();
    // Another program moves every QP of node 1 to ERR, QP1 among them.
    for qpn in 0..256 {
        let mut command = bareverbs_core::firmware_cmds::qp::Qp2ErrIn::new();
        command.set_qpn(qpn);
        let _ = pair.cms[1].device().execute(&command);
    }
    pair.cms[0].connect(ours, None).unwrap();
    let theirs = pair.expect(1, EventType::ConnectRequest).id;
    assert_eq!(pair.cms[1].gsi_restarts(), 1);
    pair.cms[1].create_qp(theirs, None, &mut qp()).unwrap();
    pair.cms[1].accept(theirs, None).unwrap();
    pair.expect(0, EventType::Established);
    pair.expect(1, EventType::Established);
    pair.say((0, ours), (1, theirs), b"as if nothing had happened");
}

/// The device is pulled out: every id gets the error once, and can be destroyed.
#[test]
fn device_removal() {
    let mut pair = Pair::new();
    let listener = pair.listener();
    let (_, theirs) = pair.connected();
    pair.world.with_model(1, connectx_model::Model::vanish);
    let end = pair.world.now() + 60 * SECOND;
    let error = loop {
        if let Err(error) = pair.cms[1].poll(pair.cms[1].now()) {
            break error;
        }
        assert!(pair.world.now() < end, "the error was not detected");
        pair.world.advance(10 * MS);
    };
    assert_eq!(error.errno(), errno::EIO);
    assert!(pair.cms[1].poll(pair.cms[1].now()).is_err());
    let mut removed = Vec::new();
    while let Some(event) = pair.cms[1].try_get_cm_event(pair.channels[1]).unwrap() {
        assert_eq!(event.event, EventType::DeviceRemoval);
        removed.push(event.id);
    }
    removed.sort_by_key(|id| *id != listener);
    assert_eq!(removed, [listener, theirs]);
    for id in removed {
        // What was to be said cannot be said any more; the id is gone all the same.
        let _ = pair.cms[1].destroy_id(id);
    }
    assert_eq!(pair.cms[1].ids_in_use(), 0);
}
