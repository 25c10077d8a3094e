//! One node: a device, its addresses, and the connection manager on it.

use std::error::Error;
use std::net::IpAddr;
use std::time::Duration;

use bareverbs::cm::engine::{ListenerSlot, ReplySlot, SidrSlot, Slot};
use bareverbs::cm::ip::{self, Route};
use bareverbs::cm::rdma::{self, ChannelSlot, IdSlot, NeighbourDiscovery, RdmaCm};
use bareverbs::verbs::{
    self, Config, CqSlot, Device, EthernetInit, GidEntry, Mac, Mtu, PageChunk, Platform, PortState,
    QpSlot, SrqSlot,
};

use crate::link::wait_for_link;
use crate::room::with_room;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// How long the port may take to come up, and an address to be known to be nobody else's.
const LINK: Duration = Duration::from_secs(10);

/// Chunks of memory for the firmware's pages to begin with: it wants more of them for each connection.
const CHUNKS: usize = 256;

/// Connections that may be over and wait for their last packets to be gone, beside those that are not.
const ENDED: usize = 1024;

/// A connection manager that finds its neighbours itself.
pub(crate) type Cm<'s, 'd, P> = RdmaCm<'s, 'd, P, NeighbourDiscovery<'s, 'd, P>>;

/// Where a node is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// Its address.
    pub(crate) address: IpAddr,
    /// So many bits of it are those of all hosts on the link.
    pub(crate) prefix: Option<u8>,
    /// Who is asked for hosts elsewhere.
    pub(crate) gateway: Option<IpAddr>,
    /// The VLAN that this is in.
    pub(crate) vlan: Option<u16>,
}

impl From<IpAddr> for Place {
    fn from(address: IpAddr) -> Self {
        Self {
            address,
            prefix: None,
            gateway: None,
            vlan: None,
        }
    }
}

/// What a reader wants to know about the node's device.
#[derive(Debug, Clone)]
pub(crate) struct About {
    pub(crate) firmware: String,
    pub(crate) port: String,
    pub(crate) gids: Vec<(u16, GidEntry)>,
    pub(crate) commands: u64,
    pub(crate) bring_up: Duration,
}

/// How a node is to work.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    /// Sleep until there is an interrupt.
    pub(crate) interrupts: bool,
    /// The largest path MTU to ask for.
    pub(crate) mtu: Mtu,
    /// The MAC address to use instead of the port's.
    pub(crate) mac: Option<Mac>,
    /// Send messages of the CM again at the negotiated interval only.
    pub(crate) patient: bool,
    /// Room for so many connections at once.
    pub(crate) connections: usize,
}

/// Brings a device up, gives it an address, starts the connection manager, lets `work` work, and takes all of it down.
pub(crate) fn run<P: Platform + Clone, T>(
    platform: P,
    place: Place,
    settings: Settings,
    seed: u64,
    work: impl FnOnce(&mut Cm<'_, '_, P>, &About) -> Result<T>,
) -> Result<T> {
    let mut work = Some(work);
    with_room(CHUNKS, |chunks| {
        attempt(platform.clone(), chunks, place, settings, seed, &mut work)
    })
}

/// The same with so much room for the firmware's pages. If that is too little, there is no work yet.
fn attempt<P: Platform, T>(
    platform: P,
    mut chunks: Vec<PageChunk>,
    place: Place,
    settings: Settings,
    seed: u64,
    work: &mut Option<impl FnOnce(&mut Cm<'_, '_, P>, &About) -> Result<T>>,
) -> Result<T> {
    let began = platform.now();
    // One QP and two CQs for each connection, and some for the manager.
    let connections = settings.connections;
    let mut slot = verbs::DeviceSlot::new();
    let mut qps = slots(connections + 4, QpSlot::new);
    let mut cqs = slots(2 * connections + 8, CqSlot::new);
    let mut srqs = slots(1, SrqSlot::new);
    let mut config = Config::DEFAULT;
    config.interrupts = settings.interrupts;
    let storage = verbs::Storage::new(&mut slot, &mut qps, &mut cqs, &mut srqs, &mut chunks);
    let device = Device::open(platform, config, storage)?;
    let commands = device.commands_executed();
    let bring_up = device.platform().now() - began;

    if let Some(mac) = settings.mac {
        device.set_mac(mac)?;
    }
    let mac = device.mac()?;
    let port = wait_for_link(&device, LINK)?;
    if port.state != PortState::Active {
        return Err(format!("the port is {:?}: {}", port.state, device.query_link()?).into());
    }
    let mut memory = ip::Resources::<2, 64, 1, 16>::new();
    let pd = device.default_pd()?;
    let mut neighbours = NeighbourDiscovery::new(
        &device,
        &pd,
        EthernetInit::default(),
        ip::Config::new(seed),
        memory.storage(),
    )?;
    let default = if place.address.is_ipv4() { 24 } else { 64 };
    let prefix = place.prefix.unwrap_or(default);
    neighbours.add_address(place.address, prefix, place.vlan)?;
    neighbours.wait_for_addresses(device.platform().now() + LINK)?;
    if let Some(gateway) = place.gateway {
        neighbours.host().add_route(Route::default_over(gateway))?;
    }
    let about = About {
        firmware: device.capabilities().firmware.to_string(),
        port: format!(
            "{:?}, {:?}, {} Gb/s, MTU {}, MAC {}",
            port.state,
            port.link_layer,
            port.rate_mbps / 1000,
            port.active_mtu.bytes(),
            mac.map(|byte| format!("{byte:02x}")).join(":"),
        ),
        gids: device.gid_table().collect(),
        commands,
        bring_up,
    };

    let result = {
        let mut config = rdma::Config::new(seed);
        config.trace = true;
        config.max_path_mtu = settings.mtu;
        // Whoever connects may do so all at once, and be told to go before that is through.
        config.gsi_depth = (2 * connections).clamp(512, 16384) as u32;
        config.max_backlog = config.max_backlog.max(connections as u32);
        // Beside the connections' ids there are those of listeners, and more than an eighth that stays free: that is not for a
        // peer with as many connections that are not established yet, which may be all of them.
        let storage = rdma::Storage {
            ids: &mut slots(connections + connections / 4 + 8, || IdSlot::EMPTY),
            channels: &mut slots(2, || ChannelSlot::EMPTY),
            connections: &mut slots(connections + ENDED.max(connections), || Slot::EMPTY),
            listeners: &mut slots(2, || ListenerSlot::EMPTY),
            replies: &mut slots(32, || ReplySlot::EMPTY),
            sidr: &mut slots(connections, || SidrSlot::EMPTY),
            groups: &mut slots(connections, || rdma::GroupSlot::EMPTY),
            // A host of which all connections come at once, and which has to be asked for first, may have half of it.
            deferred_mads: &mut slots((2 * connections).max(64), || rdma::DeferredMadSlot::EMPTY),
        };
        let mut cm = RdmaCm::new(&device, neighbours, config, storage)?;
        if settings.patient {
            cm.engine_config_mut().timers.early = None;
        }
        let work = work.take().ok_or("the device was up before")?;
        work(&mut cm, &about)?
    };
    drop(pd);
    device.close()?;
    Ok(result)
}

/// Memory for so many of something.
fn slots<T>(count: usize, empty: fn() -> T) -> Vec<T> {
    std::iter::repeat_with(empty).take(count).collect()
}
