//! Requester of connections (RC, UC, XRC, DC): segmentation, acknowledgements, go-back-N, timers.
//!
//! Messages are kept from the moment their WQE is fetched until it is completed, in order. `una` is the oldest PSN without
//! an answer, `high` the one behind the newest ever sent; the cursor is where sending goes on. Going back means putting the
//! cursor where `una` is. A READ occupies one PSN per response packet, so a READ broken off in the middle is asked for
//! again from there. WQEs that send nothing occupy no PSN and are executed once, when the cursor first gets to them.

mod answers;
mod message;
mod packets;
mod queue;
mod streams;

use std::time::Duration;

use self::message::Message;
use self::packets::request;
use self::queue::Queue;
use super::codes;
use super::dynamic::{Connection, Initiator};
use super::env::{
    BadWqe, Counter, Env, QpConfig, QpKind, QpState, SendCompletion, SendOp, SendWork, Syndrome,
};
use super::memory::gather;
use super::outgoing::{Scratch, transmit};
use super::psn::Psn;
use super::template::Template;

/// The number of packets that may be on their way unacknowledged (READ responses do not count).
const WINDOW: u32 = 1024;
/// PSNs in use at a time: half of the number space, so that old and new can be distinguished (IBTA vol. 1, 9.7.4.1.1).
const MAX_SPAN: u32 = 1 << 23;
/// Longest message of IBTA.
const MAX_MESSAGE: u64 = 1 << 31;

pub(super) struct Requester {
    messages: Queue,
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
    /// DCI: the target that it is connected to.
    pub(super) initiator: Initiator,
}

/// The event that a message waits for when a packet of it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waits {
    ForAnswer,
    /// It may be done, or have failed.
    No,
}

impl Requester {
    pub(super) fn new(psn: Psn) -> Requester {
        Requester {
            messages: Queue::default(),
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
            initiator: Initiator::default(),
        }
    }

