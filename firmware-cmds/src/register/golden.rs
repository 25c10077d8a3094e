//! Golden bytes: emitted into, and parsed from, buffers full of 0xa5, so that a write beside its field shows. The
//! expected bytes are computed from the header's own offsets, not from this crate's.

use super::*;
use crate::golden::{emits, fresh, parses};

#[test]
fn register_host_endianness() {
    emits::<RegisterHostEndianness>(
        |s| {
            s.set_he(false);
        },
        &[(0x000, "25a5a5a5")],
    );
}

#[test]
fn register_host_endianness_parsed() {
    parses::<RegisterHostEndianness>(&[(0x000, "25a5a5a5")], |s| {
        assert!(!s.he());
    });
}

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
fn ptys_reg_parsed() {
    parses::<PtysReg>(
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
        |s| {
            assert!(!s.an_disable_admin());
            assert!(s.an_disable_cap());
            assert_eq!(s.local_port(), 0x1d);
            assert_eq!(s.proto_mask(), 7);
            assert_eq!(s.an_status(), 4);
            assert_eq!(s.data_rate_oper(), 0x5e95);
            assert_eq!(s.ext_eth_proto_capability(), 0x79c531b6);
            assert_eq!(s.eth_proto_capability(), 0x39e20a5c);
            assert_eq!(s.ib_link_width_capability(), 0x5e15);
            assert_eq!(s.ib_proto_capability(), 0xeb1b);
            assert_eq!(s.ext_eth_proto_admin(), 0xddeeb393);
            assert_eq!(s.eth_proto_admin(), 0x650f74a);
            assert_eq!(s.ib_link_width_admin(), 0x3ce0);
            assert_eq!(s.ib_proto_admin(), 0xf3fb);
            assert_eq!(s.ext_eth_proto_oper(), 0xb74808dc);
            assert_eq!(s.eth_proto_oper(), 0x85cd0e8d);
            assert_eq!(s.ib_link_width_oper(), 0x1cf7);
            assert_eq!(s.ib_proto_oper(), 0xa491);
            assert_eq!(s.connector_type(), 1);
            assert_eq!(s.eth_proto_lp_advertise(), 0x4b54a51c);
        },
    );
}

#[test]
fn pmtu_reg() {
    emits::<PmtuReg>(
        |s| {
            s.set_local_port(0x63)
                .set_max_mtu(0x1039)
                .set_admin_mtu(0x79a9)
                .set_oper_mtu(0xa975);
        },
        &[(0x000, "a563a5a5 1039a5a5 79a9a5a5 a975a5a5")],
    );
}

