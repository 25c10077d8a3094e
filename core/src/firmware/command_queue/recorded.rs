//! The command queue with its flight recorder: each command is recorded when it is posted, and again when it has ended.

use core::time::Duration;

use bareverbs_firmware_cmds::opcode::Opcode;

use super::{CommandQueue, PostError, Slot, SlotClass, State, TailIn, Ticket};
use crate::firmware::health::read_health;
use crate::firmware::recorder::{CommandRecord, FlightRecorder, RecordKind};
use crate::platform::Platform;
use crate::types::error::CommandFailure;

/// The byte at which a command names its object, and its answer the object that it created.
const OBJECT: usize = 8;

/// The object that a command, or its answer, names.
fn object(fixed: &[u8]) -> u32 {
    fixed
        .get(OBJECT..)
        .and_then(<[u8]>::first_chunk)
        .map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

impl Slot {
    /// The record of the slot's command in the flight recorder.
    fn record(&self, index: u8, object: u32) -> CommandRecord {
        CommandRecord {
            opcode: self.opcode,
            op_mod: self.op_mod,
            object,
            slot: index,
            end: None,
        }
    }
}

impl CommandQueue {
    /// The queue with its flight recorder.
    pub(crate) fn recorded<'q>(
        &'q mut self,
        recorder: Option<&'q FlightRecorder>,
    ) -> RecordedQueue<'q> {
        RecordedQueue {
            queue: self,
            recorder,
        }
    }
}

/// Records a command that has ended behind all others, as its record was overwritten.
#[cold]
#[inline(never)]
fn again(
    recorder: &FlightRecorder,
    slot: &Slot,
    index: u8,
    now: Duration,
    result: Result<(), CommandFailure>,
    answer: &[u8],
) {
    let place = recorder.begin(slot.posted, slot.record(index, 0));
    recorder.end(place, now, result, || object(answer));
}

/// The queue, with the flight recorder that has what goes through it.
pub(crate) struct RecordedQueue<'q> {
    queue: &'q mut CommandQueue,
    recorder: Option<&'q FlightRecorder>,
}

impl RecordedQueue<'_> {
    /// The time that a command may take.
    pub(crate) fn timeout(&self) -> Duration {
        self.queue.timeout()
    }

    /// Posts a command ([`CommandQueue::post`]), and records it.
    pub(crate) fn post<P: Platform>(
        &mut self,
        platform: &P,
        class: SlotClass,
        opcode: Opcode,
        fixed: &[u8],
        tail: TailIn<'_>,
        output_len: usize,
    ) -> Result<Ticket, PostError> {
        let queue = &mut *self.queue;
        let ticket = queue.post(platform, class, opcode, fixed, tail, output_len)?;
        if let Some(recorder) = self.recorder
            && let Some(slot) = queue.slots.get_mut(usize::from(ticket.slot))
        {
            let command = slot.record(ticket.slot, object(fixed));
            slot.record = recorder.begin(slot.posted, command);
        }
        Ok(ticket)
    }

    /// Takes the answer of a command if it is there ([`CommandQueue::finish`]), and records how it ended.
    pub(crate) fn finish<P: Platform>(
        &mut self,
        platform: &P,
        ticket: Ticket,
        fixed: &mut [u8],
        tail: &mut [u8],
    ) -> Option<Result<(), CommandFailure>> {
        let result = self.queue.finish(platform, ticket, fixed, tail)?;
        if let Some(recorder) = self.recorder
            && result != Err(CommandFailure::UnknownTicket)
            // It is free by now, and has what the command was until another takes it.
            && let Some(slot) = self.queue.slots.get(usize::from(ticket.slot))
        {
            let now = platform.now();
            if !recorder.end(slot.record, now, result, || object(fixed)) {
                again(recorder, slot, ticket.slot, now, result, fixed);
            }
            if matches!(result, Err(CommandFailure::Timeout { .. })) {
                recorder.push(now, RecordKind::Health(read_health(platform)));
            }
        }
        Some(result)
    }

    /// Records the commands under way again whose records were overwritten.
    #[cold]
    pub(crate) fn keep_pending(&self) {
        let Some(recorder) = self.recorder else {
            return;
        };
        for (index, slot) in self.queue.slots.iter().enumerate() {
            if slot.state == State::Pending && !recorder.holds(slot.record) {
                recorder.begin(slot.posted, slot.record(index as u8, 0));
            }
        }
    }
}
