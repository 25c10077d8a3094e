//! A device that is lost while it is in use: pulled out, stopped by its firmware, reset by another driver; and a cable
//! that is.

use std::time::Duration;

use crate::support::*;
use bareverbs_cm::rdma::{RdmaError, errno};
use bareverbs_core::error::{CloseFailure, DeviceError};
use bareverbs_core::{AsyncEvent, WcStatus};
use bareverbs_in_process::World;
use connectx_model::link::fault::Rates;

/// The cause of a device's loss.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Loss {
    /// It falls off the bus.
    Vanish,
    /// Its firmware stops and reports it.
    Health,
    /// Another driver resets the function.
    Reset,
}

impl Loss {
    fn strike(self, world: &World, node: usize) {
        world.with_model(node, |model| match self {
            Self::Vanish => model.vanish(),
            Self::Health => model.fail_health(8, 0x77),
            Self::Reset => model.function_reset(),
        });
    }

    fn error(self) -> DeviceError {
        match self {
            Self::Vanish => DeviceError::Gone,
            Self::Health => DeviceError::Fatal {
                syndrome: 8,
                extended: 0x77,
            },
            Self::Reset => DeviceError::WasReset,
        }
    }
}

/// Every frame takes its time, so that a conversation lasts.
const SLOW: Rates = Rates {
    loss: 0,
    duplicate: 0,
    reorder: 0,
    delay: 1000,
    corrupt: 0,
    max_delay: Duration::from_micros(300),
    latency: Duration::ZERO,
};

/// The time that a connection over a slow cable takes: (set-up, all of it but the disconnection, all of it).
fn duration(exchanges: u64) -> [Duration; 3] {
    let world = world(1);
    world.with_wire(|wire| wire.set_rates(SLOW));
    let (times, after) = with_nodes(&world, 1, Size::default(), |nodes| {
        let start = world.now();
        let listener = nodes.listener(1, 4);
        let ends = nodes.connect(0).expect("connected");
        let connected = world.now() - start;
        for salt in 0..exchanges {
            nodes.exchange(&ends, salt).expect("exchanged");
        }
        let exchanged = world.now() - start;
        nodes.disconnect(ends, 0).expect("disconnected");
        let over = world.now() - start;
        finish(nodes, None, 1, listener, "clean");
        [connected, exchanged, over]
    });
    assert_orderly(&world, &after, "clean");
    times
}

/// A conversation in which `node` loses its device `at` so long after its start.
fn lose(loss: Loss, node: usize, at: Duration) -> Option<Failure> {
    let what = format!("{loss:?} of node {node} after {at:?}");
    let world = world(1);
    world.with_wire(|wire| wire.set_rates(SLOW));
    let (outcome, after) = with_nodes(&world, 1, Size::default(), |nodes| {
        nodes.strike = Some((
            world.now() + at,
            Box::new(move |world| loss.strike(world, node)),
        ));
        let listener = nodes.listener(1, 4);
        let outcome = nodes.connect(0).and_then(|ends| {
            for salt in 0..EXCHANGES {
                nodes.exchange(&ends, salt)?;
            }
            nodes.disconnect(ends, 0)
        });
        if nodes.strike.take().is_some() {
            loss.strike(&world, node);
        }
        // However it ended, the device's next poll says what happened, and so does everything else from then on.
        let error = nodes
            .until("the loss to be detected", SECOND, |nodes| {
                nodes.turn();
                Ok(nodes.dead[node])
            })
            .unwrap_or_else(|failure| panic!("{what}: {failure}"));
        assert_eq!(error, RdmaError::Device(loss.error()), "{what}");
        assert_eq!(nodes.dead[1 - node], None, "{what}");
        let device = nodes.cms[node].device();
        let mut events = std::iter::from_fn(|| device.next_async_event());
        assert!(
            events.any(|event| event == AsyncEvent::DeviceFatal(loss.error())),
            "{what}: no event"
        );
        let refused = device.alloc_pd().map(drop).expect_err(&what);
        assert_eq!(RdmaError::from(refused).errno(), errno::EIO, "{what}");
        let start = world.now();
        finish(nodes, Some(node), 1, listener, &what);
        assert!(world.now() - start < TIMEOUT, "{what}");
        outcome
    });
    let failure = outcome.err();
    match failure {
        None => {}
        // The side that lost its device.
        Some(Failure::Call { node: at, error }) => {
            assert_eq!(at, node, "{what}: {error}");
            assert_eq!(error.errno(), errno::EIO, "{what}: {error}");
        }
        // Or the peer, before the loss was detected here: its packets are not acknowledged any more.
        Some(Failure::Completion { node: at, status }) => {
            assert_eq!((at, status), (1 - node, WcStatus::RetryExcErr), "{what}");
        }
        Some(failure) => panic!("{what}: {failure}"),
    }
    check_memory(&world, &after, loss, node, &what);
    failure
}

/// The other node is clean; of the one that lost its device, the host keeps what a device might still write to, and
/// reports its size.
fn check_memory(world: &World, after: &After, loss: Loss, node: usize, what: &str) {
    for at in 0..2 {
        assert_eq!(world.take_faults(at), [], "{what}, node {at}");
    }
    let error = after.closed[node].expect_err(what);
    assert_eq!(error.failure, CloseFailure::Device(loss.error()), "{what}");
    let held = world.accounting(node);
    assert_eq!(held.allocated as u64, error.bytes_quarantined, "{what}");
    assert_eq!(held.mapped, 0, "{what}");
    if loss == Loss::Vanish {
        assert!(error.bytes_quarantined > 0, "{what}");
    } else {
        // It still obeys when its DMA is disabled.
        assert_eq!(error.bytes_quarantined, 0, "{what}");
    }
    let other = 1 - node;
    assert_eq!(after.closed[other], Ok(()), "{what}");
    assert_eq!(world.accounting(other).allocated, 0, "{what}");
    world.with_model(other, |model| {
        assert_eq!(model.pages_held(), 0, "{what}");
        assert_eq!(model.leaks(), [], "{what}");
    });
}

