//! Completions: ownership, the consumer's doorbell record, arming, moderation, overrun.

use crate::bus::io::Io;
use crate::device::Device;
use crate::objects::cq::{Arm, Cq, INDEX};
use crate::objects::eq::event;
use bareverbs_firmware_cmds::cqe::{OpOwn, Opcode, SIZE, TimestampWord};
use bareverbs_firmware_cmds::doorbell::{CqArmDoorbell, CqArmRecord, CqConsumerRecord};
use bareverbs_firmware_cmds::eq::CqError;
use bareverbs_firmware_cmds::event::CompEvent;
use bareverbs_firmware_cmds::values::CqStatus;
use bareverbs_firmware_cmds::word::Word;
use core::time::Duration;

const STATUS_OVERFLOW: u8 = CqStatus::Overflow.number();
const STATUS_WRITE_FAIL: u8 = CqStatus::WriteFail.number();

/// The queue takes no more completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CqDead;

impl Device {
    /// Returns `true` if a queue has entries of 128 bytes.
    pub(crate) fn has_long_entries(&self, cqn: u32) -> bool {
        let cq = self.cqs.get(cqn);
        cq.is_some_and(|cq| Cq::stride(cq.context.cqe_sz()) == 128)
    }

    /// Reads a queue's consumer index from the host; `false` if it cannot be reached.
    pub(crate) fn refresh_consumer(&mut self, io: &mut Io<'_>, cqn: u32) -> bool {
        let Some(cq) = self.cqs.get_mut(cqn) else {
            return false;
        };
        match io.read_be32(cq.ring.record()) {
            Ok(consumer) => {
                cq.consumer = CqConsumerRecord(consumer).consumer();
                true
            }
            Err(_) => false,
        }
    }

    fn fail_cq(&mut self, io: &mut Io<'_>, cqn: u32, status: u8) {
        if let Some(cq) = self.cqs.get_mut(cqn) {
            cq.status = status;
            cq.arm = Arm::Off;
        }
        log::warn!("completion queue {cqn:#x} failed, status {status:#x}");
        let mut error = CqError::ZERO;
        // Syndromes of CQ_ERROR: 1 overrun, 2 access violation.
        error
            .set_cqn(cqn)
            .set_syndrome(if status == STATUS_OVERFLOW { 1 } else { 2 });
        self.event(io, event::CQ_ERROR, 0, &error.0);
    }

    /// The queue's memory cannot be written.
    pub(crate) fn fail_write(&mut self, io: &mut Io<'_>, cqn: u32) {
        self.fail_cq(io, cqn, STATUS_WRITE_FAIL);
    }

    /// Writes a completion; time stamp and owner bit are filled in here.
    pub(crate) fn complete(
        &mut self,
        io: &mut Io<'_>,
        cqn: u32,
        entry: &mut [u8; SIZE],
        solicited: bool,
    ) -> Result<(), CqDead> {
        self.complete_behind(io, cqn, &[], entry, solicited)
    }

    /// The same with at most 64 bytes in front of it, in an entry of 128.
    #[inline(always)]
    pub(crate) fn complete_behind(
        &mut self,
        io: &mut Io<'_>,
        cqn: u32,
        front: &[u8],
        entry: &mut [u8; SIZE],
        solicited: bool,
    ) -> Result<(), CqDead> {
        let now = self.timer();
        let cq = self.cqs.get_mut(cqn).ok_or(CqDead)?;
        if cq.status != 0 {
            return Err(CqDead);
        }
        let size = cq.size();
        let fill = |cq: &Cq| cq.outstanding() + cq.session.len();
        if fill(cq) >= size && !cq.context.oi() {
            // Only now does the device look at the record: it costs a DMA read.
            let reachable = self.refresh_consumer(io, cqn);
            let full = self.cqs.get(cqn).is_none_or(|cq| fill(cq) >= size);
            if !reachable || full {
                self.close_session(io, cqn)?;
                self.stats.cq_overruns += 1;
                self.fail_cq(io, cqn, STATUS_OVERFLOW);
                return Err(CqDead);
            }
        }
        let cq = self.cqs.get_mut(cqn).ok_or(CqDead)?;
        // Failed completions have their syndromes where others have the time.
        let mut last = OpOwn::read(entry);
        let failed = Opcode::from_number(last.opcode()).is_some_and(Opcode::is_error);
        if !failed && TimestampWord::read(entry).timestamp() == 0 {
            TimestampWord(now).write(entry);
        }
        if !(cq.context.cqe_comp_en() && self.collect(io, cqn, entry, solicited)?) {
            let cq = self.cqs.get_mut(cqn).ok_or(CqDead)?;
            last.set_owner(u8::from(cq.producer & size != 0));
            last.write(entry);
            let stride = Cq::stride(cq.context.cqe_sz());
            // Of 128 bytes, the second half is the completion.
            let at = u64::from(cq.producer & (size - 1)) * stride + (stride - 64);
            let written = match at.checked_sub(SIZE as u64) {
                Some(at) if stride > 64 && !front.is_empty() => cq.ring.write(io, at, front),
                _ => Ok(()),
            };
            if written.and(cq.ring.write(io, at, entry)).is_err() {
                self.fail_cq(io, cqn, STATUS_WRITE_FAIL);
                return Err(CqDead);
            }
            cq.producer = cq.producer.wrapping_add(1) & INDEX;
            if solicited || failed {
                cq.last_solicited = cq.producer;
            }
            self.stats.completions += 1;
        }
        let cq = self.cqs.get(cqn).ok_or(CqDead)?;
        let fires = match cq.arm {
            Arm::Off => false,
            Arm::Solicited => solicited || failed,
            Arm::Any => true,
        };
        if fires {
            self.moderate(io, cqn);
        }
        Ok(())
    }

