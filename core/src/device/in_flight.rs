//! Commands of pending objects: what is begun by one call and looked at by others until it is over.
//!
//! A pending object is `NotPosted` while the command queue is full, then `Posted`. Looking reads the command's slot and no
//! more: events are read, and pages given, by [`Device::poll`].
//!
//! A card may have one slot for everything but pages. A command in it would block all others until its owner looks, so it is
//! waited for when it is begun, and its answer kept.

use core::task::Waker;
use core::time::Duration;

use bareverbs_firmware_cmds::command::{Command, EmptyOut};
use bareverbs_firmware_cmds::cq::CreateCqOut;
use bareverbs_firmware_cmds::opcode::Opcode;
use bareverbs_firmware_cmds::qp::CreateQpOut;

use crate::device::{Device, PollBackoff, Posted};
pub(crate) use crate::firmware::command_queue::SlotClass;
use crate::firmware::command_queue::TailIn;
use crate::platform::Platform;
use crate::types::error::{CommandError, CommandFailure, DeviceError, Millis};

/// The command of a pending object.
#[derive(Debug, Clone, Copy)]
pub(crate) enum InFlight {
    /// It was not asked for yet.
    Idle,
    /// All slots of the queue were taken since then, in milliseconds on the platform's clock, which go round.
    NotPosted(u32),
    /// The firmware has it.
    Posted(Opcode, Posted),
    /// The firmware had it, in the only slot.
    Answered(Result<[u8; NUMBER_LEN], CommandError>),
}

/// The longest answer of those commands: status and syndrome, the object's number, and reserved bytes.
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
    /// Returns `true` if the firmware has it, or had it.
    pub(crate) const fn is_posted(&self) -> bool {
        matches!(self, Self::Posted(..) | Self::Answered(_))
    }
}

impl<P: Platform> Device<'_, P> {
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
        let error = match self.try_post(class, opcode, fixed, tail_in, output_len) {
            Ok(posted) => {
                *flight = InFlight::Posted(opcode, posted);
                if posted.alone && class == SlotClass::Begun {
                    let mut answer = [0; LONGEST_ANSWER];
                    let fixed = &mut answer[..output_len];
                    let outcome = self.until(|| self.look(*flight, fixed, None));
                    let mut number = [0; NUMBER_LEN];
                    number.copy_from_slice(&answer[NUMBER..NUMBER + NUMBER_LEN]);
                    *flight = InFlight::Answered(outcome.map(|()| number));
                }
                return Ok(());
            }
            Err(error) => error,
        };
        if !matches!(error.failure, CommandFailure::QueueFull { .. }) {
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

    /// As [`begin`](Self::begin), for a command whose answer says no more than that it was carried out.
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
        flight: InFlight,
        fixed: &mut [u8],
        waker: Option<&Waker>,
    ) -> Option<Result<(), CommandError>> {
        let (opcode, posted) = match flight {
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
                .finish(&self.platform, ticket, fixed, &mut [])
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

    /// As [`look`](Self::look), for a command whose answer says no more than that it was carried out.
    pub(crate) fn look_no_output(
        &self,
        flight: InFlight,
        waker: Option<&Waker>,
    ) -> Option<Result<(), CommandError>> {
        self.look(flight, &mut [0; EmptyOut::SIZE], waker)
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
}
