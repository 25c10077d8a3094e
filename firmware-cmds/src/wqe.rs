//! Work queue entries: the segments of 16 bytes and multiples of it that send and receive requests are made of.
//!
//! A send WQE begins with a [`Control`] segment and takes whole basic blocks of 64 bytes in the send queue, which it may
//! wrap around; its size is counted in 16-byte units. What follows the control segment depends on the transport and the
//! opcode: [`Xrc`], [`AddressVector`], [`RemoteAddress`], [`Atomic`], then [`Data`] segments or inline data. A receive
//! WQE is a list of [`Data`] segments, that of a shared queue with a [`SrqNext`] segment in front.

use crate::numbered::numbered;
use crate::numbers::{GidIndex, LKey, Qpn, RKey};
use crate::wire::wire;
use zerocopy::byteorder::big_endian::{U16, U32, U64};

/// Unit in which a WQE's size is counted, in bytes.
pub const SEGMENT_UNIT: usize = 16;
/// Basic block of a send queue in bytes.
pub const BASIC_BLOCK: usize = 64;
/// Flag of [`Data::byte_count`] for inline data.
pub const INLINE: u32 = 0x8000_0000;
/// Bits of an inline header that hold the length.
pub const INLINE_LENGTH_MASK: u32 = 0x3ff;

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

/// When a send WQE produces a completion: bits 3:2 of [`Control::fm_ce_se`].
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

/// Bit 1 of [`Control::fm_ce_se`]: the receiver is to raise a solicited event.
pub const SOLICITED: u8 = 1 << 1;

/// What a send WQE waits for: bits 7:5 of [`Control::fm_ce_se`].
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

wire! {
    /// The control segment, with which every send WQE begins. Its first 8 bytes are also the send doorbell.
    pub struct Control: "mlx5_wqe_ctrl_seg", 16 {
        /// Opcode modifier in 31:24, WQE index in 23:8, opcode in 7:0.
        opmod_idx_opcode: U32,
        /// QPN in 31:8, size in 16-byte units in 5:0.
        qpn_ds: U32,
        /// Signature, if the queue is signed.
        signature: u8,
        /// Padding.
        reserved0: [u8; 2],
        /// Fence, completion and solicited bits.
        fm_ce_se: u8,
        /// Immediate data, key to invalidate, or memory key of a UMR.
        imm: U32,
    }
}

impl Control {
    /// The bits of [`qpn_ds`](Self::qpn_ds) that hold the size.
    pub const DS_MASK: u32 = 0x3f;

    /// For a WQE at `index` (the free running counter's lower 16 bits) of `units` 16-byte units.
    #[must_use]
    #[inline]
    pub const fn new(opcode: u8, index: u16, qpn: Qpn, units: u8, fm_ce_se: u8, imm: u32) -> Self {
        Self {
            opmod_idx_opcode: U32::new((index as u32) << 8 | opcode as u32),
            qpn_ds: U32::new(qpn.number() << 8 | units as u32),
            signature: 0,
            reserved0: [0; 2],
            fm_ce_se,
            imm: U32::new(imm),
        }
    }

    /// The value of the doorbell that announces this WQE.
    #[must_use]
    #[inline]
    pub const fn doorbell(&self) -> u64 {
        (self.opmod_idx_opcode.get() as u64) << 32 | self.qpn_ds.get() as u64
    }

    /// Opcode; any number may be there.
    #[must_use]
    #[inline]
    pub const fn opcode(&self) -> u8 {
        self.opmod_idx_opcode.get() as u8
    }

    /// Opcode modifier.
    #[must_use]
    #[inline]
    pub const fn op_mod(&self) -> u8 {
        (self.opmod_idx_opcode.get() >> 24) as u8
    }

    /// WQE index.
    #[must_use]
    #[inline]
    pub const fn index(&self) -> u16 {
        (self.opmod_idx_opcode.get() >> 8) as u16
    }

