//! Bytes computed from the offsets in the vendor's header, for some of the structures.

use super::*;
use crate::golden::emits;

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
