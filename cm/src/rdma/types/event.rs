//! Events, and the trace of messages.

use core::fmt;
use core::net::IpAddr;

use bareverbs_core::ah::AhAttr;

use super::id::CmId;
use super::param::ACCEPT_PRIVATE_DATA_MAX;
use crate::mad::Attribute;

/// The type of an event (`enum rdma_cm_event_type`), with librdmacm's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EventType {
    /// `resolve_addr` succeeded.
    AddrResolved = 0,
    /// `resolve_addr` failed.
    AddrError = 1,
    /// `resolve_route` succeeded.
    RouteResolved = 2,
    /// `resolve_route` failed.
    RouteError = 3,
    /// A peer requests a connection; the event's id is new.
    ConnectRequest = 4,
    /// The other end accepted, and the id has no QP: set one up and call `establish`.
    ConnectResponse = 5,
    /// Something local went wrong while connecting.
    ConnectError = 6,
    /// No answer; or the other end's address is another port's now, as a neighbour says, and the connection is as it was.
    Unreachable = 7,
    /// The other end refused; the status is the reject reason.
    Rejected = 8,
    /// Connected.
    Established = 9,
    /// The connection is over.
    Disconnected = 10,
    /// The device is going away: destroy the id.
    DeviceRemoval = 11,
    /// A multicast group was joined.
    MulticastJoin = 12,
    /// A multicast group could not be joined, or was lost.
    MulticastError = 13,
    /// The port's own address has changed, by a failover of Linux's bonding: not here.
    AddrChange = 14,
    /// The QP number of a finished connection may be used again.
    TimewaitExit = 15,
    /// An address look-up succeeded.
    AddrInfoResolved = 16,
    /// An address look-up failed.
    AddrInfoError = 17,
    /// The application's own (`write_cm_event`).
    User = 18,
    /// The QP has another alternate path, which this end or the other one asked for
    /// ([`load_alternate_path`](crate::rdma::RdmaCm::load_alternate_path)). Not in librdmacm, as the next three are not.
    #[cfg(feature = "infiniband")]
    AlternatePathLoaded = 64,
    /// An alternate path was not loaded: the status is what the other end answered
    /// ([`AprStatus`](crate::mad::AprStatus)), or a negative errno.
    #[cfg(feature = "infiniband")]
    AlternatePathError = 65,
    /// The QP has migrated to its alternate path, and has none now.
    #[cfg(feature = "infiniband")]
    PathMigrated = 66,
    /// The QP did not follow the other end to a path that is not its alternate path.
    #[cfg(feature = "infiniband")]
    PathMigrationError = 67,
}

impl EventType {
    /// The event's name (`rdma_event_str`).
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AddrResolved => "RDMA_CM_EVENT_ADDR_RESOLVED",
            Self::AddrError => "RDMA_CM_EVENT_ADDR_ERROR",
            Self::RouteResolved => "RDMA_CM_EVENT_ROUTE_RESOLVED",
            Self::RouteError => "RDMA_CM_EVENT_ROUTE_ERROR",
            Self::ConnectRequest => "RDMA_CM_EVENT_CONNECT_REQUEST",
            Self::ConnectResponse => "RDMA_CM_EVENT_CONNECT_RESPONSE",
            Self::ConnectError => "RDMA_CM_EVENT_CONNECT_ERROR",
            Self::Unreachable => "RDMA_CM_EVENT_UNREACHABLE",
            Self::Rejected => "RDMA_CM_EVENT_REJECTED",
            Self::Established => "RDMA_CM_EVENT_ESTABLISHED",
            Self::Disconnected => "RDMA_CM_EVENT_DISCONNECTED",
            Self::DeviceRemoval => "RDMA_CM_EVENT_DEVICE_REMOVAL",
            Self::MulticastJoin => "RDMA_CM_EVENT_MULTICAST_JOIN",
            Self::MulticastError => "RDMA_CM_EVENT_MULTICAST_ERROR",
            Self::AddrChange => "RDMA_CM_EVENT_ADDR_CHANGE",
            Self::TimewaitExit => "RDMA_CM_EVENT_TIMEWAIT_EXIT",
            Self::AddrInfoResolved => "RDMA_CM_EVENT_ADDRINFO_RESOLVED",
            Self::AddrInfoError => "RDMA_CM_EVENT_ADDRINFO_ERROR",
            Self::User => "RDMA_CM_EVENT_USER",
            #[cfg(feature = "infiniband")]
            Self::AlternatePathLoaded => "ALTERNATE_PATH_LOADED",
            #[cfg(feature = "infiniband")]
            Self::AlternatePathError => "ALTERNATE_PATH_ERROR",
            #[cfg(feature = "infiniband")]
            Self::PathMigrated => "PATH_MIGRATED",
            #[cfg(feature = "infiniband")]
            Self::PathMigrationError => "PATH_MIGRATION_ERROR",
        }
    }
}

