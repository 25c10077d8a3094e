//! Datagram services: asking, answering, refusing, repeating, over a pipe that loses, and under a flood.

use std::time::Duration;

use crate::common::*;
use bareverbs_cm::engine::*;
use bareverbs_cm::mad::*;

const DATAGRAMS: u64 = 0x0111_1c06;
const SECOND: Duration = Duration::from_secs(1);
const NOW: Duration = Duration::from_secs(5);

fn pair(slots: usize) -> [Engine<'static>; 2] {
    let node = |seed, guid| {
        let config = Config::new(seed, guid);
        Engine::new(
            config,
            Storage {
                listeners: vec![ListenerSlot::EMPTY; 4].leak(),
                replies: vec![ReplySlot::EMPTY; 64].leak(),
                sidr: vec![SidrSlot::EMPTY; slots].leak(),
                ..Storage::default()
            },
        )
    };
    [node(1, 0xa), node(2, 0xb)]
}

fn sent(engine: &mut Engine<'_>, now: Duration) -> Vec<[u8; MAD_LEN]> {
    let mut all = Vec::new();
    let mut mad = [0xa5; MAD_LEN];
    while engine.poll_transmit(now, &mut mad).is_some() {
        all.push(mad);
        mad = [0xa5; MAD_LEN];
    }
    all
}

fn deliver(
    engine: &mut Engine<'_>,
    node: usize,
    now: Duration,
    message: &Message<'_>,
) -> Result<Attribute, Ignored> {
    let mut mad = [0xa5; MAD_LEN];
    let header = Header::send(message.attribute(), 0x7_0000_0042);
    message.emit(&header, &mut mad).unwrap();
    engine.handle_mad(now, &path(node), &mad)
}

fn ask(request_id: u32) -> Message<'static> {
    Message::SidrReq(SidrReq {
        request_id,
        pkey: 0xffff,
        service_id: DATAGRAMS,
        private_data: b"who?",
    })
}

fn the_rep(mads: &[[u8; MAD_LEN]]) -> (u64, SidrRep<'_>) {
    let [mad] = mads else {
        panic!("{} messages", mads.len())
    };
    let mad = Mad::new(mad).unwrap();
    (mad.transaction_id(), SidrRep::parse(&mad).unwrap())
}

fn asked(engine: &mut Engine<'_>) -> SidrId {
    let event = engine.poll_sidr_event().unwrap();
    assert!(
        matches!(event.kind, SidrEventKind::Request { .. }),
        "{event:?}"
    );
    event.id
}

