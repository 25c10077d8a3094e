//! Cards drawn from seeds: for every card and behaviour that the interface allows, the driver works on it or says by
//! name what is missing. `cargo rig cards` goes on where this ends.

use bareverbs_cards::{KEPT, Report, check};

const COUNT: u64 = 400;

fn all(seeds: impl Iterator<Item = u64>) -> Report {
    let mut sum = Report::default();
    let mut failures = Vec::new();
    for seed in seeds {
        match check(seed) {
            Ok(report) => sum += report,
            Err(failure) => failures.push(failure),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    sum
}

#[test]
fn seeds_that_found_something() {
    all(KEPT.iter().copied());
}

#[test]
fn a_few_hundred_cards() {
    let sum = all(0..COUNT / 2);
    // Most of what is drawn works: refusals are not the rule.
    assert!(sum.up as u64 > COUNT * 4 / 5, "{sum:?}");
    assert!(sum.self_tests as u64 > COUNT * 2 / 3, "{sum:?}");
    assert!(sum.connections as u64 > COUNT / 5, "{sum:?}");
    assert!(sum.infiniband_connections as u64 > COUNT / 40, "{sum:?}");
    assert!(sum.refusals() > 0, "{sum:?}");
}
