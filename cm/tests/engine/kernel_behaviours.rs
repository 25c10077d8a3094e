//! Behaviours of Linux's ib_cm (Debian 6.1.192, rdma_cm over rxe), each with its counterpart here, in virtual time. The
//! names are those of the experiments. Where this manager does something else, the test says what and why.
//!
//! Some experiments are about what lies below the messages, or above. They need a card or a GID table, and have their
//! counterparts under the same names in `tests/in-process/tests` (`cm::frames` is the module `frames` of the test `cm`):
//!
//! | experiment | what | counterpart |
//! | --- | --- | --- |
//! | A1c, A1d | one NAK for a gap, then silence | `cm::frames`: `t1_a1_data_of_a_connection` |
//! | A1e | a duplicate is acknowledged again | the same |
//! | A1g | an unassigned key: NAK 0x62 | the same |
//! | T1 | data before the RTU is acknowledged | the same; the handshake here |
//! | T7 | address in the CMA header that is not ours: 28 | `cm::peer`: `requests_that_make_no_sense` |
//! | A7 | wrong Q_Key: silence | `cm::frames`: `a7_wrong_qkey` |
//! | A8 | P_Key 0x7fff: accepted | `cm::frames`: `a8_limited_member_of_the_partition` |
//! | A9 | source QP that is not 1 | `cm::frames`: `a9_source_qp_is_not_one`; here what the engine has to do with it |
//! | A10 | wrong ICRC: silence | `cm::frames`: `a10_wrong_icrc` |

use std::time::Duration;

use crate::common::peer::*;
use crate::common::*;
use bareverbs_cm::engine::*;
use bareverbs_cm::mad::*;

const SECOND: Duration = Duration::from_secs(1);

/// Linux's timers on RoCE in 6.1: packet life time 18, no early repetitions.
fn linux_params() -> ConnectParams<'static> {
    ConnectParams {
        packet_life_time: 18,
        timers: Timers {
            early: None,
            ..Timers::default()
        },
        ..params()
    }
}

fn linux_config(seed: u64, guid: u64) -> Config {
    let mut config = Config::new(seed, guid);
    config.timers.early = None;
    config
}

fn linux_world(seed: u64) -> World {
    World::with(linux_config(seed, 0xa), linux_config(seed + 1, 0xb), 8)
}

fn connected(world: &mut World) -> (ConnectionId, ConnectionId) {
    let id = world.nodes[0].connect(world.now, &linux_params()).unwrap();
    world.run(world.now + 10 * MS);
    let peer = world.peer_id().unwrap();
    assert!(world.established(0, id) && world.established(1, peer));
    (id, peer)
}

/// All that the bench says until nothing is left to happen, in milliseconds.
fn times(bench: &mut Bench) -> Vec<(u64, Attribute)> {
    let mut said = vec![];
    let mut now = NOW;
    loop {
        while let Some((transmit, _, _)) = bench.say_at(now) {
            said.push(((now - NOW).as_millis() as u64, transmit.attribute));
        }
        match bench.engine.next_deadline() {
            Some(at) => now = now.max(at),
            None => return said,
        }
    }
}

/// Checks times within the millisecond of the wheel and the rounding of Linux, which takes 4.096 us for 4.
#[track_caller]
fn paced(times: &[(u64, Attribute)], what: Attribute, interval: u64, count: usize) {
    assert_eq!(times.len(), count, "{times:?}");
    for (nth, (at, attribute)) in times.iter().enumerate() {
        assert_eq!(*attribute, what);
        assert!(at.abs_diff(nth as u64 * interval) <= 30, "{times:?}");
    }
}

