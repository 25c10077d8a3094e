//! Golden bytes: emitted into, and parsed from, buffers full of 0xa5, so that a write beside its field shows. The
//! expected bytes are computed from the header's own offsets, not from this crate's.

use super::*;
use crate::golden::{emits, fresh, parses};

#[test]
fn cmd_hca_cap() {
    emits::<HcaCap>(
        |s| {
            s.set_log_max_srq_sz(0x84)
                .set_log_max_qp_sz(0x69)
                .set_log_max_qp(4)
                .set_log_max_cq_sz(0xe9)
                .set_log_max_cq(0x1b)
                .set_log_max_mkey(0x15)
                .set_log_max_eq(4)
                .set_log_max_ra_req_qp(0x13)
                .set_gid_table_size(0xd5b8)
                .set_pkey_table_size(0x9a2b)
                .set_port_type(3)
                .set_num_ports(0xdb)
                .set_log_max_msg(3)
                .set_cqe_version(0xc)
                .set_cmdif_checksum(1)
                .set_roce(true)
                .set_atomic(false)
                .set_xrc(true)
                .set_log_bf_reg_size(8)
                .set_max_wqe_sz_sq(0x40da)
                .set_log_max_pd(0x1a)
                .set_log_max_xrcd(0x17)
                .set_general_obj_types(0x17263e7bddec225)
                .set_max_num_eqs(0xe5be)
                .set_log_uar_page_sz(0x1c74)
                .set_num_of_uars_per_page(0x47f1b6dd)
                .set_match_definer_format_supported(0x1c02bacca6641e8);
        },
        &[
            (0x010, "8469a5a4"),
            (0x018, "a5e9a5bb a595a5a4"),
            (
                0x028,
                "a593a5a5 a5a5d5b8 a5a59a2b a5a5a7db a3a5a5a5 a5a5a5ac",
            ),
            (0x040, "a5a565a5 a5a5a5ad"),
            (0x04c, "a5a8a5a5 a5a540da"),
            (0x064, "a5baa5b7"),
            (0x080, "017263e7 bddec225"),
            (0x08c, "a5a5e5be a5a51c74"),
            (0x0a4, "47f1b6dd"),
            (0x0f8, "01c02bac ca6641e8"),
        ],
    );
}

#[test]
fn cmd_hca_cap_parsed() {
    parses::<HcaCap>(
        &[
            (0x010, "8469a5a4"),
            (0x018, "a5e9a5bb a595a5a4"),
            (
                0x028,
                "a593a5a5 a5a5d5b8 a5a59a2b a5a5a7db a3a5a5a5 a5a5a5ac",
            ),
            (0x040, "a5a565a5 a5a5a5ad"),
            (0x04c, "a5a8a5a5 a5a540da"),
            (0x064, "a5baa5b7"),
            (0x080, "017263e7 bddec225"),
            (0x08c, "a5a5e5be a5a51c74"),
            (0x0a4, "47f1b6dd"),
            (0x0f8, "01c02bac ca6641e8"),
        ],
        |s| {
            assert_eq!(s.log_max_srq_sz(), 0x84);
            assert_eq!(s.log_max_qp_sz(), 0x69);
            assert_eq!(s.log_max_qp(), 4);
            assert_eq!(s.log_max_cq_sz(), 0xe9);
            assert_eq!(s.log_max_cq(), 0x1b);
            assert_eq!(s.log_max_mkey(), 0x15);
            assert_eq!(s.log_max_eq(), 4);
            assert_eq!(s.log_max_ra_req_qp(), 0x13);
            assert_eq!(s.gid_table_size(), 0xd5b8);
            assert_eq!(s.pkey_table_size(), 0x9a2b);
            assert_eq!(s.port_type(), 3);
            assert_eq!(s.num_ports(), 0xdb);
            assert_eq!(s.log_max_msg(), 3);
            assert_eq!(s.cqe_version(), 0xc);
            assert_eq!(s.cmdif_checksum(), 1);
            assert!(s.roce());
            assert!(!s.atomic());
            assert!(s.xrc());
            assert_eq!(s.log_bf_reg_size(), 8);
            assert_eq!(s.max_wqe_sz_sq(), 0x40da);
            assert_eq!(s.log_max_pd(), 0x1a);
            assert_eq!(s.log_max_xrcd(), 0x17);
            assert_eq!(s.general_obj_types(), 0x17263e7bddec225);
            assert_eq!(s.max_num_eqs(), 0xe5be);
            assert_eq!(s.log_uar_page_sz(), 0x1c74);
            assert_eq!(s.num_of_uars_per_page(), 0x47f1b6dd);
            assert_eq!(s.match_definer_format_supported(), 0x1c02bacca6641e8);
        },
    );
}

