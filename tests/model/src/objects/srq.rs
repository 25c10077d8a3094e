//! Shared receive queues of all kinds.

use crate::memory::pages::Place;
use crate::memory::ring::Ring;

/// By which command it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SrqKind {
    /// CREATE_SRQ, ISSI 0.
    Basic,
    /// CREATE_XRC_SRQ.
    Xrc,
    /// CREATE_RMP.
    Rmp,
}

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct Srq {
    pub(crate) kind: SrqKind,
    /// The context as it lies in the host's pages.
    pub(crate) context: Vec<u8>,
    pub(crate) ring: Ring,
    pub(crate) log_size: u8,
    pub(crate) stride: u64,
    pub(crate) record: u64,
    pub(crate) pd: u32,
    pub(crate) cqn: Option<u32>,
    pub(crate) xrcd: Option<u32>,
    /// The index by which its completions name it.
    pub(crate) user_index: u32,
    /// WQEs in a ring rather than a list.
    pub(crate) cyclic: bool,
    /// WQEs without the segment of the link in front: `basic_cyclic_rcv_wqe`.
    pub(crate) basic: bool,
    /// Event below this many; 0 is off.
    pub(crate) limit: u16,
    pub(crate) users: u32,
    pub(crate) place: Place,
    /// Index of the next WQE, how many were consumed, how many were posted as of the last look.
    pub(crate) next: u16,
    pub(crate) consumed: u16,
    pub(crate) posted: u16,
    pub(crate) failed: bool,
}

impl Srq {
    pub(crate) fn size(&self) -> u32 {
        1 << self.log_size
    }

    pub(crate) fn available(&self) -> u16 {
        self.posted.wrapping_sub(self.consumed)
    }
}
