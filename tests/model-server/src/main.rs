//! `connectx-model serve --socket A [--socket B ...]`: the ConnectX model as vfio-user devices.
//!
//! Every socket is one function of a card of its own. Two functions are cabled together, more are on one switch. A client
//! (QEMU's `vfio-user-pci`) may come, go and come again; the function is reset in between.
//!
//! Lines on standard input do to a function what happens to cards; `control.rs` lists them.

mod backend;
mod control;
mod memory;
mod world;

use backend::Backend;
use clap::{Args, Parser, Subcommand, ValueEnum};
use connectx_model::Config;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use vfio_user::Server;
use world::World;

#[derive(Parser)]
#[command(name = "connectx-model", about = "A model of a ConnectX network card")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve functions over vfio-user until killed
    Serve(Serve),
}

#[derive(Clone, Copy, ValueEnum)]
enum PortType {
    /// RoCE
    Eth,
    /// InfiniBand
    Ib,
}

#[derive(Args)]
struct Serve {
    /// Socket to listen at, one per function; a file left there is removed
    #[arg(long = "socket", required = true)]
    sockets: Vec<PathBuf>,
    /// What the ports speak
    #[arg(long, value_enum, default_value = "eth")]
    port_type: PortType,
    /// Pages that the firmware wants at boot
    #[arg(long)]
    boot_pages: Option<u32>,
    /// Pages that the firmware wants for INIT_HCA
    #[arg(long)]
    init_pages: Option<u32>,
    /// How many pages the firmware asks for at a time when it runs out later
    #[arg(long)]
    page_chunk: Option<u32>,
    /// Take commands with bits set that the model does not know, as newer drivers send them
    #[arg(long)]
    lenient: bool,
    /// Record the frames on the cable in this pcap file
    #[arg(long)]
    pcap: Option<PathBuf>,
    /// What to log, as RUST_LOG has it: `debug` tells what failed, `trace` every command and register access
    #[arg(long, default_value = "info")]
    log: String,
}

fn main() -> ExitCode {
    let Command::Serve(serve) = Arguments::parse().command;
    env_logger::Builder::new()
        .parse_filters(&serve.log)
        .format_target(false)
        .init();
    match run(&serve) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("connectx-model: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(serve: &Serve) -> Result<(), String> {
    let configs: Vec<Config> = (1..=serve.sockets.len())
        .map(|unit| {
            let unit = u8::try_from(unit).map_err(|_| "at most 255 functions".to_string())?;
            let mut config = Config::new(unit);
            if matches!(serve.port_type, PortType::Ib) {
                config = config.infiniband();
            }
            config.boot_pages = serve.boot_pages.unwrap_or(config.boot_pages);
            config.init_pages = serve.init_pages.unwrap_or(config.init_pages);
            config.page_chunk = serve.page_chunk.unwrap_or(config.page_chunk);
            config.strict = !serve.lenient;
            Ok(config)
        })
        .collect::<Result<_, String>>()?;
    let (bar_size, vectors) = (configs[0].bar_size, configs[0].msix_vectors);
    let world = World::new(configs, serve.pcap.as_deref())
        .map_err(|error| format!("{:?}: {error}", serve.pcap))?;
    let world = Arc::new(world);
    let mut threads = Vec::new();
    for (index, socket) in serve.sockets.iter().enumerate() {
        let server = listen(socket, bar_size, vectors)?;
        let backend = Backend::new(world.clone(), index);
        threads.push(std::thread::spawn(move || attend(&server, backend, index)));
        println!("function {index} at {}", socket.display());
    }
    std::thread::spawn({
        let world = world.clone();
        move || control::follow(&world, std::io::stdin().lines())
    });
    std::thread::spawn(move || world.run_clock());
    for thread in threads {
        thread.join().map_err(|_| "a function's thread panicked")?;
    }
    Err("nobody listens any more".into())
}

fn listen(socket: &Path, bar_size: u64, vectors: u16) -> Result<Server, String> {
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(format!("{}: {error}", socket.display()));
        }
        _ => {}
    }
    Server::new(
        socket,
        true,
        backend::irqs(vectors),
        backend::regions(bar_size),
    )
    .map_err(|error| format!("{}: {error}", socket.display()))
}

/// Serves one client after the other.
fn attend(server: &Server, mut backend: Backend, index: usize) {
    loop {
        match server.run(&mut backend) {
            Ok(()) => log::info!("function {index}: the client left"),
            // A socket that cannot even accept fails at once and for ever; a client's error ends with the client.
            Err(vfio_user::Error::SocketAccept(error)) => {
                log::error!("function {index}: {error}");
                return;
            }
            Err(error) => log::warn!("function {index}: {error}"),
        }
        backend.disconnect();
    }
}
