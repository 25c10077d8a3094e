//! The objects that commands make, and the entries of queues: state alone. Nothing here names
//! [`Device`](crate::device::Device), which holds a [`Table`](table::Table) for each kind; what the device does with them is
//! in `impl Device` blocks elsewhere.

pub(crate) mod cq;
pub(crate) mod cqe;
pub(crate) mod domain;
pub(crate) mod eq;
pub(crate) mod mkey;
pub(crate) mod qp;
pub(crate) mod srq;
pub(crate) mod table;
pub(crate) mod uar;
pub(crate) mod umem;
pub(crate) mod wqe;

/// The kind of an object, in contexts and leak reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum ObjectKind {
    /// User access region.
    Uar = 1,
    /// Protection domain.
    Pd,
    /// Transport domain.
    TransportDomain,
    /// XRC domain.
    Xrcd,
    /// Event queue.
    Eq,
    /// Completion queue.
    Cq,
    /// Memory key.
    Mkey,
    /// Queue pair.
    Qp,
    /// Shared receive queue of any kind.
    Srq,
    /// Queue counter set.
    QCounter,
    /// Page of the host.
    Page,
    /// Entry of the port's L2 table.
    L2TableEntry,
    /// User context.
    Uctx,
    /// User memory.
    Umem,
    /// Device memory, by its place in BAR 0.
    Memic,
    /// Target of dynamic connections. Its number is one of the QPs'.
    Dct,
    /// Flow table.
    FlowTable = 32,
    /// Flow group.
    FlowGroup,
    /// Flow counters, by the number of the first of those allocated together.
    FlowCounter,
    /// Transport interface send.
    Tis,
    /// Transport interface receive.
    Tir,
    /// Table of receive queues.
    Rqt,
    /// Ethernet send queue.
    Sq,
    /// Ethernet receive queue.
    Rq,
    /// List of changes to headers.
    ModifyHeader,
}

/// Objects that were still there when the driver said that it was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leak {
    /// The kind of the object.
    pub kind: ObjectKind,
    /// Its number (memory keys: the index), or how many pages.
    pub number: u32,
}
