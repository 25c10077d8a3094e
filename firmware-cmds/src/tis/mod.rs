//! Transport interface send: what sends of Ethernet send queues have in common.

use crate::command::EmptyOut;
use crate::command::command;
use crate::layout::layout;

layout! {
    /// Context of a TIS.
    pub struct Tisc: "tisc", 0xa0 {
        flag strict_lag_tx_port_affinity, set_strict_lag_tx_port_affinity @ 0x00 [31];
        flag tls_en, set_tls_en @ 0x00 [30];
        bits lag_tx_port_affinity, set_lag_tx_port_affinity: u8 @ 0x00 [27:24];
        bits prio, set_prio: u8 @ 0x00 [19:16];
        bits transport_domain, set_transport_domain: u32 @ 0x24 [23:0];
        bits underlay_qpn, set_underlay_qpn: u32 @ 0x28 [23:0];
        bits pd, set_pd: u32 @ 0x2c [23:0];
    }
}

layout! {
    /// Which fields MODIFY_TIS changes.
    pub struct ModifyTisBitmask: "modify_tis_bitmask", 0x08 {
        flag lag_tx_port_affinity, set_lag_tx_port_affinity @ 0x04 [2];
        flag strict_lag_tx_port_affinity, set_strict_lag_tx_port_affinity @ 0x04 [1];
        flag prio, set_prio @ 0x04 [0];
    }
}

layout! {
    /// Input of CREATE_TIS.
    pub struct CreateTisIn: "create_tis_in", 0xc0 {
        bits opcode, set_opcode: u16 @ 0x00 [31:16];
        bits uid, set_uid: u16 @ 0x00 [15:0];
        bits op_mod, set_op_mod: u16 @ 0x04 [15:0];
        part ctx, ctx_mut: Tisc @ 0x20;
    }
}

layout! {
    /// Output of CREATE_TIS.
    pub struct CreateTisOut: "create_tis_out", 0x10 {
        bits status, set_status: u8 @ 0x00 [31:24];
        bits syndrome, set_syndrome: u32 @ 0x04 [31:0];
        bits tisn, set_tisn: u32 @ 0x08 [23:0];
    }
}

command!(CreateTisIn => CreateTisOut, CreateTis);

layout! {
    /// Input of MODIFY_TIS.
    pub struct ModifyTisIn: "modify_tis_in", 0xc0 {
        bits opcode, set_opcode: u16 @ 0x00 [31:16];
        bits uid, set_uid: u16 @ 0x00 [15:0];
        bits op_mod, set_op_mod: u16 @ 0x04 [15:0];
        bits tisn, set_tisn: u32 @ 0x08 [23:0];
        part bitmask, bitmask_mut: ModifyTisBitmask @ 0x10;
        part ctx, ctx_mut: Tisc @ 0x20;
    }
}

command!(ModifyTisIn => EmptyOut, ModifyTis);

layout! {
    /// Input of DESTROY_TIS.
    pub struct DestroyTisIn: "destroy_tis_in", 0x10 {
        bits opcode, set_opcode: u16 @ 0x00 [31:16];
        bits uid, set_uid: u16 @ 0x00 [15:0];
        bits op_mod, set_op_mod: u16 @ 0x04 [15:0];
        bits tisn, set_tisn: u32 @ 0x08 [23:0];
    }
}

command!(DestroyTisIn => EmptyOut, DestroyTis);

layout! {
    /// Input of QUERY_TIS.
    pub struct QueryTisIn: "query_tis_in", 0x10 {
        bits opcode, set_opcode: u16 @ 0x00 [31:16];
        bits op_mod, set_op_mod: u16 @ 0x04 [15:0];
        bits tisn, set_tisn: u32 @ 0x08 [23:0];
    }
}

layout! {
    /// Output of QUERY_TIS.
    pub struct QueryTisOut: "query_tis_out", 0xb0 {
        bits status, set_status: u8 @ 0x00 [31:24];
        bits syndrome, set_syndrome: u32 @ 0x04 [31:0];
        part tis_context, tis_context_mut: Tisc @ 0x10;
    }
}

command!(QueryTisIn => QueryTisOut, QueryTis);

#[cfg(test)]
mod golden;
