//! The host's bus: the PCI function with its configuration space and BAR, what is written there, and the device's way out to
//! the host's memory and interrupts.
//!
//! [`bar`] is where an access comes in; it leads to the [`init_segment`] or a [`doorbell`], past the [`front`] if bursts can
//! come ([`blue_flame`]).

pub(crate) mod bar;
mod blue_flame;
pub(crate) mod combine;
pub(crate) mod doorbell;
pub(crate) mod front;
pub(crate) mod icmd;
mod init_segment;
pub(crate) mod io;
pub(crate) mod pci;
mod vsc;
