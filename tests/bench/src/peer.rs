//! The peer's numbers, measured once and kept here: rdma-core's mlx5 provider and UCX, on the same shapes.
//!
//! rdma-core at `v44`-era master, best of all its builds (-O2, -O3, with and without LTO, clang), APIs (`ibv_post_send`,
//! `ibv_wr_*`, `ibv_poll_cq`, `ibv_start_poll`) and lock modes (thread domain, single-threaded CQ); UCX `uct_rc_mlx5` at
//! commit 9466d104, release configuration. Counted by callgrind between two marks around batches of 256 operations, an
//! empty loop subtracted; the provider's own object code over a context in plain memory, without a device.

/// One operation: what the peers need for it, what we must not exceed, and what we aim at.
#[derive(Debug, Clone, Copy)]
pub struct Peer {
    /// rdma-core's best, in instructions.
    pub rdma_core: f64,
    /// UCX's, if it has the operation.
    pub ucx: Option<f64>,
    /// The gate: half of rdma-core's best.
    pub must: f64,
    /// The aim.
    pub goal: f64,
}

const fn peer(rdma_core: f64, ucx: Option<f64>, must: f64, goal: f64) -> Peer {
    Peer {
        rdma_core,
        ucx,
        must,
        goal,
    }
}

/// RC SEND, one scatter/gather entry, doorbell.
pub const SEND: Peer = peer(235.0, None, 117.0, 65.0);
/// SEND of 32 bytes inline, length known when compiled.
pub const SEND_INLINE_CONST: Peer = peer(263.0, Some(170.0), 131.0, 75.0);
/// SEND of 32 bytes inline, length known at run time.
pub const SEND_INLINE_DYN: Peer = peer(263.0, Some(170.0), 131.0, 105.0);
/// RDMA WRITE of 64 bytes inline.
pub const WRITE_INLINE: Peer = peer(299.0, Some(179.0), 149.0, 100.0);
/// RDMA WRITE, one entry.
pub const WRITE: Peer = peer(247.0, Some(168.0), 123.0, 70.0);
/// RDMA READ, one entry.
pub const READ: Peer = peer(247.0, Some(181.0), 123.0, 70.0);
/// UD SEND, one entry.
pub const SEND_UD: Peer = peer(280.0, None, 140.0, 100.0);
/// RC SEND, one entry, through a BlueFlame register, as the peers' posts all are. Both sides load and store each word of the
/// WQE's blocks by itself, which is why half is the aim here and not the gate.
pub const SEND_BLUE_FLAME: Peer = peer(235.0, None, 141.0, 117.0);
/// SEND of 32 bytes inline, so.
pub const SEND_INLINE_BLUE_FLAME: Peer = peer(263.0, Some(170.0), 158.0, 131.0);
/// RDMA WRITE of 64 bytes inline, so: two blocks.
pub const WRITE_INLINE_BLUE_FLAME: Peer = peer(299.0, Some(179.0), 224.0, 149.0);
/// SEND, sixteen to a doorbell, each.
pub const SEND_16: Peer = peer(117.0, None, 58.0, 30.0);
/// One receive.
pub const RECV: Peer = peer(119.0, None, 59.0, 38.0);
/// Receives, sixteen to a record, each.
pub const RECV_16: Peer = peer(65.0, None, 32.0, 16.0);
/// One completion, identifier and status.
pub const POLL: Peer = peer(148.0, Some(69.0), 74.0, 50.0);
/// Sixteen completions of sends, identifier and status, each.
pub const POLL_16_REQ: Peer = peer(102.0, Some(69.0), 51.0, 38.0);
/// Sixteen completions of receives, identifier and status, each.
pub const POLL_16_RESP: Peer = peer(126.0, Some(69.0), 63.0, 38.0);
/// Sixteen completions of sends, all fields, each.
pub const POLL_16_REQ_FULL: Peer = peer(102.0, None, 51.0, 48.0);
/// Sixteen completions of receives, all fields, each.
pub const POLL_16_RESP_FULL: Peer = peer(136.0, None, 68.0, 50.0);
/// A poll that finds nothing.
pub const POLL_EMPTY: Peer = peer(45.0, Some(28.0), 22.0, 14.0);
