//! The types that the engine takes and gives: addresses, parameters, events, errors.

use core::fmt;
use core::time::Duration;

use super::alternate::types::{AlternatePath, Failover};
use crate::mad::{AprStatus, Attribute, Ece, MadError, RejectReason};

/// The two ends of a path, as far as the caller that moves the MADs needs it, and as it goes into a connection's messages.
///
/// The engine compares the GIDs and copies the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Address {
    /// GID of this end.
    pub local_gid: [u8; 16],
    /// GID of the other end.
    pub remote_gid: [u8; 16],
    /// MAC address of the next hop to the other end (RoCE).
    pub remote_mac: [u8; 6],
    /// LID of this end; 0 on RoCE.
    pub local_lid: u16,
    /// LID of the other end; 0 on RoCE.
    pub remote_lid: u16,
    /// Partition.
    pub pkey: u16,
    /// A value that the code which moves MADs needs back with each message: port, index in the GID table.
    pub link: u32,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Service level.
    pub service_level: u8,
}

impl Address {
    /// The identity of a sender: its LID, where there is one, since its messages need not have its GID.
    pub(super) fn peer(&self) -> [u8; 16] {
        match self.remote_lid {
            0 => self.remote_gid,
            lid => u128::from(lid).to_be_bytes(),
        }
    }
}

/// A connection's ID: its local communication ID. It is not used again for a long time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnectionId(pub(crate) u32);

impl ConnectionId {
    /// The number that is on the wire.
    pub const fn comm_id(self) -> u32 {
        self.0
    }
}

/// A listener's ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ListenerId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// The transport of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Transport {
    /// Reliable connection.
    Rc = 0,
    /// Unreliable connection.
    Uc = 1,
    /// Extended reliable connection: initiator on the active side, target on the passive one.
    Xrc = 3,
}

/// Timers of one connection. All exponents mean 4.096 us times 2 to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timers {
    /// Exponent of the time in which the other end has to answer.
    pub remote_response: u8,
    /// Exponent of the time in which this end promises to answer.
    pub local_response: u8,
    /// The number of times that an unanswered message is repeated, at most 15. The other end follows this too.
    pub max_retries: u8,
    /// First repetition within the first interval, doubling from there; `None` repeats at the negotiated interval only.
    pub early: Option<Duration>,
}

impl Default for Timers {
    /// The values of Linux, and a first repetition after 256 ms.
    fn default() -> Self {
        Self {
            remote_response: 20,
            local_response: 20,
            max_retries: 15,
            early: Some(Duration::from_millis(256)),
        }
    }
}

/// The parameters of a connection request.
#[derive(Debug, Clone, Copy)]
pub struct ConnectParams<'a> {
    /// The service to connect to.
    pub service_id: u64,
    /// The path.
    pub address: Address,
    /// Transport of the QPs.
    pub transport: Transport,
    /// This end's QP number.
    pub local_qpn: u32,
    /// The first PSN that this end's QP expects; `None` draws one.
    pub starting_psn: Option<u32>,
    /// Path MTU: 1 to 5 for 256 to 4096 bytes.
    pub path_mtu: u8,
    /// Static rate; 0 is the port's.
    pub rate: u8,
    /// Exponent of the packet lifetime in the fabric. With the adapters' ACK delays it gives the ACK timeout that the request has.
    pub packet_life_time: u8,
    /// RDMA READs and atomics that this end serves at once.
    pub responder_resources: u8,
    /// RDMA READs and atomics that this end may have outstanding at once.
    pub initiator_depth: u8,
    /// End-to-end flow control (informational).
    pub flow_control: bool,
    /// Transport retries, 0 to 7, for both QPs.
    pub retry_count: u8,
    /// Receiver-not-ready retries for the other end's QP, 0 to 7; 7 is for ever.
    pub rnr_retry_count: u8,
    /// This end's QP has a shared receive queue (informational).
    pub srq: bool,
    /// Timers.
    pub timers: Timers,
    /// A second path, to be loaded into the QPs together with the first (InfiniBand only).
    pub alternate: Option<AlternatePath>,
    /// Vendor options of this end's QP.
    pub ece: Ece,
    /// At most 92 bytes.
    pub private_data: &'a [u8],
    /// Comes back with every event.
    pub user: u64,
}

/// The parameters of accepting a connection.
#[derive(Debug, Clone, Copy)]
pub struct ReplyParams<'a> {
    /// This end's QP number.
    pub local_qpn: u32,
    /// RDMA READs and atomics that this end serves at once.
    pub responder_resources: u8,
    /// RDMA READs and atomics that this end will have outstanding at once.
    pub initiator_depth: u8,
    /// End-to-end flow control (informational).
    pub flow_control: bool,
    /// Receiver-not-ready retries for the other end's QP, 0 to 7; 7 is for ever.
    pub rnr_retry_count: u8,
    /// This end's QP has a shared receive queue (informational).
    pub srq: bool,
    /// The decision on the alternate path that came with the request. Means nothing when none came.
    pub failover: Failover,
    /// Vendor options: those of the request that this end's QP accepts.
    pub ece: Ece,
    /// At most 196 bytes.
    pub private_data: &'a [u8],
}

