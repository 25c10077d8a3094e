//! Golden bytes: emitted into, and parsed from, buffers full of 0xa5, so that a write beside its field shows. The
//! expected bytes are computed from the header's own offsets, not from this crate's.

mod commands;

use super::*;
use crate::golden::{counting, emits, parses};

#[test]
fn flow_table_context() {
    emits::<FlowTableContext>(
        |s| {
            s.set_reformat_en(false)
                .set_decap_en(true)
                .set_sw_owner(false)
                .set_termination_table(true)
                .set_table_miss_action(3)
                .set_level(0)
                .set_log_size(0x86)
                .set_table_miss_id(0xefc8d9)
                .set_lag_master_next_table_id(0xad870e)
                .set_sw_owner_icm_root_1(0x6db47b9fb6b5b7ee)
                .set_sw_owner_icm_root_0(0xa76b51f8220a8b86);
        },
        &[
            (0x000, "5300a586 a5efc8d9 a5ad870e"),
            (0x018, "6db47b9f b6b5b7ee a76b51f8 220a8b86"),
        ],
    );
}

#[test]
fn flow_table_context_parsed() {
    parses::<FlowTableContext>(
        &[
            (0x000, "5300a586 a5efc8d9 a5ad870e"),
            (0x018, "6db47b9f b6b5b7ee a76b51f8 220a8b86"),
        ],
        |s| {
            assert!(!s.reformat_en());
            assert!(s.decap_en());
            assert!(!s.sw_owner());
            assert!(s.termination_table());
            assert_eq!(s.table_miss_action(), 3);
            assert_eq!(s.level(), 0);
            assert_eq!(s.log_size(), 0x86);
            assert_eq!(s.table_miss_id(), 0xefc8d9);
            assert_eq!(s.lag_master_next_table_id(), 0xad870e);
            assert_eq!(s.sw_owner_icm_root_1(), 0x6db47b9fb6b5b7ee);
            assert_eq!(s.sw_owner_icm_root_0(), 0xa76b51f8220a8b86);
        },
    );
}

#[test]
fn fte_match_set_lyr_2_4() {
    emits::<FteMatchSetLyr24>(
        |s| {
            s.set_smac_47_16(0xfef442c4)
                .set_smac_15_0(0xce3a)
                .set_ethertype(0xeb3c)
                .set_dmac_47_16(0xbde56f3f)
                .set_dmac_15_0(0x1f9d)
                .set_first_prio(6)
                .set_first_cfi(false)
                .set_first_vid(0x980)
                .set_ip_protocol(0x74)
                .set_ip_dscp(0x1e)
                .set_ip_ecn(1)
                .set_cvlan_tag(false)
                .set_svlan_tag(true)
                .set_frag(false)
                .set_ip_version(8)
                .set_tcp_flags(0x12c)
                .set_tcp_sport(0x5a06)
                .set_tcp_dport(0x7f4a)
                .set_ipv4_ihl(2)
                .set_ttl_hoplimit(0x2a)
                .set_udp_sport(0xa145)
                .set_udp_dport(0xf2dc);
            *s.src_ipv4_src_ipv6_mut() = [
                0xc3, 0xc4, 0xc5, 0xc6, 0xc7, 0xc8, 0xc9, 0xca, 0xcb, 0xcc, 0xcd, 0xce, 0xcf, 0xd0,
                0xd1, 0xd2,
            ];
            *s.dst_ipv4_dst_ipv6_mut() = [
                0x03, 0x0a, 0x11, 0x18, 0x1f, 0x26, 0x2d, 0x34, 0x3b, 0x42, 0x49, 0x50, 0x57, 0x5e,
                0x65, 0x6c,
            ];
        },
        &[(
            0x000,
            "fef442c4 ce3aeb3c bde56f3f 1f9dc980 7479512c 5a067f4a a5a5252a a145f2dc c3c4c5c6 c7c8c9ca cbcccdce cfd0d1d2 030a1118 1f262d34 3b424950 575e656c",
        )],
    );
}

