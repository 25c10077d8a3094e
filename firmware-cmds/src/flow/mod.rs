//! Flow steering: tables, groups of entries with one mask, entries, counters.

use crate::command::commands;
use crate::layout::layout;

layout! {
    /// Context of a flow table.
    pub struct FlowTableContext: "flow_table_context", 0x28 {
        flag reformat_en, set_reformat_en @ 0x00 [31];
        flag decap_en, set_decap_en @ 0x00 [30];
        flag sw_owner, set_sw_owner @ 0x00 [29];
        flag termination_table, set_termination_table @ 0x00 [28];
        bits table_miss_action, set_table_miss_action: u8 @ 0x00 [27:24];
        bits level, set_level: u8 @ 0x00 [23:16];
        bits log_size, set_log_size: u8 @ 0x00 [7:0];
        bits table_miss_id, set_table_miss_id: u32 @ 0x04 [23:0];
        bits lag_master_next_table_id, set_lag_master_next_table_id: u32 @ 0x08 [23:0];
        bits sw_owner_icm_root_1, set_sw_owner_icm_root_1: u64 @ 0x18 [63:0];
        bits sw_owner_icm_root_0, set_sw_owner_icm_root_0: u64 @ 0x20 [63:0];
    }
}

layout! {
    /// Headers of layers 2 to 4, to match.
    pub struct FteMatchSetLyr24: "fte_match_set_lyr_2_4", 0x40 {
        bits smac_47_16, set_smac_47_16: u32 @ 0x00 [31:0];
        bits smac_15_0, set_smac_15_0: u16 @ 0x04 [31:16];
        bits ethertype, set_ethertype: u16 @ 0x04 [15:0];
        bits dmac_47_16, set_dmac_47_16: u32 @ 0x08 [31:0];
        bits dmac_15_0, set_dmac_15_0: u16 @ 0x0c [31:16];
        bits first_prio, set_first_prio: u8 @ 0x0c [15:13];
        flag first_cfi, set_first_cfi @ 0x0c [12];
        bits first_vid, set_first_vid: u16 @ 0x0c [11:0];
        bits ip_protocol, set_ip_protocol: u8 @ 0x10 [31:24];
        bits ip_dscp, set_ip_dscp: u8 @ 0x10 [23:18];
        bits ip_ecn, set_ip_ecn: u8 @ 0x10 [17:16];
        flag cvlan_tag, set_cvlan_tag @ 0x10 [15];
        flag svlan_tag, set_svlan_tag @ 0x10 [14];
        flag frag, set_frag @ 0x10 [13];
        bits ip_version, set_ip_version: u8 @ 0x10 [12:9];
        bits tcp_flags, set_tcp_flags: u16 @ 0x10 [8:0];
        bits tcp_sport, set_tcp_sport: u16 @ 0x14 [31:16];
        bits tcp_dport, set_tcp_dport: u16 @ 0x14 [15:0];
        bits ipv4_ihl, set_ipv4_ihl: u8 @ 0x18 [15:12];
        bits ttl_hoplimit, set_ttl_hoplimit: u8 @ 0x18 [7:0];
        bits udp_sport, set_udp_sport: u16 @ 0x1c [31:16];
        bits udp_dport, set_udp_dport: u16 @ 0x1c [15:0];
        bytes src_ipv4_src_ipv6, src_ipv4_src_ipv6_mut: 16 @ 0x20;
        bytes dst_ipv4_dst_ipv6, dst_ipv4_dst_ipv6_mut: 16 @ 0x30;
    }
}

