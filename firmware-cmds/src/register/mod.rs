//! Access to the port and device registers.

mod capability;
mod counters;
mod module;
mod qos;

pub use self::capability::*;
pub use self::counters::*;
pub use self::module::*;
pub use self::qos::*;

use crate::command::commands;
use crate::layout::layout;

layout! {
    /// Byte order of the host: 0 is little endian.
    pub struct RegisterHostEndianness: "register_host_endianness", 0x10 {
        flag he, set_he @ 0x00 [31];
    }
}

layout! {
    /// Port type and speed.
    pub struct PtysReg: "ptys_reg", 0x40 {
        flag an_disable_admin, set_an_disable_admin @ 0x00 [30];
        flag an_disable_cap, set_an_disable_cap @ 0x00 [29];
        bits local_port, set_local_port: u8 @ 0x00 [23:16];
        bits plane_ind, set_plane_ind: u8 @ 0x00 [7:4];
        bits proto_mask, set_proto_mask: u8 @ 0x00 [2:0];
        bits an_status, set_an_status: u8 @ 0x04 [31:28];
        bits data_rate_oper, set_data_rate_oper: u16 @ 0x04 [15:0];
        bits ext_eth_proto_capability, set_ext_eth_proto_capability: u32 @ 0x08 [31:0];
        bits eth_proto_capability, set_eth_proto_capability: u32 @ 0x0c [31:0];
        bits ib_link_width_capability, set_ib_link_width_capability: u16 @ 0x10 [31:16];
        bits ib_proto_capability, set_ib_proto_capability: u16 @ 0x10 [15:0];
        bits ext_eth_proto_admin, set_ext_eth_proto_admin: u32 @ 0x14 [31:0];
        bits eth_proto_admin, set_eth_proto_admin: u32 @ 0x18 [31:0];
        bits ib_link_width_admin, set_ib_link_width_admin: u16 @ 0x1c [31:16];
        bits ib_proto_admin, set_ib_proto_admin: u16 @ 0x1c [15:0];
        bits ext_eth_proto_oper, set_ext_eth_proto_oper: u32 @ 0x20 [31:0];
        bits eth_proto_oper, set_eth_proto_oper: u32 @ 0x24 [31:0];
        bits ib_link_width_oper, set_ib_link_width_oper: u16 @ 0x28 [31:16];
        bits ib_proto_oper, set_ib_proto_oper: u16 @ 0x28 [15:0];
        bits lane_rate_oper, set_lane_rate_oper: u32 @ 0x2c [23:4];
        bits connector_type, set_connector_type: u8 @ 0x2c [3:0];
        bits eth_proto_lp_advertise, set_eth_proto_lp_advertise: u32 @ 0x30 [31:0];
    }
}

layout! {
    /// Largest packet of a port, in bytes.
    pub struct PmtuReg: "pmtu_reg", 0x10 {
        bits local_port, set_local_port: u8 @ 0x00 [23:16];
        bits max_mtu, set_max_mtu: u16 @ 0x04 [31:16];
        bits admin_mtu, set_admin_mtu: u16 @ 0x08 [31:16];
        bits oper_mtu, set_oper_mtu: u16 @ 0x0c [31:16];
    }
}

layout! {
    /// Administrative and operational state of a port.
    pub struct PaosReg: "paos_reg", 0x10 {
        bits swid, set_swid: u8 @ 0x00 [31:24];
        bits local_port, set_local_port: u8 @ 0x00 [23:16];
        bits admin_status, set_admin_status: u8 @ 0x00 [11:8];
        bits oper_status, set_oper_status: u8 @ 0x00 [3:0];
        flag ase, set_ase @ 0x04 [31];
        flag ee, set_ee @ 0x04 [30];
        bits e, set_e: u8 @ 0x04 [1:0];
    }
}

layout! {
    /// Virtual lanes of a port.
    pub struct PvlcReg: "pvlc_reg", 0x10 {
        bits local_port, set_local_port: u8 @ 0x00 [23:16];
        bits vl_hw_cap, set_vl_hw_cap: u8 @ 0x04 [3:0];
        bits vl_admin, set_vl_admin: u8 @ 0x08 [3:0];
        bits vl_operational, set_vl_operational: u8 @ 0x0c [3:0];
    }
}

layout! {
    /// Counters of a port; the group decides what the counter set holds.
    pub struct PpcntReg: "ppcnt_reg", 0x100 {
        bits swid, set_swid: u8 @ 0x00 [31:24];
        bits local_port, set_local_port: u8 @ 0x00 [23:16];
        bits pnat, set_pnat: u8 @ 0x00 [15:14];
        bits grp, set_grp: u8 @ 0x00 [5:0];
        flag clr, set_clr @ 0x04 [31];
        bits plane_ind, set_plane_ind: u8 @ 0x04 [11:8];
        bits prio_tc, set_prio_tc: u8 @ 0x04 [4:0];
        bytes counter_set, counter_set_mut: 248 @ 0x08;
    }
}

layout! {
    /// The device's own timeouts, in the form of [`crate::init_segment::timeout`].
    pub struct DtorReg: "dtor_reg", 0x40 {
        bits pcie_toggle_to, set_pcie_toggle_to: u32 @ 0x04 [31:0];
        bits health_poll_to, set_health_poll_to: u32 @ 0x14 [31:0];
        bits full_crdump_to, set_full_crdump_to: u32 @ 0x18 [31:0];
        bits fw_reset_to, set_fw_reset_to: u32 @ 0x1c [31:0];
        bits flush_on_err_to, set_flush_on_err_to: u32 @ 0x20 [31:0];
        bits pci_sync_update_to, set_pci_sync_update_to: u32 @ 0x24 [31:0];
        bits tear_down_to, set_tear_down_to: u32 @ 0x28 [31:0];
        bits fsm_reactivate_to, set_fsm_reactivate_to: u32 @ 0x2c [31:0];
        bits reclaim_pages_to, set_reclaim_pages_to: u32 @ 0x30 [31:0];
        bits reclaim_vfs_pages_to, set_reclaim_vfs_pages_to: u32 @ 0x34 [31:0];
        bits reset_unload_to, set_reset_unload_to: u32 @ 0x38 [31:0];
    }
}

layout! {
    /// Reset of the firmware: what was asked for, what has become of it, and the answer of a function that was asked.
    pub struct MfrlReg: "mfrl_reg", 0x8 {
        flag pci_sync_for_fw_update_start, set_pci_sync_for_fw_update_start @ 0x04 [29];
        bits pci_sync_for_fw_update_resp, set_pci_sync_for_fw_update_resp: u8 @ 0x04 [28:27];
        bits rst_type_sel, set_rst_type_sel: u8 @ 0x04 [26:24];
        bits pci_reset_req_method, set_pci_reset_req_method: u8 @ 0x04 [23:21];
        bits reset_state, set_reset_state: u8 @ 0x04 [19:16];
        bits reset_type, set_reset_type: u8 @ 0x04 [15:8];
        bits reset_level, set_reset_level: u8 @ 0x04 [7:0];
    }
}

commands! {
    input AccessRegisterIn of AccessRegister: "access_register_in", 0x10 {
        bits register_id, set_register_id: u16 @ 0x08 [15:0];
        bits argument, set_argument: u32 @ 0x0c [31:0];
        tail register_data: 32 @ 0x10;
    }
    output AccessRegisterOut: "access_register_out", 0x10 {
        tail register_data: 32 @ 0x10;
    }
}

#[cfg(test)]
mod golden;
