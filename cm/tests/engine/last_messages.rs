//! The messages that are written down for the end of a process.

use crate::common::*;
use bareverbs_cm::engine::*;
use bareverbs_cm::mad::{MAD_LEN, Mad, Message, RejectReason};

const SLOTS: usize = 4;

/// Two ends that write their messages down.
fn world() -> World {
    let mut world = World::new(1, SLOTS);
    for node in &mut world.nodes {
        node.set_last_messages(vec![LastMessage::NONE; SLOTS].leak());
    }
    world
}

/// The messages that a node has written down.
fn messages(engine: &Engine<'_>) -> Vec<([u8; MAD_LEN], Address)> {
    let write = |message: &LastMessage| {
        let mut mad = [0xa5; MAD_LEN];
        let address = message.write(&mut mad);
        assert_eq!(address.is_none(), message.is_none());
        address.map(|address| (mad, address))
    };
    engine.last_messages().iter().filter_map(write).collect()
}

/// Whenever a process ends, its message is what it would have sent itself, and the other end learns of it.
#[test]
fn the_other_end_learns_of_a_death_at_any_time() {
    // The reason of a REJ, or a DREQ.
    let timeout = Some(RejectReason::TIMEOUT);
    let consumer = Some(RejectReason::CONSUMER_DEFINED);
    let ends = [
        // The client: its REQ, the REP, and the RTU arrive after a millisecond each.
        (0, 0, timeout),
        (0, 1, timeout),
        (0, 2, None),
        (0, 3, None),
        // The server; it has the RTU after three.
        (1, 1, consumer),
        (1, 2, consumer),
        (1, 3, None),
    ];
    for (victim, after, reason) in ends {
        let mut world = world();
        let id = world.connect();
        world.run(after * MS);
        let written = messages(&world.nodes[victim]);
        let [(mad, address)] = &written[..] else {
            panic!("node {victim} after {after}: {} messages", written.len());
        };
        assert_eq!(*address, path(victim));
        let peer = 1 - victim;
        // What it had sent before arrives first.
        let sent: Vec<_> = world
            .wire
            .values()
            .filter(|(to, _)| *to == peer)
            .copied()
            .collect();
        world.wire.clear();
        for mad in sent.iter().map(|(_, mad)| mad).chain([mad]) {
            let _ = world.nodes[peer].handle_mad(world.now, &path(peer), mad);
            world.settle();
        }
        let seen = world.events(peer);
        assert!(
            seen.iter().any(|seen| match seen {
                Seen::Rejected(found, _) => reason == Some(RejectReason(*found)),
                Seen::Disconnected(DisconnectCause::Rejected(found)) => reason == Some(*found),
                Seen::Disconnected(cause) => {
                    reason.is_none() && *cause == DisconnectCause::Requested
                }
                _ => false,
            }),
            "node {victim} after {after}: {seen:?}"
        );

        // The victim itself would have sent the same.
        let own = if victim == 0 {
            id
        } else {
            world.peer_id().unwrap()
        };
        let engine = &mut world.nodes[victim];
        engine.release(world.now, own).unwrap();
        let mut same = [0xa5; MAD_LEN];
        engine.poll_transmit(world.now, &mut same).unwrap();
        assert_eq!(
            Mad::new(&same).unwrap().message(),
            Mad::new(mad).unwrap().message()
        );
        assert_eq!(messages(engine).len(), 0, "sent by itself");
    }
}

/// An orderly end leaves nothing to be sent, at either end; nor does a message that was sent before.
#[test]
fn an_end_in_order_leaves_no_message() {
    let mut world = world();
    let id = world.connect();
    world.run(5 * MS);
    assert_eq!(
        world.nodes.each_ref().map(|node| messages(node).len()),
        [1, 1]
    );
    world.nodes[0].disconnect(world.now, id, b"").unwrap();
    let waiting = messages(&world.nodes[0]);
    let dreq = Mad::new(&waiting[0].0).unwrap().message();
    assert!(matches!(dreq, Ok(Message::Dreq(_))), "not sent yet");
    world.run(10 * MS);
    assert_eq!(
        world.nodes.each_ref().map(|node| messages(node).len()),
        [0, 0]
    );
}

/// Messages may be set when there are connections, and there may be fewer of them than slots.
#[test]
fn any_number_of_messages() {
    for count in 0..SLOTS + 2 {
        let mut world = World::new(1, SLOTS);
        for local_qpn in 0x11..0x11 + SLOTS as u32 {
            let params = ConnectParams {
                local_qpn,
                ..params()
            };
            world.nodes[0].connect(world.now, &params).unwrap();
        }
        world.run(5 * MS);
        world.nodes[0].set_last_messages(vec![LastMessage::NONE; count].leak());
        assert_eq!(messages(&world.nodes[0]).len(), count.min(SLOTS));
    }
}
