//! What a CQ's owner has asked the device for, and which of its events it has seen.
//!
//! Events are counted in the CQ's slot, where the event queue's reader adds them. The request goes to the device with that
//! count, so that it can tell one request from the next.

use core::sync::atomic::Ordering::Acquire;

use crate::memory::slots::CqSlot;

/// The owner's side of a CQ's events.
#[derive(Debug, Default)]
pub(crate) struct Arm {
    /// Events taken so far.
    seen: u32,
    /// What was asked for last, and how many events there had been by then.
    armed: Option<Armed>,
}

/// A request for an event that stands until there is one more.
#[derive(Debug, Clone, Copy)]
struct Armed {
    events: u32,
    solicited_only: bool,
}

impl Arm {
    /// Asks for an event: the sequence number that the request goes to the device with, or `None` if what was asked for
    /// still stands. Doorbells with the same number would queue up in front of a slow device, and each may get an event of
    /// its own.
    pub(crate) fn request(&mut self, slot: &CqSlot, solicited_only: bool) -> Option<u32> {
        let events = slot.events.load(Acquire);
        if let Some(armed) = self.armed
            && armed.events == events
            && (solicited_only || !armed.solicited_only)
        {
            return None;
        }
        self.armed = Some(Armed {
            events,
            solicited_only,
        });
        Some(events)
    }

    /// Whether an event came since the last call.
    pub(crate) fn take_event(&mut self, slot: &CqSlot) -> bool {
        let events = slot.events.load(Acquire);
        let new = events != self.seen;
        self.seen = events;
        new
    }
}
