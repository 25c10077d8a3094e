//! Targets of dynamic connections (DCT). Initiators are queue pairs of service type DCI.

use crate::command::commands;
use crate::layout::layout;

layout! {
    /// Context of a target.
    pub struct Dctc: "dctc", 0x40 {
        bits state, set_state: u8 @ 0x00 [27:24];
        bits user_index, set_user_index: u32 @ 0x04 [23:0];
        bits cqn, set_cqn: u32 @ 0x08 [23:0];
        bits counter_set_id, set_counter_set_id: u8 @ 0x0c [31:24];
        bits atomic_mode, set_atomic_mode: u8 @ 0x0c [23:20];
        flag rre, set_rre @ 0x0c [19];
        flag rwe, set_rwe @ 0x0c [18];
        flag rae, set_rae @ 0x0c [17];
        flag atomic_like_write_en, set_atomic_like_write_en @ 0x0c [16];
        flag latency_sensitive, set_latency_sensitive @ 0x0c [15];
        flag rlky, set_rlky @ 0x0c [14];
        flag free_ar, set_free_ar @ 0x0c [13];
        bits cs_res, set_cs_res: u8 @ 0x10 [23:16];
        bits min_rnr_nak, set_min_rnr_nak: u8 @ 0x10 [12:8];
        bits srqn_xrqn, set_srqn_xrqn: u32 @ 0x14 [23:0];
        bits pd, set_pd: u32 @ 0x18 [23:0];
        bits tclass, set_tclass: u8 @ 0x1c [31:24];
        bits flow_label, set_flow_label: u32 @ 0x1c [19:0];
        bits dc_access_key, set_dc_access_key: u64 @ 0x20 [63:0];
        bits mtu, set_mtu: u8 @ 0x28 [26:24];
        bits port, set_port: u8 @ 0x28 [23:16];
        bits pkey_index, set_pkey_index: u16 @ 0x28 [15:0];
        bits my_addr_index, set_my_addr_index: u8 @ 0x2c [23:16];
        bits hop_limit, set_hop_limit: u8 @ 0x2c [7:0];
        bits dc_access_key_violation_count, set_dc_access_key_violation_count: u32 @ 0x30 [31:0];
        flag dei_cfi, set_dei_cfi @ 0x34 [11];
        bits eth_prio, set_eth_prio: u8 @ 0x34 [10:8];
        bits ecn, set_ecn: u8 @ 0x34 [7:6];
        bits dscp, set_dscp: u8 @ 0x34 [5:0];
        bits ece, set_ece: u32 @ 0x3c [31:0];
    }
}

commands! {
    input CreateDctIn of CreateDct: "create_dct_in", 0x80, uid {
        part dct_context_entry, dct_context_entry_mut: Dctc @ 0x10;
    }
    output CreateDctOut: "create_dct_out", 0x10 {
        bits dctn, set_dctn: u32 @ 0x08 [23:0];
        bits ece, set_ece: u32 @ 0x0c [31:0];
    }

    input DestroyDctIn of DestroyDct: "destroy_dct_in", 0x10, uid {
        bits dctn, set_dctn: u32 @ 0x08 [23:0];
    }

    /// An event reports that the DCT is drained.
    input DrainDctIn of DrainDct: "drain_dct_in", 0x10, uid {
        bits dctn, set_dctn: u32 @ 0x08 [23:0];
    }

    input QueryDctIn of QueryDct: "query_dct_in", 0x10 {
        bits dctn, set_dctn: u32 @ 0x08 [23:0];
    }
    output QueryDctOut: "query_dct_out", 0x80 {
        part dct_context_entry, dct_context_entry_mut: Dctc @ 0x10;
    }

    /// An event reports the next request with a wrong access key.
    input ArmDctIn of ArmDct: "arm_dct_in", 0x10 {
        bits dct_number, set_dct_number: u32 @ 0x08 [23:0];
    }
}
