//! The flight recorder: the last commands, events, page requests, errors of queue pairs and changes of the device's health,
//! in the caller's memory.
//!
//! It outlives the device that writes to it, and a failed [`Device::open`](crate::Device::open). Once a device has failed
//! nothing more is recorded of it, so that the records are what led to that.

use core::fmt;
use core::time::Duration;

use bareverbs_firmware_cmds::event::Event;
use bareverbs_firmware_cmds::health::HealthBuffer;
use bareverbs_firmware_cmds::opcode::Opcode;
use spin::Mutex;

use crate::types::error::{CommandFailure, DeviceError};
use crate::types::wc::WcError;

/// A firmware command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandRecord {
    /// The opcode.
    pub opcode: Opcode,
    /// Its modifier.
    pub op_mod: u16,
    /// The dword at byte 8 of its input, where most commands name their object. If that is 0, the same dword of the answer,
    /// which names the object that was created.
    pub object: u32,
    /// Its slot in the command queue.
    pub slot: u8,
    /// The time that it took, and how it ended; `None` while it is under way.
    pub end: Option<(Duration, Result<(), CommandFailure>)>,
}

/// The kinds of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordKind {
    /// A device is opened, and all that follows is of this one. The health buffer is as the last user, or a reset, has left it.
    Opened(HealthBuffer),
    /// A firmware command was posted.
    Command(CommandRecord),
    /// An event of the device's, requests for pages and changes of the port among them, but not those of completions and
    /// commands.
    Event(Event),
    /// A completion with an error. Those of work requests that were flushed for an earlier one are left out.
    Completion(WcError),
    /// The health buffer, recorded when the firmware reports a problem, a command gets no answer, or the device fails.
    Health(HealthBuffer),
    /// The device no longer works.
    Failed(DeviceError),
    /// The device was closed.
    Closed,
}

/// One record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// The time at which it began, on the platform's clock.
    pub at: Duration,
    /// The kind, with what it says.
    pub kind: RecordKind,
}

impl Record {
    /// A place that was not written yet.
    const EMPTY: Self = Self {
        at: Duration::ZERO,
        kind: RecordKind::Closed,
    };

    fn is_under_way(&self) -> bool {
        matches!(
            self.kind,
            RecordKind::Command(CommandRecord { end: None, .. })
        )
    }
}

/// The byte at which a command names its object, and its answer the object that it created.
const OBJECT: usize = 8;

/// The object that a command, or its answer, names.
pub(crate) fn object(fixed: &[u8]) -> u32 {
    fixed
        .get(OBJECT..)
        .and_then(<[u8]>::first_chunk)
        .map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

#[derive(Debug)]
struct Ring<R: ?Sized> {
    /// The number of records that were written, of which the ring holds the last.
    written: u64,
    /// The number of the first one of the device that was opened last.
    opened: u64,
    /// The index of the next one.
    next: usize,
    records: R,
}

/// The last `N` records, as the type `FlightRecorder<[Record; N]>`; [`Storage::record`](crate::Storage::record) takes it
/// with any `N`. Each takes some 100 bytes.
///
/// [`Display`](fmt::Display) is the report: what failed, the commands under way, then all records, a line each.
#[derive(Debug)]
pub struct FlightRecorder<R: ?Sized = [Record]>(Mutex<Ring<R>>);

impl<const N: usize> FlightRecorder<[Record; N]> {
    /// A recorder without records.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(Ring {
            written: 0,
            opened: 0,
            next: 0,
            records: [Record::EMPTY; N],
        }))
    }
}

impl<const N: usize> Default for FlightRecorder<[Record; N]> {
    fn default() -> Self {
        Self::new()
    }
}

/// The record of a command, in a ring.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    number: u64,
    index: usize,
}

impl Place {
    /// The place of commands that are not recorded.
    pub(crate) const UNUSED: Self = Self {
        number: 0,
        index: 0,
    };
}

impl Ring<[Record]> {
    /// A record, if it was not overwritten. In the ring, the time of a command that has ended is that at which it did.
    fn record(&self, number: u64) -> Option<Record> {
        let len = self.records.len() as u64;
        let held = number < self.written && self.written - number <= len;
        let index = number.checked_rem(len).filter(|_| held)?;
        let mut record = *self.records.get(index as usize)?;
        if let RecordKind::Command(CommandRecord {
            end: Some((time, _)),
            ..
        }) = &mut record.kind
        {
            *time = time.saturating_sub(record.at);
        }
        Some(record)
    }

    /// The next place, and the record that is to be overwritten.
    fn next(&mut self) -> (Place, Option<&mut Record>) {
        let place = Place {
            number: self.written,
            index: self.next,
        };
        self.written += 1;
        self.next += 1;
        if self.next >= self.records.len() {
            self.next = 0;
        }
        (place, self.records.get_mut(place.index))
    }