layout! {
    /// Fields to match that not every packet has.
    pub struct FteMatchSetMisc: "fte_match_set_misc", 0x40 {
        flag gre_c_present, set_gre_c_present @ 0x00 [31];
        flag gre_k_present, set_gre_k_present @ 0x00 [29];
        flag gre_s_present, set_gre_s_present @ 0x00 [28];
        bits source_vhca_port, set_source_vhca_port: u8 @ 0x00 [27:24];
        bits source_sqn, set_source_sqn: u32 @ 0x00 [23:0];
        bits source_eswitch_owner_vhca_id, set_source_eswitch_owner_vhca_id: u16 @ 0x04 [31:16];
        bits source_port, set_source_port: u16 @ 0x04 [15:0];
        bits outer_second_prio, set_outer_second_prio: u8 @ 0x08 [31:29];
        flag outer_second_cfi, set_outer_second_cfi @ 0x08 [28];
        bits outer_second_vid, set_outer_second_vid: u16 @ 0x08 [27:16];
        bits inner_second_prio, set_inner_second_prio: u8 @ 0x08 [15:13];
        flag inner_second_cfi, set_inner_second_cfi @ 0x08 [12];
        bits inner_second_vid, set_inner_second_vid: u16 @ 0x08 [11:0];
        flag outer_second_cvlan_tag, set_outer_second_cvlan_tag @ 0x0c [31];
        flag inner_second_cvlan_tag, set_inner_second_cvlan_tag @ 0x0c [30];
        flag outer_second_svlan_tag, set_outer_second_svlan_tag @ 0x0c [29];
        flag inner_second_svlan_tag, set_inner_second_svlan_tag @ 0x0c [28];
        bits gre_protocol, set_gre_protocol: u16 @ 0x0c [15:0];
        bits gre_key, set_gre_key: u32 @ 0x10 [31:0];
        bits vxlan_vni, set_vxlan_vni: u32 @ 0x14 [31:8];
        bits bth_opcode, set_bth_opcode: u8 @ 0x14 [7:0];
        bits geneve_vni, set_geneve_vni: u32 @ 0x18 [31:8];
        flag geneve_tlv_option_0_exist, set_geneve_tlv_option_0_exist @ 0x18 [1];
        flag geneve_oam, set_geneve_oam @ 0x18 [0];
        bits outer_ipv6_flow_label, set_outer_ipv6_flow_label: u32 @ 0x1c [19:0];
        bits inner_ipv6_flow_label, set_inner_ipv6_flow_label: u32 @ 0x20 [19:0];
        bits geneve_opt_len, set_geneve_opt_len: u8 @ 0x24 [21:16];
        bits geneve_protocol_type, set_geneve_protocol_type: u16 @ 0x24 [15:0];
        bits bth_dst_qp, set_bth_dst_qp: u32 @ 0x28 [23:0];
        bits outer_esp_spi, set_outer_esp_spi: u32 @ 0x30 [31:0];
    }
}

layout! {
    /// The header fields that an entry matches, or the mask over them.
    pub struct FteMatchParam: "fte_match_param", 0x200 {
        part outer_headers, outer_headers_mut: FteMatchSetLyr24 @ 0x00;
        part misc_parameters, misc_parameters_mut: FteMatchSetMisc @ 0x40;
        part inner_headers, inner_headers_mut: FteMatchSetLyr24 @ 0x80;
        bytes misc_parameters_2, misc_parameters_2_mut: 64 @ 0xc0;
        bytes misc_parameters_3, misc_parameters_3_mut: 64 @ 0x100;
        bytes misc_parameters_4, misc_parameters_4_mut: 64 @ 0x140;
        bytes misc_parameters_5, misc_parameters_5_mut: 64 @ 0x180;
    }
}

layout! {
    /// Where an entry sends its packets.
    pub struct DestFormat: "dest_format_struct", 0x08 {
        bits destination_type, set_destination_type: u8 @ 0x00 [31:24];
        bits destination_id, set_destination_id: u32 @ 0x00 [23:0];
        flag destination_eswitch_owner_vhca_id_valid, set_destination_eswitch_owner_vhca_id_valid @ 0x04 [31];
        flag packet_reformat, set_packet_reformat @ 0x04 [30];
        bits destination_eswitch_owner_vhca_id, set_destination_eswitch_owner_vhca_id: u16 @ 0x04 [15:0];
    }
}

