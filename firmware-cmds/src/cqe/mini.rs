//! Compressed completions: a title and arrays of mini CQEs.
//!
//! A session of N completions takes N entries of the ring. The entry of the first is the *title*: a CQE whose format is
//! [`Format::Compressed`](crate::cqe::Format::Compressed) and whose byte count is N. The fields in which the completions
//! differ are in mini CQEs, [`PER_ARRAY`] in an entry (with 128-byte entries in the second half of it): those of completions
//! 0 to 7 in the entry behind the title, those of 8 to 15 in the title's entry + 8, of 16 to 23 in + 16, and so on
//! ([`array_of`]). The device writes no other entry of the session; the consumer gives all of them back marked as invalid,
//! since an array has no owner bit and what is not written has one of an earlier pass. All other fields are the title's.
//! Completions in error and those that ask for an event are never compressed.
//!
//! So read by Linux's mlx5e (`mlx5e_decompress_cqes_start`, `mlx5e_decompress_cqes_cont` in `en_rx.c`) and by DPDK
//! (`mlx5_rx_poll_len` in `mlx5_rx.c`). Of the title's `wqe_counter` both count on, one for each completion, unless the mini
//! CQE has a counter of its own ([`MiniFormat::ChecksumStride`], and those of a requester).

use crate::numbered::numbered;
use crate::word::words;

/// Mini CQEs in an entry.
pub const PER_ARRAY: u32 = 8;

/// The entry, counted from the title's, that has the mini CQE of this completion of a session.
#[must_use]
#[inline(always)]
pub const fn array_of(completion: u32) -> u32 {
    if completion < PER_ARRAY {
        1
    } else {
        completion & !(PER_ARRAY - 1)
    }
}

numbered! {
    /// The field that a receiver's mini CQEs hold beside the byte count, `cqc.mini_cqe_res_format`.
    pub enum MiniFormat: u8, words {
        Hash = 0, "HASH";
        Checksum = 1, "CSUM";
        ChecksumStride = 3, "CSUM_STRIDX";
    }
    /// Every format.
    const ALL;
    /// The format with this number; 2 is reserved.
    fn from_number;
    /// Its name in rdma-core, after `MLX5DV_CQE_RES_FORMAT_`.
    fn name;
    /// The number in the context.
    fn number;
}

words! {
    /// A mini CQE.
    pub struct MiniCqe(u64): "struct mlx5_mini_cqe8" @ 0x00 {
        /// Hash of the packet's headers ([`MiniFormat::Hash`]).
        u32 rx_hash_result, set_rx_hash_result: 63, 32;
        /// Checksum over the packet ([`MiniFormat::Checksum`], [`MiniFormat::ChecksumStride`]).
        u16 checksum, set_checksum: 63, 48;
        /// In place of the title's `wqe_counter` ([`MiniFormat::ChecksumStride`]).
        u16 stridx, set_stridx: 47, 32;
        /// Index of the completed WQE (requester).
        u16 wqe_counter, set_wqe_counter: 63, 48 => "s_wqe_info.wqe_counter";
        /// Opcode of the completed WQE (requester).
        u8 s_wqe_opcode, set_s_wqe_opcode: 47, 40 => "s_wqe_info.s_wqe_opcode";
        /// Bytes received, read or swapped.
        u32 byte_cnt, set_byte_cnt: 31, 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where mlx5e looks: the entry behind the title first, then, each time eight are used up, the entry that the
    /// completion would have had.
    #[test]
    fn arrays_are_where_a_kernel_looks() {
        let (mut array, mut left) = (1, PER_ARRAY);
        for completion in 0..300 {
            if left == 0 {
                (array, left) = (completion, PER_ARRAY);
            }
            left -= 1;
            assert_eq!(array_of(completion), array, "{completion}");
        }
    }
}
