//! The violations of a platform.

use core::fmt;
use core::time::Duration;

use crate::platform::DmaError;
use crate::types::error::{CloseError, CommandError, DeviceError, OpenError};
use crate::types::wc::WcStatus;
use crate::verbs::cq::CqError;
use crate::verbs::mr::MrError;
use crate::verbs::qp::{CreateQpError, ModifyError, PostError};

/// A requirement on an implementer of [`Platform`](crate::Platform), by the method that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names are those of the methods")]
pub enum Requirement {
    BarLen,
    ReadBe32,
    WriteBe32,
    WriteBe64,
    WriteCombining,
    DmaAlloc,
    DmaFree,
    DmaMap,
    PageIova,
    DmaUnmap,
    Now,
    Relax,
    WaitInterrupt,
}

impl Requirement {
    /// The method's name.
    #[must_use]
    pub const fn method(self) -> &'static str {
        match self {
            Self::BarLen => "bar_len",
            Self::ReadBe32 => "read_be32",
            Self::WriteBe32 => "write_be32",
            Self::WriteBe64 => "write_be64",
            Self::WriteCombining => "write_combining",
            Self::DmaAlloc => "dma_alloc",
            Self::DmaFree => "dma_free",
            Self::DmaMap => "dma_map",
            Self::PageIova => "page_iova",
            Self::DmaUnmap => "dma_unmap",
            Self::Now => "now",
            Self::Relax => "relax",
            Self::WaitInterrupt => "wait_interrupt",
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.method())
    }
}

/// The direction of a message that shows a violation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Path {
    /// It had no bytes: only the doorbell was rung, and a completion written.
    Doorbell,
    /// It had no bytes, and was written to a doorbell page that is write-combining.
    BlueFlame,
    /// From memory of [`dma_alloc`](crate::Platform::dma_alloc) to memory of the same.
    AllocatedToAllocated,
    /// From memory of [`dma_map`](crate::Platform::dma_map) to memory of `dma_alloc`, which was seen to work.
    MappedToAllocated,
    /// From memory of `dma_alloc` to memory of `dma_map`.
    AllocatedToMapped,
}

impl Path {
    const fn requirement(self) -> Requirement {
        match self {
            Self::Doorbell => Requirement::WriteBe64,
            Self::BlueFlame => Requirement::WriteCombining,
            Self::AllocatedToAllocated => Requirement::DmaAlloc,
            Self::MappedToAllocated | Self::AllocatedToMapped => Requirement::PageIova,
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Doorbell => "no bytes",
            Self::BlueFlame => "no bytes, by BlueFlame",
            Self::AllocatedToAllocated => "allocated to allocated memory",
            Self::MappedToAllocated => "mapped to allocated memory",
            Self::AllocatedToMapped => "allocated to mapped memory",
        })
    }
}

