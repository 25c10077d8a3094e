//! The device's port: QP1, its trace, and the other users of the port.

pub(crate) mod gsi;
#[cfg(feature = "infiniband")]
pub(crate) mod partitions;
pub(crate) mod shared;
pub(crate) mod trace;
