//! The built-in device model with one port, and what that port is plugged into.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;

use bareverbs_in_process::{Builder, World};
use clap::Args;
use connectx_model::Card;
use connectx_model::link::datagram::{Address, Wire};
use connectx_model::link::setting::{self, Fault, Shown};
use connectx_model::link::{Cable, Link};
use connectx_model::pcap::Capture;

use crate::Result;

/// What the port of the model is plugged into, if not into another one's.
#[derive(Args, Debug, Clone)]
pub struct Plugged {
    /// With --device model: the card that the model is, one of connectx-4-lx (as recorded from one), connectx-4,
    /// connectx-5, connectx-6-dx, connectx-7, bluefield, bluefield-ecpf and bluefield-vf.
    #[arg(long, value_name = "NAME", default_value_t = Card::ConnectX5)]
    pub card: Card,
    /// With --device model and one end: the wire that leads to the other end, unix:LOCAL,REMOTE (paths) or
    /// udp:LOCAL,REMOTE (HOST:PORT each). Every datagram is an Ethernet frame, as QEMU's -netdev dgram has them.
    #[arg(long, value_name = "FAMILY:LOCAL,REMOTE")]
    pub link: Option<Address>,
    /// Record what passes that wire, in this pcap file; it is whole whenever the process is killed.
    #[arg(long, value_name = "FILE", requires = "link")]
    pcap: Option<PathBuf>,
    /// Faults of frames on that wire: loss, duplicate, reorder, delay or corrupt with its share of the frames (0.001 to
    /// 1), and max-delay with the longest delay, as in loss=0.01,delay=0.1,max-delay=5ms.
    #[arg(
        long = "fault",
        value_name = "KIND=VALUE",
        value_delimiter = ',',
        requires = "link"
    )]
    faults: Vec<Fault>,
    /// Decides which frames; printed, and random if not given.
    #[arg(long, requires = "faults")]
    fault_seed: Option<u64>,
}

impl Plugged {
    /// The world around a model that is number `unit`: its MAC address is 02:c9:00:00:00:UNIT.
    pub fn world(&self, unit: u8, interrupts: bool) -> Result<World> {
        let address = self.link.as_ref().ok_or(
            "on the model both ends run in one process: leave -s and -c away, say with --link where the other end is, or \
             name a card with --device vfio:BDF",
        )?;
        let wire = Wire::open(0, address).map_err(|error| format!("{address}: {error}"))?;
        let link: Box<dyn Link> = match &self.pcap {
            Some(path) => Box::new(
                File::create(path)
                    .and_then(|file| Capture::new(Cable::new(), file))
                    .map_err(|error| format!("{}: {error}", path.display()))?,
            ),
            None => Box::new(Cable::new()),
        };
        let mut rates = setting::none();
        for fault in &self.faults {
            fault.apply(&mut rates);
        }
        let seed = self.fault_seed;
        let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(std::process::id()));
        if !self.faults.is_empty() {
            eprintln!("faults {}, --fault-seed {seed}", Shown(rates));
        }
        let world = Builder::with_link(link, seed)
            .function(connectx_model::Config::card(self.card, unit))
            .exit(wire)
            .interrupts(u16::from(interrupts))
            .threaded();
        world.with_wire(|wire| wire.set_rates(rates));
        Ok(world)
    }
}
