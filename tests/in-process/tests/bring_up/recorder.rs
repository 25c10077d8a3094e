//! The flight recorder of a device that failed.

use bareverbs_core::error::{CommandFailure, Status};
use bareverbs_core::firmware_cmds::opcode::Opcode;
use bareverbs_core::{
    CommandRecord, Device, DeviceError, FlightRecorder, HealthBuffer, OpenFailure, Record,
    RecordKind,
};
use bareverbs_in_process::World;
use connectx_model::Config as Card;
use connectx_model::fault::{CommandFault, CommandRule};

use crate::support::{Memory, alloc_pd, dealloc_pd, quick, world};

const ALLOC_PD: u16 = 0x800;
const CREATE_EQ: u16 = 0x301;

fn fault(world: &World, opcode: u16, fault: CommandFault) {
    let rule = CommandRule::next(opcode, fault);
    world.with_model(0, |model| model.faults_mut().commands.push(rule));
}

fn commands(recorder: &FlightRecorder) -> Vec<CommandRecord> {
    let records = recorder.records();
    let commands = records.filter_map(|record| match record.kind {
        RecordKind::Command(command) => Some(command),
        _ => None,
    });
    commands.collect()
}

/// A health buffer as an assertion leaves it.
fn left() -> HealthBuffer {
    let mut left = HealthBuffer(core::array::from_fn(|at| 0x81 + at as u8));
    left.set_synd(1).set_rfr(true);
    left
}

/// The firmware stops during a command: the report names it, and has the health buffer as it was then.
fn fail_during_a_command(recorder: &FlightRecorder) -> String {
    let world = world(Card::new(1));
    let mut memory = Memory::new();
    let storage = memory.storage().record(recorder);
    let device = Device::open(world.platform(0), quick(), storage).expect("bring-up");
    assert!(!recorder.has_failure());
    let pd = alloc_pd(&device).expect("PD");
    dealloc_pd(&device, pd);
    fault(&world, ALLOC_PD, CommandFault::Drop);
    world.with_model(0, |model| model.leave_health(left()));
    alloc_pd(&device).unwrap_err();
    drop(device);
    // A reset of the function takes nothing from the recorder.
    let platform = world.platform(0);
    assert!(!bareverbs_core::read_health(&platform).has_problem());
    assert!(recorder.records().count() == 0 || recorder.has_failure());
    recorder.to_string()
}

#[test]
fn a_fatal_error_leaves_the_command_under_way_and_the_health_buffer() {
    let recorder: &FlightRecorder = &FlightRecorder::<[Record; 256]>::new();
    let report = fail_during_a_command(recorder);
    let head: Vec<_> = report.lines().take(3).collect();
    let under_way = "ALLOC_PD(0x800) op_mod 0x0, object 0x0, slot 0: under way";
    assert!(head[0].ends_with(under_way), "{report}");
    assert!(
        head[1].ends_with(&format!("health buffer: {}", left())),
        "{report}"
    );
    assert!(
        head[2].contains("failed: the firmware reported a fatal error"),
        "{report}"
    );

    let commands = commands(recorder);
    assert_eq!(commands[0].opcode, Opcode::EnableHca);
    let [allocated, freed, last] = &commands[commands.len() - 3..] else {
        unreachable!();
    };
    // The domain's number is in the answer of ALLOC_PD and in the input of DEALLOC_PD.
    assert_eq!(allocated.opcode, Opcode::AllocPd);
    assert_ne!(allocated.object, 0);
    assert_eq!(
        (freed.opcode, freed.object),
        (Opcode::DeallocPd, allocated.object)
    );
    assert!(matches!(freed.end, Some((_, Ok(())))));
    assert_eq!((last.opcode, last.end), (Opcode::AllocPd, None));
    let kinds: Vec<_> = recorder.records().map(|record| record.kind).collect();
    let extended = left().ext_synd();
    let fatal = DeviceError::Fatal {
        syndrome: 1,
        extended,
    };
    let end = [
        RecordKind::Health(left()),
        RecordKind::Failed(fatal),
        RecordKind::Closed,
    ];
    assert_eq!(kinds[kinds.len() - 3..], end);
    assert!(matches!(kinds[0], RecordKind::Opened(health) if !health.has_problem()));
    let times: Vec<_> = recorder.records().map(|record| record.at).collect();
    assert!(times.is_sorted(), "{times:?}");
}

/// A ring that is too small for all records still has the command under way.
#[test]
fn a_small_recorder_keeps_the_end() {
    let recorder: &FlightRecorder = &FlightRecorder::<[Record; 4]>::new();
    let report = fail_during_a_command(recorder);
    assert!(
        report.contains("ALLOC_PD(0x800)") && report.contains(": under way"),
        "{report}"
    );
    assert!(report.contains("the last 4 of "), "{report}");
    let none: &FlightRecorder = &FlightRecorder::<[Record; 0]>::new();
    let report = fail_during_a_command(none);
    assert_eq!(report.lines().count(), 1, "{report}");
}

#[test]
fn a_bring_up_that_fails_leaves_its_commands() {
    for (what, expected) in [
        (CommandFault::Drop, None),
        (
            CommandFault::Fail {
                status: connectx_model::Status::BadParam,
                syndrome: 0x3c_5a71,
            },
            Some((Status::BadParameter, 0x3c_5a71)),
        ),
    ] {
        let world = world(Card::new(1));
        let recorder: &FlightRecorder = &FlightRecorder::<[Record; 256]>::new();
        let mut memory = Memory::new();
        let platform = world.platform(0);
        fault(&world, CREATE_EQ, what);
        let storage = memory.storage().record(recorder);
        let error = Device::open(platform, quick(), storage).unwrap_err();
        assert!(matches!(error.failure, OpenFailure::Command(_)), "{error}");
        let failed = commands(recorder)
            .into_iter()
            .find(|command| command.opcode == Opcode::CreateEq)
            .expect("recorded");
        let failure = failed.end.and_then(|(_, result)| result.err());
        match (expected, failure) {
            (None, Some(CommandFailure::Timeout { .. })) => {
                assert!(recorder.has_failure());
                let health = recorder
                    .records()
                    .any(|record| matches!(record.kind, RecordKind::Health(_)));
                assert!(health, "{recorder}");
            }
            (Some(expected), Some(CommandFailure::Status { status, syndrome })) => {
                assert_eq!((status, syndrome), expected);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// The health buffer as the last user left it is among the records of the next user.
#[test]
fn the_next_device_has_what_was_left() {
    let world = world(Card::new(1));
    let platform = world.platform(0);
    let mut warning = left();
    warning.set_rfr(false);
    world.with_model(0, |model| model.leave_health(warning));
    let recorder: &FlightRecorder = &FlightRecorder::<[Record; 64]>::new();
    let mut memory = Memory::new();
    let storage = memory.storage().record(recorder);
    let device = Device::open(platform, quick(), storage).expect("bring-up");
    let first = recorder.records().next().expect("recorded");
    assert_eq!(first.kind, RecordKind::Opened(warning));
    assert!(!recorder.has_failure());
    drop(device);
}
