//! Flow steering: which receive queues a frame goes to.
//!
//! Pure: it knows frames and numbers. Commands that build the tables are checked in [`crate::command`].

/// Where a frame goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hit {
    /// TIR that takes it.
    pub(crate) tir: u32,
    /// Tag of the entry that sent it there, which its completion carries.
    pub(crate) flow_tag: u32,
}

/// All flow tables with what is in them.
#[derive(Debug, Default)]
pub(crate) struct Steering {}

impl Steering {
    /// Finds the TIRs that a frame goes to, none if it is dropped; counts it on the way.
    pub(crate) fn classify(&mut self, _frame: &[u8], hits: &mut Vec<Hit>) {
        hits.clear();
    }

    /// Whether an entry sends frames to a TIR.
    pub(crate) fn is_tir_used(&self, _tir: u32) -> bool {
        false
    }
}
