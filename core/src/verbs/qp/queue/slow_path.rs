//! Posting with a call: what is not usual of a work request (`send.rs`, two ways).

use crate::platform::Platform;
use crate::verbs::qp::queue::payload::Payload;
use crate::verbs::qp::queue::send::{Batch, Request, SendQueue};
use crate::verbs::qp::queue::slow_path_arguments::Late;
use crate::verbs::qp::queue::wr::PostError;
use crate::verbs::qp::route::segments::Segments;
use crate::verbs::qp::route::service::QpType;

impl<P: Platform, T: QpType> SendQueue<'_, P, T> {
    /// Writes the WQE of a work request that [`Batch::build`] cannot, as `self.late` says, where the batch's new end is
    /// then.
    // `extern "C"` says to callers, also where its body is not known, that it does not unwind: no batch has to be dropped.
    #[cold]
    #[inline(never)]
    #[expect(improper_ctypes_definitions, reason = "only called from Rust")]
    extern "C" fn post_late<D: Payload, S: Segments>(
        &mut self,
        wr_id: u64,
        segments: S,
        data: D::Parts,
    ) -> Result<(), PostError> {
        let Late {
            cursor,
            head,
            imm,
            flags,
            ..
        } = self.late;
        let request = Request { wr_id, imm, flags };
        let data = D::of(data);
        self.find_room(head)?;
        data.check::<T>(self.max_sge.min(S::MAX_SGE), self.max_inline)?;
        // There is room for a WQE of the largest size from this block on.
        let (wqe, at) = (self.ring.wqe(cursor), (cursor, head));
        let (cursor, last) = self.write::<false, D, S>(wqe, at, &request, data, segments);
        self.late.cursor = cursor;
        self.late.head = head.wrapping_add(1);
        self.late.last = last;
        Ok(())
    }

    /// The same for the first work request of a batch, and gives it to the device.
    // `extern "C"` says to callers, also where its body is not known, that it does not unwind: no batch has to be dropped.
    #[cold]
    #[inline(never)]
    #[expect(improper_ctypes_definitions, reason = "only called from Rust")]
    extern "C" fn post_alone<D: Payload, S: Segments>(
        &mut self,
        wr_id: u64,
        segments: S,
        data: D::Parts,
    ) -> Result<(), PostError> {
        self.post_late::<D, S>(wr_id, segments, data)?;
        let Late {
            cursor, head, last, ..
        } = self.late;
        self.ring_for(cursor, head, last, true);
        Ok(())
    }
}

impl<P: Platform, T: QpType> Batch<'_, '_, P, T> {
    /// As [`build`](Self::build), where it takes more than that.
    #[inline(always)]
    pub(in crate::verbs::qp) fn build_late<D: Payload, S: Segments>(
        &mut self,
        request: &Request,
        data: D,
        segments: S,
    ) -> Result<(), PostError> {
        let queue = &mut *self.queue;
        queue.late = Late {
            cursor: self.cursor,
            head: self.head,
            imm: request.imm,
            flags: request.flags,
            last: 0,
        };
        // A single work request is the first of its batch, which is known when this is compiled; so nothing comes
        // behind the call.
        let alone = core::mem::replace(&mut self.first, false);
        let posted = if alone {
            queue.post_alone::<D, S>(request.wr_id, segments, data.parts())
        } else {
            queue.post_late::<D, S>(request.wr_id, segments, data.parts())
        };
        if posted.is_ok() {
            let Late {
                cursor, head, last, ..
            } = queue.late;
            (self.cursor, self.head) = (cursor, head);
            if alone {
                self.from = head;
            } else {
                self.last = last;
            }
        }
        posted
    }
}
