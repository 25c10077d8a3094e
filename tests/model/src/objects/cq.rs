//! Completion queues.

use crate::memory::pages::Place;
use crate::memory::ring::Ring;
use bareverbs_firmware_cmds::cq::Cqc;
use bareverbs_firmware_cmds::cqe::SIZE;
use bareverbs_firmware_cmds::values::{CqState, CqeSize};
use core::time::Duration;

/// Completions of a queue that were not written yet.
#[derive(Debug, Default)]
pub(crate) struct Session {
    pub(crate) entries: Vec<[u8; SIZE]>,
    /// When it is written at the latest, while there are any.
    pub(crate) until: Duration,
}

impl Session {
    pub(crate) fn len(&self) -> u32 {
        self.entries.len() as u32
    }
}

/// Indexes have 24 bits.
pub(crate) const INDEX: u32 = 0xff_ffff;

/// The effect of the next completion beside being written to the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arm {
    /// Nothing.
    Off,
    /// Solicited and failed completions make an event.
    Solicited,
    /// Every completion does.
    Any,
}

/// A completion queue.
#[derive(Debug)]
pub(crate) struct Cq {
    pub(crate) context: Cqc,
    pub(crate) ring: Ring,
    pub(crate) producer: u32,
    /// Consumer index as last read from the doorbell record.
    pub(crate) consumer: u32,
    pub(crate) arm: Arm,
    /// Producer index behind the last solicited or failed completion.
    pub(crate) last_solicited: u32,
    /// Entries before this index were reported by an event, or consumed when the queue was armed.
    pub(crate) last_notified: u32,
    /// When moderation lets the event out at the latest, if it holds one back.
    pub(crate) held_until: Option<Duration>,
    pub(crate) status: u8,
    /// Completions that wait to be compressed.
    pub(crate) session: Session,
    /// The queues that complete here count strides rather than WQEs.
    pub(crate) strides: bool,
    /// Queues that complete here.
    pub(crate) users: u32,
    pub(crate) place: Place,
}

impl Cq {
    pub(crate) fn new(context: Cqc, ring: Ring, place: Place) -> Self {
        Self {
            context,
            ring,
            producer: 0,
            consumer: 0,
            arm: Arm::Off,
            last_solicited: 0,
            last_notified: 0,
            held_until: None,
            status: 0,
            session: Session::default(),
            strides: false,
            users: 0,
            place,
        }
    }

    /// Distance between entries in bytes.
    pub(crate) fn stride(cqe_sz: u8) -> u64 {
        match CqeSize::from_number(cqe_sz) {
            Some(CqeSize::Bytes64) => 64,
            _ => 128,
        }
    }

    pub(crate) fn size(&self) -> u32 {
        1 << self.context.log_cq_size()
    }

    /// The number of entries that the consumer has not taken yet. The device looks at as many bits of the consumer's index as
    /// tell a full queue from an empty one: DPDK counts in 16 bits of the 24 that the record has.
    pub(crate) fn outstanding(&self) -> u32 {
        self.producer.wrapping_sub(self.consumer) & (2 * self.size() - 1) & INDEX
    }

    /// The context as QUERY_CQ shows it.
    pub(crate) fn shown(&self) -> Cqc {
        let mut context = self.context;
        context
            .set_status(self.status)
            .set_st(match self.arm {
                Arm::Off => CqState::Fired.number(),
                Arm::Solicited => CqState::SolicitedArmed.number(),
                Arm::Any => CqState::Armed.number(),
            })
            .set_consumer_counter(self.consumer & INDEX)
            .set_producer_counter(self.producer & INDEX)
            .set_last_notified_index(self.last_notified & INDEX)
            .set_last_solicit_index(self.last_solicited & INDEX);
        context
    }
}
