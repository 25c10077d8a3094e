//! A program with two ends, and the cards that they are on: one end on one card, or both on two.

use std::error::Error;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, mpsc};

use bareverbs::verbs::{Gid, Mac, Mtu, Platform, RoceVersion};
use bareverbs_command_line::{EMPTY, end_at_a_closed_pipe, is_path, parse, within};
use bareverbs_node::vfio::PciAddress;
use bareverbs_node::{
    About, Address, Cm, DEFAULT_PKEY, DeviceName, DevicePlatform, Host, Node, NodeAddress, Options,
};
use bpaf::{Bpaf, OptionParser, Parser, construct, long, parsers::NamedArg};

use crate::Result;
use crate::devices::{self, Devices, devices};
use crate::log_tap;
use crate::plugged::{Plugged, plugged};

/// The cards, and how they are used.
#[derive(Debug, Clone)]
pub struct Cards {
    nodes: Nodes,
    mtu: Option<Mtu>,
}

/// The cards, and how they are used.
#[derive(Bpaf, Debug, Clone)]
#[bpaf(guard(
    |it| it.plugged.link.is_none() || it.devices.is_model(),
    "--link is for the model, and --device names a card"
))]
struct Nodes {
    #[bpaf(external)]
    devices: Devices,
    #[bpaf(external)]
    plugged: Plugged,
    /// Sleep until the card raises an interrupt, instead of polling it.
    #[bpaf(switch, last)]
    interrupts: bool,
    /// Lets "devinfo --socket PATH" look at this end's card while it is in use; at the server's, if both ends run here.
    #[bpaf(long, argument("PATH"), last, guard(is_path, EMPTY), optional)]
    socket: Option<PathBuf>,
    /// Send messages of the connection manager again at the negotiated interval only, as Linux does, and not sooner: for a
    /// peer that takes longer to answer than ours waits.
    #[bpaf(switch, last)]
    patient: bool,
    /// So many bits of this end's address are those of all hosts on its link; 24 of IPv4, 64 of IPv6 if not given.
    #[bpaf(argument("BITS"), last, optional)]
    prefix: Option<u8>,
    /// The router to hosts that are not on the link.
    #[bpaf(argument("ADDRESS"), last, optional)]
    gateway: Option<IpAddr>,
    /// The VLAN that the address is in; on Ethernet.
    #[bpaf(long, argument("ID"), last, guard(within(1..=4094), "not 1 to 4094"), optional)]
    vlan: Option<u16>,
    /// This end's MAC address, for a virtual function that was given none.
    #[bpaf(long, argument::<String>("MAC"), last, parse(parse_mac), optional)]
    mac: Option<Mac>,
    /// The version of RoCE, 1 or 2; on Ethernet. 2 if not given.
    #[bpaf(long, argument::<u8>("VERSION"), last, parse(parse_roce_version), optional)]
    roce_version: Option<RoceVersion>,
    /// The partition of an IP address on InfiniBand, as in 0x8001.
    #[bpaf(long, argument::<String>("P_KEY"), last, parse(parse_pkey), fallback(DEFAULT_PKEY))]
    pkey: u16,
}

/// The options that most programs take.
pub fn cards() -> impl Parser<Cards> {
    cards_with(long("mtu"))
}

/// With a letter for the MTU, which is another option's of other programs.
pub fn cards_with_letter() -> impl Parser<Cards> {
    cards_with(long("mtu").short('m'))
}

fn cards_with(mtu: NamedArg) -> impl Parser<Cards> {
    let nodes = nodes();
    let mtu = mtu
        .help(
            "Largest path MTU in bytes that a client asks for: 256 to 4096. On a card's Ethernet port 1024 if not given, \
             which fits the frames of 1500 bytes that networks carry by default.",
        )
        .argument("BYTES")
        .last()
        .parse(parse_mtu)
        .optional();
    construct!(Cards { nodes, mtu })
}

/// The ends that run here, and their addresses.
#[derive(Debug, Clone, Copy)]
pub enum Roles {
    /// Both, at these addresses or at some.
    Both {
        client: Option<Host>,
        server: Option<Host>,
    },
    Server(Host),
    Client {
        here: Host,
        server: Host,
    },
}

