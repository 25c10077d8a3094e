//! Bytes computed from the offsets in the vendor's header, for some of the structures.

use super::*;
use crate::golden::emits;

#[test]
fn ptys_reg() {
    emits::<PtysReg>(
        |s| {
            s.set_an_disable_admin(false)
                .set_an_disable_cap(true)
                .set_local_port(0x1d)
                .set_proto_mask(7)
                .set_an_status(4)
                .set_data_rate_oper(0x5e95)
                .set_ext_eth_proto_capability(0x79c531b6)
                .set_eth_proto_capability(0x39e20a5c)
                .set_ib_link_width_capability(0x5e15)
                .set_ib_proto_capability(0xeb1b)
                .set_ext_eth_proto_admin(0xddeeb393)
                .set_eth_proto_admin(0x650f74a)
                .set_ib_link_width_admin(0x3ce0)
                .set_ib_proto_admin(0xf3fb)
                .set_ext_eth_proto_oper(0xb74808dc)
                .set_eth_proto_oper(0x85cd0e8d)
                .set_ib_link_width_oper(0x1cf7)
                .set_ib_proto_oper(0xa491)
                .set_connector_type(1)
                .set_eth_proto_lp_advertise(0x4b54a51c);
        },
        &[
            (
                0x000,
                "a51da5a7 45a55e95 79c531b6 39e20a5c 5e15eb1b ddeeb393",
            ),
            (
                0x018,
                "0650f74a 3ce0f3fb b74808dc 85cd0e8d 1cf7a491 a5a5a5a1",
            ),
            (0x030, "4b54a51c"),
        ],
    );
}

#[test]
fn paos_reg() {
    emits::<PaosReg>(
        |s| {
            s.set_swid(0x29)
                .set_local_port(0xb8)
                .set_admin_status(0xc)
                .set_oper_status(4)
                .set_ase(false)
                .set_ee(true)
                .set_e(3);
        },
        &[(0x000, "29b8aca4 65a5a5a7")],
    );
}
