//! The vocabulary of librdmacm: ids, events, parameters, options.

use core::fmt;
use core::net::{IpAddr, SocketAddr};

use bareverbs_core::ah::AhAttr;

use crate::engine::Timers;
use crate::mad::sa::PathRecord;
use crate::mad::{Attribute, CmaHeader, Rej, Rep, SidrRep};

/// An RDMA identifier (`struct rdma_cm_id *`), conceptually the socket of RDMA. Generational: one that was destroyed is
/// an error everywhere, never somebody else's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CmId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl CmId {
    pub(crate) const fn to_user(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    pub(crate) const fn from_user(user: u64) -> Self {
        Self {
            index: user as u32,
            generation: (user >> 32) as u32,
        }
    }
}

impl fmt::Display for CmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "id {}.{}", self.index, self.generation)
    }
}

/// An event channel (`struct rdma_event_channel *`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChannelId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// Port spaces (`enum rdma_port_space`). Their numbers are part of the service ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum PortSpace {
    /// Datagrams on an IPoIB interface.
    Ipoib = 0x0002,
    /// Reliable connections.
    Tcp = 0x0106,
    /// Datagrams.
    Udp = 0x0111,
    /// Any InfiniBand service.
    Ib = 0x013f,
}

impl PortSpace {
    /// Whether ids in it have UD QPs, which nothing connects: peers are found by SIDR. There are none in a build without
    /// datagrams.
    pub const fn is_datagram(self) -> bool {
        cfg!(feature = "datagrams") && matches!(self, Self::Udp | Self::Ipoib)
    }

    /// The port space of a service ID.
    pub(crate) const fn of_service(service_id: u64) -> Option<Self> {
        match service_id >> 16 {
            0x0002 => Some(Self::Ipoib),
            0x0106 => Some(Self::Tcp),
            0x0111 => Some(Self::Udp),
            0x013f => Some(Self::Ib),
            _ => None,
        }
    }
}

/// What QP an id has (`enum ibv_qp_type` of `struct rdma_cm_id`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IdType {
    /// For reliable connections; of port spaces for connections.
    Rc,
    /// For datagrams; of port spaces for datagrams.
    Ud,
    /// The connecting end of an extended reliable connection; in [`PortSpace::Ib`].
    XrcSend,
    /// The listening and accepting end of one; in [`PortSpace::Ib`].
    XrcRecv,
}

impl IdType {
    /// What a port space is made for.
    pub const fn of_port_space(port_space: PortSpace) -> Self {
        if port_space.is_datagram() {
            Self::Ud
        } else {
            Self::Rc
        }
    }

    pub(super) const fn is_xrc(self) -> bool {
        cfg!(feature = "xrc") && matches!(self, Self::XrcSend | Self::XrcRecv)
    }
}

/// The Q_Key of all datagrams between ids (`RDMA_UDP_QKEY`).
pub const UDP_QKEY: u32 = 0x0123_4567;

/// Where an id stands. A call in the wrong state fails with EINVAL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdState {
    /// Fresh.
    Idle,
    /// Has a local address.
    AddrBound,
    /// Looks for the way to an address.
    AddrQuery,
    /// Knows the way to an address.
    AddrResolved,
    /// Looks for the path.
    RouteQuery,
    /// Knows the path.
    RouteResolved,
    /// Connecting, or connected; with datagrams, asking for a service, or knowing it.
    Connect,
    /// Disconnecting, or disconnected.
    Disconnect,
    /// Waits for connections.
    Listen,
}

/// What an event says (`enum rdma_cm_event_type`), with librdmacm's numbers.
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
    /// Somebody wants to connect; the event's id is new.
    ConnectRequest = 4,
    /// The other end accepted, and the id has no QP: set one up and call `establish`.
    ConnectResponse = 5,
    /// Something local went wrong while connecting.
    ConnectError = 6,
    /// No answer.
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
    /// The way to the other end changed.
    AddrChange = 14,
    /// The QP number of a finished connection may be used again.
    TimewaitExit = 15,
    /// An address look-up succeeded.
    AddrInfoResolved = 16,
    /// An address look-up failed.
    AddrInfoError = 17,
    /// The application's own (`write_cm_event`).
    User = 18,
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
        }
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

/// The most private data that `connect` takes: what a REQ has beside the RDMA CM's header. InfiniBand's addresses need no header,
/// so that there are 36 bytes more.
pub const CONNECT_PRIVATE_DATA_MAX: usize = CmaHeader::REQ_PRIVATE_DATA_MAX;
/// The most private data that `connect` takes on an id for datagrams.
pub const UD_CONNECT_PRIVATE_DATA_MAX: usize = CmaHeader::SIDR_REQ_PRIVATE_DATA_MAX;
/// The most private data that `accept` and `reject` take on an id for datagrams.
pub const UD_ACCEPT_PRIVATE_DATA_MAX: usize = SidrRep::PRIVATE_DATA_MAX;
/// The most private data that `accept` takes.
pub const ACCEPT_PRIVATE_DATA_MAX: usize = Rep::PRIVATE_DATA_MAX;
/// The most private data that `reject` takes.
pub const REJECT_PRIVATE_DATA_MAX: usize = Rej::PRIVATE_DATA_MAX;

/// In [`ConnParam`]: as much as the device can (`RDMA_MAX_RESP_RES`, `RDMA_MAX_INIT_DEPTH`).
pub const DEVICE_MAX: u8 = 0xff;

