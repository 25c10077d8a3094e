//! Forwards Ethernet frames between two ports, with as many queues on each as there are threads: hashes of the headers (RSS)
//! spread what comes, so that the frames of a flow stay in order. As DPDK's l2fwd does, frames leave with the port's address
//! as source and 02:00:00:00:00:PORT as destination, unless --keep-addresses.
//!
//! By default both ports are device models, and a generator on two more models sends frames through them, both ways, and checks
//! that each comes out exactly once.

mod generator;
mod port_counters;
mod ports;
mod spread;
mod strides;
#[cfg(test)]
mod tests;

use std::process::ExitCode;
use std::time::Duration;

use bareverbs_command_line::within;
use bareverbs_examples::Result;
use bareverbs_examples::devices::{self, Devices, devices};
use bareverbs_examples::plugged::ModelPort;
use bareverbs_examples::program;
use bareverbs_node::{DeviceName, DevicePlatform};
use bpaf::Bpaf;
use generator::{Bed, Stream};
use ports::{Forwarding, Rates};

/// Forwards frames between two Ethernet ports.
#[derive(Bpaf, Debug, Clone)]
#[bpaf(options)]
struct Options {
    #[bpaf(external)]
    devices: Devices,
    /// Queues on each port, and threads.
    #[bpaf(short('n'), argument("COUNT"), last, guard(within(1..=64), "not 1 to 64"), fallback(2), display_fallback)]
    lanes: u32,
    /// Leaves the frames' addresses as they are.
    #[bpaf(switch, last)]
    keep_addresses: bool,
    /// Lets the ports compress completions.
    #[bpaf(switch, last)]
    compress: bool,
    /// Receives into strides, and sends many frames in a request; copies them between.
    #[bpaf(switch, last)]
    strides: bool,
    /// Changes the tables so often, while frames come: what a queue has got goes to the next one; 0 leaves them.
    #[bpaf(long, argument("MILLISECONDS"), last, fallback(0), display_fallback)]
    change: u64,
    /// Shows what the rules and the ports count.
    #[bpaf(switch, last)]
    count: bool,
    /// With cards: ends after so many seconds; 0 goes on.
    #[bpaf(short('t'), argument("SECONDS"), last, fallback(0), display_fallback)]
    seconds: u64,
    /// With the model: frames that the generator sends each way.
    #[bpaf(
        short('f'),
        argument("FRAMES"),
        last,
        fallback(20_000),
        display_fallback
    )]
    frames: u32,
    /// With the model: bytes of each frame.
    #[bpaf(short('S'), argument("BYTES"), last, guard(within(64..=1514), "not 64 to 1514"), fallback(64), display_fallback)]
    size: usize,
}

fn main() -> ExitCode {
    program::main("l2fwd", &options(), Options::run)
}

impl Options {
    fn forwarding(&self) -> Forwarding {
        Forwarding {
            lanes: self.lanes as usize,
            keep_addresses: self.keep_addresses,
            compress: self.compress,
            strides: self.strides,
            change: (self.change > 0).then(|| Duration::from_millis(self.change)),
            count: self.count,
            frame_len: 1522,
        }
    }

    fn run(&self) -> Result<()> {
        if self.compress && self.strides {
            return Err("--compress is for queues without --strides".into());
        }
        match self.devices.names[..] {
            [DeviceName::Model] => {
                let model = &self.devices.model;
                if model.port() == ModelPort::Infiniband {
                    return Err("--model-port: frames need Ethernet ports".into());
                }
                let stream = Stream {
                    frames: self.frames,
                    size: self.size,
                    flows: 256,
                    seed: 1,
                    foreign: false,
                };
                let card = model.card();
                let bed = Bed::with(|unit| card.config(unit));
                for world in bed.worlds() {
                    model.damage(world, 2, 1);
                }
                let passed = bed.run(&self.forwarding(), stream, show)?;
                println!("{passed}");
                Ok(())
            }
            [DeviceName::Vfio(one), DeviceName::Vfio(other)] => {
                let open = |address| Result::Ok(DevicePlatform::from(devices::open(address, 0)?));
                let ports = [open(one)?, open(other)?];
                let mut left = self.seconds;
                self.forwarding().run(ports, &mut |rates| {
                    show(rates);
                    left = left.saturating_sub(1);
                    self.seconds == 0 || left > 0
                })?;
                Ok(())
            }
            _ => Err(
                "it takes two ports: name two cards, vfio:BDF,vfio:BDF, or none for the model"
                    .into(),
            ),
        }
    }
}

fn show(rates: &Rates) {
    println!("{rates}");
}
