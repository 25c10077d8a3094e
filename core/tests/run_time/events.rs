//! Events, and the ring that they come in.

use super::*;

#[test]
fn events_become_what_libibverbs_reports() {
    let fake = Fake::new();
    let mut memory = Memory::new();
    let device = open(&fake, &mut memory);
    let qpn = Qpn::from_low_bits(0x1234);
    let srqn = Srqn::from_low_bits(0x77);
    let cqn = Cqn::from_low_bits(9);
    let queue = |what, queue| Event::Queue { what, queue };
    let port = |change| Event::PortChange { port: 1, change };
    let cases = [
        (port(PortChange::Active), AsyncEvent::PortActive { port: 1 }),
        (port(PortChange::Down), AsyncEvent::PortError { port: 1 }),
        (
            port(PortChange::Initialized),
            AsyncEvent::PortInitialized { port: 1 },
        ),
        (port(PortChange::Lid), AsyncEvent::LidChange { port: 1 }),
        (port(PortChange::Pkey), AsyncEvent::PkeyChange { port: 1 }),
        (port(PortChange::Guid), AsyncEvent::GidChange { port: 1 }),
        (
            port(PortChange::ClientReregister),
            AsyncEvent::ClientReregister { port: 1 },
        ),
        (
            Event::CqError { cqn, syndrome: 1 },
            AsyncEvent::CqError { cqn, syndrome: 1 },
        ),
        (
            queue(EventType::PathMigrated, Queue::Qp(qpn)),
            AsyncEvent::PathMigrated { qpn },
        ),
        (
            queue(EventType::PathMigrationFailed, Queue::Qp(qpn)),
            AsyncEvent::PathMigrationError { qpn },
        ),
        (
            queue(EventType::CommunicationEstablished, Queue::Qp(qpn)),
            AsyncEvent::CommunicationEstablished { qpn },
        ),
        (
            queue(EventType::SqDrained, Queue::Qp(qpn)),
            AsyncEvent::SqDrained { qpn },
        ),
        (
            queue(EventType::WqCatastrophic, Queue::Qp(qpn)),
            AsyncEvent::QpFatal { qpn },
        ),
        (
            queue(EventType::WqInvalidRequest, Queue::Qp(qpn)),
            AsyncEvent::QpRequestError { qpn },
        ),
        (
            queue(EventType::WqAccessError, Queue::Qp(qpn)),
            AsyncEvent::QpAccessError { qpn },
        ),
        (
            queue(EventType::SrqLastWqe, Queue::Qp(qpn)),
            AsyncEvent::QpLastWqeReached { qpn },
        ),
        (
            queue(EventType::DctKeyViolation, Queue::Dct(qpn.number())),
            AsyncEvent::DctKeyViolation { dctn: qpn },
        ),
        (
            queue(EventType::SrqCatastrophic, Queue::Srq(srqn)),
            AsyncEvent::SrqError { srqn },
        ),
        (
            queue(EventType::SrqLimit, Queue::Srq(srqn)),
            AsyncEvent::SrqLimitReached { srqn },
        ),
    ];
    for (event, expected) in cases {
        fake.event(event);
        device.poll().expect("healthy");
        assert_eq!(device.next_async_event(), Some(expected));
        assert_eq!(device.next_async_event(), None);
    }
    // Invalid events are counted, and have no other effect.
    let (_, before) = device.lost_and_unknown_events();
    fake.event(Event::Other {
        what: EventType::Unknown(0x7f),
        sub_type: 3,
    });
    fake.event(port(PortChange::Unknown(12)));
    fake.event(queue(
        EventType::SqDrained,
        Queue::Unknown { kind: 9, number: 1 },
    ));
    fake.event(Event::Completion(Cqn::from_low_bits(0x999)));
    fake.event(Event::Command { slots: u32::MAX });
    device.poll().expect("healthy");
    assert_eq!(device.lost_and_unknown_events(), (0, before + 4));
    assert_eq!(device.next_async_event(), None);
}

#[test]
fn the_event_ring_wraps_and_events_that_are_not_fetched_are_counted() {
    let fake = Fake::new();
    let mut memory = Memory::new();
    let device = open(&fake, &mut memory);
    for round in 0..5000u32 {
        let qpn = Qpn::from_low_bits(round);
        fake.event(Event::Queue {
            what: EventType::SqDrained,
            queue: Queue::Qp(qpn),
        });
        device.poll().expect("healthy");
        assert_eq!(
            device.next_async_event(),
            Some(AsyncEvent::SqDrained { qpn }),
            "round {round}"
        );
    }
    // A ring nearly full at once.
    for number in 0..500u32 {
        let qpn = Qpn::from_low_bits(number);
        fake.event(Event::Queue {
            what: EventType::SqDrained,
            queue: Queue::Qp(qpn),
        });
    }
    device.poll().expect("healthy");
    let taken = std::iter::from_fn(|| device.next_async_event()).count();
    let (lost, _) = device.lost_and_unknown_events();
    assert_eq!(taken as u64 + lost, 500);
    assert!(taken >= 64);
    // The doorbell was rung more than once on the way.
    let inner = fake.lock();
    let (_, last) = inner.doorbells.last().expect("doorbells");
    assert_eq!(last >> 24, 1);
    let since: Vec<_> = inner
        .doorbells
        .iter()
        .rev()
        .take(8)
        .map(|(_, value)| value & 0xff_ffff)
        .collect();
    assert!(
        since.windows(2).all(|pair| pair[0] - pair[1] <= 64),
        "{since:?}"
    );
}
