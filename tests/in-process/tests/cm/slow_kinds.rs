//! Ids of all kinds on cards whose firmware takes its time: while their QPs are made and destroyed, groups aside, no call and no
//! poll waits, and what other connections ask for is answered in time.

use std::time::Duration;

use bareverbs_cm::rdma::*;
use bareverbs_core::Mtu;

use crate::pair::{MS, PORT, Pair, address, objects, qp};
use crate::support::Random;

const US: Duration = Duration::from_micros(1);
const COMMAND: Duration = Duration::from_millis(3);
const SERVICE: u16 = PORT + 1;

/// The use of an id of node 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Rc,
    Uc,
    Ud,
    Initiator,
    Target,
}

/// Lets both ends go on for this long: no poll waits, and no message is sent twice.
#[track_caller]
fn pass(pair: &mut Pair, time: Duration) {
    let end = pair.world.now() + time;
    while pair.world.now() < end {
        at_once(pair, Pair::poll);
        for cm in &mut pair.cms {
            while let Some(entry) = cm.next_trace() {
                assert!(!(entry.sent && entry.repeated), "{entry:?}");
            }
        }
        pair.world.advance(50 * US);
    }
}

/// Does something that has to return at once.
#[track_caller]
fn at_once<T>(pair: &mut Pair, work: impl FnOnce(&mut Pair) -> T) -> T {
    let then = pair.world.now();
    let result = work(pair);
    assert_eq!(pair.world.now(), then, "it has waited");
    result
}

fn new_id(pair: &mut Pair, kind: Kind) -> CmId {
    let (port_space, id_type) = match kind {
        Kind::Rc => (PortSpace::Tcp, IdType::Rc),
        Kind::Uc => (PortSpace::Ib, IdType::Uc),
        Kind::Ud => (PortSpace::Udp, IdType::Ud),
        Kind::Initiator => (PortSpace::Ib, IdType::XrcSend),
        Kind::Target => (PortSpace::Ib, IdType::XrcRecv),
    };
    let channel = Some(pair.channels[0]);
    let id = pair.cms[0].create_id_of(channel, 5, port_space, id_type);
    let id = id.expect("an id");
    pair.cms[0].bind_addr(id, address(0, 0)).expect("bound");
    id
}

/// An id whose QP was begun, and whether it is said to be there.
struct Begun {
    id: CmId,
    kind: Kind,
    there: bool,
}

/// QPs of drawn kinds are begun, looked for and destroyed in a drawn order, at any moment, while connections of others
/// come and go.
#[test]
fn qps_of_all_kinds_are_made_and_destroyed_without_waiting() {
    let mut seen = [[0; 2]; 5];
    for seed in 0..24 {
        let mut random = Random(seed);
        let slots = 2 + random.below(4) as u8;
        let mut pair = Pair::on_cards(Mtu::B4096, |card| connectx_model::Config {
            command_time: COMMAND,
            log_cmdq_size: slots,
            ..card
        });
        let listener = pair.listener_of(PortSpace::Tcp, 16);
        // What QPs for XRC share is waited for when the first one comes and when the last one goes.
        let kept: Vec<_> = [Kind::Initiator, Kind::Target]
            .map(|kind| {
                let id = new_id(&mut pair, kind);
                pair.cms[0].create_qp(id, None, &mut qp()).expect("QP");
                id
            })
            .into();
        let clients: Vec<_> = (0..4).map(|_| pair.resolved(PortSpace::Tcp)).collect();
        let held = [objects(&pair, 0), objects(&pair, 1)];
        let mut begun: Vec<Begun> = Vec::new();
        let mut theirs = Vec::new();
        let mut established = 0;
        for (turn, &client) in clients.iter().enumerate() {
            let param = ConnParam {
                qp_num: 0x700 + turn as u32,
                ..ConnParam::default()
            };
            at_once(&mut pair, |pair| {
                pair.cms[0].connect(client, Some(&param)).expect("connect");
            });
            for _ in 0..12 {
                match random.below(3) {
                    0 if begun.len() < 6 => {
                        let kinds = [Kind::Rc, Kind::Uc, Kind::Ud, Kind::Initiator, Kind::Target];
                        let kind = kinds[random.below(kinds.len())];
                        let id = new_id(&mut pair, kind);
                        at_once(&mut pair, |pair| {
                            let started = pair.cms[0].start_qp(id, None, &mut qp());
                            started.unwrap_or_else(|error| panic!("{seed} {kind:?}: {error}"));
                        });
                        begun.push(Begun {
                            id,
                            kind,
                            there: false,
                        });
                    }
                    1 if !begun.is_empty() => {
                        let place = random.below(begun.len());
                        let Begun { id, kind, there } = begun.swap_remove(place);
                        // An XRC id whose QP is under way waits for it.
                        if !there && matches!(kind, Kind::Initiator | Kind::Target) {
                            begun.push(Begun { id, kind, there });
                            continue;
                        }
                        seen[kind as usize][usize::from(there)] += 1;
                        at_once(&mut pair, |pair| {
                            pair.cms[0].destroy_id(id).expect("destroyed");
                        });
                    }
                    _ => {}
                }
                pass(&mut pair, Duration::from_micros(random.below(4000) as u64));
                for Begun { id, there, .. } in &mut begun {
                    *there |= pair.cms[0].try_finish_qp(*id).expect("QP").is_some();
                }
                while let Some(event) = pair.cms[1].try_get_cm_event(pair.channels[1]).unwrap() {
                    if event.event == EventType::ConnectRequest {
                        theirs.push(event.id);
                        let param = ConnParam {
                            qp_num: 0x900 + theirs.len() as u32,
                            ..ConnParam::default()
                        };
                        pair.cms[1].accept(event.id, Some(&param)).expect("accept");
                    }
                }
                while let Some(event) = pair.cms[0].try_get_cm_event(pair.channels[0]).unwrap() {
                    assert_eq!(event.event, EventType::ConnectResponse, "{seed}: {event:?}");
                    pair.cms[0].establish(event.id).expect("establish");
                    established += 1;
                }
            }
        }
        pass(&mut pair, 100 * MS);
        assert_eq!(established, clients.len(), "{seed}");
        for Begun { id, kind, .. } in begun {
            assert_eq!(
                pair.cms[0].try_finish_qp(id).expect("QP"),
                Some(()),
                "{seed}: {kind:?}"
            );
            at_once(&mut pair, |pair| {
                pair.cms[0].destroy_id(id).expect("destroyed")
            });
        }
        pass(&mut pair, 200 * MS);
        assert_eq!([objects(&pair, 0), objects(&pair, 1)], held, "{seed}");
        for id in clients.into_iter().chain(kept) {
            pair.cms[0].destroy_id(id).expect("destroyed");
        }
        for id in theirs {
            pair.cms[1].destroy_id(id).expect("destroyed");
        }
        pair.cms[1].destroy_id(listener).expect("destroyed");
        for _ in 0..100 {
            pair.poll();
            pair.world.advance(MS);
        }
        assert_eq!(
            pair.cms.each_ref().map(|cm| cm.ids_in_use()),
            [0, 0],
            "{seed}"
        );
    }
    let [rc, uc, ud, initiator, target] = seen;
    assert!(
        [rc, uc, ud].iter().flatten().all(|count| *count > 0),
        "{seen:?}"
    );
    assert!(initiator[1] > 0 && target[1] > 0, "{seen:?}");
}

