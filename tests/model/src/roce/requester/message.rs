//! A message that the requester keeps, from the fetch of its WQE to its completion.

use super::super::env::{SendOp, SendWork, Syndrome};
use super::super::psn::Psn;

#[derive(Default)]
pub(super) struct Message {
    pub(super) work: SendWork,
    pub(super) first: Psn,
    /// PSNs that it occupies.
    pub(super) packets: u32,
    pub(super) len: u32,
    /// Its number, for end-to-end credits.
    pub(super) ssn: u32,
    /// A local error; completed when everything before it is.
    pub(super) failed: Option<Syndrome>,
    /// [`SendOp::Local`] only.
    pub(super) executed: bool,
    /// The bytes that came for it and go into its completion.
    pub(super) for_cqe: Vec<u8>,
}

impl Message {
    pub(super) fn is_read(&self) -> bool {
        matches!(self.work.op, SendOp::Read | SendOp::Atomic(_))
    }

    pub(super) fn is_local(&self) -> bool {
        self.work.op == SendOp::Local
    }

    pub(super) fn takes_recv(&self) -> bool {
        matches!(
            self.work.op,
            SendOp::Send | SendOp::SendImm(_) | SendOp::SendInv(_) | SendOp::WriteImm(_)
        )
    }

    /// It ends without having begun, as its stream is in error.
    pub(super) fn is_flushed(&self) -> bool {
        self.failed == Some(Syndrome::WorkRequestFlushed)
    }

    pub(super) fn end(&self) -> Psn {
        self.first.plus(self.packets)
    }
}
