//! What each operation may cost, in instructions, and what is aimed at. What other projects' drivers take for the same is
//! counted beside it by `cargo rig peers`.

/// The limits of an operation.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    /// More fails.
    pub gate: f64,
    /// The aim.
    pub goal: f64,
}

const fn limit(gate: f64, goal: f64) -> Limit {
    Limit { gate, goal }
}

// The gates of single operations and of lists are half of what rdma-core's provider took when they were set, in that of its
// builds, interfaces and lock modes which took the fewest.

/// RC SEND, one scatter/gather entry, doorbell.
pub const SEND: Limit = limit(117.0, 65.0);
/// SEND of 32 bytes inline, length known when compiled.
pub const SEND_INLINE_CONST: Limit = limit(131.0, 75.0);
/// SEND of 32 bytes inline, length known at run time.
pub const SEND_INLINE_DYN: Limit = limit(131.0, 105.0);
/// RDMA WRITE of 64 bytes inline.
pub const WRITE_INLINE: Limit = limit(149.0, 100.0);
/// RDMA WRITE, one entry.
pub const WRITE: Limit = limit(123.0, 70.0);
/// RDMA READ, one entry.
pub const READ: Limit = limit(123.0, 70.0);
/// UD SEND, one entry.
pub const SEND_UD: Limit = limit(140.0, 100.0);
/// RC SEND, one entry, through a BlueFlame register. Each word of the WQE's blocks is loaded and stored by itself on both
/// sides, which is why half of rdma-core's is the aim here and not the gate.
pub const SEND_BLUE_FLAME: Limit = limit(141.0, 117.0);
/// SEND of 32 bytes inline, so.
pub const SEND_INLINE_BLUE_FLAME: Limit = limit(158.0, 131.0);
/// RDMA WRITE of 64 bytes inline, so: two blocks.
pub const WRITE_INLINE_BLUE_FLAME: Limit = limit(224.0, 149.0);
/// SEND, sixteen to a doorbell, each.
pub const SEND_16: Limit = limit(58.0, 30.0);
/// One receive.
pub const RECV: Limit = limit(59.0, 38.0);
/// Receives, sixteen to a record, each.
pub const RECV_16: Limit = limit(32.0, 16.0);
/// One completion, identifier and status.
pub const POLL: Limit = limit(74.0, 50.0);
/// Sixteen completions of sends, identifier and status, each.
pub const POLL_16_REQ: Limit = limit(51.0, 38.0);
/// Sixteen completions of receives, identifier and status, each.
pub const POLL_16_RESP: Limit = limit(63.0, 38.0);
/// Sixteen completions of sends, all fields, each.
pub const POLL_16_REQ_FULL: Limit = limit(51.0, 48.0);
/// Sixteen completions of receives, all fields, each.
pub const POLL_16_RESP_FULL: Limit = limit(68.0, 50.0);
/// A poll that finds nothing.
pub const POLL_EMPTY: Limit = limit(22.0, 14.0);
