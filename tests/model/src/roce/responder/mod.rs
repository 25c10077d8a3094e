//! Responder of connections (RC, UC, XRC): order, execution, answers, replay.
//!
//! Requests are executed as they come; answers wait in a queue until [`Responder::run`] sends them, in order. A READ's data
//! are fetched when its responses go out. Acknowledgements of requests that came between two runs fall together.

mod execute;

use std::collections::VecDeque;

use super::codes::{self, Nak, Syndrome as AethSyndrome};
use super::env::{
    Counter, Domain, Env, QpConfig, QpKind, RecvCompletion, RecvOp, RecvWork, Syndrome,
};
use super::memory::Fault;
use super::opcode::{Opcode, Operation};
use super::outgoing::{Outgoing, Scratch, transmit};
use super::packet::{Aeth, Extended, Packet, Reth};
use super::psn::Psn;
use super::template::Template;

/// Longest message of IBTA.
const MAX_MESSAGE: u32 = 1 << 31;
/// Answers that may wait at most; duplicates beyond are dropped, for the requester to ask again.
const MAX_RESPONSES: usize = 1024;

/// A message of which more packets are to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Receiving {
    Nothing,
    Send {
        received: u32,
    },
    Write {
        reth: Reth,
        received: u32,
    },
    /// UC: the rest of a message with a lost or refused packet.
    Ignored,
}

/// A READ that was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Read {
    first: Psn,
    packets: u32,
    reth: Reth,
    msn: u32,
    domain: Domain,
}

/// The answers that are kept for duplicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Resource {
    Read(Read),
    Atomic { psn: Psn, value: u64, msn: u32 },
}

/// An answer that has not been sent yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Response {
    Ack {
        psn: Psn,
        msn: u32,
    },
    Nak {
        psn: Psn,
        msn: u32,
        syndrome: AethSyndrome,
    },
    Atomic {
        psn: Psn,
        msn: u32,
        value: u64,
        replay: bool,
    },
    Read {
        read: Read,
        sent: u32,
        replay: bool,
    },
}

/// The progress of a packet.
enum Step {
    Executed,
    /// No receive WQE is there.
    NotReady,
}

pub(super) struct Responder {
    expected: Psn,
    msn: u32,
    receiving: Receiving,
    /// Of the message being received.
    domain: Domain,
    recv: RecvWork,
    holds_recv: bool,
    /// A NAK for the expected packet is out: silence until it comes.
    silent: bool,
    responses: VecDeque<Response>,
    /// READs and atomics among the responses, replays not counted.
    pending: usize,
    resources: VecDeque<Resource>,
}

impl Responder {
    pub(super) fn new(psn: Psn) -> Responder {
        Responder {
            expected: psn,
            msn: 0,
            receiving: Receiving::Nothing,
            domain: Domain::Own,
            recv: RecvWork::default(),
            holds_recv: false,
            silent: false,
            responses: VecDeque::new(),
            pending: 0,
            resources: VecDeque::new(),
        }
    }

    pub(super) fn expected(&self) -> Psn {
        self.expected
    }

    pub(super) fn msn(&self) -> u32 {
        self.msn
    }

    /// Ends the receive WQE in use: with `syndrome`, or flushed.
    pub(super) fn flush(&mut self, syndrome: Option<Syndrome>, env: &mut dyn Env) {
        self.receiving = Receiving::Nothing;
        if std::mem::take(&mut self.holds_recv) {
            env.complete_recv(RecvCompletion {
                index: self.recv.index,
                op: RecvOp::Send,
                byte_len: 0,
                solicited: false,
                source: None,
                domain: self.domain,
                result: Err(syndrome.unwrap_or(Syndrome::WorkRequestFlushed)),
            });
        }
    }

    /// Drops answers that were not sent yet.
    pub(super) fn drop_responses(&mut self) {
        self.responses.clear();
        self.pending = 0;
    }

    // ---- what comes in, reliable

    /// Takes a request of a reliable connection. A fault has been answered already; the QP is to fail.
    pub(super) fn on_request(
        &mut self,
        config: &QpConfig,
        env: &mut dyn Env,
        packet: &Packet<'_>,
    ) -> Result<(), Fault> {
        let bth = &packet.repr.bth;
        let ahead = bth.psn.since(self.expected);
        if ahead > 0 {
            env.count(Counter::OutOfSequence);
            if !self.silent {
                self.silent = true;
                self.nak(self.expected, AethSyndrome::Nak(Nak::Sequence));
            }
            return Ok(());
        }
        if ahead < 0 {
            self.duplicate(config, env, packet);
            return Ok(());
        }
        let operation = bth.opcode.operation;
        let step = self
            .enter_domain(config, env, packet)
            .and_then(|()| match operation {
                Operation::ReadRequest => self.read(config, env, packet),
                Operation::CompareSwap | Operation::FetchAdd => self.atomic(config, env, packet),
                _ => self.message(config, env, packet),
            });
        match step {
            Ok(Step::Executed) => self.silent = false,
            Ok(Step::NotReady) => {
                env.count(Counter::OutOfBuffer);
                env.count(Counter::RnrNakSent);
                self.silent = true;
                self.nak(bth.psn, AethSyndrome::Rnr(config.min_rnr_timer));
                return Ok(());
            }
            Err(fault) => {
                self.nak(bth.psn, AethSyndrome::Nak(fault.nak));
                return Err(fault);
            }
        }
        if operation.is_send() || operation.is_write() {
            self.expected = bth.psn.plus(1);
            if operation.ends() {
                self.count_message();
            }
            if bth.ack_request {
                self.acknowledge();
            }
        }
        Ok(())
    }

