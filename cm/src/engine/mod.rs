//! The IB connection manager as a state machine: MADs and time go in, MADs and events come out.
//!
//! The engine uses no device, no socket and no clock. Its caller
//!
//! 1. hands in each MAD that arrives on QP1 with [`handle_mad`](Engine::handle_mad),
//! 2. calls [`connect`](Engine::connect), [`reply`](Engine::reply), [`ready`](Engine::ready), … on behalf of the user,
//! 3. sends what [`poll_transmit`](Engine::poll_transmit) gives until it gives nothing,
//! 4. acts on what [`poll_event`](Engine::poll_event) gives until it gives nothing, and
//! 5. calls again when something arrives, or at [`next_deadline`](Engine::next_deadline).
//!
//! Datagram services are resolved beside that: [`sidr_request`](Engine::sidr_request),
//! [`listen_sidr`](Engine::listen_sidr), [`sidr_reply`](Engine::sidr_reply), and
//! [`poll_sidr_event`](Engine::poll_sidr_event) for what comes of them.
//!
//! Connections live in slots that the caller hands in. Every lookup (communication ID, duplicates, stale QPs, service
//! IDs) and every timer costs the same whether there are 16 slots or 100,000.
//!
//! # Where it differs from Linux's ib_cm, and why
//!
//! * A DREQ is answered at once, in every state and each time it comes; Linux waits for the application, and loses whole
//!   seconds in a storm of disconnections. [`Config::auto_drep`] turns it off.
//! * Exactly one [`TimewaitExit`](EventKind::TimewaitExit) follows each [`Disconnected`](EventKind::Disconnected).
//! * When there is no slot, the peer gets REJ 3 instead of silence; for an MTU that does not fit, REJ 26 with the greatest
//!   that does; for a REP that was not expected, REJ 6.
//! * Alternate paths ([`load_alternate`](Engine::load_alternate)) work, and where they do not, as on RoCE, LAP is
//!   answered with "not supported" instead of silence; a REQ of another class version with REJ 31, one that carries the
//!   communication ID of another connection with REJ 30.
//! * A connection whose peer was restarted (REJ 10) does not prevent the peer's next attempt, which
//!   [`retry`](Engine::retry) makes.
//! * No message of a peer that asks for a connection can make this end wait longer than [`Config::max_response`], and a
//!   flood of requests leaves [`Config::reserved`] slots for this end's own. An RTU has to come within
//!   [`Config::rtu_limit`], and when there is no slot for a request, the oldest half-open connection of the source
//!   that has most of them is evicted.
//! * A duplicate REQ is answered with the REP again while that one is unacknowledged.
//! * The first repetition comes early ([`Timers::early`]) and backs off within the negotiated interval; the number of
//!   intervals, and so the time to [`Unreachable`](EventKind::Unreachable), stays what was negotiated.
//! * Releasing an established connection repeats its DREQ until it is answered.
//!
//! # What users of other connection managers complain about
//!
//! Tests of `engine::…` and `ip` are in `cm/tests`, that of `cmtime` in `examples`, the others in
//! `tests/in-process/tests` (`cm::modes` is the module `modes` of the test `cm`).
//!
//! | complaint | answer | test |
//! |---|---|---|
//! | storms of disconnections wait for lost DREPs | DREP at once, in every state, for every DREQ | `engine::disconnect`: `storm_of_disconnections` |
//! | set-up stalls at some thousand connections | no table grows, no queue is searched | `engine::loss`: `hundred_thousand_connections`; `cm_hundred_thousand` |
//! | retries exhausted when many connect to one | early repetitions with jitter, MRA for the second REQ, bounded admission | `engine::loss`: `clients_do_not_stay_in_step`; `connection`: `many_clients_and_a_small_receive_queue`; `engine::limits`: `flood_of_requests` |
//! | path record queries time out at scale | on RoCE a route is computed, and no service is asked | `cm::connections`: `connect_talk_disconnect` |
//! | resolving unreachable peers blocks for seconds | asynchronous, with a limit of each call's own, and failures are remembered | `cm::modes`: `address_resolution_takes_its_time`; `ip`: `who_does_not_answer_is_given_up_and_asked_again_later` |
//! | a power-cycled peer stays "stale" for ever | the refusal drops the old connection; its receiver asks again | `engine::limits`: `peer_that_lost_its_memory_gets_back_in`; `cm::stale` |
//! | connections of a killed client stay while nothing is sent on them | keep-alives, where an id asks for them | `cm::keep_alive`: `idle_connections_of_a_killed_client_are_reported` |
//! | TIMEWAIT_EXIT missing, or unexpected | one for each DISCONNECTED | `engine::storm`: `random_histories` |
//! | GID indexes, RoCE v1 or v2 | found by address, in the one version that the resolver has; errors name both | `cm::complaints`: `gids_are_found_by_address_and_version`; `cm::neighbours`: `hosts_resolve_each_other_and_connect` |
//! | surprised by the limits of private data | constants; too much is an error with both lengths | `cm::modes`: `calls_in_the_wrong_state_are_einval`; `connection`: `private_data_goes_round` |
//! | ADDR_ERROR -19 without a reason | the error behind an event says which step, and with what | `cm::complaints`: `errors_say_which_step_failed` |
//! | UNREACHABLE on established connections when a neighbour moves | the same, once for each move, and the connection is left alone | `cm::neighbours`: `a_peer_that_takes_another_port_is_unreachable` |
//! | destroying waits for events; the status of a DREQ that timed out is overlooked | events hold nothing; DISCONNECTED has the status | `cm::lists`: `events_have_names_and_hold_nothing`; `cm::timers`: `timers_of_an_accepting_id` |
//! | a dead link is noticed after 15 s | ACK timeout and CM timers of each connection, on either side | `cm::complaints`: `ack_timeout_of_a_connection`; `cm::timers`: `timers_of_a_listener` |
//! | time-outs now and then when hundreds connect at once | QP1's receive queue holds a burst, and nothing is sent twice | `connection`: `a_hundred_and_fifty_at_once`; `cm_hundred_thousand` |
//! | stale GIDs after the MAC changed | the entry's MAC and that of the ARP answers have one owner, and go with the address | `cm::neighbours`: `an_address_goes_with_its_gid` |
//! | the 1025th connection is dropped without an answer | a full backlog is REJ 3 | `connection`: `a_full_backlog`; `engine::passive`: `overflow_is_refused_not_ignored` |
//! | half-open connections fill a server | the oldest one of the source that has most is evicted; RTU has a separate limit | `cm::unknown_hosts`: `half_open_connections_keep_no_newcomer_out`, `an_rtu_is_not_waited_for_for_minutes`; `engine::limits`: `peers_do_not_dictate_how_long_to_wait` |
//! | a restarted server loses the requests of clients that still have its address | requests wait until their senders are found | `cm::unknown_hosts`: `all_hosts_that_come_at_once_are_served`, `a_thousand_hosts_that_come_at_once_are_served`; `cmtime`: `a_server_that_has_to_ask_for_its_client_loses_no_request` |
//! | forged sources keep newcomers out | bounded shares of the neighbours and of what waits for them | `cm::unknown_hosts`: `newcomers_are_served_among_forged_sources` |
//! | requests with addresses that no host has | refused with REJ 12 or 28, as Linux refuses them; nothing goes to a group | `cm::unknown_hosts`: `addresses`, `mutations` |
//! | a late copy of an old REQ opens a connection | the identifiers of the old request are kept | `engine::limits`: `a_late_copy_of_an_old_request_opens_no_connection` |
//! | an MRA does not hold for the time that it asks for | its time counts in full | `engine::limits`: `an_mra_to_a_request_counts_in_full` |
//! | a client that ends leaves its server connected | REJ 4 or DREQ for what is left | `cm::stale`: `a_manager_that_ends_disconnects` |
//! | an application that did not poll for a while gives up answered requests | received messages are processed before timers | `cm::timers`: `an_answer_that_waits_counts_before_a_timer` |
//!
//! ```
//! use bareverbs_cm::engine::*;
//! use bareverbs_cm::mad::MAD_LEN;
//! use core::time::Duration;
//!
//! let (mut a, mut b) = ([Slot::EMPTY; 4], [Slot::EMPTY; 4]);
//! let (mut al, mut bl) = ([ListenerSlot::EMPTY; 1], [ListenerSlot::EMPTY; 1]);
//! let (mut ar, mut br) = ([ReplySlot::EMPTY; 4], [ReplySlot::EMPTY; 4]);
//! let ours = Storage { connections: &mut a, listeners: &mut al, replies: &mut ar, ..Storage::default() };
//! let theirs = Storage { connections: &mut b, listeners: &mut bl, replies: &mut br, ..Storage::default() };
//! let mut client = Engine::new(Config::new(1, 0xa), ours);
//! let mut server = Engine::new(Config::new(2, 0xb), theirs);
//! let now = Duration::ZERO;
//!
//! server.listen(0x0106_1c06, 16, false, 0)?;
//! let there = Address { local_gid: [1; 16], remote_gid: [2; 16], pkey: 0xffff, hop_limit: 64, ..Address::default() };
//! let back = Address { local_gid: [2; 16], remote_gid: [1; 16], ..there };
//! client.connect(now, &ConnectParams { service_id: 0x0106_1c06, local_qpn: 0x11, ..ConnectParams::new(there) })?;
//!
//! let mut mad = [0; MAD_LEN];
//! while client.poll_transmit(now, &mut mad).is_some() {
//!     server.handle_mad(now, &back, &mad)?;
//! }
//! let event = server.poll_event().expect("a request");
//! assert!(matches!(event.kind, EventKind::ConnectRequest { .. }));
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

mod alternate;
mod calls;
mod error;
mod half_open;
#[cfg(feature = "last-messages")]
mod last_message;
mod machine;
mod query;
mod receive;
mod retry;
mod sidr;
mod slot;
mod state;
mod table;
mod transmit;
mod types;
mod units;
mod wheel;

pub use alternate::types::{AlternatePath, AlternateSlot, Failover};
pub use error::CmError;
#[cfg(feature = "last-messages")]
pub use last_message::LastMessage;
pub use machine::{Config, Engine, Storage};
pub use sidr::{SidrEvent, SidrEventKind, SidrId, SidrParams, SidrReply, SidrSlot};
pub use slot::{ListenerSlot, ReplySlot, Slot};
pub use state::{LapState, State};
pub use types::{
    Address, ConnectParams, ConnectionId, DisconnectCause, Event, EventKind, Ignored, ListenerId,
    QpParams, ReplyParams, Stats, Timers, Transmit, Transport,
};
