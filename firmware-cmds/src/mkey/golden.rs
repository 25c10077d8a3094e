//! Bytes computed from the offsets in the vendor's header, for some of the structures.

use super::*;
use crate::golden::emits;

#[test]
fn mkc() {
    emits::<Mkc>(
        |s| {
            s.set_free(false)
                .set_access_mode_4_2(1)
                .set_relaxed_ordering_write(false)
                .set_small_fence_on_rdma_read_response(true)
                .set_umr_en(false)
                .set_a(true)
                .set_rw(false)
                .set_rr(true)
                .set_lw(false)
                .set_lr(true)
                .set_access_mode_1_0(2)
                .set_ma_translation_mode(1)
                .set_qpn(0x82558b)
                .set_mkey_7_0(0x1e)
                .set_length64(false)
                .set_bsf_en(true)
                .set_sync_umr(false)
                .set_expected_sigerr_count(true)
                .set_en_rinval(false)
                .set_pd(0x32135a)
                .set_start_addr(0xc52ddc0d869d5)
                .set_len(0xf0187356acc598)
                .set_bsf_octword_size(0x24b6d96c)
                .set_translations_octword_size(0xc8e74e2e)
                .set_relaxed_ordering_read(false)
                .set_log_page_size(0xf);
        },
        &[
            (0x000, "a5a15695 82558b1e"),
            (
                0x00c,
                "4432135a 000c52dd c0d869d5 00f01873 56acc598 24b6d96c",
            ),
            // With the sixth bit of log_page_size, which the header of 6.1 does not have.
            (0x034, "c8e74e2e a5a5a58f"),
        ],
    );
}

#[test]
fn mtt() {
    emits::<Mtt>(
        |s| {
            s.set_ptag_63_32(0x8b44148)
                .set_ptag_31_8(0x3c016d)
                .set_wr_en(false)
                .set_rd_en(true);
        },
        &[(0x000, "08b44148 3c016da5")],
    );
}

#[test]
fn create_mkey_in() {
    emits::<CreateMkeyIn>(
        |s| {
            s.set_opcode(0x200)
                .set_uid(0xe3)
                .set_op_mod(0xdc1b)
                .set_pg_access(true)
                .set_mkey_umem_valid(false);
            s.memory_key_mkey_entry_mut()
                .set_free(true)
                .set_access_mode_4_2(1)
                .set_mkey_7_0(0x1e)
                .set_log_page_size(0xf);
            s.set_translations_octword_actual_size(0x3dffde26);
        },
        &[
            (0x000, "020000e3 a5a5dc1b"),
            (0x00c, "a5a5a5a5 e5a5a5a5 a5a5a51e"),
            (0x048, "a5a5a58f"),
            (0x060, "3dffde26"),
        ],
    );
}
