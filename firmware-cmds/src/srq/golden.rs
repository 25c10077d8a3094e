//! Golden bytes: emitted into, and parsed from, buffers full of 0xa5, so that a write beside its field shows. The
//! expected bytes are computed from the header's own offsets, not from this crate's.

use super::*;
use crate::golden::{emits, fresh, parses};

#[test]
fn srqc() {
    emits::<Srqc>(
        |s| {
            s.set_state(0xe)
                .set_log_srq_size(0xc)
                .set_wq_signature(false)
                .set_cont_srq(true)
                .set_rlky(false)
                .set_log_rq_stride(3)
                .set_xrcd(0x9fa5e6)
                .set_page_offset(0x1c)
                .set_cqn(0x1a5caa)
                .set_log_page_size(0x1b)
                .set_pd(0x34656d)
                .set_lwm(0x3f78)
                .set_wqe_cnt(0xeb11)
                .set_dbr_addr(0x9116d14d718331);
        },
        &[
            (0x000, "eca5a5a5 639fa5e6 711a5caa"),
            (0x010, "9ba5a5a5"),
            (0x018, "a534656d 3f78eb11"),
            (0x028, "009116d1 4d718331"),
        ],
    );
}

#[test]
fn srqc_parsed() {
    parses::<Srqc>(
        &[
            (0x000, "eca5a5a5 639fa5e6 711a5caa"),
            (0x010, "9ba5a5a5"),
            (0x018, "a534656d 3f78eb11"),
            (0x028, "009116d1 4d718331"),
        ],
        |s| {
            assert_eq!(s.state(), 0xe);
            assert_eq!(s.log_srq_size(), 0xc);
            assert!(!s.wq_signature());
            assert!(s.cont_srq());
            assert!(!s.rlky());
            assert_eq!(s.log_rq_stride(), 3);
            assert_eq!(s.xrcd(), 0x9fa5e6);
            assert_eq!(s.page_offset(), 0x1c);
            assert_eq!(s.cqn(), 0x1a5caa);
            assert_eq!(s.log_page_size(), 0x1b);
            assert_eq!(s.pd(), 0x34656d);
            assert_eq!(s.lwm(), 0x3f78);
            assert_eq!(s.wqe_cnt(), 0xeb11);
            assert_eq!(s.dbr_addr(), 0x9116d14d718331);
        },
    );
}

#[test]
fn xrc_srqc() {
    emits::<XrcSrqc>(
        |s| {
            s.set_state(2)
                .set_log_xrc_srq_size(0xc)
                .set_wq_signature(false)
                .set_cont_srq(true)
                .set_rlky(false)
                .set_basic_cyclic_rcv_wqe(true)
                .set_log_rq_stride(1)
                .set_xrcd(0x710620)
                .set_page_offset(0x23)
                .set_dbr_umem_valid(true)
                .set_cqn(0xa734a1)
                .set_user_index_equal_xrc_srqn(true)
                .set_log_page_size(0x1a)
                .set_user_index(0x928cd5)
                .set_pd(0xd09b31)
                .set_lwm(0xe3d1)
                .set_wqe_cnt(0x17b7)
                .set_db_record_addr_h(0xa1a0e09a)
                .set_db_record_addr_l(0x131b3838);
        },
        &[
            (0x000, "2ca5a5a5 69710620 8da734a1"),
            (0x010, "9a928cd5"),
            (0x018, "a5d09b31 e3d117b7"),
            (0x028, "a1a0e09a 4c6ce0e1"),
        ],
    );
}

