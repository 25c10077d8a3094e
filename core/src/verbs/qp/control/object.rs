//! What a QP is beside its queues, and how it is destroyed.

use core::fmt;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use core::task::Waker;

use bareverbs_firmware_cmds::numbers::{Pdn, Qpn};
use bareverbs_firmware_cmds::qp::{DestroyQpIn, Qp2RstIn};

use crate::device::Device;
use crate::device::in_flight::{InFlight, SlotClass};
use crate::memory::dma::DmaMemory;
use crate::memory::slots::{QpSlot, error_flags};
use crate::platform::Platform;
use crate::types::error::CommandError;
use crate::types::sge::Access;
use crate::verbs::cq::deferred_destroy;
use crate::verbs::qp::control::states::QpState;
use crate::verbs::qp::queue::sizes::{QpKind, QueueSizes};

/// What a QP is beside its queues: all of the control path, which is the same code for every type.
pub(crate) struct QpObject<'d, P: Platform> {
    pub(crate) kind: QpKind,
    pub(crate) device: &'d Device<'d, P>,
    pub(crate) slot: &'d QpSlot,
    /// Given back when it is destroyed.
    pub(crate) block: DmaMemory,
    /// Another QP has a queue that lies in the block (`mem::swap`), or had when this was last checked.
    pub(crate) queues_swapped: bool,
    /// Index of its slot: the device's user index.
    pub(crate) index: u32,
    pub(crate) qpn: Qpn,
    pub(crate) pdn: Pdn,
    pub(crate) sizes: QueueSizes,
    pub(crate) state: QpState,
    pub(crate) sq_sig_all: bool,
    /// An initiator of which a stream may fail alone.
    pub(crate) outlives_errors: bool,
    /// Numbers of the CQs, send and receive.
    pub(crate) cqns: [u32; 2],
    /// What modify has set so far and later transitions need again.
    pub(crate) port: u8,
    pub(crate) access: Access,
    pub(crate) responder_depth: u8,
    pub(crate) srq: Option<u32>,
    /// Multicast groups that it is in.
    pub(crate) groups: u32,
    pub(crate) under_way: UnderWay,
}

/// A transition whose command is with the firmware, and what is recorded once that has been carried out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transit {
    pub(crate) flight: InFlight,
    pub(crate) to: QpState,
    /// As they are then.
    pub(crate) port: u8,
    pub(crate) access: Access,
    pub(crate) responder_depth: u8,
}

/// What was begun and is not over.
#[derive(Debug, Clone, Copy)]
pub(crate) enum UnderWay {
    /// Nothing.
    None,
    Modify(Transit),
    /// Destruction: the QP goes to RESET, so that nothing more arrives.
    Reset(InFlight),
    /// It is destroyed.
    Destroy(InFlight),
    /// It is gone, and the object holds nothing any more.
    Gone,
}

/// Why a QP was not destroyed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DestroyQpError {
    /// It is in multicast groups.
    Attached {
        /// How many.
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
    /// Its state: that of the last modify, and the errors that completions have reported since (IBTA volume 1, 10.3.1).
    pub(crate) fn known_state(&self) -> QpState {
        let flags = self.slot.flags.load(Acquire);
        let datagrams = matches!(self.kind, QpKind::Ud | QpKind::Gsi);
        match self.state {
            QpState::Reset => QpState::Reset,
            state if self.outlives_errors => state,
            _ if flags & error_flags::FAILED != 0 => QpState::Err,
            QpState::Rts if flags & error_flags::SEND_FAILED != 0 && datagrams => QpState::Sqe,
            QpState::Rts | QpState::Sqd if flags & error_flags::SEND_FAILED != 0 => QpState::Err,
            state => state,
        }
    }

    /// Checks whether it may be destroyed.
    pub(crate) fn check_destroy(&self) -> Result<(), DestroyQpError> {
        match self.groups {
            0 => Ok(()),
            groups => Err(DestroyQpError::Attached { groups }),
        }
    }

    /// Returns `true` if it was destroyed, so that it holds nothing any more.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.under_way, UnderWay::Gone)
    }

    /// Returns `true` if a transition is under way.
    pub(crate) fn is_modifying(&self) -> bool {
        matches!(self.under_way, UnderWay::Modify(_))
    }

    /// Returns `true` if the firmware has a command of it.
    pub(crate) fn is_posted(&self) -> bool {
        match &self.under_way {
            UnderWay::Modify(transit) => transit.flight.is_posted(),
            UnderWay::Reset(flight) | UnderWay::Destroy(flight) => flight.is_posted(),
            UnderWay::None | UnderWay::Gone => false,
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
                    let _ = self.device.look_no_output(transit.flight, waker)?;
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
                    let _ = self.device.look_no_output(flight, waker)?;
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
                    let answer = self.device.look_no_output(flight, waker)?;
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
