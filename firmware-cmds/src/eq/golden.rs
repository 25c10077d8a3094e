//! Bytes computed from the offsets in the vendor's header, for some of the structures.

use super::*;
use crate::golden::emits;

#[test]
fn eqc() {
    emits::<Eqc>(
        |s| {
            s.set_status(8)
                .set_ec(true)
                .set_oi(false)
                .set_st(6)
                .set_page_offset(0x29)
                .set_log_eq_size(0xf)
                .set_uar_page(0x585bf6)
                .set_intr(0x7cf)
                .set_log_page_size(0x19)
                .set_consumer_counter(0xa7f244)
                .set_producer_counter(0xd20ca8);
        },
        &[
            (0x000, "85a5a6a5"),
            (0x008, "a5a5aa65 af585bf6"),
            (0x014, "a5a5a7cf b9a5a5a5"),
            (0x028, "a5a7f244 a5d20ca8"),
        ],
    );
}

#[test]
fn eqe() {
    emits::<Eqe>(
        |s| {
            s.set_event_type(0xdb).set_event_sub_type(0x96);
            s.event_data_mut().fill(0x80);
            s.set_signature(0xa1).set_owner(false);
        },
        &[
            (0x000, "a5dba596"),
            (
                0x020,
                "80808080 80808080 80808080 80808080 80808080 80808080",
            ),
            (0x038, "80808080 a5a5a1a4"),
        ],
    );
}
