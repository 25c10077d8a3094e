//! Subnet management (IBTA vol. 1, chapter 14) as ports and switches have it, without a device: datagrams, and what a
//! subnet manager reads and sets.

pub(crate) mod busy;
pub(crate) mod datagram;
pub(crate) mod performance;
pub(crate) mod port;
pub(crate) mod switch;
pub(crate) mod tables;
