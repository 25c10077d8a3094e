//! Ids: their table and slots, their ports, groups and timers, and what they want of their QPs.

pub(crate) mod attr;
pub(crate) mod goal;
pub(crate) mod group;
mod port_space;
#[cfg(feature = "keep-alive")]
pub(crate) mod probe;
mod qpns;
pub(crate) mod slot;
pub(crate) mod table;
mod timers;
pub(crate) mod waiters;
pub(crate) mod work_list;
