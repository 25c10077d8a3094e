//! User access regions: the pages of the BAR that hold the doorbells.

use crate::command::commands;

commands! {
    input AllocUarIn of AllocUar: "alloc_uar_in", 0x10, uid {}
    output AllocUarOut: "alloc_uar_out", 0x10 {
        bits uar, set_uar: u32 @ 0x08 [23:0];
    }

    input DeallocUarIn of DeallocUar: "dealloc_uar_in", 0x10, uid {
        bits uar, set_uar: u32 @ 0x08 [23:0];
    }
}
