//! Events that come from the program or from the library itself: `rdma_write_cm_event`, and addresses that were found.
//!
//! They wait at the id, as many as there are: the manager has a place for one event that says so, behind which those of
//! connections have theirs.

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

/// An id holds such events here, and the addresses that were found.
#[derive(Default)]
pub(crate) struct OwnEvents {
    pub(super) waiting: VecDeque<OwnEvent>,
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
    /// Adds one. The manager has an event of it for as long as there are any.
    pub(super) fn add(&mut self, event: OwnEvent, manager: &mut Cm, cm: CmId) -> Result<()> {
        if self.waiting.is_empty() {
            manager.write_cm_event(cm, 0, 0)?;
        }
        self.waiting.push_back(event);
        Ok(())
    }

    /// Tells another manager, to which the id moves.
    pub(crate) fn announce_again(&self, manager: &mut Cm, cm: CmId) -> Result<()> {
        if !self.waiting.is_empty() {
            manager.write_cm_event(cm, 0, 0)?;
        }
        Ok(())
    }
}
