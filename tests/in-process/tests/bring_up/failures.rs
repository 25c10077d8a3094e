//! Bring-up with any command going wrong, no memory, or no firmware.

use std::time::Duration;

use bareverbs_core::error::CommandFailure;
use bareverbs_core::firmware_cmds::opcode::Opcode;
use bareverbs_core::platform::DmaError;
use bareverbs_core::{
    CommandRecord, Config, Device, FlightRecorder, OpenFailure, OpenStep, Record, RecordKind,
};
use bareverbs_in_process::Builder;
use connectx_model::Config as Card;
use connectx_model::fault::{CommandFault, CommandRule};

use crate::support::{Memory, assert_clean, assert_nothing_held, quick, world};

const CREATE_EQ: u16 = 0x301;

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
            let recorder: &FlightRecorder = &FlightRecorder::<[Record; 64]>::new();
            let storage = memory.storage().record(recorder);
            let result = Device::open(world.platform(0), quick(), storage);
            match (fault, result) {
                (CommandFault::Delay(_) | CommandFault::LoseEvent, Ok(device)) => {
                    device.close().expect(&what);
                    assert_nothing_held(&world, &what);
                }
                (CommandFault::Delay(_) | CommandFault::LoseEvent, Err(error)) => {
                    panic!("{what}: {error}")
                }
                // Linux's driver (`mlx5_set_driver_version`) looks at no answer of this one.
                (CommandFault::Fail { .. } | CommandFault::Corrupt { .. }, Ok(device))
                    if refused(recorder) == Some(Opcode::SetDriverVersion) =>
                {
                    device.close().expect(&what);
                    assert_nothing_held(&world, &what);
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

/// The command that the firmware refused.
fn refused(recorder: &FlightRecorder) -> Option<Opcode> {
    recorder.records().find_map(|record| match record.kind {
        RecordKind::Command(CommandRecord {
            opcode,
            end: Some((_, Err(_))),
            ..
        }) => Some(opcode),
        _ => None,
    })
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