/// A requirement that was broken, with what was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[expect(
    missing_docs,
    reason = "the fields are named for what they are; see Display"
)]
pub enum Violation {
    /// The BAR has no space for the init segment and a page of doorbells.
    BarTooShort { len: usize, needed: usize },
    /// The register reads all ones, as if there were no device.
    NoDevice { offset: usize },
    /// A register that does not change did.
    RegisterChanges {
        offset: usize,
        first: u32,
        then: u32,
    },
    /// A register reads as it would in the other byte order.
    ReadOrder { offset: usize, value: u32 },
    /// A read outside the BAR gave something.
    ReadOutside { offset: usize, value: u32 },
    /// A read at no multiple of 4 gave something.
    ReadUnaligned { offset: usize, value: u32 },
    /// The two registers of an address hold another one than was written.
    WriteOrder { written: u64, found: u64 },
    /// A write outside the BAR, or at no multiple of its size, has changed a register.
    WriteNotIgnored {
        offset: usize,
        size: usize,
        written: u64,
        found: u64,
    },
    /// The clock went back.
    ClockWentBack { before: Duration, after: Duration },
    /// The clock stood still while the driver waited.
    ClockStands { at: Duration, turns: u32 },
    /// The clock goes in longer steps than the driver's deadlines bear.
    ClockCoarse { step: Duration, limit: Duration },
    /// Memory as the driver needs it was refused.
    AllocRefused {
        size: usize,
        align: usize,
        error: DmaError,
    },
    /// Memory was given that no machine has.
    AllocAbsurd { size: usize, align: usize },
    /// `Dma::layout` is not what was asked for.
    OtherLayout {
        size: usize,
        align: usize,
        found_size: usize,
        found_align: usize,
    },
    /// The pointer is not aligned.
    PointerAlignment { address: usize, align: usize },
    /// The device's address is not aligned.
    IovaAlignment { iova: u64, align: usize },
    /// The device's addresses go round the end.
    IovaWraps { iova: u64, size: usize },
    /// Memory is not zeroed; `again` if it was in use before.
    NotZeroed {
        size: usize,
        align: usize,
        at: usize,
        found: u8,
        again: bool,
    },
    /// Two pieces that are in use overlap for the host.
    PointersOverlap {
        address: usize,
        len: usize,
        other: usize,
        other_len: usize,
    },
    /// Two pieces that are in use overlap for the device.
    IovasOverlap {
        iova: u64,
        len: usize,
        other: u64,
        other_len: usize,
    },
    /// Bytes of a piece changed when others were written.
    MemoryShared { address: usize, at: usize },
    /// After so many bytes were allocated and freed there is no more.
    FreeKeeps { bytes: u64, error: DmaError },
    /// A region was not mapped.
    MapRefused { len: usize, error: DmaError },
    /// The mapping describes another region.
    MappedOther {
        address: usize,
        len: usize,
        found: usize,
        found_len: usize,
    },
    /// The page size is none that there is.
    PageShift { shift: u8 },
    /// The number of pages is not that which the region touches.
    Pages {
        address: usize,
        len: usize,
        shift: u8,
        expected: usize,
        found: usize,
    },
    /// The device's address of a page is not that of a page.
    PageIova { index: usize, iova: u64, shift: u8 },
    /// Two pages of a region have one device address.
    PagesOverlap {
        index: usize,
        other: usize,
        iova: u64,
    },
    /// After so many regions were mapped and unmapped there are no more.
    UnmapKeeps { round: usize, error: DmaError },
    /// The device has not carried out a request in time.
    NoCompletion { path: Path, waited: Duration },
    /// The device could not carry out a request.
    Refused {
        path: Path,
        status: WcStatus,
        vendor_err: u8,
    },
    /// A byte of what the device moved is wrong; `at` is its place in the message, or outside it.
    Moved {
        path: Path,
        len: usize,
        at: isize,
        expected: u8,
        found: u8,
    },
    /// A wait ended before its deadline, and said that nothing happened.
    WaitEarly { deadline: Duration, now: Duration },
    /// A wait ended long after its deadline.
    WaitLate { deadline: Duration, now: Duration },
    /// The device made an event, and no interrupt ended the wait for it.
    InterruptMissing { vector: u16, waited: Duration },
    /// The device made no event for a completion.
    NoEvent { vector: u16, waited: Duration },
    /// An interrupt that came before the wait did not end it.
    InterruptForgotten { vector: u16, waited: Duration },
}

