//! The device's port: QP1, its trace, and the other users of the port.

pub(crate) mod gsi;
pub(crate) mod shared;
pub(crate) mod trace;
