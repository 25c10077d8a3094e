//! Tables of records: GetTable, whose answer comes in segments (IBTA volume 1, chapters 13.6 and 15.4.4).

use core::fmt;
use core::marker::PhantomData;
use core::time::Duration;

use super::client::{ELSEWHERE, check_redirection};
use super::pace::Pace;
use super::{Config, Ignored, SaError, SaUser, Taken};
use crate::mad::sa::{
    InformInfoRecord, McMemberRecord, NodeRecord, PathRecord, RmppStatus, RmppType, SA_DATA,
    SEGMENT_DATA, SaAttribute, SaHeader, SaMad, SaMethod, SaRedirection, SaStatus, Segment,
    ServiceRecord,
};
use crate::mad::{MAD_LEN, MadError};

/// The number of segments that may be under way at once: QP1 has to have receive buffers for them beside all else.
const WINDOW: u32 = 8;
/// The bytes that the protocol counts of a segment, and of the header in each.
const HEADER: usize = 20;
const COUNTED: usize = HEADER + SEGMENT_DATA;
/// A table of more segments has more bytes than the protocol counts.
const MOST_SEGMENTS: usize = u32::MAX as usize / COUNTED;

/// A record that tables have.
pub trait TableRecord: Copy {
    /// The kind of the table's records.
    const ATTRIBUTE: SaAttribute;
    /// Length of the record on the wire, without what pads it in a table.
    const LEN: usize;

    /// Reads the record of a MAD.
    fn read(mad: &[u8; MAD_LEN]) -> Self;

    /// Writes the record as a question.
    ///
    /// # Errors
    /// If a value does not fit into its field.
    fn write(&self, header: &SaHeader, mad: &mut [u8; MAD_LEN]) -> Result<(), MadError>;
}

macro_rules! table_records {
    ($($name:ident: $len:literal,)*) => {
        $(
            impl TableRecord for $name {
                const ATTRIBUTE: SaAttribute = SaAttribute::$name;
                const LEN: usize = $len;

                fn read(mad: &[u8; MAD_LEN]) -> Self {
                    Self::read(mad)
                }

                fn write(&self, header: &SaHeader, mad: &mut [u8; MAD_LEN]) -> Result<(), MadError> {
                    self.emit(header, mad)
                }
            }
        )*
    };
}

table_records! {
    InformInfoRecord: 60,
    McMemberRecord: 52,
    NodeRecord: 108,
    PathRecord: 64,
    ServiceRecord: 176,
}

/// Why there is no table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TableError {
    /// The question failed: there was no answer, an error in place of one, or no slot for it.
    Sa(SaError),
    /// It is longer than the buffer.
    TooLong {
        /// Length of the buffer.
        capacity: usize,
    },
    /// It stopped in the middle.
    Incomplete {
        /// Segments that came, without a gap.
        segments: u32,
    },
    /// Its segments contradict each other, or the protocol.
    Broken(RmppStatus),
    /// Subnet administration ended it.
    Ended(RmppStatus),
    /// Another table is being read.
    InUse,
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sa(error) => error.fmt(f),
            Self::TooLong { capacity } => {
                write!(f, "the table is longer than the buffer of {capacity} bytes")
            }
            Self::Incomplete { segments } => {
                write!(f, "the table stopped after {segments} segments")
            }
            Self::Broken(RmppStatus(status)) => {
                write!(
                    f,
                    "the table's segments contradict each other or the protocol (status {status})"
                )
            }
            Self::Ended(RmppStatus(status)) => {
                write!(f, "subnet administration ended the table (status {status})")
            }
            Self::InUse => f.write_str("another table is being read"),
        }
    }
}

impl core::error::Error for TableError {}

/// A question for a table, as it is sent.
#[derive(Debug, Clone, Copy)]
struct TableQuestion {
    mad: [u8; MAD_LEN],
    attribute: SaAttribute,
    record_len: usize,
}

/// Records that have arrived.
#[derive(Debug, Clone, Copy)]
pub struct Table<'t, R> {
    bytes: &'t [u8],
    distance: usize,
    kind: PhantomData<R>,
}

impl<'t, R: TableRecord> Table<'t, R> {
    /// The number of records.
    pub fn len(&self) -> usize {
        self.rows().count()
    }

    /// Returns `true` if there are none.
    pub fn is_empty(&self) -> bool {
        self.rows().next().is_none()
    }

