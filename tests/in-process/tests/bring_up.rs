//! Bring-up, run time and teardown of the control path against the device model, with everything that can go wrong.

// UNSAFETY: one test platform passes everything on to another and counts doorbells.
#![expect(unsafe_code)]

use core::alloc::Layout;
use core::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bareverbs_core::error::CommandFailure;
use bareverbs_core::firmware_cmds::domain::{AllocPdIn, DeallocPdIn};
use bareverbs_core::platform::{Dma, DmaError, Mapping};
use bareverbs_core::{
    AsyncEvent, CloseFailure, Config, Device, DeviceError, Gid, GidEntry, LinkLayer, OpenFailure,
    OpenStep, Platform, PortState, Resources, RoceVersion, TailIn,
};
use bareverbs_in_process::{Builder, ModelPlatform, World};
use connectx_model::Config as Card;
use connectx_model::fault::{CommandFault, CommandRule};

const ALLOC_PD: u16 = 0x800;
const CREATE_EQ: u16 = 0x301;
const CMD_DBELL: usize = 0x18;

type Memory = Resources<4, 4, 2, 16>;

fn world(card: Card) -> World {
    Builder::new()
        .function(card)
        .function(Card::new(9))
        .stepped()
}

fn quick() -> Config {
    let mut config = Config::DEFAULT;
    config.command_timeout = Duration::from_millis(50);
    config.teardown_timeout = Duration::from_millis(50);
    config.health_interval = Duration::from_millis(5);
    config
}

/// Nothing of the function's is left in the host's memory, and nothing of the driver's in the function.
#[track_caller]
fn assert_clean(world: &World, what: &str) {
    assert_eq!(world.take_faults(0), [], "{what}");
    let accounting = world.accounting(0);
    assert_eq!(
        (accounting.allocated, accounting.mapped, accounting.regions),
        (0, 0, 0),
        "{what}: memory leaked"
    );
}

#[track_caller]
fn assert_nothing_held(world: &World, what: &str) {
    assert_clean(world, what);
    world.with_model(0, |model| {
        assert_eq!(model.pages_held(), 0, "{what}");
        assert_eq!(model.leaks(), [], "{what}");
        let objects = model.objects();
        assert_eq!(objects, connectx_model::Objects::default(), "{what}");
    });
}

fn alloc_pd<P: Platform>(device: &Device<'_, P>) -> Result<u32, bareverbs_core::CommandError> {
    device.execute(&AllocPdIn::new()).map(|answer| answer.pd())
}

fn dealloc_pd<P: Platform>(device: &Device<'_, P>, pd: u32) {
    let mut dealloc = DeallocPdIn::new();
    dealloc.set_pd(pd);
    device.execute(&dealloc).expect("dealloc");
}

#[test]
fn a_function_is_ready_within_seventeen_commands() {
    let world = world(Card::new(1));
    let mut memory = Memory::new();
    let device =
        Device::open(world.platform(0), Config::DEFAULT, memory.storage()).expect("bring-up");
    assert!(
        device.commands_executed() <= 17,
        "{} commands",
        device.commands_executed()
    );
    assert_eq!(
        device.pages_given() as usize,
        world.with_model(0, |model| model.pages_held())
    );
    let adapter = device.query_adapter().expect("adapter");
    assert_eq!(adapter.board_id(), "BRV_0000000001");
    assert_eq!(device.capabilities().firmware.to_string(), "16.35.4030");
    device.close().expect("orderly");
    assert_nothing_held(&world, "after close");
}

#[test]
fn it_comes_up_again_and_again() {
    let world = world(Card::new(1));
    let mut memory = Memory::new();
    let platform = world.platform(0);
    for round in 0..5 {
        let device = Device::open(&platform, quick(), memory.storage()).expect("bring-up");
        let pd = alloc_pd(&device).expect("pd");
        dealloc_pd(&device, pd);
        drop(device);
        assert_nothing_held(&world, &format!("round {round}"));
    }
}

