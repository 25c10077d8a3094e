//! Ids: their table and slots, the calls that make, find and change them, their ports and timers.

mod calls;
pub(crate) mod patience;
mod port_space;
#[cfg(feature = "keep-alive")]
pub(crate) mod probe;
mod qpns;
pub(crate) mod slot;
pub(crate) mod table;
mod timers;
pub(crate) mod waiters;
pub(crate) mod work;
