use super::*;

fn eqe(kind: u8, sub_type: u8, fields: &[(usize, u8)]) -> Eqe {
    let mut bytes = [0u8; 64];
    bytes[1] = kind;
    bytes[3] = sub_type;
    for &(at, value) in fields {
        bytes[at] = value;
    }
    Eqe(bytes)
}

#[test]
fn golden_events() {
    let qp = Qpn::new(0x01_0203).unwrap();
    let cases = [
        (
            eqe(0x00, 0, &[(0x39, 1), (0x3a, 2), (0x3b, 3)]),
            Event::Completion(Cqn::new(0x01_0203).unwrap()),
        ),
        (
            eqe(0x0a, 0, &[(0x20, 0x80), (0x23, 5)]),
            Event::Command { slots: 0x8000_0005 },
        ),
        (
            eqe(
                0x0b,
                0,
                &[
                    (0x20, 0x80),
                    (0x23, 7),
                    (0x24, 0xff),
                    (0x25, 0xff),
                    (0x26, 0xff),
                    (0x27, 0xf0),
                ],
            ),
            Event::PageRequest {
                function_id: 7,
                embedded_cpu: true,
                release_all: false,
                pages: -16,
            },
        ),
        (
            eqe(0x09, 4, &[(0x28, 0x20)]),
            Event::PortChange {
                port: 2,
                change: PortChange::Active,
            },
        ),
        (
            eqe(0x04, 0, &[(0x23, 9), (0x2b, 1)]),
            Event::CqError {
                cqn: Cqn::new(9).unwrap(),
                syndrome: CQ_OVERRUN,
            },
        ),
        (
            eqe(0x11, 0, &[(0x39, 1), (0x3a, 2), (0x3b, 3)]),
            Event::Queue {
                what: EventType::WqAccessError,
                queue: Queue::Qp(qp),
            },
        ),
        (
            eqe(0x14, 0, &[(0x34, 3), (0x3b, 3)]),
            Event::Queue {
                what: EventType::SrqLimit,
                queue: Queue::Srq(Srqn::new(3).unwrap()),
            },
        ),
        (eqe(0x08, 0, &[]), Event::InternalError),
        (
            eqe(0x22, 8, &[(0x23, 3)]),
            Event::SyncReset {
                state: SyncReset::Unload,
            },
        ),
        (
            eqe(0x22, 7, &[]),
            Event::Other {
                what: EventType::General,
                sub_type: 7,
            },
        ),
        (
            eqe(0xee, 3, &[]),
            Event::Other {
                what: EventType::Unknown(0xee),
                sub_type: 3,
            },
        ),
    ];
    for (entry, event) in cases {
        assert_eq!(Event::parse(&entry), event);
        assert_eq!(event.to_eqe().0, entry.0, "{event:?}");
    }
}

#[test]
fn any_entry_parses() {
    for kind in 0..=255 {
        let entry = Eqe([kind; 64]);
        let _ = Event::parse(&entry);
        assert_eq!(EventType::from_number(kind).number(), kind);
    }
}

#[test]
fn event_mask_bits() {
    assert_eq!(
        EventType::Command.mask() | EventType::PageRequest.mask(),
        0xc00
    );
    assert_eq!(EventType::Unknown(200).mask(), 0);
}

#[test]
fn owner_is_the_parity_of_the_pass() {
    let owners = [0, 1, 255, 256, 511, 512].map(|counter| owner_of_pass(counter, 8));
    assert_eq!(owners, [0, 0, 0, 1, 1, 0]);
    assert_eq!(owner_of_pass(0x00ff_ffff, 8), 1);
}
