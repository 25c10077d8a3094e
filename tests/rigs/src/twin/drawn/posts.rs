//! Draws of requests and of the completions that they have.
//!
//! Of the memory, the first quarter is only read; what is read goes to the second, with what others write in its latter
//! half; receives have the last half, each a place of its own.

use super::draw::{BUFFER, Draw, Kind, PLACE, PLACES, Receive, Sent, State, Thing, Type};

/// The begin of the results of reads.
pub(super) const READ_INTO: u32 = 16384;
/// The begin of what the other end writes, and its room.
pub(super) const WRITTEN: u32 = 24576;
pub(super) const WRITTEN_ROOM: u32 = 8192;
/// The bytes that a place for reads has, and the number of these.
const READ_PLACE: u32 = 1024;
const READ_PLACES: u32 = (WRITTEN - READ_INTO) / READ_PLACE;
/// The bytes before a datagram.
pub(super) const HEADERS: u32 = 40;
/// The bytes of what is received or read where it must not be. Those of less, `mlx5_ib` lets the card write into completions,
/// from which the library copies them without a look at the region.
const NOT_WITH_COMPLETION: u32 = 128;
/// A completion that comes is not waited for longer than that.
const PATIENCE: &str = "wait=5000";

const REMOTE_WRITE: u32 = 2;
const REMOTE_READ: u32 = 4;
const REMOTE_ATOMIC: u32 = 8;

/// The effect of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Operation {
    pub(super) name: &'static str,
    /// The right that it needs at the other end.
    pub(super) right: u32,
    pub(super) receives: bool,
    immediate: bool,
    pub(super) atomic: bool,
}

const fn operation(name: &'static str, right: u32, receives: bool, immediate: bool) -> Operation {
    Operation {
        name,
        right,
        receives,
        immediate,
        atomic: right == REMOTE_ATOMIC,
    }
}

pub(super) const SEND: Operation = operation("WR_SEND", 0, true, false);
pub(super) const SEND_IMM: Operation = operation("WR_SEND_WITH_IMM", 0, true, true);
pub(super) const WRITE: Operation = operation("WR_RDMA_WRITE", REMOTE_WRITE, false, false);
const WRITE_IMM: Operation = operation("WR_RDMA_WRITE_WITH_IMM", REMOTE_WRITE, true, true);
pub(super) const READ: Operation = operation("WR_RDMA_READ", REMOTE_READ, false, false);
pub(super) const ADD: Operation = operation("WR_ATOMIC_FETCH_AND_ADD", REMOTE_ATOMIC, false, false);
pub(super) const SWAP: Operation = operation("WR_ATOMIC_CMP_AND_SWP", REMOTE_ATOMIC, false, false);

impl Draw {
    /// The ends of a connection on which requests complete as they should: the sender first.
    pub(super) fn ends(&mut self, wanted: &[Type]) -> Option<(usize, usize)> {
        let ready = |draw: &Draw, it: usize| {
            draw.of_pair(it, |pair| {
                pair.state == State::Sends && !pair.broken && wanted.contains(&pair.kind)
            })
        };
        let all = self.pairs(|pair| pair.partner.is_some());
        let both = |it: &usize| {
            let partner = self.of_pair(*it, |pair| pair.partner);
            ready(self, *it)
                && partner.is_some_and(|other| !self.things[other].gone && ready(self, other))
        };
        let all: Vec<usize> = all.into_iter().filter(both).collect();
        let sender = self.among(&all)?;
        Some((sender, self.of_pair(sender, |pair| pair.partner)?))
    }

    /// A region of all memory in the domain of a queue pair, with these rights.
    pub(super) fn region_of(&mut self, qp: usize, rights: u32) -> Option<usize> {
        let pd = self.things[qp].of[0];
        let good = |it: &Thing| {
            it.kind == Kind::Region
                && it.of[0] == pd
                && it.access != 0
                && it.access & rights == rights
        };
        let all = self.some(good);
        self.among(&all)
    }

