//! The platform on the model keeps to the trait.

use bareverbs_core::conformance::{self, MEMORY_LEN, Options, Report};
use bareverbs_core::{Cqs, PageChunks, Qps, Resources, Srqs};
use bareverbs_in_process::{Accounting, Builder, World};
use connectx_model::{Config as Card, Objects};

use crate::keep::keep;

/// Memory that outlives the test.
pub(crate) fn memory() -> &'static mut [u8; MEMORY_LEN] {
    keep([0x11; MEMORY_LEN])
}

/// Little: the model's memory is this process's.
pub(crate) const OPTIONS: Options = Options::DEFAULT.with_turnover(8 << 20);

fn pass(world: &World) -> Report {
    let mut resources = Resources::<Qps<2>, Cqs<2>, Srqs<0>, PageChunks<64>>::new();
    let platform = world.platform(0);
    let before = world.accounting(0);
    let report = conformance::run(&platform, memory(), resources.storage(), OPTIONS);
    let report = report.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(world.accounting(0), before);
    assert_eq!(
        before,
        Accounting {
            allocated: 0,
            mapped: 0,
            regions: 0
        }
    );
    assert_eq!(world.take_faults(0), []);
    world.with_model(0, |model| {
        assert_eq!(model.objects(), Objects::default());
        assert!(model.leaks().is_empty(), "{:?}", model.leaks());
        // What is written outside the registers does not get to the device.
        assert_eq!(model.stats().bad_accesses, 0);
    });
    // Without a cable nothing can have come from anywhere else.
    assert!(report.moved > 1_000_000, "{report}");
    assert!(report.registers_read_back, "{report}");
    assert_eq!(report.page_sizes, 1 << 12, "{report}");
    report
}

fn card() -> Card {
    let mut card = Card::new(1);
    card.link_up = false;
    card
}

#[test]
fn stepped() {
    for vectors in [0, 1, 3] {
        let world = Builder::new()
            .function(card())
            .interrupts(vectors)
            .stepped();
        let report = pass(&world);
        assert_eq!(
            (report.vectors, report.sleeps),
            (vectors, vectors > 0),
            "{report}"
        );
        assert_eq!(world.waits(0) > 0, vectors > 0);
    }
}

#[test]
fn threaded() {
    for vectors in [0, 2] {
        let world = Builder::new()
            .function(card())
            .interrupts(vectors)
            .threaded();
        let report = pass(&world);
        assert_eq!(
            (report.vectors, report.sleeps),
            (vectors, vectors > 0),
            "{report}"
        );
    }
}

#[test]
fn infiniband_and_virtual_functions() {
    for card in [card().infiniband(), card().virtual_function()] {
        let world = Builder::new().function(card).interrupts(1).stepped();
        pass(&world);
    }
}

#[test]
fn the_same_in_each_run() {
    let run = || {
        let world = Builder::new().function(card()).interrupts(2).stepped();
        (pass(&world), world.now())
    };
    assert_eq!(run(), run());
}
