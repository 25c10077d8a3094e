//! The responder's answers: acknowledgements, NAKs, RNR NAKs, READ data and atomic results.

use std::time::Duration;

use super::super::codes::{self, Nak};
use super::super::env::{Counter, Domain, Env, QpConfig, SendOp, Syndrome};
use super::super::memory::scatter;
use super::super::opcode::Operation;
use super::super::packet::Packet;
use super::super::psn::Psn;
use super::Requester;

impl Requester {
    /// Everything before `target` is answered, except that only their responses answer READs and atomics. Returns whether
    /// one of those was skipped.
    fn acknowledge(&mut self, target: Psn, config: &QpConfig, now: Duration) -> bool {
        let mut reached = target;
        for message in self.messages.iter() {
            if !message.first.before(target) {
                break;
            }
            if message.is_read() && self.una.before(message.end()) {
                reached = if self.una.before(message.first) {
                    message.first
                } else {
                    self.una
                };
                break;
            }
        }
        self.advance(reached, config, now);
        reached != target
    }

    fn advance(&mut self, una: Psn, config: &QpConfig, now: Duration) {
        if !self.una.before(una) {
            return;
        }
        self.una = una;
        self.went_back = false;
        if self.rnr_until.take().is_some() {
            // The receiver became ready by itself, after having dropped what followed.
            self.go_back();
        }
        self.reload_retries(config);
        self.rearm(config, now);
        // An answer to what was sent before going back: that need not be sent again.
        while let Some(message) = self.messages.get(self.cursor) {
            if message.packets == 0 {
                break;
            }
            let answered = una.since(message.first).max(0) as u32;
            if answered < message.packets {
                self.offset = self.offset.max(answered);
                break;
            }
            self.reads += u32::from(message.is_read());
            self.cursor += 1;
            self.offset = 0;
        }
    }

    fn take_credits(&mut self, msn: u32, code: u8) {
        self.credit_limit = codes::credits(code).map(|credits| msn.wrapping_add(credits));
    }

    /// Takes an acknowledgement or a response. An error is that of the message now in front.
    pub(in super::super) fn on_response(
        &mut self,
        config: &QpConfig,
        env: &mut dyn Env,
        packet: &Packet<'_>,
        now: Duration,
    ) -> Result<(), Syndrome> {
        let psn = packet.repr.bth.psn;
        if psn.before(self.una) {
            // Answered already.
            return Ok(());
        }
        if !psn.before(self.high) {
            env.count(Counter::PacketsDropped);
            return Ok(());
        }
        match packet.repr.bth.opcode.operation {
            Operation::Acknowledge => self.on_ack(config, env, packet, now),
            _ => self.on_data(config, env, packet, now),
        }
    }

    fn on_ack(
        &mut self,
        config: &QpConfig,
        env: &mut dyn Env,
        packet: &Packet<'_>,
        now: Duration,
    ) -> Result<(), Syndrome> {
        let psn = packet.repr.bth.psn;
        let aeth = packet.repr.extended.aeth;
        let nak = match aeth.syndrome {
            codes::Syndrome::Ack(credits) => {
                let skipped = self.acknowledge(psn.plus(1), config, now);
                self.take_credits(aeth.msn, credits);
                self.retire(env)?;
                return self.skipped(skipped, config, env, now);
            }
            codes::Syndrome::Rnr(timer) => {
                env.count(Counter::RnrNakRetryErr);
                let skipped = self.acknowledge(psn, config, now);
                self.retire(env)?;
                self.skipped(skipped, config, env, now)?;
                if !skipped {
                    self.on_rnr(codes::rnr_delay(timer), config, now)?;
                }
                return Ok(());
            }
            codes::Syndrome::Nak(nak) => nak,
        };
        let skipped = self.acknowledge(psn, config, now);
        self.retire(env)?;
        self.skipped(skipped, config, env, now)?;
        if skipped {
            return Ok(());
        }
        match nak {
            Nak::Sequence => {
                env.count(Counter::PacketSeqErr);
                self.retry_early(config, now)
            }
            Nak::InvalidRequest => {
                env.count(Counter::ReqRemoteInvalidRequest);
                Err(Syndrome::RemoteInvalidRequest)
            }
            Nak::RemoteAccess => {
                env.count(Counter::ReqRemoteAccessErrors);
                Err(Syndrome::RemoteAccess)
            }
            Nak::RemoteOperation => Err(Syndrome::RemoteOperation),
        }
    }

