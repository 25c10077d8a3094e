//! Shows what a device can do, as `ibv_devinfo -v` does: from the capabilities that bring-up negotiated.
//!
//! ```text
//! cargo run --example devinfo                                  the device model, which is built in
//! cargo run --example devinfo -- --device vfio:0000:3b:00.0    a card that is bound to vfio-pci
//! cargo run --example devinfo -- --selftest                    does it work? No cable is needed
//! cargo run --example devinfo -- --conformance                 does what is below the driver work?
//! ```
//!
//! It also hands a card over to vfio-pci and back (`--bind`, `--unbind`), and says what that takes.

mod conformance;
mod report;
mod selftest;

use std::error::Error;
use std::process::ExitCode;

use bareverbs::verbs::PageChunk;
use bareverbs_in_process::{Builder, World};
use bareverbs_node::{DEVICE_VARIABLE, DeviceName, PageChunks};
use bareverbs_vfio::{Options, Rebinding, VfioDevice};
use clap::{Parser, ValueEnum};
use connectx_model::Config as Card;
use report::Report;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Shows what an RDMA device can do, and whether it does.
#[derive(Parser)]
struct Arguments {
    /// `model`, the device model; or `vfio:ADDRESS`, a PCI function that is bound to vfio-pci.
    #[arg(long, default_value = "model", env = DEVICE_VARIABLE)]
    device: DeviceName,
    /// Takes the function from its kernel driver and binds it to vfio-pci, after saying what that takes; shows nothing
    /// else.
    #[arg(long, conflicts_with_all = ["json", "unbind"])]
    bind: bool,
    /// Gives the function back to the kernel.
    #[arg(long, conflicts_with = "json")]
    unbind: bool,
    /// Says what --bind or --unbind would do, and does not do it.
    #[arg(long)]
    dry_run: bool,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
    /// Tries the device out: memory, queue pairs in force loopback, every operation, interrupts, errors, teardown. No cable
    /// is needed.
    #[arg(long, conflicts_with_all = ["json", "bind", "unbind"])]
    selftest: bool,
    /// Holds the platform below the driver (VFIO, or the device model's) against its requirements, polled and with interrupts.
    #[arg(long, conflicts_with_all = ["json", "bind", "unbind", "selftest"])]
    conformance: bool,
    /// The card that the device model is: connectx-4-lx (as recorded from one), connectx-4, connectx-5, connectx-6-dx,
    /// connectx-7, bluefield, bluefield-ecpf or bluefield-vf.
    #[arg(long, value_name = "NAME", default_value_t = connectx_model::Card::ConnectX5)]
    card: connectx_model::Card,
    /// The link layer of the device model's port.
    #[arg(long, value_enum, default_value = "ethernet")]
    model_port: ModelPort,
}

/// Attempts to bring a device up, and again with storage for as many of the firmware's pages as it lacked.
fn with_page_chunks<T>(mut attempt: impl FnMut(Vec<PageChunk>) -> Result<T>) -> Result<T> {
    let mut chunks = PageChunks::new(CHUNKS);
    loop {
        match attempt(chunks.allocate()) {
            Err(error) if error.downcast_ref().is_some_and(|open| chunks.grow(open)) => {}
            done => return done,
        }
    }
}

/// The flavours of the device model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ModelPort {
    Ethernet,
    Infiniband,
}

/// Chunks of at most 2 MiB for the firmware's pages to begin with: more than most cards require for one function.
const CHUNKS: usize = 64;

fn main() -> ExitCode {
    env_logger::init();
    let arguments = Arguments::parse();
    let done = if arguments.bind || arguments.unbind {
        rebind(&arguments)
    } else if arguments.selftest {
        try_out(&arguments)
    } else if arguments.conformance {
        conform(&arguments)
    } else {
        show(&arguments)
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("devinfo: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Binds the function to another driver.
fn rebind(arguments: &Arguments) -> Result<()> {
    let DeviceName::Vfio(address) = arguments.device else {
        return Err("--device vfio:ADDRESS: which function?".into());
    };
    let plan = if arguments.bind {
        Rebinding::to_vfio(address)?
    } else {
        Rebinding::to_kernel(address)?
    };
    print!("{plan}");
    if !arguments.dry_run {
        plan.carry_out()?;
        for (index, [function, space]) in plan.device_files().iter().enumerate() {
            let begin = if index == 0 {
                "# opened through"
            } else {
                "# or"
            };
            println!("{begin} {} and {}", function.display(), space.display());
        }
    }
    Ok(())
}

/// A world with a card that is not there.
fn model(arguments: &Arguments, vectors: u16) -> World {
    Builder::new()
        .function(card(arguments))
        .interrupts(vectors)
        .threaded()
}

/// Its tests need no cable, and it has none then.
fn card(arguments: &Arguments) -> Card {
    let mut card = Card::card(arguments.card, 1);
    card.link_up = !arguments.selftest && !arguments.conformance;
    if arguments.model_port == ModelPort::Infiniband {
        card = card.infiniband();
    }
    card
}

fn show(arguments: &Arguments) -> Result<()> {
    let report = match arguments.device {
        DeviceName::Model => {
            let world = model(arguments, 1);
            let part = card(arguments).device_id;
            Report::of(world.platform(0), "model0", part)?
        }
        DeviceName::Vfio(address) => {
            let device = VfioDevice::open(address)?;
            let part = device.device_id();
            Report::of(device, &address.to_string(), part)?
        }
    };
    if arguments.json {
        println!("{}", report.to_json());
    } else {
        print!("{}", report.to_text());
    }
    Ok(())
}

fn try_out(arguments: &Arguments) -> Result<()> {
    match arguments.device {
        DeviceName::Model => {
            let world = model(arguments, 1);
            selftest::run(|| Ok(world.platform(0)))?;
        }
        DeviceName::Vfio(address) => {
            selftest::run(|| Ok(VfioDevice::open_with(address, Options::with_vectors(1))?))?;
        }
    }
    Ok(())
}

fn conform(arguments: &Arguments) -> Result<()> {
    conformance::run(|vectors| match arguments.device {
        DeviceName::Model => {
            let world = model(arguments, vectors);
            conformance::judge(&world.platform(0))
        }
        DeviceName::Vfio(address) => {
            let options = Options::with_vectors(vectors);
            conformance::judge(&VfioDevice::open_with(address, options)?)
        }
    })
}
