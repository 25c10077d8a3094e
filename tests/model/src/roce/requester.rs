//! RC and UC requester: segmentation, acknowledgements, go-back-N, timers.
//!
//! Messages are kept from the moment their WQE is fetched until it is completed, in order. `una` is the oldest PSN without
//! an answer, `high` the one behind the newest ever sent; the cursor is where sending goes on. Going back means putting the
//! cursor where `una` is. A READ occupies one PSN per response packet, so a READ broken off in the middle is asked for
//! again from there. WQEs that send nothing occupy no PSN and are executed once, when the cursor first gets to them.

use std::collections::VecDeque;
use std::time::Duration;

use super::codes::{self, Nak};
use super::env::{
    AtomicOp, BadWqe, Counter, Env, QpConfig, QpKind, QpState, SendCompletion, SendOp, SendWork,
    Syndrome,
};
use super::memory::{gather, scatter};
use super::opcode::{Opcode, Operation, Service};
use super::packet::{AtomicEth, Extended, Packet, Reth};
use super::psn::Psn;
use super::transport::{Outgoing, Scratch, transmit};

/// How many packets may be on their way unacknowledged (READ responses do not count).
const WINDOW: u32 = 1024;
/// PSNs in use at a time: half of the number space, so that old and new can be told apart (IBTA vol. 1, 9.7.4.1.1).
const MAX_SPAN: u32 = 1 << 23;
/// Longest message of IBTA.
const MAX_MESSAGE: u64 = 1 << 31;

struct Message {
    work: SendWork,
    first: Psn,
    /// PSNs that it occupies.
    packets: u32,
    len: u32,
    /// Its number, for end-to-end credits.
    ssn: u32,
    /// A local error; completed when everything before it is.
    failed: Option<Syndrome>,
    /// [`SendOp::Local`] only.
    executed: bool,
}

impl Message {
    fn is_read(&self) -> bool {
        matches!(self.work.op, SendOp::Read | SendOp::Atomic(_))
    }

    fn is_local(&self) -> bool {
        self.work.op == SendOp::Local
    }

    fn takes_recv(&self) -> bool {
        matches!(
            self.work.op,
            SendOp::Send | SendOp::SendImm(_) | SendOp::SendInv(_) | SendOp::WriteImm(_)
        )
    }

    fn end(&self) -> Psn {
        self.first.plus(self.packets)
    }
}

pub(super) struct Requester {
    messages: VecDeque<Message>,
    spare: Vec<SendWork>,
    /// Message and packet of it that are sent next.
    cursor: usize,
    offset: u32,
    una: Psn,
    high: Psn,
    /// First PSN of the next message.
    next: Psn,
    ssn: u32,
    /// READs and atomics in front of the cursor.
    reads: u32,
    /// Last message that the peer has receive WQEs for; `None` when it does not say.
    credit_limit: Option<u32>,
    since_ack_request: u32,
    retries_left: u8,
    rnr_left: u8,
    /// One early retransmission per lost packet; if that is lost as well, the timer helps.
    went_back: bool,
    deadline: Option<Duration>,
    rnr_until: Option<Duration>,
}

impl Requester {
    pub(super) fn new(psn: Psn) -> Requester {
        Requester {
            messages: VecDeque::new(),
            spare: Vec::new(),
            cursor: 0,
            offset: 0,
            una: psn,
            high: psn,
            next: psn,
            ssn: 0,
            reads: 0,
            credit_limit: None,
            since_ack_request: 0,
            retries_left: 0,
            rnr_left: 0,
            went_back: false,
            deadline: None,
            rnr_until: None,
        }
    }

    pub(super) fn next_psn(&self) -> Psn {
        self.next
    }

    pub(super) fn unacknowledged(&self) -> Psn {
        self.una
    }

    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Takes changed retry counts over.
    pub(super) fn reload_retries(&mut self, config: &QpConfig) {
        self.retries_left = config.retry_count;
        self.rnr_left = config.rnr_retry;
    }

    /// Takes a changed timeout over.
    pub(super) fn rearm(&mut self, config: &QpConfig, now: Duration) {
        self.deadline = if self.una == self.high || config.kind != QpKind::Rc {
            None
        } else {
            codes::ack_timeout(config.ack_timeout).map(|timeout| now + timeout)
        };
    }

    pub(super) fn next_deadline(&self) -> Option<Duration> {
        // While waiting for the receiver nothing is expected from it.
        self.rnr_until.or(self.deadline)
    }

