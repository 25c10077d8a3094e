//! The storage that the caller hands in: one slot per connection, one per listener, one per answer without a connection.

use core::time::Duration;

use super::retry::{Retry, ticks};
use super::state::State;
use super::types::{Address, ConnectionId, Timers, Transport};
use super::units::nanos;
use super::wheel::{NIL, timed};
use crate::mad::{Ece, Rtu};

/// The most private data of any message; a REJ's additional information and private data share the space.
pub(super) const PRIVATE: usize = Rtu::PRIVATE_DATA_MAX;

/// Messages that wait to be sent, as bits.
pub(super) mod tx {
    pub(in crate::engine) const REQ: u8 = 1 << 0;
    pub(in crate::engine) const MRA: u8 = 1 << 1;
    pub(in crate::engine) const REP: u8 = 1 << 2;
    pub(in crate::engine) const RTU: u8 = 1 << 3;
    pub(in crate::engine) const REJ: u8 = 1 << 4;
    pub(in crate::engine) const DREQ: u8 = 1 << 5;
    pub(in crate::engine) const DREP: u8 = 1 << 6;
    /// LAP or APR.
    pub(in crate::engine) const ALTERNATE: u8 = 1 << 7;
}

/// Events that wait to be fetched, as bits; delivered in the order of the bits, which is the order of a connection's
/// states.
pub(super) mod ev {
    pub(in crate::engine) const REQUEST: u8 = 1 << 0;
    pub(in crate::engine) const REPLY: u8 = 1 << 1;
    pub(in crate::engine) const ESTABLISHED: u8 = 1 << 2;
    pub(in crate::engine) const REJECTED: u8 = 1 << 3;
    pub(in crate::engine) const UNREACHABLE: u8 = 1 << 4;
    pub(in crate::engine) const DISCONNECTED: u8 = 1 << 5;
    pub(in crate::engine) const TIMEWAIT_EXIT: u8 = 1 << 6;
    /// Never together with the two before: the end of a connection takes it back.
    pub(in crate::engine) const ALTERNATE: u8 = 1 << 7;
}

/// Reason of a disconnection, packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Cause {
    Requested,
    Answered,
    TimedOut,
    Rejected,
}

/// Storage for one connection. Hand a slice of them to [`Engine::new`](super::Engine::new).
///
/// A slot also holds its share of the engine's tables (hash buckets, queue links), so that one slice is all the storage
/// there is, and no table can be too small for the others.
#[derive(Debug, Clone)]
pub struct Slot {
    // Shares of the tables; these belong to the slot's index, not to the connection in it.
    pub(super) head_id: u32,
    pub(super) head_qp: u32,
    pub(super) tx_next: u32,
    pub(super) event_next: u32,
    pub(super) in_tx: bool,
    pub(super) in_events: bool,
    pub(super) generation: u32,
    /// The next free slot; of a slot in use the one of its alternate path.
    pub(super) link: u32,

    // The connection.
    pub(super) used: bool,
    pub(super) zombie: bool,
    pub(super) active: bool,
    pub(super) hashed_id: bool,
    pub(super) hashed_qp: bool,
    /// Its peer does not have it any more. It stays in the tables until its timewait is over, for late messages only.
    pub(super) stale: bool,
    pub(super) state: State,
    pub(super) next_id: u32,
    pub(super) next_qp: u32,
    pub(super) local_comm_id: u32,
    pub(super) remote_comm_id: u32,
    /// Of the request that was refused when this connection turned out stale.
    pub(super) refused_comm_id: u32,
    pub(super) remote_guid: u64,
    pub(super) service_id: u64,
    pub(super) transaction_id: u64,
    pub(super) user: u64,
    pub(super) listener: u32,
    pub(super) listener_generation: u32,
    pub(super) local_qpn: u32,
    pub(super) remote_qpn: u32,
    pub(super) local_psn: u32,
    pub(super) remote_psn: u32,
    pub(super) address: Address,

    // Its place among those that are not established yet.
    pub(super) half_open: bool,
    pub(super) source: u8,
    pub(super) half_prev: u32,
    pub(super) half_next: u32,
    pub(super) since: u64,

    // Timer.
    pub(super) timer_tick: u64,
    pub(super) timer_next: u32,
    pub(super) timer_prev: u32,
    pub(super) timer_bucket: u16,
    pub(super) retry: Retry,

