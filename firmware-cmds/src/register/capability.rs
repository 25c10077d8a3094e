//! The registers that a device has, and their features: PCAM for those of the port, MCAM for those of the device, QCAM for
//! those of the quality of service.

use crate::layout::layout;
use crate::values::RegisterId;

layout! {
    /// Registers 0x5000 to 0x507f.
    pub struct PcamReg: "pcam_reg", 0x50 {
        bits feature_group, set_feature_group: u8 @ 0x00 [23:16];
        bits access_reg_group, set_access_reg_group: u8 @ 0x00 [7:0];
        bytes port_access_reg_cap_mask, port_access_reg_cap_mask_mut: 16 @ 0x08;
        part enhanced_features, enhanced_features_mut: PcamEnhancedFeatures @ 0x28;
    }
}

layout! {
    /// Registers 0x9000 to 0x907f, in group 0.
    pub struct McamReg: "mcam_reg", 0x48 {
        bits feature_group, set_feature_group: u8 @ 0x00 [23:16];
        bits access_reg_group, set_access_reg_group: u8 @ 0x00 [7:0];
        bytes mng_access_reg_cap_mask, mng_access_reg_cap_mask_mut: 16 @ 0x08;
        part enhanced_features, enhanced_features_mut: McamEnhancedFeatures @ 0x28;
    }
}

layout! {
    /// Registers 0x4000 to 0x407f.
    pub struct QcamReg: "qcam_reg", 0x48 {
        bits feature_group, set_feature_group: u8 @ 0x00 [23:16];
        bits access_reg_group, set_access_reg_group: u8 @ 0x00 [7:0];
        bytes qos_access_reg_cap_mask, qos_access_reg_cap_mask_mut: 16 @ 0x08;
        bytes qos_feature_cap_mask, qos_feature_cap_mask_mut: 16 @ 0x28;
    }
}

layout! {
    /// Of [`PcamReg`]: features of the registers of the port.
    pub struct PcamEnhancedFeatures: "pcam_enhanced_features", 0x10 {
        flag ppcnt_recovery_counters, set_ppcnt_recovery_counters @ 0x00 [15];
        flag cable_length, set_cable_length @ 0x00 [7];
        flag fec_200G_per_lane_in_pplm, set_fec_200G_per_lane_in_pplm @ 0x00 [2];
        flag fec_100G_per_lane_in_pplm, set_fec_100G_per_lane_in_pplm @ 0x08 [23];
        flag shp_pbmc_pbsr_support, set_shp_pbmc_pbsr_support @ 0x08 [20];
        flag buffer_ownership, set_buffer_ownership @ 0x08 [12];
        flag fec_50G_per_lane_in_pplm, set_fec_50G_per_lane_in_pplm @ 0x0c [23];
        flag rx_icrc_encapsulated_counter, set_rx_icrc_encapsulated_counter @ 0x0c [18];
        flag ptys_extended_ethernet, set_ptys_extended_ethernet @ 0x0c [13];
        flag pfcc_mask, set_pfcc_mask @ 0x0c [9];
        flag per_lane_error_counters, set_per_lane_error_counters @ 0x0c [5];
        flag rx_buffer_fullness_counters, set_rx_buffer_fullness_counters @ 0x0c [4];
        flag ptys_connector_type, set_ptys_connector_type @ 0x0c [3];
        flag ppcnt_discard_group, set_ppcnt_discard_group @ 0x0c [1];
        flag ppcnt_statistical_group, set_ppcnt_statistical_group @ 0x0c [0];
    }
}

layout! {
    /// Of [`McamReg`]: features of the registers of the device.
    pub struct McamEnhancedFeatures: "mcam_enhanced_features", 0x10 {
        flag mtutc_freq_adj_units, set_mtutc_freq_adj_units @ 0x08 [15];
        flag mtutc_time_adjustment_extended_range, set_mtutc_time_adjustment_extended_range @ 0x08 [14];
        flag mcia_32dwords, set_mcia_32dwords @ 0x08 [2];
        flag out_pulse_duration_ns, set_out_pulse_duration_ns @ 0x08 [1];
        flag npps_period, set_npps_period @ 0x08 [0];
        flag reset_state, set_reset_state @ 0x0c [21];
        flag ptpcyc2realtime_modify, set_ptpcyc2realtime_modify @ 0x0c [20];
        flag pci_status_and_power, set_pci_status_and_power @ 0x0c [17];
        flag mark_tx_action_cnp, set_mark_tx_action_cnp @ 0x0c [11];
        flag mark_tx_action_cqe, set_mark_tx_action_cqe @ 0x0c [10];
        flag dynamic_tx_overflow, set_dynamic_tx_overflow @ 0x0c [9];
        flag pcie_outbound_stalled, set_pcie_outbound_stalled @ 0x0c [4];
        flag tx_overflow_buffer_pkt, set_tx_overflow_buffer_pkt @ 0x0c [3];
        flag mtpps_enh_out_per_adj, set_mtpps_enh_out_per_adj @ 0x0c [2];
        flag mtpps_fs, set_mtpps_fs @ 0x0c [1];
        flag pcie_performance_group, set_pcie_performance_group @ 0x0c [0];
    }
}

/// `true` if a register is in the mask of its group: bit 0, the last one, is the group's first register.
#[must_use]
pub const fn in_mask(mask: &[u8; 16], register: RegisterId) -> bool {
    let bit = (register.number() & 0x7f) as usize;
    mask[15 - bit / 8] & 1 << (bit % 8) != 0
}

/// Puts a register into the mask of its group.
pub const fn put_in_mask(mask: &mut [u8; 16], register: RegisterId) {
    let bit = (register.number() & 0x7f) as usize;
    mask[15 - bit / 8] |= 1 << (bit % 8);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the positions that `mlx5_ifc_pcam_regs_5000_to_507f_bits` has for two registers.
    #[test]
    fn registers_count_from_the_end_of_the_mask() {
        let mut mask = [0; 16];
        put_in_mask(&mut mask, RegisterId::Pplm);
        assert_eq!(u128::from_be_bytes(mask), 1 << 35);
        assert!(in_mask(&mask, RegisterId::Pplm) && !in_mask(&mask, RegisterId::Ppcnt));
        put_in_mask(&mut mask, RegisterId::Ppcnt);
        assert_eq!(u128::from_be_bytes(mask), 1 << 35 | 1 << 8);
    }
}
