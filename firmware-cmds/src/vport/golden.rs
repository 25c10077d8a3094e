//! Golden bytes: emitted into, and parsed from, buffers full of 0xa5, so that a write beside its field shows. The
//! expected bytes are computed from the header's own offsets, not from this crate's.

use super::*;
use crate::golden::{emits, fresh, parses};

#[test]
fn modify_nic_vport_field_select() {
    emits::<ModifyNicVportFieldSelect>(
        |s| {
            s.set_affiliation(false)
                .set_disable_uc_local_lb(true)
                .set_disable_mc_local_lb(false)
                .set_node_guid(true)
                .set_port_guid(false)
                .set_min_inline(true)
                .set_mtu(false)
                .set_change_event(true)
                .set_promisc(false)
                .set_permanent_address(true)
                .set_addresses_list(false)
                .set_roce_en(true);
        },
        &[(0x000, "a5a58aab")],
    );
}

#[test]
fn modify_nic_vport_field_select_parsed() {
    parses::<ModifyNicVportFieldSelect>(&[(0x000, "a5a58aab")], |s| {
        assert!(!s.affiliation());
        assert!(s.disable_uc_local_lb());
        assert!(!s.disable_mc_local_lb());
        assert!(s.node_guid());
        assert!(!s.port_guid());
        assert!(s.min_inline());
        assert!(!s.mtu());
        assert!(s.change_event());
        assert!(!s.promisc());
        assert!(s.permanent_address());
        assert!(!s.addresses_list());
        assert!(s.roce_en());
    });
}

#[test]
fn nic_vport_context() {
    emits::<NicVportContext>(
        |s| {
            s.set_min_wqe_inline_mode(5)
                .set_disable_mc_local_lb(true)
                .set_disable_uc_local_lb(false)
                .set_roce_en(true)
                .set_arm_change_event(false)
                .set_event_on_mtu(true)
                .set_event_on_promisc_change(false)
                .set_event_on_vlan_change(true)
                .set_event_on_mc_address_change(false)
                .set_event_on_uc_address_change(true)
                .set_vhca_id_type(false)
                .set_affiliation_criteria(2)
                .set_affiliated_vhca_id(0xfacc)
                .set_mtu(0x40e8)
                .set_system_image_guid(0x6008c7d9d20cd)
                .set_port_guid(0x13203bad4e45e82)
                .set_node_guid(0x630e7887cfbb57)
                .set_qkey_violation_counter(0xffbd)
                .set_promisc_uc(false)
                .set_promisc_mc(true)
                .set_promisc_all(false)
                .set_allowed_list_type(1)
                .set_allowed_list_size(0xb0c)
                .set_permanent_address(0xb3f1f207697aad);
        },
        &[
            (0x000, "a5a5a5a5 25a5a5b5 25a2facc"),
            (
                0x024,
                "a5a540e8 0006008c 7d9d20cd 013203ba d4e45e82 00630e78",
            ),
            (0x03c, "87cfbb57"),
            (0x068, "ffbda5a5"),
            (0x0f0, "41a5ab0c 00b3f1f2 07697aad"),
        ],
    );
}

#[test]
fn nic_vport_context_parsed() {
    parses::<NicVportContext>(
        &[
            (0x000, "a5a5a5a5 25a5a5b5 25a2facc"),
            (
                0x024,
                "a5a540e8 0006008c 7d9d20cd 013203ba d4e45e82 00630e78",
            ),
            (0x03c, "87cfbb57"),
            (0x068, "ffbda5a5"),
            (0x0f0, "41a5ab0c 00b3f1f2 07697aad"),
        ],
        |s| {
            assert_eq!(s.min_wqe_inline_mode(), 5);
            assert!(s.disable_mc_local_lb());
            assert!(!s.disable_uc_local_lb());
            assert!(s.roce_en());
            assert!(!s.arm_change_event());
            assert!(s.event_on_mtu());
            assert!(!s.event_on_promisc_change());
            assert!(s.event_on_vlan_change());
            assert!(!s.event_on_mc_address_change());
            assert!(s.event_on_uc_address_change());
            assert!(!s.vhca_id_type());
            assert_eq!(s.affiliation_criteria(), 2);
            assert_eq!(s.affiliated_vhca_id(), 0xfacc);
            assert_eq!(s.mtu(), 0x40e8);
            assert_eq!(s.system_image_guid(), 0x6008c7d9d20cd);
            assert_eq!(s.port_guid(), 0x13203bad4e45e82);
            assert_eq!(s.node_guid(), 0x630e7887cfbb57);
            assert_eq!(s.qkey_violation_counter(), 0xffbd);
            assert!(!s.promisc_uc());
            assert!(s.promisc_mc());
            assert!(!s.promisc_all());
            assert_eq!(s.allowed_list_type(), 1);
            assert_eq!(s.allowed_list_size(), 0xb0c);
            assert_eq!(s.permanent_address(), 0xb3f1f207697aad);
        },
    );
}

