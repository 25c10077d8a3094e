//! One node: a device, its addresses, and the connection manager on it.

use std::error::Error;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bareverbs::cm::rdma::{self, Neighbour, RdmaCm, Resolution, Resolver, StaticNeighbours};
use bareverbs::verbs::{Config, Device, Gid, GidEntry, Mac, Mtu, Platform, PortState, Resources};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// How long the port may take to come up.
const LINK: Duration = Duration::from_secs(10);

/// How long to sleep at most when nothing happens; a card that has fallen off the bus is noticed as late.
const SLEEP: Duration = Duration::from_millis(500);

/// What a reader wants to know about the node's device.
#[derive(Debug, Clone)]
pub(crate) struct About {
    pub(crate) firmware: String,
    pub(crate) port: String,
    pub(crate) mac: Mac,
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
}

/// Brings a device up, gives it an address, starts the connection manager, lets `work` work, and takes all of it down.
pub(crate) fn run<P: Platform + 'static, R: Resolver, T>(
    platform: P,
    address: IpAddr,
    resolver: R,
    settings: Settings,
    seed: u64,
    work: impl FnOnce(&mut RdmaCm<'_, '_, P, R>, &About) -> Result<T>,
) -> Result<T> {
    let began = platform.now();
    let mut resources = Box::new(Resources::<8, 16, 1, 256>::new());
    let mut config = Config::DEFAULT;
    config.interrupts = settings.interrupts;
    if settings.interrupts {
        // One thread drives the device.
        config.interrupt_slice = SLEEP;
    }
    let device = Device::open(platform, config, resources.storage())?;
    let commands = device.commands_executed();
    let bring_up = device.platform().now() - began;

    let mac = device.mac()?;
    let gids = [Gid::link_local(mac), address.into()];
    for gid in gids {
        let index = device.free_gid_index().ok_or("the GID table is full")?;
        device.set_gid(index, GidEntry::roce_v2(gid, mac))?;
    }
    let deadline = device.platform().now() + LINK;
    let port = loop {
        let port = device.query_port()?;
        if port.state == PortState::Active {
            break port;
        }
        if device.platform().now() >= deadline {
            return Err(format!("the port is {:?}; is the cable plugged in?", port.state).into());
        }
        device.wait(deadline)?;
    };
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
        mac,
        gids: device.gid_table().collect(),
        commands,
        bring_up,
    };

    let result = {
        let mut storage = Box::new(rdma::Resources::<P, 8, 2>::new());
        let config = rdma::Config {
            trace: true,
            gsi_depth: 64,
            max_path_mtu: settings.mtu,
            ..rdma::Config::new(seed)
        };
        let mut cm = RdmaCm::new(&device, resolver, config, storage.storage())?;
        work(&mut cm, &about)?
    };
    device.close()?;
    Ok(result)
}

/// Who is where, told by those who are there.
#[derive(Default)]
pub(crate) struct Neighbourhood(Mutex<Vec<(IpAddr, Mac)>>);

impl Neighbourhood {
    pub(crate) fn add(&self, address: IpAddr, mac: Mac) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.push((address, mac));
    }
}

impl Resolver for &Neighbourhood {
    fn resolve(&mut self, now: Duration, source: IpAddr, destination: IpAddr) -> Resolution {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        StaticNeighbours(&known).resolve(now, source, destination)
    }
}

/// Everybody is at this MAC address: the one at the other end of the cable, or a router.
pub(crate) struct OnePeer(pub(crate) Mac);

impl Resolver for OnePeer {
    fn resolve(&mut self, _: Duration, _: IpAddr, _: IpAddr) -> Resolution {
        Resolution::Found(Neighbour::new(self.0))
    }
}
