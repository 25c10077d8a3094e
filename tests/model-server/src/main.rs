//! `connectx-model serve --socket A [--socket B ...]`: the ConnectX model as vfio-user devices.
//!
//! Every socket is one function of a separate card. Two functions are cabled together, more are on one switch; a
//! function with a `--link` has a datagram socket with raw Ethernet frames instead. A client (QEMU's `vfio-user-pci`)
//! may come, go and come again; the function is reset in between. SIGTERM and SIGINT end the process and remove its
//! sockets.
//!
//! Lines on standard input do to a function what happens to cards, and to the cables; `control.rs` lists them.
//!
//! ```sh
//! # Two guests on one cable, with a bad connector:
//! connectx-model serve --socket a --socket b --fault loss=0.01,corrupt=0.001 --pcap cable.pcap
//! # One guest whose port is wired to another QEMU's -netdev dgram,local.type=unix,local.path=q,remote.type=unix,remote.path=p
//! connectx-model serve --socket a --link unix:p,q
//! # Two servers, here and elsewhere, wired together:
//! connectx-model serve --socket a --link udp:[::]:7000,elsewhere:7000
//! connectx-model serve --socket b --link udp:[::]:7000,here:7000 --first-unit 2
//! ```

mod backend;
mod control;
mod ending;
mod fabric;
mod memory;
mod options;
mod shortened;
mod world;

use backend::Backend;
use connectx_model::fault::setting::{self, Setting};
use connectx_model::link::datagram::Wire;
use connectx_model::link::setting::Shown;
use connectx_model::link::stale::{self, Claim};
use connectx_model::link::subnet::Topology;
use connectx_model::{Config, pcap};
use ending::Ending;
use options::{PortType, Serve};
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use vfio_user::Server;
use world::{Wiring, World};

