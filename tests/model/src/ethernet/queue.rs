//! The objects: queues with their states, and what points to them.

use crate::bus::io::Io;
use crate::host::IommuFault;
use crate::memory::pages::Place;
use crate::memory::ring::Ring;
use crate::objects::mkey::Accessor;
use crate::objects::wqe::Written;
use bareverbs_firmware_cmds::rq::Rqc;
use bareverbs_firmware_cmds::sq::Sqc;
use bareverbs_firmware_cmds::tir::{Rqtc, Tirc};
use bareverbs_firmware_cmds::tis::Tisc;
use bareverbs_firmware_cmds::values::TirDispatch;

/// `wq_type`.
pub(crate) mod wq {
    use bareverbs_firmware_cmds::values::WqType;

    pub(crate) const LINKED_LIST: u8 = WqType::LinkedList.number();
    pub(crate) const CYCLIC: u8 = WqType::Cyclic.number();
}

/// `mem_rq_type`: the queue's own WQEs, or those of a receive memory pool.
pub(crate) const MEMORY_INLINE: u8 = 0;
pub(crate) const MEMORY_RMP: u8 = 1;

/// `disp_type` of a TIR.
pub(crate) const DIRECT: u8 = TirDispatch::Direct.number();
pub(crate) const INDIRECT: u8 = TirDispatch::Indirect.number();

/// A send queue basic block.
pub(crate) const BLOCK: u64 = 64;

/// State of a send or receive queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum QueueState {
    Reset = 0,
    Ready = 1,
    Error = 3,
}

impl QueueState {
    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::Reset,
            1 => Self::Ready,
            3 => Self::Error,
            _ => return None,
        })
    }

    /// Whether a command may move a queue there.
    pub(crate) fn may_become(self, next: Self) -> bool {
        // What failed has to be reset before it works again.
        !(self == Self::Error && next == Self::Ready)
    }
}

/// What the sends of a queue have in common.
#[derive(Debug)]
pub(crate) struct Tis {
    pub(crate) context: Tisc,
    pub(crate) users: u32,
    pub(crate) place: Place,
}

/// Where frames go that flow steering gave to it.
#[derive(Debug)]
pub(crate) struct Tir {
    pub(crate) context: Tirc,
    pub(crate) place: Place,
}

/// A table of receive queues, indexed by hash.
#[derive(Debug)]
pub(crate) struct Rqt {
    pub(crate) context: Rqtc,
    pub(crate) queues: Vec<u32>,
    /// TIRs.
    pub(crate) users: u32,
    pub(crate) place: Place,
}

/// A send queue.
#[derive(Debug)]
pub(crate) struct Sq {
    pub(crate) context: Sqc,
    pub(crate) state: QueueState,
    pub(crate) ring: Ring,
    /// Next block to fetch, and where the posted ones end.
    pub(crate) next: u16,
    pub(crate) posted: u16,
    /// The next one, if it came through a register.
    pub(crate) written: Option<Box<Written>>,
    /// In the ready list.
    pub(crate) queued: bool,
    pub(crate) place: Place,
}

impl Sq {
    /// Size in blocks.
    pub(crate) fn blocks(&self) -> u32 {
        1 << self.context.wq().log_wq_sz()
    }

    pub(crate) fn accessor(&self, number: u32) -> Accessor {
        Accessor {
            pd: self.context.wq().pd(),
            qpn: number,
            reserved_key: self.context.rlky(),
        }
    }

    /// Reads from a block on, wrapping at the end of the queue.
    pub(crate) fn read(
        &self,
        io: &mut Io<'_>,
        block: u16,
        data: &mut [u8],
    ) -> Result<(), IommuFault> {
        let at = u64::from(u32::from(block) & (self.blocks() - 1)) * BLOCK;
        self.ring.read(io, at, data)
    }
}

/// A receive queue.
#[derive(Debug)]
pub(crate) struct Rq {
    pub(crate) context: Rqc,
    pub(crate) state: QueueState,
    pub(crate) ring: Ring,
    /// How many WQEs were consumed, how many were posted as of the last look.
    pub(crate) next: u16,
    pub(crate) posted: u16,
    /// The next WQE of a linked list.
    pub(crate) link: u16,
    /// TIRs and tables.
    pub(crate) users: u32,
    pub(crate) place: Place,
}

impl Rq {
    /// Size in WQEs.
    pub(crate) fn entries(&self) -> u32 {
        1 << self.context.wq().log_wq_sz()
    }

    pub(crate) fn stride(&self) -> u64 {
        1 << self.context.wq().log_wq_stride()
    }

    pub(crate) fn cyclic(&self) -> bool {
        self.context.wq().wq_type() == wq::CYCLIC
    }

    /// The pool that its WQEs come from, if the queue has no ring.
    pub(crate) fn pool(&self) -> Option<u32> {
        (self.context.mem_rq_type() == MEMORY_RMP).then(|| self.context.rmpn())
    }

    pub(crate) fn accessor(&self, number: u32, pd: u32) -> Accessor {
        Accessor {
            pd,
            qpn: number,
            reserved_key: self.context.rlky(),
        }
    }
}
