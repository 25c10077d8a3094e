//! The card as a node of the network: with an address, and a connection manager that finds its neighbours.

use core::time::Duration;

use bareverbs::cm::engine::{ListenerSlot, ReplySlot, Slot};
use bareverbs::cm::ip::{self, Addresses, Groups, Neighbours, Route, Routes};
use bareverbs::cm::rdma::{self, IdSlot, NeighbourDiscovery, RdmaCm, RdmaError};
use bareverbs::verbs::{Device, EthernetInit};
use kernel::clock;
use spin::Mutex;

use crate::failure::Failure;
use crate::machine::Machine;
use crate::options::Options;

/// The time that the check may take that no other host has the address.
const ALONE: Duration = Duration::from_secs(10);

/// Ids: the listener, the connections, and those who ask for one. Each takes some of the stack.
const IDS: usize = if cfg!(feature = "tasks") { 6 } else { 4 };

/// Storage of the manager and its neighbours, as far as it does not name the device. Static, as all that lasts.
struct Memory {
    neighbours: ip::Resources<Addresses<2>, Neighbours<16>, Routes<1>, Groups<8>>,
    connections: [Slot; 16],
    listeners: [ListenerSlot; 1],
    replies: [ReplySlot; 8],
}

static MEMORY: Mutex<Memory> = Mutex::new(Memory {
    neighbours: ip::Resources::new(),
    connections: [const { Slot::EMPTY }; 16],
    listeners: [const { ListenerSlot::EMPTY }; 1],
    replies: [const { ReplySlot::EMPTY }; 8],
});

/// A connection manager that finds its neighbours itself.
pub(crate) type Cm<'s, 'd> = RdmaCm<'s, 'd, Machine, NeighbourDiscovery<'s, 'd, Machine>>;

/// Gives the port its address, and lets `work` work with a connection manager.
pub(crate) fn run(
    device: &Device<'_, Machine>,
    options: &Options,
    work: impl FnOnce(&mut Cm<'_, '_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    // The connection manager's numbers have to differ from boot to boot, and between machines.
    let seed = clock::cycles()
        ^ device
            .mac()?
            .iter()
            .fold(0, |seed, &byte| seed << 8 | u64::from(byte));
    let mut memory = MEMORY.lock();
    let Memory {
        neighbours,
        connections,
        listeners,
        replies,
    } = &mut *memory;
    let pd = device.default_pd()?;
    let mut neighbours = NeighbourDiscovery::new(
        device,
        &pd,
        EthernetInit::default(),
        ip::Config::new(seed),
        neighbours.storage(),
    )?;
    neighbours.add_address(options.address, options.prefix, None)?;
    neighbours.wait_for_addresses(clock::since_boot() + ALONE)?;
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
        ids: &mut [const { IdSlot::EMPTY }; IDS],
        channels: &mut [],
        connections,
        listeners,
        replies,
        sidr: &mut [],
        groups: &mut [],
        deferred_mads: &mut [rdma::DeferredMadSlot::EMPTY; 4],
    };
    // It stays where it was made: moved, it would be on the stack twice.
    match &mut RdmaCm::new(device, neighbours, config, storage) {
        Ok(cm) => work(cm),
        Err(error) => Err((*error).into()),
    }
}
