//! Interrupts: a wait ends when something happened, or at its deadline, and nothing is forgotten in between.

use core::time::Duration;

use super::PATIENCE;
use super::breach::{Breach, ConformanceError, Path};
use super::loopback::{ACCESS, Pair, patient};
use crate::device::Device;
use crate::mr::Buffer;
use crate::platform::{Platform, VectorSet};
use crate::qp::{Remote, SendOp};

/// How long a wait is in which nothing happens.
const NAP: Duration = Duration::from_millis(20);
/// How much later than its deadline a wait may end, and how late a wait that need not wait: a busy machine is late.
const LATEST: Duration = Duration::from_secs(2);
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
                return Err(Breach::WaitLate { deadline, now }.into());
            }
            if !raised && now < deadline {
                return Err(Breach::WaitEarly { deadline, now }.into());
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
        return Err(Breach::WaitLate { deadline, now }.into());
    }
    Ok(())
}

/// Waits for completions, on each vector that has some.
pub(super) fn check_events<P: Platform>(device: &Device<'_, P>) -> Result<(), ConformanceError> {
    let pd = device.alloc_pd()?;
    let buffer = pd.alloc_buffer(64, ACCESS)?;
    for comp_vector in 0..device.completion_vectors() {
        let mut pair = Pair::new(device, &pd, comp_vector)?;
        let vector = device.interrupt_vector(comp_vector);
        for _ in 0..ROUNDS {
            asleep(device, &mut pair, &buffer, vector)?;
            between(device, &mut pair, &buffer, vector)?;
        }
    }
    Ok(())
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
    past(device.platform(), VectorSet::one(vector))?;
    let remote = Remote {
        addr: buffer.addr(),
        rkey: buffer.rkey(),
    };
    pair.post(SendOp::Write(remote), &[])
}

/// The interrupt comes while somebody waits, or just before.
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
            let waited = PATIENCE;
            // Is it the interrupt that is missing, or what it tells of?
            return Err(match pair.cq.take_event() {
                true => Breach::InterruptMissing { vector, waited }.into(),
                false => Breach::NoEvent { vector, waited }.into(),
            });
        }
    }
    match pair.is_done(Path::Doorbell)? {
        true => Ok(()),
        false => Err(missing()),
    }
}

/// The interrupt comes while nobody waits.
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
            let waited = PATIENCE;
            return Err(Breach::NoEvent { vector, waited }.into());
        }
        platform.relax();
        device.poll()?;
    }
    // The message that raises the interrupt follows the event, and is on its way at least.
    let began = platform.now();
    let raised = platform.wait_interrupt(VectorSet::one(vector), began.saturating_add(PATIENCE));
    let waited = platform.now().saturating_sub(began);
    if !raised || waited > LATEST {
        return Err(Breach::InterruptForgotten { vector, waited }.into());
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
    Breach::NoCompletion { path, waited }.into()
}
