//! The CM's timers, set by id on the side that is asked: before there is a connection, before it answers, and after.

use std::time::Duration;

use crate::pair::*;
use bareverbs_cm::engine::Timers;
use bareverbs_cm::mad::Attribute;
use bareverbs_cm::rdma::*;

/// 16.8 ms, and twice more.
const SHORT: Timers = Timers {
    remote_response: 12,
    local_response: 20,
    max_retries: 2,
    early: None,
};

/// Lets time pass at one node only. What it sent of one kind, in milliseconds from the first one.
fn alone(pair: &mut Pair, node: usize, time: Duration, what: Attribute) -> Vec<u128> {
    let end = pair.world.now() + time;
    while pair.world.now() < end {
        pair.world.advance(MS / 2);
        let cm = &mut pair.cms[node];
        cm.poll(cm.now()).unwrap();
    }
    let cm = &mut pair.cms[node];
    let sent: Vec<_> = std::iter::from_fn(|| cm.next_trace())
        .filter(|entry| entry.sent && entry.message == what)
        .map(|entry| entry.time)
        .collect();
    sent.iter().map(|at| (*at - sent[0]).as_millis()).collect()
}

#[track_caller]
fn paced(times: &[u128]) {
    assert_eq!(times.len(), 3, "{times:?}");
    for (nth, at) in (0..).zip(times) {
        assert!(at.abs_diff(nth * 168 / 10) <= 3, "{times:?}");
    }
}

/// A request that waits at node 1, whose sender does nothing more.
fn requested(pair: &mut Pair) -> (CmId, CmId) {
    let ours = pair.client();
    pair.cms[0].connect(ours, None).unwrap();
    let theirs = pair.expect(1, EventType::ConnectRequest).id;
    pair.cms[1].create_qp(theirs, None, &mut qp()).unwrap();
    (ours, theirs)
}

/// A listener's timers are those of the ids that it makes; without, the other end's request decides.
#[test]
fn timers_of_a_listener() {
    for own in [false, true] {
        let mut pair = Pair::new();
        let listener = pair.listener();
        if own {
            let option = IdOption::CmTimers(SHORT);
            pair.cms[1].set_option(listener, option).unwrap();
        }
        let (_, theirs) = requested(&mut pair);
        pair.cms[1].accept(theirs, None).unwrap();
        let times = alone(&mut pair, 1, SECOND, Attribute::Rep);
        if own {
            paced(&times);
            pair.expect(1, EventType::Unreachable);
        } else {
            // The two early ones of an interval of 4.3 s.
            assert_eq!(times.len(), 3, "{times:?}");
            assert!(times[1] >= 190 && times[2] >= 570, "{times:?}");
        }
    }
}

/// The id itself, before it answers and when it is connected.
#[test]
fn timers_of_an_accepting_id() {
    let mut pair = Pair::new();
    pair.listener();
    let (_, theirs) = requested(&mut pair);
    let option = IdOption::CmTimers(SHORT);
    pair.cms[1].set_option(theirs, option).unwrap();
    pair.cms[1].accept(theirs, None).unwrap();
    paced(&alone(&mut pair, 1, SECOND, Attribute::Rep));
    pair.expect(1, EventType::Unreachable);

    let mut pair = Pair::new();
    pair.listener();
    let (_, theirs) = pair.connected();
    pair.cms[1].set_option(theirs, option).unwrap();
    pair.cms[1].disconnect(theirs).unwrap();
    paced(&alone(&mut pair, 1, SECOND, Attribute::Dreq));
    let event = pair.expect(1, EventType::Disconnected);
    assert_eq!(event.status, -errno::ETIMEDOUT);
}

