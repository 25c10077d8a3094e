//! The device models of this process, and the network between them.

// UNSAFETY: registers a function to be called at the end of the process.
#![expect(unsafe_code)]

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use bareverbs_in_process::subnet::{Subnet, infiniband_port};
use bareverbs_in_process::{Builder, World, survive_gone_memory};
use bareverbs_node::DevicePlatform;
use bareverbs_node::last_messages::End;
use connectx_model::Config;
use connectx_model::fault::setting as fault;
use connectx_model::link::datagram::{Address, Wire};
use connectx_model::link::setting;
use connectx_model::link::stream::{Connection, Wish};
use connectx_model::link::{Cable, Link, Switch, Timing};
use connectx_model::pcap::Capture;

use crate::process::failure::{Errno, Result, as_nothing, lock};
use crate::process::owner::when_free;
use crate::process::{owner, settings};

/// The models of this process, once one of them was opened.
static WORLD: Mutex<Option<Arc<World>>> = Mutex::new(None);

/// The connection to the switch, from when the number is known until the first model is opened.
static CONNECTION: Mutex<Option<Connection>> = Mutex::new(None);

/// So many numbers that the switch gives are waited for.
const NUMBERS: usize = 4;

/// The number of the first of `count` models. A switch hands it out, or confirms that no other process has it.
pub(crate) fn first_unit(count: usize) -> Result<u8> {
    let (given, rank) = (settings::unit()?, settings::unit_of_rank());
    let link = settings::value(settings::LINK);
    let (Some(link), 1..) = (link, count) else {
        return Ok(given.or(rank).unwrap_or(1));
    };
    let Address::Switch(path) = address(&link)? else {
        return Ok(given.or(rank).unwrap_or(1));
    };
    let count = u8::try_from(count).map_err(|_| Errno::EINVAL)?;
    let wish = match given {
        Some(first) => Wish::Exactly { first, count },
        None => Wish::Preferably {
            first: rank.unwrap_or(0),
            count,
        },
    };
    let open = || {
        let connection = when_free(is_in_use, || Connection::open(&path, wish));
        connection.map_err(failed(settings::LINK, &link))
    };
    if let Some(end) = given.and_then(end) {
        owner::wait_for_end(&end);
    }
    let mut connection = open()?;
    for _ in 0..NUMBERS {
        let end = end(connection.first_unit()).filter(|end| !end.is_free());
        let Some(end) = end.filter(|_| given.is_none()) else {
            break;
        };
        // The number is first for the process that hangs up for the last one which had it.
        drop(connection);
        owner::wait_for_end(&end);
        connection = open()?;
    }
    let first = connection.first_unit();
    log::info!("unit {first}");
    *lock(&CONNECTION) = Some(connection);
    Ok(first)
}

/// The end that the models have of a network with other processes, if there is one, `unit` being the first one's number.
pub(crate) fn end(unit: u8) -> Option<End> {
    let link = settings::value(settings::LINK)?.parse().ok()?;
    End::of_link(&link, unit).ok()
}

/// Model `index` of `count`, of which `unit` is the first one's number.
pub(crate) fn platform(index: usize, count: usize, unit: u8) -> Result<DevicePlatform> {
    let mut world = lock(&WORLD);
    let world = match &mut *world {
        Some(world) => world,
        none => {
            let world = none.insert(build(count, unit)?);
            // SAFETY: it takes a function that takes nothing and does not unwind. Without memory for it, what is sent last
            // may be lost, which is no fault of memory.
            unsafe { libc::atexit(leave) };
            world
        }
    };
    Ok(DevicePlatform::model(world, index))
}

/// At the end of the process: what was sent before leaves it, as it would leave a card whose driver is gone. Programs end when
/// they have the completion of an unreliable send.
extern "C" fn leave() {
    as_nothing(|| {
        if owner::in_child() {
            return Ok(());
        }
        if let Some(world) = &*lock(&WORLD) {
            world.close_exits();
            let (rates, report) = world.with_wire(|wire| (wire.rates(), wire.report()));
            if rates != setting::none() {
                log::info!("faults: {report}");
            }
        }
        Ok(())
    });
}