#[test]
fn both_software_interfaces_and_both_ports() {
    for supported_issi in [0b01, 0b10, 0b11, 0] {
        for infiniband in [false, true] {
            let mut card = Card::new(1);
            card.supported_issi = supported_issi;
            if infiniband {
                card = card.infiniband();
            }
            let world = world(card);
            let what = format!("ISSI {supported_issi:#b}, InfiniBand {infiniband}");
            let mut memory = Memory::new();
            match Device::open(world.platform(0), quick(), memory.storage()) {
                Ok(device) => {
                    assert_eq!(
                        u32::from(device.capabilities().issi),
                        supported_issi >> 1,
                        "{what}"
                    );
                    let port = device.query_port().expect("port");
                    assert_eq!(port.state, PortState::Active, "{what}");
                    assert_eq!(
                        port.link_layer == LinkLayer::InfiniBand,
                        infiniband,
                        "{what}"
                    );
                    assert_eq!(port.port_guid, 0x0002_c903_0000_0101, "{what}");
                    assert_eq!(device.query_pkey(0).expect("P_Key"), 0xffff, "{what}");
                    if infiniband {
                        let gid = device.query_infiniband_gid(0).expect("GID");
                        assert_eq!(gid.0[8..], port.port_guid.to_be_bytes(), "{what}");
                    } else {
                        assert_eq!(port.mac, [2, 0xc9, 0, 0, 0, 1], "{what}");
                        device.set_link(false).expect("down");
                        assert_eq!(
                            device.query_port().expect("port").state,
                            PortState::Down,
                            "{what}"
                        );
                        device.set_link(true).expect("up");
                        assert_eq!(
                            device.query_port().expect("port").state,
                            PortState::Active,
                            "{what}"
                        );
                    }
                    device.close().expect("orderly");
                }
                Err(error) => {
                    assert_eq!(supported_issi, 0, "{what}: {error}");
                    assert_eq!(error.step, OpenStep::Issi);
                }
            }
            assert_nothing_held(&world, &what);
        }
    }
}

#[test]
fn every_command_of_bring_up_may_go_wrong() {
    let world_of = || world(Card::new(1));
    let count = {
        let world = world_of();
        let mut memory = Memory::new();
        let device = Device::open(world.platform(0), quick(), memory.storage()).expect("bring-up");
        device.commands_executed() as u32
    };
    let status = connectx_model::syndrome::Status::InternalError;
    let syndrome = 0xabc;
    let faults = [
        CommandFault::Fail { status, syndrome },
        CommandFault::Delivery(6),
        CommandFault::Drop,
        CommandFault::DropAnswer,
        CommandFault::Corrupt { at: 0, with: 0x0f },
        CommandFault::Delay(Duration::from_millis(20)),
        CommandFault::LoseEvent,
    ];
    for nth in 0..count {
        for fault in faults {
            let what = format!("command {nth}, {fault:?}");
            let world = world_of();
            world.with_model(0, |model| {
                model
                    .faults_mut()
                    .commands
                    .push(CommandRule::nth(nth, fault))
            });
            let mut memory = Memory::new();
            let result = Device::open(world.platform(0), quick(), memory.storage());
            match (fault, result) {
                (CommandFault::Delay(_) | CommandFault::LoseEvent, Ok(device)) => {
                    device.close().expect(&what);
                    assert_nothing_held(&world, &what);
                }
                (CommandFault::Delay(_) | CommandFault::LoseEvent, Err(error)) => {
                    panic!("{what}: {error}")
                }
                (_, Ok(_)) => panic!("{what}: bring-up went on as if nothing had happened"),
                (_, Err(error)) => {
                    let OpenFailure::Command(command) = error.failure else {
                        panic!("{what}: {error}");
                    };
                    match (fault, command.failure) {
                        (
                            CommandFault::Fail { .. },
                            CommandFailure::Status { status, syndrome },
                        ) => {
                            assert_eq!((status.number(), syndrome), (1, 0xabc), "{what}");
                            assert_nothing_held(&world, &what);
                        }
                        (CommandFault::Delivery(6), CommandFailure::Delivery(status)) => {
                            assert_eq!(status.number(), 6, "{what}");
                            assert_nothing_held(&world, &what);
                        }
                        (
                            CommandFault::Drop | CommandFault::DropAnswer,
                            CommandFailure::Timeout { .. },
                        )
                        | (CommandFault::Corrupt { .. }, CommandFailure::Status { .. }) => {}
                        (_, failure) => panic!("{what}: {failure:?}"),
                    }
                    if matches!(fault, CommandFault::Corrupt { .. }) {
                        // A card that refuses pages and uses them all the same meets the IOMMU.
                        world.take_faults(0);
                    }
                    assert_clean(&world, &what);
                }
            }
            // And after a reset it works, as if nothing had happened.
            world.with_model(0, |model| model.faults_mut().commands.clear());
            let device = Device::open(world.platform(0), quick(), memory.storage()).expect(&what);
            device.close().expect(&what);
            assert_clean(&world, &what);
        }
    }
}