    /// The receives that wait at a queue pair.
    pub(super) fn waits(&self, qp: usize) -> u32 {
        match self.of_pair(qp, |pair| pair.shared) {
            Some(shared) => self.things[shared].receives.len() as u32,
            None => self.of_pair(qp, |pair| pair.waiting.len() as u32),
        }
    }

    /// The places of its receive queue that are in use: a receive's is free again when its completion has been taken.
    fn holds(&self, qp: usize) -> u32 {
        let shared = self.of_pair(qp, |pair| pair.shared);
        let on_it = match shared {
            Some(_) => self.pairs(|pair| pair.shared == shared),
            None => vec![qp],
        };
        let arrived = on_it
            .into_iter()
            .map(|it| self.of_pair(it, |pair| pair.arrived.len() as u32));
        self.waits(qp) + arrived.sum::<u32>()
    }

    pub(super) fn receive(&mut self) {
        let able = self.pairs(|pair| {
            pair.partner.is_some()
                && !matches!(pair.state, State::Reset | State::Error)
                && !pair.broken
        });
        if let Some(qp) = self.among(&able) {
            let short = self.rng.chance(100);
            self.post_receive(qp, short);
        }
    }

    /// Posts a receive, in a place of its own. Returns its bytes.
    pub(super) fn post_receive(&mut self, qp: usize, short: bool) -> Option<u32> {
        let region = self.region_of(qp, 1)?;
        let (kind, shared, wr, sges) =
            self.of_pair(qp, |pair| (pair.kind, pair.shared, pair.wr, pair.sges));
        let room = shared.map_or(wr, |it| self.things[it].entries);
        let place = self.taken.iter().position(|taken| !taken)?;
        if self.holds(qp) >= room {
            return None;
        }
        let sges = match shared {
            Some(_) => 1,
            None => 1 + self.rng.below(sges),
        };
        let bytes = match (short, kind) {
            (true, Type::Rc) => self.one(&[0, 1, 16, 100]),
            _ => self.one(&[PLACE, PLACE, 3000]),
        };
        let each = bytes / sges;
        let at = BUFFER / 2 + place as u32 * PLACE;
        // Two that wait have different ones, by which the runner finds the place.
        let id = 100 + place as u32 + PLACES as u32 * self.rng.below(12);
        self.taken[place] = true;
        let (queue, to) = match shared {
            Some(shared) => (self.name(shared), " srq=1"),
            None => (self.name(qp), ""),
        };
        let line = format!(
            "post_recv {queue}{to} mr={} at={at} len={each} sges={sges} id={id}",
            self.name(region)
        );
        self.say(line);
        self.things[region].posted += 1;
        let receive = Receive {
            bytes: each * sges,
            region,
            place,
        };
        match shared {
            Some(shared) => self.things[shared].receives.push_back(receive),
            None => self.pair(qp).waiting.push_back(receive),
        }
        Some(each * sges)
    }

    /// The bytes of the receive that the next message takes.
    pub(super) fn next_receive(&self, qp: usize) -> Option<u32> {
        match self.of_pair(qp, |pair| pair.shared) {
            Some(shared) => self.things[shared].receives.front().map(|it| it.bytes),
            None => self.of_pair(qp, |pair| pair.waiting.front().map(|it| it.bytes)),
        }
    }

    /// A message has taken a receive.
    pub(super) fn took_receive(&mut self, qp: usize, solicited: bool) {
        let taken = match self.of_pair(qp, |pair| pair.shared) {
            Some(shared) => self.things[shared].receives.pop_front(),
            None => self.pair(qp).waiting.pop_front(),
        };
        if let Some(Receive { region, place, .. }) = taken {
            self.things[region].posted -= 1;
            self.pair(qp).arrived.push_back(place);
            let cq = self.of_pair(qp, |pair| pair.recv_cq);
            self.completed(cq, solicited);
        }
        if let Some(shared) = self.of_pair(qp, |pair| pair.shared) {
            let queue = &mut self.things[shared];
            if (queue.receives.len() as u32) < queue.limit {
                queue.limit = 0;
                self.events += 1;
                self.take_events();
            }
        }
    }

