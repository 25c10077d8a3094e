//! The counters of a port, by the group that PPCNT was asked for.

use crate::layout::{Descriptor, Layout, layout};
use crate::numbered::numbered;

numbered! {
    /// The group of counters that PPCNT is asked for.
    pub enum PortCounterGroup: u8, plain {
        /// IEEE 802.3: [`Eth8023Counters`].
        Ieee8023 = 0x00, "IEEE_802_3";
        /// RFC 2863: [`Rfc2863Counters`].
        Rfc2863 = 0x01, "RFC_2863";
        /// RFC 2819: [`Rfc2819Counters`].
        Rfc2819 = 0x02, "RFC_2819";
        /// The frames that the port held back or lost: [`ExtendedCounters`].
        Extended = 0x05, "ETHERNET_EXTENDED";
        /// One priority: [`PriorityCounters`].
        Priority = 0x10, "PER_PRIORITY";
        /// Bits received and corrected: [`PhysicalCounters`].
        Physical = 0x16, "PHYSICAL_LAYER_STATISTICAL";
        /// An InfiniBand port: [`InfinibandCounters`].
        Infiniband = 0x20, "INFINIBAND_PORT";
    }
    /// Every group that is described here.
    const ALL;
    /// The group with this number.
    fn from_number;
    /// Its usual name.
    fn name;
    /// The number in the register.
    #[inline]
    fn number;
}

impl PortCounterGroup {
    /// The structure of the register's counter set. Counters of 64 bits are two fields, `_high` and `_low`.
    #[must_use]
    pub const fn descriptor(self) -> &'static Descriptor {
        match self {
            Self::Ieee8023 => Eth8023Counters::DESCRIPTOR,
            Self::Rfc2863 => Rfc2863Counters::DESCRIPTOR,
            Self::Rfc2819 => Rfc2819Counters::DESCRIPTOR,
            Self::Extended => ExtendedCounters::DESCRIPTOR,
            Self::Priority => PriorityCounters::DESCRIPTOR,
            Self::Physical => PhysicalCounters::DESCRIPTOR,
            Self::Infiniband => InfinibandCounters::DESCRIPTOR,
        }
    }
}

