//! The IB connection manager as a state machine: MADs and time go in, MADs and events come out.
//!
//! The engine knows no device, no socket and no clock. Whoever drives it
//!
//! 1. hands in each MAD that arrives on QP1 with [`handle_mad`](Engine::handle_mad),
//! 2. calls [`connect`](Engine::connect), [`reply`](Engine::reply), [`ready`](Engine::ready), … on behalf of the user,
//! 3. sends what [`poll_transmit`](Engine::poll_transmit) gives until it gives nothing,
//! 4. acts on what [`poll_event`](Engine::poll_event) gives until it gives nothing, and
//! 5. comes back when something arrives, or at [`next_deadline`](Engine::next_deadline).
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
//!   that does; for a REP that nobody waits for, REJ 6.
//! * Alternate paths ([`load_alternate`](Engine::load_alternate)) work, and where they do not, as on RoCE, LAP is answered
//!   with "not supported" instead of silence; a REQ of another class version with REJ 31, one that carries the name of
//!   another connection with REJ 30.
//! * A connection whose peer has lost its memory (REJ 10) does not stand in the way of the peer's next try, and
//!   [`retry`](Engine::retry) is that next try.
//! * No message of a peer that asks for a connection can make this end wait longer than [`Config::max_response`], and a
//!   flood of requests leaves [`Config::reserved`] slots for this end's own. An RTU has to come within
//!   [`Config::rtu_limit`], and when there is no room for a request the oldest half-open connection goes, of the source
//!   that has most of them.
//! * A duplicate REQ is answered with the REP again while that one is unacknowledged.
//! * The first repetition comes early ([`Timers::early`]) and backs off within the negotiated interval; the number of
//!   intervals, and so the time to [`Unreachable`](EventKind::Unreachable), stays what was negotiated.
//! * Releasing an established connection repeats its DREQ until it is answered.
//!
//! # What users of other connection managers complain about
//!
//! Tests of `engine_…` and `ip` are in `cm/tests`, that of `cmtime` in `examples`, the others in
//! `tests/in-process/tests`.
//!
//! | complaint | answer | test |
//! |---|---|---|
//! | storms of disconnections wait for lost DREPs | DREP at once, in every state, for every DREQ | `engine_farewell`: `storm_of_disconnections` |
//! | set-up stalls at some thousand connections | no table grows, no queue is searched | `engine_loss`: `hundred_thousand_connections`; `cm_hundred_thousand` |
//! | retries exhausted when many connect to one | early repetitions with jitter, MRA for the second REQ, bounded admission | `engine_loss`: `clients_do_not_stay_in_step`; `connection`: `a_crowd_at_a_narrow_door`; `engine_limits`: `flood_of_requests` |
//! | path record queries time out at scale | on RoCE a route is computed, and nobody is asked | `cm`: `connect_talk_disconnect` |
//! | resolving unreachable peers blocks for seconds | asynchronous, with a limit of each call's own, and failures are remembered | `cm_modes`: `address_resolution_takes_its_time`; `ip`: `who_does_not_answer_is_given_up_and_asked_again_later` |
//! | a power-cycled peer stays "stale" for ever | the refusal forgets the old connection; its receiver tries another QP | `engine_limits`: `peer_that_lost_its_memory_gets_back_in`; `cm_stale` |
//! | TIMEWAIT_EXIT missing, or unexpected | one for each DISCONNECTED | `engine_storm`: `random_lives` |
//! | GID indexes, RoCE v1 or v2 | found by address, v2 only; errors name both | `cm_complaints`: `gids_are_found_by_address_and_version` |
//! | surprised by the limits of private data | constants; too much is an error with both lengths | `cm_modes`: `calls_in_the_wrong_state_are_einval`; `connection`: `private_data_goes_round` |
//! | ADDR_ERROR -19, and nobody knows why | the error behind an event says which step, and with what | `cm_complaints`: `errors_say_which_step_failed` |
//! | UNREACHABLE on established connections when a neighbour moves | ADDR_CHANGE, and the connection is left alone | `cm_neighbours`: `a_peer_that_takes_another_port_is_an_address_change` |
//! | destroying waits for events; the status of a DREQ that timed out is overlooked | events hold nothing; DISCONNECTED has the status | `cm_lists`: `events_have_names_and_hold_nothing`; `cm_timers`: `timers_of_an_accepting_id` |
//! | a dead link is noticed after 15 s | ACK timeout and CM timers of each connection, on either side | `cm_complaints`: `ack_timeout_of_a_connection`; `cm_timers`: `timers_of_a_listener` |
//! | time-outs now and then when hundreds connect at once | QP1 has room for a burst, and nothing is sent twice | `connection`: `a_hundred_and_fifty_at_once`; `cm_hundred_thousand` |
//! | stale GIDs after the MAC changed | the entry's MAC and that of the ARP answers have one owner, and go with the address | `cm_neighbours`: `an_address_goes_with_its_gid` |
//! | the 1025th connection is dropped without a word | a full backlog is REJ 3 | `connection`: `a_full_backlog`; `engine_passive`: `overflow_is_refused_not_ignored` |
//! | half-open connections fill a server | the oldest goes, of the source that has most; RTU has a limit of its own | `cm_strangers`: `half_open_connections_keep_no_one_out`, `an_rtu_is_not_waited_for_for_minutes`; `engine_limits`: `peers_do_not_dictate_how_long_to_wait` |
//! | a restarted server loses the requests of clients that know it | requests wait until their senders are found | `cm_strangers`: `all_hosts_that_come_at_once_are_served`, `a_thousand_hosts_that_come_at_once_are_served`; `cmtime`: `a_server_that_has_to_ask_for_its_client_loses_no_request` |
//! | forged sources keep newcomers out | bounded shares of the neighbours and of what waits for them | `cm_strangers`: `newcomers_are_served_among_forged_sources` |
//! | requests with addresses that no host has | refused with REJ 12 or 28, as Linux refuses them; nothing goes to a group | `cm_strangers`: `addresses`, `mutations` |
//! | a late copy of an old REQ opens a connection | its names are remembered | `engine_limits`: `a_late_copy_of_an_old_request_opens_no_ghost` |
//! | an MRA does not hold for as long as it says | its time counts in full | `engine_limits`: `an_mra_to_a_request_counts_in_full` |
//! | a client that ends leaves its server connected | REJ 4 or DREQ for what is left | `cm_stale`: `a_manager_that_ends_says_goodbye` |
//! | an application that was away gives answered requests up | what has arrived counts before timers | `cm_timers`: `an_answer_that_waits_counts_before_a_timer` |
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
mod half_open;
mod query;
mod receive;
mod retry;
mod sidr;
mod slot;
mod table;
mod transmit;
mod types;
mod wheel;

