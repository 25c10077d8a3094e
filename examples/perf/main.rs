//! Bandwidth, message rate and latency of RDMA WRITE, READ, SEND and atomics over message sizes and queue depths, in
//! perftest's table form. Both ends run here: on two device models with a cable between them, or on two cards.
//!
//! ```text
//! cargo run --release --example perf -- --device vfio:0000:3b:00.0,vfio:0000:3b:00.1 --plot perf.svg
//! ```
//!
//! On the model it is the model that is measured, which runs on the same processor as the driver.

mod end;
mod measure;
#[path = "../common/place.rs"]
mod place;
mod plot;
mod report;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use bareverbs::verbs::{Config, Device, Mtu, Platform, Resources};
use bareverbs_in_process::Builder;
use bareverbs_vfio::VfioDevice;
use clap::{Parser, ValueEnum};
use end::Pair;
use place::Place;
use report::{Numbers, Row};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Test {
    WriteBw,
    ReadBw,
    SendBw,
    AtomicBw,
    WriteLat,
    ReadLat,
    SendLat,
    AtomicLat,
}

impl Test {
    fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn is_bandwidth(self) -> bool {
        matches!(
            self,
            Self::WriteBw | Self::ReadBw | Self::SendBw | Self::AtomicBw
        )
    }

    fn is_atomic(self) -> bool {
        matches!(self, Self::AtomicBw | Self::AtomicLat)
    }
}

/// Measures RDMA between two cards of this machine, or between two device models.
#[derive(Parser)]
struct Arguments {
    /// "model", or "vfio:BDF,vfio:BDF" for the functions at these PCI addresses; the first one works, the second answers.
    #[arg(
        long,
        value_name = "DEVICE",
        default_value = "model",
        env = "BAREVERBS_DEVICE",
        value_delimiter = ','
    )]
    device: Vec<Place>,
    /// What to measure; all of it if not given.
    #[arg(long, value_enum, value_delimiter = ',')]
    test: Vec<Test>,
    /// Bytes of a message. Atomics have 8.
    #[arg(short = 's', long, value_delimiter = ',', default_values_t = [2, 8, 64, 512, 4096, 65536],
          value_parser = clap::value_parser!(u32).range(1..=1 << 23))]
    size: Vec<u32>,
    /// Messages in flight, for bandwidth.
    #[arg(short = 't', long, value_delimiter = ',', default_values_t = [1, 16, 128],
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    depth: Vec<u32>,
    /// Messages of each measurement.
    #[arg(short = 'n', long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(10..=10_000_000))]
    iterations: u32,
    /// Path MTU in bytes.
    #[arg(short = 'm', long, default_value = "4096", value_parser = parse_mtu)]
    mtu: Mtu,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
    /// Draws the results into this file (SVG).
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

fn parse_mtu(text: &str) -> std::result::Result<Mtu, String> {
    (1..=5)
        .filter_map(Mtu::from_number)
        .find(|mtu| mtu.bytes().to_string() == text)
        .ok_or_else(|| "256, 512, 1024, 2048 or 4096".into())
}

fn main() -> ExitCode {
    env_logger::init();
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("perf: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let rows = match arguments.device[..] {
        [Place::Model] => {
            let card = |unit| connectx_model::Config::new(unit);
            let world = Builder::new()
                .function(card(1))
                .function(card(2))
                .threaded();
            measure_all(arguments, [world.platform(0), world.platform(1)])?
        }
        [Place::Vfio(first), Place::Vfio(second)] => {
            let open = |address| VfioDevice::open(address);
            measure_all(arguments, [open(first)?, open(second)?])?
        }
        _ => return Err("--device: the model, or two cards".into()),
    };
    if arguments.json {
        println!("{}", report::json(&rows));
    }
    if let Some(path) = &arguments.plot {
        std::fs::write(path, plot::svg(&rows))
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

fn measure_all<P: Platform + Send + Sync>(
    arguments: &Arguments,
    [first, second]: [P; 2],
) -> Result<Vec<Row>> {
    let mut storage = [(); 2].map(|()| Box::new(Resources::<4, 4, 1, 256>::new()));
    let [ours, theirs] = &mut storage;
    let devices = [
        Device::open(first, Config::DEFAULT, ours.storage())?,
        Device::open(second, Config::DEFAULT, theirs.storage())?,
    ];
    let largest = arguments.size.iter().copied().max().unwrap_or(1).max(8);
    let deepest = arguments.depth.iter().copied().max().unwrap_or(1);
    let mut rows = Vec::new();
    {
        let mut pair = Pair::connect(&devices, largest, deepest, arguments.mtu)?;
        for &test in Test::value_variants() {
            if !arguments.test.is_empty() && !arguments.test.contains(&test) {
                continue;
            }
            let sizes = if test.is_atomic() {
                &[8][..]
            } else {
                &arguments.size
            };
            let depths = if test.is_bandwidth() {
                &arguments.depth[..]
            } else {
                &[1]
            };
            for &depth in depths {
                if !arguments.json {
                    report::heading(&test.name(), depth, test.is_bandwidth());
                }
                for &size in sizes {
                    let row = Row {
                        test: test.name(),
                        depth,
                        size,
                        iterations: arguments.iterations,
                        numbers: one(&mut pair, test, size, depth, arguments.iterations)?,
                    };
                    if !arguments.json {
                        report::line(&row);
                    }
                    rows.push(row);
                }
            }
        }
    }
    for device in devices {
        device.close()?;
    }
    Ok(rows)
}

fn one<P: Platform + Send + Sync>(
    pair: &mut Pair<'_, P>,
    test: Test,
    size: u32,
    depth: u32,
    iterations: u32,
) -> Result<Numbers> {
    use measure::{Verb, bandwidth, echo, round_trips};
    Ok(match test {
        Test::WriteBw => {
            Numbers::rate(size, bandwidth(pair, Verb::Write, size, depth, iterations)?)
        }
        Test::ReadBw => Numbers::rate(size, bandwidth(pair, Verb::Read, size, depth, iterations)?),
        Test::SendBw => Numbers::rate(size, bandwidth(pair, Verb::Send, size, depth, iterations)?),
        Test::AtomicBw => Numbers::rate(
            size,
            bandwidth(pair, Verb::Atomic, size, depth, iterations)?,
        ),
        // As perftest has it: half of what there and back take.
        Test::WriteLat => Numbers::times(echo(pair, Verb::Write, size, iterations)?, 2),
        Test::SendLat => Numbers::times(echo(pair, Verb::Send, size, iterations)?, 2),
        Test::ReadLat => Numbers::times(round_trips(pair, Verb::Read, size, iterations)?, 1),
        Test::AtomicLat => Numbers::times(round_trips(pair, Verb::Atomic, size, iterations)?, 1),
    })
}
