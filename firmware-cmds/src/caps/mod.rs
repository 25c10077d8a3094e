//! The device's capabilities, group by group.

use crate::command::commands;
use crate::layout::layout;

layout! {
    /// General capabilities ([`CapabilityGroup::General`](crate::values::CapabilityGroup::General)).
    pub struct HcaCap: "cmd_hca_cap", 0x100 {
        flag page_request_disable, set_page_request_disable @ 0x00 [25];
        flag abs_native_port_num, set_abs_native_port_num @ 0x00 [24];
        flag shared_object_to_user_object_allowed, set_shared_object_to_user_object_allowed @ 0x00 [15];
        flag vhca_resource_manager, set_vhca_resource_manager @ 0x00 [0];
        flag hca_cap_2, set_hca_cap_2 @ 0x04 [31];
        flag create_lag_when_not_master_up, set_create_lag_when_not_master_up @ 0x04 [30];
        flag dtor, set_dtor @ 0x04 [29];
        flag event_on_vhca_state_teardown_request, set_event_on_vhca_state_teardown_request @ 0x04 [28];
        flag event_on_vhca_state_in_use, set_event_on_vhca_state_in_use @ 0x04 [27];
        flag event_on_vhca_state_active, set_event_on_vhca_state_active @ 0x04 [26];
        flag event_on_vhca_state_allocated, set_event_on_vhca_state_allocated @ 0x04 [25];
        flag event_on_vhca_state_invalid, set_event_on_vhca_state_invalid @ 0x04 [24];
        bits vhca_id, set_vhca_id: u16 @ 0x04 [15:0];
        bits log_max_srq_sz, set_log_max_srq_sz: u8 @ 0x10 [31:24];
        bits log_max_qp_sz, set_log_max_qp_sz: u8 @ 0x10 [23:16];
        flag event_cap, set_event_cap @ 0x10 [15];
        flag isolate_vl_tc_new, set_isolate_vl_tc_new @ 0x10 [12];
        flag prio_tag_required, set_prio_tag_required @ 0x10 [7];
        bits log_max_qp, set_log_max_qp: u8 @ 0x10 [4:0];
        flag ece_support, set_ece_support @ 0x14 [28];
        flag reg_c_preserve, set_reg_c_preserve @ 0x14 [22];
        bits log_max_srq, set_log_max_srq: u8 @ 0x14 [20:16];
        flag uplink_follow, set_uplink_follow @ 0x14 [14];
        flag ts_cqe_to_dest_cqn, set_ts_cqe_to_dest_cqn @ 0x14 [13];
        flag go_back_n, set_go_back_n @ 0x14 [6];
        bits max_sgl_for_optimized_performance, set_max_sgl_for_optimized_performance: u8 @ 0x18 [31:24];
        bits log_max_cq_sz, set_log_max_cq_sz: u8 @ 0x18 [23:16];
        flag relaxed_ordering_write_umr, set_relaxed_ordering_write_umr @ 0x18 [15];
        flag relaxed_ordering_read_umr, set_relaxed_ordering_read_umr @ 0x18 [14];
        flag virtio_net_device_emualtion_manager, set_virtio_net_device_emualtion_manager @ 0x18 [6];
        flag virtio_blk_device_emualtion_manager, set_virtio_blk_device_emualtion_manager @ 0x18 [5];
        bits log_max_cq, set_log_max_cq: u8 @ 0x18 [4:0];
        bits log_max_eq_sz, set_log_max_eq_sz: u8 @ 0x1c [31:24];
        flag relaxed_ordering_write, set_relaxed_ordering_write @ 0x1c [23];
        flag relaxed_ordering_read_pci_enabled, set_relaxed_ordering_read_pci_enabled @ 0x1c [22];
        bits log_max_mkey, set_log_max_mkey: u8 @ 0x1c [21:16];
        flag terminate_scatter_list_mkey, set_terminate_scatter_list_mkey @ 0x1c [9];
        flag repeated_mkey, set_repeated_mkey @ 0x1c [8];
        flag dump_fill_mkey, set_dump_fill_mkey @ 0x1c [7];
        flag fast_teardown, set_fast_teardown @ 0x1c [4];
        bits log_max_eq, set_log_max_eq: u8 @ 0x1c [3:0];
        bits max_indirection, set_max_indirection: u8 @ 0x20 [31:24];
        flag fixed_buffer_size, set_fixed_buffer_size @ 0x20 [23];
        bits log_max_mrw_sz, set_log_max_mrw_sz: u8 @ 0x20 [22:16];
        flag force_teardown, set_force_teardown @ 0x20 [15];
        bits log_max_bsf_list_size, set_log_max_bsf_list_size: u8 @ 0x20 [13:8];
        flag umr_extended_translation_offset, set_umr_extended_translation_offset @ 0x20 [7];
        flag null_mkey, set_null_mkey @ 0x20 [6];
        bits log_max_klm_list_size, set_log_max_klm_list_size: u8 @ 0x20 [5:0];
        flag qpc_extension, set_qpc_extension @ 0x24 [29];
        bits log_max_ra_req_dc, set_log_max_ra_req_dc: u8 @ 0x24 [21:16];
        flag eth_wqe_too_small, set_eth_wqe_too_small @ 0x24 [13];
        flag vnic_env_cq_overrun, set_vnic_env_cq_overrun @ 0x24 [6];
        bits log_max_ra_res_dc, set_log_max_ra_res_dc: u8 @ 0x24 [5:0];
        flag release_all_pages, set_release_all_pages @ 0x28 [26];
        flag must_not_use, set_must_not_use @ 0x28 [25];
        flag roce_accl, set_roce_accl @ 0x28 [22];
        bits log_max_ra_req_qp, set_log_max_ra_req_qp: u8 @ 0x28 [21:16];
        bits log_max_ra_res_qp, set_log_max_ra_res_qp: u8 @ 0x28 [5:0];
        flag end_pad, set_end_pad @ 0x2c [31];
        flag cc_query_allowed, set_cc_query_allowed @ 0x2c [30];
        flag cc_modify_allowed, set_cc_modify_allowed @ 0x2c [29];
        flag start_pad, set_start_pad @ 0x2c [28];
        flag cache_line_128byte, set_cache_line_128byte @ 0x2c [27];
        flag rts2rts_qp_counters_set_id, set_rts2rts_qp_counters_set_id @ 0x2c [22];
        flag vnic_env_int_rq_oob, set_vnic_env_int_rq_oob @ 0x2c [19];
        flag sbcam_reg, set_sbcam_reg @ 0x2c [18];
        flag qcam_reg, set_qcam_reg @ 0x2c [16];
        bits gid_table_size, set_gid_table_size: u16 @ 0x2c [15:0];
        flag out_of_seq_cnt, set_out_of_seq_cnt @ 0x30 [31];
        flag vport_counters, set_vport_counters @ 0x30 [30];
        flag retransmission_q_counters, set_retransmission_q_counters @ 0x30 [29];
        flag debug, set_debug @ 0x30 [28];
        flag modify_rq_counter_set_id, set_modify_rq_counter_set_id @ 0x30 [27];
        flag rq_delay_drop, set_rq_delay_drop @ 0x30 [26];
        bits max_qp_cnt, set_max_qp_cnt: u16 @ 0x30 [25:16];
        bits pkey_table_size, set_pkey_table_size: u16 @ 0x30 [15:0];
        flag vport_group_manager, set_vport_group_manager @ 0x34 [31];
        flag vhca_group_manager, set_vhca_group_manager @ 0x34 [30];
        flag ib_virt, set_ib_virt @ 0x34 [29];
        flag eth_virt, set_eth_virt @ 0x34 [28];
        flag vnic_env_queue_counters, set_vnic_env_queue_counters @ 0x34 [27];
        flag ets, set_ets @ 0x34 [26];
        flag nic_flow_table, set_nic_flow_table @ 0x34 [25];
        flag eswitch_manager, set_eswitch_manager @ 0x34 [24];
        flag device_memory, set_device_memory @ 0x34 [23];
        flag mcam_reg, set_mcam_reg @ 0x34 [22];
        flag pcam_reg, set_pcam_reg @ 0x34 [21];
        bits local_ca_ack_delay, set_local_ca_ack_delay: u8 @ 0x34 [20:16];
        flag port_module_event, set_port_module_event @ 0x34 [15];
        flag enhanced_error_q_counters, set_enhanced_error_q_counters @ 0x34 [14];
        flag ports_check, set_ports_check @ 0x34 [13];
        flag disable_link_up, set_disable_link_up @ 0x34 [11];
        flag beacon_led, set_beacon_led @ 0x34 [10];
        bits port_type, set_port_type: u8 @ 0x34 [9:8];
        bits num_ports, set_num_ports: u8 @ 0x34 [7:0];
        flag pps, set_pps @ 0x38 [30];
        flag pps_modify, set_pps_modify @ 0x38 [29];
        bits log_max_msg, set_log_max_msg: u8 @ 0x38 [28:24];
        bits max_tc, set_max_tc: u8 @ 0x38 [19:16];
        flag temp_warn_event, set_temp_warn_event @ 0x38 [15];
        flag dcbx, set_dcbx @ 0x38 [14];
        flag general_notification_event, set_general_notification_event @ 0x38 [13];
        flag fpga, set_fpga @ 0x38 [10];
        flag rol_s, set_rol_s @ 0x38 [9];
        flag rol_g, set_rol_g @ 0x38 [8];
        flag wol_s, set_wol_s @ 0x38 [6];
        flag wol_g, set_wol_g @ 0x38 [5];
        flag wol_a, set_wol_a @ 0x38 [4];
        flag wol_b, set_wol_b @ 0x38 [3];
        flag wol_m, set_wol_m @ 0x38 [2];
        flag wol_u, set_wol_u @ 0x38 [1];
        flag wol_p, set_wol_p @ 0x38 [0];
        bits stat_rate_support, set_stat_rate_support: u16 @ 0x3c [31:16];
        flag pci_sync_for_fw_update_event, set_pci_sync_for_fw_update_event @ 0x3c [14];
        flag init2_lag_tx_port_affinity, set_init2_lag_tx_port_affinity @ 0x3c [7];
        flag wqe_based_flow_table_update_cap, set_wqe_based_flow_table_update_cap @ 0x3c [4];
        bits cqe_version, set_cqe_version: u8 @ 0x3c [3:0];
        flag compact_address_vector, set_compact_address_vector @ 0x40 [31];
        flag striding_rq, set_striding_rq @ 0x40 [30];
        flag ipoib_enhanced_offloads, set_ipoib_enhanced_offloads @ 0x40 [28];
        flag ipoib_basic_offloads, set_ipoib_basic_offloads @ 0x40 [27];
        flag repeated_block_disabled, set_repeated_block_disabled @ 0x40 [25];
        flag umr_modify_entity_size_disabled, set_umr_modify_entity_size_disabled @ 0x40 [24];
        flag umr_modify_atomic_disabled, set_umr_modify_atomic_disabled @ 0x40 [23];
        flag umr_indirect_mkey_disabled, set_umr_indirect_mkey_disabled @ 0x40 [22];
        bits umr_fence, set_umr_fence: u8 @ 0x40 [21:20];
        flag dc_req_scat_data_cqe, set_dc_req_scat_data_cqe @ 0x40 [19];
        flag drain_sigerr, set_drain_sigerr @ 0x40 [16];
        bits cmdif_checksum, set_cmdif_checksum: u8 @ 0x40 [15:14];
        flag sigerr_cqe, set_sigerr_cqe @ 0x40 [13];
        flag wq_signature, set_wq_signature @ 0x40 [11];
        flag sctr_data_cqe, set_sctr_data_cqe @ 0x40 [10];
        flag sho, set_sho @ 0x40 [8];
        flag tph, set_tph @ 0x40 [7];
        flag rf, set_rf @ 0x40 [6];
        flag dct, set_dct @ 0x40 [5];
        flag qos, set_qos @ 0x40 [4];
        flag eth_net_offloads, set_eth_net_offloads @ 0x40 [3];
        flag roce, set_roce @ 0x40 [2];
        flag atomic, set_atomic @ 0x40 [1];
        flag cq_oi, set_cq_oi @ 0x44 [31];
        flag cq_resize, set_cq_resize @ 0x44 [30];
        flag cq_moderation, set_cq_moderation @ 0x44 [29];
        flag cq_period_mode_modify, set_cq_period_mode_modify @ 0x44 [28];
        flag cq_eq_remap, set_cq_eq_remap @ 0x44 [25];
        flag pg, set_pg @ 0x44 [24];
        flag block_lb_mc, set_block_lb_mc @ 0x44 [23];
        flag scqe_break_moderation, set_scqe_break_moderation @ 0x44 [21];
        flag cq_period_start_from_cqe, set_cq_period_start_from_cqe @ 0x44 [20];
        flag cd, set_cd @ 0x44 [19];
        flag apm, set_apm @ 0x44 [17];
        flag vector_calc, set_vector_calc @ 0x44 [16];
        flag umr_ptr_rlky, set_umr_ptr_rlky @ 0x44 [15];
        flag imaicl, set_imaicl @ 0x44 [14];
        flag qp_packet_based, set_qp_packet_based @ 0x44 [13];
        flag qkv, set_qkv @ 0x44 [9];
        flag pkv, set_pkv @ 0x44 [8];
        flag set_deth_sqpn, set_set_deth_sqpn @ 0x44 [7];
        flag xrc, set_xrc @ 0x44 [3];
        flag ud, set_ud @ 0x44 [2];
        flag uc, set_uc @ 0x44 [1];
        flag rc, set_rc @ 0x44 [0];
        flag uar_4k, set_uar_4k @ 0x48 [31];
        flag fl_rc_qp_when_roce_disabled, set_fl_rc_qp_when_roce_disabled @ 0x48 [23];
        flag regexp_params, set_regexp_params @ 0x48 [22];
        bits uar_sz, set_uar_sz: u8 @ 0x48 [21:16];
        flag port_selection_cap, set_port_selection_cap @ 0x48 [15];
        flag nic_cap_reg, set_nic_cap_reg @ 0x48 [14];
        flag umem_uid_0, set_umem_uid_0 @ 0x48 [13];
        bits log_pg_sz, set_log_pg_sz: u8 @ 0x48 [7:0];
        flag bf, set_bf @ 0x4c [31];
        flag driver_version, set_driver_version @ 0x4c [30];
        flag pad_tx_eth_packet, set_pad_tx_eth_packet @ 0x4c [29];
        flag mkey_by_name, set_mkey_by_name @ 0x4c [25];
        bits log_bf_reg_size, set_log_bf_reg_size: u8 @ 0x4c [20:16];
        flag disciplined_fr_counter, set_disciplined_fr_counter @ 0x4c [15];
        flag qp_error_syndrome, set_qp_error_syndrome @ 0x4c [12];
        bits lag_dct, set_lag_dct: u8 @ 0x4c [9:8];
        flag lag_tx_port_affinity, set_lag_tx_port_affinity @ 0x4c [7];
        flag lag_native_fdb_selection, set_lag_native_fdb_selection @ 0x4c [6];
        flag lag_master, set_lag_master @ 0x4c [4];
        bits num_lag_ports, set_num_lag_ports: u8 @ 0x4c [3:0];
        bits max_wqe_sz_sq, set_max_wqe_sz_sq: u16 @ 0x50 [15:0];
        flag icm_mng_function_id_mode, set_icm_mng_function_id_mode @ 0x54 [31];
        flag mkey_pcie_tph, set_mkey_pcie_tph @ 0x54 [24];
        flag tis_tir_td_order, set_tis_tir_td_order @ 0x54 [22];
        flag psp, set_psp @ 0x54 [21];
        flag shampo, set_shampo @ 0x54 [20];
        bits max_wqe_sz_rq, set_max_wqe_sz_rq: u16 @ 0x54 [15:0];
        bits max_flow_counter_31_16, set_max_flow_counter_31_16: u16 @ 0x58 [31:16];
        bits max_wqe_sz_sq_dc, set_max_wqe_sz_sq_dc: u16 @ 0x58 [15:0];
        bits query_host_net_function_num_max, set_query_host_net_function_num_max: u8 @ 0x5c [31:27];
        bits max_qp_mcg, set_max_qp_mcg: u32 @ 0x5c [24:0];
        bits flow_counter_bulk_alloc, set_flow_counter_bulk_alloc: u8 @ 0x60 [15:8];
        bits log_max_mcg, set_log_max_mcg: u8 @ 0x60 [7:0];
        bits log_max_transport_domain, set_log_max_transport_domain: u8 @ 0x64 [28:24];
        flag relaxed_ordering_read, set_relaxed_ordering_read @ 0x64 [21];
        bits log_max_pd, set_log_max_pd: u8 @ 0x64 [20:16];
        flag dp_ordering_ooo_all_ud, set_dp_ordering_ooo_all_ud @ 0x64 [15];
        flag dp_ordering_ooo_all_uc, set_dp_ordering_ooo_all_uc @ 0x64 [14];
        flag dp_ordering_ooo_all_xrc, set_dp_ordering_ooo_all_xrc @ 0x64 [13];
        flag dp_ordering_ooo_all_dc, set_dp_ordering_ooo_all_dc @ 0x64 [12];
        flag dp_ordering_ooo_all_rc, set_dp_ordering_ooo_all_rc @ 0x64 [11];
        flag pcie_reset_using_hotreset_method, set_pcie_reset_using_hotreset_method @ 0x64 [10];
        flag pci_sync_for_fw_update_with_driver_unload, set_pci_sync_for_fw_update_with_driver_unload @ 0x64 [9];
        flag vnic_env_cnt_steering_fail, set_vnic_env_cnt_steering_fail @ 0x64 [8];
        flag vport_counter_local_loopback, set_vport_counter_local_loopback @ 0x64 [7];
        flag q_counter_aggregation, set_q_counter_aggregation @ 0x64 [6];
        flag q_counter_other_vport, set_q_counter_other_vport @ 0x64 [5];
        bits log_max_xrcd, set_log_max_xrcd: u8 @ 0x64 [4:0];
        flag nic_receive_steering_discard, set_nic_receive_steering_discard @ 0x68 [31];
        flag receive_discard_vport_down, set_receive_discard_vport_down @ 0x68 [30];
        flag transmit_discard_vport_down, set_transmit_discard_vport_down @ 0x68 [29];
        flag eq_overrun_count, set_eq_overrun_count @ 0x68 [28];
        flag invalid_command_count, set_invalid_command_count @ 0x68 [26];
        flag quota_exceeded_count, set_quota_exceeded_count @ 0x68 [25];
        bits log_max_flow_counter_bulk, set_log_max_flow_counter_bulk: u8 @ 0x68 [23:16];
        bits max_flow_counter_15_0, set_max_flow_counter_15_0: u16 @ 0x68 [15:0];
        bits log_max_rq, set_log_max_rq: u8 @ 0x6c [28:24];
        flag ft_alias_sw_vhca_id, set_ft_alias_sw_vhca_id @ 0x6c [23];
        bits log_max_sq, set_log_max_sq: u8 @ 0x6c [20:16];
        bits log_max_tir, set_log_max_tir: u8 @ 0x6c [12:8];
        bits log_max_tis, set_log_max_tis: u8 @ 0x6c [4:0];
        flag basic_cyclic_rcv_wqe, set_basic_cyclic_rcv_wqe @ 0x70 [31];
        bits log_max_rmp, set_log_max_rmp: u8 @ 0x70 [28:24];
        flag sd_group_size, set_sd_group_size @ 0x70 [23];
        bits log_max_rqt, set_log_max_rqt: u8 @ 0x70 [20:16];
        bits log_max_rqt_size, set_log_max_rqt_size: u8 @ 0x70 [12:8];
        flag tlp_device_emulation_manager, set_tlp_device_emulation_manager @ 0x70 [7];
        flag vnic_env_cnt_bar_uar_access, set_vnic_env_cnt_bar_uar_access @ 0x70 [6];
        flag vnic_env_cnt_odp_page_fault, set_vnic_env_cnt_odp_page_fault @ 0x70 [5];
        bits log_max_tis_per_sq, set_log_max_tis_per_sq: u8 @ 0x70 [4:0];
        flag ext_stride_num_range, set_ext_stride_num_range @ 0x74 [31];
        flag roce_rw_supported, set_roce_rw_supported @ 0x74 [30];
        flag log_max_current_uc_list_wr_supported, set_log_max_current_uc_list_wr_supported @ 0x74 [29];
        bits log_max_stride_sz_rq, set_log_max_stride_sz_rq: u8 @ 0x74 [28:24];
        bits log_min_stride_sz_rq, set_log_min_stride_sz_rq: u8 @ 0x74 [20:16];
        flag qp_latency_sensitive_disable, set_qp_latency_sensitive_disable @ 0x74 [13];
        bits log_max_stride_sz_sq, set_log_max_stride_sz_sq: u8 @ 0x74 [12:8];
        bits log_min_stride_sz_sq, set_log_min_stride_sz_sq: u8 @ 0x74 [4:0];
        flag hairpin, set_hairpin @ 0x78 [31];
        bits log_max_hairpin_queues, set_log_max_hairpin_queues: u8 @ 0x78 [28:24];
        bits log_max_hairpin_wq_data_sz, set_log_max_hairpin_wq_data_sz: u8 @ 0x78 [20:16];
        bits log_max_hairpin_num_packets, set_log_max_hairpin_num_packets: u8 @ 0x78 [12:8];
        bits log_max_wq_sz, set_log_max_wq_sz: u8 @ 0x78 [4:0];
        flag nic_vport_change_event, set_nic_vport_change_event @ 0x7c [31];
        flag disable_local_lb_uc, set_disable_local_lb_uc @ 0x7c [30];
        flag disable_local_lb_mc, set_disable_local_lb_mc @ 0x7c [29];
        bits log_min_hairpin_wq_data_sz, set_log_min_hairpin_wq_data_sz: u8 @ 0x7c [28:24];
        flag silent_mode_set, set_silent_mode_set @ 0x7c [22];
        flag vhca_state, set_vhca_state @ 0x7c [21];
        bits log_max_vlan_list, set_log_max_vlan_list: u8 @ 0x7c [20:16];
        bits log_max_current_mc_list, set_log_max_current_mc_list: u8 @ 0x7c [12:8];
        flag silent_mode_query, set_silent_mode_query @ 0x7c [6];
        flag query_host_net_function_v1, set_query_host_net_function_v1 @ 0x7c [5];
        bits log_max_current_uc_list, set_log_max_current_uc_list: u8 @ 0x7c [4:0];
        bits general_obj_types, set_general_obj_types: u64 @ 0x80 [63:0];
        bits sq_ts_format, set_sq_ts_format: u8 @ 0x88 [31:30];
        bits rq_ts_format, set_rq_ts_format: u8 @ 0x88 [29:28];
        bits steering_format_version, set_steering_format_version: u8 @ 0x88 [27:24];
        bits create_qp_start_hint, set_create_qp_start_hint: u32 @ 0x88 [23:0];
        flag ats, set_ats @ 0x8c [30];
        flag cross_vhca_rqt, set_cross_vhca_rqt @ 0x8c [29];
        bits log_max_uctx, set_log_max_uctx: u8 @ 0x8c [28:24];
        flag crypto, set_crypto @ 0x8c [22];
        flag ipsec_offload, set_ipsec_offload @ 0x8c [21];
        bits log_max_umem, set_log_max_umem: u8 @ 0x8c [20:16];
        bits max_num_eqs, set_max_num_eqs: u16 @ 0x8c [15:0];
        flag tls_tx, set_tls_tx @ 0x90 [30];
        flag tls_rx, set_tls_rx @ 0x90 [29];
        bits log_max_l2_table, set_log_max_l2_table: u8 @ 0x90 [28:24];
        bits log_uar_page_sz, set_log_uar_page_sz: u16 @ 0x90 [15:0];
        bits device_frequency_mhz, set_device_frequency_mhz: u32 @ 0x98 [31:0];
        bits device_frequency_khz, set_device_frequency_khz: u32 @ 0x9c [31:0];
        bits num_of_uars_per_page, set_num_of_uars_per_page: u32 @ 0xa4 [31:0];
        bits flex_parser_protocols, set_flex_parser_protocols: u32 @ 0xa8 [31:0];
        bits max_geneve_tlv_options, set_max_geneve_tlv_options: u8 @ 0xac [31:24];
        bits max_geneve_tlv_option_data_len, set_max_geneve_tlv_option_data_len: u8 @ 0xac [20:16];
        flag adv_rdma, set_adv_rdma @ 0xac [14];
        flag adv_virtualization, set_adv_virtualization @ 0xac [6];
        bits log_max_dci_stream_channels, set_log_max_dci_stream_channels: u8 @ 0xb0 [20:16];
        bits log_max_dci_errored_streams, set_log_max_dci_errored_streams: u8 @ 0xb0 [12:8];
        flag enhanced_cqe_compression, set_enhanced_cqe_compression @ 0xb4 [15];
        flag crossing_vhca_mkey, set_crossing_vhca_mkey @ 0xb4 [13];
        bits log_max_dek, set_log_max_dek: u8 @ 0xb4 [12:8];
        flag mini_cqe_resp_stride_index, set_mini_cqe_resp_stride_index @ 0xb4 [3];
        flag cqe_128_always, set_cqe_128_always @ 0xb4 [2];
        flag cqe_compression_128, set_cqe_compression_128 @ 0xb4 [1];
        flag cqe_compression, set_cqe_compression @ 0xb4 [0];
        bits cqe_compression_timeout, set_cqe_compression_timeout: u16 @ 0xb8 [31:16];
        bits cqe_compression_max_num, set_cqe_compression_max_num: u16 @ 0xb8 [15:0];
        bits flex_parser_id_gtpu_dw_0, set_flex_parser_id_gtpu_dw_0: u8 @ 0xbc [23:20];
        flag tag_matching, set_tag_matching @ 0xbc [15];
        flag rndv_offload_rc, set_rndv_offload_rc @ 0xbc [14];
        flag rndv_offload_dc, set_rndv_offload_dc @ 0xbc [13];
        bits log_tag_matching_list_sz, set_log_tag_matching_list_sz: u8 @ 0xbc [12:8];
        bits log_max_xrq, set_log_max_xrq: u8 @ 0xbc [4:0];
        bits affiliate_nic_vport_criteria, set_affiliate_nic_vport_criteria: u8 @ 0xc0 [31:24];
        bits native_port_num, set_native_port_num: u8 @ 0xc0 [23:16];
        bits num_vhca_ports, set_num_vhca_ports: u8 @ 0xc0 [15:8];
        bits flex_parser_id_gtpu_teid, set_flex_parser_id_gtpu_teid: u8 @ 0xc0 [7:4];
        flag sw_owner_id, set_sw_owner_id @ 0xc0 [1];
        bits max_num_of_monitor_counters, set_max_num_of_monitor_counters: u16 @ 0xc4 [31:16];
        bits num_ppcnt_monitor_counters, set_num_ppcnt_monitor_counters: u16 @ 0xc4 [15:0];
        bits max_num_sf, set_max_num_sf: u16 @ 0xc8 [31:16];
        bits num_q_monitor_counters, set_num_q_monitor_counters: u16 @ 0xc8 [15:0];
        flag sf, set_sf @ 0xd0 [31];
        flag sf_set_partition, set_sf_set_partition @ 0xd0 [30];
        bits log_max_sf, set_log_max_sf: u8 @ 0xd0 [28:24];
        flag apu, set_apu @ 0xd0 [23];
        flag migration, set_migration @ 0xd0 [18];
        bits log_min_sf_size, set_log_min_sf_size: u8 @ 0xd0 [15:8];
        bits max_num_sf_partitions, set_max_num_sf_partitions: u8 @ 0xd0 [7:0];
        bits uctx_cap, set_uctx_cap: u32 @ 0xd4 [31:0];
        bits flex_parser_id_geneve_tlv_option_0, set_flex_parser_id_geneve_tlv_option_0: u8 @ 0xd8 [27:24];
        bits flex_parser_id_icmp_dw1, set_flex_parser_id_icmp_dw1: u8 @ 0xd8 [23:20];
        bits flex_parser_id_icmp_dw0, set_flex_parser_id_icmp_dw0: u8 @ 0xd8 [19:16];
        bits flex_parser_id_icmpv6_dw1, set_flex_parser_id_icmpv6_dw1: u8 @ 0xd8 [15:12];
        bits flex_parser_id_icmpv6_dw0, set_flex_parser_id_icmpv6_dw0: u8 @ 0xd8 [11:8];
        bits flex_parser_id_outer_first_mpls_over_gre, set_flex_parser_id_outer_first_mpls_over_gre: u8 @ 0xd8 [7:4];
        bits flex_parser_id_outer_first_mpls_over_udp_label, set_flex_parser_id_outer_first_mpls_over_udp_label: u8 @ 0xd8 [3:0];
        bits max_num_match_definer, set_max_num_match_definer: u16 @ 0xdc [31:16];
        bits sf_base_id, set_sf_base_id: u16 @ 0xdc [15:0];
        bits flex_parser_id_gtpu_dw_2, set_flex_parser_id_gtpu_dw_2: u8 @ 0xe0 [31:28];
        bits flex_parser_id_gtpu_first_ext_dw_0, set_flex_parser_id_gtpu_first_ext_dw_0: u8 @ 0xe0 [27:24];
        bits num_total_dynamic_vf_msix, set_num_total_dynamic_vf_msix: u32 @ 0xe0 [23:0];
        bits dynamic_msix_table_size, set_dynamic_msix_table_size: u16 @ 0xe4 [11:0];
        bits min_dynamic_vf_msix_table_size, set_min_dynamic_vf_msix_table_size: u8 @ 0xe8 [19:16];
        flag data_direct, set_data_direct @ 0xe8 [13];
        bits max_dynamic_vf_msix_table_size, set_max_dynamic_vf_msix_table_size: u16 @ 0xe8 [11:0];
        bits log_max_num_header_modify_argument, set_log_max_num_header_modify_argument: u8 @ 0xec [28:24];
        bits log_header_modify_argument_granularity_offset, set_log_header_modify_argument_granularity_offset: u8 @ 0xec [23:20];
        bits log_header_modify_argument_granularity, set_log_header_modify_argument_granularity: u8 @ 0xec [19:16];
        bits log_header_modify_argument_max_alloc, set_log_header_modify_argument_max_alloc: u8 @ 0xec [12:8];
        bits vhca_tunnel_commands, set_vhca_tunnel_commands: u64 @ 0xf0 [63:0];
        bits match_definer_format_supported, set_match_definer_format_supported: u64 @ 0xf8 [63:0];
    }
}

