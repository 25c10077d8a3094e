//! The built-in device model: the card that it is, its port, and what that port is plugged into.

use std::fmt;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use bareverbs_command_line::{EMPTY, Named, is_path};
use bareverbs_in_process::subnet::{Subnet, infiniband_port};
use bareverbs_in_process::{Builder, World};
use bareverbs_node::{DevicePlatform, PORT_VARIABLE};
use bpaf::Bpaf;
use connectx_model::fault::setting::{self, Setting};
use connectx_model::link::datagram::{Address, Wire};
use connectx_model::link::setting::Shown;
use connectx_model::link::{Cable, Link};
use connectx_model::pcap::{Capture, PAGE};
use connectx_model::{Config, Profile};

use crate::Result;

/// The link layers of a model's port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelPort {
    Ethernet,
    Infiniband,
}

impl Named for ModelPort {
    const ALL: &'static [(&'static str, Self)] = &[
        ("ethernet", Self::Ethernet),
        ("infiniband", Self::Infiniband),
    ];
}

impl FromStr for ModelPort {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        Self::named(text)
    }
}

impl fmt::Display for ModelPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What the model is.
#[derive(Bpaf, Debug, Clone)]
#[bpaf(
    guard(|it| it.frames_are_damaged() || it.fault_seed.is_none(), "--fault-seed needs --fault of frames")
)]
pub struct Model {
    /// With --device model: the card that the model is, one of connectx-4-lx (as recorded from one), connectx-4,
    /// connectx-5, which is the default, connectx-6-dx, connectx-7, bluefield, bluefield-ecpf and bluefield-vf; or the
    /// file of a card.
    #[bpaf(argument("NAME|FILE"), last, optional)]
    card: Option<Profile>,
    /// With --device model: the link layer of its port, ethernet, which is the default, or infiniband. An InfiniBand port is
    /// set up as by a subnet manager, and in the group of IP over InfiniBand.
    #[bpaf(long, env(PORT_VARIABLE), argument("LAYER"), last, optional)]
    model_port: Option<ModelPort>,
    /// With --device model: what goes wrong, of frames or of firmware commands.
    ///
    /// Frames that the ports send: loss, duplicate, reorder, delay or corrupt with its share of the frames (0.001 to 1), and
    /// max-delay with the longest delay, as in loss=0.01,delay=0.1,max-delay=5ms.
    ///
    /// A command, as in command=CREATE_QP,nth=3,status=BAD_PARAM,syndrome=0x3c5a71. Which: command=NAME, =NUMBER or =any,
    /// and of these op-mod=NUMBER; the nth=NUMBER from the program's start (1 if not given), and times=NUMBER in a row; of
    /// function=0 (the server's, or the only one) or 1. What happens, one of status=NAME with syndrome=NUMBER,
    /// delivery=NUMBER, late=TIME, dropped, never-answered (it is executed), half (an answer), event-lost, health=SYNDROME,
    /// vanish.
    #[bpaf(long("fault"), argument::<Setting>("KIND=VALUE,..."), many)]
    faults: Vec<Setting>,
    /// Decides which frames; printed, and random if not given.
    #[bpaf(argument("FAULT_SEED"), last, optional)]
    fault_seed: Option<u64>,
}

impl Model {
    /// Returns true if the card, the link layer of its port or a fault was asked for.
    pub fn is_given(&self) -> bool {
        self.card.is_some() || self.model_port.is_some() || !self.faults.is_empty()
    }

    fn frames_are_damaged(&self) -> bool {
        self.faults.iter().any(Setting::is_of_frames)
    }

    /// Decides which frames are damaged, if some are.
    fn seed(&self) -> u64 {
        let seed = self.fault_seed;
        seed.unwrap_or_else(|| RandomState::new().hash_one(std::process::id()))
    }

    /// Sets the faults of a world whose frames `seed` chooses.
    pub fn damage(&self, world: &World, functions: usize, seed: u64) {
        let rates = setting::rates(&self.faults);
        if self.frames_are_damaged() {
            eprintln!("faults {}, --fault-seed {seed}", Shown(rates));
        }
        world.with_wire(|wire| wire.set_rates(rates));
        for index in 0..functions {
            world.with_model(index, |model| {
                setting::arm(&self.faults, index, model.faults_mut());
            });
        }
    }

    /// The card that it is.
    pub fn card(&self) -> Profile {
        self.card.clone().unwrap_or_default()
    }

    /// The link layer of its port.
    pub fn port(&self) -> ModelPort {
        self.model_port.unwrap_or(ModelPort::Ethernet)
    }

    /// The one that is number `unit`.
    pub fn config(&self, unit: u8) -> Config {
        let card = self.card().config(unit);
        match self.port() {
            ModelPort::Ethernet => card,
            ModelPort::Infiniband => infiniband_port(card, unit),
        }
    }

    /// Returns the link that joins two ports.
    pub fn network(&self) -> Box<dyn Link> {
        match self.port() {
            ModelPort::Ethernet => Box::new(Cable::new()),
            ModelPort::Infiniband => Subnet::of_numbered().link(2),
        }
    }

    /// Two of them, numbers 1 and 2, joined.
    pub fn pair(&self, interrupts: bool) -> [DevicePlatform; 2] {
        let seed = self.seed();
        let builder = Builder::with_link(self.network(), seed)
            .function(self.config(1))
            .function(self.config(2));
        let world = Arc::new(builder.interrupts(interrupts.into()).threaded());
        self.damage(&world, 2, seed);
        [0, 1].map(|index| DevicePlatform::model(&world, index))
    }
}

/// What the port of the model is plugged into, if not into another one's.
#[derive(Bpaf, Debug, Clone)]
#[bpaf(guard(|it| it.link.is_some() || it.pcap.is_none(), "--pcap needs --link"))]
pub struct Plugged {
    /// With --device model and one end: the wire that leads to the other end, unix:LOCAL,REMOTE (paths) or
    /// udp:LOCAL,REMOTE (HOST:PORT each). Every datagram is an Ethernet frame, as QEMU's -netdev dgram has them.
    #[bpaf(argument("FAMILY:LOCAL,REMOTE"), last, optional)]
    pub link: Option<Address>,
    /// Record what passes that wire, in this pcap file; it is whole whenever the process is killed.
    #[bpaf(long, argument("FILE"), last, guard(is_path, EMPTY), optional)]
    pcap: Option<PathBuf>,
}

impl Plugged {
    /// The world around a model that is number `unit`: its MAC address is 02:c9:00:00:00:UNIT.
    pub fn world(&self, model: &Model, unit: u8, interrupts: bool) -> Result<World> {
        let address = self.link.as_ref().ok_or(
            "on the model both ends run in one process: leave -s and -c away, say with --link where the other end is, or \
             name a card with --device vfio:BDF",
        )?;
        let wire = Wire::open(0, address).map_err(|error| format!("{address}: {error}"))?;
        let link: Box<dyn Link> = match &self.pcap {
            Some(path) => {
                let capture = File::create(path).and_then(|file| match model.port() {
                    ModelPort::Ethernet => Capture::new(model.network(), file),
                    ModelPort::Infiniband => Capture::infiniband(model.network(), file),
                });
                eprintln!("recording to {}: {PAGE} has how to read it", path.display());
                Box::new(capture.map_err(|error| format!("{}: {error}", path.display()))?)
            }
            None => model.network(),
        };
        let seed = model.seed();
        let world = Builder::with_link(link, seed)
            .function(model.config(unit))
            .exit(wire)
            .interrupts(u16::from(interrupts))
            .threaded();
        model.damage(&world, 1, seed);
        Ok(world)
    }
}