/// Messages of udaddy's two ends under Linux (reference trace), byte for byte as far as they are data.
#[test]
fn messages_as_linux_writes_them() {
    let [mut client, mut server] = pair(4);
    let mut data = [0; 36];
    data[..2].copy_from_slice(&[0x00, 0x40]);
    data[2..4].copy_from_slice(&[0xc4, 0xc4]);
    data[16..20].copy_from_slice(&[10, 0, 0, 2]);
    data[32..36].copy_from_slice(&[10, 0, 0, 1]);
    let params = SidrParams {
        private_data: &data,
        user: 7,
        ..SidrParams::new(DATAGRAMS, path(0))
    };
    let id = client.sidr_request(NOW, &params).unwrap();
    let mads = sent(&mut client, NOW);
    let name = id.request_id().to_be_bytes();
    // Header: base 1, class 7, version 2, Send; the TID with the name in host order.
    let mut wanted = [0; MAD_LEN];
    wanted[..4].copy_from_slice(&[1, 7, 2, 3]);
    wanted[8..12].copy_from_slice(&[0, 0, 0, 2]);
    wanted[12..16].copy_from_slice(&[name[3], name[2], name[1], name[0]]);
    wanted[16..18].copy_from_slice(&[0, 0x17]);
    wanted[24..28].copy_from_slice(&name);
    wanted[28..30].copy_from_slice(&[0xff, 0xff]);
    wanted[32..40].copy_from_slice(&[0, 0, 0, 0, 0x01, 0x11, 0x1c, 0x06]);
    wanted[40..76].copy_from_slice(&data);
    assert_eq!(mads, [wanted]);

    server.listen_sidr(DATAGRAMS, 4, 77).unwrap();
    server.handle_mad(NOW, &path(1), &mads[0]).unwrap();
    let event = server.poll_sidr_event().unwrap();
    let SidrEventKind::Request {
        listener_user,
        service_id,
        address,
        private_data,
        ..
    } = event.kind
    else {
        panic!("{event:?}")
    };
    assert_eq!((listener_user, service_id), (77, DATAGRAMS));
    assert_eq!(
        (address.pkey, address.remote_gid, address.local_gid),
        (0xffff, gid(0), gid(1))
    );
    assert_eq!((&private_data[..36], private_data.len()), (&data[..], 216));
    let theirs = event.id;
    let reply = SidrReply::new(0x14, 0x0123_4567);
    server.sidr_reply(NOW, theirs, &reply).unwrap();
    assert_eq!(
        server.sidr_reply(NOW, theirs, &reply),
        Err(CmError::UnknownRequest)
    );
    let mads = sent(&mut server, NOW);
    wanted[16..18].copy_from_slice(&[0, 0x18]);
    wanted[28..].fill(0);
    wanted[32..36].copy_from_slice(&[0, 0, 0x14, 0]);
    wanted[36..44].copy_from_slice(&DATAGRAMS.to_be_bytes());
    wanted[44..48].copy_from_slice(&[0x01, 0x23, 0x45, 0x67]);
    assert_eq!(mads, [wanted]);

    client.handle_mad(NOW, &path(0), &mads[0]).unwrap();
    let event = client.poll_sidr_event().unwrap();
    assert_eq!((event.id, event.user), (id, 7));
    assert_eq!(
        event.kind,
        SidrEventKind::Resolved {
            service_id: DATAGRAMS,
            address: path(0),
            qpn: 0x14,
            qkey: 0x0123_4567,
            ece: Ece::NONE,
            private_data: &[0; 136],
        }
    );
    assert_eq!(client.sidr_in_use(), 0);
    assert_eq!(client.sidr_release(NOW, id), Err(CmError::UnknownRequest));
    // The same answer again, late.
    assert_eq!(
        client.handle_mad(NOW, &path(0), &mads[0]),
        Err(Ignored::Unexpected(Attribute::SidrRep))
    );
    assert_eq!(client.next_deadline(), None);
}

/// Each status, with additional information and private data, and vendor options of all 24 bits.
#[test]
fn every_status_arrives() {
    for status in 1..=6 {
        let status = SidrStatus(status);
        let [mut client, mut server] = pair(4);
        server.listen_sidr(DATAGRAMS, 4, 0).unwrap();
        client
            .sidr_request(NOW, &SidrParams::new(DATAGRAMS, path(0)))
            .unwrap();
        for mad in sent(&mut client, NOW) {
            server.handle_mad(NOW, &path(1), &mad).unwrap();
        }
        let id = asked(&mut server);
        server
            .sidr_reject(NOW, id, status, b"elsewhere", b"sorry")
            .unwrap();
        for mad in sent(&mut server, NOW) {
            client.handle_mad(NOW, &path(0), &mad).unwrap();
        }
        let Some(SidrEventKind::Refused {
            status: received,
            info,
            private_data,
        }) = client.poll_sidr_event().map(|event| event.kind)
        else {
            panic!("{status}")
        };
        assert_eq!((received, info), (status, &b"elsewhere"[..]));
        assert_eq!(
            (&private_data[..5], private_data.len()),
            (&b"sorry"[..], 136)
        );
    }
    let [mut client, mut server] = pair(4);
    server.listen_sidr(DATAGRAMS, 4, 0).unwrap();
    client
        .sidr_request(NOW, &SidrParams::new(DATAGRAMS, path(0)))
        .unwrap();
    for mad in sent(&mut client, NOW) {
        server.handle_mad(NOW, &path(1), &mad).unwrap();
    }
    let id = asked(&mut server);
    let ece = Ece {
        vendor_id: 0x12_3456,
        options: 0x789a_bcde,
    };
    let reply = SidrReply {
        ece,
        ..SidrReply::new(1, 2)
    };
    server.sidr_reply(NOW, id, &reply).unwrap();
    let mads = sent(&mut server, NOW);
    assert_eq!(mads[0][20..24], [0x78, 0x9a, 0xbc, 0xde]);
    assert_eq!((&mads[0][30..32], mads[0][35]), (&[0x12, 0x34][..], 0x56));
    client.handle_mad(NOW, &path(0), &mads[0]).unwrap();
    let event = client.poll_sidr_event().unwrap();
    assert!(
        matches!(event.kind, SidrEventKind::Resolved { ece: received, .. } if received == ece),
        "{event:?}"
    );
}

