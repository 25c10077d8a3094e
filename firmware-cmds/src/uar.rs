//! User access regions: the pages of the BAR that hold the doorbells.

use crate::command::EmptyOut;
use crate::command::command;
use crate::layout::layout;

layout! {
    /// Input of ALLOC_UAR.
    pub struct AllocUarIn: "alloc_uar_in", 0x10 {
        bits opcode, set_opcode: u16 @ 0x00 [31:16];
        bits uid, set_uid: u16 @ 0x00 [15:0];
        bits op_mod, set_op_mod: u16 @ 0x04 [15:0];
    }
}

layout! {
    /// Output of ALLOC_UAR.
    pub struct AllocUarOut: "alloc_uar_out", 0x10 {
        bits status, set_status: u8 @ 0x00 [31:24];
        bits syndrome, set_syndrome: u32 @ 0x04 [31:0];
        bits uar, set_uar: u32 @ 0x08 [23:0];
    }
}

command!(AllocUarIn => AllocUarOut, AllocUar);

layout! {
    /// Input of DEALLOC_UAR.
    pub struct DeallocUarIn: "dealloc_uar_in", 0x10 {
        bits opcode, set_opcode: u16 @ 0x00 [31:16];
        bits uid, set_uid: u16 @ 0x00 [15:0];
        bits op_mod, set_op_mod: u16 @ 0x04 [15:0];
        bits uar, set_uar: u32 @ 0x08 [23:0];
    }
}

command!(DeallocUarIn => EmptyOut, DeallocUar);