#[test]
fn hca_vport_context() {
    emits::<HcaVportContext>(
        |s| {
            s.set_field_select(0x32fea878)
                .set_sm_virt_aware(true)
                .set_has_smi(false)
                .set_has_raw(true)
                .set_grh_required(false)
                .set_port_physical_state(0xb)
                .set_vport_state_policy(0xc)
                .set_port_state(5)
                .set_vport_state(9)
                .set_system_image_guid(0x28aa606c6b23b4)
                .set_port_guid(0x1eabb8047125dfb)
                .set_node_guid(0xbbb6421439b82e)
                .set_cap_mask1(0x10847f99)
                .set_cap_mask1_field_select(0x3aa06cb9)
                .set_cap_mask2(0x65517223)
                .set_cap_mask2_field_select(0x8c863ccb)
                .set_lid(0xbd64)
                .set_init_type_reply(0xc)
                .set_lmc(3)
                .set_subnet_timeout(5)
                .set_sm_lid(0x302f)
                .set_sm_sl(1)
                .set_qkey_violation_counter(0xfcc4)
                .set_pkey_violation_counter(0xeed3);
        },
        &[
            (0x000, "32fea878"),
            (0x020, "a5a5bc59"),
            (
                0x028,
                "0028aa60 6c6b23b4 01eabb80 47125dfb 00bbb642 1439b82e",
            ),
            (0x040, "10847f99 3aa06cb9 65517223 8c863ccb"),
            (0x060, "bd64ac65 302f15a5 fcc4eed3"),
        ],
    );
}

#[test]
fn hca_vport_context_parsed() {
    parses::<HcaVportContext>(
        &[
            (0x000, "32fea878"),
            (0x020, "a5a5bc59"),
            (
                0x028,
                "0028aa60 6c6b23b4 01eabb80 47125dfb 00bbb642 1439b82e",
            ),
            (0x040, "10847f99 3aa06cb9 65517223 8c863ccb"),
            (0x060, "bd64ac65 302f15a5 fcc4eed3"),
        ],
        |s| {
            assert_eq!(s.field_select(), 0x32fea878);
            assert!(s.sm_virt_aware());
            assert!(!s.has_smi());
            assert!(s.has_raw());
            assert!(!s.grh_required());
            assert_eq!(s.port_physical_state(), 0xb);
            assert_eq!(s.vport_state_policy(), 0xc);
            assert_eq!(s.port_state(), 5);
            assert_eq!(s.vport_state(), 9);
            assert_eq!(s.system_image_guid(), 0x28aa606c6b23b4);
            assert_eq!(s.port_guid(), 0x1eabb8047125dfb);
            assert_eq!(s.node_guid(), 0xbbb6421439b82e);
            assert_eq!(s.cap_mask1(), 0x10847f99);
            assert_eq!(s.cap_mask1_field_select(), 0x3aa06cb9);
            assert_eq!(s.cap_mask2(), 0x65517223);
            assert_eq!(s.cap_mask2_field_select(), 0x8c863ccb);
            assert_eq!(s.lid(), 0xbd64);
            assert_eq!(s.init_type_reply(), 0xc);
            assert_eq!(s.lmc(), 3);
            assert_eq!(s.subnet_timeout(), 5);
            assert_eq!(s.sm_lid(), 0x302f);
            assert_eq!(s.sm_sl(), 1);
            assert_eq!(s.qkey_violation_counter(), 0xfcc4);
            assert_eq!(s.pkey_violation_counter(), 0xeed3);
        },
    );
}

#[test]
fn pkey() {
    emits::<Pkey>(
        |s| {
            s.set_pkey(0xad31);
        },
        &[(0x000, "a5a5ad31")],
    );
}

#[test]
fn pkey_parsed() {
    parses::<Pkey>(&[(0x000, "a5a5ad31")], |s| {
        assert_eq!(s.pkey(), 0xad31);
    });
}

