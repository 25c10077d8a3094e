//! The QP object: number, state and what its context was made of, the same for every type.

use core::sync::atomic::Ordering::Acquire;

use bareverbs_firmware_cmds::numbers::{Pdn, Qpn};

use crate::device::Device;
use crate::device::in_flight::InFlight;
use crate::memory::dma::DmaMemory;
use crate::memory::slots::{QpSlot, error_flags};
use crate::platform::Platform;
use crate::types::qp::{QpKind, QpState};
use crate::types::sge::Access;
use crate::verbs::qp::queue::sizes::QueueSizes;

/// The QP beside its queues: all of the control path, which is the same code for every type.
pub(crate) struct QpObject<'d, P: Platform> {
    pub(crate) kind: QpKind,
    pub(crate) device: &'d Device<'d, P>,
    pub(crate) slot: &'d QpSlot,
    /// Given back when it is destroyed.
    pub(crate) block: DmaMemory,
    /// The doorbell record's address for the device. Those of the driver's QPs are in their blocks.
    #[cfg(feature = "foreign-qps")]
    pub(crate) record: u64,
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
    /// The attributes that modify has set and later transitions need again.
    pub(crate) port: u8,
    pub(crate) access: Access,
    pub(crate) responder_depth: u8,
    pub(crate) srq: Option<u32>,
    /// GID table entry that the context names, which is reserved.
    pub(crate) sgid: Option<u16>,
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
    /// GID table entry of the new address vector, which is reserved.
    pub(crate) sgid: Option<u16>,
}

/// Work that was begun and is not over.
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
}