fn main() -> ExitCode {
    let serve = match options::parse() {
        Ok(serve) => serve,
        Err(code) => return code,
    };
    env_logger::Builder::new()
        .parse_filters(&serve.log)
        .format_target(false)
        .init();
    let mut claims = Vec::new();
    let ended = run(&serve, &mut claims);
    for claim in claims {
        claim.release();
    }
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("connectx-model: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Serves until the end; `claims` are the files to remove then.
fn run(serve: &Serve, claims: &mut Vec<Claim>) -> Result<(), String> {
    let subnet = subnet(serve)?;
    let configs = configs(serve, subnet.as_ref())?;
    let shapes: Vec<_> = configs
        .iter()
        .map(|config| (config.bar_size, config.msix_vectors))
        .collect();
    let (ending, ended) = Ending::new().map_err(|error| format!("signals: {error}"))?;

    let mut wires = Vec::new();
    for (index, function) in serve.functions.iter().enumerate() {
        if let Some(address) = &function.link {
            let wire = Wire::open(index, address).map_err(|error| format!("{address}: {error}"))?;
            claims.extend(wire.claim());
            wires.push((index, Arc::new(wire)));
        }
    }
    let rates = setting::rates(&serve.faults);
    let seed = serve
        .seed
        .unwrap_or_else(|| RandomState::new().build_hasher().finish());
    let capture = match &serve.pcap {
        Some(path) => Some(
            File::create(path)
                .and_then(pcap::Writer::new)
                .map_err(|error| format!("{}: {error}", path.display()))?,
        ),
        None => None,
    };
    let wiring = Wiring {
        subnet,
        wires: wires.clone(),
        rates,
        seed,
        capture,
    };
    let world = Arc::new(World::new(configs, serve.functions.len(), wiring));
    arm(&world, &serve.faults);

    let clock = world.clone();
    ending.spawn("the clock".into(), move || -> String { clock.run_clock() });
    for (index, wire) in wires {
        let (reader, world) = (wire.clone(), world.clone());
        let resumed = world.clone();
        ending.spawn(format!("function {index}: its wire"), move || match reader
            .read(|| world.wake())
        {
            Ok(()) => "closed".to_string(),
            Err(error) => error.to_string(),
        });
        ending.spawn(format!("function {index}: its wire"), move || -> String {
            wire.write(|| resumed.wake());
            "closed".into()
        });
    }
    // The process that started this may have closed its end of the pipe.
    let mut out = std::io::stdout();
    for (index, (function, (bar_size, vectors))) in serve.functions.iter().zip(shapes).enumerate() {
        let socket = &function.socket;
        let (server, claim) = listen(socket, bar_size, vectors)
            .map_err(|error| format!("{}: {error}", socket.display()))?;
        claims.push(claim);
        let backend = Backend::new(world.clone(), index, bar_size);
        ending.spawn(format!("function {index}"), move || {
            attend(&server, backend, index)
        });
        let _ = writeln!(out, "function {index} at {}", socket.display());
    }
    let _ = writeln!(out, "faults {}, seed {seed}", Shown(rates));
    std::thread::spawn(move || control::follow(&world, std::io::stdin().lines()));
    ended.recv().map_err(|error| error.to_string())?
}

/// Adds faults of commands.
fn arm(world: &World, faults: &[Setting]) {
    for index in 0..world.functions() {
        world.with(index, |function| {
            setting::arm(faults, index, function.model.faults_mut());
        });
    }
}

/// The topology of switches between InfiniBand ports; `None` if they have cables alone.
fn subnet(serve: &Serve) -> Result<Option<Topology>, String> {
    let topology = match &serve.topology {
        Some(path) => {
            let shown = path.display();
            let text =
                std::fs::read_to_string(path).map_err(|error| format!("{shown}: {error}"))?;
            text.parse().map_err(|error| format!("{shown}: {error}"))?
        }
        None if serve.switch => {
            let ports = u8::try_from(serve.functions.len()).ok();
            let ports = ports.filter(|&ports| ports <= 64);
            Topology::one_switch(ports.ok_or("a switch has 64 ports at most")?)
        }
        None => return Ok(None),
    };
    if !matches!(serve.port_type, PortType::Ib) {
        return Err("--switch and --topology are for InfiniBand ports".into());
    }
    Ok(Some(topology))
}

/// Those of the functions, and of the adapters behind them that no driver comes to.
fn configs(serve: &Serve, subnet: Option<&Topology>) -> Result<Vec<Config>, String> {
    let virtuals = || serve.vf.iter().chain(&serve.vf_without_mac);
    if let Some(beyond) = virtuals().find(|&&index| index >= serve.functions.len()) {
        return Err(format!("there is no function {beyond} to be a virtual one"));
    }
    let adapters = subnet.map_or(0, Topology::adapters);
    (0..serve.functions.len().max(adapters))
        .map(|index| {
            let unit = u16::try_from(usize::from(serve.first_unit) + index)
                .map_err(|_| "no function can be beyond number 65535")?;
            let mut config = if serve.modelled {
                serve.card.modelled(1)
            } else {
                serve.card.config(1)
            };
            config = config.with_unit(unit);
            if matches!(serve.port_type, PortType::Ib) {
                config = config.infiniband();
                config.subnet_managed = serve.subnet_managed;
                config.subnet_agent = serve.subnet_agent;
            }
            if virtuals().any(|&one| one == index) {
                config = config.virtual_function();
            }
            if serve.vf_without_mac.contains(&index) {
                config = config.without_addresses();
            }
            if serve.blue_flame {
                config = config.with_blue_flame();
            }
            config.combining = serve.combining.map(Duration::from_micros);
            config.boot_pages = serve.boot_pages.unwrap_or(config.boot_pages);
            config.init_pages = serve.init_pages.unwrap_or(config.init_pages);
            config.page_chunk = serve.page_chunk.unwrap_or(config.page_chunk);
            config.strict = !serve.lenient;
            Ok(config)
        })
        .collect::<Result<_, &str>>()
        .map_err(String::from)
}

fn listen(socket: &Path, bar_size: u64, vectors: u16) -> Result<(Server, Claim), String> {
    let _lock = stale::lock_folder(socket).map_err(|error| error.to_string())?;
    stale::remove(socket).map_err(|error| error.to_string())?;
    let server = Server::new(
        socket,
        true,
        backend::irqs(vectors),
        backend::regions(bar_size),
    )
    .map_err(|error| error.to_string())?;
    let claim = Claim::new(socket).map_err(|error| error.to_string())?;
    Ok((server, claim))
}

/// Serves one client after the other.
fn attend(server: &Server, mut backend: Backend, index: usize) -> String {
    loop {
        // The server panics at a version message without the version (vfio_user 0.1.7); the next client is not to blame.
        match catch_unwind(AssertUnwindSafe(|| server.run(&mut backend))) {
            Ok(Ok(())) => log::info!("function {index}: the client left"),
            // A socket that cannot even accept fails at once and for ever; a client's error ends with the client.
            Ok(Err(vfio_user::Error::SocketAccept(error))) => return error.to_string(),
            Ok(Err(error)) if is_gone(&error) => {
                log::info!("function {index}: the client left at once: {error}");
            }
            Ok(Err(error)) => log::warn!("function {index}: {error}"),
            Err(_) => log::error!("function {index}: the client made the server panic"),
        }
        backend.disconnect();
    }
}

/// Returns `true` if the client ended with a request unanswered, or with an answer unread, as a process does that is killed.
fn is_gone(error: &vfio_user::Error) -> bool {
    let error = match error {
        vfio_user::Error::ReceiveWithFd(error) => &io::Error::from_raw_os_error(error.errno()),
        vfio_user::Error::StreamRead(error) | vfio_user::Error::StreamWrite(error) => error,
        _ => return false,
    };
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    )
}
