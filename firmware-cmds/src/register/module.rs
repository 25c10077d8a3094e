//! The module or cable in the port, the sensors of temperature, and the link to the host.

use crate::layout::layout;

layout! {
    /// The lanes of a module that are the lanes of the port.
    pub struct PmlpReg: "pmlp_reg", 0x40 {
        flag rxtx, set_rxtx @ 0x00 [31];
        bits local_port, set_local_port: u8 @ 0x00 [23:16];
        bits width, set_width: u8 @ 0x00 [7:0];
        bits lane0_module_mapping, set_lane0_module_mapping: u32 @ 0x04 [31:0];
        bits lane1_module_mapping, set_lane1_module_mapping: u32 @ 0x08 [31:0];
        bits lane2_module_mapping, set_lane2_module_mapping: u32 @ 0x0c [31:0];
        bits lane3_module_mapping, set_lane3_module_mapping: u32 @ 0x10 [31:0];
    }
}

layout! {
    /// Of [`PmlpReg`]: a lane.
    pub struct Lane2ModuleMapping: "lane_2_module_mapping", 0x4 {
        bits rx_lane, set_rx_lane: u8 @ 0x00 [27:24];
        bits tx_lane, set_tx_lane: u8 @ 0x00 [19:16];
        bits module, set_module: u8 @ 0x00 [7:0];
    }
}

layout! {
    /// The memory of a cable or module. `size` bytes are read from `device_address` on, of the upper page `page_number`.
    pub struct MciaReg: "mcia_reg", 0x90 {
        flag l, set_l @ 0x00 [31];
        bits module, set_module: u8 @ 0x00 [23:16];
        bits status, set_status: u8 @ 0x00 [7:0];
        bits i2c_device_address, set_i2c_device_address: u8 @ 0x04 [31:24];
        bits page_number, set_page_number: u8 @ 0x04 [23:16];
        bits device_address, set_device_address: u16 @ 0x04 [15:0];
        bits size, set_size: u16 @ 0x08 [15:0];
        bytes dwords, dwords_mut: 128 @ 0x10;
    }
}

layout! {
    /// Forward error correction of the port, for each speed: what can be, what is asked for, and what is in use.
    pub struct PplmReg: "pplm_reg", 0x78 {
        bits local_port, set_local_port: u8 @ 0x00 [23:16];
        bits port_profile_mode, set_port_profile_mode: u8 @ 0x08 [31:24];
        bits static_port_profile, set_static_port_profile: u8 @ 0x08 [23:16];
        bits active_port_profile, set_active_port_profile: u8 @ 0x08 [15:8];
        bits retransmission_active, set_retransmission_active: u8 @ 0x0c [31:24];
        bits fec_mode_active, set_fec_mode_active: u32 @ 0x0c [23:0];
        bits rs_fec_correction_bypass_cap, set_rs_fec_correction_bypass_cap: u8 @ 0x10 [31:28];
        bits fec_override_cap_56g, set_fec_override_cap_56g: u8 @ 0x10 [19:16];
        bits fec_override_cap_100g, set_fec_override_cap_100g: u8 @ 0x10 [15:12];
        bits fec_override_cap_50g, set_fec_override_cap_50g: u8 @ 0x10 [11:8];
        bits fec_override_cap_25g, set_fec_override_cap_25g: u8 @ 0x10 [7:4];
        bits fec_override_cap_10g_40g, set_fec_override_cap_10g_40g: u8 @ 0x10 [3:0];
        bits rs_fec_correction_bypass_admin, set_rs_fec_correction_bypass_admin: u8 @ 0x14 [31:28];
        bits fec_override_admin_56g, set_fec_override_admin_56g: u8 @ 0x14 [19:16];
        bits fec_override_admin_100g, set_fec_override_admin_100g: u8 @ 0x14 [15:12];
        bits fec_override_admin_50g, set_fec_override_admin_50g: u8 @ 0x14 [11:8];
        bits fec_override_admin_25g, set_fec_override_admin_25g: u8 @ 0x14 [7:4];
        bits fec_override_admin_10g_40g, set_fec_override_admin_10g_40g: u8 @ 0x14 [3:0];
        bits fec_override_cap_400g_8x, set_fec_override_cap_400g_8x: u16 @ 0x18 [31:16];
        bits fec_override_cap_200g_4x, set_fec_override_cap_200g_4x: u16 @ 0x18 [15:0];
        bits fec_override_cap_100g_2x, set_fec_override_cap_100g_2x: u16 @ 0x1c [31:16];
        bits fec_override_cap_50g_1x, set_fec_override_cap_50g_1x: u16 @ 0x1c [15:0];
        bits fec_override_admin_400g_8x, set_fec_override_admin_400g_8x: u16 @ 0x20 [31:16];
        bits fec_override_admin_200g_4x, set_fec_override_admin_200g_4x: u16 @ 0x20 [15:0];
        bits fec_override_admin_100g_2x, set_fec_override_admin_100g_2x: u16 @ 0x24 [31:16];
        bits fec_override_admin_50g_1x, set_fec_override_admin_50g_1x: u16 @ 0x24 [15:0];
        bits fec_override_cap_800g_8x, set_fec_override_cap_800g_8x: u16 @ 0x28 [31:16];
        bits fec_override_cap_400g_4x, set_fec_override_cap_400g_4x: u16 @ 0x28 [15:0];
        bits fec_override_cap_200g_2x, set_fec_override_cap_200g_2x: u16 @ 0x2c [31:16];
        bits fec_override_cap_100g_1x, set_fec_override_cap_100g_1x: u16 @ 0x2c [15:0];
        bits fec_override_admin_800g_8x, set_fec_override_admin_800g_8x: u16 @ 0x44 [31:16];
        bits fec_override_admin_400g_4x, set_fec_override_admin_400g_4x: u16 @ 0x44 [15:0];
        bits fec_override_admin_200g_2x, set_fec_override_admin_200g_2x: u16 @ 0x48 [31:16];
        bits fec_override_admin_100g_1x, set_fec_override_admin_100g_1x: u16 @ 0x48 [15:0];
        bits fec_override_cap_1600g_8x, set_fec_override_cap_1600g_8x: u16 @ 0x58 [31:16];
        bits fec_override_cap_800g_4x, set_fec_override_cap_800g_4x: u16 @ 0x58 [15:0];
        bits fec_override_cap_400g_2x, set_fec_override_cap_400g_2x: u16 @ 0x5c [31:16];
        bits fec_override_cap_200g_1x, set_fec_override_cap_200g_1x: u16 @ 0x5c [15:0];
        bits fec_override_admin_1600g_8x, set_fec_override_admin_1600g_8x: u16 @ 0x60 [31:16];
        bits fec_override_admin_800g_4x, set_fec_override_admin_800g_4x: u16 @ 0x60 [15:0];
        bits fec_override_admin_400g_2x, set_fec_override_admin_400g_2x: u16 @ 0x64 [31:16];
        bits fec_override_admin_200g_1x, set_fec_override_admin_200g_1x: u16 @ 0x64 [15:0];
    }
}

