//! Queue pairs.
//!
//! The type of a QP is part of its Rust type, so what a transport does not have does not compile:
//!
//! ```compile_fail
//! use bareverbs_core::{Platform, Remote, SendFlags, Sge, Uc, SendQueue};
//! fn read<P: Platform>(uc: &mut SendQueue<'_, P, Uc>, from: Remote, to: Sge) {
//!     let _ = uc.batch().read(1, SendFlags::SIGNALED, from, &[to]); // only reliable connections can READ
//! }
//! ```
//!
//! ```
//! use bareverbs_core::{Platform, PostError, Rc, Remote, SendFlags, SendQueue, Sge};
//! fn read<P: Platform>(rc: &mut SendQueue<'_, P, Rc>, from: Remote, to: Sge) -> Result<(), PostError> {
//!     rc.batch().read(1, SendFlags::SIGNALED, from, &[to]) // the doorbell is rung when the batch is dropped
//! }
//! ```
//!
//! The halves of a QP go to two threads, but one half cannot be in two places:
//!
//! ```compile_fail
//! use bareverbs_core::{Platform, Qp, Rc};
//! fn twice<P: Platform>(qp: &mut Qp<'_, P, Rc>) {
//!     let first = qp.send_queue();
//!     let second = qp.send_queue();
//!     first.batch();
//! }
//! ```

mod alternate;
pub mod attr;
pub mod caps;
mod connect;
mod cqe_scatter;
pub(crate) mod create;
pub(crate) mod creating;
mod dci;
mod dct;
mod destroying;
mod doorbell;
#[cfg(feature = "infiniband")]
mod gsi_source;
mod init;
mod keep_alive;
mod kind;
pub(crate) mod late;
mod modify;
mod modifying;
mod multicast;
mod object;
mod open;
mod open_dc;
pub(crate) mod packet;
mod payload;
mod query;
pub mod recv;
pub mod send;
pub mod state;
mod streams;
mod transition;
mod umr;
mod unusual;
mod window;
pub mod wr;
mod xrc;

pub use crate::types::streams::DciStreams;
pub use attr::{PathMigState, QpAttr, QueriedQp};
pub use caps::{CapError, QpCap, QpKind, QueueLimits, QueueSizes, queue_sizes};
pub use connect::Endpoint;
pub use cqe_scatter::CqeScatter;
pub use create::Qp;
pub use creating::CreatingQp;
pub use dci::{DcAddress, DcRoute, DcTarget};
pub use dct::{Dct, DctError, DctInitAttr};
pub use destroying::DestroyingQp;
#[cfg(feature = "infiniband")]
pub use gsi_source::{GsiSource, GsiSourceError};
pub use init::{CreateQpError, QpInitAttr, QpInitHandles};
pub use keep_alive::KeepAlive;
pub use kind::{
    Connected, Datagram, Dci, Gsi, OnePeer, OneReliablePeer, QpType, RawPacket, Rc, Reliable, Uc,
    Ud, XrcRecv, XrcSend,
};
pub use modify::ModifyError;
pub use modifying::ModifyingQp;
pub use object::DestroyQpError;
pub use open::OpenBatch;
pub use payload::{Inline, Payload};
pub use recv::RecvQueue;
pub use send::SendQueue;
pub use state::{QpAttrMask, QpState, Transition, TransitionError, transition};
pub use streams::DciError;
pub use umr::MrInterleaved;
pub(crate) use window::WINDOW_LIST;
pub use window::{MwBind, MwType};
pub(crate) use wr::NO_ATOMICS;
pub use wr::{BadWr, Destination, PostError, RecvWr, Remote, SendData, SendFlags, SendOp, SendWr};