impl Roles {
    /// That the two ends have an address each: a device finds itself at its own.
    fn check(self) -> Result<()> {
        match self {
            Self::Client { server, .. } if server.is_own_gid() => {
                Err("which GID has the server? It is to be named: gid:GID".into())
            }
            Self::Both {
                client: Some(client),
                server: Some(server),
            }
            | Self::Client {
                here: client,
                server,
            } if client == server && !server.is_own_gid() => Err(format!(
                "{server} is the client's address and the server's: each end needs its own"
            )
            .into()),
            _ => Ok(()),
        }
    }
}

fn parse_mtu(text: String) -> std::result::Result<Mtu, String> {
    (1..=5)
        .filter_map(Mtu::from_number)
        .find(|mtu| mtu.bytes().to_string() == text)
        .ok_or_else(|| "256, 512, 1024, 2048 or 4096".into())
}

fn parse_pkey(text: String) -> std::result::Result<u16, &'static str> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u16::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number
        .ok()
        .filter(|number| number & 0x7fff != 0)
        .ok_or("not a P_Key, as 0x8001 is")
}

fn parse_roce_version(number: u8) -> std::result::Result<RoceVersion, &'static str> {
    match number {
        1 => Ok(RoceVersion::V1),
        2 => Ok(RoceVersion::V2),
        _ => Err("1 or 2"),
    }
}

fn parse_mac(text: String) -> std::result::Result<Mac, String> {
    let bytes: Vec<u8> = text
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16))
        .collect::<std::result::Result<_, _>>()
        .map_err(|error| error.to_string())?;
    bytes
        .try_into()
        .map_err(|_| "a MAC address has six bytes".into())
}

/// The two ends of a program.
pub trait Program: Sync {
    /// The server's result.
    type Served: Send;
    /// The findings of the client.
    type Found;

    /// Its name, before errors.
    fn name(&self) -> &'static str;
    /// The index of the client's device among two.
    const CLIENT: usize;

    /// Connections that an end may have at once.
    fn connections(&self) -> usize {
        8
    }

    /// Serves one client. `listening` is called once it may come.
    fn serve(
        &self,
        cm: &mut Cm<'_, '_>,
        address: Host,
        listening: &mut dyn FnMut(),
    ) -> Result<Self::Served>;

    /// Works from the first address with the server at the second. `both`: which runs in this process too.
    fn work(
        &self,
        cm: &mut Cm<'_, '_>,
        about: &About,
        ends: [Host; 2],
        both: bool,
    ) -> Result<Self::Found>;

    /// Prints a device that is in use.
    fn introduce(&self, name: &str, about: &About) {
        let About {
            firmware,
            port,
            gids,
            commands,
            bring_up,
        } = about;
        log::info!("{name}: firmware {firmware}, {port}, {} GIDs", gids.len());
        log::info!("{name}: {commands} firmware commands for bring-up, {bring_up:?}");
    }

    /// Says that the server waits for clients.
    fn announce(&self, address: Host);

    /// Holds the two ends against each other, if both ran here.
    fn compare(&self, served: &Self::Served, found: &Self::Found) -> Result<()>;
}

impl Cards {
    /// `true` if one end only can run here: there is one card, or a way to the other end's.
    pub fn one(&self) -> bool {
        self.nodes.plugged.link.is_some()
            || matches!(self.nodes.devices.names[..], [DeviceName::Vfio(_)])
    }

    /// Says what they are, for a report.
    pub fn shown(&self) -> String {
        let Devices { names, model } = &self.nodes.devices;
        if self.nodes.devices.is_model() {
            return format!("on a model of {}, not on a card", model.card());
        }
        let cards: Vec<String> = names.iter().map(DeviceName::to_string).collect();
        format!("on {}", cards.join(" and "))
    }

