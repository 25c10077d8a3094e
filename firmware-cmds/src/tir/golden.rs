//! Bytes computed from the offsets in the vendor's header, for some of the structures.

use super::*;
use crate::golden::{counting, emits};

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