#[test]
fn fte_match_set_lyr_2_4_parsed() {
    parses::<FteMatchSetLyr24>(
        &[(
            0x000,
            "fef442c4 ce3aeb3c bde56f3f 1f9dc980 7479512c 5a067f4a a5a5252a a145f2dc c3c4c5c6 c7c8c9ca cbcccdce cfd0d1d2 030a1118 1f262d34 3b424950 575e656c",
        )],
        |s| {
            assert_eq!(s.smac_47_16(), 0xfef442c4);
            assert_eq!(s.smac_15_0(), 0xce3a);
            assert_eq!(s.ethertype(), 0xeb3c);
            assert_eq!(s.dmac_47_16(), 0xbde56f3f);
            assert_eq!(s.dmac_15_0(), 0x1f9d);
            assert_eq!(s.first_prio(), 6);
            assert!(!s.first_cfi());
            assert_eq!(s.first_vid(), 0x980);
            assert_eq!(s.ip_protocol(), 0x74);
            assert_eq!(s.ip_dscp(), 0x1e);
            assert_eq!(s.ip_ecn(), 1);
            assert!(!s.cvlan_tag());
            assert!(s.svlan_tag());
            assert!(!s.frag());
            assert_eq!(s.ip_version(), 8);
            assert_eq!(s.tcp_flags(), 0x12c);
            assert_eq!(s.tcp_sport(), 0x5a06);
            assert_eq!(s.tcp_dport(), 0x7f4a);
            assert_eq!(s.ipv4_ihl(), 2);
            assert_eq!(s.ttl_hoplimit(), 0x2a);
            assert_eq!(s.udp_sport(), 0xa145);
            assert_eq!(s.udp_dport(), 0xf2dc);
            assert_eq!(
                s.src_ipv4_src_ipv6(),
                &[
                    0xc3, 0xc4, 0xc5, 0xc6, 0xc7, 0xc8, 0xc9, 0xca, 0xcb, 0xcc, 0xcd, 0xce, 0xcf,
                    0xd0, 0xd1, 0xd2
                ]
            );
            assert_eq!(
                s.dst_ipv4_dst_ipv6(),
                &[
                    0x03, 0x0a, 0x11, 0x18, 0x1f, 0x26, 0x2d, 0x34, 0x3b, 0x42, 0x49, 0x50, 0x57,
                    0x5e, 0x65, 0x6c
                ]
            );
        },
    );
}

#[test]
fn fte_match_set_misc() {
    emits::<FteMatchSetMisc>(
        |s| {
            s.set_gre_c_present(false)
                .set_gre_k_present(true)
                .set_gre_s_present(false)
                .set_source_vhca_port(4)
                .set_source_sqn(0x189dac)
                .set_source_eswitch_owner_vhca_id(0x6ea0)
                .set_source_port(0x874d)
                .set_outer_second_prio(1)
                .set_outer_second_cfi(false)
                .set_outer_second_vid(0xd64)
                .set_inner_second_prio(6)
                .set_inner_second_cfi(false)
                .set_inner_second_vid(0x5bd)
                .set_outer_second_cvlan_tag(false)
                .set_inner_second_cvlan_tag(true)
                .set_outer_second_svlan_tag(false)
                .set_inner_second_svlan_tag(false)
                .set_gre_protocol(0x4164)
                .set_gre_key(0x8ee2d03b)
                .set_vxlan_vni(0xd4a647)
                .set_bth_opcode(0xe)
                .set_geneve_vni(0x4c0675)
                .set_geneve_tlv_option_0_exist(true)
                .set_geneve_oam(true)
                .set_outer_ipv6_flow_label(0x7fd7a)
                .set_inner_ipv6_flow_label(0xfb6ac)
                .set_geneve_opt_len(0x1d)
                .set_geneve_protocol_type(0x928c)
                .set_bth_dst_qp(0x82d659)
                .set_outer_esp_spi(0x8b36fa08);
        },
        &[
            (
                0x000,
                "24189dac 6ea0874d 2d64c5bd 45a54164 8ee2d03b d4a6470e 4c0675a7 a5a7fd7a a5afb6ac a59d928c a582d659",
            ),
            (0x030, "8b36fa08"),
        ],
    );
}

