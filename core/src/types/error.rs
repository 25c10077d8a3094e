//! The errors of the control path: the step, the object, and the answer.

use core::fmt;
use core::time::Duration;

use bareverbs_firmware_cmds::health::HealthSyndrome;
use bareverbs_firmware_cmds::opcode::Opcode;
use bareverbs_firmware_cmds::status::errno;
pub use bareverbs_firmware_cmds::status::{DeliveryStatus, Status};

use crate::platform::DmaError;

/// A time in errors, a quarter as large as a [`Duration`]. Errors are handed on by every step of
/// the control path, and cost code at each that is in proportion to their size.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Millis(pub u32);

impl From<Duration> for Millis {
    /// The longest that fits, 49 days, for all longer times.
    fn from(time: Duration) -> Self {
        Self(u32::try_from(time.as_millis()).unwrap_or(u32::MAX))
    }
}

impl From<Millis> for Duration {
    fn from(Millis(time): Millis) -> Self {
        Self::from_millis(time.into())
    }
}

impl fmt::Debug for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Duration::from(*self).fmt(f)
    }
}

/// The device as a whole no longer works. Once it is reported it stays: only a function reset helps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceError {
    /// Registers read all ones: the function left the bus, or its memory decoding was turned off, as it is for a while when
    /// another driver or the host resets the function.
    Gone,
    /// The interface state of the function is "disabled" or "in software reset" (`nic_interface` of the init segment).
    Disabled {
        /// 1 disabled, 7 software reset.
        nic_state: u8,
    },
    /// The firmware reported a fatal error and asks for a reset (`health_buffer` of the init segment).
    Fatal {
        /// The syndrome, which [`HealthSyndrome`] has in words.
        syndrome: u8,
        /// Extended syndrome, for the vendor.
        extended: u16,
    },
    /// The health counter stood still for longer than the configured limit: the firmware no longer runs.
    Stuck {
        /// Time without progress.
        stalled: Millis,
    },
    /// The register with the command queue's address holds another one: another driver has reset the function,
    /// and perhaps another driver uses it now. It has lost every object, and every address of this driver's memory.
    WasReset,
    /// The device was closed.
    Closed,
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Gone => f.write_str("the device is gone: its registers read all ones"),
            Self::Disabled { nic_state } => {
                write!(
                    f,
                    "the function's interface was disabled (nic_interface {nic_state})"
                )
            }
            Self::Fatal { syndrome, extended } => write!(
                f,
                "the firmware reported a fatal error, syndrome {}, extended {extended:#x}",
                HealthSyndrome::from_number(syndrome)
            ),
            Self::Stuck { stalled } => {
                write!(
                    f,
                    "the firmware's health counter stood still for {stalled:?}"
                )
            }
            Self::WasReset => f.write_str("the function was reset from outside this driver"),
            Self::Closed => f.write_str("the device was closed"),
        }
    }
}

impl core::error::Error for DeviceError {}

/// The fault of an answer that the device delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadOutput {
    /// The entry carries another token than the command.
    EntryToken {
        /// The token that was sent.
        expected: u8,
        /// The token that came back.
        found: u8,
    },
    /// A block of the output carries another token than the command.
    BlockToken {
        /// Index of the block.
        block: u32,
    },
    /// The entry's signature is wrong.
    EntrySignature,
    /// The signature of a block of the output is wrong.
    BlockSignature {
        /// Index of the block.
        block: u32,
    },
    /// More pages come back than were asked for.
    TooManyPages {
        /// The number of pages that come.
        returned: u32,
    },
}

impl fmt::Display for BadOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::EntryToken { expected, found } => {
                write!(
                    f,
                    "the entry's token is {found:#x} instead of {expected:#x}"
                )
            }
            Self::BlockToken { block } => write!(f, "wrong token in output block {block}"),
            Self::EntrySignature => f.write_str("wrong signature of the entry"),
            Self::BlockSignature { block } => write!(f, "wrong signature of output block {block}"),
            Self::TooManyPages { returned } => {
                write!(f, "{returned} pages come back, more than were asked for")
            }
        }
    }
}

/// Why a firmware command failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommandFailure {
    /// The firmware carried it out and said no.
    Status {
        /// The reason.
        status: Status,
        /// Where in the firmware, for the vendor.
        syndrome: u32,
    },
    /// No answer in time. The firmware may still carry it out, so its slot and memory stay reserved until the reset.
    Timeout {
        /// The time that was waited.
        waited: Millis,
    },
    /// No slot of the command queue became free in time.
    QueueFull {
        /// The time that was waited.
        waited: Millis,
    },
    /// The command interface refused the entry.
    Delivery(DeliveryStatus),
    /// The answer makes no sense.
    BadOutput(BadOutput),
    /// The device no longer works.
    Device(DeviceError),
    /// No memory for the mailboxes.
    Memory(DmaError),
    /// The command is longer than the queue takes.
    TooLong {
        /// Its length in bytes.
        len: u32,
    },
    /// The ticket is not (or no longer) one of a command in flight.
    UnknownTicket,
}

