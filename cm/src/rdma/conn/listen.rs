//! Listening ids, and which of them a request is for.

use bareverbs_core::Platform;

use crate::rdma::id::slot::{IdSlot, PENDING};
use crate::rdma::manager::RdmaCm;
use crate::rdma::resolver::Resolver;
use crate::rdma::types::error::RdmaError;
use crate::rdma::types::id::{NIL, service_id};
use crate::rdma::types::{CmId, EventType, IdState, IdType, PortSpace};

/// Kinds of ids; those of one kind can share a listener of the engine.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Connections,
    Datagrams,
    Xrc,
}

impl Kind {
    const fn of(id_type: IdType) -> Self {
        if id_type.is_datagram() {
            Self::Datagrams
        } else if id_type.is_xrc() {
            Self::Xrc
        } else {
            Self::Connections
        }
    }
}

impl<P: Platform, R: Resolver> RdmaCm<'_, '_, P, R> {
    /// Waits for connections (`rdma_listen`); binds to any address and port if that was not done. Requests beyond `backlog`
    /// that were not fetched are refused, or dropped ([`reject_overflow`](crate::engine::Config::reject_overflow)); 0 and too
    /// great a value mean the maximum. An id that shares its port
    /// ([`IdOption::ReuseAddr`](crate::rdma::IdOption::ReuseAddr)) has to be the only one there.
    pub fn listen(&mut self, id: CmId, backlog: u32) -> Result<(), RdmaError> {
        let index = self.ids.index(id)?;
        if self.ids[index].id_type == IdType::XrcSend {
            return Err(RdmaError::WrongType {
                call: "listen",
                id_type: IdType::XrcSend,
            });
        }
        match self.ids[index].state {
            IdState::Idle => {
                self.bind_addr(id, self.router.any_address(self.ids[index].port_space))?;
            }
            IdState::AddrBound => {}
            state => {
                return Err(RdmaError::WrongState {
                    call: "listen",
                    state,
                });
            }
        }
        let Some(local) = self.ids[index].route.local else {
            return Err(RdmaError::NotBound);
        };
        // Ids may share a port as long as none of them listens: a listener has it by itself.
        if self.ids[index].options.reuse_addr {
            self.ids.check_port(index, local, false)?;
            self.ids[index].options.reuse_addr = false;
        }
        let max = self.config.max_backlog;
        let port = local.port();
        let port_space = self.ids[index].port_space;
        let id_type = self.ids[index].id_type;
        let service = service_id(port_space, port);
        let kind = Kind::of(id_type);
        let shared = self.ids.on_port(port_space, port, |slot| {
            if slot.state == IdState::Listen && Kind::of(slot.id_type) == kind {
                slot.conn.listener
            } else {
                None
            }
        });
        let listener = match shared {
            Some(listener) => listener,
            // The backlog is kept per id, not per port.
            None => match kind {
                Kind::Datagrams => self.engine.listen_sidr(service, u32::MAX, service)?,
                Kind::Xrc => self.engine.listen_xrc(service, u32::MAX, service)?,
                Kind::Connections => {
                    // Which of the two a request is for is looked at when the id is known.
                    let accepts_uc = cfg!(feature = "uc") && port_space == PortSpace::Ib;
                    self.engine.listen(service, u32::MAX, accepts_uc, service)?
                }
            },
        };
        let slot = &mut self.ids[index];
        slot.conn.listener = Some(listener);
        slot.conn.backlog = if backlog == 0 || backlog > max {
            max
        } else {
            backlog
        };
        slot.conn.unread = 0;
        slot.state = IdState::Listen;
        Ok(())
    }

    /// Ends listening. The id stays bound to its address, and may listen again; requests that were not fetched are gone.
    pub fn stop_listen(&mut self, id: CmId) -> Result<(), RdmaError> {
        let index = self.ids.index(id)?;
        self.stop_listening(index);
        Ok(())
    }

    /// A listener is destroyed: requests that were not fetched are destroyed with it, and the service if it was the
    /// last one on its port.
    pub(crate) fn stop_listening(&mut self, index: usize) {
        let id = self.ids.id_of(index);
        let target = self.ids[index].events.target;
        let mut at = self.ids.queue(target).head;
        while let Some(place) = self.ids.place(at) {
            let owner = at as usize / PENDING;
            at = place.next;
            let slot = &self.ids[owner];
            if slot.conn.listen_id == Some(id) && slot.events.has(EventType::ConnectRequest) {
                // Its events go with it.
                while at as usize / PENDING == owner {
                    at = self.ids.place(at).map_or(NIL, |place| place.next);
                }
                self.discard(owner);
            }
        }
        if let Some(child) = self.ids[index].conn.making_child.take()
            && let Ok(child) = self.ids.index(child)
        {
            self.discard(child);
        }
        let Some(listener) = self.ids[index].conn.listener.take() else {
            return;
        };
        self.ids[index].state = IdState::AddrBound;
        let slot = &self.ids[index];
        let (port_space, port) = (
            slot.port_space,
            slot.route.local.map_or(0, |local| local.port()),
        );
        let user = |other: &IdSlot<'_, P>| other.conn.listener.filter(|&other| other == listener);
        if self.ids.on_port(port_space, port, user).is_none() {
            let _ = self.engine.unlisten(listener);
        }
    }
}