    /// The queue that it is in.
    #[must_use]
    #[inline]
    pub const fn qpn(&self) -> Qpn {
        Qpn::from_low_bits(self.qpn_ds.get() >> 8)
    }

    /// Size in 16-byte units.
    #[must_use]
    #[inline]
    pub const fn units(&self) -> u8 {
        (self.qpn_ds.get() & Self::DS_MASK) as u8
    }
}

/// A send doorbell taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendDoorbell {
    /// The queue pair.
    pub qpn: Qpn,
    /// Index of the last WQE.
    pub index: u16,
    /// Its opcode.
    pub opcode: u8,
    /// Its size in 16-byte units.
    pub units: u8,
}

impl SendDoorbell {
    /// From the 8 bytes written to the UAR.
    #[must_use]
    pub const fn parse(value: u64) -> Self {
        let low = value as u32;
        Self {
            qpn: Qpn::from_low_bits(low >> 8),
            index: (value >> 40) as u16,
            opcode: (value >> 32) as u8,
            units: (low & Control::DS_MASK) as u8,
        }
    }
}

wire! {
    /// The peer's memory, for WRITE, READ and atomics.
    pub struct RemoteAddress: "mlx5_wqe_raddr_seg", 16 {
        /// Address.
        raddr: U64,
        /// Key.
        rkey: U32,
        /// Padding.
        reserved0 = reserved: U32,
    }
}

impl RemoteAddress {
    /// This memory.
    #[must_use]
    #[inline]
    pub const fn new(address: u64, rkey: RKey) -> Self {
        Self {
            raddr: U64::new(address),
            rkey: U32::new(rkey.0),
            reserved0: U32::new(0),
        }
    }
}

wire! {
    /// Operands of an atomic.
    pub struct Atomic: "mlx5_wqe_atomic_seg", 16 {
        /// The value to swap in, or to add.
        swap_add: U64,
        /// The value to compare with; 0 for an addition.
        compare: U64,
    }
}

impl Atomic {
    /// Operands of a compare and swap.
    #[must_use]
    #[inline]
    pub const fn compare_swap(compare: u64, swap: u64) -> Self {
        Self {
            swap_add: U64::new(swap),
            compare: U64::new(compare),
        }
    }

    /// Operands of a fetch and add.
    #[must_use]
    #[inline]
    pub const fn fetch_add(add: u64) -> Self {
        Self {
            swap_add: U64::new(add),
            compare: U64::new(0),
        }
    }
}

wire! {
    /// Operands of a masked atomic.
    pub struct MaskedAtomic: "mlx5_wqe_masked_atomic_seg", 32 {
        /// The value to swap in, or to add.
        swap_add: U64,
        /// The value to compare with.
        compare: U64,
        /// Bits to swap, or field boundaries of the addition.
        swap_add_mask: U64,
        /// Bits to compare.
        compare_mask: U64,
    }
}

wire! {
    /// Where a datagram goes: the datagram segment.
    pub struct AddressVector: "mlx5_av", 48 {
        /// Q_Key of the receiver.
        q_key = "key.qkey.qkey": U32,
        /// Padding; with the Q_Key, the DC access key.
        reserved0: U32,
        /// QPN of the receiver in 23:0; [`EXTENDED`](Self::EXTENDED).
        dqp_dct: U32,
        /// Static rate in 7:4, service level in 3:0 (RoCE: priority in 3:1).
        stat_rate_sl: u8,
        /// Force loopback in 7, source path bits in 6:0.
        fl_mlid: u8,
        /// LID of the receiver; RoCE v2: UDP source port.
        rlid_udp_sport = rlid: U16,
        /// Padding.
        reserved1: [u8; 4],
        /// MAC address of the receiver or its router (RoCE).
        rmac: [u8; 6],
        /// Traffic class.
        tclass: u8,
        /// Hop limit.
        hop_limit: u8,
        /// GRH present in 30, index of the source GID in 27:20, flow label in 19:0.
        grh_gid_fl: U32,
        /// GID of the receiver.
        rgid: [u8; 16],
    }
}