layout! {
    /// PPCNT group 0: counters of IEEE 802.3.
    pub struct Eth8023Counters: "eth_802_3_cntrs_grp_data_layout", 0xf8 {
        bits a_frames_transmitted_ok_high, set_a_frames_transmitted_ok_high: u32 @ 0x00 [31:0];
        bits a_frames_transmitted_ok_low, set_a_frames_transmitted_ok_low: u32 @ 0x04 [31:0];
        bits a_frames_received_ok_high, set_a_frames_received_ok_high: u32 @ 0x08 [31:0];
        bits a_frames_received_ok_low, set_a_frames_received_ok_low: u32 @ 0x0c [31:0];
        bits a_frame_check_sequence_errors_high, set_a_frame_check_sequence_errors_high: u32 @ 0x10 [31:0];
        bits a_frame_check_sequence_errors_low, set_a_frame_check_sequence_errors_low: u32 @ 0x14 [31:0];
        bits a_alignment_errors_high, set_a_alignment_errors_high: u32 @ 0x18 [31:0];
        bits a_alignment_errors_low, set_a_alignment_errors_low: u32 @ 0x1c [31:0];
        bits a_octets_transmitted_ok_high, set_a_octets_transmitted_ok_high: u32 @ 0x20 [31:0];
        bits a_octets_transmitted_ok_low, set_a_octets_transmitted_ok_low: u32 @ 0x24 [31:0];
        bits a_octets_received_ok_high, set_a_octets_received_ok_high: u32 @ 0x28 [31:0];
        bits a_octets_received_ok_low, set_a_octets_received_ok_low: u32 @ 0x2c [31:0];
        bits a_multicast_frames_xmitted_ok_high, set_a_multicast_frames_xmitted_ok_high: u32 @ 0x30 [31:0];
        bits a_multicast_frames_xmitted_ok_low, set_a_multicast_frames_xmitted_ok_low: u32 @ 0x34 [31:0];
        bits a_broadcast_frames_xmitted_ok_high, set_a_broadcast_frames_xmitted_ok_high: u32 @ 0x38 [31:0];
        bits a_broadcast_frames_xmitted_ok_low, set_a_broadcast_frames_xmitted_ok_low: u32 @ 0x3c [31:0];
        bits a_multicast_frames_received_ok_high, set_a_multicast_frames_received_ok_high: u32 @ 0x40 [31:0];
        bits a_multicast_frames_received_ok_low, set_a_multicast_frames_received_ok_low: u32 @ 0x44 [31:0];
        bits a_broadcast_frames_received_ok_high, set_a_broadcast_frames_received_ok_high: u32 @ 0x48 [31:0];
        bits a_broadcast_frames_received_ok_low, set_a_broadcast_frames_received_ok_low: u32 @ 0x4c [31:0];
        bits a_in_range_length_errors_high, set_a_in_range_length_errors_high: u32 @ 0x50 [31:0];
        bits a_in_range_length_errors_low, set_a_in_range_length_errors_low: u32 @ 0x54 [31:0];
        bits a_out_of_range_length_field_high, set_a_out_of_range_length_field_high: u32 @ 0x58 [31:0];
        bits a_out_of_range_length_field_low, set_a_out_of_range_length_field_low: u32 @ 0x5c [31:0];
        bits a_frame_too_long_errors_high, set_a_frame_too_long_errors_high: u32 @ 0x60 [31:0];
        bits a_frame_too_long_errors_low, set_a_frame_too_long_errors_low: u32 @ 0x64 [31:0];
        bits a_symbol_error_during_carrier_high, set_a_symbol_error_during_carrier_high: u32 @ 0x68 [31:0];
        bits a_symbol_error_during_carrier_low, set_a_symbol_error_during_carrier_low: u32 @ 0x6c [31:0];
        bits a_mac_control_frames_transmitted_high, set_a_mac_control_frames_transmitted_high: u32 @ 0x70 [31:0];
        bits a_mac_control_frames_transmitted_low, set_a_mac_control_frames_transmitted_low: u32 @ 0x74 [31:0];
        bits a_mac_control_frames_received_high, set_a_mac_control_frames_received_high: u32 @ 0x78 [31:0];
        bits a_mac_control_frames_received_low, set_a_mac_control_frames_received_low: u32 @ 0x7c [31:0];
        bits a_unsupported_opcodes_received_high, set_a_unsupported_opcodes_received_high: u32 @ 0x80 [31:0];
        bits a_unsupported_opcodes_received_low, set_a_unsupported_opcodes_received_low: u32 @ 0x84 [31:0];
        bits a_pause_mac_ctrl_frames_received_high, set_a_pause_mac_ctrl_frames_received_high: u32 @ 0x88 [31:0];
        bits a_pause_mac_ctrl_frames_received_low, set_a_pause_mac_ctrl_frames_received_low: u32 @ 0x8c [31:0];
        bits a_pause_mac_ctrl_frames_transmitted_high, set_a_pause_mac_ctrl_frames_transmitted_high: u32 @ 0x90 [31:0];
        bits a_pause_mac_ctrl_frames_transmitted_low, set_a_pause_mac_ctrl_frames_transmitted_low: u32 @ 0x94 [31:0];
    }
}

