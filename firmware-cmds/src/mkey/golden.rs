//! Golden bytes: emitted into, and parsed from, buffers full of 0xa5, so that a write beside its field shows. The
//! expected bytes are computed from the header's own offsets, not from this crate's.

use super::*;
use crate::golden::{emits, fresh, parses};

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
            (0x034, "c8e74e2e a5a5a5af"),
        ],
    );
}

#[test]
fn mkc_parsed() {
    parses::<Mkc>(
        &[
            (0x000, "a5a15695 82558b1e"),
            (
                0x00c,
                "4432135a 000c52dd c0d869d5 00f01873 56acc598 24b6d96c",
            ),
            (0x034, "c8e74e2e a5a5a5af"),
        ],
        |s| {
            assert!(!s.free());
            assert_eq!(s.access_mode_4_2(), 1);
            assert!(!s.relaxed_ordering_write());
            assert!(s.small_fence_on_rdma_read_response());
            assert!(!s.umr_en());
            assert!(s.a());
            assert!(!s.rw());
            assert!(s.rr());
            assert!(!s.lw());
            assert!(s.lr());
            assert_eq!(s.access_mode_1_0(), 2);
            assert_eq!(s.ma_translation_mode(), 1);
            assert_eq!(s.qpn(), 0x82558b);
            assert_eq!(s.mkey_7_0(), 0x1e);
            assert!(!s.length64());
            assert!(s.bsf_en());
            assert!(!s.sync_umr());
            assert!(s.expected_sigerr_count());
            assert!(!s.en_rinval());
            assert_eq!(s.pd(), 0x32135a);
            assert_eq!(s.start_addr(), 0xc52ddc0d869d5);
            assert_eq!(s.len(), 0xf0187356acc598);
            assert_eq!(s.bsf_octword_size(), 0x24b6d96c);
            assert_eq!(s.translations_octword_size(), 0xc8e74e2e);
            assert!(!s.relaxed_ordering_read());
            assert_eq!(s.log_page_size(), 0xf);
        },
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
fn mtt_parsed() {
    parses::<Mtt>(&[(0x000, "08b44148 3c016da5")], |s| {
        assert_eq!(s.ptag_63_32(), 0x8b44148);
        assert_eq!(s.ptag_31_8(), 0x3c016d);
        assert!(!s.wr_en());
        assert!(s.rd_en());
    });
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
            (0x048, "a5a5a5af"),
            (0x060, "3dffde26"),
        ],
    );
    fresh(&CreateMkeyIn::new().0, 0x200);
}

#[test]
fn create_mkey_out_parsed() {
    parses::<CreateMkeyOut>(&[(0x000, "08a5a5a5 827c0298 a520ee8d")], |s| {
        assert_eq!(s.status(), 8);
        assert_eq!(s.syndrome(), 0x827c0298);
        assert_eq!(s.mkey_index(), 0x20ee8d);
    });
}

#[test]
fn query_mkey_in() {
    emits::<QueryMkeyIn>(
        |s| {
            s.set_opcode(0x201)
                .set_op_mod(0xf49e)
                .set_mkey_index(0xdce8d7)
                .set_pg_access(true);
        },
        &[(0x000, "0201a5a5 a5a5f49e a5dce8d7 a5a5a5a5")],
    );
    fresh(&QueryMkeyIn::new().0, 0x201);
}

#[test]
fn query_mkey_out_parsed() {
    parses::<QueryMkeyOut>(
        &[
            (0x000, "08a5a5a5 7b7c6387"),
            (0x010, "a5a5a5a5 a5a5a51e"),
            (0x048, "a5a5a5af"),
            (
                0x110,
                "24242424 24242424 24242424 24242424 fafafafa fafafafa",
            ),
            (0x128, "fafafafa fafafafa"),
        ],
        |s| {
            assert_eq!(s.status(), 8);
            assert_eq!(s.syndrome(), 0x7b7c6387);
            assert!(!s.memory_key_mkey_entry().free());
            assert_eq!(s.memory_key_mkey_entry().access_mode_4_2(), 1);
            assert_eq!(s.memory_key_mkey_entry().mkey_7_0(), 0x1e);
            assert_eq!(s.memory_key_mkey_entry().log_page_size(), 0xf);
            assert_eq!(*s.bsf0_klm0_pas_mtt0_1(), [0x24; 16]);
            assert_eq!(*s.bsf1_klm1_pas_mtt2_3(), [0xfa; 16]);
        },
    );
}

#[test]
fn destroy_mkey_in() {
    emits::<DestroyMkeyIn>(
        |s| {
            s.set_opcode(0x202)
                .set_uid(0x44a7)
                .set_op_mod(0xa1c3)
                .set_mkey_index(0xe52ad);
        },
        &[(0x000, "020244a7 a5a5a1c3 a50e52ad")],
    );
    fresh(&DestroyMkeyIn::new().0, 0x202);
}

#[test]
fn query_special_contexts_in() {
    emits::<QuerySpecialContextsIn>(
        |s| {
            s.set_opcode(0x203).set_op_mod(0xbc48);
        },
        &[(0x000, "0203a5a5 a5a5bc48")],
    );
    fresh(&QuerySpecialContextsIn::new().0, 0x203);
}

#[test]
fn query_special_contexts_out_parsed() {
    parses::<QuerySpecialContextsOut>(
        &[(0x000, "08a5a5a5 c5fb8002 acf3a167 96156768 55914f79")],
        |s| {
            assert_eq!(s.status(), 8);
            assert_eq!(s.syndrome(), 0xc5fb8002);
            assert_eq!(s.dump_fill_mkey(), 0xacf3a167);
            assert_eq!(s.resd_lkey(), 0x96156768);
            assert_eq!(s.null_mkey(), 0x55914f79);
        },
    );
}