    /// Finds out whose queue and memory a request is about; a message cannot change that in its middle.
    fn enter_domain(
        &mut self,
        config: &QpConfig,
        env: &mut dyn Env,
        packet: &Packet<'_>,
    ) -> Result<(), Fault> {
        let domain = if config.kind == QpKind::XrcTarget {
            let srqn = packet.repr.extended.xrc_srqn;
            env.xrc_check(srqn).map_err(Fault::remote)?;
            Domain::Xrc(srqn)
        } else {
            Domain::Own
        };
        if self.receiving == Receiving::Nothing {
            self.domain = domain;
        } else if self.domain != domain {
            return Err(Fault::INVALID_REQUEST);
        }
        Ok(())
    }

    /// A request that was executed before.
    fn duplicate(&mut self, config: &QpConfig, env: &mut dyn Env, packet: &Packet<'_>) {
        env.count(Counter::DuplicateRequest);
        let bth = &packet.repr.bth;
        if self.responses.len() >= MAX_RESPONSES {
            return;
        }
        match bth.opcode.operation {
            Operation::ReadRequest => self.read_again(config, packet),
            Operation::CompareSwap | Operation::FetchAdd => {
                for resource in &self.resources {
                    if let Resource::Atomic { psn, value, msn } = *resource
                        && psn == bth.psn
                    {
                        let answer = |replay| Response::Atomic {
                            psn,
                            msn,
                            value,
                            replay,
                        };
                        let waits = |r| self.responses.contains(&answer(r));
                        if !waits(false) && !waits(true) {
                            self.responses.push_back(answer(true));
                        }
                        break;
                    }
                }
            }
            _ => {
                if bth.ack_request {
                    self.acknowledge();
                }
            }
        }
    }

    fn read_again(&mut self, config: &QpConfig, packet: &Packet<'_>) {
        let psn = packet.repr.bth.psn;
        let reth = packet.repr.extended.reth;
        let mtu = config.mtu as u64;
        let original = self.resources.iter().find_map(|resource| match *resource {
            Resource::Read(read) if psn.distance(read.first) < read.packets => Some(read),
            _ => None,
        });
        let Some(read) = original else { return };
        // The repetition may begin later than the original, but never reaches beyond it.
        let skipped = u64::from(psn.distance(read.first)) * mtu;
        if reth.rkey != read.reth.rkey
            || reth.addr != read.reth.addr.wrapping_add(skipped)
            || u64::from(reth.len) + skipped > u64::from(read.reth.len)
        {
            return;
        }
        let underway = self.responses.iter().any(|response| match *response {
            Response::Read { read, sent, .. } => {
                let next = read.first.plus(sent);
                !psn.before(next) && psn.before(read.first.plus(read.packets))
            }
            _ => false,
        });
        if underway {
            return;
        }
        let again = Read {
            first: psn,
            packets: packets(reth.len, config.mtu),
            reth,
            msn: read.msn,
            domain: read.domain,
        };
        self.responses.push_back(Response::Read {
            read: again,
            sent: 0,
            replay: true,
        });
    }

    fn keep(&mut self, resource: Resource, config: &QpConfig) {
        while self.resources.len() >= usize::from(config.max_dest_rd_atomic.max(1)) {
            self.resources.pop_front();
        }
        self.resources.push_back(resource);
    }

    fn count_message(&mut self) {
        self.msn = (self.msn + 1) & 0xff_ffff;
    }

    /// Acknowledges everything so far; together with the acknowledgement before, if that has not left yet.
    fn acknowledge(&mut self) {
        let ack = Response::Ack {
            psn: self.expected.minus(1),
            msn: self.msn,
        };
        match self.responses.back_mut() {
            Some(last @ Response::Ack { .. }) => *last = ack,
            _ => self.responses.push_back(ack),
        }
    }

    /// Refuses a request for what is not the responder's to check.
    pub(super) fn refuse(&mut self, psn: Psn, nak: Nak) {
        self.nak(psn, AethSyndrome::Nak(nak));
    }

    /// Returns `true` if a receive WQE is in use.
    pub(super) fn holds_recv(&self) -> bool {
        self.holds_recv
    }

    /// Takes over the receive WQE that another one holds, for the next message.
    pub(super) fn take_recv_of(&mut self, other: &mut Responder) {
        self.recv = std::mem::take(&mut other.recv);
        self.holds_recv = std::mem::take(&mut other.holds_recv);
    }

    fn nak(&mut self, psn: Psn, syndrome: AethSyndrome) {
        self.responses.push_back(Response::Nak {
            psn,
            msn: self.msn,
            syndrome,
        });
    }

