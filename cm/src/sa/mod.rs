//! Asking subnet administration, sans-I/O: questions, MADs and time go in, MADs and answers come out.
//!
//! ```
//! use bareverbs_cm::mad::{MAD_LEN, sa::*};
//! use bareverbs_cm::sa::*;
//! use core::time::Duration;
//!
//! let mut slots = [QuestionSlot::EMPTY; 4];
//! let mut client = Client::new(Config::new(42), &mut slots);
//! let wanted = PathRecord { dgid: [2; 16], sgid: [1; 16], ..PathRecord::ZERO };
//! let question = Question::Path { wanted, components: PathRecord::DGID | PathRecord::SGID };
//! let now = Duration::ZERO;
//! let id = client.ask(now, &question, Duration::from_secs(2))?;
//! let mut mad = [0; MAD_LEN];
//! assert!(client.poll_transmit(now, &mut mad));
//!
//! // At the other end.
//! let asked = SaMad::new(&mad)?;
//! let header = SaHeader { method: SaMethod::GetResp, ..asked.header() };
//! let path = PathRecord { dlid: 2, slid: 1, mtu: 4, ..asked.path_record()? };
//! let mut answer = [0; MAD_LEN];
//! path.emit(&header, &mut answer)?;
//!
//! client.handle_mad(now, &answer)?;
//! assert_eq!(client.outcome(id), Some(Ok(Answer::Path(path))));
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```
//!
//! A question is repeated until it is answered or its time is up, at intervals that double, also if subnet administration
//! answers that it is busy; each interval is moved by a random part of itself. Each of these exchanges is one MAD each way;
//! tables are longer ([`TableReader`]).
//!
//! A question that is redirected is asked once more where the answer says ([`SaUser::redirection`]), at a LID and in the default
//! partition. The port there may not redirect again.
//!
//! What else a port may have with subnet administration is a [`SaUser`] each: [`Subscriptions`] to notices, [`Services`] that
//! it offers or looks for, and a [`TableReader`]. A program has those that it names, and nothing of the others.

mod client;
mod pace;
mod services;
mod subscriptions;
mod table;
mod user;

use core::fmt;
use core::time::Duration;

#[cfg(feature = "infiniband")]
pub(crate) use client::PORT_LIDS;
pub(crate) use client::check_path_fields;
pub use client::{Client, QuestionSlot};
pub use services::{ServiceQuestion, ServiceSlot, ServiceStanding, Services};
pub use subscriptions::{InformQuestion, ReportSlot, Standing, SubscriptionSlot, Subscriptions};
pub use table::{Table, TableError, TableReader, TableRecord};
pub use user::{SaUser, Taken};

use crate::mad::sa::{McMemberRecord, PathRecord, SaMad, SaMethod, SaPortInfo, SaStatus};
use crate::mad::{MAD_LEN, MadError};

/// Settings of a [`Client`].
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Seed of the transaction IDs. Has to differ from boot to boot.
    pub seed: u64,
    /// Until a question is asked for the second time.
    pub first_interval: Duration,
    /// The longest time from one repetition to the next, but for the jitter.
    pub longest_interval: Duration,
    /// By how many hundredths of itself a time between repetitions may be moved, at random.
    pub jitter: u8,
}

impl Config {
    /// The defaults: repeated after 100 ms, 200 ms and so on, up to a second, and a quarter more or less.
    pub const fn new(seed: u64) -> Self {
        Self {
            seed,
            first_interval: Duration::from_millis(100),
            longest_interval: Duration::from_secs(1),
            jitter: 25,
        }
    }
}

/// A kind of questions, and how they are written and answered.
pub trait Ask: Copy + fmt::Debug {
    /// The type of the answers.
    type Answer: Copy + fmt::Debug;

    /// Any of them: it is in slots that are free.
    const NONE: Self;

    /// Writes the whole MAD.
    ///
    /// # Errors
    /// If a value does not fit into its field.
    fn write(&self, transaction_id: u64, mad: &mut [u8; MAD_LEN]) -> Result<(), MadError>;

    /// Returns `true` if a MAD of the same transaction is of the kind that answers it.
    fn is_answered_by(&self, mad: &SaMad<'_>) -> bool;

    /// The answer.
    ///
    /// # Errors
    /// If it makes no sense.
    fn understand(&self, mad: &SaMad<'_>) -> Result<Self::Answer, SaError>;
}

/// The question. The components say what of the record counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// The capabilities of subnet administration.
    PortInfo,
    /// A path.
    Path {
        /// The criteria of the path.
        wanted: PathRecord,
        /// Bits of what of it counts.
        components: u64,
    },
    /// A membership: `Get` looks at it, `Set` joins or makes a group, `Delete` leaves.
    Member {
        /// The method.
        method: SaMethod,
        /// The membership.
        wanted: McMemberRecord,
        /// Bits of what of it counts.
        components: u64,
    },
}

/// The answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The capabilities of subnet administration.
    PortInfo(SaPortInfo),
    /// The path. Its LIDs, MTU, rate and life time make sense, and it is the path that was asked for.
    Path(PathRecord),
    /// The membership as it is now; of `Delete`, as it was. It is about the group and the port that were asked for.
    Member(McMemberRecord),
}

/// Name of a question: its transaction ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct QuestionId(pub(crate) u64);

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SaError {
    /// No answer came in time.
    NoAnswer,
    /// The answer is no; [`SaStatus::BUSY`] if it was so until the time was up.
    Status(SaStatus),
    /// The answer makes no sense.
    Senseless {
        /// The field that does not.
        field: &'static str,
        /// Its value, or its low bits.
        value: u64,
    },
    /// The port with this LID, to which the question was redirected, redirects it again.
    RedirectedAgain(u16),
    /// The question cannot be written.
    Mad(MadError),
    /// All slots are in use.
    NoSlots {
        /// The kind of slots.
        what: &'static str,
        /// The number of slots.
        capacity: usize,
    },
}

impl fmt::Display for SaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAnswer => f.write_str("subnet administration does not answer"),
            Self::Status(status) => write!(f, "subnet administration says no: {status}"),
            Self::Senseless { field, value } => write!(
                f,
                "subnet administration answers nonsense: {field} = {value:#x}"
            ),
            Self::RedirectedAgain(lid) => {
                write!(f, "redirected again at LID {lid:#x}")
            }
            Self::Mad(error) => error.fmt(f),
            Self::NoSlots { what, capacity } => {
                write!(f, "all {capacity} slots for {what} are in use")
            }
        }
    }
}

impl core::error::Error for SaError {}

/// Why a MAD was not acted on. None of these needs an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ignored {
    /// Not a MAD of subnet administration that is known here.
    Malformed(MadError),
    /// An answer to no question of ours, or to one that is answered.
    Unexpected {
        /// The answer's transaction ID.
        transaction_id: u64,
    },
    /// A report without a subscription.
    NotSubscribed {
        /// Number of the notice.
        trap: u16,
    },
    /// A report for which there is no slot. It comes again.
    NoRoom,
}

impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(error) => write!(f, "malformed MAD: {error}"),
            Self::Unexpected { transaction_id } => {
                write!(f, "nothing was asked in transaction {transaction_id:#018x}")
            }
            Self::NotSubscribed { trap } => write!(f, "notice {trap} was not subscribed to"),
            Self::NoRoom => f.write_str("no slot for a report"),
        }
    }
}

impl core::error::Error for Ignored {}