layout! {
    /// PPCNT group 1: counters of RFC 2863.
    pub struct Rfc2863Counters: "eth_2863_cntrs_grp_data_layout", 0xf8 {
        bits if_in_octets_high, set_if_in_octets_high: u32 @ 0x00 [31:0];
        bits if_in_octets_low, set_if_in_octets_low: u32 @ 0x04 [31:0];
        bits if_in_ucast_pkts_high, set_if_in_ucast_pkts_high: u32 @ 0x08 [31:0];
        bits if_in_ucast_pkts_low, set_if_in_ucast_pkts_low: u32 @ 0x0c [31:0];
        bits if_in_discards_high, set_if_in_discards_high: u32 @ 0x10 [31:0];
        bits if_in_discards_low, set_if_in_discards_low: u32 @ 0x14 [31:0];
        bits if_in_errors_high, set_if_in_errors_high: u32 @ 0x18 [31:0];
        bits if_in_errors_low, set_if_in_errors_low: u32 @ 0x1c [31:0];
        bits if_in_unknown_protos_high, set_if_in_unknown_protos_high: u32 @ 0x20 [31:0];
        bits if_in_unknown_protos_low, set_if_in_unknown_protos_low: u32 @ 0x24 [31:0];
        bits if_out_octets_high, set_if_out_octets_high: u32 @ 0x28 [31:0];
        bits if_out_octets_low, set_if_out_octets_low: u32 @ 0x2c [31:0];
        bits if_out_ucast_pkts_high, set_if_out_ucast_pkts_high: u32 @ 0x30 [31:0];
        bits if_out_ucast_pkts_low, set_if_out_ucast_pkts_low: u32 @ 0x34 [31:0];
        bits if_out_discards_high, set_if_out_discards_high: u32 @ 0x38 [31:0];
        bits if_out_discards_low, set_if_out_discards_low: u32 @ 0x3c [31:0];
        bits if_out_errors_high, set_if_out_errors_high: u32 @ 0x40 [31:0];
        bits if_out_errors_low, set_if_out_errors_low: u32 @ 0x44 [31:0];
        bits if_in_multicast_pkts_high, set_if_in_multicast_pkts_high: u32 @ 0x48 [31:0];
        bits if_in_multicast_pkts_low, set_if_in_multicast_pkts_low: u32 @ 0x4c [31:0];
        bits if_in_broadcast_pkts_high, set_if_in_broadcast_pkts_high: u32 @ 0x50 [31:0];
        bits if_in_broadcast_pkts_low, set_if_in_broadcast_pkts_low: u32 @ 0x54 [31:0];
        bits if_out_multicast_pkts_high, set_if_out_multicast_pkts_high: u32 @ 0x58 [31:0];
        bits if_out_multicast_pkts_low, set_if_out_multicast_pkts_low: u32 @ 0x5c [31:0];
        bits if_out_broadcast_pkts_high, set_if_out_broadcast_pkts_high: u32 @ 0x60 [31:0];
        bits if_out_broadcast_pkts_low, set_if_out_broadcast_pkts_low: u32 @ 0x64 [31:0];
    }
}

