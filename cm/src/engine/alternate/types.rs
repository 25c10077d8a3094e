//! Alternate paths, and the slots for the exchange about them.

use super::super::error::{CmError, at_most};
use super::super::wheel::NIL;
use crate::engine::state::LapState;
use crate::engine::types::Address;
use crate::mad::{Apr, Lap, Req};

/// The most private data of either message; an APR's additional information and private data share the space.
const PRIVATE: usize = 72 + Apr::PRIVATE_DATA_MAX;

/// A second path of a connection, as this end sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AlternatePath {
    /// LID of this end; never 0.
    pub local_lid: u16,
    /// LID of the other end.
    pub remote_lid: u16,
    /// GID of this end.
    pub local_gid: [u8; 16],
    /// GID of the other end.
    pub remote_gid: [u8; 16],
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Static rate; 0 is the port's.
    pub rate: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Service level.
    pub service_level: u8,
    /// The path stays in the subnet.
    pub subnet_local: bool,
    /// Exponent of the QP's ACK timeout on this path.
    pub ack_timeout: u8,
}

impl AlternatePath {
    pub(super) const NONE: Self = Self {
        local_lid: 0,
        remote_lid: 0,
        local_gid: [0; 16],
        remote_gid: [0; 16],
        flow_label: 0,
        rate: 0,
        traffic_class: 0,
        hop_limit: 0,
        service_level: 0,
        subnet_local: false,
        ack_timeout: 0,
    };

    pub(super) fn of_req(req: &Req<'_>) -> Self {
        Self {
            local_lid: req.alternate_remote_lid,
            remote_lid: req.alternate_local_lid,
            local_gid: req.alternate_remote_gid,
            remote_gid: req.alternate_local_gid,
            flow_label: req.alternate_flow_label,
            rate: req.alternate_rate,
            traffic_class: req.alternate_traffic_class,
            hop_limit: req.alternate_hop_limit,
            service_level: req.alternate_sl,
            subnet_local: req.alternate_subnet_local != 0,
            ack_timeout: req.alternate_ack_timeout,
        }
    }

    pub(super) fn of_lap(lap: &Lap<'_>) -> Self {
        Self {
            local_lid: lap.alternate_remote_lid,
            remote_lid: lap.alternate_local_lid,
            local_gid: lap.alternate_remote_gid,
            remote_gid: lap.alternate_local_gid,
            flow_label: lap.alternate_flow_label,
            rate: lap.alternate_rate,
            traffic_class: lap.alternate_traffic_class,
            hop_limit: lap.alternate_hop_limit,
            service_level: lap.alternate_sl,
            subnet_local: lap.alternate_subnet_local != 0,
            ack_timeout: lap.alternate_ack_timeout,
        }
    }

    /// Where messages go on this path; what it does not say is as on the other one.
    pub(crate) fn address(&self, other: &Address) -> Address {
        Address {
            local_gid: self.local_gid,
            remote_gid: self.remote_gid,
            local_lid: self.local_lid,
            remote_lid: self.remote_lid,
            flow_label: self.flow_label,
            traffic_class: self.traffic_class,
            hop_limit: self.hop_limit,
            service_level: self.service_level,
            ..*other
        }
    }

    /// Writes the fields of a REQ, which begin at its byte 96.
    pub(super) fn write(&self, fields: &mut [u8; 44]) {
        fields[..2].copy_from_slice(&self.local_lid.to_be_bytes());
        fields[2..4].copy_from_slice(&self.remote_lid.to_be_bytes());
        fields[4..20].copy_from_slice(&self.local_gid);
        fields[20..36].copy_from_slice(&self.remote_gid);
        let label_and_rate = self.flow_label << 12 | u32::from(self.rate);
        fields[36..40].copy_from_slice(&label_and_rate.to_be_bytes());
        fields[40..].copy_from_slice(&[
            self.traffic_class,
            self.hop_limit,
            self.service_level << 4 | u8::from(self.subnet_local) << 3,
            self.ack_timeout << 3,
        ]);
    }

