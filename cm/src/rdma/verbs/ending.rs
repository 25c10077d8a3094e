//! Verbs objects of ids that are gone: destroyed in their slots while the manager goes on.

use bareverbs_core::{Device, Platform};

use crate::rdma::conn::work::Progress;
use crate::rdma::id::slot::Objects;
use crate::rdma::id::table::IdTable;
use crate::rdma::verbs::making::QpOf;
use crate::rdma::verbs::objects::IdQp;

impl<P: Platform> Objects<'_, P> {
    /// Begins to destroy QP, CQs and PD, one after the other, or moves that on. Dropped meanwhile, it is waited for.
    pub(crate) fn step_ending(&mut self) -> Progress {
        loop {
            let posted = match &mut self.qp {
                QpOf::Ending(qp) => match qp.try_finish() {
                    None => qp.is_posted(),
                    ended => {
                        // What the firmware refused is tried once more, dropped, and says so.
                        drop(ended);
                        self.qp = QpOf::None;
                        continue;
                    }
                },
                QpOf::EndingCq(cq) => match cq.try_finish() {
                    None => cq.is_posted(),
                    ended => {
                        drop(ended);
                        self.qp = QpOf::None;
                        continue;
                    }
                },
                _ => {
                    if let Some(IdQp::Rc(qp)) = self.qp.take() {
                        if let Ok(ending) = qp.start_destroy() {
                            self.qp = QpOf::Ending(ending);
                        }
                    } else if let Some(cq) = self.send_cq.take().or_else(|| self.recv_cq.take()) {
                        // One that another QP uses goes with that one.
                        if let Ok(ending) = cq.start_destroy() {
                            self.qp = QpOf::EndingCq(ending);
                        }
                    } else {
                        self.pd = None;
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

impl<P: Platform> IdTable<'_, '_, P> {
    /// Waits until the objects of all ids that are gone are destroyed.
    pub(crate) fn finish_endings(&mut self, device: &Device<'_, P>) {
        for index in 0..self.len() {
            if self.ending() == 0 {
                return;
            }
            if !self[index].work.ending {
                continue;
            }
            while self[index].objects.step_ending() != Progress::Done {
                // A device that has died is found in the answer.
                let _ = device.poll();
                device.platform().relax();
            }
            self.ended(index);
        }
    }
}