layout! {
    /// PPCNT group 2: counters of RFC 2819, packets by their length among them.
    pub struct Rfc2819Counters: "eth_2819_cntrs_grp_data_layout", 0xf8 {
        bits ether_stats_drop_events_high, set_ether_stats_drop_events_high: u32 @ 0x00 [31:0];
        bits ether_stats_drop_events_low, set_ether_stats_drop_events_low: u32 @ 0x04 [31:0];
        bits ether_stats_octets_high, set_ether_stats_octets_high: u32 @ 0x08 [31:0];
        bits ether_stats_octets_low, set_ether_stats_octets_low: u32 @ 0x0c [31:0];
        bits ether_stats_pkts_high, set_ether_stats_pkts_high: u32 @ 0x10 [31:0];
        bits ether_stats_pkts_low, set_ether_stats_pkts_low: u32 @ 0x14 [31:0];
        bits ether_stats_broadcast_pkts_high, set_ether_stats_broadcast_pkts_high: u32 @ 0x18 [31:0];
        bits ether_stats_broadcast_pkts_low, set_ether_stats_broadcast_pkts_low: u32 @ 0x1c [31:0];
        bits ether_stats_multicast_pkts_high, set_ether_stats_multicast_pkts_high: u32 @ 0x20 [31:0];
        bits ether_stats_multicast_pkts_low, set_ether_stats_multicast_pkts_low: u32 @ 0x24 [31:0];
        bits ether_stats_crc_align_errors_high, set_ether_stats_crc_align_errors_high: u32 @ 0x28 [31:0];
        bits ether_stats_crc_align_errors_low, set_ether_stats_crc_align_errors_low: u32 @ 0x2c [31:0];
        bits ether_stats_undersize_pkts_high, set_ether_stats_undersize_pkts_high: u32 @ 0x30 [31:0];
        bits ether_stats_undersize_pkts_low, set_ether_stats_undersize_pkts_low: u32 @ 0x34 [31:0];
        bits ether_stats_oversize_pkts_high, set_ether_stats_oversize_pkts_high: u32 @ 0x38 [31:0];
        bits ether_stats_oversize_pkts_low, set_ether_stats_oversize_pkts_low: u32 @ 0x3c [31:0];
        bits ether_stats_fragments_high, set_ether_stats_fragments_high: u32 @ 0x40 [31:0];
        bits ether_stats_fragments_low, set_ether_stats_fragments_low: u32 @ 0x44 [31:0];
        bits ether_stats_jabbers_high, set_ether_stats_jabbers_high: u32 @ 0x48 [31:0];
        bits ether_stats_jabbers_low, set_ether_stats_jabbers_low: u32 @ 0x4c [31:0];
        bits ether_stats_collisions_high, set_ether_stats_collisions_high: u32 @ 0x50 [31:0];
        bits ether_stats_collisions_low, set_ether_stats_collisions_low: u32 @ 0x54 [31:0];
        bits ether_stats_pkts64octets_high, set_ether_stats_pkts64octets_high: u32 @ 0x58 [31:0];
        bits ether_stats_pkts64octets_low, set_ether_stats_pkts64octets_low: u32 @ 0x5c [31:0];
        bits ether_stats_pkts65to127octets_high, set_ether_stats_pkts65to127octets_high: u32 @ 0x60 [31:0];
        bits ether_stats_pkts65to127octets_low, set_ether_stats_pkts65to127octets_low: u32 @ 0x64 [31:0];
        bits ether_stats_pkts128to255octets_high, set_ether_stats_pkts128to255octets_high: u32 @ 0x68 [31:0];
        bits ether_stats_pkts128to255octets_low, set_ether_stats_pkts128to255octets_low: u32 @ 0x6c [31:0];
        bits ether_stats_pkts256to511octets_high, set_ether_stats_pkts256to511octets_high: u32 @ 0x70 [31:0];
        bits ether_stats_pkts256to511octets_low, set_ether_stats_pkts256to511octets_low: u32 @ 0x74 [31:0];
        bits ether_stats_pkts512to1023octets_high, set_ether_stats_pkts512to1023octets_high: u32 @ 0x78 [31:0];
        bits ether_stats_pkts512to1023octets_low, set_ether_stats_pkts512to1023octets_low: u32 @ 0x7c [31:0];
        bits ether_stats_pkts1024to1518octets_high, set_ether_stats_pkts1024to1518octets_high: u32 @ 0x80 [31:0];
        bits ether_stats_pkts1024to1518octets_low, set_ether_stats_pkts1024to1518octets_low: u32 @ 0x84 [31:0];
        bits ether_stats_pkts1519to2047octets_high, set_ether_stats_pkts1519to2047octets_high: u32 @ 0x88 [31:0];
        bits ether_stats_pkts1519to2047octets_low, set_ether_stats_pkts1519to2047octets_low: u32 @ 0x8c [31:0];
        bits ether_stats_pkts2048to4095octets_high, set_ether_stats_pkts2048to4095octets_high: u32 @ 0x90 [31:0];
        bits ether_stats_pkts2048to4095octets_low, set_ether_stats_pkts2048to4095octets_low: u32 @ 0x94 [31:0];
        bits ether_stats_pkts4096to8191octets_high, set_ether_stats_pkts4096to8191octets_high: u32 @ 0x98 [31:0];
        bits ether_stats_pkts4096to8191octets_low, set_ether_stats_pkts4096to8191octets_low: u32 @ 0x9c [31:0];
        bits ether_stats_pkts8192to10239octets_high, set_ether_stats_pkts8192to10239octets_high: u32 @ 0xa0 [31:0];
        bits ether_stats_pkts8192to10239octets_low, set_ether_stats_pkts8192to10239octets_low: u32 @ 0xa4 [31:0];
    }
}

