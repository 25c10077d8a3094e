//! RDMA ping-pong over the whole stack: bring-up, QP, the connection manager's handshake on QP1, RDMA READ, RDMA WRITE and
//! SEND, every byte verified. With `--device model` (the default) both ends run here, on two device models with a cable
//! between them; with `--device vfio:BDF` one end runs on a card, with `--device vfio:BDF,vfio:BDF` both. `--link` is for one end
//! on one model, whose port is wired to another program.

mod channel;
mod cli;
mod memory;
mod ping;
mod report;
#[cfg(test)]
mod tests;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use bareverbs::cm::rdma::{AddrInfo, PortSpace, RdmaCm, Resolver, TraceEntry};
use bareverbs::verbs::Platform;
use bareverbs_examples::Result;
use bareverbs_examples::channel::SILENCE;
use bareverbs_examples::program::{self, Program};
use bareverbs_examples::progress::Progress;
use bareverbs_examples::times::Times;
use bareverbs_node::{About, Cm, Host};
use cli::{MemoryKind, Options, options};
use memory::{Indirect, OnDevice, Windows, device_memory};
use ping::{Message, PingError, Pinged, Step};

fn main() -> ExitCode {
    program::main("rping", &options(), run)
}

fn run(options: &Options) -> Result<()> {
    options.ends.run(options).map(drop)
}

impl Program for Options {
    type Served = u32;
    type Found = Pinged;

    fn name(&self) -> &'static str {
        "rping"
    }
    const CLIENT: usize = 1;

    fn serve(
        &self,
        cm: &mut Cm<'_, '_>,
        address: Host,
        listening: &mut dyn FnMut(),
    ) -> Result<u32> {
        let address = AddrInfo {
            port_space: PortSpace::Tcp,
            src_addr: Some(address.at(PortSpace::Tcp, self.port)),
            ..AddrInfo::hints(true)
        };
        let clients = ping::Clients {
            times: (!self.persistent).then_some(self.times()),
            reject: self.reject.as_deref().map(str::as_bytes),
            size: self.size,
            silence: [
                SILENCE,
                if self.persistent {
                    SILENCE
                } else {
                    Duration::MAX
                },
            ],
        };
        let step = |step| match step {
            Step::Listening => listening(),
            Step::Served(number) if self.verbose => println!("server: ping {number} served"),
            // The error of the only client is the program's.
            Step::Failed(error) if self.persistent || self.times() > 1 => {
                eprintln!("rping: server: a client failed: {error}");
            }
            Step::Served(_) | Step::Read | Step::Failed(_) => {}
        };
        let pings = match self.memory {
            // No peer reaches into a server's memory.
            MemoryKind::Region | MemoryKind::Window => ping::serve(cm, &address, clients, step),
            MemoryKind::Indirect => ping::serve_from(cm, &address, clients, Indirect, step),
            MemoryKind::Device => {
                let memories = &device_memory(cm, self.size as usize)?;
                let supply = OnDevice { memories, made: 0 };
                ping::serve_from(cm, &address, clients, supply, step)
            }
        };
        Ok(pings?)
    }

    fn work(
        &self,
        cm: &mut Cm<'_, '_>,
        about: &About,
        ends: [Host; 2],
        both: bool,
    ) -> Result<Pinged> {
        ping(cm, self, ends, self.validate || both, about)
    }

    fn introduce(&self, name: &str, about: &About) {
        if !self.json {
            report::device(name, about);
        }
    }

    fn announce(&self, address: Host) {
        println!("listening on {address} port {}", self.port);
    }

    fn compare(&self, &pings: &u32, pinged: &Pinged) -> Result<()> {
        let made = u64::from(pinged.pings) * u64::from(self.times());
        if u64::from(pings) == made {
            return Ok(());
        }
        Err(format!("the server counts {pings} pings, the client {made}").into())
    }
}

