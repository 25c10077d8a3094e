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
        /// The rights that were asked for.
        access: Access,
    },
    /// [`Access::REMOTE_ATOMIC`] was asked for, and the device has no atomics as verbs define them
    /// ([`Capabilities::has_atomics`](crate::Capabilities::has_atomics)).
    NoAtomics,
    /// The device has no memory windows, null regions, device memory, or indirect keys of the kind that was asked for.
    // A text, which is in programs that ask for it only.
    Unsupported {
        /// The missing feature, and the capability that says so.
        what: &'static str,
    },
    /// A size is outside of what the device, or the interface, allows.
    Size {
        /// The field's name, and its smallest value unless that is 0.
        field: &'static str,
        /// The value that was asked for.
        asked: u64,
        /// The largest possible.
        limit: u64,
    },
    /// The device shows its memory at a place of BAR 0 that the platform does not reach, or that is not where it said.
    DmOutsideBar {
        /// Offset of the memory in the BAR.
        start: u64,
    },
    /// The device memory has no room left beside what this driver has allocated.
    DmExhausted,
    /// The range to register lies outside the device memory.
    OutsideDm(OutOfRange),
    /// Device memory was to be registered without [`Access::ZERO_BASED`].
    NotZeroBased,
    /// [`Access::ON_DEMAND`] was asked for.
    NoOnDemandPaging {
        /// `true` if the device has it (`cmd_hca_cap.pg`). The driver answers no page faults in either case.
        offered: bool,
    },
    /// There is nothing to register.
    Empty,
    /// The region is longer than the device allows
    /// ([`Capabilities::max_mr_size`](crate::Capabilities::max_mr_size)).
    TooLong {
        /// Length.
        len: usize,
        /// The longest length that can be registered.
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

impl fmt::Display for MrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeedsLocalWrite { access } => {
                write!(f, "{access:?} needs LOCAL_WRITE as well")
            }
            Self::NoAtomics => f.write_str(NO_ATOMICS),
            Self::Unsupported { what } => write!(f, "the device has no {what}"),
            Self::Size {
                field,
                asked,
                limit,
            } => write!(f, "{field} of {asked}, and up to {limit} are possible"),
            Self::DmOutsideBar { .. } => f.write_str("device memory is not in its part of BAR 0"),
            Self::DmExhausted => f.write_str("no device memory is left"),
            Self::OutsideDm(error) => error.fmt(f),
            Self::NotZeroBased => f.write_str("device memory needs ZERO_BASED"),
            Self::NoOnDemandPaging { offered } => {
                let who = if *offered { "driver" } else { "device" };
                write!(f, "the {who} has no on-demand paging (cmd_hca_cap.pg)")
            }
            Self::Empty => f.write_str("an empty region cannot be registered"),
            Self::TooLong { len, limit } => {
                write!(f, "a region of {len} bytes, and up to {limit} are possible")
            }
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