    /// The records as they came, each as long as [`TableRecord::LEN`] says.
    pub fn rows(&self) -> impl Iterator<Item = &'t [u8]> + use<'t, R> {
        let rows = self.bytes.chunks(self.distance.max(1));
        rows.filter_map(|row| row.get(..R::LEN))
    }

    /// The records.
    pub fn iter(&self) -> impl Iterator<Item = R> + use<'t, R> {
        self.rows().map(|row| {
            let mut mad = [0; MAD_LEN];
            if let Some(place) = mad.get_mut(SA_DATA..SA_DATA + R::LEN) {
                place.copy_from_slice(row);
            }
            R::read(&mad)
        })
    }
}

/// The part of a table that has arrived.
#[derive(Debug, Clone, Copy)]
struct Transfer {
    /// Segments without a gap.
    whole: u32,
    /// Those beyond that are there, from the lowest bit for `whole + 2`: the one after `whole` is missing.
    beyond: u32,
    /// Up to which segment the other end may send.
    window: u32,
    /// The number of segments, once that is known.
    segments: Option<u32>,
    /// The bytes of the last one that count, once it has arrived.
    tail: Option<usize>,
    /// Distance of records, in units of 8 bytes.
    offset: u16,
    /// Until when something has to arrive, or the last acknowledgement is sent again.
    again: Duration,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Idle,
    Asked {
        pace: Pace,
        busy: bool,
    },
    Arriving(Transfer),
    /// The table is there, or not. Of one that is there the last segment, for when it comes again.
    Done {
        outcome: Result<(usize, usize), TableError>,
        last: u32,
    },
}

/// The MAD of the protocol that is to be sent.
#[derive(Debug, Clone, Copy)]
enum Reply {
    Ack { whole: u32, window: u32 },
    End(RmppType, RmppStatus),
}

/// Reads tables, one at a time, into a buffer of the caller's.
///
/// Whatever subnet administration sends, it writes into the buffer only, and ends at the deadline of the question.
#[derive(Debug)]
pub struct TableReader<'b> {
    config: Config,
    buffer: &'b mut [u8],
    question: Option<TableQuestion>,
    transaction_id: u64,
    deadline: Duration,
    state: State,
    reply: Option<Reply>,
    asked: u64,
    /// Where it is asked, if subnet administration has said so, and where the MAD that was written last goes.
    redirection: Option<SaRedirection>,
    written: Option<SaRedirection>,
}

impl<'b> TableReader<'b> {
    /// Reads into this buffer, which has to have room for the records and what is between them.
    pub const fn new(config: Config, buffer: &'b mut [u8]) -> Self {
        Self {
            config,
            buffer,
            question: None,
            transaction_id: 0,
            deadline: Duration::ZERO,
            state: State::Idle,
            reply: None,
            asked: 0,
            redirection: None,
            written: None,
        }
    }