layout! {
    /// A counter of an entry, in its list of destinations.
    pub struct FlowCounterList: "flow_counter_list", 0x08 {
        bits flow_counter_id, set_flow_counter_id: u32 @ 0x00 [31:0];
    }
}

layout! {
    /// Context of a flow table entry; destinations, then counters, follow.
    pub struct FlowContext: "flow_context", 0x300 {
        bits push_vlan, set_push_vlan: u32 @ 0x00 [31:0];
        bits group_id, set_group_id: u32 @ 0x04 [31:0];
        bits flow_tag, set_flow_tag: u32 @ 0x08 [23:0];
        bits action, set_action: u16 @ 0x0c [15:0];
        flag extended_destination, set_extended_destination @ 0x10 [31];
        bits flow_source, set_flow_source: u8 @ 0x10 [29:28];
        bits encrypt_decrypt_type, set_encrypt_decrypt_type: u8 @ 0x10 [27:24];
        bits destination_list_size, set_destination_list_size: u32 @ 0x10 [23:0];
        bits flow_counter_list_size, set_flow_counter_list_size: u32 @ 0x14 [23:0];
        bits packet_reformat_id, set_packet_reformat_id: u32 @ 0x18 [31:0];
        bits modify_header_id, set_modify_header_id: u32 @ 0x1c [31:0];
        bits push_vlan_2, set_push_vlan_2: u32 @ 0x20 [31:0];
        bits encrypt_decrypt_obj_id, set_encrypt_decrypt_obj_id: u32 @ 0x24 [31:0];
        part match_value, match_value_mut: FteMatchParam @ 0x40;
        bytes execute_aso, execute_aso_mut: 32 @ 0x240;
        tail destination: 64 @ 0x300;
    }
}

