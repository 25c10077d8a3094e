//! Memory keys.

use crate::command::commands;
use crate::layout::layout;

layout! {
    /// Context of a memory key.
    pub struct Mkc: "mkc", 0x40 {
        flag free, set_free @ 0x00 [30];
        bits access_mode_4_2, set_access_mode_4_2: u8 @ 0x00 [28:26];
        flag relaxed_ordering_write, set_relaxed_ordering_write @ 0x00 [18];
        flag small_fence_on_rdma_read_response, set_small_fence_on_rdma_read_response @ 0x00 [16];
        flag umr_en, set_umr_en @ 0x00 [15];
        flag a, set_a @ 0x00 [14];
        flag rw, set_rw @ 0x00 [13];
        flag rr, set_rr @ 0x00 [12];
        flag lw, set_lw @ 0x00 [11];
        flag lr, set_lr @ 0x00 [10];
        bits access_mode_1_0, set_access_mode_1_0: u8 @ 0x00 [9:8];
        bits ma_translation_mode, set_ma_translation_mode: u8 @ 0x00 [5:4];
        bits qpn, set_qpn: u32 @ 0x04 [31:8];
        bits mkey_7_0, set_mkey_7_0: u8 @ 0x04 [7:0];
        flag length64, set_length64 @ 0x0c [31];
        flag bsf_en, set_bsf_en @ 0x0c [30];
        flag sync_umr, set_sync_umr @ 0x0c [29];
        flag expected_sigerr_count, set_expected_sigerr_count @ 0x0c [26];
        flag en_rinval, set_en_rinval @ 0x0c [24];
        bits pd, set_pd: u32 @ 0x0c [23:0];
        bits start_addr, set_start_addr: u64 @ 0x10 [63:0];
        bits len, set_len: u64 @ 0x18 [63:0];
        bits bsf_octword_size, set_bsf_octword_size: u32 @ 0x20 [31:0];
        bits translations_octword_size, set_translations_octword_size: u32 @ 0x34 [31:0];
        flag relaxed_ordering_read, set_relaxed_ordering_read @ 0x38 [6];
        bits log_page_size, set_log_page_size: u8 @ 0x38 [5:0];
    }
}

layout! {
    /// An entry of a translation list: the address of a page.
    pub struct Mtt: "mtt", 0x08 {
        bits ptag_63_32, set_ptag_63_32: u32 @ 0x00 [31:0];
        bits ptag_31_8, set_ptag_31_8: u32 @ 0x04 [31:8];
        flag wr_en, set_wr_en @ 0x04 [1];
        flag rd_en, set_rd_en @ 0x04 [0];
    }
}

commands! {
    input CreateMkeyIn of CreateMkey: "create_mkey_in", 0x110, uid {
        flag pg_access, set_pg_access @ 0x0c [31];
        flag mkey_umem_valid, set_mkey_umem_valid @ 0x0c [30];
        part memory_key_mkey_entry, memory_key_mkey_entry_mut: Mkc @ 0x10;
        bits translations_octword_actual_size, set_translations_octword_actual_size: u32 @ 0x60 [31:0];
        bits mkey_umem_id, set_mkey_umem_id: u32 @ 0x64 [31:0];
        bits mkey_umem_offset, set_mkey_umem_offset: u64 @ 0x68 [63:0];
        tail klm_pas_mtt: 32 @ 0x110;
    }
    output CreateMkeyOut: "create_mkey_out", 0x10 {
        bits mkey_index, set_mkey_index: u32 @ 0x08 [23:0];
    }

    input QueryMkeyIn of QueryMkey: "query_mkey_in", 0x10 {
        bits mkey_index, set_mkey_index: u32 @ 0x08 [23:0];
        flag pg_access, set_pg_access @ 0x0c [31];
    }
    output QueryMkeyOut: "query_mkey_out", 0x130 {
        part memory_key_mkey_entry, memory_key_mkey_entry_mut: Mkc @ 0x10;
        bytes bsf0_klm0_pas_mtt0_1, bsf0_klm0_pas_mtt0_1_mut: 16 @ 0x110;
        bytes bsf1_klm1_pas_mtt2_3, bsf1_klm1_pas_mtt2_3_mut: 16 @ 0x120;
    }

    input DestroyMkeyIn of DestroyMkey: "destroy_mkey_in", 0x10, uid {
        bits mkey_index, set_mkey_index: u32 @ 0x08 [23:0];
    }

    input QuerySpecialContextsIn of QuerySpecialContexts: "query_special_contexts_in", 0x10 {}
    output QuerySpecialContextsOut: "query_special_contexts_out", 0x20 {
        bits dump_fill_mkey, set_dump_fill_mkey: u32 @ 0x08 [31:0];
        bits resd_lkey, set_resd_lkey: u32 @ 0x0c [31:0];
        bits null_mkey, set_null_mkey: u32 @ 0x10 [31:0];
        bits terminate_scatter_list_mkey, set_terminate_scatter_list_mkey: u32 @ 0x14 [31:0];
    }
}

#[cfg(test)]
mod golden;
