//! Congestion control of RoCE: its parameters, whether it is in force, and what it did.

use crate::command::commands;
use crate::layout::{Descriptor, Layout, layout};
use crate::numbered::numbered;

numbered! {
    /// The end whose parameters QUERY_CONG_PARAMS and MODIFY_CONG_PARAMS are about, and that QUERY_CONG_STATUS and
    /// MODIFY_CONG_STATUS switch.
    pub enum CongestionPoint: u8, plain {
        /// The reaction point: [`CongControlRRoceEcnRp`].
        Reaction = 1, "R_ROCE_ECN_RP";
        /// The notification point: [`CongControlRRoceEcnNp`].
        Notification = 2, "R_ROCE_ECN_NP";
    }
    /// Both.
    const ALL;
    /// The point with this number.
    fn from_number;
    /// Its usual name.
    fn name;
    /// `cong_protocol` of the commands.
    fn number;
}

layout! {
    /// Parameters of the reaction point, which slows a flow down when notifications come (DCQCN). Rates in Mb/s, times in
    /// microseconds.
    pub struct CongControlRRoceEcnRp: "cong_control_r_roce_ecn_rp", 0x100 {
        flag clamp_tgt_rate, set_clamp_tgt_rate @ 0x0c [27];
        flag clamp_tgt_rate_after_time_inc, set_clamp_tgt_rate_after_time_inc @ 0x0c [23];
        bits rpg_time_reset, set_rpg_time_reset: u32 @ 0x14 [31:0];
        bits rpg_byte_reset, set_rpg_byte_reset: u32 @ 0x18 [31:0];
        bits rpg_threshold, set_rpg_threshold: u32 @ 0x1c [31:0];
        bits rpg_max_rate, set_rpg_max_rate: u32 @ 0x20 [31:0];
        bits rpg_ai_rate, set_rpg_ai_rate: u32 @ 0x24 [31:0];
        bits rpg_hai_rate, set_rpg_hai_rate: u32 @ 0x28 [31:0];
        bits rpg_gd, set_rpg_gd: u32 @ 0x2c [31:0];
        bits rpg_min_dec_fac, set_rpg_min_dec_fac: u32 @ 0x30 [31:0];
        bits rpg_min_rate, set_rpg_min_rate: u32 @ 0x34 [31:0];
        bits rate_to_set_on_first_cnp, set_rate_to_set_on_first_cnp: u32 @ 0x54 [31:0];
        bits dce_tcp_g, set_dce_tcp_g: u32 @ 0x58 [31:0];
        bits dce_tcp_rtt, set_dce_tcp_rtt: u32 @ 0x5c [31:0];
        bits rate_reduce_monitor_period, set_rate_reduce_monitor_period: u32 @ 0x60 [31:0];
        bits initial_alpha_value, set_initial_alpha_value: u32 @ 0x68 [31:0];
    }
}

layout! {
    /// Parameters of the notification point, which answers marked packets by notifications.
    pub struct CongControlRRoceEcnNp: "cong_control_r_roce_ecn_np", 0x100 {
        bits min_time_between_cnps, set_min_time_between_cnps: u32 @ 0x14 [31:0];
        bits cnp_dscp, set_cnp_dscp: u8 @ 0x18 [13:8];
        flag cnp_prio_mode, set_cnp_prio_mode @ 0x18 [3];
        bits cnp_802p_prio, set_cnp_802p_prio: u8 @ 0x18 [2:0];
    }
}