use core::time::Duration;

pub use alternate::{AlternatePath, AlternateSlot, Failover, LapState};
pub use sidr::{SidrEvent, SidrEventKind, SidrId, SidrParams, SidrReply, SidrSlot};
pub use slot::{ListenerSlot, ReplySlot, Slot};
pub use types::{
    Address, CmError, ConnectParams, ConnectionId, DisconnectCause, Event, EventKind, Ignored,
    ListenerId, QpParams, ReplyParams, State, Stats, Timers, Transmit, Transport,
};

use crate::mad::{Attribute, RejectReason};
use retry::Next;
use slot::{Cause, NIL, ev, tx};
use wheel::Wheel;

/// What the engine has to know of its surroundings.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Seed of communication IDs, PSNs and the tables' hashes. Has to differ from boot to boot, so that a peer does not
    /// take new connections for old ones.
    pub seed: u64,
    /// GUID of the node.
    pub node_guid: u64,
    /// Upper half of the transaction IDs.
    pub transaction_id_high: u32,
    /// The greatest path MTU that a connection may ask for: 1 to 5 for 256 to 4096 bytes.
    pub max_mtu: u8,
    /// Exponent of the time that this node's adapter takes to acknowledge.
    pub ack_delay: u8,
    /// Answer a DREQ at once rather than when the user disconnects.
    pub auto_drep: bool,
    /// Exponent of the time to ask for when a REQ or REP comes again before the user answered it; `None` keeps silent.
    pub auto_mra: Option<u8>,
    /// Say "no resources" when there is no slot or the backlog is full, rather than let the peer try again.
    pub reject_overflow: bool,
    /// Say "invalid communication ID" to a REP that nobody waits for.
    pub reject_unknown: bool,
    /// Timers for connections that arrive; the peer's REQ decides about retries and its response time. In the RDMA CM also
    /// those of ids that were not given others.
    pub timers: Timers,
    /// By how many percent, at most, early repetitions come earlier or later than they would: so that many who lose the
    /// same server at once do not come back at once. 0 keeps to the exact times.
    pub jitter: u8,
    /// Exponent of the longest time that the other end can make this end wait for one answer, by its REQ or by an MRA to the
    /// REP: 24, what Linux asks for, is 69 s. The MRA to a REQ of this end counts in full. Without such a bound a single REQ
    /// could take a slot for days.
    pub max_response: u8,
    /// How long an accepted request may wait for its RTU, at most, unless its peer asks for more time (MRA). The peer's REQ
    /// may ask for minutes; but RTU needs no thinking.
    pub rtu_limit: Duration,
    /// A half-open connection that is older than this may have to go when there is no room for a new one.
    pub half_open_age: Duration,
    /// Slots, of connections and of datagram services each, that only this end's own requests may take, so that a flood
    /// from outside does not keep it from connecting.
    pub reserved: u32,
    /// Exponent of the time for which a SIDR_REQ waits for the application, and for which the answer is kept for
    /// repetitions. After that the requester has given up.
    pub sidr_life: u8,
}