    /// Lets an event out now, or holds it back until there are enough completions or the period is over.
    fn moderate(&mut self, io: &mut Io<'_>, cqn: u32) {
        let now = self.now;
        let Some(cq) = self.cqs.get_mut(cqn) else {
            return;
        };
        let (count, period) = (cq.context.cq_max_count(), cq.context.cq_period());
        let produced = cq.producer.wrapping_add(cq.session.len());
        let waiting = produced.wrapping_sub(cq.last_notified) & INDEX;
        if count <= 1 || period == 0 || waiting >= u32::from(count) {
            self.fire(io, cqn);
        } else if cq.held_until.is_none() {
            let until = now + Duration::from_micros(u64::from(period));
            cq.held_until = Some(until);
            self.held_back.insert((until, cqn));
        }
    }

    pub(crate) fn fire(&mut self, io: &mut Io<'_>, cqn: u32) {
        if self.close_session(io, cqn).is_err() {
            return;
        }
        let Some(cq) = self.cqs.get_mut(cqn) else {
            return;
        };
        cq.arm = Arm::Off;
        cq.last_notified = cq.producer;
        if let Some(until) = cq.held_until.take() {
            self.held_back.remove(&(until, cqn));
        }
        let eqn = cq.context.c_eqn_or_apu_element() & 0xff;
        let mut data = CompEvent::ZERO;
        data.set_cq_number(cqn);
        self.post_event(io, eqn, event::COMP, 0, &data.0);
    }

    /// The arm doorbell.
    pub(crate) fn cq_doorbell(&mut self, io: &mut Io<'_>, uar: u32, doorbell: CqArmDoorbell) {
        let (cqn, arm) = (doorbell.cqn(), CqArmRecord(doorbell.record()));
        let Some(cq) = self.cqs.get_mut(cqn) else {
            self.stats.bad_doorbells += 1;
            return;
        };
        if cq.context.uar_page() != uar {
            log::warn!("doorbell of completion queue {cqn:#x} through UAR {uar:#x}");
            self.stats.bad_doorbells += 1;
            return;
        }
        // The record's second word must have been written before the doorbell, with the same sequence number: that is how
        // the device distinguishes a current arm from one that was overtaken.
        let at = cq.ring.record().wrapping_add(CqArmRecord::OFFSET as u64);
        let Ok(record) = io.read_be32(at) else {
            return;
        };
        if CqArmRecord(record).sequence() != arm.sequence() {
            log::debug!("stale arm of completion queue {cqn:#x}");
            self.stats.bad_doorbells += 1;
            return;
        }
        if self.close_session(io, cqn).is_err() {
            return;
        }
        let Some(cq) = self.cqs.get_mut(cqn) else {
            return;
        };
        let consumer = arm.consumer();
        let later = |index: u32, other: u32| {
            let ahead = index.wrapping_sub(other) & INDEX;
            ahead != 0 && ahead < 1 << 23
        };
        // An entry is reported by one event, however often the queue is armed before the entry is consumed: programs
        // that arm first and then look, once for every event, would look too often.
        if later(consumer, cq.last_notified) {
            cq.last_notified = consumer;
        }
        // A driver that arms again has seen the entries that a delayed event would report.
        if let Some(until) = cq.held_until.take() {
            self.held_back.remove(&(until, cqn));
        }
        let solicited_only = arm.solicited_only();
        let last = if solicited_only {
            cq.last_solicited
        } else {
            cq.producer
        };
        let due = later(last, cq.last_notified);
        cq.arm = if solicited_only {
            Arm::Solicited
        } else {
            Arm::Any
        };
        if due {
            self.moderate(io, cqn);
        }
    }
}
