//! The manager: what it is made of, and the loop that drives it.

use core::fmt;
use core::time::Duration;

use bareverbs_core::{AsyncEvent, Device, Gid, Mtu, Platform, PortAttr, VectorSet};

use crate::engine::{self, Engine, Transmit};
use crate::mad::sa::SA_CLASS;
use crate::mad::{GSI_QKEY, GSI_QPN, MAD_LEN, RejectReason};
use crate::rdma::id::table::{IdTable, PortRange};
use crate::rdma::id::work_list::WorkList;
use crate::rdma::port::gsi::{GsiPort, Received, SLICE};
#[cfg(feature = "infiniband")]
use crate::rdma::port::partitions::PartitionQps;
use crate::rdma::port::trace::Trace;
use crate::rdma::resolver::{Resolver, Subnet};
use crate::rdma::route::deferred::DeferredMad;
use crate::rdma::route::joining::Groups;
use crate::rdma::route::return_path::ReturnPath;
use crate::rdma::route::router::Router;
use crate::rdma::storage::Storage;
use crate::rdma::types::TraceEntry;
use crate::rdma::types::awaited::Watch;
use crate::rdma::types::error::RdmaError;
use crate::rdma::verbs::hca::Hca;
use crate::rdma::verbs::making::QpOf;
use crate::rdma::verbs::pool::QpPool;

/// Settings of a manager.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Seed of communication IDs, PSNs and ports. Has to differ from boot to boot.
    pub seed: u64,
    /// Receive buffers of QP1. Bursts of more messages are lost.
    pub gsi_depth: u32,
    /// First port that is given to ids which do not ask for one.
    pub first_port: u16,
    /// Last port that is given to ids which do not ask for one.
    pub last_port: u16,
    /// The longest backlog of a listener.
    pub max_backlog: u32,
    /// The largest path MTU to ask for, as far as the port has it. The manager does not know the MTU of the path
    /// to a peer: Linux derives its own from the network interface (1500 bytes: a path MTU of 1024) and refuses more.
    pub max_path_mtu: Mtu,
    /// The number of times that an attempt is made again which is refused as stale: the first time after half a second, and each
    /// further time after twice as long.
    pub stale_retries: u8,
    /// Keep a trace of the messages ([`RdmaCm::next_trace`]).
    pub trace: bool,
}

impl Config {
    /// The defaults; Linux's where it has one. There is no `Default`, as there is none for the seed: a constant would let peers
    /// take the connections of one boot for those of the one before.
    pub const fn new(seed: u64) -> Self {
        Self {
            seed,
            gsi_depth: 512,
            first_port: 32768,
            last_port: 60999,
            max_backlog: 1024,
            max_path_mtu: Mtu::B4096,
            stale_retries: 4,
            trace: false,
        }
    }
}

