//! The virtual port: NIC context, HCA context, GIDs, P_Keys, state.

use crate::command::commands;
use crate::layout::layout;

layout! {
    /// The fields that MODIFY_NIC_VPORT_CONTEXT changes.
    pub struct ModifyNicVportFieldSelect: "modify_nic_vport_field_select", 0x04 {
        flag affiliation, set_affiliation @ 0x00 [13];
        flag disable_uc_local_lb, set_disable_uc_local_lb @ 0x00 [11];
        flag disable_mc_local_lb, set_disable_mc_local_lb @ 0x00 [10];
        flag node_guid, set_node_guid @ 0x00 [9];
        flag port_guid, set_port_guid @ 0x00 [8];
        flag min_inline, set_min_inline @ 0x00 [7];
        flag mtu, set_mtu @ 0x00 [6];
        flag change_event, set_change_event @ 0x00 [5];
        flag promisc, set_promisc @ 0x00 [4];
        flag permanent_address, set_permanent_address @ 0x00 [3];
        flag addresses_list, set_addresses_list @ 0x00 [2];
        flag roce_en, set_roce_en @ 0x00 [1];
    }
}

layout! {
    /// The virtual port's Ethernet side.
    pub struct NicVportContext: "nic_vport_context", 0x100 {
        bits min_wqe_inline_mode, set_min_wqe_inline_mode: u8 @ 0x00 [26:24];
        flag disable_mc_local_lb, set_disable_mc_local_lb @ 0x00 [2];
        flag disable_uc_local_lb, set_disable_uc_local_lb @ 0x00 [1];
        flag roce_en, set_roce_en @ 0x00 [0];
        flag arm_change_event, set_arm_change_event @ 0x04 [31];
        flag event_on_mtu, set_event_on_mtu @ 0x04 [4];
        flag event_on_promisc_change, set_event_on_promisc_change @ 0x04 [3];
        flag event_on_vlan_change, set_event_on_vlan_change @ 0x04 [2];
        flag event_on_mc_address_change, set_event_on_mc_address_change @ 0x04 [1];
        flag event_on_uc_address_change, set_event_on_uc_address_change @ 0x04 [0];
        flag vhca_id_type, set_vhca_id_type @ 0x08 [31];
        bits affiliation_criteria, set_affiliation_criteria: u8 @ 0x08 [19:16];
        bits affiliated_vhca_id, set_affiliated_vhca_id: u16 @ 0x08 [15:0];
        bits mtu, set_mtu: u16 @ 0x24 [15:0];
        bits system_image_guid, set_system_image_guid: u64 @ 0x28 [63:0];
        bits port_guid, set_port_guid: u64 @ 0x30 [63:0];
        bits node_guid, set_node_guid: u64 @ 0x38 [63:0];
        bits qkey_violation_counter, set_qkey_violation_counter: u16 @ 0x68 [31:16];
        flag promisc_uc, set_promisc_uc @ 0xf0 [31];
        flag promisc_mc, set_promisc_mc @ 0xf0 [30];
        flag promisc_all, set_promisc_all @ 0xf0 [29];
        bits allowed_list_type, set_allowed_list_type: u8 @ 0xf0 [26:24];
        bits allowed_list_size, set_allowed_list_size: u16 @ 0xf0 [15:0];
        bits permanent_address, set_permanent_address: u64 @ 0xf4 [63:0];
        tail current_uc_mac_address: 64 @ 0x100;
    }
}

layout! {
    /// The virtual port's InfiniBand side.
    pub struct HcaVportContext: "hca_vport_context", 0x200 {
        bits field_select, set_field_select: u32 @ 0x00 [31:0];
        flag sm_virt_aware, set_sm_virt_aware @ 0x20 [31];
        flag has_smi, set_has_smi @ 0x20 [30];
        flag has_raw, set_has_raw @ 0x20 [29];
        flag grh_required, set_grh_required @ 0x20 [28];
        bits port_physical_state, set_port_physical_state: u8 @ 0x20 [15:12];
        bits vport_state_policy, set_vport_state_policy: u8 @ 0x20 [11:8];
        bits port_state, set_port_state: u8 @ 0x20 [7:4];
        bits vport_state, set_vport_state: u8 @ 0x20 [3:0];
        bits system_image_guid, set_system_image_guid: u64 @ 0x28 [63:0];
        bits port_guid, set_port_guid: u64 @ 0x30 [63:0];
        bits node_guid, set_node_guid: u64 @ 0x38 [63:0];
        bits cap_mask1, set_cap_mask1: u32 @ 0x40 [31:0];
        bits cap_mask1_field_select, set_cap_mask1_field_select: u32 @ 0x44 [31:0];
        bits cap_mask2, set_cap_mask2: u32 @ 0x48 [31:0];
        bits cap_mask2_field_select, set_cap_mask2_field_select: u32 @ 0x4c [31:0];
        bits lid, set_lid: u16 @ 0x60 [31:16];
        bits init_type_reply, set_init_type_reply: u8 @ 0x60 [11:8];
        bits lmc, set_lmc: u8 @ 0x60 [7:5];
        bits subnet_timeout, set_subnet_timeout: u8 @ 0x60 [4:0];
        bits sm_lid, set_sm_lid: u16 @ 0x64 [31:16];
        bits sm_sl, set_sm_sl: u8 @ 0x64 [15:12];
        bits qkey_violation_counter, set_qkey_violation_counter: u16 @ 0x68 [31:16];
        bits pkey_violation_counter, set_pkey_violation_counter: u16 @ 0x68 [15:0];
    }
}