#[test]
fn fte_match_set_misc_parsed() {
    parses::<FteMatchSetMisc>(
        &[
            (
                0x000,
                "24189dac 6ea0874d 2d64c5bd 45a54164 8ee2d03b d4a6470e 4c0675a7 a5a7fd7a a5afb6ac a59d928c a582d659",
            ),
            (0x030, "8b36fa08"),
        ],
        |s| {
            assert!(!s.gre_c_present());
            assert!(s.gre_k_present());
            assert!(!s.gre_s_present());
            assert_eq!(s.source_vhca_port(), 4);
            assert_eq!(s.source_sqn(), 0x189dac);
            assert_eq!(s.source_eswitch_owner_vhca_id(), 0x6ea0);
            assert_eq!(s.source_port(), 0x874d);
            assert_eq!(s.outer_second_prio(), 1);
            assert!(!s.outer_second_cfi());
            assert_eq!(s.outer_second_vid(), 0xd64);
            assert_eq!(s.inner_second_prio(), 6);
            assert!(!s.inner_second_cfi());
            assert_eq!(s.inner_second_vid(), 0x5bd);
            assert!(!s.outer_second_cvlan_tag());
            assert!(s.inner_second_cvlan_tag());
            assert!(!s.outer_second_svlan_tag());
            assert!(!s.inner_second_svlan_tag());
            assert_eq!(s.gre_protocol(), 0x4164);
            assert_eq!(s.gre_key(), 0x8ee2d03b);
            assert_eq!(s.vxlan_vni(), 0xd4a647);
            assert_eq!(s.bth_opcode(), 0xe);
            assert_eq!(s.geneve_vni(), 0x4c0675);
            assert!(s.geneve_tlv_option_0_exist());
            assert!(s.geneve_oam());
            assert_eq!(s.outer_ipv6_flow_label(), 0x7fd7a);
            assert_eq!(s.inner_ipv6_flow_label(), 0xfb6ac);
            assert_eq!(s.geneve_opt_len(), 0x1d);
            assert_eq!(s.geneve_protocol_type(), 0x928c);
            assert_eq!(s.bth_dst_qp(), 0x82d659);
            assert_eq!(s.outer_esp_spi(), 0x8b36fa08);
        },
    );
}

#[test]
fn fte_match_param() {
    emits::<FteMatchParam>(
        |s| {
            s.outer_headers_mut()
                .set_ip_ecn(3)
                .set_tcp_flags(0x1a3)
                .set_ttl_hoplimit(0xed)
                .set_udp_dport(0xe10e);
            s.misc_parameters_mut()
                .set_source_sqn(0xdc7ec0)
                .set_gre_protocol(0xd6a9)
                .set_geneve_protocol_type(0x2c05)
                .set_outer_esp_spi(0x5d0aee7e);
            s.inner_headers_mut()
                .set_ethertype(0xdcdc)
                .set_ip_dscp(0x21)
                .set_cvlan_tag(false)
                .set_ip_version(0xf);
            *s.misc_parameters_2_mut() = counting(0x7c, 5);
            *s.misc_parameters_3_mut() = counting(0xd7, 5);
            *s.misc_parameters_4_mut() = counting(0x97, 11);
            *s.misc_parameters_5_mut() = counting(0x5e, 5);
        },
        &[
            (0x010, "a5a7a5a3"),
            (0x018, "a5a5a5ed a5a5e10e"),
            (0x040, "a5dc7ec0"),
            (0x04c, "a5a5d6a9"),
            (0x064, "a5a52c05"),
            (0x070, "5d0aee7e"),
            (0x084, "a5a5dcdc"),
            (0x090, "a5853fa5"),
            (
                0x0c0,
                "7c81868b 90959a9f a4a9aeb3 b8bdc2c7 ccd1d6db e0e5eaef f4f9fe03 080d1217 1c21262b 30353a3f 44494e53 585d6267 6c71767b 80858a8f 94999ea3 a8adb2b7 d7dce1e6 ebf0f5fa ff04090e 13181d22 272c3136 3b40454a 4f54595e 63686d72 777c8186 8b90959a 9fa4a9ae b3b8bdc2 c7ccd1d6 dbe0e5ea eff4f9fe 03080d12 97a2adb8 c3ced9e4 effa0510 1b26313c 47525d68 737e8994 9faab5c0 cbd6e1ec f7020d18 232e3944 4f5a6570 7b86919c a7b2bdc8 d3dee9f4 ff0a1520 2b36414c 5e63686d 72777c81 868b9095 9a9fa4a9 aeb3b8bd c2c7ccd1 d6dbe0e5 eaeff4f9 fe03080d 12171c21 262b3035 3a3f4449 4e53585d 62676c71 767b8085 8a8f9499",
            ),
        ],
    );
}

