//! Bytes computed from the offsets in the vendor's header, for some of the structures.

use super::*;
use crate::golden::emits;

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
            // With all 16 bits of allowed_list_size, of which the header of 6.1 has 12.
            (0x0f0, "41a50b0c 00b3f1f2 07697aad"),
        ],
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
