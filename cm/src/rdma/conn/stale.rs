//! Recovery from a refusal as stale (REJ 10): the other end still has a connection with a QP of this number, whose
//! owner ended without notifying it. After the refusal the other end drops that connection, and then the number is free
//! again there: the request is repeated with the same QP, so that what is posted stays posted.

use core::time::Duration;

use bareverbs_core::Platform;

use crate::mad::CmaHeader;
use crate::rdma::manager::RdmaCm;
use crate::rdma::resolver::Resolver;
use crate::rdma::types::CONNECT_PRIVATE_DATA_MAX;
use crate::rdma::types::error::RdmaError;

/// The time before the first repetition; it doubles before each further one. The number rests (IBTA volume 1, chapter 12.9.8.3),
/// and a DREQ of the other end reaches this one and is answered; Linux repeats one that is lost after 4 to 6 s.
const REST: Duration = Duration::from_millis(500);

impl<P: Platform, R: Resolver> RdmaCm<'_, '_, P, R> {
    /// Lets an attempt rest that was refused as stale. Returns false if the application has to get the refusal.
    ///
    /// `by_this_end`: the QP of the other end's REP is in a connection here, which is dropped now. The other end makes
    /// another QP for the next request, at once. If it was restarted each of its old connections here can have one such
    /// attempt, so that these are not counted.
    pub(crate) fn rest_if_stale(&mut self, now: Duration, index: usize, by_this_end: bool) -> bool {
        let slot = &mut self.ids[index];
        let Some(connection) = slot.conn.id else {
            return false;
        };
        if slot.conn.passive {
            return false;
        }
        if by_this_end && self.config.stale_retries > 0 {
            return self.engine.rest(now, connection, Duration::ZERO).is_ok();
        }
        let round = slot.conn.stale_retries;
        if round >= self.config.stale_retries {
            return false;
        }
        slot.conn.stale_retries += 1;
        let wait = REST.saturating_mul(1 << round.min(6));
        self.engine.rest(now, connection, wait).is_ok()
    }

    /// Sends the REQ once more.
    pub(crate) fn repeat_request(&mut self, now: Duration, index: usize) -> Result<(), RdmaError> {
        let slot = &self.ids[index];
        let (Some(local), Some(peer), Some(old)) =
            (slot.route.local, slot.route.peer, slot.conn.id)
        else {
            return Err(RdmaError::NotBound);
        };
        let mut data = [0; CmaHeader::LEN + CONNECT_PRIVATE_DATA_MAX];
        let start = self
            .router
            .begin_request(local, peer, slot.route.ip, &mut data)?;
        let len = usize::from(slot.events.private_len).min(data.len() - start);
        data[start..start + len].copy_from_slice(&slot.events.private[..len]);
        let new = self.engine.retry(now, old, &data[..start + len])?;
        let _ = self.engine.release(now, old);
        self.ids[index].conn.id = Some(new);
        self.watch(now, index);
        Ok(())
    }
}
