//! Work queue entries: the segments of 16 bytes and multiples of it that send and receive requests are made of.
//!
//! A send WQE begins with a control segment ([`ControlWord`], [`ControlFlags`]) and takes whole basic blocks of 64 bytes in
//! the send queue, which it may wrap around; its size is counted in 16-byte units. What follows the control segment depends
//! on the transport and the opcode: the XRC segment ([`XrcWord`]), an address vector ([`QKeyWord`] to
//! [`RemoteGidLowWord`]), the remote address ([`RemoteAddressWord`], [`RemoteKeyWord`]), operands of an atomic
//! ([`AtomicSwapAddWord`], [`AtomicCompareWord`]), then data segments ([`DataWord`], [`DataAddressWord`]) or inline data
//! ([`InlineWord`]). A receive WQE is a list of data segments, that of a shared queue with a segment in front that leads
//! to the next one ([`SrqNextWord`]).

use crate::numbered::numbered;

mod words;

pub use words::*;

/// Unit in which a WQE's size is counted, in bytes.
pub const SEGMENT_UNIT: usize = 16;
/// Basic block of a send queue in bytes.
pub const BASIC_BLOCK: usize = 64;
/// Bytes of the longest WQE of an RDMA READ, where those of other operations may be longer: Linux's `MLX5_MAX_SGE_RD`.
pub const READ_WQE: usize = 512;

numbered! {
    /// Opcode of a send WQE.
    pub enum Opcode: u8, code {
        /// Does nothing.
        Nop = 0x00, "NOP";
        /// SEND that invalidates a key of the receiver.
        SendInvalidate = 0x01, "SEND_INVAL";
        /// RDMA WRITE.
        RdmaWrite = 0x08, "RDMA_WRITE";
        /// RDMA WRITE that takes a receive WQE and hands over 4 bytes.
        RdmaWriteImmediate = 0x09, "RDMA_WRITE_IMM";
        /// SEND.
        Send = 0x0a, "SEND";
        /// SEND with 4 bytes more.
        SendImmediate = 0x0b, "SEND_IMM";
        /// Large send offload.
        Lso = 0x0e, "LSO";
        /// RDMA READ.
        RdmaRead = 0x10, "RDMA_READ";
        /// Compare and swap.
        AtomicCompareSwap = 0x11, "ATOMIC_CS";
        /// Fetch and add.
        AtomicFetchAdd = 0x12, "ATOMIC_FA";
        /// Compare and swap under masks.
        AtomicMaskedCompareSwap = 0x14, "ATOMIC_MASKED_CS";
        /// Fetch and add under masks.
        AtomicMaskedFetchAdd = 0x15, "ATOMIC_MASKED_FA";
        /// Binds a memory window.
        BindMw = 0x18, "BIND_MW";
        /// Configuration.
        ConfigCmd = 0x1f, "CONFIG_CMD";
        /// Sets a protection signature variable.
        SetPsv = 0x20, "SET_PSV";
        /// Reads a protection signature variable.
        GetPsv = 0x21, "GET_PSV";
        /// Checks a protection signature variable.
        CheckPsv = 0x22, "CHECK_PSV";
        /// Drops what it gathers (TLS resynchronisation).
        Dump = 0x23, "DUMP";
        /// Changes a memory key from the send queue.
        Umr = 0x25, "UMR";
        /// Reads a remote protection signature variable.
        RgetPsv = 0x26, "RGET_PSV";
        /// Checks a remote protection signature variable.
        RcheckPsv = 0x27, "RCHECK_PSV";
        /// Several Ethernet packets in one WQE.
        EnhancedMpsw = 0x29, "ENHANCED_MPSW";
        /// Advanced steering object.
        AccessAso = 0x2d, "ACCESS_ASO";
    }
    /// Every opcode.
    const ALL;
    /// The opcode with this number.
    #[inline]
    fn from_number;
    /// Name, as in `device.h`.
    fn name;
}

/// When a send WQE produces a completion: values in [`ControlFlags::fm_ce_se`].
pub mod completion {
    /// Only if it fails.
    pub const ON_ERROR: u8 = 0 << 2;
    /// Always.
    pub const ALWAYS: u8 = 2 << 2;
    /// Always, with an event.
    pub const ALWAYS_WITH_EVENT: u8 = 3 << 2;
    /// The bits.
    pub const MASK: u8 = 3 << 2;
}