/// REQ, REP, RTU; what is sent before the RTU counts as one (COMM_EST); the PSNs are the other end's.
#[test]
fn t1_handshake_and_data_before_the_rtu() {
    let mut world = linux_world(1);
    world.judge = Box::new(|_, what| match what {
        Attribute::Rtu => Delivery::Drop,
        _ => Delivery::Deliver,
    });
    let id = world.nodes[0].connect(world.now, &linux_params()).unwrap();
    world.run(10 * MS);
    let peer = world.peer_id().unwrap();
    assert!(world.established(0, id));
    assert_eq!(world.nodes[1].state(peer), Ok(State::RepSent));
    assert_eq!(world.nodes[1].notify_established(peer), Ok(true));
    world.run(20 * MS);
    assert_eq!(world.events(1).last(), Some(&Seen::Established));
    let (ours, theirs) = (
        world.nodes[0].qp_params(id).unwrap(),
        world.nodes[1].qp_params(peer).unwrap(),
    );
    assert_eq!((ours.rq_psn, ours.sq_psn), (theirs.sq_psn, theirs.rq_psn));
    world.release_all(&[id]);
}

/// A DREQ with another QP's number is for no connection.
#[test]
fn t1e_dreq_for_the_wrong_qp() {
    let mut bench = server();
    let id = bench.established(9, 0x55);
    assert!(bench.deliver(dreq(id, 9, 0x301)).is_err());
    bench.silent();
    assert_eq!(bench.state(id), State::Established);
}

/// DREP with the transaction of the DREQ, and again for each further one: here without waiting for the application.
#[test]
fn t1f_t1g_dreq_once_and_again() {
    let mut bench = server();
    let id = bench.established(9, 0x55);
    for _ in 0..3 {
        let _ = bench.deliver(dreq(id, 9, 0x300));
        let (_, header, message) = bench.say_at(NOW).unwrap();
        assert!(matches!(message, Message::Drep(_)));
        assert_eq!(header.transaction_id, 0x7_0000_0042);
        bench.silent();
    }
    assert!(matches!(
        bench.engine.poll_event().unwrap().kind,
        EventKind::Disconnected { .. }
    ));
    assert_eq!(bench.engine.poll_event(), None);
}

#[test]
fn t2_no_listener() {
    let mut bench = server();
    let elsewhere = Req {
        service_id: 0x0106_0001,
        ..req(9, 9)
    };
    bench.deliver(Message::Req(elsewhere)).unwrap();
    let Message::Rej(rej) = bench.said() else {
        panic!()
    };
    assert_eq!(
        (
            rej.local_comm_id,
            rej.remote_comm_id,
            rej.message,
            rej.reason
        ),
        (0, 9, 0, 8)
    );
}

/// REP follows the time and the retries that the REQ asks for: 16.8 ms and three.
#[test]
fn t3_rep_follows_the_req() {
    let mut bench = server_with(linux_config(1, 0xb));
    let id = bench.request(9, 9);
    bench.engine.reply(NOW, id, &ReplyParams::new(3)).unwrap();
    paced(&times(&mut bench), Attribute::Rep, 17, 4);
    assert_eq!(
        bench.engine.poll_event().unwrap().kind,
        EventKind::Unreachable {
            unanswered: Attribute::Rep
        }
    );
}

/// The same QP under a new name: REJ 10, and DREQ on the old connection, repeated after 4.3 s.
#[test]
fn t4_stale_connection() {
    let mut bench = server_with(linux_config(1, 0xb));
    bench
        .deliver(Message::Req(Req {
            local_cm_response_timeout: 20,
            ..req(9, 0x55)
        }))
        .unwrap();
    let old = bench.engine.poll_event().unwrap().connection;
    bench.engine.reply(NOW, old, &ReplyParams::new(3)).unwrap();
    bench.said();
    bench.engine.notify_established(old).unwrap();
    bench.deliver(Message::Req(req(10, 0x55))).unwrap();
    bench.refused(10, 0, RejectReason::STALE_CONNECTION, &[]);
    paced(&times(&mut bench), Attribute::Dreq, 4295, 4);
}

