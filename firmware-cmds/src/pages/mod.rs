//! Memory that the firmware asks of the host, in 4 KiB pages.

use crate::command::command;
use crate::layout::layout;

layout! {
    /// Event data of a page request; `num_pages` is signed.
    pub struct PagesReqEvent: "pages_req_event", 0x1c {
        bits function_id, set_function_id: u16 @ 0x00 [15:0];
        bits num_pages, set_num_pages: u32 @ 0x04 [31:0];
    }
}

layout! {
    /// Input of QUERY_PAGES.
    pub struct QueryPagesIn: "query_pages_in", 0x10 {
        bits opcode, set_opcode: u16 @ 0x00 [31:16];
        bits op_mod, set_op_mod: u16 @ 0x04 [15:0];
        flag embedded_cpu_function, set_embedded_cpu_function @ 0x08 [31];
        bits function_id, set_function_id: u16 @ 0x08 [15:0];
    }
}

layout! {
    /// Output of QUERY_PAGES.
    pub struct QueryPagesOut: "query_pages_out", 0x10 {
        bits status, set_status: u8 @ 0x00 [31:24];
        bits syndrome, set_syndrome: u32 @ 0x04 [31:0];
        flag embedded_cpu_function, set_embedded_cpu_function @ 0x08 [31];
        bits function_id, set_function_id: u16 @ 0x08 [15:0];
        bits num_pages, set_num_pages: u32 @ 0x0c [31:0];
    }
}

command!(QueryPagesIn => QueryPagesOut, QueryPages);

layout! {
    /// Input of MANAGE_PAGES.
    pub struct ManagePagesIn: "manage_pages_in", 0x10 {
        bits opcode, set_opcode: u16 @ 0x00 [31:16];
        bits op_mod, set_op_mod: u16 @ 0x04 [15:0];
        flag embedded_cpu_function, set_embedded_cpu_function @ 0x08 [31];
        bits function_id, set_function_id: u16 @ 0x08 [15:0];
        bits input_num_entries, set_input_num_entries: u32 @ 0x0c [31:0];
        tail pas: 64 @ 0x10;
    }
}

layout! {
    /// Output of MANAGE_PAGES.
    pub struct ManagePagesOut: "manage_pages_out", 0x10 {
        bits status, set_status: u8 @ 0x00 [31:24];
        bits syndrome, set_syndrome: u32 @ 0x04 [31:0];
        bits output_num_entries, set_output_num_entries: u32 @ 0x08 [31:0];
        tail pas: 64 @ 0x10;
    }
}

command!(ManagePagesIn => ManagePagesOut, ManagePages);

#[cfg(test)]
mod golden;
