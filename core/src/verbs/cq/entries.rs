//! Size and compression of a CQ's entries. Code for compressed or long ones alone is reached through [`CqEntries`], so that a
//! program which does not ask for them does not contain it.

// UNSAFETY: says which memory is the ring.
#![expect(unsafe_code)]

use core::fmt;
use core::ptr::NonNull;

use bareverbs_firmware_cmds::caps::HcaCap;
use bareverbs_firmware_cmds::cq::Cqc;
use bareverbs_firmware_cmds::cqe::mini::MiniFormat;
use bareverbs_firmware_cmds::values::CqeSize;

use crate::memory::record::RECORD_LEN;
use crate::memory::session_ring::{self, SessionRing};
use crate::platform::Platform;
use crate::verbs::cq::{Cq, CqError};

/// The size of a CQ's entries, and whether the device compresses them.
#[derive(Clone, Copy)]
pub struct CqEntries(Option<&'static Kind>);

/// Entries that are not plain, and how rings of them come about.
pub(super) struct Kind {
    compression: Option<MiniFormat>,
    size: CqeSize,
    pub(super) log_stride: u8,
    /// Refuses what the card does not offer.
    pub(super) check: fn(&Self, &HcaCap) -> Result<(), CqError>,
    /// Says it in the context.
    pub(super) set: fn(&Self, &mut Cqc),
    /// Makes a ring of this size at the second address, and behind the record at the first one what all polls look at.
    pub(super) make: unsafe fn(&Self, NonNull<u8>, NonNull<u8>, u32) -> SessionRing,
}

impl Kind {
    const fn new(compression: Option<MiniFormat>, size: CqeSize) -> Self {
        Self {
            compression,
            size,
            log_stride: if matches!(size, CqeSize::Bytes64) {
                6
            } else {
                7
            },
            check,
            set,
            make,
        }
    }

    const fn of_each_size(compression: Option<MiniFormat>) -> [Self; 3] {
        [
            Self::new(compression, CqeSize::Bytes64),
            Self::new(compression, CqeSize::Bytes128),
            Self::new(compression, CqeSize::Bytes128Padded),
        ]
    }
}

static KINDS: [[Kind; 3]; 4] = [
    Kind::of_each_size(None),
    Kind::of_each_size(Some(MiniFormat::Hash)),
    Kind::of_each_size(Some(MiniFormat::Checksum)),
    Kind::of_each_size(Some(MiniFormat::ChecksumStride)),
];

impl CqEntries {
    /// 64 bytes each, not compressed.
    pub const PLAIN: Self = Self(None);

    /// With completions that differ little in one entry (`MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE` of
    /// `mlx5dv_create_cq`), if mini CQEs have a format; and of this size (`cqe_size` there, and
    /// `MLX5DV_CQ_INIT_ATTR_FLAGS_CQE_PAD`).
    #[must_use]
    pub const fn new(compression: Option<MiniFormat>, size: CqeSize) -> Self {
        let of = match compression {
            None => &KINDS[0],
            Some(MiniFormat::Hash) => &KINDS[1],
            Some(MiniFormat::Checksum) => &KINDS[2],
            Some(MiniFormat::ChecksumStride) => &KINDS[3],
        };
        match (compression, size) {
            (None, CqeSize::Bytes64) => Self::PLAIN,
            (_, CqeSize::Bytes64) => Self(Some(&of[0])),
            (_, CqeSize::Bytes128) => Self(Some(&of[1])),
            (_, CqeSize::Bytes128Padded) => Self(Some(&of[2])),
        }
    }

    /// Compressed ones of 64 bytes.
    #[must_use]
    pub const fn compressed(format: MiniFormat) -> Self {
        Self::new(Some(format), CqeSize::Bytes64)
    }

    /// The format of mini CQEs, if the device compresses.
    #[must_use]
    pub const fn compression(self) -> Option<MiniFormat> {
        match self.0 {
            None => None,
            Some(kind) => kind.compression,
        }
    }

    /// Bytes of an entry.
    #[must_use]
    pub const fn size(self) -> CqeSize {
        match self.0 {
            None => CqeSize::Bytes64,
            Some(kind) => kind.size,
        }
    }

    /// The work that entries need, unless they are plain.
    pub(super) fn kind(self) -> Option<&'static Kind> {
        self.0
    }
}

impl<P: Platform> Cq<'_, P> {
    /// Bytes of its entries: `cqe_size` of `mlx5dv_init_obj`.
    #[must_use]
    pub fn cqe_size(&self) -> CqeSize {
        self.init.entries.size()
    }
}

impl PartialEq for CqEntries {
    fn eq(&self, other: &Self) -> bool {
        (self.size(), self.compression()) == (other.size(), other.compression())
    }
}

impl Eq for CqEntries {}

impl fmt::Debug for CqEntries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CqEntries")
            .field("size", &self.size())
            .field("compression", &self.compression())
            .finish()
    }
}

fn check(kind: &Kind, caps: &HcaCap) -> Result<(), CqError> {
    let refused = |capability| Err(CqError::NotOffered { capability });
    if kind.size == CqeSize::Bytes128Padded && !caps.cqe_128_always() {
        return refused("cqe_128_always");
    }
    let Some(format) = kind.compression else {
        return Ok(());
    };
    if !caps.cqe_compression() {
        return refused("cqe_compression");
    }
    if kind.size != CqeSize::Bytes64 && !caps.cqe_compression_128() {
        return refused("cqe_compression_128");
    }
    if format == MiniFormat::ChecksumStride && !caps.mini_cqe_resp_stride_index() {
        return refused("mini_cqe_resp_stride_index");
    }
    Ok(())
}

fn set(kind: &Kind, context: &mut Cqc) {
    context
        .set_cqe_sz(kind.size.number())
        .set_cqe_comp_en(kind.compression.is_some())
        .set_mini_cqe_res_format(kind.compression.map_or(0, MiniFormat::number));
}

/// Bytes for the record, and for the entry that [`make`] puts behind it.
pub(super) const RECORDS_LEN: usize = RECORD_LEN + session_ring::DECOY_LEN;

/// # Safety
/// The record is the start of memory of [`RECORDS_LEN`] bytes, the ring is one of so many entries; otherwise as
/// [`SessionRing::new`].
unsafe fn make(kind: &Kind, record: NonNull<u8>, base: NonNull<u8>, size: u32) -> SessionRing {
    // SAFETY: the caller's promise.
    unsafe {
        session_ring::write_decoy(record.add(RECORD_LEN));
        SessionRing::new(base, size, kind.log_stride, kind.compression)
    }
}
