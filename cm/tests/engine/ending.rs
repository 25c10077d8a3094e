//! The end of connections, rule by rule, with the other end played by hand.

use std::time::Duration;

use crate::common::peer::*;
use bareverbs_cm::engine::*;
use bareverbs_cm::mad::*;

/// Linux T1f, T1g, T6, T1e.
#[test]
fn dreq_is_always_answered() {
    let mut bench = server();
    let id = bench.established(9, 0x55);
    assert_eq!(
        bench.deliver(dreq(id, 9, 0x301)),
        Err(Ignored::Unexpected(Attribute::Dreq))
    );
    bench.silent();
    bench.deliver(dreq(id, 9, 0x300)).unwrap();
    let (_, header, message) = bench.say_at(NOW).unwrap();
    assert!(matches!(message, Message::Drep(_)));
    assert_eq!(header.transaction_id, 0x7_0000_0042);
    assert_eq!(
        bench.deliver(dreq(id, 9, 0x300)),
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
    assert!(bench.deliver_at(later, dreq(id, 9, 0x300)).is_err());
    assert!(matches!(bench.said(), Message::Drep(_)));
    bench.engine.release(later, id).unwrap();
    bench.deliver(dreq(id, 9, 0x300)).unwrap();
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
    bench.deliver(dreq(id, 9, 0x300)).unwrap();
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
    bench.deliver(dreq(id, 9, 0x300)).unwrap();
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
fn crossing_disconnections() {
    let mut bench = server();
    let id = bench.established(9, 0x55);
    bench.engine.disconnect(NOW, id, b"").unwrap();
    assert!(matches!(bench.said(), Message::Dreq(_)));
    bench.deliver(dreq(id, 9, 0x300)).unwrap();
    assert!(matches!(bench.said(), Message::Drep(_)));
    assert!(
        bench
            .deliver(Message::Drep(Drep {
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
fn release_sends_a_dreq() {
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
        .deliver_at(
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
