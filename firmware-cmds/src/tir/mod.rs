//! Transport interface receive: which receive queue a packet goes to, directly or by hash through a table (RQT).

use crate::command::commands;
use crate::layout::layout;

layout! {
    /// The header fields that go into the hash.
    pub struct RxHashFieldSelect: "rx_hash_field_select", 0x04 {
        flag l3_prot_type, set_l3_prot_type @ 0x00 [31];
        flag l4_prot_type, set_l4_prot_type @ 0x00 [30];
        bits selected_fields, set_selected_fields: u32 @ 0x00 [29:0];
    }
}

layout! {
    /// Context of a TIR.
    pub struct Tirc: "tirc", 0xf0 {
        bits disp_type, set_disp_type: u8 @ 0x04 [31:28];
        flag tls_en, set_tls_en @ 0x04 [27];
        bits lro_timeout_period_usecs, set_lro_timeout_period_usecs: u16 @ 0x10 [27:12];
        bits packet_merge_mask, set_packet_merge_mask: u8 @ 0x10 [11:8];
        bits lro_max_ip_payload_size, set_lro_max_ip_payload_size: u8 @ 0x10 [7:0];
        bits inline_rqn, set_inline_rqn: u32 @ 0x1c [23:0];
        flag rx_hash_symmetric, set_rx_hash_symmetric @ 0x20 [31];
        flag tunneled_offload_en, set_tunneled_offload_en @ 0x20 [29];
        bits indirect_table, set_indirect_table: u32 @ 0x20 [23:0];
        bits rx_hash_fn, set_rx_hash_fn: u8 @ 0x24 [31:28];
        bits self_lb_block, set_self_lb_block: u8 @ 0x24 [25:24];
        bits transport_domain, set_transport_domain: u32 @ 0x24 [23:0];
        bytes rx_hash_toeplitz_key, rx_hash_toeplitz_key_mut: 40 @ 0x28;
        part rx_hash_field_selector_outer, rx_hash_field_selector_outer_mut: RxHashFieldSelect @ 0x50;
        part rx_hash_field_selector_inner, rx_hash_field_selector_inner_mut: RxHashFieldSelect @ 0x54;
    }
}

layout! {
    /// The fields that MODIFY_TIR changes.
    pub struct ModifyTirBitmask: "modify_tir_bitmask", 0x08 {
        flag self_lb_en, set_self_lb_en @ 0x04 [4];
        flag hash, set_hash @ 0x04 [2];
        flag packet_merge, set_packet_merge @ 0x04 [0];
    }
}

layout! {
    /// Context of a receive queue table; the queue numbers follow.
    pub struct Rqtc: "rqtc", 0xf0 {
        bits list_q_type, set_list_q_type: u8 @ 0x14 [26:24];
        bits rqt_max_size, set_rqt_max_size: u16 @ 0x14 [15:0];
        flag rq_vhca_id_format, set_rq_vhca_id_format @ 0x18 [31];
        bits rqt_actual_size, set_rqt_actual_size: u16 @ 0x18 [15:0];
        tail rq_num: 32 @ 0xf0;
    }
}

layout! {
    /// The fields that MODIFY_RQT changes.
    pub struct RqtBitmask: "rqt_bitmask", 0x08 {
        flag rqn_list, set_rqn_list @ 0x04 [0];
    }
}

commands! {
    input CreateTirIn of CreateTir: "create_tir_in", 0x110, uid {
        part ctx, ctx_mut: Tirc @ 0x20;
    }
    output CreateTirOut: "create_tir_out", 0x10 {
        bits icm_address_63_40, set_icm_address_63_40: u32 @ 0x00 [23:0];
        bits icm_address_39_32, set_icm_address_39_32: u8 @ 0x08 [31:24];
        bits tirn, set_tirn: u32 @ 0x08 [23:0];
        bits icm_address_31_0, set_icm_address_31_0: u32 @ 0x0c [31:0];
    }

    input ModifyTirIn of ModifyTir: "modify_tir_in", 0x110, uid {
        bits tirn, set_tirn: u32 @ 0x08 [23:0];
        part bitmask, bitmask_mut: ModifyTirBitmask @ 0x10;
        part ctx, ctx_mut: Tirc @ 0x20;
    }

    input DestroyTirIn of DestroyTir: "destroy_tir_in", 0x10, uid {
        bits tirn, set_tirn: u32 @ 0x08 [23:0];
    }

    input QueryTirIn of QueryTir: "query_tir_in", 0x10 {
        bits tirn, set_tirn: u32 @ 0x08 [23:0];
    }
    output QueryTirOut: "query_tir_out", 0x110 {
        part tir_context, tir_context_mut: Tirc @ 0x20;
    }

    input CreateRqtIn of CreateRqt: "create_rqt_in", 0x110, uid {
        part rqt_context, rqt_context_mut: Rqtc @ 0x20;
    }
    output CreateRqtOut: "create_rqt_out", 0x10 {
        bits rqtn, set_rqtn: u32 @ 0x08 [23:0];
    }

    input ModifyRqtIn of ModifyRqt: "modify_rqt_in", 0x110, uid {
        bits rqtn, set_rqtn: u32 @ 0x08 [23:0];
        part bitmask, bitmask_mut: RqtBitmask @ 0x10;
        part ctx, ctx_mut: Rqtc @ 0x20;
    }

    input DestroyRqtIn of DestroyRqt: "destroy_rqt_in", 0x10, uid {
        bits rqtn, set_rqtn: u32 @ 0x08 [23:0];
    }

    input QueryRqtIn of QueryRqt: "query_rqt_in", 0x10 {
        bits rqtn, set_rqtn: u32 @ 0x08 [23:0];
    }
    output QueryRqtOut: "query_rqt_out", 0x110 {
        part rqt_context, rqt_context_mut: Rqtc @ 0x20;
    }
}

#[cfg(test)]
mod golden;
