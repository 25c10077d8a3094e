//! Ethernet receive queues.

use crate::command::EmptyOut;
use crate::command::command;
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

layout! {
    /// Input of CREATE_RQ.
    pub struct CreateRqIn: "create_rq_in", 0x110 {
        bits opcode, set_opcode: u16 @ 0x00 [31:16];
        bits uid, set_uid: u16 @ 0x00 [15:0];
        bits op_mod, set_op_mod: u16 @ 0x04 [15:0];
        part ctx, ctx_mut: Rqc @ 0x20;
    }
}

layout! {
    /// Output of CREATE_RQ.
    pub struct CreateRqOut: "create_rq_out", 0x10 {
        bits status, set_status: u8 @ 0x00 [31:24];
        bits syndrome, set_syndrome: u32 @ 0x04 [31:0];
        bits rqn, set_rqn: u32 @ 0x08 [23:0];
    }
}

command!(CreateRqIn => CreateRqOut, CreateRq);

layout! {
    /// Input of MODIFY_RQ.
    pub struct ModifyRqIn: "modify_rq_in", 0x110 {
        bits opcode, set_opcode: u16 @ 0x00 [31:16];
        bits uid, set_uid: u16 @ 0x00 [15:0];
        bits op_mod, set_op_mod: u16 @ 0x04 [15:0];
        bits rq_state, set_rq_state: u8 @ 0x08 [31:28];
        bits rqn, set_rqn: u32 @ 0x08 [23:0];
        bits modify_bitmask, set_modify_bitmask: u64 @ 0x10 [63:0];
        part ctx, ctx_mut: Rqc @ 0x20;
    }
}

command!(ModifyRqIn => EmptyOut, ModifyRq);

layout! {
    /// Input of DESTROY_RQ.
    pub struct DestroyRqIn: "destroy_rq_in", 0x10 {
        bits opcode, set_opcode: u16 @ 0x00 [31:16];
        bits uid, set_uid: u16 @ 0x00 [15:0];
        bits op_mod, set_op_mod: u16 @ 0x04 [15:0];
        bits rqn, set_rqn: u32 @ 0x08 [23:0];
    }
}

command!(DestroyRqIn => EmptyOut, DestroyRq);

layout! {
    /// Input of QUERY_RQ.
    pub struct QueryRqIn: "query_rq_in", 0x10 {
        bits opcode, set_opcode: u16 @ 0x00 [31:16];
        bits op_mod, set_op_mod: u16 @ 0x04 [15:0];
        bits rqn, set_rqn: u32 @ 0x08 [23:0];
    }
}

layout! {
    /// Output of QUERY_RQ.
    pub struct QueryRqOut: "query_rq_out", 0x110 {
        bits status, set_status: u8 @ 0x00 [31:24];
        bits syndrome, set_syndrome: u32 @ 0x04 [31:0];
        part rq_context, rq_context_mut: Rqc @ 0x20;
    }
}

command!(QueryRqIn => QueryRqOut, QueryRq);

#[cfg(test)]
mod golden;