    /// Answers that skipped a READ or an atomic say that its response was lost.
    fn skipped(
        &mut self,
        skipped: bool,
        config: &QpConfig,
        env: &mut dyn Env,
        now: Duration,
    ) -> Result<(), Syndrome> {
        if !skipped {
            return Ok(());
        }
        if !self.went_back {
            env.count(Counter::ImpliedNakSeqErr);
        }
        self.retry_early(config, now)
    }

    fn on_rnr(
        &mut self,
        delay: Duration,
        config: &QpConfig,
        now: Duration,
    ) -> Result<(), Syndrome> {
        if self.rnr_until.is_some() {
            return Ok(());
        }
        // 7 means for ever.
        if config.rnr_retry != 7 {
            let Some(left) = self.rnr_left.checked_sub(1) else {
                return Err(Syndrome::RnrRetryExceeded);
            };
            self.rnr_left = left;
        }
        self.rnr_until = Some(now + delay);
        Ok(())
    }

    /// A READ response or the answer to an atomic.
    fn on_data(
        &mut self,
        config: &QpConfig,
        env: &mut dyn Env,
        packet: &Packet<'_>,
        now: Duration,
    ) -> Result<(), Syndrome> {
        let psn = packet.repr.bth.psn;
        let una = self.una;
        let oldest = self
            .messages
            .iter()
            .find(|m| m.is_read() && una.before(m.end()));
        let Some(oldest) = oldest else {
            env.count(Counter::PacketsDropped);
            return Ok(());
        };
        let due = if una.before(oldest.first) {
            oldest.first
        } else {
            una
        };
        if psn.before(due) {
            env.count(Counter::PacketsDropped);
            return Ok(());
        }
        // Responses come in order, so everything in front of this one was executed.
        let _ = self.acknowledge(due, config, now);
        self.retire(env)?;
        if psn != due {
            return self.skipped(true, config, env, now);
        }
        let Some(message) = self.messages.get_mut(0) else {
            return Ok(());
        };
        let operation = packet.repr.bth.opcode.operation;
        let aeth = packet.repr.extended.aeth;
        let has_aeth = operation.has_aeth();
        if has_aeth && !matches!(aeth.syndrome, codes::Syndrome::Ack(_)) {
            return Err(Syndrome::BadResponse);
        }
        let index = psn.distance(message.first);
        let segments = &message.work.segments;
        // Without a completion there is no entry for the data.
        let in_cqe = config.cqe_scatter.responses != 0
            && message.work.signaled
            && message.packets == 1
            && (1..=u32::from(config.cqe_scatter.responses)).contains(&message.len);
        let for_cqe = &mut message.for_cqe;
        let scattered = match (message.work.op, operation) {
            (SendOp::Atomic(_), Operation::AtomicAcknowledge) => {
                let value = packet.repr.extended.atomic_ack;
                let bytes = if config.atomics_big_endian {
                    value.to_be_bytes()
                } else {
                    value.to_le_bytes()
                };
                // As the hardware does, a shorter buffer just gets less.
                let len = message.len.min(8) as usize;
                if in_cqe {
                    for_cqe.extend_from_slice(&bytes[..len]);
                    Ok(())
                } else {
                    scatter(env, Domain::Own, segments, 0, &bytes[..len])
                }
            }
            (SendOp::Read, op) if op != Operation::AtomicAcknowledge => {
                let begin = u64::from(index) * config.mtu as u64;
                let last = index + 1 == message.packets;
                let expected = (u64::from(message.len) - begin).min(config.mtu as u64);
                if last != op.ends() || packet.payload.len() as u64 != expected {
                    return Err(Syndrome::BadResponse);
                }
                if in_cqe {
                    for_cqe.extend_from_slice(packet.payload);
                    Ok(())
                } else {
                    scatter(env, Domain::Own, segments, begin, packet.payload)
                }
            }
            _ => return Err(Syndrome::BadResponse),
        };
        scattered.map_err(|_| Syndrome::LocalProtection)?;
        self.advance(psn.plus(1), config, now);
        if let (true, codes::Syndrome::Ack(credits)) = (has_aeth, aeth.syndrome) {
            self.take_credits(aeth.msn, credits);
        }
        self.retire(env)
    }
}
