//! Golden bytes: emitted into, and parsed from, buffers full of 0xa5, so that a write beside its field shows. The
//! expected bytes are computed from the header's own offsets, not from this crate's.

use super::*;
use crate::golden::{emits, fresh, parses};

#[test]
fn cmd_hca_cap() {
    emits::<HcaCap>(
        |s| {
            s.set_log_max_srq_sz(0x84)
                .set_log_max_qp_sz(0x69)
                .set_log_max_qp(4)
                .set_log_max_cq_sz(0xe9)
                .set_log_max_cq(0x1b)
                .set_log_max_mkey(0x15)
                .set_log_max_eq(4)
                .set_log_max_ra_req_qp(0x13)
                .set_gid_table_size(0xd5b8)
                .set_pkey_table_size(0x9a2b)
                .set_port_type(3)
                .set_num_ports(0xdb)
                .set_log_max_msg(3)
                .set_cqe_version(0xc)
                .set_cmdif_checksum(1)
                .set_roce(true)
                .set_atomic(false)
                .set_xrc(true)
                .set_log_bf_reg_size(8)
                .set_max_wqe_sz_sq(0x40da)
                .set_log_max_pd(0x1a)
                .set_log_max_xrcd(0x17)
                .set_general_obj_types(0x17263e7bddec225)
                .set_max_num_eqs(0xe5be)
                .set_log_uar_page_sz(0x1c74)
                .set_num_of_uars_per_page(0x47f1b6dd)
                .set_match_definer_format_supported(0x1c02bacca6641e8);
        },
        &[
            (0x010, "8469a5a4"),
            (0x018, "a5e9a5bb a595a5a4"),
            (
                0x028,
                "a593a5a5 a5a5d5b8 a5a59a2b a5a5a7db a3a5a5a5 a5a5a5ac",
            ),
            (0x040, "a5a565a5 a5a5a5ad"),
            (0x04c, "a5a8a5a5 a5a540da"),
            (0x064, "a5baa5b7"),
            (0x080, "017263e7 bddec225"),
            (0x08c, "a5a5e5be a5a51c74"),
            (0x0a4, "47f1b6dd"),
            (0x0f8, "01c02bac ca6641e8"),
        ],
    );
}

#[test]
fn cmd_hca_cap_parsed() {
    parses::<HcaCap>(
        &[
            (0x010, "8469a5a4"),
            (0x018, "a5e9a5bb a595a5a4"),
            (
                0x028,
                "a593a5a5 a5a5d5b8 a5a59a2b a5a5a7db a3a5a5a5 a5a5a5ac",
            ),
            (0x040, "a5a565a5 a5a5a5ad"),
            (0x04c, "a5a8a5a5 a5a540da"),
            (0x064, "a5baa5b7"),
            (0x080, "017263e7 bddec225"),
            (0x08c, "a5a5e5be a5a51c74"),
            (0x0a4, "47f1b6dd"),
            (0x0f8, "01c02bac ca6641e8"),
        ],
        |s| {
            assert_eq!(s.log_max_srq_sz(), 0x84);
            assert_eq!(s.log_max_qp_sz(), 0x69);
            assert_eq!(s.log_max_qp(), 4);
            assert_eq!(s.log_max_cq_sz(), 0xe9);
            assert_eq!(s.log_max_cq(), 0x1b);
            assert_eq!(s.log_max_mkey(), 0x15);
            assert_eq!(s.log_max_eq(), 4);
            assert_eq!(s.log_max_ra_req_qp(), 0x13);
            assert_eq!(s.gid_table_size(), 0xd5b8);
            assert_eq!(s.pkey_table_size(), 0x9a2b);
            assert_eq!(s.port_type(), 3);
            assert_eq!(s.num_ports(), 0xdb);
            assert_eq!(s.log_max_msg(), 3);
            assert_eq!(s.cqe_version(), 0xc);
            assert_eq!(s.cmdif_checksum(), 1);
            assert!(s.roce());
            assert!(!s.atomic());
            assert!(s.xrc());
            assert_eq!(s.log_bf_reg_size(), 8);
            assert_eq!(s.max_wqe_sz_sq(), 0x40da);
            assert_eq!(s.log_max_pd(), 0x1a);
            assert_eq!(s.log_max_xrcd(), 0x17);
            assert_eq!(s.general_obj_types(), 0x17263e7bddec225);
            assert_eq!(s.max_num_eqs(), 0xe5be);
            assert_eq!(s.log_uar_page_sz(), 0x1c74);
            assert_eq!(s.num_of_uars_per_page(), 0x47f1b6dd);
            assert_eq!(s.match_definer_format_supported(), 0x1c02bacca6641e8);
        },
    );
}

