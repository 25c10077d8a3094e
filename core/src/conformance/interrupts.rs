//! Interrupts: a wait ends when something happened, or at its deadline, and no interrupt is lost in between.

use core::time::Duration;

use super::limits::TIMEOUT;
use super::loopback::{ACCESS, Pair, patient};
use super::violation::{ConformanceError, Path, Violation};
use crate::device::{Device, TailIn};
use crate::platform::{Platform, VectorSet};
use crate::types::error::CommandFailure;
use crate::verbs::mr::Buffer;
use crate::verbs::qp::{Remote, SendOp};
use bareverbs_firmware_cmds::hca::QueryIssiIn;

/// The length of a wait in which nothing happens.
const NAP: Duration = Duration::from_millis(20);
/// The longest time from a wait's deadline to its end, and of a wait that need not wait: a busy machine is late.
const LATEST: Duration = Duration::from_secs(5);
/// Completions that are slept for.
const ROUNDS: usize = 8;

/// Waits when nothing happens. Whether one lasted until its deadline.
pub(super) fn check_deadlines<P: Platform>(platform: &P) -> Result<bool, ConformanceError> {
    let mut sleeps = false;
    for vectors in [VectorSet::ALL, VectorSet::one(0)] {
        past(platform, vectors)?;
        let began = platform.now();
        let deadline = began.saturating_add(NAP);
        loop {
            let raised = platform.wait_interrupt(vectors, deadline);
            let now = platform.now();
            if now > deadline.saturating_add(LATEST) {
                return Err(Violation::WaitLate { deadline, now }.into());
            }
            if !raised && now < deadline {
                return Err(Violation::WaitEarly { deadline, now }.into());
            }
            sleeps |= !raised;
            if !raised || now >= deadline {
                break;
            }
        }
    }
    Ok(sleeps)
}

/// A wait whose deadline has passed, after which nothing is left of earlier interrupts.
fn past<P: Platform>(platform: &P, vectors: VectorSet) -> Result<(), ConformanceError> {
    let deadline = platform.now();
    platform.wait_interrupt(vectors, deadline);
    let now = platform.now();
    if now > deadline.saturating_add(LATEST) {
        return Err(Violation::WaitLate { deadline, now }.into());
    }
    Ok(())
}

/// Waits for a command, and for completions on each vector that has some. A platform without interrupts has events all the
/// same.
pub(super) fn check_events<P: Platform>(device: &Device<'_, P>) -> Result<(), ConformanceError> {
    let has_interrupts = device.platform().interrupt_vectors() > 0;
    if has_interrupts {
        command(device)?;
    }
    let pd = device.alloc_pd()?;
    let buffer = pd.alloc_buffer(64, ACCESS)?;
    for comp_vector in 0..device.completion_vectors() {
        let mut pair = Pair::new(device, &pd, comp_vector)?;
        let vector = device.interrupt_vector(comp_vector);
        for _ in 0..ROUNDS {
            if has_interrupts {
                asleep(device, &mut pair, &buffer, vector)?;
            }
            between(device, &mut pair, &buffer, vector)?;
        }
    }
    Ok(())
}

/// A command's answer raises vector 0.
fn command<P: Platform>(device: &Device<'_, P>) -> Result<(), ConformanceError> {
    let platform = device.platform();
    let (vector, vectors) = (0, VectorSet::one(0));
    device.poll()?;
    past(platform, vectors)?;
    let mut pending = device.post(&QueryIssiIn::new(), TailIn::None, 0)?;
    let deadline = patient(device);
    loop {
        let raised = platform.wait_interrupt(vectors, deadline);
        let answer = device.poll_command(&mut pending, &mut []);
        if !raised && platform.now() >= deadline {
            let waited = TIMEOUT;
            // An answer that is there came without an interrupt.
            answer.transpose()?;
            return Err(Violation::InterruptMissing { vector, waited }.into());
        }
        if let Some(answer) = answer {
            // Firmware that is too old for the command refuses it, and that is an answer too.
            return match answer {
                Err(error) if !matches!(error.failure, CommandFailure::Status { .. }) => {
                    Err(error.into())
                }
                _ => Ok(()),
            };
        }
    }
}

/// Asks for an event, lets go of all earlier ones, and has the device make one.
fn begin<P: Platform>(
    device: &Device<'_, P>,
    pair: &mut Pair<'_, P>,
    buffer: &Buffer<'_, P>,
    vector: u16,
) -> Result<(), ConformanceError> {
    device.poll()?;
    pair.cq.take_event();
    pair.cq.arm(false);
    if device.platform().interrupt_vectors() > 0 {
        past(device.platform(), VectorSet::one(vector))?;
    }
    let remote = Remote {
        addr: buffer.addr(),
        rkey: buffer.rkey(),
    };
    pair.post(SendOp::Write(remote), &[])
}

/// The interrupt comes while a caller waits, or just before.
fn asleep<P: Platform>(
    device: &Device<'_, P>,
    pair: &mut Pair<'_, P>,
    buffer: &Buffer<'_, P>,
    vector: u16,
) -> Result<(), ConformanceError> {
    begin(device, pair, buffer, vector)?;
    let platform = device.platform();
    let deadline = patient(device);
    while !pair.cq.take_event() {
        let raised = platform.wait_interrupt(VectorSet::one(vector), deadline);
        device.poll()?;
        if !raised && platform.now() >= deadline {
            let waited = TIMEOUT;
            // Is it the interrupt that is missing, or its cause?
            return Err(match pair.cq.take_event() {
                true => Violation::InterruptMissing { vector, waited }.into(),
                false => Violation::NoEvent { vector, waited }.into(),
            });
        }
    }
    match pair.is_done(Path::Doorbell)? {
        true => Ok(()),
        false => Err(missing()),
    }
}

/// The interrupt comes while no caller waits.
fn between<P: Platform>(
    device: &Device<'_, P>,
    pair: &mut Pair<'_, P>,
    buffer: &Buffer<'_, P>,
    vector: u16,
) -> Result<(), ConformanceError> {
    begin(device, pair, buffer, vector)?;
    let platform = device.platform();
    let deadline = patient(device);
    while !pair.cq.take_event() {
        if platform.now() >= deadline {
            let waited = TIMEOUT;
            return Err(Violation::NoEvent { vector, waited }.into());
        }
        platform.relax();
        device.poll()?;
    }
    if platform.interrupt_vectors() > 0 {
        // The message that raises the interrupt follows the event, and is on its way at least.
        let began = platform.now();
        let deadline = began.saturating_add(TIMEOUT);
        let raised = platform.wait_interrupt(VectorSet::one(vector), deadline);
        let waited = platform.now().saturating_sub(began);
        if !raised || waited > LATEST {
            return Err(Violation::InterruptForgotten { vector, waited }.into());
        }
    }
    match pair.is_done(Path::Doorbell)? {
        true => Ok(()),
        false => Err(missing()),
    }
}

/// There was an event of a completion, and no completion.
fn missing() -> ConformanceError {
    let path = Path::Doorbell;
    let waited = Duration::ZERO;
    Violation::NoCompletion { path, waited }.into()
}
