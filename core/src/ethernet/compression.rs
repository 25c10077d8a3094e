//! Compressed completions of frames: which formats there are, and what each keeps of a frame.
//!
//! A session has one title and a mini CQE for each completion (`struct mlx5_mini_cqe8`). Length, and hash or checksum, are each
//! frame's own. Of the title are, hence the same for all frames of a session: VLAN tag, what the device found of headers and
//! their checksums, and the mark of the rule. A device puts no frames into one session that differ in these; Linux
//! (`mlx5e_decompress_cqe` in `en_rx.c`) and DPDK (`rxq_cq_to_mbuf` in `mlx5_rx.c`) read them so. What neither has is not known
//! of a frame: the time, which is that of the first frame of a session, and one of hash and checksum.

use core::fmt;

use crate::verbs::cq::{CqEntries, MiniFormat};

/// Compression of frames' completions by the device, and the values that are kept of each frame then:
/// [`EthernetInit::compression`](super::EthernetInit::compression). Needs `cqe_compression`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FrameCompression(CqEntries);

impl FrameCompression {
    /// It does not, and all is kept.
    pub const OFF: Self = Self(CqEntries::PLAIN);
    /// The hash is kept, and neither checksum nor time.
    pub const HASH: Self = Self(CqEntries::compressed(MiniFormat::Hash));
    /// The checksum is kept, and neither hash nor time.
    pub const CHECKSUM: Self = Self(CqEntries::compressed(MiniFormat::Checksum));

    /// The kind of the CQ's entries.
    pub(super) const fn entries(self) -> CqEntries {
        self.0
    }
}

impl fmt::Debug for FrameCompression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(name(self.0))
    }
}

/// Compression of a striding queue's completions by the device:
/// [`StridingInit::compression`](super::StridingInit::compression). Needs `cqe_compression` and `mini_cqe_resp_stride_index`:
/// without the latter a session does not say where its frames start, and one would have to count on by what they took.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct StrideCompression(CqEntries);

impl StrideCompression {
    /// It does not.
    pub const OFF: Self = Self(CqEntries::PLAIN);
    /// Stride and checksum of each frame are kept.
    pub const CHECKSUM: Self = Self(CqEntries::compressed(MiniFormat::ChecksumStride));

    /// The kind of the CQ's entries.
    pub(super) const fn entries(self) -> CqEntries {
        self.0
    }
}

impl fmt::Debug for StrideCompression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(name(self.0))
    }
}

fn name(entries: CqEntries) -> &'static str {
    match entries.compression() {
        None => "OFF",
        Some(MiniFormat::Hash) => "HASH",
        Some(MiniFormat::Checksum | MiniFormat::ChecksumStride) => "CHECKSUM",
    }
}

/// Returns `true` if the CQ keeps the hash of each frame.
pub(super) fn has_hash(entries: CqEntries) -> bool {
    matches!(entries.compression(), None | Some(MiniFormat::Hash))
}

/// Returns `true` if it keeps the checksum over each frame.
pub(super) fn has_checksum(entries: CqEntries) -> bool {
    entries.compression() != Some(MiniFormat::Hash)
}

/// Returns `true` if it keeps the time of each frame.
pub(super) fn has_time(entries: CqEntries) -> bool {
    entries.compression().is_none()
}