/// A duplicate of the REQ of a connection that is being ended says nothing new.
#[test]
fn t4b_duplicate_req_while_disconnecting() {
    let mut bench = server();
    let id = bench.established(9, 0x55);
    bench.engine.disconnect(NOW, id, b"").unwrap();
    assert!(matches!(bench.said(), Message::Dreq(_)));
    assert_eq!(
        bench.deliver(Message::Req(req(9, 0x55))),
        Err(Ignored::Duplicate(Attribute::Req))
    );
    bench.silent();
    assert_eq!(bench.state(id), State::DreqSent);
}

/// The application does not answer: nothing to the first REQ, MRA with 24 to the second one, REP when it does.
#[test]
fn t5_a3_slow_application() {
    let mut bench = server();
    let id = bench.request(9, 9);
    bench.silent();
    assert!(bench.deliver(Message::Req(req(9, 9))).is_err());
    let Message::Mra(mra) = bench.said() else {
        panic!()
    };
    assert_eq!((mra.message, mra.service_timeout), (0, 24));
    assert_eq!(bench.engine.poll_event(), None);
    bench.engine.reply(NOW, id, &ReplyParams::new(3)).unwrap();
    assert!(matches!(bench.said(), Message::Rep(_)));
}

/// DREQ before the RTU ends the connection. Linux says DREP when the application does something; here at once.
#[test]
fn a3c_dreq_before_the_rtu() {
    let mut bench = server();
    let id = bench.replied(9, 0x55);
    bench.deliver(dreq(id, 9, 0x300)).unwrap();
    assert!(matches!(bench.said(), Message::Drep(_)));
    assert!(matches!(
        bench.engine.poll_event().unwrap().kind,
        EventKind::Disconnected { .. }
    ));
    assert_eq!(bench.state(id), State::Timewait);
}

/// The requester gives up, naming itself by its GUID only: the request is gone, and accepting it is an error.
#[test]
fn a4_request_withdrawn() {
    let mut bench = server();
    let id = bench.request(9, 9);
    let mut rej = Rej {
        local_comm_id: 9,
        message: 2,
        reason: RejectReason::TIMEOUT.0,
        info_len: 8,
        ..Rej::ZERO
    };
    rej.info[..8].copy_from_slice(&GUID.to_be_bytes());
    bench.deliver(Message::Rej(rej)).unwrap();
    assert_eq!(bench.state(id), State::Idle);
    assert!(matches!(
        bench.engine.poll_event().unwrap().kind,
        EventKind::Rejected {
            reason: RejectReason::TIMEOUT,
            ..
        }
    ));
    assert_eq!(
        bench.engine.reply(NOW, id, &ReplyParams::new(3)),
        Err(CmError::WrongState {
            call: "reply",
            state: State::Idle
        })
    );
}

#[test]
fn t6_dreq_without_a_connection() {
    let mut bench = server();
    let mad = Message::Dreq(Dreq {
        local_comm_id: 0x1111,
        remote_comm_id: 0x2222,
        remote_qpn: 3,
        ..Dreq::ZERO
    });
    bench.deliver(mad).unwrap();
    let (_, header, message) = bench.say_at(NOW).unwrap();
    let Message::Drep(drep) = message else {
        panic!()
    };
    assert_eq!(
        (
            drep.local_comm_id,
            drep.remote_comm_id,
            header.transaction_id
        ),
        (0x2222, 0x1111, 0x7_0000_0042)
    );
}

/// REJ 12 with a GID that would do. Linux gives the first of its table, which may be any; this end the one that the REQ
/// came to.
#[test]
fn t7b_gid_that_is_not_ours() {
    let mut bench = server();
    let strange = Req {
        primary_remote_gid: [0xee; 16],
        ..req(9, 9)
    };
    bench.deliver(Message::Req(strange)).unwrap();
    bench.refused(9, 0, RejectReason::INVALID_GID, &gid(1));
}

