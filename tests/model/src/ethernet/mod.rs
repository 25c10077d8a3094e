//! Ethernet: send and receive queues of whole frames, what spreads frames over queues, and what the card does to frames on
//! the way.
//!
//! [`frame`], [`tunnel`], [`checksum`], [`segment`] and [`rss`] use frames only; [`send`] and [`receive`] use the queues.

pub(crate) mod checksum;
mod demand;
pub(crate) mod frame;
mod multi;
mod queue;
mod receive;
pub(crate) mod rss;
pub(crate) mod segment;
mod send;
mod stride;
pub(crate) mod tunnel;

pub(crate) use queue::{
    BLOCK, DIRECT, INDIRECT, MEMORY_INLINE, MEMORY_RMP, QueueState, Rq, Rqt, Sq, Strides, Tir, Tis,
    wq,
};

use crate::caps::Caps;
use crate::objects::table::Table;
use crate::roce::env::RecvWork;
use crate::steering::Hit;
use tunnel::Tunnels;

/// Numbers of send and receive queues are drawn from those of queue pairs in the interface, as doorbells and events name
/// either; they start beyond what queue pairs can have.
const FIRST_SQ: u32 = 0x40_0000;
const FIRST_RQ: u32 = 0x50_0000;

/// Frames to the own address or to a group, with the transport domain of the queue that sent them.
#[derive(Debug)]
pub(crate) struct Looped {
    pub(crate) frame: Vec<u8>,
    pub(crate) transport_domain: u32,
}

/// All there is for Ethernet.
#[derive(Debug)]
pub(crate) struct Queues {
    pub(crate) tises: Table<Tis>,
    pub(crate) tirs: Table<Tir>,
    pub(crate) rqts: Table<Rqt>,
    pub(crate) sqs: Table<Sq>,
    pub(crate) rqs: Table<Rq>,
    pub(crate) tunnels: Tunnels,
    /// Kept for their memory.
    hits: Vec<Hit>,
    work: RecvWork,
    stripped: Vec<u8>,
    packet: Vec<u8>,
}

impl Queues {
    pub(crate) fn new(caps: &Caps) -> Self {
        let general = &caps.general;
        Self {
            tises: Table::new(1, 1 << general.log_max_tis()),
            tirs: Table::new(1, 1 << general.log_max_tir()),
            rqts: Table::new(1, 1 << general.log_max_rqt()),
            sqs: Table::new(FIRST_SQ, 1 << general.log_max_sq()),
            rqs: Table::new(FIRST_RQ, 1 << general.log_max_rq()),
            tunnels: Tunnels::new(&caps.ethernet),
            hits: Vec::new(),
            work: RecvWork::default(),
            stripped: Vec::new(),
            packet: Vec::new(),
        }
    }

    /// Destroys every object.
    pub(crate) fn clear(&mut self) {
        self.tises.clear();
        self.tirs.clear();
        self.rqts.clear();
        self.sqs.clear();
        self.rqs.clear();
        self.tunnels.reset();
    }
}
