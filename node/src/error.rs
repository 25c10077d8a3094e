//! Why a node did not come up, and why a connection did not come about: the step that failed, and the address that it was
//! about.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use bareverbs_cm::rdma::{AddrInfo, CmEvent, EventType, RdmaCm, RdmaError, Resolver, SockAddr};
use bareverbs_core::{CloseError, Gid, LinkStatus, OpenError, Platform, PortState};
use bareverbs_vfio::PciAddress;

use crate::address::Host;
use crate::device_name::DeviceNameError;

/// Why a node did not come up, or did not go down. Its `Debug` is its `Display`, for programs that return it from `main`.
#[non_exhaustive]
pub enum Error {
    /// The device's name is not one.
    Name(DeviceNameError),
    /// This is no kind of port ([`PORT_VARIABLE`](crate::PORT_VARIABLE)).
    PortKind(String),
    /// `model` was named, and this crate was built without its feature `model`.
    NoModel,
    /// A variable of the environment has a value that does not do.
    Variable {
        /// Its name.
        name: &'static str,
        /// Its value.
        value: String,
        /// Why it does not do.
        why: String,
    },
    /// Two ends need two cards, or the model; so many devices were named.
    NotTwoDevices(usize),
    /// One end needs one device; so many were named.
    NotOneDevice(usize),
    /// Both ends were given this address: each needs its own.
    SameAddress(Host),
    /// The function was not opened.
    Function {
        /// The function's address.
        address: PciAddress,
        /// The error.
        source: bareverbs_vfio::OpenError,
    },
    /// The device did not come up.
    BringUp(OpenError),
    /// The port's link did not come up.
    Port {
        /// The port's last state.
        state: PortState,
        /// The port's report on its link.
        link: LinkStatus,
    },
    /// The port is an InfiniBand port, and was to have what Ethernet ports have.
    EthernetOnly(EthernetSetting),
    /// The port is an Ethernet port, and was to be reached by its GID alone.
    GidOnEthernet,
    /// An InfiniBand port does not have the GID that it was to have.
    OtherGid {
        /// The one that was asked for.
        asked: Gid,
        /// The port's GID.
        port: Gid,
    },
    /// The port did not get into the group of IP over InfiniBand (RFC 4391), which the subnet has if its manager makes it for
    /// the default partition; so it does not have this address.
    NoIpoibGroup(IpAddr),
    /// Another host of IP over InfiniBand has this address.
    AddressInUse(IpAddr),
    /// A step on the way from the device to the connection manager failed.
    Setup {
        /// The step that failed.
        step: SetupStep,
        /// The step's error.
        source: RdmaError,
    },
    /// The node cannot serve at this socket ([`Node::serve`](crate::Node::serve)).
    Serve {
        /// The socket's path.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The process has so many threads, and is to have one when a node is opened that
    /// [disconnects on exit](crate::Options::disconnect_on_exit).
    #[cfg(feature = "last-messages")]
    Threads(usize),
    /// The process or the memory for [`disconnect_on_exit`](crate::Options::disconnect_on_exit) was not made.
    #[cfg(feature = "last-messages")]
    LastMessages(io::Error),
    /// The device did not go down.
    Close(CloseError),
    /// The server ended without having been ready for a client ([`Pair::run`](crate::Pair::run)).
    ServerNotReady,
    /// The server ended by a panic ([`Pair::run`](crate::Pair::run)).
    ServerPanicked,
}

/// A setting that only Ethernet ports have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum EthernetSetting {
    /// A MAC address ([`Options::mac`](crate::Options::mac)).
    Mac,
    /// A VLAN ([`Address::vlan`](crate::Address::vlan)).
    Vlan,
    /// A version of RoCE ([`Options::roce_version`](crate::Options::roce_version)).
    RoceVersion,
}

impl fmt::Display for EthernetSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mac => "a MAC address",
            Self::Vlan => "a VLAN",
            Self::RoceVersion => "a version of RoCE",
        })
    }
}

/// A step on the way from a device to the connection manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SetupStep {
    /// Setting the MAC address.
    Mac,
    /// Reading the MAC address.
    ReadMac,
    /// The protection domain.
    Pd,
    /// The port's link.
    Link,
    /// The port's Ethernet queue.
    Host,
    /// The GID of an InfiniBand port.
    Gid,
    /// The queue pair of IP over InfiniBand.
    Interface,
    /// The node's address.
    Address(IpAddr),
    /// The way to hosts elsewhere.
    Gateway(IpAddr),
    /// The connection manager.
    Manager,
}

impl fmt::Display for SetupStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mac => f.write_str("setting the MAC address"),
            Self::ReadMac => f.write_str("reading the MAC address"),
            Self::Pd => f.write_str("allocating the protection domain"),
            Self::Link => f.write_str("waiting for the link"),
            Self::Host => f.write_str("opening the Ethernet queue"),
            Self::Gid => f.write_str("reading the port's GID"),
            Self::Interface => f.write_str("opening the interface of IP over InfiniBand"),
            Self::Address(address) => write!(f, "claiming the address {address}"),
            Self::Gateway(address) => write!(f, "adding the gateway {address}"),
            Self::Manager => f.write_str("starting the connection manager"),
        }
    }
}