#[test]
fn repetitions_get_the_answer_that_was_given() {
    let [_, mut server] = pair(4);
    let node = 1;
    server.listen_sidr(DATAGRAMS, 4, 0).unwrap();
    deliver(&mut server, node, NOW, &ask(9)).unwrap();
    let id = asked(&mut server);
    // Not answered yet: nothing to say, and the application is not asked twice.
    let duplicate = Err(Ignored::Duplicate(Attribute::SidrReq));
    assert_eq!(deliver(&mut server, node, NOW, &ask(9)), duplicate);
    assert_eq!(server.poll_sidr_event(), None);
    assert!(sent(&mut server, NOW).is_empty());
    server
        .sidr_reply(NOW, id, &SidrReply::new(0x77, 0x88))
        .unwrap();
    let first = sent(&mut server, NOW);
    for _ in 0..3 {
        assert_eq!(deliver(&mut server, node, NOW, &ask(9)), duplicate);
        assert_eq!(sent(&mut server, NOW), first);
    }
    assert_eq!(the_rep(&first).1.qpn, 0x77);
    assert_eq!(the_rep(&first).0, 0x7_0000_0042);
    assert_eq!(server.poll_sidr_event(), None);
    // The same number from another node is another request.
    let mut other = path(1);
    other.remote_gid[15] = 99;
    let mut mad = [0; MAD_LEN];
    ask(9)
        .emit(&Header::send(Attribute::SidrReq, 1), &mut mad)
        .unwrap();
    server.handle_mad(NOW, &other, &mad).unwrap();
    let other_id = asked(&mut server);
    server.sidr_release(NOW, other_id).unwrap();
    assert_eq!(
        the_rep(&sent(&mut server, NOW)).1.status,
        SidrStatus::REJECTED.0
    );
    // Kept no longer than the request can be repeated.
    let later = NOW + 70 * SECOND;
    server.handle_timeout(later);
    assert_eq!(server.next_deadline(), None);
    deliver(&mut server, node, later, &ask(9)).unwrap();
    asked(&mut server);
}

/// A request that the application does not answer is dropped when its sender has given up, and its place in the backlog is
/// free again.
#[test]
fn unanswered_requests_are_reaped() {
    let [_, mut server] = pair(4);
    server.listen_sidr(DATAGRAMS, 1, 0).unwrap();
    deliver(&mut server, 1, NOW, &ask(1)).unwrap();
    let id = asked(&mut server);
    deliver(&mut server, 1, NOW, &ask(2)).unwrap();
    assert_eq!(
        the_rep(&sent(&mut server, NOW)).1.status,
        SidrStatus::NO_QP.0
    );
    let later = NOW + 69 * SECOND;
    server.handle_timeout(later);
    assert_eq!(server.sidr_in_use(), 0);
    assert_eq!(
        server.sidr_reply(later, id, &SidrReply::new(1, 2)),
        Err(CmError::UnknownRequest)
    );
    deliver(&mut server, 1, later, &ask(2)).unwrap();
    asked(&mut server);
}

#[test]
fn listeners_of_both_kinds_share_a_service() {
    let mut engine = engine(Config::new(1, 1), 4);
    let connections = engine.listen(DATAGRAMS, 1, false, 1).unwrap();
    deliver(&mut engine, 1, NOW, &ask(1)).unwrap();
    assert_eq!(
        the_rep(&sent(&mut engine, NOW)).1.status,
        SidrStatus::UNSUPPORTED_SERVICE.0
    );
    let datagrams = engine.listen_sidr(DATAGRAMS, 1, 2).unwrap();
    assert_eq!(
        engine.listen_sidr(DATAGRAMS, 1, 2),
        Err(CmError::ServiceInUse {
            service_id: DATAGRAMS
        })
    );
    deliver(&mut engine, 1, NOW, &ask(1)).unwrap();
    let id = asked(&mut engine);
    engine.unlisten(datagrams).unwrap();
    // What was reported stays.
    engine.sidr_reply(NOW, id, &SidrReply::new(1, 2)).unwrap();
    assert_eq!(the_rep(&sent(&mut engine, NOW)).1.status, 0);
    deliver(&mut engine, 1, NOW, &ask(2)).unwrap();
    assert_eq!(the_rep(&sent(&mut engine, NOW)).1.status, 1);
    engine.unlisten(connections).unwrap();
}

