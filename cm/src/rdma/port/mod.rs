//! The device's port: QP1, what waits before it, and who else uses the port.

pub(crate) mod deferred;
pub(crate) mod gsi;
pub(crate) mod shared;
mod trace;
