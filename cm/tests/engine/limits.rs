//! Limits on a peer, and settings of the user: floods, long timeouts, lost memory, timers, refusals with their
//! additional information.

use std::time::Duration;

use crate::common::peer::*;
use crate::common::*;
use bareverbs_cm::engine::*;
use bareverbs_cm::mad::*;

const SECOND: Duration = Duration::from_secs(1);

/// Requests from everywhere: they take the backlog, each further one is refused, and who is connected does not notice.
#[test]
fn flood_of_requests() {
    let config = Config {
        reserved: 3,
        ..Config::new(1, 0xb)
    };
    let mut bench = server_with(config);
    bench.engine.listen(99, u32::MAX, false, 78).unwrap();
    let old = bench.established(1, 1);
    let mut random = Random(7);
    let mut refused = 0;
    for round in 0..50_000u32 {
        let flood = Req {
            local_comm_id: random.next() as u32,
            local_ca_guid: random.next(),
            local_qpn: random.next() as u32 & 0xff_ffff,
            service_id: if round % 2 == 0 { SERVICE } else { 99 },
            ..req(0, 0)
        };
        bench.deliver(Message::Req(flood)).unwrap();
        while let Some((_, _, message)) = bench.say_at(NOW) {
            let Message::Rej(rej) = message else { panic!() };
            assert_eq!(rej.reason(), RejectReason::NO_RESOURCES);
            refused += 1;
        }
    }
    // 16 slots: one connection, twelve requests (at most four at the listener with that backlog), three reserved.
    assert_eq!((bench.engine.in_use(), refused), (13, 50_000 - 12));
    for qpn in 0..3 {
        let params = ConnectParams {
            local_qpn: qpn,
            ..params()
        };
        bench.engine.connect(NOW, &params).unwrap();
        assert!(matches!(bench.said(), Message::Req(_)));
    }
    assert_eq!(
        bench.engine.connect(NOW, &params()),
        Err(CmError::NoConnectionSlots { capacity: 16 })
    );
    assert_eq!(bench.state(old), State::Established);
    bench.deliver(dreq(old, 1, 0x300)).unwrap();
    assert!(matches!(bench.said(), Message::Drep(_)));
}

/// A REQ and an MRA may ask for 2.4 hours a time; they get what this end allows.
#[test]
fn peers_do_not_dictate_how_long_to_wait() {
    let mut bench = server();
    let long = Req {
        local_cm_response_timeout: 31,
        max_cm_retries: 15,
        ..req(9, 9)
    };
    bench.deliver(Message::Req(long)).unwrap();
    let id = bench.engine.poll_event().unwrap().connection;
    bench.engine.reply(NOW, id, &ReplyParams::new(3)).unwrap();
    bench.said();
    let mut now = NOW;
    while let Some(at) = bench.engine.next_deadline() {
        now = now.max(at);
        while bench.say_at(now).is_some() {}
        if bench.engine.poll_event().is_some() {
            break;
        }
    }
    let waited = (now - NOW).as_secs();
    assert!((9..=10).contains(&waited), "{waited} s");

    let mut bench = server();
    let id = bench.request(9, 9);
    bench.engine.reply(NOW, id, &ReplyParams::new(3)).unwrap();
    bench.said();
    let mra = Message::Mra(Mra {
        local_comm_id: 9,
        remote_comm_id: id.comm_id(),
        message: 1,
        service_timeout: 31,
        ..Mra::ZERO
    });
    bench.deliver(mra).unwrap();
    let next = bench.engine.next_deadline().unwrap() - NOW;
    assert!(next <= 70 * SECOND, "{next:?}");
}

