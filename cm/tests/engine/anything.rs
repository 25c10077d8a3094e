//! Messages that belong to no connection, and random bytes and calls.

use std::time::Duration;

use crate::common::peer::*;
use crate::common::*;
use bareverbs_cm::engine::*;
use bareverbs_cm::mad::*;

/// Linux T9, T10, A11, and ClassPortInfo, which Linux does not serve.
#[test]
fn other_messages() {
    let mut bench = server();
    bench
        .deliver(Message::SidrReq(SidrReq {
            request_id: 5,
            service_id: 6,
            ..SidrReq::ZERO
        }))
        .unwrap();
    let Message::SidrRep(rep) = bench.said() else {
        panic!()
    };
    assert_eq!((rep.request_id, rep.status, rep.service_id), (5, 1, 6));
    bench.deliver(Message::Lap(Lap::ZERO)).unwrap();
    let Message::Apr(apr) = bench.said() else {
        panic!()
    };
    assert_eq!(AprStatus(apr.status), AprStatus::INVALID_COMM_ID);
    assert_eq!(
        bench.deliver(Message::Apr(Apr::ZERO)),
        Err(Ignored::Unexpected(Attribute::Apr))
    );
    bench.silent();
    let mut mad = [0; MAD_LEN];
    req(9, 9).emit(0, &mut mad).unwrap();
    mad[2] = 1;
    assert_eq!(
        bench.engine.handle_mad(NOW, &path(1), &mad),
        Err(Ignored::Malformed(MadError::ClassVersion(1)))
    );
    bench.refused(9, 0, RejectReason::INVALID_CLASS_VERSION, &[2]);
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

/// Anything at all, in any state, with random calls between: no panic, and no slot lost.
#[test]
fn random_mads_and_calls() {
    for seed in seeds(200) {
        let mut random = Random(seed);
        let mut config = Config::new(seed, 0xa);
        config.auto_drep = random.percent(70);
        config.reserved = random.below(3) as u32;
        let alternates = random.below(4) as usize;
        let mut bench = Bench {
            engine: engine_with(config, 16, alternates),
            mad: [0; MAD_LEN],
        };
        bench.engine.listen(SERVICE, 4, false, 77).unwrap();
        bench.engine.listen_sidr(SERVICE, 4, 78).unwrap();
        let mut requests: Vec<SidrId> = Vec::new();
        let mut ids: Vec<ConnectionId> = Vec::new();
        let mut received: Vec<[u8; MAD_LEN]> = Vec::new();
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
                    let message = match random.below(12) {
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
                        7 => Message::SidrReq(SidrReq {
                            request_id: theirs,
                            service_id: SERVICE + u64::from(qpn / 3),
                            ..SidrReq::ZERO
                        }),
                        8 => Message::SidrRep(SidrRep {
                            request_id: requests
                                .get(random.below(requests.len() as u64 + 1) as usize)
                                .map_or(theirs, |id| id.request_id()),
                            status: qpn as u8,
                            info_len: qpn as u8 * 24,
                            ..SidrRep::ZERO
                        }),
                        9 => Message::Apr(Apr {
                            local_comm_id: theirs,
                            remote_comm_id: ours,
                            status: qpn as u8,
                            info_len: qpn as u8 * 24,
                            ..Apr::ZERO
                        }),
                        _ => Message::Lap(Lap {
                            local_comm_id: theirs,
                            remote_comm_id: ours,
                            remote_qpn: 0x11,
                            alternate_local_lid: qpn as u16,
                            ..Lap::ZERO
                        }),
                    };
                    let mut mad = [0; MAD_LEN];
                    message
                        .emit(&Header::send(message.attribute(), random.next()), &mut mad)
                        .unwrap();
                    if random.percent(20) {
                        mad[random.below(256) as usize] = random.next() as u8;
                    }
                    let _ = bench.engine.handle_mad(now, &path(1), &mad);
                    received.push(mad);
                }
                9 => {
                    if let Some(mad) =
                        received.get(random.below(received.len() as u64 + 1) as usize)
                    {
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
                        let lid = AlternatePath {
                            local_lid: random.below(3) as u16,
                            ..AlternatePath::default()
                        };
                        let _ = match random.below(9) {
                            0 => bench.engine.reply(now, id, &ReplyParams::new(0x11)),
                            1 => bench.engine.ready(id, b"x"),
                            2 => bench.engine.mra(id, 5),
                            3 => bench.engine.reject(now, id, RejectReason(28), b"i", b"p"),
                            4 => bench.engine.disconnect(now, id, b"d"),
                            5 => bench.engine.load_alternate(now, id, &lid, b"l"),
                            6 => {
                                let status = AprStatus(random.below(5) as u8);
                                bench.engine.answer_alternate(now, id, status, b"i", b"p")
                            }
                            7 => bench.engine.set_timers(
                                id,
                                &Timers {
                                    early: None,
                                    ..Timers::default()
                                },
                            ),
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
                    while let Some(event) = bench.engine.poll_sidr_event() {
                        match event.kind {
                            SidrEventKind::Request { .. } => {
                                assert!(!requests.contains(&event.id), "seed {seed}");
                                requests.push(event.id);
                            }
                            // A name that ends was a name.
                            _ => {
                                assert!(requests.contains(&event.id), "seed {seed}");
                                requests.retain(|other| *other != event.id);
                            }
                        }
                    }
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
                14 => {
                    let id = requests
                        .get(random.below(requests.len() as u64 + 1) as usize)
                        .copied();
                    match (id, random.below(4)) {
                        (None, _) | (_, 0) => {
                            let params = SidrParams::new(SERVICE, path(1));
                            if let Ok(id) = bench.engine.sidr_request(now, &params) {
                                requests.push(id);
                            }
                        }
                        (Some(id), 1) => {
                            let _ = bench.engine.sidr_reply(now, id, &SidrReply::new(1, 2));
                        }
                        (Some(id), 2) => {
                            let status = SidrStatus(3);
                            let _ = bench.engine.sidr_reject(now, id, status, b"i", b"p");
                        }
                        (Some(id), _) => {
                            let _ = bench.engine.sidr_release(now, id);
                            requests.retain(|other| *other != id);
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
        while bench.engine.poll_sidr_event().is_some() {}
        assert_eq!(bench.engine.in_use(), 0, "seed {seed}");
        assert_eq!(bench.engine.sidr_in_use(), 0, "seed {seed}");
        assert_eq!(bench.engine.next_deadline(), None, "seed {seed}");
    }
}