    /// Asks for all records that are like this one in the components that count. [`table`](Self::table) has the answer.
    ///
    /// # Errors
    /// If another table is being read, or if a value does not fit into its field.
    pub fn ask<R: TableRecord>(
        &mut self,
        now: Duration,
        like: &R,
        components: u64,
        deadline: Duration,
    ) -> Result<(), TableError> {
        if !matches!(self.state, State::Idle | State::Done { .. }) {
            return Err(TableError::InUse);
        }
        let transaction_id = self
            .config
            .seed
            .wrapping_add((self.asked + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let header = SaHeader::request(SaMethod::GetTable, transaction_id, components);
        let mut mad = [0; MAD_LEN];
        like.write(&header, &mut mad)
            .map_err(|error| TableError::Sa(SaError::Mad(error)))?;
        self.asked += 1;
        self.redirection = None;
        self.transaction_id = transaction_id;
        self.question = Some(TableQuestion {
            mad,
            attribute: R::ATTRIBUTE,
            record_len: R::LEN,
        });
        self.deadline = deadline;
        self.reply = None;
        self.state = State::Asked {
            pace: Pace::begin(&self.config, now),
            busy: false,
        };
        Ok(())
    }

    /// The table that was asked for last; `None` while it is under way, and if it is of other records. It stays until
    /// the next question.
    pub fn table<R: TableRecord>(&self) -> Option<Result<Table<'_, R>, TableError>> {
        let State::Done { outcome, .. } = self.state else {
            return None;
        };
        let question = self
            .question
            .filter(|asked| asked.attribute == R::ATTRIBUTE);
        question?;
        Some(outcome.map(|(len, distance)| Table {
            bytes: self.buffer.get(..len).unwrap_or_default(),
            distance,
            kind: PhantomData,
        }))
    }

    /// The table is not wanted any more. Subnet administration is told if it is sending it.
    pub fn cancel(&mut self) {
        if matches!(self.state, State::Arriving(_)) {
            self.reply = Some(Reply::End(RmppType::Stop, RmppStatus::NO_RESOURCES));
        }
        self.state = State::Idle;
    }

    fn finish(&mut self, outcome: Result<(usize, usize), TableError>, last: u32) {
        self.state = State::Done { outcome, last };
    }

    /// Ends a transfer, and says so.
    fn give_up(&mut self, error: TableError, kind: RmppType, status: RmppStatus) {
        self.reply = Some(Reply::End(kind, status));
        self.finish(Err(error), 0);
    }

    fn broken(&mut self, status: RmppStatus) {
        self.give_up(TableError::Broken(status), RmppType::Abort, status);
    }

    /// From the beginning, there or where subnet administration is: in another transaction, so that what comes from before does
    /// not count.
    fn begin_at(&mut self, now: Duration, place: Option<SaRedirection>) {
        if place.is_some() != self.redirection.is_some() {
            self.transaction_id ^= ELSEWHERE;
        }
        self.redirection = place;
        if let Some(question) = &mut self.question {
            question.mad[8..16].copy_from_slice(&self.transaction_id.to_be_bytes());
        }
        self.state = State::Asked {
            pace: Pace::begin(&self.config, now),
            busy: false,
        };
    }

    /// Asks where an answer says, if it says so; false if it does not.
    fn follow(&mut self, now: Duration, mad: &[u8; MAD_LEN]) -> bool {
        let (Ok(mad), Some(question), State::Asked { .. }) =
            (SaMad::new(mad), self.question, self.state)
        else {
            return false;
        };
        let (header, attribute) = (mad.header(), mad.attribute());
        let kind = (header.method, attribute);
        let answers = kind == (SaMethod::GetResp, SaAttribute::ClassPortInfo)
            || header.method == SaMethod::GetTableResp
                && (attribute == question.attribute || attribute == SaAttribute::ClassPortInfo);
        let to = mad
            .redirection()
            .filter(|_| answers && header.transaction_id == self.transaction_id);
        let Some(to) = to else {
            return false;
        };
        let outcome = match self.redirection {
            Some(from) => Err(SaError::RedirectedAgain(from.lid)),
            None => check_redirection(&to),
        };
        match outcome {
            Ok(()) => self.begin_at(now, Some(to)),
            Err(error) => self.finish(Err(TableError::Sa(error)), 0),
        }
        true
    }

    fn take(&mut self, now: Duration, mad: &[u8; MAD_LEN]) -> Result<(), Ignored> {
        let segment = Segment::new(mad).map_err(Ignored::Malformed)?;
        let header = segment.header();
        let transaction_id = header.transaction_id;
        let unexpected = Err(Ignored::Unexpected { transaction_id });
        let asked = self.question.filter(|asked| {
            transaction_id == self.transaction_id && segment.attribute() == asked.attribute
        });
        if asked.is_none() || header.method != SaMethod::GetTableResp {
            return unexpected;
        }
        match self.state {
            State::Idle => return unexpected,
            State::Done { outcome, last } => {
                if outcome.is_err()
                    || !segment.is_active()
                    || segment.kind() != Some(RmppType::Data)
                {
                    return unexpected;
                }
                // The last acknowledgement is lost.
                self.reply = Some(Reply::Ack {
                    whole: last,
                    window: last,
                });
                return Ok(());
            }
            State::Asked { mut pace, .. } if header.status.is_busy() => {
                pace.busy(&self.config, now, transaction_id);
                self.state = State::Asked { pace, busy: true };
                return Ok(());
            }
            State::Asked { .. } | State::Arriving(_) => {}
        }
        if !header.status.is_success() {
            self.finish(Err(TableError::Sa(SaError::Status(header.status))), 0);
            return Ok(());
        }
        if !segment.is_active() {
            let error = SaError::Senseless {
                field: "rmpp_flags",
                value: 0,
            };
            self.finish(Err(TableError::Sa(error)), 0);
            return Ok(());
        }
        if !segment.has_version() {
            self.broken(RmppStatus::VERSION);
            return Ok(());
        }
        match segment.kind() {
            Some(RmppType::Data) => self.data(now, &segment),
            Some(RmppType::Stop | RmppType::Abort) => {
                self.finish(Err(TableError::Ended(segment.status())), 0);
            }
            // The sender has nothing to acknowledge.
            Some(RmppType::Ack) => return unexpected,
            None => self.broken(RmppStatus::BAD_TYPE),
        }
        Ok(())
    }

    fn data(&mut self, now: Duration, segment: &Segment<'_>) {
        let number = segment.number();
        if segment.status() != RmppStatus::NORMAL {
            return self.broken(RmppStatus::BAD_STATUS);
        }
        if number == 0 || segment.is_first() != (number == 1) {
            return self.broken(RmppStatus::BAD_SEGMENT);
        }
        let mut transfer = match self.state {
            State::Arriving(transfer) => transfer,
            _ => Transfer {
                whole: 0,
                beyond: 0,
                window: WINDOW,
                segments: None,
                tail: None,
                offset: segment.header().attribute_offset,
                again: Duration::ZERO,
            },
        };
        transfer.again = now.saturating_add(self.config.longest_interval);
        if number > transfer.window {
            // More than it was allowed to send: as if it had been lost.
            return;
        }
        let ahead = number.checked_sub(transfer.whole + 1);
        let duplicate = match ahead {
            None => true,
            Some(0) => false,
            Some(ahead) => transfer.beyond & 1 << (ahead - 1) != 0,
        };
        if duplicate {
            self.reply = Some(transfer.ack());
            self.state = State::Arriving(transfer);
            return;
        }
        let length = segment.length() as usize;
        let used = if segment.is_last() {
            if !(HEADER..=COUNTED).contains(&length) {
                return self.broken(RmppStatus::BAD_LENGTH);
            }
            // No other may be the last, and none may be beyond it.
            let ahead = ahead.unwrap_or_default();
            if transfer.segments.is_some_and(|all| all != number) || transfer.beyond >> ahead != 0 {
                return self.broken(RmppStatus::BAD_LENGTH);
            }
            transfer.segments = Some(number);
            transfer.tail = Some(length - HEADER);
            length - HEADER
        } else {
            // 0 where the sender did not know at the beginning.
            if number == 1 && length != 0 {
                transfer.segments = u32::try_from(length.div_ceil(COUNTED)).ok();
            }
            if transfer.segments.is_some_and(|all| number >= all) {
                return self.broken(RmppStatus::BAD_LENGTH);
            }
            SEGMENT_DATA
        };
        let capacity = self.buffer.len();
        let at = number as usize - 1;
        let place = (at < MOST_SEGMENTS)
            .then(|| {
                self.buffer
                    .get_mut(at * SEGMENT_DATA..at * SEGMENT_DATA + used)
            })
            .flatten();
        let (Some(place), Some(data)) = (place, segment.data().get(..used)) else {
            let error = TableError::TooLong { capacity };
            return self.give_up(error, RmppType::Stop, RmppStatus::NO_RESOURCES);
        };
        place.copy_from_slice(data);
        let begins = transfer.whole == 0;
        transfer.arrived(ahead.unwrap_or_default());
        if let (Some(tail), Some(all)) = (transfer.tail, transfer.segments)
            && transfer.whole == all
        {
            self.reply = Some(Reply::Ack {
                whole: all,
                window: all,
            });
            let len = (all as usize - 1) * SEGMENT_DATA + tail;
            let outcome = self.layout(len, transfer.offset);
            return self.finish(outcome, all);
        }
        // At the beginning, and whenever the window is used up.
        if begins && transfer.whole != 0 || transfer.whole == transfer.window {
            transfer.window = transfer.whole.saturating_add(WINDOW);
            self.reply = Some(transfer.ack());
        }
        self.state = State::Arriving(transfer);
    }

    /// Length of the table, and distance of its records.
    fn layout(&self, len: usize, offset: u16) -> Result<(usize, usize), TableError> {
        let record_len = self.question.map_or(0, |asked| asked.record_len);
        let distance = usize::from(offset) * 8;
        if len == 0 {
            return Ok((0, record_len));
        }
        let senseless = |field, value| {
            let error = SaError::Senseless { field, value };
            Err(TableError::Sa(error))
        };
        if distance < record_len {
            return senseless("attribute_offset", offset.into());
        }
        // What pads the last record may be missing.
        let rest = len % distance;
        if rest != 0 && rest < record_len {
            return senseless("payload length", len as u64);
        }
        Ok((len, distance))
    }
}

impl Transfer {
    const fn ack(&self) -> Reply {
        Reply::Ack {
            whole: self.whole,
            window: self.window,
        }
    }

