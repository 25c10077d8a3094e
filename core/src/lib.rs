//! The mlx5 driver: from a BAR and DMA memory to verbs.
#![no_std]

pub mod ah;
pub mod capabilities;
mod command_queue;
mod config;
mod control;
pub mod cq;
pub mod device;
#[allow(dead_code)]
mod dma;
mod eq;
pub mod error;
pub mod event;
pub mod gid;
mod health;
mod mailbox;
pub mod mr;
mod open;
mod pages;
pub mod pd;
pub mod platform;
pub mod port;
pub mod qp;
mod ring_pages;
mod slots;
pub mod srq;
mod teardown;
pub mod wc;

pub use ah::{AddressHandle, AhAttr, AhError};
pub use capabilities::{Adapter, Capabilities};
pub use config::{Config, Resources, Storage};
pub use device::{Device, PendingCommand, TailIn};
pub use error::{
    CloseError, CloseFailure, CommandError, CommandFailure, DeviceError, OpenError, OpenFailure, OpenStep,
};
pub use event::AsyncEvent;
pub use gid::{Gid, GidEntry, GidError, Mac, RoceVersion};
/// The device's language: the commands that [`Device::execute`] takes.
pub use bareverbs_firmware_cmds as firmware_cmds;
pub use bareverbs_firmware_cmds::numbers::{Cqn, Eqn, LKey, Pdn, Qpn, RKey, Srqn, Xrcdn};
pub use pages::PageChunk;
pub use platform::Platform;
pub use port::{LinkLayer, Mtu, PortAttr, PortState};
pub use slots::{CqSlot, QpSlot, SrqSlot};
pub use cq::{Completion, Cq, CqError, CqInit};
pub use mr::{Access, Buffer, Mr, MrError, Sge};
pub use pd::Pd;
pub use qp::{
    BadWr, CapError, CreateQpError, Destination, Gsi, Inline, ModifyError, PostError, Qp, QpAttr, QpAttrMask, QpCap,
    QpInitAttr, QpKind, QpState, QpType, Rc, RecvQueue, RecvWr, Remote, SendData, SendFlags, SendOp, SendQueue, SendWr,
    Uc, Ud,
};
pub use srq::{Srq, SrqAttr, SrqError};
pub use wc::{NetworkHeader, Wc, WcFlags, WcOpcode, WcStatus};
