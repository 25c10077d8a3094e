//! A device with an address, and the connection manager on it.

use std::path::PathBuf;
use std::time::Duration;

use bareverbs_cm::ip::{self, Route};
use bareverbs_cm::rdma::{
    self, IpOverInfiniband, NeighbourDiscovery, Neighbours, PartitionQp, RdmaCm, RdmaError,
    Resolver, SubnetAdministration,
};
use bareverbs_cm::sa;
use bareverbs_core::{
    Config, Device, EthernetInit, Gid, GidEntry, LinkLayer, Mac, Mtu, OpenError, PageChunk, Pd,
    Platform, PortAttr, RoceVersion,
};
use bareverbs_vfio::{PciAddress, VfioDevice};

use crate::address::{Address, NodeAddress};
use crate::device_name::DeviceName;
use crate::error::{Error, EthernetSetting, SetupStep};
use crate::inspect::Served;
#[cfg(feature = "last-messages")]
use crate::last_messages::{self, End, Messages};
use crate::link::{is_usable, wait_for_link};
use crate::page_chunks::PageChunks;
use crate::patience::when_free;
use crate::platform::DevicePlatform;
use crate::resolver::PortResolver;
use crate::storage::{self, DeviceStorage, Host, ManagerStorage, PARTITIONS, SubnetMemory};

/// The longest time until the port is up, and until an address is known to be no other host's.
const LINK: Duration = Duration::from_secs(10);

/// Chunks of memory for the firmware's pages to begin with: it requires more of them for each connection.
const CHUNKS: usize = 256;

/// The partition that all InfiniBand ports are in.
pub const DEFAULT_PKEY: u16 = 0xffff;

/// The connection manager of a node: it finds the other hosts by itself (ARP, neighbour discovery, on InfiniBand also subnet
/// administration).
///
/// `'d` is the device's lifetime, which buffers and queue pairs borrow; `'s` that of the manager's storage.
pub type Cm<'s, 'd, P = DevicePlatform> = RdmaCm<'s, 'd, P, PortResolver<'s, 'd, P>>;

/// The same for tasks, which [`Cm`] is lent to: async/await on any executor, woken by an
/// [`EventChannel`](crate::EventChannel).
pub type AsyncCm<'c, 's, 'd, P = DevicePlatform> =
    rdma::AsyncCm<'c, 's, 'd, P, PortResolver<'s, 'd, P>>;

/// The settings of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// The number of connections at once. 8 by default.
    pub connections: usize,
    /// Sleep until the device raises an interrupt, instead of polling it. Off by default.
    pub interrupts: bool,
    /// The largest path MTU to ask for. By default 1024 bytes on an Ethernet port of a card, which fits the frames of 1500
    /// bytes that networks carry by default, and 4096 on the model and on InfiniBand, where the path says what it carries.
    pub max_path_mtu: Option<Mtu>,
    /// The MAC address to use instead of the port's: for a virtual function that was given none. On Ethernet only.
    pub mac: Option<Mac>,
    /// The version of RoCE that the address is used in, instead of 2. On Ethernet only.
    pub roce_version: Option<RoceVersion>,
    /// The partition that an IP address is in, which a subnet manager has to let the port into. On InfiniBand only;
    /// [`DEFAULT_PKEY`] by default.
    pub pkey: u16,
    /// Send messages of the connection manager again at the negotiated interval only, as Linux does, and not sooner: for a
    /// peer that takes longer to answer than this manager waits. Off by default.
    pub patient: bool,
    /// Decides the numbers that a peer sees first: packet sequence numbers, communication IDs. Different at each start by
    /// default, so that a peer does not take a new connection for an old one.
    pub seed: Option<u64>,
    /// The ports of device models are InfiniBand ports, as a subnet manager has set them up. Off by default.
    pub infiniband: bool,
    /// Disconnect when the process ends in whatever way: for one that is killed, aborts, calls `_exit` or runs another program
    /// (`execve`), another process opens the device again and sends the DREQ or the REJ of each connection, as the kernel does on
    /// Linux. Off by default.
    ///
    /// That process is a copy of this one, forked by [`Node::open`] and its relatives, which therefore are called while the
    /// process has one thread: at the beginning of `main`, and before a runtime of several threads is made. It is no child of this
    /// one's; it has no descriptors of it, not even standard error unless records of level `Debug` are logged, and ends with
    /// [`Node::run`]. It keeps the working directory and, as long as the program runs, the memory that the program had then, each
    /// page a second time once the program writes to it. `ps` names it `hang-up`; what ends processes by their command line
    /// (`pkill -f`) or by their cgroup ends both. A program that closes all of its descriptors has ended for it, as has one that
    /// goes on as a child of itself: daemons become such before they open a node.
    /// A program that begins with the same device and this feature waits until the last one's connections are ended.
    ///
    /// On a switch the model has the number of [`UNIT_VARIABLE`] or of the address, and none that the switch gives. A model
    /// without a link, a [`Pair`](crate::Pair), whose ends are gone at once, and a platform of the caller's ([`Node::new`]) are
    /// not disconnected.
    #[cfg(feature = "last-messages")]
    pub disconnect_on_exit: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connections: 8,
            interrupts: false,
            max_path_mtu: None,
            mac: None,
            roce_version: None,
            pkey: DEFAULT_PKEY,
            patient: false,
            seed: None,
            infiniband: false,
            #[cfg(feature = "last-messages")]
            disconnect_on_exit: false,
        }
    }
}

