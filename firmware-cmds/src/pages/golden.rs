//! Golden bytes: emitted into, and parsed from, buffers full of 0xa5, so that a write beside its field shows. The
//! expected bytes are computed from the header's own offsets, not from this crate's.

use super::*;
use crate::golden::{emits, fresh, parses};

#[test]
fn pages_req_event() {
    emits::<PagesReqEvent>(
        |s| {
            s.set_function_id(0x890b).set_num_pages(0x76683768);
        },
        &[(0x000, "a5a5890b 76683768")],
    );
}

#[test]
fn pages_req_event_parsed() {
    parses::<PagesReqEvent>(&[(0x000, "a5a5890b 76683768")], |s| {
        assert_eq!(s.function_id(), 0x890b);
        assert_eq!(s.num_pages(), 0x76683768);
    });
}

#[test]
fn query_pages_in() {
    emits::<QueryPagesIn>(
        |s| {
            s.set_opcode(0x107)
                .set_op_mod(0x7b55)
                .set_embedded_cpu_function(false)
                .set_function_id(0xd4e0);
        },
        &[(0x000, "0107a5a5 a5a57b55 25a5d4e0")],
    );
    fresh(&QueryPagesIn::new().0, 0x107);
}

#[test]
fn query_pages_out_parsed() {
    parses::<QueryPagesOut>(&[(0x000, "08a5a5a5 9ffe3904 25a574c6 112bcaa5")], |s| {
        assert_eq!(s.status(), 8);
        assert_eq!(s.syndrome(), 0x9ffe3904);
        assert!(!s.embedded_cpu_function());
        assert_eq!(s.function_id(), 0x74c6);
        assert_eq!(s.num_pages(), 0x112bcaa5);
    });
}

#[test]
fn manage_pages_in() {
    emits::<ManagePagesIn>(
        |s| {
            s.set_opcode(0x108)
                .set_op_mod(0xfe38)
                .set_embedded_cpu_function(false)
                .set_function_id(0xac81)
                .set_input_num_entries(0x74090564);
        },
        &[(0x000, "0108a5a5 a5a5fe38 25a5ac81 74090564")],
    );
    fresh(&ManagePagesIn::new().0, 0x108);
}

#[test]
fn manage_pages_out_parsed() {
    parses::<ManagePagesOut>(&[(0x000, "08a5a5a5 d4f8d094 2483dd07")], |s| {
        assert_eq!(s.status(), 8);
        assert_eq!(s.syndrome(), 0xd4f8d094);
        assert_eq!(s.output_num_entries(), 0x2483dd07);
    });
}
