//! Event queues: entries, ownership, arming, overrun.

use crate::device::Device;
use crate::health::EQ_OVERRUN;
use crate::io::Io;
use crate::pages::Place;
use crate::ring::Ring;
use bareverbs_firmware_cmds::doorbell::EqDoorbell;
use bareverbs_firmware_cmds::eq::{Eqc, Eqe};
use bareverbs_firmware_cmds::values::{EqState, EqStatus};

/// Event types.
pub(crate) mod event {
    use bareverbs_firmware_cmds::event::EventType;

    pub(crate) const COMP: u8 = EventType::Completion.number();
    pub(crate) const COMM_EST: u8 = EventType::CommunicationEstablished.number();
    pub(crate) const SQ_DRAINED: u8 = EventType::SqDrained.number();
    pub(crate) const CQ_ERROR: u8 = EventType::CqError.number();
    pub(crate) const WQ_CATAS: u8 = EventType::WqCatastrophic.number();
    pub(crate) const PORT_CHANGE: u8 = EventType::PortChange.number();
    pub(crate) const CMD: u8 = EventType::Command.number();
    pub(crate) const PAGE_REQUEST: u8 = EventType::PageRequest.number();
    pub(crate) const WQ_INVAL_REQ: u8 = EventType::WqInvalidRequest.number();
    pub(crate) const WQ_ACCESS: u8 = EventType::WqAccessError.number();
    pub(crate) const SRQ_CATAS: u8 = EventType::SrqCatastrophic.number();
    pub(crate) const SRQ_LAST_WQE: u8 = EventType::SrqLastWqe.number();
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
    fn size(&self) -> u32 {
        1 << self.context.log_eq_size()
    }

    /// Whether events of this type come here.
    pub(crate) fn wants(&self, kind: u8) -> bool {
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

impl Device {
    /// The event queue for a type, if the driver wants it.
    pub(crate) fn eq_for(&self, kind: u8) -> Option<u32> {
        self.eqs
            .iter()
            .find(|(_, eq)| eq.wants(kind))
            .map(|(number, _)| number)
    }

    /// Sends an asynchronous event to whichever queue has its type. Returns whether one has.
    pub(crate) fn event(&mut self, io: &mut Io<'_>, kind: u8, sub: u8, data: &[u8; 28]) -> bool {
        let Some(eqn) = self.eq_for(kind) else {
            return false;
        };
        self.post_event(io, eqn, kind, sub, data);
        true
    }

    /// Puts an entry into a queue, in its turn.
    pub(crate) fn post_event(
        &mut self,
        io: &mut Io<'_>,
        eqn: u32,
        kind: u8,
        sub: u8,
        data: &[u8; 28],
    ) {
        if !self.put_off(eqn, kind, sub, data) {
            self.write_event(io, eqn, kind, sub, data);
        }
    }

    /// Puts an entry into a queue and raises its interrupt if armed.
    pub(crate) fn write_event(
        &mut self,
        io: &mut Io<'_>,
        eqn: u32,
        kind: u8,
        sub: u8,
        data: &[u8; 28],
    ) {
        let Some(eq) = self.eqs.get_mut(eqn) else {
            return;
        };
        let size = eq.size();
        if eq.producer.wrapping_sub(eq.consumer) & 0xff_ffff >= size {
            if !eq.overrun {
                log::error!("event queue {eqn} overrun, event {kind:#x} lost");
                eq.overrun = true;
                if !eq.context.oi() {
                    self.health.fail(EQ_OVERRUN, eqn as u16);
                }
            }
            return;
        }
        let mut entry = Eqe::ZERO;
        entry.set_event_type(kind).set_event_sub_type(sub);
        entry.event_data_mut().copy_from_slice(data);
        entry.set_owner(eq.producer & size != 0);
        let at = u64::from(eq.producer & (size - 1)) * 64;
        // The owner bit is the last byte, which becomes visible last.
        if eq.ring.write(io, at, &entry.0).is_err() {
            self.health.fail(EQ_OVERRUN, eqn as u16);
            return;
        }
        eq.producer = eq.producer.wrapping_add(1);
        self.stats.events += 1;
        if eq.armed {
            eq.armed = false;
            let vector = eq.context.intr();
            self.raise(io, vector);
        }
    }

    /// The doorbell that moves a queue's consumer index and may arm it.
    pub(crate) fn eq_doorbell(
        &mut self,
        io: &mut Io<'_>,
        uar: u32,
        doorbell: EqDoorbell,
        arm: bool,
    ) {
        let eqn = doorbell.eqn();
        let Some(eq) = self.eqs.get_mut(eqn.into()) else {
            self.stats.bad_doorbells += 1;
            return;
        };
        if eq.context.uar_page() != uar {
            log::warn!("doorbell of event queue {eqn} through UAR {uar:#x}");
            self.stats.bad_doorbells += 1;
            return;
        }
        let ahead = eq.producer.wrapping_sub(doorbell.consumer()) & 0xff_ffff;
        if ahead > eq.size() {
            log::warn!("consumer index of event queue {eqn} is ahead of it");
            self.stats.bad_doorbells += 1;
            return;
        }
        eq.consumer = eq.producer.wrapping_sub(ahead);
        if !arm {
            return;
        }
        eq.armed = true;
        if ahead != 0 {
            eq.armed = false;
            let vector = eq.context.intr();
            self.raise(io, vector);
        }
    }
}
