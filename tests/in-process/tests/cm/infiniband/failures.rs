//! Subnet administration that does not answer, is slow or busy, or sends invalid answers.

use bareverbs_cm::mad::RejectReason;
use bareverbs_cm::mad::sa::SaStatus;
use bareverbs_cm::rdma::*;
use bareverbs_cm::sa::SaError;
use bareverbs_core::AsyncEvent;
use bareverbs_in_process::subnet::{Fault, OTHER_LID, OTHER_QKEY, OTHER_QPN};
use connectx_model::link::fault::Rates;

use super::support::*;

const ETIMEDOUT: i32 = -110;
const EINVAL: i32 = -22;

/// Resolves a route with these faults in the way: the event, and how long it took.
fn route_with(faults: &[Fault]) -> (CmEvent, std::time::Duration, usize) {
    let mut nodes = Nodes::new(2);
    nodes
        .subnet
        .with(|state| state.faults.extend(faults.iter().copied()));
    let id = nodes.resolved(PortSpace::Tcp);
    let begin = nodes.world.now();
    nodes.cms[0].resolve_route(id, 2 * SECOND).unwrap();
    let event = nodes.event_within(0, 10 * SECOND).expect("no event");
    let took = nodes.world.now() - begin;
    nodes.poll();
    let under_way = nodes.cms[0].resolver_mut().client().in_use();
    assert_eq!(under_way, 0, "a question is left");
    (event, took, nodes.questions())
}

#[test]
fn dead() {
    let mut nodes = Nodes::new(2);
    nodes.subnet.with(|state| state.dead = true);
    let id = nodes.resolved(PortSpace::Tcp);
    let begin = nodes.world.now();
    nodes.cms[0].resolve_route(id, 2 * SECOND).unwrap();
    assert_eq!(nodes.cms[0].state(id).unwrap(), IdState::RouteQuery);
    let event = nodes.expect(0, EventType::RouteError);
    let took = nodes.world.now() - begin;
    assert_eq!(event.status, ETIMEDOUT);
    assert!(
        (2 * SECOND..2 * SECOND + 20 * MS).contains(&took),
        "{took:?}"
    );
    // At 0, 0.1, 0.3, 0.7, 1.5 s, each interval a quarter more or less.
    assert!((5..=6).contains(&nodes.questions()));
    assert_eq!(nodes.cms[0].state(id).unwrap(), IdState::AddrResolved);
    // It works again, and the same id goes on.
    nodes.subnet.with(|state| state.dead = false);
    nodes.cms[0].resolve_route(id, SECOND).unwrap();
    nodes.expect(0, EventType::RouteResolved);
}

/// A synchronous id gets the error itself.
#[test]
fn dead_for_a_synchronous_id() {
    let mut nodes = Nodes::new(2);
    nodes.subnet.with(|state| state.dead = true);
    let id = nodes.cms[0].create_id(None, 0, PortSpace::Tcp).unwrap();
    nodes.cms[0]
        .resolve_addr(id, None, address(1, PORT), SECOND)
        .unwrap();
    let error = nodes.cms[0].resolve_route(id, SECOND).unwrap_err();
    assert_eq!(error, RdmaError::Sa(SaError::NoAnswer));
    assert_eq!(error.errno(), 110);
}

#[test]
fn lost_and_late() {
    for fault in [
        Fault::QuestionLost,
        Fault::AnswerLost,
        Fault::Late(150 * MS),
        Fault::Twice,
    ] {
        let (event, took, questions) = route_with(&[fault, fault]);
        assert_eq!(event.event, EventType::RouteResolved, "{fault:?}");
        let most = if fault == Fault::Twice { 1 } else { 3 };
        assert!(questions <= most, "{fault:?}: {questions}");
        assert!(took <= 385 * MS, "{fault:?}: {took:?}");
    }
}

#[test]
fn busy() {
    let (event, took, questions) = route_with(&[Fault::Busy, Fault::Busy]);
    assert_eq!((event.event, questions), (EventType::RouteResolved, 3));
    // At the pace of repetitions, not at once.
    assert!((450 * MS..760 * MS).contains(&took), "{took:?}");
    let (event, took, _) = route_with(&[Fault::Busy; 30]);
    assert_eq!((event.event, event.status), (EventType::RouteError, EINVAL));
    assert!(
        (2 * SECOND..2 * SECOND + 20 * MS).contains(&took),
        "{took:?}"
    );
}

