//! A card and its driver, and what must be left of them in the end: nothing.

use std::time::Duration;

use bareverbs_core::firmware_cmds::domain::{AllocPdIn, DeallocPdIn};
use bareverbs_core::{Config, Cqs, Device, PageChunks, Platform, Qps, Resources, Srqs};
use bareverbs_in_process::{Builder, World};
use connectx_model::Config as Card;

pub(crate) type Memory = Resources<Qps<4>, Cqs<4>, Srqs<2>, PageChunks<16>>;

pub(crate) fn world(card: Card) -> World {
    Builder::new()
        .function(card)
        .function(Card::new(9))
        .stepped()
}

pub(crate) fn quick() -> Config {
    let mut config = Config::DEFAULT;
    config.command_timeout = Duration::from_millis(50);
    config.teardown_timeout = Duration::from_millis(50);
    config.health_interval = Duration::from_millis(5);
    config
}

/// Nothing of the function's is left in the host's memory, and nothing of the driver's in the function.
#[track_caller]
pub(crate) fn assert_clean(world: &World, what: &str) {
    assert_eq!(world.take_faults(0), [], "{what}");
    let accounting = world.accounting(0);
    assert_eq!(
        (accounting.allocated, accounting.mapped, accounting.regions),
        (0, 0, 0),
        "{what}: memory leaked"
    );
}

#[track_caller]
pub(crate) fn assert_nothing_held(world: &World, what: &str) {
    assert_clean(world, what);
    world.with_model(0, |model| {
        assert_eq!(model.pages_held(), 0, "{what}");
        assert_eq!(model.leaks(), [], "{what}");
        let objects = model.objects();
        assert_eq!(objects, connectx_model::Objects::default(), "{what}");
    });
}

pub(crate) fn alloc_pd<P: Platform>(
    device: &Device<'_, P>,
) -> Result<u32, bareverbs_core::CommandError> {
    device.execute(&AllocPdIn::new()).map(|answer| answer.pd())
}

pub(crate) fn dealloc_pd<P: Platform>(device: &Device<'_, P>, pd: u32) {
    let mut dealloc = DeallocPdIn::new();
    dealloc.set_pd(pd);
    device.execute(&dealloc).expect("dealloc");
}
