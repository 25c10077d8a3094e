//! The commands, and their answers.

use super::super::*;
use crate::golden::{counting, emits, fresh, parses};

#[test]
fn set_flow_table_root_in() {
    emits::<SetFlowTableRootIn>(
        |s| {
            s.set_opcode(0x92f)
                .set_op_mod(0xce3e)
                .set_other_vport(false)
                .set_vport_number(0x252)
                .set_table_type(0xbf)
                .set_table_of_other_vport(true)
                .set_table_vport_number(0x8607)
                .set_table_id(0x610f02)
                .set_underlay_qpn(0xf9a308)
                .set_table_eswitch_owner_vhca_id_valid(true)
                .set_table_eswitch_owner_vhca_id(0x4fcb);
        },
        &[
            (0x000, "092fa5a5 a5a5ce3e 25a50252"),
            (0x010, "bfa58607 a5610f02 a5f9a308 a5a54fcb"),
        ],
    );
    fresh(&SetFlowTableRootIn::new().0, 0x92f);
}

#[test]
fn create_flow_table_in() {
    emits::<CreateFlowTableIn>(
        |s| {
            s.set_opcode(0x930)
                .set_uid(0xfbd6)
                .set_op_mod(0xa63d)
                .set_other_vport(false)
                .set_vport_number(0x89ec)
                .set_table_type(0xfc);
            s.flow_table_context_mut()
                .set_reformat_en(true)
                .set_sw_owner(true)
                .set_table_miss_action(4)
                .set_table_miss_id(0x460785);
        },
        &[
            (0x000, "0930fbd6 a5a5a63d 25a589ec"),
            (0x010, "fca5a5a5"),
            (0x018, "a4a5a5a5 a5460785"),
        ],
    );
    fresh(&CreateFlowTableIn::new().0, 0x930);
}

#[test]
fn create_flow_table_out_parsed() {
    parses::<CreateFlowTableOut>(&[(0x000, "083ca0f7 b576e404 0728ebf4 34d23765")], |s| {
        assert_eq!(s.status(), 8);
        assert_eq!(s.icm_address_63_40(), 0x3ca0f7);
        assert_eq!(s.syndrome(), 0xb576e404);
        assert_eq!(s.icm_address_39_32(), 7);
        assert_eq!(s.table_id(), 0x28ebf4);
        assert_eq!(s.icm_address_31_0(), 0x34d23765);
    });
}

#[test]
fn destroy_flow_table_in() {
    emits::<DestroyFlowTableIn>(
        |s| {
            s.set_opcode(0x931)
                .set_op_mod(0x5303)
                .set_other_vport(false)
                .set_vport_number(0xd29b)
                .set_table_type(0xc4)
                .set_table_id(0xb9f158);
        },
        &[
            (0x000, "0931a5a5 a5a55303 25a5d29b"),
            (0x010, "c4a5a5a5 a5b9f158"),
        ],
    );
    fresh(&DestroyFlowTableIn::new().0, 0x931);
}

#[test]
fn query_flow_table_in() {
    emits::<QueryFlowTableIn>(
        |s| {
            s.set_opcode(0x932)
                .set_op_mod(0x73a3)
                .set_table_type(0xc7)
                .set_table_id(0xed11d);
        },
        &[(0x000, "0932a5a5 a5a573a3"), (0x010, "c7a5a5a5 a50ed11d")],
    );
    fresh(&QueryFlowTableIn::new().0, 0x932);
}

