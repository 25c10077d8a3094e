//! Where work requests stand that are not posted without a call (`send.rs`, two ways).

use crate::memory::send_ring::Cursor;
use crate::verbs::qp::queue::wr::SendFlags;

/// Arguments of `SendQueue::post_late` beside those in registers: more arguments would lie on the stack, for which every post
/// would set it up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Late {
    /// Where the batch ends.
    pub(in crate::verbs::qp) cursor: Cursor,
    pub(in crate::verbs::qp) head: u32,
    pub(in crate::verbs::qp) imm: u32,
    pub(in crate::verbs::qp) flags: SendFlags,
    /// The first word of the WQE, once it is written.
    pub(in crate::verbs::qp) last: u64,
}

impl Late {
    /// Arguments before any call.
    pub(crate) const fn none(cursor: Cursor) -> Self {
        Self {
            cursor,
            head: 0,
            imm: 0,
            flags: SendFlags::empty(),
            last: 0,
        }
    }
}
