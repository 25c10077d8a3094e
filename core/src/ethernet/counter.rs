//! Counters of frames that rules have seen.

use core::fmt;

use bareverbs_firmware_cmds::flow::{AllocFlowCounterIn, DeallocFlowCounterIn, QueryFlowCounterIn};
use bareverbs_firmware_cmds::vport::TrafficCounter;
use zerocopy::{FromZeros, IntoBytes};

use crate::device::{Device, TailIn};
use crate::platform::Platform;
use crate::types::error::CommandError;

/// Frames and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlowTraffic {
    /// Frames.
    pub packets: u64,
    /// Their bytes, from the destination address on, without check sequence.
    pub octets: u64,
}

/// The number of a counter, for [`FlowSpec::ActionCount`](super::FlowSpec::ActionCount).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlowCounterId(pub(super) u32);

/// A counter that rules can count with: `ibv_create_counters`. Freed when dropped, after the rules that count with it.
pub struct FlowCounter<'d, P: Platform> {
    device: &'d Device<'d, P>,
    /// Until the firmware was asked to free it.
    id: Option<u32>,
}

impl<'d, P: Platform> FlowCounter<'d, P> {
    pub(super) fn alloc(device: &'d Device<'d, P>) -> Result<Self, CommandError> {
        let id = device.execute(&AllocFlowCounterIn::new())?;
        Ok(Self {
            device,
            id: Some(id.flow_counter_id()),
        })
    }
}

impl<P: Platform> FlowCounter<'_, P> {
    /// Reads the counts since it was allocated or [reset](Self::take). Counts a card keeps in its caches may come later.
    ///
    /// # Errors
    /// If the firmware refuses.
    pub fn query(&self) -> Result<FlowTraffic, CommandError> {
        self.read(false)
    }

    /// Reads the counts, and sets them back to 0.
    ///
    /// # Errors
    /// If the firmware refuses.
    pub fn take(&mut self) -> Result<FlowTraffic, CommandError> {
        self.read(true)
    }

    fn read(&self, clear: bool) -> Result<FlowTraffic, CommandError> {
        let mut command = QueryFlowCounterIn::new();
        command.set_clear(clear).set_flow_counter_id(self.id().0);
        let mut traffic = TrafficCounter::new_zeroed();
        self.device
            .execute_with(&command, TailIn::None, traffic.as_mut_bytes())?;
        Ok(FlowTraffic {
            packets: traffic.packets(),
            octets: traffic.octets(),
        })
    }

    /// Its number, for rules.
    #[must_use]
    pub fn id(&self) -> FlowCounterId {
        FlowCounterId(self.id.unwrap_or(0))
    }

    fn dealloc(&mut self) -> Result<(), CommandError> {
        let Some(id) = self.id.take() else {
            return Ok(());
        };
        let mut command = DeallocFlowCounterIn::new();
        command.set_flow_counter_id(id);
        self.device.execute_no_output(&command)
    }

    /// Frees it, as dropping does, and returns the firmware's refusal.
    ///
    /// # Errors
    /// If the firmware refuses, most likely as a rule counts with it.
    pub fn destroy(mut self) -> Result<(), CommandError> {
        self.dealloc()
    }
}

impl<P: Platform> Drop for FlowCounter<'_, P> {
    fn drop(&mut self) {
        if let Err(error) = self.dealloc() {
            log::warn!("a flow counter stays with the device: {error}");
        }
    }
}

impl<P: Platform> fmt::Debug for FlowCounter<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowCounter")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
