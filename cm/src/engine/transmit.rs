//! Writing the messages.

use core::time::Duration;

use super::slot::{Answer, NIL, ReplySlot, tx};
use super::types::{Address, State, Transmit};
use super::{Engine, exponent};
use crate::mad::{
    Attribute, ClassPortInfo, Drep, Dreq, Header, MAD_LEN, MadError, Message, Mra, Rej, Rep, Req,
    Rtu, SidrRep, SidrStatus,
};

impl Engine<'_> {
    /// Writes the next message into `mad` and says where it goes. Advances the timers to `now` first.
    pub fn poll_transmit(&mut self, now: Duration, mad: &mut [u8; MAD_LEN]) -> Option<Transmit> {
        self.handle_timeout(now);
        while self.reply_len > 0 {
            let reply = self.replies[self.reply_head];
            self.reply_head = (self.reply_head + 1) % self.replies.len();
            self.reply_len -= 1;
            if let Ok(attribute) = self.write_reply(&reply, mad) {
                self.stats.sent += 1;
                return Some(Transmit {
                    address: reply.address,
                    attribute,
                    connection: None,
                    repeated: false,
                });
            }
        }
        loop {
            let index = self.tx_head;
            if index == NIL {
                return None;
            }
            let slot = &mut self.slots[index as usize];
            let bit = slot.pending_tx & slot.pending_tx.wrapping_neg();
            slot.pending_tx &= !bit;
            if slot.pending_tx == 0 {
                self.tx_head = slot.tx_next;
                if self.tx_head == NIL {
                    self.tx_tail = NIL;
                }
                slot.in_tx = false;
            }
            if bit == 0 {
                continue;
            }
            let repeated = slot.sent_before & bit != 0;
            slot.sent_before |= bit;
            let (address, id) = (slot.address, slot.id());
            let written = self.write(index as usize, bit, mad);
            self.release_if_done(index as usize);
            // All parameters were checked when they came in, so this cannot fail; if it did, not sending is the harmless way.
            if let Ok(attribute) = written {
                self.stats.sent += 1;
                self.stats.repeated += u64::from(repeated);
                return Some(Transmit {
                    address,
                    attribute,
                    connection: Some(id),
                    repeated,
                });
            }
        }
    }

    fn write(&self, index: usize, bit: u8, mad: &mut [u8; MAD_LEN]) -> Result<Attribute, MadError> {
        let slot = &self.slots[index];
        let tid = slot.transaction_id;
        match bit {
            tx::REQ => {
                let path = &slot.address;
                // A path that can be routed has no LIDs to speak of.
                let lid = if path.hop_limit > 1 { 0xffff } else { 0 };
                Req {
                    local_comm_id: slot.local_comm_id,
                    service_id: slot.service_id,
                    local_ca_guid: self.config.node_guid,
                    local_qpn: slot.local_qpn,
                    responder_resources: slot.responder_resources,
                    initiator_depth: slot.initiator_depth,
                    remote_cm_response_timeout: slot.timers.remote_response,
                    transport: slot.transport as u8,
                    flow_control: slot.flow_control.into(),
                    starting_psn: slot.local_psn,
                    local_cm_response_timeout: slot.timers.local_response,
                    retry_count: slot.retry_count,
                    pkey: path.pkey,
                    path_mtu: slot.path_mtu,
                    rnr_retry_count: slot.rnr_retry_count,
                    max_cm_retries: slot.timers.max_retries,
                    srq: slot.srq.into(),
                    primary_local_lid: lid,
                    primary_remote_lid: lid,
                    primary_local_gid: path.local_gid,
                    primary_remote_gid: path.remote_gid,
                    primary_flow_label: path.flow_label,
                    primary_rate: slot.rate,
                    primary_traffic_class: path.traffic_class,
                    primary_hop_limit: path.hop_limit,
                    primary_sl: path.service_level,
                    primary_subnet_local: (path.hop_limit <= 1).into(),
                    primary_ack_timeout: slot.ack_timeout,
                    private_data: slot.private(),
                    ..Req::ZERO
                }
                .emit(tid, mad)?;
                Ok(Attribute::Req)
            }
            tx::MRA => {
                Mra {
                    local_comm_id: slot.local_comm_id,
                    remote_comm_id: slot.remote_comm_id,
                    message: slot.mra_message,
                    service_timeout: slot.service_timeout,
                    private_data: &[],
                }
                .emit(tid, mad)?;
                Ok(Attribute::Mra)
            }
            tx::REP => {
                Rep {
                    local_comm_id: slot.local_comm_id,
                    remote_comm_id: slot.remote_comm_id,
                    local_qpn: slot.local_qpn,
                    starting_psn: slot.local_psn,
                    responder_resources: slot.responder_resources,
                    initiator_depth: slot.initiator_depth,
                    target_ack_delay: self.config.ack_delay,
                    flow_control: slot.flow_control.into(),
                    rnr_retry_count: slot.rnr_retry_count,
                    srq: slot.srq.into(),
                    local_ca_guid: self.config.node_guid,
                    private_data: slot.private(),
                    ..Rep::ZERO
                }
                .emit(tid, mad)?;
                Ok(Attribute::Rep)
            }
            tx::RTU => {
                Rtu {
                    local_comm_id: slot.local_comm_id,
                    remote_comm_id: slot.remote_comm_id,
                    private_data: if slot.state == State::Established {
                        slot.private()
                    } else {
                        &[]
                    },
                }
                .emit(tid, mad)?;
                Ok(Attribute::Rtu)
            }
            tx::REJ => {
                let (info, private_data) = slot.private().split_at_checked(72).unwrap_or_default();
                let mut rej = Rej {
                    // A request that is refused outright never made a connection here.
                    local_comm_id: if slot.rej_message == 0 {
                        0
                    } else {
                        slot.local_comm_id
                    },
                    remote_comm_id: slot.remote_comm_id,
                    message: slot.rej_message,
                    info_len: slot.rej_info_len,
                    reason: slot.reason,
                    private_data,
                    ..Rej::ZERO
                };
                rej.info[..info.len()].copy_from_slice(info);
                rej.emit(tid, mad)?;
                Ok(Attribute::Rej)
            }
            tx::DREQ => {
                let private = slot.private();
                Dreq {
                    local_comm_id: slot.local_comm_id,
                    remote_comm_id: slot.remote_comm_id,
                    remote_qpn: slot.remote_qpn,
                    private_data: if slot.data_event == 0 && private.len() <= Dreq::PRIVATE_DATA_MAX
                    {
                        private
                    } else {
                        &[]
                    },
                }
                .emit(tid, mad)?;
                Ok(Attribute::Dreq)
            }
            _ => {
                Drep {
                    local_comm_id: slot.local_comm_id,
                    remote_comm_id: slot.remote_comm_id,
                    private_data: if slot.data_event == 0 && !self.config.auto_drep {
                        slot.private()
                    } else {
                        &[]
                    },
                }
                .emit(tid, mad)?;
                Ok(Attribute::Drep)
            }
        }
    }

    fn write_reply(
        &self,
        reply: &ReplySlot,
        mad: &mut [u8; MAD_LEN],
    ) -> Result<Attribute, MadError> {
        let tid = reply.transaction_id;
        match reply.answer {
            Answer::Rej {
                local,
                remote,
                message,
                reason,
                info_len,
                info,
            } => {
                let mut rej = Rej {
                    local_comm_id: local,
                    remote_comm_id: remote,
                    message,
                    info_len,
                    reason,
                    ..Rej::ZERO
                };
                rej.info[..info.len()].copy_from_slice(&info);
                rej.emit(tid, mad)?;
                Ok(Attribute::Rej)
            }
            Answer::Drep { local, remote } => {
                Drep {
                    local_comm_id: local,
                    remote_comm_id: remote,
                    ..Drep::ZERO
                }
                .emit(tid, mad)?;
                Ok(Attribute::Drep)
            }
            Answer::SidrUnsupported {
                request_id,
                service_id,
            } => {
                let status = SidrStatus::UNSUPPORTED_SERVICE.0;
                SidrRep {
                    request_id,
                    status,
                    service_id,
                    ..SidrRep::ZERO
                }
                .emit(tid, mad)?;
                Ok(Attribute::SidrRep)
            }
            Answer::ClassPortInfo | Answer::None => {
                let info = ClassPortInfo {
                    base_version: 1,
                    class_version: 2,
                    response_time: self.config.timers.local_response,
                    ..ClassPortInfo::ZERO
                };
                Message::ClassPortInfo(info)
                    .emit(&Header::get_resp(Attribute::ClassPortInfo, tid), mad)?;
                Ok(Attribute::ClassPortInfo)
            }
        }
    }

    /// Queues an answer that belongs to no connection. False when the ring is full.
    pub(super) fn answer(
        &mut self,
        address: &Address,
        transaction_id: u64,
        answer: Answer,
    ) -> bool {
        let capacity = self.replies.len();
        if self.reply_len == capacity {
            return false;
        }
        let at = (self.reply_head + self.reply_len) % capacity;
        self.replies[at] = ReplySlot {
            address: *address,
            transaction_id,
            answer,
        };
        self.reply_len += 1;
        true
    }

    /// An MRA came: the answer may take `service_timeout` longer. The remaining repetitions keep that pace.
    pub(super) fn extend(&mut self, index: usize, now: u64, service_timeout: u8) {
        let slot = &mut self.slots[index];
        slot.interval = exponent(service_timeout) + exponent(slot.ack_timeout);
        slot.interval_end = now + slot.interval;
        slot.backoff = 0;
        let at = slot.interval_end;
        self.wheel.arm(self.slots, index as u32, at);
    }
}
