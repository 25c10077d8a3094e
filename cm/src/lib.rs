//! The IB connection manager and the RDMA CM: `no_std`, without an allocator, without a line of unsafe code.
//!
//! | module | what it is | what it depends on |
//! |---|---|---|
//! | [`mad`] | the messages on the wire: a codec for all twelve, for the RDMA CM's header, and for subnet administration | nothing |
//! | [`engine`] | the IB CM as a state machine: MADs and time in, MADs and events out | [`mad`] |
//! | [`ip`] | the IP host of a port, without sockets: addresses, ARP, neighbour discovery, routes, groups, echo | nothing |
//! | [`sa`] | asking subnet administration (InfiniBand) for paths, groups, services and tables, and taking its reports | [`mad`] |
//! | [`rdma`] | librdmacm's calls, with QP1 and the QPs of the connections | [`engine`], [`ip`], [`sa`] and the driver |
//!
//! All capacities come from storage that the caller hands in, and 16 and 100,000 connections are the same code at the same
//! cost: a connection takes at most 512 bytes, and all its messages (REQ, REP, RTU, DREQ, DREP, timewait; both ends)
//! some 7,200 instructions in the engine.
//!
//! What it runs on is described by the driver's [`Platform`](bareverbs_core::Platform):
//! `PORTING.md`, at the root of the sources, goes from an empty kernel to a connection.
//!
//! # librdmacm, function by function
//!
//! *done*: with the semantics of its man page, as far as the table does not say otherwise; then a test of it, in
//! `tests/in-process/tests` (`cm::modes` is the module `modes` of the test `cm`).
//! The calls are methods of [`RdmaCm`](rdma::RdmaCm) unless they have a path.
//!
//! | librdmacm | here | state |
//! |---|---|---|
//! | `rdma_create_event_channel` | [`create_event_channel`](rdma::RdmaCm::create_event_channel) | done. `cm::modes`: `migration_moves_events` |
//! | `rdma_destroy_event_channel` | [`destroy_event_channel`](rdma::RdmaCm::destroy_event_channel) | done; refuses while ids use it. `cm::modes`: `migration_moves_events` |
//! | `rdma_create_id` | [`create_id`](rdma::RdmaCm::create_id), [`create_id_of`](rdma::RdmaCm::create_id_of) for UC, UD and XRC in `RDMA_PS_IB` | done; `RDMA_PS_IB` also over IP addresses. `cm::datagrams`: `port_spaces_are_apart`; `cm::port_space_ib`: `types_do_not_mix`, `types_share_a_port_by_addresses`; `cm::xrc`: `kinds_do_not_mix` |
//! | `rdma_destroy_id` | [`destroy_id`](rdma::RdmaCm::destroy_id) | done; never waits for events, destroys a QP that is left. `cm::multicast`: `groups_end_with_their_ids` |
//! | `rdma_create_ep` | [`create_ep`](rdma::RdmaCm::create_ep), [`create_ep_of`](rdma::RdmaCm::create_ep_of) for `ai_qp_type` | done. `cm::modes`, `cm::datagrams`, `cm::port_space_ib`, `cm::xrc`: `synchronous_endpoints`; `cm::srq`: `endpoints_keep_queues_for_their_connections` |
//! | `rdma_destroy_ep` | [`destroy_ep`](rdma::RdmaCm::destroy_ep) | done. `cm::modes`: `synchronous_endpoints` |
//! | `rdma_bind_addr` | [`bind_addr`](rdma::RdmaCm::bind_addr) | done; no privileged ports; `AF_IB` on InfiniBand ([`SockaddrIb`](rdma::SockaddrIb)). `cm::modes`: `calls_in_the_wrong_state_are_einval`; `cm::infiniband`: `addresses_that_do_not_go_here` |
//! | `rdma_resolve_addr` | [`resolve_addr`](rdma::RdmaCm::resolve_addr) | done over a [`Resolver`](rdma::Resolver): [`NeighbourDiscovery`](rdma::NeighbourDiscovery) for ARP and ND, or a table; multicast groups too; GIDs on InfiniBand, and IP addresses with [`IpOverInfiniband`](rdma::IpOverInfiniband). `cm::neighbours`, `cm::multicast`: `a_resolved_group_over_the_ethernet_queue` |
//! | `rdma_resolve_route` | [`resolve_route`](rdma::RdmaCm::resolve_route) | done; path records on InfiniBand ([`SubnetAdministration`](rdma::SubnetAdministration)). `cm::connections`: `connect_talk_disconnect`; `cm::infiniband`: `the_path_is_the_connections`, `dead`, `busy`, `malformed` |
//! | `rdma_create_qp` | [`create_qp`](rdma::RdmaCm::create_qp) | done: RC, also without waiting ([`start_qp`](rdma::RdmaCm::start_qp)); UD in `RDMA_PS_UDP`, `IPOIB` and `IB`; UC and XRC in `RDMA_PS_IB`. `cm::slow_firmware`: `nothing_waits_for_the_firmware`; `cm::datagrams`: `a_service_is_found_and_answers`; `cm::port_space_ib`: `an_unreliable_connection`, `a_datagram_service`; `cm::xrc`: `initiators_reach_the_queues_of_listeners` |
//! | `rdma_create_qp_ex` | [`create_qp_ex`](rdma::RdmaCm::create_qp_ex) | done: PD, XRC domain, send operations; an attribute that no QP here has is refused by its name. `cm::extended`: `what_a_qp_has_is_accepted`, `what_no_qp_has_is_refused`, `objects_of_another_device_are_refused`; `cm::xrc`: `given_domains_and_queues` |
//! | `rdma_destroy_qp` | [`destroy_qp`](rdma::RdmaCm::destroy_qp) | done. `cm::multicast`: `groups_end_with_their_ids` |
//! | `rdma_connect` | [`connect`](rdma::RdmaCm::connect) | done; datagram services by SIDR. `cm::datagrams`: `a_service_is_found_and_answers`, `a_question_without_an_answer_fails_in_time` |
//! | `rdma_establish` | [`establish`](rdma::RdmaCm::establish) | done. `cm::modes`: `external_qp` |
//! | `rdma_listen` | [`listen`](rdma::RdmaCm::listen) | done; one manager listens on one device. `cm::datagrams`: `port_spaces_are_apart` |
//! | `rdma_get_request` | [`get_request`](rdma::RdmaCm::get_request) | done. `cm::modes`: `synchronous_endpoints` |
//! | `rdma_accept` | [`accept`](rdma::RdmaCm::accept) | done; it returns once its commands are begun, and a later failure of theirs is `RDMA_CM_EVENT_CONNECT_ERROR`; no parameter without a QP is an error, not a crash. `cm::slow_firmware`: `a_refusal_of_the_firmware_is_an_event`, `a_refusal_is_the_error_of_a_synchronous_call`; `cm::datagrams`: `external_qps` |
//! | `rdma_reject` | [`reject`](rdma::RdmaCm::reject) | done. `cm::datagrams`: `services_refuse` |
//! | `rdma_reject_ece` | [`reject_ece`](rdma::RdmaCm::reject_ece) | done. `cm::ece`: `options_are_refused` |
//! | `rdma_notify` | [`notify`](rdma::RdmaCm::notify), [`handle_async_event`](rdma::RdmaCm::handle_async_event) | done. `cm::modes`: `external_qp` |
//! | `rdma_disconnect` | [`disconnect`](rdma::RdmaCm::disconnect) | done. `cm::connections`: `connect_talk_disconnect` |
//! | `rdma_join_multicast`, `_ex`, `rdma_leave_multicast` | [`join_multicast`](rdma::RdmaCm::join_multicast), [`join_multicast_ex`](rdma::RdmaCm::join_multicast_ex), [`leave_multicast`](rdma::RdmaCm::leave_multicast) | done on RoCE v2, IPv6 groups included, which Linux refuses; and on InfiniBand. `cm::multicast`: `only_members_receive`, `ipv6_groups`, `groups_are_reported_by_igmp_and_mld`; `cm::infiniband`: `only_members_receive`, `ids_share_the_ports_membership`, `groups_are_joined_again` |
//! | `rdma_get_cm_event` | [`get_cm_event`](rdma::RdmaCm::get_cm_event), [`get_cm_event_until`](rdma::RdmaCm::get_cm_event_until), [`try_get_cm_event`](rdma::RdmaCm::try_get_cm_event) | done. `cm::connections`: `connect_talk_disconnect` |
//! | `rdma_ack_cm_event` | [`ack_cm_event`](rdma::RdmaCm::ack_cm_event), or dropping the event | done. `cm::lists`: `events_have_names_and_hold_nothing` |
//! | `rdma_write_cm_event` | [`write_cm_event`](rdma::RdmaCm::write_cm_event) | done. `cm::modes`: `migration_moves_events` |
//! | `rdma_event_str` | [`rdma::event_str`], `Display` of [`EventType`](rdma::EventType) | done. `cm::lists`: `events_have_names_and_hold_nothing` |
//! | `rdma_get_src_port`, `rdma_get_dst_port` | [`get_src_port`](rdma::RdmaCm::get_src_port), [`get_dst_port`](rdma::RdmaCm::get_dst_port) | done; in host order. `cm::datagrams`: `a_service_is_found_and_answers` |
//! | `rdma_get_local_addr`, `rdma_get_peer_addr` | [`get_local_addr`](rdma::RdmaCm::get_local_addr), [`get_peer_addr`](rdma::RdmaCm::get_peer_addr); [`get_local_ib_addr`](rdma::RdmaCm::get_local_ib_addr), [`get_peer_ib_addr`](rdma::RdmaCm::get_peer_ib_addr) | done. `cm::datagrams`: `a_service_is_found_and_answers` |
//! | `rdma_get_devices`, `rdma_free_devices` | | not needed: they list the devices that the system has opened. Here the application opens each function itself, by a [`Platform`](bareverbs_core::Platform), and makes a manager on it ([`RdmaCm::new`](rdma::RdmaCm::new)), so that the list is its own |
//! | `rdma_set_option` | [`set_option`](rdma::RdmaCm::set_option) | done: TOS, REUSEADDR, AFONLY, ACK_TIMEOUT, IB PATH, and three more. `cm::options`: `options_reach_the_qp`, `addresses_are_shared_by_those_who_say_so`; `cm::infiniband`: `a_path_from_elsewhere` |
//! | `rdma_migrate_id` | [`migrate_id`](rdma::RdmaCm::migrate_id) | done. `cm::modes`: `migration_moves_events` |
//! | `rdma_getaddrinfo`, `rdma_freeaddrinfo` | [`rdma::getaddrinfo`] | done for numeric hosts, GIDs and ports. `cm::modes`, `cm::infiniband`: `synchronous_endpoints`; `cm::infiniband`: `numeric_gids` |
//! | `rdma_resolve_addrinfo`, `rdma_query_addrinfo` | | not needed: they ask DNS, or the subnet's service records, in the background. There is no name service below an operating system: [`rdma::getaddrinfo`] takes numeric hosts only, and has its answer at once |
//! | `rdma_init_qp_attr` | [`init_qp_attr`](rdma::RdmaCm::init_qp_attr) | done; for dynamic connections [`dc_path`](rdma::RdmaCm::dc_path). `cm::modes`: `external_qp`; `cm::datagrams`: `external_qps`; `cm::port_space_ib`: `attributes_of_an_external_qp`; `cm::dc` |
//! | `rdma_set_local_ece`, `rdma_get_remote_ece` | [`set_local_ece`](rdma::RdmaCm::set_local_ece), [`get_remote_ece`](rdma::RdmaCm::get_remote_ece) | done. `cm::ece`: `options_go_both_ways` |
//! | `rdma_create_srq`, `_ex`, `rdma_destroy_srq` | [`create_srq`](rdma::RdmaCm::create_srq), [`create_srq_ex`](rdma::RdmaCm::create_srq_ex), [`destroy_srq`](rdma::RdmaCm::destroy_srq) | done; the type is that of the id, and destroying is refused while there are users. `cm::srq`: `connections_share_their_listeners_queue`, `an_id_with_a_queue_of_its_own`; `cm::xrc`: `initiators_reach_the_queues_of_listeners`, `given_domains_and_queues` |
//! | `rdma_reg_msgs`, `_read`, `_write` | [`reg_msgs`](rdma::RdmaCm::reg_msgs), [`reg_read`](rdma::RdmaCm::reg_read), [`reg_write`](rdma::RdmaCm::reg_write), and [`reg`](rdma::RdmaCm::reg) for both at once | done; they give memory, see [`rdma`]. `cm::connections`: `rdma_read_and_write` |
//! | `rdma_dereg_mr` | dropping the buffer | done. `cm::srq`: `connections_share_their_listeners_queue` |
//! | `rdma_post_recv`, `rdma_post_recvv` | [`post_recv`](rdma::RdmaCm::post_recv), [`post_recvv`](rdma::RdmaCm::post_recvv) | done; to the id's SRQ if it has one. `cm::lists`: `messages_in_pieces`; `cm::srq`: `connections_share_their_listeners_queue` |
//! | `rdma_post_send`, `rdma_post_sendv` | [`post_send`](rdma::RdmaCm::post_send), [`post_sendv`](rdma::RdmaCm::post_sendv), [`post_send_inline`](rdma::RdmaCm::post_send_inline) | done. `cm::lists`: `messages_in_pieces` |
//! | `rdma_post_read`, `rdma_post_readv` | [`post_read`](rdma::RdmaCm::post_read), [`post_readv`](rdma::RdmaCm::post_readv) | done. `cm::connections`: `rdma_read_and_write`; `cm::lists`: `messages_in_pieces` |
//! | `rdma_post_write`, `rdma_post_writev` | [`post_write`](rdma::RdmaCm::post_write), [`post_writev`](rdma::RdmaCm::post_writev), and [`post_write_imm`](rdma::RdmaCm::post_write_imm) | done. `cm::connections`: `rdma_read_and_write`; `cm::lists`: `messages_in_pieces` |
//! | `rdma_post_ud_send` | [`post_ud_send`](rdma::RdmaCm::post_ud_send) | done. `cm::datagrams`: `a_service_is_found_and_answers` |
//! | `ibv_init_ah_from_wc` (libibverbs) | [`ah_attr_from_wc`](rdma::RdmaCm::ah_attr_from_wc) | done. `cm::datagrams`: `a_return_path_needs_a_header` |
//! | `rdma_get_send_comp`, `rdma_get_recv_comp` | [`get_send_comp`](rdma::RdmaCm::get_send_comp), [`get_recv_comp`](rdma::RdmaCm::get_recv_comp), each with `_until` | done; where librdmacm returns the completion of a failed work request, this is an error. `cm::modes`, `cm::xrc`: `synchronous_endpoints` |
//! | rsockets | | not planned |
//!
//! # The man pages, point by point
//!
//! **rdma_create_id(3).** The channel may be absent: the id then works synchronously, and calls that result in an event block
//! until the operation completes. The event is available through the id ([`event`](rdma::RdmaCm::event)) until the next
//! blocking call. The context comes back with each event. The caller that creates an id destroys it. `RDMA_PS_TCP` gives reliable,
//! connection-oriented, message-based communication, `RDMA_PS_UDP` unreliable datagrams, `RDMA_PS_IB` any InfiniBand service:
//! RC, UC, UD and XRC.
//!
//! **rdma_create_ep(3).** On the active side address and route are resolved and, with attributes, a QP is created, in the
//! given PD or a default one; [`connect`](rdma::RdmaCm::connect) may follow at once. On the passive side (`passive` in
//! [`AddrInfo`](rdma::AddrInfo)) PD and attributes, with the CQs and the SRQ in them, are saved, and each id that
//! [`get_request`](rdma::RdmaCm::get_request) gives has a QP made from them; [`listen`](rdma::RdmaCm::listen) may follow at
//! once, without `bind_addr`. The id is synchronous until [`migrate_id`](rdma::RdmaCm::migrate_id). Released
//! by [`destroy_ep`](rdma::RdmaCm::destroy_ep). If a step fails nothing is left behind.
//!
//! **rdma_create_qp(3).** The id has to be bound to the device (EINVAL otherwise; librdmacm crashes). The QP is moved through
//! its states by the library; after its creation receives may be posted. With an SRQ on the id, or in the attributes, they
//! are posted there. Without a PD the default one is used, of which there is one per device, and a target without a domain
//! is in the default XRC domain. CQs are optional: those that are absent are made with the queues' sizes and with events, and
//! are given by [`endpoint`](rdma::RdmaCm::endpoint). The actual capabilities come back in the attributes. One QP per
//! id.
//!
//! **ibv_create_qp(3)** is [`Pd::create_qp`](bareverbs_core::pd::Pd::create_qp); it updates `cap` to what the hardware gives,
//! which is at least what was asked for, ignores the receive sizes with an SRQ, and refuses an SRQ on types that do not
//! take one.
#![no_std]
#![forbid(unsafe_code)]

pub mod engine;
pub mod ip;
#[cfg(feature = "infiniband")]
pub mod ipoib;
pub mod mad;
pub mod rdma;
pub mod sa;
