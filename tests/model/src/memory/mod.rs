//! The host's memory as the device uses it: the firmware's pages, queues, and what memory keys give access to.

mod keys;
pub(crate) mod memic;
pub(crate) mod pages;
pub(crate) mod ring;
