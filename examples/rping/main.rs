//! RDMA ping-pong over the whole stack: bring-up, QP, the connection manager's handshake on QP1, RDMA READ, RDMA WRITE and
//! SEND, every byte verified. With `--device model` (the default) both ends run here, on two device models with a cable
//! between them; with `--device vfio:BDF` one end runs on a card, with `--device vfio:BDF,vfio:BDF` both.

mod cli;
mod node;
mod ping;
#[path = "../common/place.rs"]
mod place;
mod report;

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::mpsc;

use bareverbs::cm::rdma::{AddrInfo, PortSpace, RdmaCm, Resolver, TraceEntry};
use bareverbs::verbs::{Mac, Mtu, Platform};
use bareverbs_in_process::Builder;
use bareverbs_vfio::{PciAddress, VfioDevice};
use clap::Parser;
use cli::Options;
use indicatif::{ProgressBar, ProgressStyle};
use node::{About, Neighbourhood, Settings};
use ping::{Pinged, Served};
use place::Place;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> ExitCode {
    env_logger::init();
    let options = Options::parse();
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rping: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let one_end = options.server || options.client;
    match (&options.device[..], one_end) {
        ([Place::Model], false) => {
            let card = |unit| connectx_model::Config::new(unit);
            let builder = Builder::new().function(card(1)).function(card(2));
            let world = builder.threaded();
            both(options, [world.platform(0), world.platform(1)])
        }
        (&[Place::Vfio(server), Place::Vfio(client)], false) => {
            both(options, [open(options, server)?, open(options, client)?])
        }
        (&[Place::Vfio(card)], true) => on_card(options, card),
        ([Place::Model], true) => Err(
            "on the model both ends run in one process: leave -s and -c away, or name a card with --device vfio:BDF"
                .into(),
        ),
        ([Place::Vfio(_)], false) => Err(
            "on one card one end runs here: say which, with -s or -c; or name two with --device vfio:BDF,vfio:BDF"
                .into(),
        ),
        _ => Err("--device: one card for one end, two for both, or the model".into()),
    }
}

fn open(options: &Options, card: PciAddress) -> Result<VfioDevice> {
    let vectors = if options.interrupts {
        bareverbs_vfio::Options::with_vectors(1)
    } else {
        bareverbs_vfio::Options::default()
    };
    Ok(VfioDevice::open_with(card, vectors)?)
}

/// Both ends in this process.
fn both<P: Platform + Send + 'static>(options: &Options, [first, second]: [P; 2]) -> Result<()> {
    let server = options
        .address
        .unwrap_or(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)));
    let client = options.source.unwrap_or(match server {
        IpAddr::V4(address) => IpAddr::from((u32::from(address) ^ 3).to_be_bytes()),
        IpAddr::V6(address) => IpAddr::from((u128::from(address) ^ 3).to_be_bytes()),
    });
    let validated = Options {
        validate: true,
        ..options.clone()
    };
    let settings = Settings {
        interrupts: options.interrupts,
        mtu: options.mtu.unwrap_or(Mtu::B4096),
    };
    // Each end tells its MAC address, as there is no ARP.
    let neighbours = Neighbourhood::default();
    let (listening, may_connect) = mpsc::channel();

    let (served, pinged) = std::thread::scope(|scope| {
        let served = scope.spawn(|| {
            node::run(first, server, &neighbours, settings, seed(), |cm, about| {
                neighbours.add(server, about.mac);
                serve(cm, options, server, || {
                    // The client is gone only if it has failed, which it says itself.
                    let _ = listening.send(about.clone());
                })
            })
            .inspect_err(|error| eprintln!("rping: server: {error}"))
        });
        let pinged = node::run(
            second,
            client,
            &neighbours,
            settings,
            seed(),
            |cm, about| {
                neighbours.add(client, about.mac);
                let there = may_connect.recv().map_err(|_| "the server did not start")?;
                if !options.json {
                    report::device("Server", &there);
                    report::device("Client", about);
                }
                ping(cm, &validated, client, server, about)
            },
        );
        // A client that failed leaves the server waiting for one.
        let pinged = pinged.inspect_err(|error| {
            eprintln!("rping: client: {error}");
            std::process::exit(1);
        });
        (served.join(), pinged)
    });
    let Served { pings } = served.map_err(|_| "the server panicked")??;
    let pinged = pinged?;
    if pings as usize != pinged.times.len() {
        return Err(format!(
            "the server counts {pings} pings, the client {}",
            pinged.times.len()
        )
        .into());
    }
    Ok(())
}