#[test]
fn xrc_srqc_parsed() {
    parses::<XrcSrqc>(
        &[
            (0x000, "2ca5a5a5 69710620 8da734a1"),
            (0x010, "9a928cd5"),
            (0x018, "a5d09b31 e3d117b7"),
            (0x028, "a1a0e09a 4c6ce0e1"),
        ],
        |s| {
            assert_eq!(s.state(), 2);
            assert_eq!(s.log_xrc_srq_size(), 0xc);
            assert!(!s.wq_signature());
            assert!(s.cont_srq());
            assert!(!s.rlky());
            assert!(s.basic_cyclic_rcv_wqe());
            assert_eq!(s.log_rq_stride(), 1);
            assert_eq!(s.xrcd(), 0x710620);
            assert_eq!(s.page_offset(), 0x23);
            assert!(s.dbr_umem_valid());
            assert_eq!(s.cqn(), 0xa734a1);
            assert!(s.user_index_equal_xrc_srqn());
            assert_eq!(s.log_page_size(), 0x1a);
            assert_eq!(s.user_index(), 0x928cd5);
            assert_eq!(s.pd(), 0xd09b31);
            assert_eq!(s.lwm(), 0xe3d1);
            assert_eq!(s.wqe_cnt(), 0x17b7);
            assert_eq!(s.db_record_addr_h(), 0xa1a0e09a);
            assert_eq!(s.db_record_addr_l(), 0x131b3838);
        },
    );
}

#[test]
fn wq() {
    emits::<Wq>(
        |s| {
            s.set_wq_type(1)
                .set_wq_signature(true)
                .set_end_padding_mode(3)
                .set_cd_slave(true)
                .set_hds_skip_first_sge(false)
                .set_log2_hds_buf_size(6)
                .set_page_offset(0x19)
                .set_lwm(0xf607)
                .set_pd(0x85b365)
                .set_uar_page(0x7f70e)
                .set_dbr_addr(0x51b216fef3582a)
                .set_hw_counter(0xc0754b16)
                .set_sw_counter(0xfe8e5f85)
                .set_log_wq_stride(0xd)
                .set_log_wq_pg_sz(0xe)
                .set_log_wq_sz(6)
                .set_dbr_umem_valid(false)
                .set_wq_umem_valid(true)
                .set_log_hairpin_num_packets(0xe)
                .set_log_hairpin_data_sz(0x1c)
                .set_log_wqe_num_of_strides(0xc)
                .set_two_byte_shift_en(true)
                .set_log_wqe_stride_size(2)
                .set_headers_mkey(0xf5d99f)
                .set_shampo_enable(false)
                .set_log_reservation_size(6)
                .set_log_max_num_of_packets_per_reservation(1)
                .set_log_headers_entry_size(3)
                .set_log_headers_buffer_entry_num(4);
        },
        &[
            (
                0x000,
                "1fa5a5a5 65b9f607 a585b365 a507f70e 0051b216 fef3582a",
            ),
            (0x018, "c0754b16 fe8e5f85 a5adaea6 6ebcaca2"),
            (0x038, "00f5d99f 26a1a7a4"),
        ],
    );
}

#[test]
fn wq_parsed() {
    parses::<Wq>(
        &[
            (
                0x000,
                "1fa5a5a5 65b9f607 a585b365 a507f70e 0051b216 fef3582a",
            ),
            (0x018, "c0754b16 fe8e5f85 a5adaea6 6ebcaca2"),
            (0x038, "00f5d99f 26a1a7a4"),
        ],
        |s| {
            assert_eq!(s.wq_type(), 1);
            assert!(s.wq_signature());
            assert_eq!(s.end_padding_mode(), 3);
            assert!(s.cd_slave());
            assert!(!s.hds_skip_first_sge());
            assert_eq!(s.log2_hds_buf_size(), 6);
            assert_eq!(s.page_offset(), 0x19);
            assert_eq!(s.lwm(), 0xf607);
            assert_eq!(s.pd(), 0x85b365);
            assert_eq!(s.uar_page(), 0x7f70e);
            assert_eq!(s.dbr_addr(), 0x51b216fef3582a);
            assert_eq!(s.hw_counter(), 0xc0754b16);
            assert_eq!(s.sw_counter(), 0xfe8e5f85);
            assert_eq!(s.log_wq_stride(), 0xd);
            assert_eq!(s.log_wq_pg_sz(), 0xe);
            assert_eq!(s.log_wq_sz(), 6);
            assert!(!s.dbr_umem_valid());
            assert!(s.wq_umem_valid());
            assert_eq!(s.log_hairpin_num_packets(), 0xe);
            assert_eq!(s.log_hairpin_data_sz(), 0x1c);
            assert_eq!(s.log_wqe_num_of_strides(), 0xc);
            assert!(s.two_byte_shift_en());
            assert_eq!(s.log_wqe_stride_size(), 2);
            assert_eq!(s.headers_mkey(), 0xf5d99f);
            assert!(!s.shampo_enable());
            assert_eq!(s.log_reservation_size(), 6);
            assert_eq!(s.log_max_num_of_packets_per_reservation(), 1);
            assert_eq!(s.log_headers_entry_size(), 3);
            assert_eq!(s.log_headers_buffer_entry_num(), 4);
        },
    );
}

