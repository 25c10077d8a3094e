//! The control path: QPs are created, modified, asked and destroyed by commands to the firmware.

mod alternate_path;
pub mod attr;
pub(super) mod connect;
mod context;
pub(super) mod cqe_scatter;
pub(super) mod create;
pub(super) mod dci_streams;
pub(super) mod dct;
pub(super) mod destroy;
pub(super) mod dyn_qp;
#[cfg(feature = "foreign-qps")]
pub(super) mod foreign;
pub(super) mod futures;
#[cfg(feature = "infiniband")]
pub(super) mod gsi_source;
pub(super) mod init_attr;
pub(super) mod modify;
mod multicast;
pub(super) mod object;
mod pd;
pub(super) mod qp;
mod query;
pub mod states;
mod transition_commands;