#[test]
fn timers_of_a_connection_that_arrived() {
    let mut bench = server();
    let id = bench.request(9, 9);
    let timers = Timers {
        remote_response: 14,
        local_response: 20,
        max_retries: 1,
        early: None,
    };
    bench.engine.set_timers(id, &timers).unwrap();
    assert!(matches!(
        bench.engine.set_timers(
            id,
            &Timers {
                max_retries: 16,
                ..timers
            }
        ),
        Err(CmError::BadParameter { .. })
    ));
    // MRA: none, then one of this connection's own.
    bench.engine.set_auto_mra(id, None).unwrap();
    assert!(bench.deliver(Message::Req(req(9, 9))).is_err());
    bench.silent();
    bench.engine.set_auto_mra(id, Some(17)).unwrap();
    assert!(bench.deliver(Message::Req(req(9, 9))).is_err());
    let Message::Mra(mra) = bench.said() else {
        panic!()
    };
    assert_eq!((mra.message, mra.service_timeout), (0, 17));
    bench.engine.reply(NOW, id, &ReplyParams::new(3)).unwrap();
    let mut times = vec![];
    let mut now = NOW;
    bench.said();
    while let Some(at) = bench.engine.next_deadline() {
        now = now.max(at);
        while bench.say_at(now).is_some() {
            times.push((now - NOW).as_millis());
        }
    }
    // 67 ms a time, twice.
    assert_eq!(times.len(), 1);
    assert!((67..69).contains(&times[0]), "{times:?}");
    assert!(((now - NOW).as_millis()).abs_diff(134) <= 3);
    assert!(matches!(
        bench.engine.poll_event().unwrap().kind,
        EventKind::Unreachable {
            unanswered: Attribute::Rep
        }
    ));
}

/// The peer crashed and comes back with the same QP: the first request is refused and ends the old connection here, the
/// second one is accepted, though the DREQ is never answered.
#[test]
fn peer_that_lost_its_memory_gets_back_in() {
    for early in [false, true] {
        let mut bench = server();
        let old = bench.established(1, 0x55);
        if early {
            // This end was about to end it anyway.
            bench.engine.disconnect(NOW, old, b"").unwrap();
            assert!(matches!(bench.said(), Message::Dreq(_)));
        }
        bench.deliver(Message::Req(req(2, 0x55))).unwrap();
        bench.refused(2, 0, RejectReason::STALE_CONNECTION, &[]);
        if !early {
            assert!(matches!(bench.said(), Message::Dreq(_)));
        }
        assert_eq!(bench.state(old), State::DreqSent);
        let new = bench.request(3, 0x55);
        assert_ne!(new, old);
        assert_eq!(bench.state(new), State::ReqReceived);
        // The old one ends by itself, with one event each.
        let mut seen = vec![];
        let mut now = NOW;
        bench
            .engine
            .reject(NOW, new, RejectReason(28), &[], &[])
            .unwrap();
        while let Some(at) = bench.engine.next_deadline() {
            now = now.max(at);
            while bench.say_at(now).is_some() {}
            while let Some(event) = bench.engine.poll_event() {
                assert_eq!(event.connection, old);
                seen.push(matches!(event.kind, EventKind::TimewaitExit));
            }
        }
        assert_eq!(seen, [false, true]);
    }
}

/// The other way round: this end's QP is known there, and gets through once the old connection is dropped.
#[test]
fn refused_as_stale_and_tried_again() {
    let mut world = World::new(1, 8);
    let first = world.connect();
    world.run(10 * MS);
    assert!(world.established(0, first));
    // The client's process dies: nothing is said, and the next one has the same QP number.
    let config = Config {
        seed: 77,
        ..*world.nodes[0].config()
    };
    world.nodes[0] = engine(config, 8);
    world.seen[0].clear();
    let ece = Ece {
        vendor_id: 5,
        options: 6,
    };
    let params = ConnectParams {
        user: 9,
        ece,
        ..params()
    };
    let second = world.nodes[0].connect(world.now, &params).unwrap();
    world.run(world.now + 10 * MS);
    assert_eq!(world.events(0), [Seen::Rejected(10, vec![])]);
    assert_eq!(world.nodes[0].state(second), Ok(State::Timewait));
    // The attempt rests, and the end of the rest is an event.
    let wait = Duration::from_millis(300);
    world.nodes[0].rest(world.now, second, wait).unwrap();
    world.seen[0].clear();
    world.run(world.now + wait - 5 * MS);
    assert_eq!(world.events(0), []);
    world.run(world.now + 10 * MS);
    assert_eq!(world.events(0), [Seen::TimewaitExit]);
    let third = world.nodes[0].retry(world.now, second, b"again").unwrap();
    assert_ne!(third, second);
    world.run(world.now + 10 * MS);
    assert!(world.established(0, third));
    let peer = world.peer_id().unwrap();
    let qpn = world.nodes[1].qp_params(peer).unwrap().dest_qpn;
    assert_eq!(qpn, params.local_qpn);
    assert_eq!(world.nodes[1].remote_ece(peer), Ok(ece));
    let Some((_, _, Seen::Request(data))) = world.seen[1]
        .iter()
        .rev()
        .find(|(_, _, seen)| matches!(seen, Seen::Request(_)))
        .cloned()
    else {
        panic!()
    };
    assert_eq!(&data[..5], b"again");
    assert_eq!(
        world.nodes[0].retry(world.now, third, b""),
        Err(CmError::WrongState {
            call: "retry",
            state: State::Established
        })
    );
    world.release_all(&[second, third]);
}

