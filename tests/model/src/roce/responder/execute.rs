//! Executing requests that come in their turn.

use super::super::env::{
    AccessError, BadWqe, Counter, Domain, Env, QpConfig, RecvCompletion, RecvOp, RemoteRight,
    Syndrome,
};
use super::super::memory::{Fault, scatter};
use super::super::opcode::Operation;
use super::super::packet::{AtomicEth, Packet};
use super::{MAX_MESSAGE, Read, Receiving, Resource, Responder, Response, Step, packets};

impl Responder {
    /// Part of a SEND or WRITE that comes in its turn.
    pub(super) fn message(
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
            match env.next_recv(self.domain, &mut self.recv) {
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
        // With immediate data or without; the key of the buffer is not asked for.
        let operation = bth.opcode.operation;
        let in_cqe = config.cqe_scatter.receives != 0
            && operation.begins()
            && operation.ends()
            && (1..=usize::from(config.cqe_scatter.receives)).contains(&packet.payload.len());
        if !in_cqe {
            scatter(
                env,
                self.domain,
                &self.recv.segments,
                u64::from(received),
                packet.payload,
            )
            .map_err(|_| Fault::local(Syndrome::LocalProtection))?;
        }
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
                env.invalidate(self.domain, extended.invalidate)
                    .map_err(Fault::remote)?;
                RecvOp::SendInv(extended.invalidate)
            }
            _ => RecvOp::Send,
        };
        self.receiving = Receiving::Nothing;
        if in_cqe {
            env.scatter_to_cqe(packet.payload);
        }
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
                // A message of one packet is checked as it is written.
                let alone = operation == Operation::WriteOnly
                    && packet.payload.len() as u64 == u64::from(reth.len);
                if reth.len != 0 && !alone {
                    let right = RemoteRight::Write;
                    env.remote_check(self.domain, reth.rkey, reth.addr, reth.len, right)
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
        if !packet.payload.is_empty() {
            let addr = reth.addr.wrapping_add(u64::from(received));
            env.remote_write(self.domain, reth.rkey, addr, packet.payload)
                .map_err(Fault::remote)?;
        }
        if operation.begins() {
            env.count(Counter::WriteRequests);
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
            domain: self.domain,
            result: Ok(()),
        });
    }

    /// Checks whether a READ or atomic may be accepted now: in no message's middle, and not more than was agreed on.
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

    pub(super) fn read(
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
            let right = RemoteRight::Read;
            env.remote_check(self.domain, reth.rkey, reth.addr, reth.len, right)
                .map_err(Fault::remote)?;
        }
        env.count(Counter::ReadRequests);
        self.count_message();
        let read = Read {
            first: self.expected,
            packets: packets(reth.len, config.mtu),
            reth,
            msn: self.msn,
            domain: self.domain,
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

    pub(super) fn atomic(
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
        let value = execute_atomic(
            env,
            self.domain,
            &request,
            compare_swap,
            config.atomics_big_endian,
        )
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
}

/// Returns `true` if a payload has the length that its place in the message asks for.
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
    domain: Domain,
    request: &AtomicEth,
    compare_swap: bool,
    big_endian: bool,
) -> Result<u64, AccessError> {
    let right = RemoteRight::Atomic;
    env.remote_check(domain, request.rkey, request.addr, 8, right)?;
    let mut bytes = [0; 8];
    env.atomic_read(domain, request.rkey, request.addr, &mut bytes)?;
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
    env.atomic_write(domain, request.rkey, request.addr, &bytes)?;
    Ok(old)
}
