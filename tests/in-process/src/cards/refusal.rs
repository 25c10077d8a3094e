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
    /// The firmware wants more pages than the driver has chunks for.
    PageRoom,
    /// Completions do not name their queue pair.
    CqeVersion,
    /// Fewer event queues than the driver was told to use.
    EventQueues,
    /// Event queues are too small.
    EventQueueSize,
    /// Completion queues are too small.
    CompletionQueueSize,
    /// Queue pairs are too small.
    QueuePairSize,
    /// No RoCE, or no room for a single address.
    NoRoce,
    /// Only RoCE v1.
    NoRoceV2,
}

/// What went wrong, as the driver or this test says it.
#[derive(Debug)]
pub enum Trouble {
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
        Self::PageRoom,
        Self::CqeVersion,
        Self::EventQueues,
        Self::EventQueueSize,
        Self::CompletionQueueSize,
        Self::QueuePairSize,
        Self::NoRoce,
        Self::NoRoceV2,
    ];

    /// Whether this is how the driver names it.
    #[must_use]
    pub fn explains(self, trouble: &Trouble) -> bool {
        match self {
            Self::QueueGeometry => matches!(
                trouble,
                Trouble::Open(OpenError {
                    step: OpenStep::CommandQueue,
                    failure: OpenFailure::QueueGeometry { .. }
                })
            ),
            Self::Issi => matches!(
                trouble,
                Trouble::Open(OpenError {
                    step: OpenStep::Issi,
                    failure: OpenFailure::Issi { .. }
                })
            ),
            Self::PageRoom => matches!(
                trouble,
                Trouble::Open(OpenError {
                    step: OpenStep::BootPages | OpenStep::InitPages,
                    failure: OpenFailure::PageChunks { .. }
                })
            ),
            Self::CqeVersion => matches!(
                trouble,
                Trouble::Open(OpenError {
                    step: OpenStep::Capabilities,
                    failure: OpenFailure::Unsupported {
                        what: "CQE version 1"
                    }
                })
            ),
            Self::EventQueues | Self::EventQueueSize => matches!(
                trouble,
                Trouble::Open(OpenError {
                    step: OpenStep::CreateEq,
                    failure: OpenFailure::Command(CommandError {
                        failure: CommandFailure::Status { .. },
                        ..
                    }) | OpenFailure::Unsupported { .. }
                })
            ),
            Self::CompletionQueueSize => matches!(
                trouble,
                Trouble::Cq(CqError::Size { .. })
                    | Trouble::Rdma(RdmaError::Cq(CqError::Size { .. }))
            ),
            Self::QueuePairSize => matches!(
                trouble,
                Trouble::CreateQp(CreateQpError::Cap(_))
                    | Trouble::Rdma(RdmaError::CreateQp(CreateQpError::Cap(_)))
            ),
            Self::NoRoce => matches!(
                trouble,
                Trouble::Gid(GidError::NoRoce | GidError::Index { index: 0, len: 0 })
            ),
            Self::NoRoceV2 => {
                matches!(trouble, Trouble::Gid(GidError::Version(RoceVersion::V2)))
            }
        }
    }
}

impl fmt::Display for Trouble {
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
        $(impl From<$error> for Trouble {
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
pub(super) fn wrong<T>(what: impl Into<String>) -> Result<T, Trouble> {
    Err(Trouble::Wrong(what.into()))
}
