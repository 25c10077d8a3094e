//! The device's own errors, each with what Linux's driver does about it (6.12, `drivers/net/ethernet/mellanox/mlx5/core`).

use std::time::Duration;

use bareverbs_core::error::CommandFailure;
use bareverbs_core::event::SyncReset;
use bareverbs_core::firmware_cmds::domain::AllocPdIn;
use bareverbs_core::firmware_cmds::values::ResetResponse;
use bareverbs_core::{
    AsyncEvent, CloseFailure, Device, DeviceError, HealthBuffer, Platform, TailIn,
};
use bareverbs_in_process::{ModelPlatform, World};
use connectx_model::Config as Card;
use connectx_model::Status;
use connectx_model::fault::{CommandFault, CommandRule};

use crate::support::{Memory, alloc_pd, assert_nothing_held, dealloc_pd, quick, world};

const ALLOC_PD: u16 = 0x800;
const MANAGE_PAGES: u16 = 0x108;
/// `op_mod` of a MANAGE_PAGES that takes pages back.
const TAKE: u16 = 2;
const EQ_OVERRUN: u8 = 0xc;
/// Slots for commands other than MANAGE_PAGES.
const SLOTS: usize = 31;

fn strike(world: &World, rule: CommandRule) {
    world.with_model(0, |model| model.faults_mut().commands.push(rule));
}

/// Lets a command time out of which the answer comes 20 ms later.
fn time_out(world: &World, device: &Device<'_, ModelPlatform>) {
    let late = quick().command_timeout + Duration::from_millis(20);
    strike(
        world,
        CommandRule::next(ALLOC_PD, CommandFault::Delay(late)),
    );
    let error = alloc_pd(device).expect_err("late");
    let is_late = matches!(error.failure, CommandFailure::Timeout { .. });
    assert!(is_late && error.may_still_happen(), "{error}");
}

/// `cmd.c`, `mlx5_cmd_comp_handler`: "only real completion can free the cmd slot", and it does, however late. Slots that were
/// lost for good would leave a device without any after 31 late answers.
#[test]
fn an_answer_that_comes_after_the_timeout_gives_the_slot_back() {
    let world = world(Card::new(1));
    let mut memory = Memory::new();
    let device = Device::open(world.platform(0), quick(), memory.storage()).expect("bring-up");
    for _ in 0..2 * SLOTS {
        time_out(&world, &device);
        world.advance(Duration::from_millis(100));
    }
    // The domains that were allocated after all have no other owner, and end with the function.
    let pd = alloc_pd(&device).expect("a slot");
    dealloc_pd(&device, pd);
    device
        .close()
        .expect("orderly, as all commands were answered");
    assert_eq!(world.accounting(0).allocated, 0);
    assert_eq!(world.take_faults(0), []);
}

/// The same of the slot for pages, of which there is one.
#[test]
fn pages_that_are_taken_late_do_not_end_the_supply() {
    let world = world(Card::new(1));
    let mut memory = Memory::new();
    let device = Device::open(world.platform(0), quick(), memory.storage()).expect("bring-up");
    let late = quick().command_timeout + Duration::from_millis(20);
    strike(
        &world,
        CommandRule::next(MANAGE_PAGES, CommandFault::Delay(late)),
    );
    world.with_model(0, |model| model.set_page_appetite(8));
    alloc_pd(&device).expect_err("it waits for pages, and longer than a command may");
    world.advance(Duration::from_millis(100));
    device.poll().expect("well");
    world.with_model(0, |model| model.set_page_appetite(8));
    let pd = alloc_pd(&device).expect("pages");
    dealloc_pd(&device, pd);
    device.close().expect("orderly");
    assert_eq!(world.accounting(0).allocated, 0);
    assert_eq!(world.take_faults(0), []);
}

/// Pages that the firmware offers and then has in use, or says it had too many of, or never had, are not taken from it:
/// `pagealloc.c`, `reclaim_pages` ("fw returned %d, driver asked %d => corruption", and none is freed) and `free_4k`.
#[test]
fn pages_in_use_are_not_freed() {
    // An answer with 8 pages is changed to none, to 264, and to one at another address.
    for (at, with, lost, unknown) in [(11, 8, 8, 0), (10, 1, 8, 0), (17, 0xff, 1, 1)] {
        let world = world(Card::new(1));
        let mut memory = Memory::new();
        let device = Device::open(world.platform(0), quick(), memory.storage()).expect("bring-up");
        world.with_model(0, |model| model.set_page_appetite(200));
        let pd = alloc_pd(&device).expect("pages");
        strike(
            &world,
            CommandRule {
                op_mod: Some(TAKE),
                ..CommandRule::next(MANAGE_PAGES, CommandFault::Corrupt { at, with })
            },
        );
        for _ in 0..10_000 {
            device.poll().expect("well");
            device.platform().relax();
        }
        let (held, struck) = world.with_model(0, |model| {
            (model.pages_held(), model.faults_mut().struck.len())
        });
        let what = format!("byte {at}");
        assert_eq!(struck, 1, "{what}");
        assert_eq!(device.pages_given() as usize, held + lost, "{what}");
        assert_eq!(device.page_faults(), (0, unknown), "{what}");
        dealloc_pd(&device, pd);
        // The firmware has nothing of them left to give back.
        let closed = device.close().unwrap_err();
        assert!(
            matches!(closed.failure, CloseFailure::PagesKept { .. }),
            "{what}: {closed}"
        );
        assert_eq!(world.accounting(0).allocated, 0, "{what}");
        assert_eq!(world.take_faults(0), [], "{what}");
    }
}