#[test]
fn pmtu_reg_parsed() {
    parses::<PmtuReg>(&[(0x000, "a563a5a5 1039a5a5 79a9a5a5 a975a5a5")], |s| {
        assert_eq!(s.local_port(), 0x63);
        assert_eq!(s.max_mtu(), 0x1039);
        assert_eq!(s.admin_mtu(), 0x79a9);
        assert_eq!(s.oper_mtu(), 0xa975);
    });
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

#[test]
fn paos_reg_parsed() {
    parses::<PaosReg>(&[(0x000, "29b8aca4 65a5a5a7")], |s| {
        assert_eq!(s.swid(), 0x29);
        assert_eq!(s.local_port(), 0xb8);
        assert_eq!(s.admin_status(), 0xc);
        assert_eq!(s.oper_status(), 4);
        assert!(!s.ase());
        assert!(s.ee());
        assert_eq!(s.e(), 3);
    });
}

#[test]
fn pvlc_reg() {
    emits::<PvlcReg>(
        |s| {
            s.set_local_port(0x36)
                .set_vl_hw_cap(0xb)
                .set_vl_admin(0xc)
                .set_vl_operational(8);
        },
        &[(0x000, "a536a5a5 a5a5a5ab a5a5a5ac a5a5a5a8")],
    );
}

#[test]
fn pvlc_reg_parsed() {
    parses::<PvlcReg>(&[(0x000, "a536a5a5 a5a5a5ab a5a5a5ac a5a5a5a8")], |s| {
        assert_eq!(s.local_port(), 0x36);
        assert_eq!(s.vl_hw_cap(), 0xb);
        assert_eq!(s.vl_admin(), 0xc);
        assert_eq!(s.vl_operational(), 8);
    });
}

#[test]
fn ppcnt_reg() {
    emits::<PpcntReg>(
        |s| {
            s.set_swid(0xad)
                .set_local_port(0x12)
                .set_pnat(3)
                .set_grp(0x13)
                .set_clr(false)
                .set_prio_tc(7);
            s.counter_set_mut().fill(0x93);
        },
        &[
            (
                0x000,
                "ad12e593 25a5a5a7 93939393 93939393 93939393 93939393",
            ),
            (0x018, "93939393*58"),
        ],
    );
}

#[test]
fn ppcnt_reg_parsed() {
    parses::<PpcntReg>(
        &[
            (
                0x000,
                "ad12e593 25a5a5a7 93939393 93939393 93939393 93939393",
            ),
            (0x018, "93939393*58"),
        ],
        |s| {
            assert_eq!(s.swid(), 0xad);
            assert_eq!(s.local_port(), 0x12);
            assert_eq!(s.pnat(), 3);
            assert_eq!(s.grp(), 0x13);
            assert!(!s.clr());
            assert_eq!(s.prio_tc(), 7);
            assert_eq!(*s.counter_set(), [0x93; 248]);
        },
    );
}

#[test]
fn dtor_reg() {
    emits::<DtorReg>(
        |s| {
            s.set_pcie_toggle_to(0x954231d0)
                .set_health_poll_to(0x5d4cb403)
                .set_full_crdump_to(0xa06a59d4)
                .set_fw_reset_to(0xd75a4bff)
                .set_flush_on_err_to(0x6271a4e4)
                .set_pci_sync_update_to(0x594e2d9a)
                .set_tear_down_to(0xb3ffd66)
                .set_fsm_reactivate_to(0xdb1caf08)
                .set_reclaim_pages_to(0xc4557b65)
                .set_reclaim_vfs_pages_to(0xaa0022a7);
        },
        &[
            (0x004, "954231d0"),
            (
                0x014,
                "5d4cb403 a06a59d4 d75a4bff 6271a4e4 594e2d9a 0b3ffd66",
            ),
            (0x02c, "db1caf08 c4557b65 aa0022a7"),
        ],
    );
}

#[test]
fn dtor_reg_parsed() {
    parses::<DtorReg>(
        &[
            (0x004, "954231d0"),
            (
                0x014,
                "5d4cb403 a06a59d4 d75a4bff 6271a4e4 594e2d9a 0b3ffd66",
            ),
            (0x02c, "db1caf08 c4557b65 aa0022a7"),
        ],
        |s| {
            assert_eq!(s.pcie_toggle_to(), 0x954231d0);
            assert_eq!(s.health_poll_to(), 0x5d4cb403);
            assert_eq!(s.full_crdump_to(), 0xa06a59d4);
            assert_eq!(s.fw_reset_to(), 0xd75a4bff);
            assert_eq!(s.flush_on_err_to(), 0x6271a4e4);
            assert_eq!(s.pci_sync_update_to(), 0x594e2d9a);
            assert_eq!(s.tear_down_to(), 0xb3ffd66);
            assert_eq!(s.fsm_reactivate_to(), 0xdb1caf08);
            assert_eq!(s.reclaim_pages_to(), 0xc4557b65);
            assert_eq!(s.reclaim_vfs_pages_to(), 0xaa0022a7);
        },
    );
}

#[test]
fn access_register_in() {
    emits::<AccessRegisterIn>(
        |s| {
            s.set_opcode(0x805)
                .set_op_mod(0x156d)
                .set_register_id(0x9a4a)
                .set_argument(0x44331410);
        },
        &[(0x000, "0805a5a5 a5a5156d a5a59a4a 44331410")],
    );
    fresh(&AccessRegisterIn::new().0, 0x805);
}

#[test]
fn access_register_out_parsed() {
    parses::<AccessRegisterOut>(&[(0x000, "08a5a5a5 953c3d9e")], |s| {
        assert_eq!(s.status(), 8);
        assert_eq!(s.syndrome(), 0x953c3d9e);
    });
}

#[test]
fn eth_802_3_cntrs_grp_data_layout() {
    emits::<Eth8023Counters>(
        |s| {
            s.set_a_frames_transmitted_ok_high(0xdf926ea1)
                .set_a_frames_transmitted_ok_low(0x6fab031f)
                .set_a_frames_received_ok_high(0x30923962)
                .set_a_frames_received_ok_low(0x4aa80758)
                .set_a_frame_check_sequence_errors_high(0xef991e83)
                .set_a_frame_check_sequence_errors_low(0xa59bd671)
                .set_a_alignment_errors_high(0xc9aa4df5)
                .set_a_alignment_errors_low(0xaf6f96ad)
                .set_a_octets_transmitted_ok_high(0xf836153e)
                .set_a_octets_transmitted_ok_low(0xb00b6f8a)
                .set_a_octets_received_ok_high(0xb9f7f912)
                .set_a_octets_received_ok_low(0xa177ab25)
                .set_a_multicast_frames_xmitted_ok_high(0x2c79f5c4)
                .set_a_multicast_frames_xmitted_ok_low(0xad17361a)
                .set_a_broadcast_frames_xmitted_ok_high(0xca5fe18c)
                .set_a_broadcast_frames_xmitted_ok_low(0x1c54d8f6)
                .set_a_multicast_frames_received_ok_high(0xdda1015)
                .set_a_multicast_frames_received_ok_low(0x43db736f)
                .set_a_broadcast_frames_received_ok_high(0x5bdd3ee4)
                .set_a_broadcast_frames_received_ok_low(0xe3693b02)
                .set_a_in_range_length_errors_high(0x1da3ce6f)
                .set_a_in_range_length_errors_low(0xc1343d44)
                .set_a_out_of_range_length_field_high(0x76189227)
                .set_a_out_of_range_length_field_low(0xf894ec7c)
                .set_a_frame_too_long_errors_high(0xa8421a15)
                .set_a_frame_too_long_errors_low(0xdaed570e)
                .set_a_symbol_error_during_carrier_high(0x2c1a04d1)
                .set_a_symbol_error_during_carrier_low(0x3685a80d)
                .set_a_mac_control_frames_transmitted_high(0xae05657)
                .set_a_mac_control_frames_transmitted_low(0x1009ba85)
                .set_a_mac_control_frames_received_high(0xf0ad5b27)
                .set_a_mac_control_frames_received_low(0x2b779363)
                .set_a_unsupported_opcodes_received_high(0x740f98e9)
                .set_a_unsupported_opcodes_received_low(0x3f13caad)
                .set_a_pause_mac_ctrl_frames_received_high(0x6dd6e85d)
                .set_a_pause_mac_ctrl_frames_received_low(0xb66b833a)
                .set_a_pause_mac_ctrl_frames_transmitted_high(0x8e6757d5)
                .set_a_pause_mac_ctrl_frames_transmitted_low(0xbc7b1e27);
        },
        &[(
            0x000,
            "df926ea1 6fab031f 30923962 4aa80758 ef991e83 a59bd671 c9aa4df5 af6f96ad f836153e b00b6f8a b9f7f912 a177ab25 2c79f5c4 ad17361a ca5fe18c 1c54d8f6 0dda1015 43db736f 5bdd3ee4 e3693b02 1da3ce6f c1343d44 76189227 f894ec7c a8421a15 daed570e 2c1a04d1 3685a80d 0ae05657 1009ba85 f0ad5b27 2b779363 740f98e9 3f13caad 6dd6e85d b66b833a 8e6757d5 bc7b1e27",
        )],
    );
}

#[test]
fn eth_802_3_cntrs_grp_data_layout_parsed() {
    parses::<Eth8023Counters>(
        &[(
            0x000,
            "df926ea1 6fab031f 30923962 4aa80758 ef991e83 a59bd671 c9aa4df5 af6f96ad f836153e b00b6f8a b9f7f912 a177ab25 2c79f5c4 ad17361a ca5fe18c 1c54d8f6 0dda1015 43db736f 5bdd3ee4 e3693b02 1da3ce6f c1343d44 76189227 f894ec7c a8421a15 daed570e 2c1a04d1 3685a80d 0ae05657 1009ba85 f0ad5b27 2b779363 740f98e9 3f13caad 6dd6e85d b66b833a 8e6757d5 bc7b1e27",
        )],
        |s| {
            assert_eq!(s.a_frames_transmitted_ok_high(), 0xdf926ea1);
            assert_eq!(s.a_frames_transmitted_ok_low(), 0x6fab031f);
            assert_eq!(s.a_frames_received_ok_high(), 0x30923962);
            assert_eq!(s.a_frames_received_ok_low(), 0x4aa80758);
            assert_eq!(s.a_frame_check_sequence_errors_high(), 0xef991e83);
            assert_eq!(s.a_frame_check_sequence_errors_low(), 0xa59bd671);
            assert_eq!(s.a_alignment_errors_high(), 0xc9aa4df5);
            assert_eq!(s.a_alignment_errors_low(), 0xaf6f96ad);
            assert_eq!(s.a_octets_transmitted_ok_high(), 0xf836153e);
            assert_eq!(s.a_octets_transmitted_ok_low(), 0xb00b6f8a);
            assert_eq!(s.a_octets_received_ok_high(), 0xb9f7f912);
            assert_eq!(s.a_octets_received_ok_low(), 0xa177ab25);
            assert_eq!(s.a_multicast_frames_xmitted_ok_high(), 0x2c79f5c4);
            assert_eq!(s.a_multicast_frames_xmitted_ok_low(), 0xad17361a);
            assert_eq!(s.a_broadcast_frames_xmitted_ok_high(), 0xca5fe18c);
            assert_eq!(s.a_broadcast_frames_xmitted_ok_low(), 0x1c54d8f6);
            assert_eq!(s.a_multicast_frames_received_ok_high(), 0xdda1015);
            assert_eq!(s.a_multicast_frames_received_ok_low(), 0x43db736f);
            assert_eq!(s.a_broadcast_frames_received_ok_high(), 0x5bdd3ee4);
            assert_eq!(s.a_broadcast_frames_received_ok_low(), 0xe3693b02);
            assert_eq!(s.a_in_range_length_errors_high(), 0x1da3ce6f);
            assert_eq!(s.a_in_range_length_errors_low(), 0xc1343d44);
            assert_eq!(s.a_out_of_range_length_field_high(), 0x76189227);
            assert_eq!(s.a_out_of_range_length_field_low(), 0xf894ec7c);
            assert_eq!(s.a_frame_too_long_errors_high(), 0xa8421a15);
            assert_eq!(s.a_frame_too_long_errors_low(), 0xdaed570e);
            assert_eq!(s.a_symbol_error_during_carrier_high(), 0x2c1a04d1);
            assert_eq!(s.a_symbol_error_during_carrier_low(), 0x3685a80d);
            assert_eq!(s.a_mac_control_frames_transmitted_high(), 0xae05657);
            assert_eq!(s.a_mac_control_frames_transmitted_low(), 0x1009ba85);
            assert_eq!(s.a_mac_control_frames_received_high(), 0xf0ad5b27);
            assert_eq!(s.a_mac_control_frames_received_low(), 0x2b779363);
            assert_eq!(s.a_unsupported_opcodes_received_high(), 0x740f98e9);
            assert_eq!(s.a_unsupported_opcodes_received_low(), 0x3f13caad);
            assert_eq!(s.a_pause_mac_ctrl_frames_received_high(), 0x6dd6e85d);
            assert_eq!(s.a_pause_mac_ctrl_frames_received_low(), 0xb66b833a);
            assert_eq!(s.a_pause_mac_ctrl_frames_transmitted_high(), 0x8e6757d5);
            assert_eq!(s.a_pause_mac_ctrl_frames_transmitted_low(), 0xbc7b1e27);
        },
    );
}