#[test]
fn set_l2_table_entry_in() {
    emits::<SetL2TableEntryIn>(
        |s| {
            s.set_opcode(0x829)
                .set_op_mod(0x4d19)
                .set_table_index(0x2c_91f7)
                .set_vlan_valid(true)
                .set_vlan(0x3f7)
                .set_mac_address(0x8001_0211_2233_4455);
        },
        &[
            (0x000, "0829a5a5 a5a54d19"),
            (0x014, "a52c91f7"),
            (0x01c, "a5a5b3f7 80010211 22334455"),
        ],
    );
    fresh(&SetL2TableEntryIn::new().0, 0x829);
}

#[test]
fn delete_l2_table_entry_in() {
    emits::<DeleteL2TableEntryIn>(
        |s| {
            s.set_opcode(0x82b)
                .set_op_mod(0x4d19)
                .set_table_index(0x2c_91f7);
        },
        &[(0x000, "082ba5a5 a5a54d19"), (0x014, "a52c91f7")],
    );
    fresh(&DeleteL2TableEntryIn::new().0, 0x82b);
}

#[test]
fn query_vport_state_in() {
    emits::<QueryVportStateIn>(
        |s| {
            s.set_opcode(0x750)
                .set_op_mod(0xfd0e)
                .set_other_vport(false)
                .set_vport_number(0x8f7a);
        },
        &[(0x000, "0750a5a5 a5a5fd0e 25a58f7a")],
    );
    fresh(&QueryVportStateIn::new().0, 0x750);
}

#[test]
fn query_vport_state_out_parsed() {
    parses::<QueryVportStateOut>(&[(0x000, "08a5a5a5 9da03906"), (0x00c, "a5a5a57e")], |s| {
        assert_eq!(s.status(), 8);
        assert_eq!(s.syndrome(), 0x9da03906);
        assert_eq!(s.admin_state(), 7);
        assert_eq!(s.state(), 0xe);
    });
}

#[test]
fn query_nic_vport_context_in() {
    emits::<QueryNicVportContextIn>(
        |s| {
            s.set_opcode(0x754)
                .set_op_mod(0xdece)
                .set_other_vport(false)
                .set_vport_number(0x36aa)
                .set_allowed_list_type(3);
        },
        &[(0x000, "0754a5a5 a5a5dece 25a536aa a3a5a5a5")],
    );
    fresh(&QueryNicVportContextIn::new().0, 0x754);
}

#[test]
fn query_nic_vport_context_out_parsed() {
    parses::<QueryNicVportContextOut>(
        &[
            (0x000, "08a5a5a5 7cc0b840"),
            (0x010, "a5a5a5a5"),
            (0x018, "a5a5facc"),
        ],
        |s| {
            assert_eq!(s.status(), 8);
            assert_eq!(s.syndrome(), 0x7cc0b840);
            assert_eq!(s.nic_vport_context().min_wqe_inline_mode(), 5);
            assert!(s.nic_vport_context().disable_mc_local_lb());
            assert_eq!(s.nic_vport_context().affiliated_vhca_id(), 0xfacc);
        },
    );
}

#[test]
fn modify_nic_vport_context_in() {
    emits::<ModifyNicVportContextIn>(
        |s| {
            s.set_opcode(0x755)
                .set_op_mod(0x9af7)
                .set_other_vport(false)
                .set_vport_number(0x4f1f);
            s.field_select_mut()
                .set_affiliation(false)
                .set_disable_uc_local_lb(true)
                .set_mtu(false)
                .set_roce_en(true);
            s.nic_vport_context_mut()
                .set_min_wqe_inline_mode(5)
                .set_disable_mc_local_lb(true)
                .set_affiliated_vhca_id(0xfacc);
        },
        &[
            (0x000, "0755a5a5 a5a59af7 25a54f1f a5a58da7"),
            (0x100, "a5a5a5a5"),
            (0x108, "a5a5facc"),
        ],
    );
    fresh(&ModifyNicVportContextIn::new().0, 0x755);
}

#[test]
fn query_hca_vport_context_in() {
    emits::<QueryHcaVportContextIn>(
        |s| {
            s.set_opcode(0x762)
                .set_op_mod(0x1b14)
                .set_other_vport(false)
                .set_port_num(8)
                .set_vport_number(0xf370);
        },
        &[(0x000, "0762a5a5 a5a51b14 25a8f370")],
    );
    fresh(&QueryHcaVportContextIn::new().0, 0x762);
}

