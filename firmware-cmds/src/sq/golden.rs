//! Bytes computed from the offsets in the vendor's header, for some of the structures.

use super::*;
use crate::golden::emits;

#[test]
fn sqc() {
    emits::<Sqc>(
        |s| {
            s.set_rlky(true)
                .set_cd_master(false)
                .set_fre(true)
                .set_flush_in_error_en(true)
                .set_allow_multi_pkt_send_wqe(false)
                .set_min_wqe_inline_mode(3)
                .set_state(0xb)
                .set_reg_umr(false)
                .set_allow_swp(false)
                .set_hairpin(true)
                .set_ts_format(0)
                .set_user_index(0xbb05a2)
                .set_cqn(0x43bda9)
                .set_hairpin_peer_rq(0xb5fd2e)
                .set_hairpin_peer_vhca(0x1881)
                .set_ts_cqe_to_dest_cqn(0x76f5bc)
                .set_packet_pacing_rate_limit_index(0x453f)
                .set_tis_lst_sz(0xb412)
                .set_qos_queue_group_id(0x50c3)
                .set_tis_num_0(0x252a27);
            s.wq_mut()
                .set_wq_type(0xd)
                .set_hw_counter(0x1eb4d990)
                .set_log_wq_pg_sz(5)
                .set_log_headers_entry_size(0);
        },
        &[
            (0x000, "b3b3a585 a5bb05a2 a543bda9 a5b5fd2e a5a51881"),
            (0x018, "a576f5bc a5a5453f b41250c3"),
            (0x02c, "a5252a27 d5a5a5a5"),
            (0x048, "1eb4d990"),
            (0x050, "a5a5a5a5"),
            (0x06c, "a5a5a4a5"),
        ],
    );
}
