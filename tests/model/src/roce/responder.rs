//! RC and UC responder: order, execution, answers, replay.
//!
//! Requests are executed as they come; answers wait in a queue until [`Responder::run`] sends them, in order. A READ's data
//! are fetched when its responses go out. Acknowledgements of requests that came between two runs fall together.

use std::collections::VecDeque;

use super::codes::{self, Nak, Syndrome as AethSyndrome};
use super::env::{
    AccessError, BadWqe, Counter, Env, QpConfig, RecvCompletion, RecvOp, RecvWork, RemoteRight,
    Syndrome,
};
use super::memory::{Fault, scatter};
use super::opcode::{Opcode, Operation, Service};
use super::packet::{Aeth, AtomicEth, Extended, Packet, Reth};
use super::psn::Psn;
use super::transport::{Outgoing, Scratch, transmit};

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
}

/// What is kept to answer duplicates.
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

/// How far a packet got.
enum Step {
    Executed,
    /// No receive WQE is there.
    NotReady,
}

pub(super) struct Responder {
    expected: Psn,
    msn: u32,
    receiving: Receiving,
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
            env.count(match syndrome {
                None => Counter::RespCqeFlushError,
                Some(_) => Counter::RespCqeError,
            });
            env.complete_recv(RecvCompletion {
                index: self.recv.index,
                op: RecvOp::Send,
                byte_len: 0,
                solicited: false,
                source: None,
                result: Err(syndrome.unwrap_or(Syndrome::WorkRequestFlushed)),
            });
        }
    }

    /// Drops answers that were not sent yet.
    pub(super) fn forget_responses(&mut self) {
        self.responses.clear();
        self.pending = 0;
    }

    // ---- what comes in, RC

    /// Takes an RC request. A fault has been answered already; the QP is to fail.
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
        let step = match operation {
            Operation::ReadRequest => self.read(config, env, packet),
            Operation::CompareSwap | Operation::FetchAdd => self.atomic(config, env, packet),
            _ => self.message(config, env, packet),
        };
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
        };
        self.responses.push_back(Response::Read {
            read: again,
            sent: 0,
            replay: true,
        });
    }

    /// Part of a SEND or WRITE that comes in its turn.
    fn message(
        &mut self,
        config: &QpConfig,
        env: &mut dyn Env,
        packet: &Packet<'_>,
    ) -> Result<Step, Fault> {
        let operation = packet.repr.bth.opcode.operation;
        let fits = match self.receiving {
            Receiving::Nothing | Receiving::Ignored => operation.begins(),
            Receiving::Send { .. } => operation.is_send() && !operation.begins(),
            Receiving::Write { .. } => operation.is_write() && !operation.begins(),
        };
        if !fits || !length_fits(operation, packet.payload.len(), config.mtu) {
            return Err(Fault::INVALID_REQUEST);
        }
        if operation.is_send() {
            self.send(config, env, packet)
        } else {
            self.write(config, env, packet)
        }
    }

    /// Makes sure that a receive WQE is held.
    fn take_recv(&mut self, env: &mut dyn Env) -> Result<bool, Fault> {
        if !self.holds_recv {
            self.recv.clear();
            match env.next_recv(&mut self.recv) {
                Ok(taken) => self.holds_recv = taken,
                Err(BadWqe(syndrome)) => {
                    self.holds_recv = true;
                    return Err(Fault::local(syndrome));
                }
            }
        }
        Ok(self.holds_recv)
    }

    fn send(
        &mut self,
        config: &QpConfig,
        env: &mut dyn Env,
        packet: &Packet<'_>,
    ) -> Result<Step, Fault> {
        let bth = &packet.repr.bth;
        if !self.take_recv(env)? {
            return Ok(Step::NotReady);
        }
        let received = match self.receiving {
            Receiving::Send { received } => received,
            _ => 0,
        };
        let total = u64::from(received) + packet.payload.len() as u64;
        if total > self.recv.len() {
            env.count(Counter::RespLocalLengthError);
            return Err(Fault::TOO_LONG);
        }
        if total > u64::from(MAX_MESSAGE.min(config.max_message)) {
            return Err(Fault::INVALID_REQUEST);
        }
        scatter(
            env,
            &self.recv.segments,
            u64::from(received),
            packet.payload,
        )
        .map_err(|_| Fault::local(Syndrome::LocalProtection))?;
        if !bth.opcode.operation.ends() {
            self.receiving = Receiving::Send {
                received: total as u32,
            };
            return Ok(Step::Executed);
        }
        let extended = &packet.repr.extended;
        let op = match bth.opcode.operation {
            op if op.has_imm() => RecvOp::SendImm(extended.imm),
            op if op.has_ieth() => {
                env.invalidate(extended.invalidate).map_err(Fault::remote)?;
                RecvOp::SendInv(extended.invalidate)
            }
            _ => RecvOp::Send,
        };
        self.receiving = Receiving::Nothing;
        self.complete(env, op, total as u32, bth.solicited);
        Ok(Step::Executed)
    }

    fn write(
        &mut self,
        config: &QpConfig,
        env: &mut dyn Env,
        packet: &Packet<'_>,
    ) -> Result<Step, Fault> {
        let bth = &packet.repr.bth;
        let operation = bth.opcode.operation;
        let (reth, received) = match self.receiving {
            Receiving::Write { reth, received } => (reth, received),
            _ => {
                let reth = packet.repr.extended.reth;
                if !config.access.write || reth.len > MAX_MESSAGE {
                    return Err(Fault::INVALID_REQUEST);
                }
                if reth.len != 0 {
                    env.remote_check(reth.rkey, reth.addr, reth.len, RemoteRight::Write)
                        .map_err(Fault::remote)?;
                }
                (reth, 0)
            }
        };
        let total = u64::from(received) + packet.payload.len() as u64;
        let agrees = if operation.ends() {
            total == u64::from(reth.len)
        } else {
            total < u64::from(reth.len)
        };
        if !agrees {
            return Err(Fault::INVALID_REQUEST);
        }
        if operation.has_imm() && !self.take_recv(env)? {
            return Ok(Step::NotReady);
        }
        if operation.begins() {
            env.count(Counter::WriteRequests);
        }
        if !packet.payload.is_empty() {
            let addr = reth.addr.wrapping_add(u64::from(received));
            env.remote_write(reth.rkey, addr, packet.payload)
                .map_err(Fault::remote)?;
        }
        if !operation.ends() {
            self.receiving = Receiving::Write {
                reth,
                received: total as u32,
            };
            return Ok(Step::Executed);
        }
        self.receiving = Receiving::Nothing;
        if operation.has_imm() {
            let op = RecvOp::WriteImm(packet.repr.extended.imm);
            self.complete(env, op, reth.len, bth.solicited);
        }
        Ok(Step::Executed)
    }

    fn complete(&mut self, env: &mut dyn Env, op: RecvOp, byte_len: u32, solicited: bool) {
        self.holds_recv = false;
        env.complete_recv(RecvCompletion {
            index: self.recv.index,
            op,
            byte_len,
            solicited,
            source: None,
            result: Ok(()),
        });
    }

    /// Whether a READ or atomic may be accepted now: in no message's middle, and not more than was agreed on.
    fn accepts(&self, allowed: bool, config: &QpConfig) -> Result<(), Fault> {
        if allowed
            && self.receiving == Receiving::Nothing
            && self.pending < usize::from(config.max_dest_rd_atomic)
        {
            Ok(())
        } else {
            Err(Fault::INVALID_REQUEST)
        }
    }

    fn read(
        &mut self,
        config: &QpConfig,
        env: &mut dyn Env,
        packet: &Packet<'_>,
    ) -> Result<Step, Fault> {
        self.accepts(config.access.read, config)?;
        let reth = packet.repr.extended.reth;
        if reth.len > MAX_MESSAGE {
            return Err(Fault::INVALID_REQUEST);
        }
        if reth.len != 0 {
            env.remote_check(reth.rkey, reth.addr, reth.len, RemoteRight::Read)
                .map_err(Fault::remote)?;
        }
        env.count(Counter::ReadRequests);
        self.count_message();
        let read = Read {
            first: self.expected,
            packets: packets(reth.len, config.mtu),
            reth,
            msn: self.msn,
        };
        self.expected = self.expected.plus(read.packets);
        self.keep(Resource::Read(read), config);
        self.pending += 1;
        self.responses.push_back(Response::Read {
            read,
            sent: 0,
            replay: false,
        });
        Ok(Step::Executed)
    }

    fn atomic(
        &mut self,
        config: &QpConfig,
        env: &mut dyn Env,
        packet: &Packet<'_>,
    ) -> Result<Step, Fault> {
        self.accepts(config.access.atomic, config)?;
        let request = packet.repr.extended.atomic;
        if !request.addr.is_multiple_of(8) {
            return Err(Fault::INVALID_REQUEST);
        }
        let compare_swap = packet.repr.bth.opcode.operation == Operation::CompareSwap;
        let value = execute_atomic(env, &request, compare_swap, config.atomics_big_endian)
            .map_err(Fault::remote)?;
        env.count(Counter::AtomicRequests);
        self.count_message();
        let (psn, msn) = (self.expected, self.msn);
        self.expected = psn.plus(1);
        self.keep(Resource::Atomic { psn, value, msn }, config);
        self.pending += 1;
        self.responses.push_back(Response::Atomic {
            psn,
            msn,
            value,
            replay: false,
        });
        Ok(Step::Executed)
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
        env: &mut dyn Env,
        scratch: &mut Scratch,
        budget: &mut usize,
    ) -> Result<(), Fault> {
        let Some(path) = config.path else {
            return Ok(());
        };
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
            let mut from = (0, 0);
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
                opcode: Opcode::new(Service::Rc, operation),
                psn,
                destination_qpn: config.remote_qpn,
                ack_request: false,
                solicited: false,
                extended,
                payload_len,
            };
            let sent = transmit(config.pkey, &path, env, scratch, out, |env, payload| {
                if payload.is_empty() {
                    Ok(())
                } else {
                    env.remote_read(from.0, from.1, payload)
                }
            });
            if let Err(error) = sent {
                let fault = Fault::remote(error);
                self.forget_responses();
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

/// Whether a payload has the length that its place in the message asks for.
fn length_fits(operation: Operation, len: usize, mtu: usize) -> bool {
    match (operation.begins(), operation.ends()) {
        (_, false) => len == mtu,
        (false, true) => (1..=mtu).contains(&len),
        (true, true) => len <= mtu,
    }
}

/// Executes an atomic and returns the value that was there.
fn execute_atomic(
    env: &mut dyn Env,
    request: &AtomicEth,
    compare_swap: bool,
    big_endian: bool,
) -> Result<u64, AccessError> {
    env.remote_check(request.rkey, request.addr, 8, RemoteRight::Atomic)?;
    let mut bytes = [0; 8];
    env.atomic_read(request.rkey, request.addr, &mut bytes)?;
    let old = if big_endian {
        u64::from_be_bytes(bytes)
    } else {
        u64::from_le_bytes(bytes)
    };
    let new = if !compare_swap {
        old.wrapping_add(request.swap_or_add)
    } else if old == request.compare {
        request.swap_or_add
    } else {
        return Ok(old);
    };
    let bytes = if big_endian {
        new.to_be_bytes()
    } else {
        new.to_le_bytes()
    };
    env.atomic_write(request.rkey, request.addr, &bytes)?;
    Ok(old)
}