/// A header of another version, or of another IP, is refused with 28: the RDMA CM's part here is to find it out.
#[test]
fn t7c_t7d_bad_cma_header() {
    for (at, value) in [(0, 0x10), (1, 0x50)] {
        let mut bench = server();
        let mut data = [0; 92];
        data[1] = 0x40;
        data[at] = value;
        let bad = Req {
            private_data: &data,
            ..req(9, 9)
        };
        bench.deliver(Message::Req(bad)).unwrap();
        let event = bench.engine.poll_event().unwrap();
        let EventKind::ConnectRequest { private_data, .. } = event.kind else {
            panic!()
        };
        let found = CmaHeader::parse(private_data).map(|_| ()).unwrap_err();
        let wanted = [MadError::CmaVersion(0x10), MadError::IpVersion(5)][at];
        assert_eq!(found, wanted);
        let id = event.connection;
        bench
            .engine
            .reject(NOW, id, RejectReason::CONSUMER_DEFINED, &[], &[])
            .unwrap();
        bench.refused(9, 0, RejectReason::CONSUMER_DEFINED, &[]);
    }
}

/// UC where RC is served. Linux says 28, which could be anything; here it is 9.
#[test]
fn t8_unreliable_connection() {
    let mut bench = server();
    let uc = Req {
        transport: 1,
        ..req(9, 9)
    };
    bench.deliver(Message::Req(uc)).unwrap();
    bench.refused(9, 0, RejectReason::INVALID_TRANSPORT_TYPE, &[]);
}

/// XRC: Linux says 28, here it is 9.
#[test]
fn a6_xrc() {
    let mut bench = server();
    let xrc = Req {
        transport: 3,
        extended_transport: 1,
        ..req(9, 9)
    };
    bench.deliver(Message::Req(xrc)).unwrap();
    bench.refused(9, 0, RejectReason::INVALID_TRANSPORT_TYPE, &[]);
}

/// SIDR: the QP and its Q_Key, or status 1.
#[test]
fn t9_datagram_service() {
    let mut bench = server();
    bench.engine.listen_sidr(0x0111_1c06, 4, 5).unwrap();
    let ask = |request_id, service_id| {
        Message::SidrReq(SidrReq {
            request_id,
            pkey: 0xffff,
            service_id,
            ..SidrReq::ZERO
        })
    };
    bench.deliver(ask(1, 0x0111_1c06)).unwrap();
    let id = bench.engine.poll_sidr_event().unwrap().id;
    bench
        .engine
        .sidr_reply(NOW, id, &SidrReply::new(0x14, 0x0123_4567))
        .unwrap();
    let Message::SidrRep(rep) = bench.said() else {
        panic!()
    };
    assert_eq!(
        (rep.request_id, rep.status, rep.qpn, rep.qkey),
        (1, 0, 0x14, 0x0123_4567)
    );
    bench.deliver(ask(2, 0x0111_0001)).unwrap();
    let Message::SidrRep(rep) = bench.said() else {
        panic!()
    };
    assert_eq!((rep.request_id, rep.status), (2, 1));
}

/// Class version 1. Linux drops it, and its sender repeats it for a minute and a half; here it is REJ 31, which says 2.
#[test]
fn t10_class_version_1() {
    let mut bench = server();
    let mut mad = [0; MAD_LEN];
    req(9, 9).emit(3, &mut mad).unwrap();
    mad[2] = 1;
    assert!(bench.engine.handle_mad(NOW, &path(1), &mad).is_err());
    bench.refused(9, 0, RejectReason::INVALID_CLASS_VERSION, &[2]);
}

/// ClassPortInfo. Linux answers that it has no such attribute (status 0x000c); here it is answered.
#[test]
fn t11_class_port_info() {
    let mut bench = server();
    let mut mad = [0; MAD_LEN];
    Header {
        method: 1,
        ..Header::send(Attribute::ClassPortInfo, 3)
    }
    .emit(&mut mad);
    bench.engine.handle_mad(NOW, &path(1), &mad).unwrap();
    let (_, header, message) = bench.say_at(NOW).unwrap();
    let Message::ClassPortInfo(info) = message else {
        panic!()
    };
    assert_eq!((header.method, header.status), (0x81, 0));
    assert_eq!((info.base_version, info.class_version), (1, 2));
}