impl Violation {
    /// The requirement that is violated: a method of the platform.
    #[must_use]
    pub const fn requirement(&self) -> Requirement {
        match self {
            Self::BarTooShort { .. } => Requirement::BarLen,
            Self::NoDevice { .. }
            | Self::RegisterChanges { .. }
            | Self::ReadOrder { .. }
            | Self::ReadOutside { .. }
            | Self::ReadUnaligned { .. } => Requirement::ReadBe32,
            Self::WriteOrder { .. } | Self::WriteNotIgnored { size: 4, .. } => {
                Requirement::WriteBe32
            }
            Self::WriteNotIgnored { .. } | Self::NoEvent { .. } => Requirement::WriteBe64,
            Self::ClockWentBack { .. } | Self::ClockCoarse { .. } => Requirement::Now,
            Self::ClockStands { .. } => Requirement::Relax,
            Self::AllocRefused { .. }
            | Self::AllocAbsurd { .. }
            | Self::OtherLayout { .. }
            | Self::PointerAlignment { .. }
            | Self::IovaAlignment { .. }
            | Self::IovaWraps { .. }
            | Self::NotZeroed { .. }
            | Self::PointersOverlap { .. }
            | Self::IovasOverlap { .. }
            | Self::MemoryShared { .. } => Requirement::DmaAlloc,
            Self::FreeKeeps { .. } => Requirement::DmaFree,
            Self::MapRefused { .. }
            | Self::MappedOther { .. }
            | Self::PageShift { .. }
            | Self::Pages { .. } => Requirement::DmaMap,
            Self::PageIova { .. } | Self::PagesOverlap { .. } => Requirement::PageIova,
            Self::UnmapKeeps { .. } => Requirement::DmaUnmap,
            Self::NoCompletion { path, .. }
            | Self::Refused { path, .. }
            | Self::Moved { path, .. } => path.requirement(),
            Self::WaitEarly { .. }
            | Self::WaitLate { .. }
            | Self::InterruptMissing { .. }
            | Self::InterruptForgotten { .. } => Requirement::WaitInterrupt,
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.requirement())?;
        match *self {
            Self::BarTooShort { len, needed } => {
                write!(f, "{len} bytes, where at least {needed} are needed")
            }
            Self::NoDevice { offset } => write!(f, "register {offset:#x} reads all ones"),
            Self::RegisterChanges {
                offset,
                first,
                then,
            } => write!(
                f,
                "register {offset:#x} read {first:#010x}, then {then:#010x}"
            ),
            Self::ReadOrder { offset, value } => write!(
                f,
                "register {offset:#x} reads {value:#010x}: the bytes are the wrong way round"
            ),
            Self::ReadOutside { offset, value } => {
                write!(f, "{offset:#x} is outside the BAR and reads {value:#010x}")
            }
            Self::ReadUnaligned { offset, value } => {
                write!(f, "{offset:#x} is not aligned and reads {value:#010x}")
            }
            Self::WriteOrder { written, found } => {
                write!(f, "{written:#018x} was written and {found:#018x} read back")
            }
            Self::WriteNotIgnored {
                offset,
                size,
                written,
                found,
            } => write!(
                f,
                "{size} bytes at {offset:#x}, which is no register, changed one from {written:#018x} to {found:#018x}"
            ),
            Self::ClockWentBack { before, after } => {
                write!(f, "the clock went back from {before:?} to {after:?}")
            }
            Self::ClockStands { at, turns } => {
                write!(f, "the clock stood at {at:?} for {turns} turns of waiting")
            }
            Self::ClockCoarse { step, limit } => {
                write!(f, "steps of {step:?}, where {limit:?} is the limit")
            }
            Self::AllocRefused { size, align, error } => {
                write!(f, "{size} bytes aligned to {align}: {error}")
            }
            Self::AllocAbsurd { size, align } => {
                write!(f, "{size} bytes aligned to {align} were given")
            }
            Self::OtherLayout {
                size,
                align,
                found_size,
                found_align,
            } => write!(
                f,
                "{size} bytes aligned to {align} became {found_size} aligned to {found_align}"
            ),
            Self::PointerAlignment { address, align } => {
                write!(f, "pointer {address:#x} is not aligned to {align}")
            }
            Self::IovaAlignment { iova, align } => {
                write!(f, "device address {iova:#x} is not aligned to {align}")
            }
            Self::IovaWraps { iova, size } => {
                write!(
                    f,
                    "{size} bytes at device address {iova:#x} go round the end"
                )
            }
            Self::NotZeroed {
                size,
                align,
                at,
                found,
                again,
            } => write!(
                f,
                "byte {at} of {size} aligned to {align} is {found:#04x}{}",
                if again {
                    ", left by an earlier owner"
                } else {
                    ""
                }
            ),
            Self::PointersOverlap {
                address,
                len,
                other,
                other_len,
            } => write!(
                f,
                "{len} bytes at {address:#x} overlap {other_len} bytes at {other:#x}, both in use"
            ),
            Self::IovasOverlap {
                iova,
                len,
                other,
                other_len,
            } => write!(
                f,
                "{len} bytes at device address {iova:#x} overlap {other_len} at {other:#x}, both in use"
            ),
            Self::MemoryShared { address, at } => {
                write!(
                    f,
                    "byte {at} of the memory at {address:#x} is another piece's too"
                )
            }
            Self::FreeKeeps { bytes, error } => {
                write!(f, "after {bytes} bytes were allocated and freed: {error}")
            }
            Self::MapRefused { len, error } => write!(f, "{len} bytes: {error}"),
            Self::MappedOther {
                address,
                len,
                found,
                found_len,
            } => write!(
                f,
                "{len} bytes at {address:#x} became {found_len} at {found:#x}"
            ),
            Self::PageShift { shift } => write!(f, "pages of 2^{shift} bytes"),
            Self::Pages {
                address,
                len,
                shift,
                expected,
                found,
            } => write!(
                f,
                "{len} bytes at {address:#x} are in {expected} pages of 2^{shift} bytes, not {found}"
            ),
            Self::PageIova { index, iova, shift } => write!(
                f,
                "page {index} is at {iova:#x}, which is no page of 2^{shift} bytes"
            ),
            Self::PagesOverlap { index, other, iova } => {
                write!(
                    f,
                    "pages {other} and {index} of a region are both at {iova:#x}"
                )
            }
            Self::UnmapKeeps { round, error } => {
                write!(f, "after {round} regions were mapped and unmapped: {error}")
            }
            Self::NoCompletion { path, waited } => {
                write!(f, "{path}: the device has not done it within {waited:?}")
            }
            Self::Refused {
                path,
                status,
                vendor_err,
            } => {
                write!(f, "{path}: {status} (vendor error {vendor_err:#x})")
            }
            Self::Moved {
                path,
                len,
                at,
                expected,
                found,
            } => write!(
                f,
                "{path}: byte {at} of {len} is {found:#04x}, not {expected:#04x}"
            ),
            Self::WaitEarly { deadline, now } => {
                write!(
                    f,
                    "nothing happened, and the wait until {deadline:?} ended at {now:?}"
                )
            }
            Self::WaitLate { deadline, now } => {
                write!(f, "the wait until {deadline:?} ended at {now:?}")
            }
            Self::InterruptMissing { vector, waited } => {
                write!(
                    f,
                    "there was an event, but no interrupt {vector} within {waited:?}"
                )
            }
            Self::NoEvent { vector, waited } => {
                write!(
                    f,
                    "a completion made no event for vector {vector} within {waited:?}"
                )
            }
            Self::InterruptForgotten { vector, waited } => write!(
                f,
                "interrupt {vector} came before a wait and did not end it within {waited:?}"
            ),
        }
    }
}