#[test]
fn query_flow_table_out_parsed() {
    parses::<QueryFlowTableOut>(
        &[
            (0x000, "08a5a5a5 7d07622b"),
            (0x018, "35a5a557"),
            (0x038, "2f962051 f4048cbc"),
        ],
        |s| {
            assert_eq!(s.status(), 8);
            assert_eq!(s.syndrome(), 0x7d07622b);
            assert!(!s.flow_table_context().reformat_en());
            assert!(s.flow_table_context().termination_table());
            assert_eq!(s.flow_table_context().log_size(), 0x57);
            assert_eq!(
                s.flow_table_context().sw_owner_icm_root_0(),
                0x2f962051f4048cbc
            );
        },
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
    fresh(&CreateFlowGroupIn::new().0, 0x933);
}

#[test]
fn create_flow_group_out_parsed() {
    parses::<CreateFlowGroupOut>(&[(0x000, "08a5a5a5 f30c8423 a53c6ba0")], |s| {
        assert_eq!(s.status(), 8);
        assert_eq!(s.syndrome(), 0xf30c8423);
        assert_eq!(s.group_id(), 0x3c6ba0);
    });
}

#[test]
fn destroy_flow_group_in() {
    emits::<DestroyFlowGroupIn>(
        |s| {
            s.set_opcode(0x934)
                .set_op_mod(0xed53)
                .set_other_vport(true)
                .set_vport_number(0x6600)
                .set_table_type(0xdc)
                .set_table_id(0xea5aeb)
                .set_group_id(0x16703d04);
        },
        &[
            (0x000, "0934a5a5 a5a5ed53 a5a56600"),
            (0x010, "dca5a5a5 a5ea5aeb 16703d04"),
        ],
    );
    fresh(&DestroyFlowGroupIn::new().0, 0x934);
}

#[test]
fn query_flow_group_in() {
    emits::<QueryFlowGroupIn>(
        |s| {
            s.set_opcode(0x935)
                .set_op_mod(0x30a1)
                .set_table_type(0x4f)
                .set_table_id(0x836bd4)
                .set_group_id(0x2b8b8dfd);
        },
        &[
            (0x000, "0935a5a5 a5a530a1"),
            (0x010, "4fa5a5a5 a5836bd4 2b8b8dfd"),
        ],
    );
    fresh(&QueryFlowGroupIn::new().0, 0x935);
}

#[test]
fn query_flow_group_out_parsed() {
    parses::<QueryFlowGroupOut>(
        &[
            (0x000, "08a5a5a5 09099a2f"),
            (0x01c, "0856caad"),
            (0x024, "508e28bb"),
            (0x03c, "a5a5a5d3"),
            (0x0c8, "3be34995"),
            (0x0d0, "a5a5a5a5"),
            (0x0d8, "a5a51526"),
            (
                0x100,
                "d4d9dee3 e8edf2f7 fc01060b 10151a1f 24292e33 383d4247 4c51565b 60656a6f 74797e83 888d9297 9ca1a6ab b0b5babf c4c9ced3 d8dde2e7 ecf1f6fb 00050a0f ff020508 0b0e1114 171a1d20 2326292c 2f323538 3b3e4144 474a4d50 5356595c 5f626568 6b6e7174 777a7d80 8386898c 8f929598 9b9ea1a4 a7aaadb0 b3b6b9bc",
            ),
            (
                0x1c0,
                "dedfe0e1 e2e3e4e5 e6e7e8e9 eaebeced eeeff0f1 f2f3f4f5 f6f7f8f9 fafbfcfd feff0001 02030405 06070809 0a0b0c0d 0e0f1011 12131415 16171819 1a1b1c1d",
            ),
        ],
        |s| {
            assert_eq!(s.status(), 8);
            assert_eq!(s.syndrome(), 0x9099a2f);
            assert_eq!(s.start_flow_index(), 0x856caad);
            assert_eq!(s.end_flow_index(), 0x508e28bb);
            assert_eq!(s.match_criteria_enable(), 0xd3);
            assert_eq!(s.match_criteria().inner_headers().dmac_47_16(), 0x3be34995);
            assert!(!s.match_criteria().inner_headers().svlan_tag());
            assert_eq!(s.match_criteria().inner_headers().ipv4_ihl(), 1);
            assert_eq!(s.match_criteria().inner_headers().ttl_hoplimit(), 0x26);
            assert_eq!(s.match_criteria().misc_parameters_2(), &counting(0xd4, 5));
            assert_eq!(s.match_criteria().misc_parameters_3(), &counting(0xff, 3));
            assert_eq!(s.match_criteria().misc_parameters_5(), &counting(0xde, 1));
        },
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
    fresh(&SetFteIn::new().0, 0x936);
}

#[test]
fn query_fte_in() {
    emits::<QueryFteIn>(
        |s| {
            s.set_opcode(0x937)
                .set_op_mod(0x1901)
                .set_table_type(0x66)
                .set_table_id(0xec9f11)
                .set_flow_index(0x774c917c);
        },
        &[
            (0x000, "0937a5a5 a5a51901"),
            (0x010, "66a5a5a5 a5ec9f11"),
            (0x020, "774c917c"),
        ],
    );
    fresh(&QueryFteIn::new().0, 0x937);
}

#[test]
fn query_fte_out_parsed() {
    parses::<QueryFteOut>(
        &[(0x000, "08a5a5a5 84d82c1b"), (0x050, "a440f543 a54ead10")],
        |s| {
            assert_eq!(s.status(), 8);
            assert_eq!(s.syndrome(), 0x84d82c1b);
            assert_eq!(s.flow_context().flow_source(), 2);
            assert_eq!(s.flow_context().encrypt_decrypt_type(), 4);
            assert_eq!(s.flow_context().destination_list_size(), 0x40f543);
            assert_eq!(s.flow_context().flow_counter_list_size(), 0x4ead10);
        },
    );
}

#[test]
fn delete_fte_in() {
    emits::<DeleteFteIn>(
        |s| {
            s.set_opcode(0x938)
                .set_op_mod(0xddec)
                .set_other_vport(true)
                .set_vport_number(0xfe1e)
                .set_table_type(0x5e)
                .set_table_id(0xf1998f)
                .set_flow_index(0x563bc669);
        },
        &[
            (0x000, "0938a5a5 a5a5ddec a5a5fe1e"),
            (0x010, "5ea5a5a5 a5f1998f"),
            (0x020, "563bc669"),
        ],
    );
    fresh(&DeleteFteIn::new().0, 0x938);
}

#[test]
fn alloc_flow_counter_in() {
    emits::<AllocFlowCounterIn>(
        |s| {
            s.set_opcode(0x939)
                .set_op_mod(0x8b32)
                .set_flow_counter_bulk_log_size(0x1a)
                .set_flow_counter_bulk(0xb8);
        },
        &[(0x000, "0939a5a5 a5a58b32"), (0x00c, "a5a5bab8")],
    );
    fresh(&AllocFlowCounterIn::new().0, 0x939);
}

#[test]
fn alloc_flow_counter_out_parsed() {
    parses::<AllocFlowCounterOut>(&[(0x000, "08a5a5a5 62bbd901 a1a9cf90")], |s| {
        assert_eq!(s.status(), 8);
        assert_eq!(s.syndrome(), 0x62bbd901);
        assert_eq!(s.flow_counter_id(), 0xa1a9cf90);
    });
}

#[test]
fn dealloc_flow_counter_in() {
    emits::<DeallocFlowCounterIn>(
        |s| {
            s.set_opcode(0x93a)
                .set_op_mod(0x5091)
                .set_flow_counter_id(0x4420bbfb);
        },
        &[(0x000, "093aa5a5 a5a55091 4420bbfb")],
    );
    fresh(&DeallocFlowCounterIn::new().0, 0x93a);
}

#[test]
fn query_flow_counter_in() {
    emits::<QueryFlowCounterIn>(
        |s| {
            s.set_opcode(0x93b)
                .set_op_mod(0xf9c3)
                .set_clear(false)
                .set_num_of_counters(0x9956)
                .set_flow_counter_id(0x8d97f9eb);
        },
        &[(0x000, "093ba5a5 a5a5f9c3"), (0x018, "25a59956 8d97f9eb")],
    );
    fresh(&QueryFlowCounterIn::new().0, 0x93b);
}

#[test]
fn query_flow_counter_out_parsed() {
    parses::<QueryFlowCounterOut>(&[(0x000, "08a5a5a5 7028ec54")], |s| {
        assert_eq!(s.status(), 8);
        assert_eq!(s.syndrome(), 0x7028ec54);
    });
}

#[test]
fn modify_flow_table_in() {
    emits::<ModifyFlowTableIn>(
        |s| {
            s.set_opcode(0x93c)
                .set_op_mod(0x591)
                .set_other_vport(true)
                .set_vport_number(0x7f33)
                .set_modify_field_select(0xf903)
                .set_table_type(0x3d)
                .set_table_id(0x115bf9);
            s.flow_table_context_mut()
                .set_decap_en(true)
                .set_sw_owner(true)
                .set_level(0x21)
                .set_log_size(0x45);
        },
        &[(
            0x000,
            "093ca5a5 a5a50591 a5a57f33 a5a5f903 3da5a5a5 a5115bf9 e521a545",
        )],
    );
    fresh(&ModifyFlowTableIn::new().0, 0x93c);
}