    pub(in crate::engine) fn check(&self) -> Result<(), CmError> {
        if self.local_lid == 0 {
            // On the wire it would say that there is no path.
            return Err(CmError::AlternatePathWithoutLid);
        }
        at_most("flow label", self.flow_label.into(), 0xf_ffff)?;
        at_most("packet rate", self.rate.into(), 63)?;
        at_most("service level", self.service_level.into(), 15)?;
        at_most("ACK timeout", self.ack_timeout.into(), 31)
    }
}

/// The decision on the alternate path of a request, sent in the REP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Failover {
    /// The QP has it.
    #[default]
    Accepted = 0,
    /// This end does not support alternate paths.
    NotSupported = 1,
    /// This path is refused.
    Rejected = 2,
}

/// A LAP that was answered. The path is part of its identity, since some managers do not give each LAP a separate
/// transaction.
#[derive(Debug, Clone, Copy)]
pub(super) struct AnsweredLap {
    pub(super) transaction_id: u64,
    pub(super) path: AlternatePath,
    /// Until when it may come again.
    pub(super) until: u64,
}

impl AnsweredLap {
    pub(super) const NOTHING: Self = Self {
        transaction_id: 0,
        path: AlternatePath::NONE,
        until: 0,
    };
}

/// Storage for the alternate paths of one connection. Hand a slice of them to [`Engine::new`](super::Engine::new): as
/// many as there are connections with an alternate path at a time.
#[derive(Debug, Clone)]
pub struct AlternateSlot {
    pub(super) next_free: u32,
    pub(super) state: LapState,
    /// The path of the current or last exchange.
    pub(super) path: AlternatePath,
    /// The path that both ends have agreed on.
    pub(super) loaded: Option<AlternatePath>,
    pub(super) failover: Failover,
    pub(super) transaction_id: u64,
    pub(super) laps_sent: u8,
    pub(super) has_answer: bool,
    /// The other end's last LAPs, oldest first: a late copy of them is not a new one.
    pub(super) answered: [AnsweredLap; 4],
    /// Of the answer; `None` when the other end gave none.
    pub(super) status: Option<u8>,
    pub(super) info_len: u8,
    pub(super) private_len: u8,
    private: [u8; PRIVATE],
}

impl AlternateSlot {
    /// An empty slot.
    pub const EMPTY: Self = Self {
        next_free: NIL,
        state: LapState::Idle,
        path: AlternatePath::NONE,
        loaded: None,
        failover: Failover::Accepted,
        transaction_id: 0,
        laps_sent: 0,
        has_answer: false,
        answered: [AnsweredLap::NOTHING; 4],
        status: None,
        info_len: 0,
        private_len: 0,
        private: [0; PRIVATE],
    };

    pub(super) fn store(&mut self, info: &[u8], private_data: &[u8]) {
        let info = &info[..info.len().min(72)];
        let private_data = &private_data[..private_data.len().min(PRIVATE - 72)];
        self.info_len = info.len() as u8;
        self.private[..72].fill(0);
        self.private[..info.len()].copy_from_slice(info);
        self.private[72..72 + private_data.len()].copy_from_slice(private_data);
        self.private_len = (72 + private_data.len()) as u8;
    }

    pub(super) fn store_request(&mut self, private_data: &[u8]) {
        let len = private_data.len().min(PRIVATE);
        self.private[..len].copy_from_slice(&private_data[..len]);
        self.private_len = len as u8;
    }

    pub(super) fn private(&self) -> &[u8] {
        &self.private[..usize::from(self.private_len)]
    }
}

impl Default for AlternateSlot {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// All slots for alternate paths, and the list of the free ones.
#[derive(Debug)]
pub(in crate::engine) struct Table<'s> {
    pub(super) slots: &'s mut [AlternateSlot],
    pub(super) free: u32,
}

impl<'s> Table<'s> {
    pub(in crate::engine) fn new(slots: &'s mut [AlternateSlot]) -> Self {
        let count = slots.len().min(NIL as usize);
        for (index, slot) in slots.iter_mut().enumerate() {
            *slot = AlternateSlot::EMPTY;
            if index + 1 < count {
                slot.next_free = index as u32 + 1;
            }
        }
        Self {
            free: if count == 0 { NIL } else { 0 },
            slots,
        }
    }

    pub(in crate::engine) fn is_empty(&self) -> bool {
        !cfg!(feature = "infiniband") || self.slots.is_empty()
    }
}
