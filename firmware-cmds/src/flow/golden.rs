//! Bytes computed from the offsets in the vendor's header, for some of the structures.

use super::*;
use crate::golden::{counting, emits};

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
fn create_flow_group_in() {
    emits::<CreateFlowGroupIn>(
        |s| {
            s.set_opcode(0x933)
                .set_op_mod(0x2728)
                .set_other_vport(true)
                .set_vport_number(0x6d7e)
                .set_table_type(0xed)
                .set_group_type(4)
                .set_table_id(0x594c86)
                .set_source_eswitch_owner_vhca_id_valid(false)
                .set_start_flow_index(0x7d96f7fc)
                .set_end_flow_index(0xc8eff1ee)
                .set_match_definer_id(0x8bb0)
                .set_match_criteria_enable(0x3e);
            s.match_criteria_mut()
                .outer_headers_mut()
                .set_ethertype(0xd8e2)
                .set_first_vid(0x2b8)
                .set_ttl_hoplimit(0xe1);
            *s.match_criteria_mut()
                .outer_headers_mut()
                .dst_ipv4_dst_ipv6_mut() = [
                0x67, 0x6e, 0x75, 0x7c, 0x83, 0x8a, 0x91, 0x98, 0x9f, 0xa6, 0xad, 0xb4, 0xbb, 0xc2,
                0xc9, 0xd0,
            ];
            s.match_criteria_mut()
                .misc_parameters_mut()
                .set_outer_second_cfi(true)
                .set_inner_second_prio(0)
                .set_gre_key(0xce0c112a)
                .set_outer_ipv6_flow_label(0xcbf89);
            *s.match_criteria_mut().misc_parameters_2_mut() = counting(0xd5, 7);
            *s.match_criteria_mut().misc_parameters_3_mut() = counting(0xc1, 7);
        },
        &[
            (0x000, "0933a5a5 a5a52728 a5a56d7e"),
            (0x010, "eda4a5a5 a5594c86 25a5a5a5 7d96f7fc"),
            (0x024, "c8eff1ee a5a58bb0"),
            (0x03c, "a5a5a53e"),
            (0x044, "a5a5d8e2"),
            (0x04c, "a5a5a2b8"),
            (0x058, "a5a5a5e1"),
            (0x070, "676e757c 838a9198 9fa6adb4 bbc2c9d0"),
            (0x088, "b5a505a5"),
            (0x090, "ce0c112a"),
            (0x09c, "a5acbf89"),
            (
                0x100,
                "d5dce3ea f1f8ff06 0d141b22 2930373e 454c535a 61686f76 7d848b92 99a0a7ae b5bcc3ca d1d8dfe6 edf4fb02 0910171e 252c333a 41484f56 5d646b72 7980878e c1c8cfd6 dde4ebf2 f900070e 151c232a 31383f46 4d545b62 6970777e 858c939a a1a8afb6 bdc4cbd2 d9e0e7ee f5fc030a 11181f26 2d343b42 4950575e 656c737a",
            ),
        ],
    );
}

#[test]
fn set_fte_in() {
    emits::<SetFteIn>(
        |s| {
            s.set_opcode(0x936)
                .set_op_mod(0x707d)
                .set_other_vport(true)
                .set_vport_number(0x8b1a)
                .set_table_type(0x35)
                .set_table_id(0xcc9a25)
                .set_ignore_flow_level(false)
                .set_modify_enable_mask(0x6b)
                .set_flow_index(0xd719b554);
            s.flow_context_mut()
                .set_flow_tag(0x60c31a)
                .set_packet_reformat_id(0xcec9b890);
            s.flow_context_mut()
                .match_value_mut()
                .outer_headers_mut()
                .set_smac_47_16(0x96a0f52d)
                .set_dmac_15_0(0xc891)
                .set_first_cfi(true)
                .set_first_vid(0xe1e);
            *s.flow_context_mut()
                .match_value_mut()
                .misc_parameters_2_mut() = counting(0x9d, 7);
            *s.flow_context_mut()
                .match_value_mut()
                .misc_parameters_3_mut() = counting(0xd2, 1);
            *s.flow_context_mut()
                .match_value_mut()
                .misc_parameters_4_mut() = counting(0x32, 5);
            *s.flow_context_mut().execute_aso_mut() = counting(0x0f, 1);
        },
        &[
            (0x000, "0936a5a5 a5a5707d a5a58b1a"),
            (0x010, "35a5a5a5 a5cc9a25 25a5a56b"),
            (0x020, "d719b554"),
            (0x048, "a560c31a"),
            (0x058, "cec9b890"),
            (0x080, "96a0f52d"),
            (0x08c, "c891be1e"),
            (
                0x140,
                "9da4abb2 b9c0c7ce d5dce3ea f1f8ff06 0d141b22 2930373e 454c535a 61686f76 7d848b92 99a0a7ae b5bcc3ca d1d8dfe6 edf4fb02 0910171e 252c333a 41484f56 d2d3d4d5 d6d7d8d9 dadbdcdd dedfe0e1 e2e3e4e5 e6e7e8e9 eaebeced eeeff0f1 f2f3f4f5 f6f7f8f9 fafbfcfd feff0001 02030405 06070809 0a0b0c0d 0e0f1011 32373c41 464b5055 5a5f6469 6e73787d 82878c91 969ba0a5 aaafb4b9 bec3c8cd d2d7dce1 e6ebf0f5 faff0409 0e13181d 22272c31 363b4045 4a4f5459 5e63686d",
            ),
            (
                0x280,
                "0f101112 13141516 1718191a 1b1c1d1e 1f202122 23242526 2728292a 2b2c2d2e",
            ),
        ],
    );
}
