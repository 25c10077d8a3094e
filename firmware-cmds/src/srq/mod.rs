//! Shared receive queues: SRQ, XRC SRQ and RMP.

use crate::command::commands;
use crate::layout::layout;

layout! {
    /// Context of a shared receive queue (ISSI 0).
    pub struct Srqc: "srqc", 0x40 {
        bits state, set_state: u8 @ 0x00 [31:28];
        bits log_srq_size, set_log_srq_size: u8 @ 0x00 [27:24];
        flag wq_signature, set_wq_signature @ 0x04 [31];
        flag cont_srq, set_cont_srq @ 0x04 [30];
        flag rlky, set_rlky @ 0x04 [28];
        bits log_rq_stride, set_log_rq_stride: u8 @ 0x04 [26:24];
        bits xrcd, set_xrcd: u32 @ 0x04 [23:0];
        bits page_offset, set_page_offset: u8 @ 0x08 [31:26];
        bits cqn, set_cqn: u32 @ 0x08 [23:0];
        bits log_page_size, set_log_page_size: u8 @ 0x10 [29:24];
        bits pd, set_pd: u32 @ 0x18 [23:0];
        bits lwm, set_lwm: u16 @ 0x1c [31:16];
        bits wqe_cnt, set_wqe_cnt: u16 @ 0x1c [15:0];
        bits dbr_addr, set_dbr_addr: u64 @ 0x28 [63:0];
    }
}

layout! {
    /// Context of an XRC shared receive queue.
    pub struct XrcSrqc: "xrc_srqc", 0x40 {
        bits state, set_state: u8 @ 0x00 [31:28];
        bits log_xrc_srq_size, set_log_xrc_srq_size: u8 @ 0x00 [27:24];
        flag wq_signature, set_wq_signature @ 0x04 [31];
        flag cont_srq, set_cont_srq @ 0x04 [30];
        flag rlky, set_rlky @ 0x04 [28];
        flag basic_cyclic_rcv_wqe, set_basic_cyclic_rcv_wqe @ 0x04 [27];
        bits log_rq_stride, set_log_rq_stride: u8 @ 0x04 [26:24];
        bits xrcd, set_xrcd: u32 @ 0x04 [23:0];
        bits page_offset, set_page_offset: u8 @ 0x08 [31:26];
        flag dbr_umem_valid, set_dbr_umem_valid @ 0x08 [24];
        bits cqn, set_cqn: u32 @ 0x08 [23:0];
        flag user_index_equal_xrc_srqn, set_user_index_equal_xrc_srqn @ 0x10 [31];
        bits log_page_size, set_log_page_size: u8 @ 0x10 [29:24];
        bits user_index, set_user_index: u32 @ 0x10 [23:0];
        bits pd, set_pd: u32 @ 0x18 [23:0];
        bits lwm, set_lwm: u16 @ 0x1c [31:16];
        bits wqe_cnt, set_wqe_cnt: u16 @ 0x1c [15:0];
        bits db_record_addr_h, set_db_record_addr_h: u32 @ 0x28 [31:0];
        bits db_record_addr_l, set_db_record_addr_l: u32 @ 0x2c [31:2];
    }
}

layout! {
    /// The work queue inside other contexts.
    pub struct Wq: "wq", 0xc0 {
        bits wq_type, set_wq_type: u8 @ 0x00 [31:28];
        flag wq_signature, set_wq_signature @ 0x00 [27];
        bits end_padding_mode, set_end_padding_mode: u8 @ 0x00 [26:25];
        flag cd_slave, set_cd_slave @ 0x00 [24];
        flag hds_skip_first_sge, set_hds_skip_first_sge @ 0x04 [31];
        bits log2_hds_buf_size, set_log2_hds_buf_size: u8 @ 0x04 [30:28];
        bits page_offset, set_page_offset: u8 @ 0x04 [20:16];
        bits lwm, set_lwm: u16 @ 0x04 [15:0];
        bits pd, set_pd: u32 @ 0x08 [23:0];
        bits uar_page, set_uar_page: u32 @ 0x0c [23:0];
        bits dbr_addr, set_dbr_addr: u64 @ 0x10 [63:0];
        bits hw_counter, set_hw_counter: u32 @ 0x18 [31:0];
        bits sw_counter, set_sw_counter: u32 @ 0x1c [31:0];
        bits log_wq_stride, set_log_wq_stride: u8 @ 0x20 [19:16];
        bits log_wq_pg_sz, set_log_wq_pg_sz: u8 @ 0x20 [12:8];
        bits log_wq_sz, set_log_wq_sz: u8 @ 0x20 [4:0];
        flag dbr_umem_valid, set_dbr_umem_valid @ 0x24 [31];
        flag wq_umem_valid, set_wq_umem_valid @ 0x24 [30];
        bits log_hairpin_num_packets, set_log_hairpin_num_packets: u8 @ 0x24 [28:24];
        bits log_hairpin_data_sz, set_log_hairpin_data_sz: u8 @ 0x24 [20:16];
        bits log_wqe_num_of_strides, set_log_wqe_num_of_strides: u8 @ 0x24 [11:8];
        flag two_byte_shift_en, set_two_byte_shift_en @ 0x24 [7];
        bits log_wqe_stride_size, set_log_wqe_stride_size: u8 @ 0x24 [2:0];
        bits dbr_umem_id, set_dbr_umem_id: u32 @ 0x28 [31:0];
        bits wq_umem_id, set_wq_umem_id: u32 @ 0x2c [31:0];
        bits wq_umem_offset, set_wq_umem_offset: u64 @ 0x30 [63:0];
        bits headers_mkey, set_headers_mkey: u32 @ 0x38 [31:0];
        flag shampo_enable, set_shampo_enable @ 0x3c [31];
        bits log_reservation_size, set_log_reservation_size: u8 @ 0x3c [26:24];
        bits log_max_num_of_packets_per_reservation, set_log_max_num_of_packets_per_reservation: u8 @ 0x3c [18:16];
        bits log_headers_entry_size, set_log_headers_entry_size: u8 @ 0x3c [9:8];
        bits log_headers_buffer_entry_num, set_log_headers_buffer_entry_num: u8 @ 0x3c [3:0];
        tail pas: 64 @ 0xc0;
    }
}