/// Each reason arrives with what would have been acceptable.
#[test]
fn every_reason_arrives_with_its_information() {
    let port_info = [7; 72];
    for reason in 1..=35u16 {
        let info = match reason {
            4 => RejectInfo::CaGuid(0x1122_3344_5566_7788),
            12 | 18 | 25 => RejectInfo::Gid([9; 16]),
            13 | 19 => RejectInfo::Lid(0x1234),
            14 | 20 => RejectInfo::ServiceLevel(3),
            15 | 21 => RejectInfo::TrafficClass(0x88),
            16 | 22 => RejectInfo::HopLimit(7),
            17 | 23 => RejectInfo::Rate(16),
            24 => RejectInfo::Redirect(&port_info),
            26 => RejectInfo::Mtu(4),
            28 => RejectInfo::Other(b"because"),
            31 => RejectInfo::ClassVersion(2),
            32 | 33 => RejectInfo::FlowLabel(0xa_bcde),
            _ => RejectInfo::None,
        };
        let mut bytes = [0; 72];
        let len = info.emit(&mut bytes);
        for node in 0..2 {
            let mut world = World::new(u64::from(reason), 4);
            // Refused by the passive side, or by the active one after the REP.
            world.accept_after = (node == 0).then_some(Duration::ZERO);
            world.confirm = false;
            let id = world.connect();
            world.run(10 * MS);
            let peer = world.peer_id().unwrap();
            let who = if node == 1 { peer } else { id };
            world.nodes[node]
                .reject(world.now, who, RejectReason(reason), &bytes[..len], b"p")
                .unwrap();
            world.run(20 * MS);
            let Some(Seen::Rejected(received, there)) = world.events(1 - node).last().cloned()
            else {
                panic!("{reason} by {node}: {:?}", world.events(1 - node))
            };
            assert_eq!(
                (received, RejectInfo::parse(RejectReason(received), &there)),
                (reason, info)
            );
            world.release_all(&[id]);
        }
    }
    // What is too short, or without a form, is given as it is.
    assert_eq!(
        RejectInfo::parse(RejectReason::INVALID_GID, &[1, 2]),
        RejectInfo::Other(&[1, 2])
    );
    assert_eq!(
        RejectInfo::parse(RejectReason::INVALID_MTU, &[]),
        RejectInfo::None
    );
}

/// A name that is taken, and a language that is not spoken.
#[test]
fn refusals_that_linux_does_not_send() {
    let mut bench = server();
    let id = bench.established(9, 0x55);
    bench.deliver(Message::Req(req(9, 0x56))).unwrap();
    bench.refused(9, 0, RejectReason::DUPLICATE_LOCAL_COMM_ID, &[]);
    assert_eq!(bench.state(id), State::Established);
    let mut mad = [0; MAD_LEN];
    req(10, 0x57).emit(0x1234, &mut mad).unwrap();
    mad[2] = 1;
    assert_eq!(
        bench.engine.handle_mad(NOW, &path(1), &mad),
        Err(Ignored::Malformed(MadError::ClassVersion(1)))
    );
    bench.refused(10, 0, RejectReason::INVALID_CLASS_VERSION, &[2]);
    // Only a REQ, and only if the configuration allows the answer.
    mad[17] = 0x13;
    assert!(bench.engine.handle_mad(NOW, &path(1), &mad).is_err());
    bench.silent();
    bench.engine.config_mut().reject_unknown = false;
    mad[17] = 0x10;
    assert!(bench.engine.handle_mad(NOW, &path(1), &mad).is_err());
    bench.silent();
}