/// The fence of a send WQE, which says what it waits for: values in [`ControlFlags::fm_ce_se`].
pub mod fence {
    /// Nothing.
    pub const NONE: u8 = 0;
    /// Local invalidations and binds before it.
    pub const INITIATOR_SMALL: u8 = 1 << 5;
    /// READs and atomics before it.
    pub const FENCE: u8 = 2 << 5;
    /// Everything before it.
    pub const STRONG_ORDERING: u8 = 3 << 5;
    /// Both of the first two; what `IBV_SEND_FENCE` asks for.
    pub const SMALL_AND_FENCE: u8 = 4 << 5;
    /// The bits.
    pub const MASK: u8 = 7 << 5;
}

/// Values in the Ethernet segment.
pub mod ethernet {
    /// Fill in the inner network header's checksum.
    pub const INNER_L3_CHECKSUM: u8 = 1 << 4;
    /// Fill in the inner transport header's checksum.
    pub const INNER_L4_CHECKSUM: u8 = 1 << 5;
    /// Fill in the IPv4 header's checksum.
    pub const L3_CHECKSUM: u8 = 1 << 6;
    /// Fill in the checksum of TCP or UDP.
    pub const L4_CHECKSUM: u8 = 1 << 7;
    /// Byte of the segment at which inline headers start, or where the VLAN tag stands.
    pub const INLINE_START: usize = 14;
    /// Insert a VLAN tag: flag of [`inline_hdr_sz`](super::EthernetInlineWord::inline_hdr_sz).
    pub const INSERT_VLAN: u16 = 1 << 15;
    /// The tag is a service tag (0x88a8).
    pub const SERVICE_TAG: u16 = 1;
}

/// Values in the UMR control segment.
pub mod umr {
    /// Fail unless the key is free: [`check`](super::UmrWord::check). Linux calls it `MLX5_UMR_CHECK_NOT_FREE`, rdma-core
    /// `CHECK_FREE`.
    pub const MUST_BE_FREE: u8 = 1;
    /// Fail if the key is free. Linux calls it `MLX5_UMR_CHECK_FREE`.
    pub const MUST_NOT_BE_FREE: u8 = 2;

    /// [`RepeatBlockWord::op`](super::RepeatBlockWord::op) of a strided pattern.
    pub const REPEAT: u32 = 0x400;
    /// Translation lists have a multiple of so many octowords, in memory and in WQEs.
    pub const LIST_UNIT: usize = 4;
    /// Alignment of a translation list that lies in memory: Linux's `MLX5_UMR_ALIGN`, DPDK's `MLX5_UMR_KLM_PTR_ALIGN`.
    pub const LIST_ALIGN: usize = 2048;

    /// Fields of the context, in [`mkey_mask`](super::UmrMaskWord::mkey_mask).
    pub mod mask {
        /// Length.
        pub const LEN: u64 = 1 << 0;
        /// Page size.
        pub const PAGE_SIZE: u64 = 1 << 1;
        /// Start address.
        pub const START_ADDR: u64 = 1 << 6;
        /// Protection domain.
        pub const PD: u64 = 1 << 7;
        /// Remote invalidation allowed.
        pub const EN_RINVAL: u64 = 1 << 8;
        /// Signature errors.
        pub const EN_SIGERR: u64 = 1 << 9;
        /// Signature BSF.
        pub const BSF_EN: u64 = 1 << 12;
        /// Lowest byte of the key.
        pub const KEY: u64 = 1 << 13;
        /// QPN.
        pub const QPN: u64 = 1 << 14;
        /// Local read.
        pub const LR: u64 = 1 << 17;
        /// Local write.
        pub const LW: u64 = 1 << 18;
        /// Remote read.
        pub const RR: u64 = 1 << 19;
        /// Remote write.
        pub const RW: u64 = 1 << 20;
        /// Atomic.
        pub const A: u64 = 1 << 21;
        /// Small fence on READ responses.
        pub const SMALL_FENCE: u64 = 1 << 23;
        /// Relaxed ordering of writes.
        pub const RELAXED_ORDERING_WRITE: u64 = 1 << 25;
        /// Free.
        pub const FREE: u64 = 1 << 29;
        /// Relaxed ordering of reads.
        pub const RELAXED_ORDERING_READ: u64 = 1 << 47;
    }
}

#[cfg(test)]
mod tests;
