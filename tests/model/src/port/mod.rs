//! The port: its state and link, frames in and out, and what is particular to an InfiniBand port.

pub(crate) mod force_loopback;
mod infiniband;
pub(crate) mod lid;
mod link;
mod management;
pub(crate) mod module;
pub(crate) mod multicast;
pub(crate) mod settings;
mod temperature;
mod trap;
pub(crate) mod vport;
mod wire;
