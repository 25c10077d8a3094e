//! User contexts (`uid` of other commands) and user memory: what a program that drives the device through DevX has.
//!
//! A queue lies in user memory when its command says so (`cq_umem_valid`, `wq_umem_valid`, `mkey_umem_valid`) and names it;
//! its address is an offset then, and there is no page list. Doorbell records likewise (`dbr_umem_valid`).

use crate::command::commands;
use crate::layout::layout;

layout! {
    /// A user context: what its commands may do beyond those of any user.
    pub struct Uctx: "uctx", 0x30 {
        bits cap, set_cap: u32 @ 0x00 [31:0];
    }
}

/// The user may send packets of its own making (`MLX5_UCTX_CAP_RAW_TX`).
pub const UCTX_CAP_RAW_TX: u32 = 1 << 0;
/// The user may reach the device's internal resources (`MLX5_UCTX_CAP_INTERNAL_DEV_RES`).
pub const UCTX_CAP_INTERNAL_DEV_RES: u32 = 1 << 1;

commands! {
    input CreateUctxIn of CreateUctx: "create_uctx_in", 0x40 {
        part uctx, uctx_mut: Uctx @ 0x10;
    }
    output CreateUctxOut: "create_uctx_out", 0x10 {
        bits uid, set_uid: u16 @ 0x08 [15:0];
    }

    input DestroyUctxIn of DestroyUctx: "destroy_uctx_in", 0x10 {
        bits uid, set_uid: u16 @ 0x08 [15:0];
    }
}

layout! {
    /// User memory: a byte range scattered over pages of one size.
    pub struct Umem: "umem", 0x20 {
        flag ats, set_ats @ 0x10 [31];
        bits log_page_size, set_log_page_size: u8 @ 0x10 [4:0];
        bits page_offset, set_page_offset: u32 @ 0x14 [31:0];
        bits num_of_mtt, set_num_of_mtt: u64 @ 0x18 [63:0];
        tail mtt: 64 @ 0x20;
    }
}

commands! {
    /// `log_page_size` counts from 4 KiB, `page_offset` in bytes.
    input CreateUmemIn of CreateUmem: "create_umem_in", 0x30, uid {
        part umem, umem_mut: Umem @ 0x10;
    }
    output CreateUmemOut: "create_umem_out", 0x10 {
        bits umem_id, set_umem_id: u32 @ 0x08 [23:0];
    }

    input DestroyUmemIn of DestroyUmem: "destroy_umem_in", 0x10, uid {
        bits umem_id, set_umem_id: u32 @ 0x08 [23:0];
    }
}

#[cfg(test)]
mod golden;
