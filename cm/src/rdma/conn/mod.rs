//! Connections, datagram services and multicast groups of ids: the calls of the application, and what follows from
//! messages of the other end.

#[cfg(feature = "infiniband")]
mod alternate;
mod connect;
mod datagram;
mod ece;
mod events;
pub(crate) mod group;
pub(crate) mod groups;
#[cfg(feature = "keep-alive")]
pub(crate) mod keep_alive;
mod listen;
mod multicast;
pub(crate) mod recycle;
mod shutdown;
mod stale;
pub(crate) mod work;
