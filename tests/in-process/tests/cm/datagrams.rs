//! Ids for datagrams: services found by SIDR, and datagrams both ways.

use crate::pair::*;
use bareverbs_cm::mad::{Attribute, SidrStatus};
use bareverbs_cm::rdma::*;
use bareverbs_core::qp::{Destination, QpState, SendData, SendOp, SendWr};
use bareverbs_core::{AhAttr, CqInit, Mtu, QpInitAttr, Qpn, RoceVersion, Ud, WcFlags, WcStatus};
use bareverbs_in_process::Builder;
use connectx_model::Config as Card;

/// The network header in front of a datagram.
const GRH: usize = 40;

fn data(private_data: &[u8]) -> ConnParam<'_> {
    ConnParam {
        private_data,
        ..ConnParam::default()
    }
}

/// udaddy: resolve the service, send to it with the own QP's number as immediate data, and get an answer.
#[test]
fn a_service_is_found_and_answers() {
    for port_space in [PortSpace::Udp, PortSpace::Ipoib] {
        let mut pair = Pair::new();
        let listener = pair.listener_of(port_space, 2);
        let ours = pair.resolved(port_space);
        let mut init = qp();
        pair.cms[0].create_qp(ours, None, &mut init).unwrap();
        let endpoint = pair.cms[0].ud_endpoint(ours).unwrap();
        assert_eq!(endpoint.qp.state(), QpState::Rts);
        let queried = endpoint.qp.query().unwrap();
        assert_eq!(queried.attr.qkey, UDP_QKEY);
        let our_qpn = endpoint.qp.qpn();

        let sent = pair.world.now();
        let long = [0x5a; UD_CONNECT_PRIVATE_DATA_MAX];
        pair.cms[0].connect(ours, Some(&data(&long))).unwrap();
        assert_eq!(UD_CONNECT_PRIVATE_DATA_MAX, 180);
        let request = pair.expect(1, EventType::ConnectRequest);
        assert_eq!(request.listen_id, Some(listener));
        assert_eq!(request.context, 77);
        assert_eq!(request.private_data(), long);
        assert_eq!(request.ud.qp_num, 0);
        assert_eq!(
            pair.cms[1].get_local_addr(request.id).unwrap(),
            Some(address(1, PORT))
        );
        let our_port = pair.cms[0].get_src_port(ours).unwrap();
        assert_eq!(
            pair.cms[1].get_peer_addr(request.id).unwrap(),
            Some(address(0, our_port))
        );

        pair.cms[1].create_qp(request.id, None, &mut qp()).unwrap();
        let buffer = pair.cms[1].reg_msgs(request.id, GRH + 64).unwrap();
        pair.cms[1]
            .post_recv(request.id, 7, buffer.slice(..GRH + 64).unwrap())
            .unwrap();
        let their_qpn = pair.cms[1].ud_endpoint(request.id).unwrap().qp.qpn();
        pair.cms[1]
            .accept(request.id, Some(&data(b"this way")))
            .unwrap();
        // There is one answer to a question.
        assert!(matches!(
            pair.cms[1].accept(request.id, None),
            Err(RdmaError::WrongState { .. })
        ));
        let there = pair.expect(0, EventType::Established);
        assert!(pair.world.now() - sent < SECOND, "something was lost");
        assert_eq!(there.private_data().len(), UD_ACCEPT_PRIVATE_DATA_MAX);
        assert_eq!(&there.private_data()[..8], b"this way");
        assert_eq!(
            (there.ud.qp_num, there.ud.qkey),
            (their_qpn.number(), UDP_QKEY)
        );
        // The service gets no more of it.
        assert!(pair.event_within(1, SECOND).is_none());

        let ah = pair.cms[0].device().create_ah(&there.ud.ah_attr).unwrap();
        let out = pair.cms[0].reg_msgs(ours, 64).unwrap();
        out.copy_in(0, b"hello there").unwrap();
        let sge = out.sge(0, 11).unwrap();
        let wr = SendWr {
            wr_id: 1,
            op: SendOp::SendToImm(
                Destination {
                    ah: &ah,
                    remote_qpn: Qpn::from_low_bits(there.ud.qp_num),
                    remote_qkey: there.ud.qkey,
                },
                our_qpn.number(),
            ),
            flags: SendFlags::SIGNALED,
            data: SendData::Sges(&[sge]),
        };
        let endpoint = pair.cms[0].ud_endpoint(ours).unwrap();
        endpoint.qp.send_queue().post(&wr).unwrap();
        let end = pair.world.now() + SECOND;
        let sent = pair.cms[0].get_send_comp_until(ours, end).unwrap();
        assert_eq!(sent.status, WcStatus::Success);
        let got = pair.cms[1].get_recv_comp_until(request.id, end).unwrap();
        assert_eq!(
            (got.wr_id, got.status, got.byte_len as usize, got.src_qp),
            (7, WcStatus::Success, GRH + 11, our_qpn)
        );
        assert!(got.flags.contains(WcFlags::GRH | WcFlags::WITH_IMM));
        assert_eq!(got.imm_data, our_qpn.number());
        let mut bytes = [0; GRH + 11];
        buffer.copy_out(0, &mut bytes).unwrap();
        assert_eq!(&bytes[GRH..], b"hello there");

        let mut grh = [0; GRH];
        buffer.copy_out(0, &mut grh).unwrap();
        let back: AhAttr = pair.cms[1].ah_attr_from_wc(&got, &grh).unwrap();
        assert_eq!(back.dgid.0, mapped(ip(0)));
        assert_eq!(Ok(back.dmac), pair.cms[0].device().mac());
        let entry = pair.cms[1].device().port_gid(back.sgid_index).unwrap();
        assert_eq!(
            (entry.gid.0, entry.version),
            (mapped(ip(1)), RoceVersion::V2)
        );
        let ah = pair.cms[1].device().create_ah(&back).unwrap();
        pair.cms[0]
            .post_recv(ours, 8, out.slice(..64).unwrap())
            .unwrap();
        let reply = pair.cms[1].reg_msgs(request.id, 3).unwrap();
        reply.copy_in(0, b"hi!").unwrap();
        pair.cms[1]
            .post_ud_send(
                request.id,
                9,
                reply.slice(..3).unwrap(),
                SendFlags::SIGNALED,
                &ah,
                got.imm_data,
            )
            .unwrap();
        let end = pair.world.now() + SECOND;
        let got = pair.cms[0].get_recv_comp_until(ours, end).unwrap();
        assert_eq!(
            (got.wr_id, got.byte_len as usize, got.src_qp),
            (8, GRH + 3, their_qpn)
        );
        let mut bytes = [0; 3];
        out.copy_out(GRH, &mut bytes).unwrap();
        assert_eq!(&bytes, b"hi!");

        let messages: Vec<_> = std::iter::from_fn(|| pair.cms[0].next_trace())
            .map(|entry| (entry.sent, entry.message, entry.remote_comm_id))
            .collect();
        assert_eq!(
            messages,
            [
                (true, Attribute::SidrReq, 0),
                (false, Attribute::SidrRep, 0)
            ]
        );
        pair.cms[0].destroy_id(ours).unwrap();
        pair.cms[1].destroy_id(request.id).unwrap();
        pair.cms[1].destroy_id(listener).unwrap();
        assert_eq!([0, 1].map(|node| pair.cms[node].ids_in_use()), [0, 0]);
    }
}

