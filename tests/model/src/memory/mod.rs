//! The host's memory as the device uses it: pages that the firmware lives in, queues, and what memory keys give access to.

mod keys;
pub(crate) mod pages;
pub(crate) mod ring;
