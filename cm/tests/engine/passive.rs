//! The passive side, rule by rule, with the other end played by hand. Where a rule was observed on Linux, the test says so.

use std::time::Duration;

use crate::common::peer::*;
use crate::common::*;
use bareverbs_cm::engine::*;
use bareverbs_cm::mad::*;

#[test]
fn request_gives_the_qp_its_parameters() {
    let mut bench = server();
    let id = bench.request(9, 0x55);
    let qp = bench.engine.qp_params(id).unwrap();
    assert_eq!(qp.dest_qpn, 0x55);
    assert_eq!(qp.sq_psn, 0x1111);
    assert_eq!((qp.max_dest_rd_atomic, qp.max_rd_atomic), (5, 3));
    assert_eq!((qp.retry_count, qp.rnr_retry_count), (6, 5));
    assert_eq!((qp.path_mtu, qp.ack_timeout), (3, 19));
    bench
        .engine
        .reply(
            NOW,
            id,
            &ReplyParams {
                rnr_retry_count: 4,
                ..ReplyParams::new(0x300)
            },
        )
        .unwrap();
    let (transmit, header, message) = bench.say_at(NOW).unwrap();
    let Message::Rep(rep) = message else { panic!() };
    assert_eq!(
        (rep.starting_psn, rep.rnr_retry_count, rep.target_ack_delay),
        (qp.rq_psn, 4, 15)
    );
    // Answers carry the transaction ID of what they answer.
    assert_eq!(header.transaction_id, 0x7_0000_0042);
    assert_eq!(transmit.address.remote_gid, gid(0));
}

#[test]
fn refusals_of_a_req() {
    let mut bench = server();
    let mut case = |edit: &dyn Fn(&mut Req<'_>), reason: RejectReason, info: &[u8]| {
        let mut req = req(9, 0x55);
        edit(&mut req);
        bench.deliver(Message::Req(req)).unwrap();
        let Message::Rej(rej) = bench.said() else {
            panic!()
        };
        assert_eq!(
            (rej.local_comm_id, rej.remote_comm_id, rej.message),
            (0, 9, 0)
        );
        bench.deliver(Message::Req(req)).unwrap();
        bench.refused(9, 0, reason, info);
        assert_eq!(bench.engine.in_use(), 0);
    };
    // Linux T2.
    case(
        &|req| req.service_id += 1,
        RejectReason::INVALID_SERVICE_ID,
        &[],
    );
    // Linux T7b: with an acceptable GID as additional information.
    case(
        &|req| req.primary_remote_gid[15] = 9,
        RejectReason::INVALID_GID,
        &gid(1),
    );
    // Linux A5: no alternate paths on RoCE.
    case(
        &|req| req.alternate_local_lid = 0xffff,
        RejectReason::INVALID_ALT_GID,
        &gid(1),
    );
    case(
        &|req| req.transport = 3,
        RejectReason::INVALID_TRANSPORT_TYPE,
        &[],
    );
    case(
        &|req| req.transport = 1,
        RejectReason::INVALID_TRANSPORT_TYPE,
        &[],
    );
    case(&|req| req.path_mtu = 6, RejectReason::INVALID_MTU, &[5]);
    case(&|req| req.path_mtu = 0, RejectReason::INVALID_MTU, &[5]);

    let mut config = Config::new(1, 2);
    config.max_mtu = 3;
    let mut bench = server_with(config);
    bench
        .deliver(Message::Req(Req {
            path_mtu: 4,
            ..req(9, 0x55)
        }))
        .unwrap();
    bench.refused(9, 0, RejectReason::INVALID_MTU, &[3]);
}

#[test]
fn unreliable_connections_where_the_listener_accepts_them() {
    let mut engine = engine(Config::new(1, 2), 4);
    engine.listen(SERVICE, 4, true, 77).unwrap();
    let mut bench = Bench {
        engine,
        mad: [0; MAD_LEN],
    };
    bench
        .deliver(Message::Req(Req {
            transport: 1,
            ..req(9, 0x55)
        }))
        .unwrap();
    let id = bench.engine.poll_event().unwrap().connection;
    assert_eq!(bench.engine.qp_params(id).unwrap().transport, Transport::Uc);
}

