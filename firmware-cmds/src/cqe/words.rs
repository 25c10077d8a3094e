//! The words of a completion, of 64 bytes or in the second half of 128: `struct mlx5_cqe64`, and `struct mlx5_err_cqe`
//! for one in error (PRM, chapter on completion queue entries).

use crate::cqe::Opcode;
use crate::word::words;

words! {
    /// Index of a WQE with several packets.
    pub struct WqeIdWord(u32): "struct mlx5_cqe64" @ 0x00 {
        /// Encapsulation and TLS state.
        u8 tls_outer_l3_tunneled, set_tls_outer_l3_tunneled: 31, 24;
        /// The packet is in a tunnel: what is said of checksums is of its inner headers as well.
        bool tunneled, set_tunneled: 24 => tls_outer_l3_tunneled;
        /// The tunnel's outer network header is IPv6, otherwise IPv4 (`outer_l3_type` of DPDK's `mlx5_set_ptype_table`).
        bool outer_ipv6, set_outer_ipv6: 25 => tls_outer_l3_tunneled;
        /// Index of the WQE (striding receive queues).
        u16 wqe_id, set_wqe_id: 15, 0;
    }

    /// Hash of the packet's headers (Ethernet).
    pub struct RssHashWord(u32): "struct mlx5_cqe64" @ 0x0c {
        /// The hash.
        u32 rss_hash_result, set_rss_hash_result: 31, 0;
    }

    /// The kind of RSS hash, and path bits.
    pub struct PathWord(u32): "struct mlx5_cqe64" @ 0x10 {
        /// The header fields that were hashed (Ethernet).
        u8 rss_hash_type, set_rss_hash_type: 31, 24;
        /// Path bits of the local identifier; for Ethernet, bit 7 is congestion experienced.
        u8 ml_path, set_ml_path: 23, 16;
        /// Low bits of the destination LID (InfiniBand).
        u8 dlid_path_bits, set_dlid_path_bits: 22, 16 => ml_path;
    }

    /// Checksum, and the sender's local identifier.
    pub struct SlidWord(u32): "struct mlx5_cqe64" @ 0x14 {
        /// Checksum over the packet (Ethernet).
        u16 check_sum, set_check_sum: 31, 16;
        /// Source local identifier (InfiniBand UD).
        u16 slid, set_slid: 15, 0;
    }

    /// Where a datagram came from.
    pub struct SourceWord(u32): "struct mlx5_cqe64" @ 0x18 {
        /// Not 0: a GRH, or its RoCE v2 equivalent, precedes the payload.
        u8 grh, set_grh: 29, 28 => flags_rqpn;
        /// Service level (InfiniBand).
        u8 sl, set_sl: 27, 24 => flags_rqpn;
        /// Kind of network header (RoCE): [`L3Type`](crate::cqe::L3Type).
        u8 l3_type, set_l3_type: 25, 24 => flags_rqpn;
        /// The sender's QPN.
        u32 rqpn, set_rqpn: 23, 0 => flags_rqpn;
    }

    /// The headers that a packet has (Ethernet).
    pub struct HeadersWord(u32): "struct mlx5_cqe64" @ 0x1c {
        /// The device found a TCP or UDP header, and its checksum right.
        bool l4_ok, set_l4_ok: 26 => hds_ip_ext;
        /// The device found an IP header, and its checksum right.
        bool l3_ok, set_l3_ok: 25 => hds_ip_ext;
        /// The Ethernet header is sound.
        bool l2_ok, set_l2_ok: 24 => hds_ip_ext;
        /// Kind of transport header: [`l4_header`](crate::cqe::l4_header).
        u8 l4_hdr_type, set_l4_hdr_type: 22, 20 => l4_l3_hdr_type;
        /// Kind of network header: [`l3_header`](crate::cqe::l3_header).
        u8 l3_hdr_type, set_l3_hdr_type: 19, 18 => l4_l3_hdr_type;
        /// A fragment of an IP packet.
        bool ip_frag, set_ip_frag: 17 => l4_l3_hdr_type;
        /// A VLAN tag was taken out.
        bool vlan, set_vlan: 16 => l4_l3_hdr_type;
        /// The VLAN tag.
        u16 vlan_info, set_vlan_info: 15, 0;
    }

    /// The queue that the completion is of.
    pub struct IndexWord(u32): "struct mlx5_cqe64" @ 0x20 {
        /// SRQ number or, with CQE version 1, user index.
        u32 srqn_uidx, set_srqn_uidx: 23, 0 => srqn;
    }

    /// Immediate data, invalidated key, or P_Key.
    pub struct ImmediateWord(u32): "struct mlx5_cqe64" @ 0x24 {
        /// Immediate data.
        u32 immediate, set_immediate: 31, 0;
        /// The key that a SEND with invalidate invalidated.
        u32 inval_rkey, set_inval_rkey: 31, 0;
        /// P_Key index or, on the GSI, the packet's P_Key.
        u16 pkey_index, set_pkey_index: 15, 0 => pkey;
    }

    /// Length.
    pub struct ByteCountWord(u32): "struct mlx5_cqe64" @ 0x2c {
        /// Bytes received, read or swapped.
        u32 byte_cnt, set_byte_cnt: 31, 0;
        /// Striding receive queues: no packet, only strides that stay unused.
        bool filler, set_filler: 31 => byte_cnt;
        /// Striding receive queues: strides that are used up.
        u16 consumed_strides, set_consumed_strides: 30, 16 => byte_cnt;
        /// Striding receive queues: bytes received.
        u16 strided_byte_cnt, set_strided_byte_cnt: 15, 0 => byte_cnt;
    }

    /// Time stamp, in units of the device's clock.
    pub struct TimestampWord(u64): "struct mlx5_cqe64" @ 0x30 {
        /// Its upper half.
        u32 timestamp_h, set_timestamp_h: 63, 32;
        /// Its lower half.
        u32 timestamp_l, set_timestamp_l: 31, 0;
    }

    /// Why a work request failed, in a completion in error.
    pub struct ErrorWord(u32): "struct mlx5_err_cqe" @ 0x34 {
        /// The vendor's own error code.
        u8 vendor_err_synd, set_vendor_err_synd: 15, 8;
        /// The kind of error: [`Syndrome`](crate::cqe::Syndrome).
        u8 syndrome, set_syndrome: 7, 0;
    }

    /// The last quadword of every completion. One load reads it, so that all of it is of one time.
    pub struct TailWord(u64): "struct mlx5_cqe64" @ 0x38 {
        /// Opcode of the completed send WQE.
        u8 wqe_opcode, set_wqe_opcode: 63, 56 => sop_drop_qpn;
        /// Local QPN; in a receive completion of an Ethernet queue the mark of flow steering.
        u32 qpn, set_qpn: 55, 32 => sop_drop_qpn;
        /// Index of the completed WQE.
        u16 wqe_counter, set_wqe_counter: 31, 16;
        /// Signature, or the pass counter of enhanced compression.
        u8 signature, set_signature: 15, 8;
        /// [`OpOwn`].
        u8 op_own, set_op_own: 7, 0;
    }

    /// The last byte of every completion, which the device writes last.
    pub struct OpOwn(u8): "struct mlx5_cqe64" @ 0x3f {
        /// [`Opcode`].
        u8 opcode, set_opcode: 7, 4 => op_own;
        /// Where the data of a small receive is: [`Format`](crate::cqe::Format).
        u8 format, set_format: 3, 2 => op_own;
        /// The sender asked for an event.
        bool solicited, set_solicited: 1 => op_own;
        /// Owner bit.
        u8 owner, set_owner: 0, 0 => op_own;
    }
}

