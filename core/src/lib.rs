//! The mlx5 driver: from a BAR and DMA memory to verbs.
#![no_std]

pub mod capabilities;
mod command_queue;
mod config;
mod control;
pub mod device;
#[allow(dead_code)]
mod dma;
mod eq;
pub mod error;
pub mod event;
pub mod gid;
mod health;
mod mailbox;
mod open;
mod pages;
pub mod platform;
pub mod port;
#[allow(dead_code)]
mod slots;
mod teardown;

pub use capabilities::{Adapter, Capabilities};
pub use config::{Config, Resources, Storage};
pub use device::{Device, PendingCommand, TailIn};
pub use error::{
    CloseError, CloseFailure, CommandError, CommandFailure, DeviceError, OpenError, OpenFailure, OpenStep,
};
pub use event::AsyncEvent;
pub use gid::{Gid, GidEntry, GidError, Mac, RoceVersion};
pub use bareverbs_firmware_cmds::numbers::{Cqn, Eqn, LKey, Pdn, Qpn, RKey, Srqn, Xrcdn};
pub use pages::PageChunk;
pub use platform::Platform;
pub use port::{LinkLayer, Mtu, PortAttr, PortState};
pub use slots::{CqSlot, QpSlot, SrqSlot};