    /// Counts a segment so far beyond the one that is missing.
    fn arrived(&mut self, ahead: u32) {
        let Some(beyond) = ahead.checked_sub(1) else {
            // The gap is closed, up to the next one.
            let run = self.beyond.trailing_ones();
            self.whole += 1 + run;
            self.beyond = self.beyond.checked_shr(run + 1).unwrap_or(0);
            return;
        };
        self.beyond |= 1 << beyond;
    }
}

impl SaUser for TableReader<'_> {
    fn poll_transmit(&mut self, now: Duration, mad: &mut [u8; MAD_LEN]) -> bool {
        self.handle_timeout(now);
        let Some(question) = &self.question else {
            return false;
        };
        if let Some(reply) = self.reply.take() {
            // An acknowledgement has the method of the question.
            let header = SaHeader::request(SaMethod::GetTable, self.transaction_id, 0);
            let (what, numbers) = match reply {
                Reply::Ack { whole, window } => {
                    ((RmppType::Ack, RmppStatus::NORMAL), (whole, window))
                }
                Reply::End(kind, status) => ((kind, status), (0, 0)),
            };
            Segment::emit(&header, question.attribute, what, numbers, mad);
            self.written = self.redirection;
            return true;
        }
        let State::Asked { mut pace, busy } = self.state else {
            return false;
        };
        if now < pace.next {
            return false;
        }
        *mad = question.mad;
        self.written = self.redirection;
        pace.sent(&self.config, now, self.transaction_id);
        self.state = State::Asked { pace, busy };
        true
    }

