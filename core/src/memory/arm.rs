//! Arming of a CQ: what its owner has requested from the device, and which events it has taken.
//!
//! Events are counted in the CQ's slot, where the event queue's reader adds them. The request goes to the device with that
//! count, so that the device can distinguish one request from the next.

use core::sync::atomic::Ordering::Acquire;

use crate::memory::slots::CqSlot;

/// The owner's side of a CQ's events.
#[derive(Debug, Default)]
pub(crate) struct Arm {
    /// Events taken so far.
    seen: u32,
    /// The last request, and the number of events at that time.
    armed: Option<Armed>,
}

/// A request for an event, which stands until the next event.
#[derive(Debug, Clone, Copy)]
struct Armed {
    events: u32,
    solicited_only: bool,
}

impl Arm {
    /// Asks for an event: the sequence number that goes to the device with the request, or `None` if the last
    /// request still stands. Doorbells with the same number would queue up in front of a slow device, and each may get
    /// an event of its own.
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

    /// Returns `true` if an event came since the last call.
    pub(crate) fn take_event(&mut self, slot: &CqSlot) -> bool {
        let events = slot.events.load(Acquire);
        let new = events != self.seen;
        self.seen = events;
        new
    }
}
