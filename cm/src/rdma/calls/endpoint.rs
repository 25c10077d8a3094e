//! Endpoints: ids that are made ready in one call, and the requests of synchronous listeners.

use core::time::Duration;

use bareverbs_core::Platform;
use bareverbs_core::pd::Pd;

use crate::rdma::calls::addrinfo::AddrInfo;
use crate::rdma::id::slot::{Target, places};
use crate::rdma::manager::RdmaCm;
use crate::rdma::resolver::Resolver;
use crate::rdma::types::error::RdmaError;
use crate::rdma::types::{CmId, EventType, IdState, IdType};
use crate::rdma::verbs::making::QpOf;
use crate::rdma::verbs::making::Saved;
use crate::rdma::verbs::objects::QpInit;

/// The time that librdmacm gives each step of address resolution here.
pub(crate) const RESOLVE: Duration = Duration::from_millis(2000);

impl<'d, P: Platform, R: Resolver> RdmaCm<'_, 'd, P, R> {
    /// Makes a synchronous id from what [`getaddrinfo`](crate::rdma::getaddrinfo) found (`rdma_create_ep`).
    ///
    /// Active: address and route are resolved, and a QP is made if `init` is there, in `pd` or the default PD; the id is
    /// ready for [`connect`](Self::connect).
    ///
    /// Passive: the id is bound; `pd` and `init` are kept, and each connection that [`get_request`](Self::get_request) gives
    /// has a QP made from them. The id is ready for [`listen`](Self::listen). CQs and an SRQ in `init` are shared by all these
    /// connections; their owner goes on polling and posting, and cannot destroy them before the endpoint.
    ///
    /// [`migrate_id`](Self::migrate_id) makes the id asynchronous; [`destroy_ep`](Self::destroy_ep) ends it.
    pub fn create_ep<'q: 'd>(
        &mut self,
        address: &AddrInfo,
        pd: Option<&'d Pd<'d, P>>,
        init: Option<&mut QpInit<'_, 'q, P>>,
    ) -> Result<CmId, RdmaError> {
        let id_type = IdType::of_port_space(address.port_space);
        self.create_ep_of(address, id_type, pd, init)
    }

    /// The same with the type of the QP, as librdmacm takes it from `ai_qp_type`: in [`PortSpace::Ib`](crate::rdma::PortSpace::Ib) any.
    pub fn create_ep_of<'q: 'd>(
        &mut self,
        address: &AddrInfo,
        id_type: IdType,
        pd: Option<&'d Pd<'d, P>>,
        init: Option<&mut QpInit<'_, 'q, P>>,
    ) -> Result<CmId, RdmaError> {
        let id = self.create_id_of(None, 0, address.port_space, id_type)?;
        match self.prepare_ep(id, address, pd, init) {
            Ok(()) => Ok(id),
            Err(error) => {
                self.destroy_id(id)?;
                Err(error)
            }
        }
    }

    fn prepare_ep<'q: 'd>(
        &mut self,
        id: CmId,
        address: &AddrInfo,
        pd: Option<&'d Pd<'d, P>>,
        init: Option<&mut QpInit<'_, 'q, P>>,
    ) -> Result<(), RdmaError> {
        if address.passive {
            let source = address.src_addr.ok_or(RdmaError::NotBound)?;
            self.bind_addr(id, source)?;
            if let Some(init) = init {
                let init = init.keep();
                self.hca.check_device(pd, &init)?;
                self.ids.slot_mut(id)?.objects.qp = QpOf::Saved(Saved { pd, init });
            }
            return Ok(());
        }
        let destination = address.dst_addr.ok_or(RdmaError::NotBound)?;
        self.resolve_addr(id, address.src_addr, destination, RESOLVE)?;
        match address.route {
            Some(path) => self.use_path(id, &path)?,
            None => self.resolve_route(id, RESOLVE)?,
        }
        match init {
            Some(init) => self.create_qp(id, pd, init),
            None => Ok(()),
        }
    }

    /// Destroys an endpoint with its QP, its SRQ, and what was kept for its connections (`rdma_destroy_ep`).
    pub fn destroy_ep(&mut self, id: CmId) -> Result<(), RdmaError> {
        self.ids.slot(id)?.objects.srq_is_free()?;
        self.destroy_qp(id)?;
        self.destroy_id(id)
    }

    /// Waits for a connection request on a synchronous listener (`rdma_get_request`). The id that comes back is synchronous;
    /// it has a QP if the listener was made by [`create_ep`](Self::create_ep) with attributes for one. The request itself
    /// is its [`event`](Self::event).
    pub fn get_request(&mut self, listener: CmId) -> Result<CmId, RdmaError> {
        self.request(listener, None)
    }

    /// The same until `deadline` on the platform's clock.
    pub fn get_request_until(
        &mut self,
        listener: CmId,
        deadline: Duration,
    ) -> Result<CmId, RdmaError> {
        self.request(listener, Some(deadline))
    }

    fn request(&mut self, listener: CmId, deadline: Option<Duration>) -> Result<CmId, RdmaError> {
        self.block(deadline, |cm| cm.try_get_request(listener))
    }

    /// The same for a request that is there; `None` if there is none.
    pub fn try_get_request(&mut self, listener: CmId) -> Result<Option<CmId>, RdmaError> {
        let index = self.ids.index(listener)?;
        if !self.ids.is_sync(index) {
            return Err(RdmaError::WrongMode {
                call: "get_request",
            });
        }
        let state = self.ids[index].state;
        if state != IdState::Listen {
            return Err(RdmaError::WrongState {
                call: "get_request",
                state,
            });
        }
        if let Some(child) = self.ids[index].conn.making_child {
            return self.try_made_child(index, child);
        }
        let target = Target::Id(index as u32);
        let Some((child, pending)) = self.ids.pop(target) else {
            return Ok(None);
        };
        let (event, status) = (pending.event, pending.status);
        if event != EventType::ConnectRequest {
            if child != index {
                // A request that was withdrawn, for example: it never reached the application.
                self.discard(child);
            }
            return Err(RdmaError::Event { event, status });
        }
        self.fetch(child, pending);
        let slot = &mut self.ids[child];
        slot.events.target = Target::Id(child as u32);
        slot.events.current = Some(pending);
        // None was taken of it but the first, so that the others are in their order.
        for at in places(child) {
            self.ids.move_event(target, at, Target::Id(child as u32));
        }
        let id = self.ids.id_of(child);
        let QpOf::Saved(saved) = &self.ids[index].objects.qp else {
            return Ok(Some(id));
        };
        let (pd, mut init) = (saved.pd, saved.init.clone());
        match self.start_kept_qp(child, pd, &mut init) {
            Ok(()) => {
                self.ids[index].conn.making_child = Some(id);
                self.try_made_child(index, id)
            }
            Err(error) => {
                // Destroying the id refuses the request.
                self.destroy_id(id)?;
                Err(error)
            }
        }
    }

    /// The id of a request whose QP was begun, once that is there.
    fn try_made_child(&mut self, listener: usize, id: CmId) -> Result<Option<CmId>, RdmaError> {
        match self.try_finish_qp(id) {
            Ok(None) => return Ok(None),
            made => {
                self.ids[listener].conn.making_child = None;
                if let Err(error) = made {
                    self.destroy_id(id)?;
                    return Err(error);
                }
            }
        }
        Ok(Some(id))
    }
}