/// The RDMA CM of one device.
///
/// `'s` is the storage's lifetime, `'d` that of the device and of the PDs that are given to ids; `R` finds neighbours.
///
/// # Methods, in the order of use
///
/// With librdmacm's names.
///
/// * **Event channels and ids**:
///   [`create_event_channel`](Self::create_event_channel) (`rdma_create_event_channel`),
///   [`create_id`](Self::create_id) (`rdma_create_id`), [`create_ep`](Self::create_ep) (`rdma_create_ep`),
///   [`set_option`](Self::set_option) (`rdma_set_option`), [`migrate_id`](Self::migrate_id) (`rdma_migrate_id`),
///   [`destroy_ep`](Self::destroy_ep) (`rdma_destroy_ep`), [`destroy_id`](Self::destroy_id) (`rdma_destroy_id`),
///   [`destroy_event_channel`](Self::destroy_event_channel) (`rdma_destroy_event_channel`)
/// * **Addresses**:
///   [`bind_addr`](Self::bind_addr) (`rdma_bind_addr`), [`resolve_addr`](Self::resolve_addr) (`rdma_resolve_addr`),
///   [`resolve_route`](Self::resolve_route) (`rdma_resolve_route`),
///   [`get_local_addr`](Self::get_local_addr) (`rdma_get_local_addr`),
///   [`get_peer_addr`](Self::get_peer_addr) (`rdma_get_peer_addr`),
///   [`get_src_port`](Self::get_src_port) (`rdma_get_src_port`),
///   [`get_dst_port`](Self::get_dst_port) (`rdma_get_dst_port`)
/// * **Connecting**:
///   [`listen`](Self::listen) (`rdma_listen`), [`get_request`](Self::get_request) (`rdma_get_request`),
///   [`connect`](Self::connect) (`rdma_connect`), [`accept`](Self::accept) (`rdma_accept`),
///   [`reject`](Self::reject) (`rdma_reject`), [`establish`](Self::establish) (`rdma_establish`),
///   [`disconnect`](Self::disconnect) (`rdma_disconnect`),
///   [`set_local_ece`](Self::set_local_ece) (`rdma_set_local_ece`),
///   [`get_remote_ece`](Self::get_remote_ece) (`rdma_get_remote_ece`),
///   [`join_multicast`](Self::join_multicast) (`rdma_join_multicast`),
///   [`leave_multicast`](Self::leave_multicast) (`rdma_leave_multicast`)
/// * **Events**:
///   [`get_cm_event`](Self::get_cm_event) (`rdma_get_cm_event`), [`try_get_cm_event`](Self::try_get_cm_event),
///   [`get_cm_event_until`](Self::get_cm_event_until), [`event`](Self::event) (`id->event`),
///   [`ack_cm_event`](Self::ack_cm_event) (`rdma_ack_cm_event`),
///   [`write_cm_event`](Self::write_cm_event) (`rdma_write_cm_event`), [`notify`](Self::notify) (`rdma_notify`),
///   [`last_error`](Self::last_error), [`poll`](Self::poll), [`wait`](Self::wait)
/// * **Queue pairs**:
///   [`create_qp`](Self::create_qp) (`rdma_create_qp`), [`create_qp_ex`](Self::create_qp_ex) (`rdma_create_qp_ex`),
///   [`start_qp`](Self::start_qp), [`try_finish_qp`](Self::try_finish_qp),
///   [`recycle_qps`](Self::recycle_qps), [`destroy_kept_qps`](Self::destroy_kept_qps),
///   [`init_qp_attr`](Self::init_qp_attr) (`rdma_init_qp_attr`),
///   [`create_srq`](Self::create_srq) (`rdma_create_srq`), [`destroy_qp`](Self::destroy_qp) (`rdma_destroy_qp`),
///   [`destroy_srq`](Self::destroy_srq) (`rdma_destroy_srq`), [`endpoint`](Self::endpoint) (`id->qp`)
/// * **Data**:
///   [`reg_msgs`](Self::reg_msgs) (`rdma_reg_msgs`), [`reg_read`](Self::reg_read) (`rdma_reg_read`),
///   [`reg_write`](Self::reg_write) (`rdma_reg_write`), [`reg`](Self::reg), [`post_recv`](Self::post_recv) (`rdma_post_recv`),
///   [`post_send`](Self::post_send) (`rdma_post_send`), [`post_sendv`](Self::post_sendv) (`rdma_post_sendv`),
///   [`post_read`](Self::post_read) (`rdma_post_read`), [`post_write`](Self::post_write) (`rdma_post_write`),
///   [`post_write_imm`](Self::post_write_imm),
///   [`post_ud_send`](Self::post_ud_send) (`rdma_post_ud_send`),
///   [`get_send_comp`](Self::get_send_comp) (`rdma_get_send_comp`),
///   [`get_recv_comp`](Self::get_recv_comp) (`rdma_get_recv_comp`), [`try_get_send_comp`](Self::try_get_send_comp),
///   [`try_get_recv_comp`](Self::try_get_recv_comp)
pub struct RdmaCm<'s, 'd, P: Platform, R> {
    pub(crate) hca: Hca<'d, P>,
    pub(crate) gsi: GsiPort<'d, P>,
    pub(crate) trace: Trace,
    pub(crate) engine: Engine<'s>,
    pub(crate) ids: IdTable<'s, 'd, P>,
    pub(crate) groups: Groups<'s>,
    pub(crate) router: Router<'s, 'd, P, R>,
    pub(crate) config: Config,
    pub(crate) work: WorkList,
    pub(crate) pool: QpPool<'s, 'd, P>,
    #[cfg(feature = "infiniband")]
    pub(crate) partitions: Option<PartitionQps<'s, 'd, P>>,
    /// A call on a synchronous id returns at once: its outcome is waited for elsewhere.
    pub(crate) waits_elsewhere: bool,
    pub(crate) watched: Option<Watch>,
    /// The time of the next look at the ids with keep-alives.
    #[cfg(feature = "keep-alive")]
    pub(crate) keep_alive_at: Option<Duration>,
}

impl<P: Platform, R> fmt::Debug for RdmaCm<'_, '_, P, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RdmaCm")
            .field("ids", &self.ids.in_use())
            .field("connections", &self.engine.in_use())
            .finish_non_exhaustive()
    }
}