#[test]
fn roce_cap() {
    emits::<RoceCap>(
        |s| {
            s.set_roce_apm(false)
                .set_sw_r_roce_src_udp_port(true)
                .set_fl_rc_qp_when_roce_disabled(false)
                .set_fl_rc_qp_when_roce_enabled(true)
                .set_qp_ts_format(2)
                .set_l3_type(0xa)
                .set_roce_version(0x1b)
                .set_r_roce_dest_udp_port(0x6eca)
                .set_r_roce_max_src_udp_port(0x141)
                .set_r_roce_min_src_udp_port(0x7fe6)
                .set_roce_address_table_size(0x3db1);
        },
        &[
            (0x000, "2ba5a5a6"),
            (0x010, "a5aaa51b a5a56eca 01417fe6 a5a53db1"),
        ],
    );
}

#[test]
fn roce_cap_parsed() {
    parses::<RoceCap>(
        &[
            (0x000, "2ba5a5a6"),
            (0x010, "a5aaa51b a5a56eca 01417fe6 a5a53db1"),
        ],
        |s| {
            assert!(!s.roce_apm());
            assert!(s.sw_r_roce_src_udp_port());
            assert!(!s.fl_rc_qp_when_roce_disabled());
            assert!(s.fl_rc_qp_when_roce_enabled());
            assert_eq!(s.qp_ts_format(), 2);
            assert_eq!(s.l3_type(), 0xa);
            assert_eq!(s.roce_version(), 0x1b);
            assert_eq!(s.r_roce_dest_udp_port(), 0x6eca);
            assert_eq!(s.r_roce_max_src_udp_port(), 0x141);
            assert_eq!(s.r_roce_min_src_udp_port(), 0x7fe6);
            assert_eq!(s.roce_address_table_size(), 0x3db1);
        },
    );
}

#[test]
fn atomic_caps() {
    emits::<AtomicCaps>(
        |s| {
            s.set_atomic_req_8B_endianness_mode(2)
                .set_supported_atomic_req_8B_endianness_mode_1(true)
                .set_atomic_operations(0x151d)
                .set_atomic_size_qp(0xfe6c)
                .set_atomic_size_dc(0xa239);
        },
        &[(0x008, "a7a5a5a5"), (0x010, "a5a5151d a5a5fe6c a5a5a239")],
    );
}

#[test]
fn atomic_caps_parsed() {
    parses::<AtomicCaps>(
        &[(0x008, "a7a5a5a5"), (0x010, "a5a5151d a5a5fe6c a5a5a239")],
        |s| {
            assert_eq!(s.atomic_req_8B_endianness_mode(), 2);
            assert!(s.supported_atomic_req_8B_endianness_mode_1());
            assert_eq!(s.atomic_operations(), 0x151d);
            assert_eq!(s.atomic_size_qp(), 0xfe6c);
            assert_eq!(s.atomic_size_dc(), 0xa239);
        },
    );
}

#[test]
fn query_hca_cap_in() {
    emits::<QueryHcaCapIn>(
        |s| {
            s.set_opcode(0x100)
                .set_op_mod(0x188a)
                .set_other_function(false)
                .set_function_id(0x1bfe);
        },
        &[(0x000, "0100a5a5 a5a5188a 25a51bfe")],
    );
    fresh(&QueryHcaCapIn::new().0, 0x100);
}

#[test]
fn query_hca_cap_out_parsed() {
    parses::<QueryHcaCapOut>(&[(0x000, "08a5a5a5 aa84e83e")], |s| {
        assert_eq!(s.status(), 8);
        assert_eq!(s.syndrome(), 0xaa84e83e);
    });
}

#[test]
fn set_hca_cap_in() {
    emits::<SetHcaCapIn>(
        |s| {
            s.set_opcode(0x109)
                .set_op_mod(0xc3ac)
                .set_other_function(false)
                .set_function_id(0x6c19);
        },
        &[(0x000, "0109a5a5 a5a5c3ac 25a56c19")],
    );
    fresh(&SetHcaCapIn::new().0, 0x109);
}
