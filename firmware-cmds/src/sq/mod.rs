//! Ethernet send queues.

use crate::command::commands;
use crate::layout::layout;
use crate::srq::Wq;

layout! {
    /// Context of a send queue.
    pub struct Sqc: "sqc", 0xf0 {
        flag rlky, set_rlky @ 0x00 [31];
        flag cd_master, set_cd_master @ 0x00 [30];
        flag fre, set_fre @ 0x00 [29];
        flag flush_in_error_en, set_flush_in_error_en @ 0x00 [28];
        flag allow_multi_pkt_send_wqe, set_allow_multi_pkt_send_wqe @ 0x00 [27];
        bits min_wqe_inline_mode, set_min_wqe_inline_mode: u8 @ 0x00 [26:24];
        bits state, set_state: u8 @ 0x00 [23:20];
        flag reg_umr, set_reg_umr @ 0x00 [19];
        flag allow_swp, set_allow_swp @ 0x00 [18];
        flag hairpin, set_hairpin @ 0x00 [17];
        bits ts_format, set_ts_format: u8 @ 0x00 [5:4];
        bits user_index, set_user_index: u32 @ 0x04 [23:0];
        bits cqn, set_cqn: u32 @ 0x08 [23:0];
        bits hairpin_peer_rq, set_hairpin_peer_rq: u32 @ 0x0c [23:0];
        bits hairpin_peer_vhca, set_hairpin_peer_vhca: u16 @ 0x10 [15:0];
        bits ts_cqe_to_dest_cqn, set_ts_cqe_to_dest_cqn: u32 @ 0x18 [23:0];
        bits packet_pacing_rate_limit_index, set_packet_pacing_rate_limit_index: u16 @ 0x1c [15:0];
        bits tis_lst_sz, set_tis_lst_sz: u16 @ 0x20 [31:16];
        bits qos_queue_group_id, set_qos_queue_group_id: u16 @ 0x20 [15:0];
        bits tis_num_0, set_tis_num_0: u32 @ 0x2c [23:0];
        part wq, wq_mut: Wq @ 0x30;
    }
}

commands! {
    input CreateSqIn of CreateSq: "create_sq_in", 0x110, uid {
        part ctx, ctx_mut: Sqc @ 0x20;
    }
    output CreateSqOut: "create_sq_out", 0x10 {
        bits sqn, set_sqn: u32 @ 0x08 [23:0];
    }

    input ModifySqIn of ModifySq: "modify_sq_in", 0x110, uid {
        bits sq_state, set_sq_state: u8 @ 0x08 [31:28];
        bits sqn, set_sqn: u32 @ 0x08 [23:0];
        bits modify_bitmask, set_modify_bitmask: u64 @ 0x10 [63:0];
        part ctx, ctx_mut: Sqc @ 0x20;
    }

    input DestroySqIn of DestroySq: "destroy_sq_in", 0x10, uid {
        bits sqn, set_sqn: u32 @ 0x08 [23:0];
    }

    input QuerySqIn of QuerySq: "query_sq_in", 0x10 {
        bits sqn, set_sqn: u32 @ 0x08 [23:0];
    }
    output QuerySqOut: "query_sq_out", 0x110 {
        part sq_context, sq_context_mut: Sqc @ 0x20;
    }
}

#[cfg(test)]
mod golden;