fn ping<P: Platform, R: Resolver>(
    cm: &mut RdmaCm<'_, '_, P, R>,
    options: &Options,
    [source, server]: [Host; 2],
    validate: bool,
    about: &About,
) -> Result<Pinged> {
    let address = AddrInfo {
        port_space: PortSpace::Tcp,
        src_addr: Some(source.at(PortSpace::Tcp, 0)),
        dst_addr: Some(server.at(PortSpace::Tcp, options.port)),
        ..AddrInfo::hints(false)
    };
    let quiet = options.json || options.verbose;
    let mut progress = None;
    let connected = |cm: &mut RdmaCm<'_, '_, P, R>, so_far: &Pinged| {
        if !options.json {
            let heading = format!(
                "Connection, as the client saw it: established after {:?}",
                so_far.connect
            );
            report::messages(&heading, so_far.connect_at, &trace(cm));
        }
    };
    let mut times = Times::default();
    let done = |message: &Message, took: Duration| {
        if !quiet {
            let (began, progress) = progress.get_or_insert_with(|| {
                let all = u64::from(options.count);
                (Instant::now(), Progress::new(all, "pings", Duration::ZERO))
            });
            progress.set(began.elapsed(), times.count(), String::new);
        }
        times.record(took, 1);
        if options.verbose && !options.json {
            let text = (0..64)
                .map(|index| message.at(index))
                .take_while(|&byte| byte != 0);
            println!(
                "client: ping {}: {}",
                message.number,
                text.map(char::from).collect::<String>()
            );
        }
    };
    let wanted = ping::Wanted {
        size: options.size as usize,
        count: options.count,
        validate,
        private_data: options.private_data.as_deref().unwrap_or("").as_bytes(),
        silence: SILENCE,
    };
    let began = cm.now();
    let mut slowest = Duration::ZERO;
    for number in 1..options.times() {
        let pinged = ping_in(options.memory, cm, &address, wanted, |_, _| {}, |_, _| {})
            .map_err(|error| format!("connection {number}: {error}"))?;
        slowest = slowest.max(pinged.connect);
        // Progress is reported for the last one only.
        trace(cm);
    }
    let pinged = ping_in(options.memory, cm, &address, wanted, connected, done)?;
    if let Some((_, progress)) = progress {
        progress.finish();
    }
    if options.times() > 1 && !options.json {
        let took = cm.now() - began;
        println!(
            "{} connections in {took:?}, {:.0} per second, the slowest established after {:?}",
            options.times(),
            f64::from(options.times()) / took.as_secs_f64(),
            slowest.max(pinged.connect)
        );
    }
    let summary = report::Summary {
        pinged: &pinged,
        times: &times,
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

/// The pings of one connection, with messages in this memory.
fn ping_in<P: Platform, R: Resolver>(
    memory: MemoryKind,
    cm: &mut RdmaCm<'_, '_, P, R>,
    address: &AddrInfo,
    wanted: ping::Wanted<'_>,
    connected: impl FnMut(&mut RdmaCm<'_, '_, P, R>, &Pinged),
    done: impl FnMut(&Message, Duration),
) -> std::result::Result<Pinged, PingError> {
    match memory {
        MemoryKind::Region => ping::ping(cm, address, wanted, connected, done),
        MemoryKind::Window => ping::ping_from(cm, address, wanted, Windows, connected, done),
        MemoryKind::Indirect => ping::ping_from(cm, address, wanted, Indirect, connected, done),
        MemoryKind::Device => {
            let memories = &device_memory(cm, wanted.size)?;
            let supply = OnDevice { memories, made: 0 };
            ping::ping_from(cm, address, wanted, supply, connected, done)
        }
    }
}

fn trace<P: Platform, R: Resolver>(cm: &mut RdmaCm<'_, '_, P, R>) -> Vec<TraceEntry> {
    std::iter::from_fn(|| cm.next_trace()).collect()
}
