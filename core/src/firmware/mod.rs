//! The dialogue with the firmware: commands, pages, events, health.

pub(crate) mod command_queue;
pub(crate) mod context;
pub(crate) mod control;
pub(crate) mod eq;
pub mod health;
pub(crate) mod mailbox;
pub mod page_chunk;
pub(crate) mod pages;
pub mod recorder;
pub(crate) mod sync_reset;
