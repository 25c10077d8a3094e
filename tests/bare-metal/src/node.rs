//! The card, brought up with its port active, and taken down again.

use core::time::Duration;

use bareverbs::verbs::{Config, Cqs, Device, PageChunks, PortState, Qps, Resources, Srqs};
use kernel::clock;
use spin::Mutex;

use crate::failure::Failure;
use crate::machine::Machine;
use crate::options::Options;

/// The time that the port may take to come up.
const LINK: Duration = Duration::from_secs(10);

/// Connections at once: a QP each, beside those of the connection manager and its neighbours.
const QPS: usize = if cfg!(feature = "tasks") { 8 } else { 4 };

/// The driver's storage: a connection's QP, its two CQs, and the queues of the connection manager and its neighbours; 64 MiB
/// for the firmware. Static, as all that lasts: the stack is for what comes and goes.
static RESOURCES: Mutex<Resources<Qps<QPS>, Cqs<16>, Srqs<1>, PageChunks<32>>> =
    Mutex::new(Resources::new());

/// Brings the card up, lets `work` work on it, and takes it down.
pub(crate) fn run(
    machine: Machine,
    options: &Options,
    work: impl FnOnce(&Device<'_, Machine>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let began = clock::since_boot();
    let mut resources = RESOURCES.lock();
    let mut config = Config::DEFAULT;
    config.interrupts = options.interrupts;
    let device = Device::open(machine, config, resources.storage())?;
    log::info!(
        "firmware {}, up after {} commands in {:?}",
        device.capabilities().firmware,
        device.commands_executed(),
        clock::since_boot() - began
    );
    let done = wait_for_port(&device).and_then(|()| work(&device));
    // The first error is returned.
    match (done, device.close()) {
        (Ok(()), closed) => Ok(closed?),
        (Err(failure), Ok(())) => Err(failure),
        (Err(failure), Err(error)) => {
            log::error!("{error}");
            Err(failure)
        }
    }
}

fn wait_for_port(device: &Device<'_, Machine>) -> Result<(), Failure> {
    let deadline = clock::since_boot() + LINK;
    loop {
        let port = device.query_port()?;
        if port.state == PortState::Active {
            log::info!("the port is active, with an MTU of {}", port.active_mtu);
            return Ok(());
        }
        if clock::since_boot() >= deadline {
            return Err(Failure::Port(port.state));
        }
        device.wait(deadline)?;
    }
}
