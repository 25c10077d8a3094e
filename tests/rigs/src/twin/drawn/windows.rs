//! Draws of memory windows in use: binding, invalidation, and requests of the other end.

use super::draw::{BUFFER, Draw, Kind, Type};
use super::objects::WHOLE;
use super::posts::{READ, READ_INTO, WRITE, WRITTEN};
use super::wrong::Other;

impl Draw {
    /// Binds a window, or invalidates one.
    pub(super) fn bind(&mut self) {
        let Some((qp, _)) = self.ends(&[Type::Rc]) else {
            return;
        };
        let pd = self.things[qp].of[0];
        let mut windows = self.some(|it| it.kind == Kind::Window && it.of[0] == pd);
        if windows.is_empty() {
            windows.push(self.window_in(pd));
        }
        let (Some(window), Some(region)) = (self.among(&windows), self.region_of(qp, WHOLE)) else {
            return;
        };
        if !self.settle(qp) {
            return;
        }
        let extended = self.of_pair(qp, |pair| pair.extended);
        let names = [qp, window, region].map(|it| self.name(it).to_string());
        let [qp_name, name, region_name] = &names;
        let how = if extended && self.rng.chance(500) {
            "wr_post"
        } else {
            "post_send"
        };
        let bound = self.things[window].bound;
        let (size, access) = (
            self.one(&[BUFFER, BUFFER, 4096]),
            self.one(&[2, 4, 6, 14, 0]),
        );
        let cq = self.of_pair(qp, |pair| pair.send_cq);
        if !self.things[window].second {
            self.say(format!("bind_mw {qp_name} {name} {region_name} size={size} access={access} flags=SEND_SIGNALED id=70"));
        } else if bound.is_none() {
            self.say(format!(
                "{how} {qp_name} op=WR_BIND_MW mw={name} to={region_name} size={size} access={access} flags=SEND_SIGNALED id=71"
            ));
        } else if bound.is_some_and(|(_, by)| by != qp) {
            return;
        } else {
            self.say(format!(
                "{how} {qp_name} op=WR_LOCAL_INV mw={name} flags=SEND_SIGNALED id=72"
            ));
            self.things[window].bound = None;
            return self.take(cq, 1);
        }
        self.things[window].bound = Some((region, qp));
        self.things[window].access = if size == BUFFER { access } else { 0 };
        self.take(cq, 1);
    }

    /// Writes or reads through a window of the other end.
    pub(super) fn post_through_window(&mut self) {
        let Some((sender, other)) = self.ends(&[Type::Rc]) else {
            return;
        };
        let windows = self.some(|it| it.bound.is_some_and(|(_, by)| by == other));
        let (Some(window), Some(region)) = (self.among(&windows), self.region_of(sender, 1)) else {
            return;
        };
        let Some((bound_to, _)) = self.things[window].bound else {
            return;
        };
        let operation = self.one(&[WRITE, READ]);
        let pair_access = self.of_pair(other, |pair| pair.access);
        if operation.right & !pair_access != 0 || !self.settle(sender) {
            return;
        }
        let good = self.things[window].access & operation.right != 0;
        let (at, remote) = match operation {
            READ => (READ_INTO, 1000),
            _ => (0, WRITTEN),
        };
        let names = [sender, region, window, bound_to].map(|it| self.name(it).to_string());
        let good = match self.things[window].second && self.rng.chance(300) {
            true => good && !self.invalidate(sender, other, window),
            false => good,
        };
        self.say(format!(
            "post_send {} mr={} op={} len=64 at={at} to={} mw={} remote={remote} flags=SEND_SIGNALED id=73",
            names[0], names[1], operation.name, names[3], names[2]
        ));
        if good {
            let cq = self.of_pair(sender, |pair| pair.send_cq);
            self.take(cq, 1);
        } else {
            self.erred(sender, other, Other::FailsWithEvent);
        }
    }

    /// Takes a window of the other end out of use by a message. Returns `false` if no receive waits for one.
    fn invalidate(&mut self, sender: usize, other: usize, window: usize) -> bool {
        let Some(region) = self.region_of(sender, 0) else {
            return false;
        };
        if !self.settle_sharing(sender, other) {
            return false;
        }
        if self.waits(other) == 0 {
            self.post_receive(other, false);
        }
        if self.next_receive(other).is_none_or(|bytes| bytes < 16) {
            return false;
        }
        let names = [sender, region, window].map(|it| self.name(it).to_string());
        self.say(format!(
            "post_send {} mr={} op=WR_SEND_WITH_INV len=16 mw={} flags=SEND_SIGNALED id=74",
            names[0], names[1], names[2]
        ));
        self.things[window].bound = None;
        self.took_receive(other, false);
        let cq = self.of_pair(sender, |pair| pair.send_cq);
        self.take(cq, 1);
        self.poll_all(other);
        true
    }
}
