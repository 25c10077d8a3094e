//! Bytes computed from the offsets in the vendor's header, for some of the structures.

use super::*;
use crate::golden::emits;

#[test]
fn rqc() {
    emits::<Rqc>(
        |s| {
            s.set_rlky(false)
                .set_delay_drop_en(true)
                .set_scatter_fcs(false)
                .set_vsd(false)
                .set_mem_rq_type(0xf)
                .set_state(6)
                .set_flush_in_error_en(false)
                .set_hairpin(false)
                .set_ts_format(0)
                .set_user_index(0x4a863e)
                .set_cqn(0x1b835e)
                .set_counter_set_id(0x59)
                .set_rmpn(0xfaabe0)
                .set_hairpin_peer_sq(0x8731ab)
                .set_hairpin_peer_vhca(0xc64a)
                .set_shampo_no_match_alignment_granularity(3)
                .set_shampo_match_criteria_type(1)
                .set_reservation_timeout(0xf21a);
            s.wq_mut()
                .set_wq_umem_valid(true)
                .set_log_wqe_num_of_strides(2)
                .set_two_byte_shift_en(true)
                .set_log_headers_entry_size(3);
        },
        &[
            (
                0x000,
                "4f61a585 a54a863e a51b835e 59a5a5a5 a5faabe0 a58731ab a5a5c64a",
            ),
            (0x024, "a7a5f21a"),
            (0x054, "e5a5a2a5"),
            (0x06c, "a5a5a7a5"),
        ],
    );
}
