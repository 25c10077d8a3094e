//! Why a memory region, or another key, was refused.

use core::fmt;

use crate::platform::DmaError;
use crate::types::error::CommandError;
use crate::types::sge::Access;
use crate::verbs::qp::NO_ATOMICS;

/// Why memory could not be registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MrError {
    /// Remote writing or atomics were asked for without local writing.
    NeedsLocalWrite {
        /// What was asked for.
        access: Access,
    },
    /// [`Access::REMOTE_ATOMIC`] was asked for, and the device has no atomics as verbs define them
    /// ([`Capabilities::has_atomics`](crate::Capabilities::has_atomics)).
    NoAtomics,
    /// A memory window was asked for, and the device has none
    /// ([`Capabilities::has_memory_windows`](crate::Capabilities::has_memory_windows)).
    NoWindows,
    /// A null region was asked for, and the device has none (`cmd_hca_cap.dump_fill_mkey`).
    NoNullMr,
    /// An indirect key was asked for, and the device has none, or none of this kind.
    NoIndirectKeys {
        /// The field of `cmd_hca_cap` that says so.
        capability: &'static str,
    },
    /// An indirect key's list would have no entry, or more than the device allows
    /// ([`Capabilities::max_klm_list_size`](crate::Capabilities::max_klm_list_size)).
    TooManyEntries {
        /// How many were asked for.
        asked: u32,
        /// The most.
        limit: u32,
    },
    /// The pieces of an indirect key cannot have this size.
    EntrySize {
        /// Binary logarithm of the size; 12 to 30 are possible.
        log_size: u8,
    },
    /// Device memory was asked for, and the device has none (`cmd_hca_cap.device_memory`, `device_mem_cap.memic`).
    NoDeviceMemory,
    /// Device memory was asked for with an alignment that the device does not have.
    DmAlignment {
        /// Binary logarithm of what was asked for.
        log_align_req: u8,
        /// Binary logarithm of the largest (`device_mem_cap.log_max_memic_addr_alignment`).
        limit: u8,
    },
    /// The device shows its memory at a place of BAR 0 that the platform does not reach, or that is not where it said.
    DmOutsideBar {
        /// The place.
        start: u64,
    },
    /// What is to be registered lies outside the device memory.
    OutsideDm(OutOfRange),
    /// Device memory was to be registered without [`Access::ZERO_BASED`].
    NotZeroBased,
    /// [`Access::ON_DEMAND`] was asked for.
    NoOnDemandPaging {
        /// Whether the device has it (`cmd_hca_cap.pg`). The driver answers no page faults in either case.
        offered: bool,
    },
    /// There is nothing to register.
    Empty,
    /// The region is longer than the device allows
    /// ([`Capabilities::max_mr_size`](crate::Capabilities::max_mr_size)).
    TooLong {
        /// Length.
        len: usize,
        /// The longest.
        limit: u64,
    },
    /// The region's device addresses (from `iova` on) would go round the end of the address space.
    AddressWraps {
        /// First address.
        iova: u64,
        /// Length.
        len: usize,
    },
    /// The offset of `iova` in its page differs from that of the memory.
    IovaOffset {
        /// First address.
        iova: u64,
        /// Page size in force.
        page_size: u64,
    },
    /// The platform could not provide or map the memory.
    Memory(DmaError),
    /// The firmware refused.
    Command(CommandError),
}

impl MrError {
    /// What is outside of a range, with one format for all.
    fn beyond(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, asked, most): (_, u64, u64) = match *self {
            Self::TooLong { len, limit } => ("the bytes of a region", len as u64, limit),
            Self::TooManyEntries { asked, limit } => {
                ("an indirect key's entries", asked.into(), limit.into())
            }
            Self::EntrySize { log_size } => (
                "the logarithm of a piece's bytes (12 or more)",
                log_size.into(),
                30,
            ),
            Self::DmAlignment {
                log_align_req,
                limit,
            } => (
                "the logarithm of device memory's alignment",
                log_align_req.into(),
                limit.into(),
            ),
            _ => return Ok(()),
        };
        write!(f, "{what}: {asked}, and up to {most} are possible")
    }
}

impl fmt::Display for MrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeedsLocalWrite { access } => {
                write!(f, "{access:?} needs LOCAL_WRITE as well")
            }
            Self::NoAtomics => f.write_str(NO_ATOMICS),
            Self::NoWindows => f.write_str("the device has no memory windows"),
            Self::NoNullMr => {
                f.write_str("the device has no null regions (cmd_hca_cap.dump_fill_mkey)")
            }
            Self::NoIndirectKeys { capability } => write!(
                f,
                "the device has no such indirect keys (cmd_hca_cap.{capability})"
            ),
            Self::NoDeviceMemory => f.write_str(
                "the device has no memory for programs (cmd_hca_cap.device_memory, device_mem_cap.memic)",
            ),
            Self::DmOutsideBar { .. } => {
                f.write_str("device memory is not in its part of BAR 0")
            }
            Self::OutsideDm(error) => error.fmt(f),
            Self::NotZeroBased => f.write_str("device memory is registered with ZERO_BASED only"),
            Self::NoOnDemandPaging { offered: false } => {
                f.write_str("the device has no on-demand paging (cmd_hca_cap.pg)")
            }
            Self::NoOnDemandPaging { offered: true } => {
                f.write_str("the driver has no on-demand paging (cmd_hca_cap.pg)")
            }
            Self::Empty => f.write_str("an empty region cannot be registered"),
            Self::TooLong { .. }
            | Self::TooManyEntries { .. }
            | Self::EntrySize { .. }
            | Self::DmAlignment { .. } => self.beyond(f),
            Self::AddressWraps { iova, len } => {
                write!(
                    f,
                    "{len} bytes at {iova:#x} go past the end of the address space"
                )
            }
            Self::IovaOffset { iova, page_size } => {
                write!(
                    f,
                    "{iova:#x} lies elsewhere in its page of {page_size:#x} than the memory"
                )
            }
            Self::Memory(error) => error.fmt(f),
            Self::Command(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for MrError {}

/// An access outside a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfRange {
    /// First byte.
    pub offset: usize,
    /// Bytes.
    pub len: usize,
    /// Size of the buffer.
    pub size: usize,
}

impl fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} bytes at {} of a buffer of {}",
            self.len, self.offset, self.size
        )
    }
}

impl core::error::Error for OutOfRange {}
