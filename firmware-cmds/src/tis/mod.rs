//! Transport interface send: what sends of Ethernet send queues have in common.

use crate::command::commands;
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
    /// The fields that MODIFY_TIS changes.
    pub struct ModifyTisBitmask: "modify_tis_bitmask", 0x08 {
        flag lag_tx_port_affinity, set_lag_tx_port_affinity @ 0x04 [2];
        flag strict_lag_tx_port_affinity, set_strict_lag_tx_port_affinity @ 0x04 [1];
        flag prio, set_prio @ 0x04 [0];
    }
}

commands! {
    input CreateTisIn of CreateTis: "create_tis_in", 0xc0, uid {
        part ctx, ctx_mut: Tisc @ 0x20;
    }
    output CreateTisOut: "create_tis_out", 0x10 {
        bits tisn, set_tisn: u32 @ 0x08 [23:0];
    }

    input ModifyTisIn of ModifyTis: "modify_tis_in", 0xc0, uid {
        bits tisn, set_tisn: u32 @ 0x08 [23:0];
        part bitmask, bitmask_mut: ModifyTisBitmask @ 0x10;
        part ctx, ctx_mut: Tisc @ 0x20;
    }

    input DestroyTisIn of DestroyTis: "destroy_tis_in", 0x10, uid {
        bits tisn, set_tisn: u32 @ 0x08 [23:0];
    }

    input QueryTisIn of QueryTis: "query_tis_in", 0x10 {
        bits tisn, set_tisn: u32 @ 0x08 [23:0];
    }
    output QueryTisOut: "query_tis_out", 0xb0 {
        part tis_context, tis_context_mut: Tisc @ 0x10;
    }
}

#[cfg(test)]
mod golden;
