//! Many commands at once, whose answers come in any order.

use std::collections::BTreeSet;
use std::time::Duration;

use bareverbs_core::Platform;
use bareverbs_core::device::{PendingCommand, TailIn};
use bareverbs_core::error::CommandFailure;
use bareverbs_core::firmware_cmds::command::Command;
use bareverbs_core::firmware_cmds::domain::{AllocPdIn, DeallocPdIn};

use crate::card::Card;
use crate::refusal::StepError;

const TIMEOUT: Duration = Duration::from_secs(60);
/// As many as may be in flight; small command queues take fewer.
const COUNT: usize = 3;

/// Protection domains are allocated and freed, each by a separate command, all at a time.
pub(super) fn run(device: &Card<'_>) -> Result<(), StepError> {
    let allocated = at_once(device, &[AllocPdIn::new(); COUNT])?;
    let numbers: BTreeSet<u32> = allocated.iter().map(|answer| answer.pd()).collect();
    if numbers.len() != COUNT {
        return Err(StepError::Wrong(format!("protection domains {numbers:?}")));
    }
    let free: Vec<DeallocPdIn> = numbers
        .into_iter()
        .map(|number| {
            let mut free = DeallocPdIn::new();
            free.set_pd(number);
            free
        })
        .collect();
    at_once(device, &free)?;
    Ok(())
}

fn at_once<C: Command>(device: &Card<'_>, commands: &[C]) -> Result<Vec<C::Output>, StepError> {
    let end = device.platform().now() + TIMEOUT;
    let mut waiting = commands.iter();
    let mut next = waiting.next();
    let mut flying: Vec<PendingCommand<C>> = Vec::new();
    let mut answers = Vec::new();
    while answers.len() < commands.len() {
        while let Some(command) = next {
            match device.post(command, TailIn::None, 0) {
                Ok(pending) => flying.push(pending),
                Err(error) if matches!(error.failure, CommandFailure::QueueFull { .. }) => break,
                Err(error) => return Err(error.into()),
            }
            next = waiting.next();
        }
        let mut still = Vec::new();
        // The last one is asked for first.
        while let Some(mut pending) = flying.pop() {
            match device.poll_command(&mut pending, &mut []) {
                None => still.push(pending),
                Some(answer) => answers.push(answer?),
            }
        }
        flying = still;
        if device.platform().now() > end {
            let (done, all) = (answers.len(), commands.len());
            return Err(StepError::Wrong(format!(
                "{done} of {all} commands answered"
            )));
        }
        device.platform().relax();
    }
    Ok(answers)
}