impl<'s, 'd, P: Platform, R: Resolver> RdmaCm<'s, 'd, P, R> {
    /// Takes QP1 of the device and starts to answer.
    #[inline(never)]
    pub fn new(
        device: &'d Device<'d, P>,
        resolver: R,
        config: Config,
        storage: Storage<'s, 'd, P>,
    ) -> Result<Self, RdmaError> {
        let Storage {
            ids,
            channels,
            connections,
            listeners,
            replies,
            sidr,
            groups,
            deferred_mads,
        } = storage;
        let port = device.query_port()?;
        let mut engine_config = engine::Config::new(config.seed, port.node_guid);
        engine_config.max_mtu = port.active_mtu.number();
        engine_config.ack_delay = device.capabilities().hca.local_ca_ack_delay();
        // QP1 first: nothing works without it.
        let gsi = GsiPort::open(device, config.gsi_depth)?;
        let mut engine = Engine::new(
            engine_config,
            engine::Storage {
                connections,
                listeners,
                replies,
                sidr,
                ..engine::Storage::default()
            },
        );
        let span = u32::from(config.last_port.saturating_sub(config.first_port)) + 1;
        let ports = PortRange {
            first: config.first_port.max(1),
            last: config.last_port,
            next: config.first_port + (engine.random() % u64::from(span)) as u16,
        };
        let router = Router::new(device, port, resolver, config.max_path_mtu, deferred_mads)?;
        Ok(Self {
            hca: Hca::new(device),
            gsi,
            trace: Trace::new(config.trace),
            engine,
            ids: IdTable::new(ids, channels, ports),
            groups: Groups::new(groups),
            router,
            config,
            work: WorkList::EMPTY,
            pool: QpPool::new(&mut []),
            #[cfg(feature = "infiniband")]
            partitions: None,
            waits_elsewhere: false,
            watched: None,
            #[cfg(feature = "keep-alive")]
            keep_alive_at: None,
        })
    }

    /// The device.
    pub const fn device(&self) -> &'d Device<'d, P> {
        self.hca.device
    }

    /// The port, as it was when the manager was made.
    pub const fn port(&self) -> &PortAttr {
        self.router.port()
    }

    /// Settings of the engine, to be changed: those of all connections, and of the defence against floods. Connections that
    /// exist keep what they have.
    pub const fn engine_config_mut(&mut self) -> &mut engine::Config {
        self.engine.config_mut()
    }

    /// The engine's counters.
    pub const fn stats(&self) -> &engine::Stats {
        self.engine.stats()
    }

    /// Number of times that QP1 was started again after a work request of it failed.
    pub const fn gsi_restarts(&self) -> u64 {
        self.gsi.restarts
    }

    /// Ids in use.
    pub const fn ids_in_use(&self) -> usize {
        self.ids.in_use()
    }

    /// Connections in use, those that only wait for their end included.
    pub const fn connections_in_use(&self) -> usize {
        self.engine.in_use()
    }

    /// The resolver, which finds neighbours.
    pub const fn resolver_mut(&mut self) -> &mut R {
        &mut self.router.resolver
    }

    /// The time on the platform's clock.
    pub fn now(&self) -> Duration {
        self.hca.device.platform().now()
    }

    /// Drives everything: the device's events, MADs, timers, answers of the firmware, and what follows from them. It waits
    /// for none of them. To be called in the
    /// application's loop, at [`next_deadline`](Self::next_deadline) at the latest. With interrupts, whatever comes after it
    /// has returned raises one.
    pub fn poll(&mut self, now: Duration) -> Result<(), RdmaError> {
        if let Err(error) = self.hca.device.poll() {
            self.ids.remove();
            return Err(error.into());
        }
        self.router.poll(&mut self.ids, now)?;
        self.groups.ask(&mut self.router, &mut self.ids, now);
        for _ in 0..self.router.deferred_mads() {
            if let Some(deferred) = self.router.next_deferred_mad() {
                self.dispatch_mad(now, &deferred);
            }
        }
        loop {
            self.receive(now)?;
            self.poll_partitions()?;
            // After what has arrived: an application that did not poll for longer than a timer repeats no message that was
            // answered meanwhile, and gives up no connection.
            self.engine.handle_timeout(now);
            self.process_events(now);
            self.work(now);
            #[cfg(feature = "keep-alive")]
            if self.keep_alive_at.is_some_and(|at| now >= at) {
                self.keep_alive(now);
            }
            self.flush(now)?;
            self.say_what_is_awaited(now);
            // What waits for a command inside consumes interrupts, also those of MADs: repeat until none came.
            if !self.gsi.arm() {
                return Ok(());
            }
        }
    }

