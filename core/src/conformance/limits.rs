//! The memory and the time that the test takes.

use core::time::Duration;

/// Bytes of the caller's memory that the test maps: enough to reach over the edges of pages of 64 KiB.
pub const MEMORY_LEN: usize = 160 << 10;

/// The time that the device may take for anything but its start.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);
