//! Memory that the firmware asks of the host, in 4 KiB pages.

use crate::command::commands;
use crate::layout::layout;

layout! {
    /// Event data of a page request; `num_pages` is signed.
    pub struct PagesReqEvent: "pages_req_event", 0x1c {
        bits function_id, set_function_id: u16 @ 0x00 [15:0];
        bits num_pages, set_num_pages: u32 @ 0x04 [31:0];
    }
}

commands! {
    input QueryPagesIn of QueryPages: "query_pages_in", 0x10 {
        flag embedded_cpu_function, set_embedded_cpu_function @ 0x08 [31];
        bits function_id, set_function_id: u16 @ 0x08 [15:0];
    }
    output QueryPagesOut: "query_pages_out", 0x10 {
        flag embedded_cpu_function, set_embedded_cpu_function @ 0x08 [31];
        bits function_id, set_function_id: u16 @ 0x08 [15:0];
        bits num_pages, set_num_pages: u32 @ 0x0c [31:0];
    }

    input ManagePagesIn of ManagePages: "manage_pages_in", 0x10 {
        flag embedded_cpu_function, set_embedded_cpu_function @ 0x08 [31];
        bits function_id, set_function_id: u16 @ 0x08 [15:0];
        bits input_num_entries, set_input_num_entries: u32 @ 0x0c [31:0];
        tail pas: 64 @ 0x10;
    }
    output ManagePagesOut: "manage_pages_out", 0x10 {
        bits output_num_entries, set_output_num_entries: u32 @ 0x08 [31:0];
        tail pas: 64 @ 0x10;
    }
}

#[cfg(test)]
mod golden;