#[test]
fn roce_cap() {
    emits::<RoceCap>(
        |s| {
            s.set_roce_apm(false)
                .set_sw_r_roce_src_udp_port(true)
                .set_fl_rc_qp_when_roce_disabled(false)
                .set_fl_rc_qp_when_roce_enabled(true)
                .set_qp_ts_format(2)
                .set_l3_type(0xa)
                .set_roce_version(0x1b)
                .set_r_roce_dest_udp_port(0x6eca)
                .set_r_roce_max_src_udp_port(0x141)
                .set_r_roce_min_src_udp_port(0x7fe6)
                .set_roce_address_table_size(0x3db1);
        },
        &[
            (0x000, "2ba5a5a6"),
            (0x010, "a5aaa51b a5a56eca 01417fe6 a5a53db1"),
        ],
    );
}

#[test]
fn roce_cap_parsed() {
    parses::<RoceCap>(
        &[
            (0x000, "2ba5a5a6"),
            (0x010, "a5aaa51b a5a56eca 01417fe6 a5a53db1"),
        ],
        |s| {
            assert!(!s.roce_apm());
            assert!(s.sw_r_roce_src_udp_port());
            assert!(!s.fl_rc_qp_when_roce_disabled());
            assert!(s.fl_rc_qp_when_roce_enabled());
            assert_eq!(s.qp_ts_format(), 2);
            assert_eq!(s.l3_type(), 0xa);
            assert_eq!(s.roce_version(), 0x1b);
            assert_eq!(s.r_roce_dest_udp_port(), 0x6eca);
            assert_eq!(s.r_roce_max_src_udp_port(), 0x141);
            assert_eq!(s.r_roce_min_src_udp_port(), 0x7fe6);
            assert_eq!(s.roce_address_table_size(), 0x3db1);
        },
    );
}

#[test]
fn atomic_caps() {
    emits::<AtomicCaps>(
        |s| {
            s.set_atomic_req_8B_endianness_mode(2)
                .set_supported_atomic_req_8B_endianness_mode_1(true)
                .set_atomic_operations(0x151d)
                .set_atomic_size_qp(0xfe6c)
                .set_atomic_size_dc(0xa239);
        },
        &[(0x008, "a7a5a5a5"), (0x010, "a5a5151d a5a5fe6c a5a5a239")],
    );
}

#[test]
fn atomic_caps_parsed() {
    parses::<AtomicCaps>(
        &[(0x008, "a7a5a5a5"), (0x010, "a5a5151d a5a5fe6c a5a5a239")],
        |s| {
            assert_eq!(s.atomic_req_8B_endianness_mode(), 2);
            assert!(s.supported_atomic_req_8B_endianness_mode_1());
            assert_eq!(s.atomic_operations(), 0x151d);
            assert_eq!(s.atomic_size_qp(), 0xfe6c);
            assert_eq!(s.atomic_size_dc(), 0xa239);
        },
    );
}

#[test]
fn query_hca_cap_in() {
    emits::<QueryHcaCapIn>(
        |s| {
            s.set_opcode(0x100)
                .set_op_mod(0x188a)
                .set_other_function(false)
                .set_function_id(0x1bfe);
        },
        &[(0x000, "0100a5a5 a5a5188a 25a51bfe")],
    );
    fresh(&QueryHcaCapIn::new().0, 0x100);
}

