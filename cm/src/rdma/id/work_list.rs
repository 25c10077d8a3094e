//! The ids that have commands to do, in the order of their turns.

use bareverbs_core::Platform;

use crate::rdma::id::table::IdTable;
use crate::rdma::types::error::RdmaError;
use crate::rdma::types::id::NIL;

/// Commands of all ids that are with the firmware at once, at most: the command queue has no more places.
const MOST: usize = 32;

/// The ids that have a command with the firmware, and those that wait for a place, linked through their slots.
#[derive(Debug)]
pub(crate) struct WorkList {
    pub(crate) posted: heapless::Vec<u32, MOST>,
    pub(crate) head: u32,
    pub(crate) tail: u32,
    /// The id that a call begins something for, and what of it failed at once: the error of the call.
    pub(crate) in_call: u32,
    pub(crate) error: Option<RdmaError>,
}

impl WorkList {
    pub(crate) const EMPTY: Self = Self {
        posted: heapless::Vec::new(),
        head: NIL,
        tail: NIL,
        in_call: NIL,
        error: None,
    };

    /// Returns `true` if there is an answer to wait for.
    pub(crate) fn is_busy(&self) -> bool {
        !self.posted.is_empty() || self.head != NIL
    }

    pub(crate) fn push<P: Platform>(&mut self, ids: &mut IdTable<'_, '_, P>, index: u32) {
        ids[index as usize].links.work_next = NIL;
        match ids.get_mut(self.tail as usize) {
            Some(tail) => tail.links.work_next = index,
            None => self.head = index,
        }
        self.tail = index;
    }

    pub(crate) fn pop<P: Platform>(&mut self, ids: &IdTable<'_, '_, P>) {
        if let Some(head) = ids.get(self.head as usize) {
            self.head = head.links.work_next;
            if self.head == NIL {
                self.tail = NIL;
            }
        }
    }
}
