//! Verbs objects of ids that are gone: destroyed in their slots while the manager goes on.

use bareverbs_core::Platform;
use bareverbs_core::cq::Cq;

use crate::rdma::verbs::making::QpOf;
use crate::rdma::verbs::owned::Objects;

/// The progress of an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// There is nothing more to do.
    Done,
    /// The firmware has a command of it.
    Posted,
    /// The command queue is full.
    Full,
}

impl<'d, P: Platform> Objects<'d, P> {
    /// Begins to destroy QP, CQs and PD, one after the other, or moves that on, after what is
    /// with the firmware of their creation. Dropped meanwhile, it is waited for.
    pub(crate) fn step_ending(&mut self) -> Progress {
        loop {
            let posted = match &mut self.qp {
                QpOf::Ending(qp) => match qp.try_finish() {
                    None => qp.is_posted(),
                    // What the firmware refuses is tried once more, dropped, and says so.
                    Some(_) => {
                        self.qp = QpOf::None;
                        continue;
                    }
                },
                QpOf::Making(making) => {
                    let own = [&mut self.send_cq, &mut self.recv_cq];
                    match making.step(None, own) {
                        None => making.is_posted(),
                        Some(made) => {
                            self.qp.put(made.ok());
                            continue;
                        }
                    }
                }
                QpOf::EndingCq(cq) => match cq.try_finish() {
                    None => cq.is_posted(),
                    ended => {
                        drop(ended);
                        self.qp = QpOf::None;
                        continue;
                    }
                },
                _ => {
                    // That of an XRC SRQ is the SRQ's.
                    let of_srq = self.srq.as_ref().is_some_and(|srq| srq.srq.is_xrc());
                    let own = |recv_cq: &mut Option<Cq<'d, P>>| match of_srq {
                        true => None,
                        false => recv_cq.take(),
                    };
                    if let Some(qp) = self.qp.take() {
                        if let Ok(ending) = qp.start_destroy() {
                            self.qp = QpOf::Ending(ending);
                        }
                    } else if let Some(cq) = self.send_cq.take().or_else(|| own(&mut self.recv_cq))
                    {
                        // One that another QP uses goes with that one.
                        if let Ok(ending) = cq.start_destroy() {
                            self.qp = QpOf::EndingCq(ending);
                        }
                    } else {
                        self.pd = None;
                        self.xrcd = None;
                        return Progress::Done;
                    }
                    continue;
                }
            };
            return match posted {
                true => Progress::Posted,
                false => Progress::Full,
            };
        }
    }
}