    /// When [`poll`](Self::poll) has to be called at the latest, if nothing arrives before: a timer of a connection, a look
    /// at the device's health ([`Device::next_deadline`]), or soon, while an address is being resolved.
    pub fn next_deadline(&self, now: Duration) -> Option<Duration> {
        let deadlines = [
            self.next_answer(now),
            self.router.next_deadline(now),
            self.engine.next_deadline(),
            self.hca.device.next_deadline(),
            self.watched_id_waits().map(|watch| watch.until),
            #[cfg(feature = "keep-alive")]
            self.keep_alive_at,
        ];
        deadlines.into_iter().flatten().min()
    }

    /// When to look for answers of the firmware: at once where they make no interrupts, and where one is lost.
    fn next_answer(&self, now: Duration) -> Option<Duration> {
        let waits = self.work.is_busy() || self.partitions_wait();
        let interrupts = self.hca.device.config().interrupts;
        waits.then(|| match interrupts {
            true => now.saturating_add(SLICE),
            false => now,
        })
    }

    /// The MSI-X vectors of the manager, its CQs and those that it makes for ids: an application with its own event
    /// loop listens to them.
    pub fn vectors(&self) -> VectorSet {
        VectorSet::one(0).union(VectorSet::one(self.hca.device.interrupt_vector(0)))
    }

    /// Sleeps until there may be something new, or until `deadline` on the platform's clock, and [`poll`](Self::poll)s. For
    /// loops that wait for several events at once: look for each without blocking
    /// ([`try_get_cm_event`](Self::try_get_cm_event), [`try_get_recv_comp`](Self::try_get_recv_comp)), then wait.
    pub fn wait(&mut self, deadline: Duration) -> Result<(), RdmaError> {
        let until = self.next_deadline(self.now());
        let until = until.map_or(deadline, |until| until.min(deadline));
        // The poll finds the same error, and reports it to the ids.
        let _ = self.hca.device.wait_for(self.vectors(), until);
        self.poll(self.now())
    }

    /// Passes an asynchronous event of the device to the manager. `CommunicationEstablished` stands in for an RTU that
    /// was lost; after `DeviceFatal` every id sees `DeviceRemoval`. On InfiniBand what changes of the port or its
    /// subnet manager (`PortActive`, `LidChange`, `GidChange`, `PkeyChange`, `ClientReregister`) makes the manager query
    /// everything again and join its groups again. `PathMigrated` and `PathMigrationError` become events of the id, if it
    /// has an alternate path. The others change nothing here.
    pub fn handle_async_event(&mut self, event: &AsyncEvent) {
        match event {
            AsyncEvent::CommunicationEstablished { qpn } => {
                let id = self.ids.find_qpn(*qpn);
                if let Some(connection) = id.and_then(|index| self.ids[index].conn.id) {
                    let _ = self.engine.notify_established(connection);
                    self.process_events(self.now());
                }
            }
            AsyncEvent::DeviceFatal(_) => self.ids.remove(),
            #[cfg(feature = "infiniband")]
            AsyncEvent::PathMigrated { qpn } => self.on_migrated(*qpn),
            #[cfg(feature = "infiniband")]
            AsyncEvent::PathMigrationError { qpn } => self.on_migration_error(*qpn),
            AsyncEvent::PortActive { .. }
            | AsyncEvent::LidChange { .. }
            | AsyncEvent::GidChange { .. }
            | AsyncEvent::PkeyChange { .. }
            | AsyncEvent::ClientReregister { .. } => {
                self.partitions_changed();
                self.router.port_changed(self.hca.device.platform().now())
            }
            _ => {}
        }
    }

    /// The next message of the trace, oldest first; the oldest ones are lost when they are not fetched.
    pub fn next_trace(&mut self) -> Option<TraceEntry> {
        self.trace.pop()
    }

    /// Hands what arrived on QP1 to the engine.
    pub(crate) fn receive(&mut self, now: Duration) -> Result<(), RdmaError> {
        let mut arrived = DeferredMad {
            received: Received::EMPTY,
            since: now,
        };
        while self.gsi.receive(&mut arrived.received)? {
            let Received { source, mad, .. } = &arrived.received;
            let now_exactly = || self.hca.device.platform().now();
            self.trace.record(now_exactly, false, false, *source, mad);
            self.dispatch_mad(now, &arrived);
            // A burst must not fill the ring of answers.
            self.process_events(now);
            self.flush(now)?;
        }
        Ok(())
    }