/// The same name and QP right after the DREP, inside timewait and after it: a new connection each time.
#[test]
fn t12_reconnect_with_the_same_numbers() {
    for wait in [Duration::ZERO, 3 * SECOND] {
        let mut bench = server();
        let old = bench.established(9, 0x55);
        bench.deliver(dreq(old, 9, 0x300)).unwrap();
        assert!(matches!(bench.said(), Message::Drep(_)));
        bench
            .deliver_at(NOW + wait, Message::Req(req(9, 0x55)))
            .unwrap();
        let new = loop {
            let event = bench.engine.poll_event().unwrap();
            if matches!(event.kind, EventKind::ConnectRequest { .. }) {
                break event.connection;
            }
            assert_eq!(event.connection, old);
        };
        assert_ne!(new, old);
        bench
            .engine
            .reply(NOW + wait, new, &ReplyParams::new(4))
            .unwrap();
        assert!(matches!(
            bench.say_at(NOW + wait).unwrap().2,
            Message::Rep(_)
        ));
    }
}

/// Sixteen REQs, 6.4 s apart (Linux rounds to 6.144), and then an end.
#[test]
fn t15_silent_peer() {
    let mut bench = Bench {
        engine: engine(linux_config(1, 0xa), 4),
        mad: [0; MAD_LEN],
    };
    bench.engine.connect(NOW, &linux_params()).unwrap();
    paced(&times(&mut bench), Attribute::Req, 6442, 16);
    assert_eq!(
        bench.engine.poll_event().unwrap().kind,
        EventKind::Unreachable {
            unanswered: Attribute::Req
        }
    );
}

/// A REP gets its RTU, and each duplicate of it another one.
#[test]
fn t16_rep_and_duplicates() {
    let (mut bench, id) = client();
    bench.deliver(Message::Rep(rep(id, 5, 6))).unwrap();
    assert!(matches!(
        bench.engine.poll_event().unwrap().kind,
        EventKind::Reply { .. }
    ));
    assert_eq!(bench.engine.qp_params(id).unwrap().sq_psn, 0x2222);
    bench.engine.ready(id, b"rtu").unwrap();
    for nth in 0..3 {
        if nth > 0 {
            assert!(bench.deliver(Message::Rep(rep(id, 5, 6))).is_err());
        }
        let Message::Rtu(rtu) = bench.said() else {
            panic!()
        };
        assert_eq!(&rtu.private_data[..3], b"rtu");
    }
    assert_eq!(bench.engine.poll_event(), None);
}

#[test]
fn t17_refusal_reaches_the_application() {
    let (mut bench, id) = client();
    bench
        .deliver(Message::Rej(Rej {
            remote_comm_id: id.comm_id(),
            reason: 28,
            private_data: b"no",
            ..Rej::ZERO
        }))
        .unwrap();
    let EventKind::Rejected {
        reason,
        private_data,
        ..
    } = bench.engine.poll_event().unwrap().kind
    else {
        panic!()
    };
    assert_eq!((reason.0, &private_data[..2]), (28, &b"no"[..]));
}

/// A requester that ends sends REJ 4 with its own GUID, and without the other end's ID.
#[test]
fn t18_requester_dies() {
    let (mut bench, id) = client();
    bench.engine.release(NOW, id).unwrap();
    let Message::Rej(rej) = bench.said() else {
        panic!()
    };
    assert_eq!(
        (
            rej.local_comm_id,
            rej.remote_comm_id,
            rej.message,
            rej.reason
        ),
        (id.comm_id(), 0, 2, 4)
    );
    assert_eq!(rej.reject_info(), RejectInfo::CaGuid(0xa));
    assert_eq!(bench.engine.in_use(), 0);
}

