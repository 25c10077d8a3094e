//! The front between the bus and the doorbell registers: it puts bursts together, and WQEs that come in several.

use crate::bus::combine::Combiner;
use crate::config::Config;
use crate::objects::wqe;
use bareverbs_firmware_cmds::wqe::{ControlWord, SEGMENT_UNIT};
use core::time::Duration;

/// The bytes that the bus transfers at a time, if the processor combined them.
pub(crate) const BURST: usize = 64;

/// The front between the bus and the doorbell registers.
#[derive(Debug)]
pub(crate) struct Front {
    pub(crate) combiner: Option<Combiner>,
    /// A WQE of which not all has come.
    pub(crate) partial: Option<PartialWqe>,
}

impl Front {
    /// `None` if no burst is ever anything but a doorbell.
    pub(crate) fn new(config: &Config) -> Option<Self> {
        let combiner = config.combining.map(Combiner::new);
        let bursts = config.general.bf() || config.general_max.bf();
        (bursts || combiner.is_some()).then_some(Self {
            combiner,
            partial: None,
        })
    }

    /// The next timeout.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        let partial = self.partial.as_ref().map(|partial| partial.until);
        let combined = self.combiner.as_ref().and_then(Combiner::deadline);
        partial.into_iter().chain(combined).min()
    }
}

/// The beginning of a WQE, of which more is to come.
#[derive(Debug)]
pub(crate) struct PartialWqe {
    pub(crate) uar: u32,
    /// Where the next burst belongs, in the page.
    pub(crate) next: u64,
    pub(crate) bytes: Vec<u8>,
    /// When it is given up.
    pub(crate) until: Duration,
}

impl PartialWqe {
    /// The first word of the WQE.
    pub(crate) fn control(&self) -> ControlWord {
        wqe::control(&self.bytes)
    }

    /// The length that the WQE's control segment has, in whole bursts.
    pub(crate) fn len(&self) -> usize {
        (usize::from(self.control().ds()) * SEGMENT_UNIT)
            .next_multiple_of(BURST)
            .max(BURST)
    }
}
