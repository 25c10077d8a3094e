//! Golden bytes: emitted into, and parsed from, buffers full of 0xa5, so that a write beside its field shows. The
//! expected bytes are computed from the header's own offsets, not from this crate's.

use super::*;
use crate::golden::{emits, fresh, parses};

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
fn ads_parsed() {
    parses::<Ads>(
        &[
            (
                0x000,
                "65a5daed a5ce8716 e5ada631 ac20f7a6 e6e6e6e6 e6e6e6e6",
            ),
            (0x018, "e6e6e6e6 e6e6e6e6 a9d5831d a52be077 ccc4c9aa"),
        ],
        |s| {
            assert!(!s.fl());
            assert!(s.free_ar());
            assert_eq!(s.pkey_index(), 0xdaed);
            assert!(s.grh());
            assert_eq!(s.mlid(), 0x4e);
            assert_eq!(s.rlid(), 0x8716);
            assert_eq!(s.ack_timeout(), 0x1c);
            assert_eq!(s.src_addr_index(), 0xad);
            assert_eq!(s.stat_rate(), 6);
            assert_eq!(s.hop_limit(), 0x31);
            assert_eq!(s.tclass(), 0xc2);
            assert_eq!(s.flow_label(), 0xf7a6);
            assert_eq!(*s.rgid_rip(), [0xe6; 16]);
            assert!(s.f_dscp());
            assert!(!s.f_ecn());
            assert!(s.f_eth_prio());
            assert_eq!(s.ecn(), 3);
            assert_eq!(s.dscp(), 0x15);
            assert_eq!(s.udp_sport(), 0x831d);
            assert!(s.dei_cfi());
            assert_eq!(s.eth_prio(), 2);
            assert_eq!(s.sl(), 5);
            assert_eq!(s.vhca_port_num(), 0x2b);
            assert_eq!(s.rmac_47_32(), 0xe077);
            assert_eq!(s.rmac_31_0(), 0xccc4c9aa);
        },
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
fn qpc_parsed() {
    parses::<Qpc>(
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
        |s| {
            assert_eq!(s.state(), 7);
            assert_eq!(s.lag_tx_port_affinity(), 0xd);
            assert_eq!(s.st(), 0x23);
            assert!(s.isolate_vl_tc());
            assert_eq!(s.pm_state(), 1);
            assert_eq!(s.req_e2e_credit_mode(), 1);
            assert_eq!(s.offload_type(), 0xb);
            assert_eq!(s.end_padding_mode(), 1);
            assert!(!s.wq_signature());
            assert!(s.block_lb_mc());
            assert!(!s.atomic_like_write_en());
            assert!(s.latency_sensitive());
            assert!(!s.drain_sigerr());
            assert_eq!(s.pd(), 0x4a0679);
            assert_eq!(s.mtu(), 1);
            assert_eq!(s.log_msg_max(), 0xb);
            assert_eq!(s.log_rq_size(), 0xf);
            assert_eq!(s.log_rq_stride(), 2);
            assert!(!s.no_sq());
            assert_eq!(s.log_sq_size(), 9);
            assert_eq!(s.ts_format(), 1);
            assert!(s.rlky());
            assert_eq!(s.ulp_stateless_offload_mode(), 5);
            assert_eq!(s.counter_set_id(), 0x66);
            assert_eq!(s.uar_page(), 0x5c3383);
            assert_eq!(s.user_index(), 0xa61382);
            assert_eq!(s.log_page_size(), 0xc);
            assert_eq!(s.remote_qpn(), 0xe57480);
            assert!(!s.primary_address_path().fl());
            assert!(s.primary_address_path().free_ar());
            assert_eq!(*s.primary_address_path().rgid_rip(), [0xe6; 16]);
            assert_eq!(s.primary_address_path().rmac_31_0(), 0xccc4c9aa);
            assert!(!s.secondary_address_path().fl());
            assert!(s.secondary_address_path().free_ar());
            assert_eq!(*s.secondary_address_path().rgid_rip(), [0xe6; 16]);
            assert_eq!(s.secondary_address_path().rmac_31_0(), 0xccc4c9aa);
            assert_eq!(s.log_ack_req_freq(), 8);
            assert_eq!(s.log_sra_max(), 2);
            assert_eq!(s.retry_count(), 1);
            assert_eq!(s.rnr_retry(), 5);
            assert!(!s.fre());
            assert_eq!(s.cur_rnr_retry(), 6);
            assert_eq!(s.cur_retry_count(), 1);
            assert_eq!(s.next_send_psn(), 0xd9b0fe);
            assert_eq!(s.log_num_dci_stream_channels(), 0x1f);
            assert_eq!(s.cqn_snd(), 0x3e736c);
            assert_eq!(s.log_num_dci_errored_streams(), 4);
            assert_eq!(s.deth_sqpn(), 0xe8fee6);
            assert_eq!(s.last_acked_psn(), 0xec6679);
            assert_eq!(s.ssn(), 0xee911f);
            assert_eq!(s.log_rra_max(), 4);
            assert_eq!(s.atomic_mode(), 0xe);
            assert!(!s.rre());
            assert!(s.rwe());
            assert!(!s.rae());
            assert_eq!(s.page_offset(), 0x1c);
            assert!(!s.cd_slave_receive());
            assert!(s.cd_slave_send());
            assert!(!s.cd_master());
            assert_eq!(s.min_rnr_nak(), 0x16);
            assert_eq!(s.next_rcv_psn(), 0x69e66d);
            assert_eq!(s.xrcd(), 0x80c196);
            assert_eq!(s.cqn_rcv(), 0xadca7c);
            assert_eq!(s.dbr_addr(), 0x11a09ea6362b8e5);
            assert_eq!(s.q_key(), 0x4cb648e9);
            assert_eq!(s.rq_type(), 7);
            assert_eq!(s.srqn_rmpn_xrqn(), 0xcaa403);
            assert_eq!(s.rmsn(), 0x339aa7);
            assert_eq!(s.hw_sq_wqebb_counter(), 0x2573);
            assert_eq!(s.sw_sq_wqebb_counter(), 0xbcf1);
            assert_eq!(s.hw_rq_counter(), 0x47d9f226);
            assert_eq!(s.sw_rq_counter(), 0xb4a00a0c);
            assert!(!s.cgs());
            assert_eq!(s.cs_req(), 0xfd);
            assert_eq!(s.cs_res(), 0x6c);
            assert_eq!(s.dc_access_key(), 0x1a77bf91dc89616);
            assert!(!s.dbr_umem_valid());
        },
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
    fresh(&CreateQpIn::new().0, 0x500);
}

#[test]
fn create_qp_out_parsed() {
    parses::<CreateQpOut>(&[(0x000, "08a5a5a5 5bde116c a569e34b 1f398032")], |s| {
        assert_eq!(s.status(), 8);
        assert_eq!(s.syndrome(), 0x5bde116c);
        assert_eq!(s.qpn(), 0x69e34b);
        assert_eq!(s.ece(), 0x1f398032);
    });
}

#[test]
fn destroy_qp_in() {
    emits::<DestroyQpIn>(
        |s| {
            s.set_opcode(0x501)
                .set_uid(0x1c4e)
                .set_op_mod(0x3b0f)
                .set_qpn(0x7f3072);
        },
        &[(0x000, "05011c4e a5a53b0f a57f3072")],
    );
    fresh(&DestroyQpIn::new().0, 0x501);
}

#[test]
fn rst2init_qp_in() {
    emits::<Rst2initQpIn>(
        |s| {
            s.set_opcode(0x502)
                .set_uid(0x5087)
                .set_op_mod(0x8c7f)
                .set_qpn(0x89e652)
                .set_opt_param_mask(0xee95b562)
                .set_ece(0x2c636376);
            s.qpc_mut()
                .set_state(7)
                .set_lag_tx_port_affinity(0xd)
                .set_cur_rnr_retry(6)
                .set_dbr_umem_valid(true);
        },
        &[
            (0x000, "05025087 a5a58c7f a589e652"),
            (0x010, "ee95b562 2c636376 7da5a5a5"),
            (0x088, "a5a5a6a5"),
            (0x0e8, "b5a5a5a5"),
        ],
    );
    fresh(&Rst2initQpIn::new().0, 0x502);
}

#[test]
fn rst2init_qp_out_parsed() {
    parses::<Rst2initQpOut>(&[(0x000, "08a5a5a5 a22d8ab9"), (0x00c, "b370be83")], |s| {
        assert_eq!(s.status(), 8);
        assert_eq!(s.syndrome(), 0xa22d8ab9);
        assert_eq!(s.ece(), 0xb370be83);
    });
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
    fresh(&Init2rtrQpIn::new().0, 0x503);
}

#[test]
fn init2rtr_qp_out_parsed() {
    parses::<Init2rtrQpOut>(&[(0x000, "08a5a5a5 791906d4"), (0x00c, "684432ee")], |s| {
        assert_eq!(s.status(), 8);
        assert_eq!(s.syndrome(), 0x791906d4);
        assert_eq!(s.ece(), 0x684432ee);
    });
}

#[test]
fn rtr2rts_qp_in() {
    emits::<Rtr2rtsQpIn>(
        |s| {
            s.set_opcode(0x504)
                .set_uid(0xb44b)
                .set_op_mod(0x930a)
                .set_qpn(0xd69877)
                .set_opt_param_mask(0x2a32b89f)
                .set_ece(0xa786fb0e);
            s.qpc_mut()
                .set_state(7)
                .set_lag_tx_port_affinity(0xd)
                .set_cur_rnr_retry(6)
                .set_dbr_umem_valid(true);
        },
        &[
            (0x000, "0504b44b a5a5930a a5d69877"),
            (0x010, "2a32b89f a786fb0e 7da5a5a5"),
            (0x088, "a5a5a6a5"),
            (0x0e8, "b5a5a5a5"),
        ],
    );
    fresh(&Rtr2rtsQpIn::new().0, 0x504);
}

#[test]
fn rtr2rts_qp_out_parsed() {
    parses::<Rtr2rtsQpOut>(&[(0x000, "08a5a5a5 e7d2008a"), (0x00c, "0344eeb3")], |s| {
        assert_eq!(s.status(), 8);
        assert_eq!(s.syndrome(), 0xe7d2008a);
        assert_eq!(s.ece(), 0x344eeb3);
    });
}

#[test]
fn rts2rts_qp_in() {
    emits::<Rts2rtsQpIn>(
        |s| {
            s.set_opcode(0x505)
                .set_uid(0xa9f4)
                .set_op_mod(0x8eb5)
                .set_qpn(0x5585c8)
                .set_opt_param_mask(0x5b1a520)
                .set_ece(0x7605e6b1);
            s.qpc_mut()
                .set_state(7)
                .set_lag_tx_port_affinity(0xd)
                .set_cur_rnr_retry(6)
                .set_dbr_umem_valid(true);
        },
        &[
            (0x000, "0505a9f4 a5a58eb5 a55585c8"),
            (0x010, "05b1a520 7605e6b1 7da5a5a5"),
            (0x088, "a5a5a6a5"),
            (0x0e8, "b5a5a5a5"),
        ],
    );
    fresh(&Rts2rtsQpIn::new().0, 0x505);
}

#[test]
fn rts2rts_qp_out_parsed() {
    parses::<Rts2rtsQpOut>(&[(0x000, "08a5a5a5 dae54a12"), (0x00c, "2073a42b")], |s| {
        assert_eq!(s.status(), 8);
        assert_eq!(s.syndrome(), 0xdae54a12);
        assert_eq!(s.ece(), 0x2073a42b);
    });
}

#[test]
fn sqerr2rts_qp_in() {
    emits::<Sqerr2rtsQpIn>(
        |s| {
            s.set_opcode(0x506)
                .set_uid(0x833b)
                .set_op_mod(0x665f)
                .set_qpn(0x9b7bda)
                .set_opt_param_mask(0xcfa41840);
            s.qpc_mut()
                .set_state(7)
                .set_lag_tx_port_affinity(0xd)
                .set_cur_rnr_retry(6)
                .set_dbr_umem_valid(false);
        },
        &[
            (0x000, "0506833b a5a5665f a59b7bda"),
            (0x010, "cfa41840"),
            (0x018, "7da5a5a5"),
            (0x088, "a5a5a6a5"),
            (0x0e8, "a5a5a5a5"),
        ],
    );
    fresh(&Sqerr2rtsQpIn::new().0, 0x506);
}

#[test]
fn qp_2err_in() {
    emits::<Qp2ErrIn>(
        |s| {
            s.set_opcode(0x507)
                .set_uid(0x87e4)
                .set_op_mod(0xbac1)
                .set_qpn(0xefc82e);
        },
        &[(0x000, "050787e4 a5a5bac1 a5efc82e")],
    );
    fresh(&Qp2ErrIn::new().0, 0x507);
}

#[test]
fn qp_2rst_in() {
    emits::<Qp2RstIn>(
        |s| {
            s.set_opcode(0x50a)
                .set_uid(0x376c)
                .set_op_mod(0xa49)
                .set_qpn(0xe278a6);
        },
        &[(0x000, "050a376c a5a50a49 a5e278a6")],
    );
    fresh(&Qp2RstIn::new().0, 0x50a);
}

#[test]
fn query_qp_in() {
    emits::<QueryQpIn>(
        |s| {
            s.set_opcode(0x50b).set_op_mod(0x6508).set_qpn(0xb0e395);
        },
        &[(0x000, "050ba5a5 a5a56508 a5b0e395")],
    );
    fresh(&QueryQpIn::new().0, 0x50b);
}

#[test]
fn query_qp_out_parsed() {
    parses::<QueryQpOut>(
        &[
            (0x000, "08a5a5a5 1e04b219"),
            (0x010, "70af2160 d62dc154 7da5a5a5"),
            (0x088, "a5a5a6a5"),
            (0x0e8, "b5a5a5a5"),
        ],
        |s| {
            assert_eq!(s.status(), 8);
            assert_eq!(s.syndrome(), 0x1e04b219);
            assert_eq!(s.opt_param_mask(), 0x70af2160);
            assert_eq!(s.ece(), 0xd62dc154);
            assert_eq!(s.qpc().state(), 7);
            assert_eq!(s.qpc().lag_tx_port_affinity(), 0xd);
            assert_eq!(s.qpc().cur_rnr_retry(), 6);
            assert!(s.qpc().dbr_umem_valid());
        },
    );
}

#[test]
fn sqd2rts_qp_in() {
    emits::<Sqd2rtsQpIn>(
        |s| {
            s.set_opcode(0x50c)
                .set_uid(0x590b)
                .set_op_mod(0x7e4a)
                .set_qpn(0xd07537)
                .set_opt_param_mask(0x8a3455df);
            s.qpc_mut()
                .set_state(7)
                .set_lag_tx_port_affinity(0xd)
                .set_cur_rnr_retry(6)
                .set_dbr_umem_valid(false);
        },
        &[
            (0x000, "050c590b a5a57e4a a5d07537"),
            (0x010, "8a3455df"),
            (0x018, "7da5a5a5"),
            (0x088, "a5a5a6a5"),
            (0x0e8, "a5a5a5a5"),
        ],
    );
    fresh(&Sqd2rtsQpIn::new().0, 0x50c);
}

#[test]
fn init2init_qp_in() {
    emits::<Init2initQpIn>(
        |s| {
            s.set_opcode(0x50e)
                .set_uid(0xb848)
                .set_op_mod(0x5d2c)
                .set_qpn(0xa840a9)
                .set_opt_param_mask(0xa8972333)
                .set_ece(0xc7de766d);
            s.qpc_mut()
                .set_state(7)
                .set_lag_tx_port_affinity(0xd)
                .set_cur_rnr_retry(6)
                .set_dbr_umem_valid(true);
        },
        &[
            (0x000, "050eb848 a5a55d2c a5a840a9"),
            (0x010, "a8972333 c7de766d 7da5a5a5"),
            (0x088, "a5a5a6a5"),
            (0x0e8, "b5a5a5a5"),
        ],
    );
    fresh(&Init2initQpIn::new().0, 0x50e);
}

#[test]
fn init2init_qp_out_parsed() {
    parses::<Init2initQpOut>(&[(0x000, "08a5a5a5 7ad3286d"), (0x00c, "51d664b0")], |s| {
        assert_eq!(s.status(), 8);
        assert_eq!(s.syndrome(), 0x7ad3286d);
        assert_eq!(s.ece(), 0x51d664b0);
    });
}