layout! {
    /// The number of temperature sensors, and the numbers of those that are not a module's.
    pub struct MtcapReg: "mtcap_reg", 0x10 {
        bits sensor_count, set_sensor_count: u8 @ 0x00 [6:0];
        bits sensor_map, set_sensor_map: u64 @ 0x08 [63:0];
    }
}

layout! {
    /// A sensor of temperature; those of modules are numbered from 64. Temperatures in eighths of a degree Celsius, signed.
    pub struct MtmpReg: "mtmp_reg", 0x20 {
        bits sensor_index, set_sensor_index: u16 @ 0x00 [11:0];
        bits temperature, set_temperature: u16 @ 0x04 [15:0];
        flag mte, set_mte @ 0x08 [31];
        flag mtr, set_mtr @ 0x08 [30];
        bits max_temperature, set_max_temperature: u16 @ 0x08 [15:0];
        bits tee, set_tee: u8 @ 0x0c [31:30];
        bits temp_threshold_hi, set_temp_threshold_hi: u16 @ 0x0c [15:0];
        bits temp_threshold_lo, set_temp_threshold_lo: u16 @ 0x10 [15:0];
        bits sensor_name_hi, set_sensor_name_hi: u32 @ 0x18 [31:0];
        bits sensor_name_lo, set_sensor_name_lo: u32 @ 0x1c [31:0];
    }
}

layout! {
    /// Counters of the PCI Express link; the group decides what the counter set holds.
    pub struct MpcntReg: "mpcnt_reg", 0x100 {
        bits pcie_index, set_pcie_index: u8 @ 0x00 [23:16];
        bits grp, set_grp: u8 @ 0x00 [5:0];
        flag clr, set_clr @ 0x04 [31];
        bytes counter_set, counter_set_mut: 248 @ 0x08;
    }
}

layout! {
    /// MPCNT group 0: errors and stalls of the PCI Express link.
    pub struct PciePerformanceCounters: "pcie_perf_cntrs_grp_data_layout", 0xf8 {
        bits life_time_counter_high, set_life_time_counter_high: u32 @ 0x00 [31:0];
        bits life_time_counter_low, set_life_time_counter_low: u32 @ 0x04 [31:0];
        bits rx_errors, set_rx_errors: u32 @ 0x08 [31:0];
        bits tx_errors, set_tx_errors: u32 @ 0x0c [31:0];
        bits l0_to_recovery_eieos, set_l0_to_recovery_eieos: u32 @ 0x10 [31:0];
        bits l0_to_recovery_ts, set_l0_to_recovery_ts: u32 @ 0x14 [31:0];
        bits l0_to_recovery_framing, set_l0_to_recovery_framing: u32 @ 0x18 [31:0];
        bits l0_to_recovery_retrain, set_l0_to_recovery_retrain: u32 @ 0x1c [31:0];
        bits crc_error_dllp, set_crc_error_dllp: u32 @ 0x20 [31:0];
        bits crc_error_tlp, set_crc_error_tlp: u32 @ 0x24 [31:0];
        bits tx_overflow_buffer_pkt_high, set_tx_overflow_buffer_pkt_high: u32 @ 0x28 [31:0];
        bits tx_overflow_buffer_pkt_low, set_tx_overflow_buffer_pkt_low: u32 @ 0x2c [31:0];
        bits outbound_stalled_reads, set_outbound_stalled_reads: u32 @ 0x30 [31:0];
        bits outbound_stalled_writes, set_outbound_stalled_writes: u32 @ 0x34 [31:0];
        bits outbound_stalled_reads_events, set_outbound_stalled_reads_events: u32 @ 0x38 [31:0];
        bits outbound_stalled_writes_events, set_outbound_stalled_writes_events: u32 @ 0x3c [31:0];
    }
}