    /// Runs a program's ends. What the client found out, if it ran here.
    pub fn run<A: Program>(&self, program: &A, roles: Roles) -> Result<Option<A::Found>> {
        roles.check()?;
        match (&self.nodes.devices.names[..], roles) {
            ([DeviceName::Model], Roles::Both { client, server }) => {
                let platforms = self.nodes.devices.model.pair(self.nodes.interrupts);
                self.run_both(program, [client, server], platforms)
                    .map(Some)
            }
            (
                &[DeviceName::Vfio(first), DeviceName::Vfio(second)],
                Roles::Both { client, server },
            ) => {
                let platforms = [first, second].map(|card| self.open(card));
                let [first, second] = platforms;
                self.run_both(program, [client, server], [first?, second?])
                    .map(Some)
            }
            (&[DeviceName::Vfio(card)], Roles::Server(_) | Roles::Client { .. }) => {
                self.run_one(program, roles, self.open(card)?, &card.to_string())
            }
            ([DeviceName::Model], Roles::Server(_) | Roles::Client { .. }) => {
                // They differ, so that two processes can be wired together.
                let unit = if let Roles::Server(_) = roles { 1 } else { 2 };
                let world = Arc::new(self.nodes.plugged.world(
                    &self.nodes.devices.model,
                    unit,
                    self.nodes.interrupts,
                )?);
                self.run_one(program, roles, DevicePlatform::model(&world, 0), "model")
            }
            _ => Err("--device: one card for one end, two for both, or the model".into()),
        }
    }

    fn open(&self, card: PciAddress) -> Result<DevicePlatform> {
        Ok(devices::open(card, u16::from(self.nodes.interrupts))?.into())
    }

    /// Where a node is, by the host that it is. What is about the network is for IP addresses.
    fn place(&self, host: Host) -> Result<NodeAddress> {
        let Nodes {
            prefix,
            gateway,
            vlan,
            ..
        } = self.nodes;
        match host {
            Host::Ip(ip) => Ok(NodeAddress::Ip(Address {
                ip,
                prefix,
                gateway,
                vlan,
            })),
            Host::Gid(_) if prefix.is_some() || gateway.is_some() || vlan.is_some() => {
                Err("--prefix, --gateway and --vlan are for IP addresses".into())
            }
            Host::Gid(gid) => Ok(NodeAddress::Gid(gid)),
        }
    }

    /// The settings of a program's node, with this MTU on an Ethernet port if none is asked for.
    fn options<A: Program>(&self, program: &A, mtu: Option<Mtu>) -> Options {
        let mut options = Options::for_connections(program.connections());
        options.interrupts = self.nodes.interrupts;
        options.max_path_mtu = self.mtu.or(mtu);
        options.patient = self.nodes.patient;
        options.roce_version = self.nodes.roce_version;
        options.pkey = self.nodes.pkey;
        options
    }

    /// Lets the node serve a socket, if one was named.
    fn served(&self, node: Node) -> Node {
        match &self.nodes.socket {
            Some(path) => node.serve(path),
            None => node,
        }
    }

    /// Both ends in this process, a thread each.
    fn run_both<A: Program>(
        &self,
        program: &A,
        [client, server]: [Option<Host>; 2],
        mut platforms: [DevicePlatform; 2],
    ) -> Result<A::Found> {
        if self.nodes.mac.is_some() {
            return Err("--mac is for one end, and both run here".into());
        }
        let server = server.unwrap_or(Host::from([10, 0, 0, 1]));
        let client = client.unwrap_or(match server {
            Host::Ip(IpAddr::V4(address)) => (u32::from(address) ^ 3).to_be_bytes().into(),
            Host::Ip(IpAddr::V6(address)) => {
                IpAddr::from((u128::from(address) ^ 3).to_be_bytes()).into()
            }
            Host::Gid(_) => Gid::ZERO.into(),
        });
        if A::CLIENT == 0 {
            platforms.reverse();
        }
        let [theirs, ours] = platforms;
        let [there, here] = [self.place(server)?, self.place(client)?];
        let options = self.options(program, Some(Mtu::B4096));
        let (theirs, ours) = (
            self.served(Node::new(theirs, there, options)),
            Node::new(ours, here, options),
        );
        let (listening, may_connect) = mpsc::channel();

        let (served, found) = std::thread::scope(|scope| {
            let served = scope.spawn(move || {
                theirs
                    .run_with(|cm, about| {
                        let server = named(cm, server)?;
                        program.serve(cm, server, &mut || {
                            // The client is gone only if it has failed, which it says itself.
                            let _ = listening.send((about.clone(), server));
                        })
                    })
                    .inspect_err(|error| eprintln!("{}: server: {error}", program.name()))
            });
            let found = ours.run_with(|cm, about| {
                let client = named(cm, client)?;
                let (there, server) = may_connect.recv().map_err(|_| "the server did not start")?;
                program.introduce("Server", &there);
                program.introduce("Client", about);
                program.work(cm, about, [client, server], true)
            });
            // A client that failed leaves the server waiting for one.
            let found = found.inspect_err(|error| {
                eprintln!("{}: client: {error}", program.name());
                std::process::exit(1);
            });
            (served.join(), found)
        });
        let served = served.map_err(|_| "the server panicked")??;
        let found = found?;
        program.compare(&served, &found)?;
        Ok(found)
    }

