//! The calls on QPs that belong to the application and that the manager moves.

use bareverbs_core::{Platform, Qpn};

use crate::rdma::id::slot::Pending;
use crate::rdma::manager::RdmaCm;
use crate::rdma::resolver::Resolver;
use crate::rdma::types::error::RdmaError;
use crate::rdma::types::{CmId, EventType};
use crate::rdma::verbs::attached::AttachedQp;
use crate::rdma::verbs::making::QpOf;

impl<'d, P: Platform, R: Resolver> RdmaCm<'_, 'd, P, R> {
    /// Gives an id for connections a QP of the application's, which is in INIT. [`connect`](Self::connect),
    /// [`accept`](Self::accept) and [`disconnect`](Self::disconnect) move it from here on as they move one that
    /// [`create_qp`](Self::create_qp) has created, and [`reject`](Self::reject) leaves it as it is.
    ///
    /// It stays the application's to post to, to query and to destroy, the last after [`detach_qp`](Self::detach_qp) or after
    /// the id.
    pub fn attach_qp(&mut self, id: CmId, qp: &'d dyn AttachedQp) -> Result<(), RdmaError> {
        let index = self.ids.index(id)?;
        let slot = &mut self.ids[index];
        if slot.objects.has_qp() || slot.objects.qp.is_saved() {
            return Err(RdmaError::QpExists);
        }
        if !slot.route.bound {
            return Err(RdmaError::NotBound);
        }
        slot.objects.qp = QpOf::Attached(qp);
        self.ids.enter_qpn(index);
        Ok(())
    }

    /// Takes the application's QP of this number away from an id. A transition that is under way goes on. A connection that waits for it is
    /// called off: the other end is refused, and the application sees `ConnectError`.
    ///
    /// # Errors
    /// [`RdmaError::NoQp`] if the id has none, or another one.
    pub fn detach_qp(&mut self, id: CmId, qpn: Qpn) -> Result<(), RdmaError> {
        let index = self.ids.index(id)?;
        let slot = &self.ids[index];
        match &slot.objects.qp {
            QpOf::Attached(qp) if qp.qpn() == qpn => {}
            _ => return Err(RdmaError::NoQp),
        }
        let connecting = slot.work.is_connecting();
        self.forget_qp(index);
        let now = self.now();
        if connecting {
            self.not_up(now, index, RdmaError::NoQp);
        }
        self.flush(now)
    }

    /// Lets the application hear nothing of an id's request before it has accepted it: where the other end withdraws the
    /// request, or the manager gives it up for the sake of newer ones, no event says so, and [`accept`](Self::accept) fails.
    /// Programs of Linux's know it so (`ucma_event_handler` of core/ucma.c). Returns `true` if such an event waited, which is
    /// gone.
    pub fn be_quiet_before_accept(&mut self, id: CmId) -> Result<bool, RdmaError> {
        let index = self.ids.index(id)?;
        self.ids[index].conn.is_quiet = true;
        let rejected = |it: &Pending| it.event == EventType::Rejected;
        Ok(self.ids.withdraw(index, rejected))
    }

    /// The number of an id's QP while that is on its way to another state, or is to go there.
    pub fn moving_qp(&self, id: CmId) -> Result<Option<Qpn>, RdmaError> {
        let busy = self.ids.slot(id)?.work.is_busy();
        Ok(self.qp_num(id)?.filter(|_| busy))
    }

    /// The number of an id's QP, if it has one.
    pub fn qp_num(&self, id: CmId) -> Result<Option<Qpn>, RdmaError> {
        Ok(self.ids.slot(id)?.objects.qp.number().map(|(qpn, _)| qpn))
    }
}