/// A firmware command failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandError {
    /// The command.
    pub opcode: Opcode,
    /// Its modifier.
    pub op_mod: u16,
    /// The reason.
    pub failure: CommandFailure,
}

impl CommandError {
    /// Returns `true` if the firmware answered with this status.
    #[must_use]
    pub fn is_status(&self, expected: Status) -> bool {
        matches!(self.failure, CommandFailure::Status { status, .. } if status == expected)
    }

    /// The error number with which it ends on Linux (`cmd_status_to_err`, `deliv_status_to_err`). A device that has failed,
    /// and an answer that makes no sense, is EIO.
    #[must_use]
    pub const fn errno(&self) -> i32 {
        match self.failure {
            CommandFailure::Status { status, .. } => status.errno(),
            CommandFailure::Delivery(status) => status.errno(),
            CommandFailure::Timeout { .. } | CommandFailure::QueueFull { .. } => errno::ETIMEDOUT,
            CommandFailure::Memory(_) => errno::ENOMEM,
            CommandFailure::TooLong { .. } => errno::EINVAL,
            CommandFailure::BadOutput(_)
            | CommandFailure::Device(_)
            | CommandFailure::UnknownTicket => errno::EIO,
        }
    }

    /// Returns `true` if the firmware may still carry the command out (or have carried it out): then memory that it names
    /// must not be freed or unmapped before the function was reset.
    #[must_use]
    pub fn may_still_happen(&self) -> bool {
        matches!(
            self.failure,
            CommandFailure::Timeout { .. }
                | CommandFailure::BadOutput(_)
                | CommandFailure::Device(_)
        )
    }
}

impl CommandFailure {
    /// Returns `true` if all places of the command queue were taken: what was asked for did not begin, and may later.
    #[must_use]
    pub const fn is_queue_full(&self) -> bool {
        matches!(self, Self::QueueFull { .. })
    }
}

impl fmt::Display for CommandFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status { status, syndrome } => {
                write!(f, "failed with status {status}, syndrome {syndrome:#x}")
            }
            Self::Timeout { waited } => write!(f, "no answer within {waited:?}"),
            Self::QueueFull { waited } => write!(f, "no free command slot within {waited:?}"),
            Self::Delivery(status) => write!(f, "not delivered: {status}"),
            Self::BadOutput(what) => write!(f, "the answer is not valid: {what}"),
            Self::Device(error) => error.fmt(f),
            Self::Memory(error) => write!(f, "no memory for the mailboxes: {error}"),
            Self::TooLong { len } => write!(f, "{len} bytes are more than the queue takes"),
            Self::UnknownTicket => f.write_str("no such command in flight"),
        }
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            opcode,
            op_mod,
            failure,
        } = self;
        write!(f, "{opcode} op_mod {op_mod:#x}: {failure}")
    }
}

impl core::error::Error for CommandError {}

/// A step of bringing a function up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenStep {
    /// Waiting until the firmware has started.
    Firmware,
    /// Checking the revision of the command interface.
    Revision,
    /// Setting the command queue up.
    CommandQueue,
    /// Enabling the function.
    EnableHca,
    /// Agreeing on the software interface (ISSI).
    Issi,
    /// Lending the pages that the firmware needs to boot.
    BootPages,
    /// Setting the host's byte order.
    HostEndianness,
    /// Reading and negotiating the capabilities.
    Capabilities,
    /// Lending the pages that the firmware needs to initialize.
    InitPages,
    /// Initializing the function.
    InitHca,
    /// Asking for the keys with a special meaning.
    SpecialContexts,
    /// SET_DRIVER_VERSION.
    DriverVersion,
    /// Turning RoCE on.
    EnableRoce,
    /// Getting a page of doorbells.
    AllocUar,
    /// Creating an event queue.
    CreateEq,
}

impl OpenStep {
    /// In words, to follow "while".
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Self::Firmware => "waiting for the firmware to start",
            Self::Revision => "checking the command interface revision",
            Self::CommandQueue => "setting up the command queue",
            Self::EnableHca => "enabling the function",
            Self::Issi => "agreeing on the software interface",
            Self::BootPages => "lending the boot pages",
            Self::HostEndianness => "setting the host's byte order",
            Self::Capabilities => "negotiating capabilities",
            Self::InitPages => "lending the init pages",
            Self::InitHca => "initializing the function",
            Self::SpecialContexts => "asking for special keys",
            Self::DriverVersion => "sending the driver version",
            Self::EnableRoce => "enabling RoCE",
            Self::AllocUar => "allocating the doorbell page",
            Self::CreateEq => "creating an event queue",
        }
    }
}