#[test]
fn overflow_is_refused_not_ignored() {
    let mut bench = server();
    let ids: Vec<_> = (0..4).map(|n| bench.request(n, 0x50 + n)).collect();
    bench.deliver(Message::Req(req(9, 0x99))).unwrap();
    bench.refused(9, 0, RejectReason::NO_RESOURCES, &[]);
    // An answer of any kind frees a place in the backlog.
    bench
        .engine
        .reply(NOW, ids[0], &ReplyParams::new(1))
        .unwrap();
    bench
        .engine
        .reject(NOW, ids[1], RejectReason::CONSUMER_DEFINED, &[], b"no")
        .unwrap();
    bench.engine.release(NOW, ids[2]).unwrap();
    while bench.say_at(NOW).is_some() {}
    for n in 10..13 {
        bench.request(n, 0x50 + n);
    }
    bench.deliver(Message::Req(req(13, 0x99))).unwrap();
    bench.refused(13, 0, RejectReason::NO_RESOURCES, &[]);

    let mut config = Config::new(1, 2);
    config.reject_overflow = false;
    let mut bench = server_with(config);
    for n in 0..4 {
        bench.request(n, 0x50 + n);
    }
    assert_eq!(
        bench.deliver(Message::Req(req(9, 0x99))),
        Err(Ignored::Unexpected(Attribute::Req))
    );
    bench.silent();
}

#[test]
fn duplicate_req_by_state() {
    let mut bench = server();
    let duplicate = Err(Ignored::Duplicate(Attribute::Req));
    // Linux T5/A3: the application is slow, so that the second REQ gets an MRA.
    let id = bench.request(9, 0x55);
    bench.silent();
    for _ in 0..2 {
        assert_eq!(bench.deliver(Message::Req(req(9, 0x55))), duplicate);
        let Message::Mra(mra) = bench.said() else {
            panic!()
        };
        assert_eq!(
            (mra.message, mra.service_timeout, mra.remote_comm_id),
            (0, 24, 9)
        );
    }
    assert_eq!(bench.state(id), State::MraReqSent);
    bench
        .engine
        .reply(NOW, id, &ReplyParams::new(0x300))
        .unwrap();
    assert!(matches!(bench.said(), Message::Rep(_)));
    assert_eq!(bench.deliver(Message::Req(req(9, 0x55))), duplicate);
    assert!(matches!(bench.said(), Message::Rep(_)));
    bench
        .deliver(Message::Rtu(Rtu {
            local_comm_id: 9,
            remote_comm_id: id.comm_id(),
            ..Rtu::ZERO
        }))
        .unwrap();
    assert_eq!(bench.deliver(Message::Req(req(9, 0x55))), duplicate);
    bench.silent();
    // Linux T4b.
    bench.engine.disconnect(NOW, id, b"").unwrap();
    assert!(matches!(bench.said(), Message::Dreq(_)));
    assert_eq!(bench.deliver(Message::Req(req(9, 0x55))), duplicate);
    bench.silent();
    // Linux T12: in timewait the same IDs make a new connection.
    bench
        .deliver(Message::Drep(Drep {
            local_comm_id: 9,
            remote_comm_id: id.comm_id(),
            ..Drep::ZERO
        }))
        .unwrap();
    assert_eq!(bench.state(id), State::Timewait);
    while bench.engine.poll_event().is_some() {}
    assert_ne!(bench.request(9, 0x55), id);
}

/// A client that was killed while it connected, and comes back with the same QP: the half-open connection ends as if its
/// request had been withdrawn, before and after the reply, and the next try is accepted.
#[test]
fn stale_half_open_connection() {
    for replied in [false, true] {
        let mut bench = server();
        let old = bench.request(9, 0x55);
        if replied {
            bench.engine.reply(NOW, old, &ReplyParams::new(3)).unwrap();
            assert!(matches!(bench.said(), Message::Rep(_)));
        }
        bench.deliver(Message::Req(req(10, 0x55))).unwrap();
        bench.refused(10, 0, RejectReason::STALE_CONNECTION, &[]);
        let event = bench.engine.poll_event().unwrap();
        assert_eq!(event.connection, old);
        assert!(matches!(
            event.kind,
            EventKind::Rejected {
                reason: RejectReason::STALE_CONNECTION,
                ..
            }
        ));
        assert_eq!(bench.state(old), State::Idle);
        bench.silent();
        assert_ne!(bench.request(11, 0x55), old);
    }
}