#[test]
fn rmpc() {
    emits::<Rmpc>(
        |s| {
            s.set_state(0xa).set_basic_cyclic_rcv_wqe(true);
            s.wq_mut()
                .set_wq_type(1)
                .set_wq_signature(true)
                .set_log_wq_sz(6);
        },
        &[
            (0x000, "a5a5a5a5 a5a5a5a5"),
            (0x030, "1da5a5a5"),
            (0x050, "a5a5a5a6"),
        ],
    );
}

#[test]
fn rmpc_parsed() {
    parses::<Rmpc>(
        &[
            (0x000, "a5a5a5a5 a5a5a5a5"),
            (0x030, "1da5a5a5"),
            (0x050, "a5a5a5a6"),
        ],
        |s| {
            assert_eq!(s.state(), 0xa);
            assert!(s.basic_cyclic_rcv_wqe());
            assert_eq!(s.wq().wq_type(), 1);
            assert!(s.wq().wq_signature());
            assert_eq!(s.wq().log_wq_sz(), 6);
        },
    );
}

#[test]
fn rmp_bitmask() {
    emits::<RmpBitmask>(
        |s| {
            s.set_lwm(false);
        },
        &[(0x004, "a5a5a5a4")],
    );
}

#[test]
fn rmp_bitmask_parsed() {
    parses::<RmpBitmask>(&[(0x004, "a5a5a5a4")], |s| {
        assert!(!s.lwm());
    });
}

#[test]
fn create_srq_in() {
    emits::<CreateSrqIn>(
        |s| {
            s.set_opcode(0x700).set_uid(0xf9a0).set_op_mod(0xdee1);
            s.srq_context_entry_mut()
                .set_state(0xe)
                .set_log_srq_size(0xc)
                .set_page_offset(0x1c)
                .set_dbr_addr(0x9116d14d718331);
        },
        &[
            (0x000, "0700f9a0 a5a5dee1"),
            (0x010, "eca5a5a5"),
            (0x018, "71a5a5a5"),
            (0x038, "009116d1 4d718331"),
        ],
    );
    fresh(&CreateSrqIn::new().0, 0x700);
}

#[test]
fn create_srq_out_parsed() {
    parses::<CreateSrqOut>(&[(0x000, "08a5a5a5 bb002342 a59d9924")], |s| {
        assert_eq!(s.status(), 8);
        assert_eq!(s.syndrome(), 0xbb002342);
        assert_eq!(s.srqn(), 0x9d9924);
    });
}

#[test]
fn destroy_srq_in() {
    emits::<DestroySrqIn>(
        |s| {
            s.set_opcode(0x701)
                .set_uid(0x333b)
                .set_op_mod(0xefc3)
                .set_srqn(0x55495);
        },
        &[(0x000, "0701333b a5a5efc3 a5055495")],
    );
    fresh(&DestroySrqIn::new().0, 0x701);
}

#[test]
fn query_srq_in() {
    emits::<QuerySrqIn>(
        |s| {
            s.set_opcode(0x702).set_op_mod(0xd508).set_srqn(0x5996b3);
        },
        &[(0x000, "0702a5a5 a5a5d508 a55996b3")],
    );
    fresh(&QuerySrqIn::new().0, 0x702);
}

