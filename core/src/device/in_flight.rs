//! Firmware commands in flight: what is begun by one call and looked at by others until it is over, and what is waited for.
//!
//! A command is `NotPosted` while the command queue is full, then `Posted`. Looking reads the command's slot and no more: events
//! are read, and pages given, by [`Device::poll`]. Waiting is polling and looking in a loop ([`Device::complete`],
//! [`Device::until`]), and a task leaves its waker beside the command's slot.
//!
//! A card may have one slot for everything but pages. A command in it would block all others until its owner looks, so it is
//! waited for when it is begun, and its answer kept.

use core::marker::PhantomData;
use core::task::Waker;
use core::time::Duration;

use bareverbs_firmware_cmds::command::{Command, EmptyOut};
use bareverbs_firmware_cmds::cq::CreateCqOut;
use bareverbs_firmware_cmds::opcode::Opcode;
use bareverbs_firmware_cmds::qp::CreateQpOut;
use zerocopy::{FromZeros, IntoBytes};

use crate::device::Device;
pub(crate) use crate::firmware::command_queue::SlotClass;
use crate::firmware::command_queue::{PostError, Ticket};
use crate::firmware::health;
use crate::firmware::mailbox::TailIn;
use crate::platform::{Platform, VectorSet};
use crate::types::error::{CommandError, CommandFailure, DeviceError, Millis};

/// Time and turns of a wait loop between two looks at whether the device is still there: a register read takes as long
/// as many turns.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);
const TURNS_PER_LOOK: u32 = 64;
/// Longest sleep for an interrupt at a time while a command is waited for: one that gets lost costs no more.
const INTERRUPT_SLICE: Duration = Duration::from_millis(5);

/// When a wait loop has to poll the device.
#[derive(Debug, Default)]
pub(crate) struct PollBackoff {
    turns: u32,
    looked: Option<Duration>,
}

/// A firmware command in flight ([`Device::post`]).
///
/// Its slot stays taken until [`Device::poll_command`] has returned the answer; if that never happens, the slot comes
/// back some time after the command's deadline.
#[derive(Debug)]
#[must_use = "the command's slot stays taken until it is polled to its end"]
pub struct PendingCommand<C> {
    flight: InFlight,
    tail_len: usize,
    command: PhantomData<fn() -> C>,
}

/// A command that the firmware has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Posted {
    ticket: Ticket,
    op_mod: u16,
    /// It is in the only slot of its kind.
    alone: bool,
}

/// A command that is under way, or will be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum InFlight {
    /// It was not asked for yet.
    Idle,
    /// All slots of the queue were taken since then, in milliseconds on the platform's clock, which go round.
    NotPosted(u32),
    /// The firmware has it.
    Posted(Opcode, Posted),
    /// The firmware had it, and it was waited for. What is kept of an answer is the object's number.
    Answered(Result<[u8; NUMBER_LEN], CommandError>),
}

/// The longest answer of a command in the only slot: status and syndrome, the object's number, and reserved bytes.
const LONGEST_ANSWER: usize = 16;
/// Where the number is, and how long it is.
const NUMBER: usize = 8;
const NUMBER_LEN: usize = 4;
const _: () = assert!(
    size_of::<CreateQpOut>() <= LONGEST_ANSWER
        && size_of::<CreateCqOut>() <= LONGEST_ANSWER
        && EmptyOut::SIZE <= LONGEST_ANSWER
);

impl InFlight {
    /// It was carried out.
    pub(crate) const DONE: Self = Self::Answered(Ok([0; NUMBER_LEN]));

    /// Returns `true` if the firmware has it, or had it.
    pub(crate) const fn is_posted(&self) -> bool {
        matches!(self, Self::Posted(..) | Self::Answered(_))
    }
}