layout! {
    /// More general capabilities ([`CapabilityGroup::General2`](crate::values::CapabilityGroup::General2)): what
    /// Linux 6.1 names, and `query_vuid`.
    pub struct HcaCap2: "cmd_hca_cap_2", 0x100 {
        flag query_vuid, set_query_vuid @ 0x10 [13];
        bits max_reformat_insert_size, set_max_reformat_insert_size: u8 @ 0x14 [31:24];
        bits max_reformat_insert_offset, set_max_reformat_insert_offset: u8 @ 0x14 [23:16];
        bits max_reformat_remove_size, set_max_reformat_remove_size: u8 @ 0x14 [15:8];
        bits max_reformat_remove_offset, set_max_reformat_remove_offset: u8 @ 0x14 [7:0];
        bits log_min_mkey_entity_size, set_log_min_mkey_entity_size: u8 @ 0x34 [20:16];
        flag sw_vhca_id_valid, set_sw_vhca_id_valid @ 0x44 [30];
        bits sw_vhca_id, set_sw_vhca_id: u16 @ 0x44 [29:16];
        bits ts_cqe_metadata_size2wqe_counter, set_ts_cqe_metadata_size2wqe_counter: u8 @ 0x48 [20:16];
    }
}

layout! {
    /// Capabilities of RoCE ([`CapabilityGroup::Roce`](crate::values::CapabilityGroup::Roce)).
    pub struct RoceCap: "roce_cap", 0x100 {
        flag roce_apm, set_roce_apm @ 0x00 [31];
        flag sw_r_roce_src_udp_port, set_sw_r_roce_src_udp_port @ 0x00 [27];
        flag fl_rc_qp_when_roce_disabled, set_fl_rc_qp_when_roce_disabled @ 0x00 [26];
        flag fl_rc_qp_when_roce_enabled, set_fl_rc_qp_when_roce_enabled @ 0x00 [25];
        flag roce_cc_general, set_roce_cc_general @ 0x00 [24];
        flag qp_ooo_transmit_default, set_qp_ooo_transmit_default @ 0x00 [23];
        bits qp_ts_format, set_qp_ts_format: u8 @ 0x00 [1:0];
        bits l3_type, set_l3_type: u8 @ 0x10 [19:16];
        bits roce_version, set_roce_version: u8 @ 0x10 [7:0];
        bits r_roce_dest_udp_port, set_r_roce_dest_udp_port: u16 @ 0x14 [15:0];
        bits r_roce_max_src_udp_port, set_r_roce_max_src_udp_port: u16 @ 0x18 [31:16];
        bits r_roce_min_src_udp_port, set_r_roce_min_src_udp_port: u16 @ 0x18 [15:0];
        bits roce_address_table_size, set_roce_address_table_size: u16 @ 0x1c [15:0];
    }
}