#[test]
fn refused() {
    let (event, took, questions) = route_with(&[Fault::Status(0x0300)]);
    assert_eq!((event.event, event.status), (EventType::RouteError, EINVAL));
    assert_eq!(questions, 1);
    assert!(took < 50 * MS, "{took:?}");

    // No port has this GID.
    let mut nodes = Nodes::new(2);
    let id = nodes.cms[0].create_id(None, 0, PortSpace::Tcp).unwrap();
    nodes.cms[0]
        .resolve_addr(id, None, address(9, PORT), SECOND)
        .unwrap();
    assert_eq!(
        nodes.cms[0].resolve_route(id, SECOND),
        Err(RdmaError::Sa(SaError::Status(SaStatus::NO_RECORDS)))
    );
}

/// Questions that another port answers, at a queue pair of its own, also where answers are lost or it is busy; and a port that
/// redirects further, or that cannot be.
#[test]
fn redirected() {
    let there = Fault::Redirected(OTHER_LID, OTHER_QPN, OTHER_QKEY);
    for faults in [
        &[there][..],
        &[there, Fault::Busy, Fault::AnswerLost],
        &[Fault::Busy, Fault::AnswerLost, there, Fault::Twice],
    ] {
        let mut nodes = Nodes::new(2);
        nodes
            .subnet
            .with(|state| state.faults.extend(faults.iter().copied()));
        let ours = nodes.client(PortSpace::Tcp);
        let asked = nodes.subnet.with(|state| state.elsewhere);
        let after = faults.iter().skip_while(|fault| **fault != there).count();
        let losses = faults.iter().filter(|fault| **fault == Fault::Twice);
        assert_eq!(asked, after - losses.count(), "{faults:?}");
        nodes.listener(1, PortSpace::Tcp);
        nodes.connect(ours);
    }
    for (faults, error) in [
        (&[there; 2][..], SaError::RedirectedAgain(OTHER_LID)),
        (
            &[Fault::Redirected(0xc000, OTHER_QPN, OTHER_QKEY)],
            SaError::Senseless {
                field: "redirect_lid",
                value: 0xc000,
            },
        ),
        // There is no such port, and one that is no such.
        (&[Fault::Redirected(9, 1, OTHER_QKEY)], SaError::NoAnswer),
        (
            &[Fault::Redirected(lid(1), 1, OTHER_QKEY)],
            SaError::NoAnswer,
        ),
        (
            &[Fault::Redirected(lid(0), 1, OTHER_QKEY)],
            SaError::NoAnswer,
        ),
    ] {
        let mut nodes = Nodes::new(2);
        nodes
            .subnet
            .with(|state| state.faults.extend(faults.iter().copied()));
        let id = nodes.cms[0].create_id(None, 0, PortSpace::Tcp).unwrap();
        nodes.cms[0]
            .resolve_addr(id, None, address(1, PORT), SECOND)
            .unwrap();
        let begin = nodes.world.now();
        let found = nodes.cms[0].resolve_route(id, SECOND);
        assert_eq!(found, Err(RdmaError::Sa(error)));
        assert!(nodes.world.now() - begin < SECOND + 20 * MS);
        // The next one is asked where subnet administration is.
        nodes.cms[0].resolve_route(id, SECOND).unwrap();
    }
}

