//! Recovery from a refusal as stale (REJ 10): the other end still has a connection with a QP of this number, whose
//! owner ended without notifying it. The refusal makes the other end drop that connection, and a QP of another number
//! does not conflict with it even before.

use core::time::Duration;

use bareverbs_core::Platform;
use bareverbs_core::cq::Cq;
use bareverbs_core::qp::{Qp, QpState, Rc};

use crate::engine::State;
use crate::mad::CmaHeader;
use crate::rdma::id::slot::Objects;
use crate::rdma::manager::RdmaCm;
use crate::rdma::route::resolver::Resolver;
use crate::rdma::types::error::RdmaError;
use crate::rdma::types::{CONNECT_PRIVATE_DATA_MAX, CmId, IdState};
use crate::rdma::verbs::objects::{IdQp, PdOf, QpInit};

/// The objects that a new QP replaces.
struct Verbs<'d, P: Platform> {
    // In the order in which they have to be destroyed.
    qp: Option<IdQp<'d, P>>,
    send_cq: Option<Cq<'d, P>>,
    recv_cq: Option<Cq<'d, P>>,
    pd: Option<PdOf<'d, P>>,
}

impl<'d, P: Platform> Verbs<'d, P> {
    /// Takes them from an id.
    fn take(objects: &mut Objects<'d, P>) -> Self {
        Self {
            qp: objects.qp.take(),
            send_cq: objects.send_cq.take(),
            recv_cq: objects.recv_cq.take(),
            pd: objects.pd.take(),
        }
    }

    /// Gives them to an id.
    fn put(self, objects: &mut Objects<'d, P>) {
        // First the objects that an attempt to replace them may have left.
        objects.qp.put(self.qp);
        objects.send_cq = self.send_cq;
        objects.recv_cq = self.recv_cq;
        objects.pd = self.pd;
    }

    /// The caller's PD, if it was one.
    fn given_pd(&self) -> Option<&'d bareverbs_core::pd::Pd<'d, P>> {
        match self.pd {
            Some(PdOf::Given(pd)) => Some(pd),
            _ => None,
        }
    }
}

impl<'d, P: Platform, R: Resolver> RdmaCm<'_, 'd, P, R> {
    /// Gives an id whose attempt to connect failed a fresh QP, with another number, in the same PD, and lets it be
    /// connected again: after `Rejected` with status 10, where receives were posted or CQs are the application's, so
    /// that the manager could not do it unnoticed. What was posted to the old QP is gone with it; receives are to be
    /// posted again, and then [`connect`](Self::connect) may follow at once, since address and route stay resolved.
    /// `init` is as for [`create_qp`](Self::create_qp). After a failure nothing has changed.
    ///
    /// Not in librdmacm, where the id has to be destroyed and created again.
    pub fn renew_qp<'q: 'd>(
        &mut self,
        id: CmId,
        init: &mut QpInit<'_, 'q, P>,
    ) -> Result<(), RdmaError> {
        let index = self.ids.index(id)?;
        let slot = &self.ids[index];
        if !slot.objects.qp.is_made() {
            return Err(RdmaError::NoQp);
        }
        let failed = |state| matches!(state, State::Idle | State::Timewait);
        let over = match slot.conn.id {
            Some(connection) => self.engine.state(connection).is_ok_and(failed),
            None => false,
        };
        if slot.conn.passive || slot.state != IdState::Connect || !over {
            return Err(RdmaError::WrongState {
                call: "renew_qp",
                state: slot.state,
            });
        }
        self.ids[index].work.forget_qp();
        let old = Verbs::take(&mut self.ids[index].objects);
        let connection = self.ids[index].conn.id.take();
        if let Err(error) = self.create_qp(id, old.given_pd(), init) {
            self.ids[index].conn.id = connection;
            old.put(&mut self.ids[index].objects);
            self.ids.enter_qpn(index);
            return Err(error);
        }
        if let Some(connection) = connection {
            let _ = self.engine.release(self.now(), connection);
        }
        self.ids[index].state = IdState::RouteResolved;
        Ok(())
    }

    /// After a refusal as stale: replaces the QP, if the application cannot notice it, and asks again. False if the
    /// application has to get the refusal.
    pub(crate) fn retry_with_new_qp(&mut self, now: Duration, index: usize) -> bool {
        let slot = &mut self.ids[index];
        let own_cqs = slot.objects.send_cq.is_some() && slot.objects.recv_cq.is_some();
        let Some(IdQp::Rc(qp)) = slot.objects.qp.as_mut() else {
            return false;
        };
        if slot.conn.passive || slot.conn.stale_retries == 0 || !own_cqs || !is_untouched(qp) {
            return false;
        }
        let (cap, sq_sig_all) = (qp.cap(), qp.sq_sig_all());
        slot.conn.stale_retries -= 1;
        let old = Verbs::take(&mut self.ids[index].objects);
        let mut init = QpInit {
            send_cq: old.send_cq.as_ref(),
            recv_cq: old.recv_cq.as_ref(),
            srq: None,
            cap,
            sq_sig_all,
        };
        let id = self.ids.id_of(index);
        // A rare case, for which this waits.
        let again = self
            .start_qp(id, old.given_pd(), &mut init)
            .and_then(|()| self.wait_for_qp(index))
            .and_then(|()| self.repeat_request(now, index));
        match again {
            Ok(()) => {
                let slot = &mut self.ids[index];
                (slot.objects.send_cq, slot.objects.recv_cq) = (old.send_cq, old.recv_cq);
                true
            }
            Err(error) => {
                log::warn!("no second attempt after a refusal as stale: {error}");
                self.forget_qp(index);
                old.put(&mut self.ids[index].objects);
                self.ids.enter_qpn(index);
                false
            }
        }
    }

    /// Sends the REQ once more, for the QP that the id has now.
    fn repeat_request(&mut self, now: Duration, index: usize) -> Result<(), RdmaError> {
        let slot = &self.ids[index];
        let (Some(local), Some(peer), Some(old)) =
            (slot.route.local, slot.route.peer, slot.conn.id)
        else {
            return Err(RdmaError::NotBound);
        };
        let qp = slot.objects.qp.as_ref().ok_or(RdmaError::NoQp)?;
        let mut data = [0; CmaHeader::LEN + CONNECT_PRIVATE_DATA_MAX];
        let start = self
            .router
            .begin_request(local, peer, slot.route.ip, &mut data)?;
        let len = usize::from(slot.events.private_len).min(data.len() - start);
        data[start..start + len].copy_from_slice(&slot.events.private[..len]);
        let data = &data[..start + len];
        let new = self.engine.retry(now, old, qp.qpn().number(), data)?;
        let _ = self.engine.release(now, old);
        self.ids[index].conn.id = Some(new);
        Ok(())
    }
}

/// Whether a QP is as it was created, with a receive queue of its own: no completion of it is expected.
fn is_untouched<P: Platform>(qp: &mut Qp<'_, P, Rc>) -> bool {
    let receives = qp.cap().max_recv_wr;
    qp.state() == QpState::Init && receives > 0 && qp.recv_queue().free() == receives
}