const EXCHANGES: u64 = 2;
const MOMENTS: u32 = 12;

fn at_any_time(loss: Loss) {
    let [connected, exchanged, over] = duration(EXCHANGES);
    let mut failures = [0; 3];
    for node in 0..2 {
        let phases = [
            (Duration::ZERO, connected),
            (connected, exchanged),
            (exchanged, over),
        ];
        for (phase, (from, to)) in phases.into_iter().enumerate() {
            for moment in 0..MOMENTS {
                let at = from + (to - from) * moment / MOMENTS;
                failures[phase] += u32::from(lose(loss, node, at).is_some());
            }
        }
        // Before and after everything.
        lose(loss, node, TIMEOUT);
    }
    println!("{loss:?}: {failures:?} of {} each", 2 * MOMENTS);
    assert!(
        failures[..2].iter().all(|&count| count > MOMENTS),
        "{failures:?}"
    );
}

#[test]
fn a_device_may_vanish_at_any_time() {
    at_any_time(Loss::Vanish);
}

#[test]
fn firmware_may_stop_at_any_time() {
    at_any_time(Loss::Health);
}

#[test]
fn a_function_may_be_reset_at_any_time() {
    at_any_time(Loss::Reset);
}

/// The device is not polled any more, so the teardown detects the loss. It returns the error, and does not wait.
#[test]
fn a_device_may_be_lost_while_it_is_taken_down() {
    for loss in [Loss::Vanish, Loss::Health, Loss::Reset] {
        for step in 0..5 {
            let what = format!("{loss:?} before step {step}");
            let world = world(1);
            let ((), after) = with_nodes(&world, 1, Size::default(), |nodes| {
                let listener = nodes.listener(1, 4);
                let ends = nodes.connect(0).expect("connected");
                nodes.exchange(&ends, 1).expect("exchanged");
                let spare = nodes.cms[0].reg_msgs(ends[0].id, 64).expect("memory");
                nodes.cms[0]
                    .post_recv(ends[0].id, 1, spare.slice(..64).unwrap())
                    .expect("posted");
                let id = ends[0].id;
                let start = world.now();
                let mut ends = Some(ends);
                let mut spare = Some(spare);
                for now in 0..5 {
                    if now == step {
                        loss.strike(&world, 0);
                    }
                    let lost = now >= step;
                    match now {
                        0 => {
                            spare.take();
                        }
                        1 => {
                            // The QP cannot be moved, which is only logged; the DREQ cannot be sent.
                            let _ = nodes.cms[0].disconnect(id);
                        }
                        2 => {
                            ends.take();
                        }
                        3 => {
                            let outcome = nodes.cms[0].destroy_id(id);
                            assert!(outcome.is_ok() || lost, "{what}: {outcome:?}");
                        }
                        _ => {}
                    }
                }
                let took = world.now() - start;
                assert!(took < SECOND, "{what}: it took {took:?}");
                nodes.dead[0] = Some(RdmaError::Device(loss.error()));
                nodes.open[0].clear();
                finish(nodes, Some(0), 1, listener, &what);
            });
            let error = after.closed[0].expect_err(&what);
            assert_eq!(
                world.accounting(0).allocated as u64,
                error.bytes_quarantined,
                "{what}: {error}"
            );
            for node in 0..2 {
                assert_eq!(world.take_faults(node), [], "{what}, node {node}");
            }
            assert_eq!(after.closed[1], Ok(()), "{what}");
            assert_eq!(world.accounting(1).allocated, 0, "{what}");
        }
    }
}

/// Both ends at once: no peer is left to be notified.
#[test]
fn both_devices_may_be_lost() {
    for losses in [
        [Loss::Vanish, Loss::Vanish],
        [Loss::Vanish, Loss::Reset],
        [Loss::Health, Loss::Vanish],
    ] {
        let what = format!("{losses:?}");
        let world = world(1);
        world.with_wire(|wire| wire.set_rates(SLOW));
        let ((), after) = with_nodes(&world, 1, Size::default(), |nodes| {
            let listener = nodes.listener(1, 4);
            let ends = nodes.connect(0).expect("connected");
            nodes.strike = Some((
                world.now() + MS,
                Box::new(move |world| {
                    for (node, loss) in losses.into_iter().enumerate() {
                        loss.strike(world, node);
                    }
                }),
            ));
            let failure = nodes.exchange(&ends, 1).expect_err(&what);
            assert!(matches!(failure, Failure::Call { .. }), "{what}: {failure}");
            nodes
                .until("both to detect it", SECOND, |nodes| {
                    nodes.turn();
                    Ok(nodes.dead[0].and(nodes.dead[1]))
                })
                .unwrap_or_else(|failure| panic!("{what}: {failure}"));
            drop(ends);
            finish(nodes, Some(0), 1, listener, &what);
        });
        for (node, loss) in losses.into_iter().enumerate() {
            let error = after.closed[node].expect_err(&what);
            assert_eq!(error.failure, CloseFailure::Device(loss.error()), "{what}");
            assert_eq!(
                world.accounting(node).allocated as u64,
                error.bytes_quarantined,
                "{what}"
            );
        }
    }
}