    /// The record in a place, if it was not overwritten.
    fn held(&mut self, place: Place) -> Option<&mut Record> {
        let held = self.written.wrapping_sub(place.number) <= self.records.len() as u64;
        self.records.get_mut(place.index).filter(|_| held)
    }

    /// Writes a record, and returns its number.
    fn push(&mut self, at: Duration, kind: RecordKind) -> u64 {
        let (Place { number, .. }, record) = self.next();
        if let Some(record) = record {
            *record = Record { at, kind };
        }
        number
    }
}

impl FlightRecorder {
    /// Writes a record.
    pub(crate) fn push(&self, at: Duration, kind: RecordKind) {
        self.0.lock().push(at, kind);
    }

    /// A device is opened.
    pub(crate) fn open(&self, at: Duration, health: HealthBuffer) {
        let mut ring = self.0.lock();
        ring.opened = ring.push(at, RecordKind::Opened(health));
    }

    /// Writes the record of a command that was posted at this time.
    pub(crate) fn begin(&self, at: Duration, command: CommandRecord) -> Place {
        let ring = &mut *self.0.lock();
        let (place, record) = ring.next();
        if let Some(record) = record {
            // In place: handed on as a value, it would be copied with the room that the largest kind takes.
            record.at = at;
            record.kind = RecordKind::Command(command);
        }
        place
    }

    /// Adds to a command's record when and how it ended, and the object if the command named none. False if the record was
    /// overwritten.
    pub(crate) fn end(
        &self,
        place: Place,
        at: Duration,
        result: Result<(), CommandFailure>,
        object: impl FnOnce() -> u32,
    ) -> bool {
        let ring = &mut *self.0.lock();
        let Some(Record {
            kind: RecordKind::Command(command),
            ..
        }) = ring.held(place)
        else {
            return false;
        };
        if command.object == 0 && result.is_ok() {
            command.object = object();
        }
        command.end = Some((at, result));
        true
    }

    /// Returns true if a record was not overwritten yet.
    pub(crate) fn holds(&self, place: Place) -> bool {
        self.0.lock().held(place).is_some()
    }

    /// The records that it holds, the oldest first.
    pub fn records(&self) -> impl Iterator<Item = Record> {
        // The lock is not held while a caller writes what it gets to somewhere.
        let (written, len) = {
            let ring = self.0.lock();
            (ring.written, ring.records.len() as u64)
        };
        (written.saturating_sub(len)..written).filter_map(|number| self.0.lock().record(number))
    }

    /// The records of the device that was opened last.
    fn last_device(&self) -> impl Iterator<Item = Record> {
        let (opened, written) = {
            let ring = self.0.lock();
            (ring.opened, ring.written)
        };
        (opened..written).filter_map(|number| self.0.lock().record(number))
    }

    /// Returns true if there is something to report: the device that was opened last has failed, or has left a command
    /// without an answer.
    pub fn has_failure(&self) -> bool {
        self.last_device().any(|record| match record.kind {
            RecordKind::Failed(_) => true,
            RecordKind::Command(CommandRecord {
                end: Some((_, Err(failure))),
                ..
            }) => !matches!(failure, CommandFailure::Status { .. }),
            _ => false,
        })
    }
}

impl fmt::Display for CommandRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            opcode,
            op_mod,
            object,
            slot,
            ..
        } = self;
        write!(
            f,
            "{opcode} op_mod {op_mod:#x}, object {object:#x}, slot {slot}: "
        )?;
        match &self.end {
            None => f.write_str("under way"),
            Some((time, Ok(()))) => write!(f, "done in {time:?}"),
            Some((time, Err(failure))) => write!(f, "after {time:?}: {failure}"),
        }
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}.{:09}] ", self.at.as_secs(), self.at.subsec_nanos())?;
        match &self.kind {
            RecordKind::Opened(health) => write!(f, "opened; health buffer: {health}"),
            RecordKind::Command(command) => command.fmt(f),
            RecordKind::Event(event) => write!(f, "event {event:?}"),
            RecordKind::Completion(error) => error.fmt(f),
            RecordKind::Health(health) => write!(f, "health buffer: {health}"),
            RecordKind::Failed(error) => write!(f, "failed: {error}"),
            RecordKind::Closed => f.write_str("closed"),
        }
    }
}

impl fmt::Display for FlightRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for record in self.last_device() {
            match record.kind {
                RecordKind::Failed(_) | RecordKind::Health(_) => writeln!(f, "{record}")?,
                _ if record.is_under_way() => writeln!(f, "{record}")?,
                _ => {}
            }
        }
        let written = self.0.lock().written;
        writeln!(
            f,
            "the last {} of {written} records:",
            self.records().count()
        )?;
        self.records()
            .try_for_each(|record| writeln!(f, "{record}"))
    }
}
