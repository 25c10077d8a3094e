//! The commands that make send and receive queues in a domain, on memory that was laid out before.

use bareverbs_firmware_cmds::rq::CreateRqIn;
use bareverbs_firmware_cmds::sq::CreateSqIn;

use crate::ethernet::domain::EthernetDomain;
use crate::ethernet::error::EthernetError;
use crate::ethernet::objects::{Kind, QueueMemory, WorkQueue, state};
use crate::platform::Platform;
use crate::verbs::pd::Pd;

/// Binary logarithm of a send queue's block.
const LOG_BLOCK: u8 = 6;

/// Where a queue's completions go.
#[derive(Debug, Clone, Copy)]
pub(super) struct Completes {
    /// The CQ's number.
    pub(super) cqn: u32,
    /// The index by which its completions name the queue.
    pub(super) user_index: u32,
}

impl<'d, P: Platform> EthernetDomain<'d, P> {
    /// A send queue of `blocks` blocks of 64 bytes, in reset.
    pub(super) fn make_sq(
        &self,
        pd: &Pd<'d, P>,
        memory: QueueMemory<'d, P>,
        blocks: u32,
        tisn: u32,
        completes: Completes,
    ) -> Result<WorkQueue<'d, P>, EthernetError> {
        let (device, limits) = (self.device, &self.limits);
        memory.buffer.write_be64(memory.record, 0);
        let mut command = CreateSqIn::new();
        let context = command.ctx_mut();
        context
            .set_flush_in_error_en(true)
            .set_state(state::RESET)
            .set_min_wqe_inline_mode(limits.queue_inline_mode)
            .set_ts_format(limits.send_clock)
            .set_user_index(completes.user_index)
            .set_cqn(completes.cqn)
            .set_tis_lst_sz(1)
            .set_tis_num_0(tisn);
        let wq = context.wq_mut();
        wq.set_pd(pd.pdn().number())
            .set_uar_page(device.qp_uar().number())
            .set_log_wq_stride(LOG_BLOCK)
            .set_log_wq_sz(blocks.ilog2() as u8);
        let pages = memory.describe(wq);
        WorkQueue::create(device, Kind::Sq, memory, &pages, |tail| {
            let created = device.execute_with(&command, tail, &mut []);
            created.map(|out| out.sqn())
        })
    }

    /// A receive queue of `entries` requests of `stride` bytes, in reset.
    pub(super) fn make_rq(
        &self,
        pd: &Pd<'d, P>,
        memory: QueueMemory<'d, P>,
        (entries, stride): (u32, u32),
        completes: Completes,
    ) -> Result<WorkQueue<'d, P>, EthernetError> {
        let device = self.device;
        memory.buffer.write_be64(memory.record, 0);
        let mut command = CreateRqIn::new();
        let context = command.ctx_mut();
        context
            // Tags stay in the frame.
            .set_vsd(true)
            .set_flush_in_error_en(true)
            .set_state(state::RESET)
            .set_ts_format(self.limits.receive_clock)
            .set_user_index(completes.user_index)
            .set_counter_set_id(device.queue_counter_set())
            .set_cqn(completes.cqn);
        let wq = context.wq_mut();
        wq.set_pd(pd.pdn().number())
            .set_log_wq_stride(stride.ilog2() as u8)
            .set_log_wq_sz(entries.ilog2() as u8);
        let pages = memory.describe(wq);
        WorkQueue::create(device, Kind::Rq, memory, &pages, |tail| {
            let created = device.execute_with(&command, tail, &mut []);
            created.map(|out| out.rqn())
        })
    }
}
