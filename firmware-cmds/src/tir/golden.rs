//! Golden bytes: emitted into, and parsed from, buffers full of 0xa5, so that a write beside its field shows. The
//! expected bytes are computed from the header's own offsets, not from this crate's.

use super::*;
use crate::golden::{counting, emits, fresh, parses};

#[test]
fn rx_hash_field_select() {
    emits::<RxHashFieldSelect>(
        |s| {
            s.set_l3_prot_type(false)
                .set_l4_prot_type(false)
                .set_selected_fields(0x17698896);
        },
        &[(0x000, "17698896")],
    );
}

#[test]
fn rx_hash_field_select_parsed() {
    parses::<RxHashFieldSelect>(&[(0x000, "17698896")], |s| {
        assert!(!s.l3_prot_type());
        assert!(!s.l4_prot_type());
        assert_eq!(s.selected_fields(), 0x17698896);
    });
}

#[test]
fn tirc() {
    emits::<Tirc>(
        |s| {
            s.set_disp_type(3)
                .set_tls_en(true)
                .set_lro_timeout_period_usecs(0x54f6)
                .set_packet_merge_mask(8)
                .set_lro_max_ip_payload_size(0x64)
                .set_inline_rqn(0x92abef)
                .set_rx_hash_symmetric(false)
                .set_tunneled_offload_en(true)
                .set_indirect_table(0xba8522)
                .set_rx_hash_fn(0xf)
                .set_self_lb_block(3)
                .set_transport_domain(0x1a103a);
            *s.rx_hash_toeplitz_key_mut() = counting(0x9d, 1);
            s.rx_hash_field_selector_outer_mut()
                .set_l3_prot_type(true)
                .set_l4_prot_type(true)
                .set_selected_fields(0xcd55048);
            s.rx_hash_field_selector_inner_mut()
                .set_l3_prot_type(true)
                .set_l4_prot_type(false)
                .set_selected_fields(0x223a1085);
        },
        &[
            (0x004, "3da5a5a5"),
            (0x010, "a54f6864"),
            (
                0x01c,
                "a592abef 25ba8522 f71a103a 9d9e9fa0 a1a2a3a4 a5a6a7a8 a9aaabac adaeafb0 b1b2b3b4 b5b6b7b8 b9babbbc bdbebfc0 c1c2c3c4 ccd55048 a23a1085",
            ),
        ],
    );
}

#[test]
fn tirc_parsed() {
    parses::<Tirc>(
        &[
            (0x004, "3da5a5a5"),
            (0x010, "a54f6864"),
            (
                0x01c,
                "a592abef 25ba8522 f71a103a 9d9e9fa0 a1a2a3a4 a5a6a7a8 a9aaabac adaeafb0 b1b2b3b4 b5b6b7b8 b9babbbc bdbebfc0 c1c2c3c4 ccd55048 a23a1085",
            ),
        ],
        |s| {
            assert_eq!(s.disp_type(), 3);
            assert!(s.tls_en());
            assert_eq!(s.lro_timeout_period_usecs(), 0x54f6);
            assert_eq!(s.packet_merge_mask(), 8);
            assert_eq!(s.lro_max_ip_payload_size(), 0x64);
            assert_eq!(s.inline_rqn(), 0x92abef);
            assert!(!s.rx_hash_symmetric());
            assert!(s.tunneled_offload_en());
            assert_eq!(s.indirect_table(), 0xba8522);
            assert_eq!(s.rx_hash_fn(), 0xf);
            assert_eq!(s.self_lb_block(), 3);
            assert_eq!(s.transport_domain(), 0x1a103a);
            assert_eq!(s.rx_hash_toeplitz_key(), &counting(0x9d, 1));
            assert!(s.rx_hash_field_selector_outer().l3_prot_type());
            assert!(s.rx_hash_field_selector_outer().l4_prot_type());
            assert_eq!(
                s.rx_hash_field_selector_outer().selected_fields(),
                0xcd55048
            );
            assert!(s.rx_hash_field_selector_inner().l3_prot_type());
            assert!(!s.rx_hash_field_selector_inner().l4_prot_type());
            assert_eq!(
                s.rx_hash_field_selector_inner().selected_fields(),
                0x223a1085
            );
        },
    );
}

#[test]
fn modify_tir_bitmask() {
    emits::<ModifyTirBitmask>(
        |s| {
            s.set_self_lb_en(false)
                .set_hash(true)
                .set_packet_merge(false);
        },
        &[(0x004, "a5a5a5a4")],
    );
}

