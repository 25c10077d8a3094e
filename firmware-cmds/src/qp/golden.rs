//! Bytes computed from the offsets in the vendor's header, for some of the structures.

use super::*;
use crate::golden::emits;

#[test]
fn ads() {
    emits::<Ads>(
        |s| {
            s.set_fl(false)
                .set_free_ar(true)
                .set_pkey_index(0xdaed)
                .set_grh(true)
                .set_mlid(0x4e)
                .set_rlid(0x8716)
                .set_ack_timeout(0x1c)
                .set_src_addr_index(0xad)
                .set_stat_rate(6)
                .set_hop_limit(0x31)
                .set_tclass(0xc2)
                .set_flow_label(0xf7a6);
            s.rgid_rip_mut().fill(0xe6);
            s.set_f_dscp(true)
                .set_f_ecn(false)
                .set_f_eth_prio(true)
                .set_ecn(3)
                .set_dscp(0x15)
                .set_udp_sport(0x831d)
                .set_dei_cfi(true)
                .set_eth_prio(2)
                .set_sl(5)
                .set_vhca_port_num(0x2b)
                .set_rmac_47_32(0xe077)
                .set_rmac_31_0(0xccc4c9aa);
        },
        &[
            (
                0x000,
                "65a5daed a5ce8716 e5ada631 ac20f7a6 e6e6e6e6 e6e6e6e6",
            ),
            (0x018, "e6e6e6e6 e6e6e6e6 a9d5831d a52be077 ccc4c9aa"),
        ],
    );
}

#[test]
fn qpc() {
    emits::<Qpc>(
        |s| {
            s.set_state(7)
                .set_lag_tx_port_affinity(0xd)
                .set_st(0x23)
                .set_isolate_vl_tc(true)
                .set_pm_state(1)
                .set_req_e2e_credit_mode(1)
                .set_offload_type(0xb)
                .set_end_padding_mode(1)
                .set_wq_signature(false)
                .set_block_lb_mc(true)
                .set_atomic_like_write_en(false)
                .set_latency_sensitive(true)
                .set_drain_sigerr(false)
                .set_pd(0x4a0679)
                .set_mtu(1)
                .set_log_msg_max(0xb)
                .set_log_rq_size(0xf)
                .set_log_rq_stride(2)
                .set_no_sq(false)
                .set_log_sq_size(9)
                .set_ts_format(1)
                .set_rlky(true)
                .set_ulp_stateless_offload_mode(5)
                .set_counter_set_id(0x66)
                .set_uar_page(0x5c3383)
                .set_user_index(0xa61382)
                .set_log_page_size(0xc)
                .set_remote_qpn(0xe57480);
            s.primary_address_path_mut().set_fl(false).set_free_ar(true);
            s.primary_address_path_mut().rgid_rip_mut().fill(0xe6);
            s.primary_address_path_mut().set_rmac_31_0(0xccc4c9aa);
            s.secondary_address_path_mut()
                .set_fl(false)
                .set_free_ar(true);
            s.secondary_address_path_mut().rgid_rip_mut().fill(0xe6);
            s.secondary_address_path_mut().set_rmac_31_0(0xccc4c9aa);
            s.set_log_ack_req_freq(8)
                .set_log_sra_max(2)
                .set_retry_count(1)
                .set_rnr_retry(5)
                .set_fre(false)
                .set_cur_rnr_retry(6)
                .set_cur_retry_count(1)
                .set_next_send_psn(0xd9b0fe)
                .set_log_num_dci_stream_channels(0x1f)
                .set_cqn_snd(0x3e736c)
                .set_log_num_dci_errored_streams(4)
                .set_deth_sqpn(0xe8fee6)
                .set_last_acked_psn(0xec6679)
                .set_ssn(0xee911f)
                .set_log_rra_max(4)
                .set_atomic_mode(0xe)
                .set_rre(false)
                .set_rwe(true)
                .set_rae(false)
                .set_page_offset(0x1c)
                .set_cd_slave_receive(false)
                .set_cd_slave_send(true)
                .set_cd_master(false)
                .set_min_rnr_nak(0x16)
                .set_next_rcv_psn(0x69e66d)
                .set_xrcd(0x80c196)
                .set_cqn_rcv(0xadca7c)
                .set_dbr_addr(0x11a09ea6362b8e5)
                .set_q_key(0x4cb648e9)
                .set_rq_type(7)
                .set_srqn_rmpn_xrqn(0xcaa403)
                .set_rmsn(0x339aa7)
                .set_hw_sq_wqebb_counter(0x2573)
                .set_sw_sq_wqebb_counter(0xbcf1)
                .set_hw_rq_counter(0x47d9f226)
                .set_sw_rq_counter(0xb4a00a0c)
                .set_cgs(false)
                .set_cs_req(0xfd)
                .set_cs_res(0x6c)
                .set_dc_access_key(0x1a77bf91dc89616)
                .set_dbr_umem_valid(false);
        },
        &[
            (
                0x000,
                "7d23adb5 514a0679 2bfa4d75 665c3383 a5a61382 ace57480",
            ),
            (0x018, "65a5a5a5"),
            (0x028, "e6e6e6e6 e6e6e6e6 e6e6e6e6 e6e6e6e6"),
            (0x040, "ccc4c9aa 65a5a5a5"),
            (0x054, "e6e6e6e6 e6e6e6e6 e6e6e6e6 e6e6e6e6"),
            (0x06c, "ccc4c9aa 8541a625"),
            (0x078, "a5d9b0fe bf3e736c a4e8fee6"),
            (
                0x088,
                "a5ec6679 a5ee911f a58e4722 b669e66d a580c196 a5adca7c",
            ),
            (
                0x0a0,
                "011a09ea 6362b8e5 4cb648e9 a7caa403 a5339aa7 2573bcf1",
            ),
            (0x0b8, "47d9f226 b4a00a0c"),
            (0x0c4, "a5a4fd6c 01a77bf9 1dc89616 a5a5a5a5"),
        ],
    );
}

