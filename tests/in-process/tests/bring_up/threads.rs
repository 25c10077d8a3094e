//! One device, shared by threads.

use bareverbs_core::{Config, Device};
use bareverbs_in_process::Builder;
use connectx_model::Config as Card;

use crate::support::{Memory, alloc_pd, assert_nothing_held, dealloc_pd};

#[test]
fn threads_share_a_device() {
    let world = Builder::new()
        .function(Card::new(1))
        .function(Card::new(2))
        .threaded();
    let mut memory = Memory::new();
    let device =
        Device::open(world.platform(0), Config::DEFAULT, memory.storage()).expect("bring-up");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..100 {
                    let pd = alloc_pd(&device).expect("pd");
                    dealloc_pd(&device, pd);
                }
            });
        }
    });
    device.close().expect("orderly");
    assert_nothing_held(&world, "four threads");
}
