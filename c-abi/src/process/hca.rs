//! A device that is up: the driver's object, its connection manager, and the objects of C that its events are for.
//!
//! A device is brought up when it is first opened, and stays up until the process ends, as librdmacm keeps the devices open
//! that it has seen: [`Hca`] and its storage are never freed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bareverbs_node::cm::engine::{ListenerSlot, ReplySlot, SidrSlot, Slot};
use bareverbs_node::cm::ip::{self, Addresses, Groups, Neighbours, Route, Routes};
use bareverbs_node::cm::ipoib::PeerSlot;
use bareverbs_node::cm::rdma::{
    self, CmId, IpOverInfiniband, MemberSlot, NeighbourDiscovery, PartitionQp, PathSlot, RdmaCm,
    Resolver, SubnetAdministration, SubnetStorage,
};
use bareverbs_node::cm::sa::{self, QuestionSlot};
use bareverbs_node::verbs::{
    Config, CqSlot, Device, DeviceSlot, EthernetInit, FlightRecorder, Gid, LinkLayer, Mtu, Pd,
    PortState, QpSlot, Qpn, Record, SrqSlot, Storage,
};
use bareverbs_node::{Address, PageChunks, wait_for_link, write_report};

use crate::ethernet::rules::Raw;
use crate::process::clock::Clock;
use crate::process::failure::{Errno, Result, lock};
use crate::process::kept::keep;
pub(crate) use crate::process::kept::{P, slots};
use crate::process::registry::Registry;
use crate::process::settings;

/// The connection manager of a device.
pub(crate) type Cm = RdmaCm<'static, 'static, P, PortResolver>;

/// The resolver of a port.
type PortResolver = bareverbs_node::PortResolver<'static, 'static, P>;

/// The IP host's memory.
type Host = ip::Resources<Addresses<8>, Neighbours<1024>, Routes<2>, Groups<256>>;

/// Numbers of objects of each kind that a device has room for, some 10 MiB. `query_device` reports the smaller of these and
/// of the card's.
pub(crate) const MAX_QP: usize = 16 * 1024;
pub(crate) const MAX_CQ: usize = 32 * 1024;
pub(crate) const MAX_SRQ: usize = 8 * 1024;
/// Ids of the connection manager, of which an eighth is not for requests.
const IDS: usize = 2048;
/// Connections of the connection manager, those in timewait included.
pub(crate) const CONNECTIONS: usize = 2 * IDS;
const CHANNELS: usize = 2048;
const LISTENERS: usize = 256;
const GROUPS: usize = 256;
/// On InfiniBand: what may be asked of subnet administration at once, and the paths that are kept.
const QUESTIONS: usize = 64;
const PATHS: usize = 256;
/// Neighbours on InfiniBand.
const PEERS: usize = 1024;
/// Partitions beside the first one of the port's table in which the connection manager sends at once.
const PARTITIONS: usize = 4;
/// QPs and CQs of the connection manager itself.
pub(crate) const OWN_QUEUES: usize = 8 + PARTITIONS;
/// Chunks of memory for the firmware's pages to begin with.
const CHUNKS: usize = 256;
/// Records of the flight recorder.
const RECORDS: usize = 512;
/// The time that opening waits for the link and for the addresses.
const PATIENCE: Duration = Duration::from_secs(3);

/// The time after which a thread that waits for a transition looks again, whatever the progress thread does.
const TURN: Duration = Duration::from_millis(100);

/// A device that is up.
pub(crate) struct Hca {
    /// The driver's object.
    pub(crate) device: &'static Device<'static, P>,
    /// The protection domain of the port's own queues. It is as static as they are; who looks for lost memory finds it here.
    _pd: &'static Pd<'static, P>,
    /// The device's clock.
    pub(crate) clock: Clock,
    /// The objects of C.
    pub(crate) registry: Registry,
    /// The part that raw packet QPs have in common.
    pub(crate) raw: Raw,
    /// The connection manager; none after the end.
    manager: Mutex<Option<Cm>>,
    /// Turns of the progress thread.
    turns: Mutex<u64>,
    turned: Condvar,
    /// The progress thread was woken, and has not begun its turn.
    woken: AtomicBool,
    /// The process is about to end.
    ending: AtomicBool,
    /// The device has failed, and answers nothing any more.
    failed: AtomicBool,
}

