//! Each firmware command of a connection fails once, on either side: in setting it up, in the middle, and in taking it
//! down.

use crate::support::*;
use bareverbs_cm::rdma::{EventType, RdmaError};
use bareverbs_core::error::{CloseFailure, CommandError, CommandFailure};
use connectx_model::fault::{CommandFault, CommandRule};
use connectx_model::syndrome::Status;

/// The cost of a whole conversation: firmware commands of each node, until the last id was destroyed.
fn conversation(
    strike: Option<(usize, u32, CommandFault)>,
    what: &str,
) -> (
    Result<(), Failure>,
    After,
    bareverbs_in_process::World,
    [u64; 2],
    bool,
) {
    let world = world(1);
    let ((outcome, used, struck), after) = with_nodes(&world, 1, Size::default(), |nodes| {
        let before = [0, 1].map(|node: usize| nodes.cms[node].device().commands_executed());
        if let Some((node, nth, fault)) = strike {
            world.with_model(node, |model| {
                model
                    .faults_mut()
                    .commands
                    .push(CommandRule::nth(nth, fault))
            });
        }
        let outcome = converse(nodes, 0, 0, 3, what);
        let used =
            [0, 1].map(|node: usize| nodes.cms[node].device().commands_executed() - before[node]);
        let struck =
            (0..2).all(|node| world.with_model(node, |m| m.faults_mut().commands.is_empty()));
        // Only the conversation is meant.
        for node in 0..2 {
            world.with_model(node, |model| model.faults_mut().commands.clear());
        }
        (outcome, used, struck)
    });
    (outcome, after, world, used, struck)
}

/// Commands of one side from the id's QP to REP or RTU: two CQs, QP, INIT, memory key, RTR, RTS.
const SET_UP: u32 = 7;

fn is_command_failure(failure: CommandFailure, fault: CommandFault) -> bool {
    match fault {
        CommandFault::Fail { syndrome, .. } => {
            matches!(failure, CommandFailure::Status { syndrome: got, .. } if got == syndrome)
        }
        CommandFault::Delivery(status) => {
            matches!(failure, CommandFailure::Delivery(got) if got.number() == status)
        }
        CommandFault::Drop | CommandFault::DropAnswer => {
            matches!(failure, CommandFailure::Timeout { .. })
        }
        CommandFault::Corrupt { at: 0, .. } => matches!(failure, CommandFailure::Status { .. }),
        _ => true,
    }
}

fn command_failure(error: RdmaError) -> Option<CommandFailure> {
    use bareverbs_core::{CqError, MrError, qp::CreateQpError, qp::ModifyError};
    let error = match error {
        RdmaError::Command(error)
        | RdmaError::Cq(CqError::Command(error))
        | RdmaError::CreateQp(CreateQpError::Command(error))
        | RdmaError::ModifyQp(ModifyError::Command(error))
        | RdmaError::Mr(MrError::Command(error)) => error,
        _ => return None,
    };
    Some(error.failure)
}

#[test]
fn every_command_of_a_connection_may_go_wrong() {
    let (outcome, after, world, used, _) = conversation(None, "clean");
    outcome.expect("a conversation");
    assert_orderly(&world, &after, "clean");
    println!("firmware commands of a whole conversation: {used:?}");
    assert!(used.iter().all(|&count| count > u64::from(SET_UP)));
    let status = Status::InternalError;
    let faults = [
        CommandFault::Fail {
            status,
            syndrome: 0xabc,
        },
        CommandFault::Delivery(6),
        CommandFault::Drop,
        CommandFault::DropAnswer,
        CommandFault::Corrupt { at: 0, with: 0x0f },
        CommandFault::Delay(20 * MS),
        CommandFault::LoseEvent,
    ];
    for (node, count) in used.into_iter().enumerate() {
        for nth in 0..count as u32 {
            for fault in faults {
                let what = format!("command {nth} of node {node}, {fault:?}");
                let (outcome, after, world, _, struck) =
                    conversation(Some((node, nth, fault)), &what);
                assert!(struck, "{what}: it never came");
                let harmless = matches!(fault, CommandFault::Delay(_) | CommandFault::LoseEvent);
                if harmless || nth >= SET_UP {
                    // Errors while a connection is taken down are only logged.
                    outcome.unwrap_or_else(|failure| panic!("{what}: {failure}"));
                } else {
                    let failure = outcome.expect_err(&what);
                    assert!(is_reported(failure, node, fault), "{what}: {failure:?}");
                }
                if harmless {
                    assert_orderly(&world, &after, &what);
                } else {
                    assert_nothing_held(&world, &what);
                }
            }
        }
    }
}

/// The side whose command failed gets the error: from the call, or as an event if no call was under way.
fn is_reported(failure: Failure, node: usize, fault: CommandFault) -> bool {
    match failure {
        Failure::Call { node: at, error } => {
            at == node
                && command_failure(error).is_some_and(|failure| is_command_failure(failure, fault))
        }
        Failure::Event {
            node: at,
            event: EventType::ConnectError,
            status,
        } => at == node && status == -bareverbs_cm::rdma::errno::EIO,
        _ => false,
    }
}

/// Firmware that lies: it says that it made another object than it did, or answers with garbage. What then happens is only
/// bounded: no panic, no hang, no access to memory that is not the device's, and all memory back in the end.
#[test]
fn every_answer_may_be_garbage() {
    let (_, _, _, used, _) = conversation(None, "clean");
    for (node, count) in used.into_iter().enumerate() {
        for nth in 0..count as u32 {
            for at in [4, 8, 9, 10, 11, 12] {
                for with in [0x01, 0x40, 0xff] {
                    let fault = CommandFault::Corrupt { at, with };
                    let what = format!("command {nth} of node {node}, {fault:?}");
                    let (_, after, world, _, struck) =
                        conversation(Some((node, nth, fault)), &what);
                    assert!(struck, "{what}: it never came");
                    for closed in after.closed {
                        // The driver cannot destroy an object whose creation was not reported, and the firmware may
                        // refuse the teardown.
                        let clean = closed.err().is_none_or(|error| {
                            error.bytes_quarantined == 0
                                && matches!(
                                    error.failure,
                                    CloseFailure::Command(CommandError {
                                        failure: CommandFailure::Status { .. },
                                        ..
                                    })
                                )
                        });
                        assert!(clean, "{what}: {closed:?}");
                    }
                    assert_nothing_held(&world, &what);
                }
            }
        }
    }
}
