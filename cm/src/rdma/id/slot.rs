//! The slots of ids and event channels.

use core::net::{IpAddr, SocketAddr};
use core::ops::Range;
use core::time::Duration;

use bareverbs_core::Platform;

#[cfg(feature = "infiniband")]
use crate::engine::AlternatePath;
use crate::engine::{Address, ConnectionId, ListenerId, SidrId, Timers};
use crate::mad::Ece;
use crate::rdma::id::goal::Work;
#[cfg(feature = "keep-alive")]
use crate::rdma::id::probe::Probe;
use crate::rdma::id::waiters::Waiters;
use crate::rdma::types::error::RdmaError;
use crate::rdma::types::id::NIL;
use crate::rdma::types::{
    ACCEPT_PRIVATE_DATA_MAX, ChannelId, CmId, EventType, IdState, IdType, PortSpace,
};
use crate::rdma::verbs::owned::Objects;

/// Events that one id can have waiting. Each kind comes once per connection; only the application's own events
/// (`write_cm_event`) and those of groups that it joins can fill it, and an event that is one too many is lost.
pub(crate) const PENDING: usize = 8;

/// A queue of events, oldest first, linked through the places that they have in the slots of their ids. A link is the index of a
/// place: that of the id, times [`PENDING`], and that of the place among its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Queue {
    pub(crate) head: u32,
    pub(crate) tail: u32,
}

impl Queue {
    pub(crate) const EMPTY: Self = Self {
        head: NIL,
        tail: NIL,
    };
}

/// Where an id's events go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// To the id of this index itself: synchronous.
    Id(u32),
    /// To an event channel.
    Channel(ChannelId),
}

/// A pending event; its other fields are filled in when it is fetched.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pending {
    pub(crate) event: EventType,
    pub(crate) status: i32,
    pub(crate) arg: u64,
}

/// A place for a pending event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) pending: Option<Pending>,
    /// The events before and after it in its queue.
    pub(crate) prev: u32,
    pub(crate) next: u32,
}

/// The places of the id of this index.
pub(crate) fn places(index: usize) -> Range<u32> {
    let first = (index * PENDING) as u32;
    first..first + PENDING as u32
}

/// Links of an id in the lists of the table. What belongs to the index outlives the id.
#[derive(Debug)]
pub(crate) struct Links {
    /// Of the index: the generation, which distinguishes its ids.
    pub(crate) generation: u32,
    /// Of the index: the next free slot.
    pub(crate) free_next: u32,
    /// Of the index: the first id whose port hashes to it.
    pub(crate) port_head: u32,
    pub(crate) port_next: u32,
    pub(crate) in_ports: bool,
    pub(crate) wait_next: u32,
    pub(crate) waiting: bool,
    /// Of the index: it is among those that have commands to do, and the next one that waits for its turn.
    pub(crate) working: bool,
    pub(crate) work_next: u32,
    /// Of the index: the first id whose QP's number hashes to it.
    pub(crate) qpn_head: u32,
    /// Of the index: in that list, under this number (0: in none), and the next one there. The QP may be gone.
    pub(crate) qpn: u32,
    pub(crate) qpn_next: u32,
}

/// The events of an id and where they go.
#[derive(Debug)]
pub(crate) struct EventQueue {
    /// The events for this id, if it is synchronous.
    pub(crate) own: Queue,
    /// The tasks that wait for these.
    pub(crate) waiters: Waiters,
    pub(crate) target: Target,
    pub(crate) places: [Place; PENDING],
    /// The event that a synchronous call fetched last.
    pub(crate) current: Option<Pending>,
    /// The error of a call that continues in the background.
    pub(crate) failure: Option<RdmaError>,
    /// The event that the private data belongs to.
    pub(crate) private_event: Option<EventType>,
    pub(crate) private_len: u8,
    pub(crate) private: [u8; ACCEPT_PRIVATE_DATA_MAX],
}

impl EventQueue {
    const fn new(target: Target) -> Self {
        Self {
            own: Queue::EMPTY,
            waiters: Waiters::NONE,
            target,
            places: [Place {
                pending: None,
                prev: NIL,
                next: NIL,
            }; PENDING],
            current: None,
            failure: None,
            private_event: None,
            private_len: 0,
            private: [0; ACCEPT_PRIVATE_DATA_MAX],
        }
    }

