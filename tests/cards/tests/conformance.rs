//! The conformance test of the platform seam on the default card, and a pair of drawn cards: `.ci/run emulated` runs both on
//! processors of other byte order and word size, and therefore this package has no dependencies for its tests.

use bareverbs_cards::check;
use bareverbs_core::conformance::{self, MEMORY_LEN, Options};
use bareverbs_core::{Cqs, PageChunks, Qps, Resources, Srqs};
use bareverbs_in_process::Builder;
use connectx_model::{Config as Card, Objects};

/// Little: the model's memory is this process's.
const OPTIONS: Options = Options::DEFAULT.with_turnover(1 << 20);

#[test]
fn the_platform_conforms() {
    let mut card = Card::new(1);
    card.link_up = false;
    let world = Builder::new().function(card).interrupts(2).stepped();
    let mut resources = Resources::<Qps<2>, Cqs<2>, Srqs<0>, PageChunks<64>>::new();
    let memory: &'static mut [u8; MEMORY_LEN] = vec![0x11; MEMORY_LEN]
        .leak()
        .try_into()
        .expect("the same length");
    let report = conformance::run(&world.platform(0), memory, resources.storage(), OPTIONS);
    let report = report.unwrap_or_else(|error| panic!("{error}"));
    println!("{report}");
    assert!(report.moved > 1_000_000 && report.registers_read_back);
    assert_eq!((report.vectors, report.sleeps), (2, true));
    assert_eq!(world.take_faults(0), []);
    world.with_model(0, |model| {
        assert_eq!(model.objects(), Objects::default());
        assert!(model.leaks().is_empty(), "{:?}", model.leaks());
        assert_eq!(model.stats().bad_accesses, 0);
    });
}

/// From reset to reset, with a connection between the two in which every byte is compared.
#[test]
fn drawn_cards_are_connected() {
    let report = (0..8)
        .map(|seed| check(seed).unwrap_or_else(|failure| panic!("{failure}")))
        .find(|report| report.connections > 0);
    assert!(report.is_some(), "none of the seeds connects");
}
