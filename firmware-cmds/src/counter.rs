//! Queue counters.

use crate::command::commands;

commands! {
    input AllocQCounterIn of AllocQCounter: "alloc_q_counter_in", 0x10, uid {}
    output AllocQCounterOut: "alloc_q_counter_out", 0x10 {
        bits counter_set_id, set_counter_set_id: u8 @ 0x08 [7:0];
    }

    input DeallocQCounterIn of DeallocQCounter: "dealloc_q_counter_in", 0x10 {
        bits counter_set_id, set_counter_set_id: u8 @ 0x08 [7:0];
    }

    input QueryQCounterIn of QueryQCounter: "query_q_counter_in", 0x20 {
        flag clear, set_clear @ 0x18 [31];
        bits counter_set_id, set_counter_set_id: u8 @ 0x1c [7:0];
    }
    output QueryQCounterOut: "query_q_counter_out", 0x100 {
        bits rx_write_requests, set_rx_write_requests: u32 @ 0x10 [31:0];
        bits rx_read_requests, set_rx_read_requests: u32 @ 0x18 [31:0];
        bits rx_atomic_requests, set_rx_atomic_requests: u32 @ 0x20 [31:0];
        bits rx_dct_connect, set_rx_dct_connect: u32 @ 0x28 [31:0];
        bits out_of_buffer, set_out_of_buffer: u32 @ 0x30 [31:0];
        bits out_of_sequence, set_out_of_sequence: u32 @ 0x38 [31:0];
        bits duplicate_request, set_duplicate_request: u32 @ 0x40 [31:0];
        bits rnr_nak_retry_err, set_rnr_nak_retry_err: u32 @ 0x48 [31:0];
        bits packet_seq_err, set_packet_seq_err: u32 @ 0x50 [31:0];
        bits implied_nak_seq_err, set_implied_nak_seq_err: u32 @ 0x58 [31:0];
        bits local_ack_timeout_err, set_local_ack_timeout_err: u32 @ 0x60 [31:0];
        bits resp_local_length_error, set_resp_local_length_error: u32 @ 0x78 [31:0];
        bits req_local_length_error, set_req_local_length_error: u32 @ 0x7c [31:0];
        bits resp_local_qp_error, set_resp_local_qp_error: u32 @ 0x80 [31:0];
        bits local_operation_error, set_local_operation_error: u32 @ 0x84 [31:0];
        bits resp_local_protection, set_resp_local_protection: u32 @ 0x88 [31:0];
        bits req_local_protection, set_req_local_protection: u32 @ 0x8c [31:0];
        bits resp_cqe_error, set_resp_cqe_error: u32 @ 0x90 [31:0];
        bits req_cqe_error, set_req_cqe_error: u32 @ 0x94 [31:0];
        bits req_mw_binding, set_req_mw_binding: u32 @ 0x98 [31:0];
        bits req_bad_response, set_req_bad_response: u32 @ 0x9c [31:0];
        bits req_remote_invalid_request, set_req_remote_invalid_request: u32 @ 0xa0 [31:0];
        bits resp_remote_invalid_request, set_resp_remote_invalid_request: u32 @ 0xa4 [31:0];
        bits req_remote_access_errors, set_req_remote_access_errors: u32 @ 0xa8 [31:0];
        bits resp_remote_access_errors, set_resp_remote_access_errors: u32 @ 0xac [31:0];
        bits req_remote_operation_errors, set_req_remote_operation_errors: u32 @ 0xb0 [31:0];
        bits req_transport_retries_exceeded, set_req_transport_retries_exceeded: u32 @ 0xb4 [31:0];
        bits cq_overflow, set_cq_overflow: u32 @ 0xb8 [31:0];
        bits resp_cqe_flush_error, set_resp_cqe_flush_error: u32 @ 0xbc [31:0];
        bits req_cqe_flush_error, set_req_cqe_flush_error: u32 @ 0xc0 [31:0];
        bits roce_adp_retrans, set_roce_adp_retrans: u32 @ 0xc8 [31:0];
        bits roce_adp_retrans_to, set_roce_adp_retrans_to: u32 @ 0xcc [31:0];
        bits roce_slow_restart, set_roce_slow_restart: u32 @ 0xd0 [31:0];
        bits roce_slow_restart_cnps, set_roce_slow_restart_cnps: u32 @ 0xd4 [31:0];
        bits roce_slow_restart_trans, set_roce_slow_restart_trans: u32 @ 0xd8 [31:0];
    }
}
