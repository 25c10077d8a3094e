//! The rules of the receive and send tables, one by one, with a hand-made peer. Where the rule is one that was observed
//! on Linux, the test says so.

mod common;

use std::time::Duration;

use bareverbs_cm::engine::*;
use bareverbs_cm::mad::*;
use common::*;

const NOW: Duration = Duration::from_secs(5);
const GUID: u64 = 0x1234_5678_9abc_def0;

/// One engine, and the other end played by hand.
struct Bench {
    engine: Engine<'static>,
    mad: [u8; MAD_LEN],
}

fn server() -> Bench {
    server_with(Config::new(1, 0xb))
}

fn server_with(config: Config) -> Bench {
    let mut engine = engine(config, 16);
    engine.listen(SERVICE, 4, false, 77).unwrap();
    Bench {
        engine,
        mad: [0; MAD_LEN],
    }
}

fn req(comm_id: u32, qpn: u32) -> Req<'static> {
    Req {
        local_comm_id: comm_id,
        service_id: SERVICE,
        local_ca_guid: GUID,
        local_qpn: qpn,
        starting_psn: 0x1111,
        responder_resources: 3,
        initiator_depth: 5,
        remote_cm_response_timeout: 20,
        local_cm_response_timeout: 12,
        retry_count: 6,
        rnr_retry_count: 5,
        max_cm_retries: 3,
        pkey: 0xffff,
        path_mtu: 3,
        primary_local_gid: gid(0),
        primary_remote_gid: gid(1),
        primary_hop_limit: 64,
        primary_ack_timeout: 19,
        ..Req::ZERO
    }
}

impl Bench {
    fn hear_at(&mut self, now: Duration, message: Message<'_>) -> Result<Attribute, Ignored> {
        let mut mad = [0xa5; MAD_LEN];
        message
            .emit(&Header::send(message.attribute(), 0x7_0000_0042), &mut mad)
            .unwrap();
        self.engine.handle_mad(now, &path(1), &mad)
    }

    fn hear(&mut self, message: Message<'_>) -> Result<Attribute, Ignored> {
        self.hear_at(NOW, message)
    }

    fn say_at(&mut self, now: Duration) -> Option<(Transmit, Header, Message<'_>)> {
        self.mad = [0xa5; MAD_LEN];
        let transmit = self.engine.poll_transmit(now, &mut self.mad)?;
        let mad = Mad::new(&self.mad).unwrap();
        Some((transmit, mad.header(), mad.message().unwrap()))
    }

    fn said(&mut self) -> Message<'_> {
        self.say_at(NOW).expect("the engine says nothing").2
    }

    fn silent(&mut self) {
        if let Some((_, _, message)) = self.say_at(NOW) {
            panic!("{message:?}");
        }
    }

    fn request(&mut self, comm_id: u32, qpn: u32) -> ConnectionId {
        self.hear(Message::Req(req(comm_id, qpn))).unwrap();
        let event = self.engine.poll_event().unwrap();
        assert!(
            matches!(
                event.kind,
                EventKind::ConnectRequest {
                    listener_user: 77,
                    ..
                }
            ),
            "{event:?}"
        );
        event.connection
    }

    /// A connection up to REP.
    fn replied(&mut self, comm_id: u32, qpn: u32) -> ConnectionId {
        let id = self.request(comm_id, qpn);
        self.engine
            .reply(
                NOW,
                id,
                &ReplyParams {
                    private_data: b"hi",
                    ..ReplyParams::new(0x300)
                },
            )
            .unwrap();
        let Message::Rep(rep) = self.said() else {
            panic!()
        };
        assert_eq!(
            (rep.local_comm_id, rep.remote_comm_id),
            (id.comm_id(), comm_id)
        );
        id
    }

    fn established(&mut self, comm_id: u32, qpn: u32) -> ConnectionId {
        let id = self.replied(comm_id, qpn);
        self.hear(Message::Rtu(Rtu {
            local_comm_id: comm_id,
            remote_comm_id: id.comm_id(),
            ..Rtu::ZERO
        }))
        .unwrap();
        assert!(matches!(
            self.engine.poll_event().unwrap().kind,
            EventKind::Established { .. }
        ));
        id
    }

    fn state(&self, id: ConnectionId) -> State {
        self.engine.state(id).unwrap()
    }

    #[track_caller]
    fn refused(&mut self, remote: u32, message: u8, reason: RejectReason, info: &[u8]) {
        let Message::Rej(rej) = self.said() else {
            panic!()
        };
        assert_eq!(
            (rej.remote_comm_id, rej.message, rej.reason()),
            (remote, message, reason)
        );
        assert_eq!(rej.additional_info(), info);
    }
}