impl<P: Platform> Device<'_, P> {
    /// Executes a firmware command without tails and waits for its answer.
    pub fn execute<C: Command>(&self, command: &C) -> Result<C::Output, CommandError> {
        self.execute_with(command, TailIn::None, &mut [])
    }

    /// Executes a firmware command whose input continues with `tail_in` and whose output continues in `tail_out`, and
    /// waits for its answer. Meanwhile the device is driven as by [`poll`](Self::poll).
    pub fn execute_with<C: Command>(
        &self,
        command: &C,
        tail_in: TailIn<'_>,
        tail_out: &mut [u8],
    ) -> Result<C::Output, CommandError> {
        self.answer(InFlight::Idle, command, tail_in, tail_out)
    }

    /// Executes a firmware command whose answer says no more than that it was carried out.
    pub(crate) fn execute_no_output<C: Command>(&self, command: &C) -> Result<(), CommandError> {
        const { assert!(size_of::<C::Output>() == EmptyOut::SIZE) };
        self.execute_bytes_no_output(C::OPCODE, command.as_bytes())
    }

    /// Executes a command by its opcode and bytes, as commands of several types are laid out alike.
    pub(crate) fn execute_bytes_no_output(
        &self,
        opcode: Opcode,
        fixed_in: &[u8],
    ) -> Result<(), CommandError> {
        let mut answer = [0; EmptyOut::SIZE];
        let flight = InFlight::Idle;
        self.complete(flight, opcode, fixed_in, TailIn::None, &mut answer, &mut [])
    }

    /// Executes a command that comes as bytes, as those do that a program writes itself. The header has to be the opcode's, and the
    /// answer can be as long as `output`.
    pub fn execute_bytes(
        &self,
        opcode: Opcode,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(), CommandError> {
        let flight = InFlight::Idle;
        self.complete(flight, opcode, input, TailIn::None, output, &mut [])
    }

    /// Posts a firmware command without waiting for its answer, of which `tail_len` bytes follow the fixed part.
    /// [`CommandFailure::QueueFull`] means: later.
    pub fn post<C: Command>(
        &self,
        command: &C,
        tail_in: TailIn<'_>,
        tail_len: usize,
    ) -> Result<PendingCommand<C>, CommandError> {
        let output_len = size_of::<C::Output>().saturating_add(tail_len);
        let fixed = command.as_bytes();
        let posted = self.try_post(SlotClass::Ordinary, C::OPCODE, fixed, tail_in, output_len)?;
        Ok(PendingCommand {
            flight: InFlight::Posted(C::OPCODE, posted),
            tail_len,
            command: PhantomData,
        })
    }

    /// Looks for the answer of a posted command; `None` while it is not there. `tail` takes what follows the fixed part
    /// of the answer. Drives the device as [`poll`](Self::poll) does. After anything but `None` the command is over.
    pub fn poll_command<C: Command>(
        &self,
        pending: &mut PendingCommand<C>,
        tail: &mut [u8],
    ) -> Option<Result<C::Output, CommandError>> {
        let mut output = C::Output::new_zeroed();
        let len = tail.len().min(pending.tail_len);
        // A device that has died is found by looking.
        let _ = self.poll();
        let answer = self.look(
            &pending.flight,
            output.as_mut_bytes(),
            &mut tail[..len],
            None,
        )?;
        Some(answer.map(|()| output))
    }

    /// Posts a command, if there is a place in the queue. [`CommandFailure::QueueFull`] means: later.
    #[inline(never)]
    pub(crate) fn try_post(
        &self,
        class: SlotClass,
        opcode: Opcode,
        fixed: &[u8],
        tail_in: TailIn<'_>,
        output_len: usize,
    ) -> Result<Posted, CommandError> {
        let op_mod = fixed
            .get(6..8)
            .and_then(|bytes| bytes.first_chunk())
            .map_or(0, |b| u16::from_be_bytes(*b));
        let error = |failure| CommandError {
            opcode,
            op_mod,
            failure,
        };
        let mut control = self.slot.control.lock();
        let Some(control) = control.as_mut() else {
            return Err(error(CommandFailure::Device(DeviceError::Closed)));
        };
        if let Some(failed) = control.failed() {
            return Err(error(CommandFailure::Device(failed)));
        }
        let alone = control.queue.has_one_ordinary_slot();
        let mut queue = control.queue.recorded(self.recorder);
        match queue.post(&self.platform, class, opcode, fixed, tail_in, output_len) {
            Ok(ticket) => Ok(Posted {
                ticket,
                op_mod,
                alone,
            }),
            Err(PostError::Full) => Err(error(CommandFailure::QueueFull { waited: Millis(0) })),
            Err(PostError::Failed(failure)) => Err(error(failure)),
        }
    }

    /// The rule for a full queue: what finds no place in it stays `NotPosted`, to be posted later.
    ///
    /// # Errors
    /// Others than [`CommandFailure::QueueFull`] as they are, and that one once the queue was full for as long as a command may
    /// take.
    #[cold]
    pub(crate) fn defer(
        &self,
        flight: &mut InFlight,
        error: CommandError,
    ) -> Result<(), CommandError> {
        if !error.failure.is_queue_full() {
            return Err(error);
        }
        let now = self.platform.now().as_millis() as u32;
        let since = match *flight {
            InFlight::NotPosted(since) => since,
            _ => now,
        };
        let waited = Millis(now.wrapping_sub(since));
        if Duration::from(waited) >= self.config.command_timeout {
            let failure = CommandFailure::QueueFull { waited };
            return Err(CommandError { failure, ..error });
        }
        *flight = InFlight::NotPosted(since);
        Ok(())
    }

    /// Posts the command of a pending object, or leaves it `NotPosted`. Where the caller waits, `class` is ordinary.
    ///
    /// # Errors
    /// The device's, or that the queue was full for as long as a command may take.
    pub(crate) fn begin(
        &self,
        flight: &mut InFlight,
        class: SlotClass,
        opcode: Opcode,
        fixed: &[u8],
        tail_in: TailIn<'_>,
        output_len: usize,
    ) -> Result<(), CommandError> {
        match self.try_post(class, opcode, fixed, tail_in, output_len) {
            Ok(posted) => {
                *flight = InFlight::Posted(opcode, posted);
                if posted.alone && class == SlotClass::Begun {
                    let mut answer = [0; LONGEST_ANSWER];
                    let fixed = &mut answer[..output_len];
                    let outcome = self.until(|| self.look(flight, fixed, &mut [], None));
                    let mut number = [0; NUMBER_LEN];
                    number.copy_from_slice(&answer[NUMBER..NUMBER + NUMBER_LEN]);
                    *flight = InFlight::Answered(outcome.map(|()| number));
                }
                Ok(())
            }
            Err(error) => self.defer(flight, error),
        }
    }

    /// [Begins](Self::begin) a command whose answer says no more than that it was carried out.
    pub(crate) fn begin_no_output<C: Command>(
        &self,
        flight: &mut InFlight,
        class: SlotClass,
        command: &C,
    ) -> Result<(), CommandError> {
        const { assert!(size_of::<C::Output>() == EmptyOut::SIZE) };
        let fixed = command.as_bytes();
        let output_len = EmptyOut::SIZE;
        self.begin(flight, class, C::OPCODE, fixed, TailIn::None, output_len)
    }

    /// Looks for the answer of a posted command; `None` while it is not there. Then `waker` is woken when it may be, or when
    /// it is time to look whether it is late. What is not posted has none.
    #[inline(never)]
    pub(crate) fn look(
        &self,
        flight: &InFlight,
        fixed: &mut [u8],
        tail: &mut [u8],
        waker: Option<&Waker>,
    ) -> Option<Result<(), CommandError>> {
        let (opcode, posted) = match *flight {
            InFlight::Posted(opcode, posted) => (opcode, posted),
            InFlight::Answered(outcome) => {
                return Some(outcome.map(|number| {
                    // Commands without an object answer less.
                    if let Some(place) = fixed.get_mut(NUMBER..NUMBER + NUMBER_LEN) {
                        place.copy_from_slice(&number);
                    }
                }));
            }
            InFlight::Idle | InFlight::NotPosted(_) => {
                // No event says when a slot is free again: soon.
                waker.map(Waker::wake_by_ref);
                return None;
            }
        };
        // What a waker does when it is cloned or dropped is the executor's: not under the lock.
        let mut waker = waker.cloned();
        let answer = self.with(|control| {
            let ticket = posted.ticket;
            let answer = control
                .queue
                .recorded(self.recorder)
                .finish(&self.platform, ticket, fixed, tail)
                // An answer that is there counts, even from a device that has died since. One that is not will never come.
                .or_else(|| {
                    let failed = control.failed()?;
                    Some(Err(CommandFailure::Device(failed)))
                });
            if answer.is_none()
                && let Some(new) = waker.take()
            {
                waker = control.set_command_task(ticket.slot(), new);
            }
            answer
        });
        drop(waker);
        let closed = Some(Err(CommandFailure::Device(DeviceError::Closed)));
        Some(answer.unwrap_or(closed)?.map_err(|failure| CommandError {
            opcode,
            op_mod: posted.op_mod,
            failure,
        }))
    }

    /// [Looks](Self::look) for the answer of a command which says no more than that it was carried out.
    pub(crate) fn look_no_output(
        &self,
        flight: &InFlight,
        waker: Option<&Waker>,
    ) -> Option<Result<(), CommandError>> {
        self.look(flight, &mut [0; EmptyOut::SIZE], &mut [], waker)
    }

    /// Posts a command if that was not done yet, and waits for its answer, driving the device. `tail_out` is as long as was
    /// said when it was posted.
    pub(crate) fn answer<C: Command>(
        &self,
        flight: InFlight,
        command: &C,
        tail_in: TailIn<'_>,
        tail_out: &mut [u8],
    ) -> Result<C::Output, CommandError> {
        let mut output = C::Output::new_zeroed();
        let (fixed_in, fixed_out) = (command.as_bytes(), output.as_mut_bytes());
        self.complete(flight, C::OPCODE, fixed_in, tail_in, fixed_out, tail_out)?;
        Ok(output)
    }

    /// Waits for a place in the queue, posts a command of any type there, and waits for its answer. It does not call
    /// [`until`](Self::until): out of a closure's captures the compiler does not see how long the shortest command is.
    #[inline(never)]
    pub(crate) fn complete(
        &self,
        mut flight: InFlight,
        opcode: Opcode,
        fixed_in: &[u8],
        mut tail_in: TailIn<'_>,
        fixed_out: &mut [u8],
        tail_out: &mut [u8],
    ) -> Result<(), CommandError> {
        let output_len = fixed_out.len().saturating_add(tail_out.len());
        let mut backoff = PollBackoff::default();
        loop {
            if !flight.is_posted() {
                let (class, tail_in) = (SlotClass::Ordinary, tail_in.reborrow());
                self.begin(&mut flight, class, opcode, fixed_in, tail_in, output_len)?;
            }
            // A device that has died is found by looking.
            let _ = self.poll();
            if let Some(answer) = self.look(&flight, fixed_out, tail_out, None) {
                return answer;
            }
            self.pause(&mut backoff);
        }
    }

    /// Drives the device until something pending is over.
    pub(crate) fn until<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        // With interrupts each answer has an event, which must not pile up.
        if !self.config.interrupts
            && let Some(outcome) = look()
        {
            return outcome;
        }
        let mut backoff = PollBackoff::default();
        loop {
            // A device that has died is found by looking.
            let _ = self.poll();
            if let Some(outcome) = look() {
                return outcome;
            }
            self.pause(&mut backoff);
        }
    }

    /// One turn of a wait loop: lets the device run, and notices when it has gone.
    pub(crate) fn pause(&self, backoff: &mut PollBackoff) {
        if self.config.interrupts && !self.completion_eqs.is_empty() {
            let deadline = self.platform.now().saturating_add(INTERRUPT_SLICE);
            self.platform.wait_interrupt(VectorSet::one(0), deadline);
        } else {
            self.platform.relax();
        }
        let now = self.platform.now();
        backoff.turns += 1;
        let looked = *backoff.looked.get_or_insert(now);
        if backoff.turns >= TURNS_PER_LOOK || now.saturating_sub(looked) >= LOOK_INTERVAL {
            backoff.turns = 0;
            backoff.looked = Some(now);
            if health::is_gone(&self.platform) {
                self.with(|control| control.fail(&self.context(), DeviceError::Gone));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn _command_moves_between_threads<C: Command>(pending: PendingCommand<C>) {
        fn send<T: Send + Sync>(_: T) {}
        send(pending);
    }
}