/// A copy of the request that made a connection, or of the one that showed that it is stale, comes late: there is no peer
/// behind either, and no connection may come of it. The next try of the peer is another matter.
#[test]
fn a_late_copy_of_an_old_request_opens_no_connection() {
    for answered in [false, true] {
        let mut bench = server();
        let old = bench.established(1, 0x55);
        bench.deliver(Message::Req(req(2, 0x55))).unwrap();
        bench.refused(2, 0, RejectReason::STALE_CONNECTION, &[]);
        let Message::Dreq(dreq) = bench.said() else {
            panic!("no DREQ");
        };
        if answered {
            let drep = Drep {
                local_comm_id: 1,
                remote_comm_id: dreq.local_comm_id,
                ..Drep::ZERO
            };
            bench.deliver(Message::Drep(drep)).unwrap();
            assert_eq!(bench.state(old), State::Timewait);
            let event = bench.engine.poll_event().unwrap();
            assert!(matches!(event.kind, EventKind::Disconnected { .. }));
        }
        let copies = |bench: &mut Bench| {
            assert_eq!(
                bench.deliver(Message::Req(req(1, 0x55))),
                Err(Ignored::Duplicate(Attribute::Req))
            );
            bench.silent();
            assert_eq!(bench.engine.poll_event(), None);
        };
        copies(&mut bench);
        bench.deliver(Message::Req(req(2, 0x55))).unwrap();
        bench.refused(2, 0, RejectReason::STALE_CONNECTION, &[]);
        assert_eq!(bench.engine.poll_event(), None);
        let next = bench.request(3, 0x55);
        copies(&mut bench);
        assert_eq!(bench.state(next), State::ReqReceived);
        // The peer was restarted, and counts from the beginning: not the same request.
        let restarted = Req {
            starting_psn: 0x2222,
            ..req(1, 0x56)
        };
        bench.deliver(Message::Req(restarted)).unwrap();
        let event = bench.engine.poll_event().unwrap();
        assert!(matches!(event.kind, EventKind::ConnectRequest { .. }));
    }
}

/// A REJ whose length of additional information cannot be true still refuses.
#[test]
fn a_refusal_that_claims_too_much_information_is_one() {
    let mut world = World::new(1, 4);
    world.accept_after = None;
    let id = world.connect();
    world.run(10 * MS);
    let mut mad = [0; MAD_LEN];
    let rej = Rej {
        local_comm_id: 7,
        remote_comm_id: id.comm_id(),
        reason: 28,
        info_len: 72,
        ..Rej::ZERO
    };
    rej.emit(1, &mut mad).unwrap();
    assert_eq!(mad[24 + 9], 72 << 1);
    mad[24 + 9] = 127 << 1;
    let received = world.nodes[0].handle_mad(world.now, &path(0), &mad);
    assert_eq!(received, Ok(Attribute::Rej));
    let event = world.nodes[0].poll_event().expect("a refusal");
    let EventKind::Rejected { reason, info, .. } = event.kind else {
        panic!("{event:?}");
    };
    assert_eq!((reason.0, info.len()), (28, 72));
}

/// The side that requested the connection gets an MRA of 18 minutes, and waits, as under Linux.
#[test]
fn an_mra_to_a_request_counts_in_full() {
    let mut world = World::new(1, 4);
    world.accept_after = None;
    let id = world.connect();
    world.run(10 * MS);
    let mra = Mra {
        local_comm_id: 7,
        remote_comm_id: id.comm_id(),
        message: 0,
        service_timeout: 28,
        private_data: &[],
    };
    let mut mad = [0; MAD_LEN];
    mra.emit(1, &mut mad).unwrap();
    let received = world.nodes[0].handle_mad(world.now, &path(0), &mad);
    assert_eq!(received, Ok(Attribute::Mra));
    let asked = world.sent(0, Attribute::Req);
    // 4.096 us times 2 to the 28th are 1,099.5 s.
    world.run(Duration::from_secs(1099));
    assert_eq!(world.sent(0, Attribute::Req), asked);
    world.run(Duration::from_secs(1102));
    assert!(world.sent(0, Attribute::Req) > asked);
}