#[test]
fn query_hca_cap_out_parsed() {
    parses::<QueryHcaCapOut>(&[(0x000, "08a5a5a5 aa84e83e")], |s| {
        assert_eq!(s.status(), 8);
        assert_eq!(s.syndrome(), 0xaa84e83e);
    });
}

#[test]
fn set_hca_cap_in() {
    emits::<SetHcaCapIn>(
        |s| {
            s.set_opcode(0x109)
                .set_op_mod(0xc3ac)
                .set_other_function(false)
                .set_function_id(0x6c19);
        },
        &[(0x000, "0109a5a5 a5a5c3ac 25a56c19")],
    );
    fresh(&SetHcaCapIn::new().0, 0x109);
}

#[test]
fn per_protocol_networking_offload_caps() {
    emits::<EthernetOffloadCaps>(
        |s| {
            s.set_csum_cap(true)
                .set_vlan_cap(true)
                .set_lro_cap(true)
                .set_lro_psh_flag(true)
                .set_lro_time_stamp(false)
                .set_wqe_vlan_insert(true)
                .set_self_lb_en_modifiable(true)
                .set_max_lso_cap(0)
                .set_multi_pkt_send_wqe(1)
                .set_wqe_inline_mode(1)
                .set_rss_ind_tbl_cap(1)
                .set_reg_umr_sq(false)
                .set_scatter_fcs(false)
                .set_enhanced_multi_pkt_send_wqe(false)
                .set_tunnel_lso_const_out_ip_id(true)
                .set_tunnel_lro_gre(true)
                .set_tunnel_lro_vxlan(true)
                .set_tunnel_stateless_gre(false)
                .set_tunnel_stateless_vxlan(true)
                .set_swp(true)
                .set_swp_csum(false)
                .set_swp_lso(false)
                .set_cqe_checksum_full(false)
                .set_tunnel_stateless_geneve_tx(false)
                .set_tunnel_stateless_mpls_over_udp(false)
                .set_tunnel_stateless_mpls_over_gre(false)
                .set_tunnel_stateless_vxlan_gpe(false)
                .set_tunnel_stateless_ipv4_over_vxlan(false)
                .set_tunnel_stateless_ip_over_ip(true)
                .set_insert_trailer(false)
                .set_tunnel_stateless_ip_over_ip_rx(true)
                .set_tunnel_stateless_ip_over_ip_tx(true)
                .set_max_vxlan_udp_ports(0xa5)
                .set_max_geneve_opt_len(false)
                .set_tunnel_stateless_geneve_rx(true)
                .set_lro_min_mss_size(0xfa7c);
            *s.lro_timer_supported_periods_mut() = [
                0xe9, 0xf0, 0xf7, 0xfe, 0x05, 0x0c, 0x13, 0x1a, 0x21, 0x28, 0x2f, 0x36, 0x3d, 0x44,
                0x4b, 0x52,
            ];
        },
        &[
            (0x000, "f5a0511d 804da5a5 a5a5fa7c"),
            (0x030, "e9f0f7fe 050c131a 21282f36 3d444b52"),
        ],
    );
}

