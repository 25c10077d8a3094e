//! Flow control and the quality of service of a port: pauses, priorities, traffic classes.

use crate::layout::layout;

layout! {
    /// Flow control: pauses of the whole port, and of each priority (bit 0 is priority 0). A field with a mask is
    /// written where its mask says so: `pptx_mask_n` and its like keep the pause, `prio_mask_tx` and `prio_mask_rx` name the
    /// priorities. Watermarks in milliseconds.
    pub struct PfccReg: "pfcc_reg", 0x20 {
        bits buf_ownership, set_buf_ownership: u8 @ 0x00 [27:26];
        bits local_port, set_local_port: u8 @ 0x00 [23:16];
        flag cable_length_mask, set_cable_length_mask @ 0x00 [5];
        flag ppan_mask_n, set_ppan_mask_n @ 0x00 [4];
        flag minor_stall_mask, set_minor_stall_mask @ 0x00 [3];
        flag critical_stall_mask, set_critical_stall_mask @ 0x00 [2];
        bits ppan, set_ppan: u8 @ 0x04 [31:28];
        bits prio_mask_tx, set_prio_mask_tx: u8 @ 0x04 [23:16];
        bits prio_mask_rx, set_prio_mask_rx: u8 @ 0x04 [7:0];
        flag pptx, set_pptx @ 0x08 [31];
        flag aptx, set_aptx @ 0x08 [30];
        flag pptx_mask_n, set_pptx_mask_n @ 0x08 [29];
        bits pfctx, set_pfctx: u8 @ 0x08 [23:16];
        flag pprx, set_pprx @ 0x0c [31];
        flag aprx, set_aprx @ 0x0c [30];
        flag pprx_mask_n, set_pprx_mask_n @ 0x0c [29];
        bits pfcrx, set_pfcrx: u8 @ 0x0c [23:16];
        bits device_stall_minor_watermark, set_device_stall_minor_watermark: u16 @ 0x10 [31:16];
        bits device_stall_critical_watermark, set_device_stall_critical_watermark: u16 @ 0x10 [15:0];
        bits cable_length, set_cable_length: u8 @ 0x14 [7:0];
    }
}

layout! {
    /// The field of a packet that says its priority: 1 the VLAN tag, 2 the DSCP.
    pub struct QptsReg: "qpts_reg", 0x8 {
        bits local_port, set_local_port: u8 @ 0x00 [23:16];
        bits trust_state, set_trust_state: u8 @ 0x04 [2:0];
    }
}

layout! {
    /// Traffic class of a priority.
    pub struct QtctReg: "qtct_reg", 0x8 {
        bits port_number, set_port_number: u8 @ 0x00 [23:16];
        bits prio, set_prio: u8 @ 0x00 [2:0];
        bits tclass, set_tclass: u8 @ 0x04 [2:0];
    }
}

layout! {
    /// Of [`QetcReg`]: a traffic class. `g`, `b` and `r` say which of group, bandwidth and rate limit are written.
    pub struct EtsTcnConfigReg: "ets_tcn_config_reg", 0x8 {
        flag g, set_g @ 0x00 [31];
        flag b, set_b @ 0x00 [30];
        flag r, set_r @ 0x00 [29];
        bits group, set_group: u8 @ 0x00 [19:16];
        bits bw_allocation, set_bw_allocation: u8 @ 0x00 [6:0];
        bits max_bw_units, set_max_bw_units: u8 @ 0x04 [19:16];
        bits max_bw_value, set_max_bw_value: u16 @ 0x04 [15:0];
    }
}

layout! {
    /// Of [`QetcReg`]: the rate limit of the port. Units as in [`EtsTcnConfigReg`].
    pub struct EtsGlobalConfigReg: "ets_global_config_reg", 0x8 {
        flag r, set_r @ 0x00 [29];
        bits max_bw_units, set_max_bw_units: u8 @ 0x04 [19:16];
        bits max_bw_value, set_max_bw_value: u8 @ 0x04 [7:0];
    }
}

layout! {
    /// Bandwidth of the traffic classes, [`EtsTcnConfigReg`] for each of eight, and of the port.
    pub struct QetcReg: "qetc_reg", 0x50 {
        bits port_number, set_port_number: u8 @ 0x00 [23:16];
        bytes tc_configuration, tc_configuration_mut: 64 @ 0x08;
        part global_configuration, global_configuration_mut: EtsGlobalConfigReg @ 0x48;
    }
}

layout! {
    /// Priority of each DSCP: 16 bits for each of 64, of which the top bit enables the entry when it is written, and the
    /// lowest four are the priority (`mlx5_ifc_qpdpm_dscp_reg_bits`).
    pub struct QpdpmReg: "qpdpm_reg", 0x84 {
        bits local_port, set_local_port: u8 @ 0x00 [23:16];
        bytes dscp, dscp_mut: 128 @ 0x04;
    }
}

/// An entry of [`QpdpmReg`]: enables it.
pub const QPDPM_ENABLE: u16 = 1 << 15;
/// An entry of [`QpdpmReg`]: the priority.
pub const QPDPM_PRIORITY: u16 = 0xf;
