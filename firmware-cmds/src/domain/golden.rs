//! Golden bytes: emitted into, and parsed from, buffers full of 0xa5, so that a write beside its field shows. The
//! expected bytes are computed from the header's own offsets, not from this crate's.

use super::*;
use crate::golden::{emits, fresh, parses};

#[test]
fn alloc_pd_in() {
    emits::<AllocPdIn>(
        |s| {
            s.set_opcode(0x800).set_uid(0x3bae).set_op_mod(0xaea5);
        },
        &[(0x000, "08003bae a5a5aea5")],
    );
    fresh(&AllocPdIn::new().0, 0x800);
}

#[test]
fn alloc_pd_out_parsed() {
    parses::<AllocPdOut>(&[(0x000, "08a5a5a5 4f924eb5 a5da157a")], |s| {
        assert_eq!(s.status(), 8);
        assert_eq!(s.syndrome(), 0x4f924eb5);
        assert_eq!(s.pd(), 0xda157a);
    });
}

#[test]
fn dealloc_pd_in() {
    emits::<DeallocPdIn>(
        |s| {
            s.set_opcode(0x801)
                .set_uid(0xb450)
                .set_op_mod(0x9311)
                .set_pd(0x413b0d);
        },
        &[(0x000, "0801b450 a5a59311 a5413b0d")],
    );
    fresh(&DeallocPdIn::new().0, 0x801);
}

#[test]
fn alloc_transport_domain_in() {
    emits::<AllocTransportDomainIn>(
        |s| {
            s.set_opcode(0x816).set_uid(0x1b7c).set_op_mod(0xee68);
        },
        &[(0x000, "08161b7c a5a5ee68")],
    );
    fresh(&AllocTransportDomainIn::new().0, 0x816);
}

#[test]
fn alloc_transport_domain_out_parsed() {
    parses::<AllocTransportDomainOut>(&[(0x000, "08a5a5a5 8bea672a a5f78a49")], |s| {
        assert_eq!(s.status(), 8);
        assert_eq!(s.syndrome(), 0x8bea672a);
        assert_eq!(s.transport_domain(), 0xf78a49);
    });
}

#[test]
fn dealloc_transport_domain_in() {
    emits::<DeallocTransportDomainIn>(
        |s| {
            s.set_opcode(0x817)
                .set_uid(0xba71)
                .set_op_mod(0x5fbf)
                .set_transport_domain(0xe28d5b);
        },
        &[(0x000, "0817ba71 a5a55fbf a5e28d5b")],
    );
    fresh(&DeallocTransportDomainIn::new().0, 0x817);
}

#[test]
fn alloc_xrcd_in() {
    emits::<AllocXrcdIn>(
        |s| {
            s.set_opcode(0x80e).set_uid(0x41f1).set_op_mod(0x66b0);
        },
        &[(0x000, "080e41f1 a5a566b0")],
    );
    fresh(&AllocXrcdIn::new().0, 0x80e);
}

#[test]
fn alloc_xrcd_out_parsed() {
    parses::<AllocXrcdOut>(&[(0x000, "08a5a5a5 3556c54f a53dc102")], |s| {
        assert_eq!(s.status(), 8);
        assert_eq!(s.syndrome(), 0x3556c54f);
        assert_eq!(s.xrcd(), 0x3dc102);
    });
}

#[test]
fn dealloc_xrcd_in() {
    emits::<DeallocXrcdIn>(
        |s| {
            s.set_opcode(0x80f)
                .set_uid(0x1ecd)
                .set_op_mod(0xfba9)
                .set_xrcd(0x1ae212);
        },
        &[(0x000, "080f1ecd a5a5fba9 a51ae212")],
    );
    fresh(&DeallocXrcdIn::new().0, 0x80f);
}