    /// The number of pending events.
    pub(crate) fn len(&self) -> usize {
        let pending = |place: &&Place| place.pending.is_some();
        self.places.iter().filter(pending).count()
    }

    /// Returns `true` if such an event is pending.
    pub(crate) fn has(&self, event: EventType) -> bool {
        let mut pending = self.places.iter().flat_map(|place| place.pending);
        pending.any(|pending| pending.event == event)
    }
}

/// Options of `rdma_set_option`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    pub(crate) reuse_addr: bool,
    pub(crate) af_only: Option<bool>,
    pub(crate) tos: u8,
    pub(crate) ack_timeout: Option<u8>,
    pub(crate) min_rnr_timer: u8,
    /// The application's timers; if it set none, the defaults, or those that the other end's REQ asks for.
    pub(crate) timers: Option<Timers>,
    pub(crate) auto_mra: Option<Option<u8>>,
    #[cfg(feature = "keep-alive")]
    pub(crate) keep_alive: Option<Duration>,
}

impl Options {
    const DEFAULT: Self = Self {
        reuse_addr: false,
        af_only: None,
        tos: 0,
        ack_timeout: None,
        min_rnr_timer: DEFAULT_MIN_RNR_TIMER,
        timers: None,
        auto_mra: None,
        #[cfg(feature = "keep-alive")]
        keep_alive: None,
    };

    /// Returns `true` if an id with this address has a port for the address's family only. By itself an IPv6 id has it for both.
    pub(crate) const fn is_af_only(&self, address: IpAddr) -> bool {
        match self.af_only {
            Some(only) => only,
            None => address.is_ipv4(),
        }
    }
}

/// The two ends of an id and the path between them.
#[derive(Debug)]
pub(crate) struct IdRoute {
    pub(crate) local: Option<SocketAddr>,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) bound: bool,
    pub(crate) any_source: bool,
    /// On InfiniBand: the ends have IP addresses, and not only GIDs.
    pub(crate) ip: bool,
    /// Number of this resolution among all that are under way, and the time until which it may last.
    pub(crate) resolve_seq: u64,
    pub(crate) deadline: Duration,
    /// Index of the partition (InfiniBand).
    pub(crate) pkey_index: u16,
    /// The port is a limited member of it.
    pub(crate) limited: bool,
    /// Static rate of the path, in the IBTA's codes.
    pub(crate) rate: u8,
    pub(crate) address: Address,
    pub(crate) path_mtu: u8,
    pub(crate) packet_life_time: u8,
    /// To be offered with the request.
    #[cfg(feature = "infiniband")]
    pub(crate) alternate: Option<AlternatePath>,
}

impl IdRoute {
    const EMPTY: Self = Self {
        local: None,
        peer: None,
        bound: false,
        any_source: false,
        ip: false,
        resolve_seq: 0,
        deadline: Duration::ZERO,
        pkey_index: 0,
        limited: false,
        rate: 0,
        address: Address {
            local_gid: [0; 16],
            remote_gid: [0; 16],
            remote_mac: [0; 6],
            local_lid: 0,
            remote_lid: 0,
            pkey: 0xffff,
            link: 0,
            flow_label: 0,
            traffic_class: 0,
            hop_limit: 0,
            service_level: 0,
        },
        path_mtu: 0,
        packet_life_time: DEFAULT_PACKET_LIFE_TIME,
        #[cfg(feature = "infiniband")]
        alternate: None,
    };
}

/// The connection, datagram service or listener of an id.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) passive: bool,
    pub(crate) accepted: bool,
    /// Of a request: its end is no event before it is accepted.
    #[cfg(feature = "attached-qps")]
    pub(crate) is_quiet: bool,
    /// The number of times that the request was repeated after a refusal as stale.
    pub(crate) stale_retries: u8,
    pub(crate) id: Option<ConnectionId>,
    /// Of a datagram service: the question under way.
    pub(crate) sidr: Option<SidrId>,
    pub(crate) remote_qpn: u32,
    pub(crate) remote_qkey: u32,
    /// Of datagrams; 0 until there is one.
    pub(crate) qkey: u32,
    /// Of the application's own QP.
    pub(crate) ece: Ece,
    /// Of a datagram service.
    pub(crate) remote_ece: Ece,
    /// Multicast groups that it is in.
    pub(crate) groups: u16,
    pub(crate) listener: Option<ListenerId>,
    /// The id whose listener the request came to.
    pub(crate) listen_id: Option<CmId>,
    /// Of a synchronous listener: the id of a request whose QP is being created.
    pub(crate) making_child: Option<CmId>,
    pub(crate) backlog: u32,
    /// Requests that were not fetched yet.
    pub(crate) unread: u32,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    #[cfg(feature = "keep-alive")]
    pub(crate) probe: Probe,
}

