//! Life cycle of the function: enable, ISSI, init, teardown, adapter, driver version.

use crate::command::commands;
use crate::layout::layout;

layout! {
    /// The board, as QUERY_ADAPTER reports it.
    pub struct QueryAdapterParamBlock: "query_adapter_param_block", 0x100 {
        bits ieee_vendor_id, set_ieee_vendor_id: u32 @ 0x18 [23:0];
        bits vsd_vendor_id, set_vsd_vendor_id: u16 @ 0x1c [15:0];
        bytes vsd, vsd_mut: 208 @ 0x20;
        bytes vsd_contd_psid, vsd_contd_psid_mut: 16 @ 0xf0;
    }
}

commands! {
    input EnableHcaIn of EnableHca: "enable_hca_in", 0x10 {
        flag embedded_cpu_function, set_embedded_cpu_function @ 0x08 [31];
        bits function_id, set_function_id: u16 @ 0x08 [15:0];
    }

    input DisableHcaIn of DisableHca: "disable_hca_in", 0x10 {
        flag embedded_cpu_function, set_embedded_cpu_function @ 0x08 [31];
        bits function_id, set_function_id: u16 @ 0x08 [15:0];
    }

    input QueryIssiIn of QueryIssi: "query_issi_in", 0x10 {}
    output QueryIssiOut: "query_issi_out", 0x70 {
        bits current_issi, set_current_issi: u16 @ 0x08 [15:0];
        bits supported_issi_dw0, set_supported_issi_dw0: u32 @ 0x6c [31:0];
    }

    input SetIssiIn of SetIssi: "set_issi_in", 0x10 {
        bits current_issi, set_current_issi: u16 @ 0x08 [15:0];
    }

    input InitHcaIn of InitHca: "init_hca_in", 0x20 {
        bits sw_vhca_id, set_sw_vhca_id: u16 @ 0x0c [29:16];
        bytes sw_owner_id, sw_owner_id_mut: 16 @ 0x10;
    }

    input TeardownHcaIn of TeardownHca: "teardown_hca_in", 0x10 {
        bits profile, set_profile: u16 @ 0x08 [15:0];
    }
    output TeardownHcaOut: "teardown_hca_out", 0x10 {
        flag state, set_state @ 0x0c [0];
    }

    input QueryAdapterIn of QueryAdapter: "query_adapter_in", 0x10 {}
    output QueryAdapterOut: "query_adapter_out", 0x110 {
        part query_adapter_struct, query_adapter_struct_mut: QueryAdapterParamBlock @ 0x10;
    }

    input QueryVuidIn of QueryVuid: "query_vuid_in", 0x10, uid {
        flag query_vfs_vuid, set_query_vfs_vuid @ 0x0c [31];
        flag data_direct, set_data_direct @ 0x0c [30];
        bits vhca_id, set_vhca_id: u16 @ 0x0c [15:0];
    }
    output QueryVuidOut: "query_vuid_out", 0x40 {
        bits num_of_entries, set_num_of_entries: u16 @ 0x3c [15:0];
        tail vuid: 1024 @ 0x40;
    }

    input SetDriverVersionIn of SetDriverVersion: "set_driver_version_in", 0x50 {
        bytes driver_version, driver_version_mut: 64 @ 0x10;
    }

    input NopIn of Nop: "nop_in", 0x10 {}
}

impl QueryVuidOut {
    /// Bytes of one identifier behind the fixed part: text, padded with zeros (`mlx5_ifc_array1024_auto_bits`).
    pub const ENTRY: usize = 128;
}

#[cfg(test)]
mod golden;