commands! {
    input SetFlowTableRootIn of SetFlowTableRoot: "set_flow_table_root_in", 0x40 {
        flag other_vport, set_other_vport @ 0x08 [31];
        bits vport_number, set_vport_number: u16 @ 0x08 [15:0];
        bits table_type, set_table_type: u8 @ 0x10 [31:24];
        flag table_of_other_vport, set_table_of_other_vport @ 0x10 [16];
        bits table_vport_number, set_table_vport_number: u16 @ 0x10 [15:0];
        bits table_id, set_table_id: u32 @ 0x14 [23:0];
        bits underlay_qpn, set_underlay_qpn: u32 @ 0x18 [23:0];
        flag table_eswitch_owner_vhca_id_valid, set_table_eswitch_owner_vhca_id_valid @ 0x1c [31];
        bits table_eswitch_owner_vhca_id, set_table_eswitch_owner_vhca_id: u16 @ 0x1c [15:0];
    }

    input CreateFlowTableIn of CreateFlowTable: "create_flow_table_in", 0x40, uid {
        flag other_vport, set_other_vport @ 0x08 [31];
        bits vport_number, set_vport_number: u16 @ 0x08 [15:0];
        bits table_type, set_table_type: u8 @ 0x10 [31:24];
        part flow_table_context, flow_table_context_mut: FlowTableContext @ 0x18;
    }
    output CreateFlowTableOut: "create_flow_table_out", 0x10 {
        bits icm_address_63_40, set_icm_address_63_40: u32 @ 0x00 [23:0];
        bits icm_address_39_32, set_icm_address_39_32: u8 @ 0x08 [31:24];
        bits table_id, set_table_id: u32 @ 0x08 [23:0];
        bits icm_address_31_0, set_icm_address_31_0: u32 @ 0x0c [31:0];
    }

    input DestroyFlowTableIn of DestroyFlowTable: "destroy_flow_table_in", 0x40 {
        flag other_vport, set_other_vport @ 0x08 [31];
        bits vport_number, set_vport_number: u16 @ 0x08 [15:0];
        bits table_type, set_table_type: u8 @ 0x10 [31:24];
        bits table_id, set_table_id: u32 @ 0x14 [23:0];
    }

    input QueryFlowTableIn of QueryFlowTable: "query_flow_table_in", 0x40 {
        bits table_type, set_table_type: u8 @ 0x10 [31:24];
        bits table_id, set_table_id: u32 @ 0x14 [23:0];
    }
    output QueryFlowTableOut: "query_flow_table_out", 0x40 {
        part flow_table_context, flow_table_context_mut: FlowTableContext @ 0x18;
    }

    input CreateFlowGroupIn of CreateFlowGroup: "create_flow_group_in", 0x400 {
        flag other_vport, set_other_vport @ 0x08 [31];
        bits vport_number, set_vport_number: u16 @ 0x08 [15:0];
        bits table_type, set_table_type: u8 @ 0x10 [31:24];
        bits group_type, set_group_type: u8 @ 0x10 [19:16];
        bits table_id, set_table_id: u32 @ 0x14 [23:0];
        flag source_eswitch_owner_vhca_id_valid, set_source_eswitch_owner_vhca_id_valid @ 0x18 [31];
        bits start_flow_index, set_start_flow_index: u32 @ 0x1c [31:0];
        bits end_flow_index, set_end_flow_index: u32 @ 0x24 [31:0];
        bits match_definer_id, set_match_definer_id: u16 @ 0x28 [15:0];
        bits match_criteria_enable, set_match_criteria_enable: u8 @ 0x3c [7:0];
        part match_criteria, match_criteria_mut: FteMatchParam @ 0x40;
    }
    output CreateFlowGroupOut: "create_flow_group_out", 0x10 {
        bits group_id, set_group_id: u32 @ 0x08 [23:0];
    }

    input DestroyFlowGroupIn of DestroyFlowGroup: "destroy_flow_group_in", 0x40 {
        flag other_vport, set_other_vport @ 0x08 [31];
        bits vport_number, set_vport_number: u16 @ 0x08 [15:0];
        bits table_type, set_table_type: u8 @ 0x10 [31:24];
        bits table_id, set_table_id: u32 @ 0x14 [23:0];
        bits group_id, set_group_id: u32 @ 0x18 [31:0];
    }

    input QueryFlowGroupIn of QueryFlowGroup: "query_flow_group_in", 0x40 {
        bits table_type, set_table_type: u8 @ 0x10 [31:24];
        bits table_id, set_table_id: u32 @ 0x14 [23:0];
        bits group_id, set_group_id: u32 @ 0x18 [31:0];
    }
    output QueryFlowGroupOut: "query_flow_group_out", 0x400 {
        bits start_flow_index, set_start_flow_index: u32 @ 0x1c [31:0];
        bits end_flow_index, set_end_flow_index: u32 @ 0x24 [31:0];
        bits match_criteria_enable, set_match_criteria_enable: u8 @ 0x3c [7:0];
        part match_criteria, match_criteria_mut: FteMatchParam @ 0x40;
    }

    input SetFteIn of SetFte: "set_fte_in", 0x340 {
        flag other_vport, set_other_vport @ 0x08 [31];
        bits vport_number, set_vport_number: u16 @ 0x08 [15:0];
        bits table_type, set_table_type: u8 @ 0x10 [31:24];
        bits table_id, set_table_id: u32 @ 0x14 [23:0];
        flag ignore_flow_level, set_ignore_flow_level @ 0x18 [31];
        bits modify_enable_mask, set_modify_enable_mask: u8 @ 0x18 [7:0];
        bits flow_index, set_flow_index: u32 @ 0x20 [31:0];
        part flow_context, flow_context_mut: FlowContext @ 0x40;
    }

    input QueryFteIn of QueryFte: "query_fte_in", 0x40 {
        bits table_type, set_table_type: u8 @ 0x10 [31:24];
        bits table_id, set_table_id: u32 @ 0x14 [23:0];
        bits flow_index, set_flow_index: u32 @ 0x20 [31:0];
    }
    output QueryFteOut: "query_fte_out", 0x340 {
        part flow_context, flow_context_mut: FlowContext @ 0x40;
    }

    input DeleteFteIn of DeleteFte: "delete_fte_in", 0x40 {
        flag other_vport, set_other_vport @ 0x08 [31];
        bits vport_number, set_vport_number: u16 @ 0x08 [15:0];
        bits table_type, set_table_type: u8 @ 0x10 [31:24];
        bits table_id, set_table_id: u32 @ 0x14 [23:0];
        bits flow_index, set_flow_index: u32 @ 0x20 [31:0];
    }

    input AllocFlowCounterIn of AllocFlowCounter: "alloc_flow_counter_in", 0x10 {
        bits flow_counter_bulk_log_size, set_flow_counter_bulk_log_size: u8 @ 0x0c [12:8];
        bits flow_counter_bulk, set_flow_counter_bulk: u8 @ 0x0c [7:0];
    }
    output AllocFlowCounterOut: "alloc_flow_counter_out", 0x10 {
        bits flow_counter_id, set_flow_counter_id: u32 @ 0x08 [31:0];
    }

    input DeallocFlowCounterIn of DeallocFlowCounter: "dealloc_flow_counter_in", 0x10 {
        bits flow_counter_id, set_flow_counter_id: u32 @ 0x08 [31:0];
    }

    /// The output ends in a [`TrafficCounter`](crate::vport::TrafficCounter) per counter.
    input QueryFlowCounterIn of QueryFlowCounter: "query_flow_counter_in", 0x20 {
        flag clear, set_clear @ 0x18 [31];
        bits num_of_counters, set_num_of_counters: u16 @ 0x18 [15:0];
        bits flow_counter_id, set_flow_counter_id: u32 @ 0x1c [31:0];
    }
    output QueryFlowCounterOut: "query_flow_counter_out", 0x10 {
        tail flow_statistics: 8 @ 0x10;
    }

    input ModifyFlowTableIn of ModifyFlowTable: "modify_flow_table_in", 0x40 {
        flag other_vport, set_other_vport @ 0x08 [31];
        bits vport_number, set_vport_number: u16 @ 0x08 [15:0];
        bits modify_field_select, set_modify_field_select: u16 @ 0x0c [15:0];
        bits table_type, set_table_type: u8 @ 0x10 [31:24];
        bits table_id, set_table_id: u32 @ 0x14 [23:0];
        part flow_table_context, flow_table_context_mut: FlowTableContext @ 0x18;
    }
}

