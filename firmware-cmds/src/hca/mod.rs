//! Life cycle of the function: enable, ISSI, init, teardown, adapter, driver version.

use crate::command::EmptyOut;
use crate::command::command;
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

layout! {
    /// Input of ENABLE_HCA.
    pub struct EnableHcaIn: "enable_hca_in", 0x10 {
        bits opcode, set_opcode: u16 @ 0x00 [31:16];
        bits op_mod, set_op_mod: u16 @ 0x04 [15:0];
        flag embedded_cpu_function, set_embedded_cpu_function @ 0x08 [31];
        bits function_id, set_function_id: u16 @ 0x08 [15:0];
    }
}

command!(EnableHcaIn => EmptyOut, EnableHca);

layout! {
    /// Input of DISABLE_HCA.
    pub struct DisableHcaIn: "disable_hca_in", 0x10 {
        bits opcode, set_opcode: u16 @ 0x00 [31:16];
        bits op_mod, set_op_mod: u16 @ 0x04 [15:0];
        flag embedded_cpu_function, set_embedded_cpu_function @ 0x08 [31];
        bits function_id, set_function_id: u16 @ 0x08 [15:0];
    }
}

command!(DisableHcaIn => EmptyOut, DisableHca);

layout! {
    /// Input of QUERY_ISSI.
    pub struct QueryIssiIn: "query_issi_in", 0x10 {
        bits opcode, set_opcode: u16 @ 0x00 [31:16];
        bits op_mod, set_op_mod: u16 @ 0x04 [15:0];
    }
}

layout! {
    /// Output of QUERY_ISSI.
    pub struct QueryIssiOut: "query_issi_out", 0x70 {
        bits status, set_status: u8 @ 0x00 [31:24];
        bits syndrome, set_syndrome: u32 @ 0x04 [31:0];
        bits current_issi, set_current_issi: u16 @ 0x08 [15:0];
        bits supported_issi_dw0, set_supported_issi_dw0: u32 @ 0x6c [31:0];
    }
}

command!(QueryIssiIn => QueryIssiOut, QueryIssi);

layout! {
    /// Input of SET_ISSI.
    pub struct SetIssiIn: "set_issi_in", 0x10 {
        bits opcode, set_opcode: u16 @ 0x00 [31:16];
        bits op_mod, set_op_mod: u16 @ 0x04 [15:0];
        bits current_issi, set_current_issi: u16 @ 0x08 [15:0];
    }
}

command!(SetIssiIn => EmptyOut, SetIssi);

layout! {
    /// Input of INIT_HCA.
    pub struct InitHcaIn: "init_hca_in", 0x20 {
        bits opcode, set_opcode: u16 @ 0x00 [31:16];
        bits op_mod, set_op_mod: u16 @ 0x04 [15:0];
        bits sw_vhca_id, set_sw_vhca_id: u16 @ 0x0c [29:16];
        bytes sw_owner_id, sw_owner_id_mut: 16 @ 0x10;
    }
}

command!(InitHcaIn => EmptyOut, InitHca);

layout! {
    /// Input of TEARDOWN_HCA.
    pub struct TeardownHcaIn: "teardown_hca_in", 0x10 {
        bits opcode, set_opcode: u16 @ 0x00 [31:16];
        bits op_mod, set_op_mod: u16 @ 0x04 [15:0];
        bits profile, set_profile: u16 @ 0x08 [15:0];
    }
}

layout! {
    /// Output of TEARDOWN_HCA.
    pub struct TeardownHcaOut: "teardown_hca_out", 0x10 {
        bits status, set_status: u8 @ 0x00 [31:24];
        bits syndrome, set_syndrome: u32 @ 0x04 [31:0];
        flag state, set_state @ 0x0c [0];
    }
}

command!(TeardownHcaIn => TeardownHcaOut, TeardownHca);

layout! {
    /// Input of QUERY_ADAPTER.
    pub struct QueryAdapterIn: "query_adapter_in", 0x10 {
        bits opcode, set_opcode: u16 @ 0x00 [31:16];
        bits op_mod, set_op_mod: u16 @ 0x04 [15:0];
    }
}

layout! {
    /// Output of QUERY_ADAPTER.
    pub struct QueryAdapterOut: "query_adapter_out", 0x110 {
        bits status, set_status: u8 @ 0x00 [31:24];
        bits syndrome, set_syndrome: u32 @ 0x04 [31:0];
        part query_adapter_struct, query_adapter_struct_mut: QueryAdapterParamBlock @ 0x10;
    }
}

command!(QueryAdapterIn => QueryAdapterOut, QueryAdapter);

layout! {
    /// Input of SET_DRIVER_VERSION.
    pub struct SetDriverVersionIn: "set_driver_version_in", 0x50 {
        bits opcode, set_opcode: u16 @ 0x00 [31:16];
        bits op_mod, set_op_mod: u16 @ 0x04 [15:0];
        bytes driver_version, driver_version_mut: 64 @ 0x10;
    }
}

command!(SetDriverVersionIn => EmptyOut, SetDriverVersion);

layout! {
    /// Input of NOP.
    pub struct NopIn: "nop_in", 0x10 {
        bits opcode, set_opcode: u16 @ 0x00 [31:16];
        bits op_mod, set_op_mod: u16 @ 0x04 [15:0];
    }
}

command!(NopIn => EmptyOut, Nop);

#[cfg(test)]
mod golden;