layout! {
    /// PPCNT group 5: what the port had to hold back or lost.
    pub struct ExtendedCounters: "eth_extended_cntrs_grp_data_layout", 0xf8 {
        bits port_transmit_wait_high, set_port_transmit_wait_high: u32 @ 0x00 [31:0];
        bits port_transmit_wait_low, set_port_transmit_wait_low: u32 @ 0x04 [31:0];
        bits rx_buffer_almost_full_high, set_rx_buffer_almost_full_high: u32 @ 0x28 [31:0];
        bits rx_buffer_almost_full_low, set_rx_buffer_almost_full_low: u32 @ 0x2c [31:0];
        bits rx_buffer_full_high, set_rx_buffer_full_high: u32 @ 0x30 [31:0];
        bits rx_buffer_full_low, set_rx_buffer_full_low: u32 @ 0x34 [31:0];
        bits rx_icrc_encapsulated_high, set_rx_icrc_encapsulated_high: u32 @ 0x38 [31:0];
        bits rx_icrc_encapsulated_low, set_rx_icrc_encapsulated_low: u32 @ 0x3c [31:0];
    }
}

layout! {
    /// PPCNT group 0x10: one priority, with the pause frames of priority flow control.
    pub struct PriorityCounters: "eth_per_prio_grp_data_layout", 0xf8 {
        bits rx_octets_high, set_rx_octets_high: u32 @ 0x00 [31:0];
        bits rx_octets_low, set_rx_octets_low: u32 @ 0x04 [31:0];
        bits rx_frames_high, set_rx_frames_high: u32 @ 0x20 [31:0];
        bits rx_frames_low, set_rx_frames_low: u32 @ 0x24 [31:0];
        bits tx_octets_high, set_tx_octets_high: u32 @ 0x28 [31:0];
        bits tx_octets_low, set_tx_octets_low: u32 @ 0x2c [31:0];
        bits tx_frames_high, set_tx_frames_high: u32 @ 0x48 [31:0];
        bits tx_frames_low, set_tx_frames_low: u32 @ 0x4c [31:0];
        bits rx_pause_high, set_rx_pause_high: u32 @ 0x50 [31:0];
        bits rx_pause_low, set_rx_pause_low: u32 @ 0x54 [31:0];
        bits rx_pause_duration_high, set_rx_pause_duration_high: u32 @ 0x58 [31:0];
        bits rx_pause_duration_low, set_rx_pause_duration_low: u32 @ 0x5c [31:0];
        bits tx_pause_high, set_tx_pause_high: u32 @ 0x60 [31:0];
        bits tx_pause_low, set_tx_pause_low: u32 @ 0x64 [31:0];
        bits tx_pause_duration_high, set_tx_pause_duration_high: u32 @ 0x68 [31:0];
        bits tx_pause_duration_low, set_tx_pause_duration_low: u32 @ 0x6c [31:0];
        bits rx_pause_transition_high, set_rx_pause_transition_high: u32 @ 0x70 [31:0];
        bits rx_pause_transition_low, set_rx_pause_transition_low: u32 @ 0x74 [31:0];
        bits rx_discards_high, set_rx_discards_high: u32 @ 0x78 [31:0];
        bits rx_discards_low, set_rx_discards_low: u32 @ 0x7c [31:0];
        bits device_stall_minor_watermark_cnt_high, set_device_stall_minor_watermark_cnt_high: u32 @ 0x80 [31:0];
        bits device_stall_minor_watermark_cnt_low, set_device_stall_minor_watermark_cnt_low: u32 @ 0x84 [31:0];
        bits device_stall_critical_watermark_cnt_high, set_device_stall_critical_watermark_cnt_high: u32 @ 0x88 [31:0];
        bits device_stall_critical_watermark_cnt_low, set_device_stall_critical_watermark_cnt_low: u32 @ 0x8c [31:0];
    }
}