/// Bytes that cannot be: in what the answer says, or in whether it is one.
#[test]
fn malformed() {
    const RECORD: usize = 56;
    for (at, byte, field) in [
        (RECORD + 16, 0xff, "dgid"),
        (RECORD + 32, 0xff, "sgid"),
        (RECORD + 40, 0xc0, "dlid"),
        (RECORD + 42, 0xff, "slid"),
        (RECORD + 44, 0x80, "raw_traffic"),
        (RECORD + 50, 0x00, "pkey"),
        (RECORD + 54, 0x3f, "mtu"),
        (RECORD + 54, 0x00, "mtu"),
        (RECORD + 56, 0x3f, "packet_life_time"),
    ] {
        let mut nodes = Nodes::new(2);
        let fault = Fault::Mangled { at, byte };
        nodes.subnet.with(|state| state.faults.push_back(fault));
        let id = nodes.cms[0].create_id(None, 0, PortSpace::Tcp).unwrap();
        nodes.cms[0]
            .resolve_addr(id, None, address(1, PORT), SECOND)
            .unwrap();
        match nodes.cms[0].resolve_route(id, SECOND) {
            Err(RdmaError::Sa(SaError::Senseless { field: found, .. })) => {
                assert_eq!(found, field);
            }
            other => panic!("{field}: {other:?}"),
        }
    }
    // The link-local prefix of the question is the subnet's own in the answer.
    for at in [RECORD + 8, RECORD + 24] {
        let (event, _, questions) = route_with(&[Fault::Mangled { at, byte: 0xfc }]);
        assert_eq!((event.event, questions), (EventType::RouteResolved, 1));
    }
    // It is the peer's in the request too: one that has another prefix refuses it.
    let mut nodes = Nodes::new(2);
    let (at, byte) = (RECORD + 8, 0xfc);
    let fault = Fault::Mangled { at, byte };
    nodes.subnet.with(|state| state.faults.push_back(fault));
    nodes.listener(1, PortSpace::Tcp);
    let ours = nodes.client(PortSpace::Tcp);
    assert_eq!(nodes.cms[0].path(ours).unwrap().unwrap().dgid[0], byte);
    nodes.cms[0].connect(ours, None).unwrap();
    let refused = nodes.expect(0, EventType::Rejected);
    assert_eq!(refused.status, i32::from(RejectReason::INVALID_GID.0));
    // A path from another port.
    let (event, ..) = route_with(&[Fault::Mangled {
        at: RECORD + 43,
        byte: 9,
    }]);
    assert_eq!((event.event, event.status), (EventType::RouteError, EINVAL));
    // These are no answers: base version, class, class version, method, transaction, attribute, segmented.
    for (at, byte) in [
        (0, 2),
        (2, 1),
        (3, 1),
        (3, 0x95),
        (9, 1),
        (17, 0x38),
        (26, 1),
    ] {
        let (event, took, questions) = route_with(&[Fault::Mangled { at, byte }]);
        assert_eq!(event.event, EventType::RouteResolved, "{at}");
        assert_eq!(questions, 2, "{at}");
        assert!(took >= 75 * MS, "{at}: {took:?}");
    }
}

/// Answers from other sources than subnet administration are ignored.
#[test]
fn answers_from_elsewhere_do_not_count() {
    let mut nodes = Nodes::new(2);
    nodes.world.with_model(0, |model| model.set_sm_lid(9));
    nodes.cms[0].handle_async_event(&AsyncEvent::LidChange { port: 1 });
    let id = nodes.resolved(PortSpace::Tcp);
    nodes.cms[0].resolve_route(id, SECOND).unwrap();
    let event = nodes.expect(0, EventType::RouteError);
    assert_eq!((event.status, nodes.questions()), (ETIMEDOUT, 0));
    // The subnet manager moves to where the responder is.
    nodes.world.with_model(0, |model| model.set_sm_lid(1));
    nodes.cms[0].handle_async_event(&AsyncEvent::ClientReregister { port: 1 });
    nodes.cms[0].resolve_route(id, SECOND).unwrap();
    nodes.expect(0, EventType::RouteResolved);
}

/// An id that goes while it waits leaves nothing behind but a question that ends by itself.
#[test]
fn destroyed_while_waiting() {
    let mut nodes = Nodes::new(2);
    nodes.subnet.with(|state| state.dead = true);
    let id = nodes.resolved(PortSpace::Tcp);
    nodes.cms[0].resolve_route(id, SECOND).unwrap();
    nodes.cms[0].destroy_id(id).unwrap();
    assert!(nodes.event_within(0, 2 * SECOND).is_none());
    assert_eq!(nodes.cms[0].resolver_mut().client().in_use(), 0);
    assert_eq!(nodes.cms[0].ids_in_use(), 0);
}

/// A wire that loses, doubles, reorders, delays and damages one frame in ten of each: all are connected in the end.
#[test]
fn a_bad_wire() {
    for seed in 1..=6 {
        println!("seed {seed}");
        let mut nodes = Nodes::with_seed::<8>(2, seed);
        nodes
            .world
            .with_wire(|wire| wire.set_rates(Rates::all(100, 5 * MS)));
        nodes.listener(1, PortSpace::Tcp);
        for port in 0..4 {
            let id = nodes.resolved(PortSpace::Tcp);
            // Another question each time.
            nodes.cms[0]
                .set_option(id, IdOption::Tos(port << 2))
                .unwrap();
            nodes.cms[0].resolve_route(id, 8 * SECOND).unwrap();
            nodes.expect(0, EventType::RouteResolved);
            nodes.cms[0].create_qp(id, None, &mut qp()).unwrap();
            nodes.connect(id);
        }
    }
}
