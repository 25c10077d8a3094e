//! A card that works: it comes up in every mode, and goes again and leaves nothing.

use std::time::Duration;

use bareverbs_core::{Config, Device, DeviceError, LinkLayer, OpenStep, Platform, PortState};
use connectx_model::Config as Card;

use crate::support::{Memory, alloc_pd, assert_nothing_held, dealloc_pd, quick, world};

/// One of them asks for the maxima, as dynamic connections are off until they are asked for.
#[test]
fn a_function_is_ready_within_twenty_commands() {
    let world = world(Card::new(1));
    let mut memory = Memory::new();
    let device =
        Device::open(world.platform(0), Config::DEFAULT, memory.storage()).expect("bring-up");
    assert!(
        device.commands_executed() <= 20,
        "{} commands",
        device.commands_executed()
    );
    assert_eq!(
        device.pages_given() as usize,
        world.with_model(0, |model| model.pages_held())
    );
    let adapter = device.query_adapter().expect("adapter");
    assert_eq!(adapter.board_id(), "BRV0000000001");
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
fn signatures_work_with_a_card_that_requires_them() {
    for signs_what_lies_there in [false, true] {
        let mut card = Card::new(1);
        card.quirks.signs_what_lies_there = signs_what_lies_there;
        let world = world(card);
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
}

/// The registers with the command queue's address may give back a former driver's for a while. That is no reset by
/// another driver; one that comes later is detected all the same.
#[test]
fn an_address_register_that_latches_late_is_no_reset() {
    let mut card = Card::new(1);
    card.latch_time = Duration::from_secs(2);
    let world = world(card);
    let mut memory = [Memory::new(), Memory::new()];
    let [first, second] = &mut memory;
    let device = Device::open(world.platform(0), quick(), first.storage()).expect("bring-up");
    device.close().expect("orderly");
    // Lies elsewhere than the first one did.
    let device = Device::open(world.platform(0), quick(), second.storage()).expect("bring-up");
    let end = device.platform().now() + Duration::from_secs(5);
    while device.platform().now() < end {
        device.poll().expect("healthy");
        device.platform().relax();
    }
    world.with_model(0, |model| model.function_reset());
    let end = device.platform().now() + Duration::from_secs(1);
    let error = loop {
        if let Err(error) = device.poll() {
            break error;
        }
        assert!(device.platform().now() < end, "the reset goes unnoticed");
        device.platform().relax();
    };
    assert_eq!(error, DeviceError::WasReset);
}
