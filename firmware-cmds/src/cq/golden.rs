//! Golden bytes: emitted into, and parsed from, buffers full of 0xa5, so that a write beside its field shows. The
//! expected bytes are computed from the header's own offsets, not from this crate's.

use super::*;
use crate::golden::{emits, fresh, parses};

#[test]
fn cqc() {
    emits::<Cqc>(
        |s| {
            s.set_status(8)
                .set_dbr_umem_valid(true)
                .set_apu_cq(false)
                .set_cqe_sz(4)
                .set_cc(false)
                .set_scqe_break_moderation_en(true)
                .set_oi(false)
                .set_cq_period_mode(1)
                .set_cqe_comp_en(false)
                .set_mini_cqe_res_format(2)
                .set_st(0xf)
                .set_cqe_compression_layout(1)
                .set_page_offset(0x10)
                .set_log_cq_size(0x16)
                .set_uar_page(0x51410f)
                .set_cq_period(0xcae)
                .set_cq_max_count(0xf80e)
                .set_c_eqn_or_apu_element(0xbcc7c972)
                .set_log_page_size(1)
                .set_last_notified_index(0xa84432)
                .set_last_solicit_index(0xe7bb1d)
                .set_consumer_counter(0xaee8bd)
                .set_producer_counter(0xdb1651)
                .set_dbr_addr(0x15952b3256fca69);
        },
        &[
            (0x000, "8684afa5"),
            (0x008, "a5a5a425 b651410f acaef80e bcc7c972 a1a5a5a5"),
            (0x020, "a5a84432 a5e7bb1d a5aee8bd a5db1651"),
            (0x038, "015952b3 256fca69"),
        ],
    );
}

#[test]
fn cqc_parsed() {
    parses::<Cqc>(
        &[
            (0x000, "8684afa5"),
            (0x008, "a5a5a425 b651410f acaef80e bcc7c972 a1a5a5a5"),
            (0x020, "a5a84432 a5e7bb1d a5aee8bd a5db1651"),
            (0x038, "015952b3 256fca69"),
        ],
        |s| {
            assert_eq!(s.status(), 8);
            assert!(s.dbr_umem_valid());
            assert!(!s.apu_cq());
            assert_eq!(s.cqe_sz(), 4);
            assert!(!s.cc());
            assert!(s.scqe_break_moderation_en());
            assert!(!s.oi());
            assert_eq!(s.cq_period_mode(), 1);
            assert!(!s.cqe_comp_en());
            assert_eq!(s.mini_cqe_res_format(), 2);
            assert_eq!(s.st(), 0xf);
            assert_eq!(s.cqe_compression_layout(), 1);
            assert_eq!(s.page_offset(), 0x10);
            assert_eq!(s.log_cq_size(), 0x16);
            assert_eq!(s.uar_page(), 0x51410f);
            assert_eq!(s.cq_period(), 0xcae);
            assert_eq!(s.cq_max_count(), 0xf80e);
            assert_eq!(s.c_eqn_or_apu_element(), 0xbcc7c972);
            assert_eq!(s.log_page_size(), 1);
            assert_eq!(s.last_notified_index(), 0xa84432);
            assert_eq!(s.last_solicit_index(), 0xe7bb1d);
            assert_eq!(s.consumer_counter(), 0xaee8bd);
            assert_eq!(s.producer_counter(), 0xdb1651);
            assert_eq!(s.dbr_addr(), 0x15952b3256fca69);
        },
    );
}

#[test]
fn create_cq_in() {
    emits::<CreateCqIn>(
        |s| {
            s.set_opcode(0x400).set_uid(0x2ba2).set_op_mod(0x8e11);
            s.cq_context_mut()
                .set_status(3)
                .set_dbr_umem_valid(false)
                .set_page_offset(0x10)
                .set_dbr_addr(0x15952b3256fca69);
            s.set_cq_umem_valid(true);
        },
        &[
            (0x000, "04002ba2 a5a58e11"),
            (0x010, "35a5a5a5"),
            (0x018, "a5a5a425"),
            (0x048, "015952b3 256fca69"),
            (0x05c, "a5a5a5a5"),
        ],
    );
    fresh(&CreateCqIn::new().0, 0x400);
}

#[test]
fn create_cq_out_parsed() {
    parses::<CreateCqOut>(&[(0x000, "08a5a5a5 0b38ec78 a53fe7df")], |s| {
        assert_eq!(s.status(), 8);
        assert_eq!(s.syndrome(), 0xb38ec78);
        assert_eq!(s.cqn(), 0x3fe7df);
    });
}

#[test]
fn destroy_cq_in() {
    emits::<DestroyCqIn>(
        |s| {
            s.set_opcode(0x401)
                .set_uid(0x2509)
                .set_op_mod(0x248)
                .set_cqn(0x8af0b5);
        },
        &[(0x000, "04012509 a5a50248 a58af0b5")],
    );
    fresh(&DestroyCqIn::new().0, 0x401);
}

#[test]
fn query_cq_in() {
    emits::<QueryCqIn>(
        |s| {
            s.set_opcode(0x402).set_op_mod(0x5c4f).set_cqn(0x414e90);
        },
        &[(0x000, "0402a5a5 a5a55c4f a5414e90")],
    );
    fresh(&QueryCqIn::new().0, 0x402);
}

#[test]
fn query_cq_out_parsed() {
    parses::<QueryCqOut>(
        &[
            (0x000, "08a5a5a5 4ee24f0d"),
            (0x010, "37a5a5a5"),
            (0x018, "a5a5a425"),
            (0x048, "015952b3 256fca69"),
        ],
        |s| {
            assert_eq!(s.status(), 8);
            assert_eq!(s.syndrome(), 0x4ee24f0d);
            assert_eq!(s.cq_context().status(), 3);
            assert!(s.cq_context().dbr_umem_valid());
            assert_eq!(s.cq_context().page_offset(), 0x10);
            assert_eq!(s.cq_context().dbr_addr(), 0x15952b3256fca69);
        },
    );
}

#[test]
fn modify_cq_in() {
    emits::<ModifyCqIn>(
        |s| {
            s.set_opcode(0x403)
                .set_uid(0x7904)
                .set_op_mod(0xdcb7)
                .set_cqn(0x79211b)
                .set_modify_field_select_resize_field_select(0xdafe95a1);
            s.cq_context_mut()
                .set_status(3)
                .set_dbr_umem_valid(false)
                .set_page_offset(0x10)
                .set_dbr_addr(0x15952b3256fca69);
            s.set_cq_umem_valid(true);
        },
        &[
            (0x000, "04037904 a5a5dcb7 a579211b dafe95a1 35a5a5a5"),
            (0x018, "a5a5a425"),
            (0x048, "015952b3 256fca69"),
            (0x05c, "a5a5a5a5"),
        ],
    );
    fresh(&ModifyCqIn::new().0, 0x403);
}
