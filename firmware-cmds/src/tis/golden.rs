//! Golden bytes: emitted into, and parsed from, buffers full of 0xa5, so that a write beside its field shows. The
//! expected bytes are computed from the header's own offsets, not from this crate's.

use super::*;
use crate::golden::{emits, fresh, parses};

#[test]
fn tisc() {
    emits::<Tisc>(
        |s| {
            s.set_strict_lag_tx_port_affinity(true)
                .set_tls_en(false)
                .set_lag_tx_port_affinity(0)
                .set_prio(7)
                .set_transport_domain(0x231ac3)
                .set_underlay_qpn(0x88e3bb)
                .set_pd(0xc2391c);
        },
        &[(0x000, "a0a7a5a5"), (0x024, "a5231ac3 a588e3bb a5c2391c")],
    );
}

#[test]
fn tisc_parsed() {
    parses::<Tisc>(
        &[(0x000, "a0a7a5a5"), (0x024, "a5231ac3 a588e3bb a5c2391c")],
        |s| {
            assert!(s.strict_lag_tx_port_affinity());
            assert!(!s.tls_en());
            assert_eq!(s.lag_tx_port_affinity(), 0);
            assert_eq!(s.prio(), 7);
            assert_eq!(s.transport_domain(), 0x231ac3);
            assert_eq!(s.underlay_qpn(), 0x88e3bb);
            assert_eq!(s.pd(), 0xc2391c);
        },
    );
}

#[test]
fn modify_tis_bitmask() {
    emits::<ModifyTisBitmask>(
        |s| {
            s.set_lag_tx_port_affinity(true)
                .set_strict_lag_tx_port_affinity(true)
                .set_prio(false);
        },
        &[(0x004, "a5a5a5a6")],
    );
}

#[test]
fn modify_tis_bitmask_parsed() {
    parses::<ModifyTisBitmask>(&[(0x004, "a5a5a5a6")], |s| {
        assert!(s.lag_tx_port_affinity());
        assert!(s.strict_lag_tx_port_affinity());
        assert!(!s.prio());
    });
}

#[test]
fn create_tis_in() {
    emits::<CreateTisIn>(
        |s| {
            s.set_opcode(0x912).set_uid(0x20d6).set_op_mod(0x420a);
            s.ctx_mut()
                .set_strict_lag_tx_port_affinity(false)
                .set_lag_tx_port_affinity(5)
                .set_transport_domain(0x8cd9e1)
                .set_underlay_qpn(0x887c38);
        },
        &[
            (0x000, "091220d6 a5a5420a"),
            (0x020, "25a5a5a5"),
            (0x044, "a58cd9e1 a5887c38"),
        ],
    );
    fresh(&CreateTisIn::new().0, 0x912);
}

#[test]
fn create_tis_out_parsed() {
    parses::<CreateTisOut>(&[(0x000, "08a5a5a5 523bc5fd a5721cc7")], |s| {
        assert_eq!(s.status(), 8);
        assert_eq!(s.syndrome(), 0x523bc5fd);
        assert_eq!(s.tisn(), 0x721cc7);
    });
}

#[test]
fn modify_tis_in() {
    emits::<ModifyTisIn>(
        |s| {
            s.set_opcode(0x913)
                .set_uid(0x93d7)
                .set_op_mod(0x24e4)
                .set_tisn(0x7139d0);
            s.bitmask_mut()
                .set_lag_tx_port_affinity(true)
                .set_strict_lag_tx_port_affinity(true)
                .set_prio(false);
            s.ctx_mut()
                .set_strict_lag_tx_port_affinity(true)
                .set_lag_tx_port_affinity(9)
                .set_underlay_qpn(0xdf4722)
                .set_pd(0x9b35cd);
        },
        &[
            (0x000, "091393d7 a5a524e4 a57139d0"),
            (0x014, "a5a5a5a6"),
            (0x020, "a9a5a5a5"),
            (0x048, "a5df4722 a59b35cd"),
        ],
    );
    fresh(&ModifyTisIn::new().0, 0x913);
}

#[test]
fn destroy_tis_in() {
    emits::<DestroyTisIn>(
        |s| {
            s.set_opcode(0x914)
                .set_uid(0xbff4)
                .set_op_mod(0xb9f6)
                .set_tisn(0x7a1602);
        },
        &[(0x000, "0914bff4 a5a5b9f6 a57a1602")],
    );
    fresh(&DestroyTisIn::new().0, 0x914);
}

#[test]
fn query_tis_in() {
    emits::<QueryTisIn>(
        |s| {
            s.set_opcode(0x915).set_op_mod(0xd060).set_tisn(0x32b698);
        },
        &[(0x000, "0915a5a5 a5a5d060 a532b698")],
    );
    fresh(&QueryTisIn::new().0, 0x915);
}

#[test]
fn query_tis_out_parsed() {
    parses::<QueryTisOut>(
        &[
            (0x000, "08a5a5a5 b6c278aa"),
            (0x010, "a5a5a5a5"),
            (0x034, "a5f185c5 a50fc66c a5eccd46"),
        ],
        |s| {
            assert_eq!(s.status(), 8);
            assert_eq!(s.syndrome(), 0xb6c278aa);
            assert!(!s.tis_context().tls_en());
            assert_eq!(s.tis_context().transport_domain(), 0xf185c5);
            assert_eq!(s.tis_context().underlay_qpn(), 0xfc66c);
            assert_eq!(s.tis_context().pd(), 0xeccd46);
        },
    );
}