    /// A receive is not posted any more.
    pub(super) fn give_back(&mut self, receive: &Receive) {
        self.things[receive.region].posted -= 1;
        self.taken[receive.place] = false;
    }

    /// Posts a request that succeeds.
    pub(super) fn send(&mut self) {
        let Some((sender, other)) = self.ends(&[Type::Rc, Type::Uc, Type::Ud]) else {
            return self.connect_some();
        };
        let kind = self.of_pair(sender, |pair| pair.kind);
        let operation = match kind {
            Type::Rc => self.one(&[
                SEND, SEND, SEND_IMM, WRITE, WRITE, WRITE_IMM, READ, READ, ADD, SWAP,
            ]),
            Type::Uc => self.one(&[SEND, SEND_IMM, WRITE_IMM]),
            _ => self.one(&[SEND, SEND_IMM]),
        };
        if self.of_pair(other, |pair| operation.right & !pair.access != 0) {
            return;
        }
        if self.of_pair(sender, |pair| pair.sent.len() as u32 >= pair.wr) && !self.settle(sender) {
            return;
        }
        if operation.receives && !self.settle_sharing(sender, other) {
            return;
        }
        if operation.receives && self.waits(other) == 0 {
            self.post_receive(other, false);
        }
        let receive = self.next_receive(other);
        if operation.receives && receive.is_none() {
            return;
        }
        let reads = self
            .pairs(|_| true)
            .into_iter()
            .map(|it| self.of_pair(it, |pair| pair.sent.iter().map(|it| it.places).sum::<u32>()));
        let reads: u32 = reads.sum();
        let room = match operation {
            READ if reads == 0 && self.rng.chance(300) => WRITTEN_ROOM,
            READ | ADD | SWAP if reads + 1 < READ_PLACES => READ_PLACE,
            READ | ADD | SWAP => return,
            WRITE | WRITE_IMM => WRITTEN_ROOM,
            _ if kind == Type::Ud => receive.unwrap_or(0).saturating_sub(HEADERS).min(2048),
            _ => receive.unwrap_or(0),
        };
        self.post(sender, other, operation, room, None);
        if self.rng.chance(500) {
            self.poll_some(sender);
            self.poll_some(other);
        }
    }

    /// Waits until nothing is on its way to a shared receive queue but from this sender: messages of several take its receives
    /// in any order. Returns `false` if that cannot be known.
    pub(super) fn settle_sharing(&mut self, sender: usize, other: usize) -> bool {
        let Some(shared) = self.of_pair(other, |pair| pair.shared) else {
            return true;
        };
        let on_it = self.pairs(|pair| pair.shared == Some(shared));
        let senders: Vec<usize> = on_it
            .into_iter()
            .filter_map(|it| self.of_pair(it, |pair| pair.partner))
            .filter(|it| *it != sender && !self.things[*it].gone)
            .filter(|it| self.of_pair(*it, |pair| !pair.sent.is_empty()))
            .collect();
        senders.into_iter().all(|it| self.settle(it))
    }

