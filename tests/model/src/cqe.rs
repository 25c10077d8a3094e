//! From the transport's completions to completion queue entries.

use crate::cq::opcode;
use crate::device::Device;
use crate::io::Io;
use crate::roce::env::{Counter, Domain, RecvCompletion, RecvOp, SendCompletion, Syndrome};

/// User index of queues that want entries of version 0.
pub(crate) const NO_USER_INDEX: u32 = 0xff_ffff;

fn put32(entry: &mut [u8; 64], at: usize, value: u32) {
    entry[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

/// The vendor's syndrome beside the standard one: any number will do that differs by cause.
pub(crate) fn vendor(syndrome: Syndrome) -> u8 {
    0x50 | syndrome as u8 & 0x0f
}

impl Device {
    /// What an entry names its queue by: the user index, or the shared queue's number in version 0.
    fn queue_index(&self, qpn: u32) -> u32 {
        let Some(qp) = self.qps.get(qpn) else {
            return 0;
        };
        let user = qp.context.user_index();
        if self.caps.general.cqe_version() == 0 || user == NO_USER_INDEX {
            qp.shared_queue().unwrap_or(0)
        } else {
            user
        }
    }

    /// Where receives are completed and what they name their queue by. Those of XRC are completed to the shared queue's own
    /// CQ; a queue that was destroyed in the meantime has none.
    fn receive_queue(&self, qpn: u32, domain: Domain) -> Option<(u32, u32)> {
        match domain {
            Domain::Own => {
                let cqn = self.qps.get(qpn)?.context.cqn_rcv();
                Some((cqn, self.queue_index(qpn)))
            }
            Domain::Xrc(srqn) => {
                let srq = self.srqs.get(srqn)?;
                let by_number =
                    self.caps.general.cqe_version() == 0 || srq.user_index == NO_USER_INDEX;
                Some((srq.cqn?, if by_number { srqn } else { srq.user_index }))
            }
        }
    }

    fn broken(&mut self, qpn: u32) {
        self.count(qpn, Counter::CqOverflow);
        if let Some(qp) = self.qps.get_mut(qpn) {
            qp.broken = true;
        }
        self.make_ready(qpn);
    }

    /// A send WQE has ended.
    pub(crate) fn send_completed(&mut self, io: &mut Io<'_>, qpn: u32, done: &SendCompletion) {
        match done.result {
            Ok(()) if !done.signaled => return,
            Ok(()) => {}
            Err(syndrome) => self.count_failed_send(qpn, syndrome),
        }
        let Some(qp) = self.qps.get(qpn) else {
            return;
        };
        let cqn = qp.context.cqn_snd();
        let mut entry = [0; 64];
        put32(&mut entry, 0x20, self.queue_index(qpn));
        put32(&mut entry, 0x2c, done.byte_len);
        put32(&mut entry, 0x38, u32::from(done.wqe_opcode) << 24 | qpn);
        entry[0x3c..0x3e].copy_from_slice(&done.index.to_be_bytes());
        entry[0x3f] = match done.result {
            Ok(()) => opcode::REQUESTER << 4,
            Err(syndrome) => {
                put32(&mut entry, 0x2c, 0);
                entry[0x36] = vendor(syndrome);
                entry[0x37] = syndrome as u8;
                opcode::REQUESTER_ERROR << 4
            }
        };
        if self.complete(io, cqn, &mut entry, false).is_err() {
            self.broken(qpn);
        }
    }

    /// A receive WQE has ended.
    pub(crate) fn receive_completed(&mut self, io: &mut Io<'_>, qpn: u32, done: &RecvCompletion) {
        if let Err(syndrome) = done.result {
            self.count_failed_receive(qpn, syndrome);
        }
        let Some((cqn, index)) = self.receive_queue(qpn, done.domain) else {
            return;
        };
        let mut entry = [0; 64];
        put32(&mut entry, 0x20, index);
        put32(&mut entry, 0x2c, done.byte_len);
        put32(&mut entry, 0x38, qpn);
        entry[0x3c..0x3e].copy_from_slice(&done.index.to_be_bytes());
        let (code, extra) = match done.op {
            RecvOp::Send => (opcode::RESPONDER_SEND, None),
            RecvOp::SendImm(imm) => (opcode::RESPONDER_SEND_IMM, Some(imm)),
            RecvOp::SendInv(rkey) => (opcode::RESPONDER_SEND_INVALIDATE, Some(rkey)),
            RecvOp::WriteImm(imm) => (opcode::RESPONDER_WRITE_IMM, Some(imm)),
        };
        if let Some(extra) = extra {
            put32(&mut entry, 0x24, extra);
        }
        if let Some(source) = done.source {
            let (global, kind) = match self.sender {
                // InfiniBand has the service level where RoCE says what header there is.
                Some(sender) => {
                    entry[0x16..0x18].copy_from_slice(&sender.lid.to_be_bytes());
                    (sender.global, u32::from(sender.service_level & 0xf))
                }
                None => (true, source.grh as u32),
            };
            let flags = u32::from(global) << 28 | kind << 24;
            put32(&mut entry, 0x18, flags | source.qpn & 0xff_ffff);
            if extra.is_none() {
                put32(&mut entry, 0x24, u32::from(source.pkey));
            }
            if let Some(vlan) = source.vlan {
                entry[0x1d] |= 1;
                entry[0x1e..0x20].copy_from_slice(&vlan.to_be_bytes());
            }
        }
        let solicited = done.solicited;
        entry[0x3f] = match done.result {
            Ok(()) => code << 4 | u8::from(solicited) << 1,
            Err(syndrome) => {
                put32(&mut entry, 0x2c, 0);
                entry[0x36] = vendor(syndrome);
                entry[0x37] = syndrome as u8;
                opcode::RESPONDER_ERROR << 4
            }
        };
        if self.complete(io, cqn, &mut entry, solicited).is_err() {
            self.broken(qpn);
        }
    }

    fn count_failed_send(&mut self, qpn: u32, syndrome: Syndrome) {
        if syndrome == Syndrome::WorkRequestFlushed {
            self.count(qpn, Counter::ReqCqeFlushError);
            return;
        }
        self.count(qpn, Counter::ReqCqeError);
        let cause = match syndrome {
            Syndrome::LocalLength => Counter::ReqLocalLengthError,
            Syndrome::LocalQpOperation => Counter::LocalOperationError,
            Syndrome::LocalProtection => Counter::ReqLocalProtection,
            Syndrome::MemoryWindowBind => Counter::ReqMwBinding,
            Syndrome::BadResponse => Counter::ReqBadResponse,
            Syndrome::RemoteOperation => Counter::ReqRemoteOperationErrors,
            Syndrome::TransportRetryExceeded => Counter::ReqTransportRetriesExceeded,
            Syndrome::RnrRetryExceeded => Counter::ReqRnrRetriesExceeded,
            // Counted by the transport when it is told.
            _ => return,
        };
        self.count(qpn, cause);
    }

    fn count_failed_receive(&mut self, qpn: u32, syndrome: Syndrome) {
        if syndrome == Syndrome::WorkRequestFlushed {
            self.count(qpn, Counter::RespCqeFlushError);
            return;
        }
        self.count(qpn, Counter::RespCqeError);
        let cause = match syndrome {
            Syndrome::LocalQpOperation => Counter::RespLocalQpError,
            Syndrome::LocalProtection => Counter::RespLocalProtection,
            Syndrome::RemoteInvalidRequest => Counter::RespRemoteInvalidRequest,
            _ => return,
        };
        self.count(qpn, cause);
    }

    /// Counts for the whole device and for the QP's counter set.
    pub(crate) fn count(&mut self, qpn: u32, counter: Counter) {
        self.stats.transport[counter as usize] += 1;
        let Some(set) = self.qps.get(qpn).map(|qp| qp.context.counter_set_id()) else {
            return;
        };
        if let Some(set) = self.counters.get_mut(u32::from(set)) {
            set.values[counter as usize] += 1;
        }
    }
}
