//! Pieces of memory, and what may be done to them.

use bareverbs_firmware_cmds::numbers::LKey;
use bitflags::bitflags;

bitflags! {
    /// The access rights to memory or through a QP: `enum ibv_access_flags`, with its values. Local reads are always
    /// allowed.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct Access: u32 {
        /// The device may write here for local work requests: receives, READ and atomic results.
        const LOCAL_WRITE = 1 << 0;
        /// The other side may write here. Needs [`LOCAL_WRITE`](Self::LOCAL_WRITE) on memory.
        const REMOTE_WRITE = 1 << 1;
        /// The other side may read here.
        const REMOTE_READ = 1 << 2;
        /// The other side may do atomics here. Needs [`LOCAL_WRITE`](Self::LOCAL_WRITE) on memory, and a device with
        /// [atomics](crate::Capabilities::has_atomics).
        const REMOTE_ATOMIC = 1 << 3;
        /// The region's first address is 0, wherever its memory is: work requests name offsets. The memory starts at a
        /// page, and windows so bound have offsets too. A [`Buffer`](crate::Buffer)'s addresses are the driver's choice.
        const ZERO_BASED = 1 << 5;
        /// Memory that is paged in when the device needs it. The driver has none of it
        /// ([`MrError::NoOnDemandPaging`](crate::MrError::NoOnDemandPaging)).
        const ON_DEMAND = 1 << 6;
        /// The other side may close the region's key, by a send with invalidate; it is this driver's flag, the verbs know it
        /// for memory windows and fast registration only. A closed key still has to be deregistered.
        const REMOTE_INVALIDATE = 1 << 30;
        /// PCIe writes and reads of this memory may be reordered. A permission, not an order: a device that cannot
        /// ignores it.
        const RELAXED_ORDERING = 1 << 20;
    }
}

/// One piece of a work request's data: `struct ibv_sge`.
///
/// Making and posting one is safe: the device reaches only memory that was registered, and only while it is. For an
/// [`Mr`](crate::Mr), its caller has promised ([`Pd::reg_mr`](crate::Pd::reg_mr)) that the device may change it at any
/// time until then; a [`Buffer`](crate::Buffer) never lends its memory out as a Rust reference. A key that does not fit
/// makes the work request fail.
///
/// It lies in memory as `struct ibv_sge`, aligned to 8 bytes also where a `u64` is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(8))]
pub struct Sge {
    /// Where: an address inside the region that `lkey` names.
    pub addr: u64,
    /// Bytes, below 2^31.
    pub length: u32,
    /// The region's local key.
    pub lkey: LKey,
}

impl Sge {
    /// A piece of memory.
    #[must_use]
    #[inline]
    pub const fn new(addr: u64, length: u32, lkey: LKey) -> Self {
        Self { addr, length, lkey }
    }
}
