//! How the driver is notified: entries in completion and event queues, and the interrupts of those that are armed.

mod completion_queue;
mod event_queue;
