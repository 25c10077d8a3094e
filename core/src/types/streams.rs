//! Streams of initiators of dynamic connections.

/// The number of streams that an initiator has: `struct mlx5dv_dci_streams`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DciStreams {
    /// Streams that are carried out at a time, as a power of two. (Requests may name more.)
    pub log_concurrent: u8,
    /// With so many streams in error the initiator itself goes to the error state, as a power of two.
    pub log_errored: u8,
}

impl DciStreams {
    /// An initiator without streams.
    pub(crate) const ONE: Self = Self {
        log_concurrent: 0,
        log_errored: 0,
    };
}