    fn redirection(&mut self) -> Option<SaRedirection> {
        self.written.take()
    }

    /// Also of a table that is there, of which the last segment may come again.
    fn asks(&self, lid: u16) -> bool {
        !matches!(self.state, State::Idle) && self.redirection.is_some_and(|to| to.lid == lid)
    }

    fn handle_mad(&mut self, now: Duration, mad: &[u8; MAD_LEN]) -> Taken {
        if self.follow(now, mad) {
            return Taken::Mine;
        }
        // No other part has MADs of tables.
        if mad[3] != SaMethod::GetTableResp as u8 {
            return Taken::NotMine;
        }
        if let Err(ignored) = self.take(now, mad) {
            log::debug!("from subnet administration: {ignored}");
        }
        Taken::Mine
    }

    fn subnet_changed(&mut self, now: Duration) {
        // The records may be others now, and where they are.
        let asked = matches!(self.state, State::Asked { .. }) && self.redirection.is_some();
        if asked || matches!(self.state, State::Arriving(_)) {
            self.begin_at(now, None);
        }
    }

    fn handle_timeout(&mut self, now: Duration) {
        match self.state {
            State::Asked { busy, .. } if now >= self.deadline => {
                let error = if busy {
                    SaError::Status(SaStatus::BUSY)
                } else {
                    SaError::NoAnswer
                };
                self.finish(Err(TableError::Sa(error)), 0);
            }
            State::Arriving(transfer) if now >= self.deadline => {
                let error = TableError::Incomplete {
                    segments: transfer.whole,
                };
                self.give_up(error, RmppType::Abort, RmppStatus::TOO_LONG);
            }
            State::Arriving(mut transfer) if now >= transfer.again => {
                transfer.again = now.saturating_add(self.config.longest_interval);
                self.reply = Some(transfer.ack());
                self.state = State::Arriving(transfer);
            }
            _ => {}
        }
    }

    fn next_deadline(&self) -> Option<Duration> {
        if self.reply.is_some() {
            return Some(Duration::ZERO);
        }
        match self.state {
            State::Asked { pace, .. } => Some(pace.next.min(self.deadline)),
            State::Arriving(transfer) => Some(transfer.again.min(self.deadline)),
            State::Idle | State::Done { .. } => None,
        }
    }
}
