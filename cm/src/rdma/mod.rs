//! The RDMA CM: librdmacm's calls over the [engine](mod@crate::engine) and the driver.
//!
//! [`RdmaCm`] manages the connections of one device. It owns QP1, runs the handshakes, and moves the QPs of its ids through
//! their states. Everything happens in calls of the application: [`poll`](RdmaCm::poll) drives it, and so does each call
//! that blocks.
//!
//! # Synchronous and asynchronous ids
//!
//! An id that is created with an event channel is asynchronous: calls return at once and the outcome comes as an event.
//! Without one it is synchronous: `resolve_addr`, `resolve_route`, `connect`, `accept`, `disconnect` and `get_request`
//! poll until the outcome is there and turn it into their result; the event itself stays available
//! ([`event`](RdmaCm::event)) until the next such call. [`migrate_id`](RdmaCm::migrate_id) changes the mode.
//!
//! # Waiting
//!
//! With interrupts (the device's `Config::interrupts`) whatever blocks sleeps, until an interrupt or until something is
//! due. An application's own loop that waits for several events checks each and then calls [`wait`](RdmaCm::wait); a
//! program that sleeps in `epoll` or the like, for other things as well, has the platform's descriptor for the
//! interrupts of [`vectors`](RdmaCm::vectors) (`bareverbs_vfio::EventChannel`), and calls [`poll`](RdmaCm::poll) when
//! it is readable and at [`next_deadline`](RdmaCm::next_deadline):
//!
//! ```
//! use bareverbs_cm::rdma::*;
//! use bareverbs_core::Platform;
//! use core::time::Duration;
//!
//! /// One turn, when the descriptor was readable and acknowledged. Returns when the next one is due.
//! fn turn<P: Platform, R: Resolver>(
//!     cm: &mut RdmaCm<'_, '_, P, R>,
//!     channel: ChannelId,
//!     connected: &[CmId],
//! ) -> Result<Option<Duration>, RdmaError> {
//!     cm.poll(cm.now())?;
//!     while let Some(event) = cm.try_get_cm_event(channel)? {
//!         println!("{}", event.event);
//!     }
//!     for &id in connected {
//!         // `None` has armed the CQ: the next completion makes the descriptor readable.
//!         while let Some(completion) = cm.try_get_recv_comp(id)? {
//!             println!("{} bytes", completion.byte_len);
//!         }
//!     }
//!     Ok(cm.next_deadline(cm.now()))
//! }
//! ```
//!
//! # What the manager does by itself
//!
//! With a QP on the id, as in librdmacm:
//!
//! * [`create_qp`](RdmaCm::create_qp) takes the device's default PD when none is given, makes CQs where none are given, and
//!   moves the QP to INIT, so that receives can be posted.
//! * When the other end's REP arrives, the QP goes to RTR and RTS, RTU is sent, and the application sees `Established`. If
//!   that fails it sees `ConnectError`, and the other end a REJ.
//! * [`accept`](RdmaCm::accept) begins to move the QP to RTR and RTS; REP is sent *after* that: data may come before RTU. If it
//!   fails the same follows.
//! * When the connection is refused as stale (REJ 10: the other end still has a connection with a QP of this number, from
//!   before this end was restarted), the other end drops that one, and the request is made again with the same QP, at most
//!   [`Config::stale_retries`] times, half a second later, then after a second, and so on. What is posted stays posted. After
//!   the last time the application sees `Rejected` with status 10, which under librdmacm it sees at once.
//! * When the connection is refused the QP goes to ERR, and what was posted is flushed. On a disconnection by the other
//!   end the QP is left alone until the application calls [`disconnect`](RdmaCm::disconnect).
//!
//! # Commands to the firmware
//!
//! A card takes 20 to 300 µs for a command, and a connection needs at least eight: CREATE_QP, INIT, RTR and RTS at each end.
//! The manager waits for none of those in [`poll`](RdmaCm::poll), [`connect`](RdmaCm::connect), [`accept`](RdmaCm::accept) and
//! [`disconnect`](RdmaCm::disconnect): each id goes its way while messages are answered, and of all ids as many commands are
//! with the firmware as its queue takes. [`start_qp`](RdmaCm::start_qp) begins to create a QP; `connect` and
//! `accept` may follow at once. Calls whose result is there when they return poll on top of that, such as
//! [`create_qp`](RdmaCm::create_qp) and all of a synchronous id. QPs for datagrams and XRC, SRQs, memory and groups are waited
//! for.
//!
//! # Datagrams
//!
//! An id of [`PortSpace::Udp`] has a UD QP, which nothing connects: [`connect`](RdmaCm::connect) asks for the QP behind
//! a service (SIDR), and `Established` says where to send ([`UdEvent`]). The service's side gets the address of the
//! peer that asked, not its QP: that is in the first datagram's completion, and the return path in the 40 bytes before
//! it ([`ah_attr_from_wc`](RdmaCm::ah_attr_from_wc)).
//!
//! # Other QPs
//!
//! In [`PortSpace::Ib`] an id's type is the caller's choice ([`create_id_of`](RdmaCm::create_id_of),
//! [`create_ep_of`](RdmaCm::create_ep_of)). One of type [`IdType::Ud`] is as in [`PortSpace::Udp`]. One of type [`IdType::Uc`]
//! connects as with RC, and sends and writes by the same calls; there are no READs, no atomics, and no repetition of what is
//! lost. A listener takes requests for its own type only: others are refused with REJ 9, where Linux says 28.
//!
//! Initiators and targets of dynamic connections are the application's own; [`dc_path`](RdmaCm::dc_path) says with what.
//!
//! # Shared receive queues
//!
//! [`create_srq`](RdmaCm::create_srq) gives an id an SRQ, which its QP takes, and which QPs of other ids take by
//! [`srq_handle`](RdmaCm::srq_handle): that is how the connections of a listener share one. On an id of type
//! [`IdType::XrcRecv`] it is an XRC SRQ. Each of its connections has a target, which has no queues; the other ends, of type
//! [`IdType::XrcSend`], name the SRQ in each request ([`xrc_endpoint`](RdmaCm::xrc_endpoint)), and learn its number
//! from the application, in the private data.
//!
//! # InfiniBand
//!
//! On an InfiniBand port ids have [`SockaddrIb`] for addresses: a GID, and a service that is a port of the id's port
//! space. The resolver is a [`SubnetAdministration`], which asks for the path in
//! [`resolve_route`](RdmaCm::resolve_route) and for groups in [`join_multicast`](RdmaCm::join_multicast), by MADs that
//! the manager carries. A caller that has the path from elsewhere sets it ([`IdOption::IbPath`]). Requests have no
//! header of the RDMA CM, so that 92 bytes of private data fit.
//!
//! With [`IpOverInfiniband`] for the resolver ids have IP addresses as well, and requests of such ids the header of the RDMA
//! CM; with the other one they are refused ([`RdmaError::Unsupported`]). Messages of the CM go out in the partitions of their
//! paths where the manager has QPs for that ([`set_partition_qps`](RdmaCm::set_partition_qps)), and otherwise in the one at
//! index 0 of the port's table. The port's GID is that at index 0.
//!
//! # Alternate paths
//!
//! A connection of an InfiniBand port may have an alternate path, to which its QPs migrate when the one in use fails: where the
//! manager has slots for them ([`set_alternate_slots`](RdmaCm::set_alternate_slots)),
//! [`load_alternate_path`](RdmaCm::load_alternate_path) gives it one with the request, or later by LAP and APR, which
//! librdmacm and Linux's RDMA CM have no call for. `AlternatePathLoaded`, `AlternatePathError`, `PathMigrated` and
//! `PathMigrationError` are events of the id, in order.
//!
//! # Where it differs
//!
//! * Events own their data; acknowledging one is dropping it, and nothing ever waits for that.
//! * Ids are generational handles: a destroyed one is a clean error.
//! * A full backlog is refused (REJ 3), not ignored.
//! * [`destroy_id`](RdmaCm::destroy_id) destroys the QP, the SRQ and automatic CQs that are still there, unless others use the
//!   SRQ.
//! * Every timer can be set ([`IdOption`]), and the RNR NAK timer is 0.64 ms rather than 655 ms.
//!
//! ```no_run
//! use bareverbs_cm::rdma::*;
//! use bareverbs_core::{Device, Platform, qp::QpCap};
//!
//! fn client<'d, P: Platform>(device: &'d Device<'d, P>) -> Result<(), RdmaError> {
//!     let neighbours = [("10.0.0.2".parse().unwrap(), [2, 0, 0, 0, 0, 2])];
//!     let mut storage = Resources::<Ids<P, 4>, Channels<0>>::new();
//!     let mut cm = RdmaCm::new(device, StaticNeighbours(&neighbours), Config::new(42), storage.storage())?;
//!
//!     let address = getaddrinfo(Some("10.0.0.2"), Some("7471"), None).unwrap();
//!     let mut qp = QpInit { cap: QpCap { max_send_wr: 4, max_recv_wr: 4, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 16 }, ..QpInit::default() };
//!     let id = cm.create_ep(&address, None, Some(&mut qp))?;
//!     let message = cm.reg_msgs(id, 64)?;
//!     cm.post_recv(id, 1, message.slice(..)?)?;
//!     cm.connect(id, None)?;
//!     cm.post_send(id, 2, message.slice(..)?, SendFlags::SIGNALED)?;
//!     let _ = cm.get_send_comp(id)?;
//!     let reply = cm.get_recv_comp(id)?;
//!     println!("{} bytes came back", reply.byte_len);
//!     cm.disconnect(id)?;
//!     cm.destroy_ep(id)
//! }
//! ```

