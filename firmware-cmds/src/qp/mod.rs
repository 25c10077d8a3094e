//! Queue pairs and their state transitions.

use crate::command::commands;
use crate::layout::layout;

layout! {
    /// Address path: how the packets of a connected queue pair are addressed.
    pub struct Ads: "ads", 0x2c {
        flag fl, set_fl @ 0x00 [31];
        flag free_ar, set_free_ar @ 0x00 [30];
        bits pkey_index, set_pkey_index: u16 @ 0x00 [15:0];
        flag grh, set_grh @ 0x04 [23];
        bits mlid, set_mlid: u8 @ 0x04 [22:16];
        bits rlid, set_rlid: u16 @ 0x04 [15:0];
        bits ack_timeout, set_ack_timeout: u8 @ 0x08 [31:27];
        bits src_addr_index, set_src_addr_index: u8 @ 0x08 [23:16];
        bits stat_rate, set_stat_rate: u8 @ 0x08 [11:8];
        bits hop_limit, set_hop_limit: u8 @ 0x08 [7:0];
        bits tclass, set_tclass: u8 @ 0x0c [27:20];
        bits flow_label, set_flow_label: u32 @ 0x0c [19:0];
        bytes rgid_rip, rgid_rip_mut: 16 @ 0x10;
        flag f_dscp, set_f_dscp @ 0x20 [27];
        flag f_ecn, set_f_ecn @ 0x20 [26];
        flag f_eth_prio, set_f_eth_prio @ 0x20 [24];
        bits ecn, set_ecn: u8 @ 0x20 [23:22];
        bits dscp, set_dscp: u8 @ 0x20 [21:16];
        bits udp_sport, set_udp_sport: u16 @ 0x20 [15:0];
        flag dei_cfi, set_dei_cfi @ 0x24 [31];
        bits eth_prio, set_eth_prio: u8 @ 0x24 [30:28];
        bits sl, set_sl: u8 @ 0x24 [27:24];
        bits vhca_port_num, set_vhca_port_num: u8 @ 0x24 [23:16];
        bits rmac_47_32, set_rmac_47_32: u16 @ 0x24 [15:0];
        bits rmac_31_0, set_rmac_31_0: u32 @ 0x28 [31:0];
    }
}