layout! {
    /// Context of a receive memory pool: the shared receive queue of ISSI 1.
    pub struct Rmpc: "rmpc", 0xf0 {
        bits state, set_state: u8 @ 0x00 [23:20];
        flag basic_cyclic_rcv_wqe, set_basic_cyclic_rcv_wqe @ 0x04 [31];
        part wq, wq_mut: Wq @ 0x30;
    }
}

layout! {
    /// The fields that MODIFY_RMP changes.
    pub struct RmpBitmask: "rmp_bitmask", 0x08 {
        flag lwm, set_lwm @ 0x04 [0];
    }
}

commands! {
    input CreateSrqIn of CreateSrq: "create_srq_in", 0x110, uid {
        part srq_context_entry, srq_context_entry_mut: Srqc @ 0x10;
        tail pas: 64 @ 0x110;
    }
    output CreateSrqOut: "create_srq_out", 0x10 {
        bits srqn, set_srqn: u32 @ 0x08 [23:0];
    }

    input DestroySrqIn of DestroySrq: "destroy_srq_in", 0x10, uid {
        bits srqn, set_srqn: u32 @ 0x08 [23:0];
    }

    input QuerySrqIn of QuerySrq: "query_srq_in", 0x10 {
        bits srqn, set_srqn: u32 @ 0x08 [23:0];
    }
    output QuerySrqOut: "query_srq_out", 0x110 {
        part srq_context_entry, srq_context_entry_mut: Srqc @ 0x10;
        tail pas: 64 @ 0x110;
    }

    input ArmRqIn of ArmRq: "arm_rq_in", 0x10, uid {
        bits srq_number, set_srq_number: u32 @ 0x08 [23:0];
        bits lwm, set_lwm: u16 @ 0x0c [15:0];
    }

    input CreateXrcSrqIn of CreateXrcSrq: "create_xrc_srq_in", 0x110, uid {
        part xrc_srq_context_entry, xrc_srq_context_entry_mut: XrcSrqc @ 0x10;
        flag xrc_srq_umem_valid, set_xrc_srq_umem_valid @ 0x5c [31];
        tail pas: 64 @ 0x110;
    }
    output CreateXrcSrqOut: "create_xrc_srq_out", 0x10 {
        bits xrc_srqn, set_xrc_srqn: u32 @ 0x08 [23:0];
    }

    input DestroyXrcSrqIn of DestroyXrcSrq: "destroy_xrc_srq_in", 0x10, uid {
        bits xrc_srqn, set_xrc_srqn: u32 @ 0x08 [23:0];
    }

    input QueryXrcSrqIn of QueryXrcSrq: "query_xrc_srq_in", 0x10 {
        bits xrc_srqn, set_xrc_srqn: u32 @ 0x08 [23:0];
    }
    output QueryXrcSrqOut: "query_xrc_srq_out", 0x110 {
        part xrc_srq_context_entry, xrc_srq_context_entry_mut: XrcSrqc @ 0x10;
        tail pas: 64 @ 0x110;
    }

    input ArmXrcSrqIn of ArmXrcSrq: "arm_xrc_srq_in", 0x10, uid {
        bits xrc_srqn, set_xrc_srqn: u32 @ 0x08 [23:0];
        bits lwm, set_lwm: u16 @ 0x0c [15:0];
    }

    input CreateRmpIn of CreateRmp: "create_rmp_in", 0x110, uid {
        part ctx, ctx_mut: Rmpc @ 0x20;
    }
    output CreateRmpOut: "create_rmp_out", 0x10 {
        bits rmpn, set_rmpn: u32 @ 0x08 [23:0];
    }

    input ModifyRmpIn of ModifyRmp: "modify_rmp_in", 0x110, uid {
        bits rmp_state, set_rmp_state: u8 @ 0x08 [31:28];
        bits rmpn, set_rmpn: u32 @ 0x08 [23:0];
        part bitmask, bitmask_mut: RmpBitmask @ 0x10;
        part ctx, ctx_mut: Rmpc @ 0x20;
    }

    input DestroyRmpIn of DestroyRmp: "destroy_rmp_in", 0x10, uid {
        bits rmpn, set_rmpn: u32 @ 0x08 [23:0];
    }

    input QueryRmpIn of QueryRmp: "query_rmp_in", 0x10 {
        bits rmpn, set_rmpn: u32 @ 0x08 [23:0];
    }
    output QueryRmpOut: "query_rmp_out", 0x110 {
        part rmp_context, rmp_context_mut: Rmpc @ 0x20;
    }
}

#[cfg(test)]
mod golden;