/// The environment variable that says what the ports of device models are: `ethernet`, which they are if it is not set, or
/// `infiniband`.
pub const PORT_VARIABLE: &str = "BAREVERBS_PORT";

/// The environment variable that names the wire from a model that is opened alone to another process: `unix:LOCAL,REMOTE` with
/// the paths of two sockets, `udp:LOCAL,REMOTE` with HOST:PORT twice, or `switch:PATH` for a switch that any number of
/// processes share. Without it the model has no cable.
pub const LINK_VARIABLE: &str = "BAREVERBS_LINK";

/// The environment variable with the number of a model that is opened alone, 1 to 254, which decides its MAC address, GUID and
/// LID. If it is not set, the number is the last byte of the node's IP address, or another one that a switch gives.
pub const UNIT_VARIABLE: &str = "BAREVERBS_UNIT";

/// The environment variable with the faults of device models, of frames and of firmware commands, in the form of the examples'
/// `--fault`, with semicolons between several.
pub const FAULT_VARIABLE: &str = "BAREVERBS_FAULT";

impl Options {
    /// The default ones, with ports of models as the environment has them ([`PORT_VARIABLE`]).
    ///
    /// # Errors
    ///
    /// [`Error::PortKind`].
    pub fn from_env() -> Result<Self, Error> {
        let kind = std::env::var_os(PORT_VARIABLE).unwrap_or_default();
        let infiniband = match kind.to_str() {
            Some("" | "ethernet") => false,
            Some("infiniband") => true,
            _ => return Err(Error::PortKind(kind.to_string_lossy().into_owned())),
        };
        Ok(Self {
            infiniband,
            ..Self::default()
        })
    }

    /// The default ones, for as many connections.
    #[must_use]
    pub fn for_connections(connections: usize) -> Self {
        Self {
            connections,
            ..Self::default()
        }
    }
}

/// The description of a node's device, for people.
#[derive(Debug, Clone)]
pub struct About {
    /// The firmware's version.
    pub firmware: String,
    /// State, link layer, rate, MTU and MAC address of the port, on InfiniBand its LIDs and its GID.
    pub port: String,
    /// The valid entries of the GID table, each with its index; on Ethernet only.
    pub gids: Vec<(u16, GidEntry)>,
    /// Firmware commands that bring-up took.
    pub commands: u64,
    /// The time that bring-up took.
    pub bring_up: Duration,
}

/// A device with an address, which [`run`](Self::run) brings up.
#[derive(Debug)]
pub struct Node<P: Platform = DevicePlatform> {
    platform: P,
    address: NodeAddress,
    options: Options,
    served: Option<Served<P>>,
    /// Another process has had the address, which is no other host's therefore.
    had_address: bool,
    /// The device is a model, whose address is used while it is probed for.
    #[cfg(feature = "model")]
    pub(crate) is_model: bool,
    #[cfg(feature = "last-messages")]
    last_messages: Option<Messages>,
}

