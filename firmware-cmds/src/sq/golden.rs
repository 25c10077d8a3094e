//! Golden bytes: emitted into, and parsed from, buffers full of 0xa5, so that a write beside its field shows. The
//! expected bytes are computed from the header's own offsets, not from this crate's.

use super::*;
use crate::golden::{emits, fresh, parses};

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

#[test]
fn sqc_parsed() {
    parses::<Sqc>(
        &[
            (0x000, "b3b3a585 a5bb05a2 a543bda9 a5b5fd2e a5a51881"),
            (0x018, "a576f5bc a5a5453f b41250c3"),
            (0x02c, "a5252a27 d5a5a5a5"),
            (0x048, "1eb4d990"),
            (0x050, "a5a5a5a5"),
            (0x06c, "a5a5a4a5"),
        ],
        |s| {
            assert!(s.rlky());
            assert!(!s.cd_master());
            assert!(s.fre());
            assert!(s.flush_in_error_en());
            assert!(!s.allow_multi_pkt_send_wqe());
            assert_eq!(s.min_wqe_inline_mode(), 3);
            assert_eq!(s.state(), 0xb);
            assert!(!s.reg_umr());
            assert!(!s.allow_swp());
            assert!(s.hairpin());
            assert_eq!(s.ts_format(), 0);
            assert_eq!(s.user_index(), 0xbb05a2);
            assert_eq!(s.cqn(), 0x43bda9);
            assert_eq!(s.hairpin_peer_rq(), 0xb5fd2e);
            assert_eq!(s.hairpin_peer_vhca(), 0x1881);
            assert_eq!(s.ts_cqe_to_dest_cqn(), 0x76f5bc);
            assert_eq!(s.packet_pacing_rate_limit_index(), 0x453f);
            assert_eq!(s.tis_lst_sz(), 0xb412);
            assert_eq!(s.qos_queue_group_id(), 0x50c3);
            assert_eq!(s.tis_num_0(), 0x252a27);
            assert_eq!(s.wq().wq_type(), 0xd);
            assert_eq!(s.wq().hw_counter(), 0x1eb4d990);
            assert_eq!(s.wq().log_wq_pg_sz(), 5);
            assert_eq!(s.wq().log_headers_entry_size(), 0);
        },
    );
}

#[test]
fn create_sq_in() {
    emits::<CreateSqIn>(
        |s| {
            s.set_opcode(0x904).set_uid(0xd8d2).set_op_mod(0x1fd3);
            s.ctx_mut()
                .set_allow_multi_pkt_send_wqe(false)
                .set_tis_lst_sz(0xef96)
                .set_qos_queue_group_id(0xf89f)
                .set_tis_num_0(0x342355);
        },
        &[
            (0x000, "0904d8d2 a5a51fd3"),
            (0x020, "a5a5a5a5"),
            (0x040, "ef96f89f"),
            (0x04c, "a5342355"),
        ],
    );
    fresh(&CreateSqIn::new().0, 0x904);
}

#[test]
fn create_sq_out_parsed() {
    parses::<CreateSqOut>(&[(0x000, "08a5a5a5 55061422 a504c43c")], |s| {
        assert_eq!(s.status(), 8);
        assert_eq!(s.syndrome(), 0x55061422);
        assert_eq!(s.sqn(), 0x4c43c);
    });
}

#[test]
fn modify_sq_in() {
    emits::<ModifySqIn>(
        |s| {
            s.set_opcode(0x905)
                .set_uid(0xb800)
                .set_op_mod(0x3842)
                .set_sq_state(8)
                .set_sqn(0xddd246)
                .set_modify_bitmask(0x196e2d4bf8cff1b2);
            s.ctx_mut()
                .set_rlky(false)
                .set_allow_multi_pkt_send_wqe(true)
                .set_tis_lst_sz(0x5635);
            s.ctx_mut()
                .wq_mut()
                .set_wq_type(9)
                .set_cd_slave(true)
                .set_dbr_addr(0x9fb4ecc632ad7156)
                .set_hw_counter(0xaca2343c);
        },
        &[
            (0x000, "0905b800 a5a53842 85ddd246"),
            (0x010, "196e2d4b f8cff1b2"),
            (0x020, "2da5a5a5"),
            (0x040, "5635a5a5"),
            (0x050, "95a5a5a5"),
            (0x060, "9fb4ecc6 32ad7156 aca2343c"),
        ],
    );
    fresh(&ModifySqIn::new().0, 0x905);
}

#[test]
fn destroy_sq_in() {
    emits::<DestroySqIn>(
        |s| {
            s.set_opcode(0x906)
                .set_uid(0xed54)
                .set_op_mod(0xf937)
                .set_sqn(0x66a104);
        },
        &[(0x000, "0906ed54 a5a5f937 a566a104")],
    );
    fresh(&DestroySqIn::new().0, 0x906);
}

#[test]
fn query_sq_in() {
    emits::<QuerySqIn>(
        |s| {
            s.set_opcode(0x907).set_op_mod(0x61c1).set_sqn(0x3c419f);
        },
        &[(0x000, "0907a5a5 a5a561c1 a53c419f")],
    );
    fresh(&QuerySqIn::new().0, 0x907);
}

#[test]
fn query_sq_out_parsed() {
    parses::<QuerySqOut>(
        &[
            (0x000, "08a5a5a5 f1b7521a"),
            (0x020, "a5a5a595"),
            (0x030, "a5a53a35"),
            (0x03c, "a5a5e891 a5a58b72"),
        ],
        |s| {
            assert_eq!(s.status(), 8);
            assert_eq!(s.syndrome(), 0xf1b7521a);
            assert_eq!(s.sq_context().ts_format(), 1);
            assert_eq!(s.sq_context().hairpin_peer_vhca(), 0x3a35);
            assert_eq!(s.sq_context().packet_pacing_rate_limit_index(), 0xe891);
            assert_eq!(s.sq_context().qos_queue_group_id(), 0x8b72);
        },
    );
}