    /// Posts a request of at most so many bytes, which succeeds unless `wrong` says otherwise. Returns `false` if there is
    /// no memory for it.
    pub(super) fn post(
        &mut self,
        sender: usize,
        other: usize,
        operation: Operation,
        room: u32,
        wrong: Option<&str>,
    ) -> bool {
        let is_wrong = wrong.is_some();
        let wrong = wrong.unwrap_or_default();
        let local_right = u32::from(operation.atomic || operation == READ);
        let Some(region) = self.region_of(sender, local_right) else {
            return false;
        };
        let to = match operation.right {
            0 => None,
            right => match self.region_of(other, right) {
                None => return false,
                to => to,
            },
        };
        let (kind, mtu, most_sges, inline, sig_all, extended) = self.of_pair(sender, |pair| {
            (
                pair.kind,
                128 << pair.mtu,
                pair.sges,
                pair.inline,
                pair.sig_all,
                pair.extended,
            )
        });
        let sizes = [
            0,
            1,
            2,
            7,
            8,
            16,
            63,
            64,
            65,
            100,
            255,
            256,
            257,
            mtu - 1,
            mtu,
            mtu + 1,
            2 * mtu,
            3000,
            4096,
            8192,
        ];
        let sizes: Vec<u32> = sizes.into_iter().filter(|size| *size <= room).collect();
        let size = match (operation.atomic, is_wrong) {
            (true, _) => 8,
            (_, true) => NOT_WITH_COMPLETION,
            _ => self.one(&sizes),
        };
        let sges = if operation.atomic || is_wrong {
            1
        } else {
            1 + self.rng.below(most_sges)
        };
        let each = size / sges;
        let mut flags = Vec::new();
        let may_be_inline =
            !operation.atomic && operation != READ && each * sges <= inline && !is_wrong;
        let is_inline = may_be_inline && inline > 0 && self.rng.chance(500);
        if is_inline && !extended {
            flags.push("SEND_INLINE");
        }
        if self.rng.chance(150) {
            flags.push("SEND_SOLICITED");
        }
        if kind == Type::Rc && self.rng.chance(150) {
            flags.push("SEND_FENCE");
        }
        let signaled = is_wrong || self.rng.chance(600);
        if signaled {
            flags.push("SEND_SIGNALED");
        }
        let id = 10 + self.rng.below(80);
        let mut line = format!(
            "{} {} mr={} op={} len={each} sges={sges} id={}",
            if extended { "wr_post" } else { "post_send" },
            self.name(sender),
            self.name(region),
            operation.name,
            id
        );
        let number = self.rng.below(8);
        if let Some(to) = to {
            let remote = match operation {
                READ => number * 1000,
                _ if operation.atomic => WRITTEN + number * 8,
                _ => WRITTEN,
            };
            line += &format!(" to={}", self.name(to));
            if !wrong.contains("remote=") {
                line += &format!(" remote={remote}");
            }
        }
        if !wrong.contains(" at=") {
            let at = match local_right {
                0 => number * 500,
                _ if size > READ_PLACE => READ_INTO,
                _ => READ_INTO + self.reads % READ_PLACES * READ_PLACE,
            };
            line += &format!(" at={at}");
        }
        if operation.atomic {
            line += &format!(" compare={number} swap={}", number + 7);
        }
        if operation.immediate {
            line += &format!(" imm={}", self.rng.next_u32());
        }
        if is_inline && extended {
            line += " inline=1";
        }
        if !flags.is_empty() {
            line += &format!(" flags={}", flags.join("|"));
        }
        if kind == Type::Ud {
            let pd = self.things[sender].of[0];
            let leads =
                |it: &Thing| it.kind == Kind::Address && it.of[0] == pd && it.group.is_none();
            let all = self.some(leads);
            let Some(ah) = self.among(&all) else {
                return false;
            };
            line += &format!(" ah={} dest={}", self.name(ah), self.name(other));
        }
        self.say(format!("{line}{wrong}"));
        if !is_wrong {
            self.pair(sender).sent.push_back(Sent {
                completes: signaled || sig_all,
                immediate: operation.immediate,
                places: match local_right {
                    0 => 0,
                    _ if size > READ_PLACE => READ_PLACES,
                    _ => 1,
                },
            });
            self.reads += local_right;
            if operation.receives {
                self.took_receive(other, flags.contains(&"SEND_SOLICITED"));
            }
        }
        true
    }

    /// Says a poll for so many completions, one by one or together.
    pub(super) fn take(&mut self, cq: usize, count: usize) {
        let how = if self.rng.chance(200) {
            "poll_ex"
        } else {
            "poll"
        };
        let is_extended = self.made_by(cq, "create_cq_ex");
        let how = if is_extended { how } else { "poll" };
        self.say(format!("{how} {} {count} {PATIENCE}", self.name(cq)));
    }

