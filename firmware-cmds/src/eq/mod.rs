//! Event queues.

use crate::command::commands;
use crate::layout::layout;

layout! {
    /// Context of an event queue.
    pub struct Eqc: "eqc", 0x40 {
        bits status, set_status: u8 @ 0x00 [31:28];
        flag ec, set_ec @ 0x00 [18];
        flag oi, set_oi @ 0x00 [17];
        bits st, set_st: u8 @ 0x00 [11:8];
        bits page_offset, set_page_offset: u8 @ 0x08 [11:6];
        bits log_eq_size, set_log_eq_size: u8 @ 0x0c [28:24];
        bits uar_page, set_uar_page: u32 @ 0x0c [23:0];
        bits intr, set_intr: u16 @ 0x14 [11:0];
        bits log_page_size, set_log_page_size: u8 @ 0x18 [28:24];
        bits consumer_counter, set_consumer_counter: u32 @ 0x28 [23:0];
        bits producer_counter, set_producer_counter: u32 @ 0x2c [23:0];
    }
}

layout! {
    /// An entry of an event queue; [`crate::event::Event`] reads it.
    pub struct Eqe: "eqe", 0x40 {
        bits event_type, set_event_type: u8 @ 0x00 [23:16];
        bits event_sub_type, set_event_sub_type: u8 @ 0x00 [7:0];
        bytes event_data, event_data_mut: 28 @ 0x20;
        bits signature, set_signature: u8 @ 0x3c [15:8];
        flag owner, set_owner @ 0x3c [0];
    }
}

layout! {
    /// Event data of a CQ error.
    pub struct CqError: "cq_error", 0x1c {
        bits cqn, set_cqn: u32 @ 0x00 [23:0];
        bits syndrome, set_syndrome: u8 @ 0x08 [7:0];
    }
}

layout! {
    /// Event data of events on queue pairs and other queues.
    pub struct QpEvents: "qp_events", 0x1c {
        bits r#type, set_type: u8 @ 0x14 [31:24];
        bits qpn_rqn_sqn, set_qpn_rqn_sqn: u32 @ 0x18 [23:0];
    }
}

commands! {
    input CreateEqIn of CreateEq: "create_eq_in", 0x110, uid {
        part eq_context_entry, eq_context_entry_mut: Eqc @ 0x10;
        bytes event_bitmask, event_bitmask_mut: 32 @ 0x58;
        tail pas: 64 @ 0x110;
    }
    output CreateEqOut: "create_eq_out", 0x10 {
        bits eq_number, set_eq_number: u8 @ 0x08 [7:0];
    }

    input DestroyEqIn of DestroyEq: "destroy_eq_in", 0x10 {
        bits eq_number, set_eq_number: u8 @ 0x08 [7:0];
    }

    input QueryEqIn of QueryEq: "query_eq_in", 0x10 {
        bits eq_number, set_eq_number: u8 @ 0x08 [7:0];
    }
    output QueryEqOut: "query_eq_out", 0x110 {
        part eq_context_entry, eq_context_entry_mut: Eqc @ 0x10;
        bits event_bitmask, set_event_bitmask: u64 @ 0x58 [63:0];
        tail pas: 64 @ 0x110;
    }
}

impl CreateEqIn {
    /// The event types that go to this EQ, as bits ([`crate::event::EventType::mask`]).
    #[must_use]
    pub const fn events(&self) -> u64 {
        crate::layout::get(&self.0, 0x58 * 8, 64)
    }

    /// Sets [`events`](Self::events), and clears the mask of types above 63.
    pub fn set_events(&mut self, mask: u64) -> &mut Self {
        let (first, rest) = self.event_bitmask_mut().split_at_mut(8);
        first.copy_from_slice(&mask.to_be_bytes());
        rest.fill(0);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventType;

    /// The bytes that Linux sent to a ConnectX-4 for its command EQ (published by the Snabb project, Apache-2.0).
    #[test]
    fn create_eq_as_linux_does() {
        let mut input = CreateEqIn::new();
        input.set_events(EventType::Command.mask());
        input
            .eq_context_entry_mut()
            .set_log_eq_size(8)
            .set_uar_page(0x10)
            .set_intr(1)
            .set_log_page_size(2);
        let mut expected = [0u8; 0x110];
        expected[..2].copy_from_slice(&[0x03, 0x01]);
        expected[0x1c..0x20].copy_from_slice(&[0x08, 0x00, 0x00, 0x10]);
        expected[0x24..0x2c].copy_from_slice(&[0, 0, 0, 1, 2, 0, 0, 0]);
        expected[0x5c..0x60].copy_from_slice(&[0x00, 0x00, 0x04, 0x00]);
        assert_eq!(input.0, expected);
        assert_eq!(input.events(), 0x400);
    }
}

#[cfg(test)]
mod golden;
