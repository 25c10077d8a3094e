//! The state of the keep-alives of an id's connection.

use core::time::Duration;

use bareverbs_core::qp::KeepAlive;

/// The keep-alives of a connection.
#[derive(Debug)]
pub(crate) struct Probe {
    /// The time at which the next one is due.
    pub(crate) at: Duration,
    pub(crate) last: Option<KeepAlive>,
    /// One has failed, and the application was told that the connection is over.
    pub(crate) failed: bool,
}

impl Probe {
    pub(crate) const NONE: Self = Self {
        at: Duration::ZERO,
        last: None,
        failed: false,
    };
}