#[test]
fn every_command_of_teardown_may_go_wrong() {
    let status = connectx_model::syndrome::Status::InternalError;
    for nth in 0..6 {
        for fault in [
            CommandFault::Fail {
                status,
                syndrome: 1,
            },
            CommandFault::Drop,
            CommandFault::DropAnswer,
        ] {
            let what = format!("teardown command {nth}, {fault:?}");
            let world = world(Card::new(1));
            let mut memory = Memory::new();
            let device =
                Device::open(world.platform(0), quick(), memory.storage()).expect("bring-up");
            world.with_model(0, |model| {
                model
                    .faults_mut()
                    .commands
                    .push(CommandRule::nth(nth, fault))
            });
            let result = device.close();
            let struck = world.with_model(0, |model| model.faults_mut().commands.is_empty());
            if struck {
                let error = result.expect_err(&what);
                assert!(
                    matches!(error.failure, CloseFailure::Command(_)),
                    "{what}: {error}"
                );
            }
            assert_clean(&world, &what);
        }
    }
}

#[test]
fn the_host_may_run_out_of_memory_anywhere() {
    let mut budget = 0;
    let mut failures = 0;
    loop {
        let world = world(Card::new(1));
        let platform = world.platform(0);
        world.limit_memory(0, Some(budget));
        let mut memory = Memory::new();
        match Device::open(platform, quick(), memory.storage()) {
            Ok(device) => {
                world.limit_memory(0, None);
                device.close().expect("orderly");
                assert_nothing_held(&world, "enough");
                break;
            }
            Err(error) => {
                failures += 1;
                let memory = matches!(error.failure, OpenFailure::Memory(DmaError::OutOfMemory));
                assert!(memory, "{budget} bytes: {error}");
                assert_nothing_held(&world, &format!("{budget} bytes"));
            }
        }
        budget += 4096;
    }
    assert!(failures > 10);
}

#[test]
fn firmware_that_wants_too_many_pages_is_refused() {
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

#[test]
fn firmware_that_never_starts_is_given_up() {
    let world = world(Card::new(1));
    world.with_model(0, |model| model.faults_mut().never_boots = true);
    let mut memory = Memory::new();
    let error = Device::open(world.platform(0), Config::DEFAULT, memory.storage())
        .map(drop)
        .unwrap_err();
    assert!(
        matches!(error.failure, OpenFailure::StillInitializing { waited } if waited >= Duration::from_secs(120))
    );
    assert_clean(&world, "never boots");
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
    let mut patience = 100_000;
    while device.pages_given() > before + 32 {
        device.poll().expect("healthy");
        device.platform().relax();
        patience -= 1;
        assert!(
            patience > 0,
            "{} pages are still there",
            device.pages_given()
        );
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

/// Passes everything on; the function leaves the bus when doorbell number `doorbells` is to be rung.
struct Vanishing<'w> {
    inner: ModelPlatform,
    world: &'w World,
    left: AtomicU32,
}

// SAFETY: every duty is the inner platform's.
unsafe impl Platform for Vanishing<'_> {
    fn bar_len(&self) -> usize {
        self.inner.bar_len()
    }
    fn read_be32(&self, offset: usize) -> u32 {
        self.inner.read_be32(offset)
    }
    fn write_be32(&self, offset: usize, value: u32) {
        if offset == CMD_DBELL && self.left.fetch_sub(1, Ordering::Relaxed) == 0 {
            self.world.with_model(0, connectx_model::Model::vanish);
        }
        self.inner.write_be32(offset, value);
    }
    fn write_be64(&self, offset: usize, value: u64) {
        self.inner.write_be64(offset, value);
    }
    fn dma_alloc(&self, layout: Layout) -> Result<Dma, DmaError> {
        self.inner.dma_alloc(layout)
    }
    unsafe fn dma_free(&self, dma: Dma) {
        // SAFETY: the caller's promise.
        unsafe { self.inner.dma_free(dma) }
    }
    unsafe fn dma_map(&self, region: NonNull<[u8]>) -> Result<Mapping, DmaError> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.dma_map(region) }
    }
    fn page_iova(&self, mapping: &Mapping, index: usize) -> u64 {
        self.inner.page_iova(mapping, index)
    }
    unsafe fn dma_unmap(&self, mapping: Mapping) {
        // SAFETY: the caller's promise.
        unsafe { self.inner.dma_unmap(mapping) }
    }
    fn now(&self) -> Duration {
        self.inner.now()
    }
    fn relax(&self) {
        self.inner.relax();
    }
}

