//! The words that send and receive WQEs are made of. A segment is a row of quadwords, so that each store is a single
//! byte swap.
//!
//! The structures are those of `include/linux/mlx5/qp.h` and `infiniband/mlx5dv.h`; the PRM describes them in the
//! chapter on work queue entries.

use crate::numbers::{LKey, Qpn, RKey, Srqn};
use crate::word::{Word, words};
use crate::wqe::Opcode;

words! {
    /// First quadword of the control segment, with which every send WQE begins. It is also the send doorbell.
    pub struct ControlWord(u64): "struct mlx5_wqe_ctrl_seg" @ 0x00 {
        /// Opcode modifier.
        u8 op_mod, set_op_mod: 63, 56 => opmod_idx_opcode;
        /// The lower 16 bits of the free running counter of basic blocks: where the WQE starts.
        u16 wqe_index, set_wqe_index: 55, 40 => opmod_idx_opcode;
        /// Opcode: [`Opcode`].
        u8 opcode, set_opcode: 39, 32 => opmod_idx_opcode;
        /// The queue pair or send queue.
        u32 qpn, set_qpn: 31, 8 => qpn_ds;
        /// Size of the WQE in units of 16 bytes.
        u8 ds, set_ds: 5, 0 => qpn_ds;
    }

    /// Second quadword of the control segment.
    pub struct ControlFlags(u64): "struct mlx5_wqe_ctrl_seg" @ 0x08 {
        /// Signature, if the queue is signed.
        u8 signature, set_signature: 63, 56;
        /// Stream of an initiator of dynamic connections.
        u16 dci_stream_channel_id, set_dci_stream_channel_id: 55, 40;
        /// The three fields that follow in one: fence mode, completion and event mode, solicited event.
        u8 fm_ce_se, set_fm_ce_se: 39, 32;
        /// The fence: [`fence`](crate::wqe::fence).
        u8 fence, set_fence: 39, 37 => fm_ce_se;
        /// When it produces a completion: [`completion`](crate::wqe::completion).
        u8 completion, set_completion: 35, 34 => fm_ce_se;
        /// The receiver is to raise a solicited event.
        bool solicited, set_solicited: 33 => fm_ce_se;
        /// Immediate data, key to invalidate, or memory key of a UMR.
        u32 imm, set_imm: 31, 0;
    }

    /// First quadword of the remote address segment of WRITE, READ and atomics.
    pub struct RemoteAddressWord(u64): "struct mlx5_wqe_raddr_seg" @ 0x00 {
        /// The peer's address.
        u64 raddr, set_raddr: 63, 0;
    }

    /// Second quadword of the remote address segment.
    pub struct RemoteKeyWord(u64): "struct mlx5_wqe_raddr_seg" @ 0x08 {
        /// The peer's key.
        u32 rkey, set_rkey: 63, 32;
    }

    /// First quadword of the atomic segment.
    pub struct AtomicSwapAddWord(u64): "struct mlx5_wqe_atomic_seg" @ 0x00 {
        /// The value to swap in, or to add.
        u64 swap_add, set_swap_add: 63, 0;
    }

    /// Second quadword of the atomic segment.
    pub struct AtomicCompareWord(u64): "struct mlx5_wqe_atomic_seg" @ 0x08 {
        /// The value to compare with; 0 for an addition.
        u64 compare, set_compare: 63, 0;
    }

    /// First quadword of an address vector, which is the datagram segment.
    pub struct QKeyWord(u64): "struct mlx5_av" @ 0x00 {
        /// Q_Key of the receiver.
        u32 qkey, set_qkey: 63, 32 => "key.qkey.qkey";
    }

    /// The same quadword of an address vector whose receiver is a target of dynamic connections.
    pub struct DcKeyWord(u64): "struct mlx5_av" @ 0x00 {
        /// Access key of the target.
        u64 dc_key, set_dc_key: 63, 0 => "key.dc_key";
    }

    /// Second quadword of an address vector.
    pub struct DestinationWord(u64): "struct mlx5_av" @ 0x08 {
        /// The vector has all 48 bytes.
        bool ext, set_ext: 63 => dqp_dct;
        /// QPN of the receiver.
        u32 dqp, set_dqp: 55, 32 => dqp_dct;
        /// Static rate.
        u8 stat_rate, set_stat_rate: 31, 28 => stat_rate_sl;
        /// Service level.
        u8 sl, set_sl: 27, 24 => stat_rate_sl;
        /// RoCE: Ethernet priority, in the service level's place.
        u8 eth_prio, set_eth_prio: 27, 25 => stat_rate_sl;
        /// Force loopback.
        bool fl, set_fl: 23 => fl_mlid;
        /// Source path bits.
        u8 mlid, set_mlid: 22, 16 => fl_mlid;
        /// LID of the receiver; RoCE v2: UDP source port.
        u16 rlid, set_rlid: 15, 0;
        /// The same as UDP source port.
        u16 udp_sport, set_udp_sport: 15, 0;
    }

    /// Third quadword of an address vector.
    pub struct RemoteMacWord(u64): "struct mlx5_av" @ 0x10 {
        /// First four bytes of the MAC address of the receiver or its router (RoCE).
        u32 rmac_47_16, set_rmac_47_16: 31, 0 => rmac;
    }

    /// Fourth quadword of an address vector.
    pub struct GrhWord(u64): "struct mlx5_av" @ 0x18 {
        /// Last two bytes of the MAC address.
        u16 rmac_15_0, set_rmac_15_0: 63, 48 => rmac;
        /// Traffic class.
        u8 tclass, set_tclass: 47, 40;
        /// Hop limit.
        u8 hop_limit, set_hop_limit: 39, 32;
        /// A GRH, or its RoCE v2 equivalent, is sent.
        bool grh, set_grh: 30 => grh_gid_fl;
        /// Index of the source GID.
        u8 sgid_index, set_sgid_index: 27, 20 => grh_gid_fl;
        /// Flow label.
        u32 flow_label, set_flow_label: 19, 0 => grh_gid_fl;
    }

    /// Fifth quadword of an address vector.
    pub struct RemoteGidHighWord(u64): "struct mlx5_av" @ 0x20 {
        /// First half of the GID of the receiver.
        u64 rgid_127_64, set_rgid_127_64: 63, 0 => rgid;
    }

    /// Sixth quadword of an address vector.
    pub struct RemoteGidLowWord(u64): "struct mlx5_av" @ 0x28 {
        /// Second half of the GID of the receiver.
        u64 rgid_63_0, set_rgid_63_0: 63, 0 => rgid;
    }

    /// First quadword of the Ethernet segment: checksums and segmentation.
    pub struct EthernetOffloadWord(u64): "struct mlx5_wqe_eth_seg" @ 0x00 {
        /// Offset of the outer transport header in 16-bit words, if software parsed the packet.
        u8 swp_outer_l4_offset, set_swp_outer_l4_offset: 63, 56;
        /// Offset of the outer network header.
        u8 swp_outer_l3_offset, set_swp_outer_l3_offset: 55, 48;
        /// Offset of the inner transport header.
        u8 swp_inner_l4_offset, set_swp_inner_l4_offset: 47, 40;
        /// Offset of the inner network header.
        u8 swp_inner_l3_offset, set_swp_inner_l3_offset: 39, 32;
        /// Checksums to fill in: [`ethernet`](crate::wqe::ethernet).
        u8 cs_flags, set_cs_flags: 31, 24;
        /// Kinds of the headers that software parsed.
        u8 swp_flags, set_swp_flags: 23, 16;
        /// Payload of each packet that a large send is cut into.
        u16 mss, set_mss: 15, 0;
    }

    /// Second quadword of the Ethernet segment: inline headers, or a VLAN tag. The inline headers begin in its last two
    /// bytes and go on behind the segment.
    pub struct EthernetInlineWord(u64): "struct mlx5_wqe_eth_seg" @ 0x08 {
        /// Metadata for flow tables.
        u32 flow_table_metadata, set_flow_table_metadata: 63, 32;
        /// Length of the inline headers; with a tag its type: [`ethernet`](crate::wqe::ethernet).
        u16 inline_hdr_sz, set_inline_hdr_sz: 31, 16 => "inline_hdr.sz";
        /// The VLAN tag to insert.
        u16 vlan_tci, set_vlan_tci: 15, 0 => "insert.vlan_tci";
    }

    /// First quadword of the XRC segment.
    pub struct XrcWord(u64): "struct mlx5_wqe_xrc_seg" @ 0x00 {
        /// The receiver's XRC shared receive queue.
        u32 srqn, set_srqn: 55, 32 => xrc_srqn;
    }

    /// Second quadword of the XRC segment: reserved.
    pub struct XrcReservedWord(u64): "struct mlx5_wqe_xrc_seg" @ 0x08 {}

    /// First quadword of a data segment: a piece of local memory to gather from or to scatter to.
    pub struct DataWord(u64): "struct mlx5_wqe_data_seg" @ 0x00 {
        /// Length; 0 means 2 GiB.
        u32 byte_count, set_byte_count: 63, 32;
        /// Key.
        u32 lkey, set_lkey: 31, 0;
    }

    /// Second quadword of a data segment.
    pub struct DataAddressWord(u64): "struct mlx5_wqe_data_seg" @ 0x08 {
        /// Address.
        u64 addr, set_addr: 63, 0;
    }

    /// The header of inline data. The bytes follow, padded to a multiple of 16 with this header.
    pub struct InlineWord(u32): "struct mlx5_wqe_inline_seg" @ 0x00 {
        /// It is inline data, not a data segment.
        bool inline, set_inline: 31 => byte_count;
        /// Bytes of inline data.
        u16 length, set_length: 9, 0 => byte_count;
    }

    /// First word of a shared receive queue's WQE: they form a chain.
    pub struct SrqNextWord(u32): "struct mlx5_wqe_srq_next_seg" @ 0x00 {
        /// Index of the next WQE.
        u16 next_wqe_index, set_next_wqe_index: 15, 0;
    }

    /// First quadword of the UMR control segment. The memory key's new context ([`crate::mkey::Mkc`]) follows the
    /// segment, of 48 bytes.
    pub struct UmrWord(u64): "struct mlx5_wqe_umr_ctrl_seg" @ 0x00 {
        /// The translation list is in the WQE.
        bool inline, set_inline: 63 => flags;
        /// Fail if the key is not in this state: [`umr`](crate::wqe::umr).
        u8 check, set_check: 62, 61 => flags;
        /// The offset into the translation list counts.
        bool translation_offset, set_translation_offset: 60 => flags;
        /// Fail unless the key belongs to this QP.
        bool check_qpn, set_check_qpn: 59 => flags;
        /// Length of the translation list in units of 16 bytes.
        u16 xlt_octowords, set_xlt_octowords: 31, 16;
        /// Offset in the translation list, lower bits.
        u16 xlt_offset, set_xlt_offset: 15, 0;
    }

    /// Second quadword of the UMR control segment.
    pub struct UmrMaskWord(u64): "struct mlx5_wqe_umr_ctrl_seg" @ 0x08 {
        /// The fields of the context that change: [`umr::mask`](crate::wqe::umr::mask).
        u64 mkey_mask, set_mkey_mask: 63, 0;
    }

    /// Third quadword of the UMR control segment.
    pub struct UmrOffsetWord(u64): "struct mlx5_wqe_umr_ctrl_seg" @ 0x10 {
        /// Offset in the translation list, upper bits.
        u32 xlt_offset_47_16, set_xlt_offset_47_16: 63, 32;
    }

    /// First quadword of an entry of a KLM list: a piece of another key's memory.
    pub struct KlmWord(u64): "struct mlx5_klm" @ 0x00 {
        /// Length.
        u32 bcount, set_bcount: 63, 32;
        /// Key.
        u32 key, set_key: 31, 0;
    }

    /// Second quadword of an entry of a KLM list.
    pub struct KlmAddressWord(u64): "struct mlx5_klm" @ 0x08 {
        /// Address.
        u64 va, set_va: 63, 0;
    }

    /// First quadword of a strided pattern in a KLM list. The entries, of 16 bytes each, follow its second quadword.
    pub struct RepeatBlockWord(u64): "struct mlx5_wqe_umr_repeat_block_seg" @ 0x00 {
        /// Bytes of all entries together, in one repetition.
        u32 byte_count, set_byte_count: 63, 32;
        /// The mark of a pattern, in the place of a key: [`umr::REPEAT`](crate::wqe::umr::REPEAT).
        u32 op, set_op: 31, 0;
    }

    /// Second quadword of a strided pattern.
    pub struct RepeatCountWord(u64): "struct mlx5_wqe_umr_repeat_block_seg" @ 0x08 {
        /// Repetitions.
        u32 repeat_count, set_repeat_count: 63, 32;
        /// Entries.
        u16 num_ent, set_num_ent: 15, 0;
    }

    /// First quadword of an entry of a strided pattern.
    pub struct RepeatEntryWord(u64): "struct mlx5_wqe_umr_repeat_ent_seg" @ 0x00 {
        /// Bytes from one repetition to the next.
        u16 stride, set_stride: 63, 48;
        /// Bytes of one repetition.
        u16 byte_count, set_byte_count: 47, 32;
        /// Key.
        u32 memkey, set_memkey: 31, 0;
    }

    /// Second quadword of an entry of a strided pattern.
    pub struct RepeatAddressWord(u64): "struct mlx5_wqe_umr_repeat_ent_seg" @ 0x08 {
        /// Address of the first repetition.
        u64 va, set_va: 63, 0;
    }
}

