//! The active side, rule by rule, with the other end played by hand. Where a rule was observed on Linux, the test says so.

use std::time::Duration;

use crate::common::peer::*;
use crate::common::*;
use bareverbs_cm::engine::*;
use bareverbs_cm::mad::*;

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
        "/../tests/model/tests/data/rxe61-guest-guest.pcap"
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

/// Linux T16: REP, RTU, and RTU again for a second REP.
#[test]
fn duplicate_rep_gets_the_rtu_again() {
    let (mut bench, id) = client();
    bench.deliver(Message::Rep(rep(id, 70, 0x44))).unwrap();
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
            bench.deliver(Message::Rep(rep(id, 70, 0x44))),
            Err(Ignored::Duplicate(Attribute::Rep))
        );
    }
}

#[test]
fn slow_application_answers_a_duplicate_rep_with_an_mra() {
    let (mut bench, id) = client();
    bench.deliver(Message::Rep(rep(id, 70, 0x44))).unwrap();
    for _ in 0..2 {
        assert!(bench.deliver(Message::Rep(rep(id, 70, 0x44))).is_err());
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
fn rep_without_a_request() {
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
    bench.deliver(Message::Rep(rep(id, 70, 0x44))).unwrap();
    bench.refused(70, 1, RejectReason::INVALID_COMM_ID, &[]);
}

#[test]
fn rep_from_a_qp_that_is_connected_already() {
    let (mut bench, first) = client();
    bench.deliver(Message::Rep(rep(first, 70, 0x44))).unwrap();
    bench.engine.poll_event().unwrap();
    bench.engine.ready(first, b"").unwrap();
    assert!(matches!(bench.said(), Message::Rtu(_)));
    let second = bench.engine.connect(NOW, &params()).unwrap();
    assert!(matches!(bench.said(), Message::Req(_)));
    bench.deliver(Message::Rep(rep(second, 71, 0x44))).unwrap();
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
    bench.deliver(mra).unwrap();
    assert_eq!(bench.state(id), State::MraReqReceived);
    assert_eq!(bench.deliver(mra), Err(Ignored::Duplicate(Attribute::Mra)));
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
    bench.deliver(Message::Mra(mra)).unwrap();
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
    bench.deliver(Message::Rej(rej)).unwrap();
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
        bench.deliver(Message::Rej(rej)),
        Err(Ignored::Unexpected(Attribute::Rej))
    );
}

#[test]
fn stale_refusal_rests_in_timewait_without_an_event() {
    let (mut bench, id) = client();
    bench
        .deliver(Message::Rej(Rej {
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
