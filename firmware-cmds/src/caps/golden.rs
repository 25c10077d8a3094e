//! Bytes computed from the offsets in the vendor's header, for some of the structures.

use super::*;
use crate::golden::emits;

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