    // What the messages carry.
    pub(super) transport: Transport,
    pub(super) path_mtu: u8,
    pub(super) rate: u8,
    pub(super) packet_life_time: u8,
    pub(super) ack_timeout: u8,
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
    pub(super) peer_responder_resources: u8,
    pub(super) peer_initiator_depth: u8,
    pub(super) flow_control: bool,
    pub(super) peer_flow_control: bool,
    pub(super) srq: bool,
    pub(super) peer_srq: bool,
    pub(super) retry_count: u8,
    pub(super) rnr_retry_count: u8,
    pub(super) peer_rnr_retry_count: u8,
    pub(super) remote_response: u8,
    pub(super) local_response: u8,
    pub(super) max_retries: u8,
    /// First repetition, in ticks of the wheel; 0 for none.
    pub(super) early: u32,
    /// Exponent for the MRA when a message comes again before the user answered it; 0xff sends none.
    pub(super) auto_mra: u8,
    pub(super) service_timeout: u8,
    pub(super) ece: Ece,
    pub(super) peer_ece: Ece,

    // Messages and events that wait.
    pub(super) pending_tx: u8,
    pub(super) sent_before: u8,
    pub(super) pending_events: u8,
    pub(super) data_event: u8,
    pub(super) cause: Cause,
    pub(super) exit_due: bool,
    pub(super) failover_refused: bool,
    pub(super) mra_message: u8,
    pub(super) rej_message: u8,
    pub(super) rej_info_len: u8,
    pub(super) reason: u16,
    pub(super) private_len: u8,
    pub(super) private: [u8; PRIVATE],
}

impl Slot {
    /// An empty slot.
    pub const EMPTY: Self = Self {
        head_id: NIL,
        head_qp: NIL,
        tx_next: NIL,
        event_next: NIL,
        in_tx: false,
        in_events: false,
        generation: 0,
        link: NIL,
        used: false,
        zombie: false,
        active: false,
        hashed_id: false,
        hashed_qp: false,
        stale: false,
        state: State::Idle,
        next_id: NIL,
        next_qp: NIL,
        local_comm_id: 0,
        remote_comm_id: 0,
        refused_comm_id: 0,
        remote_guid: 0,
        service_id: 0,
        transaction_id: 0,
        user: 0,
        listener: NIL,
        listener_generation: 0,
        local_qpn: 0,
        remote_qpn: 0,
        local_psn: 0,
        remote_psn: 0,
        address: Address {
            local_gid: [0; 16],
            remote_gid: [0; 16],
            remote_mac: [0; 6],
            local_lid: 0,
            remote_lid: 0,
            pkey: 0,
            link: 0,
            flow_label: 0,
            traffic_class: 0,
            hop_limit: 0,
            service_level: 0,
        },
        half_open: false,
        source: 0,
        half_prev: NIL,
        half_next: NIL,
        since: 0,
        timer_tick: 0,
        timer_next: NIL,
        timer_prev: NIL,
        timer_bucket: u16::MAX,
        retry: Retry::NONE,
        transport: Transport::Rc,
        path_mtu: 0,
        rate: 0,
        packet_life_time: 0,
        ack_timeout: 0,
        responder_resources: 0,
        initiator_depth: 0,
        peer_responder_resources: 0,
        peer_initiator_depth: 0,
        flow_control: false,
        peer_flow_control: false,
        srq: false,
        peer_srq: false,
        retry_count: 0,
        rnr_retry_count: 0,
        peer_rnr_retry_count: 0,
        remote_response: 0,
        local_response: 0,
        max_retries: 0,
        early: 0,
        auto_mra: 0xff,
        service_timeout: 0,
        ece: Ece::NONE,
        peer_ece: Ece::NONE,
        pending_tx: 0,
        sent_before: 0,
        pending_events: 0,
        data_event: 0,
        cause: Cause::Requested,
        exit_due: false,
        failover_refused: false,
        mra_message: 0,
        rej_message: 0,
        rej_info_len: 0,
        reason: 0,
        private_len: 0,
        private: [0; PRIVATE],
    };

