//! Bytes computed from the offsets in the vendor's header, for some of the structures.

use super::*;
use crate::golden::emits;

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
}