#[test]
fn per_protocol_networking_offload_caps_parsed() {
    parses::<EthernetOffloadCaps>(
        &[
            (0x000, "f5a0511d 804da5a5 a5a5fa7c"),
            (0x030, "e9f0f7fe 050c131a 21282f36 3d444b52"),
        ],
        |s| {
            assert!(s.csum_cap());
            assert!(s.vlan_cap());
            assert!(s.lro_cap());
            assert!(s.lro_psh_flag());
            assert!(!s.lro_time_stamp());
            assert!(s.wqe_vlan_insert());
            assert!(s.self_lb_en_modifiable());
            assert_eq!(s.max_lso_cap(), 0);
            assert_eq!(s.multi_pkt_send_wqe(), 1);
            assert_eq!(s.wqe_inline_mode(), 1);
            assert_eq!(s.rss_ind_tbl_cap(), 1);
            assert!(!s.reg_umr_sq());
            assert!(!s.scatter_fcs());
            assert!(!s.enhanced_multi_pkt_send_wqe());
            assert!(s.tunnel_lso_const_out_ip_id());
            assert!(s.tunnel_lro_gre());
            assert!(s.tunnel_lro_vxlan());
            assert!(!s.tunnel_stateless_gre());
            assert!(s.tunnel_stateless_vxlan());
            assert!(s.swp());
            assert!(!s.swp_csum());
            assert!(!s.swp_lso());
            assert!(!s.cqe_checksum_full());
            assert!(!s.tunnel_stateless_geneve_tx());
            assert!(!s.tunnel_stateless_mpls_over_udp());
            assert!(!s.tunnel_stateless_mpls_over_gre());
            assert!(!s.tunnel_stateless_vxlan_gpe());
            assert!(!s.tunnel_stateless_ipv4_over_vxlan());
            assert!(s.tunnel_stateless_ip_over_ip());
            assert!(!s.insert_trailer());
            assert!(s.tunnel_stateless_ip_over_ip_rx());
            assert!(s.tunnel_stateless_ip_over_ip_tx());
            assert_eq!(s.max_vxlan_udp_ports(), 0xa5);
            assert!(!s.max_geneve_opt_len());
            assert!(s.tunnel_stateless_geneve_rx());
            assert_eq!(s.lro_min_mss_size(), 0xfa7c);
            assert_eq!(
                s.lro_timer_supported_periods(),
                &[
                    0xe9, 0xf0, 0xf7, 0xfe, 0x05, 0x0c, 0x13, 0x1a, 0x21, 0x28, 0x2f, 0x36, 0x3d,
                    0x44, 0x4b, 0x52
                ]
            );
        },
    );
}

#[test]
fn flow_table_prop_layout() {
    emits::<FlowTablePropLayout>(
        |s| {
            s.set_ft_support(false)
                .set_flow_counter(false)
                .set_flow_modify_en(false)
                .set_modify_root(false)
                .set_identified_miss_table_mode(false)
                .set_flow_table_modify(true)
                .set_reformat(false)
                .set_decap(true)
                .set_pop_vlan(true)
                .set_push_vlan(false)
                .set_pop_vlan_2(true)
                .set_push_vlan_2(true)
                .set_reformat_and_vlan_action(false)
                .set_sw_owner(true)
                .set_reformat_l3_tunnel_to_l2(true)
                .set_reformat_l2_to_l3_tunnel(true)
                .set_reformat_and_modify_action(false)
                .set_ignore_flow_level(false)
                .set_table_miss_action_domain(false)
                .set_termination_table(true)
                .set_reformat_and_fwd_to_table(true)
                .set_ipsec_encrypt(true)
                .set_ipsec_decrypt(false)
                .set_sw_owner_v2(true)
                .set_termination_table_raw_traffic(false)
                .set_log_max_ft_size(1)
                .set_log_max_modify_header_context(0x24)
                .set_max_modify_header_actions(0x24)
                .set_max_ft_level(0x37)
                .set_execute_aso(true)
                .set_reformat_insert(true)
                .set_reformat_remove(true)
                .set_macsec_encrypt(true)
                .set_macsec_decrypt(false)
                .set_reformat_add_macsec(false)
                .set_reformat_remove_macsec(true)
                .set_log_max_ft_num(0xe3)
                .set_log_max_flow_counter(0x64)
                .set_log_max_destination(0xbc)
                .set_log_max_flow(0xbc);
            *s.ft_field_support_mut() = [
                0x35, 0x3a, 0x3f, 0x44, 0x49, 0x4e, 0x53, 0x58, 0x5d, 0x62, 0x67, 0x6c, 0x71, 0x76,
                0x7b, 0x80,
            ];
            *s.ft_field_bitmask_support_mut() = [
                0xa6, 0xa9, 0xac, 0xaf, 0xb2, 0xb5, 0xb8, 0xbb, 0xbe, 0xc1, 0xc4, 0xc7, 0xca, 0xcd,
                0xd0, 0xd3,
            ];
        },
        &[
            (
                0x000,
                "02a6f0eb 01242437 a7a5a5a5 b965a5e3 a5a564bc a5a5a5bc",
            ),
            (
                0x020,
                "353a3f44 494e5358 5d62676c 71767b80 a6a9acaf b2b5b8bb bec1c4c7 cacdd0d3",
            ),
        ],
    );
}

