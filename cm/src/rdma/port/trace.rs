//! The trace: which messages of the CM passed QP1.

use core::net::IpAddr;
use core::time::Duration;

use crate::mad::{Attribute, DATA, MAD_LEN};
use crate::rdma::types::TraceEntry;

/// Messages that the trace holds until they are fetched.
const TRACE: usize = 64;

/// The messages that were sent and received, oldest first.
#[derive(Debug)]
pub(crate) struct Trace {
    on: bool,
    entries: heapless::Deque<TraceEntry, TRACE>,
}

impl Trace {
    /// An empty trace; nothing is recorded unless it is `on`.
    pub(crate) const fn new(on: bool) -> Self {
        Self {
            on,
            entries: heapless::Deque::new(),
        }
    }

    /// The oldest message.
    pub(crate) fn pop(&mut self) -> Option<TraceEntry> {
        self.entries.pop_front()
    }

    /// Records a message of the CM, in place of the oldest one if the storage is full.
    pub(crate) fn record(
        &mut self,
        now: impl Fn() -> Duration,
        sent: bool,
        repeated: bool,
        peer: IpAddr,
        mad: &[u8; MAD_LEN],
    ) {
        if !self.on {
            return;
        }
        let id = u16::from_be_bytes([mad[16], mad[17]]);
        let Some(message) = Attribute::from_id(id) else {
            return;
        };
        let word = |at: usize| u32::from_be_bytes([mad[at], mad[at + 1], mad[at + 2], mad[at + 3]]);
        let entry = TraceEntry {
            time: now(),
            sent,
            message,
            repeated,
            peer,
            local_comm_id: word(DATA),
            remote_comm_id: match message {
                Attribute::Req | Attribute::SidrReq | Attribute::SidrRep => 0,
                _ => word(DATA + 4),
            },
        };
        if self.entries.is_full() {
            self.entries.pop_front();
        }
        let _ = self.entries.push_back(entry);
    }
}