#[test]
fn the_device_may_vanish_in_any_phase() {
    let gone = CommandFailure::Device(DeviceError::Gone);
    let mut phases = [0; 4];
    for doorbells in 0.. {
        let world = world(Card::new(1));
        let platform = Vanishing {
            inner: world.platform(0),
            world: &world,
            left: AtomicU32::new(doorbells),
        };
        let started = world.now();
        let mut memory = Memory::new();
        let device = match Device::open(&platform, Config::DEFAULT, memory.storage()) {
            Ok(device) => device,
            Err(error) => {
                assert_eq!(
                    error.failure,
                    OpenFailure::Device(DeviceError::Gone),
                    "doorbell {doorbells}"
                );
                phases[0] += 1;
                assert!(
                    world.now() - started < Duration::from_secs(1),
                    "waited for a device that is gone"
                );
                continue;
            }
        };
        let used = device
            .query_port()
            .map(drop)
            .and_then(|()| alloc_pd(&device))
            .map(|pd| dealloc_pd_quietly(&device, pd));
        match used {
            Ok(Ok(())) => {}
            Ok(Err(error)) | Err(error) => {
                assert_eq!(error.failure, gone, "doorbell {doorbells}");
                phases[1] += 1;
                assert_eq!(device.poll(), Err(DeviceError::Gone));
                assert_eq!(
                    device.next_async_event(),
                    Some(AsyncEvent::DeviceFatal(DeviceError::Gone))
                );
            }
        }
        let held = world.accounting(0).allocated as u64;
        let before = world.now();
        match device.close() {
            Ok(()) => {
                phases[3] += 1;
                assert_nothing_held(&world, "never vanished");
                break;
            }
            Err(error) => {
                phases[2] += 1;
                assert_eq!(
                    error.failure,
                    CloseFailure::Device(DeviceError::Gone),
                    "doorbell {doorbells}"
                );
                assert!(error.bytes_quarantined <= held);
                assert_eq!(
                    error.bytes_quarantined,
                    world.accounting(0).allocated as u64,
                    "doorbell {doorbells}"
                );
                assert!(
                    world.now() - before < Duration::from_secs(1),
                    "waited for a device that is gone"
                );
            }
        }
        assert_eq!(world.take_faults(0), [], "doorbell {doorbells}");
    }
    assert!(phases.iter().all(|&count| count > 0), "{phases:?}");
}

fn dealloc_pd_quietly<P: Platform>(
    device: &Device<'_, P>,
    pd: u32,
) -> Result<(), bareverbs_core::CommandError> {
    let mut dealloc = DeallocPdIn::new();
    dealloc.set_pd(pd);
    device.execute(&dealloc).map(drop)
}

#[test]
fn a_health_error_reaches_whoever_waits() {
    let world = world(Card::new(1));
    let mut memory = Memory::new();
    let device = Device::open(world.platform(0), quick(), memory.storage()).expect("bring-up");
    let rule = CommandRule::next(ALLOC_PD, CommandFault::Drop);
    world.with_model(0, |model| {
        model.faults_mut().commands.push(rule);
        model.fail_health(8, 0x77);
    });
    let fatal = DeviceError::Fatal {
        syndrome: 8,
        extended: 0x77,
    };
    let error = alloc_pd(&device).unwrap_err();
    assert_eq!(error.failure, CommandFailure::Device(fatal));
    assert_eq!(
        device.next_async_event(),
        Some(AsyncEvent::DeviceFatal(fatal))
    );
    let error = device.close().unwrap_err();
    assert_eq!(error.failure, CloseFailure::Device(fatal));
    assert_eq!(world.take_faults(0), []);
}

