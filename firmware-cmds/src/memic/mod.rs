//! Memory on the device (MEMIC), which a range of BAR 0 shows to the host.

use crate::command::EmptyOut;
use crate::command::command;
use crate::layout::layout;

/// Binary logarithm of the unit in which device memory is allocated, and of the alignment that
/// [`log_memic_addr_alignment`](AllocMemicIn::log_memic_addr_alignment) 0 means: `MLX5_MEMIC_BASE_ALIGN`.
pub const LOG_UNIT: u8 = 6;

layout! {
    /// Input of ALLOC_MEMIC.
    pub struct AllocMemicIn: "alloc_memic_in", 0x20 {
        bits opcode, set_opcode: u16 @ 0x00 [31:16];
        bits op_mod, set_op_mod: u16 @ 0x04 [15:0];
        bits log_memic_addr_alignment, set_log_memic_addr_alignment: u8 @ 0x0c [7:0];
        bits range_start_addr, set_range_start_addr: u64 @ 0x10 [63:0];
        bits range_size, set_range_size: u32 @ 0x18 [31:0];
        bits memic_size, set_memic_size: u32 @ 0x1c [31:0];
    }
}

layout! {
    /// Output of ALLOC_MEMIC.
    pub struct AllocMemicOut: "alloc_memic_out", 0x10 {
        bits status, set_status: u8 @ 0x00 [31:24];
        bits syndrome, set_syndrome: u32 @ 0x04 [31:0];
        bits memic_start_addr, set_memic_start_addr: u64 @ 0x08 [63:0];
    }
}

command!(AllocMemicIn => AllocMemicOut, AllocMemic);

layout! {
    /// Input of DEALLOC_MEMIC.
    pub struct DeallocMemicIn: "dealloc_memic_in", 0x20 {
        bits opcode, set_opcode: u16 @ 0x00 [31:16];
        bits op_mod, set_op_mod: u16 @ 0x04 [15:0];
        bits memic_start_addr, set_memic_start_addr: u64 @ 0x10 [63:0];
        bits memic_size, set_memic_size: u32 @ 0x18 [31:0];
    }
}

command!(DeallocMemicIn => EmptyOut, DeallocMemic);
