//! CQs by handle, for callers that create QPs on a CQ that another caller polls.

use core::fmt;
use core::sync::atomic::Ordering::Acquire;

use crate::device::Device;
use crate::memory::slots::CqSlot;
use crate::platform::Platform;
use crate::verbs::cq::deferred_destroy::release_cq;
use crate::verbs::cq::{Cq, count_user};
use bareverbs_firmware_cmds::numbers::Cqn;

/// Stands for a CQ where QPs are created ([`QpInitHandles`](crate::verbs::qp::QpInitHandles)), while its owner goes on polling it.
///
/// It counts as a QP on the CQ: until it is dropped [`Cq::destroy`] refuses, and a CQ that is dropped before is destroyed
/// with it, if it is the last one.
pub struct CqHandle<'d, P: Platform> {
    pub(crate) device: &'d Device<'d, P>,
    pub(crate) slot: &'d CqSlot,
    pub(crate) index: u32,
    pub(crate) cqn: Cqn,
}

impl<'d, P: Platform> Cq<'d, P> {
    /// A handle of it.
    #[must_use]
    pub fn handle(&self) -> CqHandle<'d, P> {
        count_user(self.slot);
        CqHandle {
            device: self.device,
            slot: self.slot,
            index: self.index,
            cqn: self.cqn,
        }
    }
}

impl<'d, P: Platform> CqHandle<'d, P> {
    /// The device that it belongs to.
    #[must_use]
    pub fn device(&self) -> &'d Device<'d, P> {
        self.device
    }

    /// The CQ's number.
    #[must_use]
    pub fn cqn(&self) -> Cqn {
        self.cqn
    }
}

/// The events of a CQ, for a caller that is not the one who polls it: it looks here whether the event that
/// [`Cq::arm`] asked for has come.
#[derive(Debug)]
pub struct CqEvents<'d> {
    slot: &'d CqSlot,
    seen: u32,
}

impl<'d, P: Platform> Cq<'d, P> {
    /// Its events from now on. After the CQ is destroyed they may be another one's.
    #[must_use]
    pub fn events(&self) -> CqEvents<'d> {
        CqEvents {
            slot: self.slot,
            seen: self.slot.events.load(Acquire),
        }
    }
}

impl CqEvents<'_> {
    /// Returns `true` if an event came since the last call. [`Cq::take_event`] is independent of this.
    pub fn take(&mut self) -> bool {
        let events = self.slot.events.load(Acquire);
        let new = events != self.seen;
        self.seen = events;
        new
    }
}

impl<P: Platform> Clone for CqHandle<'_, P> {
    fn clone(&self) -> Self {
        count_user(self.slot);
        Self { ..*self }
    }
}

impl<P: Platform> Drop for CqHandle<'_, P> {
    fn drop(&mut self) {
        release_cq(self.device, self.slot, self.index);
    }
}

impl<P: Platform> fmt::Debug for CqHandle<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CqHandle").field(&self.cqn).finish()
    }
}