/// The manager's, which count for ids that were given none.
#[test]
fn timers_of_the_manager() {
    let mut pair = Pair::new();
    pair.cms[0].engine_config_mut().timers = SHORT;
    let ours = pair.client();
    pair.cms[0].connect(ours, None).unwrap();
    // To the time for the answer comes that of the way, twice 268 ms.
    let times = alone(&mut pair, 0, 2 * SECOND, Attribute::Req);
    assert_eq!(times.len(), 3, "{times:?}");
    assert!(times[1].abs_diff(554) <= 3 && times[2].abs_diff(1107) <= 3);
    pair.expect(0, EventType::Unreachable);

    let mut pair = Pair::new();
    pair.listener();
    pair.cms[1].engine_config_mut().timers.early = None;
    let (_, theirs) = requested(&mut pair);
    pair.cms[1].accept(theirs, None).unwrap();
    // The other end's request decides about the rest: 4.3 s.
    let times = alone(&mut pair, 1, SECOND, Attribute::Rep);
    assert_eq!(times, [0]);
}

/// An end that was away while its timer expired takes the answer that came meanwhile, and repeats nothing.
#[test]
fn an_answer_that_waits_counts_before_a_timer() {
    let mut pair = Pair::new();
    pair.listener();
    let (_, theirs) = requested(&mut pair);
    pair.cms[1].accept(theirs, None).unwrap();
    // Both ends were away: the REP waits for one, and then the RTU for the other.
    for node in 0..2 {
        pair.world.advance(SECOND);
        let cm = &mut pair.cms[node];
        cm.poll(cm.now()).unwrap();
        assert_eq!(cm.stats().repeated, 0, "node {node}");
        pair.expect(node, EventType::Established);
    }
}

/// The same after the last repetition: the connection came about, and was given up.
#[test]
fn an_answer_that_waits_counts_before_the_end_of_the_retries() {
    let mut pair = Pair::new();
    pair.cms[0].engine_config_mut().timers = SHORT;
    pair.listener();
    let ours = pair.client();
    pair.cms[0].connect(ours, None).unwrap();
    // At 0, 554 and 1,107 ms; the end is at 1,661 ms.
    let times = alone(&mut pair, 0, 1500 * MS, Attribute::Req);
    assert_eq!(times.len(), 3, "{times:?}");
    pair.cms[1].poll(pair.cms[1].now()).unwrap();
    let event = pair.cms[1].try_get_cm_event(pair.channels[1]).unwrap();
    let theirs = event.expect("a request").id;
    pair.cms[1].create_qp(theirs, None, &mut qp()).unwrap();
    pair.cms[1].accept(theirs, None).unwrap();
    pair.world.advance(SECOND);
    pair.expect(0, EventType::Established);
}

/// A second REQ is answered with an MRA while the application has not answered or, as configured, not at all.
#[test]
fn mra_of_a_listener_and_of_an_id() {
    for (listeners, ids, answers) in [
        (None, None, 1),
        (Some(None), None, 0),
        (Some(None), Some(Some(18)), 1),
        (None, Some(None), 0),
    ] {
        let mut pair = Pair::new();
        let listener = pair.listener();
        if let Some(timeout) = listeners {
            let option = IdOption::AutoMra(timeout);
            pair.cms[1].set_option(listener, option).unwrap();
        }
        let (_, theirs) = requested(&mut pair);
        if let Some(timeout) = ids {
            let option = IdOption::AutoMra(timeout);
            pair.cms[1].set_option(theirs, option).unwrap();
        }
        // The requester repeats itself twice in this time; an MRA stops that.
        pair.event_within(0, SECOND);
        let times = alone(&mut pair, 1, MS, Attribute::Mra);
        assert_eq!(times.len(), answers, "{listeners:?} {ids:?}");
    }
}

#[test]
fn values_that_do_not_fit() {
    let mut pair = Pair::new();
    let listener = pair.listener();
    let (_, theirs) = requested(&mut pair);
    for id in [listener, theirs] {
        for timers in [
            Timers {
                max_retries: 16,
                ..SHORT
            },
            Timers {
                remote_response: 32,
                ..SHORT
            },
        ] {
            let refused = pair.cms[1].set_option(id, IdOption::CmTimers(timers));
            assert_eq!(refused.unwrap_err().errno(), errno::EINVAL);
        }
        let refused = pair.cms[1].set_option(id, IdOption::AutoMra(Some(32)));
        assert_eq!(refused.unwrap_err().errno(), errno::EINVAL);
    }
}
