//! The messages with which connections end when their process is gone, written down for another process to send.

use core::sync::atomic::{Ordering, compiler_fence};

use super::slot::{Slot, own_transaction};
use super::state::State;
use super::types::Address;
use crate::mad::{Attribute, Dreq, MAD_LEN, Rej, RejectReason};

/// The message that ends a connection: a DREQ, a REJ during the handshake, or none.
///
/// It consists of numbers, all of whose values are valid, so that it may lie in memory that is shared with a process which
/// sends it ([`RdmaCm::send_last_messages`](crate::rdma::RdmaCm::send_last_messages)). A process that ends while it is
/// written leaves none, and the other end checks both communication IDs and the QP number.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct LastMessage {
    /// The attribute ID; 0 for none.
    attribute: u16,
    reason: u16,
    /// The message that is rejected, as a REJ names it.
    rejected: u8,
    local_comm_id: u32,
    remote_comm_id: u32,
    remote_qpn: u32,
    transaction_id: u64,
    /// GUID of the node, by which a REJ names a request whose receiver has not answered.
    node_guid: u64,
    address: Address,
}

impl LastMessage {
    /// No message.
    pub const NONE: Self = Self {
        attribute: 0,
        reason: 0,
        rejected: 0,
        local_comm_id: 0,
        remote_comm_id: 0,
        remote_qpn: 0,
        transaction_id: 0,
        node_guid: 0,
        address: Slot::EMPTY.address,
    };

    /// Returns `true` if there is nothing to be sent.
    pub const fn is_none(&self) -> bool {
        self.attribute == 0
    }

    /// The message that [`Engine::release`](super::Engine::release) would send, of a node with these identities.
    fn of(slot: &Slot, transaction_id_high: u32, node_guid: u64) -> Self {
        let (attribute, reason, rejected) = match slot.state {
            State::Established => (Attribute::Dreq, RejectReason(0), 0),
            State::ReqSent | State::MraReqReceived => (Attribute::Rej, RejectReason::TIMEOUT, 2),
            State::ReqReceived | State::MraReqSent => {
                (Attribute::Rej, RejectReason::CONSUMER_DEFINED, 0)
            }
            State::RepReceived | State::MraRepSent => {
                (Attribute::Rej, RejectReason::CONSUMER_DEFINED, 1)
            }
            State::RepSent | State::MraRepReceived => {
                (Attribute::Rej, RejectReason::CONSUMER_DEFINED, 2)
            }
            State::Idle | State::DreqSent | State::DreqReceived | State::Timewait => {
                return Self::NONE;
            }
        };
        Self {
            attribute: attribute as u16,
            reason: reason.0,
            rejected,
            local_comm_id: slot.local_comm_id,
            remote_comm_id: slot.remote_comm_id,
            remote_qpn: slot.remote_qpn,
            transaction_id: match attribute {
                Attribute::Dreq => own_transaction(transaction_id_high, slot),
                _ => slot.transaction_id,
            },
            node_guid,
            address: slot.address,
        }
    }

    /// Becomes that of a connection. At each moment there is the old one, the new one, or none.
    pub(super) fn update(&mut self, slot: &Slot, transaction_id_high: u32, node_guid: u64) {
        let new = Self::of(slot, transaction_id_high, node_guid);
        self.attribute = 0;
        compiler_fence(Ordering::SeqCst);
        *self = Self {
            attribute: 0,
            ..new
        };
        compiler_fence(Ordering::SeqCst);
        self.attribute = new.attribute;
    }

    /// Writes it into `mad`, and says where it goes; `None` if there is none, or none that can be sent.
    pub fn write(&self, mad: &mut [u8; MAD_LEN]) -> Option<Address> {
        let (local_comm_id, remote_comm_id) = (self.local_comm_id, self.remote_comm_id);
        if self.attribute == Attribute::Dreq as u16 {
            let dreq = Dreq {
                local_comm_id,
                remote_comm_id,
                remote_qpn: self.remote_qpn,
                private_data: &[],
            };
            dreq.emit(self.transaction_id, mad).ok()?;
        } else if self.attribute == Attribute::Rej as u16 {
            let mut rej = Rej {
                local_comm_id: if self.rejected == 0 { 0 } else { local_comm_id },
                remote_comm_id,
                message: self.rejected,
                reason: self.reason,
                ..Rej::ZERO
            };
            if rej.reason == RejectReason::TIMEOUT.0 {
                rej.info_len = 8;
                rej.info[..8].copy_from_slice(&self.node_guid.to_be_bytes());
            }
            rej.emit(self.transaction_id, mad).ok()?;
        } else {
            return None;
        }
        Some(self.address)
    }
}