/// Without a valid header in the 40 bytes, there is no address to answer to.
#[test]
fn a_return_path_needs_a_header() {
    let mut pair = Pair::new();
    let mut wc = bareverbs_core::Wc::EMPTY;
    let mut v4 = [0; GRH];
    v4[20] = 0x45;
    v4[32..36].copy_from_slice(&[10, 0, 0, 1]);
    v4[36..40].copy_from_slice(&[10, 0, 0, 2]);
    let sum = |header: &[u8]| {
        let words = header.chunks(2);
        let sum: u32 = words.map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
        !(((sum & 0xffff) + (sum >> 16)) as u16)
    };
    let check = sum(&v4[20..]);
    v4[30..32].copy_from_slice(&check.to_be_bytes());
    // What is before an IPv4 header may be anything, even the beginning of an IPv6 one.
    v4[0] = 0x60;
    let none = Err(RdmaError::NoNetworkHeader);
    assert_eq!(pair.cms[1].ah_attr_from_wc(&wc, &v4), none);
    wc.flags = WcFlags::GRH;
    let way = pair.cms[1].ah_attr_from_wc(&wc, &v4).unwrap();
    assert_eq!(way.dgid.0, mapped(ip(0)));
    assert_eq!(pair.cms[1].ah_attr_from_wc(&wc, &[0; GRH]), none);
    // A check sum that is wrong makes it an IPv6 header, between unassigned addresses.
    v4[30] ^= 1;
    assert!(pair.cms[1].ah_attr_from_wc(&wc, &v4).is_err());
    let mut v6 = [0; GRH];
    v6[0] = 0x60;
    v6[8..24].copy_from_slice(&mapped(ip(0)));
    v6[24..40].copy_from_slice(&mapped(ip(1)));
    let way = pair.cms[1].ah_attr_from_wc(&wc, &v6).unwrap();
    assert_eq!(way.dgid.0, mapped(ip(0)));
}

