//! The shortest way through every layer: bring a function up, take it down, and find that nothing is left behind.

use bareverbs_core::{Config, Cqs, Device, PageChunks, Qps, Resources, Srqs};
use bareverbs_in_process::Builder;
use connectx_model::Config as Card;

#[test]
fn a_function_comes_up_and_goes_down() {
    let world = Builder::new()
        .function(Card::new(1))
        .function(Card::new(2))
        .stepped();
    let mut resources = Box::new(Resources::<Qps<8>, Cqs<8>, Srqs<2>, PageChunks<64>>::new());
    let platform = world.platform(0);
    let before = world.accounting(0);
    {
        let device =
            Device::open(platform, Config::DEFAULT, resources.storage()).expect("bring-up");
        println!("{:?}", device.query_port().expect("port"));
        println!(
            "{} commands, {} pages",
            device.commands_executed(),
            device.pages_given()
        );
        device.close().expect("teardown");
    }
    assert_eq!(world.take_faults(0), []);
    assert_eq!(world.accounting(0), before);
    assert_eq!(world.with_model(0, |model| model.pages_held()), 0);
}
