//! Ids and channels: creating, destroying, migrating, and the attributes of an id.

#[cfg(feature = "keep-alive")]
use core::time::Duration;

use bareverbs_core::Platform;

use crate::rdma::id::slot::{PENDING, Queue, Target};
use crate::rdma::manager::RdmaCm;
use crate::rdma::resolver::Resolver;
use crate::rdma::types::error::RdmaError;
use crate::rdma::types::{ChannelId, CmId, EventType, IdOption, IdState, IdType, PortSpace, Route};
use crate::rdma::verbs::making::QpOf;

impl<'d, P: Platform, R: Resolver> RdmaCm<'_, 'd, P, R> {
    /// Creates an event channel (`rdma_create_event_channel`).
    pub fn create_event_channel(&mut self) -> Result<ChannelId, RdmaError> {
        let capacity = self.ids.channels.len();
        let Some(index) = self.ids.channels.iter().position(|channel| !channel.used) else {
            return Err(RdmaError::Full {
                what: "event channels",
                capacity,
            });
        };
        let channel = &mut self.ids.channels[index];
        channel.used = true;
        channel.users = 0;
        channel.queue = Queue::EMPTY;
        channel.generation = channel.generation.wrapping_add(1);
        Ok(ChannelId {
            index: index as u32,
            generation: channel.generation,
        })
    }

    /// Destroys an event channel (`rdma_destroy_event_channel`). Its ids have to be destroyed, or migrated, before.
    pub fn destroy_event_channel(&mut self, channel: ChannelId) -> Result<(), RdmaError> {
        let index = self.ids.channel(channel)?;
        if self.ids.channels[index].users > 0 {
            return Err(RdmaError::WrongMode {
                call: "destroy_event_channel",
            });
        }
        self.ids.channels[index].used = false;
        self.ids.channels[index].waiters.wake();
        Ok(())
    }

    /// Creates an id (`rdma_create_id`): with a channel an asynchronous one, without one a synchronous one. `context` comes
    /// back with its events. The port space decides about the QP: `Udp` and `Ipoib` are for UD QPs, whose services are found by
    /// SIDR; `Tcp` and, unless [`create_id_of`](Self::create_id_of) says otherwise, `Ib` for RC ones. On RoCE there is no IPoIB interface, and `Ipoib` differs from `Udp` in its ports only.
    pub fn create_id(
        &mut self,
        channel: Option<ChannelId>,
        context: u64,
        port_space: PortSpace,
    ) -> Result<CmId, RdmaError> {
        self.create_id_of(
            channel,
            context,
            port_space,
            IdType::of_port_space(port_space),
        )
    }

    /// The same with the type of its QP: the one that the port space is made for, or in [`PortSpace::Ib`] any (which librdmacm
    /// creates by `rdma_create_ep` alone, from the type in its hints). A listener takes requests for its own type only.
    pub fn create_id_of(
        &mut self,
        channel: Option<ChannelId>,
        context: u64,
        port_space: PortSpace,
        id_type: IdType,
    ) -> Result<CmId, RdmaError> {
        if let Some(channel) = channel {
            self.ids.channel(channel)?;
        }
        let datagrams = matches!(port_space, PortSpace::Udp | PortSpace::Ipoib);
        if datagrams && !port_space.is_datagram() {
            return Err(RdmaError::Unsupported("a datagram service in this build"));
        }
        if !id_type.fits(port_space) {
            let left_out = match id_type {
                IdType::Ud if !cfg!(feature = "datagrams") => Some("datagrams in this build"),
                IdType::Uc if !cfg!(feature = "uc") => Some("UC in this build"),
                IdType::XrcSend | IdType::XrcRecv if !cfg!(feature = "xrc") => {
                    Some("XRC in this build")
                }
                _ => None,
            };
            let call = "create_id_of";
            let wrong = RdmaError::WrongPortSpace { call, port_space };
            return Err(left_out.map_or(wrong, RdmaError::Unsupported));
        }
        let index = self.alloc_id()?;
        let target = channel.map_or(Target::Id(index), Target::Channel);
        self.ids[index as usize].start(target, context, port_space);
        self.ids[index as usize].id_type = id_type;
        self.ids.count_user(target, true);
        Ok(self.ids.id_of(index as usize))
    }

    /// Destroys an id and everything that it owns (`rdma_destroy_id`). What is under way is called off: the other end gets
    /// a REJ or a DREQ. Events that were not fetched are dropped. What of its QP is the application's (CQs, PD, SRQ) is free
    /// when this returns, for which it waits for the firmware; a QP with CQs and PD of the manager's goes while that goes on, and one
    /// that is kept ([`recycle_qps`](Self::recycle_qps)) keeps what it uses.
    ///
    /// EBUSY, and nothing is done, while others use its SRQ.
    pub fn destroy_id(&mut self, id: CmId) -> Result<(), RdmaError> {
        let index = self.ids.index(id)?;
        self.ids[index].objects.srq_is_free()?;
        if self.ids[index].state == IdState::Listen {
            self.stop_listening(index);
        }
        self.discard(index);
        self.flush(self.now())
    }

    /// A slot for an id. If all that are left belong to ids that are gone, their objects are waited for.
    pub(crate) fn alloc_id(&mut self) -> Result<u32, RdmaError> {
        if self.ids.has_only_endings() {
            self.ids.finish_endings(self.hca.device);
        }
        self.ids.alloc()
    }

    /// Destroys the objects and connections of an id, and frees its slot.
    pub(crate) fn discard(&mut self, index: usize) {
        let now = self.now();
        let recycle = self.plan_recycling(now, index);
        if let Some(connection) = self.ids[index].conn.id.take() {
            let _ = self.engine.release(now, connection);
        }
        if cfg!(feature = "datagrams")
            && let Some(sidr) = self.ids[index].conn.sidr.take()
        {
            let _ = self.engine.sidr_release(now, sidr);
        }
        let id = self.ids.id_of(index);
        self.groups
            .leave_all(&mut self.router, id, &mut self.ids[index], now);
        self.router.stop_asking(&mut self.ids, index);
        self.ids.leave_port(index);
        self.ids.withdraw(index, |_| true);
        let target = self.ids[index].events.target;
        self.ids.count_user(target, false);
        let slot = &mut self.ids[index];
        let failing = slot.work.failing && slot.objects.srq.is_none();
        slot.work.forget_qp();
        let later = failing || recycle || slot.objects.are_own();
        if later {
            self.ids.end(index);
            self.begin_work(now, index);
            return;
        }
        // What is under way is waited for, and destroyed.
        slot.objects.qp = QpOf::None;
        slot.objects.srq = None;
        slot.objects.send_cq = None;
        slot.objects.recv_cq = None;
        slot.objects.pd = None;
        slot.objects.xrcd = None;
        self.ids.free(index);
    }

    /// Moves an id to another channel, or with `None` to synchronous operation (`rdma_migrate_id`). Events that wait move
    /// with it, behind those that wait there.
    pub fn migrate_id(&mut self, id: CmId, channel: Option<ChannelId>) -> Result<(), RdmaError> {
        let index = self.ids.index(id)?;
        let old = self.ids[index].events.target;
        let new = match channel {
            Some(channel) => {
                self.ids.channel(channel)?;
                Target::Channel(channel)
            }
            None if old == Target::Id(index as u32) => {
                return Err(RdmaError::WrongMode { call: "migrate_id" });
            }
            None => Target::Id(index as u32),
        };
        if new == old {
            return Ok(());
        }
        self.ids[index].events.target = new;
        let mut at = self.ids.queue(old).head;
        while let Some(place) = self.ids.place(at) {
            let (owner, next) = (at as usize / PENDING, place.next);
            let slot = &mut self.ids[owner];
            // Requests that were not fetched yet belong to the listener.
            if slot.conn.listen_id == Some(id)
                && slot.events.target == old
                && slot.events.has(EventType::ConnectRequest)
            {
                slot.events.target = new;
                self.ids.count_user(old, false);
                self.ids.count_user(new, true);
            }
            if self.ids[owner].events.target == new {
                self.ids.move_event(old, at, new);
            }
            at = next;
        }
        // Who waits for an event of the id itself finds that none comes there.
        self.ids[index].events.waiters.wake();
        self.ids.count_user(old, false);
        self.ids.count_user(new, true);
        Ok(())
    }

    /// Sets an option (`rdma_set_option`).
    pub fn set_option(&mut self, id: CmId, option: IdOption) -> Result<(), RdmaError> {
        if let IdOption::IbPath(path) = option {
            return self.use_path(id, &path);
        }
        let slot = self.ids.slot_mut(id)?;
        let state = slot.state;
        let wrong = Err(RdmaError::WrongState {
            call: "set_option",
            state,
        });
        match option {
            IdOption::Tos(tos) => {
                if matches!(
                    state,
                    IdState::Connect | IdState::Disconnect | IdState::Listen
                ) {
                    return wrong;
                }
                slot.options.tos = tos;
                slot.route.address.traffic_class = tos;
            }
            IdOption::ReuseAddr(on) => {
                if state != IdState::Idle && (!on || state == IdState::Listen) {
                    return wrong;
                }
                slot.options.reuse_addr = on;
            }
            IdOption::AfOnly(on) => {
                if !matches!(state, IdState::Idle | IdState::AddrBound) {
                    return wrong;
                }
                slot.options.af_only = Some(on);
            }
            IdOption::AckTimeout(exponent) => {
                // `rdma_set_ack_timeout` of Linux's core/cma.c takes it for those that wait for ACKs.
                if !matches!(slot.id_type, IdType::Rc | IdType::XrcSend) {
                    return Err(RdmaError::WrongType {
                        call: "set_option",
                        id_type: slot.id_type,
                    });
                }
                slot.options.ack_timeout = Some(exponent & 31);
            }
            IdOption::MinRnrTimer(timer) => {
                if timer > 31 {
                    return Err(RdmaError::TooMuch {
                        name: "RNR NAK timer",
                        value: timer.into(),
                        max: 31,
                    });
                }
                slot.options.min_rnr_timer = timer;
            }
            IdOption::CmTimers(timers) => slot.set_cm_timers(&mut self.engine, &timers)?,
            IdOption::AutoMra(timeout) => slot.set_auto_mra(&mut self.engine, timeout)?,
            #[cfg(feature = "keep-alive")]
            IdOption::KeepAlive(interval) => {
                if slot.objects.has_qp() {
                    return wrong;
                }
                // A shorter interval would have every poll look at all ids.
                slot.options.keep_alive = interval.map(|it| it.max(Duration::from_millis(1)));
                self.keep_alive_at = Some(Duration::ZERO);
            }
            IdOption::IbPath(_) => {}
        }
        Ok(())
    }

    /// The application's value of an id.
    pub fn context(&self, id: CmId) -> Result<u64, RdmaError> {
        Ok(self.ids.slot(id)?.context)
    }

    /// Changes the id's context.
    pub fn set_context(&mut self, id: CmId, context: u64) -> Result<(), RdmaError> {
        self.ids.slot_mut(id)?.context = context;
        Ok(())
    }

    /// The state of an id.
    pub fn state(&self, id: CmId) -> Result<IdState, RdmaError> {
        Ok(self.ids.slot(id)?.state)
    }

    /// Returns `true` if its calls wait for their outcome, since it has no event channel.
    pub fn is_synchronous(&self, id: CmId) -> Result<bool, RdmaError> {
        let index = self.ids.index(id)?;
        Ok(self.ids[index].events.target == Target::Id(index as u32))
    }

    /// The two ends of an id.
    pub fn route(&self, id: CmId) -> Result<Route, RdmaError> {
        let slot = self.ids.slot(id)?;
        // Linux's `cm_format_paths_from_req`: the id of a request has the path that the request names.
        let (path_mtu, packet_life_time) = match slot.conn.id.filter(|_| slot.conn.passive) {
            Some(connection) => {
                let asked = self.engine.qp_params(connection)?;
                (asked.path_mtu, asked.ack_timeout.saturating_sub(1))
            }
            None => (slot.route.path_mtu, slot.route.packet_life_time),
        };
        Ok(Route {
            local: slot.route.local,
            peer: slot.route.peer,
            path_mtu,
            flow_label: slot.route.address.flow_label,
            traffic_class: slot.route.address.traffic_class,
            packet_life_time,
        })
    }
}
