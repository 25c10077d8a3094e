//! The last messages of a process that is gone and did not end its connections: another process, which waits for that, sends them
//! to the other ends. On Linux the kernel does so for RDMA programs.
//!
//! [`Options::disconnect_on_exit`](crate::Options::disconnect_on_exit) is all that a program on a [`Node`](crate::Node) needs. The
//! parts are public for libraries that open devices themselves:
//!
//! 1. [`Messages`] is memory that outlives the process. `RdmaCm::set_last_messages` writes each connection's into it.
//! 2. Another process has its [file](Messages::file), and [waits](wait) until the lock on it is gone, as it is however the process
//!    ends: by `exit`, a signal, or another program in its place.
//! 3. It opens the device again and sends the messages (`RdmaCm::send_last_messages`). From the beginning it holds the
//!    [name](End::name) of the device or of the end of a network, for which a process that begins there [waits](End::wait).

mod end;
mod memory;
mod process;

pub use crate::patience::when_free;
pub use end::End;
pub use memory::{Messages, wait};
pub(crate) use process::start;