fn dreq(id: ConnectionId, comm_id: u32, qpn: u32) -> Message<'static> {
    Message::Dreq(Dreq {
        local_comm_id: comm_id,
        remote_comm_id: id.comm_id(),
        remote_qpn: qpn,
        ..Dreq::ZERO
    })
}

#[test]
fn req_as_linux_writes_it() {
    // Frame 26 of the capture, with the communication ID that the engine chose.
    let mut config = Config::new(1, 0x5054_00ff_fe00_0002);
    config.transaction_id_high = 2;
    let mut engine = engine(config, 4);
    let mut private_data = [0; 92];
    let header = CmaHeader {
        source_port: 47534,
        source: "10.0.0.2".parse().unwrap(),
        destination: "10.0.0.1".parse().unwrap(),
    };
    header
        .emit(private_data.first_chunk_mut().unwrap())
        .unwrap();
    let address = Address {
        local_gid: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 0, 0, 2],
        remote_gid: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 0, 0, 1],
        pkey: 0xffff,
        flow_label: 0x69818,
        hop_limit: 64,
        ..Address::default()
    };
    let id = engine
        .connect(
            NOW,
            &ConnectParams {
                service_id: SERVICE,
                local_qpn: 0x11,
                starting_psn: Some(0x541c46),
                packet_life_time: 18,
                private_data: &private_data,
                ..ConnectParams::new(address)
            },
        )
        .unwrap();
    let pcap = std::fs::read(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/data/rxe61-guest-guest.pcap"
    ))
    .unwrap();
    // The REQ is found by its communication ID and starting PSN.
    let at = pcap
        .windows(4)
        .position(|window| window == [0xf5, 0xc2, 0x48, 0x8f])
        .expect("the REQ is in the capture");
    let mut golden: [u8; MAD_LEN] = pcap[at - DATA..at - DATA + MAD_LEN].try_into().unwrap();
    assert_eq!(golden[..4], [1, 7, 2, 3]);
    golden[DATA..DATA + 4].copy_from_slice(&id.comm_id().to_be_bytes());
    golden[12..16].copy_from_slice(&id.comm_id().to_le_bytes());
    let mut mad = [0xa5; MAD_LEN];
    engine.poll_transmit(NOW, &mut mad).unwrap();
    assert_eq!(mad, golden);
}

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
        bench.hear(Message::Req(req)).unwrap();
        let Message::Rej(rej) = bench.said() else {
            panic!()
        };
        assert_eq!(
            (rej.local_comm_id, rej.remote_comm_id, rej.message),
            (0, 9, 0)
        );
        bench.hear(Message::Req(req)).unwrap();
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
        .hear(Message::Req(Req {
            path_mtu: 4,
            ..req(9, 0x55)
        }))
        .unwrap();
    bench.refused(9, 0, RejectReason::INVALID_MTU, &[3]);
}