layout! {
    /// Capabilities of atomics ([`CapabilityGroup::Atomic`](crate::values::CapabilityGroup::Atomic)).
    pub struct AtomicCaps: "atomic_caps", 0x100 {
        bits atomic_req_8B_endianness_mode, set_atomic_req_8B_endianness_mode: u8 @ 0x08 [31:30];
        flag supported_atomic_req_8B_endianness_mode_1, set_supported_atomic_req_8B_endianness_mode_1 @ 0x08 [25];
        bits atomic_operations, set_atomic_operations: u16 @ 0x10 [15:0];
        bits atomic_size_qp, set_atomic_size_qp: u16 @ 0x14 [15:0];
        bits atomic_size_dc, set_atomic_size_dc: u16 @ 0x18 [15:0];
    }
}

layout! {
    /// Memory on the device ([`CapabilityGroup::DeviceMemory`](crate::values::CapabilityGroup::DeviceMemory)).
    pub struct DeviceMemCap: "device_mem_cap", 0x100 {
        flag memic, set_memic @ 0x00 [31];
        bits log_min_memic_alloc_size, set_log_min_memic_alloc_size: u8 @ 0x04 [20:16];
        bits log_max_memic_addr_alignment, set_log_max_memic_addr_alignment: u8 @ 0x04 [7:0];
        bits memic_bar_start_addr, set_memic_bar_start_addr: u64 @ 0x08 [63:0];
        bits memic_bar_size, set_memic_bar_size: u32 @ 0x10 [31:0];
        bits max_memic_size, set_max_memic_size: u32 @ 0x14 [31:0];
        bits steering_sw_icm_start_address, set_steering_sw_icm_start_address: u64 @ 0x18 [63:0];
        bits log_header_modify_sw_icm_size, set_log_header_modify_sw_icm_size: u8 @ 0x20 [23:16];
        bits log_sw_icm_alloc_granularity, set_log_sw_icm_alloc_granularity: u8 @ 0x20 [13:8];
        bits log_steering_sw_icm_size, set_log_steering_sw_icm_size: u8 @ 0x20 [7:0];
        bits log_indirect_encap_sw_icm_size, set_log_indirect_encap_sw_icm_size: u8 @ 0x24 [31:24];
        bits log_header_modify_pattern_sw_icm_size, set_log_header_modify_pattern_sw_icm_size: u8 @ 0x24 [7:0];
        bits header_modify_sw_icm_start_address, set_header_modify_sw_icm_start_address: u64 @ 0x28 [63:0];
        bits header_modify_pattern_sw_icm_start_address, set_header_modify_pattern_sw_icm_start_address: u64 @ 0x38 [63:0];
        bits memic_operations, set_memic_operations: u32 @ 0x40 [31:0];
        bits indirect_encap_sw_icm_start_address, set_indirect_encap_sw_icm_start_address: u64 @ 0x48 [63:0];
    }
}

