//! Platforms with a write-combining doorbell page.

use bareverbs_core::conformance::{self, ConformanceError, Path, Report, Requirement, Violation};
use bareverbs_core::{Cqs, PageChunks, Qps, Resources, Srqs};
use bareverbs_in_process::{Builder, ModelPlatform, WriteCombining};
use connectx_model::Config as Card;

use super::passes::{OPTIONS, memory};

/// The test's verdict, and the number of WQEs that the card took from the page.
fn judge(platform: fn(ModelPlatform) -> WriteCombining) -> (Result<Report, ConformanceError>, u64) {
    let card = Card::new(1).with_blue_flame();
    let world = Builder::new().function(card).interrupts(2).stepped();
    let platform = platform(world.platform(0));
    let mut resources = Resources::<Qps<2>, Cqs<2>, Srqs<0>, PageChunks<64>>::new();
    let report = conformance::run(&platform, memory(), resources.storage(), OPTIONS);
    assert_eq!(platform.page(), None);
    (
        report,
        world.with_model(0, |model| model.stats().blue_flame),
    )
}

#[test]
fn those_that_keep_to_the_trait() {
    for (platform, combined) in [
        (WriteCombining::new as fn(_) -> _, true),
        (WriteCombining::in_pieces, false),
        (WriteCombining::refusing, false),
    ] {
        let (report, taken) = judge(platform);
        let report = report.unwrap_or_else(|error| panic!("{error}"));
        assert!(report.moved > 1_000_000, "{report}");
        assert_eq!(taken > 60, combined, "{taken}");
    }
}

#[test]
fn one_whose_writes_do_not_arrive() {
    let (report, taken) = judge(WriteCombining::losing);
    let Err(ConformanceError::Violation(violation)) = report else {
        panic!("{report:?}");
    };
    let path = Path::BlueFlame;
    assert!(
        matches!(violation, Violation::NoCompletion { path: found, .. } if found == path),
        "{violation}"
    );
    assert_eq!(
        (violation.requirement(), taken),
        (Requirement::WriteCombining, 0)
    );
}
