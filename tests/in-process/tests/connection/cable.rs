//! The cable is pulled out and put back in, in each phase of a connection.

use std::time::Duration;

use crate::support::*;
use bareverbs_cm::rdma::EventType;
use bareverbs_core::{AsyncEvent, PortState, WcStatus};
use bareverbs_in_process::World;
use connectx_model::link::fault::Rates;

const SLOW: Rates = Rates {
    loss: 0,
    duplicate: 0,
    reorder: 0,
    delay: 1000,
    corrupt: 0,
    max_delay: Duration::from_micros(300),
    latency: Duration::ZERO,
};

fn plug(world: &World, up: bool) {
    for node in 0..2 {
        world.set_link(node, up);
    }
}

/// Waits until both drivers were notified of their port's new state.
fn await_port_state(nodes: &mut Nodes<'_, '_, '_>, up: bool) {
    for node in 0..2 {
        let device = nodes.cms[node].device();
        let wanted = if up {
            AsyncEvent::PortActive { port: 1 }
        } else {
            AsyncEvent::PortError { port: 1 }
        };
        let event = nodes.until("a port event", SECOND, |_| {
            Ok(std::iter::from_fn(|| device.next_async_event()).find(|event| *event == wanted))
        });
        assert_eq!(event, Ok(wanted));
        let state = device.query_port().expect("port").state;
        assert_eq!(state == PortState::Active, up);
    }
}

#[test]
fn a_connection_waits_for_the_cable() {
    let world = world(1);
    let ((), after) = with_nodes(&world, 1, Size::default(), |nodes| {
        plug(&world, false);
        await_port_state(nodes, false);
        let start = world.now();
        nodes.strike = Some((start + 3 * SECOND, Box::new(|world| plug(world, true))));
        converse(nodes, 0, 1, 1, "no cable yet").expect("a late conversation");
        let took = world.now() - start;
        assert!(took > 3 * SECOND && took < 10 * SECOND, "{took:?}");
        await_port_state(nodes, true);
    });
    assert_orderly(&world, &after, "no cable yet");
}

#[test]
fn a_cable_may_be_out_for_a_second_at_any_time() {
    // All of it: 40 moments in which nothing but time passes, and what lies between.
    for moment in 0..40 {
        let what = format!("moment {moment}");
        let world = world(1);
        world.with_wire(|wire| wire.set_rates(SLOW));
        let ((), after) = with_nodes(&world, 1, Size::default(), |nodes| {
            let out = world.now() + moment * MS / 5;
            nodes.strike = Some((
                out,
                Box::new(|world| {
                    plug(world, false);
                    // No driver is polled meanwhile, which is the worst case.
                    world.advance(SECOND);
                    plug(world, true);
                }),
            ));
            let outcome = converse(nodes, 0, 0, moment.into(), &what);
            outcome.unwrap_or_else(|failure| panic!("{what}: {failure}"));
        });
        assert_orderly(&world, &after, &what);
    }
}

#[test]
fn a_cable_that_stays_out_ends_the_retries() {
    let world = world(1);
    let what = "pulled out for a minute";
    let ((), after) = with_nodes(&world, 1, Size::default(), |nodes| {
        let listener = nodes.listener(1, 4);
        let ends = nodes.connect(0).expect("connected");
        nodes.exchange(&ends, 1).expect("exchanged");
        plug(&world, false);
        await_port_state(nodes, false);
        let start = world.now();
        let failure = nodes.exchange(&ends, 2).expect_err("no cable");
        assert!(
            matches!(
                failure,
                Failure::Completion {
                    status: WcStatus::RetryExcErr,
                    ..
                }
            ),
            "{failure}"
        );
        // Seven retries of 537 ms each, and the first try.
        let took = world.now() - start;
        assert!(took > 4 * SECOND && took < 5 * SECOND, "{took:?}");
        plug(&world, true);
        await_port_state(nodes, true);
        // The connection is still there for the CM: it is ended in order.
        nodes.cms[0].disconnect(ends[0].id).expect("asked");
        for node in 0..2 {
            let event = nodes.until("the end", SECOND, |nodes| {
                Ok(nodes.take(node, EventType::Disconnected))
            });
            assert_eq!(event.expect(what).status, 0);
        }
        drop(ends);
        finish(nodes, Some(0), 1, listener, what);
    });
    assert_orderly(&world, &after, what);
}