#[test]
fn query_srq_out_parsed() {
    parses::<QuerySrqOut>(
        &[
            (0x000, "08a5a5a5 31abf3ad"),
            (0x010, "eca5a5a5"),
            (0x018, "71a5a5a5"),
            (0x038, "009116d1 4d718331"),
        ],
        |s| {
            assert_eq!(s.status(), 8);
            assert_eq!(s.syndrome(), 0x31abf3ad);
            assert_eq!(s.srq_context_entry().state(), 0xe);
            assert_eq!(s.srq_context_entry().log_srq_size(), 0xc);
            assert_eq!(s.srq_context_entry().page_offset(), 0x1c);
            assert_eq!(s.srq_context_entry().dbr_addr(), 0x9116d14d718331);
        },
    );
}

#[test]
fn arm_rq_in() {
    emits::<ArmRqIn>(
        |s| {
            s.set_opcode(0x703)
                .set_uid(0x7252)
                .set_op_mod(0x7ad5)
                .set_srq_number(0xd82a13)
                .set_lwm(0x3a74);
        },
        &[(0x000, "07037252 a5a57ad5 a5d82a13 a5a53a74")],
    );
    fresh(&ArmRqIn::new().0, 0x703);
}

#[test]
fn create_xrc_srq_in() {
    emits::<CreateXrcSrqIn>(
        |s| {
            s.set_opcode(0x705).set_uid(0xb39a).set_op_mod(0xe9c2);
            s.xrc_srq_context_entry_mut()
                .set_state(2)
                .set_log_xrc_srq_size(0xc)
                .set_dbr_umem_valid(true)
                .set_db_record_addr_l(0x131b3838);
            s.set_xrc_srq_umem_valid(true);
        },
        &[
            (0x000, "0705b39a a5a5e9c2"),
            (0x010, "2ca5a5a5"),
            (0x018, "a5a5a5a5"),
            (0x03c, "4c6ce0e1"),
            (0x05c, "a5a5a5a5"),
        ],
    );
    fresh(&CreateXrcSrqIn::new().0, 0x705);
}

#[test]
fn create_xrc_srq_out_parsed() {
    parses::<CreateXrcSrqOut>(&[(0x000, "08a5a5a5 e106c4de a53e0a90")], |s| {
        assert_eq!(s.status(), 8);
        assert_eq!(s.syndrome(), 0xe106c4de);
        assert_eq!(s.xrc_srqn(), 0x3e0a90);
    });
}

#[test]
fn destroy_xrc_srq_in() {
    emits::<DestroyXrcSrqIn>(
        |s| {
            s.set_opcode(0x706)
                .set_uid(0xef55)
                .set_op_mod(0xcd9c)
                .set_xrc_srqn(0x2809f7);
        },
        &[(0x000, "0706ef55 a5a5cd9c a52809f7")],
    );
    fresh(&DestroyXrcSrqIn::new().0, 0x706);
}

#[test]
fn query_xrc_srq_in() {
    emits::<QueryXrcSrqIn>(
        |s| {
            s.set_opcode(0x707)
                .set_op_mod(0x2c3a)
                .set_xrc_srqn(0x3aa65f);
        },
        &[(0x000, "0707a5a5 a5a52c3a a53aa65f")],
    );
    fresh(&QueryXrcSrqIn::new().0, 0x707);
}

#[test]
fn query_xrc_srq_out_parsed() {
    parses::<QueryXrcSrqOut>(
        &[
            (0x000, "08a5a5a5 ffabc9b9"),
            (0x010, "2ca5a5a5"),
            (0x018, "a4a5a5a5"),
            (0x03c, "4c6ce0e1"),
        ],
        |s| {
            assert_eq!(s.status(), 8);
            assert_eq!(s.syndrome(), 0xffabc9b9);
            assert_eq!(s.xrc_srq_context_entry().state(), 2);
            assert_eq!(s.xrc_srq_context_entry().log_xrc_srq_size(), 0xc);
            assert!(!s.xrc_srq_context_entry().dbr_umem_valid());
            assert_eq!(s.xrc_srq_context_entry().db_record_addr_l(), 0x131b3838);
        },
    );
}