impl SetupStep {
    /// Of what went wrong in this step, the error.
    pub(crate) fn failed<E: Into<RdmaError>>(self) -> impl FnOnce(E) -> Error {
        move |source| Error::Setup {
            step: self,
            source: source.into(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(error) => error.fmt(f),
            Self::PortKind(kind) => write!(f, "{kind:?}: expected ethernet or infiniband"),
            Self::NoModel => f.write_str(
                "the device model is not built in; in Cargo.toml it is a feature: \
                 bareverbs-node = { ..., features = [\"model\"] }. A card is named with BAREVERBS_DEVICE=vfio:ADDRESS",
            ),
            Self::Variable { name, value, why } => write!(f, "{name}={value}: {why}"),
            Self::NotTwoDevices(count) => {
                write!(
                    f,
                    "two ends need two cards or the model, not {count} devices"
                )
            }
            Self::NotOneDevice(count) => write!(f, "one end needs one device, not {count}"),
            Self::SameAddress(address) => write!(
                f,
                "{address} is the client's address and the server's: each end needs its own"
            ),
            Self::Function { source, .. } => source.fmt(f),
            Self::BringUp(error) => error.fmt(f),
            Self::Port { state, link } => write!(f, "the port is {state:?}: {link}"),
            Self::EthernetOnly(setting) => {
                write!(f, "{setting} is for Ethernet ports, and this is an InfiniBand port")
            }
            Self::GidOnEthernet => f.write_str(
                "a GID is for InfiniBand ports, and this is an Ethernet port, which needs an IP address",
            ),
            Self::OtherGid { asked, port } => {
                write!(f, "the port's GID is {port}, not {asked}")
            }
            Self::NoIpoibGroup(address) => write!(
                f,
                "claiming the address {address}: the port does not get into the group of IP over InfiniBand, which the \
                 subnet manager makes (for OpenSM, \"ipoib\" in the list of partitions)"
            ),
            Self::AddressInUse(address) => {
                write!(f, "claiming the address {address}: another host has it")
            }
            Self::Setup { step, source } => write!(f, "{step}: {source}"),
            Self::Serve { path, source } => write!(f, "{}: {source}", path.display()),
            #[cfg(feature = "last-messages")]
            Self::Threads(count) => write!(
                f,
                "a node that disconnects on exit is opened while there is one thread: now there are {count}"
            ),
            #[cfg(feature = "last-messages")]
            Self::LastMessages(error) => write!(f, "preparing to disconnect on exit: {error}"),
            Self::Close(error) => error.fmt(f),
            Self::ServerNotReady => f.write_str("the server ended before it was ready"),
            Self::ServerPanicked => f.write_str("the server panicked"),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            // The others are shown as they are.
            Self::Setup { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<DeviceNameError> for Error {
    fn from(error: DeviceNameError) -> Self {
        Self::Name(error)
    }
}

/// The steps from an address to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConnectStep {
    /// Finding the host and the way to it (`rdma_resolve_addr`, `rdma_resolve_route`, `rdma_create_ep`).
    Resolving,
    /// The exchange of messages with it (`rdma_connect`).
    Connecting,
    /// Another failure, reported by this event.
    Event(EventType),
}

impl fmt::Display for ConnectStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resolving => f.write_str("resolving"),
            Self::Connecting => f.write_str("connecting to"),
            Self::Event(event) => event.fmt(f),
        }
    }
}

/// Why no connection came about: which step failed, and with which address. Its `Debug` is its `Display`.
#[derive(Clone, Copy, PartialEq)]
pub struct Unreached {
    /// The step that failed.
    pub step: ConnectStep,
    /// The other end's address, as far as it is known.
    pub address: Option<SockAddr>,
    /// The error of the step. [`RdmaError::Event`], if nothing but the event is known.
    pub source: RdmaError,
}

impl Unreached {
    /// From the error of a synchronous call that resolves `address`: for `map_err`.
    pub fn resolving(address: &AddrInfo) -> impl Fn(RdmaError) -> Self {
        Self::in_step(ConnectStep::Resolving, address)
    }

    /// From the error of a synchronous call that connects to `address`: for `map_err`.
    pub fn connecting(address: &AddrInfo) -> impl Fn(RdmaError) -> Self {
        Self::in_step(ConnectStep::Connecting, address)
    }

    fn in_step(step: ConnectStep, to: &AddrInfo) -> impl Fn(RdmaError) -> Self {
        let address = to.dst_addr;
        move |source| Self {
            step,
            address,
            source,
        }
    }

    /// From an event that reports a failure, while its id exists.
    pub fn from_event<P: Platform, R: Resolver>(
        cm: &RdmaCm<'_, '_, P, R>,
        event: &CmEvent,
    ) -> Self {
        let unknown = RdmaError::Event {
            event: event.event,
            status: event.status,
        };
        let source = cm.last_error(event.id).ok().flatten().unwrap_or(unknown);
        Self {
            step: match event.event {
                EventType::AddrError | EventType::RouteError => ConnectStep::Resolving,
                EventType::ConnectError | EventType::Unreachable | EventType::Rejected => {
                    ConnectStep::Connecting
                }
                other => ConnectStep::Event(other),
            },
            address: cm
                .get_peer_addr(event.id)
                .ok()
                .flatten()
                .map(SockAddr::from),
            source,
        }
    }
}

impl fmt::Display for Unreached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.step)?;
        match (self.step, self.address) {
            (ConnectStep::Event(_), _) | (_, None) => {}
            (_, Some(address)) => write!(f, " {address}")?,
        }
        f.write_str(": ")?;
        self.source.fmt(f)
    }
}

impl fmt::Debug for Unreached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Unreached {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}