fn build(count: usize, unit: u8) -> Result<Arc<World>> {
    if let Some(end) = end(unit) {
        owner::wait_for_end(&end);
    }
    let wire = settings::value(settings::LINK)
        .map(|link| open(&link))
        .transpose()?;
    let ports = count + usize::from(wire.is_some());
    let infiniband = settings::infiniband()?;
    let network: Box<dyn Link> = if infiniband {
        Subnet::of_numbered().link(ports)
    } else if ports <= 2 {
        Box::new(Cable::new())
    } else {
        Box::new(Switch::keeping(ports, Timing::default()))
    };
    let network = match settings::value(settings::PCAP) {
        Some(path) => {
            let capture = File::create(&path).and_then(|file| match infiniband {
                true => Capture::infiniband(network, file),
                false => Capture::new(network, file),
            });
            Box::new(capture.map_err(failed(settings::PCAP, &path))?)
        }
        None => network,
    };
    let seed = match settings::value(settings::FAULT_SEED) {
        Some(seed) => seed.parse().map_err(failed(settings::FAULT_SEED, &seed))?,
        None => RandomState::new().hash_one(std::process::id()),
    };
    let faults = settings::parsed(settings::FAULT, fault::list)?.unwrap_or_default();
    if !faults.is_empty() {
        log::warn!("faults {faults:?}, {}={seed}", settings::FAULT_SEED);
    }
    let cable_out = settings::parsed(settings::CABLE_OUT_AFTER, setting::time)?;
    let cable_out_for = settings::parsed(settings::CABLE_OUT_FOR, setting::time)?;
    let mut builder = Builder::with_link(network, seed).interrupts(1);
    for index in 0..count {
        let number = u8::try_from(index + usize::from(unit)).map_err(|_| Errno::EINVAL)?;
        builder = builder.function(if infiniband {
            infiniband_port(Config::new(number), number)
        } else {
            Config::new(number)
        });
    }
    if let Some(wire) = wire {
        builder = builder.exit(wire);
    }
    survive_gone_memory();
    let world = Arc::new(builder.threaded());
    world.with_wire(|wire| {
        // What arrives was damaged where it came from, if it was to be.
        wire.spare(count);
        wire.set_rates(fault::rates(&faults));
    });
    for index in 0..count {
        world.with_model(index, |model| {
            fault::arm(&faults, index, model.faults_mut());
        });
    }
    if let Some(after) = cable_out {
        let world = world.clone();
        thread::Builder::new()
            .name("bareverbs-cable".into())
            .spawn(move || cable(&world, count, after, cable_out_for))?;
    }
    Ok(world)
}

/// Pulls the cables out, and plugs them in again.
fn cable(world: &World, count: usize, after: Duration, out_for: Option<Duration>) {
    let set = |up: bool| {
        log::info!("cables {}", if up { "in" } else { "out" });
        (0..count).for_each(|index| world.set_link(index, up));
    };
    thread::sleep(after);
    set(false);
    if let Some(time) = out_for {
        thread::sleep(time);
        set(true);
    }
}

fn address(link: &str) -> Result<Address> {
    link.parse().map_err(failed(settings::LINK, link))
}

fn open(link: &str) -> Result<Wire> {
    let address = address(link)?;
    let wire = match lock(&CONNECTION).take() {
        Some(connection) => Wire::on_switch(0, connection),
        None => when_free(is_in_use, || Wire::open(0, &address)),
    };
    wire.map_err(failed(settings::LINK, link))
}

/// Returns `true` if another process has this end of the network.
fn is_in_use(error: &io::Error) -> bool {
    error.kind() == ErrorKind::AddrInUse
}

/// Says what is wrong with a variable.
fn failed<E: std::fmt::Display>(name: &str, value: &str) -> impl FnOnce(E) -> Errno {
    move |error| {
        log::error!("{name}={value}: {error}");
        Errno::EINVAL
    }
}