layout! {
    /// A change of headers: bits of a field are replaced.
    pub struct SetActionIn: "set_action_in", 0x08 {
        bits action_type, set_action_type: u8 @ 0x00 [31:28];
        bits field, set_field: u16 @ 0x00 [27:16];
        bits offset, set_offset: u8 @ 0x00 [12:8];
        bits length, set_length: u8 @ 0x00 [4:0];
        bits data, set_data: u32 @ 0x04 [31:0];
    }
}

layout! {
    /// A change of headers: something is added to a field.
    pub struct AddActionIn: "add_action_in", 0x08 {
        bits action_type, set_action_type: u8 @ 0x00 [31:28];
        bits field, set_field: u16 @ 0x00 [27:16];
        bits data, set_data: u32 @ 0x04 [31:0];
    }
}

commands! {
    /// The input ends in the actions.
    input AllocModifyHeaderContextIn of AllocModifyHeaderContext: "alloc_modify_header_context_in", 0x10 {
        bits table_type, set_table_type: u8 @ 0x0c [31:24];
        bits num_of_actions, set_num_of_actions: u8 @ 0x0c [7:0];
        tail actions: 64 @ 0x10;
    }
    output AllocModifyHeaderContextOut: "alloc_modify_header_context_out", 0x10 {
        bits modify_header_id, set_modify_header_id: u32 @ 0x08 [31:0];
    }

    input DeallocModifyHeaderContextIn of DeallocModifyHeaderContext: "dealloc_modify_header_context_in", 0x10 {
        bits modify_header_id, set_modify_header_id: u32 @ 0x08 [31:0];
    }
}

#[cfg(test)]
mod golden;