#[test]
fn query_hca_vport_context_out_parsed() {
    parses::<QueryHcaVportContextOut>(
        &[
            (0x000, "08a5a5a5 bd6b8106"),
            (0x010, "32fea878"),
            (0x030, "a5a5a5a5"),
            (0x050, "10847f99"),
            (0x078, "a5a5eed3"),
        ],
        |s| {
            assert_eq!(s.status(), 8);
            assert_eq!(s.syndrome(), 0xbd6b8106);
            assert_eq!(s.hca_vport_context().field_select(), 0x32fea878);
            assert!(s.hca_vport_context().sm_virt_aware());
            assert_eq!(s.hca_vport_context().cap_mask1(), 0x10847f99);
            assert_eq!(s.hca_vport_context().pkey_violation_counter(), 0xeed3);
        },
    );
}

#[test]
fn query_hca_vport_gid_in() {
    emits::<QueryHcaVportGidIn>(
        |s| {
            s.set_opcode(0x764)
                .set_op_mod(0xc5fe)
                .set_other_vport(false)
                .set_port_num(3)
                .set_vport_number(0x50e3)
                .set_gid_index(0x52cf);
        },
        &[(0x000, "0764a5a5 a5a5c5fe 25a350e3 a5a552cf")],
    );
    fresh(&QueryHcaVportGidIn::new().0, 0x764);
}

#[test]
fn query_hca_vport_gid_out_parsed() {
    parses::<QueryHcaVportGidOut>(&[(0x000, "08a5a5a5 4c54ca4b"), (0x00c, "8f78a5a5")], |s| {
        assert_eq!(s.status(), 8);
        assert_eq!(s.syndrome(), 0x4c54ca4b);
        assert_eq!(s.gids_num(), 0x8f78);
    });
}

#[test]
fn query_hca_vport_pkey_in() {
    emits::<QueryHcaVportPkeyIn>(
        |s| {
            s.set_opcode(0x765)
                .set_op_mod(0x9e19)
                .set_other_vport(false)
                .set_port_num(8)
                .set_vport_number(0x8f48)
                .set_pkey_index(0x27b3);
        },
        &[(0x000, "0765a5a5 a5a59e19 25a88f48 a5a527b3")],
    );
    fresh(&QueryHcaVportPkeyIn::new().0, 0x765);
}

#[test]
fn query_hca_vport_pkey_out_parsed() {
    parses::<QueryHcaVportPkeyOut>(&[(0x000, "08a5a5a5 31f53df7")], |s| {
        assert_eq!(s.status(), 8);
        assert_eq!(s.syndrome(), 0x31f53df7);
    });
}

#[test]
fn modify_hca_vport_context_in() {
    emits::<ModifyHcaVportContextIn>(
        |s| {
            s.set_opcode(0x763)
                .set_op_mod(0x31c2)
                .set_other_vport(true)
                .set_port_num(2)
                .set_vport_number(0x6b0d);
            s.hca_vport_context_mut()
                .set_cap_mask1(0x0001_0848)
                .set_cap_mask1_field_select(0x0001_0000);
        },
        &[
            (0x000, "0763a5a5 a5a531c2 a5a26b0d"),
            (0x050, "00010848 00010000"),
        ],
    );
    fresh(&ModifyHcaVportContextIn::new().0, 0x763);
}

#[test]
fn query_vport_counter_in() {
    emits::<QueryVportCounterIn>(
        |s| {
            s.set_opcode(0x770)
                .set_op_mod(0x4d19)
                .set_other_vport(false)
                .set_port_num(7)
                .set_vport_number(0x91fe)
                .set_clear(false);
        },
        &[(0x000, "0770a5a5 a5a54d19 25a791fe"), (0x018, "25a5a5a5")],
    );
    fresh(&QueryVportCounterIn::new().0, 0x770);
}

#[test]
fn query_vport_counter_out_parsed() {
    parses::<QueryVportCounterOut>(
        &[
            (0x000, "08a5a5a5 5c0ffee5"),
            (0x010, "00000000 00000001 00000000 00000002"),
            (0x030, "00000001 00000003"),
            (0x0c8, "80000000 00000004"),
        ],
        |s| {
            assert_eq!(s.status(), 8);
            assert_eq!(s.syndrome(), 0x5c0f_fee5);
            assert_eq!(s.received_errors().packets(), 1);
            assert_eq!(s.received_errors().octets(), 2);
            assert_eq!(s.received_ib_unicast().packets(), 0x1_0000_0003);
            assert_eq!(
                s.transmitted_eth_multicast().octets(),
                0x8000_0000_0000_0004
            );
        },
    );
}