layout! {
    /// Context of a queue pair.
    pub struct Qpc: "qpc", 0xe8 {
        bits state, set_state: u8 @ 0x00 [31:28];
        bits lag_tx_port_affinity, set_lag_tx_port_affinity: u8 @ 0x00 [27:24];
        bits st, set_st: u8 @ 0x00 [23:16];
        flag isolate_vl_tc, set_isolate_vl_tc @ 0x00 [13];
        bits pm_state, set_pm_state: u8 @ 0x00 [12:11];
        bits req_e2e_credit_mode, set_req_e2e_credit_mode: u8 @ 0x00 [9:8];
        bits offload_type, set_offload_type: u8 @ 0x00 [7:4];
        bits end_padding_mode, set_end_padding_mode: u8 @ 0x00 [3:2];
        flag wq_signature, set_wq_signature @ 0x04 [31];
        flag block_lb_mc, set_block_lb_mc @ 0x04 [30];
        flag atomic_like_write_en, set_atomic_like_write_en @ 0x04 [29];
        flag latency_sensitive, set_latency_sensitive @ 0x04 [28];
        flag drain_sigerr, set_drain_sigerr @ 0x04 [26];
        bits pd, set_pd: u32 @ 0x04 [23:0];
        bits mtu, set_mtu: u8 @ 0x08 [31:29];
        bits log_msg_max, set_log_msg_max: u8 @ 0x08 [28:24];
        bits log_rq_size, set_log_rq_size: u8 @ 0x08 [22:19];
        bits log_rq_stride, set_log_rq_stride: u8 @ 0x08 [18:16];
        flag no_sq, set_no_sq @ 0x08 [15];
        bits log_sq_size, set_log_sq_size: u8 @ 0x08 [14:11];
        bits ts_format, set_ts_format: u8 @ 0x08 [7:6];
        flag rlky, set_rlky @ 0x08 [4];
        bits ulp_stateless_offload_mode, set_ulp_stateless_offload_mode: u8 @ 0x08 [3:0];
        bits counter_set_id, set_counter_set_id: u8 @ 0x0c [31:24];
        bits uar_page, set_uar_page: u32 @ 0x0c [23:0];
        bits user_index, set_user_index: u32 @ 0x10 [23:0];
        bits log_page_size, set_log_page_size: u8 @ 0x14 [28:24];
        bits remote_qpn, set_remote_qpn: u32 @ 0x14 [23:0];
        part primary_address_path, primary_address_path_mut: Ads @ 0x18;
        part secondary_address_path, secondary_address_path_mut: Ads @ 0x44;
        bits log_ack_req_freq, set_log_ack_req_freq: u8 @ 0x70 [31:28];
        bits log_sra_max, set_log_sra_max: u8 @ 0x70 [23:21];
        bits retry_count, set_retry_count: u8 @ 0x70 [18:16];
        bits rnr_retry, set_rnr_retry: u8 @ 0x70 [15:13];
        flag fre, set_fre @ 0x70 [11];
        bits cur_rnr_retry, set_cur_rnr_retry: u8 @ 0x70 [10:8];
        bits cur_retry_count, set_cur_retry_count: u8 @ 0x70 [7:5];
        bits next_send_psn, set_next_send_psn: u32 @ 0x78 [23:0];
        bits log_num_dci_stream_channels, set_log_num_dci_stream_channels: u8 @ 0x7c [28:24];
        bits cqn_snd, set_cqn_snd: u32 @ 0x7c [23:0];
        bits log_num_dci_errored_streams, set_log_num_dci_errored_streams: u8 @ 0x80 [28:24];
        bits deth_sqpn, set_deth_sqpn: u32 @ 0x80 [23:0];
        bits last_acked_psn, set_last_acked_psn: u32 @ 0x88 [23:0];
        bits ssn, set_ssn: u32 @ 0x8c [23:0];
        bits log_rra_max, set_log_rra_max: u8 @ 0x90 [23:21];
        bits atomic_mode, set_atomic_mode: u8 @ 0x90 [19:16];
        flag rre, set_rre @ 0x90 [15];
        flag rwe, set_rwe @ 0x90 [14];
        flag rae, set_rae @ 0x90 [13];
        bits page_offset, set_page_offset: u8 @ 0x90 [11:6];
        flag cd_slave_receive, set_cd_slave_receive @ 0x90 [2];
        flag cd_slave_send, set_cd_slave_send @ 0x90 [1];
        flag cd_master, set_cd_master @ 0x90 [0];
        bits min_rnr_nak, set_min_rnr_nak: u8 @ 0x94 [28:24];
        bits next_rcv_psn, set_next_rcv_psn: u32 @ 0x94 [23:0];
        bits xrcd, set_xrcd: u32 @ 0x98 [23:0];
        bits cqn_rcv, set_cqn_rcv: u32 @ 0x9c [23:0];
        bits dbr_addr, set_dbr_addr: u64 @ 0xa0 [63:0];
        bits q_key, set_q_key: u32 @ 0xa8 [31:0];
        bits rq_type, set_rq_type: u8 @ 0xac [26:24];
        bits srqn_rmpn_xrqn, set_srqn_rmpn_xrqn: u32 @ 0xac [23:0];
        bits rmsn, set_rmsn: u32 @ 0xb0 [23:0];
        bits hw_sq_wqebb_counter, set_hw_sq_wqebb_counter: u16 @ 0xb4 [31:16];
        bits sw_sq_wqebb_counter, set_sw_sq_wqebb_counter: u16 @ 0xb4 [15:0];
        bits hw_rq_counter, set_hw_rq_counter: u32 @ 0xb8 [31:0];
        bits sw_rq_counter, set_sw_rq_counter: u32 @ 0xbc [31:0];
        flag cgs, set_cgs @ 0xc4 [16];
        bits cs_req, set_cs_req: u8 @ 0xc4 [15:8];
        bits cs_res, set_cs_res: u8 @ 0xc4 [7:0];
        bits dc_access_key, set_dc_access_key: u64 @ 0xc8 [63:0];
        flag dbr_umem_valid, set_dbr_umem_valid @ 0xd0 [28];
        bits dbr_umem_id, set_dbr_umem_id: u32 @ 0xe4 [31:0];
    }
}