/// A service that refuses, one that no listener offers, and one whose backlog is full: `Unreachable` with the status,
/// as Linux has it.
#[test]
fn services_refuse() {
    let mut pair = Pair::new();
    let ours = pair.resolved(PortSpace::Udp);
    pair.cms[0].connect(ours, None).unwrap();
    let event = pair.expect(0, EventType::Unreachable);
    let none = SidrStatus::UNSUPPORTED_SERVICE;
    assert_eq!(event.status, i32::from(none.0));

    pair.listener_of(PortSpace::Udp, 2);
    let ours = pair.resolved(PortSpace::Udp);
    pair.cms[0].connect(ours, None).unwrap();
    let request = pair.expect(1, EventType::ConnectRequest);
    pair.cms[1].reject(request.id, b"not today").unwrap();
    let event = pair.expect(0, EventType::Unreachable);
    assert_eq!(event.status, i32::from(SidrStatus::REJECTED.0));
    assert_eq!(&event.private_data()[..9], b"not today");
    assert_eq!(pair.cms[0].state(ours).unwrap(), IdState::Connect);

    // Destroying an id that was asked is a refusal.
    let ours = pair.resolved(PortSpace::Udp);
    pair.cms[0].connect(ours, None).unwrap();
    let request = pair.expect(1, EventType::ConnectRequest);
    pair.cms[1].destroy_id(request.id).unwrap();
    let event = pair.expect(0, EventType::Unreachable);
    assert_eq!(event.status, i32::from(SidrStatus::REJECTED.0));

    // Two may wait.
    for _ in 0..3 {
        let ours = pair.resolved(PortSpace::Udp);
        pair.cms[0].connect(ours, None).unwrap();
    }
    let event = pair.expect(0, EventType::Unreachable);
    assert_eq!(event.status, i32::from(SidrStatus::NO_QP.0));
}

/// Without an answer the question is repeated, and at last there is an error; destroying the id ends it before.
#[test]
fn a_question_without_an_answer_fails_in_time() {
    let mut pair = Pair::new();
    let ours = pair.resolved(PortSpace::Udp);
    let timers = bareverbs_cm::engine::Timers {
        max_retries: 2,
        ..Default::default()
    };
    pair.cms[0]
        .set_option(ours, IdOption::CmTimers(timers))
        .unwrap();
    pair.world.set_link(1, false);
    pair.cms[0].connect(ours, None).unwrap();
    let event = pair.event_within(0, 60 * SECOND).expect("an end");
    assert_eq!(
        (event.event, event.status),
        (EventType::Unreachable, -errno::ETIMEDOUT)
    );
    let again = std::iter::from_fn(|| pair.cms[0].next_trace())
        .filter(|entry| entry.message == Attribute::SidrReq && entry.repeated)
        .count();
    assert!(again >= 2, "{again} repetitions");
    let ours = pair.resolved(PortSpace::Udp);
    pair.cms[0].connect(ours, None).unwrap();
    pair.cms[0].destroy_id(ours).unwrap();
    assert!(pair.event_within(0, 30 * SECOND).is_none());
}