#[test]
fn fte_match_param_parsed() {
    parses::<FteMatchParam>(
        &[
            (0x010, "a5a7a5a3"),
            (0x018, "a5a5a5ed a5a5e10e"),
            (0x040, "a5dc7ec0"),
            (0x04c, "a5a5d6a9"),
            (0x064, "a5a52c05"),
            (0x070, "5d0aee7e"),
            (0x084, "a5a5dcdc"),
            (0x090, "a5853fa5"),
            (
                0x0c0,
                "7c81868b 90959a9f a4a9aeb3 b8bdc2c7 ccd1d6db e0e5eaef f4f9fe03 080d1217 1c21262b 30353a3f 44494e53 585d6267 6c71767b 80858a8f 94999ea3 a8adb2b7 d7dce1e6 ebf0f5fa ff04090e 13181d22 272c3136 3b40454a 4f54595e 63686d72 777c8186 8b90959a 9fa4a9ae b3b8bdc2 c7ccd1d6 dbe0e5ea eff4f9fe 03080d12 97a2adb8 c3ced9e4 effa0510 1b26313c 47525d68 737e8994 9faab5c0 cbd6e1ec f7020d18 232e3944 4f5a6570 7b86919c a7b2bdc8 d3dee9f4 ff0a1520 2b36414c 5e63686d 72777c81 868b9095 9a9fa4a9 aeb3b8bd c2c7ccd1 d6dbe0e5 eaeff4f9 fe03080d 12171c21 262b3035 3a3f4449 4e53585d 62676c71 767b8085 8a8f9499",
            ),
        ],
        |s| {
            assert_eq!(s.outer_headers().ip_ecn(), 3);
            assert_eq!(s.outer_headers().tcp_flags(), 0x1a3);
            assert_eq!(s.outer_headers().ttl_hoplimit(), 0xed);
            assert_eq!(s.outer_headers().udp_dport(), 0xe10e);
            assert_eq!(s.misc_parameters().source_sqn(), 0xdc7ec0);
            assert_eq!(s.misc_parameters().gre_protocol(), 0xd6a9);
            assert_eq!(s.misc_parameters().geneve_protocol_type(), 0x2c05);
            assert_eq!(s.misc_parameters().outer_esp_spi(), 0x5d0aee7e);
            assert_eq!(s.inner_headers().ethertype(), 0xdcdc);
            assert_eq!(s.inner_headers().ip_dscp(), 0x21);
            assert!(!s.inner_headers().cvlan_tag());
            assert_eq!(s.inner_headers().ip_version(), 0xf);
            assert_eq!(s.misc_parameters_2(), &counting(0x7c, 5));
            assert_eq!(s.misc_parameters_3(), &counting(0xd7, 5));
            assert_eq!(s.misc_parameters_4(), &counting(0x97, 11));
            assert_eq!(s.misc_parameters_5(), &counting(0x5e, 5));
        },
    );
}

#[test]
fn dest_format_struct() {
    emits::<DestFormat>(
        |s| {
            s.set_destination_type(0xd2)
                .set_destination_id(0x5d353f)
                .set_destination_eswitch_owner_vhca_id_valid(false)
                .set_packet_reformat(true)
                .set_destination_eswitch_owner_vhca_id(0xe340);
        },
        &[(0x000, "d25d353f 65a5e340")],
    );
}

#[test]
fn dest_format_struct_parsed() {
    parses::<DestFormat>(&[(0x000, "d25d353f 65a5e340")], |s| {
        assert_eq!(s.destination_type(), 0xd2);
        assert_eq!(s.destination_id(), 0x5d353f);
        assert!(!s.destination_eswitch_owner_vhca_id_valid());
        assert!(s.packet_reformat());
        assert_eq!(s.destination_eswitch_owner_vhca_id(), 0xe340);
    });
}

#[test]
fn flow_counter_list() {
    emits::<FlowCounterList>(
        |s| {
            s.set_flow_counter_id(0x85e509ed);
        },
        &[(0x000, "85e509ed")],
    );
}

#[test]
fn flow_counter_list_parsed() {
    parses::<FlowCounterList>(&[(0x000, "85e509ed")], |s| {
        assert_eq!(s.flow_counter_id(), 0x85e509ed);
    });
}

