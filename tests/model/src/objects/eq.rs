//! Event queues.

use crate::memory::pages::Place;
use crate::memory::ring::Ring;
use bareverbs_firmware_cmds::eq::Eqc;
use bareverbs_firmware_cmds::values::{EqState, EqStatus};

/// Event types.
pub(crate) mod event {
    use bareverbs_firmware_cmds::event::EventType;

    pub(crate) const COMP: u8 = EventType::Completion.number();
    pub(crate) const PATH_MIGRATED: u8 = EventType::PathMigrated.number();
    pub(crate) const COMM_EST: u8 = EventType::CommunicationEstablished.number();
    pub(crate) const SQ_DRAINED: u8 = EventType::SqDrained.number();
    pub(crate) const CQ_ERROR: u8 = EventType::CqError.number();
    pub(crate) const PATH_MIGRATION_FAILED: u8 = EventType::PathMigrationFailed.number();
    pub(crate) const WQ_CATAS: u8 = EventType::WqCatastrophic.number();
    pub(crate) const PORT_CHANGE: u8 = EventType::PortChange.number();
    pub(crate) const CMD: u8 = EventType::Command.number();
    pub(crate) const PAGE_REQUEST: u8 = EventType::PageRequest.number();
    pub(crate) const WQ_INVAL_REQ: u8 = EventType::WqInvalidRequest.number();
    pub(crate) const WQ_ACCESS: u8 = EventType::WqAccessError.number();
    pub(crate) const SRQ_CATAS: u8 = EventType::SrqCatastrophic.number();
    pub(crate) const SRQ_LAST_WQE: u8 = EventType::SrqLastWqe.number();
    pub(crate) const DCT_DRAINED: u8 = EventType::DctDrained.number();
    pub(crate) const DCT_KEY_VIOLATION: u8 = EventType::DctKeyViolation.number();
    pub(crate) const SRQ_LIMIT: u8 = EventType::SrqLimit.number();
}

/// An event queue.
#[derive(Debug)]
pub(crate) struct Eq {
    pub(crate) context: Eqc,
    pub(crate) mask: [u64; 4],
    pub(crate) ring: Ring,
    pub(crate) producer: u32,
    pub(crate) consumer: u32,
    pub(crate) armed: bool,
    /// Completion queues that report here.
    pub(crate) users: u32,
    pub(crate) overrun: bool,
    pub(crate) place: Place,
}

impl Eq {
    pub(crate) fn size(&self) -> u32 {
        1 << self.context.log_eq_size()
    }

    /// Returns `true` if events of this type come here.
    pub(crate) fn is_subscribed(&self, kind: u8) -> bool {
        // The mask's first 64 bits are event types 63:0, most significant first.
        self.mask
            .get(usize::from(kind / 64))
            .is_some_and(|bits| bits >> (kind % 64) & 1 != 0)
    }

    /// The context as QUERY_EQ shows it.
    pub(crate) fn shown(&self) -> Eqc {
        let mut context = self.context;
        context
            .set_status(
                if self.overrun {
                    EqStatus::WriteFailure
                } else {
                    EqStatus::Ok
                }
                .number(),
            )
            .set_st(
                if self.armed {
                    EqState::Armed
                } else {
                    EqState::Fired
                }
                .number(),
            )
            .set_consumer_counter(self.consumer & 0xff_ffff)
            .set_producer_counter(self.producer & 0xff_ffff);
        context
    }
}
