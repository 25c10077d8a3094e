//! Draws of what tells a program that something came: asynchronous events, limits of shared queues, and events of queues of
//! completions.

use super::draw::{Armed, Draw, Kind, Type};

impl Draw {
    /// Takes the asynchronous events that come.
    pub(super) fn take_events(&mut self) {
        match std::mem::take(&mut self.events) {
            0 => {}
            1 => self.say("async"),
            more => self.say(format!("asyncs {more}")),
        }
    }

    /// A connection whose ends share their receive queue with others.
    pub(super) fn share(&mut self) {
        if self.some(|it| it.kind == Kind::Shared && !it.second).len() < 2 {
            self.shared();
        }
        self.connect_as(Type::Rc);
    }

    /// Sets the limit of a shared queue.
    pub(super) fn limit(&mut self) {
        let all = self.some(|it| it.kind == Kind::Shared && !it.second);
        let Some(srq) = self.among(&all) else {
            return;
        };
        let limit = 1 + self.rng.below(self.things[srq].entries.min(6));
        let posted = self.things[srq].receives.len() as u32;
        self.say(format!(
            "modify_srq {} SRQ_LIMIT limit={limit}",
            self.name(srq)
        ));
        let below = posted < limit;
        self.things[srq].limit = if below { 0 } else { limit };
        self.events += u32::from(below);
        self.take_events();
        if self.rng.chance(300) {
            self.say(format!("query_srq {}", self.name(srq)));
        }
    }

    /// Asks for an event of the queue for receives of a queue pair, when nothing is on its way to it.
    pub(super) fn arm(&mut self) {
        let quiet = |draw: &Self, cq: usize| !draw.things[cq].of.is_empty();
        let all = self.pairs(|pair| pair.partner.is_some() && quiet(self, pair.recv_cq));
        let Some(qp) = self.among(&all) else {
            if self.all(Kind::Channel).is_empty() {
                self.channel();
            }
            return self.connected();
        };
        if !self.settle(qp) {
            return;
        }
        let cq = self.of_pair(qp, |pair| pair.recv_cq);
        let how = self.one(&[Armed::Each, Armed::Solicited]);
        if self.things[cq].armed.is_some_and(|before| before != how) {
            return;
        }
        let solicited = u32::from(how == Armed::Solicited);
        self.say(format!("req_notify_cq {} {solicited}", self.name(cq)));
        self.things[cq].armed = Some(how);
    }

    /// A completion comes to a queue, which may tell it.
    pub(super) fn completed(&mut self, cq: usize, solicited: bool) {
        match self.things[cq].armed {
            Some(Armed::Each) => {}
            Some(Armed::Solicited) if solicited => {}
            _ => return,
        }
        let Some(channel) = self.things[cq].of.first().copied() else {
            return;
        };
        self.things[cq].armed = None;
        let later = self.rng.chance(500);
        let how = if later { "keep_cq_event" } else { "cq_event" };
        self.things[cq].owed += u32::from(later);
        self.say(format!("{how} {}", self.name(channel)));
    }

    /// Acknowledges the events of a queue that were kept.
    pub(super) fn acknowledge(&mut self, cq: usize) {
        let owed = std::mem::take(&mut self.things[cq].owed);
        if owed > 0 {
            self.say(format!("ack_cq_events {} {owed}", self.name(cq)));
        }
    }

    pub(super) fn acknowledge_some(&mut self) {
        let owing = self.some(|it| it.owed > 0);
        if let Some(cq) = self.among(&owing) {
            self.acknowledge(cq);
        }
    }

    /// Asks for what must not come: more completions, and more events.
    pub(super) fn nothing_is_left(&mut self) {
        for qp in self.pairs(|pair| pair.partner.is_some()) {
            for cq in self.of_pair(qp, |pair| [pair.send_cq, pair.recv_cq]) {
                self.say(format!("poll {} 1 wait=1", self.name(cq)));
            }
        }
        for channel in self.all(Kind::Channel) {
            self.say(format!("cq_event {} wait=1", self.name(channel)));
        }
        self.say("async wait=1");
    }
}