/// A service is answered for while its QP is being made: SIDR_REP goes once that is there, or refuses if there will be none.
#[test]
fn a_service_is_accepted_before_its_qp_is_there() {
    use crate::slow_firmware::refuse;
    use bareverbs_core::firmware_cmds::opcode::Opcode;
    for fails in [None, Some(Opcode::CreateQp), Some(Opcode::Rtr2rtsQp)] {
        let mut pair = Pair::on_cards(Mtu::B4096, |card| connectx_model::Config {
            command_time: COMMAND,
            ..card
        });
        let cm = &mut pair.cms[1];
        let service = cm
            .create_id(Some(pair.channels[1]), 7, PortSpace::Udp)
            .unwrap();
        cm.bind_addr(service, address(1, SERVICE)).unwrap();
        cm.listen(service, 4).unwrap();
        let held = objects(&pair, 1);
        let id = pair.cms[0]
            .create_id(Some(pair.channels[0]), 5, PortSpace::Udp)
            .unwrap();
        pair.resolve(id, SERVICE);
        pair.cms[0].connect(id, None).unwrap();
        let asked = pair.expect(1, EventType::ConnectRequest).id;
        if let Some(opcode) = fails {
            refuse(&pair, 1, opcode);
        }
        at_once(&mut pair, |pair| {
            pair.cms[1].start_qp(asked, None, &mut qp()).unwrap();
            let param = ConnParam {
                private_data: b"welcome",
                ..ConnParam::default()
            };
            pair.cms[1].accept(asked, Some(&param)).unwrap();
            let again = pair.cms[1].accept(asked, Some(&param));
            assert!(
                matches!(again, Err(RdmaError::WrongState { .. })),
                "{again:?}"
            );
        });
        let then = pair.world.now();
        pass(&mut pair, 10 * COMMAND);
        if fails.is_some() {
            let event = pair.expect(0, EventType::Unreachable);
            assert_ne!(event.status, 0);
            pair.expect(1, EventType::ConnectError);
            let made = pair.cms[1].try_finish_qp(asked);
            assert!(
                matches!(made, Err(RdmaError::CreateQp(_) | RdmaError::ModifyQp(_))),
                "{made:?}"
            );
            assert_eq!(objects(&pair, 1), held, "{fails:?}");
        } else {
            let event = pair.expect(0, EventType::Established);
            assert!(event.private_data().starts_with(b"welcome"));
            assert!(pair.world.now() - then >= 5 * COMMAND);
            let qpn = pair.cms[1].ud_endpoint(asked).unwrap().qp.qpn();
            assert_eq!(event.ud.qp_num, qpn.number());
        }
        pair.cms[1].destroy_id(asked).unwrap();
        pair.cms[0].destroy_id(id).unwrap();
        pass(&mut pair, 10 * COMMAND);
        assert_eq!(objects(&pair, 1), held, "{fails:?}");
    }
}