    fn made_by(&self, thing: usize, call: &str) -> bool {
        let begin = format!("{} = {call} ", self.name(thing));
        self.lines.iter().any(|line| line.starts_with(&begin))
    }

    pub(super) fn poll(&mut self) {
        let due =
            self.pairs(|pair| !pair.arrived.is_empty() || pair.sent.iter().any(|it| it.completes));
        if let Some(qp) = self.among(&due) {
            self.poll_some(qp);
        }
    }

    /// Takes some of the completions that come.
    fn poll_some(&mut self, qp: usize) {
        let due = self.of_pair(qp, |pair| {
            pair.sent.iter().filter(|it| it.completes).count()
        });
        if due > 0 {
            let count = 1 + self.rng.below(due as u32) as usize;
            self.take_sent(qp, count);
        }
        let arrived = self.of_pair(qp, |pair| pair.arrived.len());
        if arrived > 0 {
            let count = 1 + self.rng.below(arrived as u32) as usize;
            self.take_arrived(qp, count);
        }
    }

    /// Takes that many completions of receives.
    fn take_arrived(&mut self, qp: usize, count: usize) {
        let cq = self.of_pair(qp, |pair| pair.recv_cq);
        self.take(cq, count);
        let places: Vec<usize> = self.pair(qp).arrived.drain(..count).collect();
        places
            .into_iter()
            .for_each(|place| self.taken[place] = false);
    }

    /// Takes that many completions of requests. Those with immediate data are taken one by one.
    fn take_sent(&mut self, qp: usize, count: usize) {
        let cq = self.of_pair(qp, |pair| pair.send_cq);
        let mut plain = 0;
        for _ in 0..count {
            let immediate = loop {
                match self.pair(qp).sent.pop_front() {
                    Some(sent) if sent.completes => break sent.immediate,
                    Some(_) => {}
                    None => return,
                }
            };
            if !immediate {
                plain += 1;
                continue;
            }
            if plain > 0 {
                self.take(cq, plain);
                plain = 0;
            }
            self.take(cq, 1);
        }
        if plain > 0 {
            self.take(cq, plain);
        }
    }

    /// Takes all completions that come of a queue pair and of its other end.
    pub(super) fn poll_all(&mut self, qp: usize) {
        let other = self
            .of_pair(qp, |pair| pair.partner)
            .filter(|other| !self.things[*other].gone);
        for end in [Some(qp), other].into_iter().flatten() {
            let due = self.of_pair(end, |pair| {
                pair.sent.iter().filter(|it| it.completes).count()
            });
            if due > 0 {
                self.take_sent(end, due);
            }
        }
        for end in [Some(qp), other].into_iter().flatten() {
            let arrived = self.of_pair(end, |pair| pair.arrived.len());
            if arrived > 0 {
                self.take_arrived(end, arrived);
            }
        }
    }

    /// Waits until nothing is on its way between a queue pair and its other end, nor to it from a group. Returns `false` if that
    /// cannot be known.
    pub(super) fn settle(&mut self, qp: usize) -> bool {
        let Some(other) = self
            .of_pair(qp, |pair| pair.partner)
            .filter(|other| !self.things[*other].gone)
        else {
            return true;
        };
        self.poll_all(qp);
        for (end, other) in [(qp, other), (other, qp)] {
            if self.of_pair(end, |pair| pair.sent.is_empty()) {
                continue;
            }
            // Requests that have no completion of their own are done when a later one is.
            if self.of_pair(other, |pair| pair.access & REMOTE_WRITE == 0) {
                return false;
            }
            while !self.of_pair(end, |pair| pair.sent.back().is_some_and(|it| it.completes)) {
                let full = self.of_pair(end, |pair| pair.sent.len() as u32 >= pair.wr);
                if full || !self.post(end, other, WRITE, WRITTEN_ROOM, None) {
                    return false;
                }
            }
            self.poll_all(end);
        }
        true
    }
}
