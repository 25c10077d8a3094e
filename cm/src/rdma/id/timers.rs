//! Timers of single connections, set by id: before there is a connection they are kept for it.

use bareverbs_core::Platform;

use crate::engine::Timers;
use crate::rdma::manager::RdmaCm;
use crate::rdma::route::resolver::Resolver;
use crate::rdma::types::CmId;
use crate::rdma::types::error::RdmaError;

impl<P: Platform, R: Resolver> RdmaCm<'_, '_, P, R> {
    pub(crate) fn set_cm_timers(&mut self, id: CmId, timers: &Timers) -> Result<(), RdmaError> {
        timers.check()?;
        let index = self.ids.index(id)?;
        self.ids[index].options.timers = Some(*timers);
        self.give_timers(index);
        Ok(())
    }

    pub(crate) fn set_auto_mra(&mut self, id: CmId, timeout: Option<u8>) -> Result<(), RdmaError> {
        let value = timeout.unwrap_or(0);
        if value > 31 {
            return Err(RdmaError::TooMuch {
                name: "MRA service timeout",
                value: value.into(),
                max: 31,
            });
        }
        let index = self.ids.index(id)?;
        self.ids[index].options.auto_mra = Some(timeout);
        self.give_timers(index);
        Ok(())
    }

    /// Hands what the application set to the connection, if there is one. All of it was checked.
    pub(crate) fn give_timers(&mut self, index: usize) {
        let slot = &self.ids[index];
        let Some(connection) = slot.conn.id else {
            return;
        };
        if let Some(timers) = &slot.options.timers {
            let _ = self.engine.set_timers(connection, timers);
        }
        if let Some(timeout) = slot.options.auto_mra {
            let _ = self.engine.set_auto_mra(connection, timeout);
        }
    }
}
