//! The IB connection manager and the RDMA CM: `no_std`, without an allocator, without a line of unsafe code.
//!
//! | module | what it is | what it knows |
//! |---|---|---|
//! | [`mad`] | the messages on the wire: a codec for all twelve and for the RDMA CM's header | nothing |
//! | [`engine`] | the IB CM as a state machine: MADs and time in, MADs and events out | [`mad`] |
//! | [`rdma`] | librdmacm's calls, with QP1 and the QPs of the connections | [`engine`] and the driver |
//!
//! All capacities come from storage that the caller hands in, and 16 and 100,000 connections are the same code at the same
//! cost: a connection takes at most 512 bytes, and its whole life (REQ, REP, RTU, DREQ, DREP, timewait; both ends) some
//! 7,100 instructions in the engine.
//!
//! # librdmacm, function by function
//!
//! *done*: with the semantics of its man page, as far as the table does not say otherwise. *later*: not in this version.
//! The calls are methods of [`RdmaCm`](rdma::RdmaCm) unless they have a path.
//!
//! | librdmacm | here | state |
//! |---|---|---|
//! | `rdma_create_event_channel` | [`create_event_channel`](rdma::RdmaCm::create_event_channel) | done |
//! | `rdma_destroy_event_channel` | [`destroy_event_channel`](rdma::RdmaCm::destroy_event_channel) | done; refuses while ids use it |
//! | `rdma_create_id` | [`create_id`](rdma::RdmaCm::create_id) | done for `RDMA_PS_TCP`; `UDP`, `IPOIB`, `IB` later (ENOSYS) |
//! | `rdma_destroy_id` | [`destroy_id`](rdma::RdmaCm::destroy_id) | done; never waits for events, destroys a QP that is left |
//! | `rdma_create_ep` | [`create_ep`](rdma::RdmaCm::create_ep) | done; CQs and an SRQ are not kept for the passive side |
//! | `rdma_destroy_ep` | [`destroy_ep`](rdma::RdmaCm::destroy_ep) | done |
//! | `rdma_bind_addr` | [`bind_addr`](rdma::RdmaCm::bind_addr) | done; no privileged ports |
//! | `rdma_resolve_addr` | [`resolve_addr`](rdma::RdmaCm::resolve_addr) | done over a [`Resolver`](rdma::Resolver); ARP and ND later |
//! | `rdma_resolve_route` | [`resolve_route`](rdma::RdmaCm::resolve_route) | done on RoCE; path records on InfiniBand later |
//! | `rdma_create_qp` | [`create_qp`](rdma::RdmaCm::create_qp) | done for RC |
//! | `rdma_create_qp_ex` | | later |
//! | `rdma_destroy_qp` | [`destroy_qp`](rdma::RdmaCm::destroy_qp) | done |
//! | `rdma_connect` | [`connect`](rdma::RdmaCm::connect) | done for connections; SIDR later |
//! | `rdma_establish` | [`establish`](rdma::RdmaCm::establish) | done |
//! | `rdma_listen` | [`listen`](rdma::RdmaCm::listen) | done; one manager listens on one device |
//! | `rdma_get_request` | [`get_request`](rdma::RdmaCm::get_request) | done |
//! | `rdma_accept` | [`accept`](rdma::RdmaCm::accept) | done for connections; no parameter without a QP is an error, not a crash |
//! | `rdma_reject` | [`reject`](rdma::RdmaCm::reject) | done |
//! | `rdma_reject_ece` | | later |
//! | `rdma_notify` | [`notify`](rdma::RdmaCm::notify), [`handle_async_event`](rdma::RdmaCm::handle_async_event) | done |
//! | `rdma_disconnect` | [`disconnect`](rdma::RdmaCm::disconnect) | done |
//! | `rdma_join_multicast`, `_ex`, `rdma_leave_multicast` | | later |
//! | `rdma_get_cm_event` | [`get_cm_event`](rdma::RdmaCm::get_cm_event), [`get_cm_event_until`](rdma::RdmaCm::get_cm_event_until), [`try_get_cm_event`](rdma::RdmaCm::try_get_cm_event) | done |
//! | `rdma_ack_cm_event` | [`ack_cm_event`](rdma::RdmaCm::ack_cm_event), or dropping the event | done |
//! | `rdma_write_cm_event` | [`write_cm_event`](rdma::RdmaCm::write_cm_event) | done |
//! | `rdma_event_str` | [`rdma::event_str`], `Display` of [`EventType`](rdma::EventType) | done |
//! | `rdma_get_src_port`, `rdma_get_dst_port` | [`get_src_port`](rdma::RdmaCm::get_src_port), [`get_dst_port`](rdma::RdmaCm::get_dst_port) | done; in host order |
//! | `rdma_get_local_addr`, `rdma_get_peer_addr` | [`get_local_addr`](rdma::RdmaCm::get_local_addr), [`get_peer_addr`](rdma::RdmaCm::get_peer_addr) | done |
//! | `rdma_get_devices`, `rdma_free_devices` | | not needed: a manager is made on a device |
//! | `rdma_set_option` | [`set_option`](rdma::RdmaCm::set_option) | done: TOS, REUSEADDR, AFONLY, ACK_TIMEOUT, and two more; IB PATH later |
//! | `rdma_migrate_id` | [`migrate_id`](rdma::RdmaCm::migrate_id) | done |
//! | `rdma_getaddrinfo`, `rdma_freeaddrinfo` | [`rdma::getaddrinfo`] | done for numeric hosts and ports |
//! | `rdma_resolve_addrinfo`, `rdma_query_addrinfo` | | later |
//! | `rdma_init_qp_attr` | [`init_qp_attr`](rdma::RdmaCm::init_qp_attr) | done |
//! | `rdma_set_local_ece`, `rdma_get_remote_ece` | | later; the messages have the fields |
//! | `rdma_create_srq`, `_ex`, `rdma_destroy_srq` | | later; a QP takes an SRQ of [`bareverbs_core::srq`] |
//! | `rdma_reg_msgs`, `_read`, `_write` | [`reg_msgs`](rdma::RdmaCm::reg_msgs), [`reg_read`](rdma::RdmaCm::reg_read), [`reg_write`](rdma::RdmaCm::reg_write) | done; they give memory, see [`rdma`] |
//! | `rdma_dereg_mr` | dropping the buffer | done |
//! | `rdma_post_recv`, `rdma_post_recvv` | [`post_recv`](rdma::RdmaCm::post_recv), [`post_recvv`](rdma::RdmaCm::post_recvv) | done |
//! | `rdma_post_send`, `rdma_post_sendv` | [`post_send`](rdma::RdmaCm::post_send), [`post_sendv`](rdma::RdmaCm::post_sendv), [`post_send_inline`](rdma::RdmaCm::post_send_inline) | done |
//! | `rdma_post_read`, `rdma_post_readv` | [`post_read`](rdma::RdmaCm::post_read), [`post_readv`](rdma::RdmaCm::post_readv) | done |
//! | `rdma_post_write`, `rdma_post_writev` | [`post_write`](rdma::RdmaCm::post_write), [`post_writev`](rdma::RdmaCm::post_writev) | done |
//! | `rdma_post_ud_send` | | later |
//! | `rdma_get_send_comp`, `rdma_get_recv_comp` | [`get_send_comp`](rdma::RdmaCm::get_send_comp), [`get_recv_comp`](rdma::RdmaCm::get_recv_comp), each with `_until` | done |
//! | rsockets | | not planned |
//!
//! # The man pages, point by point
//!
//! **rdma_create_id(3).** The channel may be absent: the id then works synchronously, and calls that result in an event block
//! until the operation completes. The event is available through the id ([`event`](rdma::RdmaCm::event)) until the next
//! blocking call. The context comes back with each event. Whoever creates an id destroys it. `RDMA_PS_TCP` gives reliable,
//! connection-oriented, message-based communication.
//!
//! **rdma_create_ep(3).** On the active side address and route are resolved and, with attributes, a QP is created, in the
//! given PD or a default one; [`connect`](rdma::RdmaCm::connect) may follow at once. On the passive side (`passive` in
//! [`AddrInfo`](rdma::AddrInfo)) PD and attributes are saved, and each id that [`get_request`](rdma::RdmaCm::get_request) gives
//! has a QP made from them; [`listen`](rdma::RdmaCm::listen) may follow at once, without `bind_addr`. The id is synchronous
//! until [`migrate_id`](rdma::RdmaCm::migrate_id). Released by [`destroy_ep`](rdma::RdmaCm::destroy_ep). If a step fails
//! nothing is left behind.
//!
//! **rdma_create_qp(3).** The id has to be bound to the device (EINVAL otherwise; librdmacm crashes). The QP is moved through
//! its states by the library; after its creation receives may be posted. Without a PD the default one is used, of which
//! there is one per device. CQs are optional: those that are absent are made with the queues' sizes and with events, and
//! are to be had by [`endpoint`](rdma::RdmaCm::endpoint). The actual capabilities come back in the attributes. One QP per
//! id.
//!
//! **ibv_create_qp(3)** is [`Pd::create_qp`](bareverbs_core::pd::Pd::create_qp); it updates `cap` to what the hardware gives,
//! which is at least what was asked for, ignores the receive sizes with an SRQ, and refuses an SRQ on types that do not
//! take one.
#![no_std]
#![forbid(unsafe_code)]

pub mod engine;
pub mod mad;
pub mod rdma;