    /// One that starts over.
    pub(super) fn renewed(&self, psn: Psn) -> Requester {
        Requester {
            initiator: self.initiator.renewed(),
            ..Requester::new(psn)
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

    /// Asks again on another path for what has no answer.
    pub(super) fn change_path(&mut self, config: &QpConfig, now: Duration) {
        self.reload_retries(config);
        self.went_back = false;
        self.rnr_until = None;
        self.go_back();
        self.rearm(config, now);
    }

    /// Takes a changed timeout over.
    pub(super) fn rearm(&mut self, config: &QpConfig, now: Duration) {
        self.deadline = if self.una == self.high || !config.kind.reliable() {
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
        template: Option<&Template>,
        env: &mut dyn Env,
        scratch: &mut Scratch,
        now: Duration,
        budget: &mut usize,
    ) -> Result<(), Syndrome> {
        self.retire(env)?;
        while *budget > 0 && self.rnr_until.is_none() {
            if self.cursor == self.messages.len()
                && !(config.state == QpState::Rts && self.fetch(config, env))
            {
                break;
            }
            if !self.may_send(config) {
                if self.cursor == 0 && self.messages.front().is_some_and(Message::is_flushed) {
                    // Of a stream in error; others may follow.
                    self.retire(env)?;
                    *budget -= 1;
                    continue;
                }
                break;
            }
            if self.send_one(config, template, env, scratch, now) == Waits::No {
                self.retire(env)?;
            }
            *budget -= 1;
        }
        self.retire(env)
    }

    /// Fetches the next WQE; what is wrong with it is kept until its turn to complete.
    fn fetch(&mut self, config: &QpConfig, env: &mut dyn Env) -> bool {
        let message = self.messages.next_slot();
        message.for_cqe.clear();
        let work = &mut message.work;
        work.clear();
        let mut failed = match env.next_send(work) {
            Ok(false) => return false,
            Ok(true) => None,
            Err(BadWqe(syndrome)) => Some(syndrome),
        };
        if work
            .stream
            .is_some_and(|it| self.initiator.errored.contains(&it))
        {
            failed = Some(Syndrome::WorkRequestFlushed);
        }
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
        message.first = self.next;
        message.packets = packets;
        message.len = len as u32;
        message.ssn = self.ssn;
        message.failed = failed;
        message.executed = false;
        self.messages.push();
        self.next = self.next.plus(packets);
        true
    }

    /// Returns `true` if the packet at the cursor may go out now.
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
        if message.is_local() || !config.kind.reliable() {
            return true;
        }
        if self.offset == 0 && self.una != self.high && !self.is_connected(config, message) {
            return false;
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

    /// Returns `true` if a message goes to the present target; only those of DCIs may go to another one.
    fn is_connected(&self, config: &QpConfig, message: &Message) -> bool {
        config.kind != QpKind::Dci
            || match (&self.initiator.connection, &message.work.target) {
                (Some(connection), Some(target)) => connection.is_to(target, message.work.stream),
                _ => false,
            }
    }

    fn send_one(
        &mut self,
        config: &QpConfig,
        template: Option<&Template>,
        env: &mut dyn Env,
        scratch: &mut Scratch,
        now: Duration,
    ) -> Waits {
        let Some(message) = self.messages.get_mut(self.cursor) else {
            return Waits::No;
        };
        if message.is_local() {
            if !message.executed {
                if let Err(syndrome) = env.execute_local(&message.work) {
                    message.failed = Some(syndrome);
                    return Waits::No;
                }
                message.executed = true;
            }
            self.cursor += 1;
            return Waits::No;
        }
        if config.kind == QpKind::Dci
            && let (0, Some(target)) = (self.offset, message.work.target.as_deref())
            && self.una == self.high
        {
            let stream = message.work.stream;
            self.initiator.open(*target, stream, message.first, now);
        }
        let connection = self.initiator.connection.as_deref();
        let Some(template) = connection.map(Connection::template).or(template) else {
            message.failed = Some(Syndrome::LocalQpOperation);
            return Waits::No;
        };
        let psn = message.first.plus(self.offset);
        let again = psn.before(self.high);
        let mut out = request(config, message, self.offset, psn);
        if let Some(connection) = connection {
            (out.destination_qpn, out.extended.dc) = connection.header(config);
        }
        let last = message.is_read() || self.offset + 1 == message.packets;
        if config.kind.reliable() {
            self.since_ack_request += 1;
            let often = (1u32 << config.log_ack_req_freq.min(15)).min(WINDOW / 4);
            out.ack_request = last || self.since_ack_request >= often;
            if out.ack_request {
                self.since_ack_request = 0;
            }
        }
        let begin = u64::from(self.offset) * config.mtu as u64;
        let work = &message.work;
        let sent = transmit(config, template, env, scratch, out, |env, payload| {
            gather(env, work, begin, payload)
        });
        if sent.is_err() {
            message.failed = Some(Syndrome::LocalProtection);
            return Waits::No;
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
            return Waits::No;
        }
        if self.deadline.is_none() {
            self.rearm(config, now);
        }
        Waits::ForAnswer
    }

    /// Completes what is done, in order. The error is that of the message now in front.
    fn retire(&mut self, env: &mut dyn Env) -> Result<(), Syndrome> {
        while let Some(front) = self.messages.front() {
            if front.is_flushed() {
                complete(env, &front.work, 0, Err(Syndrome::WorkRequestFlushed));
                self.skip_front();
                continue;
            }
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
            if !front.for_cqe.is_empty() {
                env.scatter_to_cqe(&front.for_cqe);
            }
            complete(env, &front.work, byte_len, Ok(()));
            self.pop();
        }
        Ok(())
    }

    /// Removes the first message.
    fn pop(&mut self) {
        if self.cursor > 0 {
            self.cursor -= 1;
            if self.messages.front().is_some_and(Message::is_read) {
                self.reads -= 1;
            }
        } else {
            self.offset = 0;
        }
        self.messages.pop();
    }

    /// Removes the first message, which has no answer. What follows it starts over, on a connection of its own.
    fn skip_front(&mut self) {
        let Some(front) = self.messages.front() else {
            return;
        };
        let end = front.end();
        self.pop();
        (self.una, self.high) = (end, end);
        (self.cursor, self.offset, self.reads) = (0, 0, 0);
        (self.deadline, self.rnr_until, self.credit_limit) = (None, None, None);
        self.since_ack_request = 0;
        self.went_back = false;
    }

    /// Ends everything: the oldest message with `syndrome`, the others flushed.
    pub(super) fn flush(&mut self, syndrome: Option<Syndrome>, env: &mut dyn Env) {
        let mut first = syndrome;
        for message in self.messages.iter() {
            let syndrome = first.take().unwrap_or(Syndrome::WorkRequestFlushed);
            complete(env, &message.work, 0, Err(syndrome));
        }
        let (una, ssn) = (self.high, self.ssn);
        let (retries_left, rnr_left) = (self.retries_left, self.rnr_left);
        let mut messages = std::mem::take(&mut self.messages);
        messages.clear();
        *self = Requester {
            messages,
            ssn,
            retries_left,
            rnr_left,
            ..self.renewed(una)
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
            .iter()
            .take(target)
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
}

fn complete(env: &mut dyn Env, work: &SendWork, byte_len: u32, result: Result<(), Syndrome>) {
    env.complete_send(SendCompletion {
        index: work.index,
        wqe_opcode: work.wqe_opcode,
        signaled: work.signaled,
        byte_len,
        result,
    });
}
