//! The things that the control path works with and does not own.

use crate::firmware::page_chunk::PageChunk;
use crate::firmware::recorder::{FlightRecorder, RecordKind};
use crate::memory::tables::Tables;
use crate::platform::Platform;
use crate::types::config::Config;

/// The platform, the settings and the caller's memory.
pub(crate) struct Context<'a, P> {
    pub(crate) platform: &'a P,
    pub(crate) config: &'a Config,
    pub(crate) chunks: &'a [PageChunk],
    pub(crate) tables: &'a Tables<'a>,
    pub(crate) recorder: Option<&'a FlightRecorder>,
}

impl<P: Platform> Context<'_, P> {
    /// Records what happens now.
    pub(crate) fn record(&self, kind: RecordKind) {
        if let Some(recorder) = self.recorder {
            recorder.push(self.platform.now(), kind);
        }
    }
}