#[test]
fn flow_table_prop_layout_parsed() {
    parses::<FlowTablePropLayout>(
        &[
            (
                0x000,
                "02a6f0eb 01242437 a7a5a5a5 b965a5e3 a5a564bc a5a5a5bc",
            ),
            (
                0x020,
                "353a3f44 494e5358 5d62676c 71767b80 a6a9acaf b2b5b8bb bec1c4c7 cacdd0d3",
            ),
        ],
        |s| {
            assert!(!s.ft_support());
            assert!(!s.flow_counter());
            assert!(!s.flow_modify_en());
            assert!(!s.modify_root());
            assert!(!s.identified_miss_table_mode());
            assert!(s.flow_table_modify());
            assert!(!s.reformat());
            assert!(s.decap());
            assert!(s.pop_vlan());
            assert!(!s.push_vlan());
            assert!(s.pop_vlan_2());
            assert!(s.push_vlan_2());
            assert!(!s.reformat_and_vlan_action());
            assert!(s.sw_owner());
            assert!(s.reformat_l3_tunnel_to_l2());
            assert!(s.reformat_l2_to_l3_tunnel());
            assert!(!s.reformat_and_modify_action());
            assert!(!s.ignore_flow_level());
            assert!(!s.table_miss_action_domain());
            assert!(s.termination_table());
            assert!(s.reformat_and_fwd_to_table());
            assert!(s.ipsec_encrypt());
            assert!(!s.ipsec_decrypt());
            assert!(s.sw_owner_v2());
            assert!(!s.termination_table_raw_traffic());
            assert_eq!(s.log_max_ft_size(), 1);
            assert_eq!(s.log_max_modify_header_context(), 0x24);
            assert_eq!(s.max_modify_header_actions(), 0x24);
            assert_eq!(s.max_ft_level(), 0x37);
            assert!(s.execute_aso());
            assert!(s.reformat_insert());
            assert!(s.reformat_remove());
            assert!(s.macsec_encrypt());
            assert!(!s.macsec_decrypt());
            assert!(!s.reformat_add_macsec());
            assert!(s.reformat_remove_macsec());
            assert_eq!(s.log_max_ft_num(), 0xe3);
            assert_eq!(s.log_max_flow_counter(), 0x64);
            assert_eq!(s.log_max_destination(), 0xbc);
            assert_eq!(s.log_max_flow(), 0xbc);
            assert_eq!(
                s.ft_field_support(),
                &[
                    0x35, 0x3a, 0x3f, 0x44, 0x49, 0x4e, 0x53, 0x58, 0x5d, 0x62, 0x67, 0x6c, 0x71,
                    0x76, 0x7b, 0x80
                ]
            );
            assert_eq!(
                s.ft_field_bitmask_support(),
                &[
                    0xa6, 0xa9, 0xac, 0xaf, 0xb2, 0xb5, 0xb8, 0xbb, 0xbe, 0xc1, 0xc4, 0xc7, 0xca,
                    0xcd, 0xd0, 0xd3
                ]
            );
        },
    );
}