    /// Drops the last connection but keeps the slot's shares of the tables. The private data stays: `private_len` says
    /// that none of it counts.
    pub(super) fn reset(&mut self) {
        self.zombie = false;
        self.active = false;
        self.stale = false;
        self.state = State::Idle;
        self.remote_comm_id = 0;
        self.remote_guid = 0;
        self.transaction_id = 0;
        self.user = 0;
        self.listener = NIL;
        self.local_qpn = 0;
        self.remote_qpn = 0;
        self.remote_psn = 0;
        self.pending_tx = 0;
        self.sent_before = 0;
        self.pending_events = 0;
        self.data_event = 0;
        self.ece = Ece::NONE;
        self.peer_ece = Ece::NONE;
        self.private_len = 0;
        self.rej_info_len = 0;
        self.exit_due = false;
        self.failover_refused = false;
    }

    pub(super) fn set_timers(&mut self, timers: &Timers) {
        self.remote_response = timers.remote_response;
        self.local_response = timers.local_response;
        self.max_retries = timers.max_retries;
        self.early = timers.early.map_or(0, |early| ticks(nanos(early)));
    }

    pub(super) fn timers(&self) -> Timers {
        Timers {
            remote_response: self.remote_response,
            local_response: self.local_response,
            max_retries: self.max_retries,
            early: (self.early != 0).then(|| Duration::from_nanos(u64::from(self.early) << 20)),
        }
    }

    pub(super) fn id(&self) -> ConnectionId {
        ConnectionId(self.local_comm_id)
    }

    /// Keeps bytes for a message that is to be sent, perhaps more than once.
    pub(super) fn store(&mut self, data: &[u8]) {
        let len = data.len().min(PRIVATE);
        self.private[..len].copy_from_slice(&data[..len]);
        self.private_len = len as u8;
        self.data_event = 0;
    }

    /// Keeps bytes that came with a message until the event `bit` is fetched.
    pub(super) fn store_received(&mut self, bit: u8, data: &[u8]) {
        self.store(data);
        self.data_event = bit;
    }

    pub(super) fn private(&self) -> &[u8] {
        &self.private[..usize::from(self.private_len)]
    }
}

timed!(Slot);

impl Default for Slot {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// Storage for one listener.
#[derive(Debug, Clone, Copy)]
pub struct ListenerSlot {
    pub(super) head: u32,
    pub(super) next: u32,
    pub(super) generation: u32,
    pub(super) used: bool,
    pub(super) accepts_uc: bool,
    pub(super) accepts_xrc: bool,
    pub(super) datagrams: bool,
    pub(super) service_id: u64,
    pub(super) user: u64,
    pub(super) backlog: u32,
    pub(super) waiting: u32,
}

impl ListenerSlot {
    /// An empty slot.
    pub const EMPTY: Self = Self {
        head: NIL,
        next: NIL,
        generation: 0,
        used: false,
        accepts_uc: false,
        accepts_xrc: false,
        datagrams: false,
        service_id: 0,
        user: 0,
        backlog: 0,
        waiting: 0,
    };
}

impl Default for ListenerSlot {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// Storage for one answer that belongs to no connection, between its MAD and the next `poll_transmit`.
#[derive(Debug, Clone, Copy)]
pub struct ReplySlot {
    pub(super) address: Address,
    pub(super) transaction_id: u64,
    pub(super) answer: Answer,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Answer {
    None,
    Rej {
        local: u32,
        remote: u32,
        message: u8,
        reason: u16,
        info_len: u8,
        info: [u8; 16],
    },
    Drep {
        local: u32,
        remote: u32,
    },
    Apr {
        local: u32,
        remote: u32,
        status: u8,
    },
    SidrRep {
        request_id: u32,
        service_id: u64,
        status: u8,
    },
    ClassPortInfo,
}

impl ReplySlot {
    /// An empty slot.
    pub const EMPTY: Self = Self {
        address: Slot::EMPTY.address,
        transaction_id: 0,
        answer: Answer::None,
    };
}

impl Default for ReplySlot {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// Transaction ID of a message that is not an answer. Linux takes the communication ID in host order for the lower half;
/// looking the same helps the reader of traces of both.
pub(super) fn own_transaction(high: u32, slot: &Slot) -> u64 {
    u64::from(high) << 32 | u64::from(slot.local_comm_id.swap_bytes())
}