commands! {
    input QueryCongStatusIn of QueryCongStatus: "query_cong_status_in", 0x10 {
        bits priority, set_priority: u8 @ 0x08 [7:4];
        bits cong_protocol, set_cong_protocol: u8 @ 0x08 [3:0];
    }
    output QueryCongStatusOut: "query_cong_status_out", 0x10 {
        flag enable, set_enable @ 0x0c [31];
        flag tag_enable, set_tag_enable @ 0x0c [30];
    }
}
commands! {
    input ModifyCongStatusIn of ModifyCongStatus: "modify_cong_status_in", 0x10 {
        bits priority, set_priority: u8 @ 0x08 [7:4];
        bits cong_protocol, set_cong_protocol: u8 @ 0x08 [3:0];
        flag enable, set_enable @ 0x0c [31];
        flag tag_enable, set_tag_enable @ 0x0c [30];
    }
}
commands! {
    input QueryCongParamsIn of QueryCongParams: "query_cong_params_in", 0x10 {
        bits cong_protocol, set_cong_protocol: u8 @ 0x08 [3:0];
    }
    output QueryCongParamsOut: "query_cong_params_out", 0x110 {
        bytes congestion_parameters, congestion_parameters_mut: 256 @ 0x10;
    }
}
commands! {
    /// The field select, a big-endian dword, says which parameters are written; its bits are [`select`]'s.
    input ModifyCongParamsIn of ModifyCongParams: "modify_cong_params_in", 0x120 {
        bits cong_protocol, set_cong_protocol: u8 @ 0x08 [3:0];
        bytes field_select, field_select_mut: 4 @ 0x0c;
        bytes congestion_parameters, congestion_parameters_mut: 256 @ 0x20;
    }
}
commands! {
    /// The output counts flows that are held back, and congestion notifications (CNPs) that arrived (RP, the reaction
    /// point) and were sent (NP, the notification point). Counters of 64 bits are two fields, `_high` and `_low`.
    input QueryCongStatisticsIn of QueryCongStatistics: "query_cong_statistics_in", 0x10 {
        flag clear, set_clear @ 0x08 [31];
    }
    output QueryCongStatisticsOut: "query_cong_statistics_out", 0x110 {
        bits rp_cur_flows, set_rp_cur_flows: u32 @ 0x10 [31:0];
        bits sum_flows, set_sum_flows: u32 @ 0x14 [31:0];
        bits rp_cnp_ignored_high, set_rp_cnp_ignored_high: u32 @ 0x18 [31:0];
        bits rp_cnp_ignored_low, set_rp_cnp_ignored_low: u32 @ 0x1c [31:0];
        bits rp_cnp_handled_high, set_rp_cnp_handled_high: u32 @ 0x20 [31:0];
        bits rp_cnp_handled_low, set_rp_cnp_handled_low: u32 @ 0x24 [31:0];
        bits time_stamp_high, set_time_stamp_high: u32 @ 0x48 [31:0];
        bits time_stamp_low, set_time_stamp_low: u32 @ 0x4c [31:0];
        bits accumulators_period, set_accumulators_period: u32 @ 0x50 [31:0];
        bits np_ecn_marked_roce_packets_high, set_np_ecn_marked_roce_packets_high: u32 @ 0x54 [31:0];
        bits np_ecn_marked_roce_packets_low, set_np_ecn_marked_roce_packets_low: u32 @ 0x58 [31:0];
        bits np_cnp_sent_high, set_np_cnp_sent_high: u32 @ 0x5c [31:0];
        bits np_cnp_sent_low, set_np_cnp_sent_low: u32 @ 0x60 [31:0];
    }
}

/// Bits of the field select (`MLX5_IB_RP_*_ATTR` and `MLX5_IB_NP_*_ATTR` of Linux's `drivers/infiniband/hw/mlx5/cong.c`).
pub mod select {
    /// Bit of each parameter of the reaction point, by its name.
    pub const REACTION: [(&str, u32); 16] = [
        ("clamp_tgt_rate", 1 << 1),
        ("clamp_tgt_rate_after_time_inc", 1 << 2),
        ("rpg_time_reset", 1 << 3),
        ("rpg_byte_reset", 1 << 4),
        ("rpg_threshold", 1 << 5),
        ("rpg_max_rate", 1 << 6),
        ("rpg_ai_rate", 1 << 7),
        ("rpg_hai_rate", 1 << 8),
        ("rpg_min_dec_fac", 1 << 9),
        ("rpg_min_rate", 1 << 10),
        ("rate_to_set_on_first_cnp", 1 << 11),
        ("dce_tcp_g", 1 << 12),
        ("dce_tcp_rtt", 1 << 13),
        ("rate_reduce_monitor_period", 1 << 14),
        ("initial_alpha_value", 1 << 15),
        ("rpg_gd", 1 << 16),
    ];
    /// Of the notification point. The last bit stands for both fields of the notifications' priority, which is in force with
    /// a mode of 0.
    pub const NOTIFICATION: [(&str, u32); 4] = [
        ("min_time_between_cnps", 1 << 2),
        ("cnp_dscp", 1 << 3),
        ("cnp_prio_mode", 1 << 4),
        ("cnp_802p_prio", 1 << 4),
    ];
}

impl CongestionPoint {
    /// The structure of its parameters.
    #[must_use]
    pub const fn descriptor(self) -> &'static Descriptor {
        match self {
            Self::Reaction => CongControlRRoceEcnRp::DESCRIPTOR,
            Self::Notification => CongControlRRoceEcnNp::DESCRIPTOR,
        }
    }

    /// Bits of the field select, by the parameters' names.
    #[must_use]
    pub const fn select(self) -> &'static [(&'static str, u32)] {
        match self {
            Self::Reaction => &select::REACTION,
            Self::Notification => &select::NOTIFICATION,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_has_its_bit() {
        for &point in CongestionPoint::ALL {
            let fields = point.descriptor().fields;
            assert_eq!(fields.len(), point.select().len());
            for field in fields {
                let mut select = point.select().iter();
                assert!(
                    select.any(|(name, _)| *name == field.name),
                    "{}",
                    field.name
                );
            }
        }
    }
}