layout! {
    /// An entry of the P_Key table.
    pub struct Pkey: "pkey", 0x04 {
        bits pkey, set_pkey: u16 @ 0x00 [15:0];
    }
}

commands! {
    /// The device takes datagrams to this UDP port for VXLAN (RFC 7348), like those to 4789.
    input AddVxlanUdpDportIn of AddVxlanUdpDport: "add_vxlan_udp_dport_in", 0x10 {
        bits vxlan_udp_port, set_vxlan_udp_port: u16 @ 0x0c [15:0];
    }

    input DeleteVxlanUdpDportIn of DeleteVxlanUdpDport: "delete_vxlan_udp_dport_in", 0x10 {
        bits vxlan_udp_port, set_vxlan_udp_port: u16 @ 0x0c [15:0];
    }

    /// Frames to the address go to this physical function of those on its port.
    input SetL2TableEntryIn of SetL2TableEntry: "set_l2_table_entry_in", 0x40 {
        bits table_index, set_table_index: u32 @ 0x14 [23:0];
        flag vlan_valid, set_vlan_valid @ 0x1c [12];
        bits vlan, set_vlan: u16 @ 0x1c [11:0];
        bits mac_address, set_mac_address: u64 @ 0x20 [63:0];
    }

    input DeleteL2TableEntryIn of DeleteL2TableEntry: "delete_l2_table_entry_in", 0x40 {
        bits table_index, set_table_index: u32 @ 0x14 [23:0];
    }

    input QueryVportStateIn of QueryVportState: "query_vport_state_in", 0x10 {
        flag other_vport, set_other_vport @ 0x08 [31];
        bits vport_number, set_vport_number: u16 @ 0x08 [15:0];
    }
    output QueryVportStateOut: "query_vport_state_out", 0x10 {
        bits admin_state, set_admin_state: u8 @ 0x0c [7:4];
        bits state, set_state: u8 @ 0x0c [3:0];
    }

    input QueryNicVportContextIn of QueryNicVportContext: "query_nic_vport_context_in", 0x10 {
        flag other_vport, set_other_vport @ 0x08 [31];
        bits vport_number, set_vport_number: u16 @ 0x08 [15:0];
        bits allowed_list_type, set_allowed_list_type: u8 @ 0x0c [26:24];
    }
    output QueryNicVportContextOut: "query_nic_vport_context_out", 0x110 {
        part nic_vport_context, nic_vport_context_mut: NicVportContext @ 0x10;
    }

    input ModifyNicVportContextIn of ModifyNicVportContext: "modify_nic_vport_context_in", 0x200 {
        flag other_vport, set_other_vport @ 0x08 [31];
        bits vport_number, set_vport_number: u16 @ 0x08 [15:0];
        part field_select, field_select_mut: ModifyNicVportFieldSelect @ 0x0c;
        part nic_vport_context, nic_vport_context_mut: NicVportContext @ 0x100;
    }

    input QueryHcaVportContextIn of QueryHcaVportContext: "query_hca_vport_context_in", 0x10 {
        flag other_vport, set_other_vport @ 0x08 [31];
        bits port_num, set_port_num: u8 @ 0x08 [19:16];
        bits vport_number, set_vport_number: u16 @ 0x08 [15:0];
    }
    output QueryHcaVportContextOut: "query_hca_vport_context_out", 0x210 {
        part hca_vport_context, hca_vport_context_mut: HcaVportContext @ 0x10;
    }

    input ModifyHcaVportContextIn of ModifyHcaVportContext: "modify_hca_vport_context_in", 0x210 {
        flag other_vport, set_other_vport @ 0x08 [31];
        bits port_num, set_port_num: u8 @ 0x08 [19:16];
        bits vport_number, set_vport_number: u16 @ 0x08 [15:0];
        part hca_vport_context, hca_vport_context_mut: HcaVportContext @ 0x10;
    }
}

