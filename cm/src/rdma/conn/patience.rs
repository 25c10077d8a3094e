//! The log says once what an id waits for longer than usual.

use core::time::Duration;

use bareverbs_core::Platform;

use crate::engine::State;
use crate::ip::WAITING_LOG;
use crate::rdma::manager::RdmaCm;
use crate::rdma::resolver::Resolver;
use crate::rdma::types::IdState;
use crate::rdma::types::awaited::{Awaited, Watch};
use crate::rdma::types::error::RdmaError;
use crate::rdma::types::id::CmId;

/// After this time it is said.
const PATIENCE: Duration = Duration::from_secs(2);

impl<P: Platform, R: Resolver> RdmaCm<'_, '_, P, R> {
    /// Returns what an id waits for at the moment, of the other end or of the subnet, and what was seen meanwhile; `None` if
    /// it waits for neither. When that takes 2 s, it is written to the log as well
    /// ([`WAITING_LOG`](crate::ip::WAITING_LOG)), as a warning.
    ///
    /// # Errors
    /// If there is no such id.
    pub fn awaited(&self, id: CmId) -> Result<Option<Awaited>, RdmaError> {
        let slot = self.ids.slot(id)?;
        Ok(match slot.state {
            IdState::AddrQuery | IdState::RouteQuery => Some(self.router.awaited(slot)),
            IdState::Connect => {
                let connects = slot
                    .conn
                    .id
                    .is_some_and(|connection| self.engine.state(connection) == Ok(State::ReqSent));
                (connects || slot.conn.sidr.is_some() && !slot.conn.passive)
                    .then(|| self.router.awaited_answer(slot))
            }
            _ => None,
        })
    }

    /// Returns the watched id, if it still waits for the same.
    pub(crate) fn watched_id_waits(&self) -> Option<Watch> {
        self.watched.filter(|watch| {
            let slot = self.ids.slot(watch.id);
            slot.is_ok_and(|slot| slot.state == watch.state)
                && matches!(self.awaited(watch.id), Ok(Some(_)))
        })
    }

    /// An id begins to wait for the other end.
    pub(crate) fn watch(&mut self, now: Duration, index: usize) {
        let id = self.ids.id_of(index);
        if self.watched_id_waits().is_none_or(|watch| watch.id == id) {
            self.watched = Some(Watch {
                id,
                state: self.ids[index].state,
                until: now.saturating_add(PATIENCE),
            });
        }
    }

    /// Says what the watched id waits for, if it still does and has done so for long.
    pub(crate) fn say_what_is_awaited(&mut self, now: Duration) {
        let Some(watch) = self.watched.filter(|watch| now >= watch.until) else {
            return;
        };
        let waits = self.watched_id_waits().is_some();
        self.watched = None;
        if !waits {
            return;
        }
        let peer = self
            .ids
            .slot(watch.id)
            .ok()
            .and_then(|slot| slot.route.peer);
        if let (Ok(Some(awaited)), Some(peer)) = (self.awaited(watch.id), peer) {
            log::warn!(target: WAITING_LOG, "still waiting for {peer}: {awaited}");
        }
    }
}