/// Slots whose commands are never answered stay with the firmware: when all are, commands fail by name, and do not wait longer
/// than a command may.
#[test]
fn slots_of_commands_that_are_never_answered_run_out() {
    let world = world(Card::new(1));
    let mut memory = Memory::new();
    let device = Device::open(world.platform(0), quick(), memory.storage()).expect("bring-up");
    let mut rule = CommandRule::next(ALLOC_PD, CommandFault::Drop);
    rule.times = SLOTS as u32;
    strike(&world, rule);
    for _ in 0..SLOTS {
        let error = alloc_pd(&device).unwrap_err();
        let is_late = matches!(error.failure, CommandFailure::Timeout { .. });
        assert!(is_late, "{error}");
    }
    let before = world.now();
    let error = alloc_pd(&device).unwrap_err();
    assert!(error.failure.is_queue_full(), "{error}");
    assert!(world.now() - before < 2 * quick().command_timeout);
    let posted = device.post(&AllocPdIn::new(), TailIn::None, 0);
    assert!(posted.unwrap_err().failure.is_queue_full());
    device
        .close()
        .expect_err("no command of teardown gets a slot");
    assert_eq!(world.accounting(0).allocated, 0);
}

/// `health.c`, `mlx5_health_check_fatal_sensors`: a syndrome is fatal if the firmware asks for a reset with it (`rfr`); the
/// severity only decides how loud it is logged. `poll_health` reports a syndrome that is not fatal, each time that it changes.
#[test]
fn a_problem_is_fatal_only_if_the_firmware_asks_for_a_reset() {
    let world = world(Card::new(1));
    let mut memory = Memory::new();
    let device = Device::open(world.platform(0), quick(), memory.storage()).expect("bring-up");
    // These are the severities from EMERGENCY to DEBUG.
    for severity in 0..8 {
        let mut left = HealthBuffer::ZERO;
        left.set_synd(severity + 1)
            .set_valid(true)
            .set_severity(severity);
        world.with_model(0, |model| model.leave_health(left));
        world.advance(2 * quick().health_interval);
        device.poll().expect("not fatal");
        assert_eq!(device.health().synd(), severity + 1);
        let pd = alloc_pd(&device).expect("the firmware goes on");
        dealloc_pd(&device, pd);
    }
    let mut left = HealthBuffer::ZERO;
    // This is the lowest severity.
    left.set_synd(0x10)
        .set_valid(true)
        .set_severity(7)
        .set_rfr(true);
    world.with_model(0, |model| model.leave_health(left));
    world.advance(2 * quick().health_interval);
    let (syndrome, extended) = (0x10, 0);
    let fatal = DeviceError::Fatal { syndrome, extended };
    assert_eq!(device.poll(), Err(fatal));
    assert_eq!(
        device.next_async_event(),
        Some(AsyncEvent::DeviceFatal(fatal))
    );
}

/// An event queue that is not read overruns: the firmware stops with syndrome 0xc and asks for a reset ("async EQ buffer
/// overrun" of `health.c`).
#[test]
fn an_event_queue_that_overruns_is_a_fatal_error() {
    let world = world(Card::new(1));
    let mut memory = Memory::new();
    let device = Device::open(world.platform(0), quick(), memory.storage()).expect("bring-up");
    for _ in 0..1000 {
        world.set_link(0, false);
        world.set_link(0, true);
    }
    world.advance(2 * quick().health_interval);
    let error = device.poll().unwrap_err();
    let is_overrun = matches!(error, DeviceError::Fatal { syndrome, .. } if syndrome == EQ_OVERRUN);
    assert!(is_overrun, "{error}");
    // Events are lost, but the one that the device has failed is not.
    let mut last = None;
    while let Some(event) = device.next_async_event() {
        last = Some(event);
    }
    assert_eq!(last, Some(AsyncEvent::DeviceFatal(error)));
    let closed = device.close().unwrap_err();
    assert_eq!(closed.failure, CloseFailure::Device(error));
    assert_eq!(world.accounting(0).allocated, 0);
}

/// A card whose functions are asked before the firmware is reset, or are not.
fn asked_about_resets(offered: bool) -> Card {
    let mut card = Card::new(1);
    for caps in [&mut card.general, &mut card.general_max] {
        caps.set_general_notification_event(offered);
    }
    card.general_max.set_pci_sync_for_fw_update_event(offered);
    card
}

