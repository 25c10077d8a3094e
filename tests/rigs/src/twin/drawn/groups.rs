//! Draws of groups of datagram queue pairs: who is in one, and messages to all of them.

use super::draw::{Draw, Kind, Pair, Sent, State, Type};
use super::posts::HEADERS;

/// The groups, by the names of their addresses.
const GROUPS: [&str; 2] = ["group", "group2"];
/// The queue pair number that stands for all of a group.
const ALL: u32 = 0xff_ffff;

impl Draw {
    /// Attaches a datagram queue pair to a group, or detaches it.
    pub(super) fn join_group(&mut self) {
        let all = self.pairs(|pair| pair.kind == Type::Ud);
        let Some(qp) = self.among(&all) else {
            return self.connect_as(Type::Ud);
        };
        let group = self.one(&GROUPS);
        let leaves = self.rng.chance(250);
        let how = if leaves { "detach" } else { "attach" };
        self.say(format!("{how}_mcast {} dgid={group}", self.name(qp)));
        let groups = &mut self.pair(qp).groups;
        groups.retain(|it| *it != group);
        if !leaves {
            groups.push(group);
        }
    }

    /// Takes all queue pairs out of their groups: none can be destroyed before.
    pub(super) fn leave_groups(&mut self) {
        for qp in self.pairs(|pair| !pair.groups.is_empty()) {
            for group in std::mem::take(&mut self.pair(qp).groups) {
                self.say(format!("detach_mcast {} dgid={group}", self.name(qp)));
            }
        }
    }

    /// Sends a message to a group, and takes what comes of it. Each that gets it has a receive, so that it is known when all
    /// have.
    pub(super) fn send_to_group(&mut self) {
        let group = self.one(&GROUPS);
        let member = |pair: &Pair, state| pair.groups.contains(&group) && pair.state == state;
        // A first message to one that cannot send yet is told by an event.
        if !self.pairs(|pair| member(pair, State::Receives)).is_empty() {
            return self.connect_some();
        }
        let receivers = self.pairs(|pair| member(pair, State::Sends));
        let senders = self.pairs(|pair| {
            pair.kind == Type::Ud && pair.state == State::Sends && pair.partner.is_some()
        });
        let Some(sender) = self.among(&senders) else {
            return self.connect_some();
        };
        if receivers.is_empty() {
            return self.join_group();
        }
        // One without another end has no queues of its own, and nothing is posted to it.
        let without = |it: &usize| self.of_pair(*it, |pair| pair.partner.is_none());
        if receivers.iter().any(without) {
            return;
        }
        for end in receivers.iter().chain([&sender]) {
            self.poll_all(*end);
        }
        if self.of_pair(sender, |pair| pair.sent.len() as u32 >= pair.wr) {
            return;
        }
        let mut room = 2048;
        for receiver in &receivers {
            if self.waits(*receiver) == 0 {
                self.post_receive(*receiver, false);
            }
            let Some(bytes) = self.next_receive(*receiver) else {
                return;
            };
            room = room.min(bytes.saturating_sub(HEADERS));
        }
        let Some(region) = self.region_of(sender, 0) else {
            return;
        };
        let pd = self.things[sender].of[0];
        let known =
            self.some(|it| it.kind == Kind::Address && it.of[0] == pd && it.group == Some(group));
        let ah = match self.among(&known) {
            Some(ah) => ah,
            None => {
                let ah = self.add(Kind::Address, "ah", &[pd]);
                self.things[ah].group = Some(group);
                self.say(format!(
                    "{} = create_ah {} dgid={group}",
                    self.name(ah),
                    self.name(pd)
                ));
                ah
            }
        };
        let size = self.one(&[0, 1, 64, 1024, 2008]).min(room);
        let immediate = self.rng.chance(300);
        let solicited = self.rng.chance(300);
        let extended = self.of_pair(sender, |pair| pair.extended);
        let how = if extended { "wr_post" } else { "post_send" };
        let op = match immediate {
            true => format!("WR_SEND_WITH_IMM imm={}", self.rng.next_u32()),
            false => "WR_SEND".to_string(),
        };
        let flags = match solicited {
            true => "SEND_SIGNALED|SEND_SOLICITED",
            false => "SEND_SIGNALED",
        };
        let names = [sender, region, ah].map(|it| self.name(it).to_string());
        self.say(format!(
            "{how} {} mr={} ah={} qpn={ALL} op={op} len={size} flags={flags} id=75",
            names[0], names[1], names[2]
        ));
        self.pair(sender).sent.push_back(Sent {
            completes: true,
            immediate,
            places: 0,
        });
        for receiver in &receivers {
            self.took_receive(*receiver, solicited);
        }
        for end in receivers.iter().chain([&sender]) {
            self.poll_all(*end);
        }
    }
}
