//! The profile matrix: every card that the model can be comes up, carries verified data and Ethernet frames, holds a
//! connection of the connection manager, and goes down leaving nothing behind.

mod connection;
mod ethernet;
#[allow(dead_code, reason = "the tests of verbs use the rest")]
#[path = "../verbs/lab.rs"]
mod lab;
#[path = "../verbs/seam.rs"]
mod seam;
mod traffic;

use bareverbs_core::{
    Config, Cqs, Device, FunctionKind, PageChunks, PortState, Qps, Resources, Srqs,
};
use bareverbs_in_process::Builder;
use connectx_model::{Card, FunctionKind as Kind};

/// Runs a test on each card, so that one that fails is named and does not hide the others.
fn on_each(test: impl Fn(Card)) {
    let mut failed = Vec::new();
    for &card in Card::ALL {
        let run = std::panic::AssertUnwindSafe(|| test(card));
        if std::panic::catch_unwind(run).is_err() {
            failed.push(card);
        }
    }
    assert!(failed.is_empty(), "failed on {failed:?}");
}

#[test]
fn every_card_comes_up_and_goes_down() {
    on_each(|card| {
        let config = connectx_model::Config::card(card, 1);
        let (kind, pages) = (config.function, config.boot_pages + config.init_pages);
        let firmware = config.firmware;
        let builder = Builder::new().function(config);
        let world = builder.function(connectx_model::Config::new(2)).stepped();
        let mut resources = Box::new(Resources::<Qps<2>, Cqs<2>, Srqs<1>, PageChunks<64>>::new());
        let device = Device::open(world.platform(0), Config::DEFAULT, resources.storage())
            .unwrap_or_else(|error| panic!("{card}: {error}"));
        let given = device.pages_given();
        assert!(
            given >= pages && given < pages + 64,
            "{card}: {given} pages"
        );
        let (major, minor, sub) = firmware;
        let version = format!("{major}.{minor}.{sub:04}");
        assert_eq!(
            device.capabilities().firmware.to_string(),
            version,
            "{card}"
        );
        let physical = device.function_kind() == FunctionKind::Physical;
        assert_eq!(physical, kind == Kind::Physical, "{card}");
        let port = device.query_port().expect("port");
        assert_eq!(port.state, PortState::Active, "{card}");
        device.close().expect("teardown");
        drop(resources);
        assert_eq!(world.take_faults(0), [], "{card}");
        assert_eq!(world.accounting(0).allocated, 0, "{card}");
        world.with_model(0, |model| {
            assert_eq!(model.pages_held(), 0, "{card}");
            assert_eq!(model.leaks(), [], "{card}");
        });
    });
}
