//! Events that come from the program or from the library itself: `rdma_write_cm_event`, and addresses that were found.
//!
//! They wait at the id, as many as there are. The manager's queue of the id has places for a few of them among the events of
//! connections; an event that is one too many gets its place when one is taken.

// UNSAFETY: raw pointers of C.
#![expect(unsafe_code)]

use std::collections::VecDeque;
use std::ffi::c_int;

use bareverbs_node::cm::rdma::CmId;

use crate::abi::cma::rdma_addrinfo;
use crate::process::failure::Result;
use crate::process::hca::Cm;
use crate::rdmacm::addrinfo::rdma_freeaddrinfo;

/// An event in the headers' numbers.
pub(crate) struct OwnEvent {
    pub(crate) event: c_int,
    pub(crate) status: c_int,
    pub(crate) arg: u64,
}

/// The most places of an id's queue in the manager that such events take: the others are for events of connections.
const PLACES: usize = 2;

/// An id holds such events here, and the addresses that were found.
#[derive(Default)]
pub(crate) struct OwnEvents {
    waiting: VecDeque<OwnEvent>,
    /// The number of those that have places in the manager's queue.
    announced: usize,
    /// From `rdma_resolve_addrinfo` to `rdma_query_addrinfo`.
    pub(super) resolving: bool,
    pub(super) resolved: Option<Found>,
}

/// A result of `rdma_getaddrinfo`, until the program takes it.
pub(super) struct Found(pub(super) *mut rdma_addrinfo);

impl Drop for Found {
    fn drop(&mut self) {
        // SAFETY: it is a result of `rdma_getaddrinfo`, and only `rdma_query_addrinfo` hands it out, which leaves NULL.
        unsafe { rdma_freeaddrinfo(self.0) };
    }
}

impl OwnEvents {
    /// Adds one.
    pub(super) fn add(&mut self, event: OwnEvent, manager: &mut Cm, cm: CmId) -> Result<()> {
        self.waiting.push_back(event);
        let announced = self.announce(manager, cm);
        if self.announced == 0 {
            // Those before it are announced when there is a place again.
            self.waiting.pop_back();
            return announced;
        }
        Ok(())
    }

    /// Takes the first one, of which the manager has said that it is there.
    pub(super) fn take(&mut self, manager: &mut Cm, cm: CmId) -> Option<OwnEvent> {
        let taken = self.waiting.pop_front();
        self.announced = self.announced.saturating_sub(1);
        // Others may have the places: the next one that is added or taken tries again.
        let _ = self.announce(manager, cm);
        taken
    }

    /// Gives the manager events for those that it does not know.
    fn announce(&mut self, manager: &mut Cm, cm: CmId) -> Result<()> {
        while self.announced < self.waiting.len().min(PLACES) {
            manager.write_cm_event(cm, 0, 0)?;
            self.announced += 1;
        }
        Ok(())
    }

    /// Tells another manager, to which the id moves.
    pub(crate) fn announce_again(&mut self, manager: &mut Cm, cm: CmId) -> Result<()> {
        self.announced = 0;
        self.announce(manager, cm)
    }
}
