//! Timers of single connections, set by id: before there is a connection they are kept for it.

use bareverbs_core::Platform;

use crate::engine::{Engine, Timers};
use crate::rdma::id::slot::IdSlot;
use crate::rdma::types::error::RdmaError;

impl<P: Platform> IdSlot<'_, P> {
    pub(crate) fn set_cm_timers(
        &mut self,
        engine: &mut Engine<'_>,
        timers: &Timers,
    ) -> Result<(), RdmaError> {
        timers.check()?;
        self.options.timers = Some(*timers);
        self.apply_timers(engine);
        Ok(())
    }

    pub(crate) fn set_auto_mra(
        &mut self,
        engine: &mut Engine<'_>,
        timeout: Option<u8>,
    ) -> Result<(), RdmaError> {
        let value = timeout.unwrap_or(0);
        if value > 31 {
            return Err(RdmaError::TooMuch {
                name: "MRA service timeout",
                value: value.into(),
                max: 31,
            });
        }
        self.options.auto_mra = Some(timeout);
        self.apply_timers(engine);
        Ok(())
    }

    /// Hands what the application set to the connection, if there is one. All of it was checked.
    pub(crate) fn apply_timers(&self, engine: &mut Engine<'_>) {
        let Some(connection) = self.conn.id else {
            return;
        };
        if let Some(timers) = &self.options.timers {
            let _ = engine.set_timers(connection, timers);
        }
        if let Some(timeout) = self.options.auto_mra {
            let _ = engine.set_auto_mra(connection, timeout);
        }
    }
}