#[cfg(feature = "infiniband")]
impl EventType {
    /// Returns `true` if it is about the paths of a connection, which may come at any time.
    pub(crate) const fn is_of_paths(self) -> bool {
        matches!(
            self,
            Self::AlternatePathLoaded
                | Self::AlternatePathError
                | Self::PathMigrated
                | Self::PathMigrationError
        )
    }
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The name of an event (`rdma_event_str`).
pub const fn event_str(event: EventType) -> &'static str {
    event.as_str()
}

/// The peer's parameters, as a connection event has them. They read from this end's point of view, so that they may be
/// given to `accept` as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConnEvent {
    /// RDMA READs and atomics that this end should serve at once.
    pub responder_resources: u8,
    /// RDMA READs and atomics that this end may have outstanding at once.
    pub initiator_depth: u8,
    /// The other end's hardware flow control.
    pub flow_control: bool,
    /// Retries that the connecting side requests.
    pub retry_count: u8,
    /// Receiver-not-ready retries that the peer requests.
    pub rnr_retry_count: u8,
    /// The other end's QP has a shared receive queue.
    pub srq: bool,
    /// The other end's QP.
    pub qp_num: u32,
}

/// The destination in an event of an id for datagrams (`struct rdma_ud_param`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UdEvent {
    /// The path, for [`Device::create_ah`](bareverbs_core::Device::create_ah).
    pub ah_attr: AhAttr,
    /// The other end's QP. 0 in a request, which does not say it.
    pub qp_num: u32,
    /// The Q_Key that datagrams need there.
    pub qkey: u32,
}

/// An event (`struct rdma_cm_event`). It owns its data: there is nothing to acknowledge, and destroying an id never waits
/// for one.
#[derive(Clone, Copy)]
pub struct CmEvent {
    /// The id it belongs to.
    pub id: CmId,
    /// On `ConnectRequest`: the listener.
    pub listen_id: Option<CmId>,
    /// The context of the id; on `ConnectRequest` that of the listener.
    pub context: u64,
    /// Type of the event.
    pub event: EventType,
    /// 0, a negative errno, or the other end's reason: on `Rejected` the reject reason, on `Unreachable` a SIDR status.
    pub status: i32,
    /// The peer's parameters, where the event has any.
    pub conn: ConnEvent,
    /// Where to send datagrams, where the event says so.
    pub ud: UdEvent,
    /// The argument of `write_cm_event`; on `MulticastJoin` the context of the join.
    pub arg: u64,
    pub(crate) private_len: u8,
    pub(crate) private: [u8; ACCEPT_PRIVATE_DATA_MAX],
}

impl CmEvent {
    /// The other end's private data. As long as the field on the wire, zero padded: the length that was given is not
    /// transmitted.
    pub fn private_data(&self) -> &[u8] {
        self.private
            .get(..usize::from(self.private_len))
            .unwrap_or_default()
    }
}

impl fmt::Debug for CmEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CmEvent")
            .field("id", &self.id)
            .field("listen_id", &self.listen_id)
            .field("context", &self.context)
            .field("event", &self.event)
            .field("status", &self.status)
            .field("conn", &self.conn)
            .field("ud", &self.ud)
            .field("private_data", &self.private_len)
            .finish_non_exhaustive()
    }
}

/// One message of a handshake, as it passed QP1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceEntry {
    /// When, on the platform's clock.
    pub time: core::time::Duration,
    /// `true` if this end sent it.
    pub sent: bool,
    /// Type of the message.
    pub message: Attribute,
    /// `true` if it was sent before.
    pub repeated: bool,
    /// The other end's address.
    pub peer: IpAddr,
    /// Local communication ID in the message; that of its sender. With datagram services the request's ID.
    pub local_comm_id: u32,
    /// Remote communication ID in the message; 0 in a REQ and with datagram services.
    pub remote_comm_id: u32,
}
