//! From the transport's completions to completion queue entries.

use crate::bus::io::Io;
use crate::device::Device;
use crate::events::completion_queue::CqDead;
use crate::objects::cqe::{NO_USER_INDEX, entry, put_error};
use crate::roce::env::{Counter, Domain, RecvCompletion, RecvOp, SendCompletion, Syndrome};
use bareverbs_firmware_cmds::cqe::{
    ByteCountWord, Format, HeadersWord, ImmediateWord, OpOwn, Opcode, SIZE, SlidWord, SourceWord,
};
use bareverbs_firmware_cmds::word::Word;

impl Device {
    /// The index by which an entry names its queue: the user index, or the shared queue's number in version 0.
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
        let opcode = match done.result {
            Ok(()) => Opcode::Requester,
            Err(_) => Opcode::RequesterError,
        };
        let index = self.queue_index(qpn);
        let format = qp.context.ts_format();
        let mut entry = entry(opcode, index, done.wqe_opcode, qpn, done.index);
        self.stamp(&mut entry, format, self.caps.roce.qp_ts_format());
        match done.result {
            Ok(()) => ByteCountWord(done.byte_len).write(&mut entry),
            Err(syndrome) => put_error(&mut entry, syndrome),
        }
        if self
            .complete_with_data(io, qpn, cqn, &mut entry, false)
            .is_err()
        {
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
        let (opcode, extra) = match done.op {
            RecvOp::Send => (Opcode::ResponderSend, None),
            RecvOp::SendImm(imm) => (Opcode::ResponderSendImmediate, Some(imm)),
            RecvOp::SendInv(rkey) => (Opcode::ResponderSendInvalidate, Some(rkey)),
            RecvOp::WriteImm(imm) => (Opcode::ResponderWriteImmediate, Some(imm)),
        };
        let opcode = match done.result {
            Ok(()) => opcode,
            Err(_) => Opcode::ResponderError,
        };
        let mut entry = entry(opcode, index, 0, qpn, done.index);
        if let Some(qp) = self.qps.get(qpn) {
            let format = qp.context.ts_format();
            self.stamp(&mut entry, format, self.caps.roce.qp_ts_format());
        }
        if let Some(extra) = extra {
            ImmediateWord(extra).write(&mut entry);
        }
        if let Some(from) = done.source {
            let mut source = SourceWord(0);
            source.set_rqpn(from.qpn);
            // InfiniBand has the service level where RoCE says what header there is.
            if let Some(sender) = self.sender {
                let mut slid = SlidWord(0);
                slid.set_slid(sender.lid);
                slid.write(&mut entry);
                source.set_grh(sender.global.into());
                source.set_sl(sender.service_level);
            } else {
                source.set_grh(1);
                source.set_l3_type(from.grh as u8);
            }
            source.write(&mut entry);
            if extra.is_none() {
                let mut pkey = ImmediateWord(0);
                pkey.set_pkey_index(from.pkey);
                pkey.write(&mut entry);
            }
            if let Some(vlan) = from.vlan {
                let mut headers = HeadersWord(0);
                headers.set_vlan(true);
                headers.set_vlan_info(vlan);
                headers.write(&mut entry);
            }
        }
        let solicited = done.solicited;
        match done.result {
            Ok(()) => {
                ByteCountWord(done.byte_len).write(&mut entry);
                let mut last = OpOwn::read(&entry);
                last.set_solicited(solicited);
                last.write(&mut entry);
            }
            Err(syndrome) => put_error(&mut entry, syndrome),
        }
        if self
            .complete_with_data(io, qpn, cqn, &mut entry, solicited)
            .is_err()
        {
            self.broken(qpn);
        }
    }

    /// Writes a completion, with what is to go into its entry.
    #[inline(always)]
    fn complete_with_data(
        &mut self,
        io: &mut Io<'_>,
        qpn: u32,
        cqn: u32,
        entry: &mut [u8; SIZE],
        solicited: bool,
    ) -> Result<(), CqDead> {
        if self.for_cqe.is_empty() {
            self.complete(io, cqn, entry, solicited)
        } else {
            self.complete_around(io, qpn, cqn, entry, solicited)
        }
    }

    /// Up to 32 bytes go over the fields that only datagrams have, more in front of the completion; so do all of a target of
    /// dynamic connections, which needs these fields.
    #[cold]
    fn complete_around(
        &mut self,
        io: &mut Io<'_>,
        qpn: u32,
        cqn: u32,
        entry: &mut [u8; SIZE],
        solicited: bool,
    ) -> Result<(), CqDead> {
        let data = std::mem::take(&mut self.for_cqe);
        if self.stats.scattered_to_cqe == 0 {
            log::info!("CQ {cqn:#x}: the first message in the entry of its completion");
        }
        self.stats.scattered_to_cqe += 1;
        let mut last = OpOwn::read(entry);
        let target = self.qps.get(qpn).is_some_and(|qp| qp.dct.is_some());
        let start = entry.get_mut(..data.len());
        let start = start.filter(|it| it.len() <= 32 && !target);
        let front = match start {
            Some(start) => {
                start.copy_from_slice(&data);
                last.set_format(Format::Inline32 as u8);
                &[]
            }
            None => {
                if self.stats.scattered_before_cqe == 0 {
                    log::info!("CQ {cqn:#x}: the first message in front of its completion");
                }
                self.stats.scattered_before_cqe += 1;
                last.set_format(Format::Inline64 as u8);
                data.as_slice()
            }
        };
        last.write(entry);
        self.complete_behind(io, cqn, front, entry, solicited)
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
            // Counted by the transport when it gets the error.
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