impl Hca {
    /// Brings a device up and gives its port these addresses. Whether others have them was found out before, where it had them.
    ///
    /// A card's IPv6 addresses are probed for before they are used (RFC 4862), those of a model, whose wire joins processes,
    /// while they are used (RFC 4429): the seconds that it takes do not hold up the first call.
    pub(crate) fn bring_up(
        platform: P,
        addresses: &[Address],
        is_model: bool,
        had_them: bool,
    ) -> Result<&'static Self> {
        let mut config = ip::Config::new(random());
        if had_them {
            (config.ipv6_probes, config.announcements) = (0, 0);
        }
        #[cfg(feature = "model")]
        {
            config.optimistic = is_model;
        }
        let device = open(platform)?;
        let pd = Box::leak(Box::new(device.default_pd()?));
        let link = wait_for_link(device, PATIENCE).map(|port| port.state);
        let resolver = match device.capabilities().link_layer() {
            LinkLayer::Ethernet => neighbour_discovery(device, pd, config, addresses, link)?,
            LinkLayer::InfiniBand if settings::has_addresses() => {
                ip_over_infiniband(device, pd, config, addresses)?
            }
            LinkLayer::InfiniBand => subnet_administration()?.into(),
        };
        let mut manager = manager(device, resolver, is_model)?;
        settle(&mut manager);
        Ok(Box::leak(Box::new(Self {
            device,
            _pd: pd,
            clock: Clock::default(),
            registry: Registry::default(),
            raw: Raw::default(),
            manager: Mutex::new(Some(manager)),
            turns: Mutex::new(0),
            turned: Condvar::new(),
            woken: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            failed: AtomicBool::new(false),
        })))
    }

    /// Returns `true` if ids have GIDs for addresses here.
    pub(crate) fn is_infiniband(&self) -> bool {
        self.device.capabilities().link_layer() == LinkLayer::InfiniBand
    }

    /// Returns `true` if ids can have IP addresses here.
    pub(crate) fn has_ip(&self) -> bool {
        !self.is_infiniband() || settings::has_addresses()
    }

    /// Returns `true` if an InfiniBand port has this GID.
    pub(crate) fn has_gid(&self, gid: Gid) -> Result<bool> {
        Ok(self.is_infiniband() && self.device.query_infiniband_gid(0)? == gid)
    }

    /// The connection manager, for a call. If the call may change it, the progress thread is woken afterwards: there may be an
    /// event, or a deadline that is earlier than the one it sleeps until.
    ///
    /// # Errors
    /// ENODEV if there is none.
    pub(crate) fn manager(&self) -> Result<Manager<'_>> {
        self.manager_that_wakes(Some(self))
    }

    /// The same for what leaves the progress thread nothing to do, and for that thread itself.
    ///
    /// # Errors
    /// ENODEV if there is none.
    pub(crate) fn manager_quietly(&self) -> Result<Manager<'_>> {
        self.manager_that_wakes(None)
    }

    fn manager_that_wakes<'a>(&'a self, wakes: Option<&'a Self>) -> Result<Manager<'a>> {
        let guard = lock(&self.manager);
        if guard.is_none() {
            return Err(Errno::ENODEV);
        }
        Ok(Manager {
            guard,
            wake: WakeAfter {
                wakes,
                changed: false,
            },
        })
    }

    /// Ends the progress thread's sleep.
    pub(crate) fn wake(&self) {
        // A turn that has not begun sees what was done before.
        if !self.woken.swap(true, Ordering::AcqRel) && !self.device.wake() {
            log::error!("the device's thread cannot be woken");
        }
    }

    /// A turn of the progress thread begins: what is done from here on wakes it again.
    pub(crate) fn begin_turn(&self) {
        self.woken.swap(false, Ordering::AcqRel);
    }

    /// The time on the device's clock.
    pub(crate) fn now(&self) -> Duration {
        use bareverbs_node::verbs::Platform;
        self.device.platform().now()
    }

    /// A turn of the progress thread is over.
    pub(crate) fn end_turn(&self) {
        *lock(&self.turns) += 1;
        self.turned.notify_all();
    }

    /// Waits for a turn of the progress thread, `longest` at most.
    pub(crate) fn wait_turn(&self, longest: Duration) {
        let before = *lock(&self.turns);
        self.wait_turn_after(before, longest);
    }

    fn wait_turn_after(&self, before: u64, longest: Duration) {
        let turns = lock(&self.turns);
        drop(
            self.turned
                .wait_timeout_while(turns, longest, |turns| *turns == before),
        );
    }

    /// The device has failed: no transition ends any more.
    pub(crate) fn fail(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Waits until the connection manager has moved the QP of an id to where it is to go, or the device has failed; with a number,
    /// that QP only, which may no longer be the id's. No lock of the QP is held meanwhile: the manager takes them.
    pub(crate) fn settle(&self, id: CmId, qpn: Option<Qpn>) {
        let is_it = |moving| qpn.is_none_or(|qpn| qpn == moving);
        while !self.is_ending() && !self.failed.load(Ordering::Relaxed) {
            let before = *lock(&self.turns);
            let Ok(manager) = self.manager_quietly() else {
                return;
            };
            // An id that is gone moves nothing.
            let moving = manager.moving_qp(id).ok().flatten();
            drop(manager);
            if !moving.is_some_and(is_it) {
                return;
            }
            self.wait_turn_after(before, TURN);
        }
    }

    /// Returns `true` if the progress thread has to end.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Relaxed)
    }

    /// The process ends: connections that there still are get a DREQ or a REJ, once, as the kernel would send it.
    pub(crate) fn end(&self) {
        self.ending.store(true, Ordering::Relaxed);
        self.wake();
        // Rules stand in front of the connection manager's queue.
        self.raw.end();
        // A thread that was ended in a call still has the lock.
        let until = Instant::now() + Duration::from_millis(100);
        while Instant::now() < until {
            if let Ok(mut manager) = self.manager.try_lock() {
                drop(manager.take());
                return;
            }
            std::thread::yield_now();
        }
    }
}

