//! The process: its devices and settings, the thread that drives a device, descriptors, and errors as C has them.

pub(crate) mod acks;
pub(crate) mod cancel;
pub(crate) mod clock;
pub(crate) mod data_lock;
pub(crate) mod descriptor;
pub(crate) mod device;
pub(crate) mod failure;
pub(crate) mod hang_up;
pub(crate) mod hca;
pub(crate) mod interfaces;
pub(crate) mod kept;
pub(crate) mod last_messages;
pub(crate) mod memory;
#[cfg(feature = "model")]
pub(crate) mod model;
pub(crate) mod owner;
pub(crate) mod pages;
pub(crate) mod progress;
pub(crate) mod registry;
pub mod settings;
pub(crate) mod tasks;