/// Why a step of bring-up failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenFailure {
    /// A firmware command failed.
    Command(CommandError),
    /// The device no longer works.
    Device(DeviceError),
    /// The platform has no memory for what the driver or the firmware needs.
    Memory(DmaError),
    /// The firmware needs more memory than the storage has chunks for.
    PageChunks {
        /// Pages of 4 KiB that the firmware requires by then, with those that it has.
        pages: u32,
        /// Chunks that would have sufficed for them.
        sufficient: usize,
    },
    /// The firmware did not leave the "initializing" state.
    StillInitializing {
        /// The time that was waited.
        waited: Duration,
    },
    /// The command interface has a revision that this driver does not support.
    Revision {
        /// The revision of the device; it must be 5.
        found: u16,
    },
    /// The device describes a command queue that cannot be.
    QueueGeometry {
        /// Binary logarithm of the number of entries.
        log_size: u8,
        /// Binary logarithm of the distance between entries in bytes.
        log_stride: u8,
    },
    /// The device supports neither software interface that this driver has.
    Issi {
        /// Bit vector of what is.
        supported: u32,
    },
    /// The device answered with a value that cannot be.
    Value {
        /// The field's name.
        field: &'static str,
        /// The value that came back.
        value: u64,
    },
    /// The device lacks something that this driver cannot do without.
    Unsupported {
        /// The missing feature.
        what: &'static str,
    },
}

/// A function could not be brought up. Everything done before was undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenError {
    /// The step that failed.
    pub step: OpenStep,
    /// The failure.
    pub failure: OpenFailure,
}

impl OpenError {
    /// With how many page chunks in the [`Storage`](crate::Storage) it may go better, if they were too few: those that
    /// would have sufficed, with a reserve for what the firmware requires later. At an early step the firmware has not
    /// asked for everything yet, so that the next attempt may require more again.
    #[must_use]
    pub fn page_chunks(&self) -> Option<usize> {
        match self.failure {
            OpenFailure::PageChunks { pages, sufficient } => {
                Some(crate::PageChunk::count_for(pages).max(sufficient + 32))
            }
            _ => None,
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.step.description())?;
        match self.failure {
            OpenFailure::Command(error) => write!(f, "{error}"),
            OpenFailure::Device(error) => write!(f, "{error}"),
            OpenFailure::Memory(error) => write!(f, "{error}"),
            OpenFailure::PageChunks { pages, sufficient } => write!(
                f,
                "the firmware requires {pages} pages, for which {sufficient} page chunks would have sufficed"
            ),
            OpenFailure::StillInitializing { waited } => {
                write!(f, "the firmware is still initializing after {waited:?}")
            }
            OpenFailure::Revision { found } => write!(f, "revision {found} instead of 5"),
            OpenFailure::QueueGeometry {
                log_size,
                log_stride,
            } => write!(
                f,
                "2^{log_size} entries of 2^{log_stride} bytes are not a possible command queue"
            ),
            OpenFailure::Issi { supported } => {
                write!(
                    f,
                    "neither interface 0 nor 1 is supported (bits {supported:#x})"
                )
            }
            OpenFailure::Value { field, value } => {
                write!(f, "the device answered {field} {value:#x}")
            }
            OpenFailure::Unsupported { what } => write!(f, "the device does not have {what}"),
        }
    }
}

impl core::error::Error for OpenError {}

/// A function could not be taken down in order. It has to be reset before it is used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloseError {
    /// The first failure.
    pub failure: CloseFailure,
    /// Pages of 4 KiB that the firmware did not give back.
    pub pages_lost: u32,
    /// Bytes of DMA memory that stay allocated because the device may still use them, the pages among them.
    pub bytes_quarantined: u64,
}

/// The failure of taking a function down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseFailure {
    /// A firmware command failed.
    Command(CommandError),
    /// The device no longer works.
    Device(DeviceError),
    /// The firmware stopped giving pages back.
    PagesKept {
        /// The time that was waited.
        waited: Duration,
    },
}

impl fmt::Display for CloseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("closing the device: ")?;
        match self.failure {
            CloseFailure::Command(error) => write!(f, "{error}")?,
            CloseFailure::Device(error) => write!(f, "{error}")?,
            CloseFailure::PagesKept { waited } => {
                write!(f, "the firmware gave no page back within {waited:?}")?;
            }
        }
        write!(
            f,
            " ({} pages lost, {} bytes kept from reuse)",
            self.pages_lost, self.bytes_quarantined
        )
    }
}

impl core::error::Error for CloseError {}
