//! The reset of the firmware under way, as the function knows it.

use bareverbs_firmware_cmds::event::SyncReset;
use bareverbs_firmware_cmds::values::{ResetResponse, ResetState};

/// The reset that is asked for, and what was answered.
#[derive(Debug, Clone)]
pub(crate) struct SyncResets {
    pub(crate) state: ResetState,
    pub(crate) answers: Vec<ResetResponse>,
}

impl Default for SyncResets {
    fn default() -> Self {
        Self {
            state: ResetState::Idle,
            answers: Vec::new(),
        }
    }
}

impl SyncResets {
    /// The driver is told.
    pub(crate) fn announce(&mut self, state: SyncReset) {
        self.state = match state {
            SyncReset::Requested => ResetState::InNegotiation,
            SyncReset::Now | SyncReset::Unload => ResetState::InProgress,
            _ => self.state,
        };
    }
}
