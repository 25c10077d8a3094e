//! The objects: queues with their states, and what points to them.

use crate::bus::io::Io;
use crate::host::IommuFault;
use crate::memory::pages::Place;
use crate::memory::ring::Ring;
use crate::objects::mkey::Accessor;
use crate::objects::wqe::Written;
use crate::roce::env::Segment;
use bareverbs_firmware_cmds::rq::Rqc;
use bareverbs_firmware_cmds::sq::Sqc;
use bareverbs_firmware_cmds::srq::Wq;
use bareverbs_firmware_cmds::tir::{Rqtc, Tirc};
use bareverbs_firmware_cmds::tis::Tisc;
use bareverbs_firmware_cmds::values::TirDispatch;

/// `wq_type`.
pub(crate) mod wq {
    use bareverbs_firmware_cmds::values::WqType;

    pub(crate) const LINKED_LIST: u8 = WqType::LinkedList.number();
    pub(crate) const CYCLIC: u8 = WqType::Cyclic.number();
    pub(crate) const LINKED_LIST_STRIDING: u8 = WqType::LinkedListStriding.number();
    pub(crate) const CYCLIC_STRIDING: u8 = WqType::CyclicStriding.number();
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

    /// Returns `true` if a command may move a queue there.
    pub(crate) fn may_become(self, next: Self) -> bool {
        // What failed has to be reset before it works again.
        !(self == Self::Error && next == Self::Ready)
    }
}

/// The part that the sends of a queue have in common.
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

/// The division of a striding queue's WQEs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Strides {
    pub(crate) log_number: u8,
    pub(crate) log_size: u8,
}

impl Strides {
    /// The bases of the fields: `MLX5_MPWQE_LOG_NUM_STRIDES_BASE` and `MLX5_MPWQE_LOG_STRIDE_SZ_BASE` of Linux, 9 and 6
    /// in rdma-core and DPDK as well. The number is a signed one: with `ext_stride_num_range` it goes down to 2^3.
    const NUMBER_BASE: i8 = 9;
    const SIZE_BASE: u8 = 6;

    pub(crate) fn of(context: &Wq) -> Option<Self> {
        let kind = context.wq_type();
        if kind != wq::LINKED_LIST_STRIDING && kind != wq::CYCLIC_STRIDING {
            return None;
        }
        let field = ((context.log_wqe_num_of_strides() << 4) as i8) >> 4;
        Some(Self {
            log_number: (Self::NUMBER_BASE + field) as u8,
            log_size: Self::SIZE_BASE + context.log_wqe_stride_size(),
        })
    }

    pub(crate) fn number(self) -> u32 {
        1 << self.log_number
    }

    pub(crate) fn size(self) -> usize {
        1 << self.log_size
    }
}

/// A WQE of a striding queue that was fetched and has strides left.
#[derive(Debug)]
pub(crate) struct OpenWqe {
    pub(crate) index: u16,
    /// Strides used up.
    pub(crate) used: u32,
    pub(crate) segments: Vec<Segment>,
}

/// A receive queue.
#[derive(Debug)]
pub(crate) struct Rq {
    pub(crate) context: Rqc,
    pub(crate) state: QueueState,
    pub(crate) ring: Ring,
    /// The number of WQEs that were consumed, and of those posted as of the last look.
    pub(crate) next: u16,
    pub(crate) posted: u16,
    /// The next WQE of a linked list.
    pub(crate) link: u16,
    /// The WQE whose strides are being filled.
    pub(crate) open: Option<OpenWqe>,
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
        matches!(
            self.context.wq().wq_type(),
            wq::CYCLIC | wq::CYCLIC_STRIDING
        )
    }

    /// The strides of a striding queue's WQEs.
    pub(crate) fn strides(&self) -> Option<Strides> {
        Strides::of(self.context.wq())
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