/// What a connection shall be (`struct rdma_conn_param`). Of this, datagrams only have private data and `qp_num`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnParam<'a> {
    /// For the other end's application.
    pub private_data: &'a [u8],
    /// RDMA READs and atomics of the other end to serve at once; [`DEVICE_MAX`] for as many as possible.
    pub responder_resources: u8,
    /// RDMA READs and atomics to have outstanding at once; [`DEVICE_MAX`] for as many as possible.
    pub initiator_depth: u8,
    /// Hardware flow control is available.
    pub flow_control: bool,
    /// How often to repeat unacknowledged data, 0 to 7. Ignored by `accept`: the connecting side decides.
    pub retry_count: u8,
    /// How often the other end is to repeat when no receive is posted here, 0 to 7; 7 is for ever.
    pub rnr_retry_count: u8,
    /// The QP has a shared receive queue. Only without a QP on the id.
    pub srq: bool,
    /// The QP's number. Only without a QP on the id.
    pub qp_num: u32,
}

impl Default for ConnParam<'_> {
    /// What librdmacm takes when there is no parameter.
    fn default() -> Self {
        Self {
            private_data: &[],
            responder_resources: DEVICE_MAX,
            initiator_depth: DEVICE_MAX,
            flow_control: false,
            retry_count: 7,
            rnr_retry_count: 7,
            srq: false,
            qp_num: 0,
        }
    }
}

/// The other end's wishes, as a connection event tells them. They read from this end's point of view, so that they may be
/// given to `accept` as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConnEvent {
    /// What this end should serve at once.
    pub responder_resources: u8,
    /// What this end may have outstanding at once.
    pub initiator_depth: u8,
    /// The other end's hardware flow control.
    pub flow_control: bool,
    /// Retries that the connecting side wants.
    pub retry_count: u8,
    /// Receiver-not-ready retries that the other end wants.
    pub rnr_retry_count: u8,
    /// The other end's QP has a shared receive queue.
    pub srq: bool,
    /// The other end's QP.
    pub qp_num: u32,
}

/// What an event tells an id for datagrams (`struct rdma_ud_param`): where to send to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UdEvent {
    /// The path, for [`Device::create_ah`](bareverbs_core::Device::create_ah).
    pub ah_attr: AhAttr,
    /// The other end's QP. 0 in a request: whoever asks does not tell.
    pub qp_num: u32,
    /// The Q_Key that datagrams need there.
    pub qkey: u32,
}

/// An event (`struct rdma_cm_event`). It owns its data: there is nothing to acknowledge, and destroying an id never waits
/// for one.
#[derive(Clone, Copy)]
pub struct CmEvent {
    /// Whom it is about.
    pub id: CmId,
    /// On `ConnectRequest`: who was asked for.
    pub listen_id: Option<CmId>,
    /// The context of the id; on `ConnectRequest` that of the listener.
    pub context: u64,
    /// What happened.
    pub event: EventType,
    /// 0, a negative errno, or the other end's reason: on `Rejected` the reject reason, on `Unreachable` a SIDR status.
    pub status: i32,
    /// The other end's wishes, where the event has any.
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

/// Options of an id (`rdma_set_option`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdOption {
    /// Type of service: the path's traffic class (`RDMA_OPTION_ID_TOS`).
    Tos(u8),
    /// Share the local port with other ids (`RDMA_OPTION_ID_REUSEADDR`).
    ReuseAddr(bool),
    /// Listen to one address family only (`RDMA_OPTION_ID_AFONLY`).
    AfOnly(bool),
    /// Exponent of the QP's ACK timeout, 4.096 us times 2 to it (`RDMA_OPTION_ID_ACK_TIMEOUT`).
    AckTimeout(u8),
    /// The path to the address that was resolved, for who has it from elsewhere; in place of `resolve_route`, and followed by
    /// `RouteResolved` (`RDMA_OPTION_IB_PATH`).
    IbPath(PathRecord),
    /// The RNR NAK timer of the QP. Not in librdmacm, where it stays at 0, which is 655 ms.
    MinRnrTimer(u8),
    /// The CM's timers. Not in librdmacm, where they cannot be set. May be set at any time, and counts from the next message
    /// on. A listener's go to the ids of its requests, and count instead of what the requests ask for.
    CmTimers(Timers),
    /// Exponent of the time to ask for (MRA) when the other end repeats itself before the application answered, `None` to
    /// keep silent. Not in librdmacm, where it is 24. A listener's goes to the ids of its requests.
    AutoMra(Option<u8>),
}

/// One message of a handshake, as it passed QP1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceEntry {
    /// When, on the platform's clock.
    pub time: core::time::Duration,
    /// Whether this end sent it.
    pub sent: bool,
    /// Which message.
    pub message: Attribute,
    /// Whether it was sent before.
    pub repeated: bool,
    /// The other end's address.
    pub peer: IpAddr,
    /// Local communication ID in the message; that of whoever sent it. With datagram services the request's ID.
    pub local_comm_id: u32,
    /// Remote communication ID in the message; 0 in a REQ and with datagram services.
    pub remote_comm_id: u32,
}

/// The two ends of a connection, as far as they are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// Local address and port.
    pub local: Option<SocketAddr>,
    /// The other end's address and port.
    pub peer: Option<SocketAddr>,
    /// Path MTU: 1 to 5 for 256 to 4096 bytes. 0 before the route is resolved.
    pub path_mtu: u8,
    /// Exponent of the time that a packet lives in the fabric.
    pub packet_life_time: u8,
}