    /// One end, on the card of this name.
    fn run_one<A: Program>(
        &self,
        program: &A,
        roles: Roles,
        platform: DevicePlatform,
        card: &str,
    ) -> Result<Option<A::Found>> {
        let here = match roles {
            Roles::Server(here) | Roles::Client { here, .. } => here,
            Roles::Both { .. } => return Err("one card cannot be both ends'".into()),
        };
        let mut options = self.options(program, None);
        options.mac = self.nodes.mac;
        let node = self.served(Node::new(platform, self.place(here)?, options));
        node.run_with(|cm, about| {
            program.introduce(card, about);
            let here = named(cm, here)?;
            let done = if let Roles::Client { server, .. } = roles {
                program.work(cm, about, [here, server], false).map(Some)
            } else {
                let mut announce = || program.announce(here);
                program.serve(cm, here, &mut announce).map(|_| None)
            };
            done.map_err(|error| {
                print_error(program.name(), &*error);
                AlreadyReported.into()
            })
        })
    }
}

/// A host of this port as others may name it.
fn named<P: Platform>(cm: &Cm<'_, '_, P>, host: Host) -> Result<Host> {
    Ok(if host.is_own_gid() {
        cm.device().query_infiniband_gid(0)?.into()
    } else {
        host
    })
}

/// The whole of a program: runs it as its command line says.
pub fn main<A, T>(
    name: &str,
    options: &OptionParser<A>,
    run: impl FnOnce(&A) -> Result<T>,
) -> ExitCode {
    end_at_a_closed_pipe();
    // Late commands, and what the last user left, are worth a warning.
    let filter = format!(
        "error,{}=warn,bareverbs_core::firmware::command_queue=warn,bareverbs_core::device::open=warn",
        bareverbs::cm::ip::WAITING_LOG
    );
    let environment = env_logger::Env::default().default_filter_or(filter);
    if let Err(error) = log_tap::install(env_logger::Builder::from_env(environment).build()) {
        eprintln!("{name}: {error}");
    }
    let options = match parse(name, options) {
        Ok(options) => options,
        Err(code) => return code,
    };
    match run(&options) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(name, &*error);
            ExitCode::FAILURE
        }
    }
}

/// The whole of a short program that takes the options of [`Devices`] and no others, with what `--help` begins with.
pub fn on_devices(name: &str, about: &str, run: impl FnOnce(&Devices) -> Result<()>) -> ExitCode {
    main(name, &devices().to_options().descr(about), run)
}

/// Prints why a program failed, unless that was printed when it came up.
fn print_error(name: &str, error: &(dyn Error + Send + Sync + 'static)) {
    if !error.is::<AlreadyReported>() {
        eprintln!("{name}: {error}");
    }
}

/// An error that was printed when it came up: the kernel may block a process for a minute that closes a card which was
/// removed from the bus, and the user should get the reason earlier.
#[derive(Debug, thiserror::Error)]
#[error("reported before")]
struct AlreadyReported;

/// Different at each start, so that a peer does not take a new connection for an old one.
pub fn seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}
