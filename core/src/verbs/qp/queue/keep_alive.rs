//! Keep-alives: work requests that show whether the other end of an idle connection is still there.

use crate::platform::Platform;
use crate::verbs::qp::queue::payload::Nothing;
use crate::verbs::qp::queue::send::{Request, SendQueue};
use crate::verbs::qp::queue::wr::{PostError, Remote, SendFlags};
use crate::verbs::qp::route::segments::{Rdma, WRITE};
use crate::verbs::qp::route::service::Rc;
use bareverbs_firmware_cmds::numbers::RKey;
use core::sync::atomic::Ordering::Acquire;

/// A keep-alive that was posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepAlive(u32);

impl<P: Platform> SendQueue<'_, P, Rc> {
    /// Posts an RDMA WRITE of no bytes, which the other end's card answers while its program notices nothing: no key is
    /// checked (IBTA volume 1, C9-88), but the QP there has to permit WRITEs. No poll hands its completion out, be it a
    /// success or a failure; but an armed CQ makes an event of it. It takes a place in the queue, which is free again as
    /// soon as a poll has come to the completion ([`Cq::take_keep_alives`](crate::Cq::take_keep_alives)), and those of work
    /// requests without completions before it.
    ///
    /// After a failure the QP is in [`Err`](crate::QpState::Err), as after that of any work request.
    pub fn post_keep_alive(&mut self) -> Result<KeepAlive, PostError> {
        let (cursor, head) = (self.cursor, self.head);
        self.find_room(head)?;
        let request = Request {
            wr_id: 0,
            imm: 0,
            flags: SendFlags::SIGNALED,
        };
        let nowhere = Remote {
            addr: 0,
            rkey: RKey(0),
        };
        let (wqe, at, segments) = (
            self.ring.wqe(cursor),
            (cursor, head),
            Rdma::<WRITE, _>((), nowhere),
        );
        let (behind, last) = self.write::<false, _, _>(wqe, at, &request, Nothing, segments);
        // This is recorded before the device has the work request.
        self.ring.wqe(cursor).record_silent(head);
        self.ring_for(behind, head.wrapping_add(1), last, true);
        Ok(KeepAlive(head))
    }

    /// Returns true once a poll has come to its completion.
    #[must_use]
    pub fn is_complete(&self, keep_alive: KeepAlive) -> bool {
        let tail = self.slot.sq_tail.load(Acquire);
        let since = tail.wrapping_sub(keep_alive.0).wrapping_sub(1);
        since < 1 << 31
    }
}