#[test]
fn unreliable_connections_where_the_listener_wants_them() {
    let mut engine = engine(Config::new(1, 2), 4);
    engine.listen(SERVICE, 4, true, 77).unwrap();
    let mut bench = Bench {
        engine,
        mad: [0; MAD_LEN],
    };
    bench
        .hear(Message::Req(Req {
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
    bench.hear(Message::Req(req(9, 0x99))).unwrap();
    bench.refused(9, 0, RejectReason::NO_RESOURCES, &[]);
    // An answer, of whatever kind, makes room in the backlog.
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
    bench.hear(Message::Req(req(13, 0x99))).unwrap();
    bench.refused(13, 0, RejectReason::NO_RESOURCES, &[]);

    let mut config = Config::new(1, 2);
    config.reject_overflow = false;
    let mut bench = server_with(config);
    for n in 0..4 {
        bench.request(n, 0x50 + n);
    }
    assert_eq!(
        bench.hear(Message::Req(req(9, 0x99))),
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
        assert_eq!(bench.hear(Message::Req(req(9, 0x55))), duplicate);
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
    assert_eq!(bench.hear(Message::Req(req(9, 0x55))), duplicate);
    assert!(matches!(bench.said(), Message::Rep(_)));
    bench
        .hear(Message::Rtu(Rtu {
            local_comm_id: 9,
            remote_comm_id: id.comm_id(),
            ..Rtu::ZERO
        }))
        .unwrap();
    assert_eq!(bench.hear(Message::Req(req(9, 0x55))), duplicate);
    bench.silent();
    // Linux T4b.
    bench.engine.disconnect(NOW, id, b"").unwrap();
    assert!(matches!(bench.said(), Message::Dreq(_)));
    assert_eq!(bench.hear(Message::Req(req(9, 0x55))), duplicate);
    bench.silent();
    // Linux T12: in timewait the same IDs make a new connection.
    bench
        .hear(Message::Drep(Drep {
            local_comm_id: 9,
            remote_comm_id: id.comm_id(),
            ..Drep::ZERO
        }))
        .unwrap();
    assert_eq!(bench.state(id), State::Timewait);
    while bench.engine.poll_event().is_some() {}
    assert_ne!(bench.request(9, 0x55), id);
}

/// Linux T4: a QP that is in a connection asks for another one.
#[test]
fn stale_connection() {
    let mut bench = server();
    let old = bench.established(9, 0x55);
    bench.hear(Message::Req(req(10, 0x55))).unwrap();
    bench.refused(10, 0, RejectReason::STALE_CONNECTION, &[]);
    let Message::Dreq(dreq) = bench.said() else {
        panic!()
    };
    assert_eq!((dreq.remote_comm_id, dreq.remote_qpn), (9, 0x55));
    assert_eq!(bench.state(old), State::DreqSent);
    // The peer answers for the connection that it does not know; the way is free.
    bench
        .hear(Message::Drep(Drep {
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

    // Also when nobody answers.
    let mut bench = server();
    bench.established(9, 0x55);
    bench.hear(Message::Req(req(10, 0x55))).unwrap();
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
    bench.hear_at(later, Message::Req(req(12, 0x55))).unwrap();
    assert!(matches!(
        bench.engine.poll_event().unwrap().kind,
        EventKind::ConnectRequest { .. }
    ));
}

/// Linux T1f, T1g, T6, T1e.
#[test]
fn dreq_is_always_answered() {
    let mut bench = server();
    let id = bench.established(9, 0x55);
    assert_eq!(
        bench.hear(dreq(id, 9, 0x301)),
        Err(Ignored::Unexpected(Attribute::Dreq))
    );
    bench.silent();
    bench.hear(dreq(id, 9, 0x300)).unwrap();
    let (_, header, message) = bench.say_at(NOW).unwrap();
    assert!(matches!(message, Message::Drep(_)));
    assert_eq!(header.transaction_id, 0x7_0000_0042);
    assert_eq!(
        bench.hear(dreq(id, 9, 0x300)),
        Err(Ignored::Duplicate(Attribute::Dreq))
    );
    assert!(matches!(bench.said(), Message::Drep(_)));
    // One event each, however often it was asked.
    let event = bench.engine.poll_event().unwrap();
    assert!(matches!(
        event.kind,
        EventKind::Disconnected {
            cause: DisconnectCause::Requested,
            ..
        }
    ));
    assert_eq!(bench.engine.poll_event(), None);
    bench.engine.disconnect(NOW, id, b"").unwrap();
    bench.silent();
    let later = NOW + Duration::from_millis(2148 + 2);
    bench.engine.handle_timeout(later);
    assert_eq!(
        bench.engine.poll_event().unwrap().kind,
        EventKind::TimewaitExit
    );
    // After the end, and for a connection that never was.
    assert!(bench.hear_at(later, dreq(id, 9, 0x300)).is_err());
    assert!(matches!(bench.said(), Message::Drep(_)));
    bench.engine.release(later, id).unwrap();
    bench.hear(dreq(id, 9, 0x300)).unwrap();
    let ours = id.comm_id();
    let Message::Drep(drep) = bench.said() else {
        panic!()
    };
    assert_eq!((drep.local_comm_id, drep.remote_comm_id), (ours, 9));
}

#[test]
fn dreq_before_the_rtu() {
    // Linux A3c.
    let mut bench = server();
    let id = bench.replied(9, 0x55);
    bench.hear(dreq(id, 9, 0x300)).unwrap();
    assert!(matches!(bench.said(), Message::Drep(_)));
    assert!(matches!(
        bench.engine.poll_event().unwrap().kind,
        EventKind::Disconnected { .. }
    ));
}

#[test]
fn dreq_that_waits_for_the_user() {
    let mut config = Config::new(1, 2);
    config.auto_drep = false;
    let mut bench = server_with(config);
    let id = bench.established(9, 0x55);
    bench.hear(dreq(id, 9, 0x300)).unwrap();
    bench.silent();
    assert_eq!(bench.state(id), State::DreqReceived);
    bench.engine.disconnect(NOW, id, b"bye").unwrap();
    let Message::Drep(drep) = bench.said() else {
        panic!()
    };
    assert_eq!(&drep.private_data[..3], b"bye");
    assert_eq!(bench.state(id), State::Timewait);
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
    assert_eq!(bench.hear(rtu), Err(Ignored::Duplicate(Attribute::Rtu)));
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

fn client() -> (Bench, ConnectionId) {
    let mut bench = Bench {
        engine: engine(Config::new(3, 0xa), 16),
        mad: [0; MAD_LEN],
    };
    let timers = Timers {
        early: None,
        max_retries: 1,
        ..Timers::default()
    };
    let id = bench
        .engine
        .connect(NOW, &ConnectParams { timers, ..params() })
        .unwrap();
    assert!(matches!(bench.said(), Message::Req(_)));
    (bench, id)
}

fn rep(id: ConnectionId, comm_id: u32, qpn: u32) -> Rep<'static> {
    Rep {
        local_comm_id: comm_id,
        remote_comm_id: id.comm_id(),
        local_ca_guid: GUID,
        local_qpn: qpn,
        starting_psn: 0x2222,
        responder_resources: 3,
        initiator_depth: 5,
        rnr_retry_count: 2,
        target_ack_delay: 17,
        ..Rep::ZERO
    }
}

/// Linux T16: REP, RTU, and RTU again for a second REP.
#[test]
fn duplicate_rep_gets_the_rtu_again() {
    let (mut bench, id) = client();
    bench.hear(Message::Rep(rep(id, 70, 0x44))).unwrap();
    assert!(matches!(
        bench.engine.poll_event().unwrap().kind,
        EventKind::Reply { .. }
    ));
    let qp = bench.engine.qp_params(id).unwrap();
    assert_eq!(
        (qp.dest_qpn, qp.sq_psn, qp.rnr_retry_count),
        (0x44, 0x2222, 2)
    );
    assert_eq!((qp.max_dest_rd_atomic, qp.max_rd_atomic), (5, 3));
    // Life time 16, delay 17: 17 and one more, since the delay is as long as the way.
    assert_eq!(qp.ack_timeout, 18);
    bench.engine.ready(id, b"go").unwrap();
    for _ in 0..2 {
        let Message::Rtu(rtu) = bench.said() else {
            panic!()
        };
        assert_eq!(
            (rtu.remote_comm_id, &rtu.private_data[..2]),
            (70, &b"go"[..])
        );
        bench.silent();
        assert_eq!(
            bench.hear(Message::Rep(rep(id, 70, 0x44))),
            Err(Ignored::Duplicate(Attribute::Rep))
        );
    }
}

#[test]
fn slow_application_answers_a_duplicate_rep_with_an_mra() {
    let (mut bench, id) = client();
    bench.hear(Message::Rep(rep(id, 70, 0x44))).unwrap();
    for _ in 0..2 {
        assert!(bench.hear(Message::Rep(rep(id, 70, 0x44))).is_err());
        let Message::Mra(mra) = bench.said() else {
            panic!()
        };
        assert_eq!((mra.message, mra.service_timeout), (1, 24));
    }
    assert_eq!(bench.state(id), State::MraRepSent);
    bench.engine.ready(id, b"").unwrap();
    assert!(matches!(bench.said(), Message::Rtu(_)));
}

#[test]
fn rep_that_nobody_waits_for() {
    let (mut bench, id) = client();
    bench.engine.release(NOW, id).unwrap();
    // Linux T18: giving up says who gives up.
    let Message::Rej(rej) = bench.said() else {
        panic!()
    };
    assert_eq!(
        (rej.message, rej.remote_comm_id, rej.reason()),
        (2, 0, RejectReason::TIMEOUT)
    );
    assert_eq!(rej.additional_info(), 0xau64.to_be_bytes());
    assert_eq!(bench.engine.in_use(), 0);
    bench.hear(Message::Rep(rep(id, 70, 0x44))).unwrap();
    bench.refused(70, 1, RejectReason::INVALID_COMM_ID, &[]);
}

#[test]
fn rep_from_a_qp_that_is_connected_already() {
    let (mut bench, first) = client();
    bench.hear(Message::Rep(rep(first, 70, 0x44))).unwrap();
    bench.engine.poll_event().unwrap();
    bench.engine.ready(first, b"").unwrap();
    assert!(matches!(bench.said(), Message::Rtu(_)));
    let second = bench.engine.connect(NOW, &params()).unwrap();
    assert!(matches!(bench.said(), Message::Req(_)));
    bench.hear(Message::Rep(rep(second, 71, 0x44))).unwrap();
    bench.refused(71, 1, RejectReason::STALE_CONNECTION, &[]);
    assert!(matches!(bench.said(), Message::Dreq(_)));
    assert_eq!(bench.state(first), State::DreqSent);
    let event = bench.engine.poll_event().unwrap();
    assert_eq!(event.connection, second);
    assert!(matches!(
        event.kind,
        EventKind::Rejected {
            reason: RejectReason::STALE_CONNECTION,
            ..
        }
    ));
}

/// Linux T19, A2c: an MRA gives more time once; the repetitions that are left keep the new pace.
#[test]
fn mra_extends_the_time() {
    let (mut bench, id) = client();
    let mra = Message::Mra(Mra {
        local_comm_id: 70,
        remote_comm_id: id.comm_id(),
        service_timeout: 10,
        ..Mra::ZERO
    });
    bench.hear(mra).unwrap();
    assert_eq!(bench.state(id), State::MraReqReceived);
    assert_eq!(bench.hear(mra), Err(Ignored::Duplicate(Attribute::Mra)));
    // 4.2 ms of service and 4.096 us * 2^17 of the path, twice.
    let pace = Duration::from_micros(4_194 + 536_871);
    assert!(bench.say_at(NOW + pace - 2 * MS).is_none());
    assert!(matches!(
        bench.say_at(NOW + pace + 2 * MS).unwrap().2,
        Message::Req(_)
    ));
    assert_eq!(bench.engine.poll_event(), None);
    bench.engine.handle_timeout(NOW + 2 * pace + 4 * MS);
    assert_eq!(
        bench.engine.poll_event().unwrap().kind,
        EventKind::Unreachable {
            unanswered: Attribute::Req
        }
    );

    let mut bench = server();
    let id = bench.replied(9, 0x55);
    let mra = Mra {
        local_comm_id: 9,
        remote_comm_id: id.comm_id(),
        message: 1,
        service_timeout: 24,
        ..Mra::ZERO
    };
    bench.hear(Message::Mra(mra)).unwrap();
    assert_eq!(bench.state(id), State::MraRepReceived);
    assert!(bench.say_at(NOW + Duration::from_secs(60)).is_none());
}

/// Linux T17: with its reason, its additional information and its private data.
#[test]
fn refusal_of_a_req_reaches_the_user() {
    let (mut bench, id) = client();
    let mut rej = Rej {
        remote_comm_id: id.comm_id(),
        reason: 28,
        info_len: 3,
        private_data: b"why",
        ..Rej::ZERO
    };
    rej.info[..3].copy_from_slice(b"abc");
    bench.hear(Message::Rej(rej)).unwrap();
    let event = bench.engine.poll_event().unwrap();
    let EventKind::Rejected {
        reason,
        info,
        private_data,
    } = event.kind
    else {
        panic!("{event:?}")
    };
    assert_eq!(
        (reason, info),
        (RejectReason::CONSUMER_DEFINED, &b"abc"[..])
    );
    assert_eq!(
        (&private_data[..4], private_data.len()),
        (&b"why\0"[..], 148)
    );
    assert_eq!(bench.state(id), State::Idle);
    assert_eq!(
        bench.hear(Message::Rej(rej)),
        Err(Ignored::Unexpected(Attribute::Rej))
    );
}

#[test]
fn stale_refusal_rests_in_timewait_without_an_event() {
    let (mut bench, id) = client();
    bench
        .hear(Message::Rej(Rej {
            remote_comm_id: id.comm_id(),
            reason: 10,
            ..Rej::ZERO
        }))
        .unwrap();
    assert_eq!(bench.state(id), State::Timewait);
    assert!(matches!(
        bench.engine.poll_event().unwrap().kind,
        EventKind::Rejected { .. }
    ));
    bench.engine.handle_timeout(NOW + Duration::from_secs(10));
    assert_eq!(bench.state(id), State::Idle);
    assert_eq!(bench.engine.poll_event(), None);
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
    bench.hear(Message::Rej(rej)).unwrap();
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
    // Before the application even heard of it, nothing is heard at all.
    bench.hear(Message::Req(req(9, 0x55))).unwrap();
    bench.hear(Message::Rej(rej)).unwrap();
    assert_eq!(bench.engine.poll_event(), None);
    bench.engine.release(NOW, id).unwrap();
    assert_eq!(bench.engine.in_use(), 0);
}

#[test]
fn refusal_after_the_reply() {
    let mut bench = server();
    let id = bench.replied(9, 0x55);
    bench
        .hear(Message::Rej(Rej {
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
        .hear(Message::Rej(Rej {
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
fn crossing_disconnections() {
    let mut bench = server();
    let id = bench.established(9, 0x55);
    bench.engine.disconnect(NOW, id, b"").unwrap();
    assert!(matches!(bench.said(), Message::Dreq(_)));
    bench.hear(dreq(id, 9, 0x300)).unwrap();
    assert!(matches!(bench.said(), Message::Drep(_)));
    assert!(
        bench
            .hear(Message::Drep(Drep {
                local_comm_id: 9,
                remote_comm_id: id.comm_id(),
                ..Drep::ZERO
            }))
            .is_err()
    );
    assert!(matches!(
        bench.engine.poll_event().unwrap().kind,
        EventKind::Disconnected { .. }
    ));
    assert_eq!(bench.engine.poll_event(), None);
}

#[test]
fn release_says_goodbye() {
    let mut bench = server();
    let id = bench.request(9, 0x55);
    bench.engine.release(NOW, id).unwrap();
    assert_eq!(bench.engine.state(id), Err(CmError::UnknownConnection));
    bench.refused(9, 0, RejectReason::CONSUMER_DEFINED, &[]);
    assert_eq!(bench.engine.in_use(), 0);

    let id = bench.replied(10, 0x56);
    bench.engine.release(NOW, id).unwrap();
    bench.refused(10, 2, RejectReason::CONSUMER_DEFINED, &[]);
    assert_eq!(bench.engine.in_use(), 0);

    // Established: the DREQ is repeated until it is answered, and only then the slot is free.
    let id = bench.established(11, 0x57);
    bench.engine.release(NOW, id).unwrap();
    assert!(matches!(bench.said(), Message::Dreq(_)));
    assert_eq!(bench.engine.in_use(), 1);
    let later = NOW + Duration::from_secs(1);
    assert!(matches!(bench.say_at(later).unwrap().2, Message::Dreq(_)));
    bench
        .hear_at(
            later,
            Message::Drep(Drep {
                local_comm_id: 11,
                remote_comm_id: id.comm_id(),
                ..Drep::ZERO
            }),
        )
        .unwrap();
    assert_eq!(bench.engine.in_use(), 0);
    assert_eq!(bench.engine.poll_event(), None);
}

#[test]
fn calls_in_the_wrong_state_are_named() {
    let (mut bench, id) = client();
    let wrong = |call| {
        Err(CmError::WrongState {
            call,
            state: State::ReqSent,
        })
    };
    assert_eq!(bench.engine.ready(id, b""), wrong("ready"));
    assert_eq!(
        bench.engine.reply(NOW, id, &ReplyParams::new(1)),
        wrong("reply")
    );
    assert_eq!(bench.engine.disconnect(NOW, id, b""), wrong("disconnect"));
    assert_eq!(bench.engine.mra(id, 3), wrong("mra"));
    assert_eq!(
        bench.engine.notify_established(id),
        Err(CmError::WrongState {
            call: "notify",
            state: State::ReqSent
        })
    );
    let long = [0; 256];
    assert_eq!(
        bench.engine.connect(
            NOW,
            &ConnectParams {
                private_data: &long[..93],
                ..params()
            }
        ),
        Err(CmError::PrivateDataTooLong { len: 93, max: 92 })
    );
    assert_eq!(
        bench.engine.connect(
            NOW,
            &ConnectParams {
                retry_count: 8,
                ..params()
            }
        ),
        Err(CmError::BadParameter {
            name: "retry count",
            value: 8,
            max: 7
        })
    );
    assert_eq!(
        bench.engine.ready(id, &long[..225]),
        Err(CmError::PrivateDataTooLong { len: 225, max: 224 })
    );
    assert_eq!(bench.engine.in_use(), 1);
}

/// Linux T9, T10, A11, and ClassPortInfo, which Linux does not serve.
#[test]
fn other_messages() {
    let mut bench = server();
    bench
        .hear(Message::SidrReq(SidrReq {
            request_id: 5,
            service_id: 6,
            ..SidrReq::ZERO
        }))
        .unwrap();
    let Message::SidrRep(rep) = bench.said() else {
        panic!()
    };
    assert_eq!((rep.request_id, rep.status, rep.service_id), (5, 1, 6));
    assert_eq!(
        bench.hear(Message::Lap(Lap::ZERO)),
        Err(Ignored::Unsupported(Attribute::Lap))
    );
    assert_eq!(
        bench.hear(Message::Apr(Apr::ZERO)),
        Err(Ignored::Unsupported(Attribute::Apr))
    );
    bench.silent();
    let mut mad = [0; MAD_LEN];
    req(9, 9).emit(0, &mut mad).unwrap();
    mad[2] = 1;
    assert_eq!(
        bench.engine.handle_mad(NOW, &path(1), &mad),
        Err(Ignored::Malformed(MadError::ClassVersion(1)))
    );
    bench.silent();
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
    assert_eq!((header.method, header.transaction_id), (0x81, 3));
    assert_eq!(
        (info.base_version, info.class_version, info.response_time),
        (1, 2, 20)
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
            .hear(Message::Req(Req {
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
        .hear(Message::Req(Req {
            service_id: 3,
            ..req(33, 0x33)
        }))
        .unwrap();
    bench.refused(33, 0, RejectReason::INVALID_SERVICE_ID, &[]);
}

/// Anything at all, in any state, with random calls between: no panic, and no slot lost.
#[test]
fn random_mads_and_calls() {
    for seed in 0..200 {
        let mut random = Random(seed);
        let mut config = Config::new(seed, 0xa);
        config.auto_drep = random.percent(70);
        let mut bench = server_with(config);
        let mut ids: Vec<ConnectionId> = Vec::new();
        let mut heard: Vec<[u8; MAD_LEN]> = Vec::new();
        let mut now = NOW;
        for _ in 0..600 {
            let some = |random: &mut Random, ids: &[ConnectionId]| {
                ids.get(random.below(ids.len() as u64 + 1) as usize)
                    .copied()
            };
            let id = some(&mut random, &ids);
            match random.below(16) {
                0 => {
                    if let Ok(id) = bench.engine.connect(now, &params()) {
                        ids.push(id);
                    }
                }
                1..9 => {
                    let ours = id.map_or(random.next() as u32, ConnectionId::comm_id);
                    let theirs = random.below(4) as u32;
                    let qpn = random.below(4) as u32;
                    let message = match random.below(9) {
                        0 => Message::Req(req(theirs, qpn)),
                        1 => Message::Rep(Rep {
                            local_comm_id: theirs,
                            remote_comm_id: ours,
                            local_qpn: qpn,
                            local_ca_guid: GUID,
                            ..Rep::ZERO
                        }),
                        2 => Message::Rtu(Rtu {
                            local_comm_id: theirs,
                            remote_comm_id: ours,
                            ..Rtu::ZERO
                        }),
                        3 => Message::Mra(Mra {
                            local_comm_id: theirs,
                            remote_comm_id: ours,
                            message: qpn as u8,
                            ..Mra::ZERO
                        }),
                        4 => Message::Rej(Rej {
                            local_comm_id: theirs,
                            remote_comm_id: ours,
                            message: qpn as u8 % 3,
                            reason: random.below(40) as u16,
                            info_len: 8,
                            ..Rej::ZERO
                        }),
                        5 => Message::Dreq(Dreq {
                            local_comm_id: theirs,
                            remote_comm_id: ours,
                            remote_qpn: 0x11,
                            ..Dreq::ZERO
                        }),
                        6 => Message::Drep(Drep {
                            local_comm_id: theirs,
                            remote_comm_id: ours,
                            ..Drep::ZERO
                        }),
                        7 => Message::SidrReq(SidrReq::ZERO),
                        _ => Message::Lap(Lap::ZERO),
                    };
                    let mut mad = [0; MAD_LEN];
                    message
                        .emit(&Header::send(message.attribute(), random.next()), &mut mad)
                        .unwrap();
                    if random.percent(20) {
                        mad[random.below(256) as usize] = random.next() as u8;
                    }
                    let _ = bench.engine.handle_mad(now, &path(1), &mad);
                    heard.push(mad);
                }
                9 => {
                    if let Some(mad) = heard.get(random.below(heard.len() as u64 + 1) as usize) {
                        let _ = bench.engine.handle_mad(now, &path(1), mad);
                    }
                    let mut noise = [0; MAD_LEN];
                    noise
                        .iter_mut()
                        .for_each(|byte| *byte = random.next() as u8);
                    let _ = bench.engine.handle_mad(
                        now,
                        &path(1),
                        &noise[..random.below(257) as usize],
                    );
                }
                10 => now += Duration::from_millis(random.below(3000)),
                11 => {
                    if let Some(id) = id {
                        let _ = match random.below(6) {
                            0 => bench.engine.reply(now, id, &ReplyParams::new(0x11)),
                            1 => bench.engine.ready(id, b"x"),
                            2 => bench.engine.mra(id, 5),
                            3 => bench.engine.reject(now, id, RejectReason(28), b"i", b"p"),
                            4 => bench.engine.disconnect(now, id, b"d"),
                            _ => bench.engine.notify_established(id).map(|_| ()),
                        };
                    }
                }
                12 => {
                    if let Some(id) = id {
                        let _ = bench.engine.release(now, id);
                        ids.retain(|other| *other != id);
                    }
                }
                13 => {
                    while let Some(event) = bench.engine.poll_event() {
                        if !ids.contains(&event.connection) {
                            assert!(
                                matches!(event.kind, EventKind::ConnectRequest { .. }),
                                "seed {seed}: {event:?}"
                            );
                            ids.push(event.connection);
                        }
                    }
                }
                _ => while bench.say_at(now).is_some() {},
            }
        }
        while let Some(event) = bench.engine.poll_event() {
            let id = event.connection;
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        for id in ids {
            let _ = bench.engine.release(now, id);
        }
        for _ in 0..40 {
            now += Duration::from_secs(60);
            while bench.say_at(now).is_some() {}
        }
        assert_eq!(bench.engine.in_use(), 0, "seed {seed}");
        assert_eq!(bench.engine.next_deadline(), None, "seed {seed}");
    }
}
