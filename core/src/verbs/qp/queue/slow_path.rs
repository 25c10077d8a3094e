//! Posting with a call: what is not usual of a work request (`send.rs`, two ways).

use crate::memory::send_ring::Wqe;
use crate::platform::Platform;
use crate::verbs::qp::queue::payload::Payload;
use crate::verbs::qp::queue::send::{Batch, Request, SendQueue};
use crate::verbs::qp::queue::slow_path_arguments::Late;
use crate::verbs::qp::queue::wr::PostError;
use crate::verbs::qp::route::service::QpType;

impl<P: Platform, T: QpType> SendQueue<'_, P, T> {
    /// Writes the WQE of a work request that [`Batch::build`] cannot, as `self.late` says, where the batch's new end is
    /// then.
    // `extern "C"` says to callers, also where its body is not known, that it does not unwind: no batch has to be dropped.
    #[cold]
    #[inline(never)]
    #[expect(improper_ctypes_definitions, reason = "only called from Rust")]
    extern "C" fn post_late<const FIXED: usize, D: Payload, F: FnOnce(Wqe<'_>)>(
        &mut self,
        wr_id: u64,
        fixed: F,
        data: D::Parts,
    ) -> Result<(), PostError> {
        let Late {
            cursor,
            head,
            opcode,
            imm,
            flags,
            ..
        } = self.late;
        let request = Request {
            wr_id,
            opcode,
            imm,
            flags,
        };
        let data = D::of(data);
        self.find_room(head)?;
        data.check::<T>(self.max_sge, self.max_inline)?;
        // There is room for a WQE of the largest size from this block on.
        let (wqe, at) = (self.ring.wqe(cursor), (cursor, head));
        let (cursor, last) = self.write::<FIXED, false, D>(wqe, at, &request, data, fixed);
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
    extern "C" fn post_alone<const FIXED: usize, D: Payload, F: FnOnce(Wqe<'_>)>(
        &mut self,
        wr_id: u64,
        fixed: F,
        data: D::Parts,
    ) -> Result<(), PostError> {
        self.post_late::<FIXED, D, F>(wr_id, fixed, data)?;
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
    pub(in crate::verbs::qp) fn build_late<const FIXED: usize, D: Payload>(
        &mut self,
        request: &Request,
        data: D,
        fixed: impl FnOnce(Wqe<'_>),
    ) -> Result<(), PostError> {
        let queue = &mut *self.queue;
        queue.late = Late {
            cursor: self.cursor,
            head: self.head,
            opcode: request.opcode,
            imm: request.imm,
            flags: request.flags,
            last: 0,
        };
        // A single work request is the first of its batch, which is known when this is compiled; so nothing comes
        // behind the call.
        let alone = core::mem::replace(&mut self.first, false);
        let posted = if alone {
            queue.post_alone::<FIXED, D, _>(request.wr_id, fixed, data.parts())
        } else {
            queue.post_late::<FIXED, D, _>(request.wr_id, fixed, data.parts())
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
