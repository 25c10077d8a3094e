//! Events of the device: interrupts, its health, its port.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::time::Duration;

use bareverbs_core::error::CommandFailure;
use bareverbs_core::{
    AsyncEvent, CloseFailure, Device, DeviceError, HealthBuffer, HealthSyndrome, LinkStatus,
    Platform, PortState,
};
use bareverbs_in_process::Builder;
use connectx_model::Config as Card;
use connectx_model::fault::{CommandFault, CommandRule};
use connectx_model::link::datagram::{Address, Wire};

use crate::support::{Memory, alloc_pd, assert_nothing_held, dealloc_pd, quick, world};

const ALLOC_PD: u16 = 0x800;

#[test]
fn a_health_error_is_reported_to_a_waiter() {
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

/// The whole health buffer comes through the registers, also before a device is opened, and stays readable once it has failed.
#[test]
fn the_health_buffer_is_read_whole() {
    let world = world(Card::new(1));
    let platform = world.platform(0);
    let well = bareverbs_core::read_health(&platform);
    assert!(!well.has_problem() && !well.rfr() && !well.is_gone());
    assert_eq!(well.syndrome(), HealthSyndrome::None);
    let mut memory = Memory::new();
    let device = Device::open(platform, quick(), memory.storage()).expect("bring-up");
    // Every byte differs from its neighbours, so that none is read in another's place.
    let mut left = HealthBuffer(core::array::from_fn(|at| 0x81 + at as u8));
    left.set_synd(9).set_rfr(true);
    world.with_model(0, |model| model.leave_health(left));
    assert_eq!(device.health(), left);
    world.advance(quick().health_interval);
    let fatal = device.poll().unwrap_err();
    let extended = left.ext_synd();
    let syndrome = 9;
    assert_eq!(fatal, DeviceError::Fatal { syndrome, extended });
    assert_eq!(device.health(), left);
    drop(device);
    world.with_model(0, |model| model.vanish());
    assert!(bareverbs_core::read_health(&world.platform(0)).is_gone());
}

/// A switch between processes that is killed is a cable that is pulled out: who waits for events of the device alone is told, and
/// the port is down.
#[test]
fn a_switch_that_is_killed_takes_the_link_away() {
    for interrupts in [false, true] {
        let name = format!("bareverbs-killed-{}-{interrupts}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::scope(|scope| {
            // What a switch says in the beginning.
            let switch = scope.spawn(|| {
                let (mut switch, _) = listener.accept().unwrap();
                switch.read_exact(&mut [0; 8]).unwrap();
                switch.write_all(b"bvx2\0\0\0\0").unwrap();
                switch
            });
            let wire = Wire::open(0, &Address::Switch(path.clone())).unwrap();
            let world = Builder::new()
                .function(Card::new(1))
                .exit(wire)
                .interrupts(u16::from(interrupts))
                .threaded();
            let mut memory = Memory::new();
            let mut config = quick();
            config.interrupts = interrupts;
            let device =
                Device::open(world.platform(0), config, memory.storage()).expect("bring-up");
            while device.next_async_event().is_some() {}
            assert_eq!(device.query_port().expect("port").state, PortState::Active);
            let switch = switch.join().unwrap();
            scope.spawn(move || drop(switch));
            let event = device.get_async_event(device.platform().now() + Duration::from_secs(60));
            assert_eq!(event, Ok(Some(AsyncEvent::PortError { port: 1 })));
            assert_eq!(device.query_port().expect("port").state, PortState::Down);
            device.close().expect("teardown");
        });
        std::fs::remove_file(&path).unwrap();
    }
}

/// A port that another driver lowered looked as if its cable were out.
#[test]
fn a_port_down_by_administration_is_distinguished_from_a_missing_cable() {
    for (admin_up, link_up, expected) in [
        (true, true, LinkStatus::Up),
        (true, false, LinkStatus::NoCarrier),
        (false, true, LinkStatus::AdminDown),
        (false, false, LinkStatus::AdminDown),
    ] {
        for virtual_function in [false, true] {
            let mut card = Card::new(1);
            (card.admin_up, card.link_up) = (admin_up, link_up);
            if virtual_function {
                card = card.virtual_function();
            }
            let world = world(card);
            let mut memory = Memory::new();
            let device =
                Device::open(world.platform(0), quick(), memory.storage()).expect("bring-up");
            let found = device.query_link().expect("link");
            match (virtual_function, expected) {
                (true, LinkStatus::AdminDown) => assert_eq!(found, LinkStatus::VportAdminDown),
                _ => assert_eq!(found, expected),
            }
            device.set_link(true).expect("asked");
            let raised = device.query_link().expect("link");
            match found {
                LinkStatus::AdminDown if link_up => assert_eq!(raised, LinkStatus::Up),
                LinkStatus::AdminDown => assert_eq!(raised, LinkStatus::NoCarrier),
                // Neither a cable nor the host's decision is changed by asking.
                _ => assert_eq!(raised, found),
            }
            device.close().expect("orderly");
            assert_nothing_held(&world, "after close");
        }
    }
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