/// Why a connection is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DisconnectCause {
    /// The other end asked for it.
    Requested,
    /// The other end answered this end's DREQ.
    Answered,
    /// The other end never answered this end's DREQ.
    TimedOut,
    /// The other end rejected after the fact.
    Rejected(RejectReason),
}

/// Something that happened to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event<'a> {
    /// The connection.
    pub connection: ConnectionId,
    /// The value that was given to [`connect`](super::Engine::connect) or [`set_user`](super::Engine::set_user).
    pub user: u64,
    /// The event.
    pub kind: EventKind<'a>,
}

/// The kind of event. Private data is as long as the message's field: its true length is not on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind<'a> {
    /// A peer requests a connection. To be answered with `reply` or `reject`.
    ConnectRequest {
        /// The listener that was asked for.
        listener: ListenerId,
        /// The listener's user value.
        listener_user: u64,
        /// 92 bytes.
        private_data: &'a [u8],
    },
    /// The other end accepted. To be answered with `ready` or `reject`.
    Reply {
        /// 196 bytes.
        private_data: &'a [u8],
    },
    /// The passive side is connected: RTU arrived, or traffic did.
    Established {
        /// 224 bytes, or none when there was no RTU.
        private_data: &'a [u8],
    },
    /// The other end refused.
    Rejected {
        /// The reason.
        reason: RejectReason,
        /// The values that would have been acceptable, up to 72 bytes.
        info: &'a [u8],
        /// 148 bytes, or none when the refusal was this end's own finding.
        private_data: &'a [u8],
    },
    /// No answer in time.
    Unreachable {
        /// The message that had no answer: REQ or REP.
        unanswered: Attribute,
    },
    /// The connection is over. Exactly one [`TimewaitExit`](Self::TimewaitExit) follows.
    Disconnected {
        /// The reason.
        cause: DisconnectCause,
        /// 220 or 224 bytes, or none.
        private_data: &'a [u8],
    },
    /// The QP number may be used again.
    TimewaitExit,
    /// The peer requests to load this alternate path. To be answered with `answer_alternate`.
    AlternatePath {
        /// The path, as this end sees it.
        path: &'a AlternatePath,
        /// 168 bytes.
        private_data: &'a [u8],
    },
    /// The outcome for the path that was given to `load_alternate`. The connection is unchanged.
    AlternateResponse {
        /// The other end's answer; `None` when there was none in time.
        status: Option<AprStatus>,
        /// The values that would have been acceptable, up to 72 bytes.
        info: &'a [u8],
        /// 148 bytes, or none.
        private_data: &'a [u8],
    },
}

/// The attributes with which the QP of a connection has to be set up. Only complete once the other end's REQ or REP is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QpParams {
    /// The path for the QP's address vector.
    pub address: Address,
    /// Transport.
    pub transport: Transport,
    /// The other end's QP.
    pub dest_qpn: u32,
    /// Path MTU: 1 to 5 for 256 to 4096 bytes.
    pub path_mtu: u8,
    /// Static rate; 0 is the port's.
    pub rate: u8,
    /// First PSN to expect.
    pub rq_psn: u32,
    /// First PSN to send.
    pub sq_psn: u32,
    /// The READs and atomics that the other end may have outstanding here. `accept` may lower the number.
    pub max_dest_rd_atomic: u8,
    /// The READs and atomics that the other end serves at once. `accept` may lower the number.
    pub max_rd_atomic: u8,
    /// Transport retries.
    pub retry_count: u8,
    /// Receiver-not-ready retries: the other end decides.
    pub rnr_retry_count: u8,
    /// Exponent of the ACK timeout.
    pub ack_timeout: u8,
    /// The other end's QP has a shared receive queue.
    pub peer_srq: bool,
    /// The peer's request for end-to-end flow control.
    pub flow_control: bool,
}

/// A message that is ready to be sent to QP1 of the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    /// Destination.
    pub address: Address,
    /// The message's attribute.
    pub attribute: Attribute,
    /// The connection it belongs to, if there is one.
    pub connection: Option<ConnectionId>,
    /// `true` if it was sent before.
    pub repeated: bool,
}

/// Why a MAD was ignored. None of these needs an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ignored {
    /// Not a MAD of the CM.
    Malformed(MadError),
    /// Seen before, and already answered as far as it is to be answered.
    Duplicate(Attribute),
    /// It names no connection of ours, or one in another state.
    Unexpected(Attribute),
    /// The ring of answers without a connection is full; the other end will repeat its message.
    NoReplySlot(Attribute),
}

impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(error) => write!(f, "malformed MAD: {error}"),
            Self::Duplicate(attribute) => write!(f, "duplicate {attribute}"),
            Self::Unexpected(attribute) => write!(f, "{attribute} that no connection waits for"),
            Self::NoReplySlot(attribute) => write!(f, "no free slot for an answer to {attribute}"),
        }
    }
}

impl core::error::Error for Ignored {}

/// The engine's counters since it was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Messages sent, repetitions included.
    pub sent: u64,
    /// Messages sent again.
    pub repeated: u64,
    /// MADs handed in.
    pub received: u64,
    /// Of those, duplicates.
    pub duplicates: u64,
    /// Of those, malformed or unexpected.
    pub ignored: u64,
    /// Half-open connections that were replaced by others.
    pub evicted: u64,
}

pub(super) type Outcome = Result<(), Ignored>;
