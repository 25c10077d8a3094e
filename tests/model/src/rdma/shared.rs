//! Receiving from shared queues: linked lists of WQEs, limits.

use crate::bus::io::Io;
use crate::device::Device;
use crate::objects::eq::event;
use crate::objects::qp::EVENT_SRQ;
use crate::objects::wqe::{next_wqe, scatter_list};
use crate::roce::env::{BadWqe, RecvWork, Syndrome};
use bareverbs_firmware_cmds::doorbell::ReceiveRecord;
use bareverbs_firmware_cmds::eq::QpEvents;
use bareverbs_firmware_cmds::wqe::SEGMENT_UNIT;

impl Device {
    fn read_shared_record(&mut self, io: &mut Io<'_>, srqn: u32) -> bool {
        let Some(srq) = self.srqs.get_mut(srqn) else {
            return false;
        };
        match io.read_be32(srq.record) {
            Ok(record) => {
                srq.posted = ReceiveRecord(record).counter();
                true
            }
            Err(_) => false,
        }
    }

    /// Fetches the next WQE of a shared queue.
    pub(crate) fn fetch_shared(
        &mut self,
        io: &mut Io<'_>,
        srqn: u32,
        work: &mut RecvWork,
    ) -> Result<bool, BadWqe> {
        let bad = BadWqe(Syndrome::LocalQpOperation);
        let terminator = self.list_terminator();
        let Some(srq) = self.srqs.get(srqn) else {
            return Ok(false);
        };
        let watched = srq.limit != 0;
        // With a limit armed every fetch looks at the record, or a queue that was filled again would seem to run dry.
        if (srq.available() == 0 || watched) && !self.read_shared_record(io, srqn) {
            return Err(bad);
        }
        let Some(srq) = self.srqs.get_mut(srqn) else {
            return Ok(false);
        };
        if srq.failed {
            return Err(bad);
        }
        let available = srq.available();
        if available == 0 {
            return Ok(false);
        }
        let index = if srq.cyclic {
            (u32::from(srq.consumed) & (srq.size() - 1)) as u16
        } else {
            srq.next
        };
        work.index = index;
        let mut wqe = [0; 2048];
        let len = (srq.stride as usize).min(wqe.len());
        let wqe = &mut wqe[..len];
        let sound = u32::from(available) <= srq.size()
            && u32::from(index) < srq.size()
            && srq
                .ring
                .read(io, u64::from(index) * srq.stride, wqe)
                .is_ok();
        if !sound {
            log::warn!("shared receive queue {srqn:#x}: WQE {index:#x} of {available} posted");
            srq.failed = true;
            self.srq_event(io, srqn, event::SRQ_CATAS);
            return Err(bad);
        }
        srq.consumed = srq.consumed.wrapping_add(1);
        // The link is in front of the entries of cyclic queues as well, unless these are basic: UCX's RMPs and DPDK's.
        let front = if srq.basic { 0 } else { SEGMENT_UNIT };
        srq.next = next_wqe(wqe);
        scatter_list(wqe.get(front..).unwrap_or(&[]), terminator, work);
        self.check_limit(io, srqn);
        Ok(true)
    }

    /// Sends the limit event if the queue is below its limit; once per arming.
    pub(crate) fn check_limit(&mut self, io: &mut Io<'_>, srqn: u32) {
        let Some(srq) = self.srqs.get_mut(srqn) else {
            return;
        };
        if srq.limit != 0 && srq.available() < srq.limit {
            srq.limit = 0;
            self.srq_event(io, srqn, event::SRQ_LIMIT);
        }
    }

    /// Arms the limit.
    pub(crate) fn arm_limit(&mut self, io: &mut Io<'_>, srqn: u32, limit: u16) {
        if let Some(srq) = self.srqs.get_mut(srqn) {
            srq.limit = limit;
        }
        self.read_shared_record(io, srqn);
        self.check_limit(io, srqn);
    }

    fn srq_event(&mut self, io: &mut Io<'_>, srqn: u32, kind: u8) {
        let mut data = QpEvents::ZERO;
        data.set_type(EVENT_SRQ).set_qpn_rqn_sqn(srqn);
        self.event(io, kind, 0, &data.0);
    }
}
