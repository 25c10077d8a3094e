//! What a raw packet QP is beside its queues' data path, and how it is destroyed.

use core::sync::atomic::Ordering::Acquire;

use bareverbs_firmware_cmds::numbers::Qpn;

use crate::device::Device;
use crate::ethernet::objects::{Object, WorkQueue};
use crate::memory::dma::DmaMemory;
use crate::memory::record::DoorbellRecord;
use crate::memory::slots::{QpSlot, error_flags};
use crate::platform::Platform;
use crate::types::error::CommandError;
use crate::types::qp::QpState;
use crate::verbs::cq::deferred_destroy;
use crate::verbs::qp::caps::QpCap;

/// What a raw packet QP is beside its queues' data path.
pub(super) struct RawObject<'d, P: Platform> {
    // In the order in which they have to go.
    pub(super) tir: Option<Object<'d, P>>,
    pub(super) rq: Option<WorkQueue<'d, P>>,
    pub(super) sq: Option<WorkQueue<'d, P>>,
    pub(super) tis: Option<Object<'d, P>>,
    pub(super) device: &'d Device<'d, P>,
    pub(super) slot: &'d QpSlot,
    /// Index of its slot: the device's user index.
    pub(super) index: u32,
    pub(super) qpn: Qpn,
    pub(super) cap: QpCap,
    pub(super) state: QpState,
    /// What the poller reads.
    pub(super) block: DmaMemory,
    /// Where in it the counters by block begin.
    pub(super) heads: usize,
    pub(super) sq_sig_all: bool,
    pub(super) port: u8,
    /// `true` if the card can take VLAN tags out; whether it should, and whether the receive queue says so.
    pub(super) vlan_cap: bool,
    pub(super) strip_vlan: bool,
    pub(super) strips_vlan: bool,
    /// Another QP has a queue of this one (`mem::swap`).
    pub(super) swapped: bool,
    /// It was destroyed, as far as it could be.
    pub(super) gone: bool,
}

impl<P: Platform> RawObject<'_, P> {
    /// Its state: that of the last modify, and the errors that completions have reported since.
    pub(super) fn known_state(&self) -> QpState {
        let flags = self.slot.flags.load(Acquire);
        match self.state {
            QpState::Reset => QpState::Reset,
            _ if flags & error_flags::FAILED != 0 => QpState::Err,
            QpState::Rts if flags & error_flags::SEND_FAILED != 0 => QpState::Sqe,
            state => state,
        }
    }

    /// Whether these are the doorbell records of its queues, send and receive. A queue that it does not have cannot be told,
    /// and is never posted to.
    pub(super) fn has_records(&self, records: [DoorbellRecord; 2]) -> bool {
        let own = [&self.sq, &self.rq];
        own.into_iter().zip(records).all(|(queue, record)| {
            queue.as_ref().is_none_or(|queue| {
                let memory = queue.memory();
                record.is_at(memory.buffer.part(memory.record))
            })
        })
    }

    /// Destroys everything in order; goes on after a refusal, and returns the first one.
    pub(super) fn destroy(&mut self) -> Result<(), CommandError> {
        if core::mem::replace(&mut self.gone, true) {
            return Ok(());
        }
        let mut first = Ok(());
        let mut keep_first = |result: Result<(), CommandError>| {
            if first.is_ok() {
                first = result;
            }
        };
        if let Some(tir) = &mut self.tir {
            keep_first(tir.destroy());
        }
        let mut released = !self.swapped;
        for queue in [&mut self.rq, &mut self.sq].into_iter().flatten() {
            keep_first(queue.destroy());
            released &= queue.is_gone();
            if self.swapped {
                queue.keep_memory();
            }
        }
        if let Some(tis) = &mut self.tis {
            keep_first(tis.destroy());
        }
        let block = self.block.take();
        match released {
            true => self.slot.block.keep(block),
            false => self.device.quarantine(block),
        }
        let tables = &self.device.tables;
        // Before the QP is detached: the slot may belong to another QP right after it.
        let cqs = [0, 1].map(|side| self.slot.cqs[side].load(Acquire));
        deferred_destroy::detach(self.device, self.index);
        // Only now may the CQs be destroyed: the QP is on their lists.
        for index in cqs {
            if let Some(cq) = tables.cqs.get(index as usize) {
                deferred_destroy::release_cq(self.device, cq, index);
            }
        }
        first
    }
}

impl<P: Platform> Drop for RawObject<'_, P> {
    fn drop(&mut self) {
        if let Err(error) = self.destroy() {
            log::warn!("{} stays with the device: {error}", self.qpn);
        }
    }
}