layout! {
    /// PPCNT group 0x16: bits received and corrected.
    pub struct PhysicalCounters: "phys_layer_statistical_cntrs", 0xf8 {
        bits time_since_last_clear_high, set_time_since_last_clear_high: u32 @ 0x00 [31:0];
        bits time_since_last_clear_low, set_time_since_last_clear_low: u32 @ 0x04 [31:0];
        bits phy_received_bits_high, set_phy_received_bits_high: u32 @ 0x08 [31:0];
        bits phy_received_bits_low, set_phy_received_bits_low: u32 @ 0x0c [31:0];
        bits phy_symbol_errors_high, set_phy_symbol_errors_high: u32 @ 0x10 [31:0];
        bits phy_symbol_errors_low, set_phy_symbol_errors_low: u32 @ 0x14 [31:0];
        bits phy_corrected_bits_high, set_phy_corrected_bits_high: u32 @ 0x18 [31:0];
        bits phy_corrected_bits_low, set_phy_corrected_bits_low: u32 @ 0x1c [31:0];
        bits phy_corrected_bits_lane0_high, set_phy_corrected_bits_lane0_high: u32 @ 0x20 [31:0];
        bits phy_corrected_bits_lane0_low, set_phy_corrected_bits_lane0_low: u32 @ 0x24 [31:0];
        bits phy_corrected_bits_lane1_high, set_phy_corrected_bits_lane1_high: u32 @ 0x28 [31:0];
        bits phy_corrected_bits_lane1_low, set_phy_corrected_bits_lane1_low: u32 @ 0x2c [31:0];
        bits phy_corrected_bits_lane2_high, set_phy_corrected_bits_lane2_high: u32 @ 0x30 [31:0];
        bits phy_corrected_bits_lane2_low, set_phy_corrected_bits_lane2_low: u32 @ 0x34 [31:0];
        bits phy_corrected_bits_lane3_high, set_phy_corrected_bits_lane3_high: u32 @ 0x38 [31:0];
        bits phy_corrected_bits_lane3_low, set_phy_corrected_bits_lane3_low: u32 @ 0x3c [31:0];
    }
}

layout! {
    /// PPCNT group 0x20: the counters of an InfiniBand port (IBTA 16.1.3.5, PortCounters).
    pub struct InfinibandCounters: "ib_port_cntrs_grp_data_layout", 0x28 {
        bits symbol_error_counter, set_symbol_error_counter: u16 @ 0x00 [31:16];
        bits link_error_recovery_counter, set_link_error_recovery_counter: u8 @ 0x00 [15:8];
        bits link_downed_counter, set_link_downed_counter: u8 @ 0x00 [7:0];
        bits port_rcv_errors, set_port_rcv_errors: u16 @ 0x04 [31:16];
        bits port_rcv_remote_physical_errors, set_port_rcv_remote_physical_errors: u16 @ 0x04 [15:0];
        bits port_rcv_switch_relay_errors, set_port_rcv_switch_relay_errors: u16 @ 0x08 [31:16];
        bits port_xmit_discards, set_port_xmit_discards: u16 @ 0x08 [15:0];
        bits port_xmit_constraint_errors, set_port_xmit_constraint_errors: u8 @ 0x0c [31:24];
        bits port_rcv_constraint_errors, set_port_rcv_constraint_errors: u8 @ 0x0c [23:16];
        bits link_overrun_errors, set_link_overrun_errors: u8 @ 0x0c [7:0];
        bits vl_15_dropped, set_vl_15_dropped: u16 @ 0x10 [15:0];
        bits port_xmit_wait, set_port_xmit_wait: u32 @ 0x24 [31:0];
    }
}
