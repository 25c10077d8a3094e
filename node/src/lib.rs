//! An RDMA node in one call: a device without a kernel driver, its address, and the RDMA connection manager.
//!
//! [`Node::open`] takes a device's name, `vfio:0000:3b:00.0` for a card that is bound to vfio-pci or `model` for the device
//! model (feature `model`), and the node's address: an IP address, or on InfiniBand also a GID ([`NodeAddress`]). [`Node::run`]
//! brings the device up, waits for the link, claims the address, and lends out the connection manager ([`Cm`]), with storage by the number of connections ([`Options`]). The
//! device is taken down when that returns. [`Pair`] is a server's node and a client's in one process.
//!
//! A whole program: a message from a client to a server, on two models with a cable between them, or on the two cards that
//! the environment variable `BAREVERBS_DEVICE` names.
//!
#![cfg_attr(feature = "model", doc = "```")]
#![cfg_attr(not(feature = "model"), doc = "```no_run")]
#![doc = include_str!("../examples/message.rs")]
//! ```
//!
//! # One process per end
//!
//! `server` and `client` as its argument make it one end, on the card that `BAREVERBS_DEVICE` names, or on a model with a wire
//! to another process, which the variable `BAREVERBS_LINK` names ([`LINK_VARIABLE`]). In two terminals:
//!
//! ```sh
//! BAREVERBS_LINK=unix:/tmp/wire.1,/tmp/wire.2 hello server
//! BAREVERBS_LINK=unix:/tmp/wire.2,/tmp/wire.1 hello client
//! ```
//!
//! The programs at the ends of a wire may be any: C programs on `libibverbs.so.1` (`bareverbs-run`), the examples
//! (`--link`), or QEMU.
//!
//! # Tasks
//!
//! An [`AsyncCm`] has the calls that wait as futures, for any executor. With the feature `tokio` `drive` is what has to run
//! beside them on tokio; the example `echo_async` is a server of that kind, with a task for each client, all in one thread.
//! These futures borrow the device: for `tokio::spawn` and runtimes of several threads there is `NodeHandle`, which is
//! `Send` and sends closures to the thread that drives.
//!
//! # Errors
//!
//! [`Error`] names the step of bring-up that failed, with the device or the address that it was about. The closures return
//! errors of the caller's choice, any type that an [`Error`] can be turned into. [`Unreached`] is for connections: the step
//! (resolving, connecting), the other end's address, and the connection manager's error. A work request that fails is an
//! error of the call that takes its completion ([`RdmaError::Completion`](cm::rdma::RdmaError::Completion)).
//!
//! A `main` that returns an error prints its `Debug`. For these errors, and for whatever [`Result`] holds ([`AnyError`]), that
//! is the text of their `Display`.
//!
//! # In use
//!
//! [`Node::serve`] opens a socket at which another program can look at the device while this one uses it: `devinfo --socket`,
//! or [`inspect`].
//!
//! # When the process ends
//!
//! [`Node::run`] disconnects all connections at its end, also when it ends by a panic. A process that is killed, aborts or calls
//! `_exit` does not; with the feature `last-messages` and the option `disconnect_on_exit` another process does so for it, as
//! Linux's kernel does for RDMA programs.
//!
//! # Without this crate
//!
//! Everything here is a short way to what [`verbs`] and [`cm`] have: those are `no_std` and allocate nothing. What this crate
//! adds is memory on the heap, the choice of a device at run time ([`DevicePlatform`]), and a few decisions, such as how
//! long to wait for a link. A program with its own platform passes that to [`Node::new`].

mod address;
mod any_error;
mod device_name;
mod error;
mod event_channel;
#[cfg(feature = "tokio")]
mod handle;
pub mod inspect;
#[cfg(feature = "last-messages")]
pub mod last_messages;
mod link;
#[cfg(feature = "model")]
mod models;
mod node;
mod page_chunks;
mod pair;
mod patience;
mod platform;
mod report;
mod resolver;
mod storage;
#[cfg(feature = "tokio")]
mod tasks;
#[cfg(all(test, feature = "model"))]
mod tests;

/// The RDMA connection manager: `bareverbs-cm`.
pub use bareverbs_cm as cm;
/// The driver and the verbs: `bareverbs-core`.
pub use bareverbs_core as verbs;
/// The platform on Linux VFIO: `bareverbs-vfio`.
pub use bareverbs_vfio as vfio;

pub use address::{Address, Host, NodeAddress};
pub use any_error::AnyError;
pub use device_name::{DEVICE_VARIABLE, DeviceName, DeviceNameError};
pub use error::{ConnectStep, Error, EthernetSetting, SetupStep, Unreached};
pub use event_channel::EventChannel;
#[cfg(feature = "tokio")]
pub use handle::{NodeGone, NodeHandle};
pub use link::wait_for_link;
pub use node::{
    About, AsyncCm, Cm, DEFAULT_PKEY, FAULT_VARIABLE, LINK_VARIABLE, Node, Options, PORT_VARIABLE,
    UNIT_VARIABLE,
};
pub use page_chunks::PageChunks;
pub use pair::Pair;
pub use platform::DevicePlatform;
pub use report::{REPORTS_VARIABLE, write_report};
pub use resolver::PortResolver;
pub use storage::{DeviceStorage, ManagerStorage};
#[cfg(feature = "tokio")]
pub use tasks::{DriveError, drive};

/// The result of a short program: any error will do.
pub type Result<T, E = AnyError> = std::result::Result<T, E>;