impl SourceWord {
    /// A GRH, or its RoCE v2 equivalent, precedes the payload.
    #[must_use]
    #[inline(always)]
    pub fn has_grh(self) -> bool {
        self.grh() != 0
    }
}

impl TimestampWord {
    /// The whole.
    #[must_use]
    #[inline(always)]
    pub const fn timestamp(self) -> u64 {
        self.0
    }
}

impl OpOwn {
    /// That of an entry that the device has not written: [`Opcode::Invalid`].
    pub const INIT: Self = Self::new(Opcode::Invalid);

    /// With this opcode, all else 0.
    #[must_use]
    #[inline]
    pub const fn new(opcode: Opcode) -> Self {
        Self((opcode as u8) << 4)
    }

    /// `true` if an entry with this byte belongs to the consumer, in the pass with this owner bit
    /// ([`crate::event::owner_of_pass`]): the owner bit is that of the pass, and the opcode is not
    /// [`Opcode::Invalid`]. One comparison for both.
    #[must_use]
    #[inline(always)]
    pub const fn is_ready(self, owner: u8) -> bool {
        (self.0 ^ owner).rotate_right(1) < (Opcode::Invalid as u8) << 3
    }
}

impl TailWord {
    /// Its last byte.
    #[must_use]
    #[inline(always)]
    pub const fn last(self) -> OpOwn {
        OpOwn(self.0 as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_ready_when_it_was_written_on_this_pass() {
        for byte in 0..=255u8 {
            for owner in [0, 1] {
                let word = OpOwn(byte);
                let written = word.opcode() != Opcode::Invalid as u8 && word.owner() == owner;
                assert_eq!(word.is_ready(owner), written, "{byte:#x}, pass {owner}");
            }
        }
        assert!(!OpOwn::INIT.is_ready(0));
        for &opcode in Opcode::ALL {
            assert_eq!(OpOwn::new(opcode).opcode(), opcode as u8);
        }
    }

    #[test]
    fn the_last_byte_is_the_byte_itself() {
        for byte in 0..=255u8 {
            let tail = TailWord(0xa5a5_a5a5_a5a5_a500 | u64::from(byte));
            assert_eq!((tail.last().0, tail.op_own()), (byte, byte));
        }
    }
}
