//! Golden bytes: emitted into, and parsed from, buffers full of 0xa5, so that a write beside its field shows. The
//! expected bytes are computed from the header's own offsets, not from this crate's.

use super::*;
use crate::golden::{emits, fresh, parses};

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
fn eqc_parsed() {
    parses::<Eqc>(
        &[
            (0x000, "85a5a6a5"),
            (0x008, "a5a5aa65 af585bf6"),
            (0x014, "a5a5a7cf b9a5a5a5"),
            (0x028, "a5a7f244 a5d20ca8"),
        ],
        |s| {
            assert_eq!(s.status(), 8);
            assert!(s.ec());
            assert!(!s.oi());
            assert_eq!(s.st(), 6);
            assert_eq!(s.page_offset(), 0x29);
            assert_eq!(s.log_eq_size(), 0xf);
            assert_eq!(s.uar_page(), 0x585bf6);
            assert_eq!(s.intr(), 0x7cf);
            assert_eq!(s.log_page_size(), 0x19);
            assert_eq!(s.consumer_counter(), 0xa7f244);
            assert_eq!(s.producer_counter(), 0xd20ca8);
        },
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

#[test]
fn eqe_parsed() {
    parses::<Eqe>(
        &[
            (0x000, "a5dba596"),
            (
                0x020,
                "80808080 80808080 80808080 80808080 80808080 80808080",
            ),
            (0x038, "80808080 a5a5a1a4"),
        ],
        |s| {
            assert_eq!(s.event_type(), 0xdb);
            assert_eq!(s.event_sub_type(), 0x96);
            assert_eq!(*s.event_data(), [0x80; 28]);
            assert_eq!(s.signature(), 0xa1);
            assert!(!s.owner());
        },
    );
}

#[test]
fn cq_error() {
    emits::<CqError>(
        |s| {
            s.set_cqn(0xbb8ef1).set_syndrome(0xa0);
        },
        &[(0x000, "a5bb8ef1"), (0x008, "a5a5a5a0")],
    );
}

#[test]
fn cq_error_parsed() {
    parses::<CqError>(&[(0x000, "a5bb8ef1"), (0x008, "a5a5a5a0")], |s| {
        assert_eq!(s.cqn(), 0xbb8ef1);
        assert_eq!(s.syndrome(), 0xa0);
    });
}

#[test]
fn qp_events() {
    emits::<QpEvents>(
        |s| {
            s.set_type(0xbf).set_qpn_rqn_sqn(0xfc2c47);
        },
        &[(0x014, "bfa5a5a5 a5fc2c47")],
    );
}

#[test]
fn qp_events_parsed() {
    parses::<QpEvents>(&[(0x014, "bfa5a5a5 a5fc2c47")], |s| {
        assert_eq!(s.r#type(), 0xbf);
        assert_eq!(s.qpn_rqn_sqn(), 0xfc2c47);
    });
}

#[test]
fn create_eq_in() {
    emits::<CreateEqIn>(
        |s| {
            s.set_opcode(0x301).set_uid(0xaa49).set_op_mod(0xffa);
            s.eq_context_entry_mut()
                .set_status(0xa)
                .set_ec(false)
                .set_log_eq_size(0xf)
                .set_producer_counter(0xd20ca8);
            s.event_bitmask_mut().fill(0x74);
        },
        &[
            (0x000, "0301aa49 a5a50ffa"),
            (0x010, "a5a1a5a5"),
            (0x01c, "afa5a5a5"),
            (0x03c, "a5d20ca8"),
            (0x058, "74747474*8"),
        ],
    );
    fresh(&CreateEqIn::new().0, 0x301);
}

#[test]
fn create_eq_out_parsed() {
    parses::<CreateEqOut>(&[(0x000, "08a5a5a5 ee945fbe a5a5a5f2")], |s| {
        assert_eq!(s.status(), 8);
        assert_eq!(s.syndrome(), 0xee945fbe);
        assert_eq!(s.eq_number(), 0xf2);
    });
}

#[test]
fn destroy_eq_in() {
    emits::<DestroyEqIn>(
        |s| {
            s.set_opcode(0x302).set_op_mod(0x83a3).set_eq_number(0xb5);
        },
        &[(0x000, "0302a5a5 a5a583a3 a5a5a5b5")],
    );
    fresh(&DestroyEqIn::new().0, 0x302);
}

#[test]
fn query_eq_in() {
    emits::<QueryEqIn>(
        |s| {
            s.set_opcode(0x303).set_op_mod(0xdda4).set_eq_number(0x5b);
        },
        &[(0x000, "0303a5a5 a5a5dda4 a5a5a55b")],
    );
    fresh(&QueryEqIn::new().0, 0x303);
}

#[test]
fn query_eq_out_parsed() {
    parses::<QueryEqOut>(
        &[
            (0x000, "08a5a5a5 ab4efccb"),
            (0x010, "a5a5a5a5"),
            (0x01c, "afa5a5a5"),
            (0x03c, "a5d20ca8"),
            (0x058, "01d94225 d8f05683"),
        ],
        |s| {
            assert_eq!(s.status(), 8);
            assert_eq!(s.syndrome(), 0xab4efccb);
            assert_eq!(s.eq_context_entry().status(), 0xa);
            assert!(s.eq_context_entry().ec());
            assert_eq!(s.eq_context_entry().log_eq_size(), 0xf);
            assert_eq!(s.eq_context_entry().producer_counter(), 0xd20ca8);
            assert_eq!(s.event_bitmask(), 0x1d94225d8f05683);
        },
    );
}