/// One end, on a card.
fn on_card(options: &Options, card: PciAddress) -> Result<()> {
    let local = if options.server {
        options
            .address
            .ok_or("-a: which address shall the server have?")?
    } else {
        options
            .source
            .ok_or("-I: which address shall the client have?")?
    };
    let mac = options
        .peer_mac
        .as_deref()
        .ok_or("--peer-mac: there is no ARP yet")?;
    let peer = node::OnePeer(parse_mac(mac)?);
    let settings = Settings {
        interrupts: options.interrupts,
        mtu: options.mtu.unwrap_or(Mtu::B1024),
    };
    let device = open(options, card)?;
    node::run(device, local, peer, settings, seed(), |cm, about| {
        if !options.json {
            report::device(&card.to_string(), about);
        }
        if options.server {
            serve(cm, options, local, || {
                println!("listening on {local} port {}", options.port);
            })
            .map(drop)
        } else {
            let server = options.address.ok_or("-a: where is the server?")?;
            ping(cm, options, local, server, about).map(drop)
        }
    })
}

fn serve<P: Platform, R: Resolver>(
    cm: &mut RdmaCm<'_, '_, P, R>,
    options: &Options,
    address: IpAddr,
    listening: impl FnOnce(),
) -> Result<Served> {
    let address = AddrInfo {
        passive: true,
        port_space: PortSpace::Tcp,
        src_addr: Some(SocketAddr::new(address, options.port)),
        dst_addr: None,
    };
    ping::serve(cm, &address, options.size, listening, |number| {
        if options.verbose {
            println!("server: ping {number} served");
        }
    })
}

fn ping<P: Platform, R: Resolver>(
    cm: &mut RdmaCm<'_, '_, P, R>,
    options: &Options,
    source: IpAddr,
    server: IpAddr,
    about: &About,
) -> Result<Pinged> {
    let address = AddrInfo {
        passive: false,
        port_space: PortSpace::Tcp,
        src_addr: Some(SocketAddr::new(source, 0)),
        dst_addr: Some(SocketAddr::new(server, options.port)),
    };
    let bar = if options.json || options.verbose {
        ProgressBar::hidden()
    } else {
        let style =
            ProgressStyle::with_template("  [{bar:40}] {pos}/{len} pings, {per_sec}, {eta} left")?;
        ProgressBar::new(options.count.into()).with_style(style)
    };
    let connected = |cm: &mut RdmaCm<'_, '_, P, R>, so_far: &Pinged| {
        if !options.json {
            let heading = format!(
                "Connection, as the client saw it: established after {:?}",
                so_far.connect
            );
            report::messages(&heading, so_far.connect_at, &trace(cm));
        }
    };
    let done = |number: u32, sent: &[u8]| {
        bar.inc(1);
        if options.verbose && !options.json {
            let text = sent.iter().take(64).take_while(|&&byte| byte != 0);
            println!(
                "client: ping {number}: {}",
                text.map(|&byte| char::from(byte)).collect::<String>()
            );
        }
    };
    let pinged = ping::ping(
        cm,
        &address,
        options.size,
        options.count,
        options.validate,
        connected,
        done,
    )?;
    bar.finish_and_clear();
    let summary = report::Summary {
        pinged: &pinged,
        size: options.size,
        bring_up_commands: about.commands,
    };
    if options.json {
        summary.print_json();
    } else {
        report::messages("Disconnection", pinged.connect_at, &trace(cm));
        summary.print();
    }
    Ok(pinged)
}

fn trace<P: Platform, R: Resolver>(cm: &mut RdmaCm<'_, '_, P, R>) -> Vec<TraceEntry> {
    std::iter::from_fn(|| cm.next_trace()).collect()
}

/// Different at each start, so that a peer does not take a new connection for an old one.
fn seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

fn parse_mac(text: &str) -> Result<Mac> {
    let mut mac = Mac::default();
    let mut bytes = text.split(':');
    for byte in &mut mac {
        *byte = u8::from_str_radix(bytes.next().ok_or("a MAC address has six bytes")?, 16)?;
    }
    match bytes.next() {
        None => Ok(mac),
        Some(_) => Err("a MAC address has six bytes".into()),
    }
}