/// A peer that does not answer: as many requests as Linux sends, at its pace, then one typed end.
#[test]
fn silent_peer() {
    let [mut client, _] = pair(2);
    let timers = Timers {
        early: None,
        ..Timers::default()
    };
    let params = SidrParams {
        timers,
        user: 3,
        ..SidrParams::new(DATAGRAMS, path(0))
    };
    let id = client.sidr_request(Duration::ZERO, &params).unwrap();
    let mut times = vec![];
    if !sent(&mut client, Duration::ZERO).is_empty() {
        times.push(0);
    }
    while let Some(at) = client.next_deadline() {
        for _ in sent(&mut client, at) {
            times.push(at.as_millis() as u64);
        }
    }
    assert_eq!(times.len(), 16);
    for (nth, at) in times.iter().enumerate() {
        assert!(at.abs_diff(nth as u64 * 4295) <= 20, "{times:?}");
    }
    assert_eq!(
        client.poll_sidr_event(),
        Some(SidrEvent {
            id,
            user: 3,
            kind: SidrEventKind::Unreachable
        })
    );
    assert_eq!((client.sidr_in_use(), client.poll_sidr_event()), (0, None));
}

/// A flood of requests from everywhere takes the slots that it may take and no more; what this end asks, and the
/// connections, do not notice.
#[test]
fn flood_is_bounded() {
    let config = Config {
        reserved: 4,
        ..Config::new(3, 0xb)
    };
    let mut engine = engine(config, 4);
    engine.listen_sidr(DATAGRAMS, u32::MAX, 0).unwrap();
    let mut random = Random(1);
    let mut refused = 0;
    for round in 0..20_000u32 {
        let mut from = path(1);
        from.remote_gid[12..].copy_from_slice(&(random.next() as u32).to_be_bytes());
        let mut mad = [0; MAD_LEN];
        ask(random.next() as u32)
            .emit(&Header::send(Attribute::SidrReq, 1), &mut mad)
            .unwrap();
        let _ = engine.handle_mad(NOW, &from, &mad);
        for mad in sent(&mut engine, NOW) {
            let mad = Mad::new(&mad).unwrap();
            refused += u32::from(SidrRep::parse(&mad).unwrap().status == SidrStatus::NO_QP.0);
        }
        // The application answers one in a thousand.
        if round % 1000 == 0
            && let Some(event) = engine.poll_sidr_event()
        {
            let id = event.id;
            engine.sidr_reply(NOW, id, &SidrReply::new(1, 2)).unwrap();
        }
        assert!(engine.sidr_in_use() <= 12);
    }
    assert!(refused > 19_900, "{refused}");
    for _ in 0..4 {
        engine
            .sidr_request(NOW, &SidrParams::new(DATAGRAMS, path(0)))
            .unwrap();
    }
    assert_eq!(
        engine.sidr_request(NOW, &SidrParams::new(DATAGRAMS, path(0))),
        Err(CmError::NoSidrSlots { capacity: 16 })
    );
    engine.handle_timeout(NOW + 2000 * SECOND);
    let mut now = NOW;
    while let Some(at) = engine.next_deadline() {
        now = at.max(now);
        let _ = sent(&mut engine, now);
    }
    while engine.poll_sidr_event().is_some() {}
    assert_eq!(engine.sidr_in_use(), 0);
}

