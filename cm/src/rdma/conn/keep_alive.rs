//! Keep-alives: idle connections whose other end is gone are found ([`IdOption::KeepAlive`](crate::rdma::IdOption)).

use core::time::Duration;

use bareverbs_core::Platform;
use bareverbs_core::qp::QpState;

use crate::engine::State;
use crate::rdma::id::slot::IdSlot;
use crate::rdma::manager::RdmaCm;
use crate::rdma::resolver::Resolver;
use crate::rdma::types::error::errno;
use crate::rdma::types::{EventType, IdState};

impl<P: Platform, R: Resolver> RdmaCm<'_, '_, P, R> {
    /// Looks at the last keep-alive of each connection whose next one is due, and posts that.
    #[inline(never)]
    pub(crate) fn keep_alive(&mut self, now: Duration) {
        let mut next = None;
        for index in 0..self.ids.len() {
            let slot = &mut self.ids[index];
            let Some(interval) = slot.options.keep_alive.filter(|_| slot.used) else {
                continue;
            };
            let soon = now.saturating_add(interval);
            next = Some(next.map_or(soon, |next: Duration| next.min(soon)));
            if now < slot.conn.probe.at {
                continue;
            }
            slot.conn.probe.at = soon;
            let Some(connection) = slot.conn.id else {
                continue;
            };
            let established = self.engine.state(connection) == Ok(State::Established);
            if !established || is_alive(slot) {
                continue;
            }
            slot.conn.probe.failed = true;
            slot.state = IdState::Disconnect;
            let _ = self.engine.disconnect(now, connection, &[]);
            self.flush_qp(index);
            self.ids
                .push(index, EventType::Disconnected, -errno::ETIMEDOUT);
        }
        self.keep_alive_at = next;
    }
}

/// Posts the next keep-alive, unless the last one is still under way. Returns false if the QP has failed.
fn is_alive<P: Platform>(slot: &mut IdSlot<'_, P>) -> bool {
    let Some(qp) = slot.objects.qp.as_rc() else {
        return true;
    };
    if let Some(cq) = &mut slot.objects.send_cq {
        cq.take_keep_alives();
    }
    if qp.state() == QpState::Err {
        return false;
    }
    let queue = qp.send_queue();
    let probe = &mut slot.conn.probe;
    if probe.last.is_none_or(|last| queue.is_complete(last)) {
        // A full queue has work requests of the application's under way, which fail as a keep-alive would.
        probe.last = queue.post_keep_alive().ok().or(probe.last);
    }
    true
}
