//! Golden bytes: emitted into, and parsed from, buffers full of 0xa5, so that a write beside its field shows. The
//! expected bytes are computed from the header's own offsets, not from this crate's.

use super::*;
use crate::golden::{emits, fresh, parses};

#[test]
fn query_adapter_param_block() {
    emits::<QueryAdapterParamBlock>(
        |s| {
            s.set_ieee_vendor_id(0x8c6852).set_vsd_vendor_id(0x1dfa);
            s.vsd_mut().fill(0x15);
            s.vsd_contd_psid_mut().fill(0xd1);
        },
        &[
            (
                0x018,
                "a58c6852 a5a51dfa 15151515 15151515 15151515 15151515",
            ),
            (0x030, "15151515*48"),
            (0x0f0, "d1d1d1d1 d1d1d1d1 d1d1d1d1 d1d1d1d1"),
        ],
    );
}

#[test]
fn query_adapter_param_block_parsed() {
    parses::<QueryAdapterParamBlock>(
        &[
            (
                0x018,
                "a58c6852 a5a51dfa 15151515 15151515 15151515 15151515",
            ),
            (0x030, "15151515*48"),
            (0x0f0, "d1d1d1d1 d1d1d1d1 d1d1d1d1 d1d1d1d1"),
        ],
        |s| {
            assert_eq!(s.ieee_vendor_id(), 0x8c6852);
            assert_eq!(s.vsd_vendor_id(), 0x1dfa);
            assert_eq!(*s.vsd(), [0x15; 208]);
            assert_eq!(*s.vsd_contd_psid(), [0xd1; 16]);
        },
    );
}

#[test]
fn enable_hca_in() {
    emits::<EnableHcaIn>(
        |s| {
            s.set_opcode(0x104)
                .set_op_mod(0xcc78)
                .set_embedded_cpu_function(false)
                .set_function_id(0xe03);
        },
        &[(0x000, "0104a5a5 a5a5cc78 25a50e03")],
    );
    fresh(&EnableHcaIn::new().0, 0x104);
}

#[test]
fn disable_hca_in() {
    emits::<DisableHcaIn>(
        |s| {
            s.set_opcode(0x105)
                .set_op_mod(0xa764)
                .set_embedded_cpu_function(false)
                .set_function_id(0x8d1);
        },
        &[(0x000, "0105a5a5 a5a5a764 25a508d1")],
    );
    fresh(&DisableHcaIn::new().0, 0x105);
}

#[test]
fn query_issi_in() {
    emits::<QueryIssiIn>(
        |s| {
            s.set_opcode(0x10a).set_op_mod(0x13bc);
        },
        &[(0x000, "010aa5a5 a5a513bc")],
    );
    fresh(&QueryIssiIn::new().0, 0x10a);
}

#[test]
fn query_issi_out_parsed() {
    parses::<QueryIssiOut>(
        &[(0x000, "08a5a5a5 e5b64ad3 a5a502cb"), (0x06c, "6c6bc416")],
        |s| {
            assert_eq!(s.status(), 8);
            assert_eq!(s.syndrome(), 0xe5b64ad3);
            assert_eq!(s.current_issi(), 0x2cb);
            assert_eq!(s.supported_issi_dw0(), 0x6c6bc416);
        },
    );
}

#[test]
fn set_issi_in() {
    emits::<SetIssiIn>(
        |s| {
            s.set_opcode(0x10b)
                .set_op_mod(0xb31e)
                .set_current_issi(0xfce5);
        },
        &[(0x000, "010ba5a5 a5a5b31e a5a5fce5")],
    );
    fresh(&SetIssiIn::new().0, 0x10b);
}

#[test]
fn init_hca_in() {
    emits::<InitHcaIn>(
        |s| {
            s.set_opcode(0x102).set_op_mod(0xbdd).set_sw_vhca_id(0x1d4c);
            s.sw_owner_id_mut().fill(0xac);
        },
        &[
            (0x000, "0102a5a5 a5a50bdd"),
            (0x00c, "9d4ca5a5 acacacac acacacac acacacac acacacac"),
        ],
    );
    fresh(&InitHcaIn::new().0, 0x102);
}

#[test]
fn teardown_hca_in() {
    emits::<TeardownHcaIn>(
        |s| {
            s.set_opcode(0x103).set_op_mod(0x6e04).set_profile(0x1e0e);
        },
        &[(0x000, "0103a5a5 a5a56e04 a5a51e0e")],
    );
    fresh(&TeardownHcaIn::new().0, 0x103);
}

#[test]
fn teardown_hca_out_parsed() {
    parses::<TeardownHcaOut>(&[(0x000, "08a5a5a5 5d2bbc4e"), (0x00c, "a5a5a5a4")], |s| {
        assert_eq!(s.status(), 8);
        assert_eq!(s.syndrome(), 0x5d2bbc4e);
        assert!(!s.state());
    });
}

#[test]
fn query_adapter_in() {
    emits::<QueryAdapterIn>(
        |s| {
            s.set_opcode(0x101).set_op_mod(0xae2c);
        },
        &[(0x000, "0101a5a5 a5a5ae2c")],
    );
    fresh(&QueryAdapterIn::new().0, 0x101);
}

#[test]
fn query_adapter_out_parsed() {
    parses::<QueryAdapterOut>(
        &[
            (0x000, "08a5a5a5 c17137f2"),
            (
                0x028,
                "a58c6852 a5a51dfa 15151515 15151515 15151515 15151515",
            ),
            (0x040, "15151515*48"),
            (0x100, "d1d1d1d1 d1d1d1d1 d1d1d1d1 d1d1d1d1"),
        ],
        |s| {
            assert_eq!(s.status(), 8);
            assert_eq!(s.syndrome(), 0xc17137f2);
            assert_eq!(s.query_adapter_struct().ieee_vendor_id(), 0x8c6852);
            assert_eq!(s.query_adapter_struct().vsd_vendor_id(), 0x1dfa);
            assert_eq!(*s.query_adapter_struct().vsd(), [0x15; 208]);
            assert_eq!(*s.query_adapter_struct().vsd_contd_psid(), [0xd1; 16]);
        },
    );
}

#[test]
fn set_driver_version_in() {
    emits::<SetDriverVersionIn>(
        |s| {
            s.set_opcode(0x10d).set_op_mod(0x900d);
            s.driver_version_mut().fill(0x7c);
        },
        &[(0x000, "010da5a5 a5a5900d"), (0x010, "7c7c7c7c*16")],
    );
    fresh(&SetDriverVersionIn::new().0, 0x10d);
}

#[test]
fn nop_in() {
    emits::<NopIn>(
        |s| {
            s.set_opcode(0x80d).set_op_mod(0x8dba);
        },
        &[(0x000, "080da5a5 a5a58dba")],
    );
    fresh(&NopIn::new().0, 0x80d);
}
