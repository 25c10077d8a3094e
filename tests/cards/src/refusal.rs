//! What may be refused, and how a refusal has to look.

use core::fmt;

use bareverbs_cm::rdma::RdmaError;
use bareverbs_core::cq::CqError;
use bareverbs_core::error::{
    CloseError, CommandError, CommandFailure, DeviceError, OpenError, OpenFailure, OpenStep,
};
use bareverbs_core::mr::MrError;
use bareverbs_core::qp::{CreateQpError, ModifyError, PostError};
use bareverbs_core::{GidError, RoceVersion};

/// A reason that a draw gives for something to be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The command queue that the init segment describes cannot be.
    QueueGeometry,
    /// Neither ISSI 0 nor 1.
    Issi,
    /// The firmware requires more pages than the driver has chunks for.
    PageCapacity,
    /// Completions do not name their queue pair.
    CqeVersion,
    /// Fewer event queues than the driver is configured to use.
    EventQueues,
    /// Event queues are too small.
    EventQueueSize,
    /// Completion queues are too small.
    CompletionQueueSize,
    /// Queue pairs are too small.
    QueuePairSize,
    /// No RoCE, or a GID table without entries.
    NoRoce,
    /// Only RoCE v1.
    NoRoceV2,
}

/// The error of a step, from the driver or from this test.
#[derive(Debug)]
pub enum StepError {
    /// Bring-up.
    Open(OpenError),
    /// An address.
    Gid(GidError),
    /// A firmware command.
    Command(CommandError),
    /// A completion queue.
    Cq(CqError),
    /// A queue pair could not be created.
    CreateQp(CreateQpError),
    /// A queue pair could not change its state.
    Modify(ModifyError),
    /// Memory.
    Mr(MrError),
    /// A work request.
    Post(PostError),
    /// The device.
    Device(DeviceError),
    /// The connection manager.
    Rdma(RdmaError),
    /// Teardown.
    Close(CloseError),
    /// Something that must not be. No draw allows it.
    Wrong(String),
}

impl Refusal {
    /// Every reason.
    pub const ALL: [Self; 10] = [
        Self::QueueGeometry,
        Self::Issi,
        Self::PageCapacity,
        Self::CqeVersion,
        Self::EventQueues,
        Self::EventQueueSize,
        Self::CompletionQueueSize,
        Self::QueuePairSize,
        Self::NoRoce,
        Self::NoRoceV2,
    ];

    /// Returns `true` if this is how the driver names it.
    #[must_use]
    pub fn explains(self, error: &StepError) -> bool {
        match self {
            Self::QueueGeometry => matches!(
                error,
                StepError::Open(OpenError {
                    step: OpenStep::CommandQueue,
                    failure: OpenFailure::QueueGeometry { .. }
                })
            ),
            Self::Issi => matches!(
                error,
                StepError::Open(OpenError {
                    step: OpenStep::Issi,
                    failure: OpenFailure::Issi { .. }
                })
            ),
            Self::PageCapacity => matches!(
                error,
                StepError::Open(OpenError {
                    step: OpenStep::BootPages | OpenStep::InitPages,
                    failure: OpenFailure::PageChunks { .. }
                })
            ),
            Self::CqeVersion => matches!(
                error,
                StepError::Open(OpenError {
                    step: OpenStep::Capabilities,
                    failure: OpenFailure::Unsupported {
                        what: "CQE version 1"
                    }
                })
            ),
            Self::EventQueues | Self::EventQueueSize => matches!(
                error,
                StepError::Open(OpenError {
                    step: OpenStep::CreateEq,
                    failure: OpenFailure::Command(CommandError {
                        failure: CommandFailure::Status { .. },
                        ..
                    }) | OpenFailure::Unsupported { .. }
                })
            ),
            Self::CompletionQueueSize => matches!(
                error,
                StepError::Cq(CqError::Size { .. })
                    | StepError::Rdma(RdmaError::Cq(CqError::Size { .. }))
            ),
            Self::QueuePairSize => matches!(
                error,
                StepError::CreateQp(CreateQpError::Cap(_))
                    | StepError::Rdma(RdmaError::CreateQp(CreateQpError::Cap(_)))
            ),
            Self::NoRoce => matches!(
                error,
                StepError::Gid(GidError::NoRoce | GidError::Index { index: 0, len: 0 })
            ),
            Self::NoRoceV2 => {
                matches!(error, StepError::Gid(GidError::Version(RoceVersion::V2)))
            }
        }
    }
}

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(error) => error.fmt(f),
            Self::Gid(error) => error.fmt(f),
            Self::Command(error) => error.fmt(f),
            Self::Cq(error) => error.fmt(f),
            Self::CreateQp(error) => error.fmt(f),
            Self::Modify(error) => error.fmt(f),
            Self::Mr(error) => error.fmt(f),
            Self::Post(error) => error.fmt(f),
            Self::Device(error) => error.fmt(f),
            Self::Rdma(error) => error.fmt(f),
            Self::Close(error) => error.fmt(f),
            Self::Wrong(what) => f.write_str(what),
        }
    }
}

macro_rules! from {
    ($($error:ty => $variant:ident),* $(,)?) => {
        $(impl From<$error> for StepError {
            fn from(error: $error) -> Self {
                Self::$variant(error)
            }
        })*
    };
}

from! {
    OpenError => Open,
    GidError => Gid,
    CommandError => Command,
    CqError => Cq,
    CreateQpError => CreateQp,
    ModifyError => Modify,
    MrError => Mr,
    PostError => Post,
    DeviceError => Device,
    RdmaError => Rdma,
    CloseError => Close,
    String => Wrong,
}

/// What is not as it has to be.
pub(super) fn wrong<T>(what: impl Into<String>) -> Result<T, StepError> {
    Err(StepError::Wrong(what.into()))
}
