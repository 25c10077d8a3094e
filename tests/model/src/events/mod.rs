//! The notification of the driver: entries in completion and event queues, and the interrupts of those that are armed.

pub(crate) mod completion_queue;
pub(crate) mod compression;
mod event_queue;
