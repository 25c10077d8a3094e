//! Verbs objects of ids that are gone: destroyed while the manager goes on.

use bareverbs_core::Platform;
use bareverbs_core::cq::{Cq, DestroyingCq};
use bareverbs_core::qp::{DestroyingQp, Rc};

use crate::rdma::id::slot::Objects;
use crate::rdma::verbs::objects::{IdQp, PdOf};

/// How many ids' objects are destroyed at once; more wait for the first of them.
const MOST: usize = 4;

/// The objects of one id, in the order in which they are destroyed. Dropped, they are waited for.
#[derive(Debug)]
struct Ending<'d, P: Platform> {
    qp: Option<DestroyingQp<'d, P, Rc>>,
    ending: [Option<DestroyingCq<'d, P>>; 2],
    cqs: [Option<Cq<'d, P>>; 2],
    _pd: Option<PdOf<'d, P>>,
}

impl<'d, P: Platform> Ending<'d, P> {
    /// Moves destruction on; whether all is gone.
    fn step(&mut self) -> bool {
        if let Some(qp) = &mut self.qp {
            match qp.try_finish() {
                None => return false,
                Some(Ok(())) => {}
                // Dropped, it is tried once more, and says so.
                Some(Err((qp, _))) => drop(qp),
            }
            self.qp = None;
        }
        for (cq, ending) in self.cqs.iter_mut().zip(&mut self.ending) {
            let begun = cq.take().map(Cq::start_destroy);
            match begun {
                None => {}
                Some(Ok(begun)) => *ending = Some(begun),
                // Another QP uses it: it goes with that one.
                Some(Err((cq, _))) => drop(cq),
            }
        }
        for ending in &mut self.ending {
            if let Some(cq) = ending
                && let Some(ended) = cq.try_finish()
            {
                drop(ended);
                *ending = None;
            }
        }
        self.ending.iter().all(Option::is_none)
    }
}

/// The objects of ids that are gone.
#[derive(Debug)]
pub(crate) struct Endings<'d, P: Platform>(heapless::Vec<Ending<'d, P>, MOST>);

impl<'d, P: Platform> Endings<'d, P> {
    pub(crate) const fn new() -> Self {
        Self(heapless::Vec::new())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Destroys the QP and the CQs of an id. Waits for those of another one where there are too many.
    pub(crate) fn add(&mut self, objects: &mut Objects<'d, P>) {
        let qp = match objects.qp.take() {
            Some(IdQp::Rc(qp)) => qp.start_destroy().map_err(drop).ok(),
            _ => None,
        };
        let mut new = Ending {
            qp,
            ending: [None, None],
            cqs: [objects.send_cq.take(), objects.recv_cq.take()],
            _pd: objects.pd.take(),
        };
        if new.step() {
            return;
        }
        if self.0.is_full() {
            drop(self.0.remove(0));
        }
        let _ = self.0.push(new);
    }

    /// Moves all destruction on.
    pub(crate) fn step(&mut self) {
        self.0.retain_mut(|ending| !ending.step());
    }

    /// Waits for all of it.
    pub(crate) fn finish(&mut self) {
        self.0.clear();
    }
}
