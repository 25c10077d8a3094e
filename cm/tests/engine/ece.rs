//! Enhanced connection establishment: vendor options in REQ and REP.

use crate::common::peer::*;
use crate::common::*;
use bareverbs_cm::engine::*;
use bareverbs_cm::mad::*;

const OURS: Ece = Ece {
    vendor_id: 0x00_02c9,
    options: 0x1000_0001,
};
const THEIRS: Ece = Ece {
    vendor_id: 0xfe_dcba,
    options: 0x8765_4321,
};

/// Where Linux puts them: the REQ's vendor in the three bytes after the reserved one, the REP's in three single bytes, the
/// options in the attribute modifier.
#[test]
fn options_lie_where_linux_puts_them() {
    let mut client = engine(Config::new(3, 0xa), 4);
    let id = client
        .connect(
            NOW,
            &ConnectParams {
                ece: THEIRS,
                ..params()
            },
        )
        .unwrap();
    assert_eq!(client.remote_ece(id), Ok(Ece::NONE));
    let mut mad = [0xa5; MAD_LEN];
    client.poll_transmit(NOW, &mut mad).unwrap();
    assert_eq!(mad[20..24], [0x87, 0x65, 0x43, 0x21]);
    assert_eq!(mad[28..32], [0, 0xfe, 0xdc, 0xba]);

    let mut server = server();
    server.engine.handle_mad(NOW, &path(1), &mad).unwrap();
    let theirs = server.engine.poll_event().unwrap().connection;
    assert_eq!(server.engine.remote_ece(theirs), Ok(THEIRS));
    let reply = ReplyParams {
        ece: OURS,
        ..ReplyParams::new(0x300)
    };
    server.engine.reply(NOW, theirs, &reply).unwrap();
    // Both times that it is sent.
    for again in [false, true] {
        if again {
            let _ = server.engine.handle_mad(NOW, &path(1), &mad);
        }
        let mut mad = [0xa5; MAD_LEN];
        server.engine.poll_transmit(NOW, &mut mad).unwrap();
        assert_eq!(mad[16..18], [0, 0x13]);
        assert_eq!(mad[20..24], [0x10, 0, 0, 1]);
        assert_eq!((mad[24 + 15], mad[24 + 19], mad[24 + 23]), (0, 0x02, 0xc9));
        let _ = client.handle_mad(NOW, &path(0), &mad);
        assert_eq!(client.remote_ece(id), Ok(OURS));
    }
    // And the codec gives back what it was given, vendor, options and all.
    let mut again = [0xa5; MAD_LEN];
    let checked = Mad::new(&mad).unwrap();
    let message = checked.message().unwrap();
    message.emit(&checked.header(), &mut again).unwrap();
    assert_eq!(mad, again);
}

/// Without options nothing is on the wire, and a slot that is used again does not keep those of the last connection.
#[test]
fn no_options_by_default() {
    let mut server = server();
    let mut mad = [0; MAD_LEN];
    let vendor_id = THEIRS.vendor_id;
    Req {
        vendor_id,
        ..req(1, 1)
    }
    .emit(5, &mut mad)
    .unwrap();
    THEIRS.write_options(&mut mad);
    for _ in 0..16 {
        server.engine.handle_mad(NOW, &path(1), &mad).unwrap();
        let id = server.engine.poll_event().unwrap().connection;
        assert_eq!(server.engine.remote_ece(id), Ok(THEIRS));
        server.engine.release(NOW, id).unwrap();
        while server.say_at(NOW).is_some() {}
    }
    for n in 0..4 {
        let id = server.request(10 + n, 10 + n);
        assert_eq!(server.engine.remote_ece(id), Ok(Ece::NONE));
        server.engine.reply(NOW, id, &ReplyParams::new(1)).unwrap();
        let (_, header, message) = server.say_at(NOW).unwrap();
        let Message::Rep(rep) = message else { panic!() };
        assert_eq!(rep.ece(header.modifier), Ece::NONE);
    }
}

/// `rdma_reject_ece`: reason 35.
#[test]
fn options_that_do_not_suit_are_refused() {
    let mut world = World::new(1, 4);
    world.accept_after = None;
    let mut params = params();
    params.ece = THEIRS;
    let id = world.nodes[0].connect(world.now, &params).unwrap();
    world.run(10 * MS);
    let peer = world.peer_id().unwrap();
    assert_eq!(world.nodes[1].remote_ece(peer), Ok(THEIRS));
    world.nodes[1]
        .reject(
            world.now,
            peer,
            RejectReason::VENDOR_OPTION_NOT_SUPPORTED,
            &[],
            &[],
        )
        .unwrap();
    world.run(20 * MS);
    assert_eq!(world.events(0), [Seen::Rejected(35, vec![])]);
    world.release_all(&[id]);
}

#[test]
fn vendor_has_24_bits() {
    let mut engine = engine(Config::new(3, 0xa), 4);
    let ece = Ece {
        vendor_id: 1 << 24,
        options: 0,
    };
    assert!(matches!(
        engine.connect(NOW, &ConnectParams { ece, ..params() }),
        Err(CmError::BadParameter { .. })
    ));
    assert_eq!(engine.in_use(), 0);
}
