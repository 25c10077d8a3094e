//! The device's port: QP1, its trace, and the other users of the port.

pub(crate) mod gsi;
#[cfg(feature = "infiniband")]
pub(crate) mod ipoib;
#[cfg(feature = "infiniband")]
pub(crate) mod partitions;
pub(crate) mod sending;
pub(crate) mod shared;
#[cfg(feature = "infiniband")]
pub(crate) mod stack;
pub(crate) mod trace;