/// Loss, duplication and delay over many seeds: the right QP, the refusal that was given, or an end in the advertised
/// time; and nothing left behind.
#[test]
fn lossy_pipe() {
    let seeds = crate::common::seeds(1000);
    let mut resolved = 0;
    for seed in seeds.clone() {
        let mut random = Random(seed);
        let mut nodes = pair(16);
        nodes[1].listen_sidr(DATAGRAMS, 16, 0).unwrap();
        let loss = random.below(60);
        let mut wire = std::collections::BTreeMap::new();
        let mut later = std::collections::BTreeMap::new();
        let mut now = Duration::ZERO;
        let mut asked = std::collections::HashMap::new();
        for user in 0..8 {
            let params = SidrParams {
                user,
                private_data: &[user as u8],
                ..SidrParams::new(DATAGRAMS, path(0))
            };
            asked.insert(nodes[0].sidr_request(now, &params).unwrap(), user);
        }
        let mut number = 0;
        loop {
            for (node, engine) in nodes.iter_mut().enumerate() {
                for mad in sent(engine, now) {
                    if random.percent(loss) {
                        continue;
                    }
                    for _ in 0..=u8::from(random.percent(20)) {
                        number += 1;
                        let delay = Duration::from_micros(random.below(400_000));
                        wire.insert((now + delay, number), (1 - node, mad));
                    }
                }
            }
            while let Some(event) = nodes[1].poll_sidr_event() {
                let SidrEventKind::Request { private_data, .. } = event.kind else {
                    panic!("seed {seed}: {event:?}")
                };
                let user = private_data[0];
                number += 1;
                let at = now + Duration::from_millis(random.below(500));
                later.insert((at, number), (event.id, user));
            }
            while let Some(event) = nodes[0].poll_sidr_event() {
                let user = asked
                    .remove(&event.id)
                    .unwrap_or_else(|| panic!("seed {seed}: {event:?} twice"));
                assert_eq!(event.user, user, "seed {seed}");
                match event.kind {
                    SidrEventKind::Resolved { qpn, qkey, .. } => {
                        assert_eq!((u64::from(qpn), qkey), (100 + user, 5), "seed {seed}");
                        assert_ne!(user, 3, "seed {seed}");
                        resolved += 1;
                    }
                    SidrEventKind::Refused { status, .. } => {
                        assert_eq!((user, status), (3, SidrStatus(2)), "seed {seed}");
                    }
                    SidrEventKind::Unreachable => {
                        assert!(now <= 70 * SECOND, "seed {seed}: {now:?}");
                    }
                    SidrEventKind::Request { .. } => panic!("seed {seed}"),
                }
            }
            let next = [
                wire.first_key_value()
                    .map(|(key, _): (&(Duration, u64), _)| key.0),
                later
                    .first_key_value()
                    .map(|(key, _): (&(Duration, u64), _)| key.0),
                nodes[0].next_deadline(),
                nodes[1].next_deadline(),
            ];
            let Some(next) = next.into_iter().flatten().min() else {
                break;
            };
            now = now.max(next);
            while let Some((&key, &(to, mad))) = wire.first_key_value()
                && key.0 <= now
            {
                wire.remove(&key);
                let _ = nodes[to].handle_mad(now, &path(to), &mad);
            }
            while let Some((&key, &(id, user))) = later.first_key_value()
                && key.0 <= now
            {
                later.remove(&key);
                if user == 3 {
                    let _ = nodes[1].sidr_reject(now, id, SidrStatus::REJECTED, &[], &[]);
                } else {
                    let reply = SidrReply::new(100 + u32::from(user), 5);
                    let _ = nodes[1].sidr_reply(now, id, &reply);
                }
            }
        }
        assert!(asked.is_empty(), "seed {seed}: {asked:?} without an end");
        for node in &nodes {
            assert_eq!((node.sidr_in_use(), node.next_deadline()), (0, None));
        }
    }
    let all = 7 * seeds.count();
    assert!(resolved * 1000 >= all * 995, "{resolved} of {all} resolved");
}

#[test]
fn parameters_that_do_not_fit() {
    let [mut client, mut server] = pair(2);
    let params = SidrParams {
        private_data: &[0; 217],
        ..SidrParams::new(DATAGRAMS, path(0))
    };
    assert_eq!(
        client.sidr_request(NOW, &params),
        Err(CmError::PrivateDataTooLong { len: 217, max: 216 })
    );
    server.listen_sidr(DATAGRAMS, 1, 0).unwrap();
    deliver(&mut server, 1, NOW, &ask(1)).unwrap();
    let id = asked(&mut server);
    let reply = SidrReply {
        private_data: &[0; 137],
        ..SidrReply::new(1, 2)
    };
    assert_eq!(
        server.sidr_reply(NOW, id, &reply),
        Err(CmError::PrivateDataTooLong { len: 137, max: 136 })
    );
    assert!(matches!(
        server.sidr_reply(NOW, id, &SidrReply::new(1 << 24, 2)),
        Err(CmError::BadParameter { .. })
    ));
    assert!(matches!(
        server.sidr_reject(NOW, id, SidrStatus(2), &[0; 73], &[]),
        Err(CmError::BadParameter { .. })
    ));
    server.sidr_reply(NOW, id, &SidrReply::new(1, 2)).unwrap();
}
