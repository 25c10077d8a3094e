//! The engine: its settings, its tables, and what it does when time passes.

use core::time::Duration;

use super::alternate::types::{AlternateSlot, Table as AlternateTable};
use super::half_open::HalfOpen;
#[cfg(feature = "last-messages")]
use super::last_message::LastMessage;
use super::retry::Next;
use super::sidr::table::{SidrSlot, Table as SidrTable};
use super::slot::{Cause, ListenerSlot, ReplySlot, Slot, ev, tx};
use super::state::State;
use super::types::{DisconnectCause, Event, EventKind, ListenerId, Stats, Timers};
use super::units::nanos;
use super::wheel::{NIL, Wheel};
use crate::mad::{Attribute, RejectReason};

/// The engine's configuration.
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
    /// Answer "no resources" when there is no slot or the backlog is full, instead of letting the peer try again.
    pub reject_overflow: bool,
    /// Answer "invalid communication ID" to a REP that was not expected.
    pub reject_unknown: bool,
    /// Timers for connections that arrive; the peer's REQ decides about retries and its response time. In the RDMA CM also
    /// those of ids that were not given others.
    pub timers: Timers,
    /// By how many percent, at most, early repetitions come earlier or later than they would: so that many peers that
    /// lose the same server at once do not come back at once. 0 keeps the exact times.
    pub jitter: u8,
    /// Exponent of the longest time that the other end can make this end wait for one answer, by its REQ or by an MRA to the
    /// REP: 24, what Linux asks for, is 69 s. The MRA to a REQ of this end counts in full. Without such a bound a single REQ
    /// could take a slot for days.
    pub max_response: u8,
    /// The time that an accepted request may wait for its RTU, at most, unless its peer asks for more time (MRA). The peer's
    /// REQ may ask for minutes, but an RTU can be sent at once.
    pub rtu_limit: Duration,
    /// A half-open connection that is older than this may be evicted when there is no slot for a new one.
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

/// All the memory that the engine uses beside itself. A feature without slots is refused to peers.
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
    pub(super) config: Config,
    pub(super) slots: &'s mut [Slot],
    pub(super) listeners: &'s mut [ListenerSlot],
    pub(super) replies: &'s mut [ReplySlot],
    pub(super) reply_head: usize,
    pub(super) reply_len: usize,
    pub(super) wheel: Wheel,
    pub(super) sidr: SidrTable<'s>,
    pub(super) alternates: AlternateTable<'s>,
    pub(super) half_open: HalfOpen,
    pub(super) index_bits: u32,
    pub(super) salt: u32,
    pub(super) hash_seed: u64,
    pub(super) random: u64,
    pub(super) free_head: u32,
    pub(super) free_tail: u32,
    pub(super) in_use: usize,
    pub(super) tx_head: u32,
    pub(super) tx_tail: u32,
    pub(super) event_head: u32,
    pub(super) event_tail: u32,
    pub(super) stats: Stats,
    #[cfg(feature = "last-messages")]
    pub(super) last_messages: &'s mut [LastMessage],
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
            sidr: SidrTable::new(sidr),
            alternates: AlternateTable::new(alternates),
            half_open: HalfOpen::new(),
            salt: 0,
            hash_seed: 0,
            random: config.seed,
            in_use: 0,
            tx_head: NIL,
            tx_tail: NIL,
            event_head: NIL,
            event_tail: NIL,
            stats: Stats::default(),
            #[cfg(feature = "last-messages")]
            last_messages: &mut [],
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

    /// Slots in use: connections that were not released, and released ones that still end.
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

    /// Queues an event.
    pub(super) fn raise(&mut self, index: usize, bit: u8) {
        #[cfg(feature = "last-messages")]
        self.note_last_message(index);
        let tail = self.event_tail;
        let slot = &mut self.slots[index];
        if slot.zombie {
            return;
        }
        slot.pending_events |= bit;
        if !slot.in_events {
            slot.in_events = true;
            slot.event_next = NIL;
            match self.slots.get_mut(tail as usize) {
                Some(tail) => tail.event_next = index as u32,
                None => self.event_head = index as u32,
            }
            self.event_tail = index as u32;
        }
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
            // A slot that was released, and perhaps allocated again, may still be in the queue without an event.
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
        // Most calls come within the millisecond that was processed last.
        if !(self.wheel.is_ahead_of(now) && self.sidr.is_ahead_of(now)) {
            self.timeouts(now);
        }
    }

    fn timeouts(&mut self, now: u64) {
        if !self.sidr.is_ahead_of(now) {
            self.sidr_timeouts(now);
        }
        // Time does not go backwards: a timer that is due and would be set to a time before the last one would be due
        // for ever.
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
