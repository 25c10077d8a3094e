//! Ethernet receive queues.

use crate::command::commands;
use crate::layout::layout;
use crate::srq::Wq;

layout! {
    /// Context of a receive queue.
    pub struct Rqc: "rqc", 0xf0 {
        flag rlky, set_rlky @ 0x00 [31];
        flag delay_drop_en, set_delay_drop_en @ 0x00 [30];
        flag scatter_fcs, set_scatter_fcs @ 0x00 [29];
        flag vsd, set_vsd @ 0x00 [28];
        bits mem_rq_type, set_mem_rq_type: u8 @ 0x00 [27:24];
        bits state, set_state: u8 @ 0x00 [23:20];
        flag flush_in_error_en, set_flush_in_error_en @ 0x00 [18];
        flag hairpin, set_hairpin @ 0x00 [17];
        bits ts_format, set_ts_format: u8 @ 0x00 [5:4];
        bits user_index, set_user_index: u32 @ 0x04 [23:0];
        bits cqn, set_cqn: u32 @ 0x08 [23:0];
        bits counter_set_id, set_counter_set_id: u8 @ 0x0c [31:24];
        bits rmpn, set_rmpn: u32 @ 0x10 [23:0];
        bits hairpin_peer_sq, set_hairpin_peer_sq: u32 @ 0x14 [23:0];
        bits hairpin_peer_vhca, set_hairpin_peer_vhca: u16 @ 0x18 [15:0];
        bits shampo_no_match_alignment_granularity, set_shampo_no_match_alignment_granularity: u8 @ 0x24 [25:24];
        bits shampo_match_criteria_type, set_shampo_match_criteria_type: u8 @ 0x24 [17:16];
        bits reservation_timeout, set_reservation_timeout: u16 @ 0x24 [15:0];
        part wq, wq_mut: Wq @ 0x30;
    }
}

commands! {
    input CreateRqIn of CreateRq: "create_rq_in", 0x110, uid {
        part ctx, ctx_mut: Rqc @ 0x20;
    }
    output CreateRqOut: "create_rq_out", 0x10 {
        bits rqn, set_rqn: u32 @ 0x08 [23:0];
    }

    input ModifyRqIn of ModifyRq: "modify_rq_in", 0x110, uid {
        bits rq_state, set_rq_state: u8 @ 0x08 [31:28];
        bits rqn, set_rqn: u32 @ 0x08 [23:0];
        bits modify_bitmask, set_modify_bitmask: u64 @ 0x10 [63:0];
        part ctx, ctx_mut: Rqc @ 0x20;
    }

    input DestroyRqIn of DestroyRq: "destroy_rq_in", 0x10, uid {
        bits rqn, set_rqn: u32 @ 0x08 [23:0];
    }

    input QueryRqIn of QueryRq: "query_rq_in", 0x10 {
        bits rqn, set_rqn: u32 @ 0x08 [23:0];
    }
    output QueryRqOut: "query_rq_out", 0x110 {
        part rq_context, rq_context_mut: Rqc @ 0x20;
    }
}

#[cfg(test)]
mod golden;