#[test]
fn arm_xrc_srq_in() {
    emits::<ArmXrcSrqIn>(
        |s| {
            s.set_opcode(0x708)
                .set_uid(0x18fa)
                .set_op_mod(0xc402)
                .set_xrc_srqn(0xc8331c)
                .set_lwm(0x797f);
        },
        &[(0x000, "070818fa a5a5c402 a5c8331c a5a5797f")],
    );
    fresh(&ArmXrcSrqIn::new().0, 0x708);
}

#[test]
fn create_rmp_in() {
    emits::<CreateRmpIn>(
        |s| {
            s.set_opcode(0x90c).set_uid(0x58c9).set_op_mod(0x7f88);
            s.ctx_mut().set_state(0xa).set_basic_cyclic_rcv_wqe(false);
            s.ctx_mut()
                .wq_mut()
                .set_wq_type(1)
                .set_wq_signature(false)
                .set_log_wq_sz(6);
        },
        &[
            (0x000, "090c58c9 a5a57f88"),
            (0x020, "a5a5a5a5 25a5a5a5"),
            (0x050, "15a5a5a5"),
            (0x070, "a5a5a5a6"),
        ],
    );
    fresh(&CreateRmpIn::new().0, 0x90c);
}

#[test]
fn create_rmp_out_parsed() {
    parses::<CreateRmpOut>(&[(0x000, "08a5a5a5 d1d30c66 a56f651b")], |s| {
        assert_eq!(s.status(), 8);
        assert_eq!(s.syndrome(), 0xd1d30c66);
        assert_eq!(s.rmpn(), 0x6f651b);
    });
}

#[test]
fn modify_rmp_in() {
    emits::<ModifyRmpIn>(
        |s| {
            s.set_opcode(0x90d)
                .set_uid(0xcab)
                .set_op_mod(0x2bea)
                .set_rmp_state(0xf)
                .set_rmpn(0x559285);
            s.bitmask_mut().set_lwm(true);
            s.ctx_mut().set_state(0xa).set_basic_cyclic_rcv_wqe(true);
            s.ctx_mut()
                .wq_mut()
                .set_wq_type(1)
                .set_wq_signature(true)
                .set_log_wq_sz(6);
        },
        &[
            (0x000, "090d0cab a5a52bea f5559285"),
            (0x014, "a5a5a5a5"),
            (0x020, "a5a5a5a5 a5a5a5a5"),
            (0x050, "1da5a5a5"),
            (0x070, "a5a5a5a6"),
        ],
    );
    fresh(&ModifyRmpIn::new().0, 0x90d);
}

#[test]
fn destroy_rmp_in() {
    emits::<DestroyRmpIn>(
        |s| {
            s.set_opcode(0x90e)
                .set_uid(0x9252)
                .set_op_mod(0x4eaa)
                .set_rmpn(0x626e7);
        },
        &[(0x000, "090e9252 a5a54eaa a50626e7")],
    );
    fresh(&DestroyRmpIn::new().0, 0x90e);
}

#[test]
fn query_rmp_in() {
    emits::<QueryRmpIn>(
        |s| {
            s.set_opcode(0x90f).set_op_mod(0x7461).set_rmpn(0x3c2d82);
        },
        &[(0x000, "090fa5a5 a5a57461 a53c2d82")],
    );
    fresh(&QueryRmpIn::new().0, 0x90f);
}

#[test]
fn query_rmp_out_parsed() {
    parses::<QueryRmpOut>(
        &[
            (0x000, "08a5a5a5 5b78dc89"),
            (0x020, "a5a5a5a5 a5a5a5a5"),
            (0x050, "1da5a5a5"),
            (0x070, "a5a5a5a6"),
        ],
        |s| {
            assert_eq!(s.status(), 8);
            assert_eq!(s.syndrome(), 0x5b78dc89);
            assert_eq!(s.rmp_context().state(), 0xa);
            assert!(s.rmp_context().basic_cyclic_rcv_wqe());
            assert_eq!(s.rmp_context().wq().wq_type(), 1);
            assert!(s.rmp_context().wq().wq_signature());
            assert_eq!(s.rmp_context().wq().log_wq_sz(), 6);
        },
    );
}