impl Node {
    /// Opens the device of this name: `"vfio:0000:3b:00.0"` or `"model"`. `address` is the node's own: an [`IpAddr`],
    /// an [`Address`], or on InfiniBand a [`Gid`].
    ///
    /// A model that is opened alone has the cable to another process that the environment names ([`LINK_VARIABLE`]), if any;
    /// [`Pair`](crate::Pair) joins two models of this one.
    ///
    /// # Errors
    ///
    /// [`Error::Name`], [`Error::NoModel`], [`Error::Variable`], or [`Error::Function`] with what VFIO says.
    ///
    /// [`IpAddr`]: std::net::IpAddr
    pub fn open(device: &str, address: impl Into<NodeAddress>) -> Result<Self, Error> {
        Self::open_with(device.parse()?, address, Options::default())
    }

    /// Opens the device that the environment names ([`DeviceName::from_env`], [`Options::from_env`]).
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), [`Error::NotOneDevice`], and [`Error::PortKind`].
    pub fn from_env(address: impl Into<NodeAddress>) -> Result<Self, Error> {
        match DeviceName::from_env()?[..] {
            [device] => Self::open_with(device, address, Options::from_env()?),
            ref devices => Err(Error::NotOneDevice(devices.len())),
        }
    }

    /// Opens a device.
    ///
    /// # Errors
    ///
    /// [`Error::NoModel`], [`Error::Variable`], or [`Error::Function`] with what VFIO says; those of
    /// [`disconnect_on_exit`](Options::disconnect_on_exit).
    pub fn open_with(
        device: DeviceName,
        address: impl Into<NodeAddress>,
        options: Options,
    ) -> Result<Self, Error> {
        let address = address.into();
        #[cfg(feature = "last-messages")]
        let last_messages = prepare_to_disconnect(device, address, options)?;
        Ok(Self {
            #[cfg(feature = "last-messages")]
            last_messages,
            ..Self::open_within(Duration::ZERO, device, address, options)?
        })
    }

    /// Opens a device, for which it waits as long as `patience` if another process has it.
    fn open_within(
        patience: Duration,
        device: DeviceName,
        address: NodeAddress,
        options: Options,
    ) -> Result<Self, Error> {
        let platform = match device {
            DeviceName::Vfio(function) => open_function(function, options.interrupts, patience)?,
            DeviceName::Model => model(options, address, patience)?,
        };
        let mut node = Self::new(platform, address, options);
        if device == DeviceName::Model {
            node.options.max_path_mtu.get_or_insert(Mtu::B4096);
            #[cfg(feature = "model")]
            {
                node.is_model = true;
            }
        }
        Ok(node)
    }
}

/// The time for which a process that hangs up waits for the device of the one that is gone: its memory is released first.
#[cfg(feature = "last-messages")]
const RELEASE: Duration = Duration::from_secs(10);

/// Waits for a process that hangs up for an earlier one with the same device, and starts one for this one, if there is to be one.
#[cfg(feature = "last-messages")]
fn prepare_to_disconnect(
    device: DeviceName,
    address: NodeAddress,
    options: Options,
) -> Result<Option<Messages>, Error> {
    let end = match device {
        DeviceName::Vfio(function) => Some(End::Function(function)),
        #[cfg(feature = "model")]
        DeviceName::Model => crate::models::end(address)?,
        #[cfg(not(feature = "model"))]
        DeviceName::Model => None,
    };
    let Some(end) = end else {
        return Ok(None);
    };
    if !options.disconnect_on_exit {
        end.wait();
        return Ok(None);
    }
    let connections = storage::connections(options.connections);
    let messages = last_messages::start(&end, connections, |messages| {
        let options = Options {
            connections: 1,
            ..options
        };
        let mut node = Node::open_within(RELEASE, device, address, options)?;
        node.had_address = true;
        node.run(|cm| {
            cm.send_last_messages(messages);
            Ok(())
        })
    });
    messages.map(Some)
}

/// Opens a function on VFIO, with an interrupt vector or for polling. It is waited for as long as `patience` if another process
/// has it.
pub(crate) fn open_function(
    address: PciAddress,
    interrupts: bool,
    patience: Duration,
) -> Result<DevicePlatform, Error> {
    let vectors = if interrupts {
        bareverbs_vfio::Options::with_vectors(1)
    } else {
        bareverbs_vfio::Options::default()
    };
    let is_in_use = |error: &bareverbs_vfio::OpenError| {
        matches!(error, bareverbs_vfio::OpenError::InUse { .. })
    };
    let open = || VfioDevice::open_with(address, vectors);
    match when_free(patience, is_in_use, open) {
        Ok(device) => Ok(device.into()),
        Err(source) => Err(Error::Function { address, source }),
    }
}