#[test]
fn create_qp_in() {
    emits::<CreateQpIn>(
        |s| {
            s.set_opcode(0x500)
                .set_uid(0x12e5)
                .set_op_mod(0xb756)
                .set_input_qpn(0xa86e7e)
                .set_opt_param_mask(0xfab675e9)
                .set_ece(0x4a3495dd);
            s.qpc_mut()
                .set_state(7)
                .set_lag_tx_port_affinity(0xd)
                .set_cur_rnr_retry(6)
                .set_dbr_umem_valid(true);
            s.set_wq_umem_valid(false);
        },
        &[
            (0x000, "050012e5 a5a5b756 a5a86e7e"),
            (0x010, "fab675e9 4a3495dd 7da5a5a5"),
            (0x088, "a5a5a6a5"),
            (0x0e8, "b5a5a5a5"),
            (0x10c, "25a5a5a5"),
        ],
    );
}

#[test]
fn init2rtr_qp_in() {
    emits::<Init2rtrQpIn>(
        |s| {
            s.set_opcode(0x503)
                .set_uid(0x5ac0)
                .set_op_mod(0x8638)
                .set_qpn(0x7aec15)
                .set_opt_param_mask(0x4d66bf25)
                .set_ece(0x8f906931);
            s.qpc_mut()
                .set_state(7)
                .set_lag_tx_port_affinity(0xd)
                .set_cur_rnr_retry(6)
                .set_dbr_umem_valid(true);
        },
        &[
            (0x000, "05035ac0 a5a58638 a57aec15"),
            (0x010, "4d66bf25 8f906931 7da5a5a5"),
            (0x088, "a5a5a6a5"),
            (0x0e8, "b5a5a5a5"),
        ],
    );
}
