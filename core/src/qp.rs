//! Queue pairs.

pub mod attr;
pub mod caps;
mod create;
mod kind;
mod modify;
pub mod recv;
pub mod send;
pub mod state;
pub mod wr;

pub use attr::{QpAttr, QueriedQp};
pub use caps::{CapError, QpCap, QpKind, QueueLimits, QueueSizes, queue_sizes};
pub use create::{CreateQpError, Qp, QpInitAttr};
pub use kind::{Connected, Datagram, Gsi, QpType, Rc, Reliable, Uc, Ud};
pub use modify::ModifyError;
pub use recv::RecvQueue;
pub use send::{Inline, Payload, SendQueue};
pub use state::{QpAttrMask, QpState, Transition, TransitionError, transition};
pub use wr::{BadWr, Destination, PostError, RecvWr, Remote, SendData, SendFlags, SendOp, SendWr};