#[test]
fn flow_table_nic_cap() {
    emits::<FlowTableNicCap>(
        |s| {
            s.set_nic_rx_multi_path_tirs(true)
                .set_nic_rx_multi_path_tirs_fts(true)
                .set_allow_sniffer_and_nic_rx_shared_tir(true)
                .set_sw_owner_reformat_supported(true)
                .set_encap_general_header(true)
                .set_log_max_packet_reformat_context(0xf)
                .set_max_encap_header_size(0x165);
            s.flow_table_properties_nic_receive_mut()
                .set_flow_counter(true)
                .set_identified_miss_table_mode(true)
                .set_max_modify_header_actions(0xe6)
                .set_max_ft_level(0x77);
            s.flow_table_properties_nic_receive_rdma_mut()
                .set_flow_table_modify(false)
                .set_reformat_and_modify_action(true)
                .set_macsec_encrypt(false)
                .set_log_max_ft_num(0x7e);
            s.flow_table_properties_nic_receive_sniffer_mut()
                .set_ft_support(true)
                .set_reformat_and_modify_action(false)
                .set_reformat_insert(true)
                .set_log_max_ft_num(0);
            s.flow_table_properties_nic_transmit_mut()
                .set_pop_vlan_2(true)
                .set_ipsec_decrypt(false)
                .set_termination_table_raw_traffic(true)
                .set_macsec_decrypt(false);
            s.flow_table_properties_nic_transmit_rdma_mut()
                .set_ft_support(false)
                .set_sw_owner_v2(false)
                .set_max_modify_header_actions(0xc3)
                .set_log_max_flow_counter(0x34);
            s.flow_table_properties_nic_transmit_sniffer_mut()
                .set_push_vlan_2(true)
                .set_sw_owner(true)
                .set_reformat_insert(false)
                .set_log_max_flow_counter(0xbb);
            *s.ft_field_support_2_nic_receive_rdma_mut() = [
                0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x29, 0x2a, 0x2b, 0x2c, 0x2d, 0x2e, 0x2f, 0x30,
                0x31, 0x32,
            ];
            *s.ft_field_support_2_nic_transmit_rdma_mut() = [
                0x6e, 0x73, 0x78, 0x7d, 0x82, 0x87, 0x8c, 0x91, 0x96, 0x9b, 0xa0, 0xa5, 0xaa, 0xaf,
                0xb4, 0xb9,
            ];
            s.set_sw_steering_nic_rx_action_drop_icm_address(0x4ddd7dd169d92dcc)
                .set_sw_steering_nic_tx_action_drop_icm_address(0xd04fdc39cb407fea)
                .set_sw_steering_nic_tx_action_allow_icm_address(0x493fedbee7533e4d);
        },
        &[
            (0x000, "e5a5a5a5 a5afa565"),
            (0x040, "a5a5a5a5 a5a5e677"),
            (0x080, "a5a5ada5"),
            (0x08c, "a5a5a57e"),
            (0x0c0, "a5a5a5a5"),
            (0x0cc, "a5a5a500"),
            (0x100, "a5a5a5a1 a5a5a5a5"),
            (0x10c, "a1a5a5a5"),
            (0x140, "25a5a5a5 a5a5c3a5"),
            (0x150, "a5a534a5"),
            (0x180, "a5a7e5a5"),
            (0x18c, "85a5a5a5 a5a5bba5"),
            (0x2a0, "23242526 2728292a 2b2c2d2e 2f303132"),
            (0x300, "6e73787d 82878c91 969ba0a5 aaafb4b9"),
            (
                0x400,
                "4ddd7dd1 69d92dcc d04fdc39 cb407fea 493fedbe e7533e4d",
            ),
        ],
    );
}