/// An MRA moves the next repetition to its service time and the ACK timeout from now, and the later ones keep that pace;
/// only the first MRA counts.
#[test]
fn t19_a2c_mra_sets_the_pace() {
    let mut bench = Bench {
        engine: engine(linux_config(1, 0xa), 4),
        mad: [0; MAD_LEN],
    };
    let mut params = linux_params();
    params.timers.max_retries = 3;
    let id = bench.engine.connect(NOW, &params).unwrap();
    bench.said();
    let mra = |service_timeout| {
        Message::Mra(Mra {
            local_comm_id: 5,
            remote_comm_id: id.comm_id(),
            service_timeout,
            ..Mra::ZERO
        })
    };
    bench.deliver(mra(10)).unwrap();
    assert_eq!(
        bench.deliver(mra(24)),
        Err(Ignored::Duplicate(Attribute::Mra))
    );
    let said = times(&mut bench);
    // 4.2 ms and 2^19 * 4.096 us.
    let wanted = 4 + 2147;
    assert_eq!(said.len(), 3);
    for (nth, (at, what)) in said.iter().enumerate() {
        assert_eq!(*what, Attribute::Req);
        assert!(at.abs_diff((nth as u64 + 1) * wanted) <= 10, "{said:?}");
    }
}

/// An alternate path where there is none: REJ 18 with the GID that would do.
#[test]
fn a5_alternate_path_on_roce() {
    let mut bench = server();
    let two = Req {
        alternate_local_lid: 1,
        ..req(9, 9)
    };
    bench.deliver(Message::Req(two)).unwrap();
    bench.refused(9, 0, RejectReason::INVALID_ALT_GID, &gid(1));
}

/// The sender's QP number in the DETH does not count: answers go to QP1. The engine does not even get the number.
#[test]
fn a9_answers_go_to_qp1() {
    let mut bench = server();
    let id = bench.request(9, 9);
    bench.engine.reply(NOW, id, &ReplyParams::new(3)).unwrap();
    let (transmit, _, _) = bench.say_at(NOW).unwrap();
    assert_eq!(transmit.address.remote_gid, gid(0));
    assert_eq!(GSI_QPN, 1);
}

/// LAP on RoCE. Linux does not answer, and the sender repeats it for a minute and a half; here it is APR 2, and the
/// connection is as it was.
#[test]
fn a11_lap_on_roce() {
    let mut bench = server();
    let id = bench.established(9, 0x55);
    bench
        .deliver(Message::Lap(Lap {
            local_comm_id: 9,
            remote_comm_id: id.comm_id(),
            remote_qpn: 0x300,
            alternate_local_lid: 1,
            ..Lap::ZERO
        }))
        .unwrap();
    let Message::Apr(apr) = bench.said() else {
        panic!()
    };
    assert_eq!(AprStatus(apr.status), AprStatus::UNSUPPORTED);
    assert_eq!(bench.state(id), State::Established);
    assert_eq!(bench.engine.poll_event(), None);
}

/// Both ends say DREQ at once: one Disconnected and one TimewaitExit each.
#[test]
fn crossing_dreqs() {
    let mut world = linux_world(3);
    let (id, peer) = connected(&mut world);
    world.nodes[0].disconnect(world.now, id, b"").unwrap();
    world.nodes[1].disconnect(world.now, peer, b"").unwrap();
    world.run(world.now + 10 * SECOND);
    for node in 0..2 {
        let events = world.events(node);
        assert!(
            matches!(
                events[events.len() - 2..],
                [Seen::Disconnected(_), Seen::TimewaitExit]
            ),
            "{events:?}"
        );
    }
    assert_eq!(world.sent(0, Attribute::Dreq), 1);
    world.release_all(&[id]);
}

/// The peer of an established connection rejects it after the fact.
#[test]
fn rej_after_establishment() {
    let mut bench = server();
    let id = bench.established(9, 0x55);
    bench
        .deliver(Message::Rej(Rej {
            local_comm_id: 9,
            remote_comm_id: id.comm_id(),
            message: 1,
            reason: 28,
            ..Rej::ZERO
        }))
        .unwrap();
    assert_eq!(
        bench.engine.poll_event().unwrap().kind,
        EventKind::Disconnected {
            cause: DisconnectCause::Rejected(RejectReason(28)),
            private_data: &[]
        }
    );
    assert_eq!(bench.state(id), State::Timewait);
}
