//! Where the requests of initiators of dynamic connections go.

use super::env::Path;

/// Where a request of an initiator of dynamic connections goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DcTarget {
    /// Headers.
    pub path: Path,
    /// Number of the target.
    pub number: u32,
    /// Its access key.
    pub key: u64,
}