layout! {
    /// Capabilities of Ethernet queues.
    pub struct EthernetOffloadCaps: "per_protocol_networking_offload_caps", 0x100 {
        flag csum_cap, set_csum_cap @ 0x00 [31];
        flag vlan_cap, set_vlan_cap @ 0x00 [30];
        flag lro_cap, set_lro_cap @ 0x00 [29];
        flag lro_psh_flag, set_lro_psh_flag @ 0x00 [28];
        flag lro_time_stamp, set_lro_time_stamp @ 0x00 [27];
        flag wqe_vlan_insert, set_wqe_vlan_insert @ 0x00 [24];
        flag self_lb_en_modifiable, set_self_lb_en_modifiable @ 0x00 [23];
        bits max_lso_cap, set_max_lso_cap: u8 @ 0x00 [20:16];
        bits multi_pkt_send_wqe, set_multi_pkt_send_wqe: u8 @ 0x00 [15:14];
        bits wqe_inline_mode, set_wqe_inline_mode: u8 @ 0x00 [13:12];
        bits rss_ind_tbl_cap, set_rss_ind_tbl_cap: u8 @ 0x00 [11:8];
        flag reg_umr_sq, set_reg_umr_sq @ 0x00 [7];
        flag scatter_fcs, set_scatter_fcs @ 0x00 [6];
        flag enhanced_multi_pkt_send_wqe, set_enhanced_multi_pkt_send_wqe @ 0x00 [5];
        flag tunnel_lso_const_out_ip_id, set_tunnel_lso_const_out_ip_id @ 0x00 [4];
        flag tunnel_lro_gre, set_tunnel_lro_gre @ 0x00 [3];
        flag tunnel_lro_vxlan, set_tunnel_lro_vxlan @ 0x00 [2];
        flag tunnel_stateless_gre, set_tunnel_stateless_gre @ 0x00 [1];
        flag tunnel_stateless_vxlan, set_tunnel_stateless_vxlan @ 0x00 [0];
        flag swp, set_swp @ 0x04 [31];
        flag swp_csum, set_swp_csum @ 0x04 [30];
        flag swp_lso, set_swp_lso @ 0x04 [29];
        flag cqe_checksum_full, set_cqe_checksum_full @ 0x04 [28];
        flag tunnel_stateless_geneve_tx, set_tunnel_stateless_geneve_tx @ 0x04 [27];
        flag tunnel_stateless_mpls_over_udp, set_tunnel_stateless_mpls_over_udp @ 0x04 [26];
        flag tunnel_stateless_mpls_over_gre, set_tunnel_stateless_mpls_over_gre @ 0x04 [25];
        flag tunnel_stateless_vxlan_gpe, set_tunnel_stateless_vxlan_gpe @ 0x04 [24];
        flag tunnel_stateless_ipv4_over_vxlan, set_tunnel_stateless_ipv4_over_vxlan @ 0x04 [23];
        flag tunnel_stateless_ip_over_ip, set_tunnel_stateless_ip_over_ip @ 0x04 [22];
        flag insert_trailer, set_insert_trailer @ 0x04 [21];
        flag tunnel_stateless_ip_over_ip_rx, set_tunnel_stateless_ip_over_ip_rx @ 0x04 [19];
        flag tunnel_stateless_ip_over_ip_tx, set_tunnel_stateless_ip_over_ip_tx @ 0x04 [18];
        bits max_vxlan_udp_ports, set_max_vxlan_udp_ports: u8 @ 0x04 [15:8];
        flag swp_csum_l4_partial, set_swp_csum_l4_partial @ 0x04 [7];
        flag max_geneve_opt_len, set_max_geneve_opt_len @ 0x04 [1];
        flag tunnel_stateless_geneve_rx, set_tunnel_stateless_geneve_rx @ 0x04 [0];
        bits lro_min_mss_size, set_lro_min_mss_size: u16 @ 0x08 [15:0];
        bytes lro_timer_supported_periods, lro_timer_supported_periods_mut: 16 @ 0x30;
    }
}

