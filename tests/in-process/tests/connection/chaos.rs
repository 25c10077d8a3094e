//! A bad cable: each run ends in success with every byte checked, or in a clean typed failure in time.

use crate::support::*;
use bareverbs_cm::rdma::EventType;
use bareverbs_core::WcStatus;
use connectx_model::link::fault::Rates;

/// Exchanges within one connection.
const ROUNDS: u64 = 2;

#[derive(Debug, Default)]
struct Tally {
    good: u32,
    unreachable: u32,
    retries: u32,
    frames: u64,
    damaged: u64,
}

fn run(seeds: core::ops::Range<u64>, rates: Rates) -> Tally {
    let mut tally = Tally::default();
    for seed in seeds.clone() {
        let what = format!("seed {seed}");
        let (client, closer) = (seed as usize & 1, seed as usize >> 1 & 1);
        let world = world(seed);
        world.with_wire(|wire| wire.set_rates(rates));
        let (outcome, after) = with_nodes(&world, seed, Size::default(), |nodes| {
            let listener = nodes.listener(1 - client, 4);
            let outcome = nodes.connect(client).and_then(|ends| {
                for round in 0..ROUNDS {
                    nodes.exchange(&ends, seed * ROUNDS + round)?;
                }
                nodes.disconnect(ends, closer)
            });
            let first = outcome.err().and_then(|failure| failure.node());
            finish(nodes, first, 1 - client, listener, &what);
            outcome
        });
        match outcome {
            Ok(()) => tally.good += 1,
            Err(Failure::Event {
                event: EventType::Unreachable,
                ..
            }) => tally.unreachable += 1,
            Err(Failure::Completion {
                status: WcStatus::RetryExcErr,
                ..
            }) => tally.retries += 1,
            Err(failure) => panic!("{what}: {failure}"),
        }
        assert_orderly(&world, &after, &what);
        let report = world.with_wire(|wire| wire.report());
        tally.frames += report.frames;
        tally.damaged += report.dropped
            + report.duplicated
            + report.reordered
            + report.delayed
            + report.corrupted;
    }
    println!("seeds {seeds:?}: {tally:?}");
    tally
}

#[test]
fn loss_duplication_and_reordering() {
    let rates = Rates {
        loss: 100,
        duplicate: 100,
        reorder: 100,
        max_delay: MS,
        ..Rates::default()
    };
    let tally = run(0..150, rates);
    assert!(tally.damaged * 5 > tally.frames, "{tally:?}");
    assert!(tally.good >= 145, "{tally:?}");
}

#[test]
fn delay_and_corruption_as_well() {
    let tally = run(1000..1150, Rates::all(100, MS));
    assert!(tally.damaged * 3 > tally.frames, "{tally:?}");
    assert!(tally.good >= 140, "{tally:?}");
}

#[test]
fn a_cable_that_loses_half() {
    let rates = Rates {
        loss: 500,
        max_delay: MS,
        ..Rates::default()
    };
    let tally = run(2000..2020, rates);
    assert!(tally.retries > 0, "{tally:?}");
}