impl core::error::Error for Violation {}

/// Why a platform did not pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConformanceError {
    /// It broke a requirement.
    Violation(Violation),
    /// The device does not come up on it. Before that, nothing was wrong that the host can see: the device reaches no
    /// memory (its address, the IOMMU, bus mastering), or learns of it too early (barriers).
    Open(OpenError),
    /// The device does not go down on it.
    Close(CloseError),
    /// Memory is left that the device may still use.
    Quarantined {
        /// The number of bytes.
        bytes: u64,
    },
    /// The device has no force loopback, without which it cannot be asked what it sees.
    NoLoopback,
    /// A firmware command failed.
    Command(CommandError),
    /// The device failed.
    Device(DeviceError),
    /// There is no completion queue, or it fails.
    Cq(CqError),
    /// There is no queue pair.
    CreateQp(CreateQpError),
    /// A queue pair does not connect.
    Modify(ModifyError),
    /// Memory cannot be registered.
    Mr(MrError),
    /// A request cannot be posted.
    Post(PostError),
}

impl ConformanceError {
    /// The requirement that was broken, where it is known.
    #[must_use]
    pub const fn requirement(&self) -> Option<Requirement> {
        match self {
            Self::Violation(violation) => Some(violation.requirement()),
            _ => None,
        }
    }
}

impl fmt::Display for ConformanceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Violation(error) => error.fmt(f),
            Self::Open(error) => write!(
                f,
                "the device does not come up, so it may see memory elsewhere or too late: {error}"
            ),
            Self::Close(error) => write!(f, "the device does not go down: {error}"),
            Self::Quarantined { bytes } => {
                write!(f, "{bytes} bytes are left that the device may still use")
            }
            Self::NoLoopback => {
                f.write_str("the device has no force loopback, so it cannot be asked what it sees")
            }
            Self::Command(error) => error.fmt(f),
            Self::Device(error) => error.fmt(f),
            Self::Cq(error) => error.fmt(f),
            Self::CreateQp(error) => error.fmt(f),
            Self::Modify(error) => error.fmt(f),
            Self::Mr(error) => error.fmt(f),
            Self::Post(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for ConformanceError {}

macro_rules! from {
    ($($type:ty => $variant:ident),* $(,)?) => {
        $(impl From<$type> for ConformanceError {
            fn from(error: $type) -> Self {
                Self::$variant(error)
            }
        })*
    };
}

from! {
    Violation => Violation,
    CommandError => Command,
    DeviceError => Device,
    CqError => Cq,
    CreateQpError => CreateQp,
    ModifyError => Modify,
    MrError => Mr,
    PostError => Post,
}