impl Config {
    /// The defaults, which are those of Linux where there is one.
    pub const fn new(seed: u64, node_guid: u64) -> Self {
        Self {
            seed,
            node_guid,
            transaction_id_high: 2,
            max_mtu: 5,
            ack_delay: 15,
            auto_drep: true,
            auto_mra: Some(24),
            reject_overflow: true,
            reject_unknown: true,
            timers: Timers {
                remote_response: 20,
                local_response: 20,
                max_retries: 15,
                early: Some(Duration::from_millis(256)),
            },
            jitter: 25,
            max_response: 24,
            rtu_limit: Duration::from_secs(10),
            half_open_age: Duration::from_millis(100),
            reserved: 0,
            sidr_life: 24,
        }
    }
}

/// All the memory that the engine uses beside itself. What is not given is not served.
#[derive(Debug, Default)]
pub struct Storage<'s> {
    /// One slot per connection, those in timewait included; at most 2^24.
    pub connections: &'s mut [Slot],
    /// One slot per listener.
    pub listeners: &'s mut [ListenerSlot],
    /// Answers without a connection that may wait to be sent at once; as many as MADs are handed in in a row.
    pub replies: &'s mut [ReplySlot],
    /// One slot per datagram service that is being resolved, by this end or by others; answers that were given stay in
    /// those that are left over, for repetitions.
    pub sidr: &'s mut [SidrSlot],
    /// One slot per connection with an alternate path (InfiniBand only).
    pub alternates: &'s mut [AlternateSlot],
}

/// The connection manager of one node.
#[derive(Debug)]
pub struct Engine<'s> {
    config: Config,
    slots: &'s mut [Slot],
    listeners: &'s mut [ListenerSlot],
    replies: &'s mut [ReplySlot],
    reply_head: usize,
    reply_len: usize,
    wheel: Wheel,
    sidr: sidr::Table<'s>,
    alternates: alternate::Table<'s>,
    half_open: half_open::HalfOpen,
    index_bits: u32,
    salt: u32,
    hash_seed: u64,
    random: u64,
    free_head: u32,
    free_tail: u32,
    in_use: usize,
    tx_head: u32,
    tx_tail: u32,
    event_head: u32,
    event_tail: u32,
    stats: Stats,
}