#[test]
fn interrupts_wake_the_driver_and_lost_ones_only_cost_time() {
    for lose_interrupts in [false, true] {
        let world = Builder::new()
            .function(Card::new(1))
            .function(Card::new(2))
            .interrupts(4)
            .stepped();
        let mut config = quick();
        config.interrupts = true;
        config.completion_event_queues = 2;
        let mut memory = Memory::new();
        let device = Device::open(world.platform(0), config, memory.storage()).expect("bring-up");
        assert_eq!(device.completion_vectors(), 2);
        assert_eq!(world.with_model(0, |model| model.objects().eqs), 3);
        world.with_model(0, |model| {
            model.faults_mut().lose_interrupts = lose_interrupts
        });
        for _ in 0..20 {
            let pd = alloc_pd(&device).expect("pd");
            dealloc_pd(&device, pd);
        }
        device.close().expect("orderly");
        assert_nothing_held(&world, "with interrupts");
    }
}

#[test]
fn a_lost_event_queue_is_not_leaked() {
    // The second of three event queues cannot be made: the first goes again.
    let world = Builder::new()
        .function(Card::new(1))
        .function(Card::new(2))
        .interrupts(4)
        .stepped();
    let status = connectx_model::syndrome::Status::NoResources;
    world.with_model(0, |model| {
        let mut rule = CommandRule::next(
            CREATE_EQ,
            CommandFault::Fail {
                status,
                syndrome: 5,
            },
        );
        rule.skip = 1;
        model.faults_mut().commands.push(rule);
    });
    let mut config = quick();
    config.interrupts = true;
    config.completion_event_queues = 2;
    let mut memory = Memory::new();
    let error = Device::open(world.platform(0), config, memory.storage())
        .map(drop)
        .unwrap_err();
    assert_eq!(error.step, OpenStep::CreateEq);
    assert_nothing_held(&world, "half of the event queues");
}

#[test]
fn port_changes_are_reported() {
    let world = world(Card::new(1));
    let mut memory = Memory::new();
    let device = Device::open(world.platform(0), quick(), memory.storage()).expect("bring-up");
    while device.next_async_event().is_some() {}
    for (up, expected) in [
        (false, AsyncEvent::PortError { port: 1 }),
        (true, AsyncEvent::PortActive { port: 1 }),
    ] {
        let platform = device.platform();
        world.set_link(0, up);
        let deadline = platform.now() + Duration::from_secs(1);
        let event = loop {
            if let Some(event) = device.next_async_event() {
                break event;
            }
            assert!(device.wait(deadline).expect("healthy"), "no event");
        };
        assert_eq!(event, expected);
        let state = device.query_port().expect("port").state;
        assert_eq!(state == PortState::Active, up);
    }
}

#[test]
fn the_gid_table_is_the_firmwares() {
    let world = world(Card::new(1));
    let mut memory = Memory::new();
    let device = Device::open(world.platform(0), quick(), memory.storage()).expect("bring-up");
    let mac = device.mac().expect("mac");
    let entries = [
        GidEntry {
            gid: Gid::link_local(mac),
            version: RoceVersion::V1,
            vlan: None,
            mac,
        },
        GidEntry {
            gid: Gid::link_local(mac),
            version: RoceVersion::V2,
            vlan: None,
            mac,
        },
        GidEntry {
            gid: Gid::from_ipv4([192, 0, 2, 1].into()),
            version: RoceVersion::V2,
            vlan: None,
            mac,
        },
        GidEntry {
            gid: Gid::from_ipv4([192, 0, 2, 1].into()),
            version: RoceVersion::V2,
            vlan: Some(42),
            mac,
        },
    ];
    for (index, &entry) in entries.iter().enumerate() {
        device.set_gid(index as u16, entry).expect("set");
        assert_eq!(
            device.query_gid(index as u16).expect("asked"),
            Some(entry),
            "what the firmware has"
        );
        assert_eq!(
            device.port_gid(index as u16),
            Some(entry),
            "what the driver remembers"
        );
        assert_eq!(
            device.find_gid(&entry.gid, entry.version, entry.vlan),
            Some(index as u16)
        );
    }
    device.del_gid(1).expect("deleted");
    assert_eq!(device.query_gid(1).expect("asked"), None);
    assert_eq!(device.gid_table().count(), 3);
}

#[test]
fn signatures_work_with_a_card_that_wants_them() {
    let world = world(Card::new(1));
    let mut config = quick();
    config.command_signatures = true;
    let mut memory = Memory::new();
    let device = Device::open(world.platform(0), config, memory.storage()).expect("bring-up");
    device
        .query_adapter()
        .expect("a signed answer of several blocks");
    device.close().expect("orderly");
    assert_nothing_held(&world, "signed");
}

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
