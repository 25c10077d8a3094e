//! Draws of requests that fail, of those that are refused, and of those that come back.

use super::draw::{Draw, Kind, State, Type};
use super::posts::{ADD, READ, SEND, SEND_IMM, SWAP, WRITE};

/// The ids of requests that have to be refused begin here.
const REFUSED: u32 = 900;

/// The state of the other end after an error.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Other {
    Works,
    Fails,
    /// It fails, and an event tells the program.
    FailsWithEvent,
}

impl Draw {
    /// Posts a request that fails.
    pub(super) fn send_wrongly(&mut self) {
        let Some((sender, other)) = self.ends(&[Type::Rc]) else {
            return;
        };
        if !self.settle(sender) || !self.settle_sharing(sender, other) {
            return;
        }
        let operation = self.one(&[SEND, SEND_IMM, WRITE, WRITE, READ, READ, ADD, SWAP]);
        if self.of_pair(other, |pair| operation.right & !pair.access != 0) {
            return;
        }
        let remote_wrong = self.one(&[" rkey=1", " remote=65536", " remote=65532"]);
        let remote_wrong = if operation.atomic && self.rng.chance(300) {
            " remote=24580"
        } else {
            remote_wrong
        };
        let local_wrong = self.one(&[" lkey=1", " at=65536", " at=65532"]);
        let waits = self.waits(other);
        let (retry, other_shared) = (
            self.of_pair(sender, |pair| pair.rnr_retry),
            self.of_pair(other, |pair| pair.shared),
        );
        if operation.receives && waits == 0 {
            if retry != 7 && self.rng.chance(300) {
                if self.post(sender, other, operation, 8, Some("")) {
                    self.erred(sender, other, Other::Works);
                }
                return;
            }
            if other_shared.is_some() {
                return;
            }
            // A receive into a place that is not there, or one that is too short.
            let Some(region) = self.region_of(other, 1) else {
                return;
            };
            let how = self.one(&[
                "lkey=1 len=200",
                "at=65536 len=200",
                "at=65532 len=200",
                "len=100",
                "len=0",
            ]);
            let line = format!(
                "post_recv {} mr={} {how} id=99",
                self.name(other),
                self.name(region)
            );
            self.say(line);
            if self.post(sender, other, operation, 8, Some("")) {
                let cq = self.of_pair(other, |pair| pair.recv_cq);
                self.completed(cq, true);
                self.take(cq, 1);
                self.erred(sender, other, Other::Fails);
            }
            return;
        }
        if operation.right == 0 || !operation.atomic && self.rng.chance(300) {
            if self.post(sender, other, operation, 8, Some(local_wrong)) {
                self.erred(sender, other, Other::Works);
            }
        } else if self.post(sender, other, operation, 8, Some(remote_wrong)) {
            self.erred(sender, other, Other::FailsWithEvent);
        }
    }

    /// Takes the completion of a request that failed, and what came back with it.
    pub(super) fn erred(&mut self, sender: usize, other: usize, end: Other) {
        let cq = self.of_pair(sender, |pair| pair.send_cq);
        self.take(cq, 1);
        self.failed(sender);
        if end != Other::Works {
            self.failed(other);
        }
        self.events += u32::from(end == Other::FailsWithEvent);
        self.take_events();
        self.part(sender);
        let names = [sender, other].map(|it| self.name(it).to_string());
        for name in names {
            self.say(format!("query_qp {name} QP_STATE"));
        }
    }

    /// Posts what is refused at once.
    pub(super) fn refused_post(&mut self) {
        let able = self.pairs(|pair| {
            matches!(pair.kind, Type::Rc | Type::Uc | Type::Ud) && pair.state != State::Error
        });
        let Some(qp) = self.among(&able) else {
            return;
        };
        let Some(region) = self.region_of(qp, 1) else {
            return;
        };
        let state = self.of_pair(qp, |pair| pair.state);
        let names = [qp, region].map(|it| self.name(it).to_string());
        let ud = self.of_pair(qp, |pair| pair.kind == Type::Ud);
        let pd = self.things[qp].of[0];
        let ah = self.some(|it| it.kind == Kind::Address && it.of[0] == pd);
        let to = match (ud, self.among(&ah)) {
            (true, None) => return,
            (true, Some(ah)) => format!(" ah={} dest={}", self.name(ah), names[0]),
            _ => String::new(),
        };
        let id = REFUSED + self.rng.below(90);
        let begin = format!("post_send {} mr={}", names[0], names[1]);
        if state != State::Sends {
            let op = self.one(&["WR_SEND", "WR_SEND_WITH_IMM"]);
            return self.say(format!("{begin} op={op} id={id}{to}"));
        }
        let wrong = self.one(&["sges=31", "len=100000 flags=SEND_INLINE", "op=12", "op=50"]);
        self.say(format!("{begin} {wrong} id={id}{to}"));
    }

    /// Posts to a queue pair in Error, which gives it back.
    pub(super) fn post_in_error(&mut self) {
        let failed = self.pairs(|pair| {
            pair.state == State::Error && pair.partner.is_some() && pair.kind != Type::Ud
        });
        let Some(qp) = self.among(&failed) else {
            return;
        };
        let Some(region) = self.region_of(qp, 1) else {
            return;
        };
        let names = [qp, region].map(|it| self.name(it).to_string());
        let (ready, shared, cqs, extended) = self.of_pair(qp, |pair| {
            (
                pair.was_ready,
                pair.shared,
                (pair.send_cq, pair.recv_cq),
                pair.extended,
            )
        });
        if ready && self.rng.chance(500) {
            let how = if extended && self.rng.chance(500) {
                "wr_post"
            } else {
                "post_send"
            };
            let op = self.one(&["WR_SEND", "WR_RDMA_WRITE", "WR_SEND_WITH_IMM"]);
            self.say(format!("{how} {} mr={} op={op} id=33", names[0], names[1]));
            self.take(cqs.0, 1);
        } else if shared.is_none() {
            self.say(format!("post_recv {} mr={} id=133", names[0], names[1]));
            self.completed(cqs.1, true);
            self.take(cqs.1, 1);
        }
    }
}
