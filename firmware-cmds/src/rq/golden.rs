//! Golden bytes: emitted into, and parsed from, buffers full of 0xa5, so that a write beside its field shows. The
//! expected bytes are computed from the header's own offsets, not from this crate's.

use super::*;
use crate::golden::{emits, fresh, parses};

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

#[test]
fn rqc_parsed() {
    parses::<Rqc>(
        &[
            (
                0x000,
                "4f61a585 a54a863e a51b835e 59a5a5a5 a5faabe0 a58731ab a5a5c64a",
            ),
            (0x024, "a7a5f21a"),
            (0x054, "e5a5a2a5"),
            (0x06c, "a5a5a7a5"),
        ],
        |s| {
            assert!(!s.rlky());
            assert!(s.delay_drop_en());
            assert!(!s.scatter_fcs());
            assert!(!s.vsd());
            assert_eq!(s.mem_rq_type(), 0xf);
            assert_eq!(s.state(), 6);
            assert!(!s.flush_in_error_en());
            assert!(!s.hairpin());
            assert_eq!(s.ts_format(), 0);
            assert_eq!(s.user_index(), 0x4a863e);
            assert_eq!(s.cqn(), 0x1b835e);
            assert_eq!(s.counter_set_id(), 0x59);
            assert_eq!(s.rmpn(), 0xfaabe0);
            assert_eq!(s.hairpin_peer_sq(), 0x8731ab);
            assert_eq!(s.hairpin_peer_vhca(), 0xc64a);
            assert_eq!(s.shampo_no_match_alignment_granularity(), 3);
            assert_eq!(s.shampo_match_criteria_type(), 1);
            assert_eq!(s.reservation_timeout(), 0xf21a);
            assert!(s.wq().wq_umem_valid());
            assert_eq!(s.wq().log_wqe_num_of_strides(), 2);
            assert!(s.wq().two_byte_shift_en());
            assert_eq!(s.wq().log_headers_entry_size(), 3);
        },
    );
}

#[test]
fn create_rq_in() {
    emits::<CreateRqIn>(
        |s| {
            s.set_opcode(0x908).set_uid(0x378b).set_op_mod(0xbdb7);
            s.ctx_mut()
                .set_user_index(0x648167)
                .set_cqn(0x4d0336)
                .set_hairpin_peer_vhca(0xac19);
            s.ctx_mut()
                .wq_mut()
                .set_end_padding_mode(2)
                .set_cd_slave(false)
                .set_sw_counter(0x9688d90c)
                .set_dbr_umem_valid(true);
        },
        &[
            (0x000, "0908378b a5a5bdb7"),
            (0x024, "a5648167 a54d0336"),
            (0x038, "a5a5ac19"),
            (0x050, "a4a5a5a5"),
            (0x06c, "9688d90c"),
            (0x074, "a5a5a5a5"),
        ],
    );
    fresh(&CreateRqIn::new().0, 0x908);
}

#[test]
fn create_rq_out_parsed() {
    parses::<CreateRqOut>(&[(0x000, "08a5a5a5 f9e9e221 a57c5b71")], |s| {
        assert_eq!(s.status(), 8);
        assert_eq!(s.syndrome(), 0xf9e9e221);
        assert_eq!(s.rqn(), 0x7c5b71);
    });
}

#[test]
fn modify_rq_in() {
    emits::<ModifyRqIn>(
        |s| {
            s.set_opcode(0x909)
                .set_uid(0xf984)
                .set_op_mod(0xb801)
                .set_rq_state(0xb)
                .set_rqn(0x876af1)
                .set_modify_bitmask(0xd3dfdb1ab786ec89);
            s.ctx_mut()
                .set_flush_in_error_en(false)
                .set_hairpin(true)
                .set_user_index(0xe5a0c8)
                .set_cqn(0xf13b23);
        },
        &[
            (0x000, "0909f984 a5a5b801 b5876af1"),
            (0x010, "d3dfdb1a b786ec89"),
            (0x020, "a5a3a5a5 a5e5a0c8 a5f13b23"),
        ],
    );
    fresh(&ModifyRqIn::new().0, 0x909);
}

#[test]
fn destroy_rq_in() {
    emits::<DestroyRqIn>(
        |s| {
            s.set_opcode(0x90a)
                .set_uid(0x3168)
                .set_op_mod(0x526)
                .set_rqn(0xc425f8);
        },
        &[(0x000, "090a3168 a5a50526 a5c425f8")],
    );
    fresh(&DestroyRqIn::new().0, 0x90a);
}

#[test]
fn query_rq_in() {
    emits::<QueryRqIn>(
        |s| {
            s.set_opcode(0x90b).set_op_mod(0xc116).set_rqn(0x8f3cce);
        },
        &[(0x000, "090ba5a5 a5a5c116 a58f3cce")],
    );
    fresh(&QueryRqIn::new().0, 0x90b);
}

#[test]
fn query_rq_out_parsed() {
    parses::<QueryRqOut>(
        &[
            (0x000, "08a5a5a5 5a0dab9c"),
            (0x020, "aaa5a5a5 a5e349a6"),
            (0x034, "a5e556df"),
        ],
        |s| {
            assert_eq!(s.status(), 8);
            assert_eq!(s.syndrome(), 0x5a0dab9c);
            assert!(s.rq_context().rlky());
            assert_eq!(s.rq_context().mem_rq_type(), 0xa);
            assert_eq!(s.rq_context().user_index(), 0xe349a6);
            assert_eq!(s.rq_context().hairpin_peer_sq(), 0xe556df);
        },
    );
}
