//! Events: the queue of a type, ownership, arming, overrun.

use crate::bus::io::Io;
use crate::device::Device;
use crate::health::EQ_OVERRUN;
use bareverbs_firmware_cmds::doorbell::EqDoorbell;
use bareverbs_firmware_cmds::eq::Eqe;

impl Device {
    /// The event queue for a type, if the driver subscribed to it.
    pub(crate) fn eq_for(&self, kind: u8) -> Option<u32> {
        self.eqs
            .iter()
            .find(|(_, eq)| eq.is_subscribed(kind))
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