layout! {
    /// Capabilities of one kind of flow table.
    pub struct FlowTablePropLayout: "flow_table_prop_layout", 0x40 {
        flag ft_support, set_ft_support @ 0x00 [31];
        flag flow_counter, set_flow_counter @ 0x00 [29];
        flag flow_modify_en, set_flow_modify_en @ 0x00 [28];
        flag modify_root, set_modify_root @ 0x00 [27];
        flag identified_miss_table_mode, set_identified_miss_table_mode @ 0x00 [26];
        flag flow_table_modify, set_flow_table_modify @ 0x00 [25];
        flag reformat, set_reformat @ 0x00 [24];
        flag decap, set_decap @ 0x00 [23];
        flag reset_root_to_default, set_reset_root_to_default @ 0x00 [22];
        flag pop_vlan, set_pop_vlan @ 0x00 [21];
        flag push_vlan, set_push_vlan @ 0x00 [20];
        flag pop_vlan_2, set_pop_vlan_2 @ 0x00 [18];
        flag push_vlan_2, set_push_vlan_2 @ 0x00 [17];
        flag reformat_and_vlan_action, set_reformat_and_vlan_action @ 0x00 [16];
        flag sw_owner, set_sw_owner @ 0x00 [14];
        flag reformat_l3_tunnel_to_l2, set_reformat_l3_tunnel_to_l2 @ 0x00 [13];
        flag reformat_l2_to_l3_tunnel, set_reformat_l2_to_l3_tunnel @ 0x00 [12];
        flag reformat_and_modify_action, set_reformat_and_modify_action @ 0x00 [11];
        flag ignore_flow_level, set_ignore_flow_level @ 0x00 [10];
        flag table_miss_action_domain, set_table_miss_action_domain @ 0x00 [8];
        flag termination_table, set_termination_table @ 0x00 [7];
        flag reformat_and_fwd_to_table, set_reformat_and_fwd_to_table @ 0x00 [6];
        flag forward_vhca_rx, set_forward_vhca_rx @ 0x00 [5];
        flag ipsec_encrypt, set_ipsec_encrypt @ 0x00 [3];
        flag ipsec_decrypt, set_ipsec_decrypt @ 0x00 [2];
        flag sw_owner_v2, set_sw_owner_v2 @ 0x00 [1];
        flag termination_table_raw_traffic, set_termination_table_raw_traffic @ 0x04 [31];
        bits log_max_ft_size, set_log_max_ft_size: u8 @ 0x04 [29:24];
        bits log_max_modify_header_context, set_log_max_modify_header_context: u8 @ 0x04 [23:16];
        bits max_modify_header_actions, set_max_modify_header_actions: u8 @ 0x04 [15:8];
        bits max_ft_level, set_max_ft_level: u8 @ 0x04 [7:0];
        flag reformat_add_esp_trasport, set_reformat_add_esp_trasport @ 0x08 [31];
        flag reformat_l2_to_l3_esp_tunnel, set_reformat_l2_to_l3_esp_tunnel @ 0x08 [30];
        flag reformat_add_esp_transport_over_udp, set_reformat_add_esp_transport_over_udp @ 0x08 [29];
        flag reformat_del_esp_trasport, set_reformat_del_esp_trasport @ 0x08 [28];
        flag reformat_l3_esp_tunnel_to_l2, set_reformat_l3_esp_tunnel_to_l2 @ 0x08 [27];
        flag reformat_del_esp_transport_over_udp, set_reformat_del_esp_transport_over_udp @ 0x08 [26];
        flag execute_aso, set_execute_aso @ 0x08 [25];
        flag reformat_l2_to_l3_psp_tunnel, set_reformat_l2_to_l3_psp_tunnel @ 0x0c [31];
        flag reformat_l3_psp_tunnel_to_l2, set_reformat_l3_psp_tunnel_to_l2 @ 0x0c [30];
        flag reformat_insert, set_reformat_insert @ 0x0c [29];
        flag reformat_remove, set_reformat_remove @ 0x0c [28];
        flag macsec_encrypt, set_macsec_encrypt @ 0x0c [27];
        flag macsec_decrypt, set_macsec_decrypt @ 0x0c [26];
        flag psp_encrypt, set_psp_encrypt @ 0x0c [25];
        flag psp_decrypt, set_psp_decrypt @ 0x0c [24];
        flag reformat_add_macsec, set_reformat_add_macsec @ 0x0c [23];
        flag reformat_remove_macsec, set_reformat_remove_macsec @ 0x0c [22];
        flag reparse, set_reparse @ 0x0c [21];
        flag cross_vhca_object, set_cross_vhca_object @ 0x0c [19];
        flag reformat_l2_to_l3_audp_tunnel, set_reformat_l2_to_l3_audp_tunnel @ 0x0c [18];
        flag reformat_l3_audp_tunnel_to_l2, set_reformat_l3_audp_tunnel_to_l2 @ 0x0c [17];
        flag ignore_flow_level_rtc_valid, set_ignore_flow_level_rtc_valid @ 0x0c [16];
        flag reformat_del_psp_transport, set_reformat_del_psp_transport @ 0x0c [8];
        bits log_max_ft_num, set_log_max_ft_num: u8 @ 0x0c [7:0];
        bits log_max_flow_counter, set_log_max_flow_counter: u8 @ 0x10 [15:8];
        bits log_max_destination, set_log_max_destination: u8 @ 0x10 [7:0];
        bits log_max_flow, set_log_max_flow: u8 @ 0x14 [7:0];
        bytes ft_field_support, ft_field_support_mut: 16 @ 0x20;
        bytes ft_field_bitmask_support, ft_field_bitmask_support_mut: 16 @ 0x30;
    }
}