    /// Hands a MAD to the engine, now or once its sender's address is resolved: a peer may have this host's address
    /// while this host does not have the peer's, and the peer would send again only after seconds.
    pub(crate) fn dispatch_mad(&mut self, now: Duration, deferred: &DeferredMad) {
        let received = &deferred.received;
        if self.router.is_infiniband() && received.mad[1] == SA_CLASS {
            if self.router.handle_subnet_mad(&mut self.ids, now, received) {
                self.groups.ask(&mut self.router, &mut self.ids, now);
            }
            return;
        }
        let mad = &received.mad;
        let taken = match self.router.return_path(now, received) {
            ReturnPath::Found(address) => self.engine.handle_mad(now, &address, mad),
            ReturnPath::Refuse(address) => {
                self.engine
                    .refuse_request(&address, mad, RejectReason::INVALID_GID)
            }
            ReturnPath::Pending => return self.router.defer(now, *deferred),
            ReturnPath::None => return,
        };
        if let Err(ignored) = taken {
            let (source, lid) = (received.source, received.local.slid);
            log::debug!("from {source}, LID {lid:#x}: {ignored}");
        }
    }

    /// Sends the messages of the engine and the resolver.
    pub(crate) fn flush(&mut self, now: Duration) -> Result<(), RdmaError> {
        let mut mad = [0; MAD_LEN];
        while self.can_send()? {
            let Some(transmit) = self.engine.poll_transmit(now, &mut mad) else {
                break;
            };
            self.record_sent(&transmit, &mad);
            self.send_mad(&transmit.address, GSI_QPN, GSI_QKEY, &mad)?;
        }
        while self.router.is_infiniband()
            && self.can_send()?
            && self
                .router
                .resolver
                .subnet_mut()
                .poll_transmit(now, &mut mad)
        {
            let (address, qpn, qkey) = match self.router.resolver.subnet_mut().redirection() {
                Some(to) => (self.router.redirected_address(&to), to.qpn, to.qkey),
                None => (self.router.sa_address(), GSI_QPN, GSI_QKEY),
            };
            self.send_mad(&address, qpn, qkey, &mad)?;
        }
        Ok(())
    }

    /// Records a message that is about to be sent.
    pub(crate) fn record_sent(&mut self, transmit: &Transmit, mad: &[u8; MAD_LEN]) {
        let peer = Gid(transmit.address.remote_gid).to_ipv6().to_canonical();
        let now = || self.hca.device.platform().now();
        self.trace.record(now, true, transmit.repeated, peer, mad);
    }

    /// Polls and sleeps until `done` gives something, or until `deadline`.
    pub(crate) fn block<T>(
        &mut self,
        deadline: Option<Duration>,
        mut done: impl FnMut(&mut Self) -> Result<Option<T>, RdmaError>,
    ) -> Result<T, RdmaError> {
        self.poll(self.now())?;
        loop {
            if let Some(outcome) = done(self)? {
                return Ok(outcome);
            }
            let now = self.now();
            if deadline.is_some_and(|deadline| now >= deadline) {
                return Err(RdmaError::TimedOut);
            }
            self.wait(deadline.unwrap_or(Duration::MAX))?;
        }
    }
}

impl<P: Platform, R> Drop for RdmaCm<'_, '_, P, R> {
    /// Ends the connections that there are: the other ends get a DREQ or a REJ, once and unacknowledged. Then takes QP1 down
    /// and destroys what the ids own. An orderly shutdown disconnects first.
    fn drop(&mut self) {
        self.disconnect_all();
        self.gsi.close();
        #[cfg(feature = "infiniband")]
        if let Some(partitions) = &mut self.partitions {
            partitions.close();
        }
        for group in self.groups.iter_mut() {
            if let Some(id) = group.owner.take() {
                let slot = self.ids.get_mut(id.index as usize);
                group.detach(slot.and_then(|slot| slot.objects.qp.as_mut()));
            }
        }
        self.ids.finish_endings(self.hca.device);
        self.pool.clear();
        // Objects that ids share are destroyed after all their users.
        for slot in self.ids.iter_mut() {
            slot.objects.qp = QpOf::None;
        }
        for slot in self.ids.iter_mut() {
            slot.objects.srq = None;
            slot.objects.send_cq = None;
            slot.objects.recv_cq = None;
            slot.objects.pd = None;
            slot.objects.xrcd = None;
            slot.used = false;
            slot.links.generation = slot.links.generation.wrapping_add(1);
        }
    }
}
