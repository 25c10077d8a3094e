//! QPs of connections that are over, kept for those that come: they go through RESET to INIT, for which a new one takes three
//! commands while the connection waits.
//!
//! RESET makes a QP what it was: nothing is outstanding, counters and rings begin anew, and completions of before are
//! dropped. Its number stays, so that a late packet of the old connection would reach the new one: no id gets it before the
//! timewait of the old connection is over (IBTA volume 1, chapter 12.9), and a connection that did not end in order
//! takes its QP with it.

use core::time::Duration;

use bareverbs_core::Platform;
use bareverbs_core::cq::Cq;
use bareverbs_core::pd::Pd;
use bareverbs_core::qp::{DynQp, QpCap, QpInitHandles};

use crate::rdma::types::id::NIL;
use crate::rdma::verbs::objects::{KeptInit, PdOf};

/// Number of QPs of other sizes, CQs or PDs that are searched for one that fits. They go to the end of the queue.
const LOOKED_AT: usize = 8;

/// Storage for one QP that is kept ([`RdmaCm::recycle_qps`](crate::rdma::RdmaCm::recycle_qps)).
#[derive(Debug)]
pub struct PooledQp<'d, P: Platform> {
    kept: Option<Kept<'d, P>>,
    next: u32,
}

impl<P: Platform> PooledQp<'_, P> {
    /// An empty slot.
    pub const EMPTY: Self = Self {
        kept: None,
        next: NIL,
    };
}

impl<P: Platform> Default for PooledQp<'_, P> {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// A QP in INIT, and what it uses of the manager's.
#[derive(Debug)]
pub(crate) struct Kept<'d, P: Platform> {
    // In the order in which they have to be destroyed.
    pub(crate) qp: DynQp<'d, P>,
    pub(crate) send_cq: Option<Cq<'d, P>>,
    pub(crate) recv_cq: Option<Cq<'d, P>>,
    pub(crate) pd: PdOf<'d, P>,
    /// The partition that it was brought to INIT with.
    pub(crate) pkey_index: u16,
    /// When the timewait of its last connection is over.
    pub(crate) from: Duration,
}

impl<'d, P: Platform> Kept<'d, P> {
    /// Returns `true` if a QP that is created from `init` in `pd` would be as this one is.
    fn fits(&self, pd: &Pd<'d, P>, init: &KeptInit<'d, P>) -> bool {
        let QpCap {
            max_send_wr,
            max_recv_wr,
            ..
        } = init.cap;
        let large = |own: &Option<Cq<'d, P>>, wr| own.as_ref().is_none_or(|cq| cq.cqe() >= wr);
        if self.send_cq.is_some() != init.send_cq.is_none()
            || self.recv_cq.is_some() != init.recv_cq.is_none()
            || !large(&self.send_cq, max_send_wr)
            || !large(&self.recv_cq, max_recv_wr)
        {
            return false;
        }
        let handle = |given: &Option<_>, own: &Option<Cq<'d, P>>| match given {
            Some(_) => Option::clone(given),
            None => own.as_ref().map(Cq::handle),
        };
        let (Some(send_cq), Some(recv_cq)) = (
            handle(&init.send_cq, &self.send_cq),
            handle(&init.recv_cq, &self.recv_cq),
        ) else {
            return false;
        };
        let handles = QpInitHandles {
            send_cq,
            recv_cq,
            srq: None,
            cap: init.cap,
            sq_sig_all: init.sq_sig_all,
        };
        self.qp.is_as_created(pd, &handles)
    }
}

/// The QPs that are kept: a queue, those that came first are the first to go.
#[derive(Debug)]
pub(crate) struct QpPool<'s, 'd, P: Platform> {
    slots: &'s mut [PooledQp<'d, P>],
    free: u32,
    head: u32,
    tail: u32,
}

impl<'s, 'd, P: Platform> QpPool<'s, 'd, P> {
    /// All of `slots` empty.
    pub(crate) fn new(slots: &'s mut [PooledQp<'d, P>]) -> Self {
        let count = slots.len();
        for (index, slot) in slots.iter_mut().enumerate() {
            slot.kept = None;
            slot.next = if index + 1 < count {
                index as u32 + 1
            } else {
                NIL
            };
        }
        Self {
            slots,
            free: if count == 0 { NIL } else { 0 },
            head: NIL,
            tail: NIL,
        }
    }

    /// Returns `true` if one more can be kept.
    pub(crate) const fn has_room(&self) -> bool {
        self.free != NIL
    }

    /// Returns `true` if there is none.
    pub(crate) const fn is_empty(&self) -> bool {
        self.head == NIL
    }

    /// Keeps a QP; gives it back if there is no room.
    #[expect(clippy::result_large_err, reason = "the error gives the objects back")]
    pub(crate) fn put(&mut self, kept: Kept<'d, P>) -> Result<(), Kept<'d, P>> {
        let index = self.free;
        let Some(slot) = self.slots.get_mut(index as usize) else {
            return Err(kept);
        };
        self.free = slot.next;
        slot.kept = Some(kept);
        self.append(index);
        Ok(())
    }

    fn append(&mut self, index: u32) {
        if let Some(slot) = self.slots.get_mut(index as usize) {
            slot.next = NIL;
        }
        match self.slots.get_mut(self.tail as usize) {
            Some(tail) => tail.next = index,
            None => self.head = index,
        }
        self.tail = index;
    }

    /// Takes the first one out of the queue.
    fn unlink_first(&mut self) -> Option<u32> {
        let index = self.head;
        self.head = self.slots.get(index as usize)?.next;
        if self.head == NIL {
            self.tail = NIL;
        }
        Some(index)
    }

    /// Takes the QP out of a slot that is in no list.
    fn empty(&mut self, index: u32) -> Option<Kept<'d, P>> {
        let slot = self.slots.get_mut(index as usize)?;
        slot.next = self.free;
        self.free = index;
        slot.kept.take()
    }

    /// A QP that is as one which is created from `init` in `pd`, if there is one whose timewait is over.
    pub(crate) fn take(
        &mut self,
        now: Duration,
        pd: &Pd<'d, P>,
        init: &KeptInit<'d, P>,
    ) -> Option<Kept<'d, P>> {
        for _ in 0..LOOKED_AT {
            let kept = self.slots.get(self.head as usize)?.kept.as_ref()?;
            if kept.from > now {
                return None;
            }
            let fits = kept.fits(pd, init);
            let index = self.unlink_first()?;
            if fits {
                return self.empty(index);
            }
            self.append(index);
        }
        None
    }

    /// Takes the oldest one.
    pub(crate) fn take_oldest(&mut self) -> Option<Kept<'d, P>> {
        let index = self.unlink_first()?;
        self.empty(index)
    }

    /// Destroys all of them, and waits for it.
    pub(crate) fn clear(&mut self) {
        while let Some(kept) = self.take_oldest() {
            drop(kept);
        }
    }
}
