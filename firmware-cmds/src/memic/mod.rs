//! Memory on the device (MEMIC), which a range of BAR 0 shows to the host.

use crate::command::commands;

/// Binary logarithm of the unit in which device memory is allocated, and of the alignment that
/// [`log_memic_addr_alignment`](AllocMemicIn::log_memic_addr_alignment) 0 means: `MLX5_MEMIC_BASE_ALIGN`.
pub const LOG_UNIT: u8 = 6;

commands! {
    input AllocMemicIn of AllocMemic: "alloc_memic_in", 0x20 {
        bits log_memic_addr_alignment, set_log_memic_addr_alignment: u8 @ 0x0c [7:0];
        bits range_start_addr, set_range_start_addr: u64 @ 0x10 [63:0];
        bits range_size, set_range_size: u32 @ 0x18 [31:0];
        bits memic_size, set_memic_size: u32 @ 0x1c [31:0];
    }
    output AllocMemicOut: "alloc_memic_out", 0x10 {
        bits memic_start_addr, set_memic_start_addr: u64 @ 0x08 [63:0];
    }

    input DeallocMemicIn of DeallocMemic: "dealloc_memic_in", 0x20 {
        bits memic_start_addr, set_memic_start_addr: u64 @ 0x10 [63:0];
        bits memic_size, set_memic_size: u32 @ 0x18 [31:0];
    }
}