impl AddressVector {
    /// Flag of [`dqp_dct`](Self::dqp_dct): the vector has all 48 bytes.
    pub const EXTENDED: u32 = 0x8000_0000;
    /// Flag of [`grh_gid_fl`](Self::grh_gid_fl): a GRH, or its RoCE v2 equivalent, is sent.
    pub const GRH: u32 = 1 << 30;

    /// The receiver's queue pair.
    #[must_use]
    #[inline]
    pub const fn qpn(&self) -> Qpn {
        Qpn::from_low_bits(self.dqp_dct.get())
    }

    /// Sets the receiver's queue pair and Q_Key, and that the vector is whole.
    #[inline]
    pub const fn set_receiver(&mut self, qpn: Qpn, q_key: u32) -> &mut Self {
        self.dqp_dct = U32::new(qpn.number() | Self::EXTENDED);
        self.q_key = U32::new(q_key);
        self
    }

    /// Sets source GID and flow label, and that there is a GRH.
    #[inline]
    pub const fn set_grh(&mut self, source: GidIndex, flow_label: u32) -> &mut Self {
        self.grh_gid_fl = U32::new(Self::GRH | (source.0 as u32) << 20 | flow_label & 0x000f_ffff);
        self
    }

    /// Whether there is a GRH.
    #[must_use]
    #[inline]
    pub const fn has_grh(&self) -> bool {
        self.grh_gid_fl.get() & Self::GRH != 0
    }

    /// Index of the source GID.
    #[must_use]
    #[inline]
    pub const fn source_gid(&self) -> GidIndex {
        GidIndex((self.grh_gid_fl.get() >> 20) as u8)
    }

    /// Flow label.
    #[must_use]
    #[inline]
    pub const fn flow_label(&self) -> u32 {
        self.grh_gid_fl.get() & 0x000f_ffff
    }
}

wire! {
    /// What an Ethernet send asks of its packet: checksums, segmentation, a VLAN tag. Headers to be sent inline begin in
    /// [`inline_start`](Self::inline_start) and go on behind the segment.
    pub struct Ethernet: "mlx5_wqe_eth_seg", 16 {
        /// Offset of the outer transport header in 16-bit words, if software parsed the packet.
        swp_outer_l4_offset: u8,
        /// Offset of the outer network header.
        swp_outer_l3_offset: u8,
        /// Offset of the inner transport header.
        swp_inner_l4_offset: u8,
        /// Offset of the inner network header.
        swp_inner_l3_offset: u8,
        /// Checksums to fill in: [`ethernet`].
        cs_flags: u8,
        /// Kinds of the headers that software parsed.
        swp_flags: u8,
        /// Payload of each packet that a large send is cut into.
        mss: U16,
        /// Metadata for flow tables.
        flow_table_metadata: U32,
        /// Length of the inline headers, or [`ethernet::INSERT_VLAN`] and the tag's type.
        inline_size = "inline_hdr.sz": U16,
        /// The first bytes of the inline headers, or the VLAN tag to insert.
        inline_start = "inline_hdr.start": [u8; 2],
    }
}

/// Values in an [`Ethernet`] segment.
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

wire! {
    /// The receiver's XRC shared receive queue.
    pub struct Xrc: "mlx5_wqe_xrc_seg", 16 {
        /// Its number in 23:0.
        xrc_srqn: U32,
        /// Padding.
        reserved0: [u8; 12],
    }
}

wire! {
    /// A piece of local memory to gather from or to scatter to.
    pub struct Data: "mlx5_wqe_data_seg", 16 {
        /// Length; 0 means 2 GiB.
        byte_count: U32,
        /// Key.
        lkey: U32,
        /// Address.
        addr: U64,
    }
}

impl Data {
    /// Ends a list that is shorter than its stride.
    pub const TERMINATOR: Self = Self::new(0, LKey::TERMINATOR, 0);