    // ---- what comes in, UC

    /// Takes a UC request. A message with a missing packet is dropped as a whole; its receive WQE serves the next one.
    pub(super) fn on_unreliable(
        &mut self,
        config: &QpConfig,
        env: &mut dyn Env,
        packet: &Packet<'_>,
    ) -> Result<(), Fault> {
        let bth = &packet.repr.bth;
        let operation = bth.opcode.operation;
        if operation.begins() {
            self.receiving = Receiving::Nothing;
        } else if bth.psn != self.expected {
            env.count(Counter::OutOfSequence);
            self.receiving = Receiving::Ignored;
        }
        self.expected = bth.psn.plus(1);
        if self.receiving == Receiving::Ignored
            || (self.receiving == Receiving::Nothing && !operation.begins())
        {
            return Ok(());
        }
        match self.message(config, env, packet) {
            Ok(Step::Executed) => {
                if operation.ends() {
                    self.count_message();
                }
                Ok(())
            }
            Ok(Step::NotReady) => {
                env.count(Counter::OutOfBuffer);
                self.receiving = Receiving::Ignored;
                Ok(())
            }
            // What the sender did wrong is dropped; what is wrong here ends the QP.
            Err(fault) if fault.nak == Nak::RemoteOperation || fault == Fault::TOO_LONG => {
                Err(fault)
            }
            Err(_) => {
                env.count(Counter::PacketsDropped);
                self.receiving = Receiving::Ignored;
                Ok(())
            }
        }
    }

    // ---- what goes out

    /// Sends answers. A READ whose memory is gone in the meantime is a fault, answered like one of a request.
    pub(super) fn run(
        &mut self,
        config: &QpConfig,
        template: &Template,
        env: &mut dyn Env,
        scratch: &mut Scratch,
        budget: &mut usize,
    ) -> Result<(), Fault> {
        while *budget > 0 {
            let Some(front) = self.responses.front_mut() else {
                break;
            };
            let credits = if config.advertise_credits {
                codes::credit_code(env.recv_credits())
            } else {
                codes::credit_code(None)
            };
            let mut done = true;
            let mut operation = Operation::Acknowledge;
            let mut extended = Extended::default();
            let mut payload_len = 0;
            let mut from = (Domain::Own, 0, 0);
            let (psn, syndrome, msn) = match front {
                Response::Ack { psn, msn } => (*psn, AethSyndrome::Ack(credits), *msn),
                Response::Nak { psn, msn, syndrome } => (*psn, *syndrome, *msn),
                Response::Atomic {
                    psn, msn, value, ..
                } => {
                    operation = Operation::AtomicAcknowledge;
                    extended.atomic_ack = *value;
                    (*psn, AethSyndrome::Ack(credits), *msn)
                }
                Response::Read { read, sent, .. } => {
                    let begin = *sent * config.mtu as u32;
                    payload_len = (read.reth.len - begin).min(config.mtu as u32) as usize;
                    from = (
                        read.domain,
                        read.reth.rkey,
                        read.reth.addr.wrapping_add(u64::from(begin)),
                    );
                    let psn = read.first.plus(*sent);
                    done = *sent + 1 == read.packets;
                    operation = match (*sent == 0, done) {
                        (true, true) => Operation::ReadResponseOnly,
                        (true, false) => Operation::ReadResponseFirst,
                        (false, false) => Operation::ReadResponseMiddle,
                        (false, true) => Operation::ReadResponseLast,
                    };
                    *sent += 1;
                    // A message counts as done with its last packet.
                    let msn = if done {
                        read.msn
                    } else {
                        read.msn.wrapping_sub(1)
                    };
                    (psn, AethSyndrome::Ack(credits), msn)
                }
            };
            extended.aeth = Aeth {
                syndrome,
                msn: msn & 0xff_ffff,
            };
            let out = Outgoing {
                opcode: Opcode::new(config.kind.service(), operation),
                psn,
                destination_qpn: config.remote_qpn,
                ack_request: false,
                solicited: false,
                extended,
                payload_len,
            };
            let sent = transmit(config, template, env, scratch, out, |env, payload| {
                if payload.is_empty() {
                    Ok(())
                } else {
                    env.remote_read(from.0, from.1, from.2, payload)
                }
            });
            if let Err(error) = sent {
                let fault = Fault::remote(error);
                self.drop_responses();
                self.nak(psn, AethSyndrome::Nak(fault.nak));
                return Err(fault);
            }
            *budget -= 1;
            if done {
                self.pop_response();
            }
        }
        Ok(())
    }

    fn pop_response(&mut self) {
        if let Some(Response::Atomic { replay: false, .. } | Response::Read { replay: false, .. }) =
            self.responses.pop_front()
        {
            self.pending -= 1;
        }
    }

    pub(super) fn has_responses(&self) -> bool {
        !self.responses.is_empty()
    }
}

/// Packets of a message; an empty one has one as well.
fn packets(len: u32, mtu: usize) -> u32 {
    len.div_ceil(mtu as u32).max(1)
}
