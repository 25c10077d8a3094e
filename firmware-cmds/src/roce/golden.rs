//! Bytes computed from the offsets in the vendor's header, for some of the structures.

use super::*;
use crate::golden::emits;

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
