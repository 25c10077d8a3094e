//! Golden bytes: emitted into, and parsed from, buffers full of 0xa5, so that a write beside its field shows. The
//! expected bytes are computed from the header's own offsets, not from this crate's.

use super::*;
use crate::golden::{emits, fresh, parses};

#[test]
fn roce_addr_layout() {
    emits::<RoceAddr>(
        |s| {
            s.source_l3_address_mut().fill(0xdb);
            s.set_vlan_valid(true)
                .set_vlan_id(0xb3d)
                .set_source_mac_47_32(0xc215)
                .set_source_mac_31_0(0xaf24b0f8)
                .set_roce_l3_type(2)
                .set_roce_version(0x1d);
        },
        &[
            (
                0x000,
                "dbdbdbdb dbdbdbdb dbdbdbdb dbdbdbdb bb3dc215 af24b0f8",
            ),
            (0x018, "a5a5a21d"),
        ],
    );
}

#[test]
fn roce_addr_layout_parsed() {
    parses::<RoceAddr>(
        &[
            (
                0x000,
                "dbdbdbdb dbdbdbdb dbdbdbdb dbdbdbdb bb3dc215 af24b0f8",
            ),
            (0x018, "a5a5a21d"),
        ],
        |s| {
            assert_eq!(*s.source_l3_address(), [0xdb; 16]);
            assert!(s.vlan_valid());
            assert_eq!(s.vlan_id(), 0xb3d);
            assert_eq!(s.source_mac_47_32(), 0xc215);
            assert_eq!(s.source_mac_31_0(), 0xaf24b0f8);
            assert_eq!(s.roce_l3_type(), 2);
            assert_eq!(s.roce_version(), 0x1d);
        },
    );
}

#[test]
fn query_roce_address_in() {
    emits::<QueryRoceAddressIn>(
        |s| {
            s.set_opcode(0x760)
                .set_op_mod(0x394)
                .set_roce_address_index(0xe00a)
                .set_vhca_port_num(0xb);
        },
        &[(0x000, "0760a5a5 a5a50394 e00aa5ab")],
    );
    fresh(&QueryRoceAddressIn::new().0, 0x760);
}

#[test]
fn query_roce_address_out_parsed() {
    parses::<QueryRoceAddressOut>(
        &[
            (0x000, "08a5a5a5 7bff2eb0"),
            (0x010, "dbdbdbdb dbdbdbdb dbdbdbdb dbdbdbdb b5a5c215"),
            (0x028, "a5a5a51d"),
        ],
        |s| {
            assert_eq!(s.status(), 8);
            assert_eq!(s.syndrome(), 0x7bff2eb0);
            assert_eq!(*s.roce_address().source_l3_address(), [0xdb; 16]);
            assert!(s.roce_address().vlan_valid());
            assert_eq!(s.roce_address().source_mac_47_32(), 0xc215);
            assert_eq!(s.roce_address().roce_version(), 0x1d);
        },
    );
}

#[test]
fn set_roce_address_in() {
    emits::<SetRoceAddressIn>(
        |s| {
            s.set_opcode(0x761)
                .set_op_mod(0xa64a)
                .set_roce_address_index(0x34a9)
                .set_vhca_port_num(7);
            s.roce_address_mut().source_l3_address_mut().fill(0xdb);
            s.roce_address_mut()
                .set_vlan_valid(true)
                .set_source_mac_47_32(0xc215)
                .set_roce_version(0x1d);
        },
        &[
            (0x000, "0761a5a5 a5a5a64a 34a9a5a7"),
            (0x010, "dbdbdbdb dbdbdbdb dbdbdbdb dbdbdbdb b5a5c215"),
            (0x028, "a5a5a51d"),
        ],
    );
    fresh(&SetRoceAddressIn::new().0, 0x761);
}