impl<'s> Engine<'s> {
    /// An engine without connections. Slots may have been used before; nothing of that survives.
    pub fn new(config: Config, storage: Storage<'s>) -> Self {
        let Storage {
            connections,
            listeners,
            replies,
            sidr,
            alternates,
        } = storage;
        // Slots beyond what a communication ID can name are left alone.
        let usable = connections.len().min(1 << 24);
        let slots = &mut connections[..usable];
        for (index, slot) in slots.iter_mut().enumerate() {
            let generation = slot.generation;
            *slot = Slot::EMPTY;
            slot.generation = generation;
            slot.link = if index + 1 < usable {
                index as u32 + 1
            } else {
                NIL
            };
        }
        listeners.fill(ListenerSlot::EMPTY);
        replies.fill(ReplySlot::EMPTY);
        let mut engine = Self {
            config,
            index_bits: usize::BITS - usable.saturating_sub(1).leading_zeros(),
            free_head: if usable == 0 { NIL } else { 0 },
            free_tail: if usable == 0 { NIL } else { usable as u32 - 1 },
            slots,
            listeners,
            replies,
            reply_head: 0,
            reply_len: 0,
            wheel: Wheel::new(),
            sidr: sidr::Table::new(sidr),
            alternates: alternate::Table::new(alternates),
            half_open: half_open::HalfOpen::new(),
            salt: 0,
            hash_seed: 0,
            random: config.seed,
            in_use: 0,
            tx_head: NIL,
            tx_tail: NIL,
            event_head: NIL,
            event_tail: NIL,
            stats: Stats::default(),
        };
        engine.salt = engine.random() as u32;
        engine.hash_seed = engine.random();
        engine
    }

    /// The configuration.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// The configuration, to be changed; connections that exist keep what they have.
    pub const fn config_mut(&mut self) -> &mut Config {
        &mut self.config
    }

    /// Slots in use: connections that were not released, and released ones that still say goodbye.
    pub const fn in_use(&self) -> usize {
        self.in_use
    }

    /// Slots in all.
    pub const fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Counters.
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// When [`handle_timeout`](Self::handle_timeout) or [`poll_transmit`](Self::poll_transmit) should be called at the
    /// latest. May be early, never late by more than a millisecond.
    pub fn next_deadline(&self) -> Option<Duration> {
        match (self.wheel.next(), self.sidr.next_deadline()) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
        .map(Duration::from_nanos)
    }

