//! Connections, datagram services and multicast groups of ids: the calls of the application, and what follows from
//! messages of the other end and from answers of the firmware.

#[cfg(feature = "infiniband")]
mod alternate;
mod connect;
mod datagram;
mod ece;
mod events;
#[cfg(feature = "keep-alive")]
pub(crate) mod keep_alive;
mod listen;
mod multicast;
mod patience;
pub(crate) mod recycle;
mod sending;
mod shutdown;
mod stale;
pub(crate) mod work;