/// The port spaces have ports of their own, and requests find the listener of theirs.
#[test]
fn port_spaces_are_apart() {
    let mut pair = Pair::new();
    let spaces = [
        PortSpace::Tcp,
        PortSpace::Udp,
        PortSpace::Ipoib,
        PortSpace::Ib,
    ];
    let listeners = spaces.map(|space| pair.listener_of(space, 2));
    let second = pair.cms[1].create_id(None, 0, PortSpace::Udp).unwrap();
    let error = pair.cms[1].bind_addr(second, address(1, PORT));
    assert_eq!(error.unwrap_err().errno(), errno::EADDRNOTAVAIL);
    for (space, listener) in spaces.into_iter().zip(listeners) {
        let ours = pair.resolved(space);
        let param = ConnParam {
            qp_num: 0x42,
            ..ConnParam::default()
        };
        pair.cms[0].connect(ours, Some(&param)).unwrap();
        let request = pair.expect(1, EventType::ConnectRequest);
        assert_eq!(request.listen_id, Some(listener), "{space:?}");
        pair.cms[1].reject(request.id, &[]).unwrap();
        let refused = pair.event(0);
        let expected = if space.is_datagram() {
            (EventType::Unreachable, 2)
        } else {
            (EventType::Rejected, 28)
        };
        assert_eq!((refused.event, refused.status), expected, "{space:?}");
    }
}

/// The QPs are the application's own, on both sides.
#[test]
fn external_qps() {
    let mut pair = Pair::new();
    pair.listener_of(PortSpace::Udp, 2);
    let ours = pair.resolved(PortSpace::Udp);
    let device = pair.cms[0].device();
    let pd = device.alloc_pd().unwrap();
    let cq = device.create_cq(CqInit::new(16)).unwrap();
    let mut init = QpInitAttr {
        send_cq: &cq,
        recv_cq: &cq,
        srq: None,
        cap: cap(),
        sq_sig_all: false,
    };
    let mut own = pd.create_qp::<Ud>(&mut init).unwrap();
    for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
        let (attr, mask) = pair.cms[0].init_qp_attr(ours, state).unwrap();
        own.modify(&attr, mask).unwrap();
    }
    assert_eq!(own.query().unwrap().attr.qkey, UDP_QKEY);
    pair.cms[0].connect(ours, None).unwrap();
    let request = pair.expect(1, EventType::ConnectRequest);
    assert_eq!(
        pair.cms[1].accept(request.id, None),
        Err(RdmaError::NoQp),
        "which one?"
    );
    let param = ConnParam {
        qp_num: 0x1234,
        ..ConnParam::default()
    };
    pair.cms[1].accept(request.id, Some(&param)).unwrap();
    assert_eq!(pair.expect(0, EventType::Established).ud.qp_num, 0x1234);
}

/// Calls for connections are refused on ids for datagrams, and the other way round.
#[test]
fn calls_of_the_other_kind() {
    let mut pair = Pair::new();
    pair.listener_of(PortSpace::Udp, 2);
    let ours = pair.resolved(PortSpace::Udp);
    pair.cms[0].create_qp(ours, None, &mut qp()).unwrap();
    let wrong = |result: Result<(), RdmaError>| match result {
        Err(error @ (RdmaError::WrongPortSpace { .. } | RdmaError::WrongState { .. })) => {
            assert_eq!(error.errno(), errno::EINVAL);
        }
        other => panic!("{other:?}"),
    };
    let cm = &mut pair.cms[0];
    wrong(cm.endpoint(ours).map(drop));
    wrong(cm.post_send_inline(ours, 0, b"x", SendFlags::SIGNALED));
    wrong(cm.disconnect(ours));
    wrong(cm.establish(ours).map_err(|error| match error {
        RdmaError::QpExists => RdmaError::WrongPortSpace {
            call: "establish",
            port_space: PortSpace::Udp,
        },
        other => other,
    }));
    wrong(cm.notify(ours));
    let too_long = [0; UD_CONNECT_PRIVATE_DATA_MAX + 1];
    let error = cm.connect(ours, Some(&data(&too_long)));
    assert_eq!(
        error,
        Err(RdmaError::PrivateDataTooLong { len: 181, max: 180 })
    );
    cm.connect(ours, None).unwrap();
    wrong(cm.accept(ours, None));
    wrong(cm.reject(ours, &[]));
    wrong(cm.connect(ours, None));
    let request = pair.expect(1, EventType::ConnectRequest);
    pair.cms[1].create_qp(request.id, None, &mut qp()).unwrap();
    let too_long = [0; UD_ACCEPT_PRIVATE_DATA_MAX + 1];
    let error = Err(RdmaError::PrivateDataTooLong { len: 137, max: 136 });
    assert_eq!(
        pair.cms[1].accept(request.id, Some(&data(&too_long))),
        error
    );
    assert_eq!(pair.cms[1].reject(request.id, &too_long), error);
    pair.cms[1].accept(request.id, None).unwrap();
    pair.expect(0, EventType::Established);

    pair.listener();
    let connected = pair.client();
    wrong(pair.cms[0].ud_endpoint(connected).map(drop));
}

