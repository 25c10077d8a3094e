//! A model of a ConnectX network card: what a driver and a peer can tell of one.
//!
//! [`Model`] is one PCI function. It is sans-I/O: accesses to its BAR, frames and time go in; DMA, interrupts and frames go
//! out through [`Host`]. Nothing in it knows of any driver: it behaves as the vendor's own driver for Linux demands, checks
//! what it is told, and refuses the rest with a [`Syndrome`] of its own for every place that refuses.
//!
//! * [`Config`] is what the card is, [`Faults`] what is to go wrong with it.
//! * [`link`] is the cable between two models, with what can happen on it, and [`pcap`] a recording of it.
//! * [`roce`] is the wire protocol, which stands alone.

mod bar;
mod caps;
mod command;
pub mod config;
pub mod counters;
mod cq;
mod cqe;
mod device;
mod eq;
pub mod fault;
pub mod health;
pub mod host;
mod init_segment;
mod io;
pub mod link;
mod mkey;
mod model;
mod multicast;
mod pages;
pub mod pcap;
mod pci;
mod qp;
mod ring;
pub mod roce;
mod schedule;
mod srq;
pub mod syndrome;
mod table;
mod uar;
mod umr;
mod view;
mod vport;
mod wire;
mod wqe;

pub use config::{Config, MsixMode, PortType};
pub use counters::Stats;
pub use device::{Leak, ObjectKind};
pub use fault::{CommandFault, CommandRule, Faults};
pub use host::{Host, IommuFault};
pub use model::{Model, Objects};
pub use syndrome::{Status, Syndrome};
