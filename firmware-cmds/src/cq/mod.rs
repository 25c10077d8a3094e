//! Completion queues.

use crate::command::commands;
use crate::layout::layout;

layout! {
    /// Context of a completion queue.
    pub struct Cqc: "cqc", 0x40 {
        bits status, set_status: u8 @ 0x00 [31:28];
        flag dbr_umem_valid, set_dbr_umem_valid @ 0x00 [25];
        flag apu_cq, set_apu_cq @ 0x00 [24];
        bits cqe_sz, set_cqe_sz: u8 @ 0x00 [23:21];
        flag cc, set_cc @ 0x00 [20];
        flag scqe_break_moderation_en, set_scqe_break_moderation_en @ 0x00 [18];
        flag oi, set_oi @ 0x00 [17];
        bits cq_period_mode, set_cq_period_mode: u8 @ 0x00 [16:15];
        flag cqe_comp_en, set_cqe_comp_en @ 0x00 [14];
        bits mini_cqe_res_format, set_mini_cqe_res_format: u8 @ 0x00 [13:12];
        bits st, set_st: u8 @ 0x00 [11:8];
        bits cqe_compression_layout, set_cqe_compression_layout: u8 @ 0x00 [1:0];
        bits dbr_umem_id, set_dbr_umem_id: u32 @ 0x04 [31:0];
        bits page_offset, set_page_offset: u8 @ 0x08 [11:6];
        bits log_cq_size, set_log_cq_size: u8 @ 0x0c [28:24];
        bits uar_page, set_uar_page: u32 @ 0x0c [23:0];
        bits cq_period, set_cq_period: u16 @ 0x10 [27:16];
        bits cq_max_count, set_cq_max_count: u16 @ 0x10 [15:0];
        bits c_eqn_or_apu_element, set_c_eqn_or_apu_element: u32 @ 0x14 [31:0];
        bits log_page_size, set_log_page_size: u8 @ 0x18 [28:24];
        bits last_notified_index, set_last_notified_index: u32 @ 0x20 [23:0];
        bits last_solicit_index, set_last_solicit_index: u32 @ 0x24 [23:0];
        bits consumer_counter, set_consumer_counter: u32 @ 0x28 [23:0];
        bits producer_counter, set_producer_counter: u32 @ 0x2c [23:0];
        bits dbr_addr, set_dbr_addr: u64 @ 0x38 [63:0];
    }
}

commands! {
    input CreateCqIn of CreateCq: "create_cq_in", 0x110, uid {
        part cq_context, cq_context_mut: Cqc @ 0x10;
        bits cq_umem_offset, set_cq_umem_offset: u64 @ 0x50 [63:0];
        bits cq_umem_id, set_cq_umem_id: u32 @ 0x58 [31:0];
        flag cq_umem_valid, set_cq_umem_valid @ 0x5c [31];
        tail pas: 64 @ 0x110;
    }
    output CreateCqOut: "create_cq_out", 0x10 {
        bits cqn, set_cqn: u32 @ 0x08 [23:0];
    }

    input DestroyCqIn of DestroyCq: "destroy_cq_in", 0x10, uid {
        bits cqn, set_cqn: u32 @ 0x08 [23:0];
    }

    input QueryCqIn of QueryCq: "query_cq_in", 0x10 {
        bits cqn, set_cqn: u32 @ 0x08 [23:0];
    }
    output QueryCqOut: "query_cq_out", 0x110 {
        part cq_context, cq_context_mut: Cqc @ 0x10;
        tail pas: 64 @ 0x110;
    }

    input ModifyCqIn of ModifyCq: "modify_cq_in", 0x110, uid {
        bits cqn, set_cqn: u32 @ 0x08 [23:0];
        bits modify_field_select_resize_field_select, set_modify_field_select_resize_field_select: u32 @ 0x0c [31:0];
        part cq_context, cq_context_mut: Cqc @ 0x10;
        bits cq_umem_offset, set_cq_umem_offset: u64 @ 0x50 [63:0];
        bits cq_umem_id, set_cq_umem_id: u32 @ 0x58 [31:0];
        flag cq_umem_valid, set_cq_umem_valid @ 0x5c [31];
        tail pas: 64 @ 0x110;
    }
}

#[cfg(test)]
mod golden;