mod calls;
mod conn;
mod id;
mod manager;
pub(crate) mod port;
pub(crate) mod resolver;
mod route;
mod storage;
mod tasks;
pub(crate) mod types;
mod verbs;

#[cfg(feature = "infiniband")]
pub use crate::ipoib::resolver::IpOverInfiniband;
#[cfg(feature = "infiniband")]
pub use crate::ipoib::stack::{IpPort, IpRxToken, IpTxToken, PacketSlot};
pub use bareverbs_core::qp::SendFlags;
pub use bareverbs_core::srq::SrqAttr;
pub use calls::addrinfo::{AddrInfo, AddrInfoError, AddressFamily, getaddrinfo};
pub use calls::dc::DcPath;
pub use id::group::{GroupSlot, JoinMulticast};
pub use id::slot::{ChannelSlot, IdSlot};
#[cfg(feature = "infiniband")]
pub use port::partitions::PartitionQp;
pub use port::shared::{Inbox, SharedPort};
pub use resolver::neighbours::NeighbourDiscovery;
pub use resolver::subnet::{
    MemberSlot, Members, PathSlot, Paths, Questions, SubnetAdministration, SubnetResources,
    SubnetStorage,
};
pub use resolver::with_user::WithSaUser;
pub use resolver::{
    AddressChange, Attempt, Membership, Neighbour, Neighbours, PathQuery, Resolution, Resolver,
    StaticNeighbours, Subnet,
};
pub use route::deferred::DeferredMadSlot;
pub use storage::{Channels, Ids, Resources, Storage};
pub use tasks::AsyncCm;
pub use types::awaited::Awaited;
pub use types::error::{RdmaError, errno};
pub use types::extended::{ExtendedAttribute, send_ops};
pub use types::sockaddr::{SockAddr, SockaddrIb};
pub use types::{
    ACCEPT_PRIVATE_DATA_MAX, CONNECT_PRIVATE_DATA_MAX, ChannelId, CmEvent, CmId, ConnEvent,
    ConnParam, DEVICE_MAX, EventType, IdOption, IdState, IdType, PortSpace,
    REJECT_PRIVATE_DATA_MAX, Route, TraceEntry, UD_ACCEPT_PRIVATE_DATA_MAX,
    UD_CONNECT_PRIVATE_DATA_MAX, UDP_QKEY, UdEvent, event_str,
};
#[cfg(feature = "attached-qps")]
pub use verbs::attached::AttachedQp;
pub use verbs::objects::{Endpoint, QpInit, QpInitEx, SrqInit};
pub use verbs::pool::PooledQp;

pub use crate::mad::Ece;

pub use manager::{Config, RdmaCm};
