//! Ids and event channels: their handles, kinds, states, options and addresses.

use core::fmt;
use core::net::SocketAddr;
#[cfg(feature = "keep-alive")]
use core::time::Duration;

use crate::engine::Timers;
use crate::mad::sa::PathRecord;

/// The index of no slot, at the end of a list that is linked through slots.
pub(crate) const NIL: u32 = u32::MAX;

/// An RDMA identifier (`struct rdma_cm_id *`), conceptually the socket of RDMA. Generational: one that was destroyed is
/// an error everywhere, never another id.
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
    /// Returns `true` if ids in it have UD QPs, which nothing connects: peers are found by SIDR. There are none in a build
    /// without datagrams.
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

/// Type of an id's QP (`enum ibv_qp_type` of `struct rdma_cm_id`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IdType {
    /// For reliable connections; of port spaces for connections.
    Rc,
    /// For unreliable connections; in [`PortSpace::Ib`].
    Uc,
    /// For datagrams; of port spaces for datagrams, and in [`PortSpace::Ib`].
    Ud,
    /// The connecting end of an extended reliable connection; in [`PortSpace::Ib`].
    XrcSend,
    /// The listening and accepting end of one; in [`PortSpace::Ib`].
    XrcRecv,
}

impl IdType {
    /// The type for ids of a port space: [`Ud`](Self::Ud) for datagrams, otherwise [`Rc`](Self::Rc).
    pub const fn of_port_space(port_space: PortSpace) -> Self {
        if port_space.is_datagram() {
            Self::Ud
        } else {
            Self::Rc
        }
    }

    /// The port space that has no other type, if there is one.
    pub(crate) const fn usual_port_space(self) -> Option<PortSpace> {
        match self {
            Self::Rc => Some(PortSpace::Tcp),
            Self::Ud if cfg!(feature = "datagrams") => Some(PortSpace::Udp),
            _ => None,
        }
    }

    /// Returns `true` if this build has it in a port space (`rdma_create_id`, `rdma_create_ep`).
    pub(crate) const fn fits(self, port_space: PortSpace) -> bool {
        let any = matches!(port_space, PortSpace::Ib);
        match self {
            Self::Rc => !port_space.is_datagram(),
            Self::Ud => self.is_datagram() && (any || port_space.is_datagram()),
            Self::Uc => cfg!(feature = "uc") && any,
            Self::XrcSend | Self::XrcRecv => self.is_xrc() && any,
        }
    }

    /// Returns `true` if its ids have UD QPs, which nothing connects, as [`PortSpace::is_datagram`].
    pub const fn is_datagram(self) -> bool {
        cfg!(feature = "datagrams") && matches!(self, Self::Ud)
    }

    pub(crate) const fn is_xrc(self) -> bool {
        cfg!(feature = "xrc") && matches!(self, Self::XrcSend | Self::XrcRecv)
    }
}

/// The state of an id. A call in the wrong state fails with EINVAL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdState {
    /// Newly created.
    Idle,
    /// Has a local address.
    AddrBound,
    /// Resolving an address.
    AddrQuery,
    /// The address is resolved.
    AddrResolved,
    /// Resolving the route.
    RouteQuery,
    /// The route is resolved.
    RouteResolved,
    /// Connecting, or connected; with datagrams, asking for a service, or having its answer.
    Connect,
    /// Disconnecting, or disconnected.
    Disconnect,
    /// Waits for connections.
    Listen,
}

/// Options of an id (`rdma_set_option`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdOption {
    /// Type of service: the path's traffic class (`RDMA_OPTION_ID_TOS`).
    Tos(u8),
    /// Share the local port with other ids that do so (`RDMA_OPTION_ID_REUSEADDR`), until one of them listens: a listener has
    /// its port alone. Once the id is bound it can be switched on only.
    ReuseAddr(bool),
    /// Have the local port in the family of its address only (`RDMA_OPTION_ID_AFONLY`): the default is true for
    /// IPv4 and false for IPv6.
    AfOnly(bool),
    /// Exponent of the QP's ACK timeout, 4.096 us times 2 to it (`RDMA_OPTION_ID_ACK_TIMEOUT`); 0 is none. Of ids of RC and
    /// senders of XRC only. As with Linux, any value is taken, and the QP has its low five bits.
    AckTimeout(u8),
    /// The path to the resolved address, for a caller that has it from elsewhere; in place of `resolve_route`, and
    /// followed by `RouteResolved` (`RDMA_OPTION_IB_PATH`).
    IbPath(PathRecord),
    /// The RNR NAK timer of the QP. Not in librdmacm, where it stays at 0, which is 655 ms.
    MinRnrTimer(u8),
    /// The CM's timers. Not in librdmacm, where they cannot be set. May be set at any time, and counts from the next message
    /// on. A listener's go to the ids of its requests, and count instead of what the requests ask for.
    CmTimers(Timers),
    /// Exponent of the time to ask for (MRA) when the other end repeats its message before the application answered,
    /// `None` to keep silent. Not in librdmacm, where it is 24. A listener's goes to the ids of its requests.
    AutoMra(Option<u8>),
    /// The interval of keep-alives on the connection, `None` for none: RDMA WRITEs of no bytes, which the other end's card
    /// answers while its program notices nothing. librdmacm has no such option, and there a connection on which nothing is
    /// sent outlives the host at its other end. The option is for reliable connections, and has to be set before the QP is
    /// created. The ids of a listener's requests inherit it. The manager looks at all ids at the smallest of their intervals
    /// ([`next_deadline`](crate::rdma::RdmaCm::next_deadline)).
    ///
    /// If the other end is gone, `Disconnected` with status `-ETIMEDOUT` comes, at most two intervals and the QP's
    /// retries later (`retry_count + 1` times up to four ACK timeouts), and what was posted is flushed. The event also comes if
    /// something that the application has posted fails. A DREQ is sent, and `TimewaitExit` comes when it is answered or has
    /// been repeated often enough.
    ///
    /// The completions of keep-alives reach no poll, but raise the event of an armed CQ. The send queue gets one place more
    /// for them than the application asks for. A send CQ of the application's needs a place more for each such QP, and the
    /// manager learns of its completions when the application polls it. The other end has to permit WRITEs, as QPs of ids do.
    #[cfg(feature = "keep-alive")]
    KeepAlive(Option<Duration>),
}

/// The two ends of a connection, as far as they are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// Local address and port.
    pub local: Option<SocketAddr>,
    /// The other end's address and port.
    pub peer: Option<SocketAddr>,
    /// Path MTU: 1 to 5 for 256 to 4096 bytes. 0 before the route is resolved; on the id of a request,
    /// the request's.
    pub path_mtu: u8,
    /// Flow label of the connection's packets.
    pub flow_label: u32,
    /// Traffic class of the connection's packets.
    pub traffic_class: u8,
    /// Exponent of the packet lifetime in the fabric.
    pub packet_life_time: u8,
}

/// Service ID of a port (`rdma_get_service_id`): the port space and the port.
pub(crate) const fn service_id(port_space: PortSpace, port: u16) -> u64 {
    (port_space as u64) << 16 | port as u64
}