impl Connection {
    const NONE: Self = Self {
        passive: false,
        accepted: false,
        #[cfg(feature = "attached-qps")]
        is_quiet: false,
        stale_retries: 0,
        id: None,
        sidr: None,
        remote_qpn: 0,
        remote_qkey: 0,
        qkey: 0,
        ece: Ece::NONE,
        remote_ece: Ece::NONE,
        groups: 0,
        listener: None,
        listen_id: None,
        making_child: None,
        backlog: 0,
        unread: 0,
        responder_resources: 0,
        initiator_depth: 0,
        #[cfg(feature = "keep-alive")]
        probe: Probe::NONE,
    };
}

/// Storage for one id. Hand a slice of them to [`RdmaCm::new`](crate::rdma::RdmaCm::new).
#[derive(Debug)]
pub struct IdSlot<'d, P: Platform> {
    pub(crate) used: bool,
    pub(crate) state: IdState,
    pub(crate) port_space: PortSpace,
    pub(crate) id_type: IdType,
    pub(crate) context: u64,
    pub(crate) links: Links,
    pub(crate) events: EventQueue,
    pub(crate) options: Options,
    pub(crate) route: IdRoute,
    pub(crate) conn: Connection,
    pub(crate) work: Work,
    pub(crate) objects: Objects<'d, P>,
}

impl<P: Platform> IdSlot<'_, P> {
    /// An empty slot.
    pub const EMPTY: Self = Self {
        used: false,
        state: IdState::Idle,
        port_space: PortSpace::Tcp,
        id_type: IdType::Rc,
        context: 0,
        links: Links {
            generation: 0,
            free_next: NIL,
            port_head: NIL,
            port_next: NIL,
            in_ports: false,
            wait_next: NIL,
            waiting: false,
            working: false,
            work_next: NIL,
            qpn_head: NIL,
            qpn: 0,
            qpn_next: NIL,
        },
        events: EventQueue::new(Target::Id(NIL)),
        options: Options::DEFAULT,
        route: IdRoute::EMPTY,
        conn: Connection::NONE,
        work: Work::NONE,
        objects: Objects::NONE,
    };

    /// Begins a new id in this slot, whose last one is out of all lists and owns nothing any more.
    pub(crate) fn start(&mut self, target: Target, context: u64, port_space: PortSpace) {
        self.used = true;
        self.state = IdState::Idle;
        self.port_space = port_space;
        self.id_type = IdType::of_port_space(port_space);
        self.context = context;
        self.events = EventQueue::new(target);
        self.options = Options::DEFAULT;
        self.route = IdRoute::EMPTY;
        self.conn = Connection::NONE;
        self.work = Work::NONE;
    }
}

/// 0.64 ms. librdmacm leaves it at 0, which means 655 ms.
const DEFAULT_MIN_RNR_TIMER: u8 = 12;
/// Linux's value on RoCE (since 6.2).
pub(crate) const DEFAULT_PACKET_LIFE_TIME: u8 = 16;

impl<P: Platform> Default for IdSlot<'_, P> {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// Storage for one event channel.
#[derive(Debug, Clone)]
pub struct ChannelSlot {
    pub(crate) generation: u32,
    pub(crate) used: bool,
    pub(crate) users: u32,
    pub(crate) queue: Queue,
    pub(crate) waiters: Waiters,
}

impl ChannelSlot {
    /// An empty slot.
    pub const EMPTY: Self = Self {
        generation: 0,
        used: false,
        users: 0,
        queue: Queue::EMPTY,
        waiters: Waiters::NONE,
    };
}

impl Default for ChannelSlot {
    fn default() -> Self {
        Self::EMPTY
    }
}