#[test]
fn flow_context() {
    emits::<FlowContext>(
        |s| {
            s.set_push_vlan(0xf9dd47a5)
                .set_group_id(0xe7af059f)
                .set_flow_tag(0x30a1c4)
                .set_action(0xb991)
                .set_extended_destination(true)
                .set_flow_source(0)
                .set_encrypt_decrypt_type(2)
                .set_destination_list_size(0xfcbde8)
                .set_flow_counter_list_size(0x59a7b8)
                .set_packet_reformat_id(0xf2862196)
                .set_modify_header_id(0xb2fe7bdb)
                .set_push_vlan_2(0x892c1f88)
                .set_encrypt_decrypt_obj_id(0xed8ea5e6);
            s.match_value_mut()
                .inner_headers_mut()
                .set_dmac_47_16(0xe85c1a93)
                .set_ip_ecn(0)
                .set_tcp_flags(0xf4)
                .set_ttl_hoplimit(0x97);
            *s.match_value_mut().misc_parameters_2_mut() = counting(0x6c, 3);
            *s.match_value_mut().misc_parameters_3_mut() = counting(0x31, 11);
            *s.match_value_mut().misc_parameters_4_mut() = counting(0xec, 3);
            *s.execute_aso_mut() = counting(0x52, 1);
        },
        &[
            (
                0x000,
                "f9dd47a5 e7af059f a530a1c4 a5a5b991 82fcbde8 a559a7b8 f2862196 b2fe7bdb 892c1f88 ed8ea5e6",
            ),
            (0x0c8, "e85c1a93"),
            (0x0d0, "a5a4a4f4"),
            (0x0d8, "a5a5a597"),
            (
                0x100,
                "6c6f7275 787b7e81 84878a8d 90939699 9c9fa2a5 a8abaeb1 b4b7babd c0c3c6c9 cccfd2d5 d8dbdee1 e4e7eaed f0f3f6f9 fcff0205 080b0e11 14171a1d 20232629 313c4752 5d68737e 89949faa b5c0cbd6 e1ecf702 0d18232e 39444f5a 65707b86 919ca7b2 bdc8d3de e9f4ff0a 15202b36 414c5762 6d78838e 99a4afba c5d0dbe6 eceff2f5 f8fbfe01 04070a0d 10131619 1c1f2225 282b2e31 34373a3d 40434649 4c4f5255 585b5e61 64676a6d 70737679 7c7f8285 888b8e91 94979a9d a0a3a6a9",
            ),
            (
                0x240,
                "52535455 56575859 5a5b5c5d 5e5f6061 62636465 66676869 6a6b6c6d 6e6f7071",
            ),
        ],
    );
}

#[test]
fn flow_context_parsed() {
    parses::<FlowContext>(
        &[
            (
                0x000,
                "f9dd47a5 e7af059f a530a1c4 a5a5b991 82fcbde8 a559a7b8 f2862196 b2fe7bdb 892c1f88 ed8ea5e6",
            ),
            (0x0c8, "e85c1a93"),
            (0x0d0, "a5a4a4f4"),
            (0x0d8, "a5a5a597"),
            (
                0x100,
                "6c6f7275 787b7e81 84878a8d 90939699 9c9fa2a5 a8abaeb1 b4b7babd c0c3c6c9 cccfd2d5 d8dbdee1 e4e7eaed f0f3f6f9 fcff0205 080b0e11 14171a1d 20232629 313c4752 5d68737e 89949faa b5c0cbd6 e1ecf702 0d18232e 39444f5a 65707b86 919ca7b2 bdc8d3de e9f4ff0a 15202b36 414c5762 6d78838e 99a4afba c5d0dbe6 eceff2f5 f8fbfe01 04070a0d 10131619 1c1f2225 282b2e31 34373a3d 40434649 4c4f5255 585b5e61 64676a6d 70737679 7c7f8285 888b8e91 94979a9d a0a3a6a9",
            ),
            (
                0x240,
                "52535455 56575859 5a5b5c5d 5e5f6061 62636465 66676869 6a6b6c6d 6e6f7071",
            ),
        ],
        |s| {
            assert_eq!(s.push_vlan(), 0xf9dd47a5);
            assert_eq!(s.group_id(), 0xe7af059f);
            assert_eq!(s.flow_tag(), 0x30a1c4);
            assert_eq!(s.action(), 0xb991);
            assert!(s.extended_destination());
            assert_eq!(s.flow_source(), 0);
            assert_eq!(s.encrypt_decrypt_type(), 2);
            assert_eq!(s.destination_list_size(), 0xfcbde8);
            assert_eq!(s.flow_counter_list_size(), 0x59a7b8);
            assert_eq!(s.packet_reformat_id(), 0xf2862196);
            assert_eq!(s.modify_header_id(), 0xb2fe7bdb);
            assert_eq!(s.push_vlan_2(), 0x892c1f88);
            assert_eq!(s.encrypt_decrypt_obj_id(), 0xed8ea5e6);
            assert_eq!(s.match_value().inner_headers().dmac_47_16(), 0xe85c1a93);
            assert_eq!(s.match_value().inner_headers().ip_ecn(), 0);
            assert_eq!(s.match_value().inner_headers().tcp_flags(), 0xf4);
            assert_eq!(s.match_value().inner_headers().ttl_hoplimit(), 0x97);
            assert_eq!(s.match_value().misc_parameters_2(), &counting(0x6c, 3));
            assert_eq!(s.match_value().misc_parameters_3(), &counting(0x31, 11));
            assert_eq!(s.match_value().misc_parameters_4(), &counting(0xec, 3));
            assert_eq!(s.execute_aso(), &counting(0x52, 1));
        },
    );
}
