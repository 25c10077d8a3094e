//! A whole connection in two engines, with nothing between them but a call: REQ, REP, RTU, DREQ, DREP, and timewait.
//! Included by the benchmarks that count its instructions.

use core::time::Duration;

use bareverbs_cm::engine::*;
use bareverbs_cm::mad::MAD_LEN;

/// Service that the second engine listens to.
pub(crate) const SERVICE: u64 = 0x0106_1c06;

/// The path from node 0 or 1 to the other.
pub(crate) fn path(node: u8) -> Address {
    Address {
        local_gid: [node + 1; 16],
        remote_gid: [2 - node; 16],
        pkey: 0xffff,
        hop_limit: 64,
        ..Address::default()
    }
}

/// Moves messages from one engine to the other until there are none.
pub(crate) fn carry(
    now: Duration,
    from: &mut Engine<'_>,
    to: &mut Engine<'_>,
    path: &Address,
    mad: &mut [u8; MAD_LEN],
) {
    while from.poll_transmit(now, mad).is_some() {
        let delivered = to.handle_mad(now, path, mad);
        debug_assert!(delivered.is_ok(), "{delivered:?}");
    }
}

/// Connects; returns both ends' names.
pub(crate) fn connect(
    now: Duration,
    client: &mut Engine<'_>,
    server: &mut Engine<'_>,
    qpn: u32,
    mad: &mut [u8; MAD_LEN],
) -> (ConnectionId, ConnectionId) {
    let (there, back) = (path(0), path(1));
    let params = ConnectParams {
        service_id: SERVICE,
        local_qpn: qpn,
        private_data: &[7; 92],
        ..ConnectParams::new(there)
    };
    let ours = client.connect(now, &params).expect("a slot");
    carry(now, client, server, &back, mad);
    let theirs = match server.poll_event() {
        Some(Event {
            connection,
            kind: EventKind::ConnectRequest { .. },
            ..
        }) => connection,
        other => panic!("{other:?}"),
    };
    server
        .reply(now, theirs, &ReplyParams::new(qpn))
        .expect("a request");
    carry(now, server, client, &there, mad);
    assert!(matches!(
        client.poll_event(),
        Some(Event {
            kind: EventKind::Reply { .. },
            ..
        })
    ));
    client.ready(ours, &[]).expect("a reply");
    carry(now, client, server, &back, mad);
    assert!(matches!(
        server.poll_event(),
        Some(Event {
            kind: EventKind::Established { .. },
            ..
        })
    ));
    (ours, theirs)
}

/// Disconnects, lets timewait pass, and releases both ends.
pub(crate) fn disconnect<'a>(
    now: Duration,
    client: &mut Engine<'a>,
    server: &mut Engine<'a>,
    (ours, theirs): (ConnectionId, ConnectionId),
    mad: &mut [u8; MAD_LEN],
) {
    let (there, back) = (path(0), path(1));
    client.disconnect(now, ours, &[]).expect("a connection");
    carry(now, client, server, &back, mad);
    carry(now, server, client, &there, mad);
    for engine in [&mut *client, &mut *server] {
        assert!(matches!(
            engine.poll_event(),
            Some(Event {
                kind: EventKind::Disconnected { .. },
                ..
            })
        ));
    }
    let later = now + Duration::from_secs(2);
    for (engine, id) in [(client, ours), (server, theirs)] {
        engine.handle_timeout(later);
        assert!(matches!(
            engine.poll_event(),
            Some(Event {
                kind: EventKind::TimewaitExit,
                ..
            })
        ));
        engine.release(later, id).expect("still ours");
    }
}

/// Makes so many connections, holds them all, and takes one after the other down. Returns when that was.
pub(crate) fn hold(
    mut now: Duration,
    client: &mut Engine<'static>,
    server: &mut Engine<'static>,
    count: u32,
    mad: &mut [u8; MAD_LEN],
) -> Duration {
    let mut pairs = Vec::with_capacity(count as usize);
    for qpn in 0..count {
        pairs.push(connect(now, client, server, 0x1000 + qpn, mad));
    }
    assert!(client.in_use() >= pairs.len() && server.in_use() >= pairs.len());
    for pair in pairs {
        disconnect(now, client, server, pair, mad);
        now += Duration::from_secs(3);
    }
    now
}

/// Two engines for `connections` each. The storage is leaked: the measurement uses it to its end.
pub(crate) fn engines(connections: usize) -> [Engine<'static>; 2] {
    let engine = |seed: u64| {
        let storage = Storage {
            connections: Box::leak(vec![Slot::EMPTY; connections].into_boxed_slice()),
            listeners: Box::leak(vec![ListenerSlot::EMPTY; 4].into_boxed_slice()),
            replies: Box::leak(vec![ReplySlot::EMPTY; 16].into_boxed_slice()),
            ..Storage::default()
        };
        Engine::new(Config::new(seed, seed), storage)
    };
    let mut engines = [engine(1), engine(2)];
    engines[1]
        .listen(SERVICE, u32::MAX, false, 0)
        .expect("a free service");
    engines
}