#[test]
fn flow_table_nic_cap_parsed() {
    parses::<FlowTableNicCap>(
        &[
            (0x000, "e5a5a5a5 a5afa565"),
            (0x040, "a5a5a5a5 a5a5e677"),
            (0x080, "a5a5ada5"),
            (0x08c, "a5a5a57e"),
            (0x0c0, "a5a5a5a5"),
            (0x0cc, "a5a5a500"),
            (0x100, "a5a5a5a1 a5a5a5a5"),
            (0x10c, "a1a5a5a5"),
            (0x140, "25a5a5a5 a5a5c3a5"),
            (0x150, "a5a534a5"),
            (0x180, "a5a7e5a5"),
            (0x18c, "85a5a5a5 a5a5bba5"),
            (0x2a0, "23242526 2728292a 2b2c2d2e 2f303132"),
            (0x300, "6e73787d 82878c91 969ba0a5 aaafb4b9"),
            (
                0x400,
                "4ddd7dd1 69d92dcc d04fdc39 cb407fea 493fedbe e7533e4d",
            ),
        ],
        |s| {
            assert!(s.nic_rx_multi_path_tirs());
            assert!(s.nic_rx_multi_path_tirs_fts());
            assert!(s.allow_sniffer_and_nic_rx_shared_tir());
            assert!(s.sw_owner_reformat_supported());
            assert!(s.encap_general_header());
            assert_eq!(s.log_max_packet_reformat_context(), 0xf);
            assert_eq!(s.max_encap_header_size(), 0x165);
            assert!(s.flow_table_properties_nic_receive().flow_counter());
            assert!(
                s.flow_table_properties_nic_receive()
                    .identified_miss_table_mode()
            );
            assert_eq!(
                s.flow_table_properties_nic_receive()
                    .max_modify_header_actions(),
                0xe6
            );
            assert_eq!(s.flow_table_properties_nic_receive().max_ft_level(), 0x77);
            assert!(
                !s.flow_table_properties_nic_receive_rdma()
                    .flow_table_modify()
            );
            assert!(
                s.flow_table_properties_nic_receive_rdma()
                    .reformat_and_modify_action()
            );
            assert!(!s.flow_table_properties_nic_receive_rdma().macsec_encrypt());
            assert_eq!(
                s.flow_table_properties_nic_receive_rdma().log_max_ft_num(),
                0x7e
            );
            assert!(s.flow_table_properties_nic_receive_sniffer().ft_support());
            assert!(
                !s.flow_table_properties_nic_receive_sniffer()
                    .reformat_and_modify_action()
            );
            assert!(
                s.flow_table_properties_nic_receive_sniffer()
                    .reformat_insert()
            );
            assert_eq!(
                s.flow_table_properties_nic_receive_sniffer()
                    .log_max_ft_num(),
                0
            );
            assert!(s.flow_table_properties_nic_transmit().pop_vlan_2());
            assert!(!s.flow_table_properties_nic_transmit().ipsec_decrypt());
            assert!(
                s.flow_table_properties_nic_transmit()
                    .termination_table_raw_traffic()
            );
            assert!(!s.flow_table_properties_nic_transmit().macsec_decrypt());
            assert!(!s.flow_table_properties_nic_transmit_rdma().ft_support());
            assert!(!s.flow_table_properties_nic_transmit_rdma().sw_owner_v2());
            assert_eq!(
                s.flow_table_properties_nic_transmit_rdma()
                    .max_modify_header_actions(),
                0xc3
            );
            assert_eq!(
                s.flow_table_properties_nic_transmit_rdma()
                    .log_max_flow_counter(),
                0x34
            );
            assert!(s.flow_table_properties_nic_transmit_sniffer().push_vlan_2());
            assert!(s.flow_table_properties_nic_transmit_sniffer().sw_owner());
            assert!(
                !s.flow_table_properties_nic_transmit_sniffer()
                    .reformat_insert()
            );
            assert_eq!(
                s.flow_table_properties_nic_transmit_sniffer()
                    .log_max_flow_counter(),
                0xbb
            );
            assert_eq!(
                s.ft_field_support_2_nic_receive_rdma(),
                &[
                    0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x29, 0x2a, 0x2b, 0x2c, 0x2d, 0x2e, 0x2f,
                    0x30, 0x31, 0x32
                ]
            );
            assert_eq!(
                s.ft_field_support_2_nic_transmit_rdma(),
                &[
                    0x6e, 0x73, 0x78, 0x7d, 0x82, 0x87, 0x8c, 0x91, 0x96, 0x9b, 0xa0, 0xa5, 0xaa,
                    0xaf, 0xb4, 0xb9
                ]
            );
            assert_eq!(
                s.sw_steering_nic_rx_action_drop_icm_address(),
                0x4ddd7dd169d92dcc
            );
            assert_eq!(
                s.sw_steering_nic_tx_action_drop_icm_address(),
                0xd04fdc39cb407fea
            );
            assert_eq!(
                s.sw_steering_nic_tx_action_allow_icm_address(),
                0x493fedbee7533e4d
            );
        },
    );
}
