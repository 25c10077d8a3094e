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

mod control;
mod queue;
mod route;

pub use crate::types::streams::DciStreams;
pub(crate) use control::create::{Codes, CreateQpArgs, CreatingObject};
#[cfg(feature = "foreign-qps")]
pub use control::foreign::ForeignQp;
#[cfg(feature = "infiniband")]
pub use control::gsi_source::{GsiSource, GsiSourceError};
pub use control::{
    attr::{self, PathMigState, QpAttr, QueriedQp},
    connect::Endpoint,
    cqe_scatter::CqeScatter,
    dci_streams::DciError,
    dct::{Dct, DctError, DctInitAttr},
    destroy::DestroyQpError,
    dyn_qp::DynQp,
    futures::{
        Creating, CreatingDynQp, CreatingQp, Destroying, DestroyingDynQp, DestroyingQp, ModifyingQp,
    },
    init_attr::{CreateQpError, QpInitAttr, QpInitHandles},
    modify::ModifyError,
    qp::Qp,
    states::{self as state, QpAttrMask, QpState, Transition, TransitionError, transition},
};
pub use queue::{
    keep_alive::KeepAlive,
    open_batch::OpenBatch,
    payload::{Inline, Payload},
    recv::{self, RecvQueue},
    send::{self, SendQueue},
    sizes::{self as caps, CapError, QpCap, QpKind, QueueLimits, QueueSizes, queue_sizes},
    umr::MrInterleaved,
    window::{MwBind, MwType},
    wr::{
        self, BadWr, Destination, PostError, RecvWr, Remote, SendData, SendFlags, SendOp, SendWr,
    },
};
pub(crate) use queue::{
    recv::check_list, slow_path_arguments::Late, window::WINDOW_LIST, wr::NO_ATOMICS,
};
pub(crate) use route::raw_packet::Packets;
pub use route::{
    dc::{DcAddress, DcRoute, DcTarget},
    segments::{Route, RouteOf},
    service::{
        Connected, Datagram, Dci, Gsi, OnePeer, OneReliablePeer, QpType, RawPacket, Rc, Reliable,
        Uc, Ud, XrcRecv, XrcSend,
    },
};