impl ControlWord {
    /// The bits that all WQEs of a queue have in common.
    #[must_use]
    pub fn of_queue(qpn: Qpn) -> Self {
        let mut word = Self(0);
        word.set_qpn(qpn.number());
        word
    }

    /// For a WQE at `wqe_index` of `ds` units of 16 bytes, in the queue that this word names.
    #[must_use]
    #[inline(always)]
    pub fn with(mut self, opcode: Opcode, wqe_index: u16, ds: u8) -> Self {
        self.set_wqe_index(wqe_index);
        self.set_opcode(opcode as u8);
        self.set_ds(ds);
        self
    }
}

impl ControlFlags {
    /// These flags, without a signature.
    #[must_use]
    #[inline(always)]
    pub fn new(fm_ce_se: u8, imm: u32) -> Self {
        let mut word = Self(0);
        word.set_fm_ce_se(fm_ce_se);
        word.set_imm(imm);
        word
    }
}

impl RemoteKeyWord {
    /// This key.
    #[must_use]
    #[inline(always)]
    pub fn new(key: RKey) -> Self {
        let mut word = Self(0);
        word.set_rkey(key.0);
        word
    }
}

impl QKeyWord {
    /// This Q_Key.
    #[must_use]
    #[inline(always)]
    pub fn new(qkey: u32) -> Self {
        let mut word = Self(0);
        word.set_qkey(qkey);
        word
    }
}

