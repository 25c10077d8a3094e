//! Destroying a QP: its commands, and what the host gives back after them.

use core::fmt;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use core::task::Waker;

use bareverbs_firmware_cmds::qp::{DestroyQpIn, Qp2RstIn};

use crate::device::in_flight::{InFlight, SlotClass};
use crate::platform::Platform;
use crate::types::error::CommandError;
use crate::types::qp::{QpKind, QpState};
use crate::verbs::cq::deferred_destroy;
use crate::verbs::qp::control::object::{QpObject, UnderWay};

/// Why a QP was not destroyed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DestroyQpError {
    /// It is in multicast groups.
    Attached {
        /// The number of groups.
        groups: u32,
    },
    /// The firmware refused.
    Command(CommandError),
}

impl fmt::Display for DestroyQpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attached { groups } => {
                write!(f, "the QP is attached to {groups} multicast groups")
            }
            Self::Command(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for DestroyQpError {}

impl<P: Platform> QpObject<'_, P> {
    /// Checks whether it may be destroyed.
    pub(crate) fn check_destroy(&self) -> Result<(), DestroyQpError> {
        match self.groups {
            0 => Ok(()),
            groups => Err(DestroyQpError::Attached { groups }),
        }
    }

    /// Moves destruction on, begins it if need be, and looks whether it is over: after a success neither the object nor its
    /// queues are used again, after a failure it can be begun again.
    pub(crate) fn try_destroy(
        &mut self,
        class: SlotClass,
        waker: Option<&Waker>,
    ) -> Option<Result<(), CommandError>> {
        loop {
            match self.under_way {
                UnderWay::Modify(transit) => {
                    // The firmware executes commands in any order: the last one of the QP's own has to be over. Whatever it
                    // did to the state, RESET ends it.
                    let answer = self.device.look_no_output(&transit.flight, waker)?;
                    self.settle_gid(transit.sgid, answer);
                    self.under_way = UnderWay::Reset(InFlight::Idle);
                }
                UnderWay::None if self.state == QpState::Reset => {
                    self.under_way = UnderWay::Destroy(InFlight::Idle);
                }
                UnderWay::None => self.under_way = UnderWay::Reset(InFlight::Idle),
                UnderWay::Reset(mut flight) => {
                    if !flight.is_posted() {
                        let mut reset = Qp2RstIn::new();
                        reset.set_qpn(self.qpn.number());
                        if let Err(error) = self.device.begin_no_output(&mut flight, class, &reset)
                        {
                            return self.end_teardown(Err(error));
                        }
                        self.under_way = UnderWay::Reset(flight);
                    }
                    // In order: first nothing more arrives, then the object goes. A refusal shows in the next command.
                    let _ = self.device.look_no_output(&flight, waker)?;
                    self.under_way = UnderWay::Destroy(InFlight::Idle);
                }
                UnderWay::Destroy(mut flight) => {
                    if !flight.is_posted() {
                        let mut destroy = DestroyQpIn::new();
                        destroy.set_qpn(self.qpn.number());
                        if let Err(error) =
                            self.device.begin_no_output(&mut flight, class, &destroy)
                        {
                            return self.end_teardown(Err(error));
                        }
                        self.under_way = UnderWay::Destroy(flight);
                    }
                    let answer = self.device.look_no_output(&flight, waker)?;
                    return self.end_teardown(answer);
                }
                UnderWay::Gone => return Some(Ok(())),
            }
        }
    }

    fn end_teardown(
        &mut self,
        answer: Result<(), CommandError>,
    ) -> Option<Result<(), CommandError>> {
        self.under_way = UnderWay::None;
        if answer.is_ok() {
            self.release(true);
        }
        Some(answer)
    }

    /// The host's part of destruction. `gone`: the device no longer uses the block.
    pub(in crate::verbs::qp) fn release(&mut self, gone: bool) {
        self.under_way = UnderWay::Gone;
        // The queues that point into it are not used again, unless another QP has them: then it stays allocated until
        // the device is closed, which all QPs borrow.
        let block = self.block.take();
        let slot = self.slot;
        if gone {
            self.device.release_gid(self.sgid.take());
        }
        if gone && !self.queues_swapped {
            slot.block.keep(block);
        } else {
            self.device.quarantine(block);
        }
        let tables = &self.device.tables;
        // Before the QP is detached: the slot may belong to another QP right after it.
        let cqs = [slot.cqs[0].load(Acquire), slot.cqs[1].load(Acquire)];
        let srq = self.srq.and_then(|index| tables.srqs.get(index as usize));
        deferred_destroy::detach(self.device, self.index);
        // Only now may the CQs be destroyed: the QP is on their lists.
        for index in cqs {
            if let Some(cq) = tables.cqs.get(index as usize) {
                deferred_destroy::release_cq(self.device, cq, index);
            }
        }
        if let Some(srq) = srq {
            srq.users.fetch_sub(1, AcqRel);
        }
        if self.kind.is_xrc() && gone {
            self.device.release_xrc_base();
        }
        if self.kind == QpKind::Gsi && gone {
            self.device.gsi_taken.store(false, Release);
        }
    }
}

impl<P: Platform> Drop for QpObject<'_, P> {
    fn drop(&mut self) {
        if self.is_gone() {
            return;
        }
        let device = self.device;
        if let Err(error) = device.until(|| self.try_destroy(SlotClass::Ordinary, None)) {
            log::warn!("{} stays with the device: {error}", self.qpn);
            self.release(false);
        }
    }
}
