//! Work requests of an XRC initiator: each names the SRQ that it is for, in a segment behind the control segment.

use crate::memory::send_ring::Wqe;
use crate::platform::Platform;
use crate::verbs::qp::queue::open_batch::OpenBatch;
use crate::verbs::qp::queue::send::{Batch, SendQueue};
use crate::verbs::qp::queue::wr::{PostError, SendWr};
use crate::verbs::qp::route::segments::{Route, RouteOf};
use crate::verbs::qp::route::service::XrcSend;
use bareverbs_firmware_cmds::numbers::Srqn;
use bareverbs_firmware_cmds::wqe::{SEGMENT_UNIT, XrcReservedWord, XrcWord};

impl Route for Srqn {
    const SIZE: usize = SEGMENT_UNIT;

    #[inline(always)]
    fn put(self, wqe: Wqe<'_>) {
        wqe.put(SEGMENT_UNIT, XrcWord::new(self), XrcReservedWord(0));
    }
}

impl RouteOf<XrcSend> for Srqn {}

impl<P: Platform> SendQueue<'_, P, XrcSend> {
    /// Posts one work request for an SRQ of the target's domain and rings the doorbell: `ibv_post_send` with
    /// `qp_type.xrc.remote_srqn`.
    pub fn post_xrc(&mut self, remote_srqn: Srqn, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.batch().push_xrc(remote_srqn, wr)
    }
}

impl<P: Platform> Batch<'_, '_, P, XrcSend> {
    /// Posts a work request that is known only at run time, for an SRQ of the target's domain.
    pub fn push_xrc(&mut self, remote_srqn: Srqn, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.push_to(remote_srqn, wr)
    }
}

impl<P: Platform> OpenBatch<'_, '_, P, XrcSend> {
    /// Of which SRQ of the target's domain the request at hand is: `ibv_wr_set_xrc_srqn`.
    #[inline(always)]
    pub fn set_xrc_srqn(&mut self, srqn: Srqn) {
        self.set_route(srqn);
    }
}