    /// This memory.
    #[must_use]
    #[inline]
    pub const fn new(length: u32, lkey: LKey, address: u64) -> Self {
        Self {
            byte_count: U32::new(length),
            lkey: U32::new(lkey.0),
            addr: U64::new(address),
        }
    }

    /// It ends the list.
    #[must_use]
    #[inline]
    pub const fn is_terminator(&self) -> bool {
        self.byte_count.get() == 0 && self.lkey.get() == LKey::TERMINATOR.0
    }

    /// Length of the inline data that starts 4 bytes after this segment does, if it is such.
    #[must_use]
    #[inline]
    pub const fn inline_length(&self) -> Option<usize> {
        inline_length(self.byte_count.get())
    }

    /// Length in bytes, with the 2 GiB that a count of 0 means.
    #[must_use]
    #[inline]
    pub const fn length(&self) -> u32 {
        match self.byte_count.get() {
            0 => 1 << 31,
            count => count,
        }
    }
}

wire! {
    /// What precedes inline data: flag and length, then the bytes, padded to 16 bytes with this header.
    pub struct InlineHeader: "mlx5_wqe_inline_seg", 4 {
        /// [`INLINE`] and the length.
        byte_count: U32,
    }
}

impl InlineHeader {
    /// For so many bytes, of which the lower 10 bits count.
    #[must_use]
    #[inline]
    pub const fn new(length: u32) -> Self {
        Self {
            byte_count: U32::new(INLINE | length & INLINE_LENGTH_MASK),
        }
    }
}

/// Length of the inline data that a dword announces, if it does.
#[must_use]
#[inline]
pub const fn inline_length(byte_count: u32) -> Option<usize> {
    if byte_count & INLINE != 0 {
        Some((byte_count & INLINE_LENGTH_MASK) as usize)
    } else {
        None
    }
}

/// 16-byte units that inline data of this length takes with its header.
#[must_use]
#[inline]
pub const fn inline_units(length: usize) -> usize {
    (length + InlineHeader::SIZE).div_ceil(SEGMENT_UNIT)
}

wire! {
    /// The first segment of a shared receive queue's WQE: they form a chain.
    pub struct SrqNext: "mlx5_wqe_srq_next_seg", 16 {
        /// Padding.
        reserved0: [u8; 2],
        /// Index of the next WQE.
        next_wqe_index: U16,
        /// Signature, if the queue is signed.
        signature: u8,
        /// Padding.
        reserved1: [u8; 11],
    }
}

wire! {
    /// What a UMR changes. The memory key's new context ([`crate::mkey::Mkc`]) follows.
    pub struct UmrControl: "mlx5_wqe_umr_ctrl_seg", 48 {
        /// Flags: [`umr`].
        flags: u8,
        /// Padding.
        reserved0: [u8; 3],
        /// Length of the translation list in 16-byte units.
        xlt_octowords: U16,
        /// Offset in the translation list, lower bits.
        xlt_offset: U16,
        /// Which fields of the context to change: [`umr::mask`].
        mkey_mask: U64,
        /// Offset in the translation list, upper bits.
        xlt_offset_47_16: U32,
        /// Padding.
        reserved1: [u8; 28],
    }
}

/// Values in the UMR control segment.
pub mod umr {
    /// Fail unless the key is free: [`check`](super::UmrWord::check). Linux calls it `MLX5_UMR_CHECK_NOT_FREE`, rdma-core
    /// `CHECK_FREE`.
    pub const MUST_BE_FREE: u8 = 1;
    /// Fail if the key is free. Linux calls it `MLX5_UMR_CHECK_FREE`.
    pub const MUST_NOT_BE_FREE: u8 = 2;

    /// Fields of the context, in [`mkey_mask`](super::super::UmrMaskWord::mkey_mask).
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

wire! {
    /// An entry of a KLM list: a piece of another key's memory.
    pub struct Klm: "mlx5_klm", 16 {
        /// Length.
        byte_count = bcount: U32,
        /// Key.
        key: U32,
        /// Address.
        va: U64,
    }
}

mod words;

pub use words::*;

#[cfg(test)]
mod tests;