/// The connection manager, locked.
pub(crate) struct Manager<'a> {
    // In this order: the thread that is woken takes the lock.
    guard: MutexGuard<'a, Option<Cm>>,
    wake: WakeAfter<'a>,
}

/// Wakes a device's progress thread when the lock was given back.
struct WakeAfter<'a> {
    wakes: Option<&'a Hca>,
    /// The manager was lent for changes.
    changed: bool,
}

impl Drop for WakeAfter<'_> {
    fn drop(&mut self) {
        if let Some(hca) = self.wakes.filter(|_| self.changed) {
            hca.wake();
        }
    }
}

impl std::ops::Deref for Manager<'_> {
    type Target = Cm;

    fn deref(&self) -> &Cm {
        match &*self.guard {
            Some(cm) => cm,
            None => unreachable!("`Hca::manager` has looked, and the lock is held since"),
        }
    }
}

impl std::ops::DerefMut for Manager<'_> {
    fn deref_mut(&mut self) -> &mut Cm {
        self.wake.changed = true;
        match &mut *self.guard {
            Some(cm) => cm,
            None => unreachable!("`Hca::manager` has looked, and the lock is held since"),
        }
    }
}

fn open(platform: P) -> Result<&'static Device<'static, P>> {
    let mut chunks = PageChunks::new(CHUNKS);
    let mut config = Config::DEFAULT;
    config.interrupts = true;
    let recorder: &FlightRecorder = &slots(1, FlightRecorder::<[Record; RECORDS]>::new)?[0];
    loop {
        let storage = Storage::new(
            Box::leak(Box::new(DeviceSlot::new())),
            slots(MAX_QP + OWN_QUEUES, QpSlot::new)?,
            slots(MAX_CQ + OWN_QUEUES, CqSlot::new)?,
            slots(MAX_SRQ, SrqSlot::new)?,
            chunks.allocate().leak(),
        )
        .record(recorder);
        match Device::open(platform.clone(), config, storage) {
            Ok(device) => return Ok(Box::leak(Box::new(device))),
            Err(error) if chunks.grow(&error) => {}
            Err(error) => {
                log::error!("{error}");
                write_report(recorder);
                return Err(Errno::EIO);
            }
        }
    }
}

/// The resolver of an Ethernet port, which gets these addresses.
fn neighbour_discovery(
    device: &'static Device<'static, P>,
    pd: &'static Pd<'static, P>,
    config: ip::Config,
    addresses: &[Address],
    link: std::result::Result<PortState, rdma::RdmaError>,
) -> Result<PortResolver> {
    let host: &mut Host = keep(Box::new(ip::Resources::new()));
    let mut neighbours =
        NeighbourDiscovery::new(device, pd, EthernetInit::default(), config, host.storage())?;
    for address in addresses {
        neighbours.add_address(address.ip, address.prefix_len(), address.vlan)?;
    }
    match link {
        Ok(PortState::Active) => {
            let deadline = {
                use bareverbs_node::verbs::Platform;
                device.platform().now() + PATIENCE
            };
            if let Err(error) = neighbours.wait_for_addresses(deadline) {
                log::error!("addresses of the port: {error}");
            }
        }
        // The addresses follow when the link is there.
        Ok(state) => log::warn!("the port is {state:?}"),
        Err(error) => log::error!("{error}"),
    }
    for gateway in addresses.iter().filter_map(|address| address.gateway) {
        let added = neighbours.host().add_route(Route::default_over(gateway));
        if let Err(error) = added {
            log::error!("gateway {gateway}: {error}");
        }
    }
    Ok(neighbours.into())
}