layout! {
    /// Packets and octets in one direction.
    pub struct TrafficCounter: "traffic_counter", 0x10 {
        bits packets, set_packets: u64 @ 0x00 [63:0];
        bits octets, set_octets: u64 @ 0x08 [63:0];
    }
}

commands! {
    input QueryVportCounterIn of QueryVportCounter: "query_vport_counter_in", 0x20 {
        flag other_vport, set_other_vport @ 0x08 [31];
        bits port_num, set_port_num: u8 @ 0x08 [19:16];
        bits vport_number, set_vport_number: u16 @ 0x08 [15:0];
        flag clear, set_clear @ 0x18 [31];
    }
    output QueryVportCounterOut: "query_vport_counter_out", 0x210 {
        part received_errors, received_errors_mut: TrafficCounter @ 0x10;
        part transmit_errors, transmit_errors_mut: TrafficCounter @ 0x20;
        part received_ib_unicast, received_ib_unicast_mut: TrafficCounter @ 0x30;
        part transmitted_ib_unicast, transmitted_ib_unicast_mut: TrafficCounter @ 0x40;
        part received_ib_multicast, received_ib_multicast_mut: TrafficCounter @ 0x50;
        part transmitted_ib_multicast, transmitted_ib_multicast_mut: TrafficCounter @ 0x60;
        part received_eth_broadcast, received_eth_broadcast_mut: TrafficCounter @ 0x70;
        part transmitted_eth_broadcast, transmitted_eth_broadcast_mut: TrafficCounter @ 0x80;
        part received_eth_unicast, received_eth_unicast_mut: TrafficCounter @ 0x90;
        part transmitted_eth_unicast, transmitted_eth_unicast_mut: TrafficCounter @ 0xa0;
        part received_eth_multicast, received_eth_multicast_mut: TrafficCounter @ 0xb0;
        part transmitted_eth_multicast, transmitted_eth_multicast_mut: TrafficCounter @ 0xc0;
    }

    input QueryHcaVportGidIn of QueryHcaVportGid: "query_hca_vport_gid_in", 0x10 {
        flag other_vport, set_other_vport @ 0x08 [31];
        bits port_num, set_port_num: u8 @ 0x08 [19:16];
        bits vport_number, set_vport_number: u16 @ 0x08 [15:0];
        bits gid_index, set_gid_index: u16 @ 0x0c [15:0];
    }
    output QueryHcaVportGidOut: "query_hca_vport_gid_out", 0x10 {
        bits gids_num, set_gids_num: u16 @ 0x0c [31:16];
        tail gid: 8 @ 0x10;
    }

    input QueryHcaVportPkeyIn of QueryHcaVportPkey: "query_hca_vport_pkey_in", 0x10 {
        flag other_vport, set_other_vport @ 0x08 [31];
        bits port_num, set_port_num: u8 @ 0x08 [19:16];
        bits vport_number, set_vport_number: u16 @ 0x08 [15:0];
        bits pkey_index, set_pkey_index: u16 @ 0x0c [15:0];
    }
    output QueryHcaVportPkeyOut: "query_hca_vport_pkey_out", 0x10 {
        tail pkey: 32 @ 0x10;
    }
}

impl NicVportContext {
    /// The port's own MAC address: the lower 6 bytes of `permanent_address`.
    #[must_use]
    pub fn permanent_mac(&self) -> [u8; 6] {
        let [_, _, mac @ ..] = self.permanent_address().to_be_bytes();
        mac
    }

    /// Sets [`permanent_mac`](Self::permanent_mac), and clears the two bytes above it.
    pub fn set_permanent_mac(&mut self, mac: [u8; 6]) -> &mut Self {
        let [a, b, c, d, e, f] = mac;
        self.set_permanent_address(u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mac_bytes_in_order() {
        let mut context = NicVportContext([0xa5; 0x100]);
        context.set_permanent_mac([2, 1, 3, 5, 7, 9]);
        assert_eq!(context.0[0xf4..0xfc], [0, 0, 2, 1, 3, 5, 7, 9]);
        assert_eq!(context.permanent_mac(), [2, 1, 3, 5, 7, 9]);
    }
}

#[cfg(test)]
mod golden;