layout! {
    /// The extension of a queue pair's context, which stands behind the command that changes it.
    pub struct QpcExt: "qpc_ext", 0xc0 {
        flag mmo, set_mmo @ 0x00 [29];
        bits dci_stream_channel_id, set_dci_stream_channel_id: u16 @ 0x00 [15:0];
        bits qos_queue_group_id_requester, set_qos_queue_group_id_requester: u32 @ 0x04 [31:0];
        bits qos_queue_group_id_responder, set_qos_queue_group_id_responder: u32 @ 0x08 [31:0];
    }
}

impl QpcExt {
    /// Bit of [`Rts2rtsQpIn::opt_param_mask_95_32`]: the stream is to leave its error state
    /// (`MLX5_QPC_OPT_MASK_32_DCI_STREAM_CHANNEL_ID` of rdma-core's `mlx5_ifc.h`).
    pub const OPT_DCI_STREAM_CHANNEL_ID: u64 = 1 << 0;
}

commands! {
    input CreateQpIn of CreateQp: "create_qp_in", 0x110, uid {
        flag qpc_ext, set_qpc_ext @ 0x08 [31];
        bits input_qpn, set_input_qpn: u32 @ 0x08 [23:0];
        bits opt_param_mask, set_opt_param_mask: u32 @ 0x10 [31:0];
        bits ece, set_ece: u32 @ 0x14 [31:0];
        part qpc, qpc_mut: Qpc @ 0x18;
        bits wq_umem_offset, set_wq_umem_offset: u64 @ 0x100 [63:0];
        bits wq_umem_id, set_wq_umem_id: u32 @ 0x108 [31:0];
        flag wq_umem_valid, set_wq_umem_valid @ 0x10c [31];
        tail pas: 64 @ 0x110;
    }
    output CreateQpOut: "create_qp_out", 0x10 {
        bits qpn, set_qpn: u32 @ 0x08 [23:0];
        bits ece, set_ece: u32 @ 0x0c [31:0];
    }

    input DestroyQpIn of DestroyQp: "destroy_qp_in", 0x10, uid {
        bits qpn, set_qpn: u32 @ 0x08 [23:0];
    }

    input Rst2initQpIn of Rst2initQp: "rst2init_qp_in", 0x110, uid {
        bits qpn, set_qpn: u32 @ 0x08 [23:0];
        bits opt_param_mask, set_opt_param_mask: u32 @ 0x10 [31:0];
        bits ece, set_ece: u32 @ 0x14 [31:0];
        part qpc, qpc_mut: Qpc @ 0x18;
    }
    output Rst2initQpOut: "rst2init_qp_out", 0x10 {
        bits ece, set_ece: u32 @ 0x0c [31:0];
    }

    input Init2rtrQpIn of Init2rtrQp: "init2rtr_qp_in", 0x110, uid {
        bits qpn, set_qpn: u32 @ 0x08 [23:0];
        bits opt_param_mask, set_opt_param_mask: u32 @ 0x10 [31:0];
        bits ece, set_ece: u32 @ 0x14 [31:0];
        part qpc, qpc_mut: Qpc @ 0x18;
    }
    output Init2rtrQpOut: "init2rtr_qp_out", 0x10 {
        bits ece, set_ece: u32 @ 0x0c [31:0];
    }

    input Rtr2rtsQpIn of Rtr2rtsQp: "rtr2rts_qp_in", 0x110, uid {
        bits qpn, set_qpn: u32 @ 0x08 [23:0];
        bits opt_param_mask, set_opt_param_mask: u32 @ 0x10 [31:0];
        bits ece, set_ece: u32 @ 0x14 [31:0];
        part qpc, qpc_mut: Qpc @ 0x18;
    }
    output Rtr2rtsQpOut: "rtr2rts_qp_out", 0x10 {
        bits ece, set_ece: u32 @ 0x0c [31:0];
    }

    input Rts2rtsQpIn of Rts2rtsQp: "rts2rts_qp_in", 0x110, uid {
        flag qpc_ext, set_qpc_ext @ 0x08 [31];
        bits qpn, set_qpn: u32 @ 0x08 [23:0];
        bits opt_param_mask, set_opt_param_mask: u32 @ 0x10 [31:0];
        bits ece, set_ece: u32 @ 0x14 [31:0];
        part qpc, qpc_mut: Qpc @ 0x18;
        bits opt_param_mask_95_32, set_opt_param_mask_95_32: u64 @ 0x108 [63:0];
        tail qpc_data_ext: 64 @ 0x110;
    }
    output Rts2rtsQpOut: "rts2rts_qp_out", 0x10 {
        bits ece, set_ece: u32 @ 0x0c [31:0];
    }

    input Sqerr2rtsQpIn of Sqerr2rtsQp: "sqerr2rts_qp_in", 0x110, uid {
        bits qpn, set_qpn: u32 @ 0x08 [23:0];
        bits opt_param_mask, set_opt_param_mask: u32 @ 0x10 [31:0];
        part qpc, qpc_mut: Qpc @ 0x18;
    }

    input Qp2ErrIn of Qp2Err: "qp_2err_in", 0x10, uid {
        bits qpn, set_qpn: u32 @ 0x08 [23:0];
    }

    input Qp2RstIn of Qp2Rst: "qp_2rst_in", 0x10, uid {
        bits qpn, set_qpn: u32 @ 0x08 [23:0];
    }

    input QueryQpIn of QueryQp: "query_qp_in", 0x10 {
        bits qpn, set_qpn: u32 @ 0x08 [23:0];
    }
    output QueryQpOut: "query_qp_out", 0x110 {
        bits opt_param_mask, set_opt_param_mask: u32 @ 0x10 [31:0];
        bits ece, set_ece: u32 @ 0x14 [31:0];
        part qpc, qpc_mut: Qpc @ 0x18;
        tail pas: 64 @ 0x110;
    }

    input Sqd2rtsQpIn of Sqd2rtsQp: "sqd2rts_qp_in", 0x110, uid {
        bits qpn, set_qpn: u32 @ 0x08 [23:0];
        bits opt_param_mask, set_opt_param_mask: u32 @ 0x10 [31:0];
        part qpc, qpc_mut: Qpc @ 0x18;
    }

    input Init2initQpIn of Init2initQp: "init2init_qp_in", 0x110, uid {
        bits qpn, set_qpn: u32 @ 0x08 [23:0];
        bits opt_param_mask, set_opt_param_mask: u32 @ 0x10 [31:0];
        bits ece, set_ece: u32 @ 0x14 [31:0];
        part qpc, qpc_mut: Qpc @ 0x18;
    }
    output Init2initQpOut: "init2init_qp_out", 0x10 {
        bits ece, set_ece: u32 @ 0x0c [31:0];
    }
}