#[test]
fn modify_tir_bitmask_parsed() {
    parses::<ModifyTirBitmask>(&[(0x004, "a5a5a5a4")], |s| {
        assert!(!s.self_lb_en());
        assert!(s.hash());
        assert!(!s.packet_merge());
    });
}

#[test]
fn rqtc() {
    emits::<Rqtc>(
        |s| {
            s.set_list_q_type(2)
                .set_rqt_max_size(0x562c)
                .set_rq_vhca_id_format(false)
                .set_rqt_actual_size(0xdc8b);
        },
        &[(0x014, "a2a5562c 25a5dc8b")],
    );
}

#[test]
fn rqtc_parsed() {
    parses::<Rqtc>(&[(0x014, "a2a5562c 25a5dc8b")], |s| {
        assert_eq!(s.list_q_type(), 2);
        assert_eq!(s.rqt_max_size(), 0x562c);
        assert!(!s.rq_vhca_id_format());
        assert_eq!(s.rqt_actual_size(), 0xdc8b);
    });
}

#[test]
fn rqt_bitmask() {
    emits::<RqtBitmask>(
        |s| {
            s.set_rqn_list(false);
        },
        &[(0x004, "a5a5a5a4")],
    );
}

#[test]
fn rqt_bitmask_parsed() {
    parses::<RqtBitmask>(&[(0x004, "a5a5a5a4")], |s| {
        assert!(!s.rqn_list());
    });
}

#[test]
fn create_tir_in() {
    emits::<CreateTirIn>(
        |s| {
            s.set_opcode(0x900).set_uid(0x71f7).set_op_mod(0x9468);
            s.ctx_mut()
                .set_lro_timeout_period_usecs(0x568a)
                .set_indirect_table(0x448790)
                .set_rx_hash_fn(2);
            s.ctx_mut()
                .rx_hash_field_selector_outer_mut()
                .set_l3_prot_type(true)
                .set_l4_prot_type(false)
                .set_selected_fields(0xd776b51);
        },
        &[
            (0x000, "090071f7 a5a59468"),
            (0x030, "a568a5a5"),
            (0x040, "a5448790 25a5a5a5"),
            (0x070, "8d776b51"),
        ],
    );
    fresh(&CreateTirIn::new().0, 0x900);
}

#[test]
fn create_tir_out_parsed() {
    parses::<CreateTirOut>(&[(0x000, "085f029c 40fee211 9a216d59 3869801c")], |s| {
        assert_eq!(s.status(), 8);
        assert_eq!(s.icm_address_63_40(), 0x5f029c);
        assert_eq!(s.syndrome(), 0x40fee211);
        assert_eq!(s.icm_address_39_32(), 0x9a);
        assert_eq!(s.tirn(), 0x216d59);
        assert_eq!(s.icm_address_31_0(), 0x3869801c);
    });
}

#[test]
fn modify_tir_in() {
    emits::<ModifyTirIn>(
        |s| {
            s.set_opcode(0x901)
                .set_uid(0x60ab)
                .set_op_mod(0x4acf)
                .set_tirn(0x80ab77);
            s.bitmask_mut()
                .set_self_lb_en(false)
                .set_hash(true)
                .set_packet_merge(true);
            s.ctx_mut()
                .set_indirect_table(0x903a55)
                .set_self_lb_block(1)
                .set_transport_domain(0x679493);
            s.ctx_mut()
                .rx_hash_field_selector_inner_mut()
                .set_l3_prot_type(true)
                .set_l4_prot_type(false)
                .set_selected_fields(0x31b0a75);
        },
        &[
            (0x000, "090160ab a5a54acf a580ab77"),
            (0x014, "a5a5a5a5"),
            (0x040, "a5903a55 a5679493"),
            (0x074, "831b0a75"),
        ],
    );
    fresh(&ModifyTirIn::new().0, 0x901);
}

#[test]
fn destroy_tir_in() {
    emits::<DestroyTirIn>(
        |s| {
            s.set_opcode(0x902)
                .set_uid(0xd269)
                .set_op_mod(0x69f6)
                .set_tirn(0x1c2e63);
        },
        &[(0x000, "0902d269 a5a569f6 a51c2e63")],
    );
    fresh(&DestroyTirIn::new().0, 0x902);
}

#[test]
fn query_tir_in() {
    emits::<QueryTirIn>(
        |s| {
            s.set_opcode(0x903).set_op_mod(0xfe10).set_tirn(0x2faff);
        },
        &[(0x000, "0903a5a5 a5a5fe10 a502faff")],
    );
    fresh(&QueryTirIn::new().0, 0x903);
}