    /// Sends what may be sent. An error is that of the oldest message.
    pub(super) fn run(
        &mut self,
        config: &QpConfig,
        env: &mut dyn Env,
        scratch: &mut Scratch,
        now: Duration,
        budget: &mut usize,
    ) -> Result<(), Syndrome> {
        while *budget > 0 && self.rnr_until.is_none() {
            self.retire(env)?;
            if self.cursor == self.messages.len()
                && !(config.state == QpState::Rts && self.fetch(config, env))
            {
                break;
            }
            if !self.may_send(config) {
                break;
            }
            self.send_one(config, env, scratch, now);
            *budget -= 1;
        }
        self.retire(env)
    }

    /// Fetches the next WQE; what is wrong with it is kept until its turn to complete.
    fn fetch(&mut self, config: &QpConfig, env: &mut dyn Env) -> bool {
        let mut work = self.spare.pop().unwrap_or_default();
        work.clear();
        let mut failed = match env.next_send(&mut work) {
            Ok(false) => {
                self.spare.push(work);
                return false;
            }
            Ok(true) => None,
            Err(BadWqe(syndrome)) => Some(syndrome),
        };
        let len = work.len();
        let unreliable = config.kind == QpKind::Uc;
        let allowed = match work.op {
            SendOp::Local | SendOp::Send | SendOp::SendImm(_) => true,
            SendOp::Write | SendOp::WriteImm(_) => true,
            SendOp::SendInv(_) => !unreliable,
            SendOp::Read | SendOp::Atomic(_) => !unreliable && config.max_rd_atomic > 0,
        };
        if !allowed {
            failed = failed.or(Some(Syndrome::LocalQpOperation));
        }
        if len > MAX_MESSAGE.min(u64::from(config.max_message)) {
            failed = failed.or(Some(Syndrome::LocalLength));
        }
        let packets = match (failed, work.op) {
            (Some(_), _) | (_, SendOp::Local) => 0,
            (_, SendOp::Atomic(_)) => 1,
            _ => (len.div_ceil(config.mtu as u64) as u32).max(1),
        };
        if packets > 0 {
            self.ssn = self.ssn.wrapping_add(1);
        }
        self.messages.push_back(Message {
            work,
            first: self.next,
            packets,
            len: len as u32,
            ssn: self.ssn,
            failed,
            executed: false,
        });
        self.next = self.next.plus(packets);
        true
    }

    /// Whether the packet at the cursor may go out now.
    fn may_send(&self, config: &QpConfig) -> bool {
        let Some(message) = self.messages.get(self.cursor) else {
            return false;
        };
        if message.failed.is_some() {
            return false;
        }
        if message.work.fence && self.offset == 0 && self.reads > 0 {
            return false;
        }
        if message.is_local() || config.kind != QpKind::Rc {
            return true;
        }
        if message.end().distance(self.una) > MAX_SPAN {
            return false;
        }
        if message.is_read() {
            return self.reads < u32::from(config.max_rd_atomic);
        }
        if self.offset == 0
            && message.takes_recv()
            && message.first != self.una
            && self
                .credit_limit
                .is_some_and(|limit| Psn::new(limit).before(Psn::new(message.ssn)))
        {
            // Out of credits only one message goes, to find out whether there are new ones.
            return false;
        }
        message.first.plus(self.offset).distance(self.una) < WINDOW
    }

    fn send_one(
        &mut self,
        config: &QpConfig,
        env: &mut dyn Env,
        scratch: &mut Scratch,
        now: Duration,
    ) {
        let Some(message) = self.messages.get_mut(self.cursor) else {
            return;
        };
        if message.is_local() {
            if !message.executed {
                if let Err(syndrome) = env.execute_local(&message.work) {
                    message.failed = Some(syndrome);
                    return;
                }
                message.executed = true;
            }
            self.cursor += 1;
            return;
        }
        let Some(path) = config.path else {
            message.failed = Some(Syndrome::LocalQpOperation);
            return;
        };
        let psn = message.first.plus(self.offset);
        let again = psn.before(self.high);
        let mut out = request(config, message, self.offset, psn);
        let last = message.is_read() || self.offset + 1 == message.packets;
        if config.kind == QpKind::Rc {
            self.since_ack_request += 1;
            let often = (1u32 << config.log_ack_req_freq.min(15)).min(WINDOW / 4);
            out.ack_request = last || self.since_ack_request >= often;
            if out.ack_request {
                self.since_ack_request = 0;
            }
        }
        let begin = u64::from(self.offset) * config.mtu as u64;
        let work = &message.work;
        let sent = transmit(config.pkey, &path, env, scratch, out, |env, payload| {
            gather(env, work, begin, payload)
        });
        if sent.is_err() {
            message.failed = Some(Syndrome::LocalProtection);
            return;
        }
        if again {
            env.count(Counter::Retransmissions);
        }
        let behind = if message.is_read() {
            self.reads += 1;
            message.end()
        } else {
            psn.plus(1)
        };
        if self.high.before(behind) {
            self.high = behind;
        }
        if last {
            self.cursor += 1;
            self.offset = 0;
        } else {
            self.offset += 1;
        }
        if config.kind == QpKind::Uc {
            self.una = self.high;
        } else if self.deadline.is_none() {
            self.rearm(config, now);
        }
    }