/// Linux T4: a QP that is in a connection asks for another one.
#[test]
fn stale_connection() {
    let mut bench = server();
    let old = bench.established(9, 0x55);
    bench.deliver(Message::Req(req(10, 0x55))).unwrap();
    bench.refused(10, 0, RejectReason::STALE_CONNECTION, &[]);
    let Message::Dreq(dreq) = bench.said() else {
        panic!()
    };
    assert_eq!((dreq.remote_comm_id, dreq.remote_qpn), (9, 0x55));
    assert_eq!(bench.state(old), State::DreqSent);
    // The peer answers for the connection that it does not have; the new one can be made.
    bench
        .deliver(Message::Drep(Drep {
            local_comm_id: 9,
            remote_comm_id: old.comm_id(),
            ..Drep::ZERO
        }))
        .unwrap();
    let event = bench.engine.poll_event().unwrap();
    assert!(matches!(
        event.kind,
        EventKind::Disconnected {
            cause: DisconnectCause::Answered,
            ..
        }
    ));
    bench.request(11, 0x55);

    // Also without an answer.
    let mut bench = server();
    bench.established(9, 0x55);
    bench.deliver(Message::Req(req(10, 0x55))).unwrap();
    let later = NOW + Duration::from_millis(400);
    for step in 1..=20 {
        bench.engine.handle_timeout(NOW + step * 20 * MS);
    }
    let event = bench.engine.poll_event().unwrap();
    assert!(
        matches!(
            event.kind,
            EventKind::Disconnected {
                cause: DisconnectCause::TimedOut,
                ..
            }
        ),
        "{event:?}"
    );
    bench
        .deliver_at(later, Message::Req(req(12, 0x55)))
        .unwrap();
    assert!(matches!(
        bench.engine.poll_event().unwrap().kind,
        EventKind::ConnectRequest { .. }
    ));
}

#[test]
fn rtu_by_data_and_twice() {
    let mut bench = server();
    let id = bench.replied(9, 0x55);
    assert_eq!(bench.engine.notify_established(id), Ok(true));
    assert_eq!(bench.engine.notify_established(id), Ok(false));
    let rtu = Message::Rtu(Rtu {
        local_comm_id: 9,
        remote_comm_id: id.comm_id(),
        ..Rtu::ZERO
    });
    assert_eq!(bench.deliver(rtu), Err(Ignored::Duplicate(Attribute::Rtu)));
    assert!(matches!(
        bench.engine.poll_event().unwrap().kind,
        EventKind::Established { .. }
    ));
    assert_eq!(bench.engine.poll_event(), None);
}

/// Linux T3: the REP is repeated as often and as quickly as the REQ says.
#[test]
fn rep_follows_the_timers_of_the_req() {
    let mut config = Config::new(1, 2);
    config.timers.early = None;
    let mut bench = server_with(config);
    let id = bench.replied(9, 0x55);
    // 4.096 us * 2^12, four sends in all.
    let interval = Duration::from_micros(16_777);
    let mut sent = 1;
    let mut now = NOW;
    while let Some(next) = bench.engine.next_deadline() {
        now = next.max(now);
        while let Some((transmit, _, message)) = bench.say_at(now) {
            assert!(matches!(message, Message::Rep(_)) && transmit.repeated);
            sent += 1;
        }
    }
    assert_eq!(sent, 4);
    assert!(
        now - NOW >= interval * 4 && now - NOW < interval * 5,
        "{:?}",
        now - NOW
    );
    assert_eq!(
        bench.engine.poll_event().unwrap().kind,
        EventKind::Unreachable {
            unanswered: Attribute::Rep
        }
    );
    assert_eq!(bench.state(id), State::Idle);
}

