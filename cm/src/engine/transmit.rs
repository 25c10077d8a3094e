//! Messages of the engine, written into MADs.

use core::time::Duration;

#[cfg(feature = "last-messages")]
use super::last_message::LastMessage;
use super::machine::Engine;
use super::retry::bounded;
use super::slot::{Answer, ReplySlot, tx};
use super::state::State;
use super::types::{Address, Transmit, Transport};
use super::units::exponent;
use super::wheel::NIL;
use crate::mad::{
    Apr, Attribute, ClassPortInfo, Drep, Dreq, Header, MAD_LEN, Message, Mra, Rej, Rep, Req, Rtu,
    SidrRep,
};

impl Engine<'_> {
    /// Writes the next message into `mad` and says where it goes. Advances the timers to `now` first.
    pub fn poll_transmit(&mut self, now: Duration, mad: &mut [u8; MAD_LEN]) -> Option<Transmit> {
        self.handle_timeout(now);
        while self.reply_len > 0 {
            let reply = self.replies[self.reply_head];
            self.reply_head = (self.reply_head + 1) % self.replies.len();
            self.reply_len -= 1;
            if let Some(attribute) = self.write_reply(&reply, mad) {
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
                if self.sidr.has_nothing_to_send() {
                    return None;
                }
                return self.sidr_transmit(mad);
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
            #[cfg(feature = "last-messages")]
            self.note_last_message(index as usize);
            self.release_if_done(index as usize);
            // All parameters were checked when they came in, so this cannot fail; if it did, sending nothing is
            // harmless.
            if let Some(attribute) = written {
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

    fn write(&self, index: usize, bit: u8, mad: &mut [u8; MAD_LEN]) -> Option<Attribute> {
        let slot = &self.slots[index];
        let tid = slot.transaction_id;
        // An initiator takes no requests and a target makes none: what is about them is left out, as Linux leaves it out.
        let xrc = slot.transport == Transport::Xrc;
        match bit {
            tx::REQ => {
                let path = &slot.address;
                // A path that can be routed carries no LIDs.
                let lid = |lid| if path.hop_limit > 1 { 0xffff } else { lid };
                Req {
                    local_comm_id: slot.local_comm_id,
                    vendor_id: slot.ece.vendor_id,
                    service_id: slot.service_id,
                    local_ca_guid: self.config.node_guid,
                    local_qpn: slot.local_qpn,
                    responder_resources: if xrc { 0 } else { slot.responder_resources },
                    initiator_depth: slot.initiator_depth,
                    remote_cm_response_timeout: slot.remote_response,
                    transport: slot.transport as u8,
                    extended_transport: xrc.into(),
                    flow_control: slot.flow_control.into(),
                    starting_psn: slot.local_psn,
                    local_cm_response_timeout: slot.local_response,
                    retry_count: if xrc { 0 } else { slot.retry_count },
                    pkey: path.pkey,
                    path_mtu: slot.path_mtu,
                    rnr_retry_count: if xrc { 0 } else { slot.rnr_retry_count },
                    max_cm_retries: slot.max_retries,
                    srq: (slot.srq && !xrc).into(),
                    primary_local_lid: lid(path.local_lid),
                    primary_remote_lid: lid(path.remote_lid),
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
                .emit(tid, mad)
                .ok()?;
                if slot.link != NIL {
                    self.add_alternate(index, mad);
                }
                slot.ece.write_options(mad);
                Some(Attribute::Req)
            }
            tx::MRA => {
                Mra {
                    local_comm_id: slot.local_comm_id,
                    remote_comm_id: slot.remote_comm_id,
                    message: slot.mra_message,
                    service_timeout: slot.service_timeout,
                    private_data: &[],
                }
                .emit(
                    if slot.mra_message == 2 {
                        self.lap_transaction(index)
                    } else {
                        tid
                    },
                    mad,
                )
                .ok()?;
                Some(Attribute::Mra)
            }
            tx::REP => {
                let [_, vendor_id_high, vendor_id_middle, vendor_id_low] =
                    slot.ece.vendor_id.to_be_bytes();
                Rep {
                    vendor_id_high,
                    vendor_id_middle,
                    vendor_id_low,
                    local_comm_id: slot.local_comm_id,
                    remote_comm_id: slot.remote_comm_id,
                    local_qpn: if xrc { 0 } else { slot.local_qpn },
                    local_eecn: if xrc { slot.local_qpn } else { 0 },
                    starting_psn: slot.local_psn,
                    responder_resources: slot.responder_resources,
                    initiator_depth: if xrc { 0 } else { slot.initiator_depth },
                    target_ack_delay: self.config.ack_delay,
                    failover_accepted: if slot.link == NIL && !slot.failover_refused {
                        0
                    } else {
                        self.failover(index) as u8
                    },
                    flow_control: (slot.flow_control && !xrc).into(),
                    rnr_retry_count: slot.rnr_retry_count,
                    srq: (slot.srq || xrc).into(),
                    local_ca_guid: self.config.node_guid,
                    private_data: slot.private(),
                    ..Rep::ZERO
                }
                .emit(tid, mad)
                .ok()?;
                slot.ece.write_options(mad);
                Some(Attribute::Rep)
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
                .emit(tid, mad)
                .ok()?;
                Some(Attribute::Rtu)
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
                rej.emit(tid, mad).ok()?;
                Some(Attribute::Rej)
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
                .emit(tid, mad)
                .ok()?;
                Some(Attribute::Dreq)
            }
            tx::ALTERNATE => self.write_alternate(index, mad),
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
                .emit(tid, mad)
                .ok()?;
                Some(Attribute::Drep)
            }
        }
    }

    #[inline(never)]
    fn write_reply(&self, reply: &ReplySlot, mad: &mut [u8; MAD_LEN]) -> Option<Attribute> {
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
                rej.emit(tid, mad).ok()?;
                Some(Attribute::Rej)
            }
            Answer::Drep { local, remote } => {
                Drep {
                    local_comm_id: local,
                    remote_comm_id: remote,
                    ..Drep::ZERO
                }
                .emit(tid, mad)
                .ok()?;
                Some(Attribute::Drep)
            }
            // Messages that the build lacks are never requested.
            Answer::Apr { .. } if !cfg!(feature = "infiniband") => None,
            Answer::SidrRep { .. } if !cfg!(feature = "datagrams") => None,
            Answer::Apr {
                local,
                remote,
                status,
            } => {
                Apr {
                    local_comm_id: local,
                    remote_comm_id: remote,
                    status,
                    ..Apr::ZERO
                }
                .emit(tid, mad)
                .ok()?;
                Some(Attribute::Apr)
            }
            Answer::SidrRep {
                request_id,
                service_id,
                status,
            } => {
                SidrRep {
                    request_id,
                    status,
                    service_id,
                    ..SidrRep::ZERO
                }
                .emit(tid, mad)
                .ok()?;
                Some(Attribute::SidrRep)
            }
            Answer::ClassPortInfo | Answer::None => {
                let info = ClassPortInfo {
                    base_version: 1,
                    class_version: 2,
                    response_time: self.config.timers.local_response,
                    ..ClassPortInfo::ZERO
                };
                Message::ClassPortInfo(info)
                    .emit(&Header::get_resp(Attribute::ClassPortInfo, tid), mad)
                    .ok()?;
                Some(Attribute::ClassPortInfo)
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

    /// An MRA came: the answer may take `service_timeout` longer. The remaining repetitions keep that interval. The
    /// active side waits as long as the peer requests, as under Linux; the passive side only up to a limit.
    pub(super) fn extend(&mut self, index: usize, now: u64, service_timeout: u8) {
        let limit = self.config.max_response;
        let slot = &mut self.slots[index];
        let limit = if slot.active { 31 } else { limit };
        let interval = bounded(service_timeout, limit) + exponent(slot.ack_timeout);
        let at = slot.retry.extend(now, interval);
        self.wheel.arm(self.slots, index as u32, at);
    }
}

#[cfg(feature = "last-messages")]
impl<'s> Engine<'s> {
    /// Writes down from now on how each connection would end: one entry for each slot. Connections that have none are left out.
    pub fn set_last_messages(&mut self, messages: &'s mut [LastMessage]) {
        self.last_messages = messages;
        for index in 0..self.slots.len() {
            self.note_last_message(index);
        }
    }

    /// The messages that are written down.
    pub fn last_messages(&self) -> &[LastMessage] {
        self.last_messages
    }

    /// The state of a connection may have changed.
    pub(super) fn note_last_message(&mut self, index: usize) {
        if let Some(message) = self.last_messages.get_mut(index) {
            let config = &self.config;
            message.update(
                &self.slots[index],
                config.transaction_id_high,
                config.node_guid,
            );
        }
    }
}
