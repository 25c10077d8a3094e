//! Work that rsockets have for the thread of a device, and for the end of the process.
//!
//! They bring it along when there is the first of them, so that the thread need not know them.

use std::sync::OnceLock;
use std::time::Duration;

use crate::process::hca::Hca;

/// Functions that are called for all rsockets.
pub(crate) struct Tasks {
    /// In each turn of a device's thread, at a time of the device. Returns when it is due again.
    pub(crate) turn: fn(&'static Hca, Duration) -> Option<Duration>,
    /// At the end of the process.
    pub(crate) end: fn(),
}

static TASKS: OnceLock<Tasks> = OnceLock::new();

/// Adds the work, which is the same each time.
pub(crate) fn add(tasks: Tasks) {
    TASKS.get_or_init(|| tasks);
}

/// Does what there is in a turn of a device's thread.
pub(crate) fn turn(hca: &'static Hca, now: Duration) -> Option<Duration> {
    (TASKS.get()?.turn)(hca, now)
}

/// Does what there is at the end of the process.
pub(crate) fn end() {
    if let Some(tasks) = TASKS.get() {
        (tasks.end)();
    }
}