#[cfg(feature = "model")]
fn model(
    options: Options,
    address: NodeAddress,
    patience: Duration,
) -> Result<DevicePlatform, Error> {
    crate::models::model(options, address, patience)
}

#[cfg(not(feature = "model"))]
fn model(_: Options, _: NodeAddress, _: Duration) -> Result<DevicePlatform, Error> {
    Err(Error::NoModel)
}

impl<P: Platform + Clone> Node<P> {
    /// A node on a platform of the caller's.
    pub fn new(platform: P, address: impl Into<NodeAddress>, options: Options) -> Self {
        Self {
            platform,
            address: address.into(),
            options,
            served: None,
            had_address: false,
            #[cfg(feature = "model")]
            is_model: false,
            #[cfg(feature = "last-messages")]
            last_messages: None,
        }
    }

    /// Lets other programs look at the device while it is in use: what its port counts, and its QPs and CQs, by
    /// `devinfo --socket PATH --watch 1` and `--resources`, or [`inspect`](crate::inspect). Another thread answers at this
    /// Unix socket, whose file only this user may open. It asks the device by firmware commands beside those of the program.
    #[must_use]
    pub fn serve(mut self, path: impl Into<PathBuf>) -> Self
    where
        P: Send + Sync,
    {
        self.served = Some(Served::at(path.into()));
        self
    }

    /// Where the node is.
    pub const fn address(&self) -> NodeAddress {
        self.address
    }

    /// The settings, to be changed before the node runs. Interrupts were chosen when the device was opened.
    pub const fn options_mut(&mut self) -> &mut Options {
        &mut self.options
    }