    /// Completes what is done, in order. The error is that of the message now in front.
    fn retire(&mut self, env: &mut dyn Env) -> Result<(), Syndrome> {
        while let Some(front) = self.messages.front() {
            if let Some(syndrome) = front.failed {
                return Err(syndrome);
            }
            let done = if front.is_local() {
                front.executed
            } else {
                !self.una.before(front.end())
            };
            if !done {
                break;
            }
            let byte_len = match front.work.op {
                SendOp::Atomic(_) => 8,
                _ => front.len,
            };
            if let Some(message) = self.pop() {
                complete(env, &message.work, byte_len, Ok(()));
                self.spare.push(message.work);
            }
        }
        Ok(())
    }

    fn pop(&mut self) -> Option<Message> {
        let message = self.messages.pop_front()?;
        if self.cursor > 0 {
            self.cursor -= 1;
            if message.is_read() {
                self.reads -= 1;
            }
        } else {
            self.offset = 0;
        }
        Some(message)
    }

    /// Ends everything: the oldest message with `syndrome`, the others flushed.
    pub(super) fn flush(&mut self, syndrome: Option<Syndrome>, env: &mut dyn Env) {
        let mut first = syndrome;
        while let Some(message) = self.pop() {
            let syndrome = first.take().unwrap_or(Syndrome::WorkRequestFlushed);
            complete(env, &message.work, 0, Err(syndrome));
            self.spare.push(message.work);
        }
        let (una, ssn) = (self.high, self.ssn);
        let (retries_left, rnr_left) = (self.retries_left, self.rnr_left);
        let spare = std::mem::take(&mut self.spare);
        *self = Requester {
            spare,
            ssn,
            retries_left,
            rnr_left,
            ..Requester::new(una)
        };
    }

    /// Puts the cursor back to the oldest packet without an answer.
    fn go_back(&mut self) {
        let una = self.una;
        let target = self.messages.iter().position(|m| {
            m.failed.is_some()
                || if m.is_local() {
                    !m.executed
                } else {
                    una.before(m.end())
                }
        });
        let target = target.unwrap_or(self.messages.len()).min(self.cursor);
        if target < self.cursor {
            self.offset = 0;
        }
        self.cursor = target;
        self.reads = self
            .messages
            .range(..target)
            .filter(|m| m.is_read())
            .count() as u32;
        if let Some(message) = self.messages.get(target)
            && message.packets > 0
        {
            self.offset = una.since(message.first).max(0) as u32;
        }
        self.since_ack_request = 0;
    }

    /// A NAK or a skipped response: at most once per lost packet, at the cost of a retry.
    fn retry_early(&mut self, config: &QpConfig, now: Duration) -> Result<(), Syndrome> {
        if self.went_back {
            return Ok(());
        }
        self.went_back = true;
        self.take_retry()?;
        self.go_back();
        self.rearm(config, now);
        Ok(())
    }

    fn take_retry(&mut self) -> Result<(), Syndrome> {
        self.retries_left = self
            .retries_left
            .checked_sub(1)
            .ok_or(Syndrome::TransportRetryExceeded)?;
        Ok(())
    }