#[test]
fn query_tir_out_parsed() {
    parses::<QueryTirOut>(
        &[
            (0x000, "08a5a5a5 c21096fa"),
            (0x024, "35a5a5a5"),
            (0x044, "a5a5a5a5"),
            (0x070, "86a6fcf8 ea2483a4"),
        ],
        |s| {
            assert_eq!(s.status(), 8);
            assert_eq!(s.syndrome(), 0xc21096fa);
            assert_eq!(s.tir_context().disp_type(), 3);
            assert_eq!(s.tir_context().rx_hash_fn(), 0xa);
            assert!(
                s.tir_context()
                    .rx_hash_field_selector_outer()
                    .l3_prot_type()
            );
            assert!(
                !s.tir_context()
                    .rx_hash_field_selector_outer()
                    .l4_prot_type()
            );
            assert_eq!(
                s.tir_context()
                    .rx_hash_field_selector_outer()
                    .selected_fields(),
                0x6a6fcf8
            );
            assert!(
                s.tir_context()
                    .rx_hash_field_selector_inner()
                    .l3_prot_type()
            );
            assert!(
                s.tir_context()
                    .rx_hash_field_selector_inner()
                    .l4_prot_type()
            );
            assert_eq!(
                s.tir_context()
                    .rx_hash_field_selector_inner()
                    .selected_fields(),
                0x2a2483a4
            );
        },
    );
}

#[test]
fn create_rqt_in() {
    emits::<CreateRqtIn>(
        |s| {
            s.set_opcode(0x916).set_uid(0x2911).set_op_mod(0x820e);
            s.rqt_context_mut()
                .set_list_q_type(3)
                .set_rqt_max_size(0x4d5f)
                .set_rq_vhca_id_format(true)
                .set_rqt_actual_size(0x8b26);
        },
        &[(0x000, "09162911 a5a5820e"), (0x034, "a3a54d5f a5a58b26")],
    );
    fresh(&CreateRqtIn::new().0, 0x916);
}

#[test]
fn create_rqt_out_parsed() {
    parses::<CreateRqtOut>(&[(0x000, "08a5a5a5 9ca24039 a530c992")], |s| {
        assert_eq!(s.status(), 8);
        assert_eq!(s.syndrome(), 0x9ca24039);
        assert_eq!(s.rqtn(), 0x30c992);
    });
}

#[test]
fn modify_rqt_in() {
    emits::<ModifyRqtIn>(
        |s| {
            s.set_opcode(0x917)
                .set_uid(0xb7ac)
                .set_op_mod(0xb93b)
                .set_rqtn(0x7f8e04);
            s.bitmask_mut().set_rqn_list(true);
            s.ctx_mut()
                .set_list_q_type(3)
                .set_rqt_max_size(0x6b10)
                .set_rq_vhca_id_format(true)
                .set_rqt_actual_size(0x37f9);
        },
        &[
            (0x000, "0917b7ac a5a5b93b a57f8e04"),
            (0x014, "a5a5a5a5"),
            (0x034, "a3a56b10 a5a537f9"),
        ],
    );
    fresh(&ModifyRqtIn::new().0, 0x917);
}

#[test]
fn destroy_rqt_in() {
    emits::<DestroyRqtIn>(
        |s| {
            s.set_opcode(0x918)
                .set_uid(0x16fe)
                .set_op_mod(0x53bd)
                .set_rqtn(0x8e92f8);
        },
        &[(0x000, "091816fe a5a553bd a58e92f8")],
    );
    fresh(&DestroyRqtIn::new().0, 0x918);
}

#[test]
fn query_rqt_in() {
    emits::<QueryRqtIn>(
        |s| {
            s.set_opcode(0x919).set_op_mod(0x67fc).set_rqtn(0xbe36e1);
        },
        &[(0x000, "0919a5a5 a5a567fc a5be36e1")],
    );
    fresh(&QueryRqtIn::new().0, 0x919);
}

#[test]
fn query_rqt_out_parsed() {
    parses::<QueryRqtOut>(
        &[(0x000, "08a5a5a5 4e294276"), (0x034, "a2a52e05 25a5e4b1")],
        |s| {
            assert_eq!(s.status(), 8);
            assert_eq!(s.syndrome(), 0x4e294276);
            assert_eq!(s.rqt_context().list_q_type(), 2);
            assert_eq!(s.rqt_context().rqt_max_size(), 0x2e05);
            assert!(!s.rqt_context().rq_vhca_id_format());
            assert_eq!(s.rqt_context().rqt_actual_size(), 0xe4b1);
        },
    );
}