    /// Brings the device up, waits for its link, claims the address, starts the connection manager, lets `work` work with
    /// it, and takes all of it down.
    ///
    /// A card's IPv6 address is probed for before `work` begins (RFC 4862), that of a model meanwhile (RFC 4429): should another
    /// host have it, that is logged, and the port has the address no longer.
    ///
    /// # Errors
    ///
    /// What `work` returned, or [`Error`] for all that is before and after it: any type that an [`Error`] can be turned into.
    pub fn run<T, E: From<Error>>(
        self,
        work: impl FnOnce(&mut Cm<'_, '_, P>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.run_with(|cm, _| work(cm))
    }

    /// The same for work that gets information about the device, too.
    ///
    /// # Errors
    ///
    /// As for [`run`](Self::run).
    pub fn run_with<T, E: From<Error>>(
        mut self,
        work: impl FnOnce(&mut Cm<'_, '_, P>, &About) -> Result<T, E>,
    ) -> Result<T, E> {
        let (mut work, mut chunks) = (work, PageChunks::new(CHUNKS));
        loop {
            match self.attempt(chunks.allocate(), work) {
                Ok(done) => return Ok(done),
                Err(Failure::BringUp(error, unused)) if chunks.grow(&error) => work = unused,
                Err(Failure::BringUp(error, _)) => return Err(Error::BringUp(error).into()),
                Err(Failure::Setup(error)) => return Err(error.into()),
                Err(Failure::Work(error)) => return Err(error),
            }
        }
    }

    /// One attempt, with so many chunks for the firmware's pages.
    fn attempt<T, E, W>(&mut self, chunks: Vec<PageChunk>, work: W) -> Result<T, Failure<E, W>>
    where
        W: FnOnce(&mut Cm<'_, '_, P>, &About) -> Result<T, E>,
    {
        let Options {
            connections, seed, ..
        } = self.options;
        let seed = seed.unwrap_or_else(random);
        let began = self.platform.now();
        let mut memory = DeviceStorage::for_connections(connections, chunks);
        let mut config = Config::DEFAULT;
        config.interrupts = self.options.interrupts;
        let device = match Device::open(self.platform.clone(), config, memory.storage()) {
            Ok(device) => device,
            Err(error) => return Err(Failure::BringUp(error, work)),
        };
        let commands = device.commands_executed();
        let bring_up = device.platform().now() - began;

        let port = self.link(&device)?;
        let pd = device.default_pd().map_err(SetupStep::Pd.failed())?;
        let (mut host, mut subnet) = (storage::host(), SubnetMemory::for_connections(connections));
        let resolver = match port.link_layer {
            LinkLayer::Ethernet => self.neighbours(&device, &pd, &mut host, seed)?,
            LinkLayer::InfiniBand => self.subnet(&device, &pd, &mut host, &mut subnet, seed)?,
        };
        let about = About {
            firmware: device.capabilities().firmware.to_string(),
            port: describe(&device, &port)?,
            gids: device.gid_table().collect(),
            commands,
            bring_up,
        };

        let done = {
            let mut config = rdma::Config::new(seed);
            config.trace = true;
            config.max_path_mtu = self.options.max_path_mtu.unwrap_or(match port.link_layer {
                LinkLayer::Ethernet => Mtu::B1024,
                LinkLayer::InfiniBand => Mtu::B4096,
            });
            // All clients may connect at once, and be disconnected before that is done.
            config.gsi_depth = (2 * connections).clamp(512, 16384) as u32;
            config.max_backlog = config.max_backlog.max(connections as u32);
            let mut memory = ManagerStorage::for_connections(connections);
            let mut partitions = [const { PartitionQp::EMPTY }; PARTITIONS];
            let mut cm = RdmaCm::new(&device, resolver, config, memory.storage())
                .map_err(SetupStep::Manager.failed())?;
            if self.options.patient {
                cm.engine_config_mut().timers.early = None;
            }
            if port.link_layer == LinkLayer::InfiniBand {
                match cm.set_partition_qps(&mut partitions) {
                    // Devices that always send a QP's own number.
                    Err(RdmaError::Unsupported(_)) => {}
                    done => done.map_err(SetupStep::Manager.failed())?,
                }
            }
            self.settle(&mut cm)?;
            #[cfg(feature = "last-messages")]
            if let Some(messages) = &mut self.last_messages {
                cm.set_last_messages(messages.as_mut_slice());
            }
            match &self.served {
                None => work(&mut cm, &about),
                Some(served) => {
                    let (mut work, mut done) = (Some(work), None);
                    let mut run = || done = work.take().map(|work| work(&mut cm, &about));
                    let served = served.run(&device, &mut run);
                    match (served, done) {
                        (Ok(()), Some(done)) => done,
                        (Err((path, source)), _) => {
                            return Err(Error::Serve { path, source }.into());
                        }
                        (Ok(()), None) => return Err(Error::ServerNotReady.into()),
                    }
                }
            }
        };
        let done = done.map_err(Failure::Work)?;
        drop(pd);
        device.close().map_err(Error::Close)?;
        Ok(done)
    }

    /// Waits for the port's link, once it is known to be of the kind that was asked for.
    fn link(&self, device: &Device<'_, P>) -> Result<PortAttr, Error> {
        if device.capabilities().link_layer() == LinkLayer::InfiniBand {
            let vlan = match self.address {
                NodeAddress::Ip(address) => address.vlan,
                NodeAddress::Gid(_) => None,
            };
            if self.options.mac.is_some() {
                return Err(Error::EthernetOnly(EthernetSetting::Mac));
            }
            if self.options.roce_version.is_some() {
                return Err(Error::EthernetOnly(EthernetSetting::RoceVersion));
            }
            if vlan.is_some() {
                return Err(Error::EthernetOnly(EthernetSetting::Vlan));
            }
        } else if let NodeAddress::Gid(_) = self.address {
            return Err(Error::GidOnEthernet);
        }
        if let Some(mac) = self.options.mac {
            device.set_mac(mac).map_err(SetupStep::Mac.failed())?;
        }
        let port = wait_for_link(device, LINK).map_err(SetupStep::Link.failed())?;
        if !is_usable(&port) {
            let link = device.query_link().map_err(SetupStep::Link.failed())?;
            return Err(Error::Port {
                state: port.state,
                link,
            });
        }
        Ok(port)
    }

    /// Settings of the IP host.
    fn host_config(&self, seed: u64) -> ip::Config {
        let mut config = ip::Config::new(seed);
        if self.had_address {
            (config.ipv6_probes, config.announcements) = (0, 0);
        }
        #[cfg(feature = "model")]
        {
            config.optimistic = self.is_model;
        }
        config
    }

    /// The resolver of an Ethernet port. The port has the address, once it is known to be no other host's.
    fn neighbours<'s, 'd>(
        &self,
        device: &'d Device<'d, P>,
        pd: &Pd<'d, P>,
        host: &'s mut Host,
        seed: u64,
    ) -> Result<PortResolver<'s, 'd, P>, Error> {
        let NodeAddress::Ip(address) = self.address else {
            return Err(Error::GidOnEthernet);
        };
        let config = self.host_config(seed);
        let mut neighbours =
            NeighbourDiscovery::new(device, pd, EthernetInit::default(), config, host.storage())
                .map_err(SetupStep::Host.failed())?
                .with_roce_version(self.options.roce_version.unwrap_or(RoceVersion::V2));
        let claiming = SetupStep::Address(address.ip);
        neighbours
            .add_address(address.ip, address.prefix_len(), address.vlan)
            .map_err(claiming.failed())?;
        neighbours
            .wait_for_addresses(device.platform().now() + LINK)
            .map_err(claiming.failed())?;
        add_gateway(neighbours.host(), &address)?;
        Ok(neighbours.into())
    }

    /// The resolver of an InfiniBand port. The address becomes the port's when a manager has worked for a while
    /// ([`settle`](Self::settle)).
    fn subnet<'s, 'd>(
        &self,
        device: &'d Device<'d, P>,
        pd: &Pd<'d, P>,
        host: &'s mut Host,
        memory: &'s mut SubnetMemory,
        seed: u64,
    ) -> Result<PortResolver<'s, 'd, P>, Error> {
        let (storage, peers) = memory.storage();
        let administration = SubnetAdministration::new(sa::Config::new(seed), storage);
        let address = match self.address {
            NodeAddress::Ip(address) => address,
            NodeAddress::Gid(asked) => {
                let port = device
                    .query_infiniband_gid(0)
                    .map_err(SetupStep::Gid.failed())?;
                if asked != Gid::ZERO && asked != port {
                    return Err(Error::OtherGid { asked, port });
                }
                return Ok(administration.into());
            }
        };
        let mut interface = IpOverInfiniband::new(
            device,
            pd,
            self.options.pkey,
            self.host_config(seed),
            host.storage(),
            peers,
            administration,
        )
        .map_err(SetupStep::Interface.failed())?;
        interface
            .add_address(address.ip, address.prefix_len())
            .map_err(SetupStep::Address(address.ip).failed())?;
        add_gateway(interface.host(), &address)?;
        Ok(interface.into())
    }

    /// Lets the address of an InfiniBand port, which needs the manager for it, become its own.
    fn settle(&self, cm: &mut Cm<'_, '_, P>) -> Result<(), Error> {
        let NodeAddress::Ip(Address { ip, .. }) = self.address else {
            return Ok(());
        };
        let end = cm.now() + LINK;
        while !cm.resolver_mut().neighbours().is_settled() {
            if cm.now() >= end {
                return Err(Error::NoIpoibGroup(ip));
            }
            cm.wait(end).map_err(SetupStep::Address(ip).failed())?;
        }
        match cm.resolver_mut() {
            PortResolver::IpOverInfiniband(interface) if !interface.has_address(ip) => {
                Err(Error::AddressInUse(ip))
            }
            _ => Ok(()),
        }
    }
}

/// The way to hosts elsewhere.
fn add_gateway(host: &mut ip::Host<'_>, address: &Address) -> Result<(), Error> {
    let Some(gateway) = address.gateway else {
        return Ok(());
    };
    host.add_route(Route::default_over(gateway))
        .map_err(SetupStep::Gateway(gateway).failed())
}

/// The description of a port, for people.
fn describe<P: Platform>(device: &Device<'_, P>, port: &PortAttr) -> Result<String, Error> {
    let own = match port.link_layer {
        LinkLayer::Ethernet => {
            let mac = device.mac().map_err(SetupStep::ReadMac.failed())?;
            format!("MAC {}", mac.map(|byte| format!("{byte:02x}")).join(":"))
        }
        LinkLayer::InfiniBand => {
            let gid = device
                .query_infiniband_gid(0)
                .map_err(SetupStep::Gid.failed())?;
            format!("LID {}, SM LID {}, GID {gid}", port.lid, port.sm_lid)
        }
    };
    Ok(format!(
        "{:?}, {:?}, {} Gb/s, MTU {}, {own}",
        port.state,
        port.link_layer,
        port.rate_mbps / 1000,
        port.active_mtu.bytes(),
    ))
}

/// The end of an attempt that failed.
enum Failure<E, W> {
    /// The device did not come up. The work is given back.
    BringUp(OpenError, W),
    /// A step between the device and the work failed.
    Setup(Error),
    /// The work failed.
    Work(E),
}

impl<E, W> From<Error> for Failure<E, W> {
    fn from(error: Error) -> Self {
        Self::Setup(error)
    }
}

/// Different at each start.
fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}