/// `fw_reset.c`, `mlx5_sync_reset_events_handle`: the states of a reset that others ask for. Linux's driver agrees to it (or
/// objects), unloads, and loads again; here the application is told, and what it does is its own.
#[test]
fn a_reset_of_the_firmware_by_others_is_reported() {
    for offered in [true, false] {
        let world = world(asked_about_resets(offered));
        let mut memory = Memory::new();
        let device = Device::open(world.platform(0), quick(), memory.storage()).expect("bring-up");
        let states = [
            SyncReset::Requested,
            SyncReset::Aborted,
            SyncReset::Unload,
            SyncReset::Now,
        ];
        for state in states {
            world.announce_reset(0, state);
            device.poll().expect("well");
            let event = offered.then_some(AsyncEvent::FirmwareReset { state });
            assert_eq!(device.next_async_event(), event);
        }
        assert_eq!(device.lost_and_unknown_events(), (0, 0));
        device.close().expect("in time");
        assert_nothing_held(&world, "after close");
    }
}

/// Polls until the firmware has taken what the driver answered.
fn answers(world: &World, device: &Device<'_, ModelPlatform>) -> Vec<ResetResponse> {
    for _ in 0..10 {
        device.poll().expect("well");
        world.advance(Duration::from_millis(1));
    }
    world.with_model(0, |model| model.reset_answers().to_vec())
}

/// `mlx5_sync_reset_request_event`: the answer goes to MFRL, once for each request. "Reset Nack Sent" unless
/// `enable_remote_dev_reset` allows it, and unless the driver can carry out its part, which this one cannot by itself.
#[test]
fn a_request_for_a_reset_is_refused_unless_it_is_allowed() {
    for (allowed, response) in [
        (false, ResetResponse::Refuse),
        (true, ResetResponse::Acknowledge),
    ] {
        let world = world(asked_about_resets(true));
        let mut memory = Memory::new();
        let mut config = quick();
        config.allow_firmware_reset = allowed;
        let device = Device::open(world.platform(0), config, memory.storage()).expect("bring-up");
        assert_eq!(answers(&world, &device), []);
        world.announce_reset(0, SyncReset::Requested);
        assert_eq!(answers(&world, &device), [response]);
        world.announce_reset(0, SyncReset::Aborted);
        world.announce_reset(0, SyncReset::Requested);
        assert_eq!(answers(&world, &device), [response; 2]);
        device.close().expect("in time");
        assert_nothing_held(&world, "after close");
        assert_eq!(world.take_faults(0), []);
    }
}

/// A firmware that refuses the answer, or never takes it, is no reason to end the device: "PCI Sync FW Update Reset Nack
/// Failed".
#[test]
fn an_answer_to_a_reset_that_fails_changes_nothing() {
    let access_reg = 0x805;
    let refusal = CommandFault::Fail {
        status: Status::BadParam,
        syndrome: 0x55,
    };
    for fault in [refusal, CommandFault::Drop] {
        let world = world(asked_about_resets(true));
        let mut memory = Memory::new();
        let device = Device::open(world.platform(0), quick(), memory.storage()).expect("bring-up");
        strike(&world, CommandRule::next(access_reg, fault));
        world.announce_reset(0, SyncReset::Requested);
        assert_eq!(answers(&world, &device), []);
        world.advance(2 * quick().command_timeout);
        device.poll().expect("well");
        world.announce_reset(0, SyncReset::Requested);
        assert_eq!(answers(&world, &device), [ResetResponse::Refuse]);
        let _ = device.close();
        assert_eq!(world.accounting(0).allocated, 0);
    }
}

/// The reset happens to a driver that did not close its device: the function is disabled until it is initialized again
/// (`sensor` 3 of `health.c`, MLX5_SENSOR_NIC_DISABLED).
#[test]
fn a_reset_that_happens_ends_the_device() {
    let world = world(Card::new(1));
    let mut memory = Memory::new();
    let device = Device::open(world.platform(0), quick(), memory.storage()).expect("bring-up");
    world.with_model(0, |model| model.reset_firmware());
    world.advance(2 * quick().health_interval);
    let error = device.poll().unwrap_err();
    assert!(
        matches!(error, DeviceError::Disabled { .. } | DeviceError::WasReset),
        "{error}"
    );
    let waited = world.now();
    assert_eq!(
        alloc_pd(&device).unwrap_err().failure,
        CommandFailure::Device(error)
    );
    assert_eq!(world.now(), waited);
    let closed = device.close().unwrap_err();
    assert_eq!(closed.failure, CloseFailure::Device(error));
    assert_eq!(world.accounting(0).allocated, 0);
    let mut memory = Memory::new();
    let device = Device::open(world.platform(0), quick(), memory.storage()).expect("again");
    device.close().expect("orderly");
}
