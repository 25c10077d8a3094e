//! Pages that the firmware asks for, gives back, or does not get.

use bareverbs_core::error::CommandFailure;
use bareverbs_core::firmware_cmds::domain::AllocPdIn;
use bareverbs_core::{Device, OpenFailure, OpenStep, Platform, TailIn};
use connectx_model::Config as Card;

use crate::support::{
    Memory, alloc_pd, assert_clean, assert_nothing_held, dealloc_pd, quick, world,
};

#[test]
fn firmware_that_requires_too_many_pages_is_refused() {
    let world = world(Card::new(1));
    world.with_model(0, |model| model.faults_mut().extra_init_pages = 16 * 512);
    let mut memory = Memory::new();
    let error = Device::open(world.platform(0), quick(), memory.storage())
        .map(drop)
        .unwrap_err();
    assert_eq!(error.step, OpenStep::InitPages);
    assert!(
        matches!(error.failure, OpenFailure::PageChunks { .. }),
        "{error}"
    );
    assert_nothing_held(&world, "starved");
}

/// Virtual functions come and go. The firmware returns the pages of one, and forgets those of the other (`release_all`), which
/// it refuses to return.
#[test]
fn pages_of_other_functions_go_with_them() {
    let world = world(Card::new(1));
    let mut memory = Memory::new();
    let device = Device::open(world.platform(0), quick(), memory.storage()).expect("bring-up");
    let own = device.pages_given();
    let run = || {
        for _ in 0..1000 {
            device.poll().expect("healthy");
            device.platform().relax();
        }
    };
    for (release_all, function) in [(false, 1), (true, 2), (true, 1), (false, 2)] {
        for id in [1, 2] {
            world.function_comes(0, id, 70);
        }
        run();
        assert_eq!(device.pages_given(), own + 140);
        world.function_goes(0, function, release_all);
        run();
        assert_eq!(device.pages_given(), own + 70);
        world.function_goes(0, 3 - function, true);
        run();
        assert_eq!(device.pages_given(), own);
    }
    assert_eq!(device.page_faults(), (0, 0));
    device.close().expect("orderly");
    assert_nothing_held(&world, "after close");
}

#[test]
fn pages_are_given_while_a_command_waits_for_them() {
    let world = world(Card::new(1));
    let mut memory = Memory::new();
    let device = Device::open(world.platform(0), quick(), memory.storage()).expect("bring-up");
    let before = device.pages_given();
    world.with_model(0, |model| model.set_page_appetite(1000));
    // The firmware does not answer before it has them.
    let mut pending = device
        .post(&AllocPdIn::new(), TailIn::None, 0)
        .expect("posted");
    let mut most = before;
    let answer = loop {
        let answer = device.poll_command(&mut pending, &mut []);
        device.poll().expect("healthy");
        most = most.max(device.pages_given());
        if let Some(answer) = answer {
            break answer;
        }
        device.platform().relax();
    };
    let pd = answer
        .expect("the pages came while the command waited for them")
        .pd();
    assert!(most >= before + 1000, "{most} pages");
    // It offers what it does not need, page by page, and the driver takes it back.
    let mut left = 100_000;
    while device.pages_given() > before + 32 {
        device.poll().expect("healthy");
        device.platform().relax();
        left -= 1;
        assert!(left > 0, "{} pages are still there", device.pages_given());
    }
    dealloc_pd(&device, pd);
    device.close().expect("orderly");
    assert_nothing_held(&world, "after page requests");
}

#[test]
fn firmware_that_gets_no_pages_refuses_the_command() {
    let world = world(Card::new(1));
    let mut memory = Memory::new();
    let device = Device::open(world.platform(0), quick(), memory.storage()).expect("bring-up");
    world.with_model(0, |model| model.set_page_appetite(16 * 512 + 1));
    let error = alloc_pd(&device).expect_err("there are not that many chunks");
    assert!(
        matches!(
            error.failure,
            CommandFailure::Status { .. } | CommandFailure::Timeout { .. }
        ),
        "{error}"
    );
    assert!(device.page_faults().0 > 0);
    world.with_model(0, |model| model.set_page_appetite(0));
    let pd = alloc_pd(&device).expect("the device goes on working");
    dealloc_pd(&device, pd);
    let _ = device.close();
    assert_clean(&world, "starved");
}