/// The resolver of an InfiniBand port that gets these addresses, in the partition of the settings.
fn ip_over_infiniband(
    device: &'static Device<'static, P>,
    pd: &'static Pd<'static, P>,
    config: ip::Config,
    addresses: &[Address],
) -> Result<PortResolver> {
    let host: &mut Host = keep(Box::new(ip::Resources::new()));
    let mut resolver = IpOverInfiniband::new(
        device,
        pd,
        settings::pkey()?,
        config,
        host.storage(),
        slots(PEERS, || PeerSlot::EMPTY)?,
        subnet_administration()?,
    )?;
    for address in addresses {
        resolver.add_address(address.ip, address.prefix_len())?;
    }
    for gateway in addresses.iter().filter_map(|address| address.gateway) {
        let added = resolver.host().add_route(Route::default_over(gateway));
        if let Err(error) = added {
            log::error!("gateway {gateway}: {error}");
        }
    }
    Ok(resolver.into())
}

/// The resolver of an InfiniBand port without addresses.
fn subnet_administration() -> Result<SubnetAdministration<'static>> {
    let storage = SubnetStorage {
        questions: slots(QUESTIONS, || QuestionSlot::EMPTY)?,
        paths: slots(PATHS, || PathSlot::EMPTY)?,
        members: slots(GROUPS, || MemberSlot::EMPTY)?,
    };
    Ok(SubnetAdministration::new(
        sa::Config::new(random()),
        storage,
    ))
}

/// The connection manager of a device.
fn manager(
    device: &'static Device<'static, P>,
    resolver: PortResolver,
    is_model: bool,
) -> Result<Cm> {
    let mut config = rdma::Config::new(random());
    // A network that is not known carries frames of 1500 bytes. On InfiniBand the path says what it carries.
    config.max_path_mtu = if is_model || device.capabilities().link_layer() == LinkLayer::InfiniBand
    {
        Mtu::B4096
    } else {
        Mtu::B1024
    };
    let storage = rdma::Storage {
        ids: slots(IDS, || rdma::IdSlot::EMPTY)?,
        channels: slots(CHANNELS, || rdma::ChannelSlot::EMPTY)?,
        connections: slots(CONNECTIONS, || Slot::EMPTY)?,
        listeners: slots(LISTENERS, || ListenerSlot::EMPTY)?,
        replies: slots(64, || ReplySlot::EMPTY)?,
        sidr: slots(IDS, || SidrSlot::EMPTY)?,
        groups: slots(GROUPS, || rdma::GroupSlot::EMPTY)?,
        deferred_mads: slots(2 * IDS, || rdma::DeferredMadSlot::EMPTY)?,
    };
    let mut manager = RdmaCm::new(device, resolver, config, storage)?;
    // The kernel drops a request that finds no place (`ucma_connect_event_handler` of core/ucma.c), and the other end
    // repeats it.
    manager.engine_config_mut().reject_overflow = false;
    if device.capabilities().link_layer() == LinkLayer::InfiniBand {
        match manager.set_partition_qps(slots(PARTITIONS, || PartitionQp::EMPTY)?) {
            Err(rdma::RdmaError::Unsupported(what)) => log::info!("not there: {what}"),
            done => done?,
        }
    }
    Ok(manager)
}

/// Says which addresses are another machine's, as is found out now.
pub(crate) fn report_lost_addresses(manager: &mut Cm) {
    let Some(neighbours) = manager.resolver_mut().ethernet() else {
        return;
    };
    while let Some(event) = neighbours.next_event() {
        if let ip::Event::AddressDuplicate { address, mac, .. } = event {
            let error = rdma::RdmaError::AddressInUse { address, mac };
            log::error!("addresses of the port: {error}");
        }
    }
}

/// Lets the addresses of an InfiniBand port, which needs the manager for it, become its own.
fn settle(manager: &mut Cm) {
    let end = manager.now() + PATIENCE;
    while !manager.resolver_mut().neighbours().is_settled() && manager.now() < end {
        if let Err(error) = manager.wait(end) {
            return log::error!("addresses of the port: {error}");
        }
    }
}

/// Different at each start.
fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}