/// Linux A4: the requester gives up before the application answers.
#[test]
fn withdrawn_request() {
    let mut rej = Rej {
        local_comm_id: 9,
        message: 2,
        reason: 4,
        info_len: 8,
        ..Rej::ZERO
    };
    rej.info[..8].copy_from_slice(&GUID.to_be_bytes());
    let mut bench = server();
    let id = bench.request(9, 0x55);
    bench.deliver(Message::Rej(rej)).unwrap();
    assert!(matches!(
        bench.engine.poll_event().unwrap().kind,
        EventKind::Rejected { .. }
    ));
    assert_eq!(
        bench.engine.reply(NOW, id, &ReplyParams::new(1)),
        Err(CmError::WrongState {
            call: "reply",
            state: State::Idle
        })
    );
    // Before the application has fetched the request, it gets no event at all.
    bench.deliver(Message::Req(req(9, 0x55))).unwrap();
    bench.deliver(Message::Rej(rej)).unwrap();
    assert_eq!(bench.engine.poll_event(), None);
    bench.engine.release(NOW, id).unwrap();
    assert_eq!(bench.engine.in_use(), 0);
}

#[test]
fn refusal_after_the_reply() {
    let mut bench = server();
    let id = bench.replied(9, 0x55);
    bench
        .deliver(Message::Rej(Rej {
            local_comm_id: 9,
            remote_comm_id: id.comm_id(),
            message: 1,
            reason: 28,
            ..Rej::ZERO
        }))
        .unwrap();
    assert!(matches!(
        bench.engine.poll_event().unwrap().kind,
        EventKind::Rejected { .. }
    ));
    assert_eq!(bench.state(id), State::Idle);

    // And after establishment it counts as the end of the connection.
    let mut bench = server();
    let id = bench.established(9, 0x55);
    bench
        .deliver(Message::Rej(Rej {
            local_comm_id: 9,
            remote_comm_id: id.comm_id(),
            message: 2,
            reason: 28,
            ..Rej::ZERO
        }))
        .unwrap();
    let event = bench.engine.poll_event().unwrap();
    let EventKind::Disconnected { cause, .. } = event.kind else {
        panic!("{event:?}")
    };
    assert_eq!(
        cause,
        DisconnectCause::Rejected(RejectReason::CONSUMER_DEFINED)
    );
    bench.engine.handle_timeout(NOW + Duration::from_secs(10));
    assert_eq!(
        bench.engine.poll_event().unwrap().kind,
        EventKind::TimewaitExit
    );
}

#[test]
fn listeners() {
    let mut engine = engine(Config::new(1, 2), 4);
    let ids: Vec<_> = (0..8)
        .map(|service| engine.listen(service, 1, false, service).unwrap())
        .collect();
    assert_eq!(
        engine.listen(3, 1, false, 0),
        Err(CmError::ServiceInUse { service_id: 3 })
    );
    assert_eq!(
        engine.listen(9, 1, false, 0),
        Err(CmError::NoListenerSlots { capacity: 8 })
    );
    engine.unlisten(ids[3]).unwrap();
    assert_eq!(engine.unlisten(ids[3]), Err(CmError::UnknownListener));
    assert_ne!(engine.listen(9, 1, false, 0).unwrap(), ids[3]);
    let mut bench = Bench {
        engine,
        mad: [0; MAD_LEN],
    };
    for service in [0, 1, 2, 4, 5, 6, 7, 9] {
        bench
            .deliver(Message::Req(Req {
                service_id: service,
                ..req(service as u32, 0x50 + service as u32)
            }))
            .unwrap();
        if bench.engine.in_use() == 4 {
            break;
        }
        assert!(
            matches!(bench.engine.poll_event().unwrap().kind, EventKind::ConnectRequest { listener_user, .. } if listener_user == service % 9)
        );
    }
    bench
        .deliver(Message::Req(Req {
            service_id: 3,
            ..req(33, 0x33)
        }))
        .unwrap();
    bench.refused(33, 0, RejectReason::INVALID_SERVICE_ID, &[]);
}