impl DestinationWord {
    /// This path, to a queue pair there; the vector has all 48 bytes.
    #[must_use]
    #[inline(always)]
    pub fn to(mut self, qpn: Qpn) -> Self {
        self.set_ext(true);
        self.set_dqp(qpn.number());
        self
    }
}

impl XrcWord {
    /// This shared receive queue.
    #[must_use]
    #[inline(always)]
    pub fn new(srqn: Srqn) -> Self {
        let mut word = Self(0);
        word.set_srqn(srqn.number());
        word
    }
}

impl DataWord {
    /// This length and key.
    #[must_use]
    #[inline(always)]
    pub fn new(byte_count: u32, lkey: LKey) -> Self {
        let mut word = Self(0);
        word.set_byte_count(byte_count);
        word.set_lkey(lkey.0);
        word
    }

    /// Length in bytes, with the 2 GiB that a count of 0 means.
    #[must_use]
    #[inline]
    pub fn length(self) -> u32 {
        match self.byte_count() {
            0 => 1 << 31,
            count => count,
        }
    }
}

impl InlineWord {
    /// For so many bytes, at most 1023.
    #[must_use]
    #[inline(always)]
    pub fn new(length: u32) -> Self {
        // The length is the lowest field, so that nothing has to be shifted or cut off.
        let mut word = Self(length);
        word.set_inline(true);
        word
    }
}

/// A whole data segment.
#[must_use]
pub fn data_segment(byte_count: u32, lkey: LKey, addr: u64) -> [u8; 16] {
    let mut segment = [0; 16];
    DataWord::new(byte_count, lkey).write(&mut segment);
    DataAddressWord(addr).write(&mut segment);
    segment
}