layout! {
    /// Capabilities of flow tables. This crate does not name the rest of the group.
    pub struct FlowTableNicCap: "flow_table_nic_cap", 0x1000 {
        flag nic_rx_multi_path_tirs, set_nic_rx_multi_path_tirs @ 0x00 [31];
        flag nic_rx_multi_path_tirs_fts, set_nic_rx_multi_path_tirs_fts @ 0x00 [30];
        flag allow_sniffer_and_nic_rx_shared_tir, set_allow_sniffer_and_nic_rx_shared_tir @ 0x00 [29];
        flag sw_owner_reformat_supported, set_sw_owner_reformat_supported @ 0x00 [24];
        flag encap_general_header, set_encap_general_header @ 0x04 [31];
        bits log_max_packet_reformat_context, set_log_max_packet_reformat_context: u8 @ 0x04 [20:16];
        bits max_encap_header_size, set_max_encap_header_size: u16 @ 0x04 [9:0];
        part flow_table_properties_nic_receive, flow_table_properties_nic_receive_mut: FlowTablePropLayout @ 0x40;
        part flow_table_properties_nic_receive_rdma, flow_table_properties_nic_receive_rdma_mut: FlowTablePropLayout @ 0x80;
        part flow_table_properties_nic_receive_sniffer, flow_table_properties_nic_receive_sniffer_mut: FlowTablePropLayout @ 0xc0;
        part flow_table_properties_nic_transmit, flow_table_properties_nic_transmit_mut: FlowTablePropLayout @ 0x100;
        part flow_table_properties_nic_transmit_rdma, flow_table_properties_nic_transmit_rdma_mut: FlowTablePropLayout @ 0x140;
        part flow_table_properties_nic_transmit_sniffer, flow_table_properties_nic_transmit_sniffer_mut: FlowTablePropLayout @ 0x180;
        bytes ft_field_support_2_nic_receive_rdma, ft_field_support_2_nic_receive_rdma_mut: 16 @ 0x2a0;
        bytes ft_field_support_2_nic_transmit_rdma, ft_field_support_2_nic_transmit_rdma_mut: 16 @ 0x300;
        bits sw_steering_nic_rx_action_drop_icm_address, set_sw_steering_nic_rx_action_drop_icm_address: u64 @ 0x400 [63:0];
        bits sw_steering_nic_tx_action_drop_icm_address, set_sw_steering_nic_tx_action_drop_icm_address: u64 @ 0x408 [63:0];
        bits sw_steering_nic_tx_action_allow_icm_address, set_sw_steering_nic_tx_action_allow_icm_address: u64 @ 0x410 [63:0];
    }
}

commands! {
    input QueryHcaCapIn of QueryHcaCap: "query_hca_cap_in", 0x10 {
        flag other_function, set_other_function @ 0x08 [31];
        bits function_id, set_function_id: u16 @ 0x08 [15:0];
    }
    output QueryHcaCapOut: "query_hca_cap_out", 0x10 {
        tail capability: 8 @ 0x10;
    }

    input SetHcaCapIn of SetHcaCap: "set_hca_cap_in", 0x10 {
        flag other_function, set_other_function @ 0x08 [31];
        bits function_id, set_function_id: u16 @ 0x08 [15:0];
        tail capability: 8 @ 0x10;
    }
}

#[cfg(test)]
mod golden;
