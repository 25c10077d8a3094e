//! The queues of a QP: their sizes, and how work requests are written into them and given to the device.

pub(super) mod block;
mod doorbell;
pub(super) mod keep_alive;
pub(super) mod open_batch;
pub(super) mod payload;
pub mod recv;
pub mod send;
pub mod sizes;
mod slow_path;
pub(super) mod slow_path_arguments;
pub(super) mod umr;
pub(super) mod window;
pub mod wr;
