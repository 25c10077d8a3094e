//! Queue pairs: their queues in the host's memory and their states.

use crate::bus::io::Io;
use crate::host::IommuFault;
use crate::memory::pages::Place;
use crate::memory::ring::Ring;
use crate::objects::mkey::Accessor;
use crate::objects::wqe::Written;
use crate::roce::env::{QpKind, QpState};
use crate::roce::transport::Transport;
use bareverbs_firmware_cmds::dct::Dctc;
use bareverbs_firmware_cmds::qp::Qpc;
use core::time::Duration;

/// `st` of the QPC.
pub(crate) mod service {
    use bareverbs_firmware_cmds::values::QpServiceType;

    pub(crate) const RC: u8 = QpServiceType::Rc.number();
    pub(crate) const UC: u8 = QpServiceType::Uc.number();
    pub(crate) const UD: u8 = QpServiceType::Ud.number();
    pub(crate) const XRC: u8 = QpServiceType::Xrc.number();
    pub(crate) const DCI: u8 = QpServiceType::Dci.number();
    pub(crate) const DCT: u8 = QpServiceType::Dct.number();
    pub(crate) const QP0: u8 = QpServiceType::Qp0.number();
    pub(crate) const QP1: u8 = QpServiceType::Qp1.number();
    pub(crate) const REG_UMR: u8 = QpServiceType::RegUmr.number();
}

/// `rq_type` of the QPC.
pub(crate) mod receive {
    use bareverbs_firmware_cmds::values::RqType;

    pub(crate) const OWN: u8 = RqType::Regular.number();
    pub(crate) const SHARED: u8 = RqType::Srq.number();
    pub(crate) const NONE: u8 = RqType::ZeroSize.number();
}

/// Resource types in asynchronous events.
pub(crate) const EVENT_QP: u8 = 0;
pub(crate) const EVENT_RQ: u8 = 1;
pub(crate) const EVENT_SRQ: u8 = 3;

/// A send queue basic block.
pub(crate) const BLOCK: u64 = 64;

/// A target of dynamic connections, which is a QP without queues of its own to everything but commands.
#[derive(Debug)]
pub(crate) struct Dct {
    /// As it lies in the host's pages.
    pub(crate) context: Dctc,
    /// Requests with a wrong access key.
    pub(crate) violations: u32,
    /// The next one of them is to be reported.
    pub(crate) armed: bool,
}

/// A queue pair.
pub(crate) struct Qp {
    /// If it is a target of dynamic connections.
    pub(crate) dct: Option<Box<Dct>>,
    /// As it lies in the host's pages.
    pub(crate) context: Qpc,
    pub(crate) state: QpState,
    pub(crate) ring: Ring,
    /// Where the send queue starts; the receive queue is at 0.
    pub(crate) sq_start: u64,
    /// Next block to fetch, and where the posted ones end.
    pub(crate) sq_next: u16,
    pub(crate) sq_posted: u16,
    /// The next one, if it came through a register.
    pub(crate) written: Option<Box<Written>>,
    pub(crate) rq_next: u16,
    pub(crate) rq_posted: u16,
    pub(crate) place: Place,
    pub(crate) transport: Option<Box<Transport>>,
    /// In the ready list.
    pub(crate) queued: bool,
    pub(crate) deadline: Option<Duration>,
    /// A completion could not be written: the QP has to fail.
    pub(crate) broken: bool,
    /// The last-WQE event of a shared receive queue is due.
    pub(crate) last_wqe_due: bool,
}

impl core::fmt::Debug for Qp {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Qp")
            .field("context", &self.context)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl Qp {
    /// Send queue size in blocks.
    pub(crate) fn sq_blocks(&self) -> u32 {
        if self.context.no_sq() {
            0
        } else {
            1 << self.context.log_sq_size()
        }
    }

    /// Receive queue size in WQEs.
    pub(crate) fn rq_entries(&self) -> u32 {
        if self.context.rq_type() == receive::OWN {
            1 << self.context.log_rq_size()
        } else {
            0
        }
    }

    pub(crate) fn rq_stride(&self) -> u64 {
        16 << self.context.log_rq_stride()
    }

    pub(crate) fn shared_queue(&self) -> Option<u32> {
        // Drivers put some queue into the contexts of XRC QPs and DCIs, which has nothing to do with what they receive into.
        let other = matches!(self.context.st(), service::XRC | service::DCI);
        (self.context.rq_type() == receive::SHARED && !other).then(|| self.context.srqn_rmpn_xrqn())
    }

    pub(crate) fn kind(&self) -> Option<QpKind> {
        kind(&self.context)
    }

    pub(crate) fn accessor(&self, qpn: u32) -> Accessor {
        Accessor {
            pd: self.context.pd(),
            qpn,
            reserved_key: self.context.rlky(),
        }
    }

    /// Reads from the send queue, wrapping at its end.
    pub(crate) fn read_sq(
        &self,
        io: &mut Io<'_>,
        block: u16,
        data: &mut [u8],
    ) -> Result<(), IommuFault> {
        let blocks = u64::from(self.sq_blocks());
        let at = (u64::from(block) & blocks.saturating_sub(1)) * BLOCK;
        let first = ((blocks * BLOCK - at) as usize).min(data.len());
        let (head, tail) = data.split_at_mut(first);
        self.ring.read(io, self.sq_start + at, head)?;
        if !tail.is_empty() {
            self.ring.read(io, self.sq_start, tail)?;
        }
        Ok(())
    }

    /// The state as the QPC codes it.
    pub(crate) fn state_code(&self) -> u8 {
        match self.state {
            QpState::Reset => 0,
            QpState::Init => 1,
            QpState::Rtr => 2,
            QpState::Rts => 3,
            QpState::Sqe => 4,
            QpState::Sqd => 5,
            QpState::Err => 6,
        }
    }
}

/// The transport's name for the type of a QP; `None` for those that never reach the wire.
pub(crate) fn kind(context: &Qpc) -> Option<QpKind> {
    Some(match context.st() {
        service::RC => QpKind::Rc,
        service::UC => QpKind::Uc,
        service::UD => QpKind::Ud,
        // Only initiators have a send queue.
        service::XRC if context.no_sq() => QpKind::XrcTarget,
        service::XRC => QpKind::XrcInitiator,
        service::DCI => QpKind::Dci,
        service::DCT => QpKind::Dct,
        service::QP1 => QpKind::Gsi,
        service::QP0 => QpKind::Smi,
        _ => return None,
    })
}
