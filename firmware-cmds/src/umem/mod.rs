//! User contexts (`uid` of other commands) and user memory: what a program that drives the device through DevX has.
//!
//! A queue lies in user memory when its command says so (`cq_umem_valid`, `wq_umem_valid`, `mkey_umem_valid`) and names it;
//! its address is an offset then, and there is no page list. Doorbell records likewise (`dbr_umem_valid`).

use crate::command::EmptyOut;
use crate::command::command;
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

layout! {
    /// Input of CREATE_UCTX.
    pub struct CreateUctxIn: "create_uctx_in", 0x40 {
        bits opcode, set_opcode: u16 @ 0x00 [31:16];
        bits op_mod, set_op_mod: u16 @ 0x04 [15:0];
        part uctx, uctx_mut: Uctx @ 0x10;
    }
}

layout! {
    /// Output of CREATE_UCTX.
    pub struct CreateUctxOut: "create_uctx_out", 0x10 {
        bits status, set_status: u8 @ 0x00 [31:24];
        bits syndrome, set_syndrome: u32 @ 0x04 [31:0];
        bits uid, set_uid: u16 @ 0x08 [15:0];
    }
}

command!(CreateUctxIn => CreateUctxOut, CreateUctx);

layout! {
    /// Input of DESTROY_UCTX.
    pub struct DestroyUctxIn: "destroy_uctx_in", 0x10 {
        bits opcode, set_opcode: u16 @ 0x00 [31:16];
        bits op_mod, set_op_mod: u16 @ 0x04 [15:0];
        bits uid, set_uid: u16 @ 0x08 [15:0];
    }
}

command!(DestroyUctxIn => EmptyOut, DestroyUctx);

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

layout! {
    /// Input of CREATE_UMEM. `log_page_size` counts from 4 KiB, `page_offset` in bytes.
    pub struct CreateUmemIn: "create_umem_in", 0x30 {
        bits opcode, set_opcode: u16 @ 0x00 [31:16];
        bits uid, set_uid: u16 @ 0x00 [15:0];
        bits op_mod, set_op_mod: u16 @ 0x04 [15:0];
        part umem, umem_mut: Umem @ 0x10;
    }
}

layout! {
    /// Output of CREATE_UMEM.
    pub struct CreateUmemOut: "create_umem_out", 0x10 {
        bits status, set_status: u8 @ 0x00 [31:24];
        bits syndrome, set_syndrome: u32 @ 0x04 [31:0];
        bits umem_id, set_umem_id: u32 @ 0x08 [23:0];
    }
}

command!(CreateUmemIn => CreateUmemOut, CreateUmem);

layout! {
    /// Input of DESTROY_UMEM.
    pub struct DestroyUmemIn: "destroy_umem_in", 0x10 {
        bits opcode, set_opcode: u16 @ 0x00 [31:16];
        bits uid, set_uid: u16 @ 0x00 [15:0];
        bits op_mod, set_op_mod: u16 @ 0x04 [15:0];
        bits umem_id, set_umem_id: u32 @ 0x08 [23:0];
    }
}

command!(DestroyUmemIn => EmptyOut, DestroyUmem);

#[cfg(test)]
mod golden;
