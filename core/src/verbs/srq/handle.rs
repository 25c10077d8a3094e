//! SRQs by handle, for callers that create QPs on an SRQ that another caller posts to.

use core::fmt;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};

use crate::device::Device;
use crate::memory::slots::SrqSlot;
use crate::platform::Platform;
use crate::verbs::srq::Srq;
use bareverbs_firmware_cmds::numbers::Srqn;

/// Stands for an SRQ where QPs are created ([`QpInitHandles`](crate::verbs::qp::QpInitHandles)), while its owner goes on posting
/// to it.
///
/// It counts as a QP on the SRQ: until it is dropped [`Srq::destroy`] refuses, and an SRQ that is dropped stays with the
/// device.
pub struct SrqHandle<'d, P: Platform> {
    pub(crate) device: &'d Device<'d, P>,
    pub(crate) slot: &'d SrqSlot,
    pub(crate) index: u32,
    pub(crate) srqn: Srqn,
    /// For XRC.
    pub(crate) xrc: bool,
}

impl<'d, P: Platform> Srq<'d, P> {
    /// A handle of it.
    #[must_use]
    pub fn handle(&self) -> SrqHandle<'d, P> {
        self.slot.users.fetch_add(1, AcqRel);
        SrqHandle {
            device: self.device,
            slot: self.slot,
            index: self.index,
            srqn: self.srqn,
            xrc: self.is_xrc(),
        }
    }
}

impl<'d, P: Platform> SrqHandle<'d, P> {
    /// The device that it belongs to.
    #[must_use]
    pub fn device(&self) -> &'d Device<'d, P> {
        self.device
    }

    /// The SRQ's number.
    #[must_use]
    pub fn srqn(&self) -> Srqn {
        self.srqn
    }

    /// Receives that the SRQ holds.
    #[must_use]
    pub fn max_wr(&self) -> u32 {
        self.slot.mask.load(Relaxed)
    }
}

impl<P: Platform> Clone for SrqHandle<'_, P> {
    fn clone(&self) -> Self {
        self.slot.users.fetch_add(1, AcqRel);
        Self { ..*self }
    }
}

impl<P: Platform> Drop for SrqHandle<'_, P> {
    fn drop(&mut self) {
        self.slot.users.fetch_sub(1, AcqRel);
    }
}

impl<P: Platform> fmt::Debug for SrqHandle<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SrqHandle").field(&self.srqn).finish()
    }
}