/// create_ep for datagrams on two threads, synchronous on both sides.
#[test]
fn synchronous_endpoints() {
    let world = Builder::new()
        .function(Card::new(1))
        .function(Card::new(2))
        .threaded();
    let devices = [device(&world, 0), device(&world, 1)];
    let listening = std::sync::Barrier::new(2);
    let hints = |passive| AddrInfo {
        port_space: PortSpace::Udp,
        ..AddrInfo::hints(passive)
    };
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let mut cm = manager(&devices, 1, Mtu::B4096);
            let info = getaddrinfo(None, Some("7174"), Some(&hints(true))).unwrap();
            let listener = cm.create_ep(&info, None, Some(&mut qp())).unwrap();
            cm.listen(listener, 0).unwrap();
            listening.wait();
            let refused = cm.get_request(listener).unwrap();
            cm.reject(refused, b"come again").unwrap();
            cm.destroy_ep(refused).unwrap();
            let id = cm.get_request(listener).unwrap();
            assert_eq!(&cm.event(id).unwrap().unwrap().private_data()[..4], b"ping");
            let buffer = cm.reg_msgs(id, 64).unwrap();
            cm.post_recv(id, 1, buffer.slice(..64).unwrap()).unwrap();
            cm.accept(id, None).unwrap();
            assert!(cm.event(id).unwrap().is_none());
            let got = cm.get_recv_comp(id).unwrap();
            let mut grh = [0; GRH];
            buffer.copy_out(0, &mut grh).unwrap();
            let back = cm.ah_attr_from_wc(&got, &grh).unwrap();
            let ah = cm.device().create_ah(&back).unwrap();
            let (len, from) = (got.byte_len as usize - GRH, got.src_qp.number());
            let echo = buffer.slice(GRH..GRH + len).unwrap();
            cm.post_ud_send(id, 2, echo, SendFlags::SIGNALED, &ah, from)
                .unwrap();
            assert_eq!(cm.get_send_comp(id).unwrap().status, WcStatus::Success);
            cm.destroy_ep(id).unwrap();
            cm.destroy_ep(listener).unwrap();
            assert_eq!(cm.ids_in_use(), 0);
        });
        let mut cm = manager(&devices, 0, Mtu::B4096);
        listening.wait();
        let info = getaddrinfo(Some("10.0.0.2"), Some("7174"), Some(&hints(false))).unwrap();
        let id = cm.create_ep(&info, None, Some(&mut qp())).unwrap();
        let error = cm.connect(id, None).unwrap_err();
        assert_eq!(error, RdmaError::ServiceRefused(SidrStatus::REJECTED));
        assert_eq!(error.errno(), 2);
        cm.destroy_ep(id).unwrap();

        let id = cm.create_ep(&info, None, Some(&mut qp())).unwrap();
        let buffer = cm.reg_msgs(id, 64).unwrap();
        let out = cm.reg_msgs(id, 5).unwrap();
        out.copy_in(0, b"hello").unwrap();
        cm.post_recv(id, 1, buffer.slice(..64).unwrap()).unwrap();
        cm.connect(id, Some(&data(b"ping"))).unwrap();
        let there = cm.event(id).unwrap().unwrap();
        assert_eq!(there.event, EventType::Established);
        let ah = cm.device().create_ah(&there.ud.ah_attr).unwrap();
        let out = out.slice(..).unwrap();
        cm.post_ud_send(id, 2, out, SendFlags::SIGNALED, &ah, there.ud.qp_num)
            .unwrap();
        assert_eq!(cm.get_send_comp(id).unwrap().status, WcStatus::Success);
        assert_eq!(cm.get_recv_comp(id).unwrap().byte_len as usize, GRH + 5);
        let mut bytes = [0; 5];
        buffer.copy_out(GRH, &mut bytes).unwrap();
        assert_eq!(&bytes, b"hello");
        server.join().unwrap();
        cm.destroy_ep(id).unwrap();
    });
}