    /// Takes the next event. Private data is only lent: what is to stay has to be copied.
    pub fn poll_event(&mut self) -> Option<Event<'_>> {
        loop {
            let index = self.event_head;
            if index == NIL {
                return None;
            }
            let slot = &mut self.slots[index as usize];
            let bit = slot.pending_events & slot.pending_events.wrapping_neg();
            slot.pending_events &= !bit;
            if slot.pending_events == 0 {
                self.event_head = slot.event_next;
                if self.event_head == NIL {
                    self.event_tail = NIL;
                }
                slot.in_events = false;
            }
            // A slot that was released, and perhaps taken again, may still stand in the queue with nothing to say.
            if bit != 0 {
                return Some(self.event(index as usize, bit));
            }
        }
    }

    fn event(&mut self, index: usize, bit: u8) -> Event<'_> {
        let slot = &mut self.slots[index];
        let has_data = slot.data_event == bit;
        if has_data {
            slot.data_event = 0;
        }
        let slot = &self.slots[index];
        let data = if has_data { slot.private() } else { &[] };
        let kind = match bit {
            ev::REQUEST => EventKind::ConnectRequest {
                listener: ListenerId {
                    index: slot.listener,
                    generation: slot.listener_generation,
                },
                listener_user: self
                    .listeners
                    .get(slot.listener as usize)
                    .map_or(0, |listener| listener.user),
                private_data: data,
            },
            ev::REPLY => EventKind::Reply { private_data: data },
            ev::ESTABLISHED => EventKind::Established { private_data: data },
            ev::REJECTED => {
                // Additional information and private data lie in the slot as they lie in the MAD.
                let (info, private_data) = data.split_at(data.len().min(72));
                EventKind::Rejected {
                    reason: RejectReason(slot.reason),
                    info: &info[..usize::from(slot.rej_info_len).min(info.len())],
                    private_data,
                }
            }
            ev::UNREACHABLE => EventKind::Unreachable {
                unanswered: if slot.active {
                    Attribute::Req
                } else {
                    Attribute::Rep
                },
            },
            ev::DISCONNECTED => EventKind::Disconnected {
                cause: match slot.cause {
                    Cause::Requested => DisconnectCause::Requested,
                    Cause::Answered => DisconnectCause::Answered,
                    Cause::TimedOut => DisconnectCause::TimedOut,
                    Cause::Rejected => DisconnectCause::Rejected(RejectReason(slot.reason)),
                },
                private_data: data,
            },
            ev::ALTERNATE => self.alternate_event(index),
            _ => EventKind::TimewaitExit,
        };
        Event {
            connection: slot.id(),
            user: slot.user,
            kind,
        }
    }

    /// Advances all timers to `now`. [`poll_transmit`](Self::poll_transmit) does it too.
    #[inline]
    pub fn handle_timeout(&mut self, now: Duration) {
        let now = nanos(now);
        // Most calls come within the millisecond that was looked at last.
        if !(self.wheel.is_ahead_of(now) && self.sidr.is_ahead_of(now)) {
            self.timeouts(now);
        }
    }

    fn timeouts(&mut self, now: u64) {
        if !self.sidr.is_ahead_of(now) {
            self.sidr_timeouts(now);
        }
        // Time does not go back: a timer that is due and would be set to a time before the last one would be due for ever.
        let now = now.max(self.wheel.reached());
        while let Some(index) = self.wheel.expire(self.slots, now) {
            self.timeout(index as usize, now);
        }
    }

    fn timeout(&mut self, index: usize, now: u64) {
        let slot = &mut self.slots[index];
        let again = match slot.state {
            State::ReqSent | State::MraReqReceived => tx::REQ,
            State::RepSent | State::MraRepReceived => tx::REP,
            State::DreqSent => tx::DREQ,
            State::Established => tx::ALTERNATE,
            State::Timewait => {
                slot.state = State::Idle;
                if slot.stale {
                    self.leave(index);
                }
                let slot = &mut self.slots[index];
                if core::mem::take(&mut slot.exit_due) {
                    self.raise(index, ev::TIMEWAIT_EXIT);
                }
                self.release_if_done(index);
                return;
            }
            _ => return,
        };
        let early = slot.early;
        let random = self.random() as u32;
        let jitter = self.config.jitter;
        match self.slots[index].retry.expired(now, early, jitter, random) {
            Next::Send(at) => {
                self.wheel.arm(self.slots, index as u32, at);
                self.send(index, again);
            }
            Next::Wait(at) => self.wheel.arm(self.slots, index as u32, at),
            Next::GiveUp if again == tx::DREQ => {
                self.disconnected(index, now, Cause::TimedOut, &[]);
            }
            Next::GiveUp if again == tx::ALTERNATE => self.lap_over(index, None),
            Next::GiveUp => {
                self.finish(index);
                self.raise(index, ev::UNREACHABLE);
                self.release_if_done(index);
            }
        }
    }
}

/// Nanoseconds since the start of the caller's clock, or enough of them that nothing added to it overflows: a clock that
/// runs for more than 146 years stands still.
#[inline]
fn nanos(time: Duration) -> u64 {
    time.as_secs()
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::from(time.subsec_nanos()))
        .min(1 << 62)
}

/// The time that an exponent stands for: 4.096 us times 2 to it, in nanoseconds.
fn exponent(value: u8) -> u64 {
    4096 << value.min(31)
}