impl Ads {
    /// MAC address of the peer or of the router to it.
    #[must_use]
    pub fn rmac(&self) -> [u8; 6] {
        let [h1, h0] = self.rmac_47_32().to_be_bytes();
        let [l3, l2, l1, l0] = self.rmac_31_0().to_be_bytes();
        [h1, h0, l3, l2, l1, l0]
    }

    /// Sets [`rmac`](Self::rmac).
    pub fn set_rmac(&mut self, mac: [u8; 6]) -> &mut Self {
        let [h1, h0, l3, l2, l1, l0] = mac;
        self.set_rmac_47_32(u16::from_be_bytes([h1, h0]))
            .set_rmac_31_0(u32::from_be_bytes([l3, l2, l1, l0]))
    }
}

/// The small messages that come in the entry of their completion: `cs_res` and `cs_req` of the [context](Qpc), 0 for none.
/// Numbers of `MLX5_RES_SCAT_DATA32_CQE` and so on in Linux's `mlx5/qp.h`.
pub mod scatter {
    /// `cs_res`: messages received, of up to 32 bytes.
    pub const RECEIVES_32: u8 = 0x1;
    /// `cs_res`: messages received, of up to 64 bytes, in entries of 128.
    pub const RECEIVES_64: u8 = 0x2;
    /// `cs_req`: what is read or fetched, up to 32 bytes.
    pub const RESPONSES_32: u8 = 0x11;
    /// `cs_req`: what is read or fetched, up to 64 bytes, in entries of 128.
    pub const RESPONSES_64: u8 = 0x22;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mac_bytes_in_order() {
        let mut path = Ads([0xa5; 0x2c]);
        path.set_rmac([2, 1, 3, 5, 7, 9]);
        assert_eq!(path.0[0x26..], [2, 1, 3, 5, 7, 9]);
        assert_eq!(path.rmac(), [2, 1, 3, 5, 7, 9]);
        assert!(path.0[..0x26].iter().all(|&b| b == 0xa5));
    }
}

#[cfg(test)]
mod golden;
