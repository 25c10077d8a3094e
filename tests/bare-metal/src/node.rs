//! The card as a node of the network: brought up, with an address, and a connection manager that finds its neighbours.

use core::time::Duration;

use bareverbs::cm::engine::{ListenerSlot, ReplySlot, Slot};
use bareverbs::cm::ip::{self, Route};
use bareverbs::cm::rdma::{self, IdSlot, NeighbourDiscovery, RdmaCm, RdmaError};
use bareverbs::verbs::{Config, Device, EthernetInit, PortState, Resources};

use kernel::clock;

use crate::failure::Failure;
use crate::machine::Machine;
use crate::options::Options;

/// How long the port may take to come up, and an address to be known to be nobody else's.
const LINK: Duration = Duration::from_secs(10);

/// A connection manager that finds its neighbours itself.
pub(crate) type Cm<'s, 'd> = RdmaCm<'s, 'd, Machine, NeighbourDiscovery<'s, 'd, Machine>>;

/// Brings the card up, gives it its address, lets `work` work, and takes all of it down.
pub(crate) fn run(
    machine: Machine,
    options: &Options,
    work: impl FnOnce(&mut Cm<'_, '_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let began = clock::since_boot();
    // A connection's QP, its two CQs, and what the manager and its neighbours need; 64 MiB for the firmware.
    let mut resources = Resources::<4, 16, 1, 32>::new();
    let mut config = Config::DEFAULT;
    config.interrupts = options.interrupts;
    let device = Device::open(machine, config, resources.storage())?;
    log::info!(
        "firmware {}, up after {} commands in {:?}",
        device.capabilities().firmware,
        device.commands_executed(),
        clock::since_boot() - began
    );
    let done = on_device(&device, options, work);
    // What went wrong first is what is told.
    match (done, device.close()) {
        (Ok(()), closed) => Ok(closed?),
        (Err(failure), Ok(())) => Err(failure),
        (Err(failure), Err(error)) => {
            log::error!("{error}");
            Err(failure)
        }
    }
}

fn on_device(
    device: &Device<'_, Machine>,
    options: &Options,
    work: impl FnOnce(&mut Cm<'_, '_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let deadline = clock::since_boot() + LINK;
    loop {
        let port = device.query_port()?;
        if port.state == PortState::Active {
            break;
        }
        if clock::since_boot() >= deadline {
            return Err(Failure::Port(port.state));
        }
        device.wait(deadline)?;
    }
    // The connection manager's numbers have to differ from boot to boot, and between machines.
    let seed = clock::cycles()
        ^ device
            .mac()?
            .iter()
            .fold(0, |seed, &byte| seed << 8 | u64::from(byte));
    let mut memory = ip::Resources::<2, 16, 1, 8>::new();
    let pd = device.default_pd()?;
    let mut neighbours = NeighbourDiscovery::new(
        device,
        &pd,
        EthernetInit::default(),
        ip::Config::new(seed),
        memory.storage(),
    )?;
    neighbours.add_address(options.address, options.prefix, None)?;
    neighbours.wait_for_addresses(clock::since_boot() + LINK)?;
    if let Some(gateway) = options.gateway {
        let route = Route::default_over(gateway);
        neighbours
            .host()
            .add_route(route)
            .map_err(RdmaError::from)?;
    }
    let mut config = rdma::Config::new(seed);
    config.max_path_mtu = options.mtu;
    config.gsi_depth = 64;
    config.max_backlog = 4;
    let storage = rdma::Storage {
        ids: &mut [const { IdSlot::EMPTY }; 4],
        channels: &mut [],
        connections: &mut [const { Slot::EMPTY }; 16],
        listeners: &mut [const { ListenerSlot::EMPTY }; 1],
        replies: &mut [const { ReplySlot::EMPTY }; 8],
        sidr: &mut [],
        groups: &mut [],
    };
    let mut cm = RdmaCm::new(device, neighbours, config, storage)?;
    work(&mut cm)
}