    pub(super) fn on_timer(
        &mut self,
        config: &QpConfig,
        env: &mut dyn Env,
        now: Duration,
    ) -> Result<(), Syndrome> {
        if let Some(until) = self.rnr_until {
            if now >= until {
                self.rnr_until = None;
                self.go_back();
                self.rearm(config, now);
            }
            return Ok(());
        }
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return Ok(());
        }
        env.count(Counter::LocalAckTimeoutErr);
        self.take_retry()?;
        self.went_back = false;
        self.go_back();
        self.rearm(config, now);
        Ok(())
    }

    /// Everything before `target` is answered, except that only their responses answer READs and atomics. Returns whether
    /// one of those was skipped.
    fn acknowledge(&mut self, target: Psn, config: &QpConfig, now: Duration) -> bool {
        let mut reached = target;
        for message in &self.messages {
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
    pub(super) fn on_response(
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
                let skipped = self.acknowledge(psn, config, now);
                self.retire(env)?;
                self.skipped(skipped, config, env, now)?;
                if !skipped {
                    self.on_rnr(codes::rnr_delay(timer), config, env, now)?;
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
        env: &mut dyn Env,
        now: Duration,
    ) -> Result<(), Syndrome> {
        if self.rnr_until.is_some() {
            return Ok(());
        }
        // 7 means for ever.
        if config.rnr_retry != 7 {
            let Some(left) = self.rnr_left.checked_sub(1) else {
                env.count(Counter::RnrNakRetryErr);
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
        let Some(message) = self.messages.front() else {
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
                scatter(env, segments, 0, &bytes[..len])
            }
            (SendOp::Read, op) if op != Operation::AtomicAcknowledge => {
                let begin = u64::from(index) * config.mtu as u64;
                let last = index + 1 == message.packets;
                let want = (u64::from(message.len) - begin).min(config.mtu as u64);
                if last != op.ends() || packet.payload.len() as u64 != want {
                    return Err(Syndrome::BadResponse);
                }
                scatter(env, segments, begin, packet.payload)
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

fn complete(env: &mut dyn Env, work: &SendWork, byte_len: u32, result: Result<(), Syndrome>) {
    match result {
        Ok(()) => {}
        Err(Syndrome::WorkRequestFlushed) => env.count(Counter::ReqCqeFlushError),
        Err(_) => env.count(Counter::ReqCqeError),
    }
    env.complete_send(SendCompletion {
        index: work.index,
        wqe_opcode: work.wqe_opcode,
        signaled: work.signaled,
        byte_len,
        result,
    });
}

/// The request packet of a message at a packet offset.
fn request(config: &QpConfig, message: &Message, offset: u32, psn: Psn) -> Outgoing {
    use Operation as Op;
    let work = &message.work;
    let mtu = config.mtu as u32;
    let begin = offset * mtu;
    let rest = message.len - begin.min(message.len);
    let (first, last) = (offset == 0, offset + 1 == message.packets);
    let mut extended = Extended::default();
    let mut payload_len = rest.min(mtu);
    let send = |only, at_end| match (first, last) {
        (true, true) => only,
        (true, false) => Op::SendFirst,
        (false, false) => Op::SendMiddle,
        (false, true) => at_end,
    };
    let write = |only, at_end| match (first, last) {
        (true, true) => only,
        (true, false) => Op::WriteFirst,
        (false, false) => Op::WriteMiddle,
        (false, true) => at_end,
    };
    let operation = match work.op {
        SendOp::Local | SendOp::Send => send(Op::SendOnly, Op::SendLast),
        SendOp::SendImm(imm) => {
            extended.imm = imm;
            send(Op::SendOnlyImm, Op::SendLastImm)
        }
        SendOp::SendInv(rkey) => {
            extended.invalidate = rkey;
            send(Op::SendOnlyInv, Op::SendLastInv)
        }
        SendOp::Write => write(Op::WriteOnly, Op::WriteLast),
        SendOp::WriteImm(imm) => {
            extended.imm = imm;
            write(Op::WriteOnlyImm, Op::WriteLastImm)
        }
        SendOp::Read => {
            payload_len = 0;
            Op::ReadRequest
        }
        SendOp::Atomic(op) => {
            payload_len = 0;
            let (operation, swap_or_add, compare) = match op {
                AtomicOp::CompareSwap { compare, swap } => (Op::CompareSwap, swap, compare),
                AtomicOp::FetchAdd { add } => (Op::FetchAdd, add, 0),
            };
            extended.atomic = AtomicEth {
                addr: work.remote_addr,
                rkey: work.rkey,
                swap_or_add,
                compare,
            };
            operation
        }
    };
    if operation.has_reth() {
        extended.reth = Reth {
            addr: work.remote_addr.wrapping_add(u64::from(begin)),
            rkey: work.rkey,
            len: rest,
        };
    }
    let service = match config.kind {
        QpKind::Uc => Service::Uc,
        _ => Service::Rc,
    };
    Outgoing {
        opcode: Opcode::new(service, operation),
        psn,
        destination_qpn: config.remote_qpn,
        ack_request: false,
        solicited: work.solicited && last && message.takes_recv(),
        extended,
        payload_len: payload_len as usize,
    }
}
